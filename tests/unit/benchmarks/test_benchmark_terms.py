"""What ``terms`` concludes from given answers, what it runs, and what it leaves out."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from benchmarks import agreement, common, terms, unseen
from benchmarks.agreement import Answer, answers, judge, judge_residual, side_of
from ironlaw import perturbing
from ironlaw.records import Diagnosis, Interval, Ledger, Perturbation, Term, TermTime, UserError


def interval(low, value, high):
    return Interval(low=low, value=value, high=high)


def diagnosis(total_s=0.02, *, observer_s=None, **shares):
    found = tuple(
        TermTime(
            term=Term(name),
            seconds=interval(0.95 * share * total_s, share * total_s, 1.05 * share * total_s),
            evidence="",
        )
        for name, share in shares.items()
    )
    ledger = Ledger(ops=(), batch=1, source="", observer_s=observer_s)
    return Diagnosis(total_s=total_s, terms=found, dominant=None, why="", ledger=ledger, bounds=())


def said(name, term, low, value, high, confirms=True):
    """Milliseconds."""
    seconds = interval(low / 1e3, value / 1e3, high / 1e3)
    return Perturbation(name=name, term=term, seconds=seconds, confirms=confirms, evidence="")


def answer(claimed, low, value, high, side="equal", *, tells=True, case="c"):
    return Answer(
        case=case,
        perturbation="batch",
        term=Term.LATENCY,
        claimed=claimed,
        found=interval(low, value, high),
        side=side,
        tells=tells,
    )


# ------------------------------------------------------------ distances


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (answer(0.50, 0.52, 0.55, 0.60), (0.02, 0.05, 0.10)),
        (answer(0.50, 0.40, 0.45, 0.48), (0.02, 0.05, 0.10)),
        (answer(0.50, 0.40, 0.50, 0.56), (0.0, 0.0, 0.10)),
        # threads share all but a part: a latency below it is at no distance
        (answer(0.30, 0.40, 0.50, 0.60, "at most"), (0.0, 0.0, 0.0)),
        (answer(0.70, 0.40, 0.50, 0.60, "at most"), (0.10, 0.20, 0.30)),
        # a working set in the cache: only the upper end was measured
        (answer(0.70, 0.0, 0.50, 0.60, "at most"), (0.10, 0.20, 0.20)),
        # parts that fit the cache: the term is at least so much, up to the whole call
        (answer(0.70, 0.40, 0.50, 1.0, "at least"), (0.0, 0.0, 0.0)),
        (answer(0.20, 0.40, 0.50, 1.0, "at least"), (0.20, 0.30, 0.30)),
    ],
)
def test_a_distance_is_from_the_nearest_to_the_furthest_point_of_the_answer(one, wanted):
    found = one.distance
    assert (found.low, found.value, found.high) == pytest.approx(wanted)


def test_answers_are_shares_of_the_call_and_silent_perturbations_give_none():
    book = diagnosis(latency=0.5, memory=0.3, residual=0.2)
    found = answers(
        "digits",
        book,
        [
            said("batch", Term.LATENCY, 9.0, 11.0, 12.0),
            said("threads", Term.SERIAL, 12.0, 14.0, 16.0, confirms=None),
            said("co-runner", Term.MEMORY, 0.0, 4.0, 5.0),
            said("cached", Term.MEMORY, 1.0, 2.0, 20.0, confirms=None),
            Perturbation(name="tiny", term=Term.LATENCY, seconds=None, confirms=None, evidence="not done"),
        ],
    )
    assert [(one.perturbation, one.term, one.side, one.tells) for one in found] == [
        ("batch", Term.LATENCY, "equal", True),
        ("threads", Term.LATENCY, "at most", False),
        ("co-runner", Term.MEMORY, "at most", True),
        ("cached", Term.MEMORY, "at least", False),
    ]
    assert [one.claimed for one in found] == pytest.approx([0.5, 0.5, 0.3, 0.3])
    assert [one.distance.value for one in found] == pytest.approx([0.05, 0.0, 0.10, 0.0])
    assert not any(one.tells for one in answers("x", book, [said("batch", Term.LATENCY, 1, 1, 1)], settled=False))


def test_a_co_runner_that_measured_a_lower_end_says_what_the_term_is():
    assert side_of(said("co-runner", Term.MEMORY, 1.0, 2.0, 3.0)) == "equal"
    assert side_of(said("co-runner", Term.MEMORY, 0.0, 2.0, 3.0)) == "at most"
    assert side_of(said("batch", Term.LATENCY, 0.0, 2.0, 3.0)) == "equal"


def test_no_perturbation_answers_by_a_name_that_is_not_known_here():
    from ironlaw.perturbing import cached, corunner

    assert {"cached", "co-runner"} == {cached.NAME, corunner.NAME}
    assert set(terms.QUICK_CAUSES) <= set(perturbing.NAMES)


# ------------------------------------------------------------ goals


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [((0.50, 0.52, 0.56), True), ((0.45, 0.58, 0.65), "unsettled"), ((0.65, 0.70, 0.80), False)],
)
def test_a_case_is_judged_by_its_furthest_answer(ends, wanted):
    report = common.Report(name="terms", quick=False)
    judge(report, [answer(0.5, 0.49, 0.5, 0.52), answer(0.5, *ends), answer(0.0, 0.9, 0.9, 0.9, tells=False)])
    assert [goal.met for goal in report.goals] == [wanted]
    assert report.goals[0].value == pytest.approx(ends[1] - 0.5)
    assert "2 of 3" in report.goals[0].note


def test_each_case_has_its_goal_and_one_where_nothing_tells_is_unsettled():
    report = common.Report(name="terms", quick=False)
    judge(report, [answer(0.5, 0.5, 0.5, 0.5, case="a"), answer(0.5, 0.0, 0.1, 0.9, tells=False, case="b")])
    assert [(goal.name.split(":")[0], goal.met) for goal in report.goals] == [("a", True), ("b", "unsettled")]


@pytest.mark.parametrize(("share", "wanted"), [(0.0, True), (0.09, True), (0.10, "unsettled"), (0.15, False)])
def test_the_residual_is_judged_as_a_share_of_the_time(share, wanted):
    report = common.Report(name="terms", quick=False)
    judge_residual(report, "mlp, torch", diagnosis(compute=0.7, latency=0.3 - share, residual=share))
    assert report.goals[0].met == wanted
    assert report.goals[0].value == pytest.approx(share)
    assert report.arms[0]["beside"].startswith("compute 70%, latency")
    report = common.Report(name="terms", quick=False)
    judge_residual(report, "all explained", diagnosis(compute=1.0))
    assert report.goals[0].met is True


def test_the_observer_is_told_where_it_is_known():
    assert terms.observer("x", diagnosis(observer_s=0.004)) == [
        "observer of x: 4 ms on a call of 20 ms; never in a timed pass"
    ]
    assert terms.observer("x", diagnosis()) == []


# ------------------------------------------------------------ what is run


@pytest.fixture
def stand_ins(monkeypatch, tmp_path):
    """Sessions that open nothing, rounds that give launches, diagnoses of given numbers."""
    log = []
    missing = set()

    @contextlib.contextmanager
    def session(workload, goal, home, talk, *, ceilings):
        name = workload if isinstance(workload, str) else workload.name
        if name in missing:
            raise UserError(name, "needs a package", "Install it.", exit_code=4)
        log.append(name)
        baseline = SimpleNamespace(launches=[], failure=None)

        def measure(subjects, effort):
            for one in [baseline, *subjects]:
                one.launches.append(effort)
            if effort.against_self:
                bench.self_launches.append(effort)

        bench = SimpleNamespace(baseline=baseline, self_launches=[], measure=measure)
        loop = SimpleNamespace(diagnosis=diagnosis(latency=0.5, memory=0.5), measure_baseline=lambda: None)
        yield SimpleNamespace(bench=bench, machine=None, loop=lambda *_: loop)

    def perturb(_bench, _subject, _diagnosis, _machine, which, _talk):
        log.append(tuple(which))
        return (said("batch", Term.LATENCY, 9.0, 10.5, 12.0),)

    def examined(_bench, subject, _machine, _talk):
        log.append(len(subject.launches))
        return diagnosis(compute=0.96, residual=0.04)

    built = lambda bench, plan: SimpleNamespace(launches=[], failure=None)  # noqa: E731
    monkeypatch.setattr(terms.rounds, "session", session)
    monkeypatch.setattr(terms.rounds, "built", built)
    monkeypatch.setattr(terms.rounds, "known_machine", lambda **_: None)
    monkeypatch.setattr(terms.perturbing, "perturb", perturb)
    monkeypatch.setattr(terms, "examined", examined)
    monkeypatch.setattr(terms, "_trained", lambda *_: diagnosis(io=0.4, compute=0.58, residual=0.02))
    monkeypatch.setattr(terms, "counting_s", lambda *_: [1.2, 1.1, 1.3])
    monkeypatch.setattr(terms, "command_s", lambda *_: 25.0)
    return SimpleNamespace(log=log, missing=missing, home=tmp_path)


def test_a_full_run_judges_demos_families_the_step_and_what_it_costs(stand_ins):
    report = terms.run(common.Options(quick=False, home=stand_ins.home))
    goals = {goal.name: goal.met for goal in report.goals}
    assert sum("residual" in name for name in goals) == 2 * 5 + 1
    assert sum("perturbation" in name for name in goals) == 4
    assert goals["diagnosis of minilm: seconds of the command"] is False
    assert goals["counting pass of minilm: seconds"] is True
    assert stand_ins.log.count(perturbing.NAMES) == 4
    assert stand_ins.log.count(terms.LAUNCHES) == 2 * 5
    assert report.left_out == []


def test_quick_says_what_it_leaves_out_and_judges_nothing(stand_ins):
    report = terms.run(common.Options(quick=True, home=stand_ins.home))
    assert stand_ins.log == ["demo:digits", ("tiny",), "mlp-1900", 1, 1]
    assert {goal.met for goal in report.goals} == {"unsettled"}
    assert len(report.left_out) == 2


def test_a_demo_whose_package_is_missing_is_left_out_with_the_reason(stand_ins):
    stand_ins.missing |= {"demo:mnist"}
    report = terms.run(common.Options(quick=False, home=stand_ins.home, only=("mnist", "rnn")))
    assert len(report.goals) == 2
    assert any("mnist was left out" in note and "needs a package" in note for note in report.notes)
    stand_ins.missing.clear()


def test_the_families_are_models_that_exist():
    kinds = {unseen.models()[name][0] for name in terms.FAMILIES.values()}
    assert kinds == {"cnn large", "transformer", "decoder step", "mlp", "rnn"}


def test_a_command_finds_the_machine_in_a_fresh_store(monkeypatch):
    from pathlib import Path

    seen = {}

    def run(command, *, env, **_):
        folder = Path(env["IRONLAW_HOME"])
        seen.update(command=command[3:], files=[path.name for path in (folder / "machines").iterdir()])

    from ironlaw.records import Ceiling, Conditions, Environment, Identity, Machine

    identity = Identity(cpu="c", architecture="a", isa=(), cores=2, memory_bytes=1, os="o", python="p")
    environment = Environment(identity=identity, conditions=Conditions(load_1m=0.0, governor=None, frequency_hz=None))
    ceiling = Ceiling(name="dram", unit="B/s", value=1.0, low=1.0, high=1.0)
    monkeypatch.setattr(terms.subprocess, "run", run)
    took = terms.command_s(["diagnose", "x"], Machine(environment=environment, ceilings=(ceiling,)))
    assert took >= 0.0
    assert seen["command"] == ["diagnose", "x"]
    assert len(seen["files"]) == 1


def test_the_goals_are_those_that_were_set():
    assert (agreement.AGREES, agreement.RESIDUAL, terms.DIAGNOSIS_S, terms.COUNTING_S) == (0.10, 0.10, 20.0, 2.0)
