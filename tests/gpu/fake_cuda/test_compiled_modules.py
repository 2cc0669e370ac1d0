"""Dynamo sees users' code alone: its graphs and breaks of stand-ins are those of CPU tensors in plain torch.

Forty modules (:mod:`compiled_modules`) are compiled in plain torch, in the gate each in its own process, and in the
gate one after the other in three random orders.
"""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .compiled_modules import MODULES
from .conftest import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DRIVER = Path(__file__).parent / "compiled_modules_driver.py"
COUNTED = ("graphs", "operators", "breaks", "error")
SEEDS = (1, 2, 3)

Said = dict[str, dict[str, Any]]


class Runs:
    """The driver's answers, each asked for once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @functools.cached_property
    def torch(self) -> Said:
        """What plain torch says of CPU tensors."""
        return self._run("plain", list(MODULES))

    @functools.cached_property
    def alone(self) -> Said:
        """What is said of stand-ins, a process for each module."""
        return self._run("alone", list(MODULES))

    def shuffled(self, seed: int) -> Said:
        """The same in one process, in an order of ``seed``."""
        names = list(MODULES)
        random.Random(seed).shuffle(names)
        return self._run("gate", names)

    def _run(self, mode: str, names: list[str]) -> Said:
        folder = self._folder / f"{mode}-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        env = {**environment(), "TRITON_CACHE_DIR": str(self._folder / "triton")}
        command = [sys.executable, str(DRIVER), mode, ",".join(names), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=3600, check=False)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        found: Said = json.loads(done.stdout.splitlines()[-1])
        assert sorted(found) == sorted(names)
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("compiled"))


def picked(said: Said, *words: str) -> Said:
    return {name: {word: one.get(word) for word in words} for name, one in sorted(said.items())}


def test_alone_graphs_and_breaks_are_those_of_plain_torch(runs: Runs) -> None:
    assert len(MODULES) == 40
    assert picked(runs.alone, *COUNTED) == picked(runs.torch, *COUNTED)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_gives_the_same_graphs_kernels_and_verdicts(runs: Runs, seed: int) -> None:
    shuffled = runs.shuffled(seed)
    assert picked(shuffled, *COUNTED) == picked(runs.torch, *COUNTED)
    results = ("verdict", "kernels", "elsewhere")
    assert picked(shuffled, *results) == picked(runs.alone, *results)


def test_each_is_judged_by_what_it_launches(runs: Runs) -> None:
    """No phantom, and none missing: a module has kernels exactly if plain torch makes a graph of it."""
    for name, said in runs.alone.items():
        if "error" not in said:
            assert bool(said["kernels"]) == (runs.torch[name]["graphs"] > 0), name
            assert said["verdict"] == ("NEW" if said["kernels"] else "INCOMPLETE"), name
            assert "could not generate" not in said["message"], name
            assert said["kernels"] or ": Inductor made no graph" in said["message"], name


@pytest.mark.parametrize("name", ["adamw", "adamw_that_has_stepped"])
def test_a_step_of_an_optimizer_with_default_options_is_gated(runs: Runs, name: str) -> None:
    assert runs.alone[name]["verdict"] == "NEW"
    assert set(runs.alone[name]["kernels"]) == {"triton_for_fused"}
    assert runs.alone[name]["elsewhere"] == {}
