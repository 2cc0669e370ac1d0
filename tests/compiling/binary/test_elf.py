"""Figures read from cubins equal those of the vendor's tool."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.compiling.binary.elf import CubinResources, Elf, cubin_resources, kernel_symbol, text_sections
from kerntune.errors import StoreError

COPY = """
@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
"""

NORMALIZE = """
@triton.jit
def normalize(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v / tl.sum(v, 0))
"""

CALLING = """
@triton.jit(noinline=True)
def keep(p, value):
    tl.store(p, tl.exp(value))
    tl.device_print("kept", value)


@triton.jit
def calling(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    keep(out, tl.sum(tl.load(x + i), 0))
    keep(out + 1, tl.max(tl.load(x + i), 0))
"""

CASES = [
    (COPY, "copy", {}),
    (NORMALIZE, "normalize", {}),
    (NORMALIZE, "normalize", {"maxnreg": 24, "num_warps": 1}),
    (CALLING, "calling", {}),
]


@pytest.fixture
def compiled(compile_source: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(text: str, name: str, where: str, **options: Any) -> Any:
        return compile_source(text, name, "*fp32 *fp32 i32", where, options, BLOCK=1024)

    return compiled


@pytest.fixture(scope="module")
def cubin(compile_source: Callable[..., Any]) -> bytes:
    return compile_source(COPY, "copy", "*fp32 *fp32 i32", "cuda:90", BLOCK=64).asm["cubin"]


@pytest.mark.parametrize("where", ["cuda:75", "cuda:80", "cuda:89", "cuda:90", "cuda:100", "cuda:120"])
@pytest.mark.parametrize(("text", "name", "options"), CASES)
def test_resources_equal_cuobjdump(
    text: str, name: str, options: dict[str, Any], where: str, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    from triton import knobs

    data = compiled(text, name, where, **options).asm["cubin"]
    path = tmp_path / "kernel.cubin"
    path.write_bytes(data)
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(rf"Function {name}:\s+REG:(\d+) STACK:(\d+)", said)
    assert found
    resources = cubin_resources(data)
    assert (resources.registers, resources.frame_bytes) == (int(found[1]), int(found[2]))
    assert resources.symbols == (resources.symbol,) == (name,)
    assert resources.code_bytes == len(dict(text_sections(data))[f".text.{name}"]) > 0


def test_a_kernel_that_spills_has_a_frame(compiled: Callable[..., Any]) -> None:
    spilling = cubin_resources(compiled(NORMALIZE, "normalize", "cuda:90", maxnreg=24, num_warps=1).asm["cubin"])
    assert spilling.registers <= 24
    assert spilling.frame_bytes > 0


def test_kernels_of_amd_gpus(compiled: Callable[..., Any]) -> None:
    data = compiled(COPY, "copy", "hip:gfx942").asm["hsaco"]
    assert kernel_symbol(data) == "copy"
    assert len(dict(text_sections(data))[".text"]) > 0
    with pytest.raises(StoreError, match="is no cubin"):
        cubin_resources(data)


def test_an_unknown_symbol_names_those_there_are(cubin: bytes) -> None:
    assert cubin_resources(cubin, "copy").symbol == "copy"
    with pytest.raises(StoreError, match="no kernel 'add' in the cubin; it has copy"):
        cubin_resources(cubin, "add")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(100), b"not an ELF file"])
def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(StoreError, match="not a compiled kernel"):
        Elf(data)


def test_a_file_for_another_machine_is_an_error(cubin: bytes) -> None:
    with pytest.raises(StoreError, match="machine 62"):
        cubin_resources(cubin[:18] + (62).to_bytes(2, "little") + cubin[20:])


def test_an_offset_beyond_any_file_is_an_error(cubin: bytes) -> None:
    with pytest.raises(StoreError, match="damaged ELF file"):
        cubin_resources(cubin[:0x28] + b"\xff" * 8 + cubin[0x30:])


def test_every_cut_is_an_error(cubin: bytes) -> None:
    for length in range(0, len(cubin), 97):
        with pytest.raises(StoreError):
            cubin_resources(cubin[:length])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_damage_is_an_error_or_an_answer(cubin: bytes, data: st.DataObject) -> None:
    """Any changed bytes give a result or a StoreError, never a struct.error or an endless loop."""
    damaged = bytearray(cubin)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(cubin) - 1))] = data.draw(st.integers(0, 255))
    try:
        resources = cubin_resources(bytes(damaged))
    except StoreError:
        return
    assert resources.code_bytes >= 0


SYMBOLS = [("", 0, 0, 0, 0), ("helper", 2, 0x00, 4, 64), ("k", 0x12, 0x10, 5, 128), ("k.kd", 1, 0x10, 5, 3)]
"""Name, type with binding, other, section, size."""

INFO = [(4, 0x2F, 8, 1, 99), (4, 0x2F, 8, 2, 40), (1, 0x2F, 8, 0, 0), (4, 0x11, 8, 2, 24), (4, 0x23, 8, 2, 7),
        (4, 0x11, 4, 2, 5)]  # fmt: skip
"""Format, attribute, size, symbol, value: the first is the helper's, the others but two are of other shapes."""


def attributes(entries: Sequence[tuple[int, ...]]) -> bytes:
    """Only entries of format 4 have values behind them."""
    return b"".join(
        struct.pack("<BBH", kind, attribute, size) + struct.pack("<II", *values)[: size if kind == 4 else 0]
        for kind, attribute, size, *values in entries
    )


def made(
    machine: int = 190, info: Sequence[tuple[int, ...]] = INFO, own: Sequence[tuple[int, ...]] = ((4, 0x12, 8, 2, 16),)
) -> bytes:
    """An ELF file with these symbols, and with a segment that ends where it does."""
    texts = ["", ".names", ".strings", ".symtab", ".text.helper", ".text.k", ".nv.info", ".nv.info.k", ".bss", ".text"]
    names, places = table(texts)
    strings, at = table([name for name, *_ in SYMBOLS])
    symbols = b"".join(
        struct.pack("<IBBHQQ", place, kind, other, section, 0, size)
        for place, (_, kind, other, section, size) in zip(at, SYMBOLS, strict=True)
    )
    data = [b"", names, strings, symbols, bytes(64), b"\1" * 128, attributes(info), attributes(own), b"", b"\2" * 4]
    kinds, links = [0, 3, 3, 2, 1, 1, 1, 1, 8, 1], [0, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    heads, end = [], 64
    for place, kind, link, content in zip(places, kinds, links, data, strict=True):
        heads.append(
            struct.pack("<IIQQQQIIQQ", place, kind, 0, 0, end, len(content) or 1000 * (kind == 8), link, 0, 1, 0)
        )
        end += len(content)
    begin = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, machine, 1, 0, end + 640, end, 0, 64, 56, 1, 64, 10, 1
    )
    return begin + b"".join(data) + b"".join(heads) + bytes(56)


def table(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """Texts with a zero after each, and where each begins."""
    places = [*itertools.accumulate((len(text) + 1 for text in texts), initial=0)]
    return b"".join(text.encode() + b"\0" for text in texts), places[:-1]


def test_a_made_file_is_read_as_it_was_written() -> None:
    elf = Elf(made())
    assert elf.machine == 190
    assert [(s.name, s.kind, s.size, s.link) for s in elf.sections[2:5]] == [
        (".strings", 3, 15, 0), (".symtab", 2, 96, 2), (".text.helper", 1, 64, 0),
    ]  # fmt: skip
    assert [msgspec.structs.astuple(s) for s in elf.symbols] == [
        (name, kind & 15, other, section, size) for name, kind, other, section, size in SYMBOLS
    ]
    bss = elf.section(".bss")
    assert bss is not None
    assert (bss.size, bss.data) == (1000, b"")
    assert elf.section(".none") is None
    assert elf.text == ((".text.helper", bytes(64)), (".text.k", b"\1" * 128), (".text", b"\2" * 4))
    assert (elf.kernels, Elf(made(224)).kernels) == (("k",), ("k",))


def test_figures_of_a_made_cubin() -> None:
    """Those of its own symbol, of both sections, in entries of eight bytes; what isn't said is none."""
    assert cubin_resources(made()) == CubinResources("k", 40, 24, 16, 128, ("k",))
    assert cubin_resources(made(info=INFO[:2], own=[])) == CubinResources("k", 40, 0, 0, 128, ("k",))
    with pytest.raises(StoreError, match="the cubin of k does not say how many registers it takes"):
        cubin_resources(made(info=INFO[:1]))
    with pytest.raises(StoreError, match=r"damaged \.nv\.info in the cubin of k"):
        cubin_resources(made(own=[(4, 0x12, 8, 9, 16)]))
    with pytest.raises(StoreError, match="no kernel 'helper' in the cubin; it has k"):
        cubin_resources(made(), "helper")


def test_a_segment_ends_within_the_file() -> None:
    """The driver reads it; one byte less is another file."""
    data = made()
    Elf(data)
    with pytest.raises(StoreError, match=f"it should go on to byte {len(data)};"):
        Elf(data[:-1])
