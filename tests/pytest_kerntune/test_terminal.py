"""What the terminal shows."""

from __future__ import annotations

import pytest

from kerntune.kernels.compat import versions
from pytest_kerntune.marker import without_id


def test_table_counts_and_offers(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    project.file(
        """
def test_fast(autotune):
    autotune(kernel("IMPROVED", ns=10000.0))

def test_new(autotune):
    autotune(kernel("NEW", base=None))

def test_kept(autotune):
    autotune(kernel("NEW", base=None, rung="written", baseline_path="baselines/gpu/a.json"))
"""
    )
    result = project.run("-k", "fast or new or kept")
    result.stdout.fnmatch_lines(
        [
            "*= kerntune =*",
            "case * config * time * baseline * change * verdict*",
            "test_it.py::test_kept * NEW (recorded)",
            "test_it.py::test_fast *add_kernel: BLOCK=1024 num_warps=8 * 10.0 µs * 12.4 µs * -19.4 % * IMPROVED",
            "1 IMPROVED, 2 NEW",
            "1 baseline recorded in baselines/gpu; commit the folder*",
            "1 case improved; to hold the gain: pytest *-k 'fast or new or kept' *--kerntune-update=improved",
            "1 case without a baseline; to record: pytest * --kerntune-update=new",
        ]
    )


def test_no_baseline_is_offered_of_a_test_that_fails(project):
    """With it the same command would say the same again."""
    project.file(
        """
def test_fails(autotune):
    autotune(kernel("NEW", base=None))
    autotune(kernel("REGRESSED", base=None))

@pytest.mark.xfail
def test_is_expected_to_fail(autotune):
    autotune(kernel("NEW", base=None))
    assert False
"""
    )
    result = project.run()
    result.assert_outcomes(failed=1, xfailed=1)
    result.stdout.no_fnmatch_line("*--kerntune-update=new*")


THREE = """
def test_passes(autotune):
    autotune(kernel())

def test_warns(autotune):
    autotune(kernel("NEW", base=None))

def test_fails(autotune):
    autotune(kernel("REGRESSED"))
"""


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_table_fits_the_terminal_with_the_worst_case_first(project, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    project.file(THREE)
    lines = project.run("--tb=no").outlines
    start = next(i for i, line in enumerate(lines) if "= kerntune =" in line)
    rows = lines[start + 1 : lines.index("", start)]
    assert max(map(len, rows)) <= columns
    cases = [name for line in rows for name in ("fails", "warns", "passes") if f"::test_{name}" in line]
    assert cases == ["fails", "warns"]
    assert rows[-1] == "... and 1 more PASS"


def test_rows_are_coloured_by_the_rules_of_pytest(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    project.file(THREE)
    red = "\x1b[31mtest_it.py::test_fails\x1b[0m"
    assert red in project.run("--color=yes").outlines
    assert "\x1b[31m" not in project.run("--color=no").stdout.str()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in project.run().stdout.str()


def test_failed_case_is_in_the_short_summary(project):
    project.file(
        """
def test_a(autotune):
    autotune(kernel("REGRESSED"))

def test_b(autotune):
    pytest.fail("of the user's own")
"""
    )
    result = project.run()
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_b - Failed: of the user's own"])
    result.stdout.fnmatch_lines(["REGRESSED test_it.py::test_a: *", "FAILED test_it.py::test_a - +12.1 % (±0.5)"])


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("REGRESSED t.py::a[1]: 1 -> 2\nNEW t.py::a[1]: no", "REGRESSED: 1 -> 2\nNEW: no"),
        ("REGRESSED t.py::a[1]::backward: 1 -> 2", "REGRESSED backward: 1 -> 2"),
        ("FAILS t.py::a[1] (cuda:90, static only), spills", "FAILS (cuda:90, static only), spills"),
        ("t.py::a[1]: 5 is not 7", "5 is not 7"),
        ("STALE t.py::a[1]0: gone", "STALE t.py::a[1]0: gone"),
    ],
)
def test_a_message_without_its_tests_own_id(message, short):
    assert without_id(message, "t.py::a[1]") == short


@pytest.mark.parametrize("options", [[], ["-q"]], ids=["header", "quiet"])
def test_a_torch_that_was_never_tried_is_one_line(project, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """Under ``-q`` pytest shows no header: the line stands at the end then."""
    project.file("def test_new(autotune):\n    autotune(kernel('NEW', base=None))\n")
    monkeypatch.setattr(versions, "torch_version", lambda: "2.16.1+cu132")
    monkeypatch.setattr(versions, "TORCH_RUN", ("2.11", "2.15"))
    line = "torch 2.16 is newer than any that kerntune was run with (2.15)"
    assert project.run(*options).stdout.str().count(line) == 1
    monkeypatch.setattr(versions, "torch_version", lambda: "2.15.9")
    assert "newer than any" not in project.run(*options).stdout.str()
