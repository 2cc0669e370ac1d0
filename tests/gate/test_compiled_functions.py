"""Functions of ``torch.compile`` in the gate without a GPU: what they launch, again, and after edits."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from forked import Copies

DRIVER = Path(__file__).parent / "compiled_driver.py"
pytestmark = pytest.mark.slow  # whichever comes first waits for the process that all of them read

WAVES = ["aten.add", "aten.cos", "aten.mul", "aten.sin", "aten.sum"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, copies: Copies) -> dict[str, Any]:
    """What :mod:`compiled_driver` prints. One process for all: importing torch's compiler takes seconds."""
    folder = tmp_path_factory.mktemp("compiled")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    done = copies.run(str(DRIVER), str(folder), cwd=folder, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**answer, "folder": str(folder / "triton")}


def result(found: dict[str, Any], name: str, step: str = "record") -> dict[str, Any]:
    case: dict[str, Any] = found["steps"][step][name]
    return case


def test_the_kernel_that_was_generated_is_recorded(found: dict[str, Any]) -> None:
    case = result(found, "waves")
    assert case["verdict"] == "NEW"
    assert case["kernels"] == ["triton_per_fused_add_cos_mul_sin_sum"]  # without the number that it has in its graph
    assert case["origins"] == [WAVES]
    assert case["grids"] == [[512, 1, 1]]
    assert case["registers"][0] > 0
    assert case["shape"] == [512, 1024]


@pytest.mark.parametrize("name", ["waves", "matmul", "step"])
def test_a_second_run_passes(found: dict[str, Any], name: str) -> None:
    case = result(found, name, "again")
    assert case["verdict"] == "PASS"
    assert case["kernels"] == result(found, name)["kernels"]


def test_backward_launches_are_captured(found: dict[str, Any]) -> None:
    forward, *backward = result(found, "step")["kernels"]
    assert "backward" not in forward
    assert len(backward) == 2
    assert all("native_layer_norm_backward" in kernel for kernel in backward)


@pytest.mark.parametrize("name", ["dynamic", "module", "waves of a sum"])
def test_other_ways_to_compile(found: dict[str, Any], name: str) -> None:
    case = result(found, name)
    assert case["verdict"] == "NEW"
    assert len(case["kernels"]) == 1


def test_what_is_no_triton_launch_is_counted_and_named(found: dict[str, Any]) -> None:
    case = result(found, "matmul")
    assert case["elsewhere"] == {"aten.mm": 1}
    assert any(re.match(r"1 torch operator beside the kernels: .* \(aten\.mm\)", text) for text in case["remarks"])
    assert result(found, "waves")["elsewhere"] == {}


def test_every_config_of_inductors_list_is_compiled(found: dict[str, Any]) -> None:
    assert result(found, "matmul")["configs"] == 2  # the list of a pointwise kernel of this size
    assert result(found, "waves")["configs"] == 0  # one config: it is the one that is judged


def test_a_choice_by_timing_is_refused_by_name(found: dict[str, Any]) -> None:
    case = result(found, "matmul tuned")
    assert case["verdict"] == "INCOMPLETE"
    assert re.search(r"can't be known without a GPU: max-autotune times \d+ candidates for mm\.", case["message"])


@pytest.mark.parametrize(
    ("name", "why", "shape"),
    [
        ("several kernels", "multi_kernel times triton_", [512]),
        ("timed fusion", "benchmark_fusion times what is fused", [512]),
        ("timed combination", "benchmark_combo_kernel times which kernels are combined", [512, 512]),
        ("unaligned", "shape_padding times whether a matrix product of these sizes is padded", [2047, 4097]),
        ("in C++", "cpp_wrapper launches from C++", [512]),
        ("broken", "Inductor could not generate code here (RuntimeError: planted)", [512]),
    ],
)
def test_what_cant_be_known_here_is_named(found: dict[str, Any], name: str, why: str, shape: list[int]) -> None:
    case = result(found, name)
    assert case["verdict"] == "INCOMPLETE"
    assert why in case["message"]
    assert case["shape"] == shape  # the call went on


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("in place", r"leaves the code of installed packages alone \(.*LayerNorm.*\); use torch.compile\(module\)"),
        ("products alone", r": what torch compiled calls torch's own operators alone$"),
        ("left alone", r"no graph of .*around \(compiled_driver.py:\d+\) \(break at .*disable.*\); TORCH_LOGS="),
    ],
)
def test_why_nothing_was_launched_is_said(found: dict[str, Any], name: str, why: str) -> None:
    """A container of torch's that was compiled in place, as plain torch does it, generates nothing."""
    case = result(found, name)
    assert (case["verdict"], case["kernels"]) == ("INCOMPLETE", [])
    assert re.search(why, case["message"])


def test_a_function_that_cant_be_compiled_fails_as_on_a_gpu(found: dict[str, Any]) -> None:
    assert found["steps"]["raised"] == "Unsupported"


def test_other_backends_than_inductor_launch_nothing(found: dict[str, Any]) -> None:
    assert result(found, "not by inductor")["verdict"] == "INCOMPLETE"


def test_other_names_pass(found: dict[str, Any]) -> None:
    assert result(found, "waves renamed", "edited")["verdict"] == "PASS"


def test_a_lost_fusion_is_a_regression_and_told_as_such(found: dict[str, Any]) -> None:
    case = result(found, "waves divided", "edited")
    assert case["verdict"] == "REGRESSED"
    assert (
        "1 kernel became 2: triton_per_fused_add_cos_mul_sin_sum (add, cos, mul, sin, sum) -> "
        "triton_poi_fused_mul_sin (mul, sin), triton_per_fused_add_cos_sum (add, cos, sum)"
    ) in case["message"]
    assert re.search(r"\(add, cos, sum\) at compiled_driver\.py:\d+", case["message"]), "with the function's line"


def test_another_kernel_before_it_changes_no_pair(found: dict[str, Any]) -> None:
    case = result(found, "waves after another", "edited")
    assert case["verdict"] == "PASS"
    assert "fusion changed: 1 kernel more: triton_per_fused_sqrt_sum (sqrt, sum)" in case["message"]


def test_launches_are_replayed_and_timed_on_the_scripted_gpu(found: dict[str, Any]) -> None:
    first, again, divided = (found["steps"]["scripted"][step] for step in ("record", "again", "divided"))
    assert (first["verdict"], again["verdict"], divided["verdict"]) == ("NEW", "PASS", "REGRESSED")
    assert "fusion changed: 1 kernel became 2: triton_per_fused_add_cos_mul_sin_sum" in divided["message"]
    assert "attributed: code and launches" in divided["message"]


def test_torch_is_left_as_it_was(found: dict[str, Any]) -> None:
    assert found["left"] == {
        "compile": "torch",
        "run": "torch._inductor.runtime.triton_heuristics",
        "graph": "torch._inductor.output_code",
        "available": False,
        "properties": "torch.cuda",
        "folder": found["folder"],
    }
