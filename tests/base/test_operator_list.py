"""Torch's operators beside kernels: their sums, and the sentences about them."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base.operator_list import OperatorList, OperatorRow, names_text, places_text


def row(name: str, count: int = 1, nbytes: int = 0, kind: str = "", places: tuple[str, ...] = ()) -> OperatorRow:
    return OperatorRow(name, "float32[4]", count, nbytes, kind, places)


ROWS = (row("mm", 1, 12_000_000), row("add", 3, 600_000), row("fill_", 2, 40_000, "filled"),
        row("sort", 1, 7_000, "bound"), row("cat", 9, 10**9, "kept"))  # fmt: skip


def test_each_kind_has_its_sum() -> None:
    """What is kept from call to call is no work of the call."""
    found = OperatorList("2.13.0", ROWS, left_out=4, left_out_bytes=500)
    assert (found.moved, found.filled, found.uncertain, found.count) == (12_600_500, 40_000, 7_000, 11)
    assert found.by_name == {"mm": 1, "add": 3, "fill_": 2, "sort": 1}
    assert (found.graphs, found.breaks, found.without_places().breaks) == (0, (), ())
    twice = OperatorList("2.13.0", (row("add", 2), row("add", 3, 5)))
    assert twice.by_name == {"add": 5}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ((), ""),
        (ROWS[4:], ""),
        (ROWS[:1], "1 torch operator beside the kernels: 12 MB (mm)"),
        (ROWS[:2], "4 torch operators beside the kernels: 12.6 MB (mm, add 3x)"),
        (ROWS[2:3], "2 torch operators beside the kernels: 40 kB filled (fill_ 2x)"),
        (ROWS[3:4], "1 torch operator beside the kernels: at most 7 kB more (sort)"),
        ((row("view"),), "1 torch operator beside the kernels: 0 B (view)"),
        (ROWS, "7 torch operators beside the kernels: 12.6 MB, 40 kB filled, at most 7 kB more "
               "(mm, add 3x, fill_ 2x, sort)"),
    ],
)  # fmt: skip
def test_what_is_said_of_them(rows: tuple[OperatorRow, ...], text: str) -> None:
    assert OperatorList("2.13.0", rows).text() == text


def test_names_go_by_bytes_and_then_by_name() -> None:
    rows = [row(name, nbytes=n) for name, n in (("b", 1), ("a", 1), ("c", 9), ("d", 0), ("e", 0), ("f", 0), ("g", 0))]
    assert names_text(rows) == "c, a, b, d, e, f, 1 more"
    assert names_text(rows[:6]) == "c, a, b, d, e, f"
    assert names_text(rows, 2) == "c, a, 5 more"
    assert names_text([row("a", places=("m.py:1", "m.py:2"))], placed=True) == "a at m.py:1 and m.py:2"
    assert names_text([row("a", places=("m.py:1",))]) == "a"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, ""), (1, " at 0"), (2, " at 0 and 1"), (3, " at 0, 1 and 2"), (4, " at 0, 1, 2 and 1 more"),
     (5, " at 0, 1, 2 and 2 more")],
)  # fmt: skip
def test_places_are_three_at_most(count: int, text: str) -> None:
    assert places_text([str(i) for i in range(count)]) == text


def test_a_baseline_has_no_places() -> None:
    found = OperatorList("2.13.0", (row("a", places=("m.py:1",)),), breaks=("m.py:3: why",)).without_places()
    assert (found.rows[0].places, found.breaks) == ((), ())


def test_a_stored_list_says_only_what_there_is() -> None:
    assert msgspec.json.decode('{"torch": "2.13"}', type=OperatorList) == OperatorList(
        "2.13", (), 0, 0, 0, (), (), (), 0, ()
    )
    row = '{"name": "aten.mm", "signature": "s", "count": 2, "nbytes": 8}'
    assert msgspec.json.decode(row, type=OperatorRow) == OperatorRow("aten.mm", "s", 2, 8, "", ())
