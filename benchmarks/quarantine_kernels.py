"""Kernels of which some configs fault, hang, abort or write outside of their tensors, and kernels whose contents decide
the addresses, as :mod:`benchmarks.quarantine` tunes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl

GOOD, ILLEGAL, MISALIGNED, ENDLESS, ASSERTS, TRAPS, LOCAL, ABORTS, WORKSPACE = range(9)
KINDS = {
    ILLEGAL: "illegal access",
    MISALIGNED: "misaligned access",
    ENDLESS: "endless loop",
    ASSERTS: "device assert",
    TRAPS: "trap",
    LOCAL: "local memory that doesn't fit",
    ABORTS: "the compiler gives up",
    WORKSPACE: "a workspace larger than the device",
}


@triton.jit(debug=True)
def faulty_kernel(x_ptr, y_ptr, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    if FAULT == 1:
        x += tl.load(x_ptr + i.to(tl.int64) * 100000000003)
    if FAULT == 2:
        odd = (x_ptr.to(tl.pointer_type(tl.int8)) + 1).to(tl.pointer_type(tl.float32))
        x += tl.load(odd + i, mask=i < n - 1)
    if FAULT == 3:
        flag = tl.load(x_ptr, volatile=True)
        while flag == flag:
            flag = tl.load(x_ptr, volatile=True) * 0.0
        x += flag
    if FAULT == 4:
        tl.device_assert(i < 0, "planted")
    if FAULT == 5:
        x = tl.inline_asm_elementwise("{ trap; mov.b32 $0, $1; }", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1)
    if FAULT == 6:
        x = tl.inline_asm_elementwise(
            """{
    .reg .b64 p, q; .reg .b32 i; .local .align 4 .b8 big[500000];
    mov.b64 p, big; and.b32 i, $1, 262140; cvt.u64.u32 q, i; add.u64 p, p, q;
    st.volatile.local.b32 [p], $1; ld.volatile.local.b32 $0, [p];
}""",
            "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1,
        )  # fmt: skip
    if FAULT == 7:
        x = tl.inline_asm_elementwise(
            "this.is.no.instruction $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
        )
    if FAULT == 8:
        rows = tl.make_tensor_descriptor(y_ptr, [n // 16, 16], [16, 1], [16, 16])
        x += rows.load([0, 0]).sum() * 0.0
    tl.store(y_ptr + i, x * 2.0, mask=i < n)


MOST_BLOCKS = (1 << 31) - 1
"""A grid of so many blocks, each with 128 B of workspace for its descriptor, needs 256 GiB; it is never launched."""


def faulty_grid(meta: Any) -> tuple[int]:
    """One program a block of numbers, except where the workspace is to be too large."""
    return (MOST_BLOCKS if meta["FAULT"] == WORKSPACE else triton.cdiv(meta["n"], meta["BLOCK"]),)


def faulty_configs(each: int, kinds: tuple[int, ...] = tuple(KINDS)) -> list[triton.Config]:
    """30 good ones, and ``each`` of every kind among them."""
    good = [
        triton.Config({"FAULT": GOOD, "BLOCK": block}, num_warps=warps)
        for block in (128, 256, 512, 1024, 2048, 4096)
        for warps in (1, 2, 4, 8, 16)
    ]
    bad = [
        triton.Config({"FAULT": kind, "BLOCK": block}, num_warps=4)
        for block in (128, 256, 512)[:each]
        for kind in kinds
    ]
    step = len(good) // max(1, len(bad)) or 1
    found = list(good)
    for k, config in enumerate(bad):
        found.insert((k * (step + 1) + 1) % len(found), config)
    return found


HELD_BYTES = 20 << 30
"""Memory that is held while faulty configs are tuned: 500 KB of local memory for each of 270,000 threads would just fit
into an H200 otherwise."""


def faulty_call(configs: list[triton.Config], decorate: Callable[..., Any], n: int = 1 << 22) -> tuple[Any, Any, Any]:
    """A tuner, its grid and its arguments."""
    x = torch.randn(n, device="cuda")
    tuner = decorate(configs=configs, key=["n"])(faulty_kernel)
    return tuner, faulty_grid, (x, torch.empty_like(x), n)


@triton.jit
def planted_kernel(x_ptr, y_ptr, n, FIRST: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Writes ``COUNT`` floats too many: from element ``FIRST`` of ``y`` on, which is below 0 or beyond its end."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * 2.0, mask=i < n)
    if COUNT > 0:
        k = tl.arange(0, COUNT)
        tl.store(y_ptr + FIRST + k, k * 0.0 + 5.0, mask=(k >= 0) & (tl.program_id(0) == 0))


@triton.jit
def fixed_kernel(x_ptr, y_ptr, n, FIRST: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """The same under another name, to be launched without candidates."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * 2.0, mask=i < n)
    if COUNT > 0:
        k = tl.arange(0, COUNT)
        tl.store(y_ptr + FIRST + k, k * 0.0 + 5.0, mask=(k >= 0) & (tl.program_id(0) == 0))


def fixed_call(x: torch.Tensor, y: torch.Tensor, first: int, count: int) -> torch.Tensor:
    """One launch of it."""
    fixed_kernel[(triton.cdiv(PLANTED, 1024),)](x, y, PLANTED, FIRST=first, COUNT=count, BLOCK=1024)
    return y


PLANTED = 1 << 16
"""Elements of what is written."""


NEIGHBOURS = 24
"""Three of torch's segments of small tensors hold as many of 256 KiB: eight each."""


