"""From a ledger, times and measured ceilings to terms that sum to the measured time.

Modules, in the order in which they work:

joining   puts profiled times on counted operators
shares    splits the seconds of each operator: dispatch, page faults, work; and the side of the roofline
terms     adds the shares up to terms with intervals, and the two bounds of the iron law
bounds    what each class of change could give at most, and which are wasted
verdict   the dominant term, or undetermined; the whole diagnosis
training  the same for a training step: input first, then its passes, with the cap of fixing each
loading   silent killers of an input pipeline
killers   silent killers: detectors on the records of one run
elsewhere the same ledger at the published peaks of another machine; fitting: whether it fits there
"""

from __future__ import annotations

from ironlaw.diagnose.joining import merge
from ironlaw.diagnose.verdict import diagnose

__all__ = ["diagnose", "merge"]
