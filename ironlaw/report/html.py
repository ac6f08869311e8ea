"""One self-contained HTML file of a run: opens offline, anywhere, in years.

Why one file and no chart library: it is mailed, attached to a ticket, printed. It asks for nothing
over the network and its content policy forbids that; only our own script and style, named by their
hashes, may run, so that a hostile model name stays text. The public JSON lies inside it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ironlaw.records import Objective, Run
from ironlaw.report import costs, data, facts, frontier, marks, predictions, roofline, svg, tables, terms, units, words

_UNIT = re.compile(r"(?<=\d) (?=%|(?:ns|µs|ms|s|min|h|pt|[kMGT]?B|[kMGT]?FLOP)\b)")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One of several drawings that a switch chooses from."""

    name: str
    label: str
    drawings: Markup


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A headline number before and after."""

    name: str
    before: str
    after: str


def render(run: Run) -> str:
    """The page of a run.

    Raises:
        ValueError: the run holds NaN or Inf.
    """
    style, script = _file("page.css"), _file("page.js")
    text = _template().render(
        run=run,
        style=Markup(style),  # noqa: S704 our own file
        script=Markup(script),  # noqa: S704 our own file
        policy=_policy(style, script),
        payload=_payload(run),
        summary=words.summary(run),
        goal=words.goal(run.goal),
        spent=units.seconds(run.spent_s),
        tiles=tiles(run),
        frontier=_frontier(run),
        legend=marks.legend(marks.standing(run, t) for t in (run.baseline, *run.trials) if t.measured),
        terms=_terms(run),
        term_rows=tables.term_rows(run),
        diagnoses=terms.rows(run),
        killers=[(name, d.findings) for name, d in terms.rows(run)],
        killer=words.killer,
        perturbations=[(name, tables.perturbation_rows(d)) for name, d in terms.rows(run)],
        energies=[(f"{name}: {costs.energy_title(d)}", costs.energy_rows(d.energy)) for name, d in terms.rows(run)],
        memories=[(name, costs.memory_rows(d.memory)) for name, d in terms.rows(run) if d.memory],
        percent=units.percent,
        unknown=units.UNKNOWN,
        bounds=[(name, words.ranked(d.bounds)) for name, d in terms.rows(run)],
        rooflines=_rooflines(run),
        predictions=_both(lambda size: predictions.draw(run, size)) if predictions.pairs(run) else None,
        score=predictions.score(run),
        rows=tables.trial_rows(run),
        environment=facts.environment(run.environment),
        ceilings=tables.ceiling_rows(run.machine),
        artefact=run.best_trial.artefact,
        artefact_facts=facts.artefact(run.best_trial.artefact) if run.best_trial.artefact else [],
        ratio=units.ratio,
        machine_notes=run.machine.notes,
    )
    return units.plain(text)


def tiles(run: Run) -> list[Tile]:
    """The speed that was asked for, quality, size and memory, of the baseline and of the best point."""
    before, after = run.baseline.measured, run.best_trial.measured
    if before is None:
        return []
    now = after or before
    same = run.best == run.baseline.id
    speed = (
        ("Throughput", _per_second(before.throughput_per_s), _per_second(now.throughput_per_s))
        if run.goal.objective is Objective.THROUGHPUT
        else ("Latency p50", units.seconds(before.latency_s.p50), units.seconds(now.latency_s.p50))
    )
    pairs = (
        speed,
        *_quality_tile(run),
        ("Size on disk", units.size(before.size_bytes), units.size(now.size_bytes)),
        ("Peak memory", units.size(before.peak_memory_bytes), units.size(now.peak_memory_bytes)),
    )
    return [Tile(name=name, before="" if same else old, after=new) for name, old, new in pairs]


def _quality_tile(run: Run) -> tuple[tuple[str, str, str], ...]:
    found = run.best_trial.quality
    if found is None:
        return (("Quality", units.UNKNOWN, "not evaluated"),)
    return ((found.metric, units.metric(found.baseline), units.metric(found.value)),)


def _per_second(value: float) -> str:
    return f"{units.number(value)} /s"


def _frontier(run: Run) -> list[View]:
    views = [
        View(name=m.name, label=label, drawings=_both(lambda size, m=m: frontier.draw(run, m, size)))
        for m, label in zip(frontier.metrics(run), ("Quality", "Size", "Memory"), strict=True)
    ]
    evaluated = any(t.quality and t.quality.drop is not None for t in run.trials)
    return views if evaluated else [*views[1:], views[0]]


def _terms(run: Run) -> list[View]:
    return [
        View(name=name, label=label, drawings=_both(lambda size, s=share: terms.draw(run, size, share=s)))
        for name, label, share in (("time", "Seconds", False), ("share", "Shares", True))
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """One roofline with its table; ``missing`` says why there is no drawing."""

    view: View
    target: str
    missing: str
    operators: list[list[str]]
    others: str


def _rooflines(run: Run) -> list[Roofline]:
    found = []
    for name, diagnosis in terms.rows(run):
        missing = roofline.empty(run.machine, diagnosis)
        drawn = Markup("")
        if not missing:
            drawn = _both(lambda size, d=diagnosis: roofline.draw(run.machine, d, size))
        view = View(name=name, label=f"{name.capitalize()}: {diagnosis.target}", drawings=drawn)
        operators, others = tables.operator_rows(run.machine, diagnosis)
        found.append(Roofline(view=view, target=diagnosis.target, missing=missing, operators=operators, others=others))
    return found


def _both(draw: svg.Drawing) -> Markup:
    return Markup("").join(draw(size) for size in (svg.WIDE, svg.NARROW))


def _payload(run: Run) -> Markup:
    """The public JSON, safe inside a script element."""
    text = json.dumps(data.run_data(run), allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704 no character that HTML reads is left


def tight(text: str) -> str:
    """Numbers held together with their units; a browser's search still finds them with a plain space."""
    return _UNIT.sub("\u00a0", text)


def breakable(text: str) -> Markup:
    """A name that may be broken after its underscores."""
    return Markup("_<wbr>").join(text.split("_"))


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _file(name: str) -> str:
    return resources.files("ironlaw.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(tight=tight, breakable=breakable)
    return environment.from_string(_file("page.html"))
