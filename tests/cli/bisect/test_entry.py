"""``kerntune bisect`` on repositories: the real engine in processes of its own, on a scripted GPU or without one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising
from git_project import git, kernels, tag

from cli.command import Command, CommandResult
from kerntune.base.case_result import CaseId
from kerntune.cli import static_record
from kerntune.cli.bisect import entry
from kerntune.cli.bisect.bisected_version import BisectedVersion, TritonChoice
from kerntune.cli.bisect.entry import Conclusion
from kerntune.cli.bisect.judging import ScreenedVersion, TimedVersion
from kerntune.errors import KerntuneError, UsageError
from kerntune.gpu.probe import has_cuda

pytestmark = pytest.mark.usefixtures("quick_python")

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    if config.getoption("--kerntune-target"):
        return None
    times = {128: 20_000.0, 64: 24_000.0, 256: 20_050.0}
    return FakeBackend(Script([Rule(constexprs={"BLOCK": b}, time_ns=t) for b, t in times.items()]))
"""

TESTS = """
import pytest, torch
from kernels import scale

@pytest.mark.autotune
def test_scale(autotune):
    x = torch.ones(4096, device=autotune.device)
    assert autotune(scale, x).shape == x.shape
"""


class Repository:
    """A repository whose commits set the kernel's block; ``run`` calls the command there."""

    def __init__(self, folder: Path, kerntune: Command) -> None:
        self.folder, self._kerntune = folder, kerntune
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text(TESTS)
        (folder / ".gitignore").write_text("__pycache__\nkept\n")
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        return git(self.folder, *words)

    def commit(self, name: str, size: object, warps: int = 4) -> None:
        (self.folder / "kernels.py").write_text(f"# {name}\n{kernels(size, warps)}")
        tag(self.folder, name)

    def run(self, *words: object) -> CommandResult:
        return self._kerntune("bisect", *words, "--", "test_it.py::test_scale")


@pytest.fixture
def repository(tmp_path: Path, kerntune: Command) -> Repository:
    return Repository(tmp_path, kerntune)


@pytest.fixture
def history(repository: Repository) -> Repository:
    """Three commits: ``c2`` can't be imported, ``c3`` is slower."""
    for number, size in enumerate([128, "(", 64], start=1):
        repository.commit(f"c{number}", size)
    return repository


@pytest.mark.slow
def test_the_first_slow_commit_is_named_with_its_change_and_stage(history: Repository) -> None:
    before = history.git("status", "--porcelain"), history.git("worktree", "list")
    ran = history.run("c1", "c3")
    assert ran.code == 0, ran.err
    text = ran.out
    assert "the first bad one is among these 2, of which 1 could not be judged:" in text
    listed = text.partition("could not be judged:")[2]
    assert "c2: its tests ended with code" in listed
    assert "t: c3" in listed
    assert "REGRESSED test_it.py::test_scale: 20.0 µs -> 24.0 µs" in listed
    assert "scale_kernel: because of launch options (BLOCK 128 -> 64), first in TTIR" in listed
    assert "grid 32x1x1 -> 64x1x1" in listed
    assert "1 version timed" in text
    assert (history.git("status", "--porcelain"), history.git("worktree", "list")) == before


@pytest.mark.slow
def test_without_a_gpu_all_that_changes_the_code_is_named(history: Repository) -> None:
    ran = history.run("c1", "c3", "--target", "cuda:90")
    assert ran.code == 1
    candidates = ran.out.partition("only a GPU can tell more:")[2]
    assert [name for name in ("c2", "c3") if f"t: {name}\n" in candidates] == ["c3"]
    assert "timed" not in ran.out


@pytest.mark.slow
@pytest.mark.skipif(has_cuda(), reason="has a GPU to time on")
def test_without_a_gpu_and_a_target_it_asks_for_one(history: Repository) -> None:
    (history.folder / "conftest.py").write_text("")
    ran = history.run("c1", "c3")
    assert ran.code == 2
    assert "the good side, " in ran.err
    assert "(without a GPU, say what to compile for: --target cuda:90): its tests ended with code 4" in ran.err


