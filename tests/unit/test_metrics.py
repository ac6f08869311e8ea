"""Ready metrics against other libraries and closed forms; how answers of evaluate are read."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, root_mean_squared_error
from torch.nn.functional import cross_entropy

from ironlaw import metrics
from ironlaw.metrics import Scalar, Scores
from ironlaw.records import UserError

RNG = np.random.default_rng(3)


def test_top1_against_scikit_learn():
    logits, labels = RNG.normal(size=(101, 7)), RNG.integers(0, 7, 101)
    found = metrics.top1(logits, labels, batch_size=16)(lambda x: x)
    assert found.value == pytest.approx(accuracy_score(labels, logits.argmax(1)))
    assert found.binary
    assert len(found.values) == 101


def test_top1_takes_class_numbers_tensors_and_keywords():
    labels = torch.tensor([1, 0, 2])
    assert metrics.top1(torch.tensor([1, 0, 0]), labels)(lambda x: x).value == pytest.approx(2 / 3)
    inputs = {"a": torch.eye(3), "b": torch.zeros(3, 3)}
    found = metrics.top1(inputs, labels, batch_size=2)(lambda a, b: {"logits": a + b})
    assert found.values.tolist() == [0.0, 0.0, 1.0]


def test_rmse_against_scikit_learn():
    guesses, truth = RNG.normal(size=(50, 3)), RNG.normal(size=(50, 3))
    found = metrics.regression_error(guesses, truth, batch_size=8)(lambda x: x)
    pooled = root_mean_squared_error(truth.ravel(), guesses.ravel())
    assert found.value == pytest.approx(pooled)
    assert not found.higher_is_better


def test_perplexity_against_torch():
    logits, labels = torch.randn(4, 6, 11), torch.randint(0, 11, (4, 6))
    found = metrics.perplexity([(logits[:2],), (logits[2:],)], [labels[:2], labels[2:]])(lambda x: x)
    assert found.value == pytest.approx(math.exp(cross_entropy(logits.flatten(0, 1), labels.flatten())), rel=1e-5)


def test_perplexity_ignores_padding():
    logits, labels = torch.randn(1, 6, 11), torch.randint(0, 11, (1, 6))
    labels[0, 4:] = -100
    found = metrics.perplexity([logits], [labels])(lambda x: x)
    assert found.value == pytest.approx(math.exp(cross_entropy(logits[0], labels[0])), rel=1e-5)


@given(st.floats(0.01, 0.5), st.integers(2, 30))
def test_sqnr_is_pooled_signal_over_noise(level, examples):
    rng = np.random.default_rng(examples)
    clean = rng.normal(size=(examples, 9))
    noise = level * rng.normal(size=clean.shape)
    metric = metrics.sqnr_db(np.arange(examples), batch_size=4)
    reference = metric.reference(lambda i: clean[i])
    found = metric.scores(lambda i: (clean + noise)[i], reference)
    assert found.value == pytest.approx(10 * math.log10((clean**2).sum() / (noise**2).sum()))


def test_fidelity_of_the_baseline_to_itself():
    inputs = RNG.normal(size=(10, 4))
    assert metrics.sqnr_db(inputs)(np.sin).value == pytest.approx(metrics.SQNR_LIMIT_DB)
    assert metrics.cosine_fidelity(inputs)(np.sin).values.tolist() == [1.0] * 10


def test_cosine_flattens_all_outputs_of_an_example():
    first, second = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(5, 4))
    metric = metrics.cosine_fidelity(np.arange(5))
    reference = metric.reference(lambda i: (first[i], second[i]))
    found = metric.scores(lambda i: (2 * first[i], second[i]), reference)
    a = np.concatenate([2 * first.reshape(5, -1), second], 1)
    b = np.concatenate([first.reshape(5, -1), second], 1)
    assert found.values == pytest.approx((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


def test_nan_outputs_give_nan_scores():
    metric = metrics.sqnr_db(np.ones((3, 2)))
    reference = metric.reference(lambda x: x)
    assert not metric.scores(lambda x: x * np.nan, reference).finite
    metric = metrics.cosine_fidelity(np.ones((3, 2)))
    assert not metric.scores(lambda x: x * np.nan, metric.reference(lambda x: x)).finite


def test_stop_ends_the_pass_and_keeps_order():
    calls = []
    metric = metrics.top1(np.eye(10), np.arange(10), batch_size=2)
    found = metric.scores(lambda x: calls.append(1) or x, stop=lambda partial: len(partial.values) >= 4)
    assert len(calls) == 2
    assert len(found.values) == 4


@pytest.mark.parametrize(
    ("answer", "value"),
    [(0.5, 0.5), (np.float32(0.5), 0.5), (torch.tensor(0.5), 0.5), (1, 1.0)],
)
def test_numbers_become_scalars(answer, value):
    assert metrics.score(lambda p: answer, None, metric="accuracy") == Scalar(value=value, metric="accuracy")


@pytest.mark.parametrize("answer", [[1, 0, 1, 1], np.array([1.0, 0, 1, 1]), torch.tensor([1, 0, 1, 1])])
def test_one_dimension_becomes_scores(answer):
    found = metrics.score(lambda p: answer, None, metric="m", higher_is_better=False)
    assert found.value == pytest.approx(0.75)
    assert not found.higher_is_better


@pytest.mark.parametrize("answer", ["good", None, {"a": 1}, np.ones((2, 2)), [], [[1.0], [2.0, 3.0]]])
def test_other_answers_are_refused(answer):
    with pytest.raises(UserError):
        metrics.score(lambda p: answer, None)


def test_labels_and_lengths_must_fit():
    with pytest.raises(UserError, match="5 labels"):
        metrics.top1(np.ones((4, 2)), np.ones(5, int))
    with pytest.raises(UserError, match=r"\[3, 4\]"):
        metrics.top1((np.ones((4, 2)), np.ones((3, 2))), np.ones(4, int))
    with pytest.raises(UserError):
        metrics.top1(np.ones((0, 2)), np.ones(0, int))


def test_aggregates():
    assert Scores(values=np.array([9.0, 16.0]), metric="m", aggregate="rmse").value == pytest.approx(math.sqrt(12.5))
    assert Scores(values=np.array([0.0, 2.0]), metric="m", aggregate="exp_mean").value == pytest.approx(math.e)
    with pytest.raises(UserError):
        Scores(values=np.ones(2), metric="m", aggregate="median")


def test_disagreements_count_changed_decisions():
    before = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 2.9]])
    after = np.array([[9.0, 1.0], [0.0, 0.1], [2.9, 3.0]])
    assert metrics.disagreements([before], [after]).tolist() == [False, False, True]
    assert metrics.disagreements([np.ones(4)], [np.array([1.0, 1.0001, 1.1, np.nan])]).tolist() == [
        False,
        False,
        True,
        True,
    ]
