"""What ironlaw says of situations that tools got wrong in public: never wrong, and right where it can tell.

Live cases look at this machine, so that a noisy one may leave some undetermined; they are slow, since its ceilings are
measured first. Replayed ones and scripts need no machine and must all be right.
"""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from typer.testing import CliRunner

from ironlaw import api
from ironlaw.records import Conditions, Environment, Identity, Machine, UserError
from ironlaw.validating import running
from ironlaw.validating.case import Answer, Case, Outcome, Said
from ironlaw.validating.cases import all_cases
from ironlaw.validating.cases.timing import CLEAN, CLEAN_GPU
from ironlaw.validating.here import Here

CASES = all_cases()
ANYWHERE = [case for case in CASES if case.replayed or case.name.startswith("benchmark-")]
LIVE = [case for case in CASES if case not in ANYWHERE]
LIVE_RIGHT = 26
"""Of 33 that look at the machine, what a busy one still leaves right (33 on a quiet one)."""


def names(case):
    return case.name


@pytest.fixture
def nowhere(tmp_path):
    """A machine of which nothing was measured."""
    identity = Identity(cpu="c", architecture="a", isa=(), cores=1, memory_bytes=1, os="o", python="p")
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    return Here(
        machine=Machine(environment=Environment(identity=identity, conditions=conditions), ceilings=()), folder=tmp_path
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    here = Here(machine=api.machine(home=folder, quick=True), folder=folder)
    return {case.name: running.answered(case, here) for case in LIVE}


def told(answer):
    return f"{answer.said.fires} {answer.said.words} | twin: {answer.cured.fires} {answer.cured.words}"


# ---------------------------------------------------------------- the cases


@pytest.mark.parametrize("case", ANYWHERE, ids=names)
def test_cases_that_need_no_machine_are_right(case, nowhere):
    answer = running.answered(case, nowhere)
    assert answer.outcome is Outcome.RIGHT, told(answer)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", LIVE, ids=names)
def test_live_cases_are_never_wrong_and_their_twins_are_silent(case, answers):
    answer = answers[case.name]
    assert answer.outcome is not Outcome.WRONG, told(answer)
    assert answer.cured.fires is not True, told(answer)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_most_live_cases_are_right(answers):
    right = [name for name, answer in answers.items() if answer.outcome is Outcome.RIGHT]
    missed = sorted(set(answers) - set(right))
    assert len(right) >= LIVE_RIGHT, f"not right: {missed}"


# ---------------------------------------------------------------- what a case is


def test_at_least_twenty_run_live_and_every_case_says_where_it_was_met():
    assert sum(not case.replayed for case in CASES) >= 20
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.reference
        assert case.situation
        assert case.verdict
        assert case.cured
        assert all(1 <= number <= 62 for number in case.numbers)


@pytest.mark.parametrize(
    ("said", "cured", "outcome"),
    [
        (True, False, Outcome.RIGHT),
        (False, False, Outcome.WRONG),
        (True, True, Outcome.WRONG),
        (None, True, Outcome.WRONG),
        (None, False, Outcome.UNDETERMINED),
        (True, None, Outcome.UNDETERMINED),
    ],
)
def test_an_answer_counts_as_what_was_said_of_the_situation_and_of_its_twin(said, cured, outcome):
    first, second = (Said(fires=fires, words="") for fires in (said, cured))
    assert Answer(case=CASES[0], said=first, cured=second, seconds=0.0).outcome is outcome


def test_a_missing_package_leaves_a_case_undetermined(nowhere):
    def ask(_: Here) -> Said:
        raise ImportError("no module named nothing")

    answer = running.answered(dataclasses.replace(CASES[0], ask=ask, ask_cured=ask), nowhere)
    assert answer.outcome is Outcome.UNDETERMINED
    assert "nothing" in answer.said.words


def test_a_bug_of_ours_is_not_an_answer(nowhere):
    def ask(_: Here) -> Said:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        running.answered(dataclasses.replace(CASES[0], ask=ask), nowhere)


def test_scripts_without_a_mistake_are_silent_in_every_rule():
    from ironlaw.linting import lint_text

    assert lint_text(CLEAN) == ()
    assert lint_text(CLEAN_GPU) == ()


# ---------------------------------------------------------------- the counts


def test_live_and_replayed_are_counted_apart():
    def answered(case: Case, fires: bool | None) -> Answer:
        return Answer(case=case, said=Said(fires=fires, words="w"), cured=Said(fires=False, words="c"), seconds=0.0)

    live, replayed = LIVE[0], next(case for case in CASES if case.replayed)
    found = running.data([answered(live, True), answered(live, False), answered(replayed, None)])
    assert found["live"] == {"right": 1, "undetermined": 0, "wrong": 1, "of": 2}
    assert found["replayed"] == {"right": 0, "undetermined": 1, "wrong": 0, "of": 1}
    assert found["schema"] == "ironlaw.validation/1"
    assert [row["outcome"] for row in found["cases"]] == ["right", "wrong", "undetermined"]
    assert found["cases"][0]["numbers"] == list(live.numbers)


def test_the_account_names_the_misses_in_full():
    from rich.console import Console

    wrong = Answer(
        case=LIVE[0], said=Said(fires=False, words="nothing seen"), cured=Said(fires=False, words="fine"), seconds=0.0
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(api.validation_text(running.data([wrong])))
    text = console.export_text()
    assert "diagnosed 0 of 1; 0 undetermined, 1 wrong" in text
    assert LIVE[0].situation in text
    assert "nothing seen" in text


def test_unknown_names_are_the_users_error():
    with pytest.raises(UserError, match="Use: cases"):
        api.validate("tables")
    with pytest.raises(UserError, match="launch-bound"):
        api.validate("cases", only=["nothing"])


def test_what_can_be_validated_is_listed():
    (only,) = api.validations()
    assert only["name"] == "cases"
    assert str(len(CASES)) in only["what"]


# ---------------------------------------------------------------- the command


def test_the_command_lists_and_answers_in_json(nowhere, monkeypatch):
    from ironlaw.cli import app

    runner = CliRunner()
    assert "cases" in runner.invoke(app, ["validate"]).output
    assert runner.invoke(app, ["validate", "tables"]).exit_code == 2
    monkeypatch.setattr(api, "machine", lambda **_: nowhere.machine)
    only = ["--only", "second-node-no-gain", "--only", "benchmark-few-samples"]
    done = runner.invoke(app, ["validate", "cases", *only, "--json", "-", "--quiet"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["live"] == {"right": 1, "undetermined": 0, "wrong": 0, "of": 1}
    assert found["replayed"] == {"right": 1, "undetermined": 0, "wrong": 0, "of": 1}
    assert {row["name"] for row in found["cases"]} == {"second-node-no-gain", "benchmark-few-samples"}
