"""Batch sweep: what a call pays once, whatever the number of its examples, and the work that grows with them.

``T(b) = fixed + slope b``. The fixed cost holds the latency of the call and one pass over the weights, whose share is
bounded by the measured bandwidth and taken off as an interval. What grows is arithmetic and the traffic of activations:
less the memory term it bounds compute, whatever clock the arithmetic runs at. It refuses models of a fixed batch, and
says nothing where no three sizes lie on a line: then kernels change with the size and nothing is paid "once".
"""

from __future__ import annotations

from ironlaw.perturbing.case import Case, milliseconds, settled, silent
from ironlaw.perturbing.fits import Affine, affine
from ironlaw.perturbing.work import weights_s
from ironlaw.records import Interval, Perturbation, Term

NAME = "batch"
SIZES = (1, 2, 4, 8)


def run(case: Case) -> tuple[Perturbation, ...]:
    """The fixed cost against the latency term, the growing work against the compute term."""
    candidate = case.subject.candidate
    assert candidate is not None
    if not candidate.snapshot.dynamic:
        return silent(NAME, Term.LATENCY, f"not done: the model is fixed at batch {candidate.snapshot.batch}")
    now = candidate.execution.batch
    variants = {size: case.changed("batch", batch=size) for size in SIZES if size != now}
    case.measure(list(variants.values()))
    works = {size: case.seconds(one) for size, one in variants.items() if one.failure is None}
    launches = min((len(seconds) for seconds in works.values()), default=0)
    if len(works) < 2 or launches < 2:
        reason = next((f"{one.failure.reason}" for one in variants.values() if one.failure), "too few launches")
        return silent(NAME, Term.LATENCY, f"not done: other batches do not run ({reason})")
    times = {size: seconds[:launches] for size, seconds in works.items()}
    times[now] = [case.diagnosis.total_s] * launches
    fit = affine(times)
    if fit is None:
        return silent(NAME, Term.LATENCY, f"not affine over batches {_listed(sorted(times))}: {_times(times)}")
    quiet = settled([launch for one in variants.values() for launch in one.launches])
    return _answers(case, fit, quiet=quiet)


def _answers(case: Case, fit: Affine, *, quiet: bool) -> tuple[Perturbation, ...]:
    weights = _weights_s(case)
    latency = Interval(
        low=fit.fixed.low - weights.high, value=fit.fixed.value - weights.value, high=fit.fixed.high - weights.low
    )
    where = f"affine over batches {_listed(fit.sizes)}"
    fixed = f"a call pays {milliseconds(fit.fixed)} once, {where}"
    if weights.high > 0.01 * case.diagnosis.total_s:
        fixed += f"; up to {weights.high * 1e3:.3g} ms of it may be reading the weights"
    total = case.diagnosis.total_s
    memory, paging = case.claimed(Term.MEMORY), case.claimed(Term.PAGING)
    growing = Interval(low=total - fit.fixed.high, value=total - fit.fixed.value, high=total - fit.fixed.low)
    compute = Interval(
        low=growing.low - memory.high - paging.high,
        value=growing.value - max(0.0, memory.value - weights.value) - paging.value,
        high=growing.high - max(0.0, memory.low - weights.high) - paging.low,
    )
    grows = f"{milliseconds(growing)} grow with the batch, {where}; less what memory and page faults may take of it"
    return (
        case.answer(NAME, Term.LATENCY, latency, fixed, quiet=quiet),
        case.answer(NAME, Term.COMPUTE, compute, grows, quiet=quiet),
    )


def _weights_s(case: Case) -> Interval:
    """What reading the weights may take of the fixed cost: nothing where it hides behind arithmetic."""
    whole = weights_s(case.diagnosis.ledger, case.machine, case.diagnosis.threads)
    return Interval(low=0.0, value=min(case.diagnosis.seconds(Term.MEMORY), whole.value), high=whole.high)


def _listed(sizes: list[int] | tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in sizes)


def _times(times: dict[int, list[float]]) -> str:
    return ", ".join(f"{size}: {sum(times[size]) / len(times[size]) * 1e3:.3g} ms" for size in sorted(times))
