"""The same verdicts on code that really runs here: counted, profiled, measured, with ceilings probed on the spot.

No timing is asserted: only which term a situation belongs to, and that its cured twin does not show it.
"""

import mmap
import resource
import statistics
import time

import pytest
import torch

from ironlaw.diagnose import diagnose, merge
from ironlaw.measure.ledger_torch import count_module
from ironlaw.measure.profile_torch import profile
from ironlaw.records import (
    Ceiling,
    Conditions,
    Energy,
    Environment,
    Execution,
    Identity,
    Machine,
    Measurement,
    Percentiles,
    Term,
)

CACHE_BYTES = 32 << 20
CALLS = 5


class Tiny(torch.nn.Module):
    def forward(self, x):
        for _ in range(200):
            x = torch.tanh(x)
        return x


class Fresh(torch.nn.Module):
    """A new large buffer for every result: the allocator maps it, the kernel faults it in page by page."""

    def forward(self, x):
        for _ in range(3):
            x = x * 1.5
        return x


class Reused(torch.nn.Module):
    """The same arithmetic in place: the cured twin."""

    def forward(self, x):
        for _ in range(3):
            x.mul_(1.0)
        return x


def best(call, repeats=5):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def fault_s():
    size, page = 8 << 20, 4096
    taken = []
    for _ in range(3):
        area = mmap.mmap(-1, size)
        first, second = (_touch(area, size, page) for _ in range(2))
        taken.append((first - second) / (size // page))
        area.close()
    return max(1e-7, min(taken))


def _touch(area, size, page):
    start = time.perf_counter()
    for offset in range(0, size, page):
        area[offset] = 1
    return time.perf_counter() - start


@pytest.fixture(scope="module")
def machine():
    torch.set_num_threads(1)
    a, out = torch.randn(512, 512), torch.empty(512, 512)
    big, copy = torch.empty(16 << 20), torch.empty(16 << 20)
    small, sink, one = torch.empty(1 << 15), torch.empty(1 << 15), torch.zeros(1)
    values = {
        "matmul": 2 * 512**3 / best(lambda: torch.mm(a, a, out=out)),
        "dram": 2 * 4 * big.numel() / best(lambda: copy.copy_(big), 3),
        "cache": 2 * 4 * small.numel() * 50 / best(lambda: [sink.copy_(small) for _ in range(50)]),
        "dispatch": best(lambda: [one.add_(1) for _ in range(500)]) / 500,
        "fault": fault_s(),
    }
    ceilings = tuple(
        Ceiling(name=n, unit="", value=v, low=0.8 * v, high=1.2 * v, dtype="fp32" if n == "matmul" else None)
        for n, v in values.items()
    )
    identity = Identity(cpu="c", architecture="a", isa=(), cores=2, memory_bytes=1, os="o", python="p")
    conditions = Conditions(load_1m=0.0, governor=None, frequency_hz=None)
    return Machine(environment=Environment(identity=identity, conditions=conditions), ceilings=ceilings)


def measure(call):
    call()
    before, times = resource.getrusage(resource.RUSAGE_SELF), []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_SELF)
    system_s = (after.ru_stime - before.ru_stime) / CALLS
    return Measurement(
        latency_s=Percentiles(p50=statistics.median(times), p90=None, p99=None, mean=sum(times) / CALLS, samples=CALLS),
        throughput_per_s=1.0,
        batch=1,
        launches=1,
        blocks=1,
        peak_memory_bytes=1,
        size_bytes=1,
        load_s=0.0,
        prepare_s=0.0,
        warmup_calls=1,
        warm=True,
        faults_per_call=(after.ru_minflt - before.ru_minflt) / CALLS,
        system_s_per_call=system_s,
        cpu_s_per_call=(after.ru_utime - before.ru_utime) / CALLS + system_s,
        threads_effective=1.0,
        foreign_cpu=0.0,
        energy_j=Energy(value=None, source="unknown"),
    )


def examine(machine, module, x):
    with torch.inference_mode():
        measured = measure(lambda: module(x))
        ledger = count_module(module, (x,), batch=1, cache_bytes=CACHE_BYTES)
        merged = merge(ledger, profile(lambda: module(x), 3))
    return diagnose(merged, measured, machine, Execution())


def test_two_hundred_tiny_operators(machine):
    found = examine(machine, Tiny(), torch.randn(8, 8))
    assert found.dominant is Term.LATENCY
    assert found.ledger.dispatches == 200
    assert next(b for b in found.bounds if b.change == "unlimited FLOP/s").wasted


def test_a_large_product(machine):
    found = examine(machine, torch.nn.Linear(1024, 1024), torch.randn(256, 1024))
    assert found.share(Term.COMPUTE) > 0.5
    assert found.dominant in (Term.COMPUTE, None)
    assert next(b for b in found.bounds if b.change == "unlimited bandwidth").speedup < 1.5


def test_one_row_times_a_large_matrix(machine):
    found = examine(machine, torch.nn.Linear(4096, 4096), torch.randn(1, 4096))
    assert found.share(Term.MEMORY) > 0.5
    assert found.dominant in (Term.MEMORY, None)


def test_large_elementwise_in_place_is_memory_and_not_paging(machine):
    found = examine(machine, Reused(), torch.ones(16 << 20))
    assert found.share(Term.MEMORY) > 0.5
    assert found.share(Term.PAGING) < 0.05
    assert next(b for b in found.bounds if b.change == "allocator settings").wasted


def test_fresh_large_buffers_show_paging(machine):
    found = examine(machine, Fresh(), torch.ones(16 << 20))
    if "no page faults" in found.terms[3].evidence:
        pytest.skip("this system's allocator kept the pages")
    assert found.share(Term.PAGING) > 0.15
    assert not next(b for b in found.bounds if b.change == "allocator settings").wasted