def test_a_good_side_that_cant_be_built_is_an_error(history: Repository) -> None:
    builds = f"{sys.executable} -c 1/0"
    ran = history.run("c1", "c3", "--setup", builds)
    assert ran.code == 2
    assert "the good side can't be built" in ran.err
    assert "ZeroDivisionError" in ran.err


@pytest.mark.slow
def test_check_answers_as_git_bisect_run_wants_it(repository: Repository) -> None:
    repository.commit("c1", 128)
    repository.commit("c2", "(")
    assert repository.run("c1", "--check", "--keep", "kept").code == 125
    repository.commit("c3", 64)
    assert repository.run("kept", "--check").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "c1"], "no such commit"),
        ([], "name GOOD and BAD"),
        (["c1", "c1", "c1"], "3 revisions"),
        (["c1", "c1", "--triton", "x"], "--triton x: is no version"),
        (["c1", "c1", "--torch", "x"], "--torch x: is no version"),
        (["c1", "c1", "--torch", "2.13", "--triton", "3.9"], "give --triton or --torch"),
        (["c1", "c1"], "c1 and c1 are the same commit"),
        (["c1", "HEAD", "--processes", "-1"], "--processes: -1 is too few; give 1 or more"),
    ],
)
def test_wrong_words_are_told(repository: Repository, words: list[str], said: str) -> None:
    repository.commit("c1", 128)
    ran = repository.run(*words)
    assert ran.code == 2
    assert said in ran.err


def test_check_that_is_wrongly_called_ends_git_bisect(repository: Repository) -> None:
    repository.commit("c1", 128)
    assert repository.run("--check").code == 128
    assert repository.run("nowhere", "--check").code == 128
    assert repository.run("c1", "--check", "--typo").code == 128, "2 would be a slow commit to git"
    assert repository.run("c1", "--check", "--processes", "x").code == 128
    assert repository.run("", "--check").code == 128
    assert repository.run("c1", "--typo").code == 2


def test_check_that_cannot_write_ends_git_bisect(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit("c1", 128)
    monkeypatch.setattr(entry, "scratch_folder", raising(OSError(28, "No space left on device", "/tmp/scratch")))
    ran = repository.run("c1", "--check")
    assert (ran.code, ran.err) == (128, "kerntune: error: /tmp/scratch: No space left on device\n")


@pytest.mark.slow
def test_of_static_figures_each_case_has_the_gates_message(repository: Repository) -> None:
    double = kernels(128).replace("mask=at < n) * 2,", "mask=at < n).to(tl.float64) * 2.3 + 0.1,")
    tests = TESTS.replace("@pytest.mark.autotune\n", '@pytest.mark.parametrize("n", [1024, 4096])\n')
    tests = tests.replace("(autotune)", "(autotune, n)").replace("torch.ones(4096", "torch.ones(n")
    (repository.folder / "test_it.py").write_text(tests)
    repository.commit("c1", 128)
    (repository.folder / "kernels.py").write_text(double)
    repository.git("commit", "-qam", "c2")
    ran = repository.run("c1", "HEAD", "--target", "cuda:90")
    assert "t: c2" in ran.out.partition("first bad:")[2]
    for n in (1024, 4096):
        assert ran.out.count(f"  REGRESSED test_it.py::test_scale[{n}] (cuda:90, static only), scale_kernel: ") == 1


def test_tests_are_needed(repository: Repository, kerntune: Command) -> None:
    repository.commit("c1", 128)
    assert "say which tests to run" in kerntune("bisect", "c1").err
    assert "no such test file" in kerntune("bisect", "c1", "--", "gone.py").err


# the command, without versions that are built


def words(*revisions: str, **more: Any) -> Any:
    """The command's arguments."""
    given = {"tests": ["t.py"], "setup": "", "triton": "", "torch": "", "target": "", "own_tests": False,
             "check": False, "keep": None, "processes": None, "baselines": None}  # fmt: skip
    return argparse.Namespace(revisions=[*revisions], **given | more)


class Judge:
    """Notes what it is asked for."""

    def __init__(self, project: Any, target: str, scratch: Path, processes: int) -> None:
        self.did: list[Any] = [(target, processes)]
        self.timed = not target

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.did.append((name, *words)) or ["a case"] * 3


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Judge]:
    """The judges that a command makes; the repository has three commits, and targets of baselines."""
    made: list[Judge] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entry, "VersionJudge", lambda *words: made.append(Judge(*words)) or made[-1])
    monkeypatch.setattr(entry, "project_at", lambda cwd, tests, setup, own, need_git: SimpleNamespace(
        cwd=cwd, top=tmp_path if need_git else None))  # fmt: skip
    monkeypatch.setattr(entry, "commits_between", lambda top, good, bad: [good] if good == bad else [good, "c2", bad])
    monkeypatch.setattr(entry.os, "sched_getaffinity", lambda pid: range(9))
    monkeypatch.setattr(static_record, "has_cuda", lambda: False)
    store = SimpleNamespace(targets=lambda: ["cuda:90", "cuda:80"])
    monkeypatch.setattr(static_record, "BaselineStore", lambda folder: store)
    monkeypatch.setattr(entry.git, "commit_of", lambda top, name: f"commit of {name}")
    return made


