"""A kernel is the same, bit by bit, whether the farm or this process compiles it."""

from __future__ import annotations

import dataclasses

import pytest

from kerntune.compiling.compiler import Compiler, describe
from kerntune.compiling.farm import Farm

from . import kernels
from .test_triton_cache import plain


@pytest.fixture(scope="module")
def compiler():
    one = Compiler(Farm(workers=2))
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.parametrize("target", kernels.TARGETS, ids=str)
def test_code_and_metadata_are_those_of_a_plain_compilation(compiler, monkeypatch, tmp_path, target):
    launches = kernels.gallery(target)
    from_farm = {launch.key(): found for launch, found in compiler.compile_stream(launches)}
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "plain"))
    assert len(from_farm) == len(launches) >= 15
    for launch in launches:
        here, there = describe(launch, plain(launch)), from_farm[launch.key()]
        assert here.asm == there.asm, launch.name
        assert here.data == there.data, launch.name
        assert here == dataclasses.replace(there, seconds=None), launch.name
        assert here.stages == there.stages, launch.name
        assert here.stages, launch.name
