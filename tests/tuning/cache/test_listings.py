"""Listings of machine code that outlive their process."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from kerntune.static import disassembly
from kerntune.static.disassembly import Code, Disassembler, Listing, find_tool
from kerntune.tuning.cache.entries import SCHEMA, ListingCache

TEXT = "\n".join(
    [
        "        /*0000*/                   LDC R1, c[0x0][0x28] ;",
        "        /*0010*/                   STL.64 [R1+0x8], R2 ;",
        "        /*0020*/              @P0  EXIT ;",
    ]
)
CODE = bytes(48)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that nvdisasm was run on, an entry a run; any 48 bytes have the same listing."""
    seen: list[int] = []

    def listing(code: bytes, arch: str) -> str:
        seen.append(len(code))
        lines = [TEXT.replace("/*00", f"/*{i:02x}") for i in range(len(code) // 48)]
        shifted = [line for i, text in enumerate(lines) for line in _moved(text, i * 48)]
        return "\n".join(shifted)

    monkeypatch.setattr(disassembly, "_listing", listing)
    return seen


def _moved(text: str, by: int) -> list[str]:
    return [f"        /*{at * 16 + by:04x}*/" + line.split("*/", 1)[1] for at, line in enumerate(text.splitlines())]


def listed(folder: Path, *texts: bytes, arch: str = "sm_90a", most: int = 100) -> list[Listing]:
    """As a new process lists them."""
    return Disassembler(memory=ListingCache(folder, most)).listings(texts, arch)


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "listings").rglob("*.json"))


def test_another_process_does_not_start_nvdisasm(tmp_path: Path, runs: list[int]) -> None:
    (first,) = listed(tmp_path, CODE)
    (again,) = listed(tmp_path, CODE)
    assert runs == [48]
    assert again == first
    assert first.stack == {("STL.64", 8): 1}
    assert first.opcodes == Counter({"LDC": 1, "STL.64": 1, "EXIT": 1})


def test_only_unknown_code_is_listed(tmp_path: Path, runs: list[int]) -> None:
    listed(tmp_path, CODE)
    other = b"\1" * 96
    listed(tmp_path, other[:48], CODE, b"\2" * 48)
    assert runs == [48, 96]
    assert ListingCache(tmp_path).count() == 3


def test_another_architecture_or_tool_is_asked(
    tmp_path: Path, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(tmp_path, CODE)
    listed(tmp_path, CODE, arch="sm_80")
    tool = tmp_path / "nvdisasm"
    tool.write_bytes(find_tool("nvdisasm").read_bytes()[:-1])
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tool))
    listed(tmp_path, CODE)
    assert len(runs) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"LDC": 1', '"LDC": 2'),
        lambda text: text.replace("sm_90a", "sm_80"),
        lambda text: text.replace(SCHEMA, SCHEMA[:-1] + "0"),
        lambda text: "{}",
        lambda text: "",
    ],
    ids=["cut off", "miscounted", "of another", "of another version", "no fields", "empty"],
)
def test_a_damaged_entry_is_set_aside_and_made_anew(tmp_path: Path, runs: list[int], damage: object) -> None:
    (first,) = listed(tmp_path, CODE)
    (path,) = entries(tmp_path)
    text = damage(path.read_text())  # type: ignore[operator]
    path.write_text(text)
    assert listed(tmp_path, CODE) == [first]
    assert runs == [48, 48]
    assert path.with_suffix(".damaged").read_text() == text
    assert listed(tmp_path, CODE) == [first]
    assert runs == [48, 48]


def test_the_least_recently_used_are_forgotten(tmp_path: Path, runs: list[int]) -> None:
    codes = [bytes([i]) * 48 for i in range(4)]
    for i, code in enumerate(codes[:3]):
        listed(tmp_path, code, most=3)
        for path in entries(tmp_path):
            if path.stat().st_mtime > 1000:
                os.utime(path, (i, i))
    listed(tmp_path, codes[0], most=3)  # the oldest, used again
    listed(tmp_path, codes[3], most=3)
    assert len(entries(tmp_path)) == 3
    runs.clear()
    listed(tmp_path, codes[0], codes[2], codes[3], most=3)
    assert runs == []
    listed(tmp_path, codes[1], most=3)
    assert runs == [48]


