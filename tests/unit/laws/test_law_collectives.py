"""Collectives against a message-level run of each algorithm on real vectors.

The oracle moves data between ranks round by round; a round costs alpha plus the largest message of any
rank over the bandwidth (plus gamma for what is reduced). It checks the answer and yields the time.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.laws import collectives as c

ALPHA, BANDWIDTH, GAMMA = 3e-6, 2e9, 1e-10
WIRE = {"alpha_s": ALPHA, "bandwidth_bytes_per_s": BANDWIDTH}
POWERS = [1, 2, 4, 8, 16]


class Wire:
    """Adds up the rounds. ``reduced`` says that receivers combine what arrives."""

    def __init__(self):
        self.time_s = 0.0

    def round(self, sizes, *, reduced=False):
        if sizes:
            largest = max(sizes)
            self.time_s += ALPHA + largest / BANDWIDTH + (GAMMA * largest if reduced else 0)


def vectors(ranks, items=48):
    return [np.arange(items, dtype=np.float64) * (r + 1) for r in range(ranks)]


def run_ring_reduce_scatter(data, wire):
    p = len(data)
    parts = [np.array_split(v.copy(), p) for v in data]
    for step in range(p - 1):
        sent = [(r, (r - step) % p, parts[r][(r - step) % p].copy()) for r in range(p)]
        for r, index, chunk in sent:
            parts[(r + 1) % p][index] += chunk
        wire.round([chunk.nbytes for _, _, chunk in sent], reduced=True)
    return parts


def run_ring_allgather(parts, owned, wire):
    p = len(parts)
    for step in range(p - 1):
        sent = [(r, (owned(r) - step) % p, parts[r][(owned(r) - step) % p].copy()) for r in range(p)]
        for r, index, chunk in sent:
            parts[(r + 1) % p][index] = chunk
        wire.round([chunk.nbytes for _, _, chunk in sent])
    return parts


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12])
def test_ring(ranks):
    data, wire = vectors(ranks), Wire()
    parts = run_ring_reduce_scatter(data, wire)
    size = {"ranks": ranks, "message_bytes": data[0].nbytes, **WIRE}
    assert wire.time_s == pytest.approx(c.ring_reduce_scatter_s(**size, gamma_s_per_byte=GAMMA))
    gather = Wire()
    parts = run_ring_allgather(parts, lambda r: (r + 1) % ranks, gather)
    assert gather.time_s == pytest.approx(c.ring_allgather_s(**size))
    assert wire.time_s + gather.time_s == pytest.approx(c.ring_allreduce_s(**size, gamma_s_per_byte=GAMMA))
    for rank in range(ranks):
        np.testing.assert_allclose(np.concatenate(parts[rank]), sum(data))


@pytest.mark.parametrize("ranks", POWERS)
def test_butterfly(ranks):
    data, wire = vectors(ranks), Wire()
    held, step = [v.copy() for v in data], 1
    while step < ranks:
        held = [held[r] + held[r ^ step] for r in range(ranks)]
        wire.round([held[0].nbytes] * ranks, reduced=True)
        step *= 2
    for rank in range(ranks):
        np.testing.assert_allclose(held[rank], sum(data))
    size = {"ranks": ranks, "message_bytes": data[0].nbytes, **WIRE}
    assert wire.time_s == pytest.approx(c.butterfly_allreduce_s(**size, gamma_s_per_byte=GAMMA))


@pytest.mark.parametrize("ranks", POWERS)
def test_halving_and_doubling(ranks):
    data, wire = vectors(ranks), Wire()
    held = [v.copy() for v in data]
    span = [(0, held[0].size)] * ranks
    step = ranks // 2
    while step:
        halves = [((a, (a + b) // 2), ((a + b) // 2, b)) for a, b in span]
        keep = [halves[r][1 if r & step else 0] for r in range(ranks)]
        old = [v.copy() for v in held]
        for r in range(ranks):
            held[r][slice(*keep[r])] += old[r ^ step][slice(*keep[r])]
        span = keep
        wire.round([(b - a) * 8 for a, b in span], reduced=True)
        step //= 2
    step = 1
    while step < ranks:
        old, spans = [v.copy() for v in held], list(span)
        wire.round([(b - a) * 8 for a, b in spans])
        for r in range(ranks):
            other = spans[r ^ step]
            held[r][slice(*other)] = old[r ^ step][slice(*other)]
            span[r] = (min(spans[r][0], other[0]), max(spans[r][1], other[1]))
        step *= 2
    for rank in range(ranks):
        np.testing.assert_allclose(held[rank], sum(data))
    size = {"ranks": ranks, "message_bytes": data[0].nbytes, **WIRE}
    assert wire.time_s == pytest.approx(c.halving_allreduce_s(**size, gamma_s_per_byte=GAMMA))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 13, 16])
def test_binomial_tree(ranks):
    reduce, broadcast, data = Wire(), Wire(), vectors(ranks)
    held, step = [v.copy() for v in data], 1
    while step < ranks:
        senders = [r for r in range(ranks) if r % (2 * step) == step]
        for r in senders:
            held[r - step] += held[r]
        reduce.round([held[r].nbytes for r in senders], reduced=True)
        step *= 2
    np.testing.assert_allclose(held[0], sum(data))
    knows = 1
    while knows < ranks:
        new = min(knows, ranks - knows)
        broadcast.round([held[0].nbytes] * new)
        knows += new
    size = {"ranks": ranks, "message_bytes": data[0].nbytes, **WIRE}
    assert broadcast.time_s == pytest.approx(c.tree_broadcast_s(**size))
    assert reduce.time_s + broadcast.time_s == pytest.approx(c.tree_allreduce_s(**size, gamma_s_per_byte=GAMMA))


@pytest.mark.parametrize("ranks", POWERS)
def test_scatter_then_allgather(ranks):
    total, wire = 48 * 8, Wire()
    half = total / 2
    for _ in range(ranks.bit_length() - 1):
        wire.round([half])
        half /= 2
    for _ in range(ranks - 1):
        wire.round([total / ranks])
    assert wire.time_s == pytest.approx(c.scatter_broadcast_s(ranks=ranks, message_bytes=total, **WIRE))


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_pairwise_exchange(ranks):
    wire = Wire()
    for _ in range(ranks - 1):
        wire.round([960 / ranks] * ranks)
    assert wire.time_s == pytest.approx(c.alltoall_s(ranks=ranks, message_bytes=960, **WIRE))


@given(power=st.integers(1, 10), message=st.floats(1, 1e10))
def test_no_allreduce_beats_both_lower_bounds(power, message):
    """Chan et al., lower bounds: lg p messages, and 2 (p-1)/p n bytes in and out of every rank."""
    ranks = 2**power
    size = {"ranks": ranks, "message_bytes": message, **WIRE}
    messages, moved = power * ALPHA, 2 * (ranks - 1) / ranks * message / BANDWIDTH
    ring, halving = c.ring_allreduce_s(**size), c.halving_allreduce_s(**size)
    assert min(ring, halving, c.tree_allreduce_s(**size)) * (1 + 1e-12) >= max(messages, moved)
    assert halving <= ring * (1 + 1e-12)
    assert c.butterfly_allreduce_s(**size) <= c.tree_allreduce_s(**size)
    assert c.tree_allreduce_s(**size) >= 2 * c.tree_broadcast_s(**size) * (1 - 1e-12)


def test_which_algorithm_wins_depends_on_the_size():
    few, many = ({"ranks": 64, "message_bytes": n, **WIRE} for n in (100, 1e9))
    assert c.butterfly_allreduce_s(**few) < c.halving_allreduce_s(**few) < c.ring_allreduce_s(**few)
    assert c.halving_allreduce_s(**many) < c.butterfly_allreduce_s(**many)
    assert c.ring_allreduce_s(**many) < c.tree_allreduce_s(**many)


def test_hierarchy_with_one_level_is_a_ring_and_wins_on_slow_networks():
    size = {"message_bytes": 1e8, **WIRE, "node_alpha_s": 1e-6, "node_bandwidth_bytes_per_s": 3e11}
    flat = c.ring_allreduce_s(ranks=32, message_bytes=1e8, **WIRE)
    assert c.hierarchical_allreduce_s(nodes=4, ranks_per_node=8, **size) < flat / 5
    assert c.hierarchical_allreduce_s(nodes=32, ranks_per_node=1, **size) == pytest.approx(flat)
    inside = c.ring_allreduce_s(ranks=8, message_bytes=1e8, alpha_s=1e-6, bandwidth_bytes_per_s=3e11)
    assert c.hierarchical_allreduce_s(nodes=1, ranks_per_node=8, **size) == pytest.approx(inside)


def test_parameter_server_congests_at_the_server():
    one = c.parameter_server_s(workers=8, servers=1, message_bytes=1e9, **WIRE)
    assert one == pytest.approx(2 * (ALPHA + 8 * 1e9 / BANDWIDTH))
    enough = c.parameter_server_s(workers=8, servers=16, message_bytes=1e9, **WIRE)
    assert enough == pytest.approx(2 * c.message_s(message_bytes=1e9, **WIRE))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c.butterfly_allreduce_s(ranks=6, message_bytes=1, **WIRE), "power of two.*got 6"),
        (lambda: c.halving_allreduce_s(ranks=12, message_bytes=1, **WIRE), "power of two.*got 12"),
        (lambda: c.ring_allreduce_s(ranks=0, message_bytes=1, **WIRE), "ranks must be a whole number"),
        (lambda: c.ring_allreduce_s(ranks=2, message_bytes=-1, **WIRE), "message_bytes must be at least 0"),
        (lambda: c.message_s(message_bytes=1, alpha_s=0, bandwidth_bytes_per_s=0), "bandwidth_bytes_per_s"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
