"""What ``latency`` concludes from given numbers, and in which order it predicts, builds and measures."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks import calls, common, latency, unseen
from benchmarks.arithmetic import best_interval_score, interval_score
from ironlaw.measure.paired import BASELINE, SELF, Launch
from ironlaw.measure.process import WorkerFailure
from ironlaw.records import (
    Artefact,
    Ceiling,
    Conditions,
    Environment,
    Execution,
    Identity,
    Interval,
    KernelRate,
    Machine,
    Outcome,
    to_data,
)
from ironlaw.store import Store


def launch(seconds, *, foreign=0.0, faults=0):
    return Launch(latencies_s=[seconds] * 3, foreign=[foreign] * 4, faults=faults, calls=3)


def call(ratio, *, model="m", family="mlp", target="torch", width=1.5, again=1.0, foreign=0.0):
    """Predicted ``ratio`` times what was measured, which is 10 ms in the mean of two launches."""
    launches = tuple(launch(0.01 * again**side, foreign=foreign) for side in (-0.5, 0.5))
    predicted = Interval(low=0.01 * ratio / width, value=0.01 * ratio, high=0.01 * ratio * width)
    return calls.Call(model=model, family=family, target=target, predicted=predicted, faults=None, launches=launches)


def many(ratios):
    return [
        call(ratio, model=f"m{i}", family=f"f{i % 9}", target=target)
        for i, ratio in enumerate(ratios)
        for target in calls.TARGETS
    ]


# ------------------------------------------------------------ the score


def test_the_interval_score_is_the_width_and_a_fine_for_what_lies_outside():
    assert interval_score(1.0, 3.0, 2.0) == pytest.approx(2.0)
    assert interval_score(1.0, 3.0, 3.5) == pytest.approx(2.0 + 20.0 * 0.5)
    assert interval_score(1.0, 3.0, 0.5, missed=0.5) == pytest.approx(2.0 + 4.0 * 0.5)
    with pytest.raises(ValueError, match="interval"):
        interval_score(3.0, 1.0, 2.0)


@pytest.mark.parametrize("missed", [0.1, 0.5])
def test_the_best_score_of_normal_errors_against_the_integral_and_no_other_width_is_better(missed):
    sigma = 0.3

    def mean_score(half):
        def part(x):
            return interval_score(-half, half, x, missed) * norm.pdf(x, scale=sigma)

        return quad(part, -8 * sigma, 8 * sigma, points=[-half, half], limit=200)[0]

    half = sigma * norm.ppf(1 - missed / 2)
    assert best_interval_score(sigma, missed) == pytest.approx(mean_score(half), rel=1e-6)
    assert mean_score(0.8 * half) > mean_score(half) < mean_score(1.25 * half)


def test_the_reference_is_the_score_of_errors_as_large_as_the_goal_allows():
    sigma = math.log(1.1) / norm.ppf(0.75)
    errors = np.random.default_rng(0).normal(0.0, sigma, 200_000)
    assert latency.median_error(errors) == pytest.approx(0.10, abs=0.001)
    half = norm.ppf(0.95) * sigma
    assert latency.reference_score() == pytest.approx(
        np.mean([interval_score(-half, half, e) for e in errors[:50_000]]), rel=0.02
    )


def test_a_call_is_the_mean_of_its_launches_and_their_distance_is_a_against_a():
    one = call(1.2, again=1.1)
    assert one.measured_s == pytest.approx(0.01)
    assert one.error == pytest.approx(math.log(1.2))
    assert one.spread == pytest.approx(math.log(1.1))
    assert one.covered
    assert latency.near(call(1 / 1.24))
    assert not latency.near(call(1 / 1.26))
    assert not call(1.6).covered
    assert latency.score(call(1.0)) == pytest.approx(2 * math.log(1.5))
    assert latency.score(call(3.0)) == pytest.approx(2 * math.log(1.5) + 20 * math.log(3.0 / 1.5))


# ------------------------------------------------------------ the goals


def judged(found, **given):
    report = common.Report(name="latency", quick=False, **given)
    latency.judge(report, found)
    return {goal.name: goal for goal in report.goals}, report.notes


def test_both_runtimes_are_judged_together_and_shown_apart():
    found = many([1.05, 0.97] * 35)
    goals, notes = judged(found)
    assert [name for name, goal in goals.items() if goal.met is True] == list(goals)
    assert len(goals) == 9
    assert goals["median error"].value == pytest.approx(0.05, abs=0.011)
    assert sum(note.startswith("f") and "median error" in note for note in notes) == 9
    slow = [call(2.0, model=one.model, target=one.target) if one.target == "onnxruntime" else one for one in found]
    goals, _ = judged(slow)
    assert goals["torch: median error"].met is True
    assert goals["onnxruntime: median error"].met is False
    assert goals["onnxruntime: median error"].value == pytest.approx(1.0)
    assert goals["share within 25%"].value == 0.5
    assert goals["share within 25%"].met is False


@pytest.mark.parametrize(("near", "wanted"), [(70, True), (64, "unsettled"), (50, False)])
def test_the_share_within_a_quarter_is_judged_by_wilson(near, wanted):
    goals, _ = judged(many([1.2] * near + [1.3] * (70 - near)))
    assert goals["share within 25%"].met == wanted
    assert goals["coverage of the 90 % intervals"].met is True


def test_calls_that_did_not_settle_and_sets_that_are_too_small_judge_nothing():
    found = [*many([1.0] * 70), call(9.0, model="noisy", foreign=0.5)]
    goals, notes = judged(found)
    assert goals["median error"].value == pytest.approx(0.0, abs=1e-9)
    assert any("1 of 141" in note for note in notes)
    goals, _ = judged(many([1.0] * 59))
    assert {goal.met for goal in goals.values()} == {"unsettled"}
    assert "59 models" in goals["median error"].note
    goals, _ = judged([])
    assert {goal.met for goal in goals.values()} == {"unsettled"}


def test_quick_says_what_it_leaves_out_and_judges_nothing(tmp_path, monkeypatch):
    asked = []

    def calls_of(name, *_):
        asked.append(name)
        return [call(1.0, model=name, target=target) for target in calls.TARGETS], ["a word"]

    monkeypatch.setattr(latency.calls, "calls_of", calls_of)
    monkeypatch.setattr(latency.rounds, "known_machine", lambda **_: None)
    report = latency.run(common.Options(quick=True, home=tmp_path))
    assert asked == list(latency.QUICK)
    assert report.left_out == [f"{len(unseen.models()) - 2} of {len(unseen.models())} models"]
    assert {goal.met for goal in report.goals} == {"unsettled"}
    assert len(report.arms) == 4
    report = latency.run(common.Options(quick=False, home=tmp_path, only=("u-net",)))
    assert len(asked) == 2 + 7
    assert {goal.note for goal in report.goals} == {"a part of the set"}
    report = latency.run(common.Options(quick=False, home=tmp_path))
    assert report.left_out == []
    assert {goal.met for goal in report.goals if "coverage" in goal.name} == {True}


# ------------------------------------------------------------ the models


def test_there_are_at_least_sixty_models_in_families_of_seven():
    families = [family for family, _ in unseen.models().values()]
    assert set(families) == set(unseen.FAMILIES)
    assert {families.count(family) for family in unseen.FAMILIES} == {7}
    assert len(families) >= latency.FEWEST
    assert set(latency.QUICK) <= set(unseen.models())


@pytest.mark.parametrize("name", ["dilated-20x76", "grouped-32x50@3", "step-192+70@12", "unet-24x24", "shop-6x5000"])
def test_an_unseen_model_runs_is_seeded_and_takes_any_batch(name):
    import torch

    one, two = unseen.workload(name), unseen.workload(name)

    def outputs(workload, example):
        found = workload.model(*example)
        return found if isinstance(found, tuple) else (found,)

    for first, second in zip(outputs(one, one.example), outputs(two, one.example), strict=True):
        assert torch.isfinite(first).all()
        assert torch.equal(first, second)
    double = outputs(one, tuple(torch.cat([x, x]) for x in one.example))
    for both, single in zip(double, outputs(one, one.example), strict=True):
        assert torch.allclose(both[: len(single)], single, rtol=1e-3, atol=1e-5)


def test_a_decoder_step_equals_the_last_token_of_the_whole_sequence():
    import torch

    from benchmarks.architectures import decoder_step

    torch.manual_seed(0)
    model, (x, _) = decoder_step(32, 2, 2, 5, 3)
    tokens = torch.randn(3, 6, 32)
    cache = torch.zeros(3, 2, 2, 2, 0, 16)
    for step in range(6):
        logits, cache = model(tokens[:, step : step + 1], cache)
    assert x.shape == (3, 1, 32)
    assert cache.shape == (3, 2, 2, 2, 6, 16)
    hidden = tokens
    for layer in model.layers:
        q, k, v = (p.unflatten(-1, (2, -1)).transpose(1, 2) for p in layer.qkv(layer.before(hidden)).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + layer.out(mixed.transpose(1, 2).flatten(2))
        inner = layer.after(hidden)
        hidden = hidden + layer.down(torch.nn.functional.silu(layer.gate(inner)) * layer.up(inner))
    assert torch.allclose(logits, model.head(model.norm(hidden))[:, -1], atol=1e-5)


# ------------------------------------------------------------ one model


def host():
    identity = Identity(cpu="c", architecture="a", isa=(), cores=2, memory_bytes=1, os="o", python="p")
    kernels = [
        KernelRate(
            target=target,
            kind=kind,
            dtype="float32",
            threads=1,
            unit="FLOP/s" if kind == "matmul" else "B/s",
            rate=Interval(low=5e9, value=1e10, high=2e10),
            call_s=1e-6,
            shapes=9,
        )
        for target in calls.TARGETS
        for kind in ("matmul", "elementwise")
    ]
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    ceilings = (Ceiling(name="dispatch", unit="s", value=1e-6, low=1e-6, high=1e-6),)
    environment = Environment(identity=identity, conditions=conditions)
    return Machine(environment=environment, ceilings=ceilings, kernels=tuple(kernels))


class StandIn:
    """A builder that counts in this process and builds nothing."""

    def __init__(self, store, *, fails=()):
        self.store, self.fails, self.log = store, fails, []

    def ask(self, action, **request):
        from ironlaw.builder import Builder

        if action == "ledger":
            self.log.append("count")
            return Builder().ledger(**request)
        target = "onnxruntime" if request["steps"] else "torch"
        kept = [json for (json,) in self.store._db.execute("SELECT json FROM facts WHERE what = 'predicted'")]
        self.log.append(f"build {target}, {len(kept)} predicted")
        if target in self.fails:
            raise WorkerFailure(Outcome.BUILD_FAILED, "no kernel")
        artefact = Artefact(
            kind="recipe",
            folder=request["folder"],
            files=(),
            target=target,
            execution=Execution(target=target),
            inputs=(),
            outputs=(),
            snippet="",
            size_bytes=1,
        )
        return {"artefact": to_data(artefact)}


@pytest.fixture
def quiet(monkeypatch):
    """No lock of the machine, and rounds of given numbers."""
    log = []

    def round_of(baseline, others, effort, **_):
        log.append((baseline.target, sorted(others), effort.against_self))
        return {BASELINE: launch(2e-3), SELF: launch(2.2e-3), **{name: launch(1e-3) for name in others}}

    monkeypatch.setattr(calls, "machine_lock", lambda *_: contextlib.nullcontext(0.0))
    monkeypatch.setattr(calls, "round_of", round_of)
    return log


def test_a_model_is_predicted_before_it_is_built_and_measured_once(tmp_path, quiet):
    machine = host()
    with Store(tmp_path) as store:
        builder = StandIn(store)
        for _ in range(2):
            found, notes = calls.calls_of("mlp-120", store, machine, builder, lambda _: None)
        assert builder.log == ["count", "build torch, 1 predicted", "build onnxruntime, 1 predicted"]
        assert not list(store.folder("work").iterdir())
    assert quiet == [("torch", ["again", "onnxruntime"], True)]
    assert notes == []
    assert [one.target for one in found] == ["torch", "onnxruntime"]
    assert found[0].measured_s == pytest.approx(math.sqrt(2e-3 * 2.2e-3))
    assert found[1].spread == 0.0
    work = 2.0 * (40 * 120 + 120 * 60 + 60 * 5)
    assert found[1].predicted.value > work / 2e10


def test_a_runtime_that_cannot_build_leaves_the_other_and_a_reason(tmp_path, quiet):
    with Store(tmp_path) as store:
        found, notes = calls.calls_of("mlp-120", store, host(), StandIn(store, fails=("onnxruntime",)), lambda _: None)
        assert [one.target for one in found] == ["torch"]
        assert notes == ["mlp-120: onnxruntime: no kernel"]
        found, notes = calls.calls_of("mlp-300", store, host(), StandIn(store, fails=("torch",)), lambda _: None)
        assert (found, notes) == ([], ["mlp-300: no kernel"])


def test_a_launch_that_fails_takes_its_runtime_out():
    died = WorkerFailure(Outcome.CRASHED, "it died")
    launches, failed = calls.paired({BASELINE: launch(1.0), SELF: launch(1.0), calls.GRAPH: launch(1.0), "again": died})
    assert list(launches) == ["torch"]
    assert failed == ["onnxruntime: it died"]


def test_another_machine_or_other_code_is_predicted_anew(tmp_path, quiet, monkeypatch):
    with Store(tmp_path) as store:
        builder = StandIn(store)
        calls.calls_of("mlp-120", store, host(), builder, lambda _: None)
        calls.calls_of("mlp-120", store, Machine(environment=host().environment, ceilings=()), builder, lambda _: None)
        monkeypatch.setattr(calls, "code", lambda: "changed")
        calls.calls_of("mlp-120", store, host(), builder, lambda _: None)
    assert builder.log.count("count") == 3


def test_a_builder_that_died_is_begun_anew_and_one_that_refused_is_kept(monkeypatch):
    made = []

    def child(_module):
        made.append(SimpleNamespace(closed=0, ask=ask, pause=lambda: None, close=lambda: None))
        return made[-1]

    def ask(action, **_):
        if action in ("refuse", "die"):
            raise WorkerFailure(Outcome.BUILD_FAILED if action == "refuse" else Outcome.CRASHED, action)
        return {"done": action}

    monkeypatch.setattr(calls, "Child", child)
    with calls.Builder() as builder:
        for action, processes in (("a", 1), ("refuse", 1), ("b", 1), ("die", 1), ("c", 2)):
            with contextlib.suppress(WorkerFailure):
                assert builder.ask(action) == {"done": action}
            assert len(made) == processes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobile-12x72", "grouped-24x80", "step-160+50", "unet-12x48", "shop-6x5000"])
def test_a_new_architecture_is_counted_whole_and_becomes_onnx(name, tmp_path):
    from ironlaw.builder import Builder
    from ironlaw.measure.ledger import ledger_of
    from ironlaw.records import Goal
    from ironlaw.session import base_candidate
    from ironlaw.workloads.snapshot import snapshot

    taken = snapshot(unseen.workload(name), tmp_path / "snapshots", name)
    counted = ledger_of(taken.model, taken, taken.batch, cache_bytes=1 << 25)
    assert counted.uncounted == ()
    assert counted.flops > 0
    base = to_data(base_candidate(taken, Goal()))
    answer = Builder().build(base, calls.STEPS["onnxruntime"], str(tmp_path / "work"), str(tmp_path / "artefact"))
    assert answer["artefact"]["target"] == "onnxruntime"
