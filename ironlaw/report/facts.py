"""Facts as names and values: what a trial's row unfolds into, an artefact, an environment.

A fact without a value is left out; what is unknown is said to be.
"""

from __future__ import annotations

from ironlaw.records import Artefact, Certificate, Environment, Execution, Measurement, Pairs, Run, TensorSpec, Trial
from ironlaw.report import units, words

Facts = list[tuple[str, str]]


def details(run: Run, trial: Trial) -> list[tuple[str, Facts]]:
    """The groups of facts that a row unfolds into; groups without facts are left out."""
    prediction = trial.predicted
    predicted: Facts = []
    if prediction:
        low, high = prediction.speedup.low, prediction.speedup.high
        predicted.append(("gain, 90 %", f"{units.ratio(prediction.speedup.value)} ({units.ratio_range(low, high)})"))
        predicted.append(("basis", prediction.basis))
    groups = [
        ("Predicted", predicted),
        ("Measured", _measured(trial.measured) if trial.measured else []),
        (
            "Quality",
            [("verdict", words.quality_sentence(run, trial)), ("test", trial.quality.reason)] if trial.quality else [],
        ),
        ("Certificate", _certificate(trial.certificate) if trial.certificate else []),
        ("Changed", [(c.lever, _pairs(c.facts)) for c in trial.changes if c.facts]),
        ("Execution", _execution(trial.execution)),
        ("Artefact", artefact(trial.artefact) if trial.artefact else []),
    ]
    return [(name, [(k, v) for k, v in facts if v]) for name, facts in groups if any(v for _, v in facts)]


def _measured(found: Measurement) -> Facts:
    latency, energy = found.latency_s, found.energy_j
    tail = f"p90 {units.seconds(latency.p90)}, p99 {units.seconds(latency.p99)}"
    joules = f"{units.joules(energy.value)}, {energy.source}" if energy.value is not None else units.UNKNOWN
    if energy.value and energy.parts:
        shares = [(name, float(part or 0.0) / energy.value) for name, part in energy.parts]
        joules += ": " + ", ".join(f"{name} {units.percent(share)}" for name, share in shares)
    return [
        ("latency", f"p50 {units.seconds(latency.p50)}, {tail}, {latency.samples:,} calls"),
        ("not given", latency.refused),
        ("throughput", f"{units.number(found.throughput_per_s)} a second at batch {found.batch}"),
        ("launches", f"{found.launches} processes, {found.blocks} blocks each, {found.warmup_calls} warm-up calls"),
        ("warm", "" if found.warm else "no: warm-up did not converge"),
        ("threads used", f"{units.number(found.threads_effective)}"),
        ("page faults", f"{units.number(found.faults_per_call)} a call"),
        ("to load", f"{units.seconds(found.load_s)}, {units.seconds(found.prepare_s)} to prepare"),
        ("others took", f"{units.percent(found.foreign_cpu)} of the CPU"),
        ("energy a call", joules),
    ]


def _certificate(found: Certificate) -> Facts:
    return [
        ("converted", words.certificate(found)),
        ("precisions", _pairs(found.precisions)),
        ("providers", _pairs(found.providers)),
        ("threads", "" if found.threads is None else str(found.threads)),
        ("fallbacks", ", ".join(found.fallbacks) or "none"),
        ("evidence", "; ".join(found.evidence) or "none"),
    ]


def _execution(found: Execution) -> Facts:
    return [
        ("target", f"{found.target}, {found.precision}"),
        ("batch", str(found.batch)),
        ("threads", f"{found.threads}" + (f" on CPUs {', '.join(map(str, found.cpus))}" if found.cpus else "")),
        ("replicas", str(found.replicas) if found.replicas > 1 else ""),
        ("variables", _pairs(found.variables)),
        ("options", _pairs(found.options)),
    ]


def artefact(found: Artefact) -> Facts:
    """Where it lies and what it takes."""

    return [
        ("kind", f"{found.kind} for {found.target}, {units.size(found.size_bytes)}"),
        ("folder", found.folder),
        ("files", ", ".join(found.files)),
        ("inputs", _tensors(found.inputs)),
        ("outputs", _tensors(found.outputs)),
    ]


def environment(found: Environment) -> tuple[Facts, Facts]:
    """What must be equal to compare, and what held meanwhile."""
    who, held = found.identity, found.conditions
    identity = [
        ("CPU", who.cpu),
        ("architecture", who.architecture),
        ("instructions", " ".join(who.isa)),
        ("cores", str(who.cores)),
        ("memory", units.size(who.memory_bytes)),
        ("accelerators", ", ".join(who.accelerators) or "none"),
        ("system", who.os),
        ("Python", who.python),
        *((name, str(version)) for name, version in who.versions),
    ]
    conditions = [
        ("load, 1 min", units.number(held.load_1m)),
        ("governor", held.governor or units.UNKNOWN),
        ("frequency", units.scaled(held.frequency_hz, "Hz")),
        ("allocator", held.allocator or units.UNKNOWN),
        *((name, str(value)) for name, value in held.variables),
    ]
    return identity, conditions


def _tensors(specs: tuple[TensorSpec, ...]) -> str:
    return "; ".join(f"{t.name} {'×'.join(map(str, t.shape))} {t.dtype}" for t in specs)


def _pairs(pairs: Pairs) -> str:
    return ", ".join(f"{k}={v}" for k, v in pairs)
