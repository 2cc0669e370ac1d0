"""Ctrl-C while kernels are tuned on the scripted GPU: nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kerntune.gate.baseline_files import BaselineStore
from kerntune.tuning.cache import TrialCache, WinnerCache

CONFTEST = """
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    return FakeBackend(Script([Rule(time_ns=20_000.0)]))
"""

TEST = """
import pytest, torch, triton, triton.language as tl

BLOCKS = [(b, w, s) for b in (64, 128, 256) for w in (1, 2, 4) for s in (1, 2)]
CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w, num_stages=s) for b, w, s in BLOCKS]

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def added(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@pytest.mark.parametrize("n", [4096, 8192])
def test_added(autotune, n):
    x, y = torch.empty(n, device="cuda"), torch.empty(n, device="cuda")
    autotune(lambda: added[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n))
"""

STOPPER = """
import functools, pkgutil, time
owner, _, name = "{place}".rpartition(".")
owner = pkgutil.resolve_name(owner)
original, calls = getattr(owner, name), []

@functools.wraps(original)
def stopping(*args, **words):
    calls.append(args)
    if len(calls) == {after}:
        print("REACHED", flush=True)
        time.sleep(600)
    return original(*args, **words)

setattr(owner, name, stopping)
"""

CONFIGS = 18
PLACES = {
    "a look in the second case": ("kerntune.tuning.trial_set.TrialSet.admit", CONFIGS + 6),
    "the race": ("kerntune.tuning.race.Screening.finalists_of", 1),
    "writing": ("kerntune.base.codec._write", 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("when", PLACES)
def test_ctrl_c_leaves_nothing_behind(
    tmp_path: Path, plugin_name: str, source_environ: dict[str, str], when: str
) -> None:
    """No worker, no compiler, no temporary folder, and no file that can't be read; what has passed and what was tried
    is stored. Ctrl-C goes to the whole group."""
    project, place, cache = (tmp_path / name for name in ("project", "temporary", "cache"))
    for folder in (project, place):
        folder.mkdir()
    hook, after = PLACES[when]
    for name, text in (("conftest", CONFTEST), ("test_it", TEST), ("stop", STOPPER.format(place=hook, after=after))):
        (project / f"{name}.py").write_text(text)
    env = {**source_environ, "TMPDIR": str(place), "KERNTUNE_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(project), env.get("PYTHONPATH", "")])
    env["TRITON_CACHE_DIR"] = str(tmp_path / "triton")
    command = [sys.executable, "-m", "pytest", "-p", plugin_name, "-p", "stop", "-p", "no:cacheprovider", "-s"]
    command += ["--kerntune", "--kerntune-update=all", f"--kerntune-cache-dir={cache}"]
    with subprocess.Popen(
        command, cwd=project, env=env, stdout=-1, stderr=-2, text=True, start_new_session=True
    ) as run:
        assert run.stdout is not None
        lines: list[str] = []
        while not lines or "REACHED" not in lines[-1]:
            lines.append(run.stdout.readline())
            assert lines[-1], "".join(lines)
        os.killpg(run.pid, signal.SIGINT)
        said, _ = run.communicate()
    assert run.returncode == pytest.ExitCode.INTERRUPTED, said
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    assert [p.name for p in place.iterdir() if p.is_dir()] == []
    assert list(tmp_path.rglob(".*.json.*")) == []
    winners, trials = WinnerCache(cache), TrialCache(cache)
    known = len(trials.entries())
    winners.entries()
    assert (winners.damaged, trials.damaged) == ([], [])
    store = BaselineStore(project / "baselines")
    stored = [store.read(path) for path in store.time_files()]
    if when == "a look in the second case":
        assert known == CONFIGS + 5
        assert [str(b.case) for b in stored if b is not None] == ["test_it.py::test_added[4096]"]
    else:
        assert stored == []
