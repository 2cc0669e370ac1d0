"""A cache carried to another machine, and winners shipped in a wheel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base import codec
from kerntune.errors import CacheError
from kerntune.tuning.cache import TrialCache, WinnerCache, add_shipped, export_cache, export_devices, import_cache
from kerntune.tuning.cache.exchange import CopiedEntries
from tuning.cache.made import LARGE, QUESTION, SMALL, WINNER, trial, won

replace = msgspec.structs.replace
ELSEWHERE = replace(WINNER, device="AMD MI300X", target="hip:gfx942")


@pytest.fixture
def full(tmp_path: Path) -> Path:
    folder = tmp_path / "full"
    cache = WinnerCache(folder)
    cache.add(won(LARGE))
    cache.add(won(SMALL, time_ns=2.0, key=ELSEWHERE))
    TrialCache(folder).add(trial())
    TrialCache(folder).add(trial(LARGE, failure="refused", time_ns=None, estimate_ns=None))
    return folder


def same(a: Path, b: Path) -> bool:
    return (WinnerCache(a).entries(), TrialCache(a).entries()) == (WinnerCache(b).entries(), TrialCache(b).entries())


def test_a_cache_goes_through_one_file(full: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    assert export_cache(full, file) == CopiedEntries(2, 2, 0, ())
    moved = import_cache(tmp_path / "other", file)
    assert (moved.winners, moved.trials, moved.kept) == (2, 2, 0)
    assert same(full, tmp_path / "other")
    again = tmp_path / "again.json"
    export_cache(tmp_path / "other", again)
    assert again.read_bytes() == file.read_bytes()


def test_what_is_here_stays_unless_replaced(full: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "cache.json", tmp_path / "other"
    export_cache(full, file)
    WinnerCache(other).add(won(SMALL, time_ns=9.0))
    TrialCache(other).add(trial(time_ns=9.0))
    moved = import_cache(other, file)
    assert (moved.winners, moved.trials, moved.kept) == (1, 1, 2)
    found = WinnerCache(other).get(WINNER)
    assert found is not None
    assert found.config == SMALL
    assert import_cache(other, file, replace=True).kept == 0
    assert same(full, other)


def test_trials_may_stay_behind(full: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    assert export_cache(full, file, with_trials=False).trials == 0
    import_cache(tmp_path / "other", file)
    assert TrialCache(tmp_path / "other").of(QUESTION) == []


@pytest.mark.parametrize("damage", [
    lambda d: d[: len(d) // 2],
    lambda d: b"[]",
    lambda d: d.replace(b"kerntune.cache/1", b"kerntune.cache/9"),
    lambda d: d.replace(b"kerntune.trial/1", b"kerntune.trial/0"),
    lambda d: d.replace(b"kerntune.winner/1", b"kerntune.winner/0"),
    lambda d: d.replace(b'"config"', b'"setting"'),
])  # fmt: skip
def test_a_damaged_file_is_refused_whole(full: Path, tmp_path: Path, damage) -> None:
    file = tmp_path / "cache.json"
    export_cache(full, file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CacheError, match=r"cache\.json"):
        import_cache(tmp_path / "other", file)
    assert not (tmp_path / "other").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"nowhere.json: can't be read"):
        import_cache(tmp_path, tmp_path / "nowhere.json")


def test_damaged_entries_are_left_out_and_told(full: Path, tmp_path: Path) -> None:
    next(full.glob("trials/**/*.json")).write_text("{")
    moved = export_cache(full, tmp_path / "cache.json")
    assert (moved.winners, moved.trials, len(moved.damaged)) == (2, 1, 1)


# shipped


def test_a_file_per_device(full: Path, tmp_path: Path) -> None:
    paths = export_devices(full, tmp_path / "wheel")
    assert [str(p.relative_to(tmp_path / "wheel")) for p in paths] == [
        "cuda-90/nvidia-h100.json", "hip-gfx942/amd-mi300x.json",
    ]  # fmt: skip
    assert json.loads(paths[0].read_text())["device"] == "NVIDIA H100"
    moved = import_cache(tmp_path / "other", paths[0])
    assert (moved.winners, moved.trials) == (1, 0)


@pytest.mark.parametrize("how", ["call", "environment"])
def test_shipped_winners_are_found_after_ones_own(
    full: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_devices(full, tmp_path / "wheel")
    cache = WinnerCache(tmp_path / "mine")
    assert cache.get(WINNER) is None
    if how == "call":
        add_shipped(tmp_path / "wheel")
    else:
        monkeypatch.setenv("KERNTUNE_WINNERS", f"{tmp_path / 'none'}:{tmp_path / 'wheel'}")
    found = cache.get(WINNER)
    assert found is not None
    assert found.config == LARGE
    assert cache.get(replace(WINNER, arguments="n=1")) is None
    assert not cache.holds(WINNER)
    cache.add(won(SMALL))
    mine = cache.get(WINNER)
    assert mine is not None
    assert mine.config == SMALL


def test_a_damaged_shipped_file_is_told_once_and_left_alone(full: Path, tmp_path: Path) -> None:
    path = export_devices(full, tmp_path / "wheel")[0]
    path.write_text("{")
    add_shipped(tmp_path / "wheel")
    cache = WinnerCache(tmp_path / "mine")
    assert cache.get(WINNER) is None
    assert cache.get(WINNER) is None
    assert len(cache.damaged) == 1
    assert path.read_text() == "{"
    assert cache.get(ELSEWHERE) is not None, "the other device's file is whole"


@pytest.mark.parametrize("parts", [("winners",), ("trials",), ("winners", "trials")])
def test_an_entry_of_an_earlier_schema_is_named(full: Path, tmp_path: Path, parts: tuple[str, ...]) -> None:
    file = tmp_path / "cache.json"
    export_cache(full, file)
    data = json.loads(file.read_text())
    for part in parts:
        data[part][0]["schema"] = f"kerntune.earlier-{part}/0"
    file.write_text(json.dumps(data))
    with pytest.raises(
        CacheError, match=rf"holds entries of schema 'kerntune\.earlier-{parts[0]}/0'; export them anew"
    ):
        import_cache(tmp_path / "other", file)


def test_an_exported_cache_is_on_the_disk_before_it_is_told(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the only copy on a stick that is pulled out."""
    written: list[Any] = []
    monkeypatch.setattr(codec, "write_atomic", lambda path, data, **words: written.append((path, words)))
    export_cache(full, tmp_path / "cache.json")
    assert written == [(tmp_path / "cache.json", {"error": CacheError, "durable": True})]


def test_an_exported_cache_may_be_as_large_as_can_be_imported(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cache.json"
    export_cache(full, file)
    data = file.read_bytes()
    for name, most in (("MAX_REPORT", len(data)), ("MAX_REPORT_VALUES", codec.values_at_most(data))):
        with monkeypatch.context() as only:
            only.setattr(codec, name, most)
            assert export_cache(full, file) == CopiedEntries(2, 2)
            assert import_cache(tmp_path / name, file) == CopiedEntries(2, 2)
            only.setattr(codec, name, most - 1)
            with pytest.raises(
                CacheError, match=rf"cache\.json: would have {len(data)} bytes, too many .*--winners-only"
            ):
                export_cache(full, file)


def test_fields_of_another_version_are_refused(full: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    export_cache(full, file)
    file.write_text(json.dumps({**json.loads(file.read_text()), "more": 1}))
    with pytest.raises(CacheError, match="more"):
        import_cache(tmp_path / "other", file)
