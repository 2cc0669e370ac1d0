"""Configs: identity, keywords, round trips."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.config import Config, changed_settings, settings_text, unique_configs
from kerntune.errors import ConfigError

finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | st.text(max_size=8)
names = st.sampled_from(["BLOCK_M", "BLOCK_N", "GROUP", "EVEN", "ACC"])
configs = st.builds(
    Config,
    kwargs=st.dictionaries(names, values, max_size=4),
    num_warps=st.sampled_from([1, 4, 8]),
    num_stages=st.integers(1, 5),
    num_ctas=st.sampled_from([1, 2]),
    maxnreg=st.sampled_from([None, 128]),
    options=st.dictionaries(st.sampled_from(["waves_per_eu", "kpack"]), values, max_size=2),
)


@given(configs)
def test_json_round_trip_keeps_identity(config: Config) -> None:
    again = msgspec.json.decode(msgspec.json.encode(config), type=Config, strict=True)
    assert again == config
    assert again.key() == config.key()
    assert [type(v) for v in again.kwargs.values()] == [type(v) for v in config.kwargs.values()]


@given(configs, configs)
def test_equal_is_equal_in_everything_that_changes_the_binary(a: Config, b: Config) -> None:
    """1, 1.0 and True are different constexprs to Triton, so equality goes by type too."""

    def parts(c: Config) -> object:
        typed = [{k: (type(v), v) for k, v in d.items()} for d in (c.kwargs, c.options)]
        return *typed, c.num_warps, c.num_stages, c.num_ctas, c.maxnreg

    same = repr(_sorted(parts(a))) == repr(_sorted(parts(b)))
    assert (a == b) is same
    assert (a.key() == b.key()) is same
    if same:
        assert hash(a) == hash(b)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return sorted(value.items(), key=lambda kv: str(kv[0]))
    return [_sorted(v) for v in value] if isinstance(value, tuple) else value


@given(configs)
def test_order_of_kwargs_is_not_identity(config: Config) -> None:
    turned = config.replace(kwargs=dict(reversed(config.kwargs.items())))
    assert turned == config
    assert turned.key() == config.key()


@pytest.mark.parametrize(
    "other",
    [
        Config({"B": 1}, num_warps=8),
        Config({"B": 1}, num_stages=2),
        Config({"B": 1}, num_ctas=2),
        Config({"B": 1}, maxnreg=64),
        Config({"B": 1}, options={"kpack": 2}),
        Config({"B": 2}),
        Config({"B": True}),
        Config({"B": 1.0}),
        Config({"B": "1"}),
        Config({}),
    ],
)
def test_any_change_is_another_config(other: Config) -> None:
    assert (other == Config({"B": 1})) is False
    assert other != Config({"B": 1})


def test_is_no_other_kind_of_thing() -> None:
    assert (Config({"B": 1}) == {"B": 1}) is False


def test_unequal_is_not_equal() -> None:
    assert (Config({"B": 1}) != Config({"B": 1})) is False


def test_launch_keywords_leave_out_what_triton_would_default() -> None:
    assert Config({"BLOCK": 64}).all_kwargs() == {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
    full = Config({"BLOCK": 64}, 8, 2, 2, 128, {"kpack": 2})
    expected = {"BLOCK": 64, "num_warps": 8, "num_stages": 2, "num_ctas": 2, "maxnreg": 128, "kpack": 2}
    assert full.all_kwargs() == expected


def test_words_name_all_that_differs_from_the_default() -> None:
    assert str(Config({"BLOCK": 64})) == "BLOCK=64 num_warps=4 num_stages=3"
    full = Config({"BLOCK": 64}, 8, 2, 2, 128, {"kpack": 2})
    assert str(full) == "BLOCK=64 num_warps=8 num_stages=2 num_ctas=2 maxnreg=128 kpack=2"


def test_replace_takes_fields_and_kwargs() -> None:
    config = Config({"BLOCK": 64, "GROUP": 8}, options={"kpack": 1})
    assert config.replace(BLOCK=128, num_warps=8) == Config({"BLOCK": 128, "GROUP": 8}, 8, options={"kpack": 1})
    assert config.replace(kwargs={"X": 1}) == Config({"X": 1}, options={"kpack": 1})
    assert config.replace(options={}) == Config({"BLOCK": 64, "GROUP": 8})
    assert config == Config({"BLOCK": 64, "GROUP": 8}, options={"kpack": 1})


def test_replace_does_not_share_kwargs() -> None:
    config = Config({"BLOCK": 64})
    copy = config.replace()
    copy.kwargs["BLOCK"] = 1
    assert config.kwargs == {"BLOCK": 64}


def test_from_mapping_sorts_fields_from_kwargs() -> None:
    flat = {"BLOCK": 128, "EVEN": True, "num_warps": 8, "maxnreg": 96}
    assert Config.from_mapping(flat) == Config({"BLOCK": 128, "EVEN": True}, num_warps=8, maxnreg=96)


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("BLOCK", [[1], (1,), {"a": 1}, object(), b"x", 1j], "BLOCK=.*{type}"),  # JSON can't hold them
        ("num_warps", ["8", None, 2.5, True], "num_warps"),
        ("FILL", [math.inf, -math.inf, math.nan], "FILL.*finite"),
    ],
)
def test_from_mapping_refuses_values_of_another_type(name: str, values: list[object], says: str) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=says.format(type=type(value).__name__)):
            Config.from_mapping({name: value})


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_floats_that_json_lacks_are_not_none(value: float) -> None:
    assert (Config({"FILL": value}) == Config({"FILL": None})) is False


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="num_wraps"):
        msgspec.json.decode(b'{"num_wraps": 8}', type=Config)


@pytest.mark.slow
@given(st.lists(configs, max_size=8))
def test_unique_keeps_each_identity_once(given_: list[Config]) -> None:
    found = unique_configs(given_ + given_)
    assert len({c.key() for c in found}) == len(found)
    assert {c.key() for c in found} == {c.key() for c in given_}


@pytest.mark.slow
@given(st.lists(configs, max_size=8, unique_by=lambda c: c.key()))
def test_unique_keeps_the_order_of_different_ones(given_: list[Config]) -> None:
    assert list(unique_configs(given_)) == given_


def test_unique_keeps_first_places() -> None:
    a, b = Config({"BLOCK": 1}), Config({"BLOCK": 2})
    assert unique_configs([a, b, a]) == (a, b)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"BK": 32, "num_warps": 4}, {"num_warps": 4, "BK": 64}, "BK 32 -> 64"),
        ({"BK": "32", "EVEN": True}, {"BK": 64, "EVEN": False}, "BK 32 -> 64, EVEN True -> False"),
        ({}, {"maxnreg": 32}, "maxnreg unset -> 32"),
        ({"BLOCK": 1024}, {"BM": 64, "BN": 16}, "BM unset -> 64, BN unset -> 16, BLOCK 1024 -> unset"),
        ({"BLOCK": 1024}, {"BLOCK": "1024", "HAS_BIAS": "False", "stride": "1"}, ""),
        ({"ACTIVATION": None}, {}, ""),
    ],
)
def test_what_changed_of_a_config(before: dict[str, object], after: dict[str, object], text: str) -> None:
    assert settings_text(changed_settings(before, after)) == text
