"""A cache that others have had their hands on: damage is set aside and told once, and costs no more than its entry."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base import codec
from kerntune.errors import CacheError
from kerntune.tuning.cache import (
    TrialCache,
    Winner,
    WinnerCache,
    add_shipped,
    export_cache,
    export_devices,
    import_cache,
    winners,
)
from kerntune.tuning.cache.keys import SCHEMA
from tuning.cache.made import LARGE, QUESTION, SMALL, WINNER, trial, won

MAX_ENTRY = 1 << 22


replace = msgspec.structs.replace


@pytest.fixture
def cache(tmp_path: Path) -> WinnerCache:
    found = WinnerCache(tmp_path / "cache")
    found.add(won(LARGE))
    return found


def file_of(cache: WinnerCache) -> Path:
    (path,) = cache.folder.glob("winners/??/*/*.json")
    return path


def too_long(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(100 << 20)


def rewrite(**changes: Any) -> Any:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE = [
    pytest.param(lambda path: path.write_bytes(b""), id="empty, as a power cut leaves it"),
    pytest.param(lambda path: path.write_bytes(bytes(path.stat().st_size)), id="zeros, as a power cut leaves it"),
    pytest.param(too_long, id="100 MB"),
    pytest.param(rewrite(time_ns=-1.0), id="negative"),
    pytest.param(rewrite(time_ns=1e300), id="huge"),
    pytest.param(lambda path: path.write_text(path.read_text().replace("1.0", "NaN")), id="NaN"),
    pytest.param(lambda path: path.write_bytes(b'{"key":' + b"[" * 100_000), id="nesting"),
    pytest.param(lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]), id="a flipped byte"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_set_aside_and_told_once(cache: WinnerCache, damage: Any) -> None:
    path = file_of(cache)
    damage(path)
    size = path.stat().st_size
    assert [cache.get(WINNER), cache.get(WINNER), WinnerCache(cache.folder).get(WINNER)] == [None] * 3
    (told,) = cache.damaged
    assert told.startswith(f"{path}: ")
    assert (path.exists(), path.with_suffix(".damaged").stat().st_size) == (False, size)
    cache.add(won(SMALL))
    found = cache.get(WINNER)
    assert found is not None
    assert found.config == SMALL


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_flipped_bits_cost_the_entry_at_most(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    cache = WinnerCache(tmp_path_factory.mktemp("cache"))
    cache.add(won(LARGE))
    path = file_of(cache)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(whole))
    found = cache.get(WINNER)
    assert found is None or found.key.digest() == WINNER.digest()
    assert len(cache.damaged) <= 1


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_an_entry_of_another_user_is_told_once_and_left(
    cache: WinnerCache, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = file_of(cache), os.open

    def refuse(name: Any, *args: Any, **words: Any) -> int:
        if str(name) == str(path):
            raise OSError(code, os.strerror(code))
        return opened(name, *args, **words)

    monkeypatch.setattr(os, "open", refuse)
    assert [cache.get(WINNER), cache.get(WINNER)] == [None, None]
    assert cache.damaged == [f"{path}: can't be read ({os.strerror(code)})"]
    assert path.exists()


def test_a_read_only_cache_is_read(cache: WinnerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **words: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("rename", "replace", "link", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(codec, "_write", refuse)
    assert cache.get(WINNER) is not None
    assert cache.of_other_configs(replace(WINNER, configs=())) == [cache.get(WINNER)]
    with pytest.raises(CacheError, match="read-only"):
        cache.add(won(SMALL))
    file_of(cache).write_bytes(b"{")
    assert [cache.get(WINNER), cache.get(WINNER)] == [None, None]
    assert len(cache.damaged) == 1


def test_an_entry_that_could_not_be_read_again_is_not_written(cache: WinnerCache) -> None:
    long = replace(WINNER, arguments="x" * MAX_ENTRY)
    with pytest.raises(CacheError, match="and may have"):
        cache.add(won(SMALL, key=long))


def test_what_lies_behind_a_link_is_never_written(cache: WinnerCache, tmp_path: Path) -> None:
    path, outside = file_of(cache), tmp_path / "outside.json"
    outside.write_bytes(b"theirs")
    path.unlink()
    path.symlink_to(outside)
    assert cache.get(WINNER) is None
    assert path.with_suffix(".damaged").is_symlink()
    cache.add(won(SMALL))
    assert outside.read_bytes() == b"theirs"
    assert cache.get(WINNER) is not None


def test_a_good_entry_that_is_taken_for_damage_is_put_back(cache: WinnerCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks: whoever finds damage takes the file away before it looks at it again."""
    cache.add(won(SMALL, time_ns=2.0))
    cache._set_aside(file_of(cache), b"what was read", "it was damaged")
    found = cache.get(WINNER)
    assert found is not None
    assert found.config == SMALL
    assert {p.suffix for p in (cache.folder / "winners").glob("??/*/*")} == {".json"}


