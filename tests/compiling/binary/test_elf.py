"""Figures read from cubins equal those of the vendor's tool."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.compiling.binary.elf import Elf, cubin_resources, kernel_symbol, text_sections
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
