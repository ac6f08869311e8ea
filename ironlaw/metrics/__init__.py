"""Ready metrics for ``evaluate``, and the per-example scores that make quality tests paired.

A single number says little about a small drop: the judge (:mod:`ironlaw.verify.quality`) pairs the scores
of baseline and candidate example by example. So every ready metric returns :class:`Scores`; a plain function
may return a 1-D array (one score an example, aggregated by the mean) or one float (then the judge can only
bound the drop by the disagreements that it saw). Two kinds exist: *labelled* metrics compare with the
labels, *fidelity* metrics with the baseline's own outputs, which the judge records once
(:func:`reference_of`) and passes back (:func:`score`). Refused: NaN scores, scores of another shape.

labelled    against labels                    ready      a metric that walks its batches
fidelity    against the baseline's outputs    scores     what a metric answers
scoring     asks any evaluate                 arrays     inputs and outputs as arrays
"""

from __future__ import annotations

from ironlaw.metrics.arrays import Array, as_array, leaves
from ironlaw.metrics.fidelity import cosine_fidelity, cosine_fidelity_of, sqnr_db
from ironlaw.metrics.labelled import perplexity, regression_error, top1
from ironlaw.metrics.ready import Predict, Ready, Stop
from ironlaw.metrics.scores import AGGREGATES, SQNR_LIMIT_DB, Scalar, Scores
from ironlaw.metrics.scoring import disagreements, reference_of, score

__all__ = [
    "AGGREGATES",
    "SQNR_LIMIT_DB",
    "Array",
    "Predict",
    "Ready",
    "Scalar",
    "Scores",
    "Stop",
    "as_array",
    "cosine_fidelity",
    "cosine_fidelity_of",
    "disagreements",
    "leaves",
    "perplexity",
    "reference_of",
    "regression_error",
    "score",
    "sqnr_db",
    "top1",
]
