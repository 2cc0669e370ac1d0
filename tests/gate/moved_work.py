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


KEPT_TENSORS: dict[tuple[int, ...], torch.Tensor] = {}


def kept_from_an_earlier_call(x):
    launch(nop_kernel, x, torch.empty_like(x), 1)
    return KEPT_TENSORS[tuple(x.shape)]


def kept_and_copied(x):
    return launch(copy_kernel, KEPT_TENSORS[tuple(x.shape)], torch.empty_like(x))


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

PAIRS: dict[str, tuple[Any, Any]] = {}
"""An operation, with operators beside its kernels or without, and a harmless edit of it."""


def edit_of(before: Any) -> Any:
    def note(edit: Any) -> Any:
        PAIRS[edit.__name__] = before, edit
        return edit

    return note


PAIRS |= {
    "views": (soft, lambda x: soft(x.view(-1).view(ROWS, COLS)).view(ROWS, COLS)[:, :]),
    "other allocation": (soft, lambda x: launch(soft_kernel, x, torch.empty(x.shape, dtype=x.dtype, device=x.device))),
    "detached": (soft, lambda x: soft(x.detach()).detach()),
    "transposed twice": (soft, lambda x: soft(x.t().t())),
    "in a helper": (soft, lambda x: (lambda t: soft(t))(x)),
    "small contiguous": (soft, lambda x: (x[:4, :4].contiguous(), soft(x))[1]),
    "more allocations": (soft, lambda x: (torch.empty(1 << 24, device=x.device), soft(x))[1]),
    "scalars beside": (soft, lambda x: (torch.full((), 2.0, device=x.device) * 3, soft(x))[1]),
    "shape arithmetic": (soft, lambda x: (torch.arange(8, device=x.device).cumsum(0), soft(x))[1]),
    "small mask": (soft, lambda x: (torch.ones(1, COLS, device=x.device).bool(), soft(x))[1]),
    "split and seen": (soft, lambda x: (x.split(ROWS // 2), soft(x))[1]),
    "filled with less": (soft, lambda x: (torch.zeros(1024, device=x.device), soft(x))[1]),
}


@edit_of(soft)
def renamed(inputs):
    result = torch.empty_like(inputs)
    launch(soft_kernel, inputs, result)
    return result


CACHE: dict[int, torch.Tensor] = {}


@edit_of(soft)
def with_a_cache(x):
    if COLS not in CACHE:
        CACHE[COLS] = torch.arange(1 << 20, device=x.device).cos()
    return soft(x)


@edit_of(soft)
def reordered_allocations(x):
    torch.empty(16, device=x.device)
    y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return launch(soft_kernel, x, y)


@edit_of(soft)
def with_gradients(x):
    y = x.detach().requires_grad_()
    y.grad = None
    return soft(y.detach())


@edit_of(soft)
def in_a_list(x):
    (result,) = [soft(x)]
    return result


@edit_of(soft)
def in_inference_mode(x):
    with torch.no_grad():
        return soft(x)


@edit_of(soft)
def with_metadata(x):
    assert x.is_contiguous()
    assert x.stride(0) == COLS
    return soft(x)


@edit_of(soft)
def in_a_thread(x):
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(x.view(ROWS, COLS)))
    thread.start()
    thread.join()
    return soft(found[0])


def scaled_after(x):
    return soft(x) * 2.0


@edit_of(scaled_after)
def scaled_in_half_steps(x):
    y = soft(x)
    return y.add(y)


def two_after(x):
    y = soft(x)
    return y.exp(), y.cos()


@edit_of(two_after)
def two_after_in_another_order(x):
    y = soft(x)
    b = y.cos()
    return y.exp(), b


@edit_of(two_after)
def two_after_renamed(x):
    probabilities = soft(x)
    first, second = torch.exp(probabilities), torch.cos(probabilities)
    return first, second


def reduced(x):
    return soft(x).sum(0)


def made_contiguous(x):
    return soft(x.t().contiguous())


def stored_in_a_cache(x):
    cache = torch.zeros(4, ROWS, COLS, device=x.device)
    cache.index_put_((torch.tensor([1], device=x.device),), soft(x)[None])
    return cache


@edit_of(stored_in_a_cache)
def stored_by_index_copy(x):
    cache = torch.zeros(4, ROWS, COLS, device=x.device)
    cache.index_copy_(0, torch.tensor([2], device=x.device), soft(x)[None])
    return cache


def backward(x):
    y = x.detach().requires_grad_()
    (y * 2.0).sum().backward()
    return soft(y.grad)


@edit_of(backward)
def backward_by_grad(x):
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad((y * 2.0).sum(), y)
    return soft(grad)


@edit_of(backward)
def backward_twice_named(x):
    leaf = x.detach().requires_grad_()
    loss = (leaf * 2.0).sum()
    loss.backward()
    return soft(leaf.grad)


def product(x):
    return soft(x) @ x


@edit_of(product)
def product_by_matmul_out(x):
    y = soft(x)
    return torch.matmul(y, x, out=torch.empty_like(y))


def embedded(x):
    rows = torch.arange(64, device=x.device)
    return torch.nn.functional.embedding(rows, soft(x))


def selected(x):
    return soft(x).index_select(0, torch.arange(64, device=x.device))


def concatenated(x):
    y = soft(x)
    return torch.cat([y, y])


@edit_of(concatenated)
def stacked(x):
    y = soft(x)
    return torch.stack([y, y]).view(2 * ROWS, COLS)


PAIRS |= {
    "scaled before return": (scaled_after, lambda x: torch.mul(soft(x), 2.0)),
    "scaled by division": (scaled_after, lambda x: soft(x) / 0.5),
    "cast by half": (lambda x: soft(x).to(torch.float16), lambda x: soft(x).half()),
    "reduced by dim": (reduced, lambda x: torch.sum(soft(x), dim=0)),
    "reduced keeping": (reduced, lambda x: soft(x).sum(0, keepdim=True)[0]),
    "cloned": (made_contiguous, lambda x: soft(x.t().clone(memory_format=torch.contiguous_format))),
    "copied into": (made_contiguous, lambda x: soft(torch.empty(COLS, ROWS, device=x.device).copy_(x.t()))),
    "dropped out": (lambda x: torch.nn.functional.dropout(soft(x), 0.5), lambda x: torch.nn.Dropout(0.5)(soft(x))),
    "product by mm": (product, lambda x: torch.mm(soft(x), x)),
    "product by linear": (product, lambda x: torch.nn.functional.linear(soft(x), x.t())),
    "selected": (embedded, selected),
    "indexed": (selected, lambda x: soft(x)[torch.arange(64, device=x.device)]),
}
