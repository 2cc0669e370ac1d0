"""Counts from the text of a kernel's TTIR, or of a Gluon kernel's GLIR: what it loads, stores, reduces, converts."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from kerntune.heuristics.call_hints import FP8_ELEMENTS_PER_THREAD
from kerntune.heuristics.hints import KernelHints

_OPERATION = re.compile(r'^[ \t]*(?:%[^=\n]*= )?"?(?:tt|ttg|ttng|amdg)\.(\w+)"?[ (]([^\n]*)', re.MULTILINE)
"""An operation at the start of a line, with the values that it defines; ``tt.reduce.return`` is none."""

_CONVERSION = re.compile(r": (?:tensor<[^<>\n]*x)?(\w+)>? -> (?:tensor<[^<>\n]*x)?(\w+)>?")
"""The element types of ``tt.fp_to_fp``: ``: tensor<1024xf8E5M2> -> tensor<1024xf32>``."""

LOADS = (
    "load", "descriptor_load", "descriptor_gather", "experimental_descriptor_load", "async_copy_global_to_local",
    "async_tma_copy_global_to_local", "async_tma_gather", "buffer_load", "buffer_load_to_local",
)  # fmt: skip
STORES = (
    "store", "descriptor_store", "descriptor_scatter", "experimental_descriptor_store",
    "async_tma_copy_local_to_global", "async_tma_scatter", "buffer_store",
)  # fmt: skip


ATOMICS = ("atomic_rmw", "buffer_atomic_rmw")


class TtirCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operations written in a kernel, each counted once wherever it stands (a loop's body too)."""

    loads: int = 0
    stores: int = 0
    reductions: int = 0
    atomic_add: bool = False
    min_elements_per_thread: int = 0
    operand_bytes: int = 0
    """Not of the text: bytes of an element of the call's narrowest tensor."""

    def apply(self, hints: KernelHints) -> KernelHints:
        """The hints with these counts."""
        return msgspec.structs.replace(
            hints,
            loads=self.loads,
            stores=self.stores,
            reductions=self.reductions,
            atomic_add=self.atomic_add,
            min_elements_per_thread=self.min_elements_per_thread,
            operand_bytes=self.operand_bytes,
        )


def count_ttir(text: str) -> TtirCounts:
    """What a module of Triton 3.6 to 3.9 does; all zero for text without Triton operations."""
    operations = _OPERATION.findall(text)
    counts = Counter(name for name, _ in operations)
    converted = [types for name, rest in operations if name == "fp_to_fp" for types in _CONVERSION.findall(rest)]
    return TtirCounts(
        loads=sum(counts[name] for name in LOADS),
        stores=sum(counts[name] for name in STORES),
        reductions=counts["reduce"],
        atomic_add=any(name in ATOMICS and rest.startswith(("fadd", "add")) for name, rest in operations),
        min_elements_per_thread=max((FP8_ELEMENTS_PER_THREAD.get(t, 0) for pair in converted for t in pair), default=0),
    )
