"""Executes the programs of an emulated launch, one after the other, on a flat memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from kerntune.errors import InterpreterLimit, KernelFault
from kerntune.gpu.emulator.approximations import quotient, remainder, root
from kerntune.gpu.emulator.elements import (
    ELEMENTWISE,
    MADE_NAN,
    MAKES_NAN,
    bytes_of,
    compare_floats,
    compare_integers,
    constant,
    converted,
    cut,
    extern,
    from_bits,
    numpy_of,
    rounded,
    to_bits,
    unsigned,
    with_made_nan,
)
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.fused_sums import FusedSum, fused_sums
from kerntune.gpu.emulator.libdevice import elementwise
from kerntune.gpu.emulator.memory_operations import Descriptor, ValueTable
from kerntune.gpu.emulator.products import ProductOperations
from kerntune.gpu.emulator.program_order import ProgramOrder, Steps
from kerntune.gpu.emulator.promises import HintedAccess, first_of_groups, hint_effects
from kerntune.gpu.emulator.races import Races, RunningProgram
from kerntune.gpu.emulator.ttir_program import Region, TtirOperation, TtirProgram, pointed_bytes

Passing = Generator[None, None, list[Any]]
"""The execution of a block, which gives what it passes on."""

APPROXIMATED: Mapping[tuple[str, str], Callable[..., np.ndarray]] = {
    ("arith.divf", "f32"): quotient,
    ("math.sqrt", "f32"): root,
    **{("arith.remf", element): remainder for element in ("f16", "bf16", "f32", "f64")},
}
"""Operations, and the elements of their results, that a GPU doesn't compute as the nearest number."""

CONVERSIONS = frozenset(
    f"arith.{name}" for name in ("extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi", "fptoui", "extf", "truncf",
                                 "index_cast", "index_castui")
)  # fmt: skip

SHIFTS = ("arith.shli", "arith.shrsi", "arith.shrui")

WITHOUT_RESULT = ("scf.yield", "scf.condition", "cf.br", "cf.cond_br", "tt.return", "tt.reduce.return",
                  "tt.scan.return", "tt.print")  # fmt: skip

EXACT = frozenset(
    f"arith.{name}" for name in ("addi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui", "maxnumf",
                                 "minnumf", "maximumf", "minimumf")
)  # fmt: skip
"""Reductions that give the same in any order."""

MOST_CALLS = 64
"""Depth of calls: kernels don't recurse."""


