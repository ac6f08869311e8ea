"""Bubbles and held micro-batches against schedules that are run, dependency by dependency."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.laws import pipeline

F, B = 1.0, 2.0


def gpipe(_stage, _stages, m, _chunks):
    return [("f", i, 0) for i in range(m)] + [("b", i, 0) for i in range(m)]


def one_f_one_b(stage, stages, m, _chunks):
    warm = min(stages - stage - 1, m)
    order = [("f", i, 0) for i in range(warm)]
    for i in range(m - warm):
        order += [("f", warm + i, 0), ("b", i, 0)]
    return order + [("b", i, 0) for i in range(m - warm, m)]


def interleaved(stage, stages, m, chunks):
    """Megatron's order: micro-batches in groups of ``stages``, each group through every chunk."""
    total = m * chunks

    def unit(k, forward):
        group, inside = divmod(k, stages * chunks)
        chunk, within = divmod(inside, stages)
        return group * stages + within, chunk if forward else chunks - 1 - chunk

    warm = total if m == stages else min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages)
    order = [("f", *unit(k, True)) for k in range(warm)]
    for k in range(total - warm):
        order += [("f", *unit(warm + k, True)), ("b", *unit(k, False))]
    return order + [("b", *unit(k, False)) for k in range(total - warm, total)]


def run(schedule, stages, m, chunks=1):
    """Time of the step and the most micro-batches that stage 0 holds, in whole stages."""
    orders = [schedule(s, stages, m, chunks) for s in range(stages)]
    at, clock, end = [0] * stages, [0.0] * stages, {}
    last = stages * chunks - 1
    progress = True
    while progress:
        progress = False
        for s in range(stages):
            while at[s] < len(orders[s]):
                kind, i, chunk = orders[s][at[s]]
                virtual = chunk * stages + s
                if kind == "f":
                    needs = [("f", i, virtual - 1)] if virtual else []
                else:
                    needs = [("f", i, virtual)] if virtual == last else [("b", i, virtual + 1)]
                if any(need not in end for need in needs):
                    break
                start = max([clock[s], *(end[need] for need in needs)])
                clock[s] = start + (F if kind == "f" else B) / chunks
                end[kind, i, virtual] = clock[s]
                at[s] += 1
                progress = True
    assert all(at[s] == len(orders[s]) for s in range(stages)), "the schedule deadlocked"
    held = peak = 0
    for kind, _, _ in orders[0]:
        held += 1 if kind == "f" else -1
        peak = max(peak, held)
    return max(clock), peak / chunks


@pytest.mark.parametrize(("stages", "m"), [(1, 1), (2, 2), (4, 4), (4, 16), (3, 7), (8, 8), (5, 2)])
@pytest.mark.parametrize(("name", "schedule"), [("gpipe", gpipe), ("1f1b", one_f_one_b)])
def test_plain_schedules(name, schedule, stages, m):
    taken, held = run(schedule, stages, m)
    assert taken == pytest.approx(pipeline.step_s(stages=stages, micro_batches=m, forward_s=F, backward_s=B))
    assert held == pipeline.micro_batches_held(schedule=name, stages=stages, micro_batches=m)
    idle = 1 - m * (F + B) / taken
    assert idle == pytest.approx(pipeline.bubble_fraction(stages=stages, micro_batches=m))


@pytest.mark.parametrize(
    ("stages", "m", "chunks"), [(2, 4, 2), (4, 8, 2), (4, 4, 2), (4, 16, 3), (3, 9, 4), (8, 16, 2)]
)
def test_interleaved_schedule(stages, m, chunks):
    taken, held = run(interleaved, stages, m, chunks)
    shape = {"stages": stages, "micro_batches": m, "chunks": chunks}
    assert taken == pytest.approx(pipeline.step_s(**shape, forward_s=F, backward_s=B))
    assert 1 - m * (F + B) / taken == pytest.approx(pipeline.bubble_fraction(**shape))
    assert held == pytest.approx(pipeline.micro_batches_held(schedule="interleaved", **shape))


@given(p=st.integers(1, 64), m=st.integers(1, 512))
def test_the_two_ways_to_state_a_bubble(p, m):
    of_all = pipeline.bubble_fraction(stages=p, micro_batches=m)
    over_ideal = pipeline.bubble_over_ideal(stages=p, micro_batches=m)
    assert of_all == pytest.approx(over_ideal / (1 + over_ideal))
    assert pipeline.bubble_fraction(stages=p, micro_batches=m + 1) <= of_all


def test_gpipe_rule_of_thumb():
    """Huang et al.: the bubble is negligible when m >= 4 p; here below a fifth."""
    assert pipeline.bubble_fraction(stages=8, micro_batches=32) < 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pipeline.bubble_fraction(stages=4, micro_batches=6, chunks=2), "multiple of stages.*got 6 and 4"),
        (lambda: pipeline.bubble_fraction(stages=0, micro_batches=6), "stages must be a whole number"),
        (lambda: pipeline.micro_batches_held(schedule="zero", stages=1, micro_batches=1), "schedule must be one of"),
        (
            lambda: pipeline.micro_batches_held(schedule="gpipe", stages=2, micro_batches=2, chunks=2),
            "chunks must be 1 for gpipe",
        ),
        (lambda: pipeline.step_s(stages=1, micro_batches=1, forward_s=-1, backward_s=1), "forward_s must be at least"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
