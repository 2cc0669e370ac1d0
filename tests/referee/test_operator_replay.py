"""Torch's operators run again from their rows: they give what they gave, and what a GPU doesn't promise is a fault."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kerntune.base.recording import View
from kerntune.errors import BackendError, KernelFault, ReplayError
from kerntune.gpu.base import tensors_in
from kerntune.referee.operator_replay import run_operator, tensor_at
from kerntune.referee.torch_operators import (
    REPLAYED,
    DtypeNamed,
    HostNumber,
    OperatorArgument,
    Several,
    TorchOperator,
    ViewAt,
    row_of,
    with_tf32,
)

SUM = TorchOperator(1, "sum.IntList_out", (ViewAt(0), Several((0,)), False), {"out": ViewAt(1)})


def test_a_view_is_a_tensor_on_its_storages_bytes() -> None:
    memory = np.zeros(24, np.uint8)
    tensor = tensor_at(View(0, "float32", (2, 2), (1, 3), 4), memory)
    tensor.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert memory.view("f4").tolist() == [0.0, 1.0, 3.0, 0.0, 2.0, 4.0]
    assert tensor_at(View(0, "float16", (0, 3), (3, 1)), memory).shape == (0, 3)


def run(row: TorchOperator, *tensors: Any) -> None:
    run_operator(row, tensors.__getitem__)


def test_a_row_runs_on_the_tensors_of_its_views() -> None:
    x, o = torch.arange(6.0).reshape(2, 3), torch.zeros(3, dtype=torch.float64)
    run(replace(SUM, words={"dtype": DtypeNamed("float64"), "out": ViewAt(1)}), x, o)
    assert o.tolist() == [3.0, 5.0, 7.0]
    run(
        TorchOperator(0, "cat.out", (Several((ViewAt(0), ViewAt(0))), 1), {"out": ViewAt(1)}), x, y := torch.zeros(2, 6)
    )
    assert y.tolist() == [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]]


@pytest.mark.parametrize(
    "row",
    [
        replace(SUM, name="sum.nothing"), replace(SUM, words={"wrong": 3}), replace(SUM, args=(ViewAt(0), 9.5)),
        replace(SUM, name="sum.__class__"), replace(SUM, words={"dtype": 6, "out": ViewAt(1)}),
        replace(SUM, args=(ViewAt(0),) * 9), replace(SUM, words={"out": DtypeNamed("float32")}),
        replace(SUM, name="sum.default", args=(ViewAt(0),), words={}),
        replace(SUM, args=(ViewAt(0), Several((1,)), False)),
    ],
)  # fmt: skip
def test_what_torch_refuses_is_an_error_that_names_the_operator(row: TorchOperator) -> None:
    with pytest.raises(ReplayError, match=r"^torch's sum: \w+Error: "):
        run(row, torch.zeros(2, 3), torch.zeros(3))


RACE = "a race: several numbers"
ROWS = torch.tensor([[0, 1], [0, 1]])


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (
            TorchOperator(0, "index_select.out", (ViewAt(0), 0, ViewAt(2)), {"out": ViewAt(1)}),
            "IndexError: index out of",
        ),
        (TorchOperator(0, "index_put_.default", (ViewAt(0), Several((ViewAt(2),)), ViewAt(5))), RACE),
        (TorchOperator(0, "index_put_.default", (ViewAt(0), Several((ViewAt(2),)), ViewAt(3), True)), ""),
        (TorchOperator(0, "index_put_.default", (ViewAt(0), Several((ViewAt(2),)), HostNumber(2.0, "float32"))), ""),
        (TorchOperator(0, "index_put.out", (ViewAt(0), Several((ViewAt(4),)), ViewAt(0)), {"out": ViewAt(0)}), ""),
        (TorchOperator(0, "index_put_.default", (ViewAt(0), Several((ViewAt(2),)), ViewAt(3))), ""),
        (TorchOperator(0, "scatter_.src", (ViewAt(0), 0, ViewAt(2), ViewAt(5))), RACE),
        (TorchOperator(0, "scatter_.src", (ViewAt(0), 0, ViewAt(2), ViewAt(3))), ""),
        (TorchOperator(0, "scatter_.reduce", (ViewAt(0), 0, ViewAt(2), ViewAt(5)), {"reduce": "add"}), ""),
        (TorchOperator(0, "scatter_.src", (ViewAt(0), 1, ViewAt(2), ViewAt(5))), ""),
        (TorchOperator(0, "scatter_.value", (ViewAt(0), 0, ViewAt(2), 3.0)), ""),
        (TorchOperator(0, "scatter_add_.default", (ViewAt(0), 0, ViewAt(2), ViewAt(5))), ""),
        (TorchOperator(0, "index_copy_.default", (ViewAt(0), 0, ViewAt(6), ViewAt(5))), RACE),
        (TorchOperator(0, "index_copy_.default", (ViewAt(0), 0, ViewAt(7), ViewAt(5))), ""),
    ],
)
def test_on_a_processor_an_index_outside_or_a_race_is_a_fault(row: TorchOperator, fault: str) -> None:
    """A GPU has an assertion for the first; of the second any number may be the last."""
    x, indices = torch.zeros(3, 2), torch.tensor([0, 7]) if "select" in row.name else ROWS
    if "scatter" not in row.name and "put_" in row.name:
        indices = ROWS[0] * 0
    several = torch.arange(4.0).reshape(2, 2)
    tensors = (x, torch.zeros(2, 2), indices, torch.ones(2, 2), torch.arange(3), several)
    tensors = (*tensors, torch.tensor([1, 1]), torch.tensor([2, 0]))
    if not fault:
        return run(row, *tensors)
    with pytest.raises(KernelFault, match=f"^torch's [a-z_]+: {fault}"):
        run(row, *tensors)
    return None


def test_a_softmax_of_halves_has_float32_on_a_processor_too() -> None:
    x, o = torch.randn(3, 5).half(), torch.zeros(3, 5)
    run(TorchOperator(0, "_softmax.out", (ViewAt(0), 1, True), {"out": ViewAt(1)}), x, o)
    torch.testing.assert_close(o, torch.softmax(x.float(), 1))


def test_a_number_of_the_hosts_is_a_tensor_without_dimensions() -> None:
    x, o = torch.zeros(3, dtype=torch.float16), torch.ones(3, dtype=torch.float16)
    number = HostNumber(2.5, "float32")
    run(TorchOperator(0, "add.out", (ViewAt(0), number), {"out": ViewAt(1)}), x, o)
    run(
        TorchOperator(0, "masked_fill_.Tensor", (ViewAt(0), ViewAt(2), number)), x, o, torch.tensor([True, False, True])
    )
    assert (o.tolist(), x.tolist()) == ([2.5] * 3, [2.5, 0.0, 2.5])


def test_a_faulted_device_is_told_in_a_line() -> None:
    def tensor_of(index: int) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered\nCompile with ...")

    with pytest.raises(BackendError, match=r"^torch's sum: RuntimeError: CUDA error: device-side assert triggered$"):
        run_operator(SUM, tensor_of)


def test_results_never_grow_beyond_their_memory() -> None:
    """A view's storage is not torch's to resize."""
    with pytest.raises(ReplayError, match="resize"):
        run(SUM, torch.ones(2, 5), tensor_at(View(0, "float32", (2,), (1,)), np.zeros(8, np.uint8)))


ATEN = torch.ops.aten


def views(*tensors: Any) -> Any:
    return lambda x: next((i for i, one in enumerate(tensors) if one is x), None)


def test_each_replayed_operator_that_torch_has_gives_what_it_gave() -> None:
    """Of one tensor, by its overload with ``out``."""
    x, count = torch.rand(3, 4) + 0.5, 0
    for word in sorted(REPLAYED):
        func = getattr(getattr(ATEN, word, None), "default", None)
        arguments = func._schema.arguments if func is not None else ()
        if not arguments or any(not a.has_default_value() for a in arguments[1:]) or func._schema.is_mutable:
            continue
        try:
            with Compared() as compared:
                func(x)
        except RuntimeError:
            continue
        count += len(compared.names)
    assert count > 40


class Compared(TorchDispatchMode):  # type: ignore[misc]
    """Each listed operator is run again from its row, on what it was given, and must give what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words, numbered = kwargs or {}, list[torch.Tensor]()
        given = [*tensors_in(args, words.values())]
        before = [x.clone() for x in given]
        outcome = func(*args, **words)
        left = [*given, *(x for x in tensors_in((outcome,)) if not any(x is g for g in given))]
        word = func._schema.name.removeprefix("aten::").removesuffix("_")
        if word not in {x.removesuffix("_") for x in REPLAYED} or (func._schema.returns and outcome is None):
            return outcome
        with _disable_current_modes():
            memory = [*before, *(torch.full_like(x, 7).detach() for x in left[len(given) :])]

            def view_of(tensor: torch.Tensor) -> int:
                numbered.append(tensor)
                return len(numbered) - 1

            row = row_of(0, func, args, words, outcome, view_of)
            if any(
                s.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                for x in left[len(given) :]
                for s in given
            ):
                return outcome  # a view
            run_operator(row, lambda i: next(m for m, x in zip(memory, left, strict=True) if x is numbered[i]))
            for found, wanted in zip(memory, left, strict=True):
                torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True, msg=row.name)
        self.names.append(row.name)
        return outcome


