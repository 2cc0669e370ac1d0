"""Each value of a run's JSON, replaced by one that no run writes: refused when it is read, or harmless ever after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.codec import from_json
from kerntune.cli import figures
from kerntune.errors import KerntuneError
from kerntune.gate.history.places import history_run
from kerntune.gate.history.points import decoded, encoded
from kerntune.gate.report import SCHEMA, RunReport, worst_first, write_run
from kerntune.gate.reporting.page import html_page
from kerntune.gate.reporting.summaries import annotation_lines, summary, write_csv

RUN = Path(__file__).parents[1] / "data" / "formats" / "run-new.json"

NUMBERS = (1e308, -1, 10**25)
TEXTS = ("\x1b[2J\udc9b", "9" * 5000)


Path_ = tuple[Any, ...]


def leaves(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    else:
        yield path, value


def places(run: Any) -> dict[Path_, tuple[Path_, Any]]:
    """A leaf for each place of the format: of the items of a list, the first that has it."""
    found: dict[Path_, tuple[Path_, Any]] = {}
    for path, value in leaves(run):
        found.setdefault(tuple("*" if isinstance(key, int) else key for key in path), (path, value))
    return found


def replaced(run: Any, path: Path_, value: Any) -> Any:
    if not path:
        return value
    copy = run.copy()
    copy[path[0]] = replaced(run[path[0]], path[1:], value)
    return copy


def hostile_values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return (*TEXTS, None)
    return (*(() if value is None or isinstance(value, bool) else NUMBERS), None)


def use(run: RunReport, folder: Path) -> None:
    """All that reads finished runs."""
    html_page([run], [], "")
    write_csv(folder / "a.csv", [run])
    summary([run])
    list(annotation_lines(worst_first([run]), lambda nodeid: (nodeid, 1)))
    write_run(folder / "run.json", run)
    figures.text_of(figures.figures_of(figures.of_run(str(folder / "run.json"), "")[0]))
    decoded(encoded(history_run(run)), "run")


@pytest.mark.slow
def test_every_value_is_refused_or_harmless(tmp_path: Path) -> None:
    run = json.loads(RUN.read_bytes())
    wrong, read = [], 0
    for path, value in places(run).values():
        for hostile in hostile_values(value):
            try:
                report = from_json(json.dumps(replaced(run, path, hostile)).encode(), RunReport, SCHEMA, where="run")
                read += 1
                use(report, tmp_path)
            except KerntuneError:
                pass
            except Exception as exc:
                where, shown = "/".join(map(str, path)), str(hostile)[:30]
                wrong.append(f"{where} = {shown!r}: {type(exc).__name__}: {str(exc)[:200]}")
    assert wrong == []
    assert read > 100
