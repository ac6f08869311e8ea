"""Energy per event: what arithmetic and moving data cost, from published tables.

Why tables and not a model of power: without counters, the only honest statement is how many events
took place times what such an event cost where somebody measured it; the result is labelled
*modelled*. A factor scales a table to another process, and the caller must say where it has it from.
It refuses events that a table does not hold: no other dtype's energy stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ironlaw.laws.checks import nonnegative, positive
from ironlaw.laws.law import Input, Law, at_least

HOROWITZ = "Horowitz, Computing's Energy Problem (and what we can do about it), ISSCC 2014, figure 1.1.9"
JOUPPI = "Jouppi et al., Ten Lessons From Three Generations Shaped Google's TPUv4i, ISCA 2021, table 2"


@dataclass(frozen=True, kw_only=True, slots=True)
class EventTable:
    """Energies of events in joules. Memory events are accesses of 64 bits; ``dram_high`` where a range is given."""

    process: str
    source: str
    joules: Mapping[str, float]


def _table(process: str, source: str, picojoules: dict[str, float]) -> EventTable:
    joules = MappingProxyType({name: value * 1e-12 for name, value in picojoules.items()})
    return EventTable(process=process, source=source, joules=joules)


TABLES = {
    "45nm": _table(
        "45 nm, 0.9 V",
        HOROWITZ,
        {
            "int8_add": 0.03,
            "int32_add": 0.1,
            "fp16_add": 0.4,
            "fp32_add": 0.9,
            "int8_mul": 0.2,
            "int32_mul": 3.1,
            "fp16_mul": 1.1,
            "fp32_mul": 3.7,
            "sram_8kb_64bit": 10.0,
            "sram_32kb_64bit": 20.0,
            "sram_1mb_64bit": 100.0,
            "dram_64bit": 1300.0,
            "dram_64bit_high": 2600.0,
        },
    ),
    "7nm": _table(
        "7 nm",
        JOUPPI,
        {
            "int8_add": 0.007,
            "int32_add": 0.03,
            "bf16_add": 0.11,
            "fp16_add": 0.16,
            "fp32_add": 0.38,
            "int8_mul": 0.07,
            "int32_mul": 1.48,
            "bf16_mul": 0.21,
            "fp16_mul": 0.34,
            "fp32_mul": 1.31,
            "sram_8kb_64bit": 7.5,
            "sram_32kb_64bit": 8.5,
            "sram_1mb_64bit": 14.0,
            "dram_64bit": 1300.0,
        },
    ),
}
_DTYPES = ("fp32", "fp16", "bf16", "int8")


def event_j(*, event: str, process: str = "45nm", scale: float = 1.0) -> float:
    """Energy of one event of a table, times ``scale``. Raises ``ValueError`` that lists what the table holds."""
    positive(scale=scale)
    if process not in TABLES:
        raise ValueError(f"process must be one of {', '.join(TABLES)}, got {process!r}")
    joules = TABLES[process].joules
    if event not in joules:
        raise ValueError(f"event {event!r} is not in the {process} table; it holds {', '.join(joules)}")
    return joules[event] * scale


def events_j(counts: Mapping[str, float], *, process: str = "45nm", scale: float = 1.0) -> dict[str, float]:
    """Energy of each kind of event, from how many there were."""
    nonnegative(**counts)
    return {name: number * event_j(event=name, process=process, scale=scale) for name, number in counts.items()}


def mac_j(*, dtype: str, process: str = "45nm", scale: float = 1.0) -> float:
    """Energy of a multiply and an add. int8 products are added in 32 bits; bf16 and fp16 in fp32."""
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    adder = "int32_add" if dtype == "int8" else "fp32_add"
    product = event_j(event=f"{dtype}_mul", process=process, scale=scale)
    return product + event_j(event=adder, process=process, scale=scale)


def run_j(
    *,
    flops: float,
    dtype: str,
    dram_bytes: float,
    sram_bytes: float = 0.0,
    process: str = "45nm",
    scale: float = 1.0,
    idle_w: float = 0.0,
    time_s: float = 0.0,
) -> dict[str, float]:
    """Modelled energy of a run by part: compute, sram, dram, static, and their total.

    ``flops`` counts an FMA as two; ``sram_bytes`` pass the 1 MB level; ``idle_w`` burns for ``time_s``.
    Leaves out instruction fetch and control, which Horowitz puts at about 70 pJ an instruction on a CPU.
    """
    nonnegative(flops=flops, dram_bytes=dram_bytes, sram_bytes=sram_bytes, idle_w=idle_w, time_s=time_s)
    parts = {
        "compute_j": flops / 2.0 * mac_j(dtype=dtype, process=process, scale=scale),
        "sram_j": sram_bytes / 8.0 * event_j(event="sram_1mb_64bit", process=process, scale=scale),
        "dram_j": dram_bytes / 8.0 * event_j(event="dram_64bit", process=process, scale=scale),
        "static_j": idle_w * time_s,
    }
    return {**parts, "total_j": sum(parts.values())}


_PROCESS = Input(name="process", unit="", meaning="which table", choices=tuple(TABLES), default="45nm")
_SCALE = Input(
    name="scale", unit="1", meaning="factor for another process, with its own source", low=0, above=True, default=1.0
)
_VALID = "an estimate for comparing changes, not a measurement: events cost what they cost on the process of the table"

LAWS = (
    Law(
        name="event-energy",
        family="energy",
        title="Energy of one event",
        equation="table[process][event] * scale",
        inputs=(
            Input(
                name="event",
                unit="",
                meaning="what happens once",
                choices=tuple(dict.fromkeys(name for table in TABLES.values() for name in table.joules)),
            ),
            _PROCESS,
            _SCALE,
        ),
        unit="J",
        valid_while=_VALID,
        source=f"45nm: {HOROWITZ}; 7nm: {JOUPPI}",
        function=event_j,
        example=(("event", "dram_64bit"),),
    ),
    Law(
        name="run-energy",
        family="energy",
        title="Modelled energy of a run, by part",
        equation="flops/2 (mul + add) + sram/8 E_sram + dram/8 E_dram + idle power * time",
        inputs=(
            at_least(0, "flops", "FLOP", "operations; an FMA is two"),
            Input(name="dtype", unit="", meaning="dtype of the products", choices=_DTYPES),
            at_least(0, "dram_bytes", "B", "bytes that cross DRAM"),
            at_least(0, "sram_bytes", "B", "bytes that pass a cache of 1 MB", default=0.0),
            _PROCESS,
            _SCALE,
            at_least(0, "idle_w", "W", "power that is drawn whatever happens", default=0.0),
            at_least(0, "time_s", "s", "how long", default=0.0),
        ),
        unit="J",
        valid_while=_VALID + "; instruction fetch and control are left out",
        source=f"45nm: {HOROWITZ}; 7nm: {JOUPPI}",
        function=run_j,
        example=(("flops", 8e8), ("dtype", "fp32"), ("dram_bytes", 4e7)),
    ),
)
