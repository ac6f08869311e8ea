"""What happened, measured: counting and timing are separate passes.

process        a child that answers JSON lines: watched, stopped while idle, killed when late
lock           one machine-wide turn for measuring and compiling
paired         a round of interleaved blocks in fresh workers
statistics     intervals over launches, refused percentiles, the claimable floor
summary        from launches to measurement and gain
predictor      the predict that evaluate calls
foreign        CPU time that others took
ledger         operators, FLOPs and bytes of one call, by form of the model
ledger_torch, ledger_flops, ledger_cache    counting eager modules; the cache model
ledger_training, training_step, ledger_gradients    counting a training step: forward, backward, optimiser
training_memory, memory_worker    peak memory of a training step, by part: predicted and measured
storages, kernel_workspace, c_allocator    lives of storages; what kernels and the C library add to them
page_faults    of a warm call, from these
operands       the tensors of a call
ledger_onnx, ledger_onnx_graph, ledger_onnx_flops    counting ONNX graphs
profile_torch  times of eager operators
steps, loader  the split of a training step; the stages of what feeds it
kinds          operator names to kinds
"""
