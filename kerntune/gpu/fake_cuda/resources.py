"""The resources that a compiled kernel needs, read from its binary without loading it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

REGISTERS_ATTRIBUTE = 0x2F
FRAME_ATTRIBUTE = 0x11
"""``EIATTR_REGCOUNT`` and ``EIATTR_FRAME_SIZE`` of ``.nv.info`` sections, as ``cuobjdump --dump-elf`` names them."""
SIZED_PAYLOAD = 4
"""The attribute format (``EIFMT_SVAL``) that contains its length; the others take four bytes in all."""


class Resources(NamedTuple):
    """Registers of a thread, and its spills in 32-bit words as Triton counts them (for NVIDIA: the stack frame)."""

    registers: int
    spills: int


def resources(asm: dict[str, Any]) -> Resources:
    """The resources of a compiled kernel, from ``CompiledKernel.asm``; ``ValueError`` if it holds no known binary."""
    if "cubin" in asm:
        return _of_cubin(asm["cubin"])
    if "amdgcn" in asm:
        return Resources(_amd_field(asm["amdgcn"], "vgpr_count"), _amd_field(asm["amdgcn"], "vgpr_spill_count"))
    raise ValueError(f"no cubin and no amdgcn text among {sorted(asm)}")


def _of_cubin(cubin: bytes) -> Resources:
    found = dict(pair for section in _info_sections(cubin) for pair in _attributes(section))
    return Resources(found.get(REGISTERS_ATTRIBUTE, 0), found.get(FRAME_ATTRIBUTE, 0) // 4)


def _info_sections(elf: bytes) -> Iterator[bytes]:
    """The ``.nv.info`` sections (ELF64, little endian: System V ABI, section header table)."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + index * size) for index in range(count)]
    names_at = headers[names_index][4]
    for name_offset, _, _, _, offset, length in headers:
        start = names_at + name_offset
        if elf[start : elf.index(b"\0", start)].startswith(b".nv.info"):
            yield elf[offset : offset + length]


def _attributes(section: bytes) -> Iterator[tuple[int, int]]:
    """Attributes whose value is a pair of symbol and number."""
    at = 0
    while at + 4 <= len(section):
        form, attribute, length = struct.unpack_from("<BBH", section, at)
        if form == SIZED_PAYLOAD and length == 8:
            yield attribute, struct.unpack_from("<II", section, at + 4)[1]
        at += 4 + (length if form == SIZED_PAYLOAD else 0)


def _amd_field(text: str, name: str) -> int:
    match = re.search(rf"^[ \t]*\.{name}:\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0
