"""What PTX text says of a kernel: its instructions, and its loops of products on tensor cores.

The resource model needs the counts for candidates that aren't disassembled. Of loops the rules ask whether they load
operands ahead, and whether products overlap.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from kerntune.base.strict import SparseStruct

_OPCODE = re.compile(r"^[ \t]*(?:@!?%\w+\s+)?([a-z][\w.:]*)", re.MULTILINE)
"""The beginning of an instruction: an opcode with its modifiers, its predicate left out. Directives begin with a dot,
labels end without a semicolon."""

_WIDTH = re.compile(r"(?:\.v(\d))?\.[busf](\d+)$")
_COPY = re.compile(r"cp\.async\.c[ag]")
_SIZE = re.compile(r",\s*(0x[0-9a-fA-F]+|\d+)")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")

_OPERANDS = re.compile(
    r"\b(?:wgmma\.mma_async|mma)\.sync\.aligned\.m\d+n\d+k\d+(?:\.(?:row|col|satfinite))*\.\w+\.(\w+)"
    r"|\btcgen05\.mma\S*\.kind::(\w+)"
)
"""The type of a product's first operand, which stands after that of the result; or its kind."""

_OPERAND_BITS = {
    8: ("e4m3", "e5m2", "s8", "u8", "f8f6f4", "i8", "mxf8f6f4", "e2m1", "e2m3", "e3m2", "mxf4", "mxf4nvf4"),
    16: ("f16", "bf16"),
    32: ("tf32",),
    64: ("f64",),
}
"""Bits of an operand as tensor cores are fed with it: tf32 takes 32 in memory. Narrower ones than 8 count as 8."""

_CLASSES = (
    ("global_load", "ld.global"),
    ("global_store", "st.global"),
    ("tma", "cp.async.bulk"),
    ("tensor_core", "wgmma.mma_async"),
    ("tensor_core", "mma.sync"),
    ("tensor_core", "tcgen05.mma"),
    ("atomic", "atom."),
    ("atomic", "red.global"),
    ("barrier", "bar."),
    ("barrier", "barrier."),
)
"""Class by prefix of an opcode (PTX ISA, "Instruction Set"); names as in
:func:`kerntune.static.instructions.nvidia_classes`."""


def ptx_classes(text: str) -> dict[str, int]:
    """Counts by class from a kernel's PTX, loops once: keys as of :func:`nvidia_classes`, those that PTX shows."""
    found: Counter[str] = Counter()
    for opcode, times in Counter(_opcodes(text)).items():
        found["total"] += times
        kind = next((name for name, start in _CLASSES if opcode.startswith(start)), "")
        if kind:
            found[kind] += times
        if kind in ("global_load", "global_store"):
            found[f"{kind}_{bits(opcode)}"] += times
        elif kind == "tensor_core":
            shape = _SHAPE.search(opcode)
            found["tensor_core_macs"] += times * (prod(map(int, shape.groups())) if shape else 0)
    for size in _copied(text):
        found["async_copy"] += 1
        found[f"async_copy_{int(size, 0) * 8}"] += 1
    return {name: count for name, count in sorted(found.items()) if count}


def operand_counts(text: str) -> dict[str, int]:
    """Products on tensor cores by the bits of their operands (``tensor_core_16``), a product as many times as its
    instruction is in the text. Unknown types are left out."""
    width = {name: bits for bits, names in _OPERAND_BITS.items() for name in names}
    types = (match[1] or match[2] for match in _OPERANDS.finditer(text))
    found = Counter(f"tensor_core_{width[name]}" for name in types if name in width)
    return dict(sorted(found.items()))


def _opcodes(text: str) -> Iterator[str]:
    """The opcodes of all instructions, each of which ends with a semicolon."""
    found = _OPCODE.search(text)
    while found is not None and (end := text.find(";", found.end())) != -1:
        yield found[1]
        found = _OPCODE.search(text, end)


def _copied(text: str) -> Iterator[str]:
    """The sizes in bytes of asynchronous copies: their first number after a comma."""
    found = _COPY.search(text)
    while found is not None:
        end = text.find(";", found.end())
        end = len(text) if end == -1 else end
        if size := _SIZE.search(text, found.end(), end):
            yield size[1]
        found = _COPY.search(text, size.end() if size else end)


def bits(opcode: str) -> int:
    """Bits that a thread loads or stores with one such instruction."""
    match = _WIDTH.search(opcode)
    return 32 if match is None else int(match[1] or 1) * int(match[2])


OPERAND_BYTES = 16
"""The least that a thread loads of an operand in a round, in bytes: an index, a row's scale or a bias is less."""


