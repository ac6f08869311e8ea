"""What each benchmark concludes from given numbers: nothing is measured here."""

from __future__ import annotations

import math

import pytest

from benchmarks import common, contest, families, peers, prediction, rounds, ruler, search
from ironlaw.measure.paired import SELF, Launch
from ironlaw.records import Gain, Interval, Objective


def gain(median, low=None, high=None, *, floor=1.0, settled=True):
    low = median * 0.99 if low is None else low
    return Gain(
        median=median, low=low, high=median * 1.01 if high is None else high, floor=floor, settled=settled, launches=5
    )


# ------------------------------------------------------------ rounds


def launch(latency, throughput=None, quiet=None):
    quiet = [True] * len(latency) if quiet is None else quiet
    return Launch(latency_ratios=latency, throughput_ratios=throughput or latency, quiet=quiet)


def test_the_ratio_of_two_arms_is_paired_by_round_and_cycle():
    # the machine drifts by a factor of e between rounds; b is 1.5 times faster than a in every single cycle
    step = math.log(1.5)
    found = [
        {"a": launch([d, d + 0.1]), "b": launch([d + step, d + 0.1 + step]), SELF: launch([0.0, 0.0])}
        for d in (0.0, 1.0, 2.0, 3.0)
    ]
    one = rounds.ratio(found, "b", "a")
    assert (one.low, one.median, one.high) == pytest.approx((1.5, 1.5, 1.5))
    assert rounds.ratio(found, "a", "b").median == pytest.approx(1 / 1.5)
    against_base = rounds.ratio(found, "a", "baseline")
    assert against_base.median == pytest.approx(math.exp(1.55))
    assert against_base.low < 1.5 < against_base.high  # unpaired, the drift is all there


def test_the_ratio_takes_the_objective_and_only_calm_pairs():
    noisy = [
        {"a": launch([0.0, 9.0, 0.0], [1.0, 9.0, 1.0], [True, False, True]), "b": launch([0.5] * 3, [0.5] * 3)}
        for _ in range(3)
    ]
    assert rounds.ratio(noisy, "a", "b", Objective.LATENCY).median == pytest.approx(math.exp(-0.5))
    assert rounds.ratio(noisy, "a", "b", Objective.THROUGHPUT).median == pytest.approx(math.exp(0.5))
    wild = [{"a": launch([0.0, 0.0, 0.0], quiet=[False, False, True])} for _ in range(3)]
    assert not rounds.ratio(wild, "a", "baseline").settled


def test_groups_fit_in_memory_and_hold_the_tuned_point_each():
    names = ["tuned", *(f"arm{i}" for i in range(9))]
    assert rounds.groups_of(names, ["tuned"], 1, 1 << 40) == [["tuned", *(f"arm{i}" for i in range(9))]]
    groups = rounds.groups_of(names, ["tuned"], 1 << 30, 11 << 30)  # 6.6 workers: the baselines, tuned, three arms
    assert all(group[0] == "tuned" and len(group) <= 4 for group in groups)
    assert sorted(n for group in groups for n in group[1:]) == sorted(names[1:])
    tight = rounds.groups_of(names, ["tuned"], 8 << 30, 1 << 30)
    assert [len(group) for group in tight] == [2] * 9


