"""Runs of tests in other environments: how they are started, and what becomes of their ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.made import folder, static
from kerntune.base import orphans
from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.cli import static_record
from kerntune.cli.static_record import EnvironmentVersions, record, run_both, versions_in
from kerntune.errors import UsageError
from kerntune.gate.report import RunReport, write_run

ENVIRONMENT = {"own": "environment"}


class Processes:
    """In the place of ``subprocess.run``: each interpreter has Triton 3.9 but that named ``new`` (3.7). A run records
    one case; ``code`` and ``out`` are its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0, out: str = "", leaves: bool = True) -> None:
        self.calls: list[Any] = []
        self.began_with: list[list[str]] = []
        self.code, self.out, self.leaves = code, out, leaves
        monkeypatch.setattr(subprocess, "run", self.run)
        monkeypatch.setattr(orphans, "bound_command", lambda command: command)
        monkeypatch.setattr(static_record, "own_environment", lambda: ENVIRONMENT)
        monkeypatch.setattr(static_record.shutil, "which", lambda name: name if "gone" not in name else None)
        monkeypatch.setattr(static_record, "has_cuda", lambda: self.gpu)
        self.gpu = False

    def run(self, command: list[str], *, check: bool, capture_output: bool, text: bool, **words: Any) -> Any:
        assert (check, capture_output, text) == (False, True, True)
        if command[1] == "-c":
            broken = "broken" in command[0]
            told = f"a warning of it\n{'3.7.0' if 'new' in command[0] else '3.9.1'} 2.13.0+cu128\n"
            return subprocess.CompletedProcess(command, int(broken), told, "")
        self.calls.append((command, {name: words[name] for name in ("env", "cwd")}))
        into, log = (next((w.partition("=")[2] for w in command if w.startswith(f"--kerntune-{n}=")), "")
                     for n in ("baselines", "json"))  # fmt: skip
        self.began_with.append(sorted(path.name for path in Path(into).glob("*")))
        if self.leaves:
            made = static(triton="3.7" if "new" in command[0] else "3.9")
            folder(Path(into), made)
            case = made.baseline
            one = CaseResult(case.case, case.fingerprint, Verdict.NEW, Outcome.PASS, "", "cuda:90")
            if log:
                write_run(Path(log), RunReport((one,)))
        return subprocess.CompletedProcess(command, self.code, self.out, "on standard error\n")


@pytest.mark.parametrize("code", [0, 1])
def test_tests_are_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int) -> None:
    processes = Processes(monkeypatch, code, "1 passed\n1 failed\n\n")
    report = record("python", "main", ["-k", "a"], tmp_path / "into", cwd=tmp_path)
    assert [r.verdict for r in report.results] == [Verdict.NEW]
    command = ["python", "-m", "kerntune", "baselines", "refresh", f"--kerntune-baselines={tmp_path}/into",
               f"--kerntune-json={tmp_path}/into.json", "-p", "no:cacheprovider", "-q", "-k", "a"]  # fmt: skip
    assert processes.calls == [(command, {"env": ENVIRONMENT, "cwd": tmp_path})]
    record("python", "main", [], tmp_path / "into", env={"its": "own"})
    assert processes.calls[1][1] == {"env": {"its": "own"}, "cwd": None}


@pytest.mark.parametrize(("code", "leaves"), [(2, True), (0, False), (1, False), (5, False)])
def test_a_run_that_records_nothing_shows_its_last_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, leaves: bool
) -> None:
    Processes(monkeypatch, code, "".join(f"line {i}\n\n" for i in range(20)), leaves)
    lines = "\n".join([*(f"line {i}" for i in range(6, 20)), "on standard error"])
    with pytest.raises(UsageError) as caught:
        record("python", "main", [], tmp_path / "into")
    assert str(caught.value) == f"python (main): recorded nothing (pytest exit code {code})\n{lines}"
    with pytest.raises(UsageError) as caught:
        run_both(["/new/python"], [], "cuda:90", tmp_path / "baselines")
    told = f"{os.path.abspath(sys.executable)} (Triton 3.9.1, torch 2.13.0): recorded nothing (pytest exit code {code})"
    assert str(caught.value) == f"{told}\n{lines}"