class ProductLoops(SparseStruct, frozen=True):
    """The innermost loops of a kernel in which tensor cores multiply.

    ``loading`` of them load operands (others get them from other warps, or have them already). ``ahead`` of these have
    copies in flight from one round to the next, at least ``rounds`` rounds' worth; ``plain_bytes`` are what a thread
    loads in a round of each of these by ordinary loads all the same, in all. ``grouped`` loops commit products in
    groups (``wgmma``); in ``overlapped`` of them a group is still in flight when the next round begins. ``types`` are
    those of their results and operands (``f32.f16.f16``).
    """

    loading: int = 0
    ahead: int = 0
    rounds: float = 0.0
    plain_bytes: int = 0
    grouped: int = 0
    overlapped: int = 0
    types: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Loops each of whose rounds waits for its own loads."""
        return self.loading - self.ahead


_ATOMIC = re.compile(r"^[ \t]*(?:@!?%\w+[ \t]+)?(?:atom|red)\.(?![\w.:]*\bshared\b)", re.MULTILINE)
"""An atomic operation on global memory, or on an address of any kind."""

_ANY_ATOMIC = re.compile(r"\b(?:atom|red)\.")


def loop_counts(text: str) -> dict[str, int]:
    """What a kernel repeats. ``straight_line``: 1 for one without a loop. ``repeated_atomics``, where there are atomic
    operations: those on global memory that are in loops, or all, where there is no loop. ``copying_loops``: innermost
    loops without products that copy asynchronously; ``copying_ahead`` of them have copies in flight from one round to
    the next."""
    lines = text.splitlines()
    ranges = _loops(lines)
    found = {} if ranges else {"straight_line": 1}
    if _ANY_ATOMIC.search(text):
        atomics = (number for number, line in enumerate(lines) if _ATOMIC.match(line))
        found["repeated_atomics"] = sum(not ranges or any(at in loop for loop in ranges) for at in atomics)
    if ranges and _COPY.search(text):
        instructions = list(_instructions(lines))
        copies, products = ([x.line for x in instructions if x.kind == k] for k in ("copy", "product"))
        if streams := [n for n in _innermost(copies, ranges) if not any(at in n for at in products)]:
            ahead = sum(_left(instructions, loop) > 0 for loop in streams)
            found |= {"copying_loops": len(streams), "copying_ahead": ahead}
    return found


def _innermost(places: Iterable[int], ranges: Iterable[range]) -> set[range]:
    return {min(around, key=len) for at in places if (around := [x for x in ranges if at in x])}


def _left(instructions: Sequence[_Instruction], loop: range) -> int:
    flight = _InFlight()
    flight.follow(x for x in instructions if x.line < loop.start)
    flight.follow(x for x in instructions if x.line in loop)
    return flight.groups("copy")


class _Instruction(NamedTuple):
    """One that matters here, in its line of the text. ``number``: how many groups a wait leaves in flight, or the bytes
    that a thread loads; ``types``: a grouped product's."""

    line: int
    kind: str
    number: int = 0
    types: str = ""


_INSTRUCTION = re.compile(
    r"(?P<product>wgmma\.mma_async|mma\.sync|tcgen05\.mma)\."
    r"|(?P<products_committed>wgmma\.commit_group)"
    r"|(?P<products_awaited>wgmma\.wait_group)"
    r"|(?P<copies_committed>cp\.async\.commit_group)"
    r"|(?P<copies_awaited>cp\.async\.wait_(?:group|all))"
    r"|(?P<bulk_expected>mbarrier\.arrive\.expect_tx)"
    r"|(?P<bulk_awaited>mbarrier\.(?:try|test)_wait)"
    r"|(?P<bulk>cp\.async\.bulk\.tensor[\w.]*\.shared::\w+\.global)"
    r"|(?P<copy>cp\.async\.c[ag]\.)"
    r"|(?P<plain>ld\.global[\w.:]*)"
)
"""By the PTX ISA, "Instruction Set"; a copy from shared to global memory is no load."""

_TYPES = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m\d+n\d+k\d+\.([\w.]+)")
_GROUPS_LEFT = re.compile(r"wait_group[.\w]{0,80}\s+(\d\w*)")
_NAMED = ("mma", "cp.async", "mbarrier", "ld.global")
"""One of these is in each line that :data:`_INSTRUCTION` finds; to look for them is faster."""

_LABEL = re.compile(r"\s*(\$\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")


def product_loops(ptx: str) -> ProductLoops | None:
    """The loops of products of a kernel's PTX; None if it has none."""
    if "mma" not in ptx:
        return None
    lines = ptx.splitlines()
    instructions = list(_instructions(lines))
    inner = _innermost((x.line for x in instructions if x.kind == "product"), _loops(lines))
    found = [_loop(instructions, loop, inner) for loop in inner]
    if not found:
        return None
    return ProductLoops(
        loading=sum(x.loading for x in found),
        ahead=sum(x.ahead for x in found),
        rounds=min((x.rounds for x in found if x.ahead), default=0.0),
        plain_bytes=sum(x.plain_bytes for x in found),
        grouped=sum(x.grouped for x in found),
        overlapped=sum(x.overlapped for x in found),
        types=tuple(sorted({name for x in found for name in x.types})),
    )


