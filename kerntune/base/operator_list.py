"""The operators of torch that a call runs beside its captured kernels, as baselines and reports have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kerntune.base.formatting import format_bytes
from kerntune.base.strict import SparseStruct

MAX_ROWS = 200
"""Rows of a list: more are counted together. The longest of the 98 operators of docs/ops.md has 41."""

MAX_PLACES = 8
"""Lines that are named of one row, and breaks of graphs that are named of one call."""

MAX_OUTSIDE = 1000
"""Storages of a list that are made outside of the call."""


class OperatorRow(SparseStruct, frozen=True, order=True):
    """Calls of one operator on tensors of one layout: ``signature`` has dtypes and shapes of what it takes and makes
    (``f16[64,128] -> f32[64]``), ``nbytes`` what all ``count`` calls read and write together."""

    name: str
    signature: str
    count: int
    nbytes: int
    kind: str = ""
    """``filled``: it writes one value (``zeros``, ``fill_``). ``bound``: it moves at most so many bytes; how many isn't
    known. ``kept``: its result outlives the call (a cache) and depends on no argument. Empty for all others."""

    places: tuple[str, ...] = ()
    """The users' lines that it comes from (``model.py:12``), of a graph's operator those in the graph; the first
    :data:`MAX_PLACES`. Baselines don't have them."""


class OperatorList(SparseStruct, frozen=True):
    """What a call runs beside its captured kernels, as a multiset; the order of operators is not kept.

    ``kernel_bytes`` are what the captured launches read and write. ``results`` tells of each returned tensor, and then
    of each argument that the call has changed, whether a captured launch wrote what it is computed from. ``outside``
    are the sizes in bytes, sorted, of the storages that launches read and that are neither arguments nor made in the
    call.
    """

    torch: str
    rows: tuple[OperatorRow, ...] = ()
    left_out: int = 0
    """How many further rows there were; their bytes are in ``left_out_bytes``."""

    left_out_bytes: int = 0
    kernel_bytes: int = 0
    results: tuple[bool, ...] = ()
    makers: tuple[str, ...] = ()
    """The operators that make results which no captured launch has a part in."""

    outside: tuple[int, ...] = ()
    graphs: int = 0
    """How many calls of compiled graphs there were."""

    breaks: tuple[str, ...] = ()
    """Where graphs end before their function does, and why (``model.py:31: Data-dependent branching``). Baselines
    don't have them."""

    def without_places(self) -> OperatorList:
        """The list as a baseline has it, which doesn't change with the numbers of lines."""
        rows = tuple(row.but(places=()) for row in self.rows)
        return self.but(rows=rows, breaks=())

    @property
    def moved(self) -> int:
        """Bytes that operators read and write, as far as that is known."""
        return sum(row.nbytes for row in self.rows if not row.kind) + self.left_out_bytes

    @property
    def filled(self) -> int:
        """Bytes that are filled with one value."""
        return sum(row.nbytes for row in self.rows if row.kind == "filled")

    @property
    def uncertain(self) -> int:
        """The most bytes that operators move of which it isn't known."""
        return sum(row.nbytes for row in self.rows if row.kind == "bound")

    @property
    def count(self) -> int:
        """How many operators ran that move something."""
        return sum(row.count for row in self.rows if row.kind != "kept") + self.left_out

    @property
    def by_name(self) -> dict[str, int]:
        """How often each operator ran, by name."""
        counts = Counter[str]()
        for row in self.rows:
            if row.kind != "kept":
                counts[row.name] += row.count
        return dict(counts)

    def text(self) -> str:
        """``4 torch operators beside the kernels: 12.6 MB (aten.mm, aten.add 3x)``; empty without any."""
        if not self.count:
            return ""
        what = "1 torch operator" if self.count == 1 else f"{self.count} torch operators"
        moved = [format_bytes(self.moved)] if self.moved or not (self.filled or self.uncertain) else []
        moved += [f"{format_bytes(self.filled)} filled"] if self.filled else []
        moved += [f"at most {format_bytes(self.uncertain)} more"] if self.uncertain else []
        return f"{what} beside the kernels: {', '.join(moved)} ({names_text(self.rows)})"


def names_text(rows: Iterable[OperatorRow], most: int = 6, *, placed: bool = False) -> str:
    """``aten.mm, aten.add 3x``: operators by name, those that move the most first; ``placed``: with the users' lines,
    ``aten.mm at model.py:12``."""
    counts, nbytes = Counter[str](), Counter[str]()
    places: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.kind != "kept":
            counts[row.name] += row.count
            nbytes[row.name] += row.nbytes
            places.setdefault(row.name, {}).update(dict.fromkeys(row.places if placed else ()))
    ordered = sorted(counts, key=lambda name: (-nbytes[name], name))
    told = [
        (name if counts[name] == 1 else f"{name} {counts[name]}x") + places_text(tuple(places[name]))
        for name in ordered[:most]
    ]
    return ", ".join([*told, *([f"{len(ordered) - most} more"] if len(ordered) > most else [])])


def places_text(places: Sequence[str], most: int = 3) -> str:
    """`` at model.py:12 and model.py:14``; empty without any."""
    if not places:
        return ""
    said = [*places[:most], *([f"{len(places) - most} more"] if len(places) > most else [])]
    return f" at {' and '.join(filter(None, [', '.join(said[:-1]), said[-1]]))}"
