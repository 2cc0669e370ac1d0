"""Parts of the tuner that launch nothing: options of a descent, hooks, lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fake_runs import configs, scale_kernel

import kerntune
from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.errors import ConfigError, UsageError
from kerntune.kernels.dispatch import LaunchPath
from kerntune.search.descent import TRIALS
from kerntune.tuning.api.autotuner import DescentOptions, _shared_hook, descent_list, plain_run
from kerntune.tuning.context import PlainPath

H100 = TYPICAL_DEVICES["cuda:90"]


def make(*blocks: int, **options: Any) -> Any:
    return kerntune.autotune(configs(*(blocks or (64, 128))), key=["n"], **options)(scale_kernel)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (False, None),
        (True, DescentOptions(TRIALS, False, (), ())),
        (1, DescentOptions(1)),
        ({}, DescentOptions()),
        ({"all_directions": True, "frozen": ["num_warps"]}, DescentOptions(TRIALS, True, (), ("num_warps",))),
        ({"trials": 3, "limits": {"BLOCK": 8}}, DescentOptions(3, False, (("BLOCK", 8),), ())),
    ],
)
def test_what_descend_says(value: Any, found: DescentOptions | None) -> None:
    assert DescentOptions.given(value, "kernel k") == found


@pytest.mark.parametrize("value", [0, -1, "yes", 2.0, {"steps": 3}])
def test_what_descend_can_not_be_is_named(value: Any) -> None:
    with pytest.raises(UsageError, match=rf"^kernel k, descend: {value!r}; it can be True, a number of trials, or"):
        DescentOptions.given(value, "kernel k")


def test_a_descent_keeps_what_is_frozen_and_what_must_stay() -> None:
    listed = (Config({"BLOCK": 64, "ROWS": 2}),)
    found = DescentOptions(7, True, (("BLOCK", 256),), ("num_warps", "ROWS")).of(listed, H100, ("ROWS", "num_stages"))
    assert (found.listed, found.trials, found.all_directions) == (listed, 7, True)
    assert (found.limits, found.frozen) == ((("BLOCK", 256),), ("num_warps", "ROWS", "num_stages"))
    assert DescentOptions().of(listed, H100).frozen == ()


def test_what_is_reset_and_what_is_restored_around_a_launch() -> None:
    tuner = make(reset_to_zero=["y_ptr"], restore_value=["x_ptr"])
    x, y = torch.ones(2), torch.ones(2)
    named: dict[str, Any] = {"x_ptr": x, "y_ptr": y}
    tuner.pre_hook(named, reset_only=True)
    assert (y.tolist(), tuner.restore_copies) == ([0.0, 0.0], {})
    tuner.pre_hook(named)
    x.fill_(7.0)
    tuner.post_hook(named, None)
    assert (x.tolist(), tuner.restore_copies) == ([1.0, 1.0], {})
    tuner.pre_hook({"x_ptr": None, "y_ptr": None})
    assert tuner.restore_copies == {}


def test_a_hook_that_all_configs_share_is_the_search_s() -> None:
    def hook(named: Any) -> None: ...

    plain, hooked = configs(64), [triton.Config({"BLOCK": b}, pre_hook=hook) for b in (64, 128)]
    assert _shared_hook(hooked, "k") is hook
    assert _shared_hook(plain, "k") is _shared_hook([], "k") is None
    with pytest.raises(ConfigError, match=r"^k: its configs have different hooks"):
        _shared_hook([*plain, *hooked], "k")
    lone = descent_list(hooked[:1], "k")
    assert [config.pre_hook for config in lone] == [hook, hook]
    assert [config.kwargs["BLOCK"] for config in lone] == [64, 64]
    assert descent_list(hooked, "k") == hooked
    assert len({str(config) for config in descent_list([], "k")}) == 2
    with pytest.raises(ConfigError, match=r"sets DTYPE, OTHER to what a search can't vary"):
        descent_list([triton.Config({"BLOCK": 64, "DTYPE": torch.float32, "OTHER": len})], "k")


def test_a_tuner_with_a_run_of_its_own_launches_by_that() -> None:
    tuner, called = make(), list[Any]()
    assert isinstance(tuner.engine().path, LaunchPath)
    assert (tuner.engine().keep, make(cache_results=False).engine().keep) == (True, False)
    tuner.run = lambda *args, **words: called.append((args, words))
    assert isinstance(tuner.engine().path, PlainPath)
    tuner[2,](1, n=3)
    assert called == [((1,), {"grid": (2,), "warmup": False, "n": 3})]


def test_a_class_with_a_run_of_its_own_gets_all_calls_there() -> None:
    kind: Any = type(make())

    class Own(kind):  # type: ignore[misc]
        def run(self, *args: Any, **words: Any) -> Any:
            return args, words

    tuner = make()
    tuner.__class__ = Own
    assert tuner[2,](1) == ((1,), {"grid": (2,), "warmup": False})
    assert isinstance(tuner.engine().path, PlainPath)


def test_only_a_launch_goes_the_prepared_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, called = make(), list[Any]()
    monkeypatch.setattr(
        tuner, "_run_slowly", lambda args, words: called.append((args, words)) or SimpleNamespace(result="slow")
    )
    tuner._path = SimpleNamespace(launch=lambda *args, **words: called.append((args, words)))
    assert tuner.run(1, grid=(2,), warmup=True, n=3) == tuner.run(1, n=3) == "slow"
    tuner.run(1, grid=(2,), warmup=False, n=3)
    assert called == [
        ((1,), {"grid": (2,), "warmup": True, "n": 3}), ((1,), {"n": 3}), (((2,), 1), {"n": 3}),
    ]  # fmt: skip


def test_a_kernel_for_which_nothing_was_asked_has_no_settings() -> None:
    tuner = make()
    assert (tuner.searches, tuner.search_for({}, {}), tuner.kept_fields()) == (False, None, ())
    assert (tuner.nargs, tuner.untried, tuner.left_out) == (None, {}, {})
    assert (tuner.needs().exact, tuner.needs().layouts) == (frozenset({"n"}), False)
    assert tuner.variety() == tuner.configs
    settings = (tuner.verify, tuner.verify_ignore, tuner.isolate, tuner.static_prune, tuner.patience, tuner.tune_mode)
    assert settings == (None,) * 6
    assert plain_run() is triton.runtime.autotuner.Autotuner.run
