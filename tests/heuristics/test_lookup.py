"""The table of known configs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kerntune.base.config import Config
from kerntune.errors import StoreError
from kerntune.heuristics import LookupTable, kernel_hash, read_table, write_table

SOURCE = "def add(x, y, n):\n    pass\n"
SIZES = {"x": 1024, "r0": 64}
CONFIG = Config(kwargs={"XBLOCK": 64, "RSPLIT": 4}, num_warps=8, num_ctas=2)


def test_a_key_ignores_the_name_and_the_order_of_axes() -> None:
    key = kernel_hash(SOURCE, SIZES)
    assert key == kernel_hash("\n" + SOURCE.replace("add", "renamed"), {"r0": 64, "x": 1024})
    assert key != kernel_hash(SOURCE, {"x": 2048, "r0": 64})
    assert key != kernel_hash(SOURCE.replace("pass", "return"), SIZES)
    assert key != kernel_hash(SOURCE.replace("(x,", "(z,"), SIZES)


def test_the_text_that_is_hashed_is_torchs() -> None:
    text = b"{'z': 1, 'y': 2, 'x': 1024, 'r0_': 64, 'r1_': 4}(x, y, n):\n    pass"
    sizes = {"r1": 4, "r0": 64, "x": 1024, "y": 2, "z": 1}
    assert kernel_hash(SOURCE, sizes) == hashlib.sha256(text).hexdigest()


def test_only_the_first_name_is_ignored() -> None:
    nested = "def f(x):\n    def g(y):\n        pass"
    assert kernel_hash(nested, SIZES) != kernel_hash(nested.replace("g(", "h("), SIZES)


def test_a_table_survives_the_disk(tmp_path: Path) -> None:
    table = LookupTable().with_entry(SOURCE, SIZES, CONFIG)
    write_table(tmp_path / "table.json", table)
    found = read_table(tmp_path / "table.json")
    assert found.find(SOURCE, SIZES) == CONFIG
    assert found.find(SOURCE, {"x": 1}) is None
    assert LookupTable().entries == {}


def test_the_least_config_is_possible(tmp_path: Path) -> None:
    least = Config(num_warps=1, num_stages=0, num_ctas=1)
    write_table(tmp_path / "table.json", LookupTable().with_entry(SOURCE, SIZES, least))
    assert read_table(tmp_path / "table.json").find(SOURCE, SIZES) == least


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other/1"}, "has schema 'other/1'"),
        ({"entries": {"abc": {}}}, "'abc' is no kernel hash"),
        ({"entries": {"a" * 64: {"num_warps": 0}}}, "impossible config"),
        ({"entries": {"a" * 64: {"warps": 4}}}, "unknown field `warps`"),
        ({"surprise": 1}, "unknown field `surprise`"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"schema": "kerntune.lookup/1", "entries": {}, **change}))
    with pytest.raises(StoreError, match=r"table\.json") as caught:
        read_table(path)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing\.json: the look-up table can't be read"):
        read_table(tmp_path / "missing.json")
