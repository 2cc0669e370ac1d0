"""Whether what a kernel loads decides which memory it touches, or how long it runs, by the text of its first stage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
RESULTS = re.compile(r"^(%[\w$.-]+)(?::(\d+))? = ")
PAIRS = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
LOADS = (
    "tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas", "ttg.local_load",
    "ttng.tmem_load", "amdg.buffer_load", "amdg.buffer_atomic_rmw",
)  # fmt: skip
"""Operations whose results come out of memory; in Gluon also by way of shared and tensor memory."""

BY_COORDINATES = ("tt.descriptor_", "ttng.async_tma_", "amdg.async_tdm_")
"""Operations whose operands after the descriptor say where."""

ADDRESSES, LENGTH = "which memory it touches", "how long it runs"


def content_use(ttir: str) -> tuple[str, ...]:
    """What loaded values decide: :data:`ADDRESSES` (an offset, a mask, a descriptor's place), :data:`LENGTH` (a loop's
    bounds, a branch), both or none.

    Values are followed through every operation, loops' carried values one by one. A function that isn't inlined is
    looked at by itself, and its results depend on all that it is given.
    """
    found = {word for body in _functions(ttir) for word in _Flow(body).used()}
    return tuple(word for word in (ADDRESSES, LENGTH) if word in found)


def _functions(ttir: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in ttir.splitlines():
        if line.lstrip().startswith("tt.func"):
            yield lines
            lines = []
        lines.append(line.strip())
    yield lines


@dataclass(frozen=True)
class _Region:
    """An operation with a body: the values that it carries from round to round, and its results."""

    carried: list[str]
    result: str
    count: int

    def receivers(self, place: int) -> list[str]:
        """Where the value goes that the body yields at a place."""
        own = self.carried[place : place + 1]
        return [*own, self.result if self.count == 1 else f"{self.result}#{place}"]


@dataclass
class _Flow:
    """Which values of a function come out of memory, by any way."""

    lines: list[str]
    loaded: set[str] = field(default_factory=set)

    def used(self) -> list[str]:
        """What they decide. Rounds of a loop may need as many passes as it carries values."""
        before = -1
        while before != len(self.loaded):
            before = len(self.loaded)
            self._pass()
        return [word for line in self.lines for word in self._decided(line)]

    def _pass(self) -> None:
        regions: list[_Region] = []
        for line in self.lines:
            if line.startswith("}") and not line.endswith("{") and regions:
                regions.pop()
            self._follow(line, regions)
            if line.endswith("{") and not line.startswith("}"):
                match = RESULTS.match(line)
                carried = [name for name, _ in PAIRS.findall(_body(line)) if "iter_args" in line or "scf.while" in line]
                carried = carried[1:] if "scf.for" in line else carried  # the first is the loop's own counter
                regions.append(_Region(carried, match[1] if match else "", int(match[2] or 1) if match else 0))

    def _follow(self, line: str, regions: list[_Region]) -> None:
        match, body = RESULTS.match(line), _body(line)
        operation, operands = _operation(body), VALUE.findall(body)
        if operation in ("scf.yield", "scf.condition") and regions:
            values = operands[1:] if operation == "scf.condition" else operands
            for place, value in enumerate(values):
                if value in self.loaded:
                    self.loaded.update(regions[-1].receivers(place))
            return
        if "iter_args" in body or operation == "scf.while":
            self.loaded.update(name for name, value in PAIRS.findall(body) if value in self.loaded)
            return
        if (
            match
            and operation not in ("scf.if", "scf.for")
            and (operation in LOADS or self.loaded.intersection(operands))
        ):
            self.loaded.update([f"{match[1]}#{i}" for i in range(int(match[2]))] if match[2] else [match[1]])

    def _decided(self, line: str) -> list[str]:
        body = _body(line)
        operation, operands = _operation(body), VALUE.findall(body)
        word, deciding = ADDRESSES, list[str]()
        if operation == "tt.addptr" or operation.startswith(BY_COORDINATES):
            deciding = operands[1:]
        elif operation in ("tt.load", "tt.store"):  # pointer, value of a store, mask, value instead
            deciding = operands[2:3] if operation == "tt.store" else operands[1:2]
        elif operation.startswith("amdg.buffer_"):  # pointer, perhaps a value, offsets, mask
            deciding = operands[1:] if operation in ("amdg.buffer_load", "amdg.buffer_load_to_local") else operands[2:]
        elif operation == "scf.for":
            word, deciding = LENGTH, VALUE.findall(body.partition("iter_args")[0])
        elif operation in ("scf.if", "scf.condition", "cf.cond_br"):
            word, deciding = LENGTH, operands[:1]
        return [word] if self.loaded.intersection(deciding) else []


def _operation(body: str) -> str:
    return body.lstrip('"').partition(" ")[0].partition("(")[0].rstrip('"')


def _body(line: str) -> str:
    """A line without its results."""
    match = RESULTS.match(line)
    return line[match.end() :] if match else line
