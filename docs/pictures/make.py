"""Makes the README's two pictures from a real run of the tutorial's project: without a GPU, for cuda:90.

    python docs/pictures/make.py        # needs kerntune[report], playwright and a chromium (CHROMIUM, default: in PATH)

The project is recorded, its kernel edited so that it spills, and the gate run again. ``terminal-*.svg`` has what
pytest printed, its long lines broken; ``report-*.png`` is the page that ``--kerntune-html`` wrote. Each is made for a
light and a dark page.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
TUTORIAL = HERE.parent / "tutorial.md"
BLOCK = re.compile(r'```python title="([\w.]+)"\n(.*?)```', re.S)
EDIT = ("num_warps=4", "num_warps=1, maxnreg=24")

SHOWN = ("-q", "--kerntune", "--disable-warnings", "-rN", "-k", "65536")
WIDTH, CHARACTER, LINE, PAD = 100, 8.43, 19, 16

COLOURS = {
    "light": {"": "#1f2328", "31": "#cf222e", "32": "#1a7f37", "33": "#9a6700", "36": "#1b7c83", "back": "#f6f8fa"},
    "dark": {"": "#e6edf3", "31": "#ff7b72", "32": "#3fb950", "33": "#d29922", "36": "#39c5cf", "back": "#161b22"},
}
"""By pytest's codes: red, green, yellow, cyan."""

CODE = re.compile(r"\x1b\[(\d+)m")


def run(folder: Path, *options: str) -> str:
    """What pytest prints in the project's folder."""
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:benchmark", *options]
    done = subprocess.run(
        command, cwd=folder, env={**kept, "COLUMNS": str(WIDTH)}, capture_output=True, text=True, check=False
    )
    return done.stdout


def broken(text: str) -> Iterator[str]:
    """Lines no longer than the picture is wide; codes of colours count nothing."""
    for line in text.splitlines():
        if len(CODE.sub("", line)) <= WIDTH:
            yield line
        else:
            yield from textwrap.wrap(CODE.sub("", line), WIDTH, subsequent_indent="  ")


def spans(line: str, colours: dict[str, str]) -> str:
    """A line's text in its colours."""
    found, colour, bold = "", "", False
    for i, part in enumerate(CODE.split(line)):
        if i % 2:
            bold = part == "1" or (bold and part != "0")
            colour = part if part in colours else "" if part == "0" else colour
        elif part:
            weight = ' font-weight="bold"' if bold else ""
            found += f'<tspan fill="{colours[colour]}"{weight}>{html.escape(part)}</tspan>'
    return found


def terminal(lines: list[str], colours: dict[str, str]) -> str:
    """The picture of a terminal, as SVG."""
    width, height = 2 * PAD + WIDTH * CHARACTER, 2 * PAD + len(lines) * LINE
    rows = [
        f'<text x="{PAD}" y="{PAD + 14 + i * LINE}" xml:space="preserve">{spans(line, colours)}</text>'
        for i, line in enumerate(lines) if line
    ]  # fmt: skip
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}"'
        f' height="{height}"'
        ' font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{colours["back"]}"/>', *rows, "</svg>\n",
    ])  # fmt: skip


def photograph(page_file: Path) -> None:
    """The report's first case, light and dark."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1100, "height": 640}, color_scheme=scheme)
            page.goto(page_file.as_uri())
            page.wait_for_timeout(1500)
            page.screenshot(path=HERE / f"report-{scheme}.png")
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "my-kernels"  # the report's heading
        folder.mkdir()
        for name, text in BLOCK.findall(TUTORIAL.read_text()):
            (folder / name).write_text(text)
        run(folder, "--kerntune", "--kerntune-target=cuda:90")
        kernels = folder / "mykernels.py"
        kernels.write_text(kernels.read_text().replace(*EDIT))
        page = folder / "report.html"
        said = run(folder, "--color=yes", *SHOWN, f"--kerntune-html={page}")
        kept = [
            line for line in said.splitlines() if not CODE.sub("", line).startswith(("wrote", "values not", "1 case"))
        ]
        lines = ["$ pytest -q --kerntune -k 65536", *broken("\n".join(kept))]
        for scheme, colours in COLOURS.items():
            (HERE / f"terminal-{scheme}.svg").write_text(terminal(lines, colours))
        photograph(page)


if __name__ == "__main__":
    main()
