"""Executes the programs of an emulated launch, one after the other, on a flat memory."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kerntune.errors import InterpreterLimit, KernelTimeout
from kerntune.gpu.emulator.elements import (
    BINARY,
    TERNARY,
    UNARY,
    bytes_of,
    compare_floats,
    compare_integers,
    constant,
    converted,
    cut_to_tf32,
    extern,
    from_bits,
    numpy_of,
    product_of_parts,
    rounded,
    to_bits,
    unsigned,
    updated,
)
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.ttir_program import Region, TtirOperation, TtirProgram, ValueType

ValueTable = dict[int, Any]

CONVERSIONS = frozenset(
    f"arith.{name}" for name in ("extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "extf", "truncf",
                                 "index_cast", "index_castui")
)  # fmt: skip

WITHOUT_RESULT = ("scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.assert",
                  "tt.print", "llvm.intr.assume", "gpu.barrier", "ttg.barrier")  # fmt: skip

PAD_NAN = 2
"""``tt.PaddingOption`` (TritonAttrDefs.td): what a descriptor gives outside of its tensor; 0 otherwise."""

MOST_SHUFFLED = 1 << 22
"""Programs whose order is drawn: of more, no replay comes to the end."""

MOST_CALLS = 64
"""Depth of calls: kernels don't recurse."""


