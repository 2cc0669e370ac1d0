"""A session's kernels are assembled by one ptxas, whether or not Inductor has compiled something before."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton

from kerntune.kernels.compat import triton_compiler, versions

NAME = triton_compiler.ASSEMBLER_PATH


@pytest.fixture
def torch_with_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of torch as its wheels for CUDA 13 have it; the variable isn't set."""
    monkeypatch.delenv(NAME, raising=False)
    there = tmp_path / "bin" / "ptxas"
    there.parent.mkdir()
    there.write_text("")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(triton_compiler.importlib.util, "find_spec", lambda name: spec)
    return there


def inductor_compiles(ptxas: Path) -> None:
    """What Inductor does before its first kernel."""
    os.environ.setdefault(NAME, str(ptxas))


def own() -> str:
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas")


def test_inductor_does_not_change_the_assembler_of_later_kernels(torch_with_ptxas: Path) -> None:
    with triton_compiler.same_assembler():
        inductor_compiles(torch_with_ptxas)
        assert os.environ[NAME] == own()
    assert NAME not in os.environ


def test_what_the_user_has_set_stays(torch_with_ptxas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "/cuda/bin/ptxas")
    with triton_compiler.same_assembler():
        assert os.environ[NAME] == "/cuda/bin/ptxas"
    assert os.environ[NAME] == "/cuda/bin/ptxas"


def test_what_a_test_sets_meanwhile_stays(torch_with_ptxas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with triton_compiler.same_assembler():
        monkeypatch.setenv(NAME, "/cuda/bin/ptxas")
    assert os.environ[NAME] == "/cuda/bin/ptxas"


def test_nothing_changes_where_torch_has_no_ptxas(torch_with_ptxas: Path) -> None:
    torch_with_ptxas.unlink()
    with triton_compiler.same_assembler():
        assert NAME not in os.environ


def test_the_assembler_is_asked_anew_where_the_environment_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia import compiler

    asked: list[Any] = []
    monkeypatch.setattr(compiler, "get_ptxas", lambda arch: asked.append(arch) or SimpleNamespace(version=len(asked)))
    versions._ptxas_version.cache_clear()
    try:
        monkeypatch.delenv(NAME, raising=False)
        assert [versions.assembler_version("cuda", 90) for _ in range(2)] == ["1", "1"]
        monkeypatch.setenv(NAME, "/torch/bin/ptxas")
        assert versions.assembler_version("cuda", 90) == "2"
    finally:
        versions._ptxas_version.cache_clear()
