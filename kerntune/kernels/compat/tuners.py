"""Triton's autotuner, its configs, decorators and listeners."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


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


def interprets() -> bool:
    """Whether kernels decorated now run in Triton's interpreter (``TRITON_INTERPRET=1``)."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


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
