"""Size of the HTML report, and how long Chromium takes until it can be used: ``report_size.py OUT.json [RUN.json…]``.

Reports of each RUN.json (what ``--kerntune-json`` wrote), of 26 and of 500 made-up timed cases with 200 times a side,
48 configs, a history of 200 runs and changed code (:mod:`benchmarks.made_runs`). Chromium is driven by playwright,
without a network; ``CHROMIUM`` names it, else it is looked for along ``PATH``. Times are of a file from disk,
in seconds, the median of :data:`ROUNDS` fresh browser contexts and the largest.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.made_runs import made_curves, made_run
from kerntune.base.codec import to_json, write_atomic
from kerntune.gate.report import RunReport, read_run
from kerntune.gate.reporting.page import write_page
from kerntune.gate.reporting.plotly_script import plotly_script

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="*", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {"environment": environment(), "reports": {}}
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, run, curves in reports(args.runs):
            page = Path(folder) / f"{name}.html"
            begun = time.perf_counter()
            write_page(page, [run], curves, plotly_script())
            written = time.perf_counter() - begun
            found["reports"][name] = {
                "cases": len(run.results),
                "bytes": page.stat().st_size,
                "written_s": round(written, 2),
                **measured(browser, page),
            }
            found["environment"]["chromium"] = browser.version
            write_atomic(args.out, to_json(found))
            print(name, found["reports"][name], flush=True)


def reports(paths: Sequence[Path]) -> Iterator[tuple[str, RunReport, Any]]:
    for path in paths:
        yield path.stem, read_run(path), []
    for cases in (26, 500):
        run = made_run(cases)
        yield f"made_{cases}", run, made_curves(run)


def environment() -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "rounds": ROUNDS,
    }


class chromium:
    """A browser, for a while."""

    def __enter__(self) -> Any:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        self._browser = self._playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        return self._browser

    def __exit__(self, *error: object) -> None:
        self._browser.close()
        self._playwright.stop()


def measured(browser: Any, page: Path) -> dict[str, Any]:
    rounds = [one_round(browser, page) for _ in range(ROUNDS)]
    times = {
        name: {
            "median_s": round(statistics.median(r[name] for r in rounds), 2),
            "most_s": round(max(r[name] for r in rounds), 2),
        }
        for name in ("painted", "usable", "filtered", "case_shown", "case_drawn", "usable_cpu", "drawn_cpu")
    }
    return {**times, "console": sum(r["console"] for r in rounds), "requests": sum(r["requests"] for r in rounds)}


def one_round(browser: Any, path: Path) -> dict[str, float]:
    """``painted``: the browser's first paint of content. ``usable``: the table is there, filters and links answer (the
    page's script has run), from the beginning of the navigation. ``filtered``: from a word in the search to the table
    of it. ``case_shown``, ``case_drawn``: from the click on the first case to its texts and tables, and to its last
    plot (plotly's 4.8 MB are run in between). ``usable_cpu``, ``drawn_cpu``: processor time of the page's thread until
    then and from then on, which other work of the machine adds little to."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    thread = context.new_cdp_session(page)
    thread.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    usable_cpu = processor_time(thread)
    painted, usable = page.evaluate(
        "[performance.getEntriesByName('first-contentful-paint')[0]?.startTime,"
        " performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd]"
    )
    filtered = clock(lambda: (page.fill("#search", "softmax"), page.evaluate("new Promise(requestAnimationFrame)")))
    page.click("#clear")
    page.click("#table tbody tr a")
    page.wait_for_selector("#case[data-drawn]", timeout=120_000)
    asked_at, shown, drawn = page.evaluate(
        "['asked', 'shown', 'drawn'].map(n => performance.getEntriesByName(`case-${n}`)[0].startTime)"
    )
    drawn_cpu = processor_time(thread) - usable_cpu
    context.close()
    others = [url for url in asked if not url.startswith((path.as_uri(), "data:"))]
    return {
        "painted": (painted or 0) / 1e3, "usable": usable / 1e3, "filtered": filtered,
        "case_shown": (shown - asked_at) / 1e3, "case_drawn": (drawn - asked_at) / 1e3,
        "usable_cpu": usable_cpu, "drawn_cpu": drawn_cpu, "console": len(said), "requests": len(others),
    }  # fmt: skip


def processor_time(thread: Any) -> float:
    """Seconds that the page's thread has worked so far."""
    found = thread.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in found if m["name"] == "TaskDuration"))


def clock(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
