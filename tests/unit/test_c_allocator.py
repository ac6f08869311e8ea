"""The C library's allocator against what glibc's source says, and against laws that hold for any allocator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.measure.c_allocator import OBJECTS, Give, Take, Touch, allocated_peak, resident, resident_peak

MB = 2**20


def near(value):
    return pytest.approx(value, abs=300_000)  # top pad, pages, slivers


def test_large_requests_are_mapped_and_go_back_at_once():
    big = 64 * MB  # above the largest threshold
    assert resident_peak([Take(1, big), Give(1), Take(2, big), Give(2)]) == near(big)
    assert resident_peak([Take(1, big), Take(2, big)]) == near(2 * big)


def test_a_freed_mapping_moves_the_threshold_so_that_the_next_one_stays():
    fresh = [Take(1, MB), Give(1), Take(2, 8 * MB), Give(2), Take(3, 64 * MB)]
    assert resident_peak(fresh) == near(64 * MB)
    kept = [Take(1, 8 * MB), Give(1), Take(2, 7 * MB), Give(2), Take(3, 64 * MB)]  # on the heap now, under the trim
    assert resident_peak(kept) == near(71 * MB)


def test_the_top_of_the_heap_is_trimmed_where_no_sliver_is_in_the_way():
    raise_threshold = [Take(0, MB), Give(0)]  # heap up to 1 MB, trim above 2 MB
    traffic = [*raise_threshold, *(Take(i, MB - 4096) for i in range(1, 31)), *(Give(i) for i in range(30, 0, -1))]
    kept = resident_peak([*traffic, Take("big", 64 * MB)]) - 64 * MB
    assert MB < kept < 12 * MB  # caches hold seven slivers of a size: so many chunks cannot merge with the top


def chain(rounds):
    """Each tensor dies when the next but one is made: two at a time."""
    yield from (Take(-1, 4 * MB), Give(-1), Take(0, 2 * MB, tensor=True))
    for i in range(1, rounds):
        yield Take(i, 2 * MB, tensor=True)
        yield Give(i - 1)


@pytest.mark.parametrize("objects", [(), *OBJECTS])
def test_an_aligned_request_does_not_fit_what_its_equal_left(objects):
    alive = allocated_peak(chain(40))
    assert 2 * alive < resident_peak(chain(40), objects) < 40 * 2 * MB


def test_resident_is_the_middle_of_the_draws(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    found = resident(list(chain(40)))
    assert found.low <= found.value <= found.high
    assert found.value >= 4 * MB
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert resident(list(chain(40))).value == allocated_peak(chain(40)) == 4 * MB


def test_what_was_never_written_is_not_resident():
    half = [Take(1, 64 * MB, 32 * MB)]
    assert resident_peak(half) == near(32 * MB)
    assert resident_peak([*half, Touch(1)]) == near(64 * MB)


@given(st.lists(st.tuples(st.integers(1, 40 * MB), st.integers(0, 10)), max_size=60), st.sampled_from([(), *OBJECTS]))
def test_resident_is_never_less_than_what_is_alive(requests, objects):
    traffic = []
    for key, (size, victim) in enumerate(requests):
        traffic.append(Take(key, size, tensor=True))
        if victim <= key and Give(victim) not in traffic:
            traffic.append(Give(victim))
    assert resident_peak(traffic, objects) >= allocated_peak(traffic)
