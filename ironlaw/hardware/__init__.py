"""Published machines and links: one TOML file each, every number with the document it was read from.

Why files: a number without its source cannot be checked, and adding a machine must not touch code.
What the vendor does not publish is absent, with no default in its place: a machine without a peak in
some dtype has none. These are nameplate numbers; what this host reaches is measured in ``machine``.

Fields: SI units. ``peak_flops_per_s`` is by dtype, dense (no sparsity), on the matrix units where
there are any, and counts integer operations the same way (a multiply-add is two). A link's bandwidth
is one direction of one device's port; latency is left out where the vendor gives none.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from ironlaw.records import UserError

T = TypeVar("T")

KINDS = ("cpu", "gpu", "tpu", "mcu", "link")
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int16", "int8", "int4")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sourced:
    """A published number and the document that states it, or from which it is derived."""

    value: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedMachine:
    """A machine as its vendor describes it. None: not published, or not sure.

    ``memory`` is what holds tensors (HBM, DRAM, SRAM of a microcontroller), ``cache`` the last level
    before it, ``flash`` where a microcontroller keeps weights. ``links`` are names of :func:`link`.
    """

    name: str
    title: str
    vendor: str
    kind: str
    year: int
    peak_flops_per_s: Mapping[str, Sourced]
    memory_bytes: Sourced | None = None
    memory_bandwidth_bytes_per_s: Sourced | None = None
    cache_bytes: Sourced | None = None
    flash_bytes: Sourced | None = None
    cores: Sourced | None = None
    clock_hz: Sourced | None = None
    power_w: Sourced | None = None
    links: tuple[str, ...] = ()

    def peak(self, dtype: str) -> Sourced | None:
        """The peak rate in that dtype, None when it has none or it is not published."""
        return self.peak_flops_per_s.get(dtype)

    def ridge_flop_per_byte(self, dtype: str) -> float | None:
        """Intensity from which this machine can be compute-bound in that dtype, None when unknown."""
        peak, bandwidth = self.peak(dtype), self.memory_bandwidth_bytes_per_s
        return peak.value / bandwidth.value if peak and bandwidth else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedLink:
    """A link between devices: bandwidth of one direction of one port; ``latency_s`` None is not published."""

    name: str
    title: str
    vendor: str
    year: int
    bandwidth_bytes_per_s: Sourced
    latency_s: Sourced | None = None


@cache
def machines() -> Mapping[str, PublishedMachine]:
    """Every published machine by name."""
    found = {name: _machine(name, data) for name, data in _files().items() if data["kind"] != "link"}
    for machine in found.values():
        missing = [link_name for link_name in machine.links if link_name not in links()]
        if missing:
            raise ValueError(f"hardware/{machine.name}.toml: links {missing} have no file")
    return MappingProxyType(found)


@cache
def links() -> Mapping[str, PublishedLink]:
    """Every published link by name."""
    return MappingProxyType({name: _link(name, data) for name, data in _files().items() if data["kind"] == "link"})


def machine(name: str) -> PublishedMachine:
    """The machine of that name. Raises ``UserError`` listing those that exist."""
    return _named(name, machines(), "machine")


def link(name: str) -> PublishedLink:
    """The link of that name. Raises ``UserError`` listing those that exist."""
    return _named(name, links(), "link")


def _named(name: str, known: Mapping[str, T], what: str) -> T:
    if name in known:
        return known[name]
    asked = name.lower()
    near = [each for each in known if asked and asked in each] or difflib.get_close_matches(asked, known, n=1)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"{what} {name!r}", "is not in the catalogue", f"{hint}Use one of: {', '.join(known)}.")


@cache
def _files() -> dict[str, dict[str, Any]]:
    found = {}
    for entry in sorted(files(__name__).iterdir(), key=lambda each: each.name):
        if entry.name.endswith(".toml"):
            data = tomllib.loads(entry.read_text(encoding="utf-8"))
            if data.get("kind") not in KINDS:
                raise ValueError(f"hardware/{entry.name}: kind must be one of {', '.join(KINDS)}")
            found[entry.name.removesuffix(".toml")] = data
    return found


def _machine(name: str, data: dict[str, Any]) -> PublishedMachine:
    fields = dict(data)
    peaks = fields.pop("peak_flops_per_s", {})
    unknown = set(peaks) - set(DTYPES)
    if unknown:
        raise ValueError(f"hardware/{name}.toml: unknown dtypes {sorted(unknown)}")
    rates = MappingProxyType({dtype: _sourced(name, peaks[dtype]) for dtype in DTYPES if dtype in peaks})
    linked = tuple(fields.pop("links", ()))
    plain = _numbers(name, fields)
    return PublishedMachine(name=name, peak_flops_per_s=rates, links=linked, **plain)


def _link(name: str, data: dict[str, Any]) -> PublishedLink:
    fields = {key: value for key, value in data.items() if key != "kind"}
    return PublishedLink(name=name, **_numbers(name, fields))


def _numbers(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {key: _sourced(name, value) if isinstance(value, dict) else value for key, value in fields.items()}


def _sourced(name: str, entry: dict[str, Any]) -> Sourced:
    if set(entry) != {"value", "source"} or not entry["source"] or not entry["value"] > 0:
        raise ValueError(f"hardware/{name}.toml: a number needs a value above 0 and a source, got {entry}")
    return Sourced(value=float(entry["value"]), source=entry["source"])