X, Y, P = torch.randn(4, 6), torch.randn(4, 6), torch.rand(4, 6) * 0.8 + 0.1
W, IMAGES, IDS = torch.rand(6), torch.randn(2, 4, 8, 8), torch.tensor([3, 0, 5, 2])
OF_CHANNELS = (torch.zeros(4), torch.ones(4), torch.rand(4), torch.rand(4))


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: F.layer_norm(X, (6,), W, W), "native_layer_norm.out"),
        (lambda: F.group_norm(IMAGES, 2, *OF_CHANNELS[2:]), "native_group_norm.out"),
        (lambda: F.batch_norm(IMAGES, *OF_CHANNELS, training=True), "native_batch_norm.out"),
        (lambda: F.batch_norm(IMAGES, *OF_CHANNELS), "native_batch_norm.out"),
        (lambda: F.conv2d(IMAGES, torch.randn(3, 4, 3, 3), W[:3]), "convolution.out"),
        (lambda: F.max_pool2d(IMAGES, 2), "max_pool2d_with_indices.out"),
        (lambda: F.avg_pool2d(IMAGES, 2), "avg_pool2d.out"),
        (lambda: F.interpolate(IMAGES, scale_factor=2), "upsample_nearest2d.out"),
        (lambda: F.mse_loss(X, Y), "mse_loss.default"),
        (lambda: F.binary_cross_entropy(P, P), "binary_cross_entropy.default"),
        (lambda: F.cross_entropy(X, IDS), "_log_softmax.out nll_loss_forward.output"),
        (lambda: F.prelu(X, W[:1]), "_prelu_kernel.default"),
        (lambda: ATEN._safe_softmax(X, 1), "_safe_softmax.default"),
        (lambda: X.unfold(1, 2, 1) + X.diagonal()[0], "add.out"),
        (lambda: X.clone().masked_scatter_(Y > 0, P), "copy_.default gt.Scalar_out masked_scatter_.default"),
        (lambda: IDS << 2 | IDS >> 1, "__lshift__.Scalar_out __rshift__.Scalar_out bitwise_or.Tensor_out"),
        (lambda: torch._foreach_add([X, Y], [Y, X]), "_foreach_add.List_out"),
        (lambda: torch._foreach_mul_([X.clone(), Y.clone()], 2.0), "copy_.default copy_.default _foreach_mul_.Scalar"),
        (lambda: torch._foreach_addcdiv_([X.clone()], [Y], [P], [0.5]), "copy_.default _foreach_addcdiv_.ScalarList"),
        (lambda: torch.inference_mode()(lambda: X.t().reshape(24))(), "reshape.default"),
        (lambda: ATEN.median.dim(X, 1), "median.dim_values"),
        (
            lambda: ATEN.native_layer_norm_backward(
                X, Y, [6], *ATEN.native_layer_norm(Y, [6], W, W, 1e-5)[1:], W, None, [True, True, False]
            ),
            "native_layer_norm.out native_layer_norm_backward.default",
        ),
        (
            lambda: ATEN.convolution_backward(
                IMAGES, IMAGES, torch.ones(4, 4, 1, 1), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
                [True, True, False],
            ),
            "ones.out convolution_backward.default",
        ),
    ],
)  # fmt: skip
def test_a_replayed_call_gives_what_it_gave(call: Any, names: str) -> None:
    with Compared() as compared:
        call()
    assert " ".join(compared.names) == names


