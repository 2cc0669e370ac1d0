"""What Triton's compiler knows of each value of a program along each axis (``lib/Analysis/AxisInfo.cpp``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kerntune.gpu.emulator.axis_rules import RULES, AxisInfo, Numbers, joined, unknown
from kerntune.gpu.emulator.ttir_program import Region, TtirOperation, TtirProgram

ARGUMENTS_OF_LOOP = 3
"""A loop's bounds and step come before what it carries."""


def axis_infos(program: TtirProgram, hinted: bool) -> Mapping[int, AxisInfo]:
    """By value of a program, what is known of it with or without the program's hints. Values of code that never runs
    have none.

    A hint on a loop, on a branch or on a call has no effect, as in Triton.
    """
    analysis = _Analysis(program, hinted)
    analysis.run()
    return analysis.infos


class _Analysis:
    """Sweeps over all operations until nothing changes. Each sweep takes what is known so far to be true."""

    def __init__(self, program: TtirProgram, hinted: bool) -> None:
        self.infos: dict[int, AxisInfo] = {}
        self._program, self._hinted, self._changed = program, hinted, True
        self._returned: dict[str, list[tuple[int, ...]]] = {}
        for position, key in enumerate(program.kernel.arguments):
            info = unknown(program.types[key])
            divisor = program.divisible.get(position, 1)
            self.infos[key] = replace(info, divisibility=(divisor,) * len(info.divisibility))

    def run(self) -> None:
        while self._changed:
            self._changed = False
            for name, function in self._program.functions.items():
                self._returned[name] = [last.operands for last in self._sweep(function.regions[0])]

    def _sweep(self, first: Region) -> list[TtirOperation]:
        """Visit a block and those that it branches to; the operations that end them."""
        seen, blocks, ends = {id(first)}, [first], list[TtirOperation]()
        for block in blocks:  # which grows
            for op in block.operations:
                self._visit(op)
            last = block.operations[-1:]
            if last and not last[0].successors:
                ends += last
            for successor, given in last[0].successors if last else ():
                self._join(successor.arguments, given)
                if id(successor) not in seen:
                    seen.add(id(successor))
                    blocks.append(successor)
        return ends

    def _join(self, targets: Iterable[int], sources: Iterable[int]) -> None:
        """What is known of ``targets`` is true of ``sources``, too."""
        for target, source in zip(targets, sources, strict=True):
            if source in self.infos:
                self._know(target, self.infos[source])

    def _know(self, key: int, info: AxisInfo) -> None:
        old = self.infos.get(key)
        new = info if old is None else joined(old, info)
        if new != old:
            self.infos[key] = new
            self._changed = True

    def _visit(self, op: TtirOperation) -> None:
        control = CONTROL.get(op.name)
        if control is not None:  # Triton takes no hint of these
            control(self, op)
            return
        rule = RULES.get(op.name)
        known = [self.infos[o] for o in op.operands if o in self.infos]
        if rule is not None and len(known) < len(op.operands):
            return
        kinds = [self._program.types[o] for o in op.operands]
        for key, kind in zip(op.results, op.types, strict=True):
            info = unknown(kind) if rule is None else rule(op, kinds, known)
            if self._hinted:
                info = _with_hints(info, op.hints)
            self._know(key, info)

    def _for(self, op: TtirOperation) -> None:
        (body,), carried = op.regions, op.operands[ARGUMENTS_OF_LOOP:]
        first, step = (self.infos.get(op.operands[i]) for i in (0, 2))
        if first is not None and step is not None:
            divisor = math.gcd(first.divisibility[0], step.divisibility[0])
            self._know(body.arguments[0], AxisInfo((1,), (divisor,), (1,)))
        for last in [op, *self._sweep(body)]:
            passed = carried if last is op else last.operands
            self._join(body.arguments[1:], passed)
            self._join(op.results, passed)

    def _while(self, op: TtirOperation) -> None:
        before, after = op.regions
        self._join(before.arguments, op.operands)
        for last in self._sweep(before):
            self._join(after.arguments, last.operands[1:])
            self._join(op.results, last.operands[1:])
        for last in self._sweep(after):
            self._join(before.arguments, last.operands)

    def _if(self, op: TtirOperation) -> None:
        for region in op.regions:
            for last in self._sweep(region):
                self._join(op.results, last.operands)

    def _call(self, op: TtirOperation) -> None:
        name = str(op.attributes.get("callee", "")).removeprefix("@")
        if name in self._program.functions:
            self._join(self._program.functions[name].regions[0].arguments, op.operands)
            for returned in self._returned.get(name, ()):
                self._join(op.results, returned)


CONTROL: Mapping[str, Callable[[_Analysis, TtirOperation], None]] = {
    "scf.for": _Analysis._for,
    "scf.while": _Analysis._while,
    "scf.if": _Analysis._if,
    "tt.call": _Analysis._call,
}


def _with_hints(info: AxisInfo, hints: Mapping[str, Numbers]) -> AxisInfo:
    """What a hint says is taken instead of what is known."""

    def taken(word: str, known: Numbers) -> Numbers:
        said = hints.get(word, known)
        return said if len(said) == len(known) else known

    return info.along(taken)
