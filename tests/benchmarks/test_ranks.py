"""Ranks of which one is killed: a small version of ``benchmarks/ranks.py``."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import ranks


@pytest.mark.parametrize(("place", "count", "keys"), [("folder", 4, 30), ("file", 2, 6)])
def test_ranks_go_on_with_one_winner_a_key(place: str, count: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(count))
    row = ranks.one_round(place, seed=3, ranks=count, keys=keys)
    assert {name: row[name] for name in ("disagreements", "hangs", "ranks_without_an_end", "keys_used")} == {
        "disagreements": 0,
        "hangs": 0,
        "ranks_without_an_end": 0,
        "keys_used": keys,
    }
    assert row["tuned_again_although_the_holder_lived"] == 0


LINES: dict[int, list[str]] = {
    0: ["tune 1", "tuned 1", "use 1 a", "tune 2"],
    1: ["use 1 b", "tune 2", "tuned 2", "use 2 a", "end"],
    2: ["tune 1", "tuned 1", "use 1 a"],
}


def test_what_goes_wrong_is_counted(tmp_path: Any) -> None:
    for rank, lines in LINES.items():
        (tmp_path / f"rank{rank}").write_text("".join(f"{line}\n" for line in lines))
    assert ranks.judged(tmp_path, ranks=3, keys=2, victim=0) == {
        "disagreements": 1,
        "keys_used": 2,
        "ranks_without_an_end": 1,
        "tuned": 4,
        "tuned_again_although_the_holder_lived": 1,
        "holder_died": 1,
    }
