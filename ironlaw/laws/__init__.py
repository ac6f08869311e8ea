"""The laws: pure functions on plain numbers, each citing its paper and saying where it stops holding.

Why pure: a law is the one part of a diagnosis that can be checked against a book, so it knows no
model, no machine and no framework. It refuses what it cannot answer with a ``ValueError`` that names
the input; it never returns NaN or Inf.

- ``roofline``: attainable rate, ridge point, time, verdict on an interval of intensity
- ``iron_law``: the terms of a run, serial and overlapped; the iron law of processors
- ``speedup``: Amdahl, Gustafson, Karp-Flatt, efficiency, work and span (Brent)
- ``usl``: the Universal Scalability Law and its fit
- ``intensity``: operations and bytes of GEMM, convolution, attention
- ``queueing``: Little, M/M/1, M/D/1, M/M/c, approximations of G/G/c, batching on arrival
- ``deterministic``: M/D/c exactly, with its percentiles
- ``collectives``: alpha-beta costs of broadcast, reduction, exchange
- ``pipeline``: bubbles and memory of GPipe, 1F1B, interleaved 1F1B
- ``memory``: training state, activations, checkpointing, KV cache
- ``training_peak``: the peak of a training step, by part, from its layers
- ``energy``: energy per event, 45 nm and 7 nm tables
- ``pareto``: the non-dominated set
- ``law``: what a law declares (name, inputs, unit, validity, source); ``checks``: its refusals
- ``catalogue``: every law by name, a calculator, and the page ``docs/laws.md``
"""
