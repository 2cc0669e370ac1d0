"""Tuned kernels in compiled functions: every call is launched with the winner for its own key."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from compiled_runs import Runs, accumulated, configs, doubled_in_place, doubling, fits, make, scaled, shifted
from doubles import raising

import kerntune
from kerntune.errors import CacheMissError
from kerntune.grids import FixedGrid, Name, ceil_div
from kerntune.kernels.compat import torch_private
from kerntune.search import Choice, Search, Space
from kerntune.tuning import tuned_call
from kerntune.tuning.torch_compile import kernel_calls

SIZES = (100, 150, 300, 100)
WINNERS = [64, 128, 256, 64]

compiled = pytest.mark.parametrize(
    ("backend", "dynamic"), [("eager", False), ("eager", True), ("aot_eager", True)], ids=lambda v: str(v)
)


def check(f: Any, backend: str, dynamic: bool) -> None:
    """One graph for all sizes if they are dynamic, and eager's results."""
    graph = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    torch._dynamo.utils.counters.clear()
    for n in SIZES:
        x = torch.randn(n)
        assert torch.equal(graph(x), x * 2)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (1 if dynamic else 3)
    assert not torch._dynamo.utils.counters["graph_break"]


def launched(kernel: Any, x: torch.Tensor, grid: Any, *args: Any, **words: Any) -> torch.Tensor:
    """What a kernel makes of ``x`` by one launch."""
    y = torch.empty_like(x)
    kernel[grid](x, y, x.numel(), *args, **words)
    return y


def noting(seen: list[Any]) -> Any:
    """A backend that keeps the nodes of graphs, and runs them as they are."""

    def backend(gm: Any, inputs: Any) -> Any:
        seen.extend(gm.graph.nodes)
        return gm.forward

    return backend


@compiled
def test_each_call_has_its_own_winner(runs: Runs, backend: str, dynamic: bool) -> None:
    check(doubling(make()), backend, dynamic)
    assert [launch.grid for launch in runs.launches] == [(2,), (2,), (2,), (2,)]
    assert runs.blocks() == WINNERS
    assert [key[0] for key in runs.tuned] == [100, 150, 300]


@compiled
def test_under_install_tritons_decorator_too(runs: Runs, backend: str, dynamic: bool) -> None:
    kernel = triton.autotune(configs(64, 128, 256), key=["n"])(scaled)
    with kerntune.install():
        check(doubling(kernel), backend, dynamic)
    assert runs.blocks() == WINNERS


