"""Honest candidates of a ninth author, in the manner of leaderboards, packages and agents: half of them in 16 bits."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

# norms


@triton.jit
def norm_gradient_kernel(g, x, w, dx, pw, pb, rows, columns, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    weight = tl.load(w + at, mask=inside, other=0.0).to(tl.float32)
    sum_w, sum_b = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), rows, step):
        v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        off = tl.where(inside, v - tl.sum(v, 0) / columns, 0.0)
        scale = tl.rsqrt(tl.sum(off * off, 0) / columns + 1e-5)
        y, up = off * scale, tl.load(g + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        part = up * weight
        mean, along = tl.sum(part, 0) / columns, tl.sum(part * y, 0) / columns
        tl.store(dx + row * columns + at, (part - y * along - mean) * scale, mask=inside)
        sum_w, sum_b = sum_w + up * y, sum_b + up
    tl.store(pw + tl.program_id(0) * columns + at, sum_w, mask=inside)
    tl.store(pb + tl.program_id(0) * columns + at, sum_b, mask=inside)


@triton.jit
def partial_sums_kernel(pw, pb, dw, db, parts, columns, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)
    inside = (i < parts) & (j[None, :] < columns)
    tl.store(dw + j, tl.sum(tl.load(pw + i * columns + j[None, :], mask=inside, other=0.0), 0), mask=j < columns)
    tl.store(db + j, tl.sum(tl.load(pb + i * columns + j[None, :], mask=inside, other=0.0), 0), mask=j < columns)


def norm_gradients(g: Any, x: Any, w: Any, b: Any) -> Any:
    """Sums of rows by eight programs, and a second kernel that adds these."""
    (rows, columns), parts = x.shape, 8
    dx, dw, db = torch.empty_like(x), torch.empty_like(w), torch.empty_like(b)
    pw, pb = (torch.empty((parts, columns), dtype=torch.float32, device=x.device) for _ in range(2))
    norm_gradient_kernel[(parts,)](g, x, w, dx, pw, pb, rows, columns, parts, BLOCK=triton.next_power_of_2(columns))
    partial_sums_kernel[(triton.cdiv(columns, 64),)](pw, pb, dw, db, parts, columns, M=8, N=64)
    return dx, dw, db


def norm_gradients_reference(g: Any, x: Any, w: Any, b: Any) -> Any:
    x, w, b = (t.detach().clone().requires_grad_() for t in (x, w, b))
    F.layer_norm(x, x.shape[-1:], w, b, 1e-5).backward(g)
    return x.grad, w.grad, b.grad


@triton.jit
def head_norms_kernel(q, k, wq, wk, oq, ok, heads_q, heads_k, D: tl.constexpr):
    token, head, at = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    if head < heads_q:
        x, w, o = q + (token * heads_q + head) * D, wq, oq + (token * heads_q + head) * D
    else:
        x, w, o = k + (token * heads_k + head - heads_q) * D, wk, ok + (token * heads_k + head - heads_q) * D
    v = tl.load(x + at).to(tl.float32)
    tl.store(o + at, (v * tl.rsqrt(tl.sum(v * v, 0) / D + 1e-6)).to(tl.bfloat16) * tl.load(w + at))


def head_norms(q: Any, k: Any, wq: Any, wk: Any) -> Any:
    """One launch for queries and keys: a branch chooses the tensor."""
    oq, ok = torch.empty_like(q), torch.empty_like(k)
    grid = (q.shape[0], q.shape[1] + k.shape[1])
    head_norms_kernel[grid](q, k, wq, wk, oq, ok, q.shape[1], k.shape[1], D=q.shape[2])
    return oq, ok


def head_norms_reference(q: Any, k: Any, wq: Any, wk: Any) -> Any:
    floats = ((x.float(), w) for x, w in ((q, wq), (k, wk)))
    return tuple(w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16() for x, w in floats)


# losses and rows


@triton.jit
def loss_in_place_kernel(x, t, loss, columns, rows, BLOCK: tl.constexpr):
    row, top, total = tl.program_id(0), float("-inf"), 0.0
    x += row * columns
    target = tl.load(t + row)
    picked = tl.load(x + target).to(tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v, 0))
        total, top = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0), new
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        share = tl.exp(v - top) / total
        tl.store(x + at, tl.where(at == target, share - 1, share) / rows, mask=at < columns)
    tl.store(loss + row, (top + tl.log(total) - picked) / rows)


def loss_in_place(x: Any, t: Any) -> Any:
    """Loss by row; the logits become their gradient (Liger)."""
    loss = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    loss_in_place_kernel[(x.shape[0],)](x, t, loss, x.shape[1], x.shape[0], BLOCK=128)
    return loss, x


def loss_in_place_reference(x: Any, t: Any) -> Any:
    logits = x.detach().float().requires_grad_()
    loss = F.cross_entropy(logits, t, reduction="none") / x.shape[0]
    loss.sum().backward()
    x.copy_(logits.grad)
    return loss.detach(), x


@triton.jit
def sparsemax_kernel(x, o, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + at)
    ordered = tl.sort(v, descending=True)
    count = tl.sum((1 + (at + 1) * ordered > tl.cumsum(ordered, 0)).to(tl.int32), 0)
    limit = (tl.sum(tl.where(at < count, ordered, 0.0), 0) - 1) / count
    tl.store(o + row * N + at, tl.maximum(v - limit, 0.0))


def sparsemax(x: Any) -> Any:
    o = torch.empty_like(x)
    sparsemax_kernel[(x.shape[0],)](x, o, N=x.shape[1])
    return o


def sparsemax_reference(x: Any) -> Any:
    ordered = torch.sort(x, dim=-1, descending=True).values
    sums = ordered.cumsum(-1)
    count = (1 + torch.arange(1, x.shape[-1] + 1, device=x.device) * ordered > sums).sum(-1, keepdim=True)
    return (x - (sums.gather(-1, count - 1) - 1) / count).clamp(min=0)


# products


@triton.jit
def stream_k_kernel(a, b, c, n, k, total, share, deep, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    start = tl.program_id(0) * share
    last = min(start + share, total)
    while start < last:
        end, tile = min(start + deep - start % deep, last), start // deep
        i = (tile // tl.cdiv(n, N)) * M + tl.arange(0, M)[:, None]
        j = (tile % tl.cdiv(n, N)) * N + tl.arange(0, N)[None, :]
        acc = tl.zeros((M, N), tl.float32)
        for step in range(start, end):
            at = (step % deep) * K + tl.arange(0, K)
            acc += tl.dot(tl.load(a + i * k + at[None, :]), tl.load(b + at[:, None] * n + j))
        tl.atomic_add(c + i * n + j, acc, sem="relaxed")
        start = end


def stream_k(a: Any, b: Any) -> Any:
    """Five programs share the steps of all tiles evenly."""
    (m, k), n = a.shape, b.shape[1]
    c, deep = torch.zeros((m, n), dtype=torch.float32, device=a.device), k // 32
    total = (m // 32) * (n // 32) * deep
    stream_k_kernel[(5,)](a, b, c, n, k, total, triton.cdiv(total, 5), deep, M=32, N=32, K=32)
    return c


def stream_k_reference(a: Any, b: Any) -> Any:
    return a.float() @ b.float()


@triton.jit
def scaled_by_blocks_kernel(a, sa, b, sb, c, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    acc, parts = tl.zeros((M, N), tl.float32), k // K
    for part in range(parts):
        at = part * K + tl.arange(0, K)
        x, y = tl.load(a + i[:, None] * k + at[None, :]), tl.load(b + j[None, :] * k + at[:, None])
        acc += tl.dot(x, y) * tl.load(sa + i * parts + part)[:, None] * tl.load(sb + part)
    tl.store(c + i[:, None] * n + j[None, :], acc.to(tl.bfloat16))


def scaled_by_blocks(a: Any, sa: Any, b: Any, sb: Any) -> Any:
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    scaled_by_blocks_kernel[(m // 32, n // 32)](a, sa, b, sb, c, n, k, M=32, N=32, K=128)
    return c


def scaled_by_blocks_reference(a: Any, sa: Any, b: Any, sb: Any) -> Any:
    x, y = a.float() * sa.repeat_interleave(128, 1), b.float() * sb.repeat_interleave(128, 1)
    return (x @ y.T).bfloat16()


@triton.jit
def split_floats_kernel(a, b, c, KIND: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, at = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x, y = tl.load(a + i * K + at[None, :]), tl.load(b + at[:, None] * N + j)
    tl.store(c + i * N + j, tl.dot(x, y, input_precision=KIND))


def split_floats(a: Any, b: Any) -> Any:
    """Each float32 is a sum of three numbers of fewer bits."""
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device)
    split_floats_kernel[(a.shape[0] // 16,)](a, b, c, KIND="tf32x3", N=b.shape[1], K=a.shape[1])
    return c


def split_floats_reference(a: Any, b: Any) -> Any:
    return a @ b


@triton.jit
def flattened_kernel(a, b, c, m, n, k, programs: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    y = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    z = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    across = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * across, programs, flatten=True):
        i, j = (tile // across) * M, (tile % across) * N
        acc = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            acc = tl.dot(x.load([i, step * K]), y.load([j, step * K]).T, acc)
        z.store([i, j], acc.to(tl.bfloat16))


def flattened(a: Any, b: Any) -> Any:
    """As many programs as the GPU has processors, with descriptors made in the kernel."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    count = torch.cuda.get_device_properties("cuda").multi_processor_count
    flattened_kernel[(min(count, triton.cdiv(m, 32) * triton.cdiv(n, 32)),)](
        a, b, c, m, n, k, programs=count, M=32, N=32, K=32
    )
    return c


