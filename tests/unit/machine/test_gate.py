"""Quantiles, the spread and contention gate, and measuring anew."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.machine import gate
from ironlaw.records import Cache


class Clock:
    """A foreign clock that answers from a list, one an attempt."""

    def __init__(self, *fractions):
        self.fractions = list(fractions)

    def mark(self):
        return None

    def since(self, _):
        return self.fractions.pop(0)

    def resolution(self, _):
        return 0.0


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.floats(0, 1))
def test_quantile_is_numpys(samples, level):
    assert gate.quantile(samples, level) == pytest.approx(np.quantile(samples, level), rel=1e-9)


def test_ceiling_holds_median_and_deciles():
    found = gate.ceiling("dram", "B/s", list(range(101)), threads=2)
    assert (found.low, found.value, found.high, found.threads, found.valid) == (10.0, 50.0, 90.0, 2, True)


def test_two_samples_cannot_show_a_spread():
    found = gate.ceiling("spawn", "s", [1.0, 1.0])
    assert not found.valid
    assert "2 samples" in found.note


def test_spread_refuses_and_keeps_the_number():
    wide = gate.judge(gate.ceiling("matmul", "FLOP/s", [50.0, 100.0, 101.0], dtype="fp32", note="size 64"), 0.0)
    assert not wide.valid
    assert wide.value == 100.0
    assert wide.note == "size 64; spread 41% is above 35%"


def test_contention_refuses_even_a_steady_number():
    steady = gate.ceiling("dram", "B/s", [100.0, 100.0, 100.0])
    assert gate.judge(steady, 0.09).valid
    refused = gate.judge(steady, 0.51)
    assert not refused.valid
    assert "others took 51%" in refused.note


def test_counted_faults_do_not_depend_on_others():
    assert gate.judge(gate.ceiling("allocation_faults", gate.COUNTED, [16385.0] * 3), 0.9).valid


def test_settle_ends_at_the_first_valid_attempt():
    attempts = iter([[1.0, 2.0, 4.0], [3.0, 3.0, 3.1], [9.0, 9.0, 9.0]])
    found = gate.settle(lambda: (gate.ceiling("dram", "B/s", next(attempts)),), clock=Clock(0.0, 0.0, 0.0))
    assert [(c.value, c.valid) for c in found] == [(3.0, True)]
    assert next(attempts) == [9.0, 9.0, 9.0], "the third attempt was not needed"


def test_settle_gives_up_after_three_and_keeps_the_steadiest():
    spreads = iter([[1.0, 2.0, 9.0], [1.0, 2.0, 3.0], [1.0, 2.0, 8.0], [2.0, 2.0, 2.0]])
    found = gate.settle(lambda: (gate.ceiling("dram", "B/s", next(spreads)),), clock=Clock(0, 0, 0, 0))
    assert len(found) == 1
    assert not found[0].valid
    assert found[0].high == pytest.approx(2.8), "the attempt of least spread"


def test_settle_takes_each_ceiling_from_its_own_best_attempt():
    steady, wide = [5.0, 5.0, 5.0], [1.0, 5.0, 9.0]
    cache = Cache(level=3, size_bytes=1, bandwidth_bytes_per_s=1.0, source="sweep")
    tries = iter([(steady, wide), (wide, steady)])

    def measure():
        a, b = next(tries)
        return (gate.ceiling("dram", "B/s", a), cache, gate.ceiling("cache", "B/s", b), "a note")

    found = gate.settle(measure, clock=Clock(0.0, 0.0))
    assert [c.name for c in found[:2]] == ["dram", "cache"]
    assert all(c.valid for c in found[:2])
    assert found[2:] == (cache, "a note")


def test_settle_begins_no_attempt_beyond_its_patience(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(gate.time, "monotonic", lambda: now[0])

    def measure():
        now[0] += 3.0
        return (gate.ceiling("dram", "B/s", [1.0, 2.0, 9.0]),)

    gate.settle(measure, clock=Clock(0, 0, 0), attempts=3, patience_s=7.0)
    assert now[0] == 6.0, "a third attempt would have ended at 9 s"


def test_a_sweep_beside_neighbours_is_measured_again_and_then_refused():
    sweep = Cache(level=3, size_bytes=1, bandwidth_bytes_per_s=1.0, source="sweep")
    system = dataclasses.replace(sweep, source="system")
    assert gate.settle(lambda: (sweep, system), clock=Clock(0.5, 0.0)) == (sweep, system)
    refused = gate.settle(lambda: (sweep, system), clock=Clock(0.5, 0.5, 0.5))
    assert refused == (system, "caches by sweep: others took 50% of the CPU time")
