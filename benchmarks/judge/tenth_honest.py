"""Honest candidates of a tenth author: what serves language models: routing, sampling, caches, eight bits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

# routing


@triton.jit
def counts_kernel(ids, counts, n, each, EXPERTS: tl.constexpr):
    program = tl.program_id(0)
    first = program * each
    for i in range(first, tl.minimum(first + each, n)):
        at = counts + (program + 1) * EXPERTS + tl.load(ids + i)
        tl.store(at, tl.load(at) + 1)


@triton.jit
def running_counts_kernel(counts, EXPERTS: tl.constexpr):
    expert, total = tl.program_id(0), 0
    for i in range(1, EXPERTS + 1):
        total += tl.load(counts + i * EXPERTS + expert)
        tl.store(counts + i * EXPERTS + expert, total)


@triton.jit
def ends_kernel(counts, ends, padded, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    end = 0
    for i in range(1, EXPERTS + 1):
        end += tl.cdiv(tl.load(counts + EXPERTS * EXPERTS + i - 1), BLOCK) * BLOCK
        tl.store(ends + i, end)
    tl.store(padded, end)


@triton.jit
def places_kernel(ids, places, owners, counts, ends, n, each, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    for i in range(tl.load(ends + program), tl.load(ends + program + 1), BLOCK):
        tl.store(owners + i // BLOCK, program)
    first = program * each
    for i in range(first, tl.minimum(first + each, n)):
        expert = tl.load(ids + i)
        before = tl.load(counts + program * EXPERTS + expert)
        tl.store(places + before + tl.load(ends + expert), i)
        tl.store(counts + program * EXPERTS + expert, before + 1)


def aligned_experts(ids: Any) -> Any:
    """Four small kernels, after vLLM: tokens by expert, each expert's filled up to whole blocks."""
    n, experts, block = ids.numel(), 8, 16
    most = n + experts * (block - 1)
    places = torch.full((most,), n, dtype=torch.int32, device=ids.device)
    owners = torch.full((triton.cdiv(most, block),), -1, dtype=torch.int32, device=ids.device)
    padded = torch.empty(1, dtype=torch.int32, device=ids.device)
    counts = torch.zeros((experts + 1, experts), dtype=torch.int32, device=ids.device)
    ends = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    each = triton.cdiv(n, experts)
    counts_kernel[(experts,)](ids, counts, n, each, EXPERTS=experts)
    running_counts_kernel[(experts,)](counts, EXPERTS=experts)
    ends_kernel[(1,)](counts, ends, padded, EXPERTS=experts, BLOCK=block)
    places_kernel[(experts,)](ids, places, owners, counts, ends, n, each, EXPERTS=experts, BLOCK=block)
    return places, owners, padded


def aligned_experts_reference(ids: Any) -> Any:
    flat, experts, block = ids.flatten().long(), 8, 16
    n = flat.numel()
    counts = F.one_hot(flat, experts).sum(0)
    whole = (counts + block - 1) // block * block
    ends, order = whole.cumsum(0), flat.argsort(stable=True)
    owner = flat[order]
    rank = torch.arange(n, device=ids.device) - (counts.cumsum(0) - counts)[owner]
    most = n + experts * (block - 1)
    places = torch.full((most,), n, dtype=torch.int32, device=ids.device)
    places[(ends - whole)[owner] + rank] = order.int()
    firsts = torch.arange(0, most, block, device=ids.device)
    owners = torch.searchsorted(ends, firsts, right=True)
    owners = torch.where(firsts < ends[-1], owners, -1).int()
    return places, owners, ends[-1:].int()


