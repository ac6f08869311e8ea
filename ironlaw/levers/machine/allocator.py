"""Allocator settings: keep freed memory instead of giving it back to the kernel each call.

Why: glibc takes big blocks by ``mmap`` and trims the heap, so that a model whose activations are
large pays a page fault for every 4 KiB of every call (769,038 faults a call were seen on a small CNN at
batch 32; three variables made it 3.3x faster with the same maths). The lever sets those variables, and
optionally transparent huge pages. They must be set before the process starts, so they are part of the
execution and of the artefact's snippet. It refuses where faults are few, and on other C libraries.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ironlaw import predict
from ironlaw.contracts import No, Option, Yes
from ironlaw.levers._changes import changed
from ironlaw.records import (
    Axis,
    Candidate,
    Change,
    Diagnosis,
    Interval,
    Kind,
    Machine,
    Prediction,
    Term,
)

MIN_SHARE = 0.02
"""Below this share of the time, page faults are not worth a trial."""

MIN_GLIBC_HUGE = (2, 35)
"""``glibc.malloc.hugetlb`` came with glibc 2.35."""

_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True, kw_only=True, slots=True)
class AllocatorSettings:
    """Blocks up to ``keep_bytes`` come from the heap, which keeps that much when freed."""

    keep_bytes: int = 1 << 32
    pad_bytes: int = 1 << 26
    huge_pages: bool = False


class Allocator:
    """glibc malloc variables that stop memory from going back to the kernel."""

    name: ClassVar[str] = "allocator"
    version: ClassVar[int] = 1
    axis: ClassVar[Axis] = Axis.MACHINE
    attacks: ClassVar[frozenset[Term]] = frozenset({Term.PAGING})
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.INFERENCE, Kind.TRAINING})
    claims: ClassVar[frozenset[str]] = frozenset({"env.malloc"})
    consumes: ClassVar[frozenset[str]] = frozenset()
    produces: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    target: ClassVar[str] = ""
    cites: ClassVar[str] = "mallopt(3); GNU C Library manual, Memory Allocation Tunables"
    Settings: ClassVar[type] = AllocatorSettings

    def applies(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Yes | No:
        if not _glibc():
            return No("these variables are glibc's, and this process runs on another C library")
        if candidate.execution.target != diagnosis.target:
            return No(f"page faults were measured on {diagnosis.target}, not on {candidate.execution.target}")
        share = diagnosis.share(Term.PAGING)
        if share < MIN_SHARE:
            return No(f"{_faults(diagnosis, machine)}, {share:.1%} of the time: at most {1 / (1 - share):.2f}x")
        return Yes()

    def options(self, candidate: Candidate, diagnosis: Diagnosis, machine: Machine) -> Sequence[Option]:
        plain = Option(settings=AllocatorSettings(), cost_s=0.0, alike="kept memory")
        if not huge_pages_offered():
            return [plain]
        return [plain, dataclasses.replace(plain, settings=AllocatorSettings(huge_pages=True))]

    def predict(
        self, candidate: Candidate, settings: AllocatorSettings, diagnosis: Diagnosis, machine: Machine
    ) -> Prediction:
        """Nearly all faults end; the high end is more than the term, since kept pages are also warm in cache."""
        paging = diagnosis.seconds(Term.PAGING)
        term = next((t.seconds for t in diagnosis.terms if t.term == Term.PAGING), None)
        low, high = (term.low, term.high) if term is not None else (0.0, 0.0)
        seconds = Interval(
            low=min(low, 0.7 * paging), value=paging, high=min(max(high, 1.2 * paging), 0.95 * diagnosis.total_s)
        )
        factor = Interval(low=2.0, value=20.0, high=1000.0)
        basis = f"paging: {_faults(diagnosis, machine)} take {paging * 1e3:.3g} ms of {diagnosis.total_s * 1e3:.3g} ms"
        return predict.amdahl(diagnosis, seconds=seconds, factor=factor, basis=basis)

    def apply(self, candidate: Candidate, settings: AllocatorSettings) -> tuple[Candidate, Change]:
        execution = candidate.execution.with_variables(variables(settings, dict(candidate.execution.variables)))
        return changed(self, candidate, settings, execution=execution)


def variables(settings: AllocatorSettings, present: dict[str, str | int | float | bool | None]) -> dict[str, str]:
    """The environment that a process must be started with; other tunables in ``present`` are kept."""
    wanted = {
        "MALLOC_MMAP_THRESHOLD_": str(settings.keep_bytes),
        "MALLOC_TRIM_THRESHOLD_": str(settings.keep_bytes),
        "MALLOC_TOP_PAD_": str(settings.pad_bytes),
    }
    if settings.huge_pages:
        others = [t for t in str(present.get("GLIBC_TUNABLES") or "").split(":") if t and "malloc.hugetlb" not in t]
        wanted["GLIBC_TUNABLES"] = ":".join([*others, "glibc.malloc.hugetlb=1"])
    return wanted


def huge_pages_offered() -> bool:
    """Whether ``hugetlb=1`` (madvise) would do something: glibc knows it and the kernel waits to be asked."""
    return _glibc() >= MIN_GLIBC_HUGE and _THP.exists() and "[madvise]" in _THP.read_text()


def _glibc() -> tuple[int, ...]:
    """The version of glibc; empty on another C library."""
    try:
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError, AttributeError):
        return ()
    return tuple(int(part) for part in words[1].split(".")) if len(words) == 2 else ()


def _faults(diagnosis: Diagnosis, machine: Machine) -> str:
    fault = machine.ceiling("fault")
    if fault is None or not fault.value:
        return "page faults"
    return f"about {diagnosis.seconds(Term.PAGING) / fault.value:,.0f} page faults a call"
