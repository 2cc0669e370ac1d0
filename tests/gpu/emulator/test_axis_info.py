"""The widths of loads and stores that the emulator takes for a GPU's are those of the code that Triton compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kerntune.gpu.emulator.axis_info import axis_infos
from kerntune.gpu.emulator.promises import access_width
from kerntune.gpu.emulator.ttir_program import parse_ttir, pointed_bytes

BLOCK = 1024
"""Of 4 warps each thread has 8: no access is narrower because there are too few elements."""

TILE = 64


@triton.jit
def plain(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + at, tl.load(x + at, mask=at < n), mask=at < m)


@triton.jit
def wraps(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + at % n, tl.load(x + tl.max_contiguous(tl.multiple_of(at % m, B), B)))


@triton.jit
def only_contiguous(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(o + at, tl.load(x + tl.max_contiguous(n - 1 - at, B)))


@triton.jit
def only_divisible(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(o + tl.multiple_of(at + m, 4), tl.load(x + tl.multiple_of(at % m, 16)))


@triton.jit
def divisible_rows(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i, j = tl.multiple_of(tl.arange(0, B) % m, B), tl.arange(0, B)
    tl.store(o + i[None, :] * n + j[:, None], tl.load(x + i[:, None] * m + j[None, :]))


@triton.jit
def pairs(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.load(o + tl.arange(0, B)).to(tl.int32)
    near = tl.max_contiguous(tl.multiple_of(at, 2), 2)
    tl.store(o + m + tl.arange(0, B), tl.load(x + near + n) + tl.load(x + near * 2))


@triton.jit
def constant_numbers(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(o + at, tl.load(x + tl.max_constancy(at // 3, 4), mask=at < m))


@triton.jit
def constant_masks(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    some = tl.max_constancy(at < m, 4) & (at < n)
    tl.store(o + at, tl.load(x + at, mask=some | (at > n)), mask=some)


@triton.jit
def hinted_masks(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    hinted = tl.max_contiguous(tl.multiple_of(at + m, 16), 16)
    tl.store(o + at, tl.load(x + at, mask=hinted < n), mask=hinted < n + 4)


@triton.jit
def branch(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    if m > 1000:
        k = tl.load(x).to(tl.int32)
    else:
        k = tl.load(x + 1).to(tl.int32)
        tl.store(x, 1)
    at = tl.arange(0, B)
    tl.store(o + at, tl.load(x + tl.multiple_of(k, 16) + at))


@triton.jit
def loop(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.max_contiguous(tl.multiple_of((tl.program_id(0) * B + tl.arange(0, B)) % m, B), B)
    p, q = x + at, o + at
    for _ in range(m):
        tl.store(q, tl.load(p))
        p += n
        q += tl.multiple_of(m, 4)


@triton.jit
def reduced(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    k = tl.multiple_of(tl.max(tl.load(x + at).to(tl.int32), 0), 2)
    tl.store(o + k + at, tl.load(x + k * 2 + at))


@triton.jit
def picked(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    far = tl.max_contiguous(tl.multiple_of(at + m, 8), 8)
    tl.store(o + tl.where(m > 3, far, at), tl.load(x + tl.minimum(far, at)))


@triton.jit
def shifted(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    k = tl.multiple_of(tl.program_id(0) * m, 32)
    tl.store(o + (k >> 2) + at, tl.load(x + (k // 16) + at) + tl.load(x + (k << 1) + (at.to(tl.int64) << 0)))


@triton.jit
def loaded_masks(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    words = tl.load(x.to(tl.pointer_type(tl.int16), bitcast=True) + at // 8)
    tl.store(
        o + at, tl.load(x + at, mask=(words.to(tl.int32) != 3) & (n > 4)), mask=words.to(tl.uint16).to(tl.uint32) != m
    )


@triton.jit
def differences(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    far = tl.max_contiguous(tl.multiple_of(at + m, 16), 16) - n
    some = (at // 4 % 2 == 0) | (at // 8 == 3)
    tl.store(o + tl.maximum(at, far - n), tl.load(x + far, mask=at % 16 // 2 == 0), mask=some ^ (at < n))


@triton.jit
def counted(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at, first = tl.arange(0, B), n * 0
    while first < m:
        tl.store(o + first + at, tl.load(x + first + at // m + at))
        first += n


@triton.jit
def edges(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    back = tl.max_contiguous(tl.multiple_of(n - at, 16), B)
    tl.store(o + tl.where(at // 4 % 2 == 0, at, at + n), tl.load(x + at, mask=n > at), mask=n <= at)
    tl.store(o + n - at, tl.load(x + at - back))


@triton.jit(noinline=True)
def doubled(x, o, k, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)
    tl.store(o + at + k, 2 * tl.load(x + at))


@triton.jit
def call(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    doubled(x + tl.multiple_of(m, 4), o, n, B)
    doubled(x, o, tl.multiple_of(n + m, 8), B)


@triton.jit
def product(a, c, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * B + tl.arange(0, B)
    rows = tl.max_contiguous(tl.multiple_of(i % m, B), B)
    x = tl.load(a + rows[:, None] * n + tl.arange(0, B)[None, :])
    y = tl.load(a + tl.arange(0, B)[:, None] * n + rows[None, :], mask=tl.arange(0, B)[:, None] < n)
    tl.store(
        c + i[:, None] * m + rows[None, :], tl.dot(x, y).to(tl.float16), mask=(i[:, None] < m) & (rows[None, :] < n)
    )


@triton.jit
def columns(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i, j = tl.arange(0, B), tl.max_contiguous(tl.multiple_of(tl.arange(0, B) % m, B), B)
    turned = tl.trans(x + i[None, :] + j[:, None] * n)
    tl.store(o + j[:, None] + i[None, :] * n, tl.load(turned))


@triton.jit
def two_axes(x, o, n, m, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, B)[:, None] * m + tl.arange(0, B)[None, :]
    hinted = tl.max_contiguous(tl.multiple_of(at, [1, 8]), [1, 4])
    tl.store(o + at, tl.load(x + hinted))


FLAT = [
    plain, wraps, only_contiguous, only_divisible, pairs, constant_numbers, constant_masks, hinted_masks, branch, loop,
    reduced, picked, shifted, loaded_masks, differences, counted, call, edges,
]  # fmt: skip
TILES = [divisible_rows, product, columns, two_axes]


def in_code(ptx: str) -> dict[str, set[int]]:
    """Bytes that a load or a store of the code takes at once."""
    found = re.findall(r"\b(ld|st)\.(?:\w+\.)*?global\.(?:L\S+?\.|v(\d)\.|\w\w+\.)*?(?:v(\d)\.)?[bfus](\d+)", ptx)
    return {
        word: {int(a or b or 1) * int(bits) // 8 for name, a, b, bits in found if name == word} for word in ("ld", "st")
    }


def in_model(text: str) -> dict[str, set[int]]:
    program = parse_ttir(text)
    infos = axis_infos(program, hinted=True)

    def widths(name: str) -> Iterator[int]:
        for op in program.operations:
            if op.name == name:
                kind = program.types[op.operands[0]]
                _, width = access_width(op, kind, infos)
                yield width * pointed_bytes(kind)

    return {"ld": set(widths("tt.load")), "st": set(widths("tt.store"))}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*FLAT, *TILES], ids=lambda kernel: kernel.__name__)
def test_accesses_are_as_wide_as_in_compiled_code(kernel: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is unset
    types = dict(zip(kernel.arg_names, ("*fp16", "*fp16", "i32", "i32", "constexpr"), strict=True))
    known = {(i,): [["tt.divisibility", 16]] for i in range(3)}
    source = ASTSource(kernel, types, {(4,): TILE if kernel in TILES else BLOCK}, known)
    asm = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
    assert in_code(asm["ptx"]) == in_model(asm["ttir"])
