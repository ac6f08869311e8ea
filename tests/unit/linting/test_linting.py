"""The rules on a corpus of scripts: the sick ones say in comments what is wrong where, the clean twins say nothing."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.linting import RULES, lint_file, lint_text
from ironlaw.records import UserError

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.py"))
SICK = [path for path in CORPUS if path.name.startswith("sick_")]
_EXPECTED = re.compile(r"#\s*mistake:\s*(.+)$")


def expected(path: Path) -> set[tuple[int, str]]:
    found = set()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if match := _EXPECTED.search(line):
            found |= {(number, rule.strip()) for rule in match.group(1).split(",")}
    return found


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_each_script_gives_exactly_its_mistakes(path: Path) -> None:
    found = lint_file(path)
    assert {(one.line, one.rule) for one in found} == expected(path)
    assert bool(found) == path.name.startswith("sick_")


def test_the_corpus_has_twins_and_meets_every_rule() -> None:
    assert len(SICK) >= 6
    for path in SICK:
        assert path.with_name(path.name.replace("sick_", "clean_")).exists()
    assert {rule for path in SICK for _, rule in expected(path)} == set(RULES)


def test_mistakes_say_why_and_what_to_write_instead() -> None:
    for one in (mistake for path in SICK for mistake in lint_file(path)):
        assert one.why == RULES[one.rule].why
        assert one.instead == RULES[one.rule].instead
        assert one.message


def rules_of(code: str) -> list[str]:
    return sorted(one.rule for one in lint_text(textwrap.dedent(code)))


TIMED = """
import time, torch
net = torch.nn.ReLU().eval()
x = torch.ones(3)
{before}
with torch.no_grad():
    times = []
    for i in range({count}):
        {first}
        t = time.perf_counter()
        net(x)
        times.append(time.perf_counter() - t)
{after}
"""


def timed(
    before: str = "net(x)", count: str = "30", first: str = "pass", after: str = "print(sorted(times))"
) -> list[str]:
    return rules_of(TIMED.format(before=before, count=count, first=first, after=after))


def test_the_template_is_clean() -> None:
    assert timed() == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"before": ""}, "no-warm-up"),
        ({"before": "def later():\n    net(x)"}, "no-warm-up"),
        ({"count": "9"}, "few-samples"),
        ({"before": "N = 4\nnet(x)", "count": "N"}, "few-samples"),
        ({"after": "print(torch.tensor(times).mean())"}, "mean-only"),
    ],
)
def test_one_change_brings_one_mistake(change: dict[str, str], rule: str) -> None:
    assert timed(**change) == [rule]


@pytest.mark.parametrize(
    "change",
    [
        {"before": "", "after": "print(sorted(times[3:]))"},
        {"before": "", "first": "if i < 5: net(x); continue"},
        {"before": "for _ in range(5): net(x)"},
        {"before": "def warm_up():\n    net(x)\nwarm_up()"},
        {"before": "def prepare():\n    return net(x)\nprepare()"},
        {"before": "N = 10\nnet(x)", "count": "N"},
        {"count": "len(x)"},
        {"after": "print(torch.tensor(times).mean(), torch.tensor(times).std())"},
    ],
)
def test_other_ways_to_do_it_well(change: dict[str, str]) -> None:
    assert timed(**change) == []


def test_a_caller_may_warm_up() -> None:
    code = """
    import time
    def measure(fn, x):
        t = time.perf_counter()
        fn(x)
        return time.perf_counter() - t
    {before}
    print(sorted(measure(work, 1) for _ in range(20)))
    """
    assert rules_of(code.format(before="work(1)")) == []
    assert rules_of(code.format(before="measure(work, 1)")) == []
    assert rules_of(code.format(before="other(1)")) == ["no-warm-up"]


def test_who_calls_from_elsewhere_may_have_warmed_up() -> None:
    code = """
    import time
    def measure(fn, x, runs=0):
        t = time.perf_counter()
        for _ in range(runs):
            {what}(x)
        return time.perf_counter() - t
    """
    assert rules_of(code.format(what="fn")) == []
    assert rules_of(code.format(what="work")) == ["no-warm-up"]


def test_loading_once_is_a_measurement_of_its_own() -> None:
    code = """
    import time, torch
    t = time.perf_counter()
    model = AutoModel.from_pretrained("x").to("cuda")
    print("loaded in", time.perf_counter() - t)
    """
    assert rules_of(code) == []
    assert rules_of(code.replace("perf_counter", "time")) == ["wall-clock"]


def test_a_session_of_onnx_runtime_waits_by_itself() -> None:
    code = """
    import time, {module}
    session.run(None, feed)
    for _ in range(20):
        t = time.perf_counter()
        session.run(None, feed)
        samples.append(time.perf_counter() - t)
    samples.sort()
    providers = ["cuda"]
    """
    assert rules_of(code.format(module="onnxruntime")) == []
    assert rules_of(code.format(module="torch")) == ["no-synchronisation"]


USUAL = """
import argparse, time
import torch

class Bench:
    def __init__(self, args):
        self.args, self.model = args, Net(){eval}.cuda()
        self.x = torch.randn(1, 3, 224, 224).cuda()

    {decorator}
    def run(self):
        for _ in range(self.args.warmup):
            self.model(self.x)
        {wait}
        samples = []
        for _ in range(self.args.runs):
            begin = time.perf_counter()
            self.model(self.x)
            {wait}
            samples.append(time.perf_counter() - begin)
        return sorted(samples)