def test_a_result_is_copied_to_memory_of_its_shape() -> None:
    row = TorchOperator(0, "mse_loss.default", (ViewAt(0), ViewAt(1)), {}, (ViewAt(2),))
    x, o = torch.ones(3), torch.zeros(())
    run(row, x, 3 * x, o)
    assert o == 4
    with pytest.raises(ReplayError, match="its result has another shape than its memory"):
        run(row, x, x, torch.zeros(1))
    with pytest.raises(ReplayError, match="it writes into nothing that it is given"):
        run(replace(row, results=()), x, x, o)


def test_a_buffer_that_is_empty_on_a_gpu_is_left_out() -> None:
    x, o = torch.randn(5), torch.empty(5)
    run(TorchOperator(0, "log_sigmoid_forward.default", (ViewAt(0),), {}, (ViewAt(1), ViewAt(2))), x, o, torch.empty(0))
    torch.testing.assert_close(o, F.logsigmoid(x))


def test_of_batch_norms_each_channel_has_its_numbers() -> None:
    """Torch doesn't look."""
    one = torch.ones(1)
    row = TorchOperator(
        0, "native_batch_norm.out", (*map(ViewAt, range(5)), True, 0.1, 1e-5),
        {"out": ViewAt(5), "save_mean": ViewAt(6), "save_invstd": ViewAt(7)},
    )  # fmt: skip
    with pytest.raises(ReplayError, match="what it has of each channel has another size"):
        run(row, IMAGES, one, one, one, one, torch.empty_like(IMAGES), torch.empty(4), torch.empty(4))