def between() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A tensor of :data:`PLANTED` numbers that has another one directly before and behind it, so that a write beside it
    is the caller's silent mistake: at the end of what torch has mapped it would be a fault. And all others."""
    made = [torch.full((PLANTED,), 7.0, device="cuda") for _ in range(NEIGHBOURS)]
    size, at = 4 * PLANTED, {t.data_ptr(): t for t in made}
    middle = next((t for p, t in sorted(at.items()) if {p - size, p + size} <= at.keys()), made[NEIGHBOURS // 2])
    return middle, [t for t in made if t is not middle]


def plants() -> list[tuple[int, int]]:
    """20: where they begin, in elements from ``y``'s begin on, and how many elements they are: 4 B to 64 KiB."""
    counts = (1, 2, 4, 16, 64, 256, 1024, 4096, 8192, 16384)
    behind = [(PLANTED + (0, 3, 1000)[k % 3], count) for k, count in enumerate(counts)]
    before = [(-count - (0, 5, 2000)[k % 3], count) for k, count in enumerate(counts)]
    return [*behind, *before]


# contents that decide addresses


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, tl.load(x_ptr + at, mask=i < n), mask=i < n)


@triton.jit
def scatter_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + at, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def routed_kernel(x_ptr, weight_ptr, token_ptr, expert_ptr, out_ptr, tokens, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Rows of tokens, sorted by expert and padded with the number of tokens, times their expert's row of weights."""
    block = tl.program_id(0)
    expert = tl.load(expert_ptr + block // (16 // ROWS))
    rows = tl.load(token_ptr + block * ROWS + tl.arange(0, ROWS))
    real, cols = (rows < tokens)[:, None], tl.arange(0, WIDTH)[None, :]
    x = tl.load(x_ptr + rows[:, None] * WIDTH + cols, mask=real, other=0.0)
    weight = tl.load(weight_ptr + expert * WIDTH + cols)
    tl.store(out_ptr + rows[:, None] * WIDTH + cols, x * weight, mask=real)


@triton.jit
def paged_kernel(q_ptr, cache_ptr, table_ptr, length_ptr, out_ptr, pages, WIDTH: tl.constexpr, PAGE: tl.constexpr):
    """One query a sequence against keys in pages; unused entries of the table are -1."""
    sequence = tl.program_id(0)
    length, cols = tl.load(length_ptr + sequence), tl.arange(0, WIDTH)
    q, total = tl.load(q_ptr + sequence * WIDTH + cols), 0.0
    for start in range(0, length, PAGE):
        at = start + tl.arange(0, PAGE)
        page = tl.load(table_ptr + sequence * pages + at // 16, mask=at < length, other=0)
        keys = cache_ptr + (page * 16 + at % 16)[:, None] * WIDTH + cols[None, :]
        total += tl.sum(tl.load(keys, mask=(at < length)[:, None], other=0.0) * q[None, :])
    tl.store(out_ptr + sequence, total)


def content_cases() -> Iterator[tuple[str, Any, Callable[[Any], tuple[int]], tuple[Any, ...], list[triton.Config]]]:
    """20: name, kernel, grid, arguments, configs. Index arrays take 64 KiB and more, beyond what a stored recording
    keeps as it is."""
    blocks = [triton.Config({"BLOCK": b}, num_warps=4) for b in (256, 512, 1024)]
    generator = torch.Generator(device="cpu").manual_seed(0)
    for k in range(5):
        n = 1 << (15 + k)
        order = torch.randperm(n, generator=generator)
        for dtype, name, kernel in ((torch.int64, "gather", gather_kernel), (torch.int32, "scatter", scatter_kernel)):
            args = (torch.randn(n, device="cuda"), order.to(dtype).to("cuda"), torch.empty(n, device="cuda"), n)
            yield f"{name}[{n}]", kernel, (lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)), args, blocks
        yield _routed(1 << (12 + k), 8 << k, generator)
        yield _paged(64 << k, 8 << k, generator)


def _routed(tokens: int, experts: int, generator: torch.Generator) -> Any:
    width = 128
    chosen = torch.randint(0, experts, (tokens,), generator=generator)
    sorted_tokens, owners = [], []
    for expert in range(experts):
        mine = (chosen == expert).nonzero().flatten()
        padded = torch.full((-(-len(mine) // 16) * 16,), tokens, dtype=torch.int64)
        padded[: len(mine)] = mine
        sorted_tokens.append(padded)
        owners += [expert] * (len(padded) // 16)
    token_ids = torch.cat(sorted_tokens).to(torch.int32).to("cuda")
    x, weight = torch.randn(tokens, width, device="cuda"), torch.randn(experts, width, device="cuda")
    args = (x, weight, token_ids, torch.tensor(owners, dtype=torch.int32).to("cuda"), torch.empty_like(x), tokens)
    configs = [triton.Config({"WIDTH": width, "ROWS": rows}, num_warps=4) for rows in (4, 8, 16)]
    return (
        f"routed[{tokens}, {experts}]",
        routed_kernel,
        (lambda meta: (len(owners) * 16 // meta["ROWS"],)),
        args,
        configs,
    )


def _paged(sequences: int, pages: int, generator: torch.Generator) -> Any:
    width, total = 64, sequences * pages
    table = torch.randperm(total, generator=generator).to(torch.int32).reshape(sequences, pages)
    lengths = torch.randint(1, pages * 16, (sequences,), generator=generator)
    table[torch.arange(pages)[None, :] * 16 >= lengths[:, None]] = -1
    cache, q = torch.randn(total * 16, width, device="cuda"), torch.randn(sequences, width, device="cuda")
    out = torch.empty(sequences, device="cuda")
    args = (q, cache, table.to("cuda"), lengths.to(torch.int32).to("cuda"), out, pages)
    configs = [triton.Config({"WIDTH": width, "PAGE": page}, num_warps=4) for page in (16, 32, 64)]
    return f"paged[{sequences}, {pages}]", paged_kernel, (lambda meta: (sequences,)), args, configs
