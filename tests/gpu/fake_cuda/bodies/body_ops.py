"""Custom operators run their real code."""

import kernels as K
import torch


@torch.library.custom_op("bodies::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    assert x.data_ptr() > 0
    return K.add(x, x)


@double.register_fake
def _(x):
    return torch.empty_like(x)


double.register_autograd(lambda ctx, gradient: double(gradient))


@torch.library.custom_op("bodies::fill", mutates_args=("x",), device_types="cuda")
def fill(x: torch.Tensor, value: float) -> None:
    K.add_kernel[(1,)](x, x, x, x.numel(), BLOCK=16)


@torch.library.triton_op("bodies::wrapped", mutates_args=())
def wrapped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(K.add_kernel)[(4,)](x, x, out, x.numel(), BLOCK=32)
    return out


library = torch.library.Library("bodies_library", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: K.add(x, x), "CUDA")
library.impl("twice", lambda x: torch.empty_like(x), "Meta")
torch.library.define("bodies_library::thrice", "(Tensor x) -> Tensor")


@torch.library.impl("bodies_library::thrice", "cuda")
def _thrice(x):
    return K.add(K.add(x, x), x)


def test_custom_op_forward_and_backward():
    with K.launched() as names:
        x = torch.randn(16, device="cuda", requires_grad=True)
        double(x).sum().backward()
        torch.ops.bodies.double(x.detach())
    assert names == ["add_kernel"] * 3
    assert x.grad.shape == (16,)


def test_custom_op_that_writes():
    with K.launched() as names:
        fill(torch.randn(16, device="cuda"), 1.0)
    assert names == ["add_kernel"]


def test_triton_op_and_wrap_triton():
    with K.launched() as names:
        x = torch.randn(16, device="cuda")
        assert wrapped(x).shape == (16,)
        torch.library.wrap_triton(K.add_kernel)[(4,)](x, x, x, 16, BLOCK=32)
    assert names == ["add_kernel"] * 2


def test_operators_of_a_library():
    with K.launched() as names:
        x = torch.randn(16, device="cuda")
        torch.ops.bodies_library.twice(x)
        torch.ops.bodies_library.thrice(x)
    assert names == ["add_kernel"] * 3


def test_real_tensors_take_the_real_way():
    @torch.library.custom_op("bodies::plus", mutates_args=())
    def plus(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert plus(torch.zeros(2)).tolist() == [1.0, 1.0]