def test_revisions_are_good_and_bad_or_head() -> None:
    assert entry._revisions(["a"]) == ["a", "HEAD"]
    assert entry._revisions(["a", "b"]) == ["a", "b"]
    assert entry._revisions([]) == []
    with pytest.raises(UsageError, match=r"^3 revisions \(a b c\): name GOOD and BAD; tests come after --$"):
        entry._revisions(["a", "b", "c"])


@pytest.mark.parametrize(
    ("target", "gpu", "processes", "made"),
    [("", False, None, ("cuda:90,cuda:80", 2)), ("", True, None, ("", 2)), ("cuda:80", True, 3, ("cuda:80", 3)),
     ("", True, 1, ("", 1))],
)  # fmt: skip
def test_what_versions_are_judged_with(
    judged: list[Judge],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    target: str,
    gpu: bool,
    processes: Any,
    made: Any,
) -> None:
    """Without a GPU the targets of the baselines; a version for each four cores, and one at least."""
    monkeypatch.setattr(static_record, "has_cuda", lambda: gpu)
    project: Any = SimpleNamespace(cwd=tmp_path)
    with entry._judge(words(target=target, processes=processes), project, tmp_path):
        assert judged[0].did == [made]
    assert judged[0].did[1:] == [("close",)]
    monkeypatch.setattr(entry.os, "sched_getaffinity", lambda pid: range(3))
    with entry._judge(words(), project, tmp_path):
        assert judged[1].did[0][1] == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (words(processes=0), "--processes: 0 is too few; give 1 or more"),
        (words("a", triton="3.8,3.9", torch="2.13,2.15"), "give --triton or --torch: versions on a line differ"),
        (words(), "name GOOD and BAD (two commits), or two or more versions with --triton or --torch"),
        (words("HEAD", "HEAD"), "HEAD and HEAD are the same commit: there is nothing between them"),
    ],
)
def test_what_is_no_line_of_versions(judged: list[Judge], given: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        entry.run(given)
    assert str(caught.value).startswith(said)
    assert judged == []


@pytest.mark.parametrize(
    ("given", "commits", "choices", "header"),
    [
        (words("a", "b"), ["a", "c2", "b"], 0, "bisecting 2 commits, 3 cases, static figures only"),
        (words("a", "b", target="cuda:80"), ["a", "c2", "b"], 0, "bisecting 2 commits, 3 cases, static figures only"),
        (words(triton="x,y"), [""], 2, "bisecting 2 versions of Triton, 3 cases, static figures only"),
        (words("a", torch="x,y"), ["a", "c2", "HEAD"], 2,
         "bisecting 2 commits and 2 versions of torch, 3 cases, static figures only"),
    ],
)  # fmt: skip
def test_a_line_of_versions(
    judged: list[Judge], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: Any,
    commits: list[str], choices: int, header: str,
) -> None:  # fmt: skip
    """The first one is recorded, as the good side; then both ends are given to the search."""
    sought: list[Any] = []

    def choose(text: str, package: str = "Triton") -> list[TritonChoice]:
        return [TritonChoice(name, package=package) for name in filter(None, text.split(","))]

    monkeypatch.setattr(entry, "triton_choices", choose)
    monkeypatch.setattr(
        entry, "over_both", lambda bisection, *line: sought.append(line) or Conclusion(("none",), False)
    )
    assert entry.run(given) == entry.FINDINGS
    assert capsys.readouterr().out.splitlines() == [header, "none"]
    ((found, tritons),) = sought
    assert (found, len(tritons)) == (commits, choices or 1)
    assert judged[0].did[1:] == [("record_good", BisectedVersion(commits[0], tritons[0])), ("close",)]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("no such test"), 128, "kerntune: error: no such test\n"),
        (PermissionError(13, "Permission denied", "/cache"), 128, "kerntune: error: /cache: Permission denied\n"),
        (KerntuneError("it can't be built"), 125, "kerntune: can't tell: it can't be built\n"),
    ],
)
def test_a_check_that_ends_by_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    monkeypatch.setattr(entry, "_checked", raising(error))
    assert entry.run(words("a", check=True)) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("slower", "code"), [(True, 1), (False, 0), (None, 125)])
