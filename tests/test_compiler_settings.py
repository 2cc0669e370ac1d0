"""Settings of the compiler that are no options of a launch."""

from __future__ import annotations

from typing import Any

import pytest

from kerntune.compiling.binary.identity import identity_of
from kerntune.kernels.compat.launch_environment import ASSEMBLER_ONLY, SETTINGS, compiler_settings


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set."""
    for variable in {v for known in SETTINGS.values() for v in known}:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_by_default_nothing_is_set(backend: str) -> None:
    assert compiler_settings(backend) == {}


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("DISABLE_PTXAS_OPT", "1", "1"),
        ("DISABLE_PTXAS_OPT", "true", "1"),
        ("DISABLE_PTXAS_OPT", "0", None),
        ("PTXAS_OPTIONS", "-O1", "-O1"),
        ("DISABLE_LLVM_OPT", "1", "1"),
        ("DISABLE_LLVM_OPT", "0", None),
        ("DISABLE_LLVM_OPT", "disable-lsr", "disable-lsr"),
        ("DISABLE_MMA_V3", "on", "1"),
        ("TRITON_F32_DEFAULT", "ieee", "ieee"),
        ("TRITON_DEFAULT_FP_FUSION", "0", "0"),
        ("TRITON_DEFAULT_FP_FUSION", "1", None),
        ("TRITON_LIBDEVICE_PATH", "/somewhere/else/libdevice.11.bc", "libdevice.11.bc"),
        ("MLIR_ENABLE_DUMP", "1", None),
        ("AMDGCN_USE_BUFFER_OPS", "0", None),
    ],
)
def test_what_is_set(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, text: str | None) -> None:
    monkeypatch.setenv(variable, value)
    assert compiler_settings("cuda") == ({} if text is None else {variable: text})


def test_amds_are_amds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "0")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert compiler_settings("hip") == {"AMDGCN_USE_BUFFER_OPS": "0"}


def test_a_knob_that_python_sets_counts_as_well() -> None:
    from triton import knobs

    with knobs.nvidia.scope():
        knobs.nvidia.disable_ptxas_opt = True
        assert compiler_settings("cuda") == {"DISABLE_PTXAS_OPT": "1"}
    assert compiler_settings("cuda") == {}


def test_what_only_the_assembler_hears_is_part_of_the_identity() -> None:
    told: Any = {"kind": "ptx", "options": {}, "assembler": "12.8"}
    plain = identity_of("ret;", **told)
    assert identity_of("ret;", **told, settings={}) == plain
    assert identity_of("ret;", **told, settings={ASSEMBLER_ONLY[0]: "1"}) != plain
