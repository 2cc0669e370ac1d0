"""Why a winner was not found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.keys import _configs, _field, _parts
from tuning.cache.made import ENVIRONMENT, LARGE, SMALL, WINNER, won

replace = msgspec.structs.replace
MORE = Config({"BLOCK": 2048})
WHAT = "the kernel, a function that it calls, or a constant"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"triton": "3.8.0"}, ["triton: 3.9.0 -> 3.8.0"]),
        ({"device": "NVIDIA H200"}, ["device: NVIDIA H100 -> NVIDIA H200"]),
        ({"source": "f" * 64}, [f"source: abc -> {'f' * 12} ({WHAT} changed)"]),
        ({"arguments": "n=1025; y=3"}, ["argument n: 1024 -> 1025", "argument x: float32(1024,)(1,) -> not given",
                                        "argument y: not given -> 3"]),
        ({"configs": (SMALL, LARGE, MORE)}, [f"configs: 1 added ({MORE})"]),
        ({"configs": (MORE,)}, [f"configs: 1 added ({MORE})", f"configs: 2 removed ({SMALL}, ...)"]),
        ({"configs": (LARGE, SMALL)}, ["configs: the same in another order"]),
        ({"search": "BLOCK 1..8; 9 trials"}, ["search: none -> BLOCK 1..8; 9 trials"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_differs_is_named(tmp_path: Path, changes: dict[str, object], lines: list[str]) -> None:
    cache = WinnerCache(tmp_path)
    cache.add(won(LARGE))
    assert cache.why_missed(replace(WINNER, **changes), ENVIRONMENT) == lines


def test_the_nearest_is_compared(tmp_path: Path) -> None:
    cache = WinnerCache(tmp_path)
    assert "no winner of kernel add_kernel" in cache.why_missed(WINNER)[0]
    cache.add(won(LARGE, key=replace(WINNER, device="A", triton="3.6.0", source="x")))
    assert len(cache.why_missed(WINNER)) == 3
    cache.add(won(LARGE, key=replace(WINNER, triton="3.6.0")))
    assert cache.why_missed(WINNER) == ["triton: 3.6.0 -> 3.9.0"]


def test_configs_that_were_added_and_removed_are_counted() -> None:
    a, b, c, d = (Config({"BLOCK": size}) for size in (16, 32, 64, 128))
    assert _configs([a], [a, b]) == [f"configs: 1 added ({b})"]
    assert _configs([a], [b, c]) == [f"configs: 2 added ({b}, ...)", f"configs: 1 removed ({a})"]
    assert _configs([a, b, c], [a]) == [f"configs: 2 removed ({b}, ...)"]
    assert _configs([a, d], [d, a]) == ["configs: the same in another order"]


def test_each_argument_that_differs_is_named_once() -> None:
    assert _parts(["n=1", "x=f32", "y=a=b"], ["n=2", "x=f32", "z=3"]) == [
        "argument n: 1 -> 2", "argument y: a=b -> not given", "argument z: not given -> 3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("source", [f"source: 0123456789ab -> ba9876543210 ({WHAT} changed)"]),
        ("search", ["search: 0123456789abcdef -> ba9876543210fedc"]),
        ("device", ["device: 0123456789abcdef -> ba9876543210fedc"]),
    ],
)
def test_of_hashes_twelve_digits_are_shown(name: str, lines: list[str]) -> None:
    assert _field(name, "0123456789abcdef", "ba9876543210fedc") == lines
    assert _field("search", "", "x") == ["search: none -> x"]
    assert _field("search", "x", "") == ["search: x -> none"]
