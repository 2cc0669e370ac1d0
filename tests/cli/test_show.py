"""``kerntune baselines show``."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import msgspec
import pytest

from cli.command import column_widths
from cli.made import SOFTMAX, folder, metrics, static, timed
from kerntune.cli.show import rows_of, table
from kerntune.cli.stored import Entry, Pattern
from kerntune.gate.baselines import Calibration
from kerntune.gate.call import PendingBaseline


def test_a_row_a_case(kerntune, tmp_path):
    folder(tmp_path / "baselines", timed(), static(figures=metrics(registers=40, spilled=8)))
    ran = kerntune("baselines", "show")
    assert ran.code == 0
    header, _, *rows = ran.out.splitlines()
    assert header.split() == ["case", "device", "config", "time", "environment", "recorded"]
    assert SOFTMAX in rows[0]
    for text in ("NVIDIA H200", "12.4 µs", "Triton 3.9.0", "BLOCK=1024", "2026-01-02T03:04:05Z"):
        assert text in rows[0]
    assert any("40 regs, 16 B spilled, 2048 B shared" in r and "static, Triton 3.9" in r for r in rows)
    assert any("(cuda:90)" in r for r in rows)


def test_a_long_name_wraps(kerntune, tmp_path):
    long = f"tests/test_it.py::test_it[{'x' * 200}]"
    folder(tmp_path / "baselines", timed(long), timed())
    out = kerntune("baselines", "show").out
    assert out.count("x") >= 200
    assert max(map(len, out.splitlines())) < 200


def test_a_table_has_a_line_for_each_part_of_a_cell(tmp_path):
    """Cells wrap at their columns; static figures have neither time nor environment."""
    long = f"t.py::test_it[{'x' * 99}]"
    noisy = msgspec.structs.replace(timed(long).baseline, calibration=Calibration(4, 12, 0.05, 0.001, 0.002))
    entries = [Entry(PurePosixPath("a.json"), b) for b in (noisy, static().baseline)]
    text = table(rows_of(entries, Pattern()))
    cells = [[cell.strip() for cell in re.split("  +", line)] for line in text.splitlines()[2:]]
    assert cells == [
        [long[:60], "NVIDIA H200", "softmax_kernel: BLOCK=1024 num_warps=8", "12.4 µs", "Triton 3.9.0",
         "2026-01-02T03:04:05Z"],
        [long[60:], "(cuda:90)", "num_stages=3", "can't be gated at 2.0 %: changes under", "torch 2.13.0"],
        ["", "5.0 % can't be told from none there", "driver 580.65"],
        [SOFTMAX, "static, Triton 3.9", "softmax_kernel", "32 regs, 2048 B shared",
         "2026-01-02T03:04:05Z"],
        ["", "(cuda:90)"],
    ]  # fmt: skip
    crowded = msgspec.structs.replace(rows_of(entries, Pattern())[0], note="n" * 99)
    assert column_widths(table([crowded]))[::3] == [60, 40]


def test_json_has_what_the_files_have(kerntune, tmp_path):
    store = folder(tmp_path / "baselines", timed(call="backward"))
    shown = json.loads(kerntune("baselines", "show", "--json").out)
    [row] = shown["baselines"]
    assert shown["schema"] == "kerntune.show/1"
    assert shown["problems"] == []
    assert row["case"] == f"{SOFTMAX}::backward"
    assert row["time_ns"] == 12_400.0
    assert row["launches"][0]["config"] == {"kwargs": {"BLOCK": 1024}, "num_warps": 8}
    assert row["environment"]["driver"] == "580.65"
    assert (store.folder / row["path"]).is_file()


@pytest.mark.parametrize(("floor", "said"), [(0.05, True), (0.01, False)])
def test_a_case_that_is_too_noisy_says_so(kerntune, tmp_path, floor, said):
    found = Calibration(processes=4, blocks=12, floor=floor, bias=0.001, median_sd=0.002)
    made = timed()
    baseline = msgspec.structs.replace(made.baseline, calibration=found)
    folder(tmp_path / "baselines", PendingBaseline(baseline, made.artifacts, True))
    assert ("can't be gated at 2.0 %" in kerntune("baselines", "show").out) == said
    (row,) = json.loads(kerntune("baselines", "show", "--json").out)["baselines"]
    assert row["note"] == ("can't be gated at 2.0 %: changes under 5.0 % can't be told from none there" if said else "")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("", True),
        ("softmax[4096]", True),
        ("test_softmax.py", True),
        ("*softmax[[]4096]", False),
        ("*softmax[4096]", True),
        ("tests/*::test_softmax[????]", True),
        ("tests/*::test_softmax[???]", False),
        ("softmax[*]", False),
        ("test.softmax", False),
        ("matmul", False),
    ],
)
def test_a_pattern_takes_brackets_as_they_are(pattern, matches):
    assert Pattern(pattern).matches(timed().baseline) is matches


def test_only_the_cases_that_match(kerntune, tmp_path):
    folder(tmp_path / "baselines", timed(), timed("t.py::test_add"))
    out = kerntune("baselines", "show", "--case", "softmax[4096]").out
    assert SOFTMAX in out
    assert "test_add" not in out
    assert "no case matches 'nothing'" in kerntune("baselines", "show", "--case", "nothing").out


def test_an_empty_folder_says_how_to_fill_it(kerntune):
    ran = kerntune("baselines", "show")
    assert ran.code == 0
    assert "no baselines; pytest --kerntune records them" in ran.out


@pytest.mark.parametrize("json_too", [False, True])
def test_files_that_can_not_be_read_are_named_beside_the_others(kerntune, tmp_path, json_too):
    store = folder(tmp_path / "baselines", timed(), timed("t.py::test_cut"), static("t.py::test_old"))
    cut = next(store.folder.rglob("test_cut*.json"))
    cut.write_bytes(cut.read_bytes()[:100])
    old = next(store.folder.rglob("test_old*.json"))
    old.write_text(old.read_text().replace("kerntune.static/1", "kerntune.static/0"))
    ran = kerntune("baselines", "show", *(["--json"] if json_too else []))
    assert ran.code == 1
    assert ran.clean
    assert SOFTMAX in ran.out
    said = json.loads(ran.out)["problems"] if json_too else ran.err.splitlines()
    assert len(said) == 2
    assert any(str(cut) in line and "cut off" in line for line in said)
    assert any(str(old) in line and "kerntune.static/0" in line for line in said)


def test_a_folder_in_the_way_of_a_file_is_no_traceback(kerntune, tmp_path):
    store = folder(tmp_path / "baselines", timed())
    path = next(store.folder.rglob("*.json"))
    (path.parent / "odd.json").mkdir()
    ran = kerntune("baselines", "show")
    assert ran.code == 1
    assert "odd.json: can't be read: it is a folder, not a regular file; move it away" in ran.err


def test_a_folder_whose_own_path_says_time_is_read_as_it_is(kerntune, tmp_path):
    folder(tmp_path / "time" / "static", timed(), static())
    ran = kerntune("baselines", "show", "--baselines", tmp_path / "time" / "static")
    assert ran.code == 0
    assert ran.out.count(SOFTMAX) == 2
