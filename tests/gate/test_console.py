"""What commands print, where, and the exit code that findings come to."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerntune.base import live_line
from kerntune.gate import console
from kerntune.gate.console import FINDINGS, OK, USAGE, counted, error_text, fail_with, say, speak_anything


def test_findings_go_to_standard_error_and_make_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert (OK, FINDINGS, USAGE) == (0, 1, 2), "scripts of users depend on them"
    assert fail_with([]) == OK
    assert capsys.readouterr() == ("", "")
    assert fail_with(["one is old", "two are"]) == FINDINGS
    assert capsys.readouterr() == ("", "kerntune: one is old\nkerntune: two are\n")


def test_results_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    say("a")
    say("b", end="")
    assert capsys.readouterr() == ("a\nb", "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.json"), "a.json: No such file or directory"),
        (OSError("the device is gone"), "the device is gone"),
        (ValueError("x is no number"), "x is no number"),
    ],
)
def test_an_error_names_the_file_if_it_has_one(error: Exception, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases")])
def test_nouns_follow_their_number(count: int, text: str) -> None:
    assert counted(count, "case") == text


def test_what_an_encoding_lacks_is_shown_as_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [io.BytesIO(), io.BytesIO()]
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding="ascii", write_through=True))
    speak_anything()
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        print("12 µs", file=getattr(sys, name))
        assert file.getvalue() == b"12 \\xb5s\n"


def test_other_streams_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    speak_anything()
    say("µ")


class Terminal(io.StringIO):
    """Standard error of somebody who looks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("paged", "in_place"), [(False, True), (True, False), (None, False)])
def test_a_line_is_in_place_on_a_terminal_without_a_pager(
    monkeypatch: pytest.MonkeyPatch, paged: bool | None, in_place: bool
) -> None:
    made: list[Any] = []

    class Line:
        def __init__(self, write: Callable[[str], object], *, in_place: bool) -> None:
            made.append(in_place)
            write("shown")

        def tell(self, text: str) -> None:
            made.append(text)

        def start(self) -> None:
            made.append("start")

        def close(self) -> None:
            made.append("close")

    monkeypatch.setattr(live_line, "LiveLine", Line)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    if paged is None:
        monkeypatch.setattr(sys, "stdout", None)
    else:
        monkeypatch.setattr(console, "_paged", lambda: paged)
    line = console.live_line("bisect")
    line.__enter__()
    assert made == [in_place, "kerntune bisect", "start"]
    assert not line.__exit__(KeyError, KeyError(), None)
    assert made[3:] == ["close"]
    assert stream.getvalue() == "shown"
    made.clear()
    stream.close()
    for gone in (stream, None):
        monkeypatch.setattr(sys, "stderr", gone)
        with console.live_line("bisect"):
            assert made == []


def test_a_pipe_is_a_pager_and_a_file_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read, write = os.pipe()
    with open(tmp_path / "file", "w") as file, open(write, "w") as pipe, open(read):
        for stream, paged in ((file, False), (pipe, True), (io.StringIO(), True)):
            monkeypatch.setattr(sys, "stdout", stream)
            assert console._paged() is paged


def test_a_line_that_was_never_shown_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[int] = []
    monkeypatch.setattr(live_line, "hide", lambda: hidden.append(1))
    for output in (console.hide_line, lambda: say("a"), lambda: console.complain("a")):
        output()
    monkeypatch.delitem(sys.modules, "kerntune.base.live_line")
    console.hide_line()
    assert hidden == [1, 1, 1], "before all that is printed"


@pytest.mark.parametrize(
    ("words", "room", "narrowed"),
    [
        ([3, 3], 32, [10, 20]), ([3, 3], 31, [10, 19]), ([3, 3], 16, [7, 7]),
        ([9, 18], 25, [9, 14]), ([10, 20], 31, [10, 19]), ([10, 20], 0, [8, 8]),
    ],
)  # fmt: skip
def test_the_widest_column_is_narrowed_first(words: list[int], room: int, narrowed: list[int]) -> None:
    """To its longest word; where that isn't enough, within words."""
    assert console.GAP == "  "
    assert console._narrowed([10, 20], words, room) == narrowed


def test_a_column_is_no_narrower_than_a_time() -> None:
    assert [console._longest_word(cells) for cells in (["ab cd", ""], ["ab", "a-longer-word c"])] == [8, 13]


def test_a_cell_that_is_too_wide_goes_on_below() -> None:
    """Within a word where that has no room, and at no hyphen: names of options have some."""
    rows = console._side_by_side(["one two", "a-long-name", "x\n\ny"], [4, 6, 3])
    assert rows == ["one   a-long  x", "two   -name", "              y"]


HEADERS = ("case", "config", "verdict")
ROWS = [("a.py::test_a", "BLOCK_M=128 num_warps=8", "PASS"), ("b", "x", "REGRESSED")]


@pytest.mark.parametrize("width", [48, 500])
def test_a_table_has_a_column_as_wide_as_its_widest_cell(width: int) -> None:
    assert console.text_table(HEADERS, ROWS, {}, width, ()) == [
        ["case          config                   verdict", "------------  -----------------------  ---------"],
        ["a.py::test_a  BLOCK_M=128 num_warps=8  PASS"],
        ["b             x                        REGRESSED"],
    ]  # fmt: skip


def test_a_column_that_may_be_no_wider_is_named_by_its_header() -> None:
    """Not by what stands in one of its cells."""
    head, first, second = console.text_table(HEADERS, ROWS, {"config": 11, "x": 3, "PASS": 2}, 500, ())
    assert head == ["case          config       verdict", "------------  -----------  ---------"]
    assert first == ["a.py::test_a  BLOCK_M=128  PASS", "              num_warps=8"]
    assert second == ["b             x            REGRESSED"]


def test_a_row_without_room_has_its_case_above_and_the_rest_in_narrower_columns() -> None:
    head, first, second = console.text_table(HEADERS, ROWS, {}, 47, ())
    assert head == ["  config                   verdict", "  -----------------------  ---------"]
    assert first == ["a.py::test_a", "  BLOCK_M=128 num_warps=8  PASS"]
    assert second == ["b", "  x                        REGRESSED"]
    head, first, second = console.text_table(HEADERS, ROWS, {}, 20, ("config",))
    assert head == ["  verdict", "  ---------"]
    assert first == ["a.py::test_a", "  BLOCK_M=128", "  num_warps=8", "  PASS"]
    assert second == ["b", "  x", "  REGRESSED"]


def test_columns_wrap_at_their_widths_or_are_markdown() -> None:
    assert console.columns([("one two", 10)], ["name", "count"], [3, None]).splitlines() == [
        "name    count", "------  -------", "one     10", "two",
    ]  # fmt: skip
    assert console.columns([("007", 1.50)], ["name", "text"]).splitlines()[2] == "007     1.5", "as they are"
    told = console.columns([("c d", "1 | 2")], ["name", "text"], [1, 1], markdown=True).splitlines()
    assert [" ".join(line.split()) for line in (told[0], told[2])] == ["| name | text |", "| `c d` | 1 &#124; 2 |"]
    assert len(told) == 3
