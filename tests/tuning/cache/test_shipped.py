"""Winner files that packages carry: where they are looked for, and what is read of them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from kerntune.errors import CacheError
from kerntune.tuning.cache import winners
from kerntune.tuning.cache.keys import SCHEMA, Winner
from kerntune.tuning.cache.winners import (
    add_shipped,
    file_name,
    find_shipped,
    read_file,
    shipped_folders,
    shipped_of_device,
    write_file,
)
from tuning.cache.made import ENVIRONMENT, LARGE, SMALL, WINNER

replace = msgspec.structs.replace


def won(arguments: str = "n=1", config: object = SMALL) -> Winner:
    return Winner(SCHEMA, replace(WINNER, arguments=arguments), config, 1.0, ENVIRONMENT)  # type: ignore[arg-type]


def test_folders_are_asked_in_their_order_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "a"):
        add_shipped(tmp_path / name)
    monkeypatch.setenv("KERNTUNE_WINNERS", f"{tmp_path / 'c'}{os.pathsep}{os.pathsep}{tmp_path / 'd'}")
    assert shipped_folders() == [tmp_path / name for name in "abcd"]


def test_a_device_s_file_is_named_after_it() -> None:
    assert file_name("cuda:90", "NVIDIA H200") == Path("cuda-90/nvidia-h200.json")
    assert file_name("../..", "  ") == Path("unknown/unknown.json")
    assert file_name("a" * 300, "b").parts[0] == "a" * 200


def test_the_first_folder_s_winner_is_taken(tmp_path: Path) -> None:
    told: list[str] = []
    write_file(tmp_path / "a", [won("n=1", SMALL)])
    write_file(tmp_path / "b", [won("n=1", LARGE), won("n=2", LARGE)])
    for name in ("none", "a", "b"):
        add_shipped(tmp_path / name)
    assert find_shipped(won("n=1").key, told.append) == won("n=1", SMALL)
    assert find_shipped(won("n=2").key, told.append) == won("n=2", LARGE)
    assert find_shipped(won("n=3").key, told.append) is None
    found = shipped_of_device("cuda:90", "NVIDIA H100", told.append)
    assert sorted(w.key.arguments for w in found) == ["n=1", "n=1", "n=2"]
    assert shipped_of_device("cuda:80", "NVIDIA H100", told.append) == []
    assert told == []


def test_files_are_read_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(tmp_path, [won()])
    add_shipped(tmp_path)
    read, paths = winners.read_file, list[Path]()
    monkeypatch.setattr(winners, "read_file", lambda one: paths.append(one) or read(one))
    for _ in range(3):
        assert find_shipped(won().key, paths.append) == won()  # type: ignore[arg-type]
    assert paths == [path]


def test_a_file_that_comes_later_is_found(tmp_path: Path) -> None:
    add_shipped(tmp_path)
    assert find_shipped(won().key, print) is None
    write_file(tmp_path, [won()])
    assert find_shipped(won().key, print) == won()


def test_a_winner_of_an_equal_digest_is_compared_with_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_shipped(tmp_path)
    monkeypatch.setattr(winners, "_winners", lambda path, tell: {won("n=1").key.digest(): won("n=2")})
    assert find_shipped(won("n=1").key, print) is None


def test_files_of_other_schemas_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none.json")
    path = write_file(tmp_path, [replace(won(), schema="kerntune.winner/0"), won("n=2")])
    with pytest.raises(CacheError, match=r"nvidia-h100\.json: holds winners of schema 'kerntune\.winner/0'; export"):
        read_file(path)


def test_a_file_is_the_same_whatever_the_order_of_its_winners(tmp_path: Path) -> None:
    one = write_file(tmp_path / "a", [won("n=1"), won("n=2")])
    other = write_file(tmp_path / "b", [won("n=2"), won("n=1")])
    assert one == tmp_path / "a" / "cuda-90" / "nvidia-h100.json"
    assert one.read_bytes() == other.read_bytes()
    assert (read_file(one).schema, read_file(one).target, read_file(one).device) == (
        "kerntune.winners/1", "cuda:90", "NVIDIA H100",
    )  # fmt: skip
