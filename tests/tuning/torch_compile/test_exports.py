"""Graphs that run without kerntune: the winner of the example's arguments is in them, or they are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from compiled_runs import Runs, scaled

import kerntune
from kerntune.errors import UsageError

SIZES = {"x": {0: torch.export.Dim("n", min=10, max=1000)}}

dynamic = pytest.mark.parametrize("shapes", [None, SIZES], ids=["static", "dynamic"])


def make(hook: Any = None) -> Any:
    return kerntune.autotune([triton.Config({"BLOCK": b}, pre_hook=hook) for b in (64, 128, 256)], key=["n"])(scaled)


class Doubling(torch.nn.Module):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, n = torch.empty_like(x), x.numel()
        self.kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        return y


def config_in(program: Any) -> dict[str, Any]:
    """The one config of the kernel in an exported graph."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    (node,) = [node for node in program.graph.nodes if "triton_kernel_wrapper" in str(node.target)]
    (config,) = kernel_side_table.get_kernel(node.kwargs["kernel_idx"]).configs
    return dict(config.kwargs)


@dynamic
def test_the_examples_winner_is_exported_and_said(runs: Runs, shapes: Any) -> None:
    module = Doubling(make())
    module(torch.randn(150))
    with pytest.warns(RuntimeWarning, match=r"kernel scaled is exported with the config that won .*BLOCK: 128"):
        program = torch.export.export(module, (torch.randn(150),), strict=True, dynamic_shapes=shapes)
    assert config_in(program) == {"BLOCK": 128}


@dynamic
def test_without_a_winner_export_is_refused(runs: Runs, shapes: Any) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"kernel scaled: torch.export.* none is stored for these"):
        torch.export.export(Doubling(make()), (torch.randn(150),), strict=True, dynamic_shapes=shapes)
    assert runs.launches == []


def test_hooks_of_configs_are_refused(runs: Runs) -> None:
    module = Doubling(make(hook=lambda named: None))
    module(torch.randn(150))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"kernel scaled: .*its config has a pre_hook"):
        torch.export.export(module, (torch.randn(150),), strict=True)


def test_export_that_runs_the_function_on_fake_tensors_is_refused(runs: Runs) -> None:
    module = Doubling(make())
    module(torch.randn(150))
    runs.blocks()
    with pytest.raises(UsageError, match=r"kernel scaled is launched on fake tensors: .*strict=True"):
        torch.export.export(module, (torch.randn(150),), strict=False)
    assert runs.launches == []


def test_a_triton_op_stays_an_operator_of_the_exported_graph(runs: Runs) -> None:
    """Nothing is launched, and nothing settled: a winner is taken where the operator is compiled."""
    kernel = make()

    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(1,)](x, y, x.numel(), 2.0)
        return y

    with torch.library._scoped_library("kerntune_tests", "FRAGMENT"):
        op = torch.library.triton_op("kerntune_tests::exported", body, mutates_args={})

        class Module(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return op(x)

        program = torch.export.export(Module(), (torch.randn(150),))
        assert "kerntune_tests.exported.default" in [str(node.target) for node in program.graph.nodes]
        assert runs.launches == []
        x = torch.randn(300)
        assert torch.equal(op(x), x * 2)


@pytest.mark.parametrize("known", [False, True])
def test_a_cpp_wrapper_has_the_examples_winner(runs: Runs, known: bool) -> None:
    """kerntune's operator would be called through Python there."""
    from torch._inductor import config

    module, x = Doubling(make()), torch.randn(150)
    seen: list[str] = []

    def backend(gm: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in gm.graph.nodes)
        return gm.forward

    if known:
        module(x)
    with config.patch(cpp_wrapper=True):
        graph = torch.compile(module, backend=backend, fullgraph=True, dynamic=True)
        if not known:
            with pytest.raises(torch._dynamo.exc.Unsupported, match=r"cpp_wrapper take the winner .* none is stored"):
                graph(x)
            return
        with pytest.warns(RuntimeWarning, match="BLOCK: 128"):
            assert torch.equal(graph(x), x * 2)
    assert "triton_kernel_wrapper_mutation" in seen
