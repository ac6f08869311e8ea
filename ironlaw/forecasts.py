"""The score of our own predictions: what ``ironlaw predictions`` prints, and its exchange between machines.

What is exported holds levers, intervals and gains: no name, key, digest, path or time, and workloads as running
numbers only, so that predictions of one workload are known to belong together. A random word stands for the store, so
that a later export of it replaces an earlier one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from ironlaw.laws.shares import wilson
from ironlaw.plan.widening import Widening
from ironlaw.records import PREDICTIONS_SCHEMA, Forecast, UserError
from ironlaw.store import Store, clear_errors, home_folder, write_atomically

MOST_BYTES = 50_000_000
_SOURCE = re.compile(r"^[0-9a-f]{32}$")
_NUMBERS = ("low", "value", "high", "widened", "measured")
_WORDS = ("lever", "kind", "target")


def prediction_scores(home: Path | None = None) -> list[dict[str, Any]]:
    """Error, bias and coverage of this store's predictions by lever and kind, and what widens those to come."""
    with Store(home or home_folder()) as store:
        own, widening = store.forecasts(), Widening(store.forecasts(imported=True))
    groups: dict[tuple[str, str], list[Forecast]] = defaultdict(list)
    for forecast in own:
        groups[forecast.lever, forecast.kind].append(forecast)
    rows = [_score(lever, kind, groups[lever, kind], widening) for lever, kind in sorted(groups)]
    return [*rows, _score("all", "", own, widening)] if len(rows) > 1 else rows


def export_predictions(to: Path, home: Path | None = None) -> int:
    """Write this store's own predictions without anything private; returns how many."""
    with Store(home or home_folder()) as store:
        forecasts, source = store.forecasts(), store.pseudonym()
    numbers: dict[str, int] = {}
    rows = [
        {**dataclasses.asdict(forecast), "workload": numbers.setdefault(forecast.workload, len(numbers) + 1)}
        for forecast in forecasts
        if forecast.workload
    ]
    with clear_errors(to.parent):
        data = {"schema": PREDICTIONS_SCHEMA, "source": source, "predictions": rows}
        write_atomically(to, json.dumps(data, indent=1, allow_nan=False))
    return len(rows)


def import_predictions(source: Path, home: Path | None = None) -> int:
    """Predictions of another machine, to widen predictions here, instead of those it gave before. Returns how many.

    Raises UserError for what is not such a file; then nothing is imported.
    """
    origin, forecasts = _read(source)
    with Store(home or home_folder()) as store:
        if origin != store.pseudonym():
            store.replace_forecasts(origin, forecasts)
            return len(forecasts)
    raise UserError(str(source), "comes from this store itself", "Give another machine's: its own count already.")


def _score(lever: str, kind: str, forecasts: list[Forecast], widening: Widening) -> dict[str, Any]:
    inside = sum(forecast.inside for forecast in forecasts)
    low, high = wilson(inside, len(forecasts))
    version = max(forecast.version for forecast in forecasts)
    return {
        "lever": lever,
        "kind": kind,
        "predictions": len(forecasts),
        "median |ln error|": statistics.median(abs(forecast.error) for forecast in forecasts),
        "bias (ln)": statistics.mean(forecast.error for forecast in forecasts),
        "coverage of 90 %": inside / len(forecasts),
        "Wilson 95 %": f"{low:.2f} to {high:.2f}",
        "widened": widening.power(lever, version, kind) if kind else None,
    }


def _read(source: Path) -> tuple[str, list[Forecast]]:
    """The store that the file is of, and its predictions."""
    remedy = "Give a file that `ironlaw predictions --export` wrote."
    try:
        if source.stat().st_size > MOST_BYTES:
            raise UserError(str(source), f"is larger than {MOST_BYTES // 1_000_000} MB", remedy)
        data = json.loads(source.read_text())
    except OSError as error:
        raise UserError(str(source), error.strerror or str(error), remedy) from error
    except ValueError as error:
        raise UserError(str(source), f"is not JSON ({error})", remedy) from error
    if not isinstance(data, dict) or data.get("schema") != PREDICTIONS_SCHEMA:
        raise UserError(str(source), f"is not {PREDICTIONS_SCHEMA}", remedy)
    rows, origin = data.get("predictions"), data.get("source")
    if not isinstance(rows, list) or not (isinstance(origin, str) and _SOURCE.match(origin)):
        raise UserError(str(source), "has no predictions, or no source", remedy)
    found = []
    for number, row in enumerate(rows, start=1):
        forecast = _forecast(row, origin)
        if forecast is None:
            raise UserError(f"{source}, prediction {number}", "is not a prediction with what was measured", remedy)
        found.append(forecast)
    return origin, found


def _forecast(row: Any, origin: str) -> Forecast | None:
    """None when it is not one: of other fields, or with numbers that cannot be."""
    if not isinstance(row, dict) or set(row) != {field.name for field in dataclasses.fields(Forecast)}:
        return None
    whole = (row["version"], row["workload"])
    numbers = [row[name] for name in _NUMBERS]
    if not all(isinstance(row[name], str) for name in _WORDS) or not all(type(value) is int for value in whole):
        return None
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < math.inf for n in numbers):
        return None
    if not row["low"] <= row["value"] <= row["high"] or row["widened"] < 1.0:
        return None
    return Forecast(**{**row, "workload": f"{origin}-{row['workload']}"})