def flattened_reference(a: Any, b: Any) -> Any:
    return a @ b.T


# attention


@triton.jit
def attention_kernel(
    q, k, v, o, sums, n, heads, shared, scale, CAP: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    head, i, d = tl.program_id(1), tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    rows = (head * n + i[:, None]) * D + d[None, :]
    other = head // shared
    x = tl.load(q + rows, mask=i[:, None] < n, other=0.0)
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, tl.minimum((tl.program_id(0) + 1) * M, n), N):
        j = first + tl.arange(0, N)
        at = (other * n + j[:, None]) * D + d[None, :]
        s = tl.dot(x, tl.trans(tl.load(k + at, mask=j[:, None] < n, other=0.0))) * scale
        if CAP > 0:
            s = CAP * (2 * tl.sigmoid(2 * (s / CAP)) - 1)
        s = tl.where((i[:, None] >= j[None, :]) & (j[None, :] < n), s * 1.4426950408889634, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, old = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        y = tl.load(v + at, mask=j[:, None] < n, other=0.0)
        acc = tl.dot(p.to(y.dtype), y, acc * old[:, None])
        total, top = total * old + tl.sum(p, 1), new
    tl.store(o + rows, acc / total[:, None], mask=i[:, None] < n)
    if sums is not None:
        tl.store(sums + head * n + i, (top + tl.log2(total)) * 0.6931471805599453, mask=i < n)


def _attention(q: Any, k: Any, v: Any, sums: Any = None, cap: float = 0.0) -> Any:
    (heads, n, d), o = q.shape, torch.empty_like(q)
    attention_kernel[(triton.cdiv(n, 32), heads)](
        q, k, v, o, sums, n, heads, heads // k.shape[0], d**-0.5, CAP=cap, D=d, M=32, N=16
    )
    return o


def grouped_query_attention(q: Any, k: Any, v: Any) -> Any:
    return _attention(q, k, v)


def grouped_query_attention_reference(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]


def capped_attention(q: Any, k: Any, v: Any) -> Any:
    """Logits go through a hyperbolic tangent (Gemma), and their sums are a second result."""
    sums = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    return _attention(q, k, v, sums, cap=20.0), sums


def capped_attention_reference(q: Any, k: Any, v: Any) -> Any:
    n, s = q.shape[1], (q.float() @ k.float().transpose(1, 2)) * q.shape[-1] ** -0.5
    s = 20.0 * torch.tanh(s / 20.0) + torch.full((n, n), float("-inf"), device=q.device).triu(1)
    return torch.softmax(s, -1).to(q.dtype) @ v, torch.logsumexp(s, -1)


@triton.jit
def ragged_kernel(q, k, v, o, ends, heads, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    head, begin = tl.program_id(1), tl.load(ends + tl.program_id(2))
    n = tl.load(ends + tl.program_id(2) + 1) - begin
    if tl.program_id(0) * M >= n:
        return
    i, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    rows = ((begin + i[:, None]) * heads + head) * D + d[None, :]
    x = tl.load(q + rows, mask=i[:, None] < n, other=0.0)
    top, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for first in range(0, n, N):
        j = first + tl.arange(0, N)
        at = ((begin + j[:, None]) * heads + head) * D + d[None, :]
        s = tl.dot(x, tl.trans(tl.load(k + at, mask=j[:, None] < n, other=0.0))) * scale
        s = tl.where(j[None, :] < n, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, old = tl.exp(s - new[:, None]), tl.exp(top - new)
        y = tl.load(v + at, mask=j[:, None] < n, other=0.0)
        acc = acc * old[:, None] + tl.dot(p.to(y.dtype), y)
        total, top = total * old + tl.sum(p, 1), new
    tl.store(o + rows, acc / total[:, None], mask=i[:, None] < n)


def ragged_attention(q: Any, k: Any, v: Any, ends: Any) -> Any:
    """Sequences lie one behind the other; one is empty."""
    (tokens, heads, d), o = q.shape, torch.empty_like(q)
    grid = (triton.cdiv(tokens, 16), heads, ends.numel() - 1)
    ragged_kernel[grid](q, k, v, o, ends, heads, d**-0.5, D=d, M=16, N=16)
    return o


def ragged_attention_reference(q: Any, k: Any, v: Any, ends: Any) -> Any:
    o, known = torch.empty_like(q), ends.tolist()
    for begin, end in itertools.pairwise(known):
        if end > begin:
            parts = (x[begin:end].transpose(0, 1) for x in (q, k, v))
            o[begin:end] = F.scaled_dot_product_attention(*parts).transpose(0, 1)
    return o


@triton.jit
def merged_kernel(a, la, b, lb, o, lo, D: tl.constexpr):
    at, d = tl.program_id(0), tl.arange(0, D)
    one, other = tl.load(la + at), tl.load(lb + at)
    top = tl.maximum(one, other)
    p, q = tl.exp(one - top), tl.exp(other - top)
    v = tl.load(a + at * D + d) * (p / (p + q)) + tl.load(b + at * D + d) * (q / (p + q))
    tl.store(o + at * D + d, v)
    tl.store(lo + at, tl.log(p + q) + top)


def merged_attention(a: Any, la: Any, b: Any, lb: Any) -> Any:
    """Attention over two parts of the keys."""
    o, lo = torch.empty_like(a), torch.empty_like(la)
    merged_kernel[(la.numel(),)](a, la, b, lb, o, lo, D=a.shape[-1])
    return o, lo


def merged_attention_reference(a: Any, la: Any, b: Any, lb: Any) -> Any:
    both = torch.logaddexp(la, lb)
    v = a.float() * (la - both).exp()[..., None] + b.float() * (lb - both).exp()[..., None]
    return v.to(a.dtype), both


@triton.jit
def complex_rotary_kernel(x, angles, o, tokens, heads, D: tl.constexpr):
    row, i, at = tl.program_id(0), tl.arange(0, D // 2), tl.arange(0, D)
    angle = tl.load(angles + (row // heads) % tokens * (D // 2) + i)
    a, b = tl.split(tl.reshape(tl.load(x + row * D + at).to(tl.float32), (D // 2, 2)))
    c, s = tl.cos(angle), tl.sin(angle)
    tl.store(o + row * D + at, tl.reshape(tl.join(a * c - b * s, a * s + b * c), (D,)))


def complex_rotary(x: Any, angles: Any) -> Any:
    o, (batch, tokens, heads, d) = torch.empty_like(x), x.shape
    complex_rotary_kernel[(batch * tokens * heads,)](x, angles, o, tokens, heads, D=d)
    return o


def complex_rotary_reference(x: Any, angles: Any) -> Any:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[None, :, None]
    return torch.view_as_real(turned).flatten(3).type_as(x)


@triton.jit
def into_slots_kernel(k, v, keys, values, slots, n, BLOCK: tl.constexpr):
    token, at = tl.program_id(0), tl.arange(0, BLOCK)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    tl.store(keys + slot * n + at, tl.load(k + token * n + at, mask=at < n), mask=at < n)
    tl.store(values + slot * n + at, tl.load(v + token * n + at, mask=at < n), mask=at < n)


def into_slots(k: Any, v: Any, keys: Any, values: Any, slots: Any) -> None:
    """Returns nothing: the caches are changed."""
    into_slots_kernel[(k.shape[0],)](k, v, keys, values, slots, k[0].numel(), BLOCK=64)


def into_slots_reference(k: Any, v: Any, keys: Any, values: Any, slots: Any) -> None:
    keys.view(-1, *k.shape[1:])[slots] = k
    values.view(-1, *v.shape[1:])[slots] = v


# recurrences


@triton.jit
def gated_kernel(x, g, o, steps, width, BLOCK: tl.constexpr):
    at, state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        place = (tl.program_id(0) * steps + step) * width + at
        gate = tl.sigmoid(tl.load(g + place).to(tl.float32))
        state = gate * state + (1 - gate) * tl.load(x + place).to(tl.float32)
        tl.store(o + place, state)


def gated_recurrence(x: Any, g: Any) -> Any:
    o, (batch, steps, width) = torch.empty_like(x), x.shape
    gated_kernel[(batch, width // 16)](x, g, o, steps, width, BLOCK=16)
    return o


def gated_recurrence_reference(x: Any, g: Any) -> Any:
    state, found = torch.zeros_like(x[:, 0], dtype=torch.float32), []
    for step in range(x.shape[1]):
        gate = g[:, step].float().sigmoid()
        state = gate * state + (1 - gate) * x[:, step].float()
        found.append(state)
    return torch.stack(found, 1).to(x.dtype)


@triton.jit
def moved_state_kernel(x, state, w, o, C: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, C)
    new, i = tl.load(x + at), tl.arange(0, C)
    acc = new.to(tl.float32) * tl.load(w + i * 4 + 3).to(tl.float32)
    for tap in tl.static_range(3):
        old = tl.load(state + at * 3 + tap)
        acc += old.to(tl.float32) * tl.load(w + i * 4 + tap).to(tl.float32)
        if tap > 0:
            tl.store(state + at * 3 + tap - 1, old)
    tl.store(state + at * 3 + 2, new)
    tl.store(o + at, acc * tl.sigmoid(acc))


def moved_state(x: Any, state: Any, w: Any) -> Any:
    """A convolution's next step: the state moves on, in place."""
    o = torch.empty_like(x)
    moved_state_kernel[(x.shape[0],)](x, state, w, o, C=x.shape[1])
    return o


def moved_state_reference(x: Any, state: Any, w: Any) -> Any:
    full = torch.cat([state, x[:, :, None]], -1)
    state.copy_(full[:, :, 1:])
    return F.silu((full.float() * w.float()).sum(-1)).to(x.dtype)


@triton.jit
def log_of_sum(a, b):
    top = tl.maximum(a, b)
    return top + tl.log(1.0 + tl.exp(tl.minimum(a, b) - top))


@triton.jit
def log_sums_kernel(x, o, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(o + at, tl.associative_scan(tl.load(x + at), 0, log_of_sum))


def log_sums(x: Any) -> Any:
    o = torch.empty_like(x)
    log_sums_kernel[(x.shape[0],)](x, o, N=x.shape[1])
    return o


def log_sums_reference(x: Any) -> Any:
    return torch.logcumsumexp(x, dim=-1)


@triton.jit
def advantages_kernel(r, v, done, o, steps, discount, weight):
    row, last = tl.program_id(0), 0.0
    for back in range(steps):
        step = steps - 1 - back
        goes_on = 1.0 - tl.load(done + row * steps + step).to(tl.float32)
        value = row * (steps + 1) + step
        error = tl.load(r + row * steps + step) + discount * tl.load(v + value + 1) * goes_on - tl.load(v + value)
        last = error + discount * weight * goes_on * last
        tl.store(o + row * steps + step, last)


def advantages(r: Any, v: Any, done: Any) -> Any:
    """Generalized advantage estimation, from the last step on."""
    o = torch.empty_like(r)
    advantages_kernel[(r.shape[0],)](r, v, done, o, r.shape[1], 0.99, 0.95)
    return o


def advantages_reference(r: Any, v: Any, done: Any) -> Any:
    o, last, goes_on = torch.zeros_like(r), 0, 1.0 - done.float()
    for step in reversed(range(r.shape[1])):
        error = r[:, step] + 0.99 * v[:, step + 1] * goes_on[:, step] - v[:, step]
        last = error + 0.99 * 0.95 * goes_on[:, step] * last
        o[:, step] = last
    return o


# formats


@triton.jit
def shared_exponents_kernel(x, q, exponents):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    v = tl.load(x + at).to(tl.float32)
    e = ((tl.max(tl.abs(v), 0).to(tl.int32, bitcast=True) >> 23) & 0xFF) - 8
    e = tl.minimum(tl.maximum(e, 0), 254)
    scale = ((254 - e) << 23).to(tl.float32, bitcast=True)
    tl.store(q + at, tl.clamp(v * scale, -448.0, 448.0).to(tl.float8e4nv))
    tl.store(exponents + tl.program_id(0), e.to(tl.uint8))


def shared_exponents(x: Any) -> Any:
    """32 numbers of eight bits have one exponent (MXFP8)."""
    q = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    exponents = torch.empty((x.shape[0], x.shape[1] // 32), dtype=torch.uint8, device=x.device)
    shared_exponents_kernel[(exponents.numel(),)](x, q, exponents)
    return q, exponents


def shared_exponents_reference(x: Any) -> Any:
    parts = x.float().view(-1, 32)
    e = (((parts.abs().amax(1).view(torch.int32) >> 23) & 0xFF) - 8).clamp(0, 254)
    q = (parts * ((254 - e) << 23).view(torch.float32)[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q.view(x.shape), e.to(torch.uint8).view(x.shape[0], -1)


LEVELS = torch.tensor(
    [-1.0, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0.0, 0.08, 0.161, 0.246, 0.338, 0.441, 0.563, 0.723, 1.0]
)


@triton.jit
def from_levels_kernel(q, largest, levels, o, H: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, H)
    both, most = tl.load(q + row * H + i), tl.load(largest + row).to(tl.float32)
    high, low = tl.load(levels + (both >> 4).to(tl.int32)) * most, tl.load(levels + (both & 15).to(tl.int32)) * most
    tl.store(o + row * 2 * H + tl.arange(0, 2 * H), tl.interleave(high, low).to(tl.float16))


def from_levels(q: Any, largest: Any) -> Any:
    """A table of the host goes to the GPU in each call (NF4)."""
    o = torch.empty((q.shape[0], q.shape[1] * 2), dtype=torch.float16, device=q.device)
    from_levels_kernel[(q.shape[0],)](q, largest, LEVELS.to(q.device), o, H=q.shape[1])
    return o


def from_levels_reference(q: Any, largest: Any) -> Any:
    levels = LEVELS.to(q.device)
    both = torch.stack((levels[(q >> 4).long()], levels[(q & 15).long()]), -1).flatten(1)
    return (both * largest[:, None].float()).half()


@triton.jit
def drawn_rounding_kernel(x, r, o, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + at, mask=at < n).to(tl.int32, bitcast=True) + tl.load(r + at, mask=at < n, other=0)
    tl.store(o + at, (bits & -65536).to(tl.float32, bitcast=True).to(tl.bfloat16), mask=at < n)


def drawn_rounding(x: Any, r: Any) -> Any:
    """Rounds up as often as what is cut off is large."""
    o = torch.empty_like(x, dtype=torch.bfloat16)
    drawn_rounding_kernel[(triton.cdiv(x.numel(), 256),)](x, r, o, x.numel(), BLOCK=256)
    return o


def drawn_rounding_reference(x: Any, r: Any) -> Any:
    return ((x.view(torch.int32) + r) & -65536).view(torch.float32).bfloat16()


# choices


@triton.jit
def drawn_token_kernel(x, u, o, N: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, N)
    v = tl.load(x + row * N + at)
    e = tl.exp(v - tl.max(v, 0))
    before = tl.sum((tl.cumsum(e, 0) < tl.load(u + row) * tl.sum(e, 0)).to(tl.int32), 0)
    tl.store(o + row, tl.minimum(before, N - 1).to(tl.int64))


def drawn_token(x: Any, u: Any) -> Any:
    """By a given uniform number, without dividing by the sum."""
    o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    drawn_token_kernel[(x.shape[0],)](x, u, o, N=x.shape[1])
    return o


def drawn_token_reference(x: Any, u: Any) -> Any:
    sums = torch.softmax(x, -1).cumsum(-1)
    return torch.searchsorted(sums, u[:, None]).squeeze(1).clamp(max=x.shape[1] - 1)


@triton.jit
def penalized_kernel(x, ids, by, columns, count, N: tl.constexpr, L: tl.constexpr):
    row, at, i = tl.program_id(0), tl.arange(0, N), tl.arange(0, L)
    seen = tl.load(ids + row * count + i, mask=i < count, other=-1)
    hit = tl.max((at[:, None] == seen[None, :]).to(tl.int32), 1) > 0
    v, p = tl.load(x + row * columns + at, mask=at < columns), tl.load(by + row)
    tl.store(x + row * columns + at, tl.where(hit, tl.where(v > 0, v / p, v * p), v), mask=at < columns)


def penalized_(x: Any, ids: Any, by: Any) -> Any:
    """Tokens may be named twice: each is weighed once."""
    penalized_kernel[(x.shape[0],)](x, ids, by, x.shape[1], ids.shape[1], N=128, L=16)
    return x


def penalized__reference(x: Any, ids: Any, by: Any) -> Any:
    v = x.gather(1, ids)
    return x.scatter_(1, ids, torch.where(v < 0, v * by[:, None], v / by[:, None]))


@triton.jit
def largest_by_keys_kernel(x, values, indices, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row, at, i = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, K)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    bits = v.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    top = tl.topk((bits.to(tl.int64) << 32) | (0xFFFF - at).to(tl.int64), K)
    found = 0xFFFF - (top & 0xFFFFFFFF)
    tl.store(indices + row * K + i, found)
    tl.store(values + row * K + i, tl.load(x + row * columns + found))


def largest_by_keys(x: Any) -> Any:
    """Value and place are one whole number, which sorts as both do."""
    values = x.new_empty((x.shape[0], 8))
    indices = torch.empty_like(values, dtype=torch.int64)
    largest_by_keys_kernel[(x.shape[0],)](x, values, indices, x.shape[1], K=8, BLOCK=256)
    return values, indices


def largest_by_keys_reference(x: Any) -> Any:
    return torch.topk(x, 8, dim=-1)


@triton.jit
def overlaps_kernel(boxes, o, n, least, BLOCK: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, BLOCK)
    a, b, there = boxes + i * 4, boxes + j * 4, j < n
    ax, ay, az, aw = tl.load(a), tl.load(a + 1), tl.load(a + 2), tl.load(a + 3)
    bx, by = tl.load(b, mask=there, other=0.0), tl.load(b + 1, mask=there, other=0.0)
    bz, bw = tl.load(b + 2, mask=there, other=0.0), tl.load(b + 3, mask=there, other=0.0)
    wide = tl.maximum(tl.minimum(az, bz) - tl.maximum(ax, bx), 0.0)
    both = wide * tl.maximum(tl.minimum(aw, bw) - tl.maximum(ay, by), 0.0)
    either = (az - ax) * (aw - ay) + (bz - bx) * (bw - by) - both
    tl.store(o + i * n + j, (both > least * either) & (j > i), mask=there)


def overlaps(boxes: Any, least: float) -> Any:
    o = torch.empty((boxes.shape[0], boxes.shape[0]), dtype=torch.bool, device=boxes.device)
    overlaps_kernel[(boxes.shape[0],)](boxes, o, boxes.shape[0], least, BLOCK=64)
    return o


def overlaps_reference(boxes: Any, least: float) -> Any:
    low, high = torch.max(boxes[:, None, :2], boxes[None, :, :2]), torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    both, each = (high - low).clamp(min=0).prod(-1), (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    return torch.triu(both > least * (each[:, None] + each[None] - both), 1)


@triton.jit
def kept_kernel(x, o, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(o + at, tl.where(tl.rand(seed, at) > p, v / (1 - p), 0.0), mask=at < n)


def kept(x: Any, p: float, seed: int) -> Any:
    """Dropout by Triton's generator, whose numbers the reference computes with whole numbers."""
    o = torch.empty_like(x)
    kept_kernel[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), p, seed, BLOCK=256)
    return o


def kept_reference(x: Any, p: float, seed: int) -> Any:
    """Philox 4x32-10 (Salmon and others, 2011)."""
    words = [torch.arange(x.numel(), device=x.device), *(torch.zeros_like(x, dtype=torch.int64) for _ in range(3))]
    key, other = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        (a, b), (c, d) = _product(0xCD9E8D57, words[2]), _product(0xD2511F53, words[0])
        words = [a ^ words[1] ^ key, b, c ^ words[3] ^ other, d]
        key, other = (key + 0x9E3779B9) & 0xFFFFFFFF, (other + 0xBB67AE85) & 0xFFFFFFFF
    signed = torch.where(words[0] >= 2**31, 2**32 - 1 - words[0], words[0])
    return torch.where(signed.float() * 4.6566127342e-10 > p, x.float() / (1 - p), 0.0).to(x.dtype)


def _product(a: int, b: Any) -> Any:
    low, high = a * (b & 0xFFFF), a * (b >> 16)
    high = high + (low >> 16)
    return (high >> 16) & 0xFFFFFFFF, ((high << 16) | (low & 0xFFFF)) & 0xFFFFFFFF


# how kernels are called


def _long_enough(configs: Any, named: Any, **_: Any) -> Any:
    return [c for c in configs if c.kwargs["BLOCK"] >= named["n"]] or configs[-1:]


@triton.autotune(
    [triton.Config({"BLOCK": 1 << k}) for k in (5, 6, 7, 8)],
    key=["n"],
    prune_configs_by={"early_config_prune": _long_enough},
)
@triton.jit
def pruned_kernel(x, o, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(o + row, tl.max(tl.load(x + row * n + at, mask=at < n, other=-float("inf")), 0))


def pruned(x: Any) -> Any:
    """Of an autotuner's configs most are left out: their blocks are too short."""
    o = x.new_empty(x.shape[0])
    pruned_kernel[(x.shape[0],)](x, o, x.shape[1])
    return o


def pruned_reference(x: Any) -> Any:
    return x.amax(1)


@functools.cache
def _made(scale: float, function: Any) -> Any:
    factor = tl.constexpr(scale)

    @triton.jit
    def kernel(x, o, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(o + at, function(tl.load(x + at, mask=at < n)) * factor, mask=at < n)

    return kernel


def closure(x: Any) -> Any:
    """The kernel is made in a call, with a function and a number of what is around it."""
    o = torch.empty_like(x)
    _made(3.0, libdevice.abs)[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256)
    return o


def closure_reference(x: Any) -> Any:
    return x.abs() * 3


HEADS = "q: f16[4,70,32]; k: f16[2,70,32]; v: f16[2,70,32]"

NINTH_HONEST: dict[str, str] = {
    "norm_gradients": "g: f16[40,192]; x: f16[40,192]; w: f16[192]; b: f16[192]",
    "head_norms": "q: bf16[12,4,64]; k: bf16[12,2,64]; wq: bf16[64]; wk: bf16[64]",
    "loss_in_place": "x: bf16[16,300]; t: i64[16] < 300",
    "sparsemax": "x: f32[12,32]",
    "stream_k": "a: f16[96,128]; b: f16[128,64]",
    "scaled_by_blocks": "a: f8e4m3[32,256]; sa: f32[32,2] uniform(0.01, 0.1); b: f8e4m3[64,256]; "
    "sb: f32[1,2] uniform(0.01, 0.1)",
    "split_floats": "a: f32[48,64]; b: f32[64,32]",
    "flattened": "a: bf16[100,64]; b: bf16[80,64]",
    "grouped_query_attention": HEADS,
    "capped_attention": "q: bf16[2,48,32]; k: bf16[2,48,32]; v: bf16[2,48,32]",
    "ragged_attention": "q: f16[60,2,32]; k: f16[60,2,32]; v: f16[60,2,32]; ends: i32[4] = [0, 13, 13, 60]",
    "merged_attention": "a: bf16[20,4,32]; la: f32[20,4]; b: bf16[20,4,32]; lb: f32[20,4]",
    "complex_rotary": "x: f16[2,10,4,32]; angles: f32[10,16] uniform(-3, 3)",
    "into_slots": "k: bf16[6,2,32]; v: bf16[6,2,32]; keys: bf16[4,8,2,32]; values: bf16[4,8,2,32]; "
    "slots: i64[6] = [3, 17, 30, 0, 8, 9]",
    "gated_recurrence": "x: bf16[3,40,32]; g: bf16[3,40,32]",
    "moved_state": "x: bf16[3,16]; state: bf16[3,16,3]; w: bf16[16,4]",
    "log_sums": "x: f32[6,128]",
    "advantages": "r: f32[6,40]; v: f32[6,41]; done: bool[6,40]",
    "shared_exponents": "x: bf16[8,64]",
    "from_levels": "q: u8[8,32] in 0..255; largest: f16[8] uniform(0.1, 2)",
    "drawn_rounding": "x: f32[600]; r: i32[600] in 0..65535",
    "drawn_token": "x: f32[12,64]; u: f32[12] uniform(0, 1)",
    "penalized_": "x: f32[4,100]; ids: i64[4,9] < 100; by: f32[4] uniform(1, 2)",
    "largest_by_keys": "x: f16[8,200]",
    "overlaps": "boxes: f32[40,4] uniform(0, 10); least = 0.4",
    "kept": "x: f16[1000]; p = 0.3; seed = 77",
    "pruned": "x: bf16[40,128]",
    "closure": "x: f32[700]",
}
"""By function, whose reference is beside."""
