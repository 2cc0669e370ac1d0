"""Every pattern of the project, and every scan of text that isn't ours, ends on texts that are made to be slow."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hostile_texts import LENGTH, Pattern, TooSlow, is_linear, patterns, texts_for, within_time

from kerntune.compiling.binary.identity import anonymous, bare_text, stage_hashes, strip_debug, strip_locations
from kerntune.gate.code_changes import hunk_text
from kerntune.gpu.emulator.ttir_program import operation_lines
from kerntune.heuristics.call_hints import count_ttir
from kerntune.kernels.compat.operation_attributes import attributes_in_text
from kerntune.kernels.compat.stored_options import includes_files
from kerntune.static.ptx import ptx_classes


def slow(pattern: Pattern) -> str:
    """The beginning of a text on which a pattern doesn't end soon; empty if there is none."""
    for text in texts_for(pattern.text):
        try:
            within_time(lambda text=text: pattern.use(text))
        except TooSlow:
            return repr(text[:40])
    return ""


@pytest.mark.slow
def test_every_pattern_is_linear() -> None:
    distinct = {(p.text, p.flags, p.methods): p for p in patterns()}
    assert len(distinct) > 100, "they are found"
    found = {p.place: said for p in distinct.values() if (said := slow(p))}
    assert not found


@pytest.mark.parametrize("text", [r"^\s*\.loc", r"/\*.*?\*/", r"(\d+)x", r'"(?:[^"\\]|\\.)*"', r"(a+)+b"])
def test_one_that_is_not_is_found(text: str) -> None:
    assert slow(Pattern("here", text, re.MULTILINE | re.DOTALL, ("sub",)))


MANY = 2 * LENGTH

SCANS: dict[str, Callable[[str], object]] = {
    "strip_locations": strip_locations,
    "strip_debug of PTX": lambda text: strip_debug(text, kind="ptx"),
    "strip_debug of amdgcn": lambda text: strip_debug(text, kind="amdgcn"),
    "bare_text of PTX": lambda text: bare_text(text, "ptx"),
    "bare_text of amdgcn": lambda text: bare_text(text, "amdgcn"),
    "stage_hashes": lambda text: stage_hashes({"ttir": text, "llir": text, "ptx": text}),
    "count_ttir": count_ttir,
    "operation_lines": operation_lines,
    "attributes_in_text": lambda text: [attributes_in_text(name, text) for name in ("tt.dot", "tt.fp_to_fp")],
    "ptx_classes": ptx_classes,
    "includes_files": lambda text: includes_files("hip", f"inline_asm {text}"),
}

TEXTS = {
    "blanks": " " * MANY,
    "lines": "\n" * MANY,
    "comments": "/*" * (MANY // 2),
    "quotes": '" \\' * (MANY // 3),
    "locations": "loc(" * (MANY // 4),
    "blanks and locations": f"{' ' * (MANY // 2)}loc({' ' * (MANY // 2)}",
    "functions": "".join(f".visible .entry k{i}(\n.type k{i},@function\ntt.func @k{i}\n" for i in range(MANY // 50)),
    "names": f".visible .entry {'a' * 999}(\n.type {'a' * 999},@function\n {'a' * MANY}",
    "parameters": f".visible .entry a(\n a{'_param_0' * (MANY // 8)} (a{'_param_0' * 99}",
    "dots": f".type a,@function\n {'.' * MANY} {'.La' * (MANY // 3)} {'a.' * (MANY // 2)}",
    "sections": ".section .debug_a {\n" * (MANY // 20),
    "labels": "".join(f"$L_{i}:\n" for i in range(MANY // 8)),
    "values": "%a = " * (MANY // 5),
    "instructions": "a \n" * (MANY // 3),
    "copies": "cp.async.ca " * (MANY // 12),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_every_scan_is_linear(text: str) -> None:
    assert not [name for name, scan in SCANS.items() if not is_linear(scan, text, 0.5)]


@pytest.mark.parametrize(("step", "linear"), [(LENGTH, True), (200, False)])
def test_growth_tells_what_is_slow_from_what_is_not_linear(step: int, linear: bool) -> None:
    def scan(text: str) -> int:
        return sum(sum(map(ord, text[i:])) for i in range(0, len(text), step) for _ in range(step // 200))

    assert is_linear(scan, "a" * LENGTH, 0.01) == linear


@pytest.mark.parametrize("sides", [
    (["a"] * 9_000, ["b", *["a"] * 8_999]), (["a", "b"] * 4_500, ["b", "a"] * 4_500),
    ([str(i % 90) for i in range(9_000)], [str(i % 89) for i in range(9_000)]),
], ids=["one line", "two lines", "ninety lines"])  # fmt: skip
def test_differences_end(sides: tuple[list[str], list[str]]) -> None:
    within_time(lambda: hunk_text(*sides, 400), 5.0)


# names of functions: the same as the patterns that were used before gave, which took the square of a text's length

_FUNCTION = {
    "ptx": re.compile(r"^(?:\.(?:visible|weak)\s+)?\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE),
    "amdgcn": re.compile(r"^\.type\s+([\w$.]+),@function", re.MULTILINE),
}
_PLACES = {
    "ptx": r"(?<=[ (\[,])(?:{0})(?![\w$.])|^(?:{0})(?=[,(])|(?<![\w$%.])(?:{0})(?=_param_\d)",
    "amdgcn": r"(?<=[ ,(-])(?:{0})(?![\w$])|^(?:{0})(?=:)|(?<=\.L)(?:{0})(?=\.)",
}
NAMES = ["k", "add", "a.b", "f$1", "k_param_0", "kk", "a", "L", "x.y.z", "Lk"]
PIECES = [
    *" ([,.%-:;$\t@1",
    ".L",
    "_param_0",
    "_param_1x",
    "k",
    "add",
    "a",
    "b",
    "a.b",
    "f$1",
    "kk",
    "x.y.z",
    "Lk",
    ".end",
]


def by_patterns(text: str, kind: str) -> str:
    found = list(dict.fromkeys(_FUNCTION[kind].findall(text)))
    names = {name: f"function_{i}" for i, name in enumerate(found)}
    either = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    places = re.compile(_PLACES[kind].replace("{0}", either), re.MULTILINE)
    return places.sub(lambda m: names[m[0]], text) if names else text


@pytest.mark.parametrize("kind", ["ptx", "amdgcn"])
def test_names_are_replaced_where_the_patterns_found_them(kind: str) -> None:
    rng = random.Random(1)
    head = ".visible .entry {0}(" if kind == "ptx" else ".type {0},@function"
    for _ in range(2_000):
        names = [n for n in rng.sample(NAMES, rng.randint(1, 3)) if kind != "ptx" or "." not in n]
        lines = ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8))) for _ in range(4)]
        text = "\n".join([*map(head.format, names), *lines])
        assert anonymous(text, kind) == by_patterns(text, kind)  # type: ignore[arg-type]
