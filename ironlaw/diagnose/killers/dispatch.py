"""Work in crumbs: a framework call for next to nothing, values read back one by one, a compilation per shape."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts, calls, named
from ironlaw.diagnose.shares import EAGER
from ironlaw.records import Finding, Term

_DOMINATES = 0.4
_SURELY = 0.25
_FEWEST = 10
_READS = frozenset({"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select"})
_IN_A_LOOP = 8
"""Reads of values in one call, from which on they come from a loop."""
_WAITS = 2
"""The same where each one waits for an accelerator."""
_EACH_SHAPE = 3


def small_operators(facts: Facts) -> Finding | None:
    """Calls whose time is dispatch: the framework's fixed cost per operator, not arithmetic or memory."""
    share, ops = facts.share(Term.LATENCY), [op for op in facts.ledger.ops if op.calls]
    count = calls(ops)
    if share < _DOMINATES or facts.least_share(Term.LATENCY) < _SURELY or count < _FEWEST:
        return None
    each_s, latency = facts.total_s / count, facts.term(Term.LATENCY)
    assert latency is not None
    work = sum(op.flops or 0.0 for op in ops) / count
    moved = sum(op.bytes_high for op in ops) / count
    eager = facts.execution.target == EAGER and not facts.execution.option("compile")
    return Finding(
        kind="small_operators",
        attacks=Term.LATENCY,
        share=share,
        evidence=(
            f"{count} operators a call at {each_s * 1e6:.3g} us each, with {work:.3g} FLOP and {moved:.3g} bytes "
            f"on average; {latency.evidence}"
        ),
        remedy=(
            "levers runtime (ONNX Runtime, OpenVINO), compile or aotinductor: one call for many operators; "
            "lever batch for throughput"
            if eager
            else "lever batch (throughput), clean_up (fewer operators), or runtime for a runtime of lower fixed cost"
        ),
    )


def synchronous_reads(facts: Facts) -> Finding | None:
    """Values that Python reads back in the middle of a call: ``.item()``, ``if tensor``, ``nonzero``."""
    ops = [op for op in facts.ledger.ops if op.name.removeprefix("aten::") in _READS]
    count, devices = calls(ops), facts.machine.environment.identity.accelerators
    if count < (_WAITS if devices else _IN_A_LOOP):
        return None
    seen = facts.inspection
    breaks = f"; {seen.graph_breaks} graph breaks" if seen and seen.graph_breaks else ""
    where = f", and {devices[0]} is here: each waits for its queue to drain" if devices else ""
    what = named(f"{op.name} x{op.calls}" for op in ops)
    return Finding(
        kind="synchronous_reads",
        attacks=Term.SYNC if devices else Term.LATENCY,
        share=facts.share_of(ops),
        evidence=f"{count} reads of values in the middle of a call ({what}){where}{breaks}",
        remedy=(
            "keep the value a tensor (torch.where, masks, index_select) and read once after the call; without reads "
            "levers compile and runtime take the model as one graph"
        ),
    )


def recompilation(facts: Facts) -> Finding | None:
    """Code that is compiled anew for every shape (or every call) that it meets."""
    seen = facts.inspection
    if seen is None or seen.recompiles < _EACH_SHAPE:
        return None
    return Finding(
        kind="recompilation",
        attacks=Term.LATENCY,
        share=None,
        evidence=(
            f"{seen.shapes} shapes of input: the same code was compiled {seen.recompiles + 1} times "
            f"({seen.graphs} graphs, {seen.graph_breaks} graph breaks)"
        ),
        remedy=(
            "torch.compile(dynamic=True) or mark_dynamic on the axis that varies, or pad inputs to a few sizes "
            "(lever batch keeps one); keep Python numbers that change out of the compiled function"
        ),
    )
