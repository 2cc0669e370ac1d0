"""The bandwidth report's figures, its table and its file; which launches it times."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune import capture as captures
from kerntune.errors import KerntuneError
from kerntune.tuning import bandwidth_report, context
from kerntune.tuning.bandwidth_report import LaunchBandwidth, _Seen


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> bandwidth_report.bandwidth:
    monkeypatch.setattr(bandwidth_report, "device_bandwidth", lambda gpu, folder: 16e9)
    made = bandwidth_report.bandwidth()
    made._gpu = SimpleNamespace(spec=SimpleNamespace(name="a GPU"))  # type: ignore[assignment]
    made._seen = {
        1: _Seen("scale", "BLOCK=64", (32,), 32_000, [8000.0, 4000.0, 4000.0]),
        2: _Seen("never", "BLOCK=64", (1,), 8),
        3: _Seen("add", "BLOCK=128", (4, 2, 1), None, [48_000.0]),
    }
    return made


ROWS = (
    LaunchBandwidth("add", "BLOCK=128", (4, 2, 1), 1, 48_000.0, 48_000.0, None, None, None),
    LaunchBandwidth("scale", "BLOCK=64", (32,), 3, 4000.0, 16_000.0, 32_000, 8e9, 0.5),
)


def test_what_took_longest_is_first_and_the_first_launch_does_not_count(report: bandwidth_report.bandwidth) -> None:
    assert report.rows == ROWS
    assert [line.split() for line in report.text().splitlines()[2:]] == [
        ["add", "BLOCK=128", "4x2x1", "1", "48.0", "µs", "75.0", "%", "–", "–", "–"],
        ["scale", "BLOCK=64", "32", "3", "4.00", "µs", "25.0", "%", "32,000", "8.00", "GB/s", "50.0", "%"],
    ]
    assert report.text().splitlines()[0].split() == [
        "kernel", "config", "grid", "launches", "time", "share", "bytes", "B/s", "of", "copy",
    ]  # fmt: skip


def test_the_file_has_the_process_in_its_name(report: bandwidth_report.bandwidth, tmp_path: Path, capsys: Any) -> None:
    report._file = f"{tmp_path}/of %p.json"
    report.tell()
    assert capsys.readouterr().err == ""
    found = json.loads((tmp_path / f"of {os.getpid()}.json").read_text())
    assert (found["schema"], found["device"], found["bandwidth"]) == ("kerntune.bandwidth/1", "a GPU", 16e9)
    assert [row["kernel"] for row in found["launches"]] == ["add", "scale"]
    report._file = None
    report.tell()
    assert capsys.readouterr().err == report.text() + "\n"


def test_a_file_that_cannot_be_written_costs_a_warning(
    report: bandwidth_report.bandwidth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth_report, "write_atomic", raising(KerntuneError("disk full")))
    report._file = "x"
    with pytest.warns(RuntimeWarning, match=r"^the bandwidth report can't be written: disk full$") as told:
        report.tell()
    assert told[0].filename == __file__


def test_nothing_is_told_of_no_launch(capsys: pytest.CaptureFixture[str]) -> None:
    made = bandwidth_report.bandwidth("x")
    made.tell()
    assert (made.copy_rate, made.rows, capsys.readouterr().err, Path("x").exists()) == (None, (), "", False)


@pytest.mark.parametrize(
    ("captured", "kernel", "warmup", "here", "timed"),
    [(None, True, False, True, True), (None, True, False, False, False), ("one", True, False, True, False),
     (None, False, False, True, False), (None, True, True, True, False)],
)  # fmt: skip
def test_which_launches_are_timed(
    captured: Any, kernel: bool, warmup: bool, here: bool, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = object()
    monkeypatch.setattr(captures, "current", lambda: captured)
    monkeypatch.setattr(bandwidth_report, "is_kernel", lambda tuner: kernel)
    monkeypatch.setattr(context, "this_gpu", lambda: SimpleNamespace(gpu=gpu) if here else None)
    seen: Any = SimpleNamespace(tuner=None, kwargs={"warmup": warmup})
    assert bandwidth_report.bandwidth()._device(seen) is (gpu if timed else None)


def test_a_report_is_printed_unless_a_file_is_named() -> None:
    assert (bandwidth_report.bandwidth()._file, bandwidth_report.bandwidth(Path("a/b"))._file) == (None, "a/b")


def test_a_launch_is_timed_between_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """And waited for; not while a graph is captured, nor where the device isn't there."""
    did: list[str] = []
    gpu: Any = SimpleNamespace(
        event=lambda: did.append("event") or len(did), synchronize=lambda: did.append("wait"),
        elapsed_ns=lambda begin, end: 100.0 * (end - begin),
    )  # fmt: skip
    report, kind = bandwidth_report.bandwidth(), _Seen("k", "c", (1,), 8)
    monkeypatch.setattr(report, "_device", lambda seen: gpu)
    monkeypatch.setattr(report, "_kind", lambda seen: kind)
    monkeypatch.setattr(bandwidth_report, "captures_graph", lambda: False)
    seen: Any = None
    assert report.launch(seen, lambda: did.append("launch") or "result") == "result"
    assert (did, kind.times_ns) == (["event", "launch", "event", "wait"], [200.0])
    monkeypatch.setattr(bandwidth_report, "captures_graph", lambda: True)
    assert report.launch(seen, lambda: "captured") == "captured"
    monkeypatch.setattr(report, "_device", lambda seen: None)
    assert report.launch(seen, lambda: "elsewhere") == "elsewhere"
    assert len(kind.times_ns) == 1


def test_launches_of_one_kind_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tuner, a key, a config, a grid, and layouts of the tensors."""
    report, counted = bandwidth_report.bandwidth(), list[Any]()
    monkeypatch.setattr(report, "_bytes", lambda seen: counted.append(seen) or 64)

    def seen(**changes: Any) -> Any:
        x = SimpleNamespace(shape=(2, 3), stride=lambda: (3, 1))
        words = {"tuner": report, "key": (1,), "config": "c", "grid": (1, 2), "named": {"x": x, "n": 5}, "kernel": "k"}
        return SimpleNamespace(**(words | changes))

    first = report._kind(seen())
    assert (first.kernel, first.config, first.grid, first.nbytes) == ("k", "c", (1, 2), 64)
    assert report._kind(seen(named={"x": seen().named["x"], "n": 6})) is first
    turned = SimpleNamespace(shape=(2, 3), stride=lambda: (1, 2))
    for other in ({"key": (2,)}, {"config": "d"}, {"grid": (2, 1)}, {"tuner": None}, {"named": {"x": turned}}):
        assert report._kind(seen(**other)) is not first
    assert len(counted) == 6
    assert report._kind(seen(grid=None)).grid == ()


def test_a_program_s_launches_are_watched_within_the_block(
    monkeypatch: pytest.MonkeyPatch, report: bandwidth_report.bandwidth, capsys: pytest.CaptureFixture[str]
) -> None:
    watched: list[Any] = []
    monkeypatch.setattr(bandwidth_report, "watch", watched.append)
    monkeypatch.setattr(bandwidth_report, "unwatch", watched.remove)
    with report as found:
        assert watched == [found] == [report]
        assert capsys.readouterr().err == ""
    assert watched == []
    assert capsys.readouterr().err == report.text() + "\n"
