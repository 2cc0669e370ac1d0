"""The script that holds searches against trying everything, on the scripted GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import searched
from benchmarks.suite.cases import CASES
from kerntune.search import Range, Space
from kerntune.tuning import context


def test_each_search_is_judged_by_the_times_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Space((Range("BLOCK", 256, 2048), Range("num_warps", 2, 4)))
    monkeypatch.setitem(searched.SPACES, "bias_gelu", few)
    monkeypatch.setattr(searched, "TRIALS", (5, 8))
    for name in ("this_gpu", "COMPILER"):
        monkeypatch.setattr(context, name, getattr(context, name))  # put back afterwards
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "out.json"), "bias_gelu", "--dry"])
    assert searched.main() == 0
    (case,) = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert (case["case"], case["configs"]) == ("bias_gelu[rows=64 cols=4096]", 8)
    assert [(row["trials"], row["seed"]) for row in case["searches"]] == [(5, 0), (5, 1)]
    for row in case["searches"]:
        assert 1.0 <= row["times_best"] < 1.05
        assert row["seconds"] > 0


@pytest.mark.parametrize("name", searched.SPACES)
def test_spaces_are_of_the_kernels(name: str) -> None:
    given = CASES[name].configs(CASES[name].shapes[searched.SHAPES.get(name, 0)])
    fields = {axis.name for axis in searched.SPACES[name].axes} | set(searched.SPACES[name].base.kwargs)
    assert set(given[0].kwargs) <= fields
    assert len(list(searched.SPACES[name].configs())) > 30