def test_a_norm_of_halves_has_its_statistics_in_float32_on_a_processor_too() -> None:
    x, o = torch.randn(4, 64).bfloat16(), torch.empty(4, 64, dtype=torch.bfloat16)
    mean, rstd = torch.empty(4, 1), torch.empty(4, 1)
    words: dict[str, OperatorArgument] = {f"out{i}": ViewAt(1 + i) for i in range(3)}
    row = TorchOperator(0, "native_layer_norm.out", (ViewAt(0), Several((64,)), None, None, 1e-5), words)
    run(row, x, o, mean, rstd)
    torch.testing.assert_close(mean, x.float().mean(1, keepdim=True))
    torch.testing.assert_close(o, F.layer_norm(x.float(), (64,)).bfloat16())


def test_where_equal_elements_go_is_drawn_unless_torch_promises_it() -> None:
    x, v, i = torch.ones(40), torch.empty(40), torch.empty(40, dtype=torch.int64)
    to = {"values": ViewAt(1), "indices": ViewAt(2)}
    unstable = TorchOperator(0, "sort.values", (ViewAt(0), -1, False), to)
    found = set()
    for _ in range(4):
        run(unstable, x, v, i)
        assert sorted(i.tolist()) == [*range(40)]
        found.add(tuple(i.tolist()))
    assert len(found) > 1
    run(
        TorchOperator(0, "sort.values_stable", (ViewAt(0),), {"stable": True, "dim": -1, "descending": False, **to}),
        x,
        v,
        i,
    )
    assert i.tolist() == [*range(40)]
    x, v, i = torch.arange(40.0), torch.empty(20), torch.empty(20, dtype=torch.int64)
    for in_order in (True, False):
        run(TorchOperator(0, "topk.values", (ViewAt(0), 20, -1, True, in_order), to), x, v, i)
        assert (v.tolist() == [*range(39, 19, -1)]) == in_order
        assert (sorted(v.tolist()), x[i].tolist()) == ([*range(20, 40)], v.tolist())
    run(TorchOperator(0, "topk.default", (ViewAt(0), 20), {}, (ViewAt(1), ViewAt(2))), x, v, i)
    assert v.tolist() == [*range(39, 19, -1)]
    run(TorchOperator(0, "sort.values", (ViewAt(0), -1, False), to), x[0], v[0], i[0])