def test_trials_that_are_damaged_are_told(tmp_path: Path) -> None:
    cache = TrialCache(tmp_path)
    cache.add(trial())
    (path,) = tmp_path.glob("trials/**/*.json")
    path.write_text(path.read_text().replace("1000.25", "-1000.25"))
    assert cache.of(QUESTION) == []
    assert len(cache.damaged) == 1


# exported and shipped


def test_a_device_s_name_is_no_path(tmp_path: Path) -> None:
    cache = WinnerCache(tmp_path / "cache")
    for target in ("../../outside", "/etc", "x" * 300, "a\0b"):
        cache.add(won(SMALL, key=replace(WINNER, target=target, device="../" + "y" * 300)))
    for path in export_devices(cache.folder, tmp_path / "wheel"):
        assert path.resolve().is_relative_to(tmp_path / "wheel")
    assert sorted(os.listdir(tmp_path)) == ["cache", "wheel"]


def test_what_is_too_long_to_be_imported_is_neither_read_nor_written(
    cache: WinnerCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "export.json"
    with open(file, "wb") as long:
        long.truncate(codec.MAX_REPORT + 1)
    with pytest.raises(CacheError, match="and may have"):
        import_cache(tmp_path / "other", file)
    monkeypatch.setattr(codec, "MAX_REPORT_VALUES", 10)
    with pytest.raises(CacheError, match="--winners-only"):
        export_cache(cache.folder, tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "export.json")
    with pytest.raises(CacheError, match="is a FIFO"):
        import_cache(tmp_path / "other", tmp_path / "export.json")


@pytest.mark.parametrize(
    ("mode", "of", "trusted"),
    [
        (0o644, "file", True),
        (0o646, "file", False),
        (0o755, "folder", True),
        (0o777, "folder", False),
        (0o1777, "folder", True),
        (0o777, "above", False),
    ],
)
def test_winners_where_others_can_write_are_not_trusted(
    cache: WinnerCache, tmp_path: Path, mode: int, of: str, trusted: bool
) -> None:
    path = export_devices(cache.folder, tmp_path / "site" / "wheel")[0]
    place = {"file": path, "folder": path.parent, "above": tmp_path / "site"}[of]
    place.chmod(mode)
    add_shipped(tmp_path / "site" / "wheel")
    mine = WinnerCache(tmp_path / "mine")
    found = mine.get(WINNER)
    assert (found is not None) == trusted
    assert [f"{place}: other users can write to it" in line for line in mine.damaged] == [True] * (not trusted)
    place.chmod(0o755)


def test_a_file_of_another_user_is_not_trusted(
    cache: WinnerCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export_devices(cache.folder, tmp_path / "wheel")[0]
    assert winners.writable_by_others(path) is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    before = path.stat().st_uid
    assert (winners.writable_by_others(path) is None) == (before == 0)


def test_a_group_of_one_s_own_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o664)
    monkeypatch.setattr(winners, "_is_private", lambda group, user: True)
    assert winners.writable_by_others(tmp_path / "file") is None
    monkeypatch.setattr(winners, "_is_private", lambda group, user: False)
    assert winners.writable_by_others(tmp_path / "file") == tmp_path / "file"


def test_winners_keep_their_form() -> None:
    """Limits on what is read change nothing of what is written."""
    winner = won(time_ns=1.5)
    assert codec.from_json(codec.to_json(winner), Winner, SCHEMA, where="it") == winner
