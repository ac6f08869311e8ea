"""The tensor LRU against a simulator of single bytes."""

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.measure.ledger_cache import CacheModel, Touched


class ByteCache:
    """Fully associative LRU of single bytes: the definition, slowly."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.lines = capacity, OrderedDict()

    def access(self, key: int, size: int, *, write: bool) -> int:
        traffic = 0
        for position in range(size):
            line = (key, position)
            dirty = self.lines.pop(line, None)
            if dirty is None:
                traffic += 0 if write else 1
                while len(self.lines) >= self.capacity:
                    traffic += 1 if self.lines.popitem(last=False)[1] else 0
            self.lines[line] = bool(dirty) or write
        return traffic

    def forget(self, key: int) -> None:
        for line in [line for line in self.lines if line[0] == key]:
            del self.lines[line]


SIZES = (1, 3, 5, 8, 13)
steps = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["read", "write", "forget"])), max_size=40)


@settings(max_examples=300, deadline=None)
@given(steps=steps, capacity=st.integers(1, 34))
def test_equals_a_simulation_of_single_bytes(steps, capacity):
    model, oracle = CacheModel(capacity), ByteCache(capacity)
    for key, what in steps:
        size = SIZES[key]
        if what == "forget":
            model.forget(key)
            oracle.forget(key)
            continue
        crossed = model.read(key, size) if what == "read" else model.write(key, size)
        assert crossed == oracle.access(key, size, write=what == "write")
        assert model.used == len(oracle.lines)


def test_a_cyclic_scan_just_over_the_capacity_always_misses():
    model = CacheModel(100)
    for _ in range(3):
        assert [model.read(k, 51) for k in "ab"] == [51, 51]


def test_without_end_only_first_touches_cost():
    model = CacheModel(None)
    assert model.read("w", 10) == 10
    assert model.write("y", 1e12) == 0
    assert model.read("y", 1e12) == 0
    assert model.read("w", 10) == 0


def test_a_new_part_of_a_resident_buffer_is_a_first_touch():
    model = CacheModel(1000)
    model.read("w", 100, first=100)
    assert model.read("w", 100, first=100) == 100
    assert model.read("w", 200) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=12))
def test_touched_counts_new_bytes_once(spans):
    touched, seen = Touched(), set()
    for start, length in spans:
        fresh = set(range(start, start + length)) - seen
        assert touched.add(start, start + length) == len(fresh)
        seen |= fresh


def test_touched_keeps_merged_ranges():
    touched = Touched()
    for start, end in ((0, 4), (8, 12), (4, 8)):
        touched.add(start, end)
    assert touched.ranges == [(0, 12)]
