"""Metrics against the baseline's own outputs: where there are no labels, or where the outputs are what counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ironlaw.metrics.arrays import Array, call_form, cut
from ironlaw.metrics.ready import Ready


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Fidelity(Ready):
    rule: Callable[[Array, Array, float], Array]

    def of_batch(self, outputs: list[Array], index: int, reference: list[list[Array]] | None) -> Array:
        assert reference is not None, "fidelity needs the baseline's outputs"
        return self.rule(_rows(outputs), _rows(reference[index]), _mean_energy(reference))


def cosine_fidelity(inputs: Any, batch_size: int = 64) -> Ready:
    """Cosine between an example's outputs (all of them, flattened) and the baseline's: 1 is the same."""
    return cosine_fidelity_of(cut(inputs, batch_size))


def cosine_fidelity_of(batches: Sequence[Any]) -> Ready:
    """:func:`cosine_fidelity` on batches that are cut already (their shapes may differ)."""
    return _Fidelity(
        batches=tuple(call_form(b) for b in batches), rule=_cosine, metric="cosine_fidelity", fidelity=True
    )


def sqnr_db(inputs: Any, batch_size: int = 64) -> Ready:
    """Signal to quantisation noise of the outputs against the baseline's, in dB, pooled over examples.

    10·log10(Σ‖r‖² / Σ‖y − r‖²), with r the baseline's outputs. The score of an example is its noise energy
    over the mean signal energy, so that the mean of the scores is the noise-to-signal ratio; a budget in points
    is one on that ratio (1pt is 20 dB), a floor is in dB.
    """
    return _Fidelity(batches=cut(inputs, batch_size), rule=_noise, metric="sqnr_db", aggregate="sqnr_db", fidelity=True)


def _cosine(rows: Array, reference: Array, energy: float) -> Array:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(reference, axis=1)
    same = (rows == reference).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where(norms == 0, 0.0, (rows * reference).sum(1) / norms)
    return np.where(same, 1.0, cosine)


def _noise(rows: Array, reference: Array, energy: float) -> Array:
    noise = ((rows - reference) ** 2).sum(1)
    return np.where(noise == 0, 0.0, noise / energy) if energy > 0 else np.where(noise == 0, 0.0, np.inf)


def _mean_energy(reference: list[list[Array]]) -> float:
    rows = [_rows(outputs) for outputs in reference]
    return float(sum((r**2).sum() for r in rows) / sum(len(r) for r in rows))


def _rows(outputs: list[Array]) -> Array:
    """All outputs of a batch as (examples, numbers); outputs that do not follow the batch make one example."""
    lengths = {o.shape[0] if o.ndim else 0 for o in outputs}
    examples = lengths.pop() if len(lengths) == 1 else 1
    return np.concatenate([o.reshape(examples or 1, -1).astype(np.float64) for o in outputs], axis=1)
