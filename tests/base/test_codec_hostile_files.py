"""Files that kerntune has not written: too long, of another kind, under names that can't be; disks that refuse."""

from __future__ import annotations

import errno
import hashlib
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles import raising

from kerntune.base import codec
from kerntune.base.codec import from_json, read_file, unpack, write_atomic, write_new
from kerntune.errors import BaselineError, StoreError

MAX_FILE = 1 << 24
MAX_VALUES = 500_000


SCHEMA = "test.thing/1"


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    numbers: tuple[int, ...] = ()
    anything: dict[str, Any] = {}


def read(data: bytes) -> Thing:
    return from_json(data, Thing, SCHEMA, where="folder/file.json", error=BaselineError)


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    monkeypatch.setattr(os, "read", lambda *args: pytest.fail("nothing of it is read"))
    with pytest.raises(StoreError, match=rf"file\.json: has {100 << 20} bytes, and may have {MAX_FILE}; restore"):
        read_file(path)


def test_a_file_that_grows_while_it_is_read_is_read_to_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"0123")
    monkeypatch.setattr(os, "read", lambda handle, most: b"x" * most)
    assert read_file(path, limit=10) == b"x" * 10


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "deep/" * 1500 + "x"], ids=["NUL", "300", "path"])
def test_names_that_can_not_be_are_errors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(BaselineError, match="can't be read"):
        read_file(path, error=BaselineError)
    with pytest.raises(BaselineError, match="can't be written") as caught:
        write_atomic(path, b"x", error=BaselineError)
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"schema": "test.thing/1", "numbers": [1e999]}', "out of range"),
        (b'{"schema": "test.thing/1", "numbers": [NaN]}', "invalid character"),
        (b'{"schema": "test.thing/1", "numbers": [' + b"9" * 100_000 + b"]}", "a number of 100000 digits"),
        (b'{"schema": "test.thing/1", "anything": {"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}", "recursion"),
        (b'{"schema": "' + b"x" * 100_000 + b'"}', r"has schema 'x{80}\.\.\.'"),
        (b'{"schema": "test.thing/99", "numbers": 1}', "has schema 'test.thing/99'"),
        (b'{"schema": "test.thing/1", "numbers": [0.5]}', r"Expected `int`, got `float` - at `\$\.numbers\[0\]`"),
    ],
    ids=["huge", "NaN", "digits", "nesting", "name", "future", "field"],
)
def test_what_can_not_be_is_an_error_with_file_and_reason(data: bytes, said: str) -> None:
    with pytest.raises(BaselineError, match=said) as caught:
        read(data)
    assert str(caught.value).startswith("folder/file.json: ")
    assert len(str(caught.value)) < 500


def test_what_has_too_many_values_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'{"schema": "test.thing/1", "numbers": [' + b"1," * MAX_VALUES + b"1]}"
    monkeypatch.setattr(msgspec.json, "decode", lambda *args, **words: pytest.fail("nothing is decoded"))
    with pytest.raises(BaselineError, match=f"has more than the {MAX_VALUES} values"):
        read(data)


MEMORY = """
import sys
from pathlib import Path
from kerntune.base import codec
from kerntune.errors import StoreError
from kerntune.tuning.cache.keys import Winner

def most():
    return next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith("VmHWM"))

what, path, before = sys.argv[1], Path(sys.argv[2]), most()
try:
    if what == "unpack":
        codec.unpack(codec.read_file(path, limit=1 << 30), sys.argv[3], 1 << 26)
    else:
        codec.from_json(codec.read_file(path), Winner, "kerntune.winner/0", where="it")
except (StoreError, ValueError) as exc:
    print(str(exc)[:200], file=sys.stderr)
print((most() - before) >> 10)
"""


def megabytes(what: str, path: Path, *more: str) -> int:
    """What a process needs for a file beyond what it needs anyway."""
    done = subprocess.run([sys.executable, "-c", MEMORY, what, path, *more], capture_output=True, text=True, check=True)
    assert done.stderr, "it was refused"
    return int(done.stdout)


@pytest.mark.slow
def test_the_longest_artifact_takes_200_megabytes_at_most(tmp_path: Path) -> None:
    """One byte more than there may be."""
    data = bytes(1 << 26) + b"x"
    packed = tmp_path / "one.xz"
    packed.write_bytes(lzma.compress(data, preset=0))
    assert 60 <= megabytes("unpack", packed, hashlib.sha256(data).hexdigest()) <= 200


@pytest.mark.parametrize("filler", [b"{}", b'{"kwargs":{}}', b'{"kwargs":{"a":1},"options":{"a":"b"}}'])
def test_the_most_values_take_200_megabytes_at_most(tmp_path: Path, filler: bytes) -> None:
    """As many of the costliest values as one file may have: configs, which are objects with tables of their own."""
    many = b",".join([filler] * (MAX_VALUES // (codec.values_at_most(filler) + 1) - 10))
    key = b'{"kernel":"k","source":"s","target":"t","device":"d","triton":"3","arguments":"a","configs":['
    rest = b']},"config":{},"time_ns":1,"environment":{"triton":"3"}}'
    path = tmp_path / "file.json"
    path.write_bytes(b'{"schema":"kerntune.winner/1","key":' + key + many + rest)
    assert 20 <= megabytes("decode", path) <= 200


# writing


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_modes_follow_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "a" / "file", b"x")
        write_new(tmp_path / "a" / "new", b"x")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "a").iterdir()] == [mode, mode]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("durable", [False, True])
def test_a_disk_that_refuses_leaves_what_there_was(
    tmp_path: Path, code: int, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write_atomic(path, b"old")

    monkeypatch.setattr(os, "fsync" if durable else "replace", raising(OSError(code, os.strerror(code))))
    with pytest.raises(StoreError) as caught:
        write_atomic(path, b"new", durable=durable)
    assert f"{path}: can't be written ({os.strerror(code)})" in str(caught.value)
    assert ("read-only?" in str(caught.value)) == (code in (errno.EROFS, errno.EACCES))
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file.json"])


def test_a_durable_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    write_atomic(tmp_path / "file", b"x", durable=True)
    assert done == ["sync", "replace", "sync"], "the file, its name, and the folder that has the name"
    done.clear()
    write_atomic(tmp_path / "other", b"x")
    assert done == ["replace"]


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(outside)
    write_atomic(tmp_path / "link", b"ours")
    assert (outside.read_bytes(), (tmp_path / "link").read_bytes()) == (b"theirs", b"ours")


def test_of_several_new_files_the_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    assert write_new(path, b"one")
    assert not write_new(path, b"two")
    monkeypatch.setattr(Path, "exists", lambda self: False)  # it came after this process had looked
    assert not write_new(path, b"three")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"one", ["file"])


def test_a_disk_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raising(OSError(errno.EPERM, "no links here")))
    assert write_new(tmp_path / "file", b"one")
    assert not write_new(tmp_path / "file", b"two")
    assert ((tmp_path / "file").read_bytes(), os.listdir(tmp_path)) == (b"one", ["file"])


def test_an_xz_file_whose_unpacker_wants_more_memory_is_damage() -> None:
    """A dictionary of 256 MiB, for a few bytes."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    packed = lzma.compress(b"few", format=lzma.FORMAT_XZ, filters=filters)
    with pytest.raises(ValueError, match="is damaged"):
        unpack(packed, hashlib.sha256(b"few").hexdigest(), 1 << 20)
    assert unpack(lzma.compress(b"few", preset=9), hashlib.sha256(b"few").hexdigest(), 3) == b"few"
