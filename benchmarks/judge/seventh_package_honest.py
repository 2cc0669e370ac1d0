"""Honest candidates in the manner of packages and tutorials: custom operators, locks, packed weights, operators beside.

The last rows of the table were REFUSED or WRONG when they were written, each for another cause.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

LOG2E = tl.constexpr(1.4426950408889634)


# how kernels are called


@triton.jit
def scale_kernel(x, o, n, s, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n) * s, mask=at < n)


@triton_op("kerntune_seventh::scaled", mutates_args={})
def scaled_operator(x: torch.Tensor, s: float) -> torch.Tensor:
    o = torch.empty_like(x)
    wrap_triton(scale_kernel)[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), s, BLOCK=256)
    return o


scaled_operator.register_autograd(lambda ctx, g: (scaled_operator(g, 1.5), None))


def operator(x: Any, g: Any) -> Any:
    """An operator of the file's, and its gradient."""
    x = x.detach().requires_grad_()
    y = torch.ops.kerntune_seventh.scaled(x, 1.5)
    y.backward(g)
    return y.detach(), x.grad


def operator_reference(x: Any, g: Any) -> Any:
    return 1.5 * x, 1.5 * g


@triton.jit
def pair_kernel(both, sizes, o, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(both[0] + at, mask=at < sizes[0]) + sizes[1] * tl.load(both[1] + at, mask=at < sizes[0])
    tl.store(o + at, v, mask=at < sizes[0])


def tuples(x: Any, y: Any) -> Any:
    o = torch.empty_like(x)
    pair_kernel[(triton.cdiv(x.numel(), 256),)]((x, y), (x.numel(), 2.0), o, BLOCK=256)
    return o


def tuples_reference(x: Any, y: Any) -> Any:
    return x + 2 * y


@triton.heuristics({"BLOCK": lambda a: min(1024, triton.next_power_of_2(a["n"])),
                    "EVEN": lambda a: a["n"] % a["BLOCK"] == 0})  # fmt: skip
@triton.jit
def logsumexp_kernel(x, o, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top, total = -float("inf"), 0.0
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at) if EVEN else tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
        v = v.to(tl.float32) * LOG2E
        new = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(v - new), 0)
        top = new
    tl.store(o + row, (top + tl.log2(total)) / LOG2E)


def logsumexp(x: Any) -> Any:
    o = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    logsumexp_kernel[(x.shape[0],)](x, o, x.shape[1])
    return o


def logsumexp_reference(x: Any) -> Any:
    return torch.logsumexp(x.float(), -1)


# locks


