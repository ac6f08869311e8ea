"""The split of a training step: what is timed, what is kept apart, and the arithmetic from blocks to intervals."""

import itertools
import math
import time

import pytest
import torch

from ironlaw.measure import steps
from ironlaw.measure.loader import ahead, inspected
from ironlaw.measure.steps import (
    Block,
    Feed,
    Ring,
    StepLaunch,
    block,
    launch_data,
    launch_from,
    one_step,
    step_times,
    turns,
)


class Fake:
    """Pieces of a step that take set times on a clock of their own."""

    def __init__(self, monkeypatch, **taken):
        self.now = 0.0
        self.taken = {"copy": 0.0, "clear": 0.0, "forward": 0.0, "backward": 0.0, "update": 0.0, **taken}
        monkeypatch.setattr(steps.time, "perf_counter", lambda: self.now)

    def spend(self, seconds, value=None):
        self.now += seconds
        return value

    def copy(self, batch):
        return self.spend(self.taken["copy"], batch)

    def clear(self):
        self.spend(self.taken["clear"])

    def forward(self, batch):
        return self.spend(self.taken["forward"], batch)

    def backward(self, loss):
        self.spend(self.taken["backward"])

    def update(self):
        self.spend(self.taken["update"])


def made(wall_s, parts_s, *, steps=10, foreign=0.0):
    return Block(steps=steps, wall_s=wall_s, parts_s=parts_s, faults=3.0, cpu_s=wall_s, system_s=0.0, foreign=foreign)


def launch(normal, cached, starts_s=(0.5,), batches=None):
    return StepLaunch(normal=tuple(normal), cached=tuple(cached), starts_s=starts_s, batches=batches)


NORMAL = made(0.010, (0.004, 0.0, 0.003, 0.002, 0.0005))
CACHED = made(0.006, (0.0, 0.0, 0.003, 0.002, 0.0005))


def test_each_part_gets_its_own_time(monkeypatch):
    job = Fake(monkeypatch, copy=2.0, clear=0.25, forward=4.0, backward=8.0, update=0.5)
    assert one_step(job, lambda: job.spend(1.0)) == [1.0, 2.0, 4.0, 8.0, 0.75]


def test_beginning_an_epoch_is_neither_waiting_nor_step(monkeypatch):
    job = Fake(monkeypatch, forward=1.0)

    def epoch():
        job.spend(10.0)
        for i in range(3):
            yield job.spend(0.5, i)

    feed = Feed(epoch)
    found = block(job, feed, seconds=0.0, least=7)
    assert feed.starts_s == [10.5] * 3
    assert feed.lengths == [3, 3]
    assert found.steps == 7
    assert found.parts_s[0] == pytest.approx(4 * 0.5 / 7)  # the first batch of an epoch belongs to its beginning
    assert found.wall_s == pytest.approx(1.0 + 4 * 0.5 / 7)


def test_feed_and_ring_give_batches_in_order():
    numbers = itertools.count()
    feed = Feed(lambda: iter([next(numbers) for _ in range(2)]))
    assert [feed.take() for _ in range(5)] == [0, 1, 2, 3, 4]
    ring = Ring("abc")
    assert "".join(ring.take() for _ in range(7)) == "bcabcab"


def test_parts_sum_to_the_total_and_epochs_are_shared_out():
    runs = [launch([NORMAL] * 3, [CACHED] * 2, starts_s=(0.5, 0.5)) for _ in range(3)]
    found = step_times(runs, batch=4, device="cpu", batches=50)
    assert found.restart.value == pytest.approx(0.5 / 50)
    assert found.total.value == pytest.approx(0.010 + 0.010)
    assert found.io_s + found.work_s + found.rest.value == pytest.approx(found.total.value)
    assert found.wait.value == pytest.approx(0.004)
    assert found.rest.value == pytest.approx(0.0005)
    assert found.cached.value == pytest.approx(0.006)
    assert found.gain.median == pytest.approx(0.020 / 0.006)
    assert found.contention.value == pytest.approx(0.0)
    assert (found.steps, found.blocks, found.launches) == (90, 9, 3)


def test_unknown_epochs_are_not_shared_out():
    found = step_times([launch([NORMAL] * 3, [CACHED] * 2)], batch=4, device="cpu", batches=None)
    assert found.restart.value == 0.0
    assert found.total.value == pytest.approx(0.010)


def test_parts_are_scaled_to_the_total():
    """Three blocks whose medians of parts do not sum to the median of the whole."""
    blocks = [made(w, (w - f, 0.0, f, 0.0, 0.0)) for w, f in ((0.010, 0.009), (0.012, 0.002), (0.020, 0.010))]
    found = step_times([launch(blocks, [CACHED] * 2)], batch=1, device="cpu", batches=None)
    assert found.total.value == pytest.approx(0.012)
    assert found.wait.value == pytest.approx(0.012 * 10 / 19)
    assert found.forward.value == pytest.approx(0.012 * 9 / 19)


