"""Under ``pytest -n``: workers check, the controller prints and writes."""

from __future__ import annotations

import pytest
from inner import usage_error

pytest.importorskip("xdist")

SOURCE = """
@pytest.mark.parametrize("n", range(4))
def test_a(autotune, n):
    autotune(kernel("REGRESSED" if n == 2 else "PASS"))

@pytest.mark.xdist_group("g")
def test_grouped(autotune):
    autotune(kernel("DRIFTED"))
"""


@pytest.fixture
def distribute(project, monkeypatch, source_environ):
    """Runs the project on two workers, which import kerntune from this source tree."""
    monkeypatch.setenv("PYTHONPATH", source_environ["PYTHONPATH"])
    return lambda *args: project.run("-n2", *args)


@pytest.mark.slow
def test_results_reach_the_controller(project, distribute):
    project.engine(stale=["test_old.py::test_gone!0"])
    project.file(SOURCE)
    result = distribute("--dist=loadgroup", "--kerntune-json=run.json")
    result.assert_outcomes(failed=1, passed=4, warnings=1)
    result.stdout.fnmatch_lines(["kerntune: scripted device*"])
    result.stdout.fnmatch_lines(["*REGRESSED test_it.py::test_a[[]2]: scripted", "3 PASS, 1 REGRESSED, *1 STALE"])
    cases = {r["case"]["nodeid"] for r in project.json()["results"]}
    assert cases == {
        *(f"test_it.py::test_a[{n}]" for n in range(4)),
        "test_it.py::test_grouped",
        "test_old.py::test_gone",
    }
    assert project.log.count("selected_all=True") == 1
    assert project.log.count("start\n") == 2
    assert sorted(x for x in project.log.splitlines() if x.startswith("share")) == [
        "share 0 of 1",  # the controller's, which decides nothing
        "share 0 of 2",
        "share 1 of 2",
    ]
    assert project.log.count("close\n") == 3


@pytest.mark.slow
def test_narrowed_in_a_worker_is_known_to_the_controller(project, distribute):
    project.file(SOURCE)
    project.pytester.makepyfile(
        conftest="""
import scripted
scripted.install()

def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=items[:1])
    del items[:1]
"""
    )
    distribute().assert_outcomes(failed=1, passed=3, warnings=1)
    assert "selected_all=False" in project.log


@pytest.mark.slow
def test_wrong_marker_is_a_usage_error(project, distribute):
    project.file("@pytest.mark.autotune(tolerance=7)\ndef test_a(autotune): pass\n")
    usage_error(distribute(), "ERROR: test_it.py::test_a: marker autotune, tolerance: 7 is no tolerance*")
