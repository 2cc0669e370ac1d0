"""The command lines of runs that a run starts, and what is read of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import raising

from kerntune.base import orphans
from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.report import RunReport, counts
from kerntune.gate.reporting.failure import table_lines
from pytest_kerntune import other_runs, unattended
from pytest_kerntune.other_runs import (
    FAILED,
    LOOKING,
    ExtraTargets,
    Reference,
    anchor_folder,
    arguments,
    counterparts,
    export,
    reference_folder,
    run_extra_targets,
    runs_tests,
)

LINES = 30


class Config:
    """pytest's, of a run in ``folder`` with these arguments and options."""

    def __init__(self, folder: Path, *args: str, words: Any = (), **options: Any) -> None:
        self.args, self.option = args, SimpleNamespace(**options)
        self.invocation_params = SimpleNamespace(dir=folder, args=words)

    def getoption(self, name: str, default: Any = None) -> Any:
        return getattr(self.option, name, default)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with the base's checkout in ``tree``, and this one's in ``here``."""
    for place in ("tree/tests", "here/tests"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "test_a.py").touch()
    (tmp_path / "here/tests/test_new.py").touch()
    return tmp_path


def test_tests_that_the_base_has(base: Path) -> None:
    config: Any = Config(base / "here", "tests/test_a.py::test_x[a::b]", "tests/test_new.py", str(base / "here/tests"))
    found = counterparts(config, base / "tree", base / "here")
    assert found == [f"{base}/tree/tests/test_a.py::test_x[a::b]", f"{base}/tree/tests"]
    with pytest.raises(UsageError, match=r"^--kerntune-against: .*/tree is not in the repository .*/here, so the base"):
        counterparts(Config(base / "here", "../tree"), base / "tree", base / "here")  # type: ignore[arg-type]


class Process:
    """In the place of ``subprocess.run``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0, out: str = "", err: str = "") -> None:
        self.calls: list[Any] = []
        self.done = SimpleNamespace(returncode=code, stdout=out, stderr=err)
        monkeypatch.setattr(subprocess, "run", self.run)
        monkeypatch.setattr(orphans, "bound_command", lambda command: command)
        monkeypatch.setattr(other_runs.git, "worktree_environment", lambda root, top: {"ROOT": str(root)})

    def run(self, command: list[str], **words: Any) -> Any:
        self.calls.append((command, words))
        return self.done


def exported(base: Path, config: Any, targets: Any = ()) -> Reference:
    return export(config, base / "tree", base / "here", base / "into", targets)


