"""From times by launch to fixed cost, serial share and memory share: known laws with noise come back inside."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from torch_workload import Cnn, candidate, diagnosis, image, machine, op

from ironlaw.laws import usl
from ironlaw.measure.paired import Launch
from ironlaw.perturbing import NAMES, SPEAKS_OF, cached, chosen, corunner, relevant, tiny
from ironlaw.perturbing.case import Case, relative, settled
from ironlaw.perturbing.fits import affine, memory_share, over_launches, serial
from ironlaw.perturbing.threads import counts
from ironlaw.perturbing.work import weights_s, work_s
from ironlaw.records import Execution, Interval, Ledger, TensorSpec, Term, UserError, exactly

LAUNCHES = 4


def noisy(value: float, seed: int, spread: float = 0.01) -> list[float]:
    return (value * np.exp(np.random.default_rng(seed).normal(0.0, spread, LAUNCHES))).tolist()


def test_affine_times_give_back_their_fixed_cost() -> None:
    times = {size: noisy(5e-3 + 1e-3 * size, size) for size in (1, 2, 4, 8)}
    fit = affine(times)
    assert fit is not None
    assert fit.sizes == (1, 2, 4, 8)
    assert fit.fixed.low < 5e-3 < fit.fixed.high
    assert fit.fixed.high - fit.fixed.low < 1e-3
    assert fit.slope.value == pytest.approx(1e-3, rel=0.1)


def test_sizes_beyond_a_cache_are_left_out() -> None:
    times = {size: noisy(5e-3 + 1e-3 * size * (4.0 if size >= 16 else 1.0), size) for size in (1, 2, 4, 8, 16)}
    fit = affine(times)
    assert fit is not None
    assert fit.sizes == (1, 2, 4, 8)
    assert fit.fixed.low < 5e-3 < fit.fixed.high


def test_what_is_not_affine_is_not_fitted() -> None:
    assert affine({size: noisy(1e-3 * size**2, size) for size in (1, 2, 4)}) is None
    assert affine({1: [1.0, 1.0], 2: [2.0, 2.0]}) is None


def test_the_spread_of_launches_is_not_taken_for_a_bend() -> None:
    """With launches that differ by a fifth nothing can be called bent; the interval says how little is known."""
    loud = affine({size: noisy(5e-3 + 1e-3 * size, size, spread=0.2) for size in (1, 2, 4, 8)})
    quiet = affine({size: noisy(5e-3 + 1e-3 * size, size, spread=0.002) for size in (1, 2, 4, 8)})
    assert loud is not None
    assert quiet is not None
    assert loud.fixed.high - loud.fixed.low > 5 * (quiet.fixed.high - quiet.fixed.low)


def test_two_counts_give_the_serial_part_by_karp_and_flatt() -> None:
    """2 ms serial and 8 ms shared: 10 ms on one thread, 6 ms on two."""
    found = serial({1: noisy(10e-3, 1), 2: noisy(6e-3, 2)})
    assert found.seconds.low < 2e-3 < found.seconds.high
    assert found.share.value == pytest.approx(0.2, abs=0.04)
    assert found.knee == 2
    assert found.coherency is None


def test_more_counts_give_it_by_usl_and_find_the_knee() -> None:
    law = {n: 8e-3 / usl.throughput(n=n, sigma=0.25, kappa=0.01) for n in (1, 2, 4, 8, 16)}
    found = serial({n: noisy(t, n, spread=0.002) for n, t in law.items()})
    assert found.share.low < 0.25 < found.share.high
    assert found.coherency == pytest.approx(0.01, abs=0.003)
    assert found.knee == 8  # 16 is slower than 8, which is the fastest


def test_faster_than_shared_is_not_a_negative_serial_part() -> None:
    assert serial({1: [10e-3] * 3, 2: [4.9e-3] * 3}).seconds == exactly(0.0)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_share_of_memory_is_slowed_in_proportion(share: float) -> None:
    stream, arithmetic = noisy(1.6, 1, 0.005), noisy(1.04, 2, 0.005)
    workload = noisy(share * 1.6 + (1 - share) * 1.04, 3, 0.005)
    found = memory_share(workload, [stream], arithmetic)
    assert found is not None
    assert found.low - 0.02 <= share <= found.high + 0.02
    assert found.high - found.low < 0.2


def test_without_contrast_the_co_runner_cannot_tell() -> None:
    assert memory_share([1.05] * 3, [[1.08] * 3], [1.04] * 3) is None
    assert memory_share([1.3, 1.1, 1.2], [[1.1, 2.0, 1.4]], [1.0, 1.2, 1.1]) is None  # too noisy to show one


def test_the_share_spans_the_streams_that_the_workload_may_resemble() -> None:
    found = memory_share([1.3] * 3, [[1.4] * 3, [1.6] * 3], [1.0] * 3)
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((0.5, 0.625, 0.75))
    open_above = memory_share([1.3] * 3, [[1.05] * 3, [1.6] * 3], [1.0] * 3)
    assert open_above is not None
    assert (open_above.low, open_above.high) == pytest.approx((0.5, 1.0))


def test_an_interval_needs_two_launches() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        over_launches([1.0])


def test_the_co_runner_gets_cores_of_its_own() -> None:
    def alone(cpu: int) -> int:
        return cpu

    def paired(cpu: int) -> int:
        return cpu % 4

    spare = corunner.placement(Execution(threads=2, cpus=(0, 1)), range(6), alone)
    assert spare is not None
    assert (spare.own, spare.spare, spare.threads) == ((0, 1), (2, 3), 2)
    full = corunner.placement(Execution(threads=2, cpus=(0, 1)), (0, 1), alone)
    assert full is not None
    assert (full.own, full.spare, full.threads) == ((0,), (1,), 1)
    siblings = corunner.placement(Execution(threads=8, cpus=tuple(range(8))), range(8), paired)
    assert siblings is not None
    assert set(siblings.spare) == {3, 7}
    assert siblings.threads == 6
    assert corunner.placement(Execution(threads=1, cpus=(0,)), (0,), alone) is None
    assert corunner.placement(Execution(threads=2, cpus=(0, 4)), (0, 4), paired) is None


def test_what_the_co_runner_slows_is_compared_with_the_memory_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slowed 1.5x where streams are slowed 1.6x and arithmetic not at all: five sixths of 10 ms."""

    def launch(slow: float) -> dict[str, Launch]:
        beside = Launch(latency_ratios=[-np.log(slow)] * 3, quiet=[True] * 3, latencies_s=[slow * 10e-3])
        return {corunner.ALONE: Launch(latencies_s=[10e-3] * 3), corunner.BESIDE: beside}

    slowed = {"workload": launch(1.5), "read": launch(1.6), "copy": launch(1.6), "arithmetic": launch(1.0)}
    monkeypatch.setattr(corunner, "usable_cpus", lambda: (0, 1))
    monkeypatch.setattr(corunner, "_launches", lambda *_: [slowed] * 3)
    ops = (op("amax", "reduce", traffic=64e6),)
    artefact = SimpleNamespace(execution=Execution(threads=1, cpus=(0,)))
    subject = SimpleNamespace(artefact=artefact, key="k")

    def answer(share: float, traffic_ops=ops):
        made = diagnosis(traffic_ops, memory=share)
        (found,) = corunner.run(Case(bench=None, subject=subject, diagnosis=made, machine=machine(), talk=print))
        return found

    one = answer(0.8)
    assert one.seconds == Interval(
        low=pytest.approx(25e-3 / 3), value=pytest.approx(25e-3 / 3), high=pytest.approx(25e-3 / 3)
    )
    assert one.confirms is True
    assert answer(0.2).confirms is False
    resident = answer(0.8, (op("amax", "reduce", traffic=1e6),))
    assert resident.seconds.low == 0.0
    assert resident.confirms is None
    artefact.execution = Execution(threads=1, cpus=(0,), replicas=2)
    assert answer(0.8).seconds is None
    artefact.execution = Execution(threads=1, cpus=(0,))
    monkeypatch.setattr(corunner, "usable_cpus", lambda: (0,))
    assert "no second core" in answer(0.8).evidence


