"""Tables of a run, a diagnosis and the levers for the command line.

Why rich: it measures the terminal and respects ``NO_COLOR``, so nothing here does. Nothing is told by
colour alone, every table can be read at 80 columns, and text from elsewhere is never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ironlaw.records import Axis, Diagnosis, Op, Outcome, Refusal, Run, Term, Trial
from ironlaw.report import costs, marks, roofline, tables, units, words
from ironlaw.report.elsewhere import elsewhere_table

BAR = 20
SHOWN = 8
SHORT = 100


class LeverFacts(Protocol):
    """What a row of the catalogue says about a lever."""

    name: Any
    axis: Any
    attacks: Any
    kinds: Any
    needs: Any
    cites: Any


def summary(run: Run) -> RenderableType:
    """The result of a run: headline, answers in words, the frontier, what else was tried, refusals in short."""
    said = words.summary(run)
    parts: list[RenderableType] = [
        Text(units.plain(f"{run.name}: {said.headline}"), style="bold"),
        _text(said.proof, style="dim"),
    ]
    if said.warning:
        parts.append(_text(said.warning, style="bold red"))
    parts += [Text(), _answers(said), Text(), frontier_table(run)]
    if run.trials:
        parts += [Text(), _outcomes(run)]
    if run.refused:
        parts += [Text(), _refusals(run.refused)]
    return Group(*parts)


def frontier_table(run: Run) -> Table:
    """The baseline and the frontier, the best point marked with a star."""
    table = _table("frontier", ("", "point", "gain", "p50", "quality", "size", "memory"), right=(2, 3, 5, 6))
    wanted = {run.baseline.id, run.best, *run.frontier}
    shown = [(number, trial) for number, trial in marks.numbered(run) if trial.id in wanted]
    for number, trial in sorted(shown, key=lambda item: marks.gain_of(run, item[1]) or 0.0):
        best = trial.id == run.best
        table.add_row(
            _text(f"{'★' if best else ' '}{number}"),
            _name(trial),
            _gain(run, trial),
            *_measured(trial, run),
            style="bold" if best else None,
        )
    return table


def diagnosis_table(diagnosis: Diagnosis) -> RenderableType:
    """Terms with their intervals, the slowest operators, what works and what would be wasted."""
    parts: list[RenderableType] = [
        _text(words.limited_by(diagnosis), style="bold"),
        Text(),
        _terms(diagnosis),
        Text(),
        _operators(diagnosis),
    ]
    if diagnosis.findings:
        parts += [Text(), _findings(diagnosis)]
    if diagnosis.perturbations:
        parts += [Text(), _perturbations(diagnosis)]
    if diagnosis.bounds:
        parts += [Text(), _bounds(diagnosis)]
    if diagnosis.memory:
        parts += [Text(), _costs("peak memory of a step, predicted", costs.memory_rows(diagnosis.memory))]
    if diagnosis.energy and diagnosis.energy.value:
        parts += [Text(), _costs(costs.energy_title(diagnosis), costs.energy_rows(diagnosis.energy))]
    distance = next(iter(words.remaining(diagnosis)))
    uncounted = diagnosis.ledger.uncounted
    parts += [Text(), _text(distance)]
    if uncounted:
        parts.append(_text(f"Not counted: {', '.join(dict.fromkeys(uncounted))}."))
    for there in diagnosis.elsewhere:
        parts += [Text(), elsewhere_table(there)]
    return Group(*parts)


def lever_table(levers: Iterable[LeverFacts]) -> Table:
    """The catalogue, in the order in which plans ask: data, algorithm, machine."""
    table = _table("levers", ("lever", "axis", "attacks", "for", "needs", "source"))
    for lever in sorted(levers, key=lambda one: (list(Axis).index(one.axis), one.name)):
        table.add_row(
            _text(lever.name),
            _text(str(lever.axis)),
            _listed(lever.attacks),
            _listed(lever.kinds),
            _listed(lever.needs) if lever.needs else Text("nothing", style="dim"),
            _text(lever.cites),
        )
    return table


def _answers(said: words.Summary) -> Table:
    table = Table.grid(padding=(0, 2), expand=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for question, answers in said.rows():
        short = "To the bound" if question.startswith("Between") else question
        for index, answer in enumerate(answers):
            table.add_row(Text("" if index else short), _text(answer))
    return table


def _outcomes(run: Run) -> Table:
    """How many trials ended how; a failure is named with its reason."""
    table = _table("tried", ("outcome", "trials", "cause or reason"), right=(1,))
    for outcome in Outcome:
        found = [(n, t) for n, t in marks.numbered(run) if n and t.outcome is outcome]
        if not found:
            continue
        if not outcome.failed:
            table.add_row(_text(words.OUTCOME[outcome]), str(len(found)), _text(outcome.cause))
            continue
        for number, trial in found:
            reason = _shorten(f"{trial.label}: {trial.reason or outcome.cause}")
            table.add_row(_text(words.OUTCOME[outcome], style="red"), f"#{number}", _text(reason))
    return table


def _refusals(refused: Sequence[Refusal]) -> RenderableType:
    table = _table("refused", ("lever", "reason"))
    for refusal in refused[:SHOWN]:
        table.add_row(_text(refusal.lever), _text(_shorten(refusal.reason)))
    if len(refused) <= SHOWN:
        return table
    return Group(table, Padding(_text(f"and {len(refused) - SHOWN} more, in the report", style="dim"), (0, 1)))


def _terms(diagnosis: Diagnosis) -> Table:
    table = _table("", ("term", "time", "interval", "share", "", "evidence"), right=(1, 3))
    for term in words.terms_in_order(diagnosis):
        at = next(t for t in diagnosis.terms if t.term == term)
        share = diagnosis.share(term)
        table.add_row(
            _text(str(term), style="bold" if term == diagnosis.dominant else ""),
            _text(units.seconds(at.seconds.value)),
            _text(units.seconds_range(at.seconds)),
            _text(units.percent(share)),
            Text(_bar(share), style="dim" if term == Term.RESIDUAL else "cyan"),
            _text(at.evidence),
        )
    table.add_row(Text("total"), _text(units.seconds(diagnosis.total_s)), "", "", "", _text(_where(diagnosis)))
    return table


def _where(diagnosis: Diagnosis) -> str:
    threads = f"{diagnosis.threads} thread{'' if diagnosis.threads == 1 else 's'}"
    return f"a {units.call_or_step(diagnosis)}, {diagnosis.target}, {threads}"


def _operators(diagnosis: Diagnosis) -> Table:
    table = _table("slowest operators", ("operator", "shape", "calls", "time", "work", "FLOP/B"), right=(2, 3, 4))
    for _, op in roofline.by_time(diagnosis)[:SHOWN]:
        table.add_row(
            _text(op.name),
            _text(op.shape),
            str(op.calls),
            _text(_time(op)),
            _text("not counted" if op.flops is None else units.scaled(op.flops, "FLOP")),
            _text(roofline.span(roofline.intensity(op))),
        )
    return table


def _time(op: Op) -> str:
    return "not timed" if op.time_s is None else units.seconds(op.time_s)


def _perturbations(diagnosis: Diagnosis) -> Table:
    """What each perturbation says that its term takes, and whether that agrees with the term above."""
    table = _table("causes by perturbation", ("changed", "term", "says", "the term", "evidence"))
    styles = {"confirmed": "green", "refuted": "red", "open": "dim"}
    for one in tables.perturbation_rows(diagnosis):
        verdict = Text(one.verdict, style=styles[one.verdict])
        table.add_row(_text(one.name), _text(str(one.term)), _text(one.says), verdict, _text(one.evidence))
    return table


def _costs(title: str, rows: Iterable[costs.Row]) -> Table:
    table = _table(title, ("part", "amount", "share"), right=(1,))
    for part, amount, share in rows:
        table.add_row(_text(part), _text(amount), _text(share))
    return table


def _findings(diagnosis: Diagnosis) -> Table:
    """Silent killers with their evidence, and below it what to do."""
    table = _table("silent killers", ("killer", "share", "evidence, and what to do"), right=(1,))
    for one in diagnosis.findings:
        share = units.UNKNOWN if one.share is None else units.percent(one.share)
        cure = Text("\n-> ", style="green").append(units.plain(one.remedy), style="")
        table.add_row(_text(words.killer(one), style="bold"), _text(share), _text(one.evidence).append_text(cure))
    return table


def _bounds(diagnosis: Diagnosis) -> Table:
    table = _table("what works and what would be wasted", ("change", "at most", "verdict", "why"), right=(1,))
    for bound in words.ranked(diagnosis.bounds):
        verdict = Text("wasted", style="dim") if bound.wasted else Text("works", style="green")
        table.add_row(_text(bound.change), _text(units.ratio(bound.speedup)), verdict, _text(bound.reason))
    return table


def _table(title: str, columns: Sequence[str], right: Sequence[int] = ()) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index in right else "left", overflow="fold", header_style="dim")
    return table


def _name(trial: Trial) -> Text:
    """Levers a line each, their settings quietly below."""
    if not trial.changes:
        return Text("baseline")
    parts = []
    for change in trial.changes:
        parts.append(_text(change.lever))
        if change.settings:
            parts.append(_text(", ".join(f"{k}={v}" for k, v in change.settings), style="dim"))
    return Text("\n").join(parts)


def _gain(run: Run, trial: Trial) -> Text:
    text = units.ratio(marks.gain_of(run, trial))
    return _text(f"{text}\n{units.ratio_range(trial.gain.low, trial.gain.high)}" if trial.gain else text)


def _measured(trial: Trial, run: Run) -> list[Text]:
    found, quality = trial.measured, trial.quality
    relative = run.goal.max_drop.relative
    judged = "not evaluated"
    if quality and trial.id == run.baseline.id:
        judged = units.metric(quality.value)
    elif quality:
        judged = units.quality(quality, relative=relative).replace(", ", "\n", 1).replace(" (", "\n").rstrip(")")
    if found is None:
        return [_text(units.UNKNOWN), _text(judged), _text(units.UNKNOWN), _text(units.UNKNOWN)]
    size, memory = units.size(found.size_bytes), units.size(found.peak_memory_bytes)
    return [_text(units.seconds(found.latency_s.p50)), _text(judged), _text(size), _text(memory)]


def _listed(values: Iterable[object]) -> Text:
    return _text(", ".join(sorted(str(v) for v in values)))


def _bar(share: float) -> str:
    """A bar of a share of 1 in eighths of a character; a negative one has no length."""
    eighths = round(min(max(share, 0.0), 1.0) * BAR * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _shorten(text: str) -> str:
    return textwrap.shorten(text, SHORT, placeholder=" …")


def _text(content: str, style: str = "") -> Text:
    return Text(units.plain(content), style=style)