@triton.jit
def grouped_gate_kernel(x, bias, w, ids, scale, GROUPS: tl.constexpr, EACH: tl.constexpr, KEPT: tl.constexpr,
                        TOP: tl.constexpr):  # fmt: skip
    token, e, g, k = tl.program_id(0), tl.arange(0, GROUPS * EACH), tl.arange(0, GROUPS), tl.arange(0, TOP)
    score = tl.sigmoid(tl.load(x + token * GROUPS * EACH + e).to(tl.float32))
    biased = score + tl.load(bias + e)
    of_groups = tl.reshape(biased, (GROUPS, EACH))
    first = tl.max(of_groups, 1)
    others = tl.where(tl.arange(0, EACH)[None, :] == tl.argmax(of_groups, 1)[:, None], -float("inf"), of_groups)
    rank = first + tl.max(others, 1)
    kept = g < 0
    for _ in tl.static_range(KEPT):
        best = tl.argmax(rank, 0)
        kept, rank = kept | (g == best), tl.where(g == best, -float("inf"), rank)
    left = tl.reshape(tl.where(kept[:, None], of_groups, -float("inf")), (GROUPS * EACH,))
    weights, chosen = tl.zeros((TOP,), tl.float32), tl.zeros((TOP,), tl.int32)
    for i in tl.static_range(TOP):
        best = tl.argmax(left, 0)
        weights = tl.where(k == i, tl.sum(tl.where(e == best, score, 0.0), 0), weights)
        chosen, left = tl.where(k == i, best, chosen), tl.where(e == best, -float("inf"), left)
    tl.store(w + token * TOP + k, weights / tl.sum(weights, 0) * scale)
    tl.store(ids + token * TOP + k, chosen)


