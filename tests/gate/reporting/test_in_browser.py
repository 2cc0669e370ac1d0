"""The report in Chromium, driven by playwright; skipped where either is missing.

``CHROMIUM`` names the browser; else it is looked for along ``PATH``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_plotly import SCRIPT

from gate.reporting.made_runs import HARD_TEXT, made_curves, made_run
from kerntune.base.case_result import CaseId, LaunchFigures, LaunchReport
from kerntune.gate.reporting.page import html_page

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")


def plotly() -> str:
    """The real script where it is installed: a page without it has tables alone."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return SCRIPT
    return str(get_plotlyjs())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = made_run(50, samples=40, configs=20, hard=True)
    written = tmp_path_factory.mktemp("page") / "report.html"
    written.write_text(html_page([run], made_curves(run, points=30), plotly()), encoding="utf-8")
    return written


@dataclass
class Opened:
    """A page that is shown, and what it did."""

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self, number: int) -> None:
        self.page.wait_for_selector(f"#case[data-drawn='{number}']", timeout=60_000)

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()


@pytest.fixture
def opened(browser: Any, path: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Whatever a test does: nothing is said on the console, nothing asked of the network, nothing of a user's runs."""
    context = browser.new_context(offline=True, **getattr(request, "param", {}))
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("dialog", lambda dialog: (found.said.append("a dialog"), dialog.dismiss()))
    found.page.on("request", lambda asked: found.requests.append(asked.url))
    found.page.goto(path.as_uri())
    yield found
    context.close()
    assert found.said == []
    assert {url.partition("#")[0] for url in found.requests if not url.startswith("data:")} == {path.as_uri()}


def test_search_and_verdicts_filter(opened: Opened) -> None:
    page = opened.page
    assert page.inner_text("#shown") == "50 of 50 cases"
    page.fill("#search", "MATMUL 8=x")
    assert page.inner_text("#shown") == "0 of 50 cases"
    assert page.is_visible("#none")
    page.fill("#search", "matmul")
    assert page.inner_text("#shown") == "10 of 50 cases"
    page.uncheck("input[value=PASS]")
    assert page.inner_text("#shown") == f"{opened.count('#table tbody tr:visible')} of 50 cases"
    assert opened.count("#table tbody tr:visible") == 2
    page.click("#clear")
    assert page.inner_text("#shown") == "50 of 50 cases"


def test_columns_sort_and_say_so(opened: Opened) -> None:
    page = opened.page
    header = page.locator("#table th[data-key=change]")
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    shown = page.eval_on_selector_all("#table tbody tr", "rows => rows.map(r => Number(r.dataset.change))")
    assert shown == sorted(shown)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator("th[data-key=rank]").get_attribute("aria-sort") is None


def test_a_case_shows_all_its_sections(opened: Opened) -> None:
    page = opened.page
    page.click("#table tbody tr a")
    opened.drawn(0)
    assert page.eval_on_selector_all("#case h3", "all => all.map(h => h.textContent)") == [
        "Verdict", "Samples and distributions", "Where the change comes from", "Tuning landscape",
        "Work against the device", "History", "Launches", "Changed code",
    ]  # fmt: skip
    assert not page.is_visible("#list")
    assert HARD_TEXT in page.inner_text("#case-title")
    assert opened.count("#case .plot") == opened.count("#case .plot[role=img][aria-label]") == 7
    assert opened.count("#case tr:has(td.removed):has(td.added)") > 10, "sides beside each other"
    assert "(used)" in page.text_content("#case section:has-text('Tuning landscape') table")
    page.click("text=All cases >> nth=0")
    assert page.is_visible("#list")
    page.go_back()
    opened.drawn(0)
    assert page.is_visible("#case")


def test_plots_are_drawn_without_webgl(opened: Opened) -> None:
    if plotly() == SCRIPT:
        pytest.skip("needs plotly (pip install plotly)")
    opened.page.click("#table tbody tr a")
    opened.drawn(0)
    assert opened.count("#case .plot svg.main-svg") >= 7
    assert opened.count("#case canvas") == 0
    opened.page.select_option("#case select >> nth=0", "num_warps")
    assert "over num_warps and" in opened.page.locator("#case .plot[aria-label^='Heat map']").get_attribute(
        "aria-label"
    )


def test_the_keyboard_alone_reaches_everything(opened: Opened) -> None:
    page = opened.page

    def press(key: str, times: int = 1) -> None:
        for _ in range(times):
            page.keyboard.press(key)

    def focused() -> str:
        return page.evaluate(
            "(() => { const e = document.activeElement;"
            " return e.id || e.value || e.parentNode.dataset.key || e.textContent; })()"
        )

    press("Tab")
    assert focused() == "Skip to the cases"
    press("Tab", 2)
    assert focused() == "search"
    page.keyboard.type("matmul")
    press("Tab")
    assert focused() == "REGRESSED"
    press("Tab", 6)
    assert focused() == "clear"
    press("Tab", 7)
    assert focused().startswith("tests/test_matmul.py"), "after six columns, the first row that is shown"
    press("Enter")
    page.wait_for_selector("#case-title")
    assert page.evaluate("document.activeElement.id") == "case-title"
    reached = []
    for _ in range(60):
        press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName"))
    assert {"SELECT", "SUMMARY", "A", "DIV"} <= set(reached), "choices, folded tables, links, what scrolls"
    page.go_back()
    page.wait_for_selector("#list:visible")
    assert focused().startswith("tests/test_matmul.py"), "back where it was"


@pytest.mark.parametrize("opened", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
def test_a_phone_scrolls_down_only(opened: Opened) -> None:
    width = "document.documentElement.scrollWidth - innerWidth"
    assert opened.page.evaluate(width) <= 0
    opened.page.click("#table tbody tr a")
    opened.drawn(0)
    assert opened.page.evaluate(width) <= 0


@pytest.mark.parametrize("opened", [{"viewport": {"width": 360, "height": 740}}], indirect=True)
def test_a_phone_shows_tables_and_both_sides_of_code_whole(opened: Opened) -> None:
    page = opened.page
    page.click("#table tbody tr a")
    opened.drawn(0)
    page.eval_on_selector_all("#case details", "all => all.forEach(d => { d.open = true; })")
    hidden = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.ariaLabel)"
    assert page.eval_on_selector_all("#case .scroll", hidden) == []
    assert opened.count("#case td.removed:visible") > 10
    assert opened.count("#case td.added:visible") > 10
    registers = page.locator("#case section:has-text('Launches') td[data-label=registers]").first
    assert registers.evaluate("cell => getComputedStyle(cell, '::before').content") == '"registers: "'
    page.get_by_role("cell", name="source changed").wait_for(state="visible")


def test_a_screen_shows_static_cases_without_scrolling_sideways(browser: Any, tmp_path: Path) -> None:
    """Names and commands are broken at their parts alone."""
    run = made_run(3, samples=5, configs=8)
    launches = tuple(
        LaunchReport(f"{name}_kernel", None, (1, 1, 1), 254, 15_816, 51_200, before=LaunchFigures(122, 8, 8_192))
        for name in ("forward", "backward")
    )
    replaced = {"device": "", "current_ns": None, "launches": launches, "findings": ("backward_kernel: spills",)}
    case = CaseId("tests/test_layer_norm.py::test_layer_norm[16384]", "backward")
    results = tuple(msgspec.structs.replace(r, case=case, **replaced) for r in run.results)
    written = tmp_path / "report.html"
    written.write_text(html_page([msgspec.structs.replace(run, results=results)], [], SCRIPT), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(written.as_uri())
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.scroll'))")
    lines = page.eval_on_selector_all("#table .whole", "all => all.map(e => e.getClientRects().length)")
    assert set(lines) == {1}
    page.close()


@pytest.mark.parametrize("opened", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_text_stands_out_from_its_ground(opened: Opened) -> None:
    """Contrast of at least 4.5 (WCAG 2.2, 1.4.3) for text on both grounds, in both schemes."""
    colours = opened.page.evaluate(
        "['--text','--muted','--link','--bad','--good','--warn','--info','--bg','--panel']"
        ".map(n => [n, getComputedStyle(document.documentElement).getPropertyValue(n).trim()])"
    )
    known = dict(colours)
    assert known["--bg"] in ("#ffffff", "#0f1318")
    for ground in ("--bg", "--panel"):
        for name in ("--text", "--muted", "--link", "--bad", "--good", "--warn", "--info"):
            assert contrast(known[name], known[ground]) >= 4.5, (name, ground)


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_script_that_gets_in_does_not_run(browser: Any, path: Path, tmp_path: Path) -> None:
    """Beside the escaping: the page's policy."""
    page = path.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(page.replace("<main>", "<main><script>document.title = 'ran'</script>", 1), encoding="utf-8")
    context = browser.new_context(offline=True)
    shown = context.new_page()
    shown.goto(broken.as_uri())
    assert shown.title() == "kerntune"
    assert shown.inner_text("#shown") == "50 of 50 cases"
    context.close()


def test_without_scripts_the_table_is_whole(browser: Any, path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("#table tbody tr").count() == 50
    assert "runs no scripts" in page.locator("noscript").inner_text()
    assert not page.is_visible("#filters")
    context.close()
