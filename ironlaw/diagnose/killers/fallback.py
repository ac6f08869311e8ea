"""Operators that quietly run elsewhere, or in another precision, than was asked for."""

from __future__ import annotations

from ironlaw.diagnose.killers.facts import Facts, named
from ironlaw.diagnose.shares import EAGER
from ironlaw.records import Finding, Op, Term


def fallback(facts: Facts) -> Finding | None:
    """What the certificate names as not on the provider or not in the precision of the execution.

    A torch model at its own precision has nothing to fall back from: whatever its dtypes are, they are the user's.
    """
    found = facts.certificate
    own = facts.execution.target == EAGER and facts.execution.precision == "fp32"
    if found is None or not found.fallbacks or own:
        return None
    ran = [op for op in facts.ledger.ops if _named_in(op, found.fallbacks)]
    providers = ", ".join(f"{name} {nodes}" for name, nodes in found.providers)
    names = named(found.fallbacks)
    return Finding(
        kind="fallback",
        attacks=Term.COMPUTE,
        share=facts.share_of(ran) if ran else None,
        evidence=(
            f"{len(found.fallbacks)} operators fell back ({names}); {found.converted} of {found.eligible} eligible "
            f"ones were converted{f'; ran on {providers}' if providers else ''}"
        ),
        remedy=(
            "replace or rewrite these operators, or pick a runtime that has kernels for them (lever runtime); for "
            "int8, lever int8_static quantises what this runtime can fuse"
        ),
    )


def _named_in(op: Op, fallbacks: tuple[str, ...]) -> bool:
    return any(one == op.name or one.startswith(f"{op.name} {op.shape} ") for one in fallbacks)
