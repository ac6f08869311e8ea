"""The public JSON is what its schema says, and the schema tells wrong documents from right ones."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import factory
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from ironlaw import records
from ironlaw.records import Objective, Outcome, Run, Term
from ironlaw.report.data import diagnosis_data, machine_data, run_data, schema

Validator = jsonschema.Draft202012Validator


def valid(name: str, data: Any) -> bool:
    return Validator(schema(name)).is_valid(data)


@pytest.mark.parametrize("name", ["run-1", "machine-1", "diagnosis-1"])
def test_schemas_are_themselves_valid_and_reach_for_nothing_outside(name: str) -> None:
    Validator.check_schema(schema(name))
    assert "http" not in json.dumps(schema(name)).replace("https://json-schema.org/draft/2020-12/schema", "")


@pytest.mark.parametrize("name", ["machine-1", "diagnosis-1"])
def test_the_run_schema_holds_the_other_two_unchanged(name: str) -> None:
    assert schema("run-1")["$defs"][name.removesuffix("-1")] == schema(name)


def test_enumerations_are_those_of_the_records() -> None:
    definitions = schema("run-1")["$defs"]
    assert definitions["trial"]["properties"]["outcome"]["enum"] == [str(o) for o in Outcome]
    assert definitions["goal"]["properties"]["objective"]["enum"] == [str(o) for o in Objective]
    assert schema("diagnosis-1")["$defs"]["term"]["enum"] == [str(t) for t in Term]


@pytest.mark.parametrize("make", factory.EVERY.values(), ids=factory.EVERY)
def test_every_kind_of_run_is_valid_and_survives_json(make: Callable[[], Run]) -> None:
    data = run_data(make())
    Validator(schema("run-1")).validate(data)
    assert json.loads(json.dumps(data, allow_nan=False)) == data


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(run=factory.runs())
def test_any_run_is_valid(run: Run) -> None:
    Validator(schema("run-1")).validate(run_data(run))


def test_parts_are_valid_alone() -> None:
    Validator(schema("machine-1")).validate(machine_data(factory.machine()))
    Validator(schema("diagnosis-1")).validate(diagnosis_data(factory.diagnosis()))


def test_the_shape_that_is_promised() -> None:
    run = factory.full_run()
    data = run_data(run)
    assert data["schema"] == "ironlaw.run/1"
    assert {"environment", "machine", "baseline", "trials", "frontier", "best", "refused", "account"} <= set(data)
    by_id = {t["id"]: t for t in (data["baseline"], *data["trials"])}
    assert len(by_id) == 1 + len(run.trials)
    best = by_id[data["best"]]
    assert [lever["name"] for lever in best["levers"]] == ["onnxruntime_int8", "threads"]
    assert best["levers"][0]["settings"] == {"scheme": "u8s8", "per_channel": True, "calibration": "entropy"}
    assert best["predicted"]["speedup"] == {"low": 4.2, "value": 5.6, "high": 7.4}
    assert best["measured"]["speedup"]["median"] == 6.6
    assert best["measured"]["speedup"]["proven"] is True
    assert best["measured"]["latency_s"]["p50"] == pytest.approx(17.2e-3 / 6.6)
    assert best["measured"]["energy_j"] == {"value": 0.081, "source": "modelled", "parts": {}}
    assert best["quality"]["drop"] == 0.002
    assert best["certificate"]["converted"] == 49
    assert by_id["t08"]["measured"]["speedup"]["proven"] is False, "unsettled is never proven"
    assert by_id["t11"]["measured"] is None
    assert by_id["t11"]["cause"] == "the worker process died"


RECORDS = {
    "run-1": (
        (records.Goal, "goal"), (records.Execution, "execution"), (records.Measurement, "measured"),
        (records.Prediction, "predicted"), (records.Gain, "speedup"), (records.Quality, "quality"),
        (records.Certificate, "certificate"), (records.Artefact, "artefact"), (records.TensorSpec, "tensor"),
        (records.Energy, "energy"), (records.Run, ""),
    ),
    "machine-1": (
        (records.Ceiling, "ceiling"), (records.Cache, "cache"), (records.KernelRate, "kernel"), (records.Machine, ""),
    ),
    "diagnosis-1": (
        (records.Bound, "bound"), (records.Ledger, "ledger"), (records.Op, "op"), (records.Diagnosis, ""),
        (records.Energy, "energy"), (records.StepTimes, "step"), (records.Loader, "loader"),
        (records.TrainingMemory, "memory"), (records.Gain, "gain"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_the_records_is_in_the_schema(name: str) -> None:
    whole = schema(name)
    for record, definition in RECORDS[name]:
        described = whole["$defs"][definition] if definition else whole
        fields = {f.name for f in dataclasses.fields(record)}
        assert fields <= set(described["required"]), record.__name__


def test_nan_is_refused() -> None:
    bad = dataclasses.replace(factory.full_run(), floor=float("nan"))
    with pytest.raises(ValueError, match="NaN"):
        run_data(bad)


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def mutate(data: Any) -> None:
        *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for key in parents:
            data = data[key]
        data[last] = value

    return mutate


def _drop(path: str) -> Callable[[dict[str, Any]], None]:
    def mutate(data: Any) -> None:
        *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for key in parents:
            data = data[key]
        del data[last]

    return mutate


WRONG = {
    "another schema": _set("schema", "ironlaw.run/2"),
    "no environment": _drop("environment"),
    "no trial id": _drop("trials.0.id"),
    "empty trial id": _set("trials.0.id", ""),
    "unknown outcome": _set("trials.0.outcome", "better"),
    "speedup of zero": _set("trials.0.measured.speedup.median", 0),
    "speedup without interval": _drop("trials.0.measured.speedup.low"),
    "latency as text": _set("trials.0.measured.latency_s.p50", "5 ms"),
    "negative latency": _set("trials.0.measured.latency_s.p50", -1e-3),
    "unknown energy with a value": _set("trials.0.measured.energy_j", {"value": 1.0, "source": "unknown"}),
    "counted energy without a value": _set("trials.0.measured.energy_j", {"value": None, "source": "counter"}),
    "guessed energy": _set("trials.0.measured.energy_j.source", "guess"),
    "negative size": _set("trials.0.measured.size_bytes", -1),
    "size in fractions": _set("trials.0.measured.size_bytes", 1.5),
    "settings as list": _set("trials.0.levers.0.settings", []),
    "nested setting": _set("trials.0.levers.0.settings", {"a": {"b": 1}}),
    "reused as number": _set("trials.0.reused", 1),
    "frontier of numbers": _set("frontier", [1]),
    "best is null": _set("best", None),
    "refusal without reason": _drop("refused.0.reason"),
    "certificate without proof": _drop("trials.1.certificate.proven"),
    "quality without interval": _drop("trials.0.quality.high"),
    "a machine of another version": _set("machine.schema", "ironlaw.machine/9"),
    "a ceiling without spread": _drop("machine.ceilings.0.low"),
    "an environment without cpu": _drop("environment.identity.cpu"),
    "an unknown term": _set("diagnosis.terms.0.term", "magic"),
    "no terms": _set("diagnosis.terms", []),
    "an operator with negative bytes": _set("diagnosis.ledger.ops.0.bytes_low", -1),
    "a dominant term that is none": _set("diagnosis.dominant", "undetermined"),
    "an objective that is none": _set("goal.objective", "speed"),
}


@pytest.mark.parametrize("mutate", WRONG.values(), ids=WRONG)
def test_wrong_documents_are_rejected(mutate: Callable[[dict[str, Any]], None]) -> None:
    data = copy.deepcopy(run_data(factory.full_run()))
    assert valid("run-1", data)
    mutate(data)
    assert not valid("run-1", data)


def test_keys_that_are_added_later_do_not_break_readers() -> None:
    data = run_data(factory.full_run())
    data["later"] = 1
    data["trials"][0]["measured"]["later_s"] = 2.0
    assert valid("run-1", data)
