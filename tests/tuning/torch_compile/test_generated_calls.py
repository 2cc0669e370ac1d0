"""What Inductor's wrapper contains of a tuned kernel's launch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from compiled_runs import Runs, configs, doubled_in_place, doubling, make, scaled

import kerntune

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")
"""Inductor warns of what it imports itself."""


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's caches hold nothing of other tests."""
    from torch._inductor.utils import clear_caches

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    clear_caches()
    yield
    clear_caches()


def code_of(f: Any, *args: Any, dynamic: bool = False) -> str:
    """The wrapper's code for a call whose result is right."""
    from torch._inductor.utils import run_and_get_code

    result, codes = run_and_get_code(torch.compile(f, fullgraph=True, dynamic=dynamic), *args)
    assert torch.equal(result, args[0] * 2)
    (code,) = codes
    return str(code)


def calls_in(code: str) -> list[str]:
    return re.findall(r"^ +(kt\w+\..*)$", code, re.MULTILINE)


@pytest.mark.slow
def test_the_prepared_launch_is_called_past_the_dispatcher(runs: Runs) -> None:
    code = code_of(doubling(make()), torch.randn(100))
    (call,) = calls_in(code)
    assert re.fullmatch(r"(kt\w+)_path\.launch\(\1_grid_of\(\), arg0_1, buf0, 100, 2\.0\)", call)
    assert "torch.ops.kerntune" not in code
    assert runs.blocks() == [64]


@pytest.mark.slow
def test_nothing_is_copied(runs: Runs) -> None:
    """What the kernel writes was just allocated, or is the caller's own."""
    code = code_of(doubling(make()), torch.randn(100))
    assert not re.search(r"clone|copy_\(", code)
    assert len(re.findall(r"= empty_strided", code)) == 1


@pytest.mark.slow
def test_symbolic_sizes_are_handed_over(runs: Runs) -> None:
    code = code_of(doubling(make()), torch.randn(100), dynamic=True)
    (call,) = calls_in(code)
    assert re.fullmatch(r"(kt\w+)_path\.launch\(\1_grid_of\((s\d+)\), arg1_1, buf0, \2, 2\.0\)", call)


@pytest.mark.slow
def test_remembered_grids_are_those_of_the_call(runs: Runs) -> None:
    """Also where another config has won since, and for sizes in any order."""
    kernel = make()
    graph = torch.compile(doubling(kernel), fullgraph=True, dynamic=True)
    sizes = (100, 150, 300) * 3
    for n in sizes:
        x = torch.randn(n)
        assert torch.equal(graph(x), x * 2)
    assert [launch.grid[0] for launch in runs.launches] == [2] * 9
    for key in kernel.cache:
        kernel.cache[key] = kernel.configs[0]
    runs.launches.clear()
    for n in sizes:
        graph(torch.randn(n))
    assert [(launch.block, launch.grid[0]) for launch in runs.launches] == [(64, 2), (64, 3), (64, 5)] * 3


