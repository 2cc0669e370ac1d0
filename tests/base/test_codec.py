"""Files: strict in, stable out, whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles import raising
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base import codec
from kerntune.base.codec import encodable, from_json, to_json, write_atomic
from kerntune.base.stats import Estimate
from kerntune.errors import BaselineError, CacheError, StoreError

SCHEMA = "test.thing/2"


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int = 0


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    name: str
    numbers: tuple[float, ...] = ()
    table: dict[str, int] = {}
    part: Part = Part()


def read(data: bytes) -> Thing:
    return from_json(data, Thing, SCHEMA, where="folder/file.json", error=BaselineError)


finite = st.floats(allow_nan=False, allow_infinity=False)
things = st.builds(
    Thing,
    schema=st.just(SCHEMA),
    name=st.text(max_size=10),
    numbers=st.lists(finite, max_size=3).map(tuple),
    table=st.dictionaries(st.text(max_size=4), st.integers(-(2**63), 2**63), max_size=3),
    part=st.builds(Part, st.integers(0, 9)),
)


@pytest.mark.slow
@given(things)
def test_round_trip(thing: Thing) -> None:
    assert read(to_json(thing)) == thing


@pytest.mark.slow
@given(things)
def test_equal_values_are_equal_bytes(thing: Thing) -> None:
    turned = msgspec.structs.replace(thing, table=dict(reversed(thing.table.items())))
    assert to_json(turned) == to_json(thing)


def test_text_is_for_diffs() -> None:
    text = to_json(Thing(SCHEMA, "µ", table={"b": 1, "a": 2})).decode()
    assert text.endswith("}\n")
    assert '\n "name": "µ",\n' in text
    keys = [line.split('"')[1] for line in text.splitlines() if line.startswith(' "')]
    assert keys == sorted(keys)
    assert text.index('"a"') < text.index('"b"')


def test_floats_are_written_in_full() -> None:
    assert read(to_json(Thing(SCHEMA, "x", (0.1 + 0.2, 1e-300)))).numbers == (0.1 + 0.2, 1e-300)


@given(things, st.data())
def test_a_truncated_file_is_damage(thing: Thing, data: st.DataObject) -> None:
    whole = to_json(thing)
    cut = data.draw(st.integers(0, len(whole) - 3))
    with pytest.raises(BaselineError, match=r"folder/file\.json"):
        read(whole[:cut])


@pytest.mark.parametrize(
    ("given", "schema", "said"),
    [
        ("test.thing/1", "test.thing/2", "Have it written anew, or use the kerntune that wrote it"),
        ("", "test.thing/2", "It is a file of another kind; name the right one"),
        ("kerntune.run/1", "kerntune.time/1", "It is a file of another kind; name the right one"),
        ("kerntune.time/1", "kerntune.time/2", "Record it anew with --kerntune-update=all, or use the kerntune that"),
    ],
)
def test_a_file_of_another_schema_is_refused(given: str, schema: str, said: str) -> None:
    with pytest.raises(BaselineError) as info:
        from_json(to_json(Thing(given, "x")), Thing, schema, where="folder/file.json", error=BaselineError)
    expected = f"folder/file.json: has schema {given or 'none'!r}, this kerntune reads {schema!r}. {said}"
    assert str(info.value).startswith(expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": None}, "schema"),
        ({"schema": 2}, "schema"),
        ({"extra": 1}, "extra"),
        ({"part": {"size": 1, "colour": "red"}}, "colour"),
        ({"name": 5}, "Expected `str`, got `int`"),
        ({"numbers": ["1.5"]}, "Expected `float`, got `str`"),
        ({"numbers": [None]}, "got `null`"),
        ({"part": {"size": 1.5}}, "Expected `int`"),
        ({"part": {"size": "1"}}, "Expected `int`, got `str`"),
        ({"table": {"a": True}}, "Expected `int`, got `bool`"),
        ({"part": None}, "got `null`"),
    ],
)
def test_refuses_with_file_and_reason(change: dict[str, object], said: str) -> None:
    content = {**json.loads(to_json(Thing(SCHEMA, "x"))), **change}
    with pytest.raises(BaselineError) as info:
        read(json.dumps(content).encode())
    assert str(info.value).startswith("folder/file.json: ")
    assert said in str(info.value)
    assert "ecord it anew" in str(info.value)


def test_refuses_a_missing_field() -> None:
    with pytest.raises(BaselineError, match="name"):
        read(json.dumps({"schema": SCHEMA}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'"x"', b"{} {}", b"\x00\x01", b"<<<<<<< HEAD\n{}\n"])
def test_refuses_what_is_no_object(data: bytes) -> None:
    with pytest.raises(BaselineError, match=r"folder/file\.json"):
        read(data)


def test_bytes_that_are_no_text_are_damage() -> None:
    with pytest.raises(BaselineError):
        read(b'{"schema": "test.thing/2", "name": "\xff"}')


def test_absurd_nesting_is_damage() -> None:
    with pytest.raises(BaselineError):
        read(b'{"extra":' + b"[" * 100_000)


def test_error_is_the_callers_kind() -> None:
    with pytest.raises(CacheError):
        from_json(b"", Thing, SCHEMA, where="x", error=CacheError)
    with pytest.raises(StoreError) as info:
        from_json(b"", Thing, SCHEMA, where="x")
    assert type(info.value) is StoreError


def test_another_schema_is_named_even_if_nothing_else_fits() -> None:
    """The error for a newer kerntune's file names its version, and no unknown field."""
    with pytest.raises(BaselineError, match=r"test\.thing/3"):
        read(b'{"schema": "test.thing/3", "everything": ["else"]}')


class Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    change: Estimate


def test_an_open_interval_can_be_read_back() -> None:
    written = to_json(Open(SCHEMA, Estimate(0.1, -math.inf, math.inf, 0.999)))
    assert from_json(written, Open, SCHEMA, where="x").change.high == math.inf


# writing


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("I am a file")
    path = tmp_path / "folder" / "deeper" / "file.json"
    with pytest.raises(CacheError, match="can't be written") as info:
        write_atomic(path, b"x", error=CacheError)
    assert str(path) in str(info.value)
    assert "read-only?" in str(info.value)


def test_a_folder_in_the_files_place(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(StoreError, match="can't be written"):
        write_atomic(path, b"x")
    assert os.listdir(tmp_path) == ["file.json"]


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """Writing more than ``limit`` bytes to a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_atomic(path, b"old")
    with small_files(1000), pytest.raises(BaselineError, match="can't be written"):
        write_atomic(path, b"x" * 100_000, error=BaselineError)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.json"]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_atomic(path, b"old")

    monkeypatch.setattr(os, "replace", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.json"]


def test_what_python_could_not_decode_is_stored_as_utf8() -> None:
    """PEP 383: under an ASCII locale a path's other bytes are lone surrogates."""
    path = "tests/test_ü.py".encode().decode("ascii", errors="surrogateescape")
    assert encodable(path) == "tests/test_ü.py"
    for text in ("plain", "ü", "\U0001f600"):
        assert encodable(text) is text
    assert encodable(b"\xff.py".decode("ascii", errors="surrogateescape")) == "\\xff.py"
    assert encodable("\ud800") == "\\ud800"
    stored = to_json({path: [path, {"inner": msgspec.Raw(b"1")}]})
    assert json.loads(stored) == {"tests/test_ü.py": ["tests/test_ü.py", {"inner": 1}]}


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_any_text_can_be_stored(text: str) -> None:
    assert json.loads(to_json({text: text})) == {encodable(text): encodable(text)}
    assert encodable(encodable(text)) == encodable(text)


CONFLICT = b"""{
<<<<<<< HEAD
 "schema": "a",
=======
 "schema": "b",
>>>>>>> theirs
}
"""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (CONFLICT, "conflict markers of a merge. Take one side whole"),
        (b"{\n|<<<<<<< HEAD", "may be cut off"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "git lfs pull"),
        (b'{"schema": "test.th', "may be cut off"),
    ],
    ids=["conflict", "no conflict", "lfs", "cut"],
)
def test_what_is_no_json_says_what_became_of_it(data: bytes, words: str) -> None:
    with pytest.raises(StoreError, match=re.escape(words)):
        from_json(data, Thing, SCHEMA, where="a.json")


