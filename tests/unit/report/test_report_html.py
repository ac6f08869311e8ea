"""The page: complete, well formed, self-contained, and text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser

import factory
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from ironlaw.records import Run
from ironlaw.report.data import run_data, schema
from ironlaw.report.html import render, tight

VOID = {"meta", "link", "input", "br", "img", "wbr"}


class Page(HTMLParser):
    """Checks nesting and collects what tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] in ("script", "style"):
            self.scripts.append(data)
        else:
            self.text.append(data)


@pytest.mark.parametrize("make", factory.EVERY.values(), ids=factory.EVERY)
def test_every_kind_of_run_renders_well_formed_and_asks_for_nothing_outside(make: Callable[[], Run]) -> None:
    text = render(make())
    page = Page(text)
    assert text.lower().startswith("<!doctype html>")
    assert not re.search(r"""(?:https?:)?//[a-z0-9]""", text.split('<script type="application/json"')[0], re.I)
    for _, name, value in page.attributes:
        if name in ("href", "src"):
            assert value.startswith("#") or value == "data:,"
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")}
    assert targets <= set(ids), "every link on the page leads somewhere"
    assert not any(name == "style" or name.startswith("on") for _, name, _ in page.attributes)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(run=factory.runs())
def test_any_run_renders(run: Run) -> None:
    Page(render(run))


def test_hostile_text_stays_text() -> None:
    text = render(factory.hostile_run())
    page = Page(text)
    plain = Page(render(factory.full_run(trials=factory.trials()[:1], best="t01")))
    assert page.tags["script"] == plain.tags["script"] == 2
    assert page.tags["img"] == 0
    assert "{{7*7}}" in "".join(page.text), "templates are not evaluated twice"
    assert "<script>window.hacked" not in text
    assert "\u202e" not in text, "nothing turns our own words around"
    assert not any(name.startswith("on") for _, name, _ in page.attributes)


def test_the_policy_names_the_very_script_and_style() -> None:
    text = render(factory.full_run())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    allowed = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in allowed
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        (content,) = re.findall(pattern, text, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in allowed


@pytest.mark.parametrize("make", factory.EVERY.values(), ids=factory.EVERY)
def test_the_public_json_lies_inside(make: Callable[[], Run]) -> None:
    text = render(make())
    (payload,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    data = json.loads(payload)
    assert data == run_data(make())
    jsonschema.Draft202012Validator(schema("run-1")).validate(data)


def test_every_trial_and_refusal_is_there_with_its_reason() -> None:
    run = factory.full_run()
    text = " ".join("".join(Page(render(run)).text).replace("\u00a0", " ").split())
    for trial in run.trials:
        assert trial.reason in text
        for change in trial.changes:
            assert change.lever in text
    for refusal in run.refused:
        assert refusal.lever in text
        assert refusal.reason in text
    for expected in (
        "6.60× faster", "95 % interval 6.43–6.76×", "49 of 50 eligible operators converted",
        "aten::adaptive_avg_pool2d", "OMP_NUM_THREADS", "onnxruntime1.32.0", "p99 needs 459 samples",
        "81.0 mJ, modelled", "11 of 11 measured gains", "session = ort.InferenceSession",
        "a neighbour took 12 % of the CPU", "1,571 minor faults a call",
    ):  # fmt: skip
        assert expected in text, expected


def test_words_come_before_charts() -> None:
    text = render(factory.full_run())
    order = [text.index(part) for part in ('id="summary"', "What limited it", 'id="frontier"', '<svg viewBox="0 0 880')]
    assert order == sorted(order)


def test_every_control_has_a_name_and_every_table_has_headers() -> None:
    text = render(factory.full_run())
    assert text.count("<table") == text.count("<thead")
    assert '<html lang="en">' in text
    assert "width=device-width" in text
    for svg in re.findall(r'<svg viewBox="0 0 (?:880|350)[^>]*>', text):
        assert "aria-label=" in svg
    for tag in re.findall(r'<a [^>]*class="point[^>]*>', text) + re.findall(r'<g [^>]*tabindex="0"[^>]*>', text):
        assert "aria-label=" in tag


def test_lone_surrogates_do_not_stop_the_file_from_being_written() -> None:
    assert render(factory.full_run(name="model\udcff")).encode("utf-8")


def test_numbers_hold_together_with_their_units() -> None:
    assert tight("2.61 ms to 12 % of 5 MB/s, 3 of 4 same") == "2.61\u00a0ms to 12\u00a0% of 5\u00a0MB/s, 3 of 4 same"
