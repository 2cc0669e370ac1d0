"""A kernel's TTIR as a tree of operations, read through MLIR: what is executed, and the types of its values."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from kerntune.errors import InterpreterLimit
from kerntune.gpu.emulator.elements import bytes_of
from kerntune.kernels.compat.operation_attributes import ATTRIBUTES, operation_attributes
from kerntune.kernels.writes import access_of, ir_context, parse_module

WORDS = ("symbol", "sym_name", "callee", "message", "prefix")

READ_IN_TEXT = (
    *ATTRIBUTES, "arith.constant", "tt.trans", "tt.load", "tt.atomic_cas", "tt.reshape", "tt.dot_scaled",
)  # fmt: skip
"""Operations of which something is read in the module's text: MLIR's bindings don't give a constant's value nor an
array, those of Triton 3.6 no number either."""

ON_MEMORY = frozenset(
    f"tt.{name}" for name in (
        "load", "store", "atomic_rmw", "atomic_cas", "atomic_load", "atomic_store", "atomic_poll", "descriptor_load",
        "descriptor_store", "descriptor_gather", "descriptor_scatter", "descriptor_reduce",
    )
)  # fmt: skip

ATOMIC_WORDS = {
    "sem": {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"},
    "scope": {1: "gpu", 2: "cta", 3: "sys"},
}
"""Numbers of attributes (Triton's TritonAttrDefs.td)."""

DESCRIPTOR_UPDATE = re.compile(r"^ *tt\.descriptor_reduce (\w+), ", re.M)
"""What a descriptor updates by; MLIR's bindings give no numbers in Triton 3.6."""

HINT = re.compile(r"tt\.(divisibility|contiguity|constancy) = (?:dense<(\d+|\[[\d, ]*\])> : tensor<(\d+)xi32>)?")
"""What ``tl.multiple_of``, ``tl.max_contiguous`` and ``tl.max_constancy`` leave on the operation that makes a value."""

_VALUE = r"%[\w$.#-]+"
_TARGET = rf"\^bb([1-9][0-9]{{0,5}})(?:\(({_VALUE}(?:, {_VALUE})*) : [^()^]*\))?"
TARGET = re.compile(_TARGET)
BRANCH = re.compile(rf"cf\.br {_TARGET}|cf\.cond_br {_VALUE}, {_TARGET}, {_TARGET}")
"""MLIR's bindings don't say where a branch goes: ``cf.cond_br %c, ^bb1, ^bb2(%x, %y : f32, i32)``."""

BRANCHES = ("cf.br", "cf.cond_br")

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
    pointer = re.fullmatch(r'!tt\.ptr<(.+?)(?:, "constant")?(?:, \d+)?>', inner)
    if pointer is not None:
        return ValueType(shape, "ptr", pointer[1])
    return ValueType(shape, inner)


@dataclass(frozen=True)
class TtirOperation:
    """One operation. ``operands`` and ``results`` are ids of values, ``types`` those of the results. ``hints`` has, by
    the word of :data:`HINT`, a number for each dimension of its result. ``successors`` has the blocks where a branch
    goes on, each with the values that become its arguments: the block for a true condition comes first. ``location`` is
    MLIR's word for where the source has its result, if it has one."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[ValueType, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...] = ()
    hints: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    successors: Successors = ()
    location: str = ""


@dataclass(frozen=True)
class Region:
    """One block of operations with its arguments: of a function's several blocks the first, which leads to others."""

    arguments: tuple[int, ...] = ()
    operations: list[TtirOperation] = field(default_factory=list)


Successors = tuple[tuple[Region, tuple[int, ...]], ...]


@dataclass(frozen=True)
class TtirProgram:
    """A module's functions by name; ``entry`` is the kernel's. ``types`` has the types of all values.

    Of its arguments, by position: ``written`` are those whose memory it may write, ``divisible`` says what the compiler
    took for granted. ``unit`` is the size of the smallest element that it accesses, in bytes. ``makes_pointers``: of
    numbers.
    """

    functions: Mapping[str, TtirOperation]
    entry: str
    types: Mapping[int, ValueType]
    written: frozenset[int]
    divisible: Mapping[int, int]
    unit: int
    makes_pointers: bool = False

    @property
    def blocks(self) -> Iterator[Region]:
        """All blocks, each once."""
        return blocks_in(function.regions[0] for function in self.functions.values())

    @property
    def operations(self) -> Iterator[TtirOperation]:
        """All operations."""
        return (op for block in self.blocks for op in block.operations)

    @property
    def kernel(self) -> Region:
        """What a program of a launch runs."""
        return self.functions[self.entry].regions[0]

    @property
    def argument_types(self) -> list[ValueType]:
        """The types of what the kernel takes."""
        return [self.types[key] for key in self.kernel.arguments]


def blocks_in(regions: Iterable[Region]) -> Iterator[Region]:
    """These blocks, those that they branch to, and those inside of their operations, each once."""
    blocks, seen = list(regions), set[int]()
    for block in blocks:  # which grows
        if id(block) not in seen:
            seen.add(id(block))
            yield block
            for op in block.operations:
                blocks += [*op.regions, *(successor for successor, _ in op.successors)]


@lru_cache(maxsize=64)
def parse_ttir(text: str) -> TtirProgram:
    """The program in a TTIR. :class:`InterpreterLimit` for what can't be read or emulated."""
    if len(text) > MOST_TEXT:
        raise InterpreterLimit(f"its TTIR has {len(text):,} characters, more than {MOST_TEXT:,}")
    context = ir_context()  # it must outlive the module
    try:
        module = parse_module(text, context)
    except Exception as exc:
        raise InterpreterLimit(f"its TTIR can't be read: {(str(exc).splitlines() or [''])[0][:200]}") from None
    return _Reading(module).program()


class _Reading:
    """One pass over a module."""

    def __init__(self, module: Any) -> None:
        self._types: dict[int, ValueType] = {}
        self._accesses: list[int] = []
        self._module = module
        handles: list[Any] = []
        module.walk(handles.append)  # nested operations before the one that holds them
        if len(handles) > MOST_OPERATIONS:
            raise InterpreterLimit(f"its TTIR has {len(handles):,} operations")
        self._handles = handles
        self._text = module.str_nodebug()
        lines = operation_lines(self._text)
        counted = Counter(h.get_name() for h in handles if h.get_num_results())
        read = dict.fromkeys([*READ_IN_TEXT, *(name for name, found in lines.items() if any(map(HINT.search, found)))])
        for name in read:
            if counted[name] != len(lines[name]):
                raise InterpreterLimit(f"its TTIR can't be read: the text has another number of {name}")
        self._lines = {name: iter(lines[name]) for name in read}
        self._prints = iter(_prints(self._text))
        self._updates = iter(DESCRIPTOR_UPDATE.findall(self._text))
        self._blocks: dict[int, Region] = {}
        self._in_region: defaultdict[int, list[Region]] = defaultdict(list)

    def program(self) -> TtirProgram:
        """:class:`InterpreterLimit` for several blocks elsewhere than in a function."""
        functions: dict[str, TtirOperation] = {}
        handles = [handle for handle in self._handles if handle.get_name() != "builtin.module"]
        homes = [self._block(handle.get_block()) for handle in handles]
        branches = self._branches()
        for handle, (block, siblings) in zip(handles, homes, strict=True):
            name = handle.get_name()
            own = [self._in_region[handle.get_region(i).id()] for i in range(handle.get_num_regions())]
            if name != "tt.func" and any(len(blocks) > 1 for blocks in own):
                raise InterpreterLimit("it has several blocks in one region")
            operation = self._operation(handle, name, tuple(blocks[0] if blocks else Region() for blocks in own))
            if name == "tt.func":
                functions[str(operation.attributes.get("sym_name"))] = operation
            if name in BRANCHES:
                operation = replace(operation, successors=self._successors(operation, next(branches), siblings))
            block.operations.append(operation)
        entry = self._module.get_entry_func_name()
        if entry not in functions:
            raise InterpreterLimit("its TTIR has no kernel")
        arguments = enumerate(self._types_of(functions[entry].regions[0].arguments))
        pointers = [i for i, kind in arguments if kind.element in ("ptr", "desc")]
        written = access_of(self._text, module=self._module).writes
        sizes = [pointed_bytes(self._types[key]) for key in self._accesses]
        return TtirProgram(
            functions, entry, self._types, frozenset(p for k, p in enumerate(pointers) if k in written),
            _divisible_arguments(self._text, entry), min(sizes, default=1),
            any(handle.get_name() == "tt.int_to_ptr" for handle in handles),
        )  # fmt: skip

    def _block(self, block: Any) -> tuple[Region, list[Region]]:
        """A block, which is filled later, and those of its region in their order."""
        siblings, key = self._in_region[block.get_parent().id()], block.id()
        if key not in self._blocks:
            arguments = tuple(self._note(block.get_argument(i)) for i in range(block.get_num_arguments()))
            self._blocks[key] = Region(arguments)
            siblings.append(self._blocks[key])
        return self._blocks[key], siblings

    def _branches(self) -> Iterator[str]:
        """The text's branches in the order of the walk. :class:`InterpreterLimit` where it doesn't number a region's
        blocks in their order, from 0: the first one of a function has no label."""
        lines = [_without_strings(line) for line in self._text.split("\n")]
        labels = [int(found[1]) for line in lines if (found := re.match(r"\^bb([1-9][0-9]{0,5})[(:]", line))]
        if labels != [number for blocks in self._in_region.values() for number in range(1, len(blocks))]:
            raise InterpreterLimit("its TTIR can't be read: the text has other blocks")
        branches = [line for line in lines if line.startswith(("cf.br ", "cf.cond_br "))]
        if len(branches) != sum(handle.get_name() in BRANCHES for handle in self._handles):
            raise InterpreterLimit("its TTIR can't be read: the text has another number of branches")
        return iter(branches)

    def _successors(self, op: TtirOperation, line: str, blocks: Sequence[Region]) -> Successors:
        """Where a branch goes on, by its line of text. Values must be as many as the blocks take, and of their types:
        MLIR gives a branch's values without saying for which block they are."""
        targets = TARGET.findall(line) if BRANCH.fullmatch(line) and line.startswith(f"{op.name} ") else []
        values = iter(op.operands[1:] if op.name == "cf.cond_br" else op.operands)
        found = [
            (blocks[int(number)], tuple(islice(values, given.count("%"))))
            for number, given in targets
            if int(number) < len(blocks)
        ]
        agree = all(self._types_of(given) == self._types_of(block.arguments) for block, given in found)
        if not found or len(found) < len(targets) or not agree or any(True for _ in values):
            raise InterpreterLimit(f"its TTIR can't be read: the text has another {op.name}")
        return tuple(found)

    def _operation(self, handle: Any, name: str, regions: tuple[Region, ...]) -> TtirOperation:
        operands = tuple(self._note(handle.get_operand(i)) for i in range(handle.get_num_operands()))
        results = tuple(self._note(handle.get_result(i)) for i in range(handle.get_num_results()))
        line = next(self._lines[name]) if name in self._lines and results else ""
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
        elif name == "tt.print":
            found["hex"], found["signed"] = next(self._prints, (False, (True,) * len(operands)))
        elif name == "tt.descriptor_reduce":
            found["kind"] = next(self._updates, "")
        elif name == "tt.scan":
            found["reverse"] = bool(handle.get_bool_attr("reverse"))
        elif name in ("tt.atomic_rmw", "tt.atomic_cas"):
            words = [word.strip() for word in line.split(",")]
            found["order"], found["scope"] = words[1:3] if name == "tt.atomic_rmw" else words[:2]
        elif name in ("tt.atomic_load", "tt.atomic_store", "tt.atomic_poll"):  # Triton 3.9 has them first
            found["order"], found["scope"] = (words[handle.get_int_attr(k)] for k, words in ATOMIC_WORDS.items())
        elif name == "tt.dot_scaled":
            found["sides"] = _scaled_sides(line)
        elif name == "tt.load":
            found["volatile"] = "isVolatile = true" in line
        elif name == "tt.reshape":
            found["any_order"] = "allow_reorder" in line
        if name in ON_MEMORY:
            self._accesses.append(operands[0])
        location = str(handle.get_result(0).get_loc()) if results else ""
        return TtirOperation(
            name, operands, results, self._types_of(results), found, regions, _hints(line, name), location=location
        )

    def _types_of(self, values: Iterable[int]) -> tuple[ValueType, ...]:
        return tuple(self._types[value] for value in values)

    def _note(self, value: Any) -> int:
        key = int(value.id())
        if key not in self._types:
            self._types[key] = value_type(str(value.get_type()))
        return key


def _prints(text: str) -> list[tuple[bool, tuple[bool, ...]]]:
    """Of each ``tt.print`` whether it prints hexadecimal numbers, and which of its values have a sign."""
    found = re.findall(r'^ *tt\.print "[^"]*" \{hex = (\w+), isSigned = array<i32(?:: ([\d, ]+))?>\}', text, re.M)
    return [(word == "true", tuple(sign != "0" for sign in re.findall(r"\d+", signs))) for word, signs in found]


def _scaled_sides(line: str) -> tuple[tuple[str, bool, bool], ...]:
    """Of each factor its format, whether it has a scale, and whether its bytes hold neighbours along K."""
    given = re.match(r"%\S+?( scale \S+)?, %\S+?( scale \S+)?, %\S+ lhs = (\w+) rhs = (\w+)", line.strip())
    if given is None:
        raise InterpreterLimit("a tt.dot_scaled in its TTIR can't be read")
    return tuple(
        (given[3 + i], given[1 + i] is not None, f"{side}_k_pack = false" not in line)
        for i, side in enumerate(("lhs", "rhs"))
    )


def pointed_bytes(kind: ValueType) -> int:
    """Bytes of what a pointer points to. :class:`InterpreterLimit` for a type that isn't known."""
    return 8 if kind.pointee.startswith("!tt.ptr") else bytes_of(kind.pointee)


def _hints(line: str, name: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for one in HINT.finditer(line):
        word, numbers, rank = one.groups()
        if numbers is None or word in found:
            raise InterpreterLimit(f"a {name} in its TTIR has a {word} that can't be read")
        values = [int(n) for n in numbers.strip("[]").split(",") if n.strip()]
        found[word] = tuple(values * int(rank) if numbers[0] != "[" else values)
    return found


def _divisible_arguments(text: str, entry: str) -> dict[int, int]:
    """By position, what the kernel's arguments are declared to be divisible by."""
    head = next((line for line in text.split("\n") if line.lstrip().startswith(f"tt.func public @{entry}(")), "")
    found = (re.search(r"tt\.divisibility = (\d+)", part) for part in _without_strings(head).split("%")[1:])
    return {position: int(one[1]) for position, one in enumerate(found) if one is not None}


def operation_lines(text: str) -> defaultdict[str, list[str]]:
    """By operation, what follows its name in each line of a module's text, in the order of the walk: an operation comes
    after those in its regions. Only lines that give a value count; strings, as those that a kernel prints, are left
    empty. Of an operation with regions it is the first line and the last."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    around: list[tuple[str, str]] = []
    for line in map(str.strip, text.split("\n")):
        opens = line.endswith("{")
        if line.startswith("}"):
            if not opens and around:  # unlike `} else {`
                name, rest = around.pop()
                found[name].append(f"{rest} {_without_strings(line)}")
            continue
        named = re.match(r'%[^=]+ = "?([\w.]+)"?', line)
        name, rest = (named[1], _without_strings(line[named.end() :])) if named else ("", "")
        if opens:
            around.append((name, rest))
        else:
            found[name].append(rest)
    return found


def _without_strings(line: str) -> str:
    """MLIR writes a quote in a string as \\22, so every second part is outside of strings."""
    return '""'.join(line.split('"')[::2]).strip()
