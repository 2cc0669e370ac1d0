"""Triton's autotuner: keys, layers, a user's pruning with its errors, and how errors name who raised them."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from doubles import raising
from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics

from kerntune.base.config import Config
from kerntune.errors import ConfigError
from kerntune.kernels.compat import tuners

HERE = __file__


def base(x: Any, n: Any) -> None:
    """Stands for a kernel."""


def tuner(**words: Any) -> Any:
    return SimpleNamespace(
        **{"base_fn": base, "arg_names": ["x", "n", "BLOCK"], "keys": ["n", "BLOCK", "gone"], **words}
    )


@pytest.fixture(autouse=True)
def one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuners, "kind_of_gpu", lambda: ("A100",))


def test_a_key_has_the_key_arguments_and_every_dtype() -> None:
    x = torch.empty(2, dtype=torch.float16)
    assert tuners.autotuner_key(tuner(), {"x": x, "n": 3}, {"BLOCK": 4, "other": x}) == (3, 4, "torch.float16", "A100")
    own = tuner(tuning_key=lambda named: (len(named), named["n"]))
    assert tuners.autotuner_key(own, {"x": x, "n": 3}, {"n": 5}) == (2, 5, "A100")


def test_a_config_of_tritons_has_options_among_its_keywords() -> None:
    found = tuners.triton_config(Config({"BLOCK": 64}, 8, 2, 2, 128, {"waves_per_eu": 1}))
    assert (found.kwargs, found.num_warps, found.num_stages, found.num_ctas, found.maxnreg) == (
        {"BLOCK": 64, "waves_per_eu": 1}, 8, 2, 2, 128,
    )  # fmt: skip


def test_errors_of_a_launch_are_tritons_and_the_drivers() -> None:
    lack = tuners.out_of_resources(300, 200, "shared memory")
    assert isinstance(lack, tuners.launch_errors())
    assert issubclass(RuntimeError, tuners.launch_errors())
    assert not issubclass(ValueError, tuners.launch_errors())
    assert "300" in str(lack)
    assert "200" in str(lack)


def test_heuristics_between_a_tuner_and_its_kernel() -> None:
    """The outermost first; each function sees what those before it have set."""

    @triton.jit
    def kernel(x, n, BLOCK, EVEN):  # type: ignore[no-untyped-def]
        pass

    outer = {"BLOCK": lambda words: 2 * words["n"]}
    inner = {"EVEN": lambda words: words["BLOCK"] % 4 == 0}
    layers, fn = tuners.heuristic_layers(
        Heuristics(Heuristics(kernel, kernel.arg_names, inner), kernel.arg_names, outer)
    )
    assert (fn, [values for _, values in layers]) == (kernel, [outer, inner])
    words = {"n": 4}
    assert tuners.heuristic_values(layers, words) == {"n": 4, "BLOCK": 8, "EVEN": True}
    own = Heuristics(kernel, kernel.arg_names, inner)
    own.run = None  # another's
    assert tuners.heuristic_layers(own) == ([], own)


def test_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    held = vars(knobs.cache)
    monkeypatch.delitem(held, "dir", raising=False)
    assert tuners.cache_dir_set() is None
    monkeypatch.setitem(held, "dir", str(tmp_path))
    assert (tuners.cache_dir_set(), tuners.triton_folder()) == (str(tmp_path), str(tmp_path))
    monkeypatch.delitem(sys.modules, "triton.knobs")
    assert tuners.cache_dir_set() is None
    monkeypatch.setattr(knobs.autotuning, "print", True)
    assert tuners.prints_tuning() is True
    listener = object()
    monkeypatch.setattr(knobs.autotuning, "listener", listener, raising=False)
    assert tuners.tuning_listener() is listener


def pruned(prune: Any, **words: Any) -> list[Any]:
    return tuners.prune_configs(tuner(prune_configs=prune, **words), (3, 4), {"n": 1})


def test_a_users_pruning() -> None:
    assert pruned(lambda kwargs: (kwargs["n"], 2)) == [1, 2]
    with pytest.raises(ConfigError) as told:
        pruned(lambda kwargs: [])
    assert str(told.value) == (f"kernel base ({HERE}): no configs are left to try; give at least one, or prune fewer")


def test_users_pruning_sees_the_arguments_and_nothing_stays_of_them() -> None:
    made, seen = tuner(), list[Any]()
    made.prune_configs = lambda kwargs: seen.append((made.nargs, kwargs)) or [1, 2]
    assert tuners.prune_configs(made, (3, 4), {"n": 1}) == [1, 2]
    assert seen == [(dict(zip(made.arg_names, (3, 4), strict=False)), {"n": 1})]
    assert seen[0][0]
    assert made.nargs is None


def model(config: Any) -> float:
    raise KeyError("BLOCK_M")


def test_an_error_of_a_users_function_names_it() -> None:
    line = model.__code__.co_firstlineno
    where = f"which prunes the configs of kernel base ({HERE})"
    for given in (model, functools.partial(model), functools.wraps(model)(lambda *args: model(*args))):
        with pytest.raises(KeyError) as told:
            pruned(lambda kwargs, given=given: given(1), perf_model=given, early_config_prune=None)
        (note,) = told.value.__notes__
        assert note.startswith("raised by perf_model ")
        assert note.endswith(f"({HERE}:{line}), {where}")


def test_an_error_of_neither_names_both_or_the_method() -> None:
    def fail(kwargs: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as told:
        pruned(fail, perf_model=model, early_config_prune=base)
    lines = [f.__code__.co_firstlineno for f in (base, model)]
    assert told.value.__notes__ == [
        f"raised by early_config_prune base ({HERE}:{lines[0]}) or perf_model model ({HERE}:{lines[1]}), which prunes "
        f"the configs of kernel base ({HERE})"
    ]
    with pytest.raises(ZeroDivisionError) as bare:
        pruned(fail)
    assert bare.value.__notes__ == [f"raised by prune_configs, which prunes the configs of kernel base ({HERE})"]


def test_tritons_own_error_is_both() -> None:
    (own,) = tuners.autotuner_errors() or (None,)
    if own is None:
        pytest.skip("this Triton has no error of its own")

    with pytest.raises(ConfigError) as told:
        pruned(raising(own("No valid autotuner configs")))
    assert isinstance(told.value, own)
    assert str(told.value).startswith(f"kernel base ({HERE}): ")
    assert told.value.__cause__.__notes__ == [f"while pruning the configs of kernel base ({HERE})"]  # type: ignore[union-attr]


def test_a_note_is_added_once() -> None:
    error = ValueError()
    for note in ("a", "b", "a"):
        tuners.add_note(error, note)
    assert error.__notes__ == ["a", "b"]


def test_a_tuner_of_one_config_is_launched_untimed() -> None:
    @triton.jit
    def kernel(x):  # type: ignore[no-untyped-def]
        pass

    config = triton.Config({})
    found = tuners.tuner_of_one(SimpleNamespace(fn=kernel, arg_names=["x"]), config)
    assert (type(found), found.configs, found.keys, found.arg_names) == (Autotuner, [config], [], ["x"])


def test_triton_s_error_for_no_config_has_a_class_in_some_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import errors

    class AutotunerError(Exception):
        pass

    monkeypatch.setattr(errors, "AutotunerError", AutotunerError, raising=False)
    assert tuners.autotuner_errors() == (AutotunerError,)
    monkeypatch.delattr(errors, "AutotunerError")
    assert tuners.autotuner_errors() == ()
    fresh = functools.cache(tuners._nothing_left.__wrapped__)  # other tests have that of Triton's error
    assert fresh() is fresh()