def test_a_check_s_exit_code(
    judged: list[Judge], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], slower: Any, code: int
) -> None:
    monkeypatch.setattr(entry.Bisection, "is_bad", lambda self, version: slower)
    monkeypatch.setattr(entry.Bisection, "shown", lambda self, version: ["what was seen", f"of {version}"])
    assert entry.run(words("a", check=True)) == code
    assert capsys.readouterr().out == "what was seen\nof the working tree\n"
    assert judged[0].did[1:] == [("record_good", BisectedVersion("commit of a")), ("close",)]
    assert entry.run(words("a", "b", check=True)) == 128


@pytest.mark.parametrize(
    ("good", "keep", "there", "did"),
    [
        ("a", None, "", [("record_good", BisectedVersion("commit of a"))]),
        ("a", "kept", "", [("record_good", BisectedVersion("commit of a")), ("keep_good", Path("kept"))]),
        ("a", "kept", "kept", [("reuse_good", Path("kept"))]),
        ("made", None, "made", [("reuse_good", Path("made"))]),
        ("made", "kept", "made", [("reuse_good", Path("made"))]),
    ],
)  # fmt: skip
def test_what_was_recorded_of_the_good_side_is_used_again(
    judged: list[Judge], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: str, keep: str | None, there: str,
    did: list[Any],
) -> None:  # fmt: skip
    monkeypatch.setattr(entry.Bisection, "is_bad", lambda self, version: False)
    monkeypatch.setattr(entry.Bisection, "shown", lambda self, version: [])
    if there:
        (tmp_path / there).mkdir()
    assert entry.run(words(good, check=True, keep=keep)) == 0
    assert judged[0].did[1:-1] == did


@pytest.mark.parametrize(("found", "timed", "code"), [(True, True, 0), (False, False, 1)])
def test_an_answer_says_how_many_versions_were_timed(
    capsys: pytest.CaptureFixture[str], found: bool, timed: bool, code: int
) -> None:
    judge, bisection = SimpleNamespace(timed=timed), SimpleNamespace(measured=1)
    assert entry._print_answer(Conclusion(("a", "b"), found), bisection, judge) == code  # type: ignore[arg-type]
    said = ["1 version timed; versions that compile to the same code are timed once"] if timed else []
    assert capsys.readouterr().out.splitlines() == ["a", "b", *said]


def screened(code: str, **more: Any) -> ScreenedVersion:
    """A version that compiles to some code; to none where that is empty."""
    identity = ((CASE, "f", code),) if code else None
    return ScreenedVersion(identity, "" if code else "can't be built", **more)  # type: ignore[arg-type]


CASE = CaseId("t.py::test_a", "0")
LINE = [BisectedVersion(commit) for commit in ("c1", "c2", "c3", "c4")]


