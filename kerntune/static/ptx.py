"""Instructions counted in PTX text: what the resource model needs, for candidates that aren't disassembled.

It takes under a millisecond a kernel, a disassembler tens. ptxas still removes, fuses and splits, so totals differ
from the machine code's; widths of memory accesses, matrix instructions, atomics and barriers are written out in PTX.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_OPCODE = re.compile(r"^[ \t]*(?:@!?%\w+\s+)?([a-z][\w.:]*)", re.MULTILINE)
"""The beginning of an instruction: an opcode with its modifiers, its predicate left out. Directives begin with a dot,
labels end without a semicolon."""

_WIDTH = re.compile(r"(?:\.v(\d))?\.[busf](\d+)$")
_COPY = re.compile(r"cp\.async\.c[ag]")
_SIZE = re.compile(r",\s*(0x[0-9a-fA-F]+|\d+)")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")

_OPERANDS = re.compile(
    r"\b(?:wgmma\.mma_async|mma)\.sync\.aligned\.m\d+n\d+k\d+(?:\.(?:row|col|satfinite))*\.\w+\.(\w+)"
    r"|\btcgen05\.mma\S*\.kind::(\w+)"
)
"""The type of a product's first operand, which stands after that of the result; or its kind."""

_OPERAND_BITS = {
    8: ("e4m3", "e5m2", "s8", "u8", "f8f6f4", "i8", "mxf8f6f4", "e2m1", "e2m3", "e3m2", "mxf4", "mxf4nvf4"),
    16: ("f16", "bf16"),
    32: ("tf32",),
    64: ("f64",),
}
"""Bits of an operand as tensor cores are fed with it: tf32 takes 32 in memory. Narrower ones than 8 count as 8."""

_CLASSES = (
    ("global_load", "ld.global"),
    ("global_store", "st.global"),
    ("tma", "cp.async.bulk"),
    ("tensor_core", "wgmma.mma_async"),
    ("tensor_core", "mma.sync"),
    ("tensor_core", "tcgen05.mma"),
    ("atomic", "atom."),
    ("atomic", "red.global"),
    ("barrier", "bar."),
    ("barrier", "barrier."),
)
"""Class by prefix of an opcode (PTX ISA, "Instruction Set"); names as in
:func:`kerntune.static.instructions.nvidia_classes`."""


def ptx_classes(text: str) -> dict[str, int]:
    """Counts by class from a kernel's PTX, loops once: keys as of :func:`nvidia_classes`, those that PTX shows."""
    found: Counter[str] = Counter()
    for opcode, times in Counter(_opcodes(text)).items():
        found["total"] += times
        kind = next((name for name, start in _CLASSES if opcode.startswith(start)), "")
        if kind:
            found[kind] += times
        if kind in ("global_load", "global_store"):
            found[f"{kind}_{bits(opcode)}"] += times
        elif kind == "tensor_core":
            found["tensor_core_macs"] += times * _macs(opcode)
    for size in _copied(text):
        found["async_copy"] += 1
        found[f"async_copy_{int(size, 0) * 8}"] += 1
    return {name: count for name, count in sorted(found.items()) if count}


def operand_counts(text: str) -> dict[str, int]:
    """Products on tensor cores by the bits of their operands (``tensor_core_16``), a product as many times as its
    instruction is in the text. Unknown types are left out."""
    width = {name: bits for bits, names in _OPERAND_BITS.items() for name in names}
    types = (match[1] or match[2] for match in _OPERANDS.finditer(text))
    found = Counter(f"tensor_core_{width[name]}" for name in types if name in width)
    return dict(sorted(found.items()))


def _opcodes(text: str) -> Iterator[str]:
    """The opcodes of all instructions, each of which ends with a semicolon."""
    found = _OPCODE.search(text)
    while found is not None and (end := text.find(";", found.end())) >= 0:
        yield found[1]
        found = _OPCODE.search(text, end + 1)


def _copied(text: str) -> Iterator[str]:
    """The sizes in bytes of asynchronous copies: their first number after a comma."""
    found = _COPY.search(text)
    while found is not None:
        end = text.find(";", found.end())
        end = len(text) if end < 0 else end
        if size := _SIZE.search(text, found.end(), end):
            yield size[1]
        found = _COPY.search(text, size.end() if size else end)


def bits(opcode: str) -> int:
    """Bits that a thread loads or stores with one such instruction."""
    match = _WIDTH.search(opcode)
    return 32 if match is None else int(match[1] or 1) * int(match[2])


def _macs(opcode: str) -> int:
    shape = _SHAPE.search(opcode)
    return int(shape[1]) * int(shape[2]) * int(shape[3]) if shape else 0
