"""Kinds of operators: from an aten name or an ONNX operator type to the words of ``records.Op``.

Why one table for both: the calibration of a runtime, the ledger and the profile meet only by kind,
so all three must say the same word for the same work. An unknown name is ``other``; it is never
guessed from its spelling, because a wrong kind gives a confident wrong prediction.
Convolutions with one input channel a group are ``depthwise``: that needs the weight, so callers
pass it (:func:`conv_kind`). Torch's fused attention blocks are ``matmul``: nearly all that they do is
products with weights, as linear layers.
"""

from __future__ import annotations

KINDS = (
    "conv", "depthwise", "matmul", "attention", "elementwise", "norm", "pool", "reduce", "softmax",
    "embedding", "recurrent", "copy", "view", "other",
)  # fmt: skip
"""Every kind, as listed in ``records.Op``."""

ARITHMETIC = frozenset({"conv", "depthwise", "matmul", "attention", "recurrent"})
"""Kinds whose calibrated rate is FLOP/s; that of the others is B/s."""

QUANTISABLE = frozenset({"conv", "depthwise", "matmul", "recurrent"})
"""Kinds for which runtimes have int8 kernels with a weight."""

_ATEN = {
    "conv": """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution
        convolution_overrideable mkldnn_convolution thnn_conv2d _slow_conv2d_forward slow_conv3d slow_conv3d_forward
        slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d slow_conv_dilated3d cudnn_convolution
        _conv_depthwise2d mkldnn_convolution_pointwise _convolution_pointwise conv_tbc quantized_conv1d
        quantized_conv2d quantized_conv3d qconv_pointwise qconv2d_pointwise cudnn_convolution_transpose
        miopen_convolution convolution_backward""",
    "matmul": """mm bmm addmm addbmm baddbmm addmv mv dot vdot ger addr matmul linear mkldnn_linear _int_mm
        _scaled_mm _weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu einsum bilinear _trilinear
        _linear_pointwise _mkl_linear quantized_linear quantized_linear_dynamic qlinear_pointwise _addmm_activation
        linalg_multi_dot inner outer cdist _cdist_forward _cdist_backward _grouped_mm tensordot chain_matmul kron
        _mixed_dtypes_linear _native_multi_head_attention _transformer_encoder_layer_fwd""",
    "attention": """scaled_dot_product_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
        _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math
        _scaled_dot_product_fused_attention_overrideable _flash_attention_forward _efficient_attention_forward
        flex_attention _scaled_dot_product_attention_math_for_mps _scaled_dot_product_flash_attention_for_cpu_backward
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_fused_attention_overrideable_backward
        _flash_attention_backward _efficient_attention_backward""",
    "norm": """batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
        _batch_norm_impl_index _batch_norm_no_update _batch_norm_with_update cudnn_batch_norm mkldnn_batch_norm
        layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm _fused_rms_norm
        local_response_norm renorm normalize native_batch_norm_backward batch_norm_backward
        cudnn_batch_norm_backward native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward""",
    "pool": """max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices
        max_pool1d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_adaptive_avg_pool2d avg_pool1d avg_pool2d
        avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
        _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d
        max_unpool2d quantized_max_pool2d quantized_max_pool1d max_pool2d_with_indices_backward
        max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward
        _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward""",
    "reduce": """sum mean prod max min amax amin aminmax argmax argmin all any norm linalg_vector_norm var std
        var_mean std_mean logsumexp nansum nanmean median nanmedian mode count_nonzero cumsum cumprod cummax cummin
        _cummax_helper _cummin_helper logcumsumexp trace topk sort argsort kthvalue bincount histc unique unique_dim
        _unique2 unique_consecutive nll_loss nll_loss_forward nll_loss2d_forward cross_entropy_loss mse_loss l1_loss
        smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div scatter_reduce
        segment_reduce searchsorted bucketize dist linalg_norm is_nonzero equal nll_loss_backward
        nll_loss2d_backward""",
    "softmax": """softmax _softmax log_softmax _log_softmax _safe_softmax _softmax_backward_data
        _log_softmax_backward_data""",
    "embedding": """embedding embedding_bag _embedding_bag _embedding_bag_forward_only embedding_renorm_ index_select
        gather index take take_along_dim embedding_bag_byte_rowwise_offsets embedding_bag_4bit_rowwise_offsets
        embedding_byte embedding_4bit one_hot embedding_dense_backward _embedding_bag_backward
        _embedding_bag_dense_backward""",
    "recurrent": """lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell mkldnn_rnn_layer
        _thnn_fused_lstm_cell _thnn_fused_gru_cell _cudnn_rnn quantized_lstm quantized_gru quantized_lstm_cell
        miopen_rnn mkldnn_rnn_layer_backward _cudnn_rnn_backward""",
    "copy": """clone copy copy_ contiguous _to_copy to cat concat concatenate stack hstack vstack repeat
        repeat_interleave pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
        replication_pad2d replication_pad3d _pad_enum roll flip rot90 tile index_put index_put_ _index_put_impl_
        scatter scatter_ scatter_add scatter_add_ index_add index_add_ index_copy index_copy_ masked_scatter
        masked_scatter_ masked_select nonzero tril triu fill fill_ zero_ zeros zeros_like ones ones_like full full_like
        new_full new_zeros new_ones arange linspace eye scalar_tensor empty_permuted_copy to_mkldnn _to_dense to_dense
        mkldnn_reorder_conv2d_weight _reshape_copy im2col col2im unfold_copy pixel_shuffle pixel_unshuffle
        channel_shuffle as_strided_scatter slice_scatter select_scatter diagonal_scatter narrow_copy
        permute_copy view_copy expand_copy transpose_copy slice_copy select_copy squeeze_copy unsqueeze_copy split_copy
        split_with_sizes_copy cartesian_prod meshgrid_copy block_diag tril_indices triu_indices combinations
        native_channel_shuffle resize_ set_data _local_scalar_dense item diag_embed diag rand rand_like randn
        randn_like randint randint_like randperm normal_ uniform_ bernoulli_ exponential_ multinomial normal
        quantize_per_tensor_dynamic_copy select_backward slice_backward embedding_sparse_backward unfold_backward
        diagonal_backward""",
    "view": """view reshape _unsafe_view _reshape_alias as_strided expand expand_as permute transpose t transpose_ t_
        numpy_T mT mH adjoint squeeze squeeze_ unsqueeze unsqueeze_ slice select narrow split split_with_sizes chunk
        tensor_split unbind unfold flatten unflatten ravel view_as detach detach_ alias lift lift_fresh lift_fresh_copy
        diagonal movedim moveaxis swapaxes swapdims view_as_real view_as_complex real imag _conj conj resolve_conj
        resolve_neg _neg_view positive empty empty_like empty_strided new_empty new_empty_strided empty_permuted
        _assert_async _assert_scalar sym_size sym_numel sym_stride sym_constrain_range sym_constrain_range_for_size
        _assert_tensor_metadata is_same_size dropout alpha_dropout feature_dropout native_dropout_inference
        broadcast_to broadcast_tensors meshgrid hsplit vsplit dsplit atleast_1d atleast_2d atleast_3d squeeze_multiple
        requires_grad_ set_ _shape_as_tensor result_type can_cast _has_compatible_shallow_copy_type to_meta
        unsafe_split unsafe_chunk unsafe_split_with_sizes _unsafe_masked_index_view size stride numel""",
    "elementwise": """add sub rsub mul div true_divide floor_divide remainder fmod pow square sqrt rsqrt reciprocal exp
        exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sigmoid
        logit log_sigmoid log_sigmoid_forward erf erfc erfinv lgamma digamma polygamma i0 sinc relu relu6 prelu
        _prelu_kernel leaky_relu elu selu celu gelu silu mish hardtanh hardsigmoid hardswish hardshrink softshrink
        tanhshrink threshold softplus softsign glu rrelu rrelu_with_noise abs neg sign sgn ceil floor round trunc frac
        clamp clamp_min clamp_max clip maximum minimum fmax fmin eq ne lt le gt ge greater less not_equal isnan isinf
        isfinite isposinf isneginf isclose logical_and logical_or logical_xor logical_not bitwise_and bitwise_or
        bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__
        where masked_fill lerp addcmul addcdiv hypot logaddexp logaddexp2 nan_to_num xlogy copysign heaviside
        float_power angle complex polar native_dropout bernoulli quantize_per_tensor quantize_per_tensor_dynamic
        quantize_per_channel dequantize dequantize_per_tensor dequantize_per_channel fake_quantize_per_tensor_affine
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine_cachemask
        fake_quantize_per_channel_affine_cachemask choose_qparams choose_qparams_optimized
        upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
        upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler grid_sampler_2d grid_sampler_3d
        affine_grid_generator cross linalg_cross cosine_similarity pairwise_distance rotary quantized_add
        quantized_add_relu quantized_mul quantized_relu ldexp nextafter gcd lcm deg2rad rad2deg signbit
        special_entr special_erfcx special_ndtri special_xlog1py special_zeta special_i0e special_i1 special_i1e
        isin masked_fill_scalar threshold_ threshold_backward sigmoid_backward tanh_backward gelu_backward silu_backward
        elu_backward leaky_relu_backward hardtanh_backward hardswish_backward hardsigmoid_backward mish_backward
        softplus_backward glu_backward log_sigmoid_backward logit_backward native_dropout_backward
        _prelu_kernel_backward hardshrink_backward softshrink_backward rrelu_with_noise_backward mse_loss_backward
        smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
        _fake_quantize_learnable_per_tensor_affine_backward upsample_nearest1d_backward upsample_nearest2d_backward
        upsample_nearest3d_backward upsample_linear1d_backward upsample_bilinear2d_backward
        upsample_bicubic2d_backward upsample_trilinear3d_backward grid_sampler_2d_backward grid_sampler_3d_backward
        _fused_sgd _fused_adam _fused_adamw _fused_adagrad""",
}  # fmt: skip

