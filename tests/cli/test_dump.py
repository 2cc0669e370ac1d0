"""``kerntune dump``: a case's launches as folders that run without kerntune."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.command import Command
from cli.made import CUDA90, SOFTMAX, folder, timed
from kerntune.base import orphans
from kerntune.base.case_result import CaseId
from kerntune.cli import dump
from kerntune.errors import UsageError
from kerntune.gpu.probe import has_cuda

pytestmark = pytest.mark.usefixtures("quick_python")

SOURCE = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=[])
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

def both(x, y, n):
    for _ in range(2):
        double[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)

def test_double(autotune):
    x = torch.randn(1024, device=autotune.device)
    autotune(both, x, torch.empty_like(x), 1024)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_test_is_run_and_dumped(kerntune: Command, project: Path) -> None:
    ran = kerntune("dump", "test_it.py::test_double", "--target", "cuda:90", "-o", "out")
    assert ran.code == 0, ran.err
    first, second = map(Path, ran.out.splitlines())
    assert [first.name, second.name] == ["00-double", "01-double"]
    assert first.parent.parent == project / "out"
    found = json.loads((first / "launch.json").read_text())
    assert (found["case"], found["arch"], found["grid"]) == ("test_it.py::test_double", "sm_90a", [8, 1, 1])
    assert found["storages"][0]["content"] == {"kind": "stored", "file": "content-0.bin"}
    assert "def double" in (first / "kernel.py").read_text()
    assert not (project / "baselines").exists(), "nothing is recorded"
    folder(project / "baselines", timed("test_it.py::test_double"))
    again = kerntune("dump", "double", "--target", "cuda:90", "-o", "out")  # now one call of the test is meant
    assert again.code == 2
    assert "is there already" in again.err


@pytest.mark.slow
def test_without_a_gpu_the_baselines_say_what_to_compile_for(
    kerntune: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump, "has_cuda", lambda: False)
    folder(project / "baselines", timed("test_it.py::test_other"))
    ran = kerntune("dump", "test_it.py::test_double", "-o", "out")
    assert ran.code == 0, ran.err
    assert json.loads(Path(ran.out.splitlines()[0], "launch.json").read_text())["arch"] == "sm_90a"


@pytest.mark.slow
@pytest.mark.skipif(has_cuda(), reason="has a GPU to launch on")
def test_without_a_gpu_and_baselines_it_asks_what_to_compile_for(kerntune: Command, project: Path) -> None:
    kerntune("dump", "test_it.py::test_double", "-o", "out").complains(
        2, "(pytest exit code 4) (without a GPU, say what to compile for: --target cuda:90)"
    )


@pytest.mark.slow
def test_what_launches_nothing_is_an_error(kerntune: Command, project: Path) -> None:
    (project / "test_it.py").write_text("def test_double(): pass")
    ran = kerntune("dump", "test_it.py::test_double", "--target", "cuda:90")
    assert ran.code == 2
    assert "test_it.py::test_double: launched nothing that was dumped (pytest exit code 0)" in ran.err
    assert kerntune("dump", "double").err.startswith(
        "kerntune: error: no baseline's case is 'double', and it is no test's id"
    )


def test_a_stored_case_needs_no_run(kerntune: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "baselines", timed())
    monkeypatch.chdir(tmp_path)
    ran = kerntune("dump", SOFTMAX, "--stored", "-o", "out")
    (place,) = map(Path, ran.out.splitlines())
    names = {p.name for p in place.iterdir()}
    assert names == {"kernel.ttir", "kernel.cubin", "content-1.bin", "launch.json", "replay.py"}
    assert ran.code == 1, "files are missing: this TTIR is none"
    assert f"{place}: no kernel.ttgir, kernel.llir, kernel.ptx: kernel softmax_kernel: Triton" in ran.err
    assert (place / "kernel.cubin").read_bytes() == b"\x7fELF of softmax"
    found = json.loads((place / "launch.json").read_text())
    assert found["environment"]["driver"] == "580.65"
    assert found["params"][2] == {"name": "n", "type": "i32", "value": 4096}


def test_a_stored_case_without_its_ttir_says_so(kerntune: Command, tmp_path: Path, monkeypatch: Any) -> None:
    case = timed()
    (binary,) = case.baseline.recording.binaries
    store = folder(tmp_path / "baselines", case)
    store.artifacts(CUDA90)._path(binary.ttir_sha256).unlink()
    monkeypatch.chdir(tmp_path)
    ran = kerntune("dump", SOFTMAX, "--stored", "-o", "out")
    assert ran.code == 1
    ttir = f"its TTIR {binary.ttir_sha256[:12]} is not among the baselines' artifacts"
    assert f"no kernel.ttir, kernel.ttgir, kernel.llir, kernel.ptx: {ttir}" in ran.err
    assert (Path(ran.out.strip()) / "kernel.cubin").exists()


# what the test's run has left


def dumps(monkeypatch: pytest.MonkeyPatch, *cases: str, out: str = "said\n") -> list[Any]:
    """A run of pytest leaves a folder for each of these cases; what it was called with."""
    calls: list[Any] = []

    def run(command: list[str], **words: Any) -> Any:
        calls.append((command, words["env"]))
        for number, case in enumerate(cases):
            place = Path(words["env"]["KERNTUNE_DUMP"], f"case{number}", "00-k")
            place.mkdir(parents=True)
            (place / "launch.json").write_text(json.dumps({"case": case}))
        return SimpleNamespace(returncode=4, stdout=out, stderr="error\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(orphans, "bound_command", lambda command: command)
    monkeypatch.setattr(dump, "has_cuda", lambda: False)
    return calls


@pytest.mark.parametrize(
    ("call", "target", "moved"),
    [("", "cuda:90", ["case0", "case1"]), ("b", "", ["case1"]), ("0", "cuda:90", ["case0"])],
)
def test_launches_of_the_case_that_is_meant_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, target: str, moved: list[str]
) -> None:
    calls = dumps(monkeypatch, "t.py::test_a", "t.py::test_a::b")
    args: Any = SimpleNamespace(content="exact")
    paths = dump._launched(CaseId("t.py::test_a", call), args, target, tmp_path / "out")
    assert paths == [tmp_path / "out" / name / "00-k" for name in moved]
    ((command, env),) = calls
    assert env["KERNTUNE_DUMP_CONTENT"] == "exact"
    assert command[-1] == "t.py::test_a"
    assert [word for word in command if "target" in word] == ([f"--kerntune-target={target}"] if target else [])
    with pytest.raises(UsageError, match=r"is there already; remove it, or say -o DIR$"):
        dump._launched(CaseId("t.py::test_a", call), args, target, tmp_path / "out")


@pytest.mark.parametrize(("call", "where"), [("0", "."), ("", "tests")])
def test_the_name_of_a_baselines_case_starts_in_the_projects_folder(
    monkeypatch: pytest.MonkeyPatch, project: Path, call: str, where: str
) -> None:
    """One that a user types starts in the folder where it is typed."""
    (project / "tests").mkdir()
    monkeypatch.chdir(project / "tests")
    folders: list[Any] = []
    monkeypatch.setattr(dump, "run_to_end", lambda command, cwd, env: folders.append(cwd) or SimpleNamespace(code=1))
    with pytest.raises(AttributeError):  # nothing was dumped
        dump._launched(CaseId("t.py::test_a", call), SimpleNamespace(content=""), "cuda:90", project)  # type: ignore
    assert [Path(place or ".").resolve() for place in folders] == [project / where]


@pytest.mark.parametrize(("target", "need"), [("cuda:90", ""), ("", r" \(without a GPU, say .*--target cuda:90\)")])
def test_a_case_that_launched_nothing_shows_the_runs_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, need: str
) -> None:
    dumps(monkeypatch, "t.py::test_a", out="".join(f"line {i}\n\n" for i in range(15)))
    with pytest.raises(UsageError, match=rf"launched nothing that was dumped \(pytest exit code 4\){need}\n") as caught:
        dump._launched(CaseId("t.py::test_a", "b"), SimpleNamespace(content=""), target, tmp_path)  # type: ignore
    shown = str(caught.value).splitlines()[1:]
    assert (len(shown), shown[0], shown[-1]) == (15, "line 1", "error")


def test_what_to_compile_for_is_the_cases_own_if_it_has_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [SimpleNamespace(case=CaseId(n, "0"), target=t) for n, t in (("a", "x"), ("b", "z"), ("b", "y"), ("b", "y"))]
    monkeypatch.setattr(dump, "readable", lambda entries: here)
    for gpu, found in ((False, ["x", "y,z", "x,y,z"]), (True, ["", "", ""])):
        monkeypatch.setattr(dump, "has_cuda", lambda gpu=gpu: gpu)
        assert [dump._known_targets([], CaseId(name, "1")) for name in "abc"] == found


def test_a_folder_without_a_launch_is_no_cases(tmp_path: Path) -> None:
    assert dump._case_in(tmp_path) == ""


def test_dumps_are_moved_to_a_folder_that_need_not_be_there(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "made" / name).mkdir(parents=True)
    target = tmp_path / "out" / "deep" / "case"
    assert dump._moved(tmp_path / "made", target) == [target / "a", target / "b"]
    assert not (tmp_path / "made").exists()
    with pytest.raises(UsageError, match=r"/out/deep/case: is there already; remove it, or say -o DIR$"):
        dump._moved(tmp_path / "made", target)
