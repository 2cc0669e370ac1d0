"""The site needs no other host: its search's worker runs from files, and mkdocs-material adds no script of its own."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKER = "iframe-worker.js"
"""mkdocs-material's offline plugin adds a script of another host unless one with this name is listed."""


def test_the_scripts_and_styles_of_the_site_are_in_the_repository() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^  font: false$", settings, re.M)
    named = re.findall(r"\b(?:polyfills|extra_css|extra_javascript): \[(.*?)\]", settings)
    files = [name.strip() for names in named for name in names.split(",")]
    assert f"assets/{WORKER}" in files
    assert [name for name in files if not (ROOT / "docs" / name).is_file()] == []
    for name in files:
        assert "://" not in (ROOT / "docs" / name).read_text(encoding="utf-8").replace("file://", "")


PAGE = """<script src="%s"></script><script>
const worker = new Worker("worker.js")
worker.addEventListener("message", ({ data }) => (document.title += data))
for (const number of [1, 2]) worker.postMessage(number)
setTimeout(() => worker.postMessage(3), 300)
</script>"""

DOUBLED = 'addEventListener("message", ({ data }) => postMessage(2 * data))'


def test_a_worker_answers_from_files(tmp_path: Path) -> None:
    """In their order, those that were sent before its script was loaded, too."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    (tmp_path / "page.html").write_text(PAGE % (ROOT / "docs" / "assets" / WORKER).as_uri())
    (tmp_path / "worker.js").write_text(DOUBLED)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.title === '246'", timeout=20_000)
        browser.close()
