"""Which lines of two texts differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerntune.gate import code_changes
from kerntune.gate.code_changes import hunk_text, hunks

CONTEXT = 3
MAX_COMPARED = 8_000


LINES = st.lists(st.sampled_from(["add", "mul", "ld", "st", "bra"]), max_size=30)


def test_a_compile_field_is_a_number_of_a_few_digits() -> None:
    """Python refuses to read thousands; what is none stays a text, which no compiler takes."""
    texts = ("4", "9" * 9, "1" * 10, "²", "", "-4")
    assert [code_changes._number(text) for text in texts] == [4, 999_999_999, "1" * 10, "²", "", "-4"]


def test_numbers_of_values_and_registers_dont_count_beside_another_difference() -> None:
    before = ["mov %r1, 1", "IADD R1, R2, R3", "bra $L1"]
    after = ["mov %r7, 1", "IADD R9, R8, R3", "bra $L4", "ret"]
    text, _ = hunk_text(before, after, 99)
    assert [line for line in text.splitlines() if line[0] in "+-"] == ["+ret"]
    assert hunk_text(before[:1], after[:1], 99)[0].endswith("-mov %r1, 1\n+mov %r7, 1"), "alone they do"


def test_what_is_too_long_is_counted() -> None:
    text, cut = hunk_text(["a"] * 10, ["b"] * 10, 7)
    assert len(text.splitlines()) == 7
    assert cut == 21 - 7


def test_equal_ends_cost_nothing() -> None:
    """The comparison's time grows with the product of both lengths, so only what lies between is compared."""
    same = [f"line {i}" for i in range(3 * MAX_COMPARED)]
    (hunk,) = hunks(same, [*same[:50], "x", *same[51:]])
    assert [op for op in hunk if op[0] != "equal"] == [("replace", 50, 51, 50, 51)]
    assert hunk[0][1] == 50 - CONTEXT
    assert hunk[-1][2] == 51 + CONTEXT


@given(LINES, LINES)
def test_hunks_make_one_text_of_the_other(before: list[str], after: list[str]) -> None:
    rebuilt, at = [], 0
    for hunk in hunks(before, after):
        for tag, i, j, k, m in hunk:
            rebuilt += before[at:i]
            rebuilt += after[k:m]
            at = j
            assert tag != "equal" or before[i:j] == after[k:m]
    assert rebuilt + before[at:] == after


def test_a_hunk_says_where_it_lies() -> None:
    """As diff -u: the first line from 1, and how many lines, of both sides."""
    before = [f"line {i}" for i in range(1, 31)]
    after = [*before[:9], "new 10", "new 10b", *before[10:24], *before[25:]]
    text, left = hunk_text(before, after, 99)
    heads = [line for line in text.splitlines() if line.startswith("@@")]
    assert (heads, left) == (["@@ -7,7 +7,8 @@", "@@ -22,7 +23,6 @@"], 0)
    whole = ["@@ -7,7 +7,8 @@", " line 7", " line 8", " line 9", "-line 10", "+new 10", "+new 10b", " line 11"]
    assert text.splitlines()[:8] == whole
    assert hunk_text(before, after, 3) == ("\n".join(whole[:3]), len(text.splitlines()) - 3)
    assert hunks(before, before) == []