class Machine(ProductOperations):
    """One kernel on one memory. ``deadline`` is of :func:`time.monotonic`.

    ``chance`` draws what no GPU promises: the order of the programs, that of a reduction's terms, of elements that may
    be in any order, errors of fast functions and quotients, and which products are rounded with a sum, unless that is
    ``unfused``; ``drawn`` has what holds for all launches of a text. A program of so many ``warps`` that waits for
    another is left, and goes on later.
    """

    handlers: ClassVar[Mapping[str, OperationHandler]] = {}

    def __init__(
        self, program: TtirProgram, memory: FlatMemory, deadline: float, chance: random.Random | None,
        warps: int, drawn: dict[object, np.ndarray] | None = None, unfused: bool = False,
    ) -> None:  # fmt: skip
        self._program, self._memory, self._deadline, self._chance = program, memory, deadline, chance
        self._drawn = {} if drawn is None else drawn
        self._grid = (1, 1, 1)
        self._running = RunningProgram(0, (0, 0, 0))
        self._order = ProgramOrder(chance, warps)
        self._races: Races | None = None
        self._constants: dict[int, Any] = {}
        self._hinted: Mapping[int, HintedAccess] = {}
        self._equal: Mapping[int, tuple[int, ...]] = {}
        self._fused: Mapping[int, tuple[FusedSum, ...]] = {}
        if chance is not None and not unfused:
            self._fused = fused_sums(program)
        self.blocks: tuple[Region, ...] = ()
        """The block that has begun last, and the one before."""

    def begin(self) -> None:
        """Called before each program."""

    @property
    def place(self) -> tuple[int, int, int]:
        """The program that runs, in the grid."""
        return self._running.place

    def launch(
        self, arguments: Sequence[Any], grid: tuple[int, int, int], written: Sequence[bool] | None = None
    ) -> None:
        """Run every program. ``written`` says which storages they may write; without it races aren't looked for.

        :class:`InterpreterLimit` for what can't be emulated, :class:`KernelFault` for a wrong address, a race or what
        a kernel asserts and isn't so, :class:`KernelTimeout` at the deadline.
        """
        kernel = self._program.kernel
        if len(arguments) != len(kernel.arguments):
            raise InterpreterLimit(f"its TTIR takes {len(kernel.arguments)} arguments, the launch has {len(arguments)}")
        given = {key: self._argument(key, value) for key, value in zip(kernel.arguments, arguments, strict=True)}
        for position, divisor in self._program.divisible.items():
            if int(arguments[position] or 0) % divisor:
                raise KernelFault(f"its argument {position} is declared to be a multiple of {divisor}, and isn't")
        effects = hint_effects(self._program)
        self._grid, self._hinted, self._equal = grid, effects.accesses, effects.equal
        self._races = None if written is None else Races(self._memory, self._program.unit, written)
        with np.errstate(all="ignore"):
            for number in self._order.numbers(math.prod(grid)):
                rest, x = divmod(number, grid[0])
                z, y = divmod(rest, grid[1])
                self.begin()
                self._go_on(RunningProgram(number, (x, y, z)), self._run(kernel, dict(given)))
                for program, steps in self._order.ready(last=False):
                    self._go_on(program, steps)
            for program, steps in self._order.ready(last=True):
                self._go_on(program, steps)

    def _go_on(self, program: RunningProgram, steps: Steps) -> None:
        """Run a program to its end, or until it waits."""
        self._running = program
        for _ in steps:
            self._order.wait(program, steps)
            break

    def _argument(self, key: int, value: Any) -> Any:
        kind = self._program.types[key]
        if kind.element == "desc" and isinstance(value, Descriptor):
            return value
        if kind.shape or kind.element == "desc":
            raise InterpreterLimit("it takes a tensor descriptor that the host makes")
        if kind.element in ("ptr", "i64"):
            return np.asarray(int(value) & (1 << 64) - 1, np.uint64).view(np.int64)
        if kind.element.startswith("i"):
            return converted("arith.trunci", np.asarray(int(value)), kind.element)
        return rounded(float(value), kind.element)

    # control

    def _run(self, region: Region, values: ValueTable) -> Generator[None, None, TtirOperation | None]:
        """Execute a block and those that it branches to; the last operation, which says what they pass on. Each step
        ends where the program waits."""
        while True:
            self.blocks = (region, *self.blocks[:1])
            self._check_time()
            last = None
            for last in region.operations:
                handler = self.handlers.get(last.name)
                if handler is None:
                    raise InterpreterLimit(f"{last.name} can't be emulated")
                found = handler(self, last, values)
                if last.name in CONTROL:
                    found = yield from found
                values.update(zip(last.results, found, strict=True))
                if self._equal and last.results and (groups := self._equal.get(last.results[0])):
                    values[last.results[0]] = first_of_groups(np.asarray(found[0]), groups)
            if last is None or not last.successors:
                return last
            chosen = last.name == "cf.cond_br" and not bool(values[last.operands[0]])
            region, given = last.successors[chosen]
            values.update(zip(region.arguments, [values[o] for o in given], strict=True))

    def _passed(self, region: Region, values: ValueTable) -> Passing:
        last = yield from self._run(region, values)
        return [] if last is None else [values[o] for o in last.operands]

    def for_loop(self, op: TtirOperation, values: ValueTable) -> Passing:
        low, high, step, *carried = (values[o] for o in op.operands)
        body = op.regions[0]
        at, kind = int(low), np.asarray(low).dtype
        if int(step) <= 0:
            raise InterpreterLimit("a loop has no positive step")
        while at < int(high):
            values.update(zip(body.arguments, [np.asarray(at, kind), *carried], strict=True))
            carried = yield from self._passed(body, values)
            at += int(step)
        return carried

    def while_loop(self, op: TtirOperation, values: ValueTable) -> Passing:
        """A round that reads by atomics what the one before has read waits for another program."""
        before, after = op.regions
        carried = [values[o] for o in op.operands]
        program = self._running
        program.loops += 1
        mark, last = len(program.awaited), None
        while True:
            values.update(zip(before.arguments, carried, strict=True))
            goes_on, *passed = yield from self._passed(before, values)
            if not bool(goes_on):
                program.loops -= 1
                return passed
            values.update(zip(after.arguments, passed, strict=True))
            carried = yield from self._passed(after, values)
            read = program.awaited[mark:]
            if read and read == last:
                yield
            last = read
            del program.awaited[mark:]

    def branch(self, op: TtirOperation, values: ValueTable) -> Passing:
        chosen = op.regions[0 if bool(values[op.operands[0]]) else 1]
        return (yield from self._passed(chosen, values)) if chosen.operations else []

    def call(self, op: TtirOperation, values: ValueTable) -> Passing:
        name = str(op.attributes.get("callee", "")).removeprefix("@")
        function = self._program.functions.get(name)
        program = self._running
        if function is None or program.depth >= MOST_CALLS:
            raise InterpreterLimit(f"it calls {name or 'a function'}, which can't be emulated")
        body = function.regions[0]
        inner = {k: values[o] for k, o in zip(body.arguments, op.operands, strict=True)}
        program.depth += 1
        passed = yield from self._passed(body, inner)
        program.depth -= 1
        return passed

    def assume(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        if not np.all(values[op.operands[0]]):
            raise KernelFault("what it tells the compiler isn't so (tl.assume)")
        return ()

    def demand(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        if not np.all(values[op.operands[0]]):
            said = op.attributes.get("message")
            raise KernelFault(f"an assertion of its own fails (tl.device_assert){f': {said}' if said else ''}")
        return ()

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
        return (np.broadcast_to(self._memory.undefined(kind.element), kind.shape),)

    def elementwise(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        element = op.types[0].element
        if element.startswith("f8"):
            raise InterpreterLimit(f"arithmetic on {element} values: convert them to a wider type first")
        found = self._computed(op, element, values)
        if op.name in MAKES_NAN and element in MADE_NAN:
            found = with_made_nan(found, element)
        kept = element in ("f32", "f64", "f16") and getattr(found, "dtype", None) == numpy_of(element)
        return (found if kept or element.startswith("i") else rounded(found, element),)

    def _computed(self, op: TtirOperation, element: str, values: ValueTable) -> Any:
        if self._chance is not None and (op.name, element) in APPROXIMATED:
            return APPROXIMATED[op.name, element](*(values[o] for o in op.operands))
        if sums := self._fused.get(op.results[0]):
            chosen = np.arange(len(sums) + 1)[self._any_order(id(op), len(sums) + 1)][0]
            if chosen < len(sums):
                return sums[chosen].of(values)
        return ELEMENTWISE[op.name](*(values[o] for o in op.operands))

    def shift(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """By as many bits as the number has or more, it is undefined (MLIR, ``arith.shli``)."""
        (found,), by = self.elementwise(op, values), unsigned(np.asarray(values[op.operands[1]]))
        element = op.types[0].element
        far = by >= 8 * bytes_of(element)
        return (np.where(far, self._memory.undefined(element), found) if far.any() else found,)

    def compare(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        compare = compare_integers if op.name == "arith.cmpi" else compare_floats
        return (compare(op.attributes["predicate"], *(values[o] for o in op.operands)),)

    def select(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.where(*(values[o] for o in op.operands)),)

    def convert(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (converted(op.name, np.asarray(values[op.operands[0]]), op.types[0].element),)

    def round_float(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        value, element = values[op.operands[0]], op.types[0].element
        return ((cut if op.attributes.get("rounding") == "rtz" else rounded)(value, element),)

    def bitcast(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        source, target = self._program.types[op.operands[0]].element, op.types[0].element
        value = np.asarray(values[op.operands[0]])
        if source == target or "ptr" in (source, target):
            return (value,)
        bits = np.ascontiguousarray(to_bits(value, source))
        return (from_bits(bits, target).reshape(value.shape),)

    def extern(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        function = extern if self._chance is not None else elementwise
        found = function(str(op.attributes.get("symbol", "")))(*(np.asarray(values[o]) for o in op.operands))
        return (rounded(found, op.types[0].element),)

    def clamp(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        x, low, high = (values[o] for o in op.operands)
        inside = np.fmin(np.fmax(x, low), high)
        return (np.where(np.isnan(x), x, inside) if op.attributes["propagateNan"] == "all" else inside,)

    # shapes

    def program_id(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.asarray(self._running.place[op.attributes["axis"]], np.int32),)

    def num_programs(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (np.asarray(self._grid[op.attributes["axis"]], np.int32),)

    # reductions

    def reduce(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        self.barrier(op, values)
        axis = op.attributes["axis"]
        parts = [np.moveaxis(np.asarray(values[o]), axis, 0) for o in op.operands]
        body = op.regions[0].operations
        if len(body) != 2 or body[0].name not in EXACT:
            order = self._any_order(id(op), len(parts[0]))
            parts = [part[order] for part in parts]
        while len(parts[0]) > 1:
            half = len(parts[0]) // 2
            rest = [p[2 * half :] for p in parts]
            pairs = self._combined(op, values, [p[:half] for p in parts], [p[half : 2 * half] for p in parts])
            parts = [np.concatenate([a, b]) if len(b) else a for a, b in zip(pairs, rest, strict=True)]
        return tuple(p[0] for p in parts)

    def scan(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        self.barrier(op, values)
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
        return [np.broadcast_to(x, left[0].shape) for x in _all_at_once(self._passed(body, inner))]

    # memory

    def add_pointer(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        pointer, offset = values[op.operands[0]], values[op.operands[1]]
        return (pointer + offset.astype(np.int64) * pointed_bytes(op.types[0]),)


def _all_at_once(passing: Passing) -> list[Any]:
    """What a block passes on that can't wait."""
    try:
        next(passing)
    except StopIteration as end:
        return list(end.value)
    raise InterpreterLimit("a reduction waits for another program")


OperationHandler = Callable[[Any, TtirOperation, ValueTable], Any]

CONTROL: dict[str, OperationHandler] = {
    "scf.for": Machine.for_loop,
    "scf.while": Machine.while_loop,
    "scf.if": Machine.branch,
    "tt.call": Machine.call,
    "tt.atomic_poll": Machine.poll,
}
"""Operations inside of which a program may wait."""

HANDLERS: dict[str, OperationHandler] = {
    **dict.fromkeys(ELEMENTWISE, Machine.elementwise),
    **dict.fromkeys(SHIFTS, Machine.shift),
    **dict.fromkeys(CONVERSIONS, Machine.convert),
    "arith.constant": Machine.constant,
    "arith.cmpi": Machine.compare,
    "arith.cmpf": Machine.compare,
    "arith.select": Machine.select,
    "arith.bitcast": Machine.bitcast,
    "ub.poison": Machine.poison,
    **CONTROL,
    **dict.fromkeys(WITHOUT_RESULT, Machine.nothing),
    "llvm.intr.assume": Machine.assume,
    "tt.assert": Machine.demand,
    "gpu.barrier": Machine.barrier,
    "ttg.barrier": Machine.barrier,
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
    "tt.dot_scaled": Machine.dot_scaled,
    "tt.bitcast": Machine.bitcast,
    "tt.int_to_ptr": Machine.bitcast,
    "tt.fp_to_fp": Machine.round_float,
    "tt.clampf": Machine.clamp,
    "tt.extern_elementwise": Machine.extern,
    "tt.addptr": Machine.add_pointer,
    "tt.load": Machine.load,
    "tt.store": Machine.store,
    "tt.atomic_rmw": Machine.atomic,
    "tt.atomic_cas": Machine.compare_and_swap,
    "tt.atomic_load": Machine.atomic_load,
    "tt.atomic_store": Machine.atomic_store,
    "tt.make_tensor_descriptor": Machine.make_descriptor,
    "tt.descriptor_load": Machine.descriptor_load,
    "tt.descriptor_store": Machine.descriptor_store,
    "tt.descriptor_reduce": Machine.descriptor_reduce,
    "tt.descriptor_gather": Machine.descriptor_gather,
    "tt.descriptor_scatter": Machine.descriptor_scatter,
}
"""By operation, what executes it. What isn't here can't be emulated: ``tt.ptr_to_int``, too, by which a kernel would do
something else wherever its memory lies."""

Machine.handlers = HANDLERS
