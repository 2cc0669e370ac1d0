"""References: where elements come from and go: indices, orders, bins and layouts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def transpose(x: Any) -> Any:
    return x.t().contiguous()


def embedding(idx: Any, table: Any) -> Any:
    return table[idx]


def histogram(idx: Any) -> Any:
    return torch.bincount(idx.to(torch.int64), minlength=64).to(torch.int32)


def scatter_add(x: Any, idx: Any) -> Any:
    return torch.zeros(128, dtype=x.dtype, device=x.device).index_add(0, idx, x)


def masked_fill(x: Any, mask: Any) -> Any:
    return x.masked_fill(mask, -1.0)


def scale_by_table(x: Any) -> Any:
    table = torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=x.dtype, device=x.device)
    return x * table.repeat(x.numel() // 4)


def doubled_head(x: Any) -> Any:
    """Changes all of its input, returns a part of it."""
    return x.mul_(2)[:10]


def sort_rows(x: Any) -> Any:
    return x.sort(-1).values


def interleave(x: Any, y: Any) -> Any:
    return torch.stack([x, y], -1).reshape(-1)


def top_columns(x: Any, k: int) -> Any:
    return x[:, :k].contiguous()


def picked(x: Any, idx: Any) -> Any:
    """One of the rows for all, by index."""
    return x[idx]


def rows_from(x: Any, k: int) -> Any:
    return (x * 2)[k:]


def reversed_rows(x: Any) -> Any:
    return x.flip(-1)


def last_column(x: Any) -> Any:
    return x[:, -1] * 2


def with_positions(x: Any) -> Any:
    """Adds the table of sines of Vaswani and others, made in each call."""
    rows, columns = x.shape
    at = torch.arange(rows, dtype=x.dtype, device=x.device)[:, None]
    step = torch.exp(torch.arange(columns, dtype=x.dtype, device=x.device) * (-9.0 / columns))
    return x + torch.sin(at * step)


def lower_triangle(x: Any) -> Any:
    return x.tril()


def doubled_columns(x: Any) -> Any:
    """Its strides are those of a transposed tensor."""
    return (x * 2).t()


def doubled_rows(x: Any) -> Any:
    return x * 2


def nothing(x: Any) -> Any:
    return x * 0


def spread(x: Any, idx: Any) -> Any:
    return torch.zeros(1000000, dtype=x.dtype, device=x.device).index_add(0, idx, x)


def faded(x: Any) -> Any:
    h, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = 0.5 * h + x[:, t]
        found.append(h)
    return torch.stack(found, 1)


def flipped_(x: Any) -> Any:
    return x.copy_(x.flip(0))


def cut_rows(x: Any, n: Any) -> Any:
    at = torch.arange(x.shape[1], device=x.device)
    return torch.where(at[None, :] < n[:, None], x, 0.0)


def repeated_three(x: Any) -> Any:
    return x.repeat_interleave(3)


def bins(x: Any, edges: Any) -> Any:
    return torch.bucketize(x, edges)


def stable_order(x: Any) -> Any:
    return x.argsort(dim=-1, stable=True)


def rows_at(idx: Any, table: Any) -> Any:
    return table[idx] * 2


def segment_sums(x: Any, offsets: Any) -> Any:
    """Sums of rows between neighbouring offsets."""
    which = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:].long(), right=True)
    return torch.zeros(len(offsets) - 1, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, which, x)


def in_order_of(x: Any, key: Any) -> Any:
    return x[key.argsort()] * 2


def doubled_into_(out: Any, x: Any) -> Any:
    return out.copy_(2 * x)


def packed_rows(x: Any, s: Any) -> Any:
    """Rows of large numbers, with a small one at the end of each."""
    return torch.cat([x * 1000, s[:, None] * 1e-4], -1)


def embedding_gradient(g: Any, idx: Any) -> Any:
    return torch.zeros(50, g.shape[1], dtype=g.dtype, device=g.device).index_add(0, idx, g)


def top_four(x: Any) -> Any:
    return x.topk(4, -1).values


def padded_channels_last(x: Any) -> Any:
    return F.pad(x, (1, 2, 1, 2)).permute(0, 2, 3, 1).contiguous()


def routed(ids: Any, x: Any) -> Any:
    """How many rows each of 8 experts has, and the rows with the weight of their expert."""
    return torch.bincount(ids.to(torch.int64), minlength=8).to(torch.int32), x * (ids[:, None] + 1)


def padded_rows(idx: Any, table: Any) -> Any:
    """Rows of a table; index 1 is padding, which has none."""
    return table[idx] * (idx != 1)[:, None]


def with_small_column(x: Any) -> Any:
    """Rows, with a small multiple of their first number at the end of each."""
    return torch.cat([x, x[:, :1] * 1e-8], -1)


def with_slopes(x: Any, slopes: Any) -> Any:
    """Scores of heads, less by each head's slope with the distance (ALiBi)."""
    i, j = (torch.arange(n, device=x.device) for n in x.shape[1:])
    return x - slopes[:, None, None] * (i[:, None] - j[None, :]).abs()


