"""Calls of tuned kernels as data: scalars, texts, limits, and what a file may not say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from kerntune.base.config import Config
from kerntune.base.tuning_job import (
    GridText,
    NamedArgument,
    ScalarText,
    TensorText,
    TuningJob,
    meta_text,
    scalar_of,
    scalar_text,
)
from kerntune.errors import StoreError, UsageError

X = NamedArgument("x", TensorText("float16", (4, 8), (8, 1), 0, 64))
CONFIGS = (Config({"BLOCK": 64}),)
JOB = TuningJob("kerntune.shapes/1", "ops", "add", (X,), GridText((4,)), 1, CONFIGS, "(64,)", True, "ops.py")
LINE = (
    b'{"schema":"kerntune.shapes/1","module":"ops","kernel":"add","arguments":[{"name":"x","value":{"type":"tensor",'
    b'"dtype":"float16","shape":[4,8],"strides":[8,1],"block":0,"nbytes":64}}],"grid":{"fixed":[4]},"positional":1,'
    b'"configs":[{"kwargs":{"BLOCK":64}}],"key":"(64,)","rounded":true,"file":"ops.py"}'
)


class Whole(int):
    """No plain number."""


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(None, "none", "None"), (True, "bool", "True"), (False, "bool", "False"), (-7, "int", "-7"),
     (0.1, "float", "0.1"), (math.inf, "float", "inf"), ("mean", "str", "mean"), ("", "str", "")],
)  # fmt: skip
def test_scalars_are_what_they_were(value: object, kind: str, text: str) -> None:
    found = scalar_text(value)
    assert found == ScalarText(kind, text)
    again = scalar_of(found)
    assert (again, type(again)) == (value, type(value))


@pytest.mark.parametrize("value", [Whole(3), (1,), [1], 1j, b"x", object()])
def test_what_is_no_scalar(value: object) -> None:
    assert scalar_text(value) is None


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        ("int", "x" * 200, f"int '{'x' * 80}...'"), ("bool", "true", "bool 'true'"), ("complex", "1j", "complex '1j'"),
        ("k" * 200, "1", f"{'k' * 80}... '1'"), ("float", "o" * 80, f"float '{'o' * 80}'"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_scalar_is_named_shortly(kind: str, text: str, named: str) -> None:
    with pytest.raises(UsageError) as told:
        scalar_of(ScalarText(kind, text))
    assert str(told.value) == f"{named} is no scalar; record the shapes anew"


def test_a_job_is_one_line() -> None:
    """What isn't set is left out."""
    assert JOB.to_json() == LINE
    assert TuningJob.from_json(LINE) == JOB
    assert TuningJob("s", "m", "k").to_json() == b'{"schema":"s","module":"m","kernel":"k"}'
    assert TuningJob("s", "m", "k") == TuningJob("s", "m", "k", (), GridText((), {}, ()), 0, (), "", False, "", "")


def test_where_a_kernels_file_lies_is_of_no_matter() -> None:
    assert JOB.digest() == replace(JOB, file="elsewhere.py").digest()
    assert JOB.digest() != replace(JOB, key="(65,)").digest()
    assert (JOB.name, str(JOB)) == ("ops.add", "kernel ops.add (ops.py), key (64,)")
    bare = TuningJob("s", "", "add")
    assert (bare.name, str(bare)) == ("add", "kernel add, key ()")


def test_a_job_has_a_mebibyte_at_most() -> None:
    empty = TuningJob("kerntune.shapes/1", "", "k", unknown="x")
    fits = replace(empty, unknown="x" * ((1 << 20) - len(empty.to_json()) + 1))
    assert TuningJob.from_json(fits.to_json()) == fits
    longer = replace(fits, unknown=fits.unknown + "x")
    with pytest.raises(
        StoreError, match=r"^kernel k, key .*: its description has 1048577 bytes, and may have 1048576$"
    ):
        longer.to_json()
    with pytest.raises(StoreError, match=r"^here: has 1048577 bytes, and may have 1048576$"):
        TuningJob.from_json(b" " * ((1 << 20) + 1), "here")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"[]", "here: is no description of a call (Expected `object`, got `array`); record it anew"),
        (b"{", "here: is no description of a call (Input data was truncated); record it anew"),
        (
            LINE.replace(b"shapes/1", b"shapes/2" + b"x" * 99),
            f"here: has schema 'kerntune.shapes/2{'x' * 63}...', this kerntune reads 'kerntune.shapes/1'",
        ),
        (LINE.replace(b'"nbytes":64', b'"nbytes":-1'), "Expected `int` >= 0"),
        (LINE.replace(b'"nbytes":64', b'"nbytes":64,"offset":-1'), "Expected `int` >= 0"),
        (LINE.replace(b'"nbytes":64', b'"nbytes":64,"misaligned":256'), "Expected `int` <= 255"),
        (LINE.replace(b'"nbytes":64', b'"nbytes":64,"misaligned":-1'), "Expected `int` >= 0"),
        (LINE.replace(b'"positional":1', b'"positional":-1'), "Expected `int` >= 0"),
        (LINE.replace(b'"positional":1', b'"more":1'), "unknown field `more`"),
    ],
)
def test_what_is_no_job(line: bytes, told: str) -> None:
    with pytest.raises(StoreError) as refused:
        TuningJob.from_json(line, "here")
    assert told in str(refused.value)
    assert str(refused.value).startswith("here: ")


def test_meta_parameters_of_a_config() -> None:
    values: dict[str, Any] = {"SPLIT": 2, "BLOCK": 64, "MODE": "a", "other": 1}
    assert meta_text(("BLOCK", "SPLIT", "MODE", "GONE"), values) == "BLOCK=64 SPLIT=2 MODE='a'"
