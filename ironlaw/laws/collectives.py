"""Collective communication in the alpha-beta model: each message costs ``alpha + bytes / bandwidth``.

Why several algorithms for one operation: which is fastest depends on the size of the message against
``alpha * bandwidth``, and a plan must know both sides of that line. ``bandwidth`` is that of one link
in one direction; ``gamma`` is the time to reduce a byte. They refuse process counts for which an
algorithm is not stated (powers of two) rather than guess the extra steps.

Legend: ``ranks`` p, ``message_bytes`` n (the whole vector that each rank holds or ends with),
``alpha_s`` fixed cost of a message, ``gamma_s_per_byte`` cost of combining a byte.
"""

from __future__ import annotations

from collections.abc import Callable

from ironlaw.laws.checks import nonnegative, positive, whole
from ironlaw.laws.law import Input, Law, above_zero, at_least, count

HOCKNEY = "Hockney, The Communication Challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing 20(3), 1994"
THAKUR = "Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1), 2005"
PATARASUK = "Patarasuk and Yuan, Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations, JPDC 69(2), 2009"
CHAN = "Chan et al., Collective Communication: Theory, Practice, and Experience, CCPE 19(13), 2007"
LI = "Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014"


def message_s(*, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float) -> float:
    """One message between two ranks: ``alpha + n / bandwidth``."""
    nonnegative(message_bytes=message_bytes, alpha_s=alpha_s)
    positive(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return alpha_s + message_bytes / bandwidth_bytes_per_s


def tree_broadcast_s(*, ranks: int, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float) -> float:
    """Binomial tree: ``ceil(lg p) (alpha + n / bandwidth)``. For short messages."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s)
    return _rounds(ranks) * (alpha_s + message_bytes / bandwidth_bytes_per_s)


def scatter_broadcast_s(*, ranks: int, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float) -> float:
    """Binomial scatter, ring all-gather: ``(ceil(lg p) + p - 1) alpha + 2 (p-1)/p n / bandwidth``. For long messages.

    Exact for powers of two; else the scatter moves up to ``n / p`` more.
    """
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s)
    moved = 2 * _rest(ranks) * message_bytes / bandwidth_bytes_per_s
    return (_rounds(ranks) + ranks - 1) * alpha_s + moved


def ring_allgather_s(*, ranks: int, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float) -> float:
    """Each rank ends with all ``n`` bytes: ``(p-1) alpha + (p-1)/p n / bandwidth``."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s)
    return (ranks - 1) * alpha_s + _rest(ranks) * message_bytes / bandwidth_bytes_per_s


def ring_reduce_scatter_s(
    *,
    ranks: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    gamma_s_per_byte: float = 0.0,
) -> float:
    """Each rank ends with its sum of ``n / p`` bytes: ``(p-1) alpha + (p-1)/p n (1/bandwidth + gamma)``."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s, gamma_s_per_byte)
    a_byte = 1 / bandwidth_bytes_per_s + gamma_s_per_byte
    return (ranks - 1) * alpha_s + _rest(ranks) * message_bytes * a_byte


def ring_allreduce_s(
    *,
    ranks: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    gamma_s_per_byte: float = 0.0,
) -> float:
    """``2 (p-1) alpha + 2 (p-1)/p n / bandwidth + (p-1)/p n gamma``: least bytes, most messages."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s, gamma_s_per_byte)
    a_byte = 2 / bandwidth_bytes_per_s + gamma_s_per_byte
    return 2 * (ranks - 1) * alpha_s + _rest(ranks) * message_bytes * a_byte


def tree_allreduce_s(
    *,
    ranks: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    gamma_s_per_byte: float = 0.0,
) -> float:
    """Binomial reduce, binomial broadcast: ``ceil(lg p) (2 alpha + 2 n / bandwidth + n gamma)``."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s, gamma_s_per_byte)
    a_byte = 2 / bandwidth_bytes_per_s + gamma_s_per_byte
    return _rounds(ranks) * (2 * alpha_s + message_bytes * a_byte)


def butterfly_allreduce_s(
    *,
    ranks: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    gamma_s_per_byte: float = 0.0,
) -> float:
    """Recursive doubling, whole vector a round: ``lg p (alpha + n / bandwidth + n gamma)``. Powers of two."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s, gamma_s_per_byte)
    a_byte = 1 / bandwidth_bytes_per_s + gamma_s_per_byte
    return _power_of_two(ranks) * (alpha_s + message_bytes * a_byte)


def halving_allreduce_s(
    *,
    ranks: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    gamma_s_per_byte: float = 0.0,
) -> float:
    """Rabenseifner: recursive halving reduce-scatter, recursive doubling all-gather. Powers of two.

    ``2 lg p alpha + 2 (p-1)/p n / bandwidth + (p-1)/p n gamma``: the bytes of a ring, the rounds of a tree.
    """
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s, gamma_s_per_byte)
    a_byte = 2 / bandwidth_bytes_per_s + gamma_s_per_byte
    return 2 * _power_of_two(ranks) * alpha_s + _rest(ranks) * message_bytes * a_byte


