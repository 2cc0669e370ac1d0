"""Which tensors a graph has to take for written by the launch of a tuned kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kerntune.base.device import Target
from kerntune.capture.site import config_of
from kerntune.compiling.frontend import lower, request_of
from kerntune.gpu.probe import WITHOUT_GPU
from kerntune.kernels import compat
from kerntune.kernels.source import jit_of
from kerntune.kernels.specialize import specialize
from kerntune.kernels.writes import access_of
from kerntune.tuning import context

SOME_SIZE = 48
"""Stands for a number that isn't known while a graph is made: neither 0 nor 1, which are compiled as constants."""


class Pointer:
    """A tensor as far as Triton's front end asks for it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    @staticmethod
    def data_ptr() -> int:
        """No address: aligned."""
        return 0


def written_names(tuner: Any, examples: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tensor arguments that some config's kernel, or a hook, may write. All of them where that can't be
    seen: what is declared written without being so costs at most a copy, the reverse a wrong result."""
    tensors = frozenset(name for name, value in examples.items() if _is_tensor(value))
    if _writes_beside_the_kernel(tuner):
        return tensors
    configs = tuner.variety() if hasattr(tuner, "variety") else tuner.configs
    if configs is None:
        return tensors
    words = {name: _stand_in(value) for name, value in examples.items()}
    found = frozenset(tuner.reset_to_zero or ())
    try:
        for config in _unlike(configs):
            found |= _written_with(tuner, {**words, **config.all_kwargs()})
    except Exception:  # an argument that only a running call has, or code that this target can't compile
        return tensors
    return found & tensors


def _writes_beside_the_kernel(tuner: Any) -> bool:
    own = any(getattr(tuner, f"user_defined_{name}_hook", False) for name in ("pre", "post"))
    return own or any(config.pre_hook is not None for config in tuner.configs)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _stand_in(value: Any) -> Any:
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        from triton.tools.tensor_descriptor import TensorDescriptor

        count = len(value.block_shape)
        strides = [SOME_SIZE * 16] * (count - 1) + [1]
        return TensorDescriptor(Pointer(value.base.dtype), [SOME_SIZE] * count, strides, list(value.block_shape))
    if _is_tensor(value):
        return Pointer(value.dtype)
    return SOME_SIZE if type(value).__name__ == "SymInt" else 0.5 if type(value).__name__ == "SymFloat" else value


def _unlike(configs: Sequence[Any]) -> list[Any]:
    """One config of each kind: block sizes change no access, flags and counts of one may."""
    return list({_kind(config): config for config in reversed(configs)}.values())


def _kind(config: Any) -> str:
    plain = config_of(config, "").kwargs
    return repr(sorted((k, "above 1" if type(v) is int and v > 1 else repr(v)) for k, v in plain.items()))


def _written_with(tuner: Any, words: dict[str, Any]) -> frozenset[str]:
    """The pointer arguments that one config's kernel writes."""
    layers, jit = compat.heuristic_layers(tuner.fn)
    for _, values in layers:
        for name, value in values.items():
            words[name] = value(words)
    backend = context.this_gpu()
    target = Target.parse(WITHOUT_GPU) if backend is None else backend.targets[0]
    launch = specialize(jit_of(jit), (), words, target)
    types = {name: str(kind) for name, kind in launch.signature.items()}
    pointers = [name for name, kind in types.items() if kind.startswith("*") or "tensordesc" in kind]
    access = access_of(lower(request_of(launch)).job.ir, target)
    if access.pointer_count != len(pointers):
        return frozenset(pointers)
    return frozenset(pointers[i] for i in access.writes)
