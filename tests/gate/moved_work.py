"""Functions whose work is in Triton kernels, and edits of them: some move work to where no kernel is judged."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch
import triton
import triton.language as tl

ROWS, COLS = 1024, 1024
"""4 MiB of float32 a tensor."""


@triton.jit
def soft_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * cols + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * cols + i, e / tl.sum(e, 0), mask=i < cols)


@triton.jit
def nop_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    pass


@triton.jit
def copy_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(y_ptr + row * cols + i, tl.load(x_ptr + row * cols + i, mask=i < cols), mask=i < cols)


def launch(kernel: Any, x: torch.Tensor, y: torch.Tensor, rows: int = ROWS) -> torch.Tensor:
    kernel[(rows,)](x, y, COLS, BLOCK=1024)
    return y


def soft(x):
    return launch(soft_kernel, x, torch.empty_like(x))


# work that moved


def into_torch(x):
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return torch.softmax(x, -1)


def into_torch_and_copied(x):
    return launch(copy_kernel, torch.softmax(x, -1), torch.empty_like(x))


def into_an_out_argument(x):
    y = torch.empty_like(x)
    launch(soft_kernel, x, y, 1)
    torch.softmax(x, -1, out=y)
    return y


def into_another_function(x):
    def helper(t):
        e = torch.exp(t - t.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    launch(nop_kernel, x, torch.empty_like(x), 1)
    return helper(x)


def into_a_hook(x):
    y = x.detach().requires_grad_()
    y.register_hook(lambda grad: torch.softmax(x, -1))
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return torch.autograd.grad(y.sum(), y)[0]


KEPT: dict[tuple[int, ...], torch.Tensor] = {}


def kept_from_an_earlier_call(x):
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return KEPT[tuple(x.shape)]


def kept_and_copied(x):
    return launch(copy_kernel, KEPT[tuple(x.shape)], torch.empty_like(x))


def into_a_thread(x):
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.softmax(x, -1)))
    thread.start()
    thread.join()
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return found[0]


def into_another_stream(x):
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.softmax(x, -1)
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return y


def into_a_library(x):
    y = torch.empty_like(x)
    launch(nop_kernel, x, torch.empty_like(x), 1)
    ctypes.c_void_p(y.data_ptr())  # a library would write there
    return y


class Late(torch.Tensor):
    """Computes when it is used."""

    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    def __init__(self, x):
        self.inner = x

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [torch.softmax(a.inner, -1) if isinstance(a, Late) else a for a in args]
        return func(*args, **(kwargs or {}))


def into_a_subclass(x):
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return Late(x)


def into_a_custom_operator(x):
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return torch.ops.moved_work.softmax(x)


@torch.library.custom_op("moved_work::softmax", mutates_args=())
def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def into_in_place_operators(x):
    y = launch(soft_kernel, x, torch.empty_like(x), 1)
    y.copy_(x).sub_(y.amax(-1, keepdim=True)).exp_()
    return y.div_(y.sum(-1, keepdim=True))


def into_a_product(x):
    y = launch(copy_kernel, x, torch.empty_like(x))
    return y @ torch.eye(COLS, device=x.device)


def more_beside(x):
    return soft(x.t().contiguous().t().contiguous())


def into_the_host(x):
    mask = torch.ones(ROWS, COLS).to(x.device)
    return soft(x * mask)


def partly(x):
    half = ROWS // 2
    y = launch(soft_kernel, x, torch.empty_like(x), half)
    y[half:] = torch.softmax(x[half:], -1)
    return y


def into_lists(x):
    outs = torch._foreach_exp([x, x])
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return torch._foreach_div(outs, [x, x])[0]


def into_a_graph(x):
    return torch.compile(lambda t: t @ t)(soft(x).half())


def into_a_backward_pass(x):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return torch.softmax(t, -1)

        @staticmethod
        def backward(ctx, grad):
            return grad

    launch(nop_kernel, x, torch.empty_like(x), 1)
    return Function.apply(x)


MOVED = (
    into_torch, into_torch_and_copied, into_an_out_argument, into_another_function, into_a_hook,
    kept_from_an_earlier_call, kept_and_copied, into_a_thread, into_another_stream, into_a_library, into_a_subclass,
    into_a_graph, into_a_backward_pass, into_a_custom_operator, into_in_place_operators, into_a_product, more_beside,
    into_the_host, partly, into_lists,
)  # fmt: skip


# edits that move nothing


def renamed(inputs):
    result = torch.empty_like(inputs)
    launch(soft_kernel, inputs, result)
    return result


def views(x):
    return soft(x.view(-1).view(ROWS, COLS)).view(ROWS, COLS)[:, :]


def small_contiguous(x):
    x[:4, :4].contiguous()
    return soft(x)


def other_allocation(x):
    return launch(soft_kernel, x, torch.empty(x.shape, dtype=x.dtype, device=x.device))


def more_allocations(x):
    torch.empty(1 << 24, device=x.device)
    return soft(x)


def detached(x):
    return soft(x.detach()).detach()


CACHE: dict[int, torch.Tensor] = {}


def with_a_cache(x):
    if COLS not in CACHE:
        CACHE[COLS] = torch.arange(1 << 20, device=x.device).cos()
    return soft(x)


def reordered(x):
    torch.empty(16, device=x.device)
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return launch(soft_kernel, x, y)


def scalars_beside(x):
    torch.full((), 2.0, device=x.device) * 3
    return soft(x)


def with_gradients(x):
    y = x.detach().requires_grad_()
    y.grad = None
    return soft(y.detach())


def shape_arithmetic(x):
    torch.arange(8, device=x.device).cumsum(0)
    return soft(x)


def as_a_list(x):
    (result,) = [soft(x)]
    return result


HARMLESS = (
    renamed, views, small_contiguous, other_allocation, more_allocations, detached, with_a_cache, reordered,
    scalars_beside, with_gradients, shape_arithmetic, as_a_list,
)  # fmt: skip