def grouped_gate(x: Any, bias: Any, scale: float) -> Any:
    """DeepSeek-V3's routing: the two best of four groups, and the four best experts of these."""
    w = torch.empty((x.shape[0], 4), dtype=torch.float32, device=x.device)
    ids = torch.empty((x.shape[0], 4), dtype=torch.int32, device=x.device)
    grouped_gate_kernel[(x.shape[0],)](x, bias, w, ids, scale, GROUPS=4, EACH=x.shape[1] // 4, KEPT=2, TOP=4)
    return w, ids


def grouped_gate_reference(x: Any, bias: Any, scale: float) -> Any:
    score = x.float().sigmoid()
    biased = (score + bias).view(len(x), 4, -1)
    groups = biased.topk(2, dim=-1).values.sum(-1).topk(2, dim=-1).indices
    kept = torch.zeros(biased.shape[:2], dtype=torch.bool, device=x.device).scatter(1, groups, True)
    ids = biased.masked_fill(~kept[..., None], -torch.inf).flatten(1).topk(4, dim=-1).indices
    w = score.gather(1, ids)
    return w / w.sum(-1, keepdim=True) * scale, ids.int()


# sampling


@triton.jit
def accepted_tokens_kernel(ends, draft, theirs, ours, bonus, spare, u, o, vocabulary, wide):
    one = tl.program_id(0)
    first, end = tl.load(ends + one), tl.load(ends + one + 1)
    rejected = False
    for i in range(end - first):
        if not rejected:
            token = tl.load(draft + first + i)
            p = tl.load(theirs + (first + i) * vocabulary + token)
            q = tl.load(ours + (first + i) * vocabulary + token)
            if p > 0 and q / p >= tl.load(u + first + i):
                kept = token
            else:
                rejected = True
                kept = tl.load(spare + first + i)
            tl.store(o + one * wide + i, kept)
    if not rejected:
        tl.store(o + one * wide + end - first, tl.load(bonus + one))


def accepted_tokens(ends: Any, draft: Any, theirs: Any, ours: Any, bonus: Any, spare: Any, u: Any, most: int) -> Any:
    """Speculative decoding's rejection sampler: a loop that ends by what it loads."""
    o = torch.full((len(bonus), most + 1), -1, dtype=torch.int32, device=u.device)
    accepted_tokens_kernel[(len(bonus),)](ends, draft, theirs, ours, bonus, spare, u, o, ours.shape[1], most + 1)
    return o


def accepted_tokens_reference(ends: Any, draft: Any, theirs: Any, ours: Any, bonus: Any, spare: Any, u: Any,
                              most: int) -> Any:  # fmt: skip
    p, q = (x.gather(1, draft.long()[:, None])[:, 0] for x in (theirs, ours))
    good = ((p > 0) & (q / p >= u)).long()
    o = torch.full((len(bonus), most + 1), -1, dtype=torch.int32, device=u.device)
    for i, (first, end) in enumerate(pairwise(ends.tolist())):
        so_far = F.pad(good[first:end].cumprod(0), (1, 0), value=1).bool()
        token = torch.where(good[first:end].bool(), draft[first:end], spare[first:end])
        o[i, : end - first + 1] = torch.where(so_far, torch.cat((token, bonus[i : i + 1])), -1)
    return o


@triton.jit
def least_kernel(x, t, least, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")) / tl.load(t + row)
    few = tl.exp(v - tl.max(v, 0)) < tl.load(least + row)
    tl.store(x + row * columns + at, tl.where(few, -float("inf"), v), mask=at < columns)


def least_probable_(x: Any, t: Any, least: Any) -> None:
    """Temperature and min-p in place; the share of the largest needs no sum."""
    least_kernel[(x.shape[0],)](x, t, least, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))


def least_probable__reference(x: Any, t: Any, least: Any) -> None:
    x.div_(t[:, None])
    p = torch.softmax(x, -1)
    x.masked_fill_(p < least[:, None] * p.amax(-1, keepdim=True), -torch.inf)


@triton.jit
def allowed_kernel(x, bits, columns, words, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(bits + row * words + at // 32, mask=at < columns, other=0)
    barred = ((word >> (at % 32)) & 1) == 0
    tl.store(x + row * columns + at, -float("inf"), mask=barred & (at < columns))


def allowed_by_bits_(x: Any, bits: Any) -> None:
    """A grammar's mask, 32 tokens in a number (xgrammar): a masked store of a constant."""
    allowed_kernel[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, bits, x.shape[1], bits.shape[1], BLOCK=64)


def allowed_by_bits__reference(x: Any, bits: Any) -> None:
    allowed = (bits[..., None] >> torch.arange(32, device=x.device, dtype=torch.int32)) & 1
    x.masked_fill_(allowed.flatten(1)[:, : x.shape[1]] == 0, -torch.inf)


# eight and four bits


@triton.jit
def asymmetric_kernel(x, q, s, z, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    low, high = tl.minimum(tl.min(v, 0), 0.0), tl.maximum(tl.max(v, 0), 0.0)
    scale = tl.maximum((high - low) / 255, 1.1920928955078125e-07)
    zero = tl.clamp(-128 - libdevice.rint(low / scale), -128.0, 127.0)
    r = tl.clamp(libdevice.rint(v / scale) + zero, -128.0, 127.0)
    tl.store(q + row * columns + at, r.to(tl.int8), mask=at < columns)
    tl.store(s + row, scale)
    tl.store(z + row, zero.to(tl.int32))


def asymmetric(x: Any) -> Any:
    """Rows in eight bits with a zero point, after torchao."""
    q, s = torch.empty(x.shape, dtype=torch.int8, device=x.device), x.new_empty(x.shape[0])
    z = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    asymmetric_kernel[(x.shape[0],)](x, q, s, z, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return q, s, z


def asymmetric_reference(x: Any) -> Any:
    low, high = x.amin(-1).clamp(max=0), x.amax(-1).clamp(min=0)
    s = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).eps)
    z = (-128 - torch.round(low / s)).clamp(-128, 127)
    q = (torch.round(x / s[:, None]) + z[:, None]).clamp(-128, 127)
    return q.to(torch.int8), s, z.to(torch.int32)


@triton.jit
def by_largest_kernel(x, q, s, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(v), 0), 1e-10) / 127
    tl.store(q + row * columns + at, libdevice.rint(v / scale).to(tl.int8), mask=at < columns)
    tl.store(s + row, scale)


def by_largest(x: Any) -> Any:
    """Rows in eight bits, by two quotients; few scales, so that many contents are looked at."""
    q, s = torch.empty(x.shape, dtype=torch.int8, device=x.device), x.new_empty(x.shape[0])
    by_largest_kernel[(x.shape[0],)](x, q, s, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return q, s


def by_largest_reference(x: Any) -> Any:
    s = x.abs().amax(-1).clamp(min=1e-10) / 127
    return torch.round(x / s[:, None]).to(torch.int8), s


@triton.jit
def largest_kernel(x, s, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.atomic_max(s, tl.max(tl.abs(v), 0) / 448)


@triton.jit
def in_eight_kernel(x, s, q, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) / tl.load(s)
    tl.store(q + at, tl.clamp(v, -448.0, 448.0).to(q.dtype.element_ty), mask=at < n)


def one_scale(x: Any) -> Any:
    """One scale for all: programs agree on it by an atomic maximum of floats."""
    q, s = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device), torch.full((1,), 1e-12, device=x.device)
    grid = (triton.cdiv(x.numel(), 512),)
    largest_kernel[grid](x, s, x.numel(), BLOCK=512)
    in_eight_kernel[grid](x, s, q, x.numel(), BLOCK=512)
    return q, s


def one_scale_reference(x: Any) -> Any:
    s = (x.float().abs().amax().reshape(1) / 448).clamp(min=1e-12)
    return (x.float() / s).clamp(-448, 448).to(torch.float8_e4m3fn), s


@triton.jit
def gated_groups_kernel(x, q, s, width, GROUP: tl.constexpr):
    row, group, at = tl.program_id(0), tl.program_id(1), tl.arange(0, GROUP)
    x += row * 2 * width + group * GROUP
    a, b = tl.load(x + at).to(tl.float32), tl.load(x + width + at).to(tl.float32)
    v = a / (1 + tl.exp(-a)) * b
    scale = tl.maximum(tl.max(tl.abs(v), 0), 1e-10) / 448
    tl.store(s + row * tl.num_programs(1) + group, scale)
    tl.store(q + row * width + group * GROUP + at, tl.clamp(v / scale, -448.0, 448.0).to(tl.float8e4nv))


def gated_groups(x: Any) -> Any:
    """SwiGLU and float8 by groups in one pass, after SGLang."""
    rows, width = x.shape[0], x.shape[1] // 2
    q = torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=x.device)
    s = torch.empty((rows, width // 64), dtype=torch.float32, device=x.device)
    gated_groups_kernel[(rows, width // 64)](x, q, s, width, GROUP=64)
    return q, s


def gated_groups_reference(x: Any) -> Any:
    a, b = x.float().chunk(2, -1)
    v = (F.silu(a) * b).unflatten(-1, (-1, 64))
    s = v.abs().amax(-1).clamp(min=1e-10) / 448
    return (v / s[..., None]).clamp(-448, 448).flatten(1).to(torch.float8_e4m3fn), s


LEVELS = (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0,
          0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0)  # fmt: skip
EDGES = [(a + b) / 2 for a, b in pairwise(LEVELS)]


@triton.jit
def four_bits_kernel(x, edges, q, largest, BLOCK: tl.constexpr):
    block, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + block * BLOCK + at).to(tl.float32)
    top = tl.max(tl.abs(v), 0)
    tl.store(largest + block, top)
    code = tl.zeros((BLOCK,), tl.uint8)
    for i in tl.static_range(15):
        code += (v / top > tl.load(edges + i)).to(tl.uint8)
    high, low = tl.split(tl.reshape(code, (BLOCK // 2, 2)))
    tl.store(q + block * (BLOCK // 2) + tl.arange(0, BLOCK // 2), (high << 4) | low)


def four_bits(x: Any) -> Any:
    """Levels of a normal number, two in a byte, a scale for 64 (bitsandbytes' NF4)."""
    q = torch.empty(x.numel() // 2, dtype=torch.uint8, device=x.device)
    largest = torch.empty(x.numel() // 64, dtype=torch.float32, device=x.device)
    edges = torch.tensor(EDGES, dtype=torch.float32, device=x.device)
    four_bits_kernel[(x.numel() // 64,)](x, edges, q, largest, BLOCK=64)
    return q, largest


def four_bits_reference(x: Any) -> Any:
    v = x.float().view(-1, 64)
    top = v.abs().amax(-1)
    edges = torch.tensor(EDGES, dtype=torch.float32, device=x.device)
    code = ((v / top[:, None])[..., None] > edges).sum(-1).to(torch.uint8).view(-1, 2)
    return (code[:, 0] << 4) | code[:, 1], top


@triton.jit
def from_four_kernel(w, s, table, o, BYTES: tl.constexpr, GROUP: tl.constexpr):
    row, at, i = tl.program_id(0), tl.arange(0, BYTES), tl.arange(0, 2 * BYTES)
    levels = tl.load(table + tl.arange(0, 16))
    byte = tl.load(w + row * BYTES + at)
    code = tl.interleave(byte & 15, byte >> 4).to(tl.int32)
    exponent = tl.load(s + row * (2 * BYTES // GROUP) + i // GROUP).to(tl.int32)
    factor = (exponent << 23).to(tl.float32, bitcast=True)
    tl.store(o + row * 2 * BYTES + i, (tl.gather(levels, code, 0) * factor).to(tl.bfloat16))


def from_four_bits(w: Any, s: Any) -> Any:
    """MXFP4: a table in registers, and scales whose bits are exponents."""
    o = torch.empty((w.shape[0], 2 * w.shape[1]), dtype=torch.bfloat16, device=w.device)
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], device=w.device)
    from_four_kernel[(w.shape[0],)](w, s, table, o, BYTES=w.shape[1], GROUP=32)
    return o


def from_four_bits_reference(w: Any, s: Any) -> Any:
    code = torch.stack((w & 15, w >> 4), -1).flatten(1).int()
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=w.device)
    v = table[(code & 7).long()] * torch.where(code >= 8, -1.0, 1.0)
    return (v * torch.exp2(s.float() - 127).repeat_interleave(32, 1)).to(torch.bfloat16)


# caches, states, adapters


@triton.jit
def partial_rotary_kernel(x, places, table, heads, D: tl.constexpr, HALF: tl.constexpr, H: tl.constexpr):
    token, head, at = tl.program_id(0), tl.arange(0, H)[:, None], tl.arange(0, HALF)[None, :]
    row = table + tl.load(places + token) * 2 * HALF
    c, s = tl.load(row + at).to(tl.float32), tl.load(row + HALF + at).to(tl.float32)
    where = x + (token * heads + head) * D + at
    a = tl.load(where, mask=head < heads, other=0.0).to(tl.float32)
    b = tl.load(where + HALF, mask=head < heads, other=0.0).to(tl.float32)
    tl.store(where, (a * c - b * s).to(tl.bfloat16), mask=head < heads)
    tl.store(where + HALF, (b * c + a * s).to(tl.bfloat16), mask=head < heads)


def partial_rotary_(places: Any, q: Any, k: Any, table: Any) -> None:
    """Half of each head is turned, where it lies; the rest stays."""
    for x in (q, k):
        tokens, heads, d = x.shape
        h = triton.next_power_of_2(heads)
        partial_rotary_kernel[(tokens,)](x, places, table, heads, D=d, HALF=table.shape[1] // 2, H=h)


def partial_rotary__reference(places: Any, q: Any, k: Any, table: Any) -> None:
    c, s = table[places][:, None].float().chunk(2, -1)
    for x in (q, k):
        a, b = x[..., : table.shape[1]].float().chunk(2, -1)
        x[..., : table.shape[1]] = torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


@triton.jit
def cached_kernel(k, cache, slots, scale, N: tl.constexpr):
    token, at = tl.program_id(0), tl.arange(0, N)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    v = tl.load(k + token * N + at).to(tl.float32) / tl.load(scale)
    tl.store(cache + slot * N + at, tl.clamp(v, -448.0, 448.0).to(cache.dtype.element_ty))


def cached_in_eight_bits_(k: Any, cache: Any, slots: Any, scale: Any) -> None:
    """Padded tokens have no slot: their programs end early."""
    cached_kernel[(k.shape[0],)](k, cache, slots, scale, N=k.shape[1] * k.shape[2])


def cached_in_eight_bits__reference(k: Any, cache: Any, slots: Any, scale: Any) -> None:
    rows = cache.view(-1, *k.shape[1:])
    for i, slot in enumerate(slots.tolist()):
        if slot >= 0:
            rows[slot] = (k[i].float() / scale).clamp(-448, 448).to(cache.dtype)


@triton.jit
def linear_step_kernel(q, k, v, states, rates, slots, o, D: tl.constexpr, N: tl.constexpr):
    one, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + one)
    if slot == -1:
        return
    heads, i, j = tl.num_programs(1), tl.arange(0, D), part * N + tl.arange(0, N)
    base = (one * heads + head) * D
    a, b, c = tl.load(q + base + i), tl.load(k + base + i), tl.load(v + base + j)
    state = states + (slot * heads + head) * D * D + i[:, None] * D + j[None, :]
    new = tl.exp(-tl.load(rates + head)) * tl.load(state) + b[:, None] * c[None, :]
    tl.store(state, new)
    tl.store(o + base + j, tl.sum(a[:, None] * new, 0))


def linear_step(q: Any, k: Any, v: Any, states: Any, rates: Any, slots: Any) -> Any:
    """A step of linear attention on states that lie in slots; padded ones give zeros."""
    o, (batch, heads, d) = torch.zeros_like(q), q.shape
    linear_step_kernel[(batch, heads, d // 16)](q, k, v, states, rates, slots, o, D=d, N=16)
    return o


def linear_step_reference(q: Any, k: Any, v: Any, states: Any, rates: Any, slots: Any) -> Any:
    o = torch.zeros_like(q)
    for i, slot in enumerate(slots.tolist()):
        if slot != -1:
            states[slot] = torch.exp(-rates)[:, None, None] * states[slot] + k[i, :, :, None] * v[i, :, None]
            o[i] = (q[i, :, :, None] * states[slot]).sum(1)
    return o


@triton.jit
def delta_step_kernel(q, k, v, g, beta, states, o, scale, K: tl.constexpr, V: tl.constexpr):
    one, i, j = tl.program_id(0), tl.arange(0, K), tl.arange(0, V)
    a, b = tl.load(q + one * K + i), tl.load(k + one * K + i)
    a, b = a / tl.sqrt(tl.sum(a * a) + 1e-6) * scale, b / tl.sqrt(tl.sum(b * b) + 1e-6)
    at = states + one * K * V + i[:, None] * V + j[None, :]
    state = tl.load(at) * tl.exp(tl.load(g + one))
    off = (tl.load(v + one * V + j) - tl.sum(state * b[:, None], 0)) * tl.load(beta + one)
    state += b[:, None] * off[None, :]
    tl.store(at, state)
    tl.store(o + one * V + j, tl.sum(state * a[:, None], 0))


def delta_step(q: Any, k: Any, v: Any, g: Any, beta: Any, states: Any) -> Any:
    """A step of the gated delta rule (flash-linear-attention), whose state changes in place."""
    o, (batch, heads, d) = torch.empty_like(v), q.shape
    delta_step_kernel[(batch * heads,)](q, k, v, g, beta, states, o, d**-0.5, K=d, V=v.shape[2])
    return o


def delta_step_reference(q: Any, k: Any, v: Any, g: Any, beta: Any, states: Any) -> Any:
    a, b = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    states *= g.exp()[..., None, None]
    off = (v - (states * b[..., None]).sum(-2)) * beta[..., None]
    states += b[..., None] * off[..., None, :]
    return (states * (a * q.shape[-1] ** -0.5)[..., None]).sum(-2)


@triton.jit
def shrink_kernel(x, a, ids, h, k, R: tl.constexpr, K: tl.constexpr):
    token, part, r, i = tl.program_id(0), tl.program_id(1), tl.arange(0, R), tl.arange(0, K)
    which = tl.load(ids + token)
    if which < 0:
        return
    v = tl.load(x + token * k + part * K + i).to(tl.float32)
    w = tl.load(a + (which * R + r[:, None]) * k + part * K + i[None, :]).to(tl.float32)
    tl.atomic_add(h + token * R + r, tl.sum(w * v[None, :], 1))


@triton.jit
def expand_kernel(h, b, ids, y, n, scale, R: tl.constexpr, N: tl.constexpr):
    token, r, j = tl.program_id(0), tl.arange(0, R), tl.program_id(1) * N + tl.arange(0, N)
    which = tl.load(ids + token)
    if which < 0:
        return
    w = tl.load(b + (which * n + j[:, None]) * R + r[None, :], mask=j[:, None] < n, other=0.0).to(tl.float32)
    added = tl.sum(w * tl.load(h + token * R + r)[None, :], 1) * scale
    at = y + token * n + j
    tl.store(at, (tl.load(at, mask=j < n, other=0.0).to(tl.float32) + added).to(tl.bfloat16), mask=j < n)


def adapters_added_(y: Any, x: Any, a: Any, b: Any, ids: Any, scale: float) -> None:
    """Each token has an adapter of low rank, or none (Punica): split sums by atomics, and a result that is added to."""
    (tokens, k), n, rank = x.shape, y.shape[1], a.shape[1]
    h = torch.zeros((tokens, rank), dtype=torch.float32, device=x.device)
    shrink_kernel[(tokens, k // 32)](x, a, ids, h, k, R=rank, K=32)
    expand_kernel[(tokens, triton.cdiv(n, 32))](h, b, ids, y, n, scale, R=rank, N=32)


def adapters_added__reference(y: Any, x: Any, a: Any, b: Any, ids: Any, scale: float) -> None:
    which = ids.clamp(min=0)
    h = torch.einsum("tk,trk->tr", x.float(), a[which].float())
    added = torch.einsum("tr,tnr->tn", h, b[which].float()) * scale
    y.copy_(torch.where((ids >= 0)[:, None], y.float() + added, y.float()))


# attention


@triton.jit
def sloped_kernel(q, k, v, lengths, o, heads, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    one, head = tl.program_id(0), tl.program_id(1)
    i, d = tl.program_id(2) * M + tl.arange(0, M), tl.arange(0, D)
    length, slope = tl.load(lengths + one), tl.exp2(-8.0 * (head + 1) / heads)
    base = (one * heads + head) * n * D
    x = tl.load(q + base + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    top, total, acc = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for first in range(0, length, N):
        j = first + tl.arange(0, N)
        there = j < length
        y = tl.load(k + base + j[:, None] * D + d[None, :], mask=there[:, None], other=0.0)
        s = tl.dot(x, tl.trans(y)) * scale - slope * tl.abs(i[:, None] - j[None, :])
        s = tl.where(there[None, :], s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p, old = tl.exp(s - new[:, None]), tl.exp(top - new)
        z = tl.load(v + base + j[:, None] * D + d[None, :], mask=there[:, None], other=0.0)
        total, acc, top = total * old + tl.sum(p, 1), tl.dot(p.to(z.dtype), z, acc * old[:, None]), new
    tl.store(o + base + i[:, None] * D + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty),
             mask=i[:, None] < n)  # fmt: skip


def sloped_attention(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """ALiBi, with keys that are padded behind a length."""
    o, (batch, heads, n, d) = torch.empty_like(q), q.shape
    grid = (batch, heads, triton.cdiv(n, 32))
    sloped_kernel[grid](q, k, v, lengths, o, heads, n, d**-0.5, D=d, M=32, N=16)
    return o


def sloped_attention_reference(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    heads, n = q.shape[1:3]
    at = torch.arange(n, device=q.device)
    slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device=q.device) / heads)
    bias = -slopes[:, None, None] * (at[:, None] - at).abs()
    bias = torch.where(at < lengths[:, None, None, None], bias, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


_STATES = "states: f32[3,2,16,32]"

TENTH_HONEST: dict[str, str] = {
    "aligned_experts": "ids: i32[50,2] < 8",
    "grouped_gate": "x: f32[20,32]; bias: f32[32] uniform(-0.2, 0.2); scale = 2.5",
    "accepted_tokens": "ends: i32[5] = [0, 3, 3, 7, 9]; draft: i32[9] < 50; theirs: f32[9,50] uniform(0, 1); "
    "ours: f32[9,50] uniform(0, 1); bonus: i32[4] < 50; spare: i32[9] < 50; u: f32[9] uniform(0, 1); most == 4",
    "least_probable_": "x: f32[6,100]; t: f32[6] uniform(0.5, 2); least: f32[6] uniform(0.02, 0.3)",
    "allowed_by_bits_": "x: bf16[4,100]; bits: i32[4,4] in -2147483648..2147483647",
    "asymmetric": "x: f32[16,200]",
    "by_largest": "x: f32[16,200]",
    "one_scale": "x: bf16[20,150]",
    "gated_groups": "x: bf16[12,256]",
    "four_bits": "x: bf16[8,128]",
    "from_four_bits": "w: u8[16,32] in 0..255; s: u8[16,2] in 118..134",
    "partial_rotary_": "places: i64[9] < 40; q: bf16[9,4,32]; k: bf16[9,2,32]; table: bf16[40,16] uniform(-1, 1)",
    "cached_in_eight_bits_": "k: bf16[6,2,32]; cache: f8e4m3[4,8,2,32]; slots: i64[6] == [3, -1, 30, 0, -1, 9]; "
    "scale: f32[1] uniform(0.5, 2)",
    "linear_step": "q: f32[4,3,32]; k: f32[4,3,32]; v: f32[4,3,32]; states: f32[6,3,32,32]; "
    "rates: f32[3] uniform(0.01, 1); slots: i64[4] == [3, -1, 0, 5]",
    "delta_step": "q: f32[3,2,16]; k: f32[3,2,16]; v: f32[3,2,32]; g: f32[3,2] uniform(-1, 0); "
    f"beta: f32[3,2] uniform(0, 1); {_STATES}",
    "adapters_added_": "y: bf16[7,48]; x: bf16[7,64]; a: bf16[3,8,64]; b: bf16[3,48,8]; ids: i64[7] in -1..2; "
    "scale = 0.5",
    "sloped_attention": "q: f16[2,4,50,32]; k: f16[2,4,50,32]; v: f16[2,4,50,32]; lengths: i32[2] in 1..50",
}
"""By function, whose reference is beside."""
