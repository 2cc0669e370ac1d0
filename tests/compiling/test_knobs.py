"""What of a process's settings a compiling process is started under."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kerntune.compiling.protocol import CompilerEnvironment, _matters, _set_by_hand, current_environment


@pytest.mark.parametrize(
    ("variable", "matters"),
    [
        ("TRITON_PTXAS_PATH", True),
        ("LLVM_IR_ENABLE_DUMP", True),
        ("PATH", True),
        ("USE_IR_LOC", True),
        ("A_KNOB_S_OWN", True),
        ("TRITON_CACHE_DIR", False),
        ("TRITON_HOME", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("CUDA_HOME", True),
        ("HOME", False),
        ("PATHS", False),
    ],
)
def test_variables_that_a_compiler_reads(variable: str, matters: bool) -> None:
    assert _matters(variable, {"A_KNOB_S_OWN", "TRITON_HOME"}) is matters


def test_knobs_that_were_set_by_hand_are_told_in_order() -> None:
    group = SimpleNamespace(b=True, a="x", path=object(), none=None, count=3)
    assert _set_by_hand("compilation", group) == [
        ("compilation", "a", "x"),
        ("compilation", "b", True),
        ("compilation", "count", 3),
        ("compilation", "none", None),
    ]


def test_the_moment_s_settings_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setenv("LLVM_B", "2")
    monkeypatch.setenv("LLVM_A", "1")
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True
        found = current_environment()
    assert [item for item in found.env if item[0] in ("LLVM_A", "LLVM_B")] == [("LLVM_A", "1"), ("LLVM_B", "2")]
    assert ["compilation", "always_compile", True] in json.loads(found.knobs)
    assert found != current_environment()
    assert CompilerEnvironment(found.env, found.knobs) == found