def test_an_arm_that_fails_is_left_out_of_the_rounds_that_follow_and_rounds_are_kept(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from ironlaw.store import Store

    asked = []

    def one_round(_bench, arms, _effort):
        asked.append(sorted(arms))
        good = {"baseline": {}, **{name: {"latency_ratios": [float(len(asked))]} for name in arms if name != "bad"}}
        return {**good, **({"bad": {"failure": "crashed: it died"}} if "bad" in arms else {})}, 3.0

    monkeypatch.setattr(rounds, "_round", one_round)
    artefacts = {name: SimpleNamespace(folder=name, target="torch") for name in ("good", "bad")}
    with Store(tmp_path) as store:
        bench = SimpleNamespace(store=store, baseline=SimpleNamespace(key="k"))
        for launches, calls in ((2, 2), (2, 2), (3, 3)):
            taken = rounds.measured(bench, artefacts, launches=launches, effort=rounds.QUICK, label="x")
            assert len(asked) == calls
            assert taken.failed == {"bad": "crashed: it died"}
            assert taken.spent_s == 3.0 * launches
            assert [r["good"].latency_ratios for r in taken.rounds] == [[float(i + 1)] for i in range(launches)]
        rounds.measured(bench, artefacts, launches=1, effort=rounds.QUICK, label="another")
    assert asked == [["bad", "good"], ["good"], ["good"], ["bad", "good"]]


# ------------------------------------------------------------ ruler


@pytest.mark.parametrize(
    ("outside", "inside", "unsettled", "wanted"),
    [
        (0, 20, 0, True),
        (2, 18, 0, True),
        (3, 17, 0, False),
        (1, 17, 2, "unsettled"),
        (0, 18, 2, True),
        (3, 0, 17, False),
    ],
)
def test_the_ruler_allows_two_of_twenty(outside, inside, unsettled, wanted):
    report = common.Report(name="ruler", quick=False)
    found = [gain(1.03, floor=1.05)] * outside + [gain(1.0)] * inside + [gain(1.3, settled=False)] * unsettled
    ruler.judge(report, "digits", found)
    assert report.goals[0].met == wanted
    assert report.goals[0].value == outside


def test_a_pair_that_would_be_claimed_fails_the_ruler():
    report = common.Report(name="ruler", quick=False)
    ruler.judge(report, "digits", [gain(1.0)] * 19 + [gain(1.08, floor=1.02)])
    assert [goal.met for goal in report.goals] == [True, False]


def test_pairs_that_never_settle_decide_nothing():
    report = common.Report(name="ruler", quick=False)
    ruler.judge(report, "digits", [gain(1.0, settled=False)] * 20)
    assert {goal.met for goal in report.goals} == {"unsettled"}


# ------------------------------------------------------------ prediction


def point(predicted, measured, model="m", *, width=1.3, settled=True):
    span = Interval(low=predicted / width, value=predicted, high=predicted * width)
    return prediction.Point(
        model=model, family="mlp", lever="l", predicted=span, measured=gain(measured, settled=settled)
    )


def test_errors_are_symmetric_on_the_log_scale():
    assert point(2.0, 1.0).error == pytest.approx(point(0.5, 1.0).error) == pytest.approx(math.log(2))
    assert point(1.0, 1.29).covered
    assert not point(1.0, 1.31).covered


def test_the_median_limit_grows_with_the_spread_of_a_against_a():
    points = [point(1.25, 1.0, model=f"m{i % 7}") for i in range(70)]
    for spread, wanted in ((0.0, False), (0.05, False), (0.2, True)):
        report = common.Report(name="prediction", quick=False)
        prediction.judge(report, points, [spread] * 3)
        assert report.goals[0].value == pytest.approx(math.log(1.25))
        assert report.goals[0].met is wanted


@pytest.mark.parametrize(("covered", "wanted"), [(200, True), (182, "unsettled"), (160, False)])
def test_coverage_is_judged_by_the_wilson_bound(covered, wanted):
    report = common.Report(name="prediction", quick=False)
    points = [point(1.0, 1.1 if i < covered else 2.0, model=f"m{i % 10}") for i in range(200)]
    prediction.judge(report, points, [0.01])
    assert report.goals[1].value == pytest.approx(covered / 200)
    assert report.goals[1].met == wanted


def test_points_that_did_not_settle_are_not_judged():
    report = common.Report(name="prediction", quick=False)
    prediction.judge(report, [point(1.0, 1.0), point(1.0, 9.0, settled=False)], [0.01])
    assert report.goals[0].value == 0.0
    assert any("1 of 2" in note for note in report.notes)


def test_every_family_has_several_shapes_that_run():
    made = families.models()
    counts = {family: sum(f == family for f, _ in made.values()) for family in families.FAMILIES}
    assert set(counts.values()) == {3}
    assert {f for f, _ in made.values()} == set(families.FAMILIES)
    assert set(prediction.QUICK) <= set(made)


@pytest.mark.parametrize("name", ["cnn-s-20x26", "cnn-l-36x72", "mlp-300", "encoder-120x24", "lstm-96x30"])
def test_a_held_out_model_runs_is_seeded_and_takes_any_batch(name):
    torch = pytest.importorskip("torch")
    one, two = families.workload(name), families.workload(name)
    out = one.model(*one.example)
    assert torch.isfinite(out).all()
    assert torch.equal(out, two.model(*two.example))
    double = tuple(torch.cat([x, x]) for x in one.example)
    assert torch.allclose(one.model(*double)[: len(out)], out, rtol=1e-4, atol=1e-5)
    assert len(list(one.calibrate)) == 3


# ------------------------------------------------------------ search


def test_the_best_of_the_grid_keeps_the_budget():
    def made(name, median, *, within):
        return search.Point(name=name, subject=None, gain=None if median is None else gain(median), within=within)

    found = search.Grid(
        points=[made("a", 2.0, within=True), made("b", 5.0, within=False), made("c", None, within=True)]
    )
    assert found.best is not None
    assert found.best.name == "a"
    assert search.Grid(points=[made("b", 5.0, within=False)]).best is None


# ------------------------------------------------------------ peers


def arm(name, against, *, within=True):
    return contest.Arm(name=name, within=within, against=None if against is None else gain(against))


def test_the_best_arm_keeps_the_budget_and_is_the_one_nearest_to_the_tuned_point():
    case = contest.Case(
        name="c", arms=[arm("eager", 5.0), arm("fast", 0.8, within=False), arm("good", 1.2), arm("x", None)]
    )
    assert case.best is not None
    assert case.best.name == "good"
    assert contest.Case(name="c", arms=[arm("x", None)]).best is None


def test_the_best_single_arm_stays_eager_where_it_fails_or_is_over_the_budget():
    cases = [
        contest.Case(name="one", arms=[arm("eager", 4.0), arm("int8", 1.0), arm("fp32", 2.0)]),
        contest.Case(name="two", arms=[arm("eager", 9.0), arm("int8", 0.9, within=False), arm("fp32", 2.0)]),
        contest.Case(name="three", arms=[arm("eager", 3.0), arm("int8", None, within=False), arm("fp32", 2.0)]),
    ]
    name, ratios = peers.best_single(cases)
    assert name == "fp32"  # 2.0 everywhere; int8 counts 1, 9, 3: 27 ** (1/3) = 3
    assert [middle for _, middle, _ in ratios] == [2.0, 2.0, 2.0]
    report = common.Report(name="peers", quick=False)
    peers.judge(report, cases)
    assert [g.met for g in report.goals] == [True, True, True, True]
    assert report.goals[-1].value == pytest.approx(2.0)
    assert "fp32" in report.goals[-1].note


def test_a_case_that_is_slower_than_its_best_arm_is_a_goal_missed():
    report = common.Report(name="peers", quick=False)
    slow = contest.Case(name="slow", arms=[arm("eager", 3.0), arm("rival", 0.9)])
    close = contest.Case(name="close", arms=[arm("eager", 3.0), arm("rival", 0.95)], floor=1.03)
    peers.judge(report, [slow, close])
    assert [g.met for g in report.goals] == [False, "unsettled", False]
    assert report.goals[2].value == pytest.approx((0.9 * 0.95) ** 0.5)


def test_a_part_of_the_set_is_judged_case_by_case_only():
    report = common.Report(name="peers", quick=False)
    peers.judge(report, [contest.Case(name="one", arms=[arm("eager", 4.0)])], whole=False)
    assert [g.met for g in report.goals] == [True, "unsettled"]
    assert report.goals[1].value == pytest.approx(4.0)


def test_without_any_arm_nothing_is_decided():
    report = common.Report(name="peers", quick=False)
    peers.judge(report, [contest.Case(name="alone", arms=[arm("x", None)])])
    assert [g.met for g in report.goals] == ["unsettled", "unsettled"]
    report = common.Report(name="peers", quick=False)
    peers.judge(report, [])
    assert [g.met for g in report.goals] == ["unsettled"]


def test_rows_hold_every_arm_and_the_tuned_point_last():
    case = contest.Case(name="c", arms=[arm("eager", 4.0)], label="int8_static", gain=gain(4.2))
    found = contest.rows(case)
    assert [row["arm"] for row in found] == ["eager", "tuned"]
    assert found[0]["tuned/arm"] == 4.0
    assert found[1]["why"] == "int8_static"


def test_every_workload_of_the_peers_has_a_budget():
    from ironlaw.records import Budget

    goals = {name: w.goal(Objective.LATENCY) for name, w in peers.WORKLOADS.items()}
    assert goals["mnist"].max_drop == Budget(amount=0.005, relative=False)
    assert goals["minilm"].max_drop == Budget(amount=0.01, relative=False)
    assert {n for n, g in goals.items() if g.min_quality == 15.0} == {"efficientnet", "efficientnet@32"}


# ------------------------------------------------------------ overhead


def test_the_spin_answers_the_protocol_of_a_worker():
    import io
    import json

    from benchmarks.spin import Spinning
    from ironlaw.worker import serve

    lines = [
        {"do": "load", "artefact": {"spin_ns": 20_000}},
        {"do": "block", "seconds": 0.001, "min_calls": 5},
        {"do": "predict", "path": "x", "inputs": []},
    ]
    answers = io.StringIO()
    serve(Spinning(), [json.dumps(line) for line in lines], answers)
    loaded, block, predicted = (json.loads(line) for line in answers.getvalue().splitlines())
    assert loaded["ok"]
    assert len(block["ns"]) >= 5
    assert min(block["ns"]) > 10_000  # it spins by another clock than the timer's; never much less than asked
    assert not predicted["ok"]


def test_tune_is_given_less_than_its_share_once_a_commit_and_compared_in_fresh_rounds(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from ironlaw.store import Store

    limits, runs = [], []
    best = SimpleNamespace(artefact="tuned artefact", label="int8_static")
    tuned = SimpleNamespace(id="r", spent_s=20.0, best_trial=best)
    home = tmp_path / "search" / "digits-tuned"
    for left_over in ("machines", "artefacts"):
        (home / left_over).mkdir(parents=True)
    (home / "store.db").write_text("of a run that was cut off")

    def tune(spec, *, time_limit, **_):
        limits.append((spec, time_limit))
        assert [path.name for path in home.iterdir()] == ["machines"]
        return tuned

    def measured(_bench, arms, **_):
        runs.append(dict(arms))
        pair = {"best of grid": launch([1.0, 1.0]), "tuned": launch([1.1, 1.1]), SELF: launch([0.0, 0.0])}
        return rounds.Taken(rounds=[pair] * 3, failed={}, spent_s=1.0)

    monkeypatch.setattr(search.api, "machine", lambda **_: None)
    monkeypatch.setattr(search.api, "tune", tune)
    monkeypatch.setattr(search.api, "load_run", lambda *_, **__: tuned)
    monkeypatch.setattr(search.rounds, "measured", measured)
    monkeypatch.setattr(common, "commit", lambda: "c")
    subject = SimpleNamespace(artefact="grid artefact")
    found = search.Grid(points=[search.Point(name="g", subject=subject, gain=gain(2.7), within=True)], spent_s=100.0)
    options = common.Options(quick=False, home=tmp_path)
    with Store(tmp_path / "store") as store:
        made = SimpleNamespace(bench=SimpleNamespace(store=store, baseline=SimpleNamespace(key="k")))
        for _ in range(2):
            report = common.Report(name="search", quick=False)
            search._against(report, "digits", "1pt", made, found, options)
    assert limits == [("demo:digits", pytest.approx(0.95 * 0.25 * 100.0))]
    assert runs[0] == {"best of grid": "grid artefact", "tuned": "tuned artefact"}
    assert [goal.value for goal in report.goals] == pytest.approx([math.exp(0.1), 0.2])
    assert [goal.met for goal in report.goals] == [True, True]


def test_without_a_point_that_keeps_the_budget_the_search_decides_nothing(tmp_path):
    report = common.Report(name="search", quick=False)
    search._against(report, "digits", "1pt", None, search.Grid(), common.Options(quick=False, home=tmp_path))
    assert [goal.met for goal in report.goals] == ["unsettled"]