def test_memory_is_carried_to_other_threads_by_the_measured_bandwidth() -> None:
    """10 GB/s for one thread, 20 for two: half the time; unknown: between none and all of the threads' gain."""
    share = Interval(low=0.4, value=0.5, high=0.6)
    assert corunner.carried(share, 10e-3, machine(), run_on=2, of=2) == share.scaled(10e-3)
    two = corunner.carried(share, 10e-3, machine(), run_on=1, of=2)
    assert two.low == pytest.approx(2e-3, rel=0.01)
    assert two.value == pytest.approx(2.5e-3, rel=0.01)
    assert two.high == pytest.approx(6e-3 / (0.95 * 2 / 1.05), rel=0.01)
    unknown = corunner.carried(share, 10e-3, dataclasses.replace(machine(), ceilings=()), run_on=1, of=2)
    assert (unknown.low, unknown.high) == (pytest.approx(2e-3), pytest.approx(6e-3))


def test_parts_fit_the_cache_or_are_refused() -> None:
    ops = (op("relu", "elementwise", traffic=64e6), op("linear", "matmul", traffic=8e6, weights_bytes=4e6))
    ledger = Ledger(ops=ops, batch=32, source="synthetic")
    assert cached.part_that_fits(ledger, 32, 32 << 20) == 4  # 64 MB / 8 and 4 MB of weights within 16 MiB
    assert cached.part_that_fits(ledger, 32, 4 << 20) is None  # the weights alone need more than 2 MiB
    assert cached.part_that_fits(ledger, 3, 32 << 20) is None


