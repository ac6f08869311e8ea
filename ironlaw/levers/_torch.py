"""What the levers for torch share: which targets they are for, and what fusing would leave.

The estimate of a compiler's gain is one function for ``torch.compile`` and AOTInductor, so that the two
differ only in what they save of the dispatch. With frozen weights convolutions and products run as the library does
them on packed weights and channels-last images, which is calibrated; without, they keep their kernels. In both, the
traffic between small operators and the cost of calling them goes.
"""

from __future__ import annotations

from ironlaw import predict
from ironlaw.contracts import No, Yes
from ironlaw.rates import PACKED
from ironlaw.records import Candidate, Diagnosis, Interval, Machine, Prediction, Term

TARGETS = ("torch", "aotinductor")
FUSIBLE = ("elementwise", "norm", "pool", "reduce", "softmax", "copy", "view", "other")
_SLOWER = 0.85
"""A compiled model can lose: plain layouts chosen against the library's, or one thread too few."""


def for_torch(candidate: Candidate, lever: str) -> Yes | No:
    """Refuse on a runtime that is not torch's."""
    target = candidate.execution.target
    if target in TARGETS:
        return Yes()
    return No(f"{lever} is for the torch targets, and this candidate runs on {target}")


def measured_on_torch(candidate: Candidate, diagnosis: Diagnosis, lever: str) -> Yes | No:
    """Also refuse where the diagnosis is of another runtime: its terms say nothing of torch's."""
    asked = for_torch(candidate, lever)
    if asked and diagnosis.target not in TARGETS:
        return No(f"{lever} has no diagnosis of torch to go by: {diagnosis.target} was measured")
    return asked


def seconds_of(diagnosis: Diagnosis, kinds: tuple[str, ...]) -> Interval:
    """Seconds in operators of these kinds: measured where profiled, else their share of the traffic, wide."""
    found = predict.of_kinds(diagnosis, kinds)
    if found is not None:
        return found
    traffic = diagnosis.ledger.bytes_high
    if not traffic:
        return Interval(low=0.0, value=0.0, high=diagnosis.total_s)
    share = sum(op.bytes_high for op in diagnosis.ledger.ops if op.kind in kinds) / traffic
    value = share * (diagnosis.total_s - diagnosis.seconds(Term.PAGING))
    return Interval(low=0.3 * value, value=value, high=min(diagnosis.total_s, 2.0 * value))


def frozen(candidate: Candidate, diagnosis: Diagnosis, machine: Machine, *, basis: str) -> Prediction | None:
    """The gain of a compiler that packs weights and fuses what follows; None where such kernels were not calibrated."""
    kinds = {op.kind for op in diagnosis.ledger.ops} & {"conv", "depthwise", "matmul"}
    execution = candidate.execution
    known = (machine.kernel(PACKED, kind, execution.precision, threads=execution.threads) for kind in kinds)
    if not kinds or any(kernel is None for kernel in known):
        return None
    found = predict.moved(diagnosis, machine, target=PACKED, dtype=execution.precision, threads=execution.threads)
    gain = found.speedup
    speedup = Interval(low=_SLOWER * gain.low, value=gain.value, high=gain.high)
    return Prediction(speedup=speedup, basis=f"{basis}: {found.basis}")


def compiled(diagnosis: Diagnosis, *, dispatch: Interval, basis: str) -> Prediction:
    """The gain of a compiler that fuses small operators and cuts dispatch by the factor ``dispatch``.

    Amdahl over the fusible operators (2 to 20 times faster), the latency term and half of paging, since
    fused intermediates are never allocated. The low end allows for a compiled model that is slower.
    """
    fusible = seconds_of(diagnosis, FUSIBLE)
    latency, paging = diagnosis.seconds(Term.LATENCY), diagnosis.seconds(Term.PAGING)
    touched = Interval(
        low=0.5 * fusible.low + 0.5 * latency,
        value=min(0.97 * diagnosis.total_s, fusible.value + 0.7 * latency + 0.5 * paging),
        high=min(0.98 * diagnosis.total_s, fusible.high + latency + paging),
    )
    factor = Interval(low=min(2.0, dispatch.low), value=min(6.0, 2 * dispatch.value), high=20.0)
    found = predict.amdahl(diagnosis, seconds=touched, factor=factor, basis=basis)
    gain = found.speedup
    return Prediction(
        speedup=Interval(low=_SLOWER * gain.low, value=gain.value, high=gain.high),
        basis=found.basis,
    )
