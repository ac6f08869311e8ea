"""The verdict after perturbations: decided, confirmed or taken back, and never on what cannot tell."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironlaw.diagnose.confirming import agrees, confirmed, rivals
from ironlaw.perturbing import by_default
from ironlaw.records import Diagnosis, Interval, Ledger, Perturbation, Term, TermTime, from_json, to_json

LATENCY, MEMORY, COMPUTE = Term.LATENCY, Term.MEMORY, Term.COMPUTE


def span(low: float, high: float) -> Interval:
    return Interval(low=low, value=(low + high) / 2, high=high)


def close(dominant: Term | None = None, **terms: tuple[float, float]) -> Diagnosis:
    """Terms of a call of 1 s by their intervals."""
    return Diagnosis(
        total_s=1.0,
        terms=tuple(TermTime(term=Term(name), seconds=span(*at), evidence="model") for name, at in terms.items()),
        dominant=dominant,
        why="by the terms",
        ledger=Ledger(ops=(), batch=1, source="synthetic"),
        bounds=(),
    )


def says(of: Diagnosis, name: str, term: Term, low: float, high: float) -> Perturbation:
    seconds = span(low, high)
    return Perturbation(name=name, term=term, seconds=seconds, confirms=agrees(of, term, seconds), evidence="measured")


TWO = close(latency=(0.3, 0.6), memory=(0.35, 0.7), residual=(0.0, 0.05))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.4, 0.5, True),
        (0.1, 0.31, True),
        (0.05, 0.1, False),
        (0.8, 0.9, False),
        (0.62, 0.64, True),  # nearer than a twentieth of the call
        (0.0, 0.9, None),
        (0.75, 1.3, False),  # too wide to confirm, but apart
    ],
)
def test_agreement_needs_intervals_that_meet_and_tell(low: float, high: float, expected: bool | None) -> None:
    assert agrees(TWO, LATENCY, span(low, high)) is expected


def test_a_serial_part_bounds_the_latency_only_from_above() -> None:
    assert agrees(TWO, Term.SERIAL, span(0.1, 0.2)) is False
    assert agrees(TWO, Term.SERIAL, span(0.4, 0.5)) is True
    assert agrees(TWO, Term.SERIAL, span(0.8, 0.9)) is None
    assert agrees(TWO, Term.COMM, span(0.1, 0.2)) is None  # the diagnosis has no such term


def test_rivals_are_two_real_terms() -> None:
    assert rivals(TWO) == (MEMORY, LATENCY)
    assert rivals(dataclasses.replace(TWO, dominant=MEMORY)) is None
    assert rivals(close(residual=(0.5, 0.7), memory=(0.3, 0.6))) is None
    assert rivals(close(memory=(0.5, 0.7), residual=(0.3, 0.6))) is None


def test_one_confirmed_and_the_other_refuted_decides() -> None:
    found = confirmed(TWO, [says(TWO, "batch", LATENCY, 0.45, 0.6), says(TWO, "co-runner", MEMORY, 0.1, 0.25)])
    assert found.dominant is LATENCY
    assert "batch" in found.why
    assert "co-runner" in found.why
    assert [one.confirms for one in found.perturbations] == [True, False]
    assert found.terms == TWO.terms


def test_a_measured_majority_decides_alone() -> None:
    """Three quarters are memory's, so at most a quarter is anyone else's, however wide the model was."""
    wide = close(memory=(0.1, 0.8), compute=(0.1, 0.8), residual=(0.0, 0.02))
    assert rivals(wide) is not None
    assert confirmed(wide, [says(wide, "co-runner", MEMORY, 0.65, 0.8)]).dominant is MEMORY


def test_both_confirmed_and_still_close_stays_undetermined() -> None:
    found = confirmed(TWO, [says(TWO, "batch", LATENCY, 0.4, 0.55), says(TWO, "co-runner", MEMORY, 0.4, 0.5)])
    assert found.dominant is None
    assert found.why == TWO.why


def test_a_rival_refuted_for_being_larger_does_not_lose() -> None:
    found = confirmed(TWO, [says(TWO, "batch", LATENCY, 0.3, 0.4), says(TWO, "co-runner", MEMORY, 0.8, 0.9)])
    assert found.dominant is None


def test_refuting_one_without_confirming_the_other_decides_nothing() -> None:
    assert confirmed(TWO, [says(TWO, "co-runner", MEMORY, 0.1, 0.2)]).dominant is None


def test_perturbations_that_contradict_each_other_decide_nothing() -> None:
    both = [says(TWO, "batch", LATENCY, 0.45, 0.6), says(TWO, "tiny", LATENCY, 0.0, 0.1)]
    assert [one.confirms for one in both] == [True, False]
    assert confirmed(TWO, [*both, says(TWO, "co-runner", MEMORY, 0.1, 0.25)]).dominant is None


def test_what_cannot_tell_decides_nothing() -> None:
    silent = Perturbation(name="tiny", term=LATENCY, seconds=None, confirms=None, evidence="not done")
    wide = says(TWO, "batch", LATENCY, 0.0, 0.9)
    found = confirmed(TWO, [silent, wide])
    assert found.dominant is None
    assert found.perturbations == (silent, wide)


def test_a_third_term_in_reach_blocks_the_verdict() -> None:
    three = close(latency=(0.3, 0.5), memory=(0.3, 0.55), residual=(0.0, 0.4))
    answers = [says(three, "batch", LATENCY, 0.3, 0.4), says(three, "co-runner", MEMORY, 0.05, 0.15)]
    assert confirmed(three, answers).dominant is None


def test_a_verdict_is_confirmed_or_taken_back() -> None:
    sure = close(MEMORY, memory=(0.6, 0.7), latency=(0.1, 0.2), residual=(0.1, 0.2))
    kept = confirmed(sure, [says(sure, "co-runner", MEMORY, 0.6, 0.75)])
    assert kept.dominant is MEMORY
    assert "confirmed by perturbation: co-runner" in kept.why
    gone = confirmed(sure, [says(sure, "co-runner", MEMORY, 0.0, 0.1)])
    assert gone.dominant is None
    assert "refute" in gone.why
    assert confirmed(sure, [says(sure, "batch", LATENCY, 0.1, 0.15)]) == dataclasses.replace(
        sure, perturbations=(says(sure, "batch", LATENCY, 0.1, 0.15),)
    )


SHORT = close(COMPUTE, compute=(0.5, 0.65), latency=(0.3, 0.4), memory=(0.02, 0.1))


def test_a_refuted_verdict_goes_to_the_term_that_was_measured_to_be_most_of_the_call() -> None:
    """A call whose time does not grow with the batch: small kernels that only looked like arithmetic."""
    found = confirmed(SHORT, [says(SHORT, "batch", LATENCY, 0.88, 1.0), says(SHORT, "batch", COMPUTE, 0.0, 0.05)])
    assert found.dominant is LATENCY
    assert found.why.startswith("latency, found by perturbation: batch (latency 94% [88%, 100%])")
    assert "refuted: batch (compute 2% [0%, 5%])" in found.why


@pytest.mark.parametrize("low", [0.2, 0.49])
def test_a_refuted_verdict_without_a_majority_is_only_taken_back(low: float) -> None:
    answers = [says(SHORT, "batch", LATENCY, low, 0.9), says(SHORT, "batch", COMPUTE, 0.0, 0.05)]
    assert confirmed(SHORT, answers).dominant is None


def test_two_answers_that_disagree_about_the_other_term_only_take_the_verdict_back() -> None:
    answers = [
        says(SHORT, "batch", LATENCY, 0.88, 1.0),
        says(SHORT, "tiny", LATENCY, 0.1, 0.2),
        says(SHORT, "batch", COMPUTE, 0.0, 0.05),
    ]
    assert confirmed(SHORT, answers).dominant is None


def test_short_calls_that_seem_to_be_work_are_swept_by_default() -> None:
    in_ms = dataclasses.replace(SHORT, total_s=9e-4)
    assert by_default(in_ms) == ("batch",)
    assert by_default(dataclasses.replace(in_ms, dominant=LATENCY)) == ()
    assert by_default(SHORT) == ()
    assert set(by_default(TWO)) == {"batch", "tiny", "threads", "co-runner", "cached"}


shares = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)).map(lambda pair: (min(pair), max(pair)))


@given(
    terms=st.tuples(shares, shares, shares), answers=st.lists(st.tuples(st.sampled_from([0, 1, 2]), shares), max_size=4)
)
def test_only_a_confirmed_term_is_ever_decided(terms, answers) -> None:
    names = (LATENCY, MEMORY, COMPUTE)
    of = close(latency=terms[0], memory=terms[1], compute=terms[2], residual=(0.0, 0.0))
    given_ = [says(of, f"p{i}", names[which], *at) for i, (which, at) in enumerate(answers)]
    found = confirmed(of, given_)
    assert found.perturbations == tuple(given_)
    assert from_json(Diagnosis, to_json(found)) == found
    if found.dominant is not None:
        mine = [one.confirms for one in given_ if one.term is found.dominant]
        assert True in mine
        assert False not in mine
