"""Tensors that say that they are on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import InterpreterLimit, UsageError
from kerntune.gpu.fake_cuda import StandIns
from kerntune.gpu.interpreter import Interpreter, limit_of

pytestmark = pytest.mark.usefixtures("interpreter")


def test_a_tensor_is_where_it_was_put() -> None:
    there, here = torch.ones(3, device="cuda"), torch.ones(3)
    assert (there.device.type, there.is_cuda, there.is_cpu, there.get_device()) == ("cuda", True, False, 0)
    assert (here.device.type, here.is_cuda, here.is_cpu) == ("cpu", False, True)
    assert all(t.is_cuda for t in (there + 1, there[1:], there.view(3, 1), torch.zeros_like(there), there.new_zeros(1)))
    assert not (here + 1).is_cuda


def test_a_tensor_of_data_is_where_it_was_asked_to_be() -> None:
    made = torch.tensor([1.0], device="cuda", requires_grad=True)
    assert (made.is_cuda, made.is_leaf) == (True, True)
    assert torch.as_tensor([1.0], device="cuda").is_cuda
    assert made.new_tensor([1.0]).is_cuda
    assert not torch.tensor([1.0], device="cpu").is_cuda


@pytest.mark.parametrize("move", [lambda t: t.cuda(), lambda t: t.to("cuda"), lambda t: t.to(0)])
def test_moving_there_is_a_copy(move: Any) -> None:
    here = torch.ones(3)
    there = move(here)
    assert there.is_cuda
    there.fill_(2)
    assert here.tolist() == [1, 1, 1]
    assert there.cuda().data_ptr() == there.data_ptr()


def test_results_are_where_inputs_are_whatever_torch_does_between() -> None:
    x, weight = torch.ones(2, 8, device="cuda", dtype=torch.float16), torch.ones(8, device="cuda", dtype=torch.float16)
    assert torch.nn.functional.rms_norm(x, (8,), weight).is_cuda
    assert torch.stack([x, x]).float().std(0).is_cuda
    assert not torch.zeros_like(x, device="cpu").is_cuda
    assert not x.new_zeros(3, device="cpu").is_cuda
    here = torch.zeros(2, 8)
    here.copy_(x)
    assert not here.is_cuda


def test_moving_back_is_a_copy_as_well() -> None:
    """Else `before = x.cpu()` would change with x, and a kernel that writes in place would be compared with itself."""
    there = torch.ones(3, device="cuda")
    before = there.cpu()
    there.zero_()
    assert (before.tolist(), before.is_cuda) == ([1, 1, 1], False)
    assert there.to("cpu", torch.float64).dtype == torch.float64


def test_modules_move_and_gradients_flow() -> None:
    layer = torch.nn.Linear(4, 2).to("cuda")
    assert all(p.is_cuda for p in layer.parameters())
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    assert [p.grad.is_cuda for p in (x, layer.weight) if p.grad is not None] == [True, True]


@triton.jit
def doubling(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def doubled(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda
    out = torch.empty(x.shape, device=x.device)
    doubling[(1,)](x, out, x.numel(), BLOCK=16)
    return out


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return doubled(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return doubled(grad.contiguous())


def test_kernels_of_a_backward_pass_run(interpreter: Interpreter) -> None:
    x = torch.ones(10, device="cuda", requires_grad=True)
    Doubling.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 10
    assert interpreter.launched == 2


def test_a_custom_operator_for_cuda_runs(interpreter: Interpreter) -> None:
    @torch.library.custom_op("kerntune_interpret::doubled", mutates_args=(), device_types="cuda")
    def operator(x: torch.Tensor) -> torch.Tensor:
        return doubled(x)

    assert operator(torch.ones(5, device="cuda")).tolist() == [2.0] * 5
    assert interpreter.launched == 1


def test_a_tensor_that_is_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(InterpreterLimit, match="1048576 x 1048576"):
        torch.empty(1 << 20, 1 << 20, device="cuda")


def test_a_tensor_of_the_largest_size_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.gpu.interpreter.session.LARGEST", 64)
    assert torch.empty(8, 8, device="cuda").is_cuda
    with pytest.raises(InterpreterLimit, match=r"65 elements is too large for the interpreter \(limit 64\)"):
        torch.empty(65, device="cuda")


def test_not_beside_stand_ins() -> None:
    with pytest.raises(UsageError), StandIns(TYPICAL_DEVICES["cuda:90"]).activate():
        pass


def test_a_limit_is_found_behind_other_errors() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = InterpreterLimit("why")
    assert str(limit_of(outer)) == "why"
    assert limit_of(RuntimeError("other")) is None


def test_autocast_is_refused() -> None:
    x = torch.ones(4, device="cuda")
    with torch.autocast("cuda", torch.float16), pytest.raises(InterpreterLimit, match="autocast"):
        doubled(x)