def test_a_folder_that_cannot_be_written_remembers_nothing(tmp_path: Path, runs: list[int]) -> None:
    (tmp_path / "listings").write_text("a file where the folder should be")
    assert listed(tmp_path, CODE) == listed(tmp_path, CODE)
    assert runs == [48, 48]


def test_clearing(tmp_path: Path, runs: list[int]) -> None:
    listed(tmp_path, CODE, b"\1" * 48)
    cache = ListingCache(tmp_path)
    assert (cache.count(), cache.clear(), cache.count()) == (2, 2, 0)


def test_a_code_is_told_by_all_that_its_listing_depends_on() -> None:
    code = Code("sm_90a", "0" * 64, 3, "1")
    others = [Code("sm_80", "0" * 64, 3, "1"), Code("sm_90a", "1" * 64, 3, "1"), Code("sm_90a", "0" * 64, 3, "2")]
    cache = ListingCache(Path("unused"))
    assert len({cache._path(c) for c in (code, *others)}) == 4


def test_accesses_are_stored_in_order_and_come_back(tmp_path: Path) -> None:
    code, cache = Code("sm_90a", "0" * 64, 3, "12.9"), ListingCache(tmp_path)
    stack = {("STL", 8): 2, ("LDL", 0): 1}
    found = Listing(Counter({"STL": 2, "LDL": 1}), stack, True, {("LDL", 0): 1})
    assert cache.find(code) is None
    cache.add({code: found})
    assert cache.find(code) == found
    (path,) = entries(tmp_path)
    stored = json.loads(path.read_text())
    assert stored["stack"] == [["LDL", 0, 1], ["STL", 8, 2]]
    assert len(path.stem) == 32
    assert path.parent.name == path.stem[:2]
    assert cache.damaged == []


def test_an_entry_that_is_used_stays_longer(tmp_path: Path) -> None:
    cache = ListingCache(tmp_path, most=2)
    codes = [Code("sm_90a", str(i) * 64, 1, "12.9") for i in range(3)]
    for code in codes[:2]:
        cache.add({code: Listing(Counter({"EXIT": 1}), {}, False, {})})
    for number, path in enumerate((cache._path(codes[0]), cache._path(codes[1]))):
        os.utime(path, (number + 1, number + 1))
    assert cache.find(codes[0]) is not None
    cache.add({codes[2]: Listing(Counter({"EXIT": 1}), {}, False, {})})
    assert cache.count() == 2
    assert [cache.find(code) is not None for code in codes] == [True, False, True]


def test_an_entry_that_another_process_removes_meanwhile_is_the_first_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, found = ListingCache(tmp_path, most=2), Listing(Counter({"EXIT": 1}), {}, False, {})
    codes = [Code("sm_90a", str(i) * 64, 1, "12.9") for i in range(2)]
    paths = cache.paths
    monkeypatch.setattr(cache, "paths", lambda: [*paths(), cache.folder / "gone.json"])
    cache.add(dict.fromkeys(codes, found))
    assert [cache.find(code) for code in codes] == [found, found]


def test_listings_that_nobody_makes_are_not_stored(tmp_path: Path) -> None:
    cache, asked = ListingCache(tmp_path), list[list[Code]]()
    code = Code("sm_90a", "0" * 64, 1, "12.9")
    assert cache.complete([code], lambda codes: asked.append(codes) or {}) == {}
    assert asked == [[code]]
    assert cache.count() == 0
    made = {code: Listing(Counter({"EXIT": 1}), {}, False, {})}
    assert cache.complete([code], lambda codes: made) == made
    assert cache.complete([code], lambda codes: asked.append(codes) or {}) == made
    assert asked[1:] == [[]]


def test_what_is_as_by_default_is_not_stored(tmp_path: Path) -> None:
    cache, code = ListingCache(tmp_path), Code("sm_90a", "0" * 64, 1, "12.9")
    cache.add({code: Listing(Counter({"EXIT": 1}), {}, False, {})})
    (path,) = entries(tmp_path)
    assert sorted(json.loads(path.read_text())) == ["arch", "instructions", "opcodes", "schema", "sha256", "tool"]
