"""The cache model against Valgrind's cachegrind: last-level misses of small C kernels, net of those of starting up.

Cachegrind simulates single lines in sets and counts a line that is written first as fetched; it counts no write-backs.
So every touch is given to the model as a read: its answer is then the bytes that were missing. What it writes back
is held against a simulation of single bytes in ``test_ledger_cache.py``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ironlaw.measure.ledger_cache import CacheModel

LINE, KB, MB = 64, 1 << 10, 1 << 20
CAPACITY, WAYS = MB, 16
TOLERANCE = 0.02
"""Of the misses: stack, library code and conflicts in sets are in cachegrind's numbers alone."""
MISSING = [tool for tool in ("valgrind", "cc") if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]


def copy(size, times):
    return [("from", size), ("to", size)] * times


def saxpy(size, buffers, times):
    return [touch for k in range(buffers) for touch in (("x", size), (k, size))] * times


def sweep(size, buffers, times):
    return [(k, size) for k in range(buffers)] * times


def turn(size, buffers, times):
    there = sweep(size, buffers, 1)
    return [touch for t in range(times) for touch in (there[::-1] if t % 2 else there)]


def product(rows, deep, wide, block):
    return [
        touch
        for start in range(0, deep, block)
        for i in range(rows)
        for touch in ((("a", i, start), 4 * block), (("b", start), 4 * block * wide), (("c", i), 4 * wide))
    ]


KERNELS = {
    "copy inside": (copy, (256 * KB, 4)),
    "copy outside": (copy, (768 * KB, 4)),
    "copy far outside": (copy, (4 * MB, 2)),
    "saxpy inside": (saxpy, (128 * KB, 6, 3)),
    "saxpy keeps x alone": (saxpy, (256 * KB, 8, 3)),
    "saxpy outside": (saxpy, (1536 * KB, 2, 2)),
    "sweep inside": (sweep, (192 * KB, 5, 4)),
    "sweep just outside": (sweep, (192 * KB, 6, 4)),
    "turn finds what it left": (turn, (192 * KB, 8, 4)),
    "product": (product, (8, 512, 1024, 512)),
    "product in blocks": (product, (8, 512, 1024, 64)),
    "product of a small matrix": (product, (16, 256, 512, 256)),
}


def modelled(touches):
    model = CacheModel(CAPACITY)
    return sum(model.read(key, size) for key, size in touches)


@pytest.fixture(scope="module")
def missed(tmp_path_factory):
    """Bytes of last-level data misses of a kernel, net of a run that does nothing."""
    folder = tmp_path_factory.mktemp("cachegrind")
    program = folder / "kernels"
    source = Path(__file__).with_name("cache_kernels.c")
    subprocess.run(["cc", "-O1", "-o", str(program), str(source)], check=True)

    def run(*words: str | int) -> int:
        counts = folder / "counts"
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={counts}"]
        command += [f"--LL={CAPACITY},{WAYS},{LINE}", f"--D1=8192,4,{LINE}", f"--I1=32768,8,{LINE}", str(program)]
        subprocess.run([*command, *map(str, words)], check=True, capture_output=True, timeout=120)
        lines = dict(line.split(": ", 1) for line in counts.read_text().splitlines() if ": " in line)
        found = dict(zip(lines["events"].split(), map(int, lines["summary"].split()), strict=True))
        return LINE * (found["DLmr"] + found["DLmw"])

    start = run("nothing")
    return lambda *words: run(*words) - start


@pytest.mark.parametrize("name", KERNELS)
def test_misses_of_the_last_level_are_those_of_valgrind(name, missed):
    touches, shape = KERNELS[name]
    assert modelled(touches(*shape)) == pytest.approx(missed(touches.__name__, *shape), rel=TOLERANCE)


def test_the_kernels_are_on_both_sides_of_the_capacity():
    """So that agreement says something: some keep everything, some nothing, some a part."""
    kept = {}
    for name, (touches, shape) in KERNELS.items():
        found = touches(*shape)
        whole = sum(size for _, size in found)
        first = sum(dict(found).values())
        kept[name] = (whole - modelled(found)) / (whole - first)
    assert kept["sweep inside"] == kept["copy inside"] == kept["product in blocks"] == 1.0
    assert kept["sweep just outside"] == kept["copy outside"] == 0.0
    assert 0.2 < kept["turn finds what it left"] < 0.8
    assert 0.4 < kept["saxpy keeps x alone"] < 0.6
