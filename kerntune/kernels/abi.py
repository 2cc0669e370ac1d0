"""A launch's arguments flattened to the parameters of its binary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kerntune.base.recording import Param, TensorMap
from kerntune.errors import CaptureError
from kerntune.kernels import compat
from kerntune.kernels.specialize import Specialized

FlatParam = tuple[Param, Any]
"""A parameter without its view, and the tensor that it points into; None where it points nowhere."""

TMA_DTYPE_DEVICE_TO_HOST = {8: 10, 9: 8, 10: 9}
"""Element types of a tensor map whose number differs between device and host enumerations (CUDA driver API,
``CUtensorMapDataType``); all others are equal."""


def flatten(launch: Specialized, metadata: Mapping[str, Any]) -> list[FlatParam]:
    """The binary's parameters in order: constexprs dropped, tuples and tensor descriptors expanded.

    The two scratch pointers that follow are not listed. Raises :class:`CaptureError` for an argument whose memory can't
    be determined.
    """
    maps = iter(metadata.get("tensordesc_meta") or ())
    lowered = bool(metadata.get("tensordesc_meta"))
    out: list[FlatParam] = []
    for name, type_, value in _leaves(launch):
        if type_.startswith("tensordesc"):
            out += _descriptor(name, type_, value, next(maps, None) if lowered else None)
        else:
            out.append(_leaf(launch, name, type_, value))
    return out


def pointer_views(params: Sequence[Param]) -> list[int | None]:
    """The view behind each pointer-like argument, in the order of the TTIR's pointer-like parameters."""
    return [p.view for p in params if p.type.startswith("*") or p.type == "nvTmaDesc"]


def pointer_arguments(launch: Specialized) -> list[Any]:
    """What is given for each pointer-like parameter, in the order in which :class:`kerntune.kernels.access.Access`
    numbers them: a tensor, that of a descriptor, or what else is passed as a pointer."""
    given = [value for _, type_, value in _leaves(launch) if type_.startswith(("*", "tensordesc"))]
    return [tensor_of(value) for value in given]


def tensor_of(value: Any) -> Any:
    """The tensor behind a descriptor or another view of Triton's (``TensorWrapper``); else the value itself."""
    while type(value).__name__.startswith(("TensorDescriptor", "TensorWrapper")):
        value = value.base
    return value


def _leaves(launch: Specialized) -> Iterator[tuple[str, str, Any]]:
    def walk(name: str, type_: Any, value: Any) -> Iterator[tuple[str, str, Any]]:
        if isinstance(type_, tuple):
            for i, (t, v) in enumerate(zip(type_, value, strict=True)):
                yield from walk(f"{name}[{i}]", t, v)
        elif type_ != "constexpr":
            yield name, type_, value

    for name, type_ in launch.signature.items():
        yield from walk(name, type_, launch.bound[name])


def _leaf(launch: Specialized, name: str, type_: str, value: Any) -> FlatParam:
    if not type_.startswith("*"):
        return Param(name, type_, value=_scalar(type_, value)), None
    if value is None:
        return Param(name, type_), None
    if isinstance(value, int) or not hasattr(value, "data_ptr"):
        raise CaptureError(
            f"kernel {launch.name}: argument {name} is a pointer given as {type(value).__name__}; "
            "pass the tensor itself, or the launch can't be replayed"
        )
    return Param(name, type_), value


def _scalar(type_: str, value: Any) -> bool | int | float | str:
    if type_.startswith(("fp", "bf", "f")):
        return float(value) if math.isfinite(value) else str(float(value))
    return bool(value) if isinstance(value, bool) else int(value)


def _descriptor(name: str, type_: str, value: Any, meta: Mapping[str, Any] | None) -> list[FlatParam]:
    shape, strides = [int(x) for x in value.shape], [int(x) for x in value.strides]
    nan = getattr(value, "padding", "zero") == "nan"
    tf32 = bool(getattr(value, "round_f32_to_tf32", False))
    plain: dict[str, Any] = {"nan_padding": nan, "round_f32_to_tf32": tf32}
    plain |= {f"shape[{i}]": x for i, x in enumerate(shape)} | {f"strides[{i}]": x for i, x in enumerate(strides)}
    out: list[FlatParam] = []
    for part, part_type in compat.expand_type(type_, meta is not None):
        if part == "map" and meta is not None:
            tensor_map = _tensor_map(shape, strides, nan, tf32, meta)
            out.append((Param(f"{name}.map", part_type, tensor_map=tensor_map), value.base))
        elif part == "base":
            out.append((Param(f"{name}.base", part_type), value.base))
        else:
            out.append((Param(f"{name}.{part}", part_type, value=plain[part]), None))
    return out


def _tensor_map(shape: list[int], strides: list[int], nan: bool, tf32: bool, meta: Mapping[str, Any]) -> TensorMap:
    if meta.get("is_im2col"):
        raise CaptureError("an im2col tensor descriptor can't be replayed yet")
    if meta["fp4_padded"]:
        shape = [*shape[:-1], shape[-1] * 2]
    return TensorMap(
        swizzle=meta["swizzle"],
        elem_size=meta["elem_size"],
        elem_type=TMA_DTYPE_DEVICE_TO_HOST.get(meta["elem_type"], meta["elem_type"]),
        block=tuple(meta["block_size"]),
        shape=tuple(shape),
        strides=tuple(strides),
        fp4_padded=bool(meta["fp4_padded"]),
        nan_padding=nan,
        tf32=tf32,
    )
