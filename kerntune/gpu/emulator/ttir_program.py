"""A kernel's TTIR as a tree of operations, read through MLIR: what is executed, and the types of its values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kerntune.errors import InterpreterLimit
from kerntune.kernels.writes import parse_module

ATTRIBUTES = (
    "predicate", "axis", "start", "end", "atomic_rmw_op", "inputPrecision", "reverse", "padding", "rounding",
    "propagateNan", "kind", "value", "boundaryCheck",
)  # fmt: skip
"""Attributes of operations that decide what is computed, those that MLIR's bindings give as numbers."""

WORDS = ("symbol", "sym_name", "callee")

MOST_TEXT = 4 << 20
"""Bytes of one kernel's TTIR: the largest of the public suites has 300 KB."""

MOST_OPERATIONS = 200_000


@dataclass(frozen=True)
class ValueType:
    """``shape`` is empty of a scalar. ``element`` is MLIR's word (``i32``, ``bf16``), ``ptr`` for an address, of which
    ``pointee`` has what lies there."""

    shape: tuple[int, ...]
    element: str
    pointee: str = ""


@lru_cache(maxsize=4096)
def value_type(text: str) -> ValueType:
    """The type of ``tensor<128x!tt.ptr<f32>>``, ``!tt.ptr<f32>``, ``i32`` and the like."""
    inner, shape = text, tuple[int, ...]()
    if text.startswith("!tt.tensordesc<"):
        block = text.removeprefix("!tt.tensordesc<").removesuffix(">")
        block = block.removeprefix("tensor<").removesuffix(">").partition(",")[0]
        *sizes, element = block.split("x")
        return ValueType(tuple(map(int, sizes)), "desc", element)
    if text.startswith("tensor<"):
        found = re.fullmatch(r"tensor<((?:\d+x)*)(.*)>", text, re.S)
        assert found is not None
        shape, inner = tuple(int(n) for n in found[1].split("x") if n), found[2]
        inner = inner.partition(", #")[0]
    pointer = re.fullmatch(r"!tt\.ptr<(.+?)(?:, \d+)?>", inner)
    if pointer is not None:
        return ValueType(shape, "ptr", pointer[1])
    return ValueType(shape, inner)


@dataclass(frozen=True)
class TtirOperation:
    """One operation. ``operands`` and ``results`` are ids of values, ``types`` those of the results."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[ValueType, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class Region:
    """One block of operations with its arguments."""

    arguments: tuple[int, ...] = ()
    operations: list[TtirOperation] = field(default_factory=list)


@dataclass(frozen=True)
class TtirProgram:
    """A module's functions by name; ``entry`` is the kernel's. ``types`` has the types of all values."""

    functions: Mapping[str, TtirOperation]
    entry: str
    types: Mapping[int, ValueType]

    @property
    def kernel(self) -> Region:
        """What a program of a launch runs."""
        return self.functions[self.entry].regions[0]


@lru_cache(maxsize=64)
def parse_ttir(text: str) -> TtirProgram:
    """The program in a TTIR. :class:`InterpreterLimit` for what can't be read or emulated."""
    from triton._C.libtriton import ir

    if len(text) > MOST_TEXT:
        raise InterpreterLimit(f"its TTIR has {len(text):,} characters, more than {MOST_TEXT:,}")
    context = ir.context()  # it must outlive the module
    ir.load_dialects(context)
    try:
        module = parse_module(text, context)
    except Exception as exc:
        raise InterpreterLimit(f"its TTIR can't be read: {(str(exc).splitlines() or [''])[0][:200]}") from None
    return _Reading(module).program()


class _Reading:
    """One pass over a module."""

    def __init__(self, module: Any) -> None:
        self._types: dict[int, ValueType] = {}
        self._module = module
        handles: list[Any] = []
        module.walk(handles.append)  # nested operations before the one that holds them
        if len(handles) > MOST_OPERATIONS:
            raise InterpreterLimit(f"its TTIR has {len(handles):,} operations")
        self._handles = handles
        text = module.str_nodebug()
        self._constants = _constants(text)
        self._orders = _orders(text)

    def program(self) -> TtirProgram:
        """:class:`InterpreterLimit` for control flow between blocks."""
        regions: defaultdict[int, list[TtirOperation]] = defaultdict(list)
        arguments: dict[int, tuple[int, ...]] = {}
        blocks: defaultdict[int, set[int]] = defaultdict(set)
        functions: dict[str, TtirOperation] = {}
        for handle in self._handles:
            name = handle.get_name()
            if name == "builtin.module":
                continue
            if name.startswith("cf."):
                raise InterpreterLimit(f"it branches between blocks ({name}: a return inside of an if or a loop)")
            own = [handle.get_region(i).id() for i in range(handle.get_num_regions())]
            if any(len(blocks[i]) > 1 for i in own):
                raise InterpreterLimit("it has several blocks in one region")
            inside = tuple(Region(arguments.get(i, ()), regions.pop(i, [])) for i in own)
            operation = self._operation(handle, name, inside)
            if name == "tt.func":
                functions[str(operation.attributes.get("sym_name"))] = operation
            block = handle.get_block()
            region = block.get_parent().id()
            blocks[region].add(block.id())
            arguments[region] = tuple(self._note(block.get_argument(i)) for i in range(block.get_num_arguments()))
            regions[region].append(operation)
        entry = self._module.get_entry_func_name()
        if entry not in functions:
            raise InterpreterLimit("its TTIR has no kernel")
        return TtirProgram(functions, entry, self._types)

    def _operation(self, handle: Any, name: str, regions: tuple[Region, ...]) -> TtirOperation:
        operands = tuple(self._note(handle.get_operand(i)) for i in range(handle.get_num_operands()))
        results = tuple(self._note(handle.get_result(i)) for i in range(handle.get_num_results()))
        found: dict[str, Any] = {}
        for key in ATTRIBUTES:
            number = handle.get_bool_attr(key) if key in ("reverse",) else handle.get_int_attr(key)
            if number is not None:
                found[key] = number
        for key in WORDS:
            word = handle.get_flat_symbol_ref_attr(key) if key == "callee" else handle.get_str_attr(key)
            if word is not None:
                found[key] = str(word)
        if name == "arith.constant":
            found["text"] = next(self._constants)
        elif name == "tt.trans":
            found["order"] = tuple(int(n) for n in next(self._orders).split(","))
        return TtirOperation(name, operands, results, tuple(self._types[r] for r in results), found, regions)

    def _note(self, value: Any) -> int:
        key = int(value.id())
        if key not in self._types:
            self._types[key] = value_type(str(value.get_type()))
        return key


def _constants(text: str) -> Iterator[str]:
    """The values of constants in the order of the text, which is that of the walk: constants hold no others. Only lines
    that begin so count, not what a kernel prints."""
    for line in text.split("\n"):
        found = re.match(r"\s*%\S+ = arith\.constant (.*)", line)
        if found:
            rest = found[1]
            yield rest if rest in ("true", "false") else rest.rpartition(" : ")[0]


def _orders(text: str) -> Iterator[str]:
    """The order of dimensions of each transposition, as a module's text has it."""
    for line in text.splitlines():
        name, is_trans, rest = line.strip().partition(" = tt.trans ")
        _, has_order, order = rest.partition("order = array<i32: ")
        if is_trans and has_order and name.startswith("%") and " " not in name:
            yield order.partition(">")[0]
