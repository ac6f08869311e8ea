"""Subnormal numbers: on many CPUs an operation that meets one leaves the fast path for a hundred cycles or more."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts
from ironlaw.records import Finding, Inspection, Term

_MANY = 0.01
"""Share of values from which on it is told, even where this CPU hardly minds."""
_SOME = 0.001
"""Share of values from which on it is told when flushing them made calls faster."""
_FASTER = 1.05


def denormals(facts: Facts) -> Finding | None:
    """Subnormal weights or activations while they are not flushed to zero."""
    seen = facts.inspection
    if seen is None or seen.flushes_subnormals:
        return None
    most = max(seen.subnormal_weights or 0.0, seen.subnormal_activations or 0.0)
    faster = seen.flushed_speedup
    if most < _SOME or (most < _MANY and (faster is None or faster < _FASTER)):
        return None
    return Finding(
        kind="denormals",
        attacks=Term.COMPUTE,
        share=None if faster is None else max(0.0, 1.0 - 1.0 / faster),
        evidence=_evidence(seen),
        remedy=(
            "torch.set_flush_denormal(True) in each thread that computes (ONNX Runtime: session option "
            "session.set_denormal_as_zero = 1), or set weights below 1e-38 to zero"
        ),
    )


def _evidence(seen: Inspection) -> str:
    shares = (("weights", seen.subnormal_weights), ("activations", seen.subnormal_activations))
    text = " and ".join(f"{share:.2g} of the {name}" for name, share in shares if share)
    if seen.flushed_speedup is None:
        return f"{text} are subnormal"
    return f"{text} are subnormal; with them flushed to zero a call takes 1/{seen.flushed_speedup:.2f} of its time here"
