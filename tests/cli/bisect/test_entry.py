"""``kerntune bisect`` on repositories: the real engine in processes of its own, on a scripted GPU or without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.command import Command, CommandResult
from kerntune.cli.bisect import entry
from kerntune.cli.bisect.entry import Conclusion
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

KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), SIZE),)](x, y, x.numel(), BLOCK=SIZE, num_warps=WARPS)
    return y
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
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, name: str, size: object, warps: int = 4) -> None:
        (self.folder / "kernels.py").write_text(f"# {name}\nSIZE = {size}\nWARPS = {warps}\n{KERNELS}")
        self.git("add", "-A")
        self.git("commit", "-qm", name)
        self.git("tag", name)

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
    def full(*given: object, **named: object) -> None:
        raise OSError(28, "No space left on device", "/tmp/scratch")

    repository.commit("c1", 128)
    monkeypatch.setattr(entry, "scratch_folder", full)
    ran = repository.run("c1", "--check")
    assert (ran.code, ran.err) == (128, "kerntune: error: /tmp/scratch: No space left on device\n")


@pytest.mark.slow
def test_of_static_figures_each_case_has_the_gates_message(repository: Repository) -> None:
    double = KERNELS.replace("mask=at < n) * 2,", "mask=at < n).to(tl.float64) * 2.3 + 0.1,")
    tests = TESTS.replace("@pytest.mark.autotune\n", '@pytest.mark.parametrize("n", [1024, 4096])\n')
    tests = tests.replace("(autotune)", "(autotune, n)").replace("torch.ones(4096", "torch.ones(n")
    (repository.folder / "test_it.py").write_text(tests)
    repository.commit("c1", 128)
    (repository.folder / "kernels.py").write_text(f"SIZE = 128\nWARPS = 4\n{double}")
    repository.git("commit", "-qam", "c2")
    ran = repository.run("c1", "HEAD", "--target", "cuda:90")
    assert "t: c2" in ran.out.partition("first bad:")[2]
    for n in (1024, 4096):
        assert ran.out.count(f"  REGRESSED test_it.py::test_scale[{n}] (cuda:90, static only), scale_kernel: ") == 1


@pytest.mark.parametrize("alone", [0, 2])
def test_runs_that_were_no_copies_are_told(alone: int, capsys: pytest.CaptureFixture[str]) -> None:
    judge = SimpleNamespace(timed=True, alone=alone)
    assert entry._print_answer(Conclusion(("first bad: x",), True), SimpleNamespace(measured=1), judge) == 0  # type: ignore[arg-type]
    assert ("2 runs took long, in a process that imports torch anew: " in capsys.readouterr().out) == bool(alone)


def test_tests_are_needed(repository: Repository, kerntune: Command) -> None:
    repository.commit("c1", 128)
    assert "say which tests to run" in kerntune("bisect", "c1").err
    assert "no such test file" in kerntune("bisect", "c1", "--", "gone.py").err