def test_versions_of_an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    Processes(monkeypatch)
    assert versions_in("/new/python") == EnvironmentVersions("3.7.0", "2.13.0")
    with pytest.raises(UsageError, match=r"^/broken/python: has no Triton; name the interpreter of an environment"):
        versions_in("/broken/python")


@pytest.mark.parametrize(
    ("pythons", "targets", "gpu", "old", "options"),
    [
        (["/new/python"], "cuda:80", False, sys.executable, ["--kerntune-target=cuda:80"] * 2),
        (["/old/python", "/new/python"], "cuda:80", True, "/old/python", ["--kerntune-target=cuda:80"] * 2),
        (["/new/python"], None, False, sys.executable, ["--kerntune-target=cuda:90"] * 2),
        (["/new/python"], None, True, sys.executable, [None, "--kerntune-update=new"]),
    ],
)  # fmt: skip
def test_both_sides_run_the_same_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pythons: Any, targets: Any, gpu: bool, old: str, options: Any
) -> None:
    """Compiled for what is asked for, else for what the baselines are of; on a GPU the new side is timed beside the old
    one's binaries."""
    processes = Processes(monkeypatch)
    processes.gpu = gpu
    folder(tmp_path, static())
    before, after = run_both(pythons, ["t.py"], targets, tmp_path)
    assert [(command[0], words) for command, words in processes.calls] == [
        (old, {"env": ENVIRONMENT, "cwd": None}), ("/new/python", {"env": ENVIRONMENT, "cwd": None}),
    ]  # fmt: skip
    for (command, _), option, side in zip(processes.calls, options, ("old", "new"), strict=True):
        assert command[1:5] == ["-m", "kerntune", "baselines", "refresh"]
        assert [w.rpartition("/")[2] for w in command[5:7]] == [side, f"{side}.json"]
        assert command[7:] == ["-p", "no:cacheprovider", "-q", *([option] if option else []), "t.py"]
    assert (str(before.versions), str(after.versions)) == ("Triton 3.9.1, torch 2.13.0", "Triton 3.7.0, torch 2.13.0")
    assert processes.began_with == [[], ["cuda-90"]], "the new side begins with the old one's baselines"
    assert [len(run.report.results) for run in (before, after)] == [1, 1]
    assert [[e.path.parts[1] for e in run.entries] for run in (before, after)] == [["triton-3.9"], ["triton-3.7"]]


@pytest.mark.parametrize(
    ("pythons", "said"),
    [
        (["a", "b", "c"], "--python can be given once (beside the environment that runs this) or twice"),
        (["a"], "say what to compile for, for example --target cuda:90; {} has no baselines yet"),
    ],
)
def test_what_two_sides_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pythons: Any, said: str) -> None:
    Processes(monkeypatch)
    with pytest.raises(UsageError) as caught:
        run_both(pythons, [], None, tmp_path)
    assert str(caught.value) == said.format(tmp_path)
    with pytest.raises(UsageError, match="--python gone: is no program; name a Python interpreter"):
        run_both(["gone"], [], "cuda:90", tmp_path)


def test_what_did_not_run_is_not_recorded(tmp_path: Path) -> None:
    """Nor what is of another Triton; files that can't be read stay, to be told."""
    folder(tmp_path, static(), static(triton="3.7"), static(call="broken"))
    (broken,) = (p for p in tmp_path.rglob("*.json") if '"broken"' in p.read_text())
    broken.write_text("{")
    entries = static_record.load_folder(tmp_path)
    case = static().baseline
    ran = CaseResult(case.case, case.fingerprint, Verdict.PASS, Outcome.PASS, "", "cuda:90")
    other = CaseResult(CaseId("t.py::other", "0"), case.fingerprint, Verdict.PASS, Outcome.PASS, "", "cuda:90")
    versions = EnvironmentVersions("3.9.1", "2.13.0")
    kept = [static_record._recorded(entries, RunReport((one,)), versions) for one in (ran, other)]
    assert [sorted(e.baseline is not None for e in found) for found in kept] == [[False, True], [False]]
    assert kept[0] != []