@pytest.mark.parametrize("words", [{}, {"k": 2}])
def test_which_of_equal_elements_is_in_the_middle_is_drawn(words: dict[str, int]) -> None:
    x, v, i = torch.tensor([[3.0, 1.0, 1.0, 1.0, 0.0]]), torch.empty(1), torch.empty(1, dtype=torch.int64)
    name = "kthvalue.values" if words else "median.dim_values"
    row = TorchOperator(0, name, (ViewAt(0), *words.values(), -1), {"values": ViewAt(1), "indices": ViewAt(2)})
    found = set()
    for _ in range(40):
        run(row, x, v, i)
        assert v.tolist() == [1.0]
        found.add(i.item())
    assert found == {1, 2, 3}
    run(TorchOperator(0, "median.default", (ViewAt(0),), {}, (ViewAt(1),)), x, v := torch.empty(()))
    assert v == 1.0


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("mm.out", ((2, 2), (2, 2))), ("dot.out", ((3,), (3,))), ("bmm.out", ((1, 2, 2), (1, 2, 2)))],
)
def test_products_of_whole_numbers_are_no_gpu_s(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    row = TorchOperator(0, name, (ViewAt(0), ViewAt(1)), {"out": ViewAt(2)})
    for dtype in (torch.float32, torch.int32, torch.int8):
        a, b = (torch.ones(shape, dtype=dtype) for shape in shapes)
        with contextlib.nullcontext() if dtype.is_floating_point else pytest.raises(ReplayError, match="no GPU has it"):
            run(row, a, b, a @ b)


def test_a_narrow_row_has_operands_of_ten_bits() -> None:
    given = (ViewAt(0), ViewAt(1), None, *[Several((n,)) for n in (1, 0, 1)], False, Several((0,)), 1)
    x, w, o = torch.tensor([[[1 + 2.0**-12, 3.0]]]), torch.tensor([[[1.0]]]), torch.empty(1, 1, 2)
    row = TorchOperator(0, "convolution.out", given, {"out": ViewAt(2)})
    recording = SimpleNamespace(views=[SimpleNamespace(dtype="float32")] * 3)
    (narrow,) = with_tf32([row], recording)  # type: ignore[arg-type]
    for one, left in ((row, [1 + 2.0**-12, 3.0]), (narrow, [1.0, 3.0])):
        run(one, x, w, o)
        assert o.flatten().tolist() == left
    recording.views[0].dtype = "float16"
    assert with_tf32([SUM], recording) == (SUM,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (torch.int32, [2**31 - 1, -(2**31), 0, 2, -3, 2**31 - 1]),
        (torch.int64, [2**63 - 1, -(2**63), 0, 2, -3, 3 * 10**10]),
        (torch.int8, [-1, 0, 0, 2, -3, -1]),
        (torch.bool, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_what_is_no_whole_number_becomes_one_as_on_a_gpu(dtype: torch.dtype, wanted: list[int]) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 2.9, -3.9, 3e10], dtype=torch.float64)
    o = torch.empty(6, dtype=dtype)
    run(TorchOperator(0, "copy_.default", (ViewAt(0), ViewAt(1))), o, x)
    assert o.int().tolist() == wanted if dtype == torch.bool else o.tolist() == wanted


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (lambda w: (w.as_strided((5, 4), (2, 1)), torch.ones(5, 4)), "it writes one place twice"),
        (lambda w: (w.expand(3, 40), torch.ones(3, 40)), "it writes one place twice"),
        (lambda w: (w[1:], w[:-1]), "it reads what it writes as another element"),
        (lambda w: (w.view(5, 8)[:, :5], w.view(5, 8)[:, :5].t()), "it reads what it writes as another element"),
        (lambda w: (w.view(torch.int16)[:20], w[:20]), "it reads what it writes as another element"),
        (lambda w: (w, w), ""),
        (lambda w: (w[::2], w[1::2]), ""),
        (lambda w: (w.view(5, 8)[:, :3], w.view(5, 8)[:, 3:6]), ""),
        (lambda w: (w.view(5, 8).t(), torch.ones(8, 5)), ""),
    ],
)
def test_a_place_that_is_written_twice_or_read_as_another_element_is_a_race(of: Any, told: str) -> None:
    one, other = of(torch.ones(40))
    row = TorchOperator(0, "add_.Tensor", (ViewAt(0), ViewAt(1)))
    if told:
        with pytest.raises(KernelFault, match=f"^torch's add_: a race: {told}$"):
            run(row, one, other)
    else:
        run(row, one, other)
