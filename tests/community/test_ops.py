"""Ops of packages that people use, unedited, captured without a GPU. Skipped where the packages aren't installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.community

ROOT = Path(__file__).resolve().parents[2]

LIGER: dict[str, tuple[list[str], list[str]]] = {
    "rms_norm": (["_rms_norm_forward_kernel"], ["_rms_norm_backward_kernel"]),
    "swiglu": (["_swiglu_forward_kernel"], ["_swiglu_backward_kernel"]),
    "layer_norm": (["_layer_norm_forward_kernel"], ["_layer_norm_backward_kernel"]),
    "cross_entropy": (["liger_cross_entropy_kernel"], []),
    "cross_entropy_scaled": (["liger_cross_entropy_kernel"], ["element_mul_kernel"]),
    "rope": (["_triton_rope"], ["_triton_rope"]),
    "group_norm": (["_group_norm_forward_kernel"], ["_group_norm_backward_kernel"]),
}
"""Kernels by op, forward and backward. (Liger's cross entropy makes its gradient in the forward pass, and multiplies it
only if the loss is not the last thing.)"""

FLA: dict[str, tuple[int, int]] = {
    "chunk_gla": (5, 6),
    "fused_recurrent_hgrn": (1, 1),
    "chunk_delta_rule_varlen": (5, 6),
    "rotary_embedding": (2, 2),
    "token_shift": (1, 1),
}
"""How many launches by op, forward and backward; nearly all autotuned."""


def needs(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"not installed; run: pip install --no-deps {package}")


def captured(folder: Path, package: str, names: Any, *options: str) -> dict[str, Any]:
    """What the ops launch, by ``capture_ops.py``."""
    out = folder / "ops.json"
    command = [sys.executable, str(Path(__file__).with_name("capture_ops.py")), *options, str(out)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    named = [f"{package}/{name}" for name in names]
    done = subprocess.run([*command, *named], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name.partition("/")[2]: op for name, op in json.loads(out.read_text()).items()}


@pytest.fixture(scope="module", params=["plain", "installed"])
def liger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    needs("liger_kernel", "liger-kernel")
    options = ["--install"] if request.param == "installed" else []
    return captured(tmp_path_factory.mktemp("liger"), "liger-kernel", LIGER, *options)


@pytest.fixture(scope="module", params=["plain", "installed"])
def fla(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    needs("fla", "flash-linear-attention fla-core einops")
    options = ["--install"] if request.param == "installed" else []
    return captured(tmp_path_factory.mktemp("fla"), "flash-linear-attention", FLA, *options)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGER)
def test_liger(liger: dict[str, Any], name: str) -> None:
    op = liger[name]
    kernels = [launch["kernel"] for launch in op["launches"]]
    assert (kernels[: op["forward"]], kernels[op["forward"] :]) == LIGER[name]
    assert all(launch["code"] and min(launch["grid"]) > 0 for launch in op["launches"])


@pytest.mark.slow
@pytest.mark.parametrize("name", FLA)
def test_fla(fla: dict[str, Any], name: str) -> None:
    op = fla[name]
    assert (op["forward"], len(op["launches"]) - op["forward"]) == FLA[name]
    assert any(launch["tuned"] for launch in op["launches"]), "none was tuned"
    assert all(launch["code"] for launch in op["launches"])
