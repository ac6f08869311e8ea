"""``ironlaw lint``: names mistakes of timing in a benchmark script, from its syntax alone. Nothing is run.

Why from the syntax: the mistakes are in what is written (a clock that jumps, a copy between two reads of it), and a
script need not be installable to be read. It follows names and, one level deep, functions of the same file; what it
cannot see it does not claim. Only the standard library is used.

rules     every rule: why it matters, what to write instead; the record of a mistake
source    a parsed file: imports, functions, constants, where each statement stands
regions   what is timed: between two reads of a clock, under a timer, by timeit
history   what ran before a region, and whether that warmed it up
samples   how often a region is timed, and what is told of its spread
contents  what lies inside a region and should not
models    gradients and training mode in a timed model
words     names that rules look for
linting   the rules in order
showing   mistakes as text and as data
"""

from ironlaw.linting.linting import lint_file, lint_text
from ironlaw.linting.rules import RULES, Mistake, Rule
from ironlaw.linting.showing import as_data, in_words

__all__ = ["RULES", "Mistake", "Rule", "as_data", "in_words", "lint_file", "lint_text"]
