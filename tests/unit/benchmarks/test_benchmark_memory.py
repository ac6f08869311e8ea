"""The steps of ``memory`` build, and its goals are set on the furthest ratios."""

import pytest
import torch

from benchmarks import common, memory, trained
from ironlaw.measure.training_memory import predicted_peak


def test_every_family_has_every_optimiser_at_two_batches():
    found = memory.cases()
    assert len(found) == len(set(map(str, found))) == 7 * 2 * 2


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.slow] if one != "mlp" else []) for one in trained.BATCHES]
)
def test_a_step_of_each_family_is_predicted(family):
    with torch.device("meta"):
        small, large = (trained.build(family, batch, "sgd-momentum") for batch in (2, 4))
    one, two = predicted_peak(small), predicted_peak(large)
    assert one.parameters_bytes == two.parameters_bytes > 0
    assert one.inputs_bytes * 2 == two.inputs_bytes
    assert one.tensor_bytes < two.tensor_bytes


def test_one_case_that_is_off_misses_the_goal(monkeypatch, tmp_path):
    ratios = iter([1.0] * 27 + [1.06])

    def row(case, launches):
        ratio = next(ratios)
        return {"case": str(case), "tensors": ratio, "allocated": 1.0, "resident": 1.0}

    monkeypatch.setattr(memory, "_row", row)
    report = memory.run(common.Options(quick=False, home=tmp_path))
    assert {goal.name.split(":")[0]: goal.met for goal in report.goals if not goal.met} == {"tensors": False}
    assert len(report.arms) == 28


def test_quick_leaves_most_out_and_a_part_is_not_judged(monkeypatch, tmp_path):
    monkeypatch.setattr(
        memory,
        "_row",
        lambda case, launches: {"case": str(case), **dict.fromkeys(("tensors", "allocated", "resident"), 1.0)},
    )
    quick = memory.run(common.Options(quick=True, home=tmp_path))
    assert len(quick.arms) == 2
    assert quick.left_out == ["26 of 28 cases"]
    part = memory.run(common.Options(quick=False, home=tmp_path, only=("gru",)))
    assert len(part.arms) == 4
    assert {goal.met for goal in part.goals} == {"unsettled"}
