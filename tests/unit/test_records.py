"""Records survive a round trip through JSON, refuse what JSON cannot hold, and address their content."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw import records as r

POSITIVE = st.floats(min_value=1e-3, max_value=1e3)


def candidate(**changes: object) -> r.Candidate:
    model = r.ModelFile(form="eager", path="m.pkl", digest="d")
    spec = r.TensorSpec(name="x", shape=(1, 8), dtype="float32")
    snapshot = r.Snapshot(
        digest="s", kind=r.Kind.INFERENCE, name="n", folder="f", model=model, inputs=(spec,), outputs=(spec,),
        batch=1, dynamic=True, parameters=1, weights_bytes=4,
    )  # fmt: skip
    made = r.Candidate(snapshot=snapshot, model=model, execution=r.Execution(threads=2), goal=r.Goal())
    return dataclasses.replace(made, **changes)


def test_round_trip_keeps_everything() -> None:
    execution = r.Execution(threads=2, cpus=(0, 1)).with_variables({"A": "1"}).with_options(layout="channels_last")
    change = r.Change(lever="l", version=1, settings=(("k", 3), ("f", 0.5), ("b", True)), claims=("threads",))
    one = candidate(execution=execution, changes=(change,))
    assert r.from_json(r.Candidate, r.to_json(one)) == one


def test_unknown_keys_are_an_error() -> None:
    data = r.to_data(r.Budget(amount=0.01, relative=False))
    with pytest.raises(ValueError, match="surprise"):
        r.from_data(r.Budget, {**data, "surprise": 1})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_never_holds_nan(bad: float) -> None:
    with pytest.raises(ValueError, match="unknown is None"):
        r.to_json(r.exactly(bad))


def test_digest_depends_on_content_only() -> None:
    assert r.digest_of(candidate()) == r.digest_of(candidate())
    assert r.digest_of(candidate()) != r.digest_of(candidate(workspace="elsewhere"))


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_product_of_intervals(a: float, b: float, spread_a: float, spread_b: float) -> None:
    """Ordered, commutative, and no wider than the product of the ends."""
    wide = [1 + s for s in (spread_a, spread_b)]
    one = r.Interval(low=a / wide[0], value=a, high=a * wide[0])
    two = r.Interval(low=b / wide[1], value=b, high=b * wide[1])
    product, other = one.times(two), two.times(one)
    assert product.low <= product.value <= product.high
    assert (product.low, product.high) == pytest.approx((other.low, other.high))
    assert product.high <= one.high * two.high * (1 + 1e-9)
    assert product.low >= one.low * two.low * (1 - 1e-9)


def test_machine_answers_with_the_nearest_smaller_thread_count() -> None:
    environment = r.Environment(
        identity=r.Identity(cpu="c", architecture="x", isa=(), cores=4, memory_bytes=1, os="l", python="3"),
        conditions=r.Conditions(load_1m=0.0, governor=None, frequency_hz=None),
    )
    one, two = (
        r.Ceiling(name="matmul", unit="FLOP/s", value=v, low=v, high=v, dtype="fp32", threads=t)
        for v, t in ((1e9, 1), (2e9, 2))
    )
    machine = r.Machine(environment=environment, ceilings=(one, two))
    assert machine.ceiling("matmul", dtype="fp32", threads=3) == two
    assert machine.ceiling("matmul", dtype="fp32", threads=1) == one
    assert machine.ceiling("matmul", dtype="bf16", threads=2) is None


def test_every_outcome_says_cause_and_next_step() -> None:
    for outcome in r.Outcome:
        assert outcome.cause
        assert outcome.next_step
    assert r.Outcome.CRASHED.failed
    assert not r.Outcome.OVER_BUDGET.failed