def bins_from_right(x: Any, edges: Any) -> Any:
    """How many edges are at most as large."""
    return torch.bucketize(x, edges, right=True).to(torch.int32)


def bins_of_bins(x: Any) -> Any:
    """256 bins, and 16 of these each."""
    fine = torch.floor(x * 256)
    return fine.to(torch.int32), torch.floor(fine / 16).to(torch.int32)


def sums_by_id(x: Any, ids: Any) -> Any:
    return torch.zeros(80, dtype=x.dtype, device=x.device).index_add(0, ids, x)


def counts(ids: Any) -> Any:
    return torch.bincount(ids.long(), minlength=64).to(torch.int32)


def between_ends(x: Any) -> Any:
    """Numbers from 0 to 1; zeros where all are equal."""
    low, high = x.min(), x.max()
    return torch.where(high > low, (x - low) / (high - low), torch.zeros_like(x))


def embedding_bag(idx: Any, offsets: Any, table: Any) -> Any:
    return F.embedding_bag(idx, table, offsets[:-1], mode="mean")


def pack_four_bits(x: Any) -> Any:
    s = x.abs().amax(-1).clamp(min=1e-8) / 7
    q = (x / s[:, None]).round().clamp(-8, 7).to(torch.int32) & 15
    return (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8), s


def permuted_for_experts(x: Any, ids: Any) -> Any:
    return x[torch.argsort(ids, stable=True)], torch.bincount(ids.long(), minlength=8).to(torch.int32)


def placed(ids: Any, capacity: int) -> Any:
    """Which place each row has with its expert, of 64; -1 where that is full."""
    one = F.one_hot(ids.long(), 64)
    place = ((one.cumsum(0) - 1) * one).sum(-1)
    return torch.where(place < capacity, place, -1).to(torch.int32)


def overlapped(x: Any) -> Any:
    """Frames, each 16 behind the one before, summed where they overlap."""
    frames, length = x.shape
    o = torch.zeros(16 * (frames - 1) + length, device=x.device, dtype=x.dtype)
    for i in range(frames):
        o[16 * i : 16 * i + length] += 0.5 * x[i]
    return o


def overlaid(x: Any) -> Any:
    """Frames, each 16 behind the one before, of which the last one counts."""
    frames, _ = x.shape
    return 0.5 * torch.cat([*(x[i, :16] for i in range(frames - 1)), x[-1]])


def order_of_a_stable_sort(x: Any) -> Any:
    return torch.sort(x, dim=-1, stable=True).indices


def mirrored(x: Any) -> Any:
    """What is above the diagonal is as below it."""
    return x.tril() + x.tril(-1).t()


def rolled(x: Any, shift: int) -> Any:
    return torch.roll(x, shift, -1)
