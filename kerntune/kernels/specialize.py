"""What Triton compiles a launch for: types, constants, alignment and options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kerntune.base.config import COMPILE_OPTIONS
from kerntune.base.device import Target
from kerntune.errors import CompileError, ConfigError
from kerntune.kernels import compat
from kerntune.kernels.source import kernel_file, kernel_name, salt


@dataclass(frozen=True)
class Specialized:
    """A launch bound to a kernel's signature, with everything that the compiler needs.

    ``signature`` maps parameter names to Triton's type names (nested tuples for tuple arguments); ``constexprs`` maps
    argument paths to values; ``options`` is the backend's option object; ``settings`` are compiler settings from the
    environment (:func:`kerntune.kernels.compat.compiler_settings`).
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
        text = repr(
            (
                id(self.jit),
                str(self.target),
                list(self.signature.items()),
                sorted(map(repr, self.constexprs.items())),
                sorted(map(repr, self.attrs.items())),
                sorted(map(repr, vars(self.options).items())),
                sorted(self.settings.items()),
            )
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def without_arguments(self) -> Specialized:
        """A copy without tensors, which is enough to compile: for use after the call."""
        return replace(self, bound={})

    def constexpr_texts(self) -> dict[str, str]:
        """Constants by parameter name, as texts for display; those that specialization made of arguments included."""
        names = list(self.signature)
        return {
            names[path[0]] + "".join(f"[{i}]" for i in path[1:]): _text(value)
            for path, value in self.constexprs.items()
        }

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
    triton_target = compat.gpu_target(target.backend, target.triton_arch, target.warp_size)
    backend = compat.make_backend(triton_target)
    salt(jit)
    options = compat.run_options(jit, kwargs)
    try:
        bound, specialization, rest = compat.binder_of(jit, backend)(*args, **options)
    except TypeError as exc:
        why = str(exc).removeprefix("dynamic_func() ")  # Triton's name of the function that it makes to bind arguments
        raise ConfigError(f"kernel {kernel_name(jit)} ({kernel_file(jit)}) can't be called like this: {why}") from exc
    _refuse_unknown(jit, rest, backend, kwargs)
    try:
        parsed, signature, constexprs, attrs = compat.pack_args(jit, backend, options, bound, specialization, rest)
    except Exception as exc:
        raise CompileError(f"kernel {kernel_name(jit)} for {target}: {exc}") from exc
    settings = compat.compiler_settings(target.backend)
    return Specialized(jit, target, bound, signature, constexprs, attrs, parsed, settings)


def _refuse_unknown(jit: Any, rest: Mapping[str, Any], backend: Any, kwargs: Mapping[str, Any]) -> None:
    known = vars(backend.parse_options({}))
    launch_words = {"device", "device_type", "stream", "grid", "warmup"}
    unknown = [k for k in rest if k in kwargs and k not in known and k not in launch_words]
    if unknown:
        raise ConfigError(
            f"kernel {kernel_name(jit)} ({kernel_file(jit)}) has no parameter {', '.join(unknown)}: "
            f"its parameters are {', '.join(p.name for p in jit.params)}"
        )
