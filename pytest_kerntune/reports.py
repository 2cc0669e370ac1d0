"""What a run leaves for people: the HTML report, the job's summary, annotations of its tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kerntune.errors import HistoryError
from kerntune.gate.report import RunReport
from pytest_kerntune.options import Options

Locations = Mapping[str, "tuple[str, int | None, str]"]
"""pytest's location of each test: file relative to its root folder, line from 0, name."""


def write_html(path: Path, report: RunReport, options: Options) -> str:
    """Write the report; a line on what is missing in it, or nothing. :class:`~kerntune.errors.StoreError` if the file
    can't be written."""
    from kerntune.gate.history.curves import CaseCurve, curves_of
    from kerntune.gate.history.index import Index
    from kerntune.gate.history.places import place_of
    from kerntune.gate.reporting.page import write_page
    from kerntune.gate.reporting.plotly_script import plotly_script
    from kerntune.tuning.cache.entries import default_folder

    curves: list[CaseCurve] = []
    problem = ""
    if options.history:
        folder = options.cache_dir or default_folder()
        try:
            curves = curves_of(Index(place_of(options.history, options.root), folder / "history"))
        except HistoryError as exc:  # the report stands without it
            problem = f"{path}: holds no history: {exc}"
    write_page(path, [report], curves, plotly_script())
    return problem


def annotated(report: RunReport, root: Path, locations: Locations, environ: Mapping[str, str]) -> list[str]:
    """Annotations for GitHub Actions, which names files as the checkout does; nothing elsewhere."""
    from kerntune.gate.reporting.annotations import annotation_lines, file_of
    from kerntune.gate.reporting.ranking import worst_first

    if environ.get("GITHUB_ACTIONS") != "true":
        return []
    workspace = environ.get("GITHUB_WORKSPACE") or str(root)

    def place_of(nodeid: str) -> tuple[str, int]:
        file, line, _ = locations.get(nodeid, (file_of(nodeid), None, ""))
        return Path(os.path.relpath(root / file, workspace)).as_posix(), 0 if line is None else line + 1

    return annotation_lines(worst_first([report]), place_of)