def test_a_graph_outlives_the_installation(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = triton.autotune(configs(64, 128, 256), key=["n"])(scaled)
    x = torch.randn(100)
    with kerntune.install():
        graph = torch.compile(doubling(kernel), backend="eager", fullgraph=True)
        graph(x)
    monkeypatch.setattr(type(kernel), "run", lambda self, *a, grid, **k: self.fn.run(*a, grid=grid, **k, BLOCK=128))
    assert torch.equal(graph(x), x * 2)
    assert runs.blocks() == [64, 128]


@compiled
def test_hooks_of_configs_run_at_each_launch(runs: Runs, backend: str, dynamic: bool) -> None:
    seen = []

    def hook(named: dict[str, Any]) -> None:
        seen.append(named["BLOCK"])
        named["y_ptr"].fill_(7.0)

    hooked = [triton.Config({"BLOCK": b}, pre_hook=hook) for b in (64, 128, 256)]
    check(doubling(kerntune.autotune(hooked, key=["n"])(scaled)), backend, dynamic)
    assert seen == WINNERS == runs.blocks()


def test_a_single_config_with_a_hook_is_launched_by_kerntune(runs: Runs) -> None:
    seen: list[int] = []
    one = [triton.Config({"BLOCK": 64}, pre_hook=lambda named: seen.append(named["n"]))]
    check(doubling(kerntune.autotune(one, key=["n"])(scaled)), "eager", True)
    assert seen == list(SIZES)


@compiled
def test_hooks_of_tuners_run_as_in_eager_code(runs: Runs, backend: str, dynamic: bool) -> None:
    seen: list[bool] = []
    before: Any = lambda named, reset_only=False: seen.append(reset_only)  # noqa: E731
    check(doubling(make(pre_hook=before, post_hook=lambda named, exception: None)), backend, dynamic)
    assert seen == [True] * 3  # once for each key, after its tuning
    assert runs.blocks() == WINNERS


@compiled
def test_options_of_tuners_are_no_reason_to_refuse(runs: Runs, backend: str, dynamic: bool) -> None:
    def small(found: list[Any], named: dict[str, Any], **words: Any) -> list[Any]:
        return [config for config in found if config.kwargs["BLOCK"] < 256]

    options: dict[str, Any] = {
        "restore_value": ["x_ptr"],
        "reset_to_zero": ["y_ptr"],
        "prune_configs_by": {"early_config_prune": small},
    }
    check(doubling(make(**options)), backend, dynamic)
    assert runs.blocks() == [64, 128, 128, 64]


@compiled
def test_heuristics_decorators(runs: Runs, backend: str, dynamic: bool) -> None:
    """Their configs aren't known while a graph is made, nor are the blocks that their grid is a function of."""
    check(doubling(kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(scaled)), backend, dynamic)
    blocks = runs.blocks()
    assert len(blocks) == 4
    assert blocks[2] == 256


@compiled
def test_searches(runs: Runs, backend: str, dynamic: bool) -> None:
    space = Space((Choice("BLOCK", (64, 128, 256)),))
    check(doubling(make(search=Search(space))), backend, dynamic)
    assert runs.blocks() == WINNERS


@compiled
def test_tritons_heuristics_below_the_tuner(runs: Runs, backend: str, dynamic: bool) -> None:
    runs.choose = lambda tuner, named, found: found[0]
    below = triton.heuristics({"BLOCK": lambda named: 64 if named["n"] < 200 else 128})(scaled)
    warps = [triton.Config({}, num_warps=w) for w in (2, 4)]
    check(doubling(kerntune.autotune(warps, key=["n"])(below)), backend, dynamic)
    assert runs.blocks() == [64, 64, 128, 64]


GRID = FixedGrid(ceil_div(Name("n"), Name("BLOCK")))


@compiled
def test_grid_objects(runs: Runs, backend: str, dynamic: bool) -> None:
    kernel = make()
    check(lambda x: launched(kernel, x, GRID, 2.0), backend, dynamic)
    assert runs.blocks() == WINNERS


def test_grids_of_every_form(runs: Runs) -> None:
    kernel = make()

    def by(meta: Any, *, n: int = 0, least: int = 1) -> tuple[int, ...]:
        return (max(triton.cdiv(n, meta["BLOCK"]), least),)

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        n, least = x.numel(), x.numel() // 10
        rows = x.view(1, -1)
        kernel[(n, 1)](x, y, n, 2.0)
        kernel[[n // 2]](x, y, n, 2.0)
        kernel[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        kernel[lambda meta: by(meta, n=n, least=least)](x, y, n, factor=2.0)
        kernel[lambda meta: (rows.shape[1], rows.shape[0])](x, y, n=n, factor=2.0)
        kernel.run(x, y, n, 2.0, grid=(3,), warmup=False)
        return y

    check(f, "eager", True)
    assert [launch.grid for launch in runs.launches][:6] == [(100, 1), (50,), (2,), (10,), (100, 1), (3,)]


@pytest.mark.parametrize("known", [False, True])
def test_grids_that_are_arguments(runs: Runs, known: bool) -> None:
    """Functions of the same code that close over different numbers: each call has its own."""
    kernel = make()
    compiled_f = torch.compile(lambda x, grid: launched(kernel, x, grid, 2.0), backend="eager", fullgraph=True)

    def graph(x: torch.Tensor, grid: Any) -> None:
        if not known:
            kernel.cache.clear()
        compiled_f(x, grid)

    graph(torch.randn(100), (1,))
    other = FixedGrid(Name("n"))
    for grid, expected in (*((lambda meta, k=k: (k,), k) for k in (3, 4)), (GRID, 2), (other, 100), (GRID, 2)):
        graph(torch.randn(100), grid)
        assert runs.launches[-1].grid[0] == expected
    for size in (5, 6):

        def closed(meta: Any, size: int = 0) -> tuple[int, ...]:
            return (size or meta["n"],)

        def around(meta: Any, size: int = size) -> tuple[int, ...]:
            return closed(meta, size)

        graph(torch.randn(100), around)
        assert runs.launches[-1].grid[0] == size


def test_graphs_with_unlike_closures_do_not_share_a_launch(runs: Runs) -> None:
    """The operator finds a launch by its token at each call."""
    kernel = make()

    def of(k: int) -> Any:
        return lambda meta: (k,)

    class Callable_:
        def __init__(self, k: int) -> None:
            self.k = k

        def __call__(self, meta: Any) -> tuple[int]:
            return (self.k,)

    def f(x: torch.Tensor, grid: Any) -> torch.Tensor:
        return launched(kernel, x, grid, 2.0)

    graph = torch.compile(f, backend="eager", fullgraph=True, dynamic=False)
    grids = [of(3), of(4), Callable_(5), Callable_(6)]
    for grid, expected in zip(grids * 2, [3, 4, 5, 6] * 2, strict=True):
        kernel.cache.clear()
        graph(torch.randn(100), grid)
        assert runs.launches[-1].grid == (expected,)


@pytest.mark.slow
def test_what_a_graph_cannot_hand_over_is_refused_by_name(runs: Runs) -> None:
    kernel = make()

    def f(x: torch.Tensor) -> torch.Tensor:
        y, sizes = torch.empty_like(x), {"n": x.numel()}
        kernel[lambda meta: (sizes["n"],)](x, y, x.numel(), 2.0)
        return y

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"kernel scaled: its grid is or closes over a .*Dict"):
        torch.compile(f, backend="eager", fullgraph=True, dynamic=True)(torch.randn(100))
    x = torch.randn(100)
    assert torch.equal(torch.compile(f, backend="eager", dynamic=True)(x), x * 2), "a graph break otherwise"
    assert runs.blocks() == [64]


@pytest.mark.slow
def test_a_torch_that_has_changed_is_refused_by_name(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = AttributeError("TensorVariable has no attribute 'is_tensor'")
    monkeypatch.setattr(torch_private, "is_tensor", raising(moved))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"kernel scaled: this torch is read wrongly .*is_tensor"):
        torch.compile(doubling(make()), backend="eager", fullgraph=True)(torch.randn(100))
    x = torch.randn(100)
    assert torch.equal(torch.compile(doubling(make()), backend="eager")(x), x * 2)
    assert runs.blocks() == [64]


# what is written


@compiled
def test_kernels_in_place(runs: Runs, backend: str, dynamic: bool) -> None:
    kernel = kerntune.autotune(configs(64, 128, 256), key=["n"])(doubled_in_place)

    def f(x: torch.Tensor) -> torch.Tensor:
        copy = x + 0
        kernel[lambda meta: (triton.cdiv(copy.numel(), meta["BLOCK"]),)](copy, copy.numel())
        return copy

    check(f, backend, dynamic)
    assert runs.blocks() == WINNERS


@compiled
def test_arguments_of_the_function_in_place(runs: Runs, backend: str, dynamic: bool) -> None:
    kernel = kerntune.autotune(configs(64, 128, 256), key=["n"])(doubled_in_place)

    def f(x: torch.Tensor) -> torch.Tensor:
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
        return x + 1

    graph = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    for n in SIZES:
        x = torch.randn(n)
        before = x.clone()
        assert torch.equal(graph(x), before * 2 + 1)
        assert torch.equal(x, before * 2)


def test_the_graph_declares_what_the_kernel_writes(runs: Runs) -> None:
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(accumulated)
    seen, total = list[Any](), torch.zeros(100)

    def f(x: torch.Tensor, total: torch.Tensor) -> None:
        kernel[lambda meta: (1,)](x, total, x.numel())

    torch.compile(f, backend=noting(seen), fullgraph=True)(torch.ones(100), total)
    (launch,) = [node for node in seen if "launch" in str(node.target)]
    _, written, read, ints, floats = launch.args
    assert ([str(n) for n in written], [str(n) for n in read]) == (["l_total_"], ["l_x_"])
    assert (ints, floats) == ([], [])
    assert torch.equal(total, torch.ones(100))


# operators and gradients


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
@compiled
def test_autograd_functions(runs: Runs, backend: str, dynamic: bool) -> None:
    kernel = make()

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return doubling(kernel)(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return doubling(kernel)(gradient.contiguous())

    graph = torch.compile(lambda x: Doubled.apply(x), backend=backend, fullgraph=True, dynamic=dynamic)
    for n in SIZES:
        x = torch.randn(n, requires_grad=True)
        out = graph(x)
        out.sum().backward()
        assert torch.equal(out, x * 2)
        assert torch.equal(x.grad, torch.full((n,), 2.0))
    assert runs.blocks() == [block for block in WINNERS for _ in range(2)]


@pytest.mark.parametrize("hooked", [False, True])
@compiled
def test_triton_op(runs: Runs, backend: str, dynamic: bool, hooked: bool) -> None:
    hook = (lambda named: None) if hooked else None
    kernel = kerntune.autotune([triton.Config({"BLOCK": b}, pre_hook=hook) for b in (64, 128, 256)], key=["n"])(scaled)

    def body(x: torch.Tensor) -> torch.Tensor:
        y, n = torch.empty_like(x), x.numel()
        grid = GRID if hooked else (lambda meta: (triton.cdiv(n, meta["BLOCK"]),))
        torch.library.wrap_triton(kernel)[grid](x, y, n, 2.0)
        return y

    with torch.library._scoped_library("kerntune_tests", "FRAGMENT"):
        op = torch.library.triton_op("kerntune_tests::doubled", body, mutates_args={})
        check(lambda x: op(x), backend, dynamic)
        assert runs.blocks() == WINNERS
        x = torch.randn(300)
        assert torch.equal(op(x), x * 2), "outside of a graph"
        assert runs.blocks() == [256]


def test_wrap_triton_outside_of_operators_and_graphs_launches(runs: Runs) -> None:
    """Silence would leave the result as it was."""
    x, y = torch.randn(300), torch.empty(300)
    torch.library.wrap_triton(make())[GRID](x, y, 300, 2.0)
    assert torch.equal(y, x * 2)
    assert runs.blocks() == [256]


@compiled
def test_custom_op(runs: Runs, backend: str, dynamic: bool) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return doubling(kernel)(x)

    kernel = make()
    op = torch.library.custom_op("kerntune_tests::custom", body, mutates_args=())
    op.register_fake(torch.empty_like)
    check(lambda x: op(x), backend, dynamic)
    assert runs.blocks() == WINNERS


def test_kernels_that_torch_can_launch_are_left_to_it(runs: Runs) -> None:
    """One config, no hooks: nothing to choose."""
    kernel = kerntune.autotune(configs(64), key=["n"])(scaled)
    seen: list[Any] = []
    torch.compile(doubling(kernel), backend=noting(seen), fullgraph=True)(torch.randn(100))
    names = [str(node.target) for node in seen if node.op == "call_function"]
    assert [name for name in names if "kerntune" in name] == []
    assert [name for name in names if "triton_kernel_wrapper" in name] == ["triton_kernel_wrapper_mutation"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_known_winner_is_launched_with_the_kernels_defaults(runs: Runs, wrapped: bool) -> None:
    """torch takes arguments that a call leaves out for none: its generated launch would lack them."""
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    kernel = kerntune.autotune(configs(64, 128), key=["n"])(shifted)
    seen: list[dict[str, Any]] = []

    def backend(gm: Any, inputs: Any) -> Any:
        for node in gm.graph.nodes:
            if node.target is wrap.triton_kernel_wrapper_mutation:
                constants = wrap.kernel_side_table.get_constant_args(node.kwargs["constant_args_idx"])
                seen.append({**node.kwargs["kwargs"], **constants})
        return gm.forward

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        (torch.library.wrap_triton(kernel) if wrapped else kernel)[(2,)](x, y, x.numel())
        return y

    x = torch.randn(100)
    f(x)
    if wrapped:
        backend(torch.fx.experimental.proxy_tensor.make_fx(f)(x), ())
    else:
        assert torch.equal(torch.compile(f, backend=backend, fullgraph=True, dynamic=False)(x), x + 3)
    (arguments,) = seen
    assert (arguments["shift"], arguments["TWICE"]) == (3, False)
    assert "BLOCK" not in arguments, "the config has it"


def test_a_default_that_no_graph_can_have_is_left_to_the_operator(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kerntune.autotune(configs(64, 128), key=["n"])(shifted)
    default = {"shift": torch.float16}
    monkeypatch.setattr(kernel_calls.KernelCall, "_defaults", lambda call: default)
    x, seen = torch.randn(100), list[Any]()
    launched(kernel, x, (2,))
    graph = torch.compile(lambda x: launched(kernel, x, (2,)), backend=noting(seen), fullgraph=True, dynamic=False)
    assert torch.equal(graph(x), x + 3)
    assert "kerntune.launch.default" in [str(node.target) for node in seen]


def test_fits_chooses_by_size() -> None:
    """The rule that stands for times in these tests."""
    assert [fits(None, {"n": n}, configs(64, 128, 256)).kwargs["BLOCK"] for n in (1, *SIZES)] == [64, *WINNERS]


@pytest.mark.parametrize("dynamic", [False, True])
def test_grid_objects_of_kernels_that_torch_launches(runs: Runs, dynamic: bool) -> None:
    check(lambda x: launched(scaled, x, GRID, 2.0, BLOCK=64), "eager", dynamic)
    assert [launch.grid for launch in runs.launches] == [(2, 1, 1), (3, 1, 1), (5, 1, 1), (2, 1, 1)]


@compiled
def test_tritons_heuristics_above_the_tuner(runs: Runs, backend: str, dynamic: bool) -> None:
    """As flash-linear-attention writes them: the tuner is called by ``run``."""
    tuner = kerntune.autotune([triton.Config({}, num_warps=w) for w in (2, 4)], key=["n"])(scaled)
    kernel = triton.heuristics({"BLOCK": lambda named: 64 if named["factor"] < 3 else 128})(tuner)
    runs.choose = lambda tuner, named, found: found[0]
    check(doubling(kernel), backend, dynamic)
    assert runs.blocks() == [64] * 4
    assert len(runs.tuned) == 3


def test_frozen_tuning_holds(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tuned while a graph is made, and where it runs the user's setting says what a missing winner is."""

    def frozen(call: Any, plain: Any) -> Any:
        raise CacheMissError(f"kernel {call.tuner.base_fn.__name__}: no stored winner")

    graph = torch.compile(doubling(make()), backend="eager", fullgraph=True)
    monkeypatch.setattr(tuned_call._Call, "tune", frozen)
    with pytest.raises(CacheMissError, match="kernel scaled: no stored winner"):
        graph(torch.randn(100))
    assert runs.launches == []
