"""Names that rules look for, as they are imported; the last part alone where any owner will do."""

from __future__ import annotations

_NOISE = """to cuda cpu numpy item tolist append extend add update record synchronize elapsed_time
    block_until_ready range len print enumerate zip tqdm trange next iter int float str list tuple dict set min max
    sum round abs sorted format join isinstance getattr hasattr no_grad inference_mode autocast set_grad_enabled
    empty_cache collect disable enable info debug warning error open read write device Event current_stream
    is_available eval train perf_counter sleep"""
_MADE = """torch.rand torch.randn torch.randint torch.randperm torch.normal torch.rand_like torch.randn_like
    torch.tensor torch.from_numpy torch.load pickle.load numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile
    open next json.load PIL.Image.open cv2.imread imageio.imread torchvision.io.read_image torchaudio.load
    librosa.load soundfile.read h5py.File"""
_FILLED = "zeros ones full empty arange zeros_like ones_like full_like empty_like"
_COMPILERS = """torch.compile torch.jit.trace torch.jit.script torch.jit.optimize_for_inference jax.jit
    tensorflow.function numba.njit numba.jit torch_tensorrt.compile"""
_SPREAD = """std stdev pstdev var variance pvariance percentile nanpercentile quantile quantiles median
    nanmedian min max amin amax sorted sort iqr sem describe boxplot hist histogram ptp bootstrap
    median_abs_deviation t_interval dump dumps to_csv savetxt save tolist scatter plot"""

NOISE = frozenset(_NOISE.split())
"""Last parts of names that are not what a benchmark times."""
RANDOM = ("numpy.random.", "random.")
MADE = frozenset(_MADE.split())
"""Calls that make or read data, wherever they stand."""
MADE_BY = (*RANDOM, "pandas.read_", "requests.")
READERS = frozenset({"read_text", "read_bytes", "standard_normal"})
FILLED = frozenset(f"{module}.{name}" for module in ("torch", "numpy") for name in _FILLED.split())
"""Buffers: data in a region itself, and work in a function that is timed."""
COMPILERS = frozenset(_COMPILERS.split())
SPREAD = frozenset(_SPREAD.split())
"""What tells more of samples than their mean, or keeps them."""
LOADS = frozenset({"load", "from_pretrained", "InferenceSession", "read_model", "compile_model"})
MEAN = frozenset({"mean", "fmean", "average", "nanmean"})
COPIES = frozenset({"to", "cuda", "cpu", "mps", "device_put", "device_get"})
PRINTS = frozenset({"print", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "trange", "tqdm.trange", "sys.stdout.write"})
LOGS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
WAITS = frozenset({"item", "tolist", "block_until_ready", "cpu", "numpy"})
"""Calls that return only when an accelerator has finished."""
RUNTIME_WAITS = frozenset({"run", "run_with_iobinding"})
"""The same of an ONNX Runtime session."""
