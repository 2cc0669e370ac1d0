"""What Triton compiles a launch for, and how its arguments become the parameters of the binary.

A launch is compiled for types, constants, alignment and options. Wrappers with a cache of their own launch a kernel
that is compiled already: ``compiled[grid](*args)``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kerntune.base.config import COMPILE_FIELDS, COMPILE_OPTIONS
from kerntune.base.device import Target
from kerntune.base.recording import Param, TensorMap
from kerntune.errors import CaptureError, CompileError, ConfigError
from kerntune.kernels.compat import launch_environment, launcher, triton_compiler
from kerntune.kernels.source import kernel_name, kernel_place, salt
from kerntune.kernels.used_globals import is_jit


@dataclass(frozen=True)
class Specialized:
    """A launch bound to a kernel's signature, with everything that the compiler needs.

    ``signature`` maps parameter names to Triton's type names (nested tuples for tuple arguments); ``constexprs`` maps
    argument paths to values; ``options`` is the backend's option object; ``settings`` are compiler settings from the
    environment (:func:`kerntune.kernels.compat.launch_environment.compiler_settings`).
    """

    jit: Any
    target: Target
    bound: Mapping[str, Any]
    signature: Mapping[str, Any]
    constexprs: Mapping[tuple[int, ...], Any]
    attrs: Mapping[tuple[int, ...], Any]
    options: Any
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's Python name."""
        return kernel_name(self.jit)

    def key(self) -> str:
        """Equal for launches that compile to the same binary in this process."""
        constants = {path: _identified(value) for path, value in self.constexprs.items()}
        tables = (constants, self.attrs, vars(self.options), self.settings)
        sorted_ = [sorted(map(repr, table.items())) for table in tables]
        text = repr((id(self.jit), str(self.target), list(self.signature.items()), sorted_))
        return hashlib.sha256(text.encode()).hexdigest()

    def cached_by(self) -> tuple[Any, ...]:
        """What Triton looks a compiled kernel up by in this process (``compute_cache_key``): equal constants are one,
        and a setting that has changed since the first launch counts for nothing."""
        signature, constants = tuple(self.signature.items()), tuple(self.constexprs.items())
        return id(self.jit), signature, constants, repr(self.attrs), str(self.options)

    def without_arguments(self) -> Specialized:
        """A copy without tensors, which is enough to compile: for use after the call."""
        return replace(self, bound={})

    def constexpr_texts(self) -> dict[str, str]:
        """Constants by parameter name, as texts for display; those that specialization made of arguments included."""
        names, found = list(self.signature), self.constexprs.items()
        return {names[first] + "".join(f"[{i}]" for i in rest): _text(value) for (first, *rest), value in found}

    def compiled_for(self) -> dict[str, str]:
        """How the compiler specialized each argument, and the options that configs set, as texts for display.

        ``{"x": "*fp32, divisible by 16", "n": "i32", "stride": "== 1", "BLOCK": "constexpr 128", "num_warps": "4"}``.
        """
        known = self.constexpr_texts()
        written = {p.name for p in self.jit.params if p.is_constexpr}
        out = {}
        for i, (name, type_) in enumerate(self.signature.items()):
            if name in known:
                out[name] = f"{'constexpr' if name in written else '=='} {known[name]}"
            else:
                out[name] = ", ".join([str(type_), *(_trait(*a) for a in self.attrs.get((i,), ()))])
        options = vars(self.options)
        return out | {o: str(options[o]) for o in COMPILE_OPTIONS if options.get(o) is not None}


def _identified(constant: Any) -> Any:
    """A constant, or the numbers of the functions in it: Triton's text of a function is its name alone."""
    inner = getattr(constant, "value", constant)
    if isinstance(inner, tuple):
        return tuple(map(_identified, inner))
    return id(inner) if is_jit(inner) else constant


def _trait(name: str, value: Any) -> str:
    return f"divisible by {value}" if name == "tt.divisibility" else f"{name} {value}"


def _text(value: Any) -> str:
    inner = getattr(value, "value", value)
    return kernel_name(inner) if hasattr(inner, "params") and hasattr(inner, "fn") else str(inner)


def specialize(jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: Target) -> Specialized:
    """Bind and specialize a launch as ``JITFunction.run`` does, for any target and without a GPU.

    Raises :class:`ConfigError` for keywords that the kernel doesn't have, :class:`CompileError` for options that the
    backend refuses (``num_ctas`` above 1 on sm_80, say).
    """
    triton_target = triton_compiler.gpu_target(target)
    backend = triton_compiler.make_backend(triton_target)
    salt(jit)
    options = launcher.run_options(jit, kwargs)
    try:
        bound, specialization, rest = launcher.binder_of(jit, backend)(*args, **options)
    except TypeError as exc:
        why = str(exc).removeprefix("dynamic_func() ")  # Triton's name of the function that it makes to bind arguments
        raise ConfigError(f"kernel {kernel_place(jit)} can't be called like this: {why}") from exc
    _refuse_unknown(jit, rest, backend, kwargs)
    try:
        parsed, signature, constexprs, attrs = launcher.pack_args(jit, backend, options, bound, specialization, rest)
    except Exception as exc:
        raise CompileError(f"kernel {kernel_name(jit)} for {target}: {exc}") from exc
    settings = launch_environment.compiler_settings(target.backend)
    return Specialized(jit, target, bound, signature, constexprs, attrs, parsed, settings)


