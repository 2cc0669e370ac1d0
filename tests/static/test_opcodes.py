"""Opcodes by the tables, held against nvdisasm."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from doubles import raising

from kerntune.base.device import Target, typical_device
from kerntune.compiling.binary.elf import text_sections
from kerntune.static import disassembly
from kerntune.static.disassembly import Disassembler
from kerntune.static.instructions import nvidia_classes
from kerntune.static.metrics import metrics_of
from kerntune.static.opcodes import _MNEMONICS, _PRODUCTS, counted_opcodes

KERNELS = ["add", "add_whole", "softmax", "double", "histogram", "matmul", "descriptor_matmul"]


def instruction(code: int, high: int = 0, low: int = 0) -> bytes:
    return (code | low | high << 64).to_bytes(16, "little")


EXIT = instruction(0x94D)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["cuda:80", "cuda:86", "cuda:89", "cuda:90"])
def test_counts_equal_nvdisasms(where: str, compiled: Callable[..., Any]) -> None:
    names = KERNELS if where == "cuda:90" else KERNELS[:-1]
    binaries = [compiled(name, where).binary for name in names]
    texts, arch = [text_sections(b.data)[0][1] for b in binaries], binaries[0].arch
    read = [counted_opcodes(text, arch) for text in texts]
    said = Disassembler().listings(texts, arch)
    counted = [(nvidia_classes(a), nvidia_classes(b.opcodes)) for a, b in zip(read, said, strict=True) if a is not None]
    assert [a for a, _ in counted] == [b for _, b in counted]
    assert len(counted) >= 3


def test_an_unknown_code_or_architecture_says_nothing() -> None:
    assert counted_opcodes(EXIT, "sm_90a") == {"EXIT": 1}
    assert counted_opcodes(EXIT + instruction(0xFFF), "sm_90a") is None
    assert counted_opcodes(EXIT, "sm_100a") is None


def test_an_operand_that_is_a_number_or_a_constant_changes_no_opcode() -> None:
    code = b"".join(instruction(form | 0x00A) for form in (0x200, 0x800, 0xA00))
    assert counted_opcodes(code, "sm_90a") == {"FSET": 3}


def test_an_access_to_the_stack_frame_says_nothing() -> None:
    assert counted_opcodes(EXIT + instruction(0x983), "sm_90a") is None
    assert counted_opcodes(EXIT + instruction(0x387), "sm_90a") is None


@pytest.mark.parametrize(
    ("field", "opcode"),
    [
        (0, "LDG.U8"),
        (1, "LDG.S8"),
        (2, "LDG.U16"),
        (3, "LDG.S16"),
        (4, "LDG"),
        (5, "LDG.64"),
        (6, "LDG.128"),
        (7, None),
    ],
)
def test_widths(field: int, opcode: str | None) -> None:
    found = counted_opcodes(instruction(0x981, high=field << 9), "sm_90a")
    assert found == (None if opcode is None else {opcode: 1})


def test_shapes_of_products() -> None:
    assert counted_opcodes(instruction(0x23C, high=0x418 << 8), "sm_80") == {"HMMA.16816.F32.BF16": 1}
    assert counted_opcodes(instruction(0x23C, high=0x7 << 8), "sm_80") is None
    for field, said in ((0x018, "HMMA.16816.F32"), (0x810, "HMMA.1688.F32.TF32")):
        assert counted_opcodes(instruction(0x23C, high=field << 8), "sm_80") == {said: 1}
    for field, said in ((0x008, "x16.F32"), (0x018, "x16.F32.BF16")):
        group = instruction(0x9F0, high=field << 8, low=31 << 53)
        assert counted_opcodes(group, "sm_90a") == {f"HGMMA.64x256{said}": 1}
    group = instruction(0x9F0, high=0x028 << 8, low=15 << 53)
    assert counted_opcodes(group, "sm_90a") == {"HGMMA.64x128x8.F32.TF32": 1}
    assert counted_opcodes(instruction(0x9F0, high=0x7 << 8, low=15 << 53), "sm_90a") is None


def test_nvdisasm_is_started_for_what_the_tables_lack_alone(
    compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries, spec = [compiled("add", "cuda:90").binary], typical_device(Target.parse("cuda:90"))
    said = metrics_of(binaries, spec)
    monkeypatch.setattr(disassembly, "_listing", raising(AssertionError("started")))
    assert metrics_of(binaries, spec, disassembler=Disassembler()) == said
    monkeypatch.setattr("kerntune.static.metrics.counted_opcodes", lambda text, arch: None)
    with pytest.raises(AssertionError, match="started"):
        metrics_of(binaries, spec, disassembler=Disassembler())


def test_each_product_is_found_by_its_bits() -> None:
    codes = {name: code for code, name in _MNEMONICS.items()}
    for (name, bits), modifiers in _PRODUCTS.items():
        text = struct.pack("<2Q", codes[name], bits << 8)
        assert counted_opcodes(text, "sm_90") == {name + modifiers: 1}
    assert (codes["DMMA"], _PRODUCTS["DMMA", 0]) == (0x23F, ".8x8x4")
