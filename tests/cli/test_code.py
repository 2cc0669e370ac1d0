"""``kerntune code``: a case's code beside what it was."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from fake_runs import active, recorded
from git_project import git, tag
from gluon_kernels import scale as scale_in_gluon
from samples import static_launch

from cli.command import Command
from cli.made import folder, static, timed
from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.device import Target
from kerntune.base.policy import Outcome, Verdict
from kerntune.cli import code
from kerntune.cli.code import _show, side_by_side, side_of, unified
from kerntune.cli.stored import load_folder, triton_of
from kerntune.compiling.farm import Farm
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.call import PendingBaseline
from kerntune.gate.code_changes import Texts, arch_in
from kerntune.gate.report import RunReport

pytestmark = pytest.mark.usefixtures("quick_python")

SOURCE = """
import pytest, torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=[])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 2.0, mask=i < n)

@pytest.mark.parametrize("n", [1024, 4096])
def test_scale(autotune, n):
    x = torch.randn(n, device=autotune.device)
    autotune(scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)], x, torch.empty_like(x), n)
"""
CASE = "test_it.py::test_scale[4096]"
EDITED = SOURCE.replace("v * 2.0", "tl.exp(v)")


@pytest.fixture
def project(kerntune: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a recorded test."""
    monkeypatch.setenv("CI", "")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    (tmp_path / "test_it.py").write_text(SOURCE)
    done = subprocess.run(
        ["python", "-m", "kerntune", "baselines", "refresh", "--kerntune-target=cuda:90", "-q"],
        executable=__import__("sys").executable,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    git(tmp_path, "init", "-q")
    tag(tmp_path, "first")
    return tmp_path


@pytest.mark.slow
def test_what_an_edit_did(kerntune: Command, project: Path) -> None:
    same = kerntune("code", CASE, "--exit-code")
    assert (same.code, same.out) == (0, "scale: the same in every stage\n"), same.err
    (project / "test_it.py").write_text(EDITED)
    ran = kerntune("code", "4096", "--width", "180", "--exit-code")
    assert ran.code == 1, ran.err
    assert ran.out.startswith("scale, ttir:\nbaseline of 20")
    changed = [line for line in ran.out.splitlines() if " | " in line]
    assert any("arith.mulf" in a and "math.exp" in b for a, _, b in (line.partition(" | ") for line in changed))
    for stage, word in (("ttgir", "math.exp"), ("llir", "ex2"), ("ptx", "ex2.approx"), ("sass", "MUFU.EX2")):
        shown = kerntune("code", CASE, "--stage", stage, "--unified")
        assert any(line.startswith("+") and word in line for line in shown.out.splitlines()), (stage, shown)
    base = kerntune("code", CASE, "--against", "HEAD", "--unified")
    assert "--- HEAD\n+++ today" in base.out, base.err
    assert "+    %12 = math.exp" in base.out
    assert git(project, "worktree", "list").count("\n") == 1
    git(project, "checkout", "-q", "test_it.py")
    assert git(project, "status", "--short") == ""


@pytest.mark.slow
def test_the_config_of_the_baseline_is_compared(kerntune: Command, project: Path) -> None:
    """The list's first config is another now; the winner stays the winner."""
    text = (project / "test_it.py").read_text()
    first, second = 'triton.Config({"BLOCK": 128})', 'triton.Config({"BLOCK": 256})'
    (project / "test_it.py").write_text(text.replace(f"{first}, {second}", f"{second}, {first}"))
    assert kerntune("code", CASE).out == "scale: the same in every stage\n"


@pytest.mark.slow
def test_a_test_that_records_nothing(kerntune: Command, project: Path) -> None:
    (project / "test_it.py").write_text("raise RuntimeError('at import')")
    ran = kerntune("code", CASE)
    assert (ran.code, ran.clean) == (2, True)
    assert "today" in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nothing",), "no baseline's case is 'nothing'"),
        (("t.py",), "means 2 cases; name one of them:\n  t.py::test_a\n  t.py::test_b"),
        (("test_a", "--target", "cuda:80"), "has no baseline of t.py::test_a for cuda:80"),
        (("test_a", "--target", "cuda"), "unknown target 'cuda'"),
    ],
)
def test_wrong_usage(kerntune: Command, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    folder(tmp_path / "baselines", static("t.py::test_a"), static("t.py::test_b"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "t.py").write_text("")
    ran = kerntune("code", *words)
    assert ran.code in (1, 2)
    assert ran.clean
    assert says in ran.err


def test_columns() -> None:
    before = "\n".join(["head", *(f"line {i}" for i in range(10)), "%1 = a", "%2 = b %1", "tail"])
    after = "\n".join(["head", *(f"line {i}" for i in range(10)), "%1 = a", "%2 = new", "%3 = b %1", "tail"])
    assert side_by_side(before, after, ("old", "now"), 43).splitlines() == [
        "old                    now",
        "--------------------   --------------------",
        "line 8                 line 8",
        "line 9                 line 9",
        "%1 = a                 %1 = a",
        "                     > %2 = new",
        "%2 = b %1              %3 = b %1",
        "tail                   tail",
    ]
    assert side_by_side(before, before, ("old", "now"), 80) == ""


def test_only_the_names_of_values_differ() -> None:
    """Then they are what differs: operands that changed places, say."""
    assert "| sub %b, %a" in side_by_side("sub %a, %b", "sub %b, %a", ("a", "b"), 60)
    assert unified("x", "x", ("a", "b")) == ""


def test_long_lines_are_wrapped() -> None:
    shown = side_by_side("a" * 30, "b" * 50, ("x", "y"), 43).splitlines()[2:]
    assert shown == [f"{'a' * 20} | {'b' * 20}", f"{'a' * 10:<20}   {'b' * 20}", f"{'':<20}   {'b' * 10}"]


def entries(path: Path, *made: Any) -> Any:
    folder(path, *made)
    return load_folder(path)


OTHER = "t.py::other"


@pytest.mark.parametrize(
    ("case", "target", "against", "chosen", "said"),
    [
        ("softmax", None, None, ("tests/test_softmax.py::test_softmax[4096]", "cuda:90"), ""),
        ("softmax", "hip:gfx942", None, ("tests/test_softmax.py::test_softmax[4096]", "hip:gfx942"), ""),
        ("nothing", None, None, None, "no baseline's case is 'nothing'; `kerntune baselines show` lists them"),
        ("new.py::test", "cuda:80", "main", ("new.py::test", "cuda:80"), ""),
        ("new.py::test", None, "main", None, "say what to compile for: --target cuda:90"),
        ("new.py::test", "cuda:80", None, None, "no baseline's case is 'new.py::test'"),
        ("new.py", "cuda:80", "main", None, "no baseline's case is 'new.py'"),
        ("both", None, None, None, "say what to compile for: --target cuda:80 or cuda:90"),
    ],
)  # fmt: skip
def test_the_case_and_the_target_that_are_meant(
    tmp_path: Path, case: str, target: str | None, against: str | None, chosen: Any, said: str
) -> None:
    both = static("t.py::both")
    elsewhere = PendingBaseline(
        msgspec.structs.replace(both.baseline, target=Target.parse("cuda:80")), both.artifacts, True
    )
    args = argparse.Namespace(case=case, target=target, against=against)
    given = entries(tmp_path, static(), static(OTHER), both, elsewhere)
    if chosen is None:
        with pytest.raises(KerntuneError) as caught:
            code.wanted(given, args)
        assert str(caught.value).startswith(said)
    else:
        assert tuple(map(str, code.wanted(given, args))) == chosen


def test_the_latest_static_baseline_comes_before_one_of_a_device(tmp_path: Path) -> None:
    old, new = static(triton="3.7"), static()
    old = PendingBaseline(msgspec.structs.replace(old.baseline, recorded="2025-12-31T00:00:00Z"), old.artifacts, True)
    device = timed()
    case, target = new.baseline.case, new.baseline.target
    found = code.stored(tmp_path, entries(tmp_path, old, new, device), case, target)
    assert (found.name, triton_of(found.baseline), found.baseline.recorded) == (
        "baseline of 2026-01-02",
        "3.9",
        new.baseline.recorded,
    )
    (tmp_path / "device").mkdir()
    found = code.stored(tmp_path / "device", entries(tmp_path / "device", device), case, target)
    assert found.baseline == device.baseline
    with pytest.raises(KerntuneError, match=r"has no baseline of t\.py::other for cuda:90"):
        code.stored(tmp_path, entries(tmp_path, new), CaseId(OTHER, "0"), target)


@pytest.mark.parametrize(
    ("revision", "fails", "records"),
    [("", "", True), ("main", "", True), ("", "another", True), ("", "it", True), ("", "it", False), ("", "", False)],
)
def test_a_case_is_recorded_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str, fails: str, records: bool
) -> None:
    """Beside its baselines, whose configs are those that are compiled; of a revision in its own tree. Of a test that
    failed nothing is."""
    made, other = static(), static(OTHER)
    case, target = made.baseline.case, made.baseline.target
    folder(tmp_path / "baselines", made, other)
    (tmp_path / "project" / "below").mkdir(parents=True)
    (tmp_path / "project" / "pytest.ini").touch()
    monkeypatch.chdir(tmp_path / "project" / "below")  # the case's name starts in the project's folder all the same
    asked: list[Any] = []

    @contextlib.contextmanager
    def worktree(ref: str, root: Path) -> Any:
        asked.append((ref, root))
        yield tmp_path / "tree"

    def record(python: str, name: str, words: Any, into: Path, cwd: Path, env: Any) -> RunReport:
        asked.append((name, words, cwd, env, sorted(str(e.baseline.case) for e in load_folder(into))))
        (launch,) = made.baseline.launches
        slower = msgspec.structs.replace(launch, metrics=msgspec.structs.replace(launch.metrics, registers=250))
        fresh = msgspec.structs.replace(made.baseline, launches=(slower,))
        if records:
            folder(into, PendingBaseline(fresh, made.artifacts, True))
        results = (CaseResult(case, fresh.fingerprint, Verdict.NEW, Outcome.PASS, "", str(target)),) if records else ()
        failed = {"": {}, "it": {case.nodeid: "no such file"}, "another": {OTHER: "no"}}[fails]
        return RunReport(results, failed=failed)

    monkeypatch.setattr(code.git, "top_of", lambda root: tmp_path)
    monkeypatch.setattr(code.git, "worktree", worktree)
    monkeypatch.setattr(code.git, "worktree_environment", lambda tree, top, root: {"root": str(root)})
    monkeypatch.setattr(code, "record", record)
    here = tmp_path / "project"
    look = code.recorded(case, target, tmp_path / "baselines", "today", revision)
    if records and fails != "it":
        with look as side:
            assert (side.name, side.baseline.launches[0].metrics.registers) == ("today", 250)
            assert side.artifacts.get(made.baseline.launches[0].ttir_sha256) == b"module { softmax }"
    else:
        why = "no such file" if fails else "is it there, and does it launch Triton kernels?"
        with pytest.raises(UsageError) as caught:
            look.__enter__()
        assert str(caught.value).startswith(f"today: {case} has recorded nothing for cuda:90")
        assert str(caught.value).endswith(why)
    words, tree = ["--kerntune-target=cuda:90", case.nodeid], tmp_path / "tree" / "project"
    of_tree = (tree, {"root": str(tree)}) if revision else (here, None)
    assert asked == [*([("main", here)] if revision else []), ("today", words, *of_tree, [str(case)])]


def test_an_architecture_is_that_of_the_text() -> None:
    assert arch_in(".version 8.7\n.target sm_90a, debug\n.address_size 64") == "sm_90a"


def test_a_gluon_kernels_stages_begin_with_its_own() -> None:
    with active() as backend:
        found = recorded(backend, scale_in_gluon)
    (binary,) = found.recording.binaries
    launch = msgspec.structs.replace(
        static_launch(), ttir_sha256=binary.ttir_sha256, config=None, compiled_for={"num_warps": "4"}
    )
    side = side_of("today", cast(Any, None), found.artifacts)
    with contextlib.closing(Farm(workers=1)) as farm:
        texts = Texts(farm, found.recording.target)
        assert texts.stages_of(side, launch) == ("glir", "ttgir", "llir", "ptx", "sass")
        assert "tt.func public @scale_kernel" in texts.of(side, launch, "glir")
        assert ".entry scale_kernel" in texts.of(side, launch, "ptx")
        with pytest.raises(UsageError, match="has no stage ttir for cuda:90; there are glir, ttgir, llir, ptx, sass"):
            texts.of(side, launch, "ttir")


@pytest.mark.parametrize(
    ("triton", "told"), [("3.9", []), ("3.9.0", []), ("3.9.7", []), ("3.8.9", ["3.8.9"]), ("4.9.0", ["4.9.0"])]
)
def test_another_minor_version_of_triton_is_told(
    triton: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one = msgspec.structs.replace(static().baseline, launches=(), triton="3.9.0")
    before, after = side_of("then", msgspec.structs.replace(one, triton=triton), {}), side_of("now", one, {})
    assert not _show(before, after, cast(Texts, None), argparse.Namespace())
    assert capsys.readouterr().out.splitlines() == [
        f"then was recorded under Triton {version}; all but its TTIR is compiled by today's" for version in told
    ]


def test_a_launch_that_one_side_has_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    one = static()
    none = msgspec.structs.replace(one.baseline, launches=(), triton="3.1")
    sides = side_of("then", none, {}), side_of("now", one.baseline, {})
    assert _show(*sides, cast(Texts, None), argparse.Namespace())
    assert _show(*sides[::-1], cast(Texts, None), argparse.Namespace())
    kernel = one.baseline.launches[0].kernel
    assert capsys.readouterr().out.splitlines() == [
        "then was recorded under Triton 3.1; all but its TTIR is compiled by today's",
        f"{kernel}: only in now",
        "now was recorded under Triton 3.9; all but its TTIR is compiled by today's",
        f"{kernel}: only in now",
    ]


@pytest.mark.parametrize(
    ("stage", "unified", "width", "texts", "said", "differs"),
    [
        (None, False, 0, ("a", "b"), "add_kernel, ptx:\nside by side 123\n\n", True),
        ("ttir", False, 60, ("a", "b"), "add_kernel, ttir:\nside by side 60\n\n", True),
        ("ttir", True, 0, ("a", "b"), "add_kernel, ttir:\nunified\n\n", True),
        ("ttir", True, 0, ("a", "a"), "add_kernel, ttir: the same\n", False),
        ("", False, 0, ("a", "b"), "add_kernel: the same in every stage\n", False),
    ],
)  # fmt: skip
def test_a_launch_of_both_sides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stage: str | None, unified: bool, width: int,
    texts: tuple[str, str], said: str, differs: bool,
) -> None:  # fmt: skip
    """The first stage that differs, unless one is named; as wide as the terminal, unless that is."""
    monkeypatch.setenv("COLUMNS", "123")
    monkeypatch.setattr(code, "_first", lambda *words: "ptx" if stage is None else "")
    show = {"unified": lambda a, b, names: "unified" if a != b else "",
            "side_by_side": lambda a, b, names, width: f"side by side {width}" if a != b else ""}  # fmt: skip
    for name, function in show.items():
        monkeypatch.setattr(code, name, function)
    of = iter(texts)
    given = cast(Texts, argparse.Namespace(of=lambda side, launch, stage: next(of)))
    sides = side_of("then", static().baseline, {}), side_of("now", static().baseline, {})
    args = argparse.Namespace(stage=stage, unified=unified, width=width)
    assert code._show_launch(*sides, (static_launch(), static_launch()), given, args) is differs
    assert capsys.readouterr().out == said