def hierarchical_allreduce_s(
    *,
    nodes: int,
    ranks_per_node: int,
    message_bytes: float,
    alpha_s: float,
    bandwidth_bytes_per_s: float,
    node_alpha_s: float,
    node_bandwidth_bytes_per_s: float,
) -> float:
    """Ring reduce-scatter within nodes, ring all-reduce of a shard across nodes, ring all-gather within.

    ``node_*`` is the link inside a node; the other is each rank's own link between nodes.
    """
    inside = ring_allreduce_s(
        ranks=ranks_per_node,
        message_bytes=message_bytes,
        alpha_s=node_alpha_s,
        bandwidth_bytes_per_s=node_bandwidth_bytes_per_s,
    )
    across = ring_allreduce_s(
        ranks=nodes,
        message_bytes=message_bytes / ranks_per_node,
        alpha_s=alpha_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )
    return inside + across


def alltoall_s(*, ranks: int, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float) -> float:
    """Pairwise exchange of ``n / p`` bytes with every other rank: ``(p-1) (alpha + n / p / bandwidth)``."""
    _check(ranks, message_bytes, alpha_s, bandwidth_bytes_per_s)
    return (ranks - 1) * (alpha_s + message_bytes / ranks / bandwidth_bytes_per_s)


def parameter_server_s(
    *, workers: int, servers: int, message_bytes: float, alpha_s: float, bandwidth_bytes_per_s: float
) -> float:
    """Synchronous push and pull of ``n`` bytes by every worker, sharded over ``servers``.

    The busier side sets the pace: ``2 (alpha + max(n, workers n / servers) / bandwidth)``; the servers'
    links are full duplex and equal to the workers'.
    """
    whole(workers=workers, servers=servers)
    nonnegative(message_bytes=message_bytes, alpha_s=alpha_s)
    positive(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    busiest = message_bytes * max(1.0, workers / servers)
    return 2 * (alpha_s + busiest / bandwidth_bytes_per_s)


def _check(ranks: int, message_bytes: float, alpha_s: float, bandwidth: float, gamma: float = 0.0) -> None:
    whole(ranks=ranks)
    nonnegative(message_bytes=message_bytes, alpha_s=alpha_s, gamma_s_per_byte=gamma)
    positive(bandwidth_bytes_per_s=bandwidth)


def _rounds(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _rest(ranks: int) -> float:
    return (ranks - 1) / ranks


def _power_of_two(ranks: int) -> int:
    if ranks & (ranks - 1):
        raise ValueError(f"ranks must be a power of two for this algorithm, got {ranks}")
    return ranks.bit_length() - 1


_LINK = (
    at_least(0, "message_bytes", "B", "the whole vector"),
    at_least(0, "alpha_s", "s", "fixed cost of a message"),
    above_zero("bandwidth_bytes_per_s", "B/s", "one link, one direction"),
)
_GAMMA = at_least(0, "gamma_s_per_byte", "s/B", "time to reduce a byte", default=0.0)
_FREE = "each rank sends one and receives one message at a time, links do not share bandwidth, all ranks are ready"
_A100 = (("message_bytes", 1e8), ("alpha_s", 5e-6), ("bandwidth_bytes_per_s", 25e9))


def _law(
    name: str,
    title: str,
    equation: str,
    function: Callable[..., float],
    source: str,
    *,
    inputs: tuple[Input, ...] | None = None,
    reduces: bool = False,
    power: bool = False,
    example: tuple[tuple[str, float], ...] = (("ranks", 8), *_A100),
) -> Law:
    ranks = count("ranks", "ranks; a power of two" if power else "ranks")
    return Law(
        name=name,
        family="collectives",
        title=title,
        equation=equation,
        inputs=inputs or (ranks, *_LINK, *((_GAMMA,) if reduces else ())),
        unit="s",
        valid_while=_FREE + ("; ranks are a power of two" if power else ""),
        source=source,
        function=function,
        example=example,
    )


LAWS = (
    _law("message", "One message", "alpha + n/B", message_s, f"{HOCKNEY}, eq. 1", inputs=_LINK, example=_A100),
    _law(
        "broadcast-tree",
        "Broadcast by a binomial tree",
        "ceil(lg p) (alpha + n/B)",
        tree_broadcast_s,
        f"{THAKUR}, section 4.2",
    ),
    _law(
        "broadcast-scatter",
        "Broadcast by scatter and all-gather",
        "(ceil(lg p) + p - 1) alpha + 2 (p-1)/p n/B",
        scatter_broadcast_s,
        f"{THAKUR}, section 4.2",
    ),
    _law(
        "allgather-ring",
        "All-gather around a ring",
        "(p-1) alpha + (p-1)/p n/B",
        ring_allgather_s,
        f"{THAKUR}, section 4.1",
    ),
    _law(
        "reduce-scatter-ring",
        "Reduce-scatter around a ring",
        "(p-1) alpha + (p-1)/p n (1/B + gamma)",
        ring_reduce_scatter_s,
        f"{CHAN}, bucket algorithm",
        reduces=True,
    ),
    _law(
        "allreduce-ring",
        "All-reduce around a ring",
        "2 (p-1) alpha + 2 (p-1)/p n/B + (p-1)/p n gamma",
        ring_allreduce_s,
        f"{PATARASUK}, ring algorithm",
        reduces=True,
    ),
    _law(
        "allreduce-tree",
        "All-reduce by reduce and broadcast over a binomial tree",
        "ceil(lg p) (2 alpha + 2 n/B + n gamma)",
        tree_allreduce_s,
        f"{THAKUR}, sections 4.2 and 4.5",
        reduces=True,
    ),
    _law(
        "allreduce-butterfly",
        "All-reduce by recursive doubling (butterfly)",
        "lg p (alpha + n/B + n gamma)",
        butterfly_allreduce_s,
        f"{THAKUR}, section 4.5",
        reduces=True,
        power=True,
    ),
    _law(
        "allreduce-halving",
        "All-reduce by recursive halving and doubling (Rabenseifner)",
        "2 lg p alpha + 2 (p-1)/p n/B + (p-1)/p n gamma",
        halving_allreduce_s,
        f"{THAKUR}, section 4.5",
        reduces=True,
        power=True,
    ),
    _law(
        "allreduce-hierarchical",
        "All-reduce within nodes and across them",
        "ring(g, n, inside) + ring(nodes, n/g, across)",
        hierarchical_allreduce_s,
        f"{CHAN}; Goyal et al., Accurate, Large Minibatch SGD, arXiv:1706.02677, section 4",
        inputs=(
            count("nodes", "nodes"),
            count("ranks_per_node", "ranks in each node (g)"),
            *_LINK,
            at_least(0, "node_alpha_s", "s", "fixed cost of a message inside a node"),
            above_zero("node_bandwidth_bytes_per_s", "B/s", "one link inside a node, one direction"),
        ),
        example=(
            ("nodes", 4),
            ("ranks_per_node", 8),
            *_A100,
            ("node_alpha_s", 2e-6),
            ("node_bandwidth_bytes_per_s", 300e9),
        ),
    ),
    _law(
        "alltoall",
        "All-to-all by pairwise exchange",
        "(p-1) (alpha + n/p/B)",
        alltoall_s,
        f"{THAKUR}, section 4.3",
    ),
    _law(
        "parameter-server",
        "Synchronous push and pull through parameter servers",
        "2 (alpha + n max(1, w/s) / B)",
        parameter_server_s,
        LI,
        inputs=(count("workers", "workers (w)"), count("servers", "servers (s)"), *_LINK),
        example=(("workers", 8), ("servers", 2), *_A100),
    ),
)
