"""The report in a real browser: opens from disk, is worked by mouse and keyboard, stays silent and offline."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))
import factory

from ironlaw.report.html import render

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is missing")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FIRST = "#frontier .view[data-view='quality'] svg.wide a.point"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install Debian's package chromium, or set CHROMIUM"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for name, make in factory.EVERY.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(render(make()), encoding="utf-8")
    return made


class Opened:
    """A page with what it said and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(reduced_motion="reduce", accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.file = file

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        outside = [
            u for u in self.asked if u.partition("#")[0] != self.file.as_uri() and not u.startswith(("data:", "blob:"))
        ]
        self.context.close()
        if kind is None:
            assert self.said == [], "nothing on the console"
            assert outside == [], "no request leaves the file"


@pytest.mark.parametrize("name", factory.EVERY)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_opens_everywhere_without_overflow(browser: Any, files: Any, name: str, scheme: str, viewport: Any) -> None:
    with Opened(browser, files[name], viewport=viewport, color_scheme=scheme) as page:
        for number in range(page.locator("tbody.trial").count()):
            page.locator(f"#trial-{number} .unfold").click()
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.evaluate("window.hacked") is None
        back, ink = page.evaluate(
            "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
        )
        assert (_light(back) > _light(ink)) == (scheme == "light")
        assert page.locator("svg.chart:visible").count() > 0
        assert page.locator(f"svg.{'narrow' if viewport is WIDE else 'wide'}:visible").count() == 0


def test_a_point_leads_to_its_trial(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        assert not page.locator("#detail-4").is_visible()
        page.locator(f"{FIRST}[data-trial='4']").click()
        assert page.locator("#detail-4").is_visible()
        assert page.locator("#trial-4 .unfold").get_attribute("aria-expanded") == "true"
        assert page.evaluate("document.activeElement.closest('tbody').id") == "trial-4"
        box = page.locator("#trial-4 .main").bounding_box()
        assert 0 <= box["y"] <= WIDE["height"]
        assert page.locator(".point.selected").count() == page.locator(".point[data-trial='4']").count() > 2
        page.locator(f"{FIRST}[data-trial='5']").click()
        assert page.locator("tbody.selected").get_attribute("id") == "trial-5"
        page.locator("#trial-5 .name").click()
        assert not page.locator("#detail-5").is_visible()


def test_the_keyboard_does_the_same(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        page.locator("#frontier input[value='quality']").focus()
        page.keyboard.press("Tab")
        tip = page.locator("#tip")
        assert tip.is_visible()
        assert tip.inner_text().startswith("0 baseline") or tip.inner_text().startswith("0  baseline")
        page.evaluate(
            "async () => { scrollBy(0, 40); for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame); }"
        )
        assert tip.is_visible(), "moving by keyboard scrolls the page: the tip goes along"
        page.keyboard.press("Escape")
        assert not tip.is_visible()
        page.keyboard.press("Tab")
        assert "allocator" in tip.inner_text()
        page.keyboard.press("Enter")
        assert page.locator("#detail-1").is_visible()
        page.locator("#frontier input[value='quality']").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#frontier .view[data-view='size']").is_visible()
        assert not page.locator("#frontier .view[data-view='quality']").is_visible()


def test_hovering_tells_the_trial(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        point = page.locator(f"{FIRST}[data-trial='5'] .hit")
        point.scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        box = point.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        text = page.locator("#tip").inner_text()
        for expected in ("onnxruntime_int8", "6.60× (6.43–6.76×)", "p50 2.61 ms", "drop 0.2 pt", "5.02 MB on disk"):
            assert expected in text
        where = page.locator("#tip").bounding_box()
        assert where["x"] >= 0
        assert where["x"] + where["width"] <= WIDE["width"]
        page.mouse.move(5, 5)
        assert not page.locator("#tip").is_visible()


@pytest.mark.parametrize(("scope", "value"), [("frontier", "memory"), ("terms", "share"), ("roofline", "after")])
def test_switches_show_one_view(browser: Any, files: Any, scope: str, value: str) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        page.locator(f"#{scope} label:has(input[value='{value}'])").click()
        shown = page.locator(f"#{scope} .view:visible")
        assert shown.count() == 1
        assert shown.get_attribute("data-view") == value


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_table_sorts_and_filters(browser: Any, files: Any, viewport: Any) -> None:
    run = factory.full_run()
    gains = {
        n: (1.0 if not n else t.gain.median if t.gain else None) for n, t in enumerate((run.baseline, *run.trials))
    }
    known = [n for n in gains if gains[n] is not None]
    unknown = [n for n in gains if gains[n] is None]
    with Opened(browser, files["full"], viewport=viewport) as page:

        def order() -> list[int]:
            return page.evaluate("[...document.querySelectorAll('tbody.trial')].map((b) => Number(b.dataset.number))")

        page.locator(".sort", has_text="Gain").click()
        assert order() == [*sorted(known, key=lambda n: (-gains[n], n)), *unknown]
        assert page.locator("th[aria-sort='descending'] .sort").inner_text().startswith("Gain")
        page.locator(".sort", has_text="Gain").click()
        assert order() == [*sorted(known, key=lambda n: (gains[n], n)), *unknown], "unknown stays last"
        page.locator(".sort", has_text="#").click()
        assert order() == sorted(gains)
        page.locator("#only-improved").check()
        visible = page.locator("tbody.trial:visible").count()
        assert visible == 1 + sum(t.outcome == "improved" for t in run.trials)
        if viewport is WIDE:
            page.locator(f"{FIRST}[data-trial='4']").click()
            assert page.locator("#detail-4").is_visible(), "a hidden trial is brought back when its point is chosen"


def test_the_data_can_be_taken_out(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        with page.expect_download() as download:
            page.locator("#download").click()
        data = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
        assert data["schema"] == "ironlaw.run/1"
        assert data["best"] == "t05"
        page.locator(".copy").click()
        page.locator(".copy", has_text=re.compile("Copied|Selected")).wait_for(timeout=5000)


def test_a_link_to_a_trial_opens_it(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE) as page:
        page.goto(files["full"].as_uri() + "#trial-5")
        page.reload()
        assert page.locator("#detail-5").is_visible()


def test_it_reads_without_script(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=WIDE, java_script_enabled=False) as page:
        assert page.locator("#detail-5").is_visible()
        assert not page.locator("#download").is_visible()
        page.locator("#frontier label:has(input[value='size'])").click()
        assert page.locator("#frontier .view[data-view='size']").is_visible()


def test_it_prints_in_black_on_white_with_wide_charts(browser: Any, files: Any) -> None:
    with Opened(browser, files["full"], viewport=PHONE, color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert not page.locator("nav").is_visible()
        assert page.locator("#frontier svg.wide").first.is_visible()
        assert page.locator("svg.narrow:visible").count() == 0
        assert len(page.pdf(prefer_css_page_size=True)) > 20_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Any, files: Any, scheme: str) -> None:
    """WCAG AA: 4.5 to 1, for every colour of text on each background that it stands on."""
    pairs = (
        ("ink", "bg"),
        ("muted", "bg"),
        ("muted", "tint"),
        ("accent", "bg"),
        ("good", "bg"),
        ("bad", "bg"),
        ("bad", "tint"),
    )
    bars = ("memory", "compute", "latency", "paging", "io", "comm", "sync", "serial", "residual")
    with Opened(browser, files["full"], viewport=WIDE, color_scheme=scheme) as page:
        names = {n for pair in pairs for n in pair} | set(bars)
        got = page.evaluate(
            "(names) => names.map((n) => getComputedStyle(document.documentElement).getPropertyValue(`--${n}`).trim())",
            sorted(names),
        )
        colours = dict(zip(sorted(names), got, strict=True))
        for ink, back in (*pairs, *(("ink", bar) for bar in bars)):
            a, b = (_luminance(colours[n]) for n in (ink, back))
            assert (max(a, b) + 0.05) / (min(a, b) + 0.05) >= 4.5, (ink, back)


def _light(colour: str) -> int:
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def _luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
