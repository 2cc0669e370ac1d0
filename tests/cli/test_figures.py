"""``kerntune figures``: all cases against what their device reaches."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from cli.command import Command, column_widths
from cli.made import SOFTMAX, folder, timed
from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.roofline import Roofline
from kerntune.cli.figures import CaseFigures, figures_of, text_of
from kerntune.gate.report import RunReport, write_run
from kerntune.tuning.device_figures import SCHEMA, DeviceFigures


@pytest.fixture
def kerntune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(capsys)


def result(name: str, time_ns: float | None, **figures: object) -> CaseResult:
    made = CaseResult(CaseId(f"test_it.py::{name}", "0"), "0" * 16, Verdict.PASS, Outcome.PASS, "", "cuda:90", "H200")
    return msgspec.structs.replace(made, current_ns=time_ns, bandwidth=4e12, **figures)


RESULTS = (
    result("test_copy", 10_000.0, bytes_moved=36e6),
    result("test_slow", 80_000.0, bytes_moved=32e6),
    result("test_matmul", 10_000.0, bytes_moved=1e6, flops=6e9, matmul_peak=800e12, matmul_dtype="float16"),
    result("test_untimed", None, bytes_moved=1e6),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run.json", RunReport(RESULTS))
    return tmp_path / "run.json"


def test_the_slowest_comes_first_with_its_share(kerntune: Command, run: Path) -> None:
    ran = kerntune("figures", run)
    assert ran.code == 0, ran.err
    rows = [line.split("::")[1].split() for line in ran.out.splitlines() if line.startswith("test_it")]
    assert [row[0] for row in rows] == ["test_slow", "test_copy", "test_matmul"]
    slow, copy, matmul = (" ".join(row[1:]) for row in rows)
    assert slow == "80.0 µs 80.0 % 32,000,000 400 GB/s 10.0 % – – – memory 10.0 %"
    assert copy == "10.0 µs 10.0 % 36,000,000 3.60 TB/s 90.0 % – – – memory 90.0 %"
    assert matmul == "10.0 µs 10.0 % 1,000,000 100 GB/s 2.5 % 600 TFLOP/s 75.0 % 6e+03 matmul 75.0 %"


def test_those_far_from_their_roof_are_named(kerntune: Command, run: Path) -> None:
    out = kerntune("figures", run).out
    _, far = out.split("Under half of their roof:")
    assert far.split("\n")[1:-1] == ["  test_it.py::test_slow: 10.0 % of memory, 80.0 % of the time"]
    assert "Under half" not in kerntune("figures", run, "--case", "copy").out


@pytest.mark.parametrize(
    ("of_roof", "shown", "named"), [(0.499, "49.9 %", True), (0.5, "50.0 %", False), (None, "–", False)]
)
def test_under_half_is_far(of_roof: float | None, shown: str, named: bool) -> None:
    row = CaseFigures("c" * 70, "H200", 1.0, 0.25, None, None, None, None, None, None, "memory", of_roof)
    text = text_of([row])
    assert ("Under half of their roof:" in text) is named
    assert text.endswith(f"{'c' * 70}: 49.9 % of memory, 25.0 % of the time") is named
    assert column_widths(text)[0] == 60
    row_text = " ".join(text.splitlines()[2].split())
    assert row_text == f"{'c' * 60} 1.00 ns 25.0 % – – – – – – memory {shown}"


def test_shares_are_of_all_that_was_timed_and_equal_times_go_by_name() -> None:
    rows = figures_of([("b", "d", Roofline(3.0)), ("a", "d", Roofline(3.0)), ("c", "d", Roofline(None))])
    assert [(row.case, row.time_ns, row.share) for row in rows] == [("a", 3.0, 0.5), ("b", 3.0, 0.5), ("c", 0.0, 0.0)]
    (alone,) = figures_of([("c", "d", Roofline(None))])
    assert alone.share == 0.0


def test_a_file_that_can_not_be_read_is_a_finding(kerntune: Command, tmp_path: Path) -> None:
    store = folder(tmp_path / "baselines", timed())
    (path,) = store.time_files()
    for form, shown in (((), SOFTMAX), (("--json",), SOFTMAX)):
        assert kerntune("figures", *form, "--cache-dir", tmp_path / "cache").code == 0
        (path.parent / "damaged.json").write_text("{")
        ran = kerntune("figures", *form, "--cache-dir", tmp_path / "cache")
        assert (ran.code, shown in ran.out, "damaged.json" in ran.out + ran.err) == (1, True, True)
        (path.parent / "damaged.json").unlink()


def test_json_has_the_same(kerntune: Command, run: Path) -> None:
    found = json.loads(kerntune("figures", run, "--json").out)
    assert found["schema"] == "kerntune.figures/1"
    assert [c["roof"] for c in found["cases"]] == ["memory", "memory", "matmul"]
    assert found["cases"][2]["of_matmul"] == pytest.approx(0.75)
    assert sum(c["share"] for c in found["cases"]) == pytest.approx(1.0)


def test_baselines_have_figures_too(kerntune: Command, tmp_path: Path) -> None:
    """Bytes of their recordings, over their stored times; the device's rate is the cache's."""
    folder(tmp_path / "baselines", timed())
    entry = DeviceFigures(SCHEMA, "NVIDIA H200", "GPU-1", 4e12)
    (tmp_path / "cache" / "devices").mkdir(parents=True)
    (tmp_path / "cache" / "devices" / "GPU-1.json").write_bytes(msgspec.json.encode(entry))
    (case,) = json.loads(kerntune("figures", "--json", "--cache-dir", tmp_path / "cache").out)["cases"]
    assert (case["case"], case["time_ns"], case["bytes_moved"]) == (SOFTMAX, 12_400.0, 4 * 4096 + 16)
    assert case["of_bandwidth"] == pytest.approx((4 * 4096 + 16) / 12.4e-6 / 4e12)
    assert kerntune("figures", "--case", "nothing").out == "no case has a time\n"


def test_two_sources_are_refused(kerntune: Command, run: Path, tmp_path: Path) -> None:
    assert kerntune("figures", run, "--baselines", tmp_path).code == 2