_ONNX = {
    "conv": """Conv ConvTranspose ConvInteger QLinearConv FusedConv NhwcFusedConv NhwcConv DeformConv
        QLinearConvTranspose DynamicQuantizeConv ConvTransposeWithDynamicPads""",
    "matmul": """MatMul Gemm MatMulInteger QLinearMatMul FusedMatMul FusedGemm QGemm DynamicQuantizeMatMul
        MatMulIntegerToFloat MatMulNBits QMatMul TransposeMatMul Einsum FusedMatMulActivation GemmFloat8 MatMulFpQ4
        SparseToDenseMatMul MatMulBnb4""",
    "attention": """Attention MultiHeadAttention QAttention GroupQueryAttention DecoderMaskedMultiHeadAttention
        DecoderAttention PackedAttention PackedMultiHeadAttention LongformerAttention SparseAttention
        DecoderMaskedSelfAttention""",
    "norm": """BatchNormalization LayerNormalization GroupNormalization InstanceNormalization
        SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization
        LRN LpNormalization MeanVarianceNormalization RMSNormalization SkipGroupNorm GroupNorm""",
    "pool": """MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool MaxUnpool MaxRoiPool RoiAlign
        QLinearAveragePool QLinearGlobalAveragePool NhwcMaxPool MaxpoolWithMask""",
    "reduce": """ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
        ReduceSumSquare ReduceSumInteger ArgMax ArgMin CumSum TopK NonMaxSuppression Unique Hardmax QLinearReduceMean
        CumProd SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss""",
    "softmax": "Softmax LogSoftmax QLinearSoftmax BiasSoftmax",
    "embedding": "Gather GatherElements GatherND ArrayFeatureExtractor GatherBlockQuantized OneHot",
    "recurrent": "LSTM GRU RNN DynamicQuantizeLSTM AttnLSTM",
    "copy": """Concat Pad Tile Expand Transpose Slice Split ScatterElements ScatterND Scatter Cast CastLike Resize
        DepthToSpace SpaceToDepth Range ConstantOfShape Trilu Compress NonZero ReverseSequence EyeLike QLinearConcat
        ReorderInput ReorderOutput MemcpyFromHost MemcpyToHost CenterCropPad Col2Im RandomNormal RandomNormalLike
        RandomUniform RandomUniformLike Bernoulli Multinomial TensorScatter SplitToSequence ConcatFromSequence
        SequenceConstruct SequenceAt""",
    "view": """Reshape Flatten Squeeze Unsqueeze Identity Shape Size Constant Dropout Optional OptionalGetElement
        QLinearIdentity""",
    "elementwise": """Add Sub Mul Div Pow Mod Neg Abs Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh
        Asinh Acosh Atanh Sigmoid HardSigmoid HardSwish Relu LeakyRelu PRelu Elu Selu Celu ThresholdedRelu Softplus
        Softsign Gelu FastGelu QuickGelu BiasGelu BiasAdd Mish Swish Erf Clip Ceil Floor Round Sign Sum Mean Max Min
        Where Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor Not IsNaN IsInf BitShift BitwiseAnd BitwiseOr
        BitwiseXor BitwiseNot QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd QLinearMul
        QLinearSigmoid QLinearLeakyRelu QLinearRelu QLinearWhere Shrink Upsample GridSample RotaryEmbedding
        AffineGrid BiasSplitGelu BiasDropout DivMul""",
}


