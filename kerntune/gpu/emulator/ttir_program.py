"""A kernel's TTIR as a tree of operations, read through MLIR: what is executed, and the types of its values."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kerntune.errors import InterpreterLimit
from kerntune.kernels.compat import ATTRIBUTES, operation_attributes
from kerntune.kernels.writes import parse_module

WORDS = ("symbol", "sym_name", "callee")

READ_IN_TEXT = (*ATTRIBUTES, "arith.constant", "tt.trans")
"""Operations of which something is read in the module's text: MLIR's bindings don't give a constant's value nor an
array, those of Triton 3.6 no number either."""

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
        lines = operation_lines(module.str_nodebug())
        counted = Counter(h.get_name() for h in handles)
        for name in READ_IN_TEXT:
            if counted[name] != len(lines[name]):
                raise InterpreterLimit(f"its TTIR can't be read: the text has another number of {name}")
        self._lines = {name: iter(lines[name]) for name in READ_IN_TEXT}

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
        line = next(self._lines[name]) if name in READ_IN_TEXT else ""
        found: dict[str, Any] = {**operation_attributes(handle, name, line)}
        for key in WORDS:
            word = handle.get_flat_symbol_ref_attr(key) if key == "callee" else handle.get_str_attr(key)
            if word is not None:
                found[key] = str(word)
        if name == "arith.constant":
            found["text"] = line if line in ("true", "false") else line.rpartition(" : ")[0]
        elif name == "tt.trans":
            order = line.partition("order = array<i32: ")[2].partition(">")[0]
            found["order"] = tuple(map(int, order.split(",")))
        elif name == "tt.scan":
            found["reverse"] = bool(handle.get_bool_attr("reverse"))
        return TtirOperation(name, operands, results, tuple(self._types[r] for r in results), found, regions)

    def _note(self, value: Any) -> int:
        key = int(value.id())
        if key not in self._types:
            self._types[key] = value_type(str(value.get_type()))
        return key


def operation_lines(text: str) -> defaultdict[str, list[str]]:
    """By operation, what follows its name in each line of a module's text, in the order of the walk: an operation comes
    after those in its regions. Only lines that give a value count; strings, as those that a kernel prints, are left
    empty."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    around: list[tuple[str, str]] = []
    for line in map(str.strip, text.split("\n")):
        opens = line.endswith("{")
        if line.startswith("}"):
            if not opens and around:  # unlike `} else {`
                name, rest = around.pop()
                found[name].append(rest)
            continue
        named = re.match(r'%[^=]+ = "?([\w.]+)"?', line)
        # MLIR writes a quote in a string as \22, so every second part is outside of strings
        name, rest = (named[1], '""'.join(line[named.end() :].split('"')[::2]).strip()) if named else ("", "")
        if opens:
            around.append((name, rest))
        else:
            found[name].append(rest)
    return found
