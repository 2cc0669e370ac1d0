"""Numbers that may be addresses, and whose memory they point into."""

from __future__ import annotations

import contextlib
import gc
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np

from kerntune.base.recording import LOWEST_ADDRESS
from kerntune.gpu.base import Tensors

HIGHEST_ADDRESS = 1 << 57
"""Larger integers are hashes and times: processors and GPUs map at most 57 bits."""


def possible_addresses(data: bytes) -> list[int]:
    """The different 64-bit words that could be addresses, in the order of their first appearance."""
    words = np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    words = words[(words >= LOWEST_ADDRESS) & (words < HIGHEST_ADDRESS)]
    _, first = np.unique(words, return_index=True)
    return [int(w) for w in words[np.sort(first)]]


class Spans:
    """Pieces of memory by address: each its first address, the one after its last, and whose it is.

    What lies inside of another piece is left out: some tensors are windows of memory that others hold whole.
    """

    def __init__(self, spans: Iterable[tuple[int, int, Any]]) -> None:
        self._spans: list[tuple[int, int, Any]] = []
        for span in sorted(spans, key=lambda s: (s[0], -s[1])):
            if not self._spans or span[1] > self._spans[-1][1]:
                self._spans.append(span)
        self._starts = [start for start, _, _ in self._spans]

    def at(self, address: int) -> Any:
        """The owner of the memory that an address lies in; None if there is none."""
        index = bisect_right(self._starts, address) - 1
        return self._spans[index][2] if index >= 0 and address < self._spans[index][1] else None


def holders(tensors: Tensors, addresses: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Tensors over the storages that addresses lie in, one each, in the order of ``addresses``; and the addresses that
    lie in none. While such a tensor is alive, its memory isn't used for anything else. This goes through all tensors
    that Python tracks: about 0.1 s where a process has a million objects. Some of them may be frozen
    (:func:`gc.freeze`): then, if that leaves any address, through all that modules lead to, which takes about ten times
    as long.
    """
    found = _lookup(tensors, addresses, gc.get_objects())
    if gc.get_freeze_count() and None in found.values():
        found = _lookup(tensors, addresses, _reachable())
    held = {id(tensor): tensor for tensor in found.values() if tensor is not None}
    return list(held.values()), [address for address, tensor in found.items() if tensor is None]


def whose(address: int) -> str:
    """Why no tensor holds the memory at an address, as far as that is known: a sentence's end."""
    frozen = gc.get_freeze_count()
    hidden = f" (of {frozen:,} objects under gc.freeze() those were found that modules lead to)" if frozen else ""
    return f"the address {address:#x} lies in memory of no tensor that Python knows{hidden}"


def _lookup(tensors: Tensors, addresses: Sequence[int], things: Iterable[Any]) -> dict[int, Any]:
    alive = Spans(_alive(tensors, things))
    return {address: alive.at(address) for address in addresses}


def _reachable() -> Iterator[Any]:
    """All objects that may refer to others, from what the collector lists, modules and running functions on: it doesn't
    list frozen ones. To unfreeze them would be to change how the process collects, and couldn't be undone."""
    seen: dict[int, Any] = {}
    level = [*gc.get_objects(), sys.modules, *_locals()]
    while level:
        new = {id(x): x for x in level if gc.is_tracked(x) and id(x) not in seen}
        yield from new.values()
        seen |= new
        level = gc.get_referents(*new.values())


LOCALS_STAY_AS_THEY_ARE = sys.version_info >= (3, 13)
"""Before, to ask a function for its variables makes a dictionary that keeps them alive until it ends (PEP 667)."""


def _locals() -> Iterator[Any]:
    """What running functions hold, where asking changes nothing."""
    if LOCALS_STAY_AS_THEY_ARE:
        for top in sys._current_frames().values():
            frame: FrameType | None = top
            while frame is not None:
                yield from frame.f_locals.values()
                frame = frame.f_back


def _alive(tensors: Tensors, things: Iterable[Any]) -> Iterator[tuple[int, int, Any]]:
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        for thing in things:
            if issubclass(type(thing), torch.Tensor):  # isinstance would ask proxies, which may do anything
                with contextlib.suppress(Exception):  # tensors without memory of their own, users' kinds of tensors
                    if tensors.is_tensor(thing) and (size := int(thing.untyped_storage().nbytes())):
                        start = tensors.storage_address(thing)
                        yield start, start + size, thing