if __name__ == "__main__":
    print(Bench(argparse.ArgumentParser().parse_args()).run())
"""


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, []),
        ({"eval": ""}, ["train-mode"]),
        ({"decorator": ""}, ["grad-on"]),
        ({"wait": "pass"}, ["no-synchronisation"]),
    ],
)
def test_a_benchmark_in_a_class(change: dict[str, str], rules: list[str]) -> None:
    good = {"eval": ".eval()", "decorator": "@torch.no_grad()", "wait": "torch.cuda.synchronize()"}
    assert rules_of(USUAL.format(**{**good, **change})) == rules


def test_waiting_after_the_clock_has_stopped_is_too_late() -> None:
    code = """
    import time, torch
    f(x.cuda())
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(100):
        f(x)
    {early}
    end = time.perf_counter()
    torch.cuda.synchronize()
    print((end - start) / 100, max(x))
    """
    assert rules_of(code.format(early="torch.cuda.synchronize()")) == []
    assert rules_of(code.format(early="")) == ["no-synchronisation"]


@pytest.mark.parametrize("compiler", ["torch.compile", "torch.compile(dynamic=True)", "torch.jit.script"])
def test_a_decorated_function_is_compiled_by_its_first_call(compiler: str) -> None:
    code = f"""
    import time, torch
    @{compiler}
    def f(x):
        return x + 1
    {{before}}
    for _ in range(20):
        t = time.perf_counter()
        f(x)
        samples.append(time.perf_counter() - t)
    samples.sort()
    """
    assert rules_of(code.format(before="")) == ["compile-inside"]
    assert rules_of(code.format(before="f(x)")) == []


def test_a_total_around_samples_is_not_a_measurement() -> None:
    code = """
    import time
    begun = time.time()
    work()
    print("start")
    for _ in range(20):
        t = time.perf_counter()
        work()
        samples.append(time.perf_counter() - t)
    print("in all", time.time() - begun, sorted(samples))
    """
    assert rules_of(code) == []


def test_a_wait_inside_a_function_of_the_file_counts() -> None:
    code = """
    import time, torch
    def forward():
        y = x.cuda() @ w
        {wait}
    x = w = torch.ones(3, 3, device="cuda")
    forward()
    torch.cuda.synchronize()
    for _ in range(20):
        t = time.perf_counter()
        forward()
        samples.append(time.perf_counter() - t)
    samples.sort()
    """
    assert rules_of(code.format(wait="torch.cuda.synchronize()")) == ["copy-inside"]
    assert rules_of(code.format(wait="pass")) == ["copy-inside", "no-synchronisation"]


def test_jax_returns_before_it_is_done() -> None:
    code = """
    import time, jax
    f = jax.jit(g)
    f(x).block_until_ready()
    for _ in range(20):
        t = time.perf_counter()
        f(x){wait}
        samples.append(time.perf_counter() - t)
    samples.sort()
    """
    assert rules_of(code.format(wait=".block_until_ready()")) == []
    assert rules_of(code.format(wait="")) == ["no-synchronisation"]


@pytest.mark.parametrize(
    "cast", ["torch.float16", "dtype=torch.float16", "x.dtype", "memory_format=torch.channels_last"]
)
def test_a_cast_is_no_copy_between_devices(cast: str) -> None:
    code = f"""
    import time, torch
    f(x)
    for _ in range(20):
        t = time.perf_counter()
        f(x.to({cast}))
        samples.append(time.perf_counter() - t)
    samples.sort()
    """
    assert rules_of(code) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", "def f(:", "line 1"),
        ("a.py", "x = 1\0", "is not Python"),
        ("a.txt", "time flies\nlike an arrow", "line 1"),
    ],
)
def test_what_is_not_python_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=said) as caught:
        lint_file(path)
    assert caught.value.exit_code == 2


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        lint_file(tmp_path / "missing.py")
    with pytest.raises(UserError, match="cannot be read"):
        lint_file(tmp_path)
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    with pytest.raises(UserError, match="cannot be read"):
        lint_file(tmp_path / "latin.py")


LINES = [
    "t = time.time()",
    "f(x)",
    "e = time.time() - t",
    "with Timer():",
    "    f(x)",
    "for i in range(3):",
    "    t = time.time()",
]
LINES += [
    "    time.time() - t",
    "def g(a=3):",
    "    return f(a)",
    "class A:",
    "    x: int = 1",
    "timeit.timeit(g, number=2)",
]


@settings(max_examples=60, deadline=None)
@given(chosen=st.lists(st.sampled_from(LINES), max_size=12))
def test_no_script_that_python_reads_is_too_odd(chosen: list[str]) -> None:
    text = "\n".join(["import time, timeit", *chosen])
    try:
        compile(text, "x", "exec")
    except SyntaxError:
        return
    found = lint_text(text)
    assert all(1 <= one.line <= len(text.splitlines()) for one in found)


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "ironlaw").rglob("*.py"))[::7], ids=str)
def test_real_code_can_be_read(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert all(1 <= one.line <= lines for one in lint_file(path))