def test_the_base_runs_the_same_tests_with_the_same_selection(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    options = {"keyword": "fast", "markexpr": "", "kerntune_tune": "full", "kerntune_cache_dir": "cache"}
    found = exported(base, Config(base / "here/tests", "test_a.py", **options), ["cuda:90", "cuda:80"])
    assert found == Reference(base / "into", "")
    ((command, words),) = process.calls
    assert command[-6:] == [
        *("-k", "fast", "--kerntune-tune=full"),
        f"--kerntune-cache-dir={base}/here/tests/cache",
        *("--kerntune-target=cuda:90,cuda:80", f"{base}/tree/tests/test_a.py"),
    ]
    assert {"-q", "no:cacheprovider", "--kerntune", f"--kerntune-export={base}/into"} <= {*command}
    assert "-m" not in command[3:]
    assert (words["cwd"], words["env"]) == (base / "tree/tests", {"ROOT": f"{base}/tree"})
    assert (words["capture_output"], words["text"], words["check"]) == (True, True, False)


def test_a_folder_that_the_base_lacks_is_left_out(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    (base / "here/new").mkdir()
    config = Config(base / "here/new", "../tests", keyword="", markexpr="slow")
    exported(base, config)
    ((command, words),) = process.calls
    assert words["cwd"] == base / "tree"
    assert command[-3:] == ["-m", "slow", f"{base}/tree/tests"]


def test_a_base_without_the_tests_is_not_run(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    found = exported(base, Config(base / "here", "tests/test_new.py"))
    assert found == Reference(base / "into", "the base has none of these tests, so every case is NEW")
    assert process.calls == []
    assert (base / "into").is_dir()


@pytest.mark.parametrize(
    ("code", "remark"), [(0, ""), (1, f"{FAILED}: 1 failed in 2s"), (5, f"{FAILED}: 1 failed in 2s"), (2, None)]
)
def test_a_base_that_breaks_off_is_an_error(
    base: Path, monkeypatch: pytest.MonkeyPatch, code: int, remark: str | None
) -> None:
    lines = [f"line {i}" for i in range(LINES)]
    Process(monkeypatch, code, "\n".join([*lines, "== 1 failed in 2s ==", "  \n"]), "err\n")
    config = Config(base / "here", "tests", keyword="", markexpr="")
    if remark is not None:
        assert exported(base, config) == Reference(base / "into", remark)
        return
    with pytest.raises(UsageError) as caught:
        exported(base, config)
    first, *rest = str(caught.value).splitlines()
    assert first == "--kerntune-against: the tests of the base ended with code 2:"
    assert (len(rest), rest[-1]) == (LINES, "err")


# references


def test_where_a_reference_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(other_runs.git, "extract", lambda *asked: ("extracted", *asked))
    options: Any = SimpleNamespace(baselines_ref="main", reference_baselines="kept", root=tmp_path)
    found = reference_folder(SimpleNamespace(), options, tmp_path / "into")  # type: ignore[arg-type]
    assert found == Reference(("extracted", "main", "kept", tmp_path / "into", tmp_path), "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("anchor", "ref", "name", "asked"),
    [
        ("v1", "", None, ("v1", "kept")),
        ("/abs", "", "abs", None),
        ("/abs", "main", None, None),
        ("/abs", "main", "abs", ("main", Path("/abs"))),
    ],
)
def test_where_the_anchor_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, anchor: str, ref: str, name: str | None, asked: Any
) -> None:
    """A revision's, or a folder; of the reference's revision where the folder is in the repository."""
    calls: list[Any] = []
    monkeypatch.setattr(other_runs.git, "extract", lambda *given: calls.append(given) or tmp_path)
    monkeypatch.setattr(other_runs.git, "top_of", lambda root: root)
    monkeypatch.setattr(other_runs.git, "name_in", lambda top, path: name)
    options: Any = SimpleNamespace(anchor=anchor, reference_name=ref, reference_baselines="kept", root=tmp_path)
    found = anchor_folder(options, tmp_path / "into")
    assert found == (tmp_path if asked else Path(anchor))
    assert calls == ([(*asked, tmp_path / "into", tmp_path)] if asked else [])


def test_an_anchor_that_is_neither_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(other_runs.git, "extract", raising(UsageError("no such commit")))
    options: Any = SimpleNamespace(anchor="v1", reference_name="", reference_baselines="kept", root=tmp_path)
    with pytest.raises(UsageError) as caught:
        anchor_folder(options, tmp_path)
    said = "--kerntune-anchor: v1 is no folder (`kerntune anchor` makes it), and no revision: no such commit"
    assert str(caught.value) == said


# runs for other targets


@pytest.mark.parametrize("name", LOOKING)
def test_a_run_that_only_shows_runs_no_tests(name: str) -> None:
    assert not runs_tests(SimpleNamespace(option=SimpleNamespace(**{name: True})))  # type: ignore[arg-type]
    assert runs_tests(SimpleNamespace(option=SimpleNamespace(**{name: False})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, []),
        ({"benchmark_disable": False, "benchmark_only": False}, ["--benchmark-disable"]),
        ({"benchmark_disable": True, "benchmark_only": False}, ["--benchmark-disable"]),
        ({"benchmark_disable": False, "benchmark_only": True}, []),
        ({"xmlpath": "x.xml"}, ["--junitxml=/into/junit.xml"]),
    ],
)
def test_what_other_runs_are_called_with(options: dict[str, Any], more: list[str]) -> None:
    words = ["-k", "add", "--lf", "--kerntune-update=new", Path("t.py"), "--", "x"]
    config: Any = Config(Path("/here"), words=words, kerntune_html="left to this run", **options)
    found = arguments(config, "cuda:80", Path("/into"))
    assert (found[:5], found[-2:]) == (["-k", "add", "--lf", "--kerntune-update=new", "t.py"], ["--", "x"])
    assert found[5:9] == [
        "--kerntune",
        "--continue-on-collection-errors",
        "--kerntune-target=cuda:80",
        "--kerntune-json=/into/run.json",
    ]
    assert "--maxfail=0" in found
    assert [x for x in found if "benchmark" in x or "junit" in x or "html" in x] == more


def report(**known: Any) -> RunReport:
    return RunReport(known.pop("results", ()), **known)


@pytest.mark.parametrize(
    ("code", "told", "fine"),
    [
        (0, report(), True),
        (5, report(), True),
        (1, report(failed={"t.py::test_a": "why"}), True),
        (1, report(), False),
        (3, report(), False),
        (0, None, False),
    ],
)
def test_a_run_that_does_not_say_why_it_failed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: Any, fine: bool
) -> None:
    process = Process(monkeypatch, code, "out\n", "err\n")
    monkeypatch.setattr(other_runs, "read_run", lambda path: told)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    folder = tmp_path / "cuda-80"
    if told is not None:
        folder.mkdir()
        (folder / "run.json").touch()
    config: Any = Config(tmp_path, words=["t.py"])
    if fine:
        assert run_extra_targets(config, ["cuda:80"], tmp_path) == tmp_path
    else:
        with pytest.raises(KerntuneError, match=rf"^the run for cuda:80 ended with code {code}:\nout\nerr$"):
            run_extra_targets(config, ["cuda:80"], tmp_path)
    ((command, words),) = process.calls
    assert f"--kerntune-json={folder}/run.json" in command
    assert command[command.index(unattended.__name__) - 1] == "-p", "it leaves the cache and the keyboard to this run"
    own = {name: words[name] for name in words if name != "env"}
    assert own == {
        "cwd": tmp_path, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False,
        "errors": "replace",
    }  # fmt: skip
    assert not {"PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"} & words["env"].keys()
    assert words["env"]["PYTHONPATH"] == f"{Path(other_runs.__file__).parents[1]}:/mine"