def test_why_a_file_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that isn't there is None; of the largest that may be read, all is."""
    file, fifo = tmp_path / "file", tmp_path / "fifo"
    file.write_bytes(b"12345")
    os.mkfifo(fifo)
    assert codec.read_file(tmp_path / "none") is None
    assert codec.read_file(file, limit=5) == b"12345"

    def why(path: Path, **words: Any) -> str:
        with pytest.raises(StoreError) as told:
            codec.read_file(path, **words)
        return str(told.value).removeprefix(f"{tmp_path}/")

    assert why(file, limit=4).startswith("file: has 5 bytes, and may have 4; ")
    assert why(fifo) == "fifo: can't be read: it is a FIFO, not a regular file; move it away"
    assert why(tmp_path) == f"{tmp_path}: can't be read: it is a folder, not a regular file; move it away"
    assert why(tmp_path / "a\0b") == "a\\u0000b: can't be read (embedded null byte)"
    assert why(file / "below") == "file/below: can't be read (Not a directory)"

    monkeypatch.setattr(codec, "_whole", raising(OSError(5, "Input/output error")))
    assert why(file) == "file: can't be read (Input/output error)"


@pytest.mark.parametrize(
    ("schema", "newer"),
    [
        ("test.thing/3", True), ("test.thing/99999999", True), ("test.thing/999999999", False), ("test.thing/2", False),
        ("test.thing/1", False), ("test.other/3", False), ("test.thing/x", False), ("test.thing/³", False), ("", False),
    ],
)  # fmt: skip
def test_a_later_version_of_the_same_kind_is_newer(schema: str, newer: bool) -> None:
    assert codec.is_newer(json.dumps({"schema": schema, "more": 1}).encode(), SCHEMA) is newer
    assert not codec.is_newer(json.dumps({"schema": schema}).encode()[:-1], SCHEMA)


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_is_whole_when_the_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Then its folder, for the rename."""
    told: list[Any] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: told.append((stat.S_ISDIR(os.fstat(handle).st_mode), _size(handle)))
    )
    codec.write_atomic(tmp_path / "a", b"12345", durable=durable)
    assert [told[0], told[1][0]] == [(False, 5), True] if durable else told == []


def _size(handle: int) -> int:
    return os.fstat(handle).st_size


def test_no_more_than_a_mebibyte_is_read_or_unpacked_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is too long is given up early."""
    asked, read = list[int](), os.read
    (tmp_path / "a").write_bytes(bytes(5 << 19))
    monkeypatch.setattr(os, "read", lambda handle, count: asked.append(count) or read(handle, count))
    assert codec.read_file(tmp_path / "a", limit=3 << 20) == bytes(5 << 19)
    assert asked == [1 << 20, 1 << 20, 1 << 20, 1 << 19]


@pytest.mark.parametrize("limit", [100, 1])
def test_a_file_is_closed_whatever_is_read_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    (tmp_path / "a.json").write_bytes(b"{ }")
    opened, closed, real_open, real_close = list[int](), list[int](), os.open, os.close
    monkeypatch.setattr(os, "open", lambda *args: opened.append(real_open(*args)) or opened[-1])
    monkeypatch.setattr(os, "close", lambda handle: closed.append(handle) or real_close(handle))
    with pytest.raises(StoreError) if limit == 1 else nullcontext():
        codec.read_file(tmp_path / "a.json", limit=limit)
    assert len(opened) == 1
    assert closed == opened
