"""Kernels whose configs are given."""

from __future__ import annotations

import pytest

from kerntune.base.config import Config
from kerntune.errors import ConfigError
from kerntune.heuristics import INDUCTOR_2_6, fixed_config, foreach, template, user_autotune
from kerntune.heuristics.hints import Modes


def test_template_is_one_config_without_blocks() -> None:
    assert template(8, 3) == (Config(num_warps=8, num_stages=3),)
    assert template(1, 1) == (Config(num_warps=1, num_stages=1),)
    for warps, stages in ((0, 3), (4, 0)):
        told = f"a template needs at least one warp and stage, got {warps} and {stages}"
        with pytest.raises(ConfigError, match=f"^{told}$"):
            template(warps, stages)


def test_fixed_config_separates_blocks_from_launch_options() -> None:
    (config,) = fixed_config({"XBLOCK": 64, "num_warps": 8, "num_stages": None, "maxnreg": 128})
    assert (config.kwargs, config.num_warps, config.num_stages, config.maxnreg) == ({"XBLOCK": 64}, 8, 3, 128)


def test_amd_options_go_where_the_kernel_wants_them() -> None:
    values = {"BLOCK": 64, "waves_per_eu": 2, "kpack": None}
    (option,) = fixed_config(values, parameters=["x", "BLOCK"])
    assert (option.kwargs, option.options) == ({"BLOCK": 64}, {"waves_per_eu": 2})
    (parameter,) = fixed_config(values, parameters=["BLOCK", "waves_per_eu", "kpack"])
    assert (parameter.kwargs, parameter.options) == ({"BLOCK": 64, "waves_per_eu": 2, "kpack": None}, {})


def test_values_that_no_config_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="BLOCK="):
        fixed_config({"BLOCK": [1, 2]})


def test_user_configs_are_kept_once_in_order() -> None:
    a, b = {"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 4}
    assert [c.kwargs["BLOCK"] for c in user_autotune([b, a, b])] == [128, 64]
    assert user_autotune([]) == (Config(),)
    assert user_autotune([Config(kwargs={"BLOCK": 1})]) == (Config(kwargs={"BLOCK": 1}),)


def test_foreach() -> None:
    assert [c.num_warps for c in foreach()] == [8]
    assert [c.num_warps for c in foreach(Modes(max_autotune=True))] == [1, 2, 4, 8]
    assert [c.num_warps for c in foreach(Modes(max_autotune=True), INDUCTOR_2_6)] == [8]
    assert {c.num_stages for c in foreach(Modes(max_autotune=True))} == {1}