def result(test: str, outcome: Outcome = Outcome.PASS, verdict: Verdict = Verdict.PASS) -> CaseResult:
    return CaseResult(CaseId(test, "0"), "f", verdict, outcome, "said", "cuda:80")


def test_what_other_runs_say_of_a_test() -> None:
    fails, stale = result("a", Outcome.FAIL), result("b", verdict=Verdict.STALE)
    first = report(results=(fails, stale, result("b")), failed={"a": "1", "c": "2"}, static_only={"a": "needs"})
    second = report(results=(result("a"),), failed={"a": "3"}, baselines={"a": 1})
    extra = ExtraTargets({"cuda:80": first, "hip:gfx942": second})
    assert extra.tests == ["a", "b", "c"]
    assert (extra.stale, extra.baselines) == ([stale], {"a": 1})
    assert extra.static_only == {"a": "needs (cuda:80)"}
    assert extra.results("b") == [result("b")]
    assert counts(extra.results("c")) == {Verdict.INCOMPLETE: 1}
    *known, failed = extra.results("a")
    assert known == [fails, result("a")]
    assert failed.message == "INCOMPLETE a (hip:gfx942): the test fails there: 3"
    rows = [line.strip() for line, _ in table_lines([failed], whole=False, width=80)]
    assert any("the test fails there: 3" in row for row in rows), rows
    assert (failed.outcome, failed.target) == (Outcome.FAIL, "hip:gfx942")
    assert [r.message for r in extra.results("c")] == ["INCOMPLETE c (cuda:80): the test fails there: 2"]
    assert extra.results("d") == []
