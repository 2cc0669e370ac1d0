"""What a run leaves: kernels among pytest-benchmark's own, the HTML report, and annotations."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult, LaunchReport, LaunchShare
from kerntune.base.config import Config
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import HistoryError
from kerntune.gate.history import index, places, summary
from kerntune.gate.report import Origin, RunReport
from kerntune.gate.reporting import page, summaries
from pytest_kerntune import run_end
from pytest_kerntune.payload import Collected, Payload

NODE = "tests/t.py::TestB::test_a[4096-x]"


def result(nodeid: str = NODE, call: str = "0", **changes: Any) -> CaseResult:
    made = CaseResult(CaseId(nodeid, call), "f", Verdict.PASS, Outcome.PASS, "said", "cuda:90", device="NVIDIA H100")
    return msgspec.structs.replace(made, **changes)


def collected(*results: CaseResult, **said: Any) -> Collected:
    found = Collected()
    for nodeid in dict.fromkeys(r.case.nodeid for r in results):
        found.add(Payload(nodeid, tuple(r for r in results if r.case.nodeid == nodeid), **said))
    return found


LAUNCHES = (
    LaunchReport("add_kernel", Config({"BLOCK": 64}), (1, 1, 1), 32, 0, 0),
    LaunchReport("plain_kernel", None, (1, 1, 1), 32, 0, 0),
)


def test_a_case_as_a_benchmark() -> None:
    pytest.importorskip("pytest_benchmark")
    timed = result(times_ns=(1000.0, 3000.0), launches=LAUNCHES, timer="graph", current_ns=1000.0,
                   flops=2e6, bytes_moved=3e3, bandwidth=6e9,
                   shares=(LaunchShare(0, "add_kernel", 900.0, 0.9),))  # fmt: skip
    untimed = result(call="compiled")
    brief = result(call="backward", current_ns=5.0)
    found = run_end.benchmarks(collected(timed, untimed, brief, params={"n": "4096"}, group="sums"))
    assert [b.fullname for b in found] == [NODE, f"{NODE}::backward"]
    first, second = found
    config = LAUNCHES[0].config
    assert (first.name, first.group, first.param, first.params, first.iterations, first.options) == (
        "TestB::test_a[4096-x]", "sums", "4096-x", {"n": "4096"}, 1, {"timer": "graph"},
    )  # fmt: skip
    assert first.extra_info == {
        "verdict": "PASS", "device": "NVIDIA H100", "configs": [f"add_kernel: {config}"], "tflops": 2.0,
        "gigabytes_per_second": 3.0, "of_bandwidth": 0.5, "shares": [["add_kernel", 0.9]],
    }  # fmt: skip
    assert first.stats.data == pytest.approx([1e-6, 3e-6])
    assert (second.stats.data, second.options) == ([pytest.approx(5e-9)], {"timer": "kerntune"})
    assert second.extra_info == {"verdict": "PASS", "device": "NVIDIA H100", "configs": []}


@pytest.mark.parametrize(
    ("nodeid", "call", "benchmarked", "name", "full"),
    [
        ("tests/t.py::test_a", "", True, "test_a::0", "tests/t.py::test_a::0"),
        ("tests/t.py::test_a", "0", False, "test_a", "tests/t.py::test_a"),
        ("tests/t.py::test_a", "more", True, "test_a::more", "tests/t.py::test_a::more"),
        ("odd", "0", False, "odd", "odd"),
    ],
)  # fmt: skip
def test_the_name_of_a_series(nodeid: str, call: str, benchmarked: bool, name: str, full: str) -> None:
    """A test with a benchmark of its own has that under its name: its kernels have their call's."""
    one = result(nodeid, call)
    series = run_end._series(one, collected(one, benchmarked=benchmarked))
    assert (series.name, series.fullname, series.param, series.params, series.group) == (name, full, None, None, None)
    assert (series.has_error, series.cprofile_stats) == (False, None)


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ({"benchmark_save": "x"}, 1), ({"benchmark_autosave": True}, 1), ({"benchmark_json": "f"}, 1),
        ({"benchmark_compare": True}, 1), ({"benchmark_histogram": "h"}, 1), ({}, 0),
        ({"benchmark_save": "x", "benchmark_skip": True}, 0), ({"benchmark_save": "x", "benchmark_disable": True}, 0),
        ({"benchmark_save": "x", "benchmark_disable": True, "benchmark_enable": True}, 1),
    ],
)  # fmt: skip
def test_benchmarks_are_handed_over_where_they_are_kept(options: dict[str, Any], added: int) -> None:
    pytest.importorskip("pytest_benchmark")
    session = SimpleNamespace(benchmarks=[])
    plugins = SimpleNamespace(get_plugin={"pytest-benchmark": session}.get)
    run_end.hand_over(SimpleNamespace(pluginmanager=plugins, getoption=options.get), collected(result(current_ns=5.0)))  # type: ignore[arg-type]
    assert len(session.benchmarks) == added
    without: Any = SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda name: None), getoption=pytest.fail)
    run_end.hand_over(without, collected(result(current_ns=5.0)))


