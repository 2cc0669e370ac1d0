"""Arguments and constants as texts: the properties of a value that matter to a kernel, equal in every process."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

from kerntune.kernels.source import source_hash


def text_of(value: Any) -> str:
    """A text of what matters to a kernel's speed, equal in every process: layouts, scalars, code, no addresses."""
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{tuple(value.shape)}{tuple(value.stride())}"
    if isinstance(value, (bool, int, float, str, type(None))):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(text_of, value))})"
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        sizes = (tuple(map(int, getattr(value, name))) for name in ("shape", "strides", "block_shape"))
        own = [f"{name}={item!r}" for name, item in layout_of(value).items()]
        return f"descriptor({', '.join([text_of(value.base), *map(repr, sizes), *own])})"
    if hasattr(value, "src") and hasattr(value, "params"):
        return f"function({source_hash(value)[:16]})"
    if type(value).__module__.partition(".")[0] in ("torch", "triton") and type(value).__name__ in DTYPES:
        return str(value)
    if type(value).__name__ == "constexpr":
        return f"constexpr({text_of(value.value)})"
    if hasattr(value, "data_ptr"):
        return f"{type(value).__name__}({getattr(value, 'dtype', '')})"
    if hasattr(value, "src"):  # a constexpr_function
        return f"function({hashlib.sha256(str(value.src).encode()).hexdigest()[:16]})"
    if inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return type(value).__name__ if ADDRESS in text else text


def layout_of(descriptor: Any) -> dict[str, Any]:
    """What a Gluon kernel's descriptor says besides a Triton kernel's: its layout in shared memory, and what im2col
    needs."""
    return {name: item for name, item in getattr(descriptor, "__dict__", {}).items() if name not in DESCRIPTOR_FIELDS}


DESCRIPTORS = ("TensorDescriptor", "TensorDescriptorIm2Col")
"""Names of the classes of host-side descriptors, of Triton's and of Gluon's for each kind of GPU."""

DESCRIPTOR_FIELDS = frozenset({"base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32"})
"""Fields of a Triton kernel's host-side descriptor; a class with further fields may compile differently because of
them."""

ADDRESS = " at 0x"
"""Part of Python's default ``repr`` of an object, which differs in each process."""

DTYPES = frozenset({"dtype", "block_type", "pointer_type"})
"""Classes of torch's and Triton's element types; their texts are complete."""
