"""Kernels beside a user's benchmarks: pytest-benchmark's own options, files and commands."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kerntune.gate.project import tomllib

pytest.importorskip("pytest_benchmark")
SOURCE = """
@pytest.mark.benchmark(group="softmax")
@pytest.mark.parametrize("rows", [1024, 4096])
def test_softmax(autotune, rows):
    autotune(kernel(times_ns=(12000.0, 13000.0, 14000.0, 16000.0)))
    autotune(kernel(times_ns=(9000.0, 9500.0)), name="backward")
    autotune(kernel(ns=None), name="compiled only")

def test_host(benchmark):
    benchmark(sum, [1, 2, 3])

class TestBoth:
    def test_both(self, autotune, benchmark):
        assert autotune(kernel(times_ns=(11000.0, 12000.0)), 5) == 5
        assert benchmark(kernel(), 6) == 6
"""

KERNELS = [
    "test_it.py::TestBoth::test_both::0",
    "test_it.py::test_softmax[1024]",
    "test_it.py::test_softmax[1024]::backward",
    "test_it.py::test_softmax[4096]",
    "test_it.py::test_softmax[4096]::backward",
]
HOST = ["test_it.py::TestBoth::test_both", "test_it.py::test_host"]


@pytest.fixture(autouse=True)
def outside_of_xdist(monkeypatch) -> None:
    """pytest-benchmark measures nothing in a worker process of xdist, which this one may be."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture
def project(project):
    project.beside = ("-p", "benchmark")
    return project


@pytest.fixture
def folder(project) -> Path:
    """The storage, in a folder without a conftest of ours."""
    project.file(SOURCE)
    return project.path / ".benchmarks"


def stored(folder: Path) -> list[dict]:
    return [json.loads(p.read_text()) for p in sorted(folder.rglob("*.json"))]


def names(document: dict) -> list[str]:
    return sorted(b["fullname"] for b in document["benchmarks"])


