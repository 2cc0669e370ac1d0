"""``--kerntune-history``: each run adds a file."""

from __future__ import annotations

import pytest
from inner import usage_error

from kerntune.gate.history.places import Folder
from kerntune.gate.history.points import HistoryRun, decoded

SOURCE = """
@pytest.mark.autotune
def test_slow(autotune):
    autotune(kernel("REGRESSED"))
    autotune(kernel("PASS"), name="second")
"""


def stored(project, place: str = "h") -> list[HistoryRun]:
    folder = Folder(project.path / place)
    return [decoded(data, name) for name, data in folder.read(folder.names())]


def test_each_run_adds_one_file(project):
    for ns in (12400.0, 12300.0):
        project.file(SOURCE.replace('"PASS"', f'"PASS", ns={ns}'))
        assert project.run("--kerntune-history=h").ret == pytest.ExitCode.TESTS_FAILED
    one, other = stored(project)
    assert [str(p.case) for p in one.points] == ["test_it.py::test_slow", "test_it.py::test_slow::second"]
    assert [p.verdict for p in other.points] == ["REGRESSED", "PASS"]
    assert one.created.endswith("+00:00")
    assert one.versions["pytest"] == pytest.__version__


def test_the_ini_key_counts_from_the_ini_file(project):
    project.file(SOURCE)
    project.pytester.makeini("[pytest]\nkerntune_history = from/ini\n")
    project.run()
    assert len(stored(project, "from/ini")) == 1


@pytest.mark.parametrize("place", ["git:", "nosuch://x"])
def test_what_names_no_place_is_an_error_before_anything_runs(project, place):
    project.file(SOURCE)
    usage_error(project.run(f"--kerntune-history={place}"), f"ERROR: {place}: *")