class Line:
    """A judge of versions whose code, and whether it is slower, are known."""

    def __init__(self, codes: str, slow: str = "", *, timed: bool = True, untold: str = "") -> None:
        self.codes, self.slow, self.timed, self.untold, self.asked = codes, slow, timed, untold, list[str]()

    def screen(self, versions: Any) -> list[ScreenedVersion]:
        codes = [self.codes[LINE.index(v)].strip() for v in versions]
        return [screened(c, slower=c in self.slow, messages=(f"code {c} said",)) for c in codes]

    def measure(self, version: BisectedVersion) -> TimedVersion:
        code = self.codes[LINE.index(version)]
        self.asked.append(code)
        return TimedVersion(None if code in self.untold else code in self.slow, (f"code {code} timed",))


def bisected(line: Line) -> tuple[Conclusion, list[str], int]:
    told: list[str] = []
    bisection = entry.Bisection(line, None, told.append)  # type: ignore[arg-type]
    return bisection.along(LINE), told, bisection.measured


def test_the_first_slower_version_is_named_with_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "differences", lambda before, after, same_code: [f"it differs, {same_code}"])
    found, told, measured = bisected(Line("aabb", "b"))
    assert (found.found, found.lines) == (True, ("first bad: c3", "  code b timed", "  it differs, False"))
    assert (told, measured) == (["timed c4: slower"], 1)


def test_a_version_that_cannot_be_built_is_skipped_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "differences", lambda before, after, same_code: [])
    found, told, _ = bisected(Line("a bb", "b"))
    assert told[0] == "timed c4: slower"
    assert told.count("skipped c2: can't be built") == 1
    assert found.found
    assert found.lines == (
        "the first bad one is among these 2, of which 1 could not be judged:", "  c2: can't be built", "  c3",
        "  code b timed",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said", "told"),
    [
        (Line("aaba"), "nothing to find: c4 compiles to the same code as c1", []),
        (Line("aabb"), "nothing to find: c4 is not slower than c1: code b timed", ["timed c4: not slower"]),
        (
            Line("aabb", untold="b"), "nothing to find: c4 could not be compared with c1: code b timed",
            ["timed c4: not judged"],
        ),
    ],
)  # fmt: skip
def test_where_there_is_nothing_to_find(line: Line, said: str, told: list[str]) -> None:
    found, progress, _ = bisected(line)
    assert (found.found, found.lines, progress) == (False, (said,), told)


@pytest.mark.parametrize(("codes", "end"), [(" abc", "c1"), ("abc ", "c4")])
def test_an_end_that_cannot_be_built_is_an_error(codes: str, end: str) -> None:
    with pytest.raises(UsageError, match=rf"^{end} has no known code: can't be built$"):
        bisected(Line(codes))


def test_without_times_every_version_with_other_code_is_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "differences", lambda before, after, same_code: [f"{before.messages} {after.messages}"])
    found, told, measured = bisected(Line("a bc", timed=False))
    assert (found.found, measured, told) == (False, 0, ["skipped c2: can't be built"])
    assert found.lines == (
        "no static rule fails for c4; these change the code, and only a GPU can tell more:",
        "  c3", "    ('code a said',) ('code b said',)", "  c4", "    ('code b said',) ('code c said',)",
    )  # fmt: skip
    slow, _, measured = bisected(Line("aacc", "c", timed=False))
    assert (slow.found, slow.lines[0], measured) == (True, "first bad: c3", 0)


def test_what_is_shown_of_a_version() -> None:
    line = Line("a bb", "b")
    bisection = entry.Bisection(line, None, lambda text: None)  # type: ignore[arg-type]
    assert [bisection.is_bad(version) for version in LINE] == [False, None, True, True]
    assert line.asked == ["a", "b", "b"]
    assert [bisection.shown(version) for version in LINE] == [
        ("code a timed",), ["can't be built"], ("code b timed",), ("code b timed",),
    ]  # fmt: skip
    untimed = entry.Bisection(Line("ab", timed=False), None, lambda text: None)  # type: ignore[arg-type]
    untimed.is_bad(LINE[1])
    assert untimed.shown(LINE[1]) == ("code b said",)
