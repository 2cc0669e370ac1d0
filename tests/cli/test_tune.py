"""``kerntune tune``: from tests, from files of shapes; on scripted GPUs in processes of their own."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import Copies

from kerntune.base import orphans
from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.cli import tune
from kerntune.errors import UsageError
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.many.job_run import JobEnd, KeyOutcome
from kerntune.tuning.many.shapes_file import ShapesFile

TESTS = Path(__file__).parents[1]


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What :func:`tune_many` was given; each job ends as its kernel is called."""
    given: list[Any] = []

    def tune_many(jobs: Sequence[TuningJob], *, tell: Any, **words: Any) -> None:
        given.append((list(jobs), words))
        for job in jobs:
            if job.kernel == "interrupt":
                raise KeyboardInterrupt
            ended = JobEnd(job.kernel)
            tell(KeyOutcome(job.digest(), job.name, job.key, ended, notes=("times vary",)))

    monkeypatch.setattr("kerntune.tuning.many.tune_many.tune_many", tune_many)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", os.environ["KERNTUNE_CACHE_DIR"])  # put back: the command sets it
    return given


def shapes(folder: Path, *kernels: str, name: str = "s") -> None:
    for number, kernel in enumerate(kernels):
        ShapesFile(folder / name).add(TuningJob(SCHEMA, "module", kernel, key=f"({number},)"))


def test_files_of_shapes_are_tuned_and_counted(kerntune: Any, tmp_path: Path, tuned: list[Any]) -> None:
    shapes(tmp_path, "tuned", "stored")
    shapes(tmp_path, "tuned", "nothing", name="t")
    ran = kerntune("tune", "--shapes", "s", "--shapes", "t", "--gpus", "1,0", "--module", "module", "--path", "src")
    assert (ran.code, ran.out) == (0, "importing module\n3 keys: 1 tuned, 1 stored before, 1 with nothing to tune\n")
    assert ran.err == "kerntune: note: times vary\n", "once"
    ((jobs, words),) = tuned
    assert len(jobs) == 3
    assert words["gpus"] == ["1", "0"]
    assert words["modules"] == ["module"]
    assert words["paths"] == (str(tmp_path / "src"), str(tmp_path))
    assert words["executor"] is None


def test_a_key_without_a_winner_is_a_finding(kerntune: Any, tmp_path: Path, tuned: list[Any]) -> None:
    shapes(tmp_path, "tuned", "lost")
    ran = kerntune("tune", "--shapes", "s")
    assert ran.code == 1
    assert "2 keys: 1 tuned, 1 lost" in ran.out


def test_ctrl_c_says_what_is_left(kerntune: Any, tmp_path: Path, tuned: list[Any]) -> None:
    shapes(tmp_path, "tuned", "interrupt", "stored")
    ran = kerntune("tune", "--shapes", "s")
    assert ran.code == 128 + signal.SIGINT
    assert "interrupted; the same command does the other 2 keys" in ran.err
    assert "1 key: 1 tuned" in ran.out


def test_the_cache_is_that_of_the_option(kerntune: Any, tmp_path: Path, tuned: list[Any]) -> None:
    shapes(tmp_path, "tuned")
    kerntune("tune", "--shapes", "s", "--cache-dir", "mine")
    assert os.environ["KERNTUNE_CACHE_DIR"] == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say what to tune"),
        (["--shapes", "gone"], "no such file"),
        (["--shapes", "half"], "half:1: is no description of a call"),
        (["--shapes", "s", "--gpus", "7"], "there is no GPU 7: 2 are visible here"),
        (["--shapes", "s", "--gpus", "0,0"], "name each once"),
        (["gone", "--gpus", "foo"], "'foo' is no GPU"),  # before pytest runs for the tests' calls
    ],
    ids=str,
)
def test_wrong_usage(kerntune: Any, tmp_path: Path, tuned: list[Any], words: list[str], says: str) -> None:
    shapes(tmp_path, "tuned")
    (tmp_path / "half").write_text("{")
    kerntune("tune", *words).complains(2, says)
    assert tuned == []