def test_everything_about_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_end, "now", lambda: "2026-01-02T03:04:05+00:00")
    results = (result(), result(verdict=Verdict.REGRESSED), result(verdict=Verdict.STALE))
    found = collected(*results[:2], static_only="reads values", baselines={"b": msgspec.Raw(b"1")})
    monkeypatch.setattr(places, "origin_of", lambda root, environ: Origin())
    end: Any = SimpleNamespace(
        collected=found, _stale=results[2:], _header=("header",), failed={"x": "no"}, _options=SimpleNamespace(root="")
    )
    made = run_end.RunEnd._report(end, pytest.ExitCode.TESTS_FAILED)
    assert made == RunReport(
        results=results, header=("header",), counts=made.counts, static_only={NODE: "reads values"},
        failed={"x": "no"}, exit_status=1, created="2026-01-02T03:04:05+00:00", versions=run_end.versions(),
        baselines={"b": msgspec.Raw(b"1")}, origin=Origin(),
    )  # fmt: skip
    assert {name: n for name, n in made.counts.items() if n} == {"PASS": 1, "REGRESSED": 1, "STALE": 1}
    assert made.unchecked is msgspec.UNSET
    assert list(run_end.versions()) == ["kerntune", "pytest", "python", "platform"]


def test_the_time_is_utc() -> None:
    then, text = datetime.now(timezone.utc), run_end.now()
    assert abs((datetime.fromisoformat(text) - then).total_seconds()) < 60
    assert (text[-6:], len(text)) == ("+00:00", 25)


@pytest.mark.parametrize("history", ["", "here", "away"])
def test_a_report_has_the_curves_of_its_history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, history: str) -> None:
    """Without them it stands, and says what is missing."""
    wrote: list[Any] = []

    def curves_of(found: Any) -> list[str]:
        if "away" in found[0]:
            raise HistoryError("no network")
        return [f"curves of {found}"]

    monkeypatch.setattr(places, "place_of", lambda text, root: f"{text} of {root}")
    monkeypatch.setattr(index, "Index", lambda *words: words)
    monkeypatch.setattr(summary, "curves_of", curves_of)
    monkeypatch.setattr(page, "plotly_script", lambda: "script")
    monkeypatch.setattr(page, "write_page", lambda *words: wrote.append(words))
    options: Any = SimpleNamespace(history=history, root="root", cache_dir=tmp_path)
    report: Any = "report"
    problem = run_end.write_html(Path("r.html"), report, options)
    curves = [f"curves of {('here of root', tmp_path / 'history')}"] if history == "here" else []
    assert problem == ("r.html: holds no history: no network" if history == "away" else "")
    assert wrote == [(Path("r.html"), ["report"], curves, "script")]


@pytest.mark.parametrize(
    ("environ", "places"),
    [
        ({}, None), ({"GITHUB_ACTIONS": "false"}, None),
        ({"GITHUB_ACTIONS": "true"}, [("t.py", 8), ("t.py", 0), ("far.py", 0)]),
        ({"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": "/work"},
         [("sub/t.py", 8), ("sub/t.py", 0), ("sub/far.py", 0)]),
    ],
)  # fmt: skip
def test_annotations_name_files_as_the_checkout_does(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], places: list[Any] | None
) -> None:
    """Lines count from 1 there, and from 0 in pytest; 0 is of the whole file."""
    monkeypatch.setattr(summaries, "annotation_lines", lambda results, place_of: [place_of(n) for n in named])
    named = ["t.py::a", "t.py::b", "far.py::c"]
    locations = {"t.py::a": ("t.py", 7, "a"), "t.py::b": ("t.py", None, "b")}
    found: Any = run_end.annotated(RunReport(()), Path("/work/sub"), locations, environ)
    assert found == (places or [])
