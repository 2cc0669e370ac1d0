"""Kernels made of functions that take their block's index: several in one launch, or one alone.

A kernel's own ``program_id`` is of the whole launch, so a part receives the index of its block in each of its grid's
axes as its first arguments. The text of the kernels made here has nothing in it but names of parameters and numbers.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerntune.errors import ConfigError

AXIS_BLOCKS = {"x": "XBLOCK", "y": "YBLOCK", "r0": "R0_BLOCK", "r1": "R1_BLOCK"}
"""The constexprs of a kernel made here, by axis; with the part's number behind where parts have blocks of their own."""

GRID_AXES = ("x", "y")


@dataclass(frozen=True)
class PartCode:
    """A part: the function under ``@triton.jit``, its ``parameters`` after the block indices, in order, those that are
    constexprs, ``sizes`` and ``blocks`` by axis as in :class:`~kerntune.heuristics.proposer.Proposer`.

    ``shared`` parameters are one for all parts of a kernel.
    """

    fn: Any
    name: str
    parameters: tuple[str, ...]
    constexprs: frozenset[str]
    sizes: Mapping[str, tuple[str, ...]]
    blocks: Mapping[str, str]
    shared: frozenset[str] = field(default_factory=frozenset)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its grid."""
        return tuple(axis for axis in GRID_AXES if axis in self.sizes)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a call gives: all but the blocks."""
        return tuple(name for name in self.parameters if name not in self.blocks.values())

    def own(self, name: str, i: int) -> str:
        """An argument's name in the kernel, whose part ``i`` this is."""
        return name if name in self.shared else f"{name}_{i}"


def alone_kernel(part: PartCode) -> Any:
    """The part as a kernel of its own, with its own names: its block indices are the launch's."""
    head = _head(part.name, [(n, n in part.constexprs) for n in part.parameters])
    indices = [f"tl.program_id({i})" for i in range(len(part.axes))]
    call = ", ".join((*indices, *(f"{n}={n}" for n in part.parameters)))
    return _kernel(part.name, [head, f"    part_0({call})"], {"part_0": part.fn})


def sequential_kernel(name: str, parts: Sequence[PartCode], *, one_block: bool = False) -> Any:
    """All parts in one launch, one after the other on x, each with blocks of its own (``XBLOCK_0``, ``XBLOCK_1``) or,
    with ``one_block``, with the same. A part's y is folded into x: Inductor's flattened sequential combo grid."""
    lines, end, word = ["    block = tl.program_id(0)"], "0", "if"
    for i, part in enumerate(parts):
        lines += [f"    x_{i}_blocks = {_blocks(part, 'x', i, one_block)}"]
        rows = f" * {_blocks(part, 'y', i, one_block)}" if "y" in part.axes else ""
        lines += [f"    end_{i} = {end} + x_{i}_blocks{rows}"]
        end = f"end_{i}"
    begin = "0"
    for i, part in enumerate(parts):
        at = f"(block - {begin})"
        indices = [at] if "y" not in part.axes else [f"{at} % x_{i}_blocks", f"{at} // x_{i}_blocks"]
        lines += [f"    {word} block < end_{i}:", f"        {_call(part, i, indices, one_block)}"]
        begin, word = f"end_{i}", "elif"
    return _combined(name, parts, lines, one_block)


def round_robin_kernel(name: str, parts: Sequence[PartCode]) -> Any:
    """All parts in one launch, a block of each in turn: each gets as many as the longest, with one ``XBLOCK`` for all.

    :class:`ConfigError` for a part with a y.
    """
    wide = [part.name for part in parts if "y" in part.axes]
    if wide:
        raise ConfigError(f"combo {name}: {wide[0]} has an axis y; parts that take turns have x only")
    lines = [f"    turn, block = tl.program_id(0) % {len(parts)}, tl.program_id(0) // {len(parts)}"]
    for i, part in enumerate(parts):
        lines += [f"    {'elif' if i else 'if'} turn == {i}:", f"        if block < {_blocks(part, 'x', i, True)}:"]
        lines += [f"            {_call(part, i, ['block'], True)}"]
    return _combined(name, parts, lines, one_block=True)


def block_names(parts: Sequence[PartCode], *, one_block: bool) -> tuple[str, ...]:
    """The constexprs of a combined kernel that are blocks."""
    found = [_block(axis, i, one_block) for i, part in enumerate(parts) for axis in part.blocks]
    return tuple(dict.fromkeys(found))


def _block(axis: str, i: int, one_block: bool) -> str:
    return AXIS_BLOCKS[axis] if one_block and axis in GRID_AXES else f"{AXIS_BLOCKS[axis]}_{i}"


def _blocks(part: PartCode, axis: str, i: int, one_block: bool) -> str:
    """The number of blocks along an axis, as an expression; without an axis one, without a block one for each."""
    numel = " * ".join(part.own(name, i) for name in part.sizes.get(axis, ())) or "1"
    return f"tl.cdiv({numel}, {_block(axis, i, one_block)})" if axis in part.blocks else f"({numel})"


def _call(part: PartCode, i: int, indices: Sequence[str], one_block: bool) -> str:
    of_block = {name: _block(axis, i, one_block) for axis, name in part.blocks.items()}
    given = [f"{name}={of_block.get(name) or part.own(name, i)}" for name in part.parameters]
    indices = indices if part.axes else []
    return f"part_{i}({', '.join((*indices, *given))})"


def _combined(name: str, parts: Sequence[PartCode], body: Sequence[str], one_block: bool) -> Any:
    parameters = [(p.own(n, i), n in p.constexprs) for i, p in enumerate(parts) for n in p.arguments]
    blocks = [(block, True) for block in block_names(parts, one_block=one_block)]
    names = [n for n, _ in dict.fromkeys(parameters)] + [n for n, _ in blocks]
    if len(set(names)) != len(names):
        twice = ", ".join(sorted({n for n in names if names.count(n) > 1}))
        raise ConfigError(f"combo {name}: {twice} would stand for two of its parameters; rename one in its part")
    head = _head(name, [*dict.fromkeys(parameters), *blocks])
    return _kernel(name, [head, *body], {f"part_{i}": part.fn for i, part in enumerate(parts)})


def _head(name: str, parameters: Sequence[tuple[str, bool]]) -> str:
    shown = ", ".join(f"{n}: tl.constexpr" if constant else n for n, constant in parameters)
    return f"def {name}({shown}):"


def _kernel(name: str, lines: Sequence[str], functions: Mapping[str, Any]) -> Any:
    """The text as a kernel. Triton and tracebacks read it from :mod:`linecache`, as they read a file."""
    import triton
    import triton.language as tl

    if not name.isidentifier():
        raise ConfigError(f"{name!r} can't be a kernel's name")
    text = "\n".join(lines) + "\n"
    scope: dict[str, Any] = {"tl": tl, "__name__": __name__, **functions}
    file = f"<kerntune {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"  # the same in every process
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), scope)
    return triton.jit(scope[name])