def test_no_gpu_is_said_before_anything_is_done(
    kerntune: Any, tmp_path: Path, tuned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes(tmp_path, "tuned")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = kerntune("tune", "--shapes", "s")
    assert (ran.code, tuned) == (2, [])
    assert "there is no GPU here to tune on" in ran.err
    assert "kerntune tune --dask HOST:PORT" in ran.err


def test_dask_that_is_missing_is_named(
    kerntune: Any, tmp_path: Path, tuned: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes(tmp_path, "tuned")
    monkeypatch.setitem(sys.modules, "distributed", None)
    kerntune("tune", "--shapes", "s", "--dask", "host:8786").complains(
        2, "--dask needs Dask: pip install 'kerntune[dask]'"
    )


def test_the_folder_of_a_tests_module() -> None:
    job = TuningJob(SCHEMA, "ops.test_scale", "kernel", file="/x/tests/ops/test_scale.py")
    assert tune.folder_of(job) == "/x/tests"
    assert tune.folder_of(TuningJob(SCHEMA, "other", "kernel", file="/x/y.py")) == ""


MODULE = """
import pytest, torch
from scripted_kernels import add, bare_kernel, grid, pair, scale

@pytest.mark.parametrize("n", [1000, 5000, 1000])
def test_scale(n):
    scale(n)

@pytest.mark.autotune(candidates={"bare_kernel": [{"BLOCK": 64}, {"BLOCK": 128}]})
def test_bare(autotune):
    x, y = pair(4096)
    autotune(lambda: bare_kernel[grid(4096)](x, y, 4096, BLOCK=64))

def test_ends_early():
    add(3000)
    assert torch.zeros(3, device="cuda").sum().item() == 1
    add(4000)
"""


@pytest.fixture
def env(tmp_path: Path, copies: Copies, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Scripted GPUs for all that a test starts; NVML knows of none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    found = {**os.environ, "KERNTUNE_TESTS_SCRIPTED": "yes", "KERNTUNE_CACHE_DIR": str(tmp_path / "cache")}
    root = os.pathsep.join(filter(None, [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]))
    return {**found, "PYTHONPATH": root, "KERNTUNE_TESTS_PYTHON": copies.python, "PYTEST_ADDOPTS": "-p no:xdist"}


@pytest.mark.slow
def test_tests_calls_are_noted_without_running_any(copies: Copies, tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "test_ours.py").write_text(MODULE)
    done = copies.run("-m", "kerntune.cli.command", "tune", "test_ours.py", "--list", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "test_ours.py: 4 calls noted on stand-ins; 1 failed, 4 passed" in done.stdout
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("scripted_kernels.")]
    assert rows == [
        ["scripted_kernels.add_kernel", "1"],
        ["scripted_kernels.bare_kernel", "1"],
        ["scripted_kernels.scale_kernel", "2"],
    ]
    assert "tests that need results end early on stand-ins; --run runs them on the GPU" in done.stderr


@pytest.mark.slow
def test_record_tune_and_frozen(copies: Copies, tmp_path: Path, env: dict[str, str]) -> None:
    """The whole way through the real commands: a run is noted, tuned elsewhere, and runs with the result."""
    program = (
        "from scripted_kernels import add, scale; [f(n) for f in (add, scale) for n in (1000, 2000)]; print('ran')"
    )

    def kerntune(*words: str) -> Any:
        return copies.run("-m", "kerntune.cli.command", *words, cwd=tmp_path, env=env)

    noted = kerntune("shapes", "record", "--", copies.python, "-u", "-c", program)
    assert noted.returncode == 0, noted.stderr
    assert "ran" in noted.stdout
    assert "shapes.jsonl: 4 calls of 2 kernels, 4 of them new" in noted.stdout
    assert not (tmp_path / "cache" / "winners").exists()
    done = kerntune("tune", "--shapes", "shapes.jsonl", "--gpus", "0")
    assert done.returncode == 0, done.stderr
    assert "4 keys: 4 tuned" in done.stdout
    winners = WinnerCache(tmp_path / "cache").entries()
    assert {str(w.config) for w in winners} == {"BLOCK=128 num_warps=4 num_stages=3"}
    assert len(winners) == 4
    frozen = {**env, "KERNTUNE_TUNE": "frozen"}
    ours = "import kerntune; kerntune.install(); " + program
    ran = copies.run("-c", ours, cwd=tmp_path, env=frozen)
    assert (ran.returncode, ran.stdout) == (0, "ran\n"), ran.stderr
    assert len(WinnerCache(tmp_path / "cache").entries()) == 4


@pytest.mark.slow
def test_tests_that_cannot_be_run_are_named(quick_python: None) -> None:
    with pytest.raises(UsageError, match=r"pytest could not run no_such_test_file.py \(exit code 4\)"):
        tune.noted_in(["no_such_test_file.py"], "cuda:90", False, ("",))


@pytest.fixture
def pytest_run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """In the place of the pytest that notes calls."""
    found = SimpleNamespace(returncode=0, stdout="\nfirst\n1 passed\n\n", stderr="", jobs=[], calls=[])

    def run(command: list[str], **words: Any) -> Any:
        found.calls.append((command, words["env"]))
        Path(words["env"][tune.SHAPES]).touch()
        return found

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(orphans, "bound_command", lambda command: command)
    monkeypatch.setattr(tune, "target_here", lambda: "cuda:75")
    monkeypatch.setattr(tune, "own_environment", lambda: {"PYTHONPATH": "/ours"})
    monkeypatch.setattr(ShapesFile, "read", lambda file: (found.jobs, []))
    return found


@pytest.mark.parametrize(
    ("target", "really", "options"),
    [
        (None, False, ["--kerntune-note-target=cuda:75"]),
        ("cuda:90", False, ["--kerntune-note-target=cuda:90"]),
        ("cuda:90", True, []),
    ],
)
def test_how_tests_are_run_for_their_calls(
    pytest_run: Any, capsys: pytest.CaptureFixture[str], target: str | None, really: bool, options: list[str]
) -> None:
    pytest_run.jobs = ["a job", "another"]
    assert tune.noted_in(["t.py", "u.py"], target, really, ["/a", "/b", "/here"]) == ["a job", "another"]
    ((command, env),) = pytest_run.calls
    assert command[-2 - len(options) :] == [*options, "t.py", "u.py"]
    assert env["PYTHONPATH"] == os.pathsep.join(["/a", "/b", "/ours"])
    ran = capsys.readouterr()
    assert ran.out == f"t.py u.py: 2 calls noted{'' if really else ' on stand-ins'}; 1 passed\n"
    assert ran.err == ""


@pytest.mark.parametrize(("really", "told"), [(False, True), (True, False)])
def test_tests_that_fail_on_stand_ins_may_end_early(
    pytest_run: Any, capsys: pytest.CaptureFixture[str], really: bool, told: bool
) -> None:
    pytest_run.returncode = 1
    assert tune.noted_in(["t.py"], None, really, []) == []
    assert ("--run runs them on the GPU, and notes all their calls" in capsys.readouterr().err) == told


def test_a_pytest_that_breaks_off_shows_its_end(pytest_run: Any) -> None:
    pytest_run.returncode = 2
    pytest_run.stdout, pytest_run.stderr = "\n".join(f"line {i}" for i in range(15)) + "\n", "\nerror\n"
    with pytest.raises(UsageError, match=r"^pytest could not run t.py u.py \(exit code 2\)\n") as caught:
        tune.noted_in(["t.py", "u.py"], None, False, [])
    shown = str(caught.value).splitlines()[1:]
    assert (len(shown), shown[0], shown[-1]) == (15, "line 1", "error")


# calls that tests make, noted in a pytest of its own


@pytest.mark.parametrize(
    ("target", "really", "code", "option", "said", "complains"),
    [
        ("cuda:80", False, 0, "--kerntune-note-target=cuda:80", "t.py -x: 1 call noted on stand-ins; 2 passed\n",
         False),
        (None, False, 1, "--kerntune-note-target=cuda:90", "t.py -x: 1 call noted on stand-ins; 2 passed\n", True),
        (None, True, 1, None, "t.py -x: 1 call noted; 2 passed\n", False),
    ],
)  # fmt: skip
def test_tests_run_once_to_note_their_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str | None, really: bool, code: int,
    option: str | None, said: str, complains: bool,
) -> None:  # fmt: skip
    started: list[Any] = []
    job = TuningJob(SCHEMA, "module", "kernel", file="/m.py")

    def run(command: list[str], *, env: dict[str, str], **words: Any) -> Any:
        started.append((command, env, words))
        ShapesFile(Path(env["KERNTUNE_SHAPES"])).add(job)
        return subprocess.CompletedProcess(command, code, "2 passed\n\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(orphans, "bound_command", lambda command: command)
    monkeypatch.setattr(tune, "plugin_args", lambda: ["-p", "kerntune"])
    monkeypatch.setattr(tune, "own_environment", lambda: {"PYTHONPATH": "/own", "A": "1"})
    monkeypatch.setattr(tune, "target_here", lambda: "cuda:90")
    assert [str(x) for x in tune.noted_in(["t.py", "-x"], target, really, ["/a", "/b", "/here"])] == [str(job)]
    ((command, env, words),) = started
    fixed = ["-p", "kerntune", "-p", "pytest_kerntune.noted_calls", "-p", "no:cacheprovider", "-q", "--tb=no"]
    assert command == [sys.executable, "-m", "pytest", *fixed, *([option] if option else []), "t.py", "-x"]
    assert (env["PYTHONPATH"], env["A"]) == ("/a:/b:/own", "1")
    assert (words["cwd"], words["check"]) == (None, False)
    out, err = capsys.readouterr()
    assert out == said
    assert ("--run runs them on the GPU" in err) is complains


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_pytest_that_could_not_run_is_told_with_its_end(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    end = "".join(f"line {i}\n\n" for i in range(30))
    done = subprocess.CompletedProcess([], code, end, "on standard error\n")
    monkeypatch.setattr(subprocess, "run", lambda *words, **named: done)
    with pytest.raises(UsageError) as caught:
        tune.noted_in(["t.py"], "cuda:90", False, ["/here"])
    lines = str(caught.value).splitlines()
    assert lines[0] == f"pytest could not run t.py (exit code {code})"
    assert lines[1:] == [*(f"line {i}" for i in range(16, 30)), "on standard error"]


@pytest.mark.parametrize(
    ("file", "module", "folder"),
    [("/x/a/b.py", "a.b", "/x"), ("/x/b.py", "b", "/x"), ("/x/a/b.py", "c.b", ""), ("/x/a/b.py", "b", "/x/a"),
     ("/a/b/c.py", "a.b.c", "/")],
)  # fmt: skip
def test_where_a_module_is_found(file: str, module: str, folder: str) -> None:
    assert tune.folder_of(TuningJob(SCHEMA, module, "kernel", file=file)) == folder


def test_dask_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __init__(self, address: str) -> None:
            if address == "nowhere":
                raise OSError("timed out")

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *words: object) -> None:
            ended.append(1)

        def get_executor(self, **words: Any) -> Any:
            return words

    ended: list[int] = []
    with tune._executor(argparse.Namespace(dask="")) as none:
        assert none is None
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    with tune._executor(argparse.Namespace(dask="tcp://a")) as executor:
        assert (executor, ended) == ({"pure": False, "retries": 0}, [])
    assert ended == [1]
    with pytest.raises(UsageError, match=r"^--dask nowhere: no scheduler answers there \(timed out\)$"):
        tune._executor(argparse.Namespace(dask="nowhere")).__enter__()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="--dask needs Dask: pip install"):
        tune._executor(argparse.Namespace(dask="tcp://a")).__enter__()


def test_without_a_gpu_calls_are_noted_for_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def refuse() -> None:
        raise NVMLError

    found = SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCudaComputeCapability=lambda handle: (8, 6 + handle),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", found)
    assert tune.target_here() == "cuda:86"
    found.nvmlInit = refuse
    assert tune.target_here() == "cuda:90"