def command(folder: Path, *words: str, extra: str = "") -> str:
    """The output of pytest-benchmark's own command for the storage."""
    elsewhere = folder.parent / "elsewhere"  # compare imports the conftest beside it
    elsewhere.mkdir(exist_ok=True)
    line = [sys.executable, "-m", "pytest_benchmark", f"--storage=file://{folder}", *words]
    run = subprocess.run(line, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--benchmark-save=one", "--benchmark-autosave"])
def test_kernels_are_saved_with_a_user_s_benchmarks(project, folder, flag):
    result = project.run(flag)
    result.assert_outcomes(passed=4)
    (document,) = stored(folder)
    assert names(document) == sorted(KERNELS + HOST)
    one = next(b for b in document["benchmarks"] if b["fullname"] == KERNELS[1])
    assert (one["name"], one["group"], one["param"]) == ("test_softmax[1024]", "softmax", "1024")
    assert one["stats"]["mean"] == pytest.approx(13.75e-6)
    assert one["stats"]["rounds"] == 4
    assert one["extra_info"]["verdict"] == "PASS"


@pytest.mark.slow
def test_under_xdist_kernels_are_saved_and_the_rest_runs_once(project, folder):
    """pytest-benchmark doesn't time in parallel; kerntune's times are taken alone on the GPU."""
    result = project.run("-n2", "--benchmark-save=one")
    result.assert_outcomes(passed=4)
    (document,) = stored(folder)
    assert names(document) == KERNELS


def extracted(document: dict) -> list[dict]:
    """What github-action-benchmark makes of a file under ``tool: pytest``: the rules of ``extractPytestResult`` and of
    the schema ``BenchmarkResult`` (its src/extract.ts at c38cce98): text, numbers, and at least one benchmark."""
    found = []
    for bench in document["benchmarks"]:
        stats = bench["stats"]
        assert isinstance(stats["ops"], (int, float))
        assert isinstance(stats["rounds"], int)
        found.append({"name": str(bench["fullname"]), "value": float(stats["ops"]), "range": float(stats["stddev"])})
    assert found, "an empty list is an error there"
    return found


@pytest.mark.slow
def test_its_json_has_kernels_as_other_tools_read_them(project):
    """pytest-benchmark leaves no field out for a single round."""
    project.file(
        "def test_many(autotune):\n"
        "    autotune(kernel(times_ns=(12000.0, 13000.0, 14000.0, 16000.0), flops=12.4e6))\n"
        "def test_one(autotune):\n"
        "    autotune(kernel(ns=5000.0))\n"
    )
    project.run("--benchmark-json=b.json").assert_outcomes(passed=2)
    document = project.json("b.json")
    assert document["benchmarks"][0]["extra_info"]["tflops"] == pytest.approx(12.4e6 / 13.9e-6 / 1e12)
    many, one = extracted(document)
    assert (many["name"], many["value"]) == ("test_it.py::test_many", pytest.approx(1 / 13.75e-6))
    assert (one["value"], one["range"]) == (pytest.approx(1 / 5e-6), 0)


@pytest.mark.slow
def test_its_commands_read_the_storage(project, folder):
    for name in ("one", "two"):
        project.run(f"--benchmark-save={name}").assert_outcomes(passed=4)
    listed = command(folder, "list")
    assert [line.rpartition("_")[2] for line in listed.split()] == ["one.json", "two.json"]
    compared = command(folder, "compare", "0001", "0002", "--group-by=fullname")
    for name in (*KERNELS, *HOST):
        assert f"benchmark '{name}': 2 tests" in compared
    assert "13.7500" in compared


# Not imported here: importlib_metadata, which comes with it, replaces the finders by which pytest finds its plugins.
@pytest.mark.slow
@pytest.mark.skipif(find_spec("pygal") is None, reason="needs pytest-benchmark[histogram]")
def test_its_histogram_plots_kernels(project, folder):
    for name in ("one", "two"):
        project.run(f"--benchmark-save={name}").assert_outcomes(passed=4)
    command(folder, "compare", "--histogram=plot", "--group-by=fullname")
    plots = sorted(p.name for p in (folder.parent / "elsewhere").glob("plot*.svg"))
    assert len(plots) == len(KERNELS) + len(HOST)
    assert sum("backward" in p for p in plots) == 2


@pytest.mark.slow
def test_a_run_compares_with_the_last_one(project, folder):
    project.run("--benchmark-save=one").assert_outcomes(passed=4)
    result = project.run("--benchmark-compare", "--benchmark-compare-fail=mean:5%", "-k", "softmax")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*benchmark 'softmax'*", "test_softmax[[]1024[]]*(NOW)*"])
    project.file(SOURCE.replace("12000.0, 13000.0, 14000.0, 16000.0", "24000.0, 26000.0"))
    result = project.run("--benchmark-compare", "--benchmark-compare-fail=mean:5%", "-k", "softmax")
    assert result.ret != 0
    assert "Performance has regressed" in result.stderr.str() + result.stdout.str()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--benchmark-save=one", "--benchmark-disable"], ["-p", "no:benchmark"]])
def test_nothing_is_kept_unasked(project, folder, arguments):
    source = SOURCE if "no:benchmark" not in arguments else SOURCE.partition("def test_host")[0]
    project.file(source)
    result = project.run(*arguments)
    assert result.ret == 0
    assert stored(folder) == []
    result.stdout.no_fnmatch_line("*benchmark 'softmax'*")


@pytest.mark.slow
def test_without_kerntune_nothing_of_kernels_is_kept(project, folder):
    project.plain("--benchmark-save=one").assert_outcomes(passed=4)
    assert [names(d) for d in stored(folder)] == [HOST]


@pytest.mark.slow
def test_autotune_inside_of_benchmark_is_refused(project):
    project.file("def test_a(autotune, benchmark):\n    benchmark(autotune, kernel(), 5)\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*autotune is called by benchmark(), again and again: write *"])
    project.plain().assert_outcomes(passed=1)
    project.run("-n1").assert_outcomes(passed=1)


@pytest.mark.slow
def test_stand_ins_are_not_timed(project, folder):
    project.engine(static=True)
    project.run("--benchmark-save=one").assert_outcomes(passed=4)
    assert [b for d in stored(folder) for b in names(d) if "test_both" in b and not b.endswith("::0")] == []


def test_it_comes_only_to_who_asks_for_it():
    """Installed, it prints a header line and makes a folder in every run, with or without ``--kerntune``."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert not [d for d in project["dependencies"] if d.startswith("pytest-benchmark")]
    assert [d.partition(">")[0] for d in project["optional-dependencies"]["benchmark"]] == ["pytest-benchmark"]


def test_a_run_without_it_prints_and_leaves_nothing_of_it(project, one_test):
    project.file(one_test())
    for result in (project.plain("-p", "no:benchmark"), project.run("-p", "no:benchmark")):
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*benchmark: *")
    assert not (project.path / ".benchmarks").exists()