def test_launches_are_the_unit_of_intervals():
    """Blocks agree within each launch, launches differ: Student's interval over launch medians (t of 2 is 4.303)."""
    walls = (0.010, 0.011, 0.012)
    runs = [launch([made(w, (0.0, 0.0, w, 0.0, 0.0))] * 4, [CACHED] * 3) for w in walls]
    found = step_times(runs, batch=1, device="cpu", batches=None)
    half = 4.3027 * 0.001 / math.sqrt(3)
    assert found.total.value == pytest.approx(0.011)
    assert (found.total.low, found.total.high) == pytest.approx((0.011 - half, 0.011 + half), rel=1e-4)


def test_a_working_loader_that_slows_the_step_is_seen():
    slow = made(0.012, (0.004, 0.0, 0.004, 0.003, 0.0005))
    found = step_times([launch([slow] * 3, [CACHED] * 2)] * 3, batch=1, device="cpu", batches=None)
    assert found.contention.value == pytest.approx(0.002)
    assert found.contention.low > 0.0


def test_busy_neighbours_are_left_out_while_quiet_blocks_are_enough():
    loud = made(0.050, (0.040, 0.0, 0.005, 0.003, 0.001), foreign=0.6)
    found = step_times([launch([NORMAL, NORMAL, loud], [CACHED] * 2)] * 3, batch=1, device="cpu", batches=None)
    assert found.total.value == pytest.approx(0.010)
    assert found.gain.settled
    found = step_times([launch([NORMAL, loud, loud, loud], [loud] * 3)] * 3, batch=1, device="cpu", batches=None)
    assert found.total.value == pytest.approx(0.050)
    assert not found.gain.settled


def test_on_the_cpu_nothing_is_copied():
    clocked = made(0.010, (0.004, 0.0002, 0.003, 0.002, 0.0005))
    found = step_times([launch([clocked] * 3, [CACHED] * 2)], batch=1, device="cpu", batches=None)
    assert (found.copy.value, found.rest.value) == pytest.approx((0.0, 0.0005))
    found = step_times([launch([clocked] * 3, [CACHED] * 2)], batch=1, device="cuda:0", batches=None)
    assert (found.copy.value, found.rest.value) == pytest.approx((0.0002, 0.0003))


def test_launches_cross_the_pipe():
    one = launch([NORMAL, NORMAL], [CACHED], starts_s=(0.1, 0.2), batches=7)
    assert launch_from(launch_data(one)) == one


def test_turns_alternate_and_catch_up_with_what_the_loader_holds(monkeypatch):
    job = Fake(monkeypatch, forward=1.0)
    taken = []

    def epoch():
        while True:
            taken.append(len(taken))
            yield job.spend(0.5, "fresh")

    ring = Ring(["kept"])
    found = turns(job, Feed(epoch), ring, seconds=9.0, block_s=3.0, step_s=1.5, ahead=4)
    assert len(found.normal) == len(found.cached) + 1 == 3
    assert [b.parts_s[0] for b in found.cached] == [0.0, 0.0]
    assert [b.steps for b in found.normal] == [4, 4, 4]
    assert len(taken) == 3 * 4 + 2 * 4 + 1  # three blocks, twice what was ahead, the epoch begun at the end


# ---------------------------------------------------------------- the loader


class Halves:
    """Samples that take 2 ms, half of it in the transform."""

    def __init__(self, count=12):
        self.count = count
        self.transform = Halves.slow

    @staticmethod
    def slow(value):
        time.sleep(0.001)
        return value

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.001)
        return self.transform(torch.tensor(float(index)))


def slow_collate(samples):
    time.sleep(0.004)
    return torch.stack(samples)


def test_stages_of_a_loader():
    loader = torch.utils.data.DataLoader(Halves(), batch_size=4, collate_fn=slow_collate)
    found = inspected(loader, lambda: iter(loader), seconds=0.0)
    assert found.fetch_s >= 0.008
    assert 0.004 <= found.transform_s < found.fetch_s
    assert found.collate_s >= 0.004
    assert found.load_s == found.fetch_s + found.collate_s
    assert found.cpu_share < 0.5
    assert (found.workers, found.batches, found.transfer_s) == (0, 3, None)
    assert loader.dataset.transform is Halves.slow


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([torch.tensor(float(i)) for i in range(5)])


@pytest.mark.parametrize("size", [2, None])
def test_stages_of_a_stream(size):
    loader = torch.utils.data.DataLoader(Stream(), batch_size=size)
    found = inspected(loader, lambda: iter(loader), seconds=5.0)
    assert found.kind == "DataLoader"
    assert found.fetch_s > 0.0
    assert found.batches is None


def test_what_is_no_loader_is_timed_as_a_whole():
    def batches():
        for _ in range(3):
            time.sleep(0.003)
            yield torch.zeros(1)

    found = inspected(batches, batches, seconds=1.0)
    assert found.fetch_s >= 0.003
    assert found.collate_s is None
    assert "not a DataLoader" in found.note


def test_ahead_is_what_workers_hold():
    assert ahead([]) == 0
    assert ahead(torch.utils.data.DataLoader(Halves())) == 0
    assert ahead(torch.utils.data.DataLoader(Halves(), num_workers=2, prefetch_factor=3)) == 7
