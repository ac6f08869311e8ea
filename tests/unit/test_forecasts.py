"""The score of predictions, and its exchange between machines without anything private."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ironlaw import forecasts, store
from ironlaw.plan.widening import Widening
from ironlaw.records import Forecast, UserError

SEEN = Forecast(
    lever="int8", version=1, kind="inference", target="onnxruntime",
    low=1.6, value=2.0, high=2.4, widened=1.0, measured=2.2, workload="my-secret-model",
)  # fmt: skip


def filled(home: Path, measured: list[float], **other: Any) -> Path:
    with store.Store(home) as opened:
        for number, value in enumerate(measured):
            opened.keep_forecast(f"key-{number}", replace(SEEN, measured=value, **other))
    return home


def test_the_score_is_told_by_lever_and_kind(tmp_path: Path) -> None:
    home = filled(tmp_path / "a", [2.0, 2.2, 4.0, 2.3])
    with store.Store(home) as opened:
        opened.keep_forecast("other", replace(SEEN, lever="batch", kind="training", measured=1.0))
    batch, int8, whole = forecasts.prediction_scores(home)
    assert (batch["lever"], batch["kind"], batch["predictions"]) == ("batch", "training", 1)
    assert batch["bias (ln)"] == pytest.approx(0.693, abs=1e-3)
    assert int8["coverage of 90 %"] == 0.75
    assert int8["widened"] == 1.0
    assert (whole["lever"], whole["predictions"]) == ("all", 5)


def test_nothing_private_leaves_and_it_validates(tmp_path: Path) -> None:
    home, out = filled(tmp_path / "home of me", [2.0, 3.0]), tmp_path / "out.json"
    with store.Store(home) as opened:
        opened.keep_forecast("key-of-another", replace(SEEN, workload="another-model"))
    assert forecasts.export_predictions(out, home) == 3
    text = out.read_text()
    for private in ("secret", "key-", "home of me", "another-model", str(tmp_path)):
        assert private not in text
    data = json.loads(text)
    schema = json.loads(resources.files("ironlaw").joinpath("schemas/predictions-1.json").read_text())
    jsonschema.validate(data, schema)
    assert [row["workload"] for row in data["predictions"]] == [1, 1, 2]


def test_what_is_imported_widens_is_not_scored_and_counts_once(tmp_path: Path) -> None:
    there, here, out = filled(tmp_path / "there", [9.0] * 12), tmp_path / "here", tmp_path / "out.json"
    forecasts.export_predictions(out, there)
    for _ in range(2):
        assert forecasts.import_predictions(out, here) == 12
    assert forecasts.prediction_scores(here) == []
    with store.Store(here) as opened:
        assert opened.forecasts() == []
        pooled = opened.forecasts(imported=True)
    assert len(pooled) == 12
    assert Widening(pooled, "mine").power("int8", 1, "inference") > 5.0
    with store.Store(there) as opened:
        opened.keep_forecast("more", replace(SEEN, measured=2.0))
    forecasts.export_predictions(out, there)
    assert forecasts.import_predictions(out, here) == 13
    with store.Store(here) as opened:
        assert len(opened.forecasts(imported=True)) == 13, "a later export replaces an earlier one"
    with pytest.raises(UserError, match="this store itself"):
        forecasts.import_predictions(out, there)
    again = tmp_path / "again.json"
    assert forecasts.export_predictions(again, here) == 0, "only a store's own outcomes are passed on"


@pytest.mark.parametrize(
    "broken",
    [
        {"low": 2.1}, {"measured": 0.0}, {"measured": "2"}, {"high": True}, {"widened": 0.5}, {"lever": 3},
        {"version": "1"}, {"workload": "x"}, {"extra": 1}, {"value": float("inf")}, {"value": float("nan")},
    ],
)  # fmt: skip
def test_an_outcome_that_cannot_be_is_refused_and_nothing_is_imported(tmp_path: Path, broken: dict[str, Any]) -> None:
    out = tmp_path / "out.json"
    forecasts.export_predictions(out, filled(tmp_path / "there", [2.0, 2.1]))
    data = json.loads(out.read_text())
    data["predictions"][1].update(broken)
    out.write_text(json.dumps(data))
    with pytest.raises(UserError, match="prediction 2"):
        forecasts.import_predictions(out, tmp_path / "here")
    with store.Store(tmp_path / "here") as opened:
        assert opened.forecasts(imported=True) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "ironlaw.run/1"}', '{"schema": "ironlaw.predictions/1"}'])
def test_what_is_no_such_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    given = tmp_path / "given.json"
    given.write_text(text)
    for path in (given, tmp_path / "missing.json", tmp_path):
        with pytest.raises(UserError, match="--export"):
            forecasts.import_predictions(path, tmp_path / "here")


def test_a_store_of_the_first_schema_keeps_its_outcomes_and_they_widen_nothing(tmp_path: Path) -> None:
    tmp_path.joinpath("old").mkdir()
    with sqlite3.connect(tmp_path / "old" / "store.db") as db:
        store.MIGRATIONS[0](db)
        db.execute("PRAGMA user_version = 1")
        row = ("k", "int8", "inference", "onnxruntime", 0.0, 1.6, 2.0, 2.4, 9.0)
        db.execute("INSERT INTO predictions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    with store.Store(tmp_path / "old") as opened:
        (kept,) = opened.forecasts()
    assert (kept.measured, kept.workload, kept.widened) == (9.0, "", 1.0)
    assert Widening([kept] * 20, "any").power("int8", 0, "inference") == 1.0