@triton.jit
def column_kernel(x, parts, locks, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    lock = locks + row % GROUP
    mine = parts + row % GROUP * columns + at
    v = tl.load(x + row * columns + at, mask=at < columns)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(lock + GROUP) == 0:
        tl.atomic_xchg(lock + GROUP, 1)
    else:
        v += tl.load(mine, mask=at < columns)
    tl.store(mine, v, mask=at < columns)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def locked_sum(x: Any) -> Any:
    """As the tutorial on layer norms sums gradients of weights: programs of a group take turns."""
    parts = torch.empty((4, x.shape[1]), device=x.device)
    locks = torch.zeros(8, dtype=torch.int32, device=x.device)
    block = triton.next_power_of_2(x.shape[1])
    column_kernel[(x.shape[0],)](x, parts, locks, x.shape[1], GROUP=4, BLOCK=block)
    return parts.sum(0)


def locked_sum_reference(x: Any) -> Any:
    return x.sum(0)


# recurrences


@triton.jit
def wkv_kernel(k, v, w, u, o, length, channels, BLOCK: tl.constexpr):
    batch, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < channels
    decay, bonus = tl.exp(tl.load(w + c, mask=inside, other=0.0)), tl.load(u + c, mask=inside, other=0.0)
    above, below = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    top = tl.full((BLOCK,), -1e38, tl.float32)
    for t in range(length):
        at = (batch * length + t) * channels + c
        key, value = tl.load(k + at, mask=inside, other=0.0), tl.load(v + at, mask=inside, other=0.0)
        new = tl.maximum(top, bonus + key)
        a, b = tl.exp(top - new), tl.exp(bonus + key - new)
        tl.store(o + at, (a * above + b * value) / (a * below + b), mask=inside)
        new = tl.maximum(top - decay, key)
        a, b = tl.exp(top - decay - new), tl.exp(key - new)
        above, below, top = a * above + b * value, a * below + b, new


def wkv(k: Any, v: Any, w: Any, u: Any) -> Any:
    """RWKV's weighted average: exponents are kept apart."""
    o, (batches, length, channels) = torch.empty_like(v), k.shape
    wkv_kernel[(batches, triton.cdiv(channels, 32))](k, v, w, u, o, length, channels, BLOCK=32)
    return o


def wkv_reference(k: Any, v: Any, w: Any, u: Any) -> Any:
    above, below, found = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), []
    top = torch.full_like(above, -1e38)
    for key, value in zip(k.unbind(1), v.unbind(1), strict=True):
        new = torch.maximum(top, u + key)
        a, b = (top - new).exp(), (u + key - new).exp()
        found.append((a * above + b * value) / (a * below + b))
        new = torch.maximum(top - w.exp(), key)
        a, b = (top - w.exp() - new).exp(), (key - new).exp()
        above, below, top = a * above + b * value, a * below + b, new
    return torch.stack(found, 1)


