"""``kerntune diff --static``."""

from __future__ import annotations

import json
import math
from html import unescape
from pathlib import Path

import msgspec
import pytest
from git_project import git, tag

from cli.command import Command, column_widths
from cli.made import CUDA90, SOFTMAX, folder, metrics, static, timed
from kerntune.base.case_result import End
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target, typical_device
from kerntune.base.operator_list import OperatorList
from kerntune.cli import static_diff
from kerntune.cli.changes import Figure
from kerntune.cli.static_diff import LaunchChange, StaticChange, StaticDifference, figures_text, text_of
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.static.code_rules import Finding

SECOND = "tests/test_add.py::test_add"


def other(pending: PendingBaseline, **changes: object) -> PendingBaseline:
    """The same case with other code: its launch with ``changes``."""
    assert isinstance(pending.baseline, StaticBaseline)
    launches = tuple(msgspec.structs.replace(x, **({"code": "e" * 64} | changes)) for x in pending.baseline.launches)
    return PendingBaseline(msgspec.structs.replace(pending.baseline, launches=launches), pending.artifacts, True)


STAGES = {"ttir": "1", "ttgir": "2", "llir": "3", "ptx": "4"}


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders: a case that spills in b, one whose registers grow, one that only has other code, one the same."""
    cases = [SOFTMAX, SECOND, "t.py::test_code", "t.py::test_same"]
    folder(tmp_path / "a", *(other(static(c), code="c" * 64, stages=STAGES) for c in cases))
    after = {**STAGES, "ttgir": "5", "llir": "6", "ptx": "7"}
    folder(
        tmp_path / "b",
        other(static(SOFTMAX, figures=metrics(spilled=64)), stages=after, source="6" * 64),
        other(static(SECOND, figures=metrics(registers=48)), stages=after, config=Config({"BLOCK": 64})),
        other(static("t.py::test_code"), stages=after),
        other(static("t.py::test_same"), code="c" * 64, stages=STAGES),
    )
    return tmp_path / "a", tmp_path / "b"


def test_worst_first_side_by_side(kerntune: Command, sides: tuple[Path, Path]) -> None:
    ran = kerntune("diff", "--static", *sides)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == f"{sides[0]} -> {sides[1]}"
    assert ran.out.index("test_softmax") < ran.out.index("test_add")
    assert "spilled bytes 0" in ran.out
    assert "spilled bytes 128" in ran.out
    assert "fail: spills 0 -> " in ran.out
    assert "test_code" not in ran.out
    assert ran.out.splitlines()[-1] == (
        "1 failing, 2 changed, 1 with other code and equal figures, 0 added, 0 removed, 1 the same"
    )


def test_exit_code_tells_of_failing_rules(kerntune: Command, sides: tuple[Path, Path]) -> None:
    a, b = sides
    assert kerntune("diff", "--static", a, b, "--exit-code").code == 1
    assert kerntune("diff", "--static", b, a, "--exit-code").code == 0
    assert kerntune("diff", "--static", a, a, "--exit-code").code == 0


def test_json(kerntune: Command, sides: tuple[Path, Path]) -> None:
    found = json.loads(kerntune("diff", "--static", *sides, "--json").out)
    assert found["schema"] == "kerntune.static-diff/1"
    assert (found["before"], found["after"]) == (str(sides[0]), str(sides[1]))
    first, second, third = found["changed"]
    assert first["case"] == SOFTMAX
    assert first["launches"][0]["stage"] == "TTGIR"
    assert first["launches"][0]["findings"][0]["severity"] == "fail"
    config = "BLOCK unset -> 64, num_warps unset -> 4, num_stages unset -> 3"
    assert second["launches"][0]["because"] == f"config ({config}), first in TTGIR"
    assert third["launches"][0]["figures"] == []
    assert third["launches"][0]["because"].startswith("something that is not kept (")


def test_cases_that_stopped_without_a_gpu_are_named(kerntune: Command, tmp_path: Path) -> None:
    """Equal as far as they are known; what they launch after that is known of neither side."""
    end = End("ops.py", "route", "n = counts.sum().item()", "needs the value of a stand-in")
    whole, cut, later = static(SOFTMAX), static(SECOND), static("t.py::test_later")
    ended, after = (
        PendingBaseline(msgspec.structs.replace(p.baseline, end=e), p.artifacts, True)
        for p, e in ((cut, end), (later, msgspec.structs.replace(end, between=True)))
    )
    folder(tmp_path / "a", whole, cut, later)
    folder(tmp_path / "b", whole, ended, after)
    for sides in (("a", "b"), ("b", "a")):
        ran = kerntune("diff", "--static", *(tmp_path / x for x in sides))
        assert ran.code == 0
        assert f"Compared up to where they stopped without a GPU:\n  {SECOND} (cuda:90), {end}\n" in ran.out
        assert ran.out.count(str(end)) == 1
    assert json.loads(kerntune("diff", "--static", tmp_path / "a", tmp_path / "b", "--json").out)["cut_off"] == [
        f"{SECOND} (cuda:90), {end}"
    ]


def test_more_launches_and_a_grown_grid(kerntune: Command, tmp_path: Path) -> None:
    """Of equal code, too: nothing else about a case differs."""
    grown, more = (static(c) for c in (SOFTMAX, SECOND))
    folder(tmp_path / "a", grown, more)
    assert isinstance(more.baseline, StaticBaseline)
    sixteen = PendingBaseline(
        msgspec.structs.replace(more.baseline, launches=more.baseline.launches * 16), more.artifacts, True
    )
    folder(tmp_path / "b", other(grown, code="c" * 64, grid=(8192, 1, 1)), sixteen)
    shown = unescape(kerntune("diff", "--static", tmp_path / "a", tmp_path / "b", "--markdown").out)
    assert "warn: 2 times as many programs: 4,096 -> 8,192 (grid 4,096x1x1 -> 8,192x1x1)" in shown
    assert "programs 4,096 | programs 8,192" in shown
    assert "the launch (same code)" in shown
    assert "warn: 16 times as many launches: 1 -> 16 (softmax_kernel 1 -> 16)" in shown
    assert "launch added: softmax_kernel (15)" in shown
    assert "0 failing, 2 changed" in shown


def test_the_head_has_both_versions_of_both(kerntune: Command, tmp_path: Path) -> None:
    made = static(SOFTMAX)
    assert isinstance(made.baseline, StaticBaseline)
    operators = OperatorList(torch="2.13.0")
    known = PendingBaseline(msgspec.structs.replace(made.baseline, operators=operators), made.artifacts, True)
    folder(tmp_path / "a", static(SOFTMAX, triton="3.8"))
    folder(tmp_path / "b", known, timed())
    ran = kerntune("diff", "--static", tmp_path / "a", tmp_path / "b")
    assert ran.out.splitlines()[2] == "Triton 3.8 -> Triton 3.9 and 3.9.0, torch 2.13.0"
    assert json.loads(kerntune("diff", "--static", tmp_path / "a", tmp_path / "b", "--json").out)["versions"] == [
        "Triton 3.8",
        "Triton 3.9 and 3.9.0, torch 2.13.0",
    ]


def test_markdown_is_one_table(kerntune: Command, sides: tuple[Path, Path]) -> None:
    out = kerntune("diff", "--static", *sides, "--markdown").out
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert len({line.replace(r"\|", "").count("|") for line in rows}) == 1
    assert "spilled bytes 128" in rows[2]
    assert "code (its source changed), first in TTGIR" in rows[2]


def test_pattern(kerntune: Command, sides: tuple[Path, Path]) -> None:
    out = kerntune("diff", "--static", *sides, "--case", "test_add").out
    assert "test_softmax" not in out
    assert "1 changed" in out


def test_two_series_of_one_folder(kerntune: Command, tmp_path: Path) -> None:
    old = other(static(triton="3.6", figures=metrics(registers=32)), code="c" * 64)
    new = other(static(triton="3.10", figures=metrics(registers=64)))
    folder(tmp_path / "baselines", old, new)
    ran = kerntune("diff", "--static", "triton-3.6", "triton-3.10")
    assert "registers 64" in ran.out
    assert "Triton 3.10" in ran.out
    newest = kerntune("diff", "--static", "triton-3.6", "--json")
    assert json.loads(newest.out)["changed"][0]["compilers"] == ["3.6", "3.10"]
    missing = kerntune("diff", "--static", "triton-3.7")
    assert (missing.code, missing.clean) == (2, True)
    assert "has no baselines of triton-3.7" in missing.err


def test_two_git_revisions(kerntune: Command, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for registers in (32, 64):
        folder(tmp_path / "baselines", other(static(figures=metrics(registers=registers)), code=f"{registers}" * 32))
        tag(tmp_path, f"v{registers}")
    assert "registers 64" in kerntune("diff", "--static", "HEAD~1", "HEAD").out
    assert "1 the same" in kerntune("diff", "--static", "HEAD").out


def test_revisions_whose_code_differs_say_that_it_was_not_compared(kerntune: Command, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    folder(tmp_path / "baselines", other(static()))
    for number in range(2):
        for name in ("kernels.py", "more.py", "ops.py", "test_x.py")[: 4 if number else 1]:
            (tmp_path / name).write_text(f"BLOCK = {number}")
        tag(tmp_path, f"v{number}")
    against = "`pytest --kerntune --kerntune-against='HEAD~1'`"
    compared = kerntune("diff", "--static", "HEAD~1", "HEAD").out
    assert "0 changed" in compared
    assert "Stored baselines were compared, and nothing was compiled, though code differs too (kernels.py" in compared
    assert "ops.py and 1 more)" in compared
    assert compared.rstrip().endswith(f"against those of HEAD~1: {against}")
    assert against in kerntune("diff", "--static", "HEAD~1").out
    assert "in a checkout of HEAD~1" in kerntune("diff", "--static", "HEAD", "HEAD~1").out
    assert "Stored baselines" not in kerntune("diff", "--static", "HEAD").out
    assert "Stored baselines" not in kerntune("diff", "--static", "baselines", "baselines").out


def test_added_and_removed_cases_and_launches(kerntune: Command, tmp_path: Path) -> None:
    one = static(SOFTMAX)
    assert isinstance(one.baseline, StaticBaseline)
    two = msgspec.structs.replace(one.baseline, launches=one.baseline.launches * 2)
    folder(tmp_path / "a", one, static("t.py::test_gone"))
    folder(tmp_path / "b", PendingBaseline(two, one.artifacts, True), static("t.py::test_new"))
    out = kerntune("diff", "--static", tmp_path / "a", tmp_path / "b").out
    assert "launch added: softmax_kernel" in out
    assert "Added:\n  t.py::test_new (cuda:90)" in out
    assert "Removed:\n  t.py::test_gone (cuda:90)" in out


def test_figures_of_timed_cases_count_too(kerntune: Command, tmp_path: Path) -> None:
    folder(tmp_path / "a", timed())
    folder(tmp_path / "b", timed(figures=metrics(registers=64)))
    assert "1 the same" in kerntune("diff", "--static", tmp_path / "a", tmp_path / "b").out


def test_a_damaged_file_is_named(kerntune: Command, sides: tuple[Path, Path]) -> None:
    path = next(sides[0].rglob("*.json"))
    path.write_text("{")
    ran = kerntune("diff", "--static", *sides)
    assert (ran.code, ran.clean) == (1, True)
    assert path.name in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name one or two of"),
        (("a", "b", "c"), "name one or two of"),
        (("nowhere",), "nowhere: is no folder"),
    ],
)
def test_usage_errors(kerntune: Command, words: tuple[str, ...], says: str) -> None:
    ran = kerntune("diff", "--static", *words)
    assert (ran.code, ran.clean) == (2, True)
    assert says in ran.err


def finding(severity: str, text: str = "said") -> Finding:
    return Finding(severity, "registers", 0, 1, text)  # type: ignore[arg-type]


def launch_change(*figures: tuple[str, float | None, float | None], severities: tuple[str, ...] = ()) -> LaunchChange:
    found = tuple(map(finding, severities))
    return LaunchChange("k", None, None, tuple(Figure("k", *x) for x in figures), found, "the reason", "PTX")


@pytest.mark.parametrize(
    ("figures", "growth"),
    [
        ((), -math.inf),
        ((("registers", 32, 48),), 0.5),
        ((("registers", 48, 36),), -0.25),
        ((("registers", 32, 48), ("shared bytes", 100, 175)), 0.75),
        ((("occupancy", 1.0, 0.75),), 0.25),
        ((("occupancy", 0.5, 0.75),), -0.5),
        ((("tensor core instructions", 8, 4),), 0.5),
        ((("fp64 instructions", 0, 1),), math.inf),
        ((("fp64 instructions", None, None),), math.inf),
        ((("tensor core instructions", 0, 8),), -math.inf),
        ((("spilled bytes", 1000, 1001),), math.inf),
        ((("spilled bytes", 100, 50),), -0.5),
    ],
)
def test_a_launch_ranks_by_what_grew_most(figures: tuple[tuple[str, float, float], ...], growth: float) -> None:
    assert launch_change(*figures).rank == (0, 0, -growth)
    assert launch_change(*figures, severities=("fail", "warn", "info", "warn")).rank == (-1, -2, -growth)


def case_change(*launches: LaunchChange, notes: tuple[str, ...] = (), findings: tuple[str, ...] = ()) -> StaticChange:
    return StaticChange("c", "cuda:90", ("3.8", "3.9"), launches, notes, tuple(map(finding, findings)))


def test_cases_rank_by_their_worst_launch_and_missing_ones_before_all_without_a_finding() -> None:
    alike, grown, spilled = launch_change(), launch_change(("registers", 1, 9)), launch_change(("spilled bytes", 0, 4))
    ranked = [
        case_change(alike, launch_change(severities=("fail", "fail"))),
        case_change(launch_change(severities=("fail",))),
        case_change(launch_change(severities=("warn", "warn")), notes=("launch added: k",)),
        case_change(spilled, notes=("launch added: k",)), case_change(spilled), case_change(alike, grown),
        case_change(launch_change(("registers", 8, 1))), case_change(alike), case_change(),
    ]  # fmt: skip
    found = ranked[::-1]
    found.sort(key=lambda c: c.rank)
    assert found[:-2] == ranked[:-2]
    assert ranked[-2].rank == ranked[-1].rank == (0, 0, math.inf)
    assert [c.differs for c in ranked] == [False, False, True, True, True, True, True, False, False]
    assert [c.fails for c in ranked] == [True, True] + [False] * 7
    assert case_change(findings=("warn", "fail")).fails
    assert not case_change(grown, findings=("warn",)).fails


def test_figures_in_one_line() -> None:
    given = (("occupancy", 1.0, 0.625), ("code bytes", None, 12_000), ("registers", 32, None))
    text = "occupancy 100.0% -> 62.5%, code bytes ? -> 12,000, registers 32 -> ?"
    assert figures_text([Figure("k", *x) for x in given]) == text


def test_a_table_has_the_launches_whose_figures_differ_and_the_notes() -> None:
    grown = LaunchChange(
        "k", None, Config({"BLOCK": 64}), (Figure("k", "registers", 32, 48),),
        (finding("warn", "second"), finding("fail", "first")), "code", "PTX",
    )  # fmt: skip
    changed = (
        case_change(grown, launch_change(), notes=("launch added: k",), findings=("warn",)),
        case_change(launch_change()),
    )  # fmt: skip
    found = StaticDifference(
        "a", "b", ("Triton 3.8", "Triton 3.9"), changed, ("new",), ("old", "older"), 5, (), ("cut",)
    )
    head, versions, table, *rest = text_of(found).split("\n\n")
    assert (head, versions) == ("a -> b", "Triton 3.8 -> Triton 3.9")
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["c", "k", "registers", "32", "registers", "48", "fail:", "first", "code"],
        ["(cuda:90)", "BLOCK=64", "num_warps=4", "warn:", "second"],
        ["num_stages=3"],
        ["c", "–", "–", "–", "warn:", "said", "–"],
        ["(cuda:90)", "launch", "added:", "k"],
    ]
    assert rest == [
        "Added:\n  new", "Removed:\n  old\n  older", "Compared up to where they stopped without a GPU:\n  cut",
        "1 failing, 1 changed, 1 with other code and equal figures, 1 added, 2 removed, 5 the same",
    ]  # fmt: skip
    same = StaticDifference("a", "b", ("a", "b"), (), (), (), 5, ())
    counts = "0 failing, 0 changed, 0 with other code and equal figures, 0 added, 0 removed, 5 the same"
    assert text_of(same) == f"a -> b\n\n{counts}"
    assert text_of(same, markdown=True) == f"### Kernels, a -&#62; b\n\n{counts}"


def test_cells_wrap_at_their_columns() -> None:
    long = "x" * 99
    launch = LaunchChange(long, None, None, (Figure("k", long, 1, 2),), (finding("fail", long),), long, "PTX")
    change = StaticChange(long, "cuda:90", ("3.8", "3.9"), (launch,), ())
    table = text_of(StaticDifference("a", "b", ("a", "b"), (change,), (), (), 0, ())).split("\n\n")[1]
    assert column_widths(table) == [34, 24, 28, 28, 44, 36]


@pytest.mark.parametrize(
    ("target", "device"), [(CUDA90, typical_device(CUDA90)), (None, None), (Target("cuda", "999"), None)]
)
def test_launches_are_judged_for_the_targets_usual_device(
    monkeypatch: pytest.MonkeyPatch, target: Target | None, device: DeviceSpec | None
) -> None:
    asked = list[object]()
    monkeypatch.setattr(static_diff, "compare_launches", lambda *words: asked.append(words) or ())
    assert static_diff.launch_changes((), (), ("3.8", "3.9"), target) == []
    assert asked == [((), (), static_diff.RULES, device)]
