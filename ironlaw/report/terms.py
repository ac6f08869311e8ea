"""Where the time goes, before and after: the terms as stacked bars that sum to the measured time.

Two views: seconds, on one scale, so that the gain can be seen; shares, so that the small bar can be
read. A negative residual (the laws explain more than was measured) has no length: the table says it.
"""

from __future__ import annotations

from markupsafe import Markup

from ironlaw.records import Diagnosis, Run, Term
from ironlaw.report import svg, units, words

BAR = 46.0
GAP = 34.0


def rows(run: Run) -> list[tuple[str, Diagnosis]]:
    """The diagnoses to show, with what they are of."""
    found = [("before", run.diagnosis)]
    if run.best_diagnosis is not None and run.best != run.baseline.id:
        found.append(("after", run.best_diagnosis))
    return found


def draw(run: Run, size: svg.Size, *, share: bool) -> Markup:
    """The bars at one size, in seconds or as shares of each total."""
    shown = rows(run)
    small = svg.Size(name=size.name, width=size.width, height=28 + len(shown) * (BAR + GAP) - GAP)
    left, right = 4.0, size.width - 4.0
    longest = max(_positive(d) for _, d in shown)
    parts = []
    for index, (name, diagnosis) in enumerate(shown):
        top = 24 + index * (BAR + GAP)
        whole = _positive(diagnosis) if share else longest
        whole_time = f"{units.seconds(diagnosis.total_s)} a {units.call_or_step(diagnosis)}"
        parts.append(svg.text(left, top - 7, f"{name}: {whole_time}", "title"))
        at = left
        for term in words.terms_in_order(*(d for _, d in shown)):
            width = max(diagnosis.seconds(term), 0.0) / whole * (right - left) if whole else 0.0
            if width > 0:
                parts.append(_segment(diagnosis, term, at, top, width))
            at += width
    kind = "shares" if share else "seconds"
    return svg.chart(small, f"Terms of the time in {kind}", *parts)


def _positive(diagnosis: Diagnosis) -> float:
    return sum(max(t.seconds.value, 0.0) for t in diagnosis.terms)


def _segment(diagnosis: Diagnosis, term: Term, x: float, y: float, width: float) -> Markup:
    seconds = diagnosis.seconds(term)
    share = units.percent(diagnosis.share(term))
    lines = f"{term}\n{units.seconds(seconds)}, {share} of {units.seconds(diagnosis.total_s)}"
    bar = svg.element("rect", x=x, y=y, width=max(width - 1.5, 0.5), height=BAR, class_=f"term-{term}")
    parts = [bar]
    if term == Term.RESIDUAL:
        parts.append(svg.element("rect", x=x, y=y, width=max(width - 1.5, 0.5), height=BAR, class_="hatch"))
    if width > len(term) * svg.BOLD + 12:
        parts.append(svg.text(x + 7, y + 20, str(term), "in-bar strong"))
        parts.append(svg.text(x + 7, y + 36, share, "in-bar"))
    elif width > 12:
        parts.append(svg.text(x + width / 2 - 0.75, y + 28, _KEY[term], "in-bar", "middle"))
    return svg.element(
        "g", *parts, class_="segment", tabindex="0", role="img", data_tip=lines, aria_label=lines.replace("\n", ": ")
    )


_KEY = {
    Term.MEMORY: "m",
    Term.COMPUTE: "c",
    Term.LATENCY: "l",
    Term.PAGING: "p",
    Term.IO: "i",
    Term.COMM: "co",
    Term.SYNC: "sy",
    Term.SERIAL: "se",
    Term.RESIDUAL: "r",
}
"""Letters for segments that are too narrow for their name; the table spells them out."""


def key(term: Term) -> str:
    return _KEY[term]