@triton.jit
def state_kernel(x, d, a, b, c, o, length, width, N: tl.constexpr, BLOCK: tl.constexpr):
    batch, e, n = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, N)
    inside = e < width
    rate = tl.load(a + e[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
    state = tl.zeros((BLOCK, N), tl.float32)
    for t in range(length):
        at = (batch * length + t) * width + e
        v, step = tl.load(x + at, mask=inside, other=0.0), tl.load(d + at, mask=inside, other=0.0)
        into, out = tl.load(b + (batch * length + t) * N + n), tl.load(c + (batch * length + t) * N + n)
        state = tl.exp(step[:, None] * rate) * state + (step * v)[:, None] * into[None, :]
        tl.store(o + at, tl.sum(state * out[None, :], 1), mask=inside)


def state_space(x: Any, d: Any, a: Any, b: Any, c: Any) -> Any:
    """Mamba's recurrence."""
    o, (batches, length, width) = torch.empty_like(x), x.shape
    state_kernel[(batches, triton.cdiv(width, 16))](x, d, a, b, c, o, length, width, N=a.shape[1], BLOCK=16)
    return o


def state_space_reference(x: Any, d: Any, a: Any, b: Any, c: Any) -> Any:
    state, found = x.new_zeros(x.shape[0], x.shape[2], a.shape[1]), []
    for t in range(x.shape[1]):
        state = (d[:, t, :, None] * a).exp() * state + (d[:, t] * x[:, t])[..., None] * b[:, t, None]
        found.append((state * c[:, t, None]).sum(-1))
    return torch.stack(found, 1)


# packed weights and experts


@triton.jit
def packed_kernel(x, w, s, z, o, m, n, k, GROUP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        r = first + tl.arange(0, K)
        a = tl.load(x + i[:, None] * k + r[None, :], mask=i[:, None] < m, other=0.0)
        q = (tl.load(w + (r // 8)[:, None] * n + j[None, :]) >> (r % 8 * 4)[:, None]) & 15
        zero = (tl.load(z + (r // GROUP)[:, None] * (n // 8) + (j // 8)[None, :]) >> (j % 8 * 4)[None, :]) & 15
        b = (q - zero).to(tl.float16) * tl.load(s + (r // GROUP)[:, None] * n + j[None, :])
        total = tl.dot(a, b, total)
    tl.store(o + i[:, None] * n + j[None, :], total.to(tl.float16), mask=i[:, None] < m)


def packed_zeros(x: Any, w: Any, s: Any, z: Any) -> Any:
    """Weights and zero points of four bits, eight in a number."""
    (m, k), n = x.shape, w.shape[1]
    o = torch.empty((m, n), dtype=x.dtype, device=x.device)
    packed_kernel[(triton.cdiv(m, 16), n // 32)](x, w, s, z, o, m, n, k, GROUP=32, M=16, N=32, K=32)
    return o


def packed_zeros_reference(x: Any, w: Any, s: Any, z: Any) -> Any:
    bits = torch.arange(0, 32, 4, device=x.device, dtype=torch.int32)
    q, zeros = ((w[:, None] >> bits[:, None]) & 15).flatten(0, 1), ((z[:, :, None] >> bits) & 15).flatten(1)
    return x @ ((q - zeros.repeat_interleave(32, 0)).half() * s.repeat_interleave(32, 0))


@triton.jit
def expert_kernel(x, w, o, order, share, ends, n, k, TOP: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                  K: tl.constexpr):  # fmt: skip
    expert, c = tl.program_id(0), tl.program_id(2) * N + tl.arange(0, N)
    begin, end = tl.load(ends + expert), tl.load(ends + expert + 1)
    i = begin + tl.program_id(1) * M + tl.arange(0, M)
    place = tl.load(order + i, mask=i < end, other=0)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        r = first + tl.arange(0, K)
        a = tl.load(x + (place // TOP)[:, None] * k + r[None, :], mask=(i < end)[:, None], other=0.0)
        b = tl.load(w + expert * n * k + c[None, :] * k + r[:, None], mask=c[None, :] < n, other=0.0)
        total = tl.dot(a, b, total)
    total *= tl.load(share + place, mask=i < end, other=0.0)[:, None]
    tl.store(o + place[:, None] * n + c[None, :], total, mask=(i < end)[:, None] & (c[None, :] < n))


def sorted_experts(x: Any, w: Any, ids: Any, share: Any) -> Any:
    """Torch's operators sort the tokens by expert before the launch, and sum after it."""
    (tokens, top), (experts, n, k) = ids.shape, w.shape
    flat = ids.flatten()
    counts = torch.zeros(experts, dtype=torch.int64, device=x.device).scatter_add_(0, flat, torch.ones_like(flat))
    ends, order = F.pad(counts.cumsum(0), (1, 0)), flat.argsort(stable=True)
    o = torch.empty((tokens * top, n), device=x.device)
    grid = (experts, triton.cdiv(tokens * top, 16), triton.cdiv(n, 32))
    expert_kernel[grid](x, w, o, order, share, ends, n, k, TOP=top, M=16, N=32, K=32)
    return o.view(tokens, top, n).sum(1).to(x.dtype)


def sorted_experts_reference(x: Any, w: Any, ids: Any, share: Any) -> Any:
    o = torch.zeros((x.shape[0], w.shape[1]), device=x.device)
    for expert in range(w.shape[0]):
        o += (x.float() @ w[expert].float().t()) * ((ids == expert) * share).sum(-1, keepdim=True)
    return o.to(x.dtype)


# what was refused or WRONG


@triton.jit
def constant_kernel(x: tl.const, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def constant_pointer(x: Any) -> Any:
    o = torch.empty_like(x)
    constant_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


def constant_pointer_reference(x: Any) -> Any:
    return 2 * x


def _scaled(x: Any, s: float) -> Any:
    o = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), s, BLOCK=256)
    return o


def log_gate(x: Any) -> Any:
    return F.logsigmoid(_scaled(x, 0.5))


def log_gate_reference(x: Any) -> Any:
    return F.logsigmoid(0.5 * x)


def convolved(x: Any, w: Any) -> Any:
    return _scaled(F.conv2d(x, w, padding=1).contiguous(), 0.5)


def convolved_reference(x: Any, w: Any) -> Any:
    return 0.5 * F.conv2d(x, w, padding=1)


def attended(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(_scaled(q, 0.5), k, v)


def attended_reference(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(0.5 * q, k, v)


def unpacked(w: Any, s: Any) -> Any:
    bits = torch.arange(0, 32, 4, device=w.device, dtype=torch.int32)
    return _scaled(((w[..., None] >> bits) & 15).flatten(-2).float() * s, 0.5)


def unpacked_reference(w: Any, s: Any) -> Any:
    return torch.stack([(w >> bit) & 15 for bit in range(0, 32, 4)], -1).flatten(-2) * s * 0.5


def one_gradient(x: Any, r: Any, g: Any) -> Any:
    """The gradients of both addends are one tensor, as torch's are."""
    del x, r
    given = _scaled(g, 0.5)
    return given, given


def one_gradient_reference(x: Any, r: Any, g: Any) -> Any:
    own = [t.detach().requires_grad_() for t in (x, r)]
    return torch.autograd.grad(0.5 * (own[0] + own[1]), own, g)


@triton.jit
def moments_kernel(m, v, g, n, first, second, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(g + at, mask=at < n)
    tl.store(m + at, first * tl.load(m + at, mask=at < n) + (1 - first) * d, mask=at < n)
    tl.store(v + at, second * tl.load(v + at, mask=at < n) + (1 - second) * d * d, mask=at < n)


def moments(m: Any, v: Any, g: Any, first: float, second: float) -> Any:
    """A kernel has floats of 32 bits: of 1 - 0.999 there are four digits."""
    moments_kernel[(triton.cdiv(m.numel(), 256),)](m, v, g, m.numel(), first, second, BLOCK=256)
    return m, v


def moments_reference(m: Any, v: Any, g: Any, first: float, second: float) -> Any:
    return m.mul_(first).add_(g, alpha=1 - first), v.mul_(second).addcmul_(g, g, value=1 - second)


_HEADS = "q: f32[1,2,20,16]; k: f32[1,2,20,16]; v: f32[1,2,20,16]"
_FOUR_BITS = "w: i32[8,32] in -2000000000..2000000000; s: f16[2,32] uniform(0.01, 0.1)"

SEVENTH_HONEST: dict[str, tuple[str, ...]] = {
    "operator": ("x: f32[700]; g: f32[700]",),
    "tuples": ("x: f32[700]; y: f32[700]",),
    "logsumexp": ("x: f16[16,1500]", "x: f16[16,1024]"),
    "locked_sum": ("x: f32[20,100]",),
    "wkv": ("k: f32[2,20,40]; v: f32[2,20,40]; w: f32[40] uniform(-2, 0); u: f32[40]",),
    "state_space": ("x: f32[2,20,40]; d: f32[2,20,40] uniform(0.01, 1); a: f32[40,16] uniform(-2, -0.1);"
                    " b: f32[2,20,16]; c: f32[2,20,16]",),
    "packed_zeros": (f"x: f16[20,64]; {_FOUR_BITS}; z: i32[2,4] in -2000000000..2000000000",),
    "sorted_experts": ("x: f16[20,64]; w: f16[4,40,64]; ids: i64[20,2] < 4; share: f32[20,2] uniform(0, 1)",),
    "constant_pointer": ("x: f32[700]",),
    "log_gate": ("x: f32[700]",),
    "convolved": ("x: f32[2,4,12,12]; w: f32[8,4,3,3]",),
    "attended": (_HEADS,),
    "unpacked": ("w: i32[8,4] in -2000000000..2000000000; s: f32[8,32]",),
    "one_gradient": ("x: f32[20,30]; r: f32[20,30]; g: f32[20,30]",),
    "moments": ("m: f32[700]; v: f32[700] uniform(0, 1); g: f32[700]; first = 0.9; second = 0.999",),
}  # fmt: skip
"""By function, whose reference is beside."""