def _instructions(lines: Sequence[str]) -> Iterator[_Instruction]:
    for number, line in enumerate(lines):
        if any(name in line for name in _NAMED) and (match := _INSTRUCTION.search(line)):
            kind = str(match.lastgroup)
            if kind == "plain":
                yield _Instruction(number, kind, bits(match[0]) // 8)
            elif kind == "product":
                types = _TYPES.search(line)
                yield _Instruction(number, kind, types=types[1] if types else "")
            else:
                left = _GROUPS_LEFT.search(line)
                yield _Instruction(number, kind, int(left[1], 0) if left else 0)


def _loops(lines: Sequence[str]) -> list[range]:
    """Lines from a label to the last branch back to it, which isn't included."""
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        if "$" not in line:
            continue
        if match := _LABEL.match(line):
            labels[match[1]] = number
        elif (match := _BRANCH.search(line)) and match[1] in labels:
            ends[labels[match[1]]] = number
    return [range(begin, end) for begin, end in ends.items()]


def _loop(instructions: Sequence[_Instruction], loop: range, loops: Iterable[range]) -> ProductLoops:
    """One loop. What was copied before an earlier loop has been used there."""
    earlier = max((other.stop for other in loops if other.stop in range(loop.start)), default=0)
    body = [x for x in instructions if x.line in loop]
    kinds = {x.kind for x in body}
    flight = _InFlight()
    flight.follow(x for x in instructions if x.line in range(earlier, loop.start))
    rounds = flight.rounds(body)
    flight.covered.clear()
    flight.follow(body)
    used = [kind for kind in ("copy", "bulk") if kind in kinds]
    ahead = max((rounds[kind] or flight.groups(kind) > 0 or kind in flight.covered for kind in used), default=0)
    plain = sum(x.number for x in body if x.kind == "plain")
    products = _InFlight()
    products.follow(body)
    return ProductLoops(
        loading=int(bool(used) or plain >= OPERAND_BYTES),
        ahead=int(ahead > 0),
        rounds=round(float(ahead), 2),
        plain_bytes=plain if ahead else 0,
        grouped=int("products_committed" in kinds),
        overlapped=int(products.groups("product") > 0),
        types=tuple(sorted({x.types for x in body if x.types})),
    )


@dataclass
class _Group:
    """Copies or products that are waited for together; whether there are any. ``covered``: products were issued
    since."""

    filled: bool = False
    covered: bool = False


_COMMITTED = {"copies_committed": "copy", "products_committed": "product", "bulk_expected": "bulk"}
_AWAITED = {"copies_awaited": "copy", "products_awaited": "product"}
"""What an instruction ends a group of, or waits for."""


class _InFlight:
    """The groups in flight, oldest first, by the kind of what is in them: copies, bulk copies, products.

    ``covered`` has the kinds of copies of which a group was waited for only after products had been issued.
    """

    def __init__(self) -> None:
        self._done: dict[str, list[_Group]] = {"copy": [], "bulk": [], "product": []}
        self._open = {kind: _Group() for kind in self._done}
        self.covered: set[str] = set()

    def groups(self, kind: str) -> int:
        """How many groups of a kind are in flight that aren't empty."""
        opened = [self._open[kind]] if kind == "bulk" else []
        return sum(1 for group in (*self._done[kind], *opened) if group.filled)

    def follow(self, instructions: Iterable[_Instruction]) -> None:
        """Go through instructions in their order."""
        for x in instructions:
            if x.kind == "product":
                for kind in ("copy", "bulk"):
                    for group in (*self._done[kind], self._open[kind]):
                        group.covered = True
            if x.kind in self._open:
                self._open[x.kind].filled = True
            elif x.kind in _COMMITTED:
                self._commit(_COMMITTED[x.kind])
            elif x.kind in _AWAITED:
                self._leave(_AWAITED[x.kind], x.number)
            elif x.kind == "bulk_awaited":
                self._commit("bulk")
                self._leave("bulk", max(0, len(self._done["bulk"]) - 1))

    def rounds(self, body: Sequence[_Instruction]) -> dict[str, float]:
        """For how many rounds of a loop the copies suffice that are in flight now."""
        counted = {"copy": "copies_committed", "bulk": "bulk_expected"}
        per_round = {kind: sum(x.kind == by for x in body) for kind, by in counted.items()}
        return {kind: self.groups(kind) / (per_round[kind] or 1) for kind in counted}

    def _commit(self, kind: str) -> None:
        if self._open[kind].filled or kind != "bulk":
            self._done[kind].append(self._open[kind])
        self._open[kind] = _Group()

    def _leave(self, kind: str, left: int) -> None:
        """Wait until so many of the newest groups are left."""
        waited = self._done[kind][: max(0, len(self._done[kind]) - left)]
        self._done[kind] = self._done[kind][len(waited) :]
        if any(group.filled and group.covered for group in waited):
            self.covered.add(kind)
