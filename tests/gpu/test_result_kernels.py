"""The device's kernels that compare results count what numpy counts, and what independent arithmetic says."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from host_gpu import HostBuffer, HostFunction, HostGpu
from hypothesis import given
from hypothesis import strategies as st
from ptx_emulator import Emulator, PtxKernel, parse_ptx
from samples import H100

from kerntune.base.recording import Binary, Param
from kerntune.gpu.number_formats import (
    BITS,
    FLOAT_FORMATS,
    INTEGER_FORMATS,
    ElementCounts,
    NumberFormat,
    count_differences,
    element_text,
    format_of,
    values,
)
from kerntune.gpu.result_kernels import PREFIX, ResultKernels, count_ptx, equal_ptx, mark_ptx
from kerntune.static.disassembly import find_tool

NOWHERE = (1 << 64) - 1


FORMATS = {**FLOAT_FORMATS, **INTEGER_FORMATS, "bytes": BITS}
ALL_PTX = [
    *(equal_ptx(w) for w in (16, 1)), *(mark_ptx(w) for w in (1, 2, 4, 8)), *(count_ptx(k) for k in FORMATS.values())
]  # fmt: skip


class EmulatedGpu(HostGpu):
    """Runs kernels from their PTX, with few threads."""

    def load(self, binary: Binary, data: bytes) -> HostFunction:
        self.loaded: dict[str, PtxKernel] = {**getattr(self, "loaded", {}), binary.symbol: parse_ptx(data.decode())}
        return HostFunction(binary)

    def prepare(
        self, function: Any, grid: tuple[int, int, int], params: Sequence[Param], addresses: Sequence[int | None]
    ) -> Callable[[], None]:
        given = {p.name: int(p.value) if a is None else a for p, a in zip(params, addresses, strict=True)}  # type: ignore[arg-type]
        machine = Emulator(self._load, self._store)
        return lambda: machine.run(self.loaded[function.binary.symbol], given, min(grid[0], 2), 3)

    def _at(self, address: int) -> tuple[HostBuffer, int]:
        found = next(b for b in [*self.buffers, *self.host] if b.address <= address < b.address + b.nbytes)
        return found, address - found.address

    def _load(self, address: int, size: int) -> bytes:
        buffer, at = self._at(address)
        assert at + size <= buffer.nbytes, "a load beside the buffer"
        return bytes(buffer.data[at : at + size])

    def _store(self, address: int, data: bytes) -> None:
        buffer, at = self._at(address)
        assert at + len(data) <= buffer.nbytes, "a store beside the buffer"
        buffer.data[at : at + len(data)] = data


def put(gpu: HostGpu, data: bytes) -> HostBuffer:
    buffer = gpu.allocate(len(data))
    gpu.write(buffer, data)
    return buffer


def on_device(
    a: bytes, b: bytes, mask: bytes | None, kind: NumberFormat, poisoned: bool, wanted: int = NOWHERE
) -> ElementCounts:
    gpu = EmulatedGpu(H100)
    x, y = put(gpu, a), put(gpu, b)
    return ResultKernels(gpu).count(x, y, None if mask is None else put(gpu, mask), kind, poisoned, wanted)


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[NumberFormat, bytes, bytes, bytes | None, bool]:
    """Two arrays of a format: equal, near, special and random elements."""
    kind = FORMATS[draw(st.sampled_from(sorted(FORMATS)))]
    top, sign = (1 << 8 * kind.width) - 1, 1 << (8 * kind.width - 1)
    special = [0, 1, sign, sign | 1, kind.finite, kind.finite | sign, kind.finite + 1, kind.nan, kind.poison, top]
    element = st.one_of(st.sampled_from([x & top for x in special]), st.integers(0, top))
    a = draw(st.lists(element, min_size=1, max_size=12))
    near = [st.one_of(st.just(x), st.just((x + 1) & top), st.just(x ^ sign), element) for x in a]
    b = [draw(n) for n in near]
    mask = draw(st.none() | st.lists(st.integers(0, 1), min_size=len(a), max_size=len(a)).map(bytes))
    as_bytes = [b"".join(x.to_bytes(kind.width, "little") for x in side) for side in (a, b)]
    return kind, as_bytes[0], as_bytes[1], mask, draw(st.booleans())


@pytest.mark.slow
@given(two_sides())
def test_the_kernel_counts_what_numpy_counts(sides: tuple[NumberFormat, bytes, bytes, bytes | None, bool]) -> None:
    kind, a, b, mask, poisoned = sides
    expected = count_differences(a, b, mask, kind, poisoned)
    assert on_device(a, b, mask, kind, poisoned) == expected
    if expected.ulp:
        worst = count_differences(a, b, mask, kind, poisoned, expected.ulp)
        assert on_device(a, b, mask, kind, poisoned, expected.ulp) == worst
        assert worst.worst != NOWHERE


@pytest.mark.slow
@given(two_sides())
def test_numpy_counts_what_exact_arithmetic_says(sides: tuple[NumberFormat, bytes, bytes, bytes | None, bool]) -> None:
    """Distances by stepping through the ordered list of all numbers, relative differences as fractions."""
    kind, a, b, mask, _ = sides
    if not kind.is_float:
        return
    found = count_differences(a, b, mask, kind, False)
    pairs = [
        (x, y)
        for i in range(0, len(a), kind.width)
        if not (mask and mask[i // kind.width])
        for x, y in [(a[i : i + kind.width], b[i : i + kind.width])]
        if x != y
    ]
    numbers = [(number(x, kind), number(y, kind), x, y) for x, y in pairs]
    finite = [(p, q, x, y) for p, q, x, y in numbers if math.isfinite(p) and math.isfinite(q)]
    assert found.differing == len(pairs)
    assert found.nonfinite == sum(
        not (math.isnan(p) and math.isnan(q)) and not (math.isfinite(p) and math.isfinite(q)) for p, q, _, _ in numbers
    )
    assert found.ulp == max((abs(rank(x, kind) - rank(y, kind)) for _, _, x, y in finite), default=0)
    exact = max((apart(p, q) for p, q, _, _ in finite), default=0.0)
    assert found.relative == pytest.approx(exact, rel=1e-9, abs=1e-15)


def number(data: bytes, kind: NumberFormat) -> float:
    """By torch, which knows all of these formats."""
    return float(torch.frombuffer(bytearray(data), dtype=getattr(torch, kind.name)).double()[0])


def rank(data: bytes, kind: NumberFormat) -> int:
    """The place of a number among all of its format, both zeros being one."""
    bits = int.from_bytes(data, "little")
    sign = 1 << (8 * kind.width - 1)
    return -(bits ^ sign) if bits & sign else bits


def apart(p: float, q: float) -> float:
    larger = max(abs(Fraction(p)), abs(Fraction(q)))
    return float(abs(Fraction(p) - Fraction(q)) / larger) if larger else 0.0


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_every_number_of_a_narrow_format_is_torchs(name: str) -> None:
    kind = FLOAT_FORMATS[name]
    bits = np.arange(1 << 8 * kind.width, dtype="<u8")
    theirs = torch.from_numpy(bits.astype(f"<u{kind.width}").copy()).view(getattr(torch, name)).double().numpy()
    np.testing.assert_array_equal(values(bits, kind), theirs)
    assert int(np.isfinite(theirs).sum()) == 2 * (kind.finite + 1)
    assert int(np.isnan(theirs).sum()) == 2 * ((1 << (8 * kind.width - 1)) - kind.nan)


@given(st.binary(min_size=0, max_size=70), st.data())
def test_equal_bits_are_told_to_the_last_byte(data: bytes, draw: st.DataObject) -> None:
    gpu = EmulatedGpu(H100)
    other, sizes = bytearray(data), len(data)
    if sizes and draw.draw(st.booleans()):
        other[draw.draw(st.integers(0, sizes - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    pairs = [(put(gpu, data), put(gpu, bytes(other))), (put(gpu, data), put(gpu, data))]
    assert ResultKernels(gpu).equal(pairs) == [bytes(other) == data, True]


def test_memory_that_is_not_aligned_is_compared_too() -> None:
    gpu = EmulatedGpu(H100)
    a, b = put(gpu, bytes(range(64))), put(gpu, bytes(range(64)))
    parts = [(gpu.part(a, 8, 50), gpu.part(b, 8, 50))]
    assert ResultKernels(gpu).equal(parts) == [True]
    b.data[57] = 0
    assert ResultKernels(gpu).equal(parts) == [False]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_marks_add_up(width: int) -> None:
    gpu, kind = EmulatedGpu(H100), NumberFormat("any", width)
    kernels = ResultKernels(gpu)
    a = put(gpu, bytes(10 * width))
    mask = kernels.new_mask(10)
    for place in (3, 7):
        changed = bytearray(10 * width)
        changed[place * width] = 1
        kernels.mark(a, put(gpu, bytes(changed)), mask, kind)
    assert list(gpu.read(mask)) == [int(i in (3, 7)) for i in range(10)]


def test_what_is_not_written_is_told_apart() -> None:
    kind, nan = FLOAT_FORMATS["float32"], b"\x7f" * 4
    a = np.float32([1, 2, 3, 4]).tobytes()
    gone, new = a[:12] + nan, nan + a[4:]
    assert on_device(a, gone, None, kind, True) == ElementCounts(1, unwritten=1, first=3)
    assert on_device(new, a, None, kind, True) == ElementCounts(1, newly_written=1, first=0)
    assert on_device(a, gone, None, kind, False).ulp > 1 << 20


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_all_kernels_assemble_without_spills(tmp_path: Path, arch: str) -> None:
    heads = "\n".join(text.partition(".visible")[0] for text in ALL_PTX[:1])
    body = "\n".join(text[text.index(".visible") :] for text in dict.fromkeys(ALL_PTX))
    (tmp_path / "all.ptx").write_text(heads + body)
    command = [find_tool("ptxas"), "-v", f"-arch={arch}", tmp_path / "all.ptx", "-o", tmp_path / "all.cubin"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {text.split(PREFIX)[1].split("(")[0] for text in ALL_PTX}
    assert made.stderr.count("0 bytes stack frame, 0 bytes spill stores") == len(names)


def test_formats_of_dtypes() -> None:
    assert format_of({"float16"}).width == 2
    assert format_of({"int64"}) == NumberFormat("int64", 8)
    assert format_of({"float16", "int16"}) is format_of({"complex64"}) is format_of(set()) is BITS


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (np.float32(0.1).tobytes(), "float32", "0.100000001"),
        (np.float64(0.1).tobytes(), "float64", "0.10000000000000001"),
        (np.float16(-2.5).tobytes(), "float16", "-2.5"),
        (np.float16(0.1).tobytes(), "float16", "0.099976"),
        (b"\x39", "float8_e4m3fn", "1.12"),
        (b"\xff\xff", "int16", "-1"),
        (b"\xff\xff", "uint16", "65535"),
        (b"\xff", "bytes", "0xff"),
        (np.float64("nan").tobytes(), "float64", "nan"),
    ],
)
def test_an_element_for_people(data: bytes, name: str, text: str) -> None:
    assert element_text(data, FORMATS[name]) == text
