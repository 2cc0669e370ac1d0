"""``--kerntune-benchmark-json``: what pytest-benchmark's own tools make of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

SOURCE = """
@pytest.mark.parametrize("rows", [1024, 4096])
def test_softmax(autotune, rows):
    autotune(kernel(times_ns=(12000.0, 13000.0, 14000.0, 16000.0), flops=12.4e6))
    autotune(kernel(ns=None), name="compiled only")
"""


def write(project, name, *arguments):
    project.file(SOURCE)
    project.run(f"--kerntune-benchmark-json={name}", *arguments).assert_outcomes(passed=2)


@pytest.mark.slow
def test_pytest_benchmark_compare_reads_it(project):
    pytest.importorskip("pytest_benchmark")
    write(project, "one.json")
    write(project, "two.json")
    elsewhere = project.path / "elsewhere"  # compare imports the conftest beside it
    elsewhere.mkdir()
    files = [str(project.path / name) for name in ("one.json", "two.json")]
    command = [sys.executable, "-m", "pytest_benchmark", "compare", *files, "--group-by=param:rows"]
    run = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert "2 tests" in run.stdout
    assert "test_softmax[4096] (" in run.stdout
    assert "13.7500" in run.stdout


@pytest.mark.parametrize("arguments", [[], ["-p", "no:benchmark"]])
def test_document(project, arguments):
    write(project, "b.json", *arguments)
    document = project.json("b.json")
    one = document["benchmarks"][1]
    assert len(document["benchmarks"]) == 2
    assert (one["name"], one["fullname"]) == ("test_softmax[4096]", "test_it.py::test_softmax[4096]")
    assert (one["params"], one["param"], one["group"]) == ({"rows": "4096"}, "4096", None)
    assert one["extra_info"]["tflops"] == pytest.approx(12.4e6 / 13.9e-6 / 1e12)
    assert one["extra_info"]["verdict"] == "PASS"
    assert one["stats"]["rounds"] == 4
    assert one["stats"]["mean"] == pytest.approx(13.75e-6)
    assert document["machine_info"]["cpu"]["brand_raw"] == "scripted"


def test_figures_are_pytest_benchmark_s(project):
    theirs = pytest.importorskip("pytest_benchmark.stats").Stats()
    for x in (12000.0, 13000.0, 14000.0, 16000.0):
        theirs.update(x * 1e-9)
    write(project, "b.json")
    found = project.json("b.json")["benchmarks"][0]["stats"]
    assert {k: found[k] for k in theirs.fields} == pytest.approx(theirs.as_dict())
    assert found["data"] == theirs.data


def test_without_pytest_benchmark_it_says_what_to_install(project, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if "benchmark" in name else find(name, *a))
    project.file(SOURCE)
    result = project.run("--kerntune-benchmark-json=b.json", "-p", "no:benchmark")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: --kerntune-benchmark-json: *: pip install "kerntune[[]benchmark[]]"'])


def test_addopts_may_name_it(project):
    project.file(SOURCE)
    project.pytester.makeini("[pytest]\naddopts = --kerntune-benchmark-json=b.json\n")
    project.run().assert_outcomes(passed=2)
    assert len(project.json("b.json")["benchmarks"]) == 2


def test_a_run_that_has_timed_nothing_says_so_and_keeps_the_file(project):
    """An empty list would look like a run without tests, in the place of the last one's times."""
    project.engine(static=True)
    project.file("def test_a(autotune): autotune(kernel(ns=None))\n")
    (project.path / "b.json").write_text("earlier")
    result = project.run("--kerntune-benchmark-json=b.json")
    result.stdout.fnmatch_lines(["--kerntune-benchmark-json: nothing was timed (without a GPU *b.json was not written"])
    assert (project.path / "b.json").read_text() == "earlier"


def extracted(document: dict) -> list[dict]:
    """What github-action-benchmark makes of a file under ``tool: pytest``: the rules of ``extractPytestResult`` and of
    the schema ``BenchmarkResult`` (its src/extract.ts at c38cce98): text, numbers, and at least one benchmark."""
    found = []
    for bench in document["benchmarks"]:
        stats = bench["stats"]
        assert isinstance(stats["ops"], (int, float))
        assert isinstance(stats["stddev"], (int, float))
        assert isinstance(stats["rounds"], int)
        mean, unit = human_readable(stats["mean"])
        found.append(
            {
                "name": str(bench["fullname"]),
                "value": float(stats["ops"]),
                "unit": "iter/sec",
                "range": f"stddev: {stats['stddev']}",
                "extra": f"mean: {mean} {unit}\nrounds: {stats['rounds']}",
            }
        )
    assert found, "an empty list is an error there"
    return found


def human_readable(seconds: float) -> tuple[float, str]:
    for unit, scale in (("nsec", 1e9), ("usec", 1e6), ("msec", 1e3)):
        if seconds < {"nsec": 1e-6, "usec": 1e-3, "msec": 1.0}[unit]:
            return seconds * scale, unit
    return seconds, "sec"


def test_github_action_benchmark_reads_it(project):
    pytest.importorskip("pytest_benchmark")
    write(project, "b.json")
    one, other = extracted(project.json("b.json"))
    assert one["name"] == "test_it.py::test_softmax[1024]"
    assert one["name"] != other["name"], "it keeps one series a name"
    assert one["value"] == pytest.approx(1 / 13.75e-6)
    assert one["unit"] == "iter/sec"
    assert one["extra"].startswith("mean: 13.7")
    assert one["extra"].endswith(" usec\nrounds: 4")


def test_one_time_alone_has_a_deviation_of_zero_there(project):
    """pytest-benchmark leaves no field out for a single round."""
    pytest.importorskip("pytest_benchmark")
    project.file("def test_one(autotune):\n    autotune(kernel(ns=5000.0))\n")
    project.run("--kerntune-benchmark-json=b.json")
    (one,) = extracted(project.json("b.json"))
    assert one["range"] == "stddev: 0"
    assert one["value"] == pytest.approx(1 / 5e-6)
