"""Launches once more with float64 in place of narrower floats: what a kernel computes but for its roundings.

Eight-bit floats stay, for to round to them is what a kernel of quantized numbers is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.elements import constant
from kerntune.gpu.emulator.ttir_program import Region, TtirOperation, TtirProgram, ValueType, blocks_in

T = TypeVar("T")

WIDENED = ("f32", "f16", "bf16")

FORMATS = {"f64": "float64", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
"""Floats that a wider program has, with torch's words."""

OF_BITS = ("arith.bitcast", "tt.bitcast")

ROUNDING = frozenset((
    "arith.addf", "arith.divf", "arith.mulf", "arith.remf", "arith.sitofp", "arith.subf", "arith.truncf",
    "arith.uitofp", "tt.atomic_rmw", "tt.dot", "tt.dot_scaled", "tt.elementwise_inline_asm", "tt.extern_elementwise",
    "tt.fp_to_fp", "tt.precise_divf", "tt.precise_sqrt",
))  # fmt: skip
"""Operations that round, beside functions of the dialect ``math``; sums and scans consist of these."""


class Launched(NamedTuple):
    """A kernel of Triton's that was launched, and its program."""

    jit: Any
    program: TtirProgram


_SEEN: ContextVar[list[Launched] | None] = ContextVar("launches that are noted", default=None)
_WIDER: ContextVar[Iterator[Launched] | None] = ContextVar("launches that are done in float64", default=None)


@contextmanager
def holding(variable: ContextVar[T | None], value: T) -> Iterator[T]:
    """A context variable has this value meanwhile."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def noted_launches() -> AbstractContextManager[list[Launched]]:
    """What is interpreted within the context, in order."""
    return holding(_SEEN, [])


def wider_launches(launches: Sequence[Launched]) -> AbstractContextManager[object]:
    """The same launches again within the context, in float64, where their tensors are."""
    return holding(_WIDER, iter(launches))


def note(jit: Any, program: TtirProgram) -> None:
    """An interpreted launch, which counts where they are noted."""
    if (seen := _SEEN.get()) is not None:
        seen.append(Launched(jit, program))


def wider_program(jit: Any, dtypes: Iterable[str | None]) -> TtirProgram | None:
    """The next launch's program in float64. None elsewhere than in :func:`wider_launches`, of another kernel, where its
    pointers and descriptors lead to other types (``dtypes``, torch's words), or it reads the bits of floats."""
    launches = _WIDER.get()
    launched = None if launches is None else next(launches, None)
    if launched is None or launched.jit is not jit:
        return None
    try:
        found = _widened(launched.program)
    except InterpreterLimit:
        return None
    pointees, given = [kind.pointee for kind in found.argument_types if kind.pointee], list(dtypes)
    agree = len(pointees) == len(given) and all(map(_agree, pointees, given))
    return found if agree else None


def _agree(pointee: str, dtype: str | None) -> bool:
    return dtype is None or FORMATS.get(pointee, "") == (dtype if "float" in dtype else "")


def reduces_by_order(program: TtirProgram) -> bool:
    """Whether a reduction or scan compares floats, as ``tl.max`` with indices does: beside NaN, either may stay."""
    reduced = (region for op in program.operations if op.name in ("tt.reduce", "tt.scan") for region in op.regions)
    return any(op.name == "arith.cmpf" for block in blocks_in(reduced) for op in block.operations)


def rounds(program: TtirProgram) -> bool:
    """Whether it computes anything in floats narrower than float64, or reads the bits of floats."""

    def rounded(op: TtirOperation) -> bool:
        if op.name in OF_BITS:
            kinds = (*op.types, *map(program.types.__getitem__, op.operands))
            return any({kind.element, kind.pointee} & {"f64", *WIDENED} for kind in kinds)
        found = op.name in ROUNDING or (op.name.startswith("math.") and op.name != "math.absf")
        return found and any(kind.element in WIDENED for kind in op.types)

    return any(map(rounded, program.operations))


def _widened(program: TtirProgram) -> TtirProgram:
    regions: dict[int, Region] = {}

    def wide_region(region: Region) -> Region:
        if id(region) not in regions:
            regions[id(region)] = Region(region.arguments)
            regions[id(region)].operations.extend(map(wide_operation, region.operations))
        return regions[id(region)]

    def wide_operation(op: TtirOperation) -> TtirOperation:
        attributes = dict(op.attributes)
        if op.name in OF_BITS and any(
            _wide(kind) != kind for kind in (*op.types, *map(program.types.get, op.operands))
        ):
            raise InterpreterLimit("it reads the bits of floats")
        if op.name == "arith.constant" and op.types[0].element in WIDENED:
            attributes["text"] = repr(float(constant(attributes["text"], op.types[0].element)))
        return replace(
            op,
            types=tuple(map(_wide, op.types)),
            attributes=attributes,
            regions=tuple(map(wide_region, op.regions)),
            successors=tuple((wide_region(region), given) for region, given in op.successors),
        )

    functions = {name: wide_operation(op) for name, op in program.functions.items()}
    types = {key: _wide(kind) for key, kind in program.types.items()}
    return replace(program, functions=functions, types=types)


def _wide(kind: ValueType | None) -> ValueType:
    assert kind is not None
    element = "f64" if kind.element in WIDENED else kind.element
    return replace(kind, element=element, pointee="f64" if kind.pointee in WIDENED else kind.pointee)