def _invert(table: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in table.items() for name in names.split()}


_ATEN_KIND = _invert(_ATEN)
_ONNX_KIND = _invert(_ONNX)


def aten_kind(name: str) -> str:
    """Kind of an aten operator: ``aten::add_``, ``aten.add.Tensor`` and ``add`` are all elementwise.

    ``quantized::conv2d_relu`` and its like are found with the fused activation taken off, and operators on lists
    (``_foreach_add_``) are what they repeat.
    """
    base = aten_name(name).removeprefix("_foreach_")
    if base in _ATEN_KIND:
        return _ATEN_KIND[base]
    plain = base.removesuffix("_") if not base.endswith("__") else base
    for short in (plain, plain.removesuffix("_relu").removesuffix("_dynamic"), plain.removeprefix("special_")):
        if short in _ATEN_KIND:
            return _ATEN_KIND[short]
    return "other"


def aten_name(name: str) -> str:
    """The bare operator name: namespace and overload taken off, ``quantized::x`` as ``quantized_x``."""
    space, found, rest = name.rpartition("::")
    if not found and name.count(".") >= 2:
        space, rest = name.split(".")[0], name.split(".")[1]
    base = rest.split(".")[0]
    return f"quantized_{base}" if space == "quantized" else base


def onnx_kind(op_type: str) -> str:
    """Kind of an ONNX operator type, standard or ``com.microsoft``."""
    return _ONNX_KIND.get(op_type, "other")


def conv_kind(groups: int, weight_channels: int) -> str:
    """``depthwise`` when each group has one input channel (``weight_channels``) and there are several groups."""
    return "depthwise" if groups > 1 and weight_channels == 1 else "conv"
