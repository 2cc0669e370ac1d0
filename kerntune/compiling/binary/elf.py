"""Compiled kernels as ELF files, read without the vendor's tools."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from kerntune.errors import StoreError

_MAGIC = b"\x7fELF\x02\x01"  # 64-bit, little-endian: all that ptxas and LLD write for GPUs
_EM_CUDA = 190
_EM_AMDGPU = 224
"""Machine numbers of the System V ABI's list."""

_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10  # st_other of a kernel; functions that kernels call don't have it

_FORMAT_SIZED = 4  # EIFMT_SVAL: two bytes of size, then the value; all other formats hold their value in those bytes
_MIN_STACK = 0x12
_FRAME = 0x11
_REGISTERS = 0x2F
"""EIATTR_* numbers of a cubin's ``.nv.info``: each holds a symbol's number and a value. NVIDIA documents none of them;
``cuobjdump -elf`` prints the names, and the tests hold the values against ``cuobjdump --dump-resource-usage``."""


class Section(msgspec.Struct, frozen=True):
    """One section of an ELF file; ``data`` is empty for sections that take no space in the file, ``size`` is not."""

    name: str
    kind: int
    size: int
    link: int
    data: bytes


class Symbol(msgspec.Struct, frozen=True):
    """One symbol: ``kind`` and ``other`` as ELF has them, ``section`` the number of the section that it lies in."""

    name: str
    kind: int
    other: int
    section: int
    size: int


class CubinResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kernel of a cubin takes, as ``cuobjdump --dump-resource-usage`` says it.

    ``registers`` per thread (32-bit), ``frame_bytes`` and ``min_stack`` of local memory per thread, ``code_bytes`` of
    machine code with the padding after it. ``symbols``: all kernels in the file. Spilled bytes are not here: a stack
    frame can be used without a spill.
    """

    symbol: str
    registers: int
    frame_bytes: int
    min_stack: int
    code_bytes: int
    symbols: tuple[str, ...]


class Elf:
    """Sections and symbols of a compiled kernel, from its bytes.

    Raises :class:`StoreError` if ``data`` is no 64-bit little-endian ELF file, or is cut short or damaged.
    """

    def __init__(self, data: bytes) -> None:
        if data[: len(_MAGIC)] != _MAGIC:
            what = f"{len(data)} bytes starting {data[:4]!r}"
            raise StoreError(f"not a compiled kernel: {what} are no 64-bit ELF file")
        try:
            (self.machine,) = struct.unpack_from("<H", data, 18)
            (table,) = struct.unpack_from("<Q", data, 0x20)
            entry_size, count = struct.unpack_from("<HH", data, 0x36)
            # The driver needs the program headers, which ptxas writes last: else a file cut there would pass.
            _slice(data, table, entry_size * count)
            self.sections = _sections(data)
            self.symbols = _symbols(self.sections)
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            what = f"ELF file of {len(data)} bytes: {error}"
            raise StoreError(f"damaged {what}; compile the kernel again") from None

    @property
    def kernels(self) -> tuple[str, ...]:
        """Symbols that can be launched, in the order of the file."""
        if self.machine == _EM_CUDA:
            return tuple(s.name for s in self.symbols if s.kind == _STT_FUNC and s.other & _STO_CUDA_ENTRY)
        if self.machine == _EM_AMDGPU:  # a kernel has a descriptor, a symbol of its name with ".kd"
            return tuple(s.name.removesuffix(".kd") for s in self.symbols if s.name.endswith(".kd"))
        raise StoreError(f"an ELF file for machine {self.machine}, neither CUDA nor AMD GPU")

    @property
    def text(self) -> tuple[tuple[str, bytes], ...]:
        """Name and machine code of every ``.text`` section, in the order of the file."""
        return tuple((s.name, s.data) for s in self.sections if s.name == ".text" or s.name.startswith(".text."))

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((s for s in self.sections if s.name == name), None)


def kernel_symbol(data: bytes) -> str:
    """The symbol to launch in a cubin or hsaco; :class:`StoreError` unless it has exactly one."""
    names = Elf(data).kernels
    if len(names) != 1:
        found = f"{len(names)}: {', '.join(names) or 'none'}"
        raise StoreError(f"expected one kernel in the binary, found {found}")
    return names[0]


def text_sections(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Name and machine code of every ``.text`` section; :class:`StoreError` if there is none."""
    found = Elf(data).text
    if not found:
        raise StoreError("the binary has no machine code: no .text section in it")
    return found


def cubin_resources(data: bytes, symbol: str | None = None) -> CubinResources:
    """What the kernel ``symbol`` of a cubin takes (its only kernel if ``None``), in about 0.1 ms.

    Raises :class:`StoreError` if the file is damaged, is no cubin, or has no such kernel.
    """
    elf = Elf(data)
    if elf.machine != _EM_CUDA:
        raise StoreError(f"an ELF file for machine {elf.machine} is no cubin ({_EM_CUDA})")
    name = symbol if symbol is not None else kernel_symbol(data)
    text = elf.section(f".text.{name}")
    if name not in elf.kernels or text is None:
        raise StoreError(f"no kernel {name!r} in the cubin; it has {', '.join(elf.kernels) or 'none'}")
    try:
        values = {
            attribute: value
            for section in elf.sections
            if section.name in (".nv.info", f".nv.info.{name}")
            for attribute, symbol, value in _attributes(section.data)
            if elf.symbols[symbol].name == name
        }
    except (struct.error, IndexError, OverflowError) as error:
        raise StoreError(f"damaged .nv.info in the cubin of {name}: {error}; compile the kernel again") from None
    if _REGISTERS not in values:
        raise StoreError(f"the cubin of {name} does not say how many registers it takes")
    return CubinResources(
        symbol=name,
        registers=values[_REGISTERS],
        frame_bytes=values.get(_FRAME, 0),
        min_stack=values.get(_MIN_STACK, 0),
        code_bytes=text.size,
        symbols=elf.kernels,
    )


def _sections(data: bytes) -> tuple[Section, ...]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
    names = _slice(data, heads[names_at][4], heads[names_at][5])
    return tuple(_section(data, names, head) for head in heads)


def _section(data: bytes, names: bytes, head: tuple[int, ...]) -> Section:
    name, kind, _flags, _address, offset, size, link, *_ = head
    content = b"" if kind == _SHT_NOBITS else _slice(data, offset, size)
    return Section(_text_at(names, name), kind, size, link, content)


def _slice(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError(f"it should go on to byte {offset + size}")
    return data[offset : offset + size]


def _text_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode("utf-8", "replace")


def _symbols(sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    table = next((s for s in sections if s.kind == _SHT_SYMTAB), None)
    if table is None:
        return ()
    names = sections[table.link].data
    return tuple(
        Symbol(_text_at(names, name), info & 0xF, other, section, size)
        for name, info, other, section, _value, size in struct.iter_unpack("<IBBHQQ", table.data)
    )


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Attribute, symbol number and value of the entries that have this shape and that we know."""
    at = 0
    while at < len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind != _FORMAT_SIZED:
            continue
        if size == 8 and attribute in (_REGISTERS, _FRAME, _MIN_STACK):
            yield (attribute, *struct.unpack_from("<II", data, at))
        at += size
