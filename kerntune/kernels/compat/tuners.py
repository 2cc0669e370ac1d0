"""Triton's autotuner: its configs, decorators and listeners, and a user's pruning of its configs.

An error in the user's pruning names the function that failed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kerntune.errors import ConfigError


def autotuner_key(tuner: Any, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key under which ``triton.autotune`` stores the best config: its key arguments, then every argument's dtype.

    For a tuner with a method ``tuning_key`` its result is used. Where a process has GPUs of several kinds, the current
    one's name comes last: what is best on one need not even fit on another.
    """
    if hasattr(tuner, "tuning_key"):
        return (*tuner.tuning_key({**named, **kwargs}), *kind_of_gpu())
    values = {k: v for k, v in {**named, **kwargs}.items() if k in tuner.arg_names}
    key = [values[k] for k in tuner.keys if k in values]
    return (*key, *(str(v.dtype) for v in values.values() if hasattr(v, "dtype")), *kind_of_gpu())


def kind_of_gpu() -> tuple[str, ...]:
    """The current GPU's name, if this process has others with other names."""
    import torch

    count = int(torch.cuda.device_count())
    if count < 2 or not torch.cuda.is_available() or len({torch.cuda.get_device_name(i) for i in range(count)}) == 1:
        return ()
    return (str(torch.cuda.get_device_name()),)


def out_of_resources(required: int, limit: int, name: str) -> Exception:
    """The exception that Triton raises for a kernel that needs more of a resource than the device has."""
    from triton.runtime.errors import OutOfResources

    return OutOfResources(required, limit, name)  # type: ignore[no-any-return]


def launch_errors() -> tuple[type[Exception], ...]:
    """What Triton raises for a config that doesn't compile, or that the device can't launch: the driver's errors are
    RuntimeErrors."""
    from triton.runtime.errors import TritonError

    return (TritonError, RuntimeError)


def triton_config(config: Any) -> Any:
    """A :class:`kerntune.base.config.Config` as Triton's; backend options go among the keywords, as in AMD's
    examples."""
    from triton import Config

    words = {**config.kwargs, **config.options}
    return Config(
        words, num_warps=config.num_warps, num_stages=config.num_stages, num_ctas=config.num_ctas,
        maxnreg=config.maxnreg,
    )  # fmt: skip


def tuner_of_one(tuner: Any, config: Any) -> Any:
    """Triton's own tuner of the same kernel with one config, with which it is launched untimed."""
    from triton.runtime.autotuner import Autotuner

    return Autotuner(tuner.fn, tuner.arg_names, [config], [], None, None)


def heuristic_layers(fn: Any) -> tuple[list[Any], Any]:
    """``@triton.heuristics`` between a tuner and its kernel, as names and functions, outermost first; the kernel."""
    from triton.runtime.autotuner import Heuristics

    layers: list[Any] = []
    while type(fn) is Heuristics and "run" not in vars(fn):
        layers.append((fn.arg_names, fn.values))
        fn = fn.fn
    return layers, fn


def heuristic_values(layers: Iterable[Any], words: dict[str, Any]) -> dict[str, Any]:
    """``words``, a call's arguments and a config, with what :func:`heuristic_layers` make of them: each function sees
    what those before it have set."""
    for _, values in layers:
        for name, value in values.items():
            words[name] = value(words)
    return words


def interprets() -> bool:
    """Whether kernels decorated now run in Triton's interpreter (``TRITON_INTERPRET=1``)."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


def triton_folder() -> str:
    """Triton's cache of this process."""
    from triton import knobs

    return str(knobs.cache.dir)


def cache_dir_set() -> str | None:
    """The folder that this process has set for Triton's cache itself (``knobs.cache.dir = ...``), not by an environment
    variable; None if it has set none."""
    knobs = sys.modules.get("triton.knobs")  # where that isn't loaded, it isn't set
    return None if knobs is None else vars(knobs.cache).get("dir")


def prints_tuning() -> bool:
    """Whether the user wants a line per tuned kernel (``TRITON_PRINT_AUTOTUNING=1``)."""
    from triton import knobs

    return bool(knobs.autotuning.print)


def tuning_listener() -> Any:
    """The user's listener for tuned kernels (``knobs.autotuning.listener``, which 3.6 lacks); None if there is none."""
    from triton import knobs

    return getattr(knobs.autotuning, "listener", None)


ROLES = ("early_config_prune", "perf_model")
"""The functions that ``prune_configs_by`` takes."""


def autotuner_errors() -> tuple[type[Exception], ...]:
    """The exceptions that Triton's autotuner raises when a user's pruning leaves no config; some versions have no
    separate class."""
    from triton.runtime import errors

    found = getattr(errors, "AutotunerError", None)
    return (found,) if found is not None else ()


def prune_configs(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The configs that the user's pruning leaves of a tuner's for a call. The tuner has its arguments meanwhile alone:
    it outlives the call, its arguments needn't.

    :class:`ConfigError`, which is Triton's ``AutotunerError`` too, if none is left. Exceptions of a user's function are
    raised unchanged, with a note (PEP 678) that names the kernel and the function.
    """
    where = f"kernel {tuner.base_fn.__name__} ({tuner.base_fn.__code__.co_filename})"
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    try:
        configs = list(tuner.prune_configs(kwargs))
    except autotuner_errors() as exc:
        add_note(exc, f"while pruning the configs of {where}")
        raise _nothing_left()(f"{where}: {exc}") from exc
    except Exception as exc:
        add_note(exc, f"raised by {_raised_by(tuner, exc)}, which prunes the configs of {where}")
        raise
    finally:
        tuner.nargs = None
    if not configs:
        raise ConfigError(f"{where}: no configs are left to try; give at least one, or prune fewer")
    return configs


def add_note(error: BaseException, note: str) -> None:
    """``error.add_note``, which Python 3.10 lacks: pytest, and Python from 3.11 on, print it below the error."""
    notes = getattr(error, "__notes__", [])
    if note not in notes:
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined,unused-ignore]


@functools.cache
def _nothing_left() -> type[ConfigError]:
    """A subclass of both errors, so that code that catches Triton's error catches this one."""

    class NothingLeftError(ConfigError, *autotuner_errors()):  # type: ignore[misc]  # Triton has no types here
        """A user's pruning leaves no config."""

        __str__ = Exception.__str__

    return NothingLeftError


def _raised_by(tuner: Any, error: Exception) -> str:
    """The user's functions that were running, by role, name and place; all of them if none was."""
    running = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    given = {role: fn for role in ROLES if (fn := getattr(tuner, role, None)) is not None}
    found = [_described(role, fn) for role, fn in given.items() if running & set(_codes(fn))]
    return " or ".join(found or [_described(role, fn) for role, fn in given.items()]) or "prune_configs"


def _described(role: str, fn: Any) -> str:
    code = next(_codes(fn), None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return f"{role} {getattr(fn, '__name__', None) or type(fn).__name__}{place}"


def _codes(fn: Callable[..., Any]) -> Iterator[Any]:
    """The code of a function, of what it wraps, of a ``partial``'s function, of an object's ``__call__``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    inner = inspect.unwrap(fn)
    inner = inner if inspect.isroutine(inner) or not callable(inner) else type(inner).__call__
    for each in (inner, fn):
        code = getattr(each, "__code__", None)
        if code is not None:
            yield code
