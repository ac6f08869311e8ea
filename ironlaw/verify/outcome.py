"""The verdict on a trial, from what was measured alone: the judge never sees the prediction."""

from __future__ import annotations

from collections.abc import Sequence

from ironlaw.records import Certificate, Change, Gain, Goal, Measurement, Outcome, Quality

CONVERTING = frozenset({"weights.dtype", "activations.dtype", "compute.dtype"})


def verdict(
    goal: Goal,
    target: str,
    changes: Sequence[Change],
    gain: Gain,
    measured: Measurement,
    quality: Quality | None,
    certificate: Certificate | None,
) -> tuple[Outcome, str]:
    """(outcome, reason). A missing quality or certificate is a failure to prove, never a pass."""
    if changes and all(change.no_op for change in changes):
        return Outcome.NO_OP, "no lever changed anything: " + ", ".join(str(change) for change in changes)
    if certificate and (missing := _not_converted(changes, certificate)):
        return missing
    if quality is not None and not quality.within:
        return Outcome.OVER_BUDGET, quality.reason
    if goal.target not in (None, target):
        return Outcome.CONSTRAINT, f"runs on {target}, {goal.target} is asked"
    if broken := limits_broken(goal, measured):
        return Outcome.CONSTRAINT, broken
    if not gain.settled:
        return Outcome.UNSETTLED, _unsettled(gain, measured)
    if not gain.proven:
        return Outcome.NOT_BETTER, f"{words(gain)} does not clear {max(1.0, gain.floor):.3f}x"
    if quality is None:
        return Outcome.OVER_BUDGET, "quality was not measured"
    return Outcome.IMPROVED, f"{words(gain)}; {quality.reason}"


def limits_broken(goal: Goal, measured: Measurement) -> str:
    """Which limits of the goal are not met, as words; "" when all are."""
    broken = []
    if goal.p99_s is not None:
        p99 = measured.latency_s.p99
        if p99 is None:
            broken.append(f"p99 is not known ({measured.latency_s.refused})")
        elif p99 > goal.p99_s:
            broken.append(f"p99 {p99 * 1e3:.3g} ms is over {goal.p99_s * 1e3:.3g} ms")
    if goal.rate_per_s is not None and measured.throughput_per_s <= goal.rate_per_s:
        broken.append(f"{goal.rate_per_s:g}/s arrive, at most {measured.throughput_per_s:.4g}/s are served")
    if goal.max_size_bytes is not None and measured.size_bytes > goal.max_size_bytes:
        broken.append(f"size {measured.size_bytes:,} B is over {goal.max_size_bytes:,} B")
    if goal.max_memory_bytes is not None and measured.peak_memory_bytes > goal.max_memory_bytes:
        broken.append(f"peak memory {measured.peak_memory_bytes:,} B is over {goal.max_memory_bytes:,} B")
    return "; ".join(broken)


def words(gain: Gain) -> str:
    return f"{gain.median:.2f}x [{gain.low:.2f}, {gain.high:.2f}]"


def _not_converted(changes: Sequence[Change], certificate: Certificate) -> tuple[Outcome, str] | None:
    asked = [change for change in changes if CONVERTING & set(change.claims) and not change.no_op]
    if not asked or not certificate.eligible:
        return None
    names = ", ".join(certificate.fallbacks[:5]) or "unknown operators"
    if certificate.converted == 0 and certificate.proven:
        return Outcome.NO_OP, f"none of {certificate.eligible} operators was converted: {names}"
    if certificate.converted < certificate.eligible / 2 and certificate.fallbacks:
        done = f"{certificate.converted} of {certificate.eligible}"
        return Outcome.FALLBACK, f"only {done} operators were converted; fell back: {names}"
    return None


def _unsettled(gain: Gain, measured: Measurement) -> str:
    if measured.foreign_cpu > 0.1:
        return f"others took {measured.foreign_cpu:.0%} of the CPU while measuring ({words(gain)} seen)"
    return f"{gain.launches} launches are too few for a verdict ({words(gain)} seen)"
