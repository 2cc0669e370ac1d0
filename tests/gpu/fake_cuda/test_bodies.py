"""Users' test bodies, in one pytest run on stand-ins: each must come out as it would on a GPU."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from .conftest import HERE, run_python

BODIES = sorted((HERE / "bodies").glob("body_*.py"))
PASSED = "passed"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By file, an outcome a test: ``passed``, or what went wrong."""
    folder = tmp_path_factory.mktemp("run")
    report = folder / "report.xml"
    options = ["-p", "standin_plugin", "-p", "no:cacheprovider", "-W", "error", "-q", f"--junit-xml={report}"]
    copies = [str(shutil.copy(body, folder)) for body in BODIES]  # away from this project's settings
    done = run_python("-m", "pytest", *options, *copies, cwd=folder)
    assert report.exists(), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return _read(report)


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES, ids=lambda path: path.stem)
def test_body(body: Path, outcomes: dict[str, list[str]]) -> None:
    found = outcomes.get(body.stem, [])
    assert found, f"{body.name} was not run"
    assert Counter(found) == Counter({PASSED: len(found)})


def _read(report: Path) -> dict[str, list[str]]:
    by_file: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [f"{case.get('name')}: {child.get('message')}\n{child.text}" for child in case]
        by_file.setdefault(str(case.get("classname")).split(".")[-1], []).append(problems[0] if problems else PASSED)
    return by_file
