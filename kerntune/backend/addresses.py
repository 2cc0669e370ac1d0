"""Numbers that may be addresses, and whose memory they point into."""

from __future__ import annotations

import contextlib
import gc
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerntune.backend.base import Tensors
from kerntune.recording import LOWEST_ADDRESS

HIGHEST_ADDRESS = 1 << 57
"""Larger integers are hashes and times: processors and GPUs map at most 57 bits."""


def possible_addresses(data: bytes) -> list[int]:
    """The different 64-bit words that could be addresses, in the order of their first appearance."""
    words = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    words = words[(words >= LOWEST_ADDRESS) & (words < HIGHEST_ADDRESS)]
    _, first = np.unique(words, return_index=True)
    return [int(w) for w in words[np.sort(first)]]


def holders(tensors: Tensors, addresses: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Tensors over the storages that addresses lie in, one each, in the order of ``addresses``; and the addresses that
    lie in none. Whoever keeps such a tensor keeps its memory from being used for anything else.

    Looks through all tensors that Python knows: about 0.1 s where a process has a million objects.
    """
    spans = _outermost(_alive(tensors))
    starts = [start for start, _, _ in spans]
    found: dict[int, Any] = {}
    nobodys = []
    for address in addresses:
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < spans[at][1]:
            found.setdefault(starts[at], spans[at][2])
        else:
            nobodys.append(address)
    return list(found.values()), nobodys


Span = tuple[int, int, Any]
"""A storage's first address, the one after its last, and a tensor over it."""


def _alive(tensors: Tensors) -> Iterator[Span]:
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        for thing in gc.get_objects():
            if issubclass(type(thing), torch.Tensor):  # isinstance would ask proxies, which may do anything
                with contextlib.suppress(RuntimeError, NotImplementedError):  # tensors without memory of their own
                    if tensors.is_tensor(thing) and (size := int(thing.untyped_storage().nbytes())):
                        start = tensors.storage_address(thing)
                        yield start, start + size, thing


def _outermost(spans: Iterator[Span]) -> list[Span]:
    """Without storages that lie inside of another: some tensors are windows of memory that others hold whole."""
    out: list[Span] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not out or span[1] > out[-1][1]:
            out.append(span)
    return out