class Machine:
    """One kernel on one memory. ``deadline`` is of :func:`time.monotonic`.

    ``chance`` draws the order of the programs, which no GPU promises. Without it they run in ascending order, in which
    none waits for one that has not run.
    """

    def __init__(self, program: TtirProgram, memory: FlatMemory, deadline: float, chance: random.Random | None) -> None:
        self._program, self._memory, self._deadline, self._chance = program, memory, deadline, chance
        self._grid, self._place = (1, 1, 1), (0, 0, 0)
        self._depth = 0
        self._constants: dict[int, Any] = {}

    def launch(self, arguments: Sequence[Any], grid: tuple[int, int, int]) -> None:
        """Run every program. :class:`InterpreterLimit` for what can't be emulated, :class:`KernelFault` for a wrong
        address, :class:`KernelTimeout` at the deadline."""
        kernel = self._program.kernel
        if len(arguments) != len(kernel.arguments):
            raise InterpreterLimit(f"its TTIR takes {len(kernel.arguments)} arguments, the launch has {len(arguments)}")
        given = {key: self._argument(key, value) for key, value in zip(kernel.arguments, arguments, strict=True)}
        self._grid = grid
        with np.errstate(all="ignore"):
            for number in self._order(math.prod(grid)):
                rest, x = divmod(number, grid[0])
                z, y = divmod(rest, grid[1])
                self._place = (x, y, z)
                self._run(kernel, dict(given))

    def _order(self, count: int) -> Iterable[int]:
        numbers = range(count)
        if self._chance is None or count > MOST_SHUFFLED:
            return numbers
        return self._chance.sample(numbers, count)

    def _argument(self, key: int, value: Any) -> np.ndarray:
        kind = self._program.types[key]
        if kind.shape or kind.element == "desc":
            raise InterpreterLimit("it takes a tensor descriptor that the host makes")
        if kind.element in ("ptr", "i64"):
            return np.asarray(int(value) & (1 << 64) - 1, np.uint64).view(np.int64)
        if kind.element.startswith("i"):
            return converted("arith.trunci", np.asarray(int(value)), "i64", kind.element)
        return rounded(float(value), kind.element)

    # control

    def _run(self, region: Region, values: ValueTable) -> TtirOperation | None:
        """Execute a block; its last operation, which says what it passes on."""
        if time.monotonic() > self._deadline:
            raise KernelTimeout("it has not ended within the time for emulating it")
        last = None
        for last in region.operations:
            handler = HANDLERS.get(last.name)
            if handler is None:
                raise InterpreterLimit(f"{last.name} can't be emulated")
            values.update(zip(last.results, handler(self, last, values), strict=True))
        return last

    def _passed(self, region: Region, values: ValueTable) -> list[Any]:
        last = self._run(region, values)
        return [] if last is None else [values[o] for o in last.operands]

    def for_loop(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        low, high, step, *carried = (values[o] for o in op.operands)
        body = op.regions[0]
        at, kind = int(low), np.asarray(low).dtype
        if int(step) <= 0:
            raise InterpreterLimit("a loop has no positive step")
        while at < int(high):
            values.update(zip(body.arguments, [np.asarray(at, kind), *carried], strict=True))
            carried = self._passed(body, values)
            at += int(step)
        return carried

    def while_loop(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        before, after = op.regions
        carried = [values[o] for o in op.operands]
        while True:
            values.update(zip(before.arguments, carried, strict=True))
            goes_on, *passed = self._passed(before, values)
            if not bool(goes_on):
                return passed
            values.update(zip(after.arguments, passed, strict=True))
            carried = self._passed(after, values)

    def branch(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        chosen = op.regions[0 if bool(values[op.operands[0]]) else 1]
        return self._passed(chosen, values) if chosen.operations else []

    def call(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        name = str(op.attributes.get("callee", "")).removeprefix("@")
        function = self._program.functions.get(name)
        if function is None or self._depth >= MOST_CALLS:
            raise InterpreterLimit(f"it calls {name or 'a function'}, which can't be emulated")
        body = function.regions[0]
        inner = {k: values[o] for k, o in zip(body.arguments, op.operands, strict=True)}
        self._depth += 1
        try:
            return self._passed(body, inner)
        finally:
            self._depth -= 1

    def nothing(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return ()

    # values

    def constant(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        key = op.results[0]
        if key not in self._constants:
            kind = op.types[0]
            number = constant(op.attributes["text"], kind.element)
            self._constants[key] = np.broadcast_to(number, kind.shape)
        return (self._constants[key],)

    def poison(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        return (np.zeros(kind.shape, numpy_of(kind.element)),)

    def elementwise(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        function = BINARY.get(op.name) or UNARY.get(op.name) or TERNARY[op.name]
        found = function(*(values[o] for o in op.operands))
        element = op.types[0].element
        kept = element in ("f32", "f64", "f16") and getattr(found, "dtype", None) == numpy_of(element)
        return (found if kept or element.startswith("i") else rounded(found, element),)

    def compare(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        compare = compare_integers if op.name == "arith.cmpi" else compare_floats
        return (compare(op.attributes["predicate"], *(values[o] for o in op.operands)),)

    def select(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.where(*(values[o] for o in op.operands)),)

    def convert(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        source = self._program.types[op.operands[0]].element
        return (converted(op.name, np.asarray(values[op.operands[0]]), source, op.types[0].element),)

    def round_float(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        value, element = values[op.operands[0]], op.types[0].element
        if op.attributes.get("rounding") == "rtz":
            raise InterpreterLimit("it converts floats toward zero")
        return (rounded(value, element),)

    def bitcast(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        source, target = self._program.types[op.operands[0]].element, op.types[0].element
        value = np.asarray(values[op.operands[0]])
        if source == target or "ptr" in (source, target):
            return (value,)
        bits = np.ascontiguousarray(to_bits(value, source))
        return (from_bits(bits, target).reshape(value.shape),)

    def extern(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        found = extern(str(op.attributes.get("symbol", "")))(*(np.asarray(values[o]) for o in op.operands))
        return (rounded(found, op.types[0].element),)

    def clamp(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        x, low, high = (values[o] for o in op.operands)
        inside = np.fmin(np.fmax(x, low), high)
        return (np.where(np.isnan(x), x, inside) if op.attributes["propagateNan"] == "all" else inside,)

    # shapes

    def program_id(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.asarray(self._place[op.attributes["axis"]], np.int32),)

    def num_programs(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.asarray(self._grid[op.attributes["axis"]], np.int32),)

    def make_range(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32),)

    def splat(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.broadcast_to(values[op.operands[0]], op.types[0].shape),)

    def reshape(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.reshape(values[op.operands[0]], op.types[0].shape),)

    def expand(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.expand_dims(values[op.operands[0]], op.attributes["axis"]),)

    def transpose(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.transpose(values[op.operands[0]], op.attributes["order"]),)

    def concatenate(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.concatenate([values[o] for o in op.operands]),)

    def join(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.stack([values[o] for o in op.operands], axis=-1),)

    def split(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        value = values[op.operands[0]]
        return (value[..., 0], value[..., 1])

    def gather(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        source, indices = (values[o] for o in op.operands)
        return (np.take_along_axis(source, unsigned(indices).astype(np.int64), op.attributes["axis"]),)

    def histogram(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        source = np.asarray(values[op.operands[0]])
        if len(op.operands) > 1:
            source = source[np.asarray(values[op.operands[1]])]
        bins = op.types[0].shape[0]
        inside = source[(source >= 0) & (source < bins)]
        return (np.bincount(inside.astype(np.int64).ravel(), minlength=bins).astype(np.int32),)

    # reductions

    def reduce(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        axis = op.attributes["axis"]
        parts = [np.moveaxis(np.asarray(values[o]), axis, 0) for o in op.operands]
        while len(parts[0]) > 1:
            half = len(parts[0]) // 2
            rest = [p[2 * half :] for p in parts]
            pairs = self._combined(op, values, [p[:half] for p in parts], [p[half : 2 * half] for p in parts])
            parts = [np.concatenate([a, b]) if len(b) else a for a, b in zip(pairs, rest, strict=True)]
        return tuple(p[0] for p in parts)

    def scan(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        axis, back = op.attributes["axis"], op.attributes["reverse"]
        parts = [np.moveaxis(np.array(values[o]), axis, 0) for o in op.operands]
        parts = [p[::-1] if back else p for p in parts]
        step = 1
        while step < len(parts[0]):
            made = self._combined(op, values, [p[:-step] for p in parts], [p[step:] for p in parts])
            parts = [np.concatenate([p[:step], m]) for p, m in zip(parts, made, strict=True)]
            step *= 2
        return tuple(np.moveaxis(p[::-1] if back else p, 0, axis) for p in parts)

    def _combined(self, op: TtirOperation, values: ValueTable, left: list[Any], right: list[Any]) -> list[Any]:
        """The reduction's own operations on many pairs at once: they are elementwise."""
        body = op.regions[0]
        inner = dict(values)
        inner.update(zip(body.arguments, [*left, *right], strict=True))
        return [np.broadcast_to(x, left[0].shape) for x in self._passed(body, inner)]

    def dot(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        a, b, c = (values[o] for o in op.operands)
        elements = [self._program.types[o].element for o in op.operands[:2]]
        if op.types[0].element == "i32":
            return (np.matmul(a.astype(np.int32), b.astype(np.int32)) + c,)
        wide = np.float64 if "f64" in elements else np.float32
        a, b = a.astype(wide), b.astype(wide)
        how = op.attributes["inputPrecision"] if elements == ["f32", "f32"] else ""
        if how == "tf32":
            a, b = cut_to_tf32(a), cut_to_tf32(b)
        product = product_of_parts(a, b, how) if how in ("bf16x3", "bf16x6") else np.matmul(a, b)
        return (rounded(product + c.astype(wide), op.types[0].element),)

    # memory

    def _with_mask(self, op: TtirOperation, values: ValueTable, shape: Sequence[int]) -> Iterable[np.ndarray]:
        """Addresses, values and mask of an operation that writes; all is written where it has none."""
        addresses, value, *mask = (values[o] for o in op.operands)
        return (np.broadcast_to(x, shape) for x in (addresses, value, *(mask or [True])))

    def add_pointer(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        pointer, offset = values[op.operands[0]], values[op.operands[1]]
        size = bytes_of(op.types[0].pointee) if not op.types[0].pointee.startswith("!tt.ptr") else 8
        return (pointer + offset.astype(np.int64) * size,)

    def load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, *more = (values[o] for o in op.operands)
        other = more.pop() if len(more) > 1 else self._memory.undefined(kind.element)
        addresses, mask = (np.broadcast_to(x, kind.shape) for x in (addresses, *(more or [True])))
        found = np.array(np.broadcast_to(other, kind.shape))
        if mask.any():
            found[mask] = self._memory.load(addresses[mask], kind.element)
        return (found,)

    def store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = self._program.types[op.operands[1]]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        if mask.any():
            self._memory.store(addresses[mask], value[mask], kind.element)
        return ()

    def atomic(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, value, mask = self._with_mask(op, values, kind.shape)
        old = np.zeros(kind.shape, numpy_of(kind.element))
        distinct = len(np.unique(addresses[mask])) == np.count_nonzero(mask)
        for at in [mask] if distinct else (tuple(index[:, None]) for index in np.argwhere(mask)):
            old[at] = self._memory.load(addresses[at], kind.element)
            new = updated(op.attributes["atomic_rmw_op"], old[at], value[at], kind.element)
            self._memory.store(addresses[at], new, kind.element)
        return (old,)

    def compare_and_swap(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        kind = op.types[0]
        addresses, expected, new = (np.broadcast_to(values[o], kind.shape) for o in op.operands)
        old = np.zeros(kind.shape, numpy_of(kind.element))
        for at in np.ndindex(kind.shape):
            found = self._memory.load(addresses[at].reshape(1), kind.element)
            if found[0] == expected[at]:
                self._memory.store(addresses[at].reshape(1), np.asarray(new[at]).reshape(1), kind.element)
            old[at] = found[0]
        return (old,)

    # descriptors that the kernel makes itself

    def make_descriptor(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        base, *rest = (values[o] for o in op.operands)
        rank = len(op.types[0].shape)
        sizes, strides = [int(x) for x in rest[:rank]], [int(x) for x in rest[rank : 2 * rank]]
        outside = math.nan if op.attributes["padding"] == PAD_NAN else 0
        return ((int(base), sizes, strides, op.types[0], outside),)

    def _descriptor_places(
        self, op: TtirOperation, values: ValueTable, first: int
    ) -> tuple[np.ndarray, np.ndarray, ValueType]:
        base, sizes, strides, kind, _ = values[op.operands[0]]
        starts = [int(values[o]) for o in op.operands[first : first + len(sizes)]]
        inside: Any = np.ones(kind.shape, np.bool_)
        place: Any = np.zeros(kind.shape, np.int64)
        for axis, (size, stride, start) in enumerate(zip(sizes, strides, starts, strict=True)):
            along = start + np.arange(kind.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
            inside, place = inside & (along >= 0) & (along < size), place + along * stride
        return base + place * bytes_of(kind.pointee), np.asarray(inside), kind

    def descriptor_load(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        places, inside, kind = self._descriptor_places(op, values, 1)
        found = np.full(kind.shape, values[op.operands[0]][-1], numpy_of(kind.pointee))
        if inside.any():
            found[inside] = self._memory.load(places[inside], kind.pointee)
        return (found.reshape(op.types[0].shape),)

    def descriptor_store(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        places, inside, kind = self._descriptor_places(op, values, 2)
        value = np.asarray(values[op.operands[1]]).reshape(kind.shape)
        if inside.any():
            self._memory.store(places[inside], value[inside], kind.pointee)
        return ()


OperationHandler = Callable[[Machine, TtirOperation, ValueTable], Sequence[Any]]

HANDLERS: dict[str, OperationHandler] = {
    **dict.fromkeys([*BINARY, *UNARY, *TERNARY], Machine.elementwise),
    **dict.fromkeys(CONVERSIONS, Machine.convert),
    "arith.constant": Machine.constant,
    "arith.cmpi": Machine.compare,
    "arith.cmpf": Machine.compare,
    "arith.select": Machine.select,
    "arith.bitcast": Machine.bitcast,
    "ub.poison": Machine.poison,
    "scf.for": Machine.for_loop,
    "scf.while": Machine.while_loop,
    "scf.if": Machine.branch,
    **dict.fromkeys(WITHOUT_RESULT, Machine.nothing),
    "tt.call": Machine.call,
    "tt.get_program_id": Machine.program_id,
    "tt.get_num_programs": Machine.num_programs,
    "tt.make_range": Machine.make_range,
    "tt.splat": Machine.splat,
    "tt.unsplat": Machine.reshape,
    "tt.broadcast": Machine.splat,
    "tt.expand_dims": Machine.expand,
    "tt.reshape": Machine.reshape,
    "tt.trans": Machine.transpose,
    "tt.cat": Machine.concatenate,
    "tt.join": Machine.join,
    "tt.split": Machine.split,
    "tt.gather": Machine.gather,
    "tt.histogram": Machine.histogram,
    "tt.reduce": Machine.reduce,
    "tt.scan": Machine.scan,
    "tt.dot": Machine.dot,
    "tt.bitcast": Machine.bitcast,
    "tt.int_to_ptr": Machine.bitcast,
    "tt.ptr_to_int": Machine.bitcast,
    "tt.fp_to_fp": Machine.round_float,
    "tt.clampf": Machine.clamp,
    "tt.extern_elementwise": Machine.extern,
    "tt.addptr": Machine.add_pointer,
    "tt.load": Machine.load,
    "tt.store": Machine.store,
    "tt.atomic_rmw": Machine.atomic,
    "tt.atomic_cas": Machine.compare_and_swap,
    "tt.make_tensor_descriptor": Machine.make_descriptor,
    "tt.descriptor_load": Machine.descriptor_load,
    "tt.descriptor_store": Machine.descriptor_store,
}
"""By operation, what executes it. What isn't here can't be emulated."""
