"""The catalogue: it matches its functions, its page is current, and it refuses with all that is wrong."""

import inspect
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironlaw.laws import catalogue
from ironlaw.laws.law import Input

LAWS = catalogue.laws()
PAGE = Path(__file__).parents[3] / "docs" / "laws.md"
ISSUE = """
roofline ridge iron-law-serial iron-law-overlapped amdahl gustafson karp-flatt usl work-span brent efficiency
gemm conv2d attention little mm1 md1 mdc mmc allreduce-ring allreduce-tree allreduce-halving
allreduce-butterfly bubble training-state event-energy
"""


def test_worked_examples_of_the_papers():
    assert catalogue.compute("amdahl", {"p": 0.95, "s": 100})["result"] == pytest.approx(16.8, abs=0.05)
    assert catalogue.compute("amdahl", {"p": "0.8", "s": "100"})["result"] == pytest.approx(4.8, abs=0.05)
    answer = catalogue.compute("usl-fit", {"workers": "1,2,4", "throughputs": [10, 19, 34]})
    assert set(answer["result"]) >= {"gamma", "sigma", "kappa"}


def test_every_law_that_was_asked_for_is_there():
    assert set(ISSUE.split()) <= set(LAWS)


@pytest.mark.parametrize("name", LAWS)
def test_declared_as_it_is(name):
    law = LAWS[name]
    answer = catalogue.compute(name, dict(law.example))
    assert list(answer) == ["law", "inputs", "result", "unit", "valid_while", "source"]
    json.dumps(answer, allow_nan=False)
    assert answer["inputs"].keys() == {i.name for i in law.inputs}
    assert law.unit
    assert len(law.valid_while) > 20
    assert any(c.isdigit() for c in law.source) or "mlsysbook" in law.source
    parameters = inspect.signature(law.function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        assert {i.name for i in law.inputs} <= set(parameters)
        for item in law.inputs:
            default = parameters[item.name].default
            if default is not inspect.Parameter.empty and item.default is not None:
                assert item.default == default


@pytest.mark.parametrize("name", LAWS)
def test_each_bound_of_each_input_holds(name):
    """A value just outside its declared range is refused by name; a missing required input as well."""
    law = LAWS[name]
    for item in law.inputs:
        outside = {-1: item.low - 1, 1: item.high + 1}
        for value in outside.values():
            if abs(value) == float("inf"):
                continue
            with pytest.raises(ValueError, match=item.name):
                catalogue.compute(name, {**dict(law.example), item.name: [value] if item.many else value})
        if item.default is None:
            given_ = {k: v for k, v in law.example if k != item.name}
            with pytest.raises(ValueError, match=f"{item.name} is missing"):
                catalogue.compute(name, given_)


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_answers_are_finite_or_refused(name, data):
    """Whatever lies in the declared ranges gives a finite number or a ValueError, never anything else."""
    inputs = {i.name: data.draw(_values(i)) for i in LAWS[name].inputs}
    try:
        answer = catalogue.compute(name, inputs)
    except ValueError as error:
        assert str(error).startswith(f"law {name}: ")  # noqa: PT017
        return
    json.dumps(answer, allow_nan=False)


def _values(item: Input):
    if item.choices:
        return st.sampled_from(item.choices)
    low, high = max(item.low, -1e6), min(item.high, 200 if item.whole else 1e6)
    one = (
        st.integers(int(low), int(high))
        if item.whole
        else st.floats(low, high, exclude_min=item.above, exclude_max=item.below)
    )
    return st.lists(one, min_size=1, max_size=5) if item.many else one


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match="law amdahl") as error:
        catalogue.compute("amdahl", {"p": 2, "q": 1})
    text = str(error.value)
    assert "q is not an input" in text
    assert "p must be in [0, 1], got 2" in text
    assert "s is missing (how many times faster that share gets; 1; above 0)" in text
    assert text.endswith("Its inputs: p, s")


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("amdal", {}, "no law is called 'amdal': did you mean amdahl"),
        ("zzz", {}, "the laws are roofline, ridge"),
        ("amdahl", {"p": "much", "s": 2}, "p must be a number, got 'much'"),
        ("amdahl", {"p": True, "s": 2}, "p must be a number, got True"),
        ("amdahl", {"p": 0.5, "s": "inf"}, "s must be a finite number"),
        ("mmc", {"arrival_per_s": 1, "service_s": 1, "servers": 1.5}, "servers must be whole, at least 1, got 1.5"),
        ("mm1", {"arrival_per_s": 20, "service_s": 0.1}, "law mm1: the queue is not stable"),
        ("attention", {"fused": "maybe"}, "fused must be one of yes, no, got 'maybe'"),
        ("usl-fit", {"workers": 3, "throughputs": "1,2,x"}, "workers must be a list of numbers, got 3"),
    ],
)
def test_refusals(name, inputs, message):
    with pytest.raises(ValueError, match=message.replace("'", ".")):
        catalogue.compute(name, inputs)


def test_yes_and_no_reach_the_function():
    shape = {"batch": 1, "heads": 2, "queries": 8, "keys": 8, "head_dim": 4}
    plain, causal = (catalogue.compute("attention", {**shape, "causal": c})["result"]["flops"] for c in ("no", "yes"))
    assert causal == plain * 36 / 64


def test_the_committed_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == catalogue.markdown(), (
        "run: python -m ironlaw.laws.catalogue > docs/laws.md"
    )


def test_the_page_holds_every_law_in_tables_that_render():
    page = catalogue.markdown()
    assert all(f"### `{name}`: " in page for name in LAWS)
    for line in page.splitlines():
        if line.startswith("| `"):
            assert line.count("|") == 6, line
    assert [row["law"] for row in catalogue.listing()] == list(LAWS)