def _refuse_unknown(jit: Any, rest: Mapping[str, Any], backend: Any, kwargs: Mapping[str, Any]) -> None:
    known = vars(backend.parse_options({}))
    launch_words = {"device", "device_type", "stream", "grid", "warmup"}
    unknown = [k for k in rest if k in kwargs and k not in known and k not in launch_words]
    if unknown:
        lacking = f"kernel {kernel_place(jit)} has no parameter {', '.join(unknown)}"
        raise ConfigError(f"{lacking}: its parameters are {', '.join(p.name for p in jit.params)}")


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
    for name, type_, value in leaves(launch):
        described = lowered and type_.startswith("tensordesc")
        out += flattened(launch, name, type_, value, next(maps, None) if described else None)
    return out


def flattened(
    launch: Specialized, name: str, type_: str, value: Any, tensor_map: Mapping[str, Any] | None
) -> list[FlatParam]:
    """The parameters of one of :func:`leaves`; a descriptor's with the metadata of its tensor map, if it has one."""
    if type_.startswith("tensordesc"):
        return _descriptor(name, type_, value, tensor_map)
    return [_leaf(launch, name, type_, value)]


def pointer_views(params: Sequence[Param]) -> list[int | None]:
    """The view behind each pointer-like argument, in the order of the TTIR's pointer-like parameters."""
    return [p.view for p in params if p.type.startswith("*") or p.type == "nvTmaDesc"]


def pointer_arguments(launch: Specialized) -> list[Any]:
    """What is given for each pointer-like parameter, in the order in which :class:`kerntune.kernels.access.Access`
    numbers them: a tensor, that of a descriptor, or what else is passed as a pointer."""
    given = [value for _, type_, value in leaves(launch) if type_.startswith(("*", "tensordesc"))]
    return [tensor_of(value) for value in given]


def tensor_of(value: Any) -> Any:
    """The tensor behind a descriptor or another view of Triton's (``TensorWrapper``); else the value itself."""
    while type(value).__name__.startswith(("TensorDescriptor", "TensorWrapper")):
        value = value.base
    return value


def leaves(launch: Specialized) -> Iterator[tuple[str, str, Any]]:
    """Name, type and value of each argument that isn't a constant; tuples expanded."""

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
    value = _own(value)
    if type_.startswith(("fp", "bf", "f")):
        return float(value) if math.isfinite(value) else str(float(value))
    return bool(value) if isinstance(value, bool) else int(value)


def _own(number: Any) -> Any:
    """A number as a launcher of Triton's reads it: whatever a class of its own says, its value is C's."""
    if isinstance(number, float):
        return float.__float__(number)
    return int.__int__(number) if isinstance(number, int) and not isinstance(number, bool) else number


def _descriptor(name: str, type_: str, value: Any, meta: Mapping[str, Any] | None) -> list[FlatParam]:
    shape, strides = [int(_own(x)) for x in value.shape], [int(_own(x)) for x in value.strides]
    nan = getattr(value, "padding", "zero") == "nan"
    tf32 = bool(getattr(value, "round_f32_to_tf32", False))
    plain: dict[str, Any] = {"nan_padding": nan, "round_f32_to_tf32": tf32}
    plain |= {f"shape[{i}]": x for i, x in enumerate(shape)} | {f"strides[{i}]": x for i, x in enumerate(strides)}
    out: list[FlatParam] = []
    for part, part_type in launcher.expand_type(type_, meta is not None):
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
        swizzle=meta["swizzle"], elem_size=meta["elem_size"],
        elem_type=TMA_DTYPE_DEVICE_TO_HOST.get(meta["elem_type"], meta["elem_type"]),
        block=tuple(meta["block_size"]), shape=tuple(shape), strides=tuple(strides),
        fp4_padded=bool(meta["fp4_padded"]), nan_padding=nan, tf32=tf32,
    )  # fmt: skip


def as_launch(compiled: Any, grid: Any) -> Callable[..., Any] | None:
    """A function that launches a ``CompiledKernel`` through its ``JITFunction``, with arguments bound and specialized
    again.

    Called as ``compiled[grid]`` is: all parameters by position, constants among them. None for a kernel without Python
    source (compiled from IR): its arguments can't be bound.
    """
    jit = getattr(getattr(compiled, "src", None), "fn", None)
    if jit is None or not hasattr(jit, "params"):
        return None
    metadata = compiled.metadata
    words = {name: getattr(metadata, name, None) for name in COMPILE_FIELDS}
    given = {name: value for name, value in words.items() if value is not None}
    return lambda *args, stream=None: jit.run(*args, grid=tuple(grid), warmup=False, **given)
