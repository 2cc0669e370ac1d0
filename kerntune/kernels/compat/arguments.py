"""The arguments of a launch, from the user's call to the parameters of the binary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


def run_options(jit: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that ``JITFunction.run`` adds to a launch before it binds the arguments.

    3.6 adds ``debug`` and ``instrumentation_mode``, 3.9 also ``fpsan_homomorphic_casts``.
    """
    from triton import knobs

    out = dict(kwargs)
    out["debug"] = out.get("debug", jit.debug) or knobs.runtime.debug
    out["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    if hasattr(knobs.compilation, "fpsan_homomorphic_casts"):
        out["fpsan_homomorphic_casts"] = knobs.compilation.fpsan_homomorphic_casts
    return out


def binder_of(jit: Any, backend: Any) -> Any:
    """The function that binds and specializes arguments: ``(*args, **kwargs) -> bound, specialization, options``."""
    from triton.runtime.jit import create_function_from_signature

    return create_function_from_signature(jit.signature, jit.params, backend)


def pack_args(jit: Any, backend: Any, kwargs: dict[str, Any], bound: Any, specialization: Any, options: Any) -> Any:
    """``options, signature, constexprs, attrs`` for ``ASTSource``. Raises what the backend raises for bad options."""
    return jit._pack_args(backend, kwargs, bound, specialization, options)


_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]")


def expand_type(type_: str, lowered_to_tma: bool) -> list[tuple[str, str]]:
    """A tensor descriptor's flattened parameters as ``(part, type)``, in the launcher's order.

    With TMA: the tensor map, shape (i32), strides (i64). Without: base pointer, shape and strides (i64), padding flag
    (and from 3.7 on a TF32 rounding flag), shape (i32), strides (i64) again.
    """
    match = _DESCRIPTOR.match(type_)
    if match is None:
        return [("", type_)]
    rank = match[2].count(",") + 1
    shape = [(f"shape[{i}]", "i32") for i in range(rank)]
    strides = [(f"strides[{i}]", "i64") for i in range(rank)]
    if lowered_to_tma:
        return [("map", "nvTmaDesc"), *shape, *strides]
    wide = [(part, "i64") for part, _ in (*shape, *strides)]
    flags = [("nan_padding", "i1")]
    if _decomposed_flags() > 1:
        flags.append(("round_f32_to_tf32", "i1"))
    return [("base", "*" + match[1]), *wide, *flags, *shape, *strides]


@lru_cache(maxsize=1)
def _decomposed_flags() -> int:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return 2 if "round_f32_to_tf32" in vars(TensorDescriptor).get("__dataclass_fields__", {}) else 1