def test_what_overflowing_costs_gives_fixed_costs_back() -> None:
    """One call of 20 ms against 4 parts of 4 ms, each with 1 ms fixed: 4 + 3 ms, of which 2 were page faults."""
    nothing = exactly(0.0)
    assert cached.lost_s(20e-3, exactly(4e-3), 4, latency=exactly(1e-3), paging=nothing).value == pytest.approx(7e-3)
    less = cached.lost_s(20e-3, exactly(4e-3), 4, latency=exactly(1e-3), paging=exactly(2e-3))
    assert less.value == pytest.approx(5e-3)


def test_work_left_is_bounded_by_rates_and_by_reading_the_weights() -> None:
    small = Ledger(
        ops=(op("linear", "matmul", flops=1e6, traffic=80e6, bytes_low=80e6, weights_bytes=80e6),), batch=1, source="s"
    )
    found = work_s(small, machine(), "torch", 1)
    assert found.value == pytest.approx(80e6 / 10e9)  # 1 MFLOP takes 20 us, the weights 8 ms
    assert found.low < found.value < found.high
    assert weights_s(small, machine(), 1).value == pytest.approx(8e-3)
    unknown = op("custom", "other", flops=None, traffic=1e6, bytes_low=1e6)
    assert work_s(Ledger(ops=(unknown,), batch=1, source="s"), machine(), "torch", 1).low == 0.0


def test_lengths_are_tried_from_the_longest_and_the_smallest() -> None:
    spec = TensorSpec(name="x", shape=(1, 3, 12, 12), dtype="float32")
    assert list(tiny.lengths_to_try((spec,))) == [(12, (1, 2, 4, 8)), (3, (1, 2))]


def test_a_shrunk_snapshot_holds_the_cut_example(tmp_path) -> None:
    of = candidate(tmp_path / "store", Cnn(), image(2))
    small = tiny.shrunk(of.snapshot, {12: 4}, tmp_path / "small")
    assert small.inputs[0].shape == (2, 3, 4, 4)
    assert small.digest != of.snapshot.digest
    with np.load(tmp_path / "small" / "example.npz") as stored:
        np.testing.assert_array_equal(stored[small.inputs[0].name], image(2).numpy()[:, :, :4, :4])


def test_counts_of_threads() -> None:
    assert counts(2) == (1, 2)
    assert counts(4) == (1, 2, 3, 4)
    assert counts(12) == (1, 2, 4, 8, 12)
    assert counts(16) == (1, 2, 4, 8, 16)


def test_a_launch_counts_its_quiet_blocks() -> None:
    launch = Launch(latency_ratios=[0.0, np.log(2.0), np.log(2.0), 3.0], quiet=[False, True, True, False])
    assert relative(launch) == pytest.approx(0.5)
    assert settled([launch])
    assert not settled([launch, Launch(latency_ratios=[0.0], quiet=[False])])


def test_names_are_checked_and_chosen() -> None:
    assert chosen(True) == NAMES
    assert chosen(False) == ()
    assert chosen(None) is None
    assert chosen(["threads", "batch"]) == ("batch", "threads")
    with pytest.raises(UserError, match="nonsense"):
        chosen(["nonsense"])
    assert relevant((Term.MEMORY, Term.LATENCY)) == ("batch", "tiny", "threads", "co-runner", "cached")
    assert relevant(()) == relevant((Term.PAGING,)) == ()
    assert {name for names in SPEAKS_OF.values() for name in names} == set(NAMES)