@pytest.mark.slow
def test_grids_of_numbers_stand_in_the_code(runs: Runs) -> None:
    kernel = make()

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[(x.shape[0] // 2, 3)](x, y, x.numel(), factor=2.0)
        return y

    (call,) = calls_in(code_of(f, torch.randn(100), dynamic=True))
    assert re.fullmatch(r"kt\w+_path\.launch\(\(s\d+ ?// ?2, 3,\), arg1_1, buf0, s\d+, factor=2\.0\)", call)
    assert runs.launches[0].grid == (50, 3)


def test_grids_that_close_over_tensors_are_made_at_each_call(runs: Runs) -> None:
    kernel = make()

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0)
        return y

    (call,) = calls_in(code_of(f, torch.randn(100), dynamic=True))
    assert re.fullmatch(
        r"(kt\w+)_path\.launch\(\1\.made_grid\(\[arg1_1, buf0\], \[(s\d+)\], \[\]\), arg1_1, buf0, \2, 2\.0\)", call
    )
    assert runs.launches[0].grid == (2,)


def test_a_known_winner_is_torchs_own_launch(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Static sizes: the graph holds the kernel with that config, and nothing of kerntune."""
    kernel = make()
    f = doubling(kernel)
    x = torch.randn(150)
    f(x)
    seen: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        seen.extend(node for node in gm.graph.nodes if node.op == "call_function")
        return gm.forward

    assert torch.equal(torch.compile(f, backend=backend, fullgraph=True, dynamic=False)(x), x * 2)
    assert [str(node.target) for node in seen if "kt" in str(node.args) or "kerntune" in str(node.target)] == []
    (launch,) = [node for node in seen if str(node.target) == "triton_kernel_wrapper_mutation"]
    assert launch.kwargs["grid"] == [(2, 1, 1)]
    assert runs.blocks() == [128, 128]
    assert len(runs.tuned) == 1


def test_other_sizes_are_not_launched_with_a_known_winner(runs: Runs) -> None:
    """The key is static in each graph: a graph of other sizes asks again."""
    kernel = make()
    f = doubling(kernel)
    f(torch.randn(100))
    graph = torch.compile(f, backend="eager", fullgraph=True, dynamic=None)
    for n in (100, 300, 150):
        x = torch.randn(n)
        assert torch.equal(graph(x), x * 2)
    assert runs.blocks() == [64, 64, 256, 128]


@pytest.mark.slow
def test_caches_of_torch_serve_a_second_compilation(runs: Runs) -> None:
    """The same graph again: Inductor's cache has it, and the launch is found by its token."""
    counters = torch._dynamo.utils.counters
    kernel, x = make(cache_results=False), torch.randn(100)
    f = doubling(kernel)
    counters.clear()
    for missed, hit in ((1, 0), (1, 1)):
        torch._dynamo.reset()
        kernel.cache.clear()
        assert torch.equal(torch.compile(f, fullgraph=True)(x), x * 2)
        found = counters["aot_autograd"], counters["inductor"]
        assert (found[0]["autograd_cache_miss"], found[0]["autograd_cache_hit"]) == (missed, hit), found
    assert runs.blocks() == [64, 64]


@pytest.mark.parametrize("change", ["key", "configs", "hook", "prune", "kernel", "version"])
def test_what_kerntune_adds_is_in_the_caches_keys(runs: Runs, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token stands in the graph, and so in the keys of both caches."""
    counters, x = torch._dynamo.utils.counters, torch.randn(100)
    torch.compile(doubling(make()), fullgraph=True)(x)
    counters.clear()
    torch._dynamo.reset()
    options: dict[str, Any] = {"key": ["n"]}
    blocks = (64, 128, 256)
    if change == "key":
        options["key"] = ["n", "factor"]
    if change == "configs":
        blocks = (64, 128)
    if change == "hook":
        options["post_hook"] = lambda named, exception: None
    if change == "prune":
        options["prune_configs_by"] = {"early_config_prune": lambda found, named, **words: found[:2]}
    if change == "version":
        monkeypatch.setattr(kerntune, "__version__", "0.0.1")
    kernel = kerntune.autotune(configs(*blocks), **options)(scaled)
    if change == "kernel":
        kernel = kerntune.autotune(configs(*blocks), **options)(doubled_in_place)
        twice = torch.compile(lambda x: kernel[(1,)](x, x.numel()), fullgraph=True)
        twice(x)
    else:
        assert torch.equal(torch.compile(doubling(kernel), fullgraph=True)(x), x * 2)
    assert counters["aot_autograd"]["autograd_cache_hit"] == 0
    assert counters["inductor"]["fxgraph_cache_hit"] == 0


@pytest.mark.parametrize("seen", [False, True])
def test_a_triton_op_with_a_tuned_kernel_is_not_stored_by_aotautograd(runs: Runs, seen: bool) -> None:
    """Its key has the kernel's source alone, where torch sees the kernel: without kerntune it would be equal."""
    from torch.library import wrap_triton

    kernel = make(cache_results=False)

    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        wrap_triton(kernel)[(1,)](x, y, x.numel(), 2.0)
        return y

    def unseen(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[(1,)](x, y, x.numel(), 2.0)
        return y

    counters = torch._dynamo.utils.counters
    with torch.library._scoped_library("kerntune_tests", "FRAGMENT"):
        op = torch.library.triton_op("kerntune_tests::stored", body if seen else unseen, mutates_args={})
        counters.clear()
        for _ in range(2):
            torch._dynamo.reset()
            kernel.cache.clear()
            torch.compile(lambda x: op(x), fullgraph=True)(torch.randn(100))
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 2
    assert counters["aot_autograd"]["autograd_cache_saved"] == 0
