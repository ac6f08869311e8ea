"""A machine in words: numbers with prefixes, and the table that ``ironlaw machine`` prints."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ironlaw.records import Ceiling, Machine

if TYPE_CHECKING:
    from rich.table import Table

_PREFIXES = {-4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}


def scaled(value: float, unit: str) -> str:
    """Three significant digits with an SI prefix: ``103 GFLOP/s``, ``1.9 µs``; counts stay as they are."""
    if value == 0.0:
        return f"0 {unit}".strip()
    power = max(-4, min(6, math.floor(math.log10(abs(value)) / 3.0 + 1e-12)))
    if power == -1 and unit not in ("s", "J", "W"):
        power = 0
    mantissa = value / 1000.0**power
    if abs(mantissa) >= 999.5 and power < 6:
        power, mantissa = power + 1, mantissa / 1000.0
    space = "" if not unit and power else " "
    return f"{_digits(mantissa)}{space}{_PREFIXES[power]}{unit}".strip()


def text(machine: Machine, *, width: int = 110) -> str:
    """Everything that was measured, for a terminal; refused ceilings are marked and their reasons listed."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None, highlight=False)
    for line in _head(machine):
        console.print(line, markup=False)
    console.print(_ceilings(machine))
    if machine.caches:
        console.print(_caches(machine))
    for line in (*_ridges(machine), *_memory(machine), *_calibrated(machine), *_reasons(machine)):
        console.print(line, markup=False)
    out = console.file
    assert isinstance(out, io.StringIO)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _digits(value: float) -> str:
    """Three significant digits, trailing zeros left out, never in exponent form."""
    shown = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _head(machine: Machine) -> list[str]:
    who, now = machine.environment.identity, machine.environment.conditions
    clock = f", {scaled(now.frequency_hz, 'Hz')}" if now.frequency_hz else ""
    memory = f"{who.memory_bytes / 2**30:.1f} GiB"
    lines = [
        f"{who.cpu} ({who.architecture}), {who.cores} usable cores{clock}, {memory}, {who.os}",
        f"instruction sets: {', '.join(who.isa) or 'none that are known'}",
        f"python {who.python}, " + ", ".join(f"{name} {version}" for name, version in who.versions),
        f"allocator {now.allocator}, governor {now.governor or 'unknown'}, load {now.load_1m:.2f}",
    ]
    if who.accelerators:
        lines.append(f"accelerators: {', '.join(who.accelerators)}")
    if now.variables:
        lines.append("set: " + " ".join(f"{k}={v}" for k, v in now.variables))
    return lines


def _ceilings(machine: Machine) -> Table:
    """A row for each name and dtype, a column for each thread count."""
    table = _table("ceiling", "dtype")
    threads = sorted({c.threads for c in machine.ceilings})
    for n in threads:
        table.add_column(f"{n} thread{'s' if n > 1 else ''} (10 % to 90 %)", justify="right", no_wrap=True)
    rows: dict[tuple[str, str], dict[int, Ceiling]] = {}
    for found in machine.ceilings:
        rows.setdefault((found.name, found.dtype or ""), {})[found.threads] = found
    for (name, dtype), cells in rows.items():
        table.add_row(name, dtype, *(_cell(cells.get(n)) for n in threads))
    return table


def _cell(found: Ceiling | None) -> str:
    if found is None:
        return ""
    if found.unit == "faults":
        return f"{found.value:,.0f} faults{'' if found.valid else ' ?'}"
    low, high = (scaled(v, found.unit).removesuffix(found.unit).replace(" ", "") for v in (found.low, found.high))
    spread = f"({low} to {high})"
    return f"{scaled(found.value, found.unit)} {spread}{'' if found.valid else ' ?'}"


def _caches(machine: Machine) -> Table:
    table = _table("cache", "size", "reading", "seen by")
    for cache in sorted(machine.caches, key=lambda c: (c.level, c.source)):
        size = f"{cache.size_bytes / 2**20:.3g} MiB" if cache.size_bytes >= 2**20 else f"{cache.size_bytes >> 10} KiB"
        table.add_row(f"L{cache.level}", size, scaled(cache.bandwidth_bytes_per_s, "B/s"), cache.source)
    return table


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _ridges(machine: Machine) -> list[str]:
    """The intensity above which arithmetic limits, by dtype, at the most threads."""
    threads = max((c.threads for c in machine.ceilings), default=1)
    memory = machine.ceiling("dram", threads=threads)
    if memory is None:
        return []
    peaks = [c for c in machine.ceilings if c.name == "matmul" and c.threads == threads]
    shown = ", ".join(f"{c.dtype} {c.value / memory.value:.3g}" for c in peaks)
    return [f"ridge over dram at {threads} threads, FLOP/B: {shown}"] if shown else []


def _memory(machine: Machine) -> list[str]:
    """What the allocator does with big blocks, and what that costs."""
    default, kept, fault = (machine.ceiling(n) for n in ("allocation_faults", "allocation_faults_kept", "fault"))
    if default is None:
        return []
    if default.value < 1.0:
        return ["memory: the allocator keeps a freed 64 MiB block; the next use of it faults nothing in"]
    cost = f", {scaled(default.value * fault.value, 's')}" if fault else ""
    line = f"memory: the allocator gives a freed 64 MiB block back: {default.value:,.0f} faults to use it again{cost}"
    if kept is not None and kept.value < default.value / 10.0:
        line += f"; kept with {kept.note.partition('; ')[2]}"
    return [line]


def _calibrated(machine: Machine) -> list[str]:
    counts: dict[str, int] = {}
    for kernel in machine.kernels:
        counts[kernel.target] = counts.get(kernel.target, 0) + 1
    shown = ", ".join(f"{target} ({n})" for target, n in counts.items())
    return [f"kernel rates: {shown}"] if shown else []


def _reasons(machine: Machine) -> Sequence[str]:
    refused = [c for c in machine.ceilings if not c.valid]
    lines = [f"? {' '.join(filter(None, (c.name, c.dtype)))} at {c.threads}: {c.note}" for c in refused]
    if refused:
        lines.append("? marks a ceiling that did not settle: measure again when the machine is quiet")
    return [*lines, *(f"note: {note}" for note in machine.notes)]
