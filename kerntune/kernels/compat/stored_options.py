"""Which compile options of a file may reach a compiler: a table of every option of Triton 3.6 to 3.9.

A baseline comes from a stranger's pull request, and some options are arguments of ptxas, or paths. An option that is
:data:`ALLOWED` reaches the compiler if its value is one of those that it can have. Any other reaches it from today's
own launch alone, that is, from the user's source, environment and Triton.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_Warps = Literal[1, 2, 4, 8, 16, 32, 64]
_Precision = Literal["tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"]
_Fp8Types = Annotated[tuple[Literal["fp8e5", "fp8e4nv", "fp8e4b15", "fp8e4b8", "fp8e5b16"], ...], Meta(max_length=5)]
_HINT = "(none|attention|memory-bound-attention)?"
_Hints = Annotated[str, Meta(max_length=100, pattern=rf"\A{_HINT}(,{_HINT})*\Z")]
_UpTo64 = Annotated[int, Meta(ge=0, le=64)]

_BOTH = {
    "num_warps": _Warps,
    "num_ctas": Annotated[int, Meta(ge=1, le=16)],
    "num_stages": _UpTo64,
    "enable_fp_fusion": bool,
    "launch_cooperative_grid": bool,
    "debug": bool,
    "sanitize_overflow": bool,
    "fpsan_homomorphic_casts": bool,
    "supported_fp8_dtypes": _Fp8Types,
    "deprecated_fp8_dot_operand_dtypes": _Fp8Types,
    "default_dot_input_precision": _Precision,
    "allowed_dot_input_precisions": Annotated[tuple[_Precision, ...], Meta(max_length=5)],
    "max_num_imprecise_acc_default": Annotated[int, Meta(ge=0, le=1 << 30)],
}

ALLOWED: dict[str, dict[str, Any]] = {
    "cuda": {
        **_BOTH,
        "backend_name": Literal["cuda"],
        "warp_size": Literal[32],
        "maxnreg": Annotated[int, Meta(ge=1, le=1024)],
        "ptx_version": Annotated[int, Meta(ge=10, le=999)],
        "sched4reg": bool,
        "enable_reflect_ftz": bool,
        "launch_pdl": bool,
        "clc": bool,
        "min_shared_mem": Annotated[int, Meta(ge=0, le=1 << 20)],
    },
    "hip": {
        **_BOTH,
        "backend_name": Literal["hip"],
        "warp_size": Literal[32, 64],
        "waves_per_eu": _UpTo64,
        "matrix_instr_nonkdim": _UpTo64,
        "kpack": Annotated[int, Meta(ge=1, le=8)],
        "allow_flush_denorm": bool,
        "schedule_hint": _Hints,
        "wgp_cu_mode": Literal["wgp", "cu"],
    },
}
"""By backend, the options that a file may set, with their types: those of ``CUDAOptions`` and ``HIPOptions`` of Triton
3.6 to 3.9. Limits are beyond what any GPU has: 64 warps are 2,048 threads, ``.maxnreg`` ends at 255. None means unset,
and always may be."""

REFUSED: dict[str, dict[str, str]] = {
    "cuda": {
        "ptx_options": "arguments of ptxas",
        "ir_override": "the path of a file that is compiled instead",
        "extern_libs": "paths of libraries that are linked",
        "instrumentation_mode": "passes and libraries that instrument the code",
    },
    "hip": {
        "llvm_fn_attrs": "attributes that LLVM obeys",
        "extern_libs": "paths of libraries that are linked",
        "instrumentation_mode": "passes and libraries that instrument the code",
    },
}
"""By backend, the options that no file may set, and what they are."""

OF_TARGET = frozenset({"arch", "base_arch"})
"""What follows from the target, which is checked by itself (:meth:`kerntune.base.device.Target.parse`)."""


def checked_options(
    backend: str, stored: Mapping[str, Any], own: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options to compile stored code under, and a sentence for each that would differ from the stored ones.

    ``stored`` are a file's, ``own`` all those of today's own launch. What neither ``own`` nor the tables have is a
    constant of the kernel, or an option of a Triton outside of them, and is left out. A value that isn't allowed is
    taken from ``own``, with a sentence if the stored value is another: also where this Triton lacks the option.
    """
    found: dict[str, Any] = {}
    problems = []
    for name, value in stored.items():
        if name in OF_TARGET or value in (None, "", [], (), {}):  # unset
            continue
        allowed = ALLOWED.get(backend, {}).get(name)
        if allowed is not None and _is_of(value, allowed):
            found[name] = tuple(value) if isinstance(value, list) else value
        elif name in own and _comparable(name, own[name]) == _comparable(name, value):
            found[name] = own[name]
        elif name in own or allowed is not None or name in REFUSED.get(backend, {}):
            problems.append(_problem(backend, name))
    return found, tuple(problems)


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"?')
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
_DIRECTIVE = re.compile(r"(?<![\w.$])\.(?!L)[A-Za-z]")
_ASSEMBLY = ("inline_asm", "module_asm")
"""In the names of MLIR's operations and attributes that carry assembly."""


def includes_files(backend: str, ttir: str) -> bool:
    """Whether a stored TTIR may have the assembler read files: its inline assembly has directives.

    LLVM's assembler, which AMD's backend uses, knows ``.incbin`` and ``.include``, and macros that spell them. ptxas
    knows none. Instructions and local labels (``.L``) are no directives.
    """
    if backend == "cuda":
        return False
    texts = [_ESCAPE.sub(_unescaped, x) for x in _STRING.findall(ttir)]
    if not any(name in text for name in _ASSEMBLY for text in (ttir, *texts)):
        return False
    return any(_DIRECTIVE.search(text) for text in texts)


def _unescaped(match: re.Match[str]) -> str:
    """A character of an MLIR string: two hexadecimal digits, or a letter for a control character."""
    found = match[1]
    return chr(int(found, 16)) if len(found) == 2 else {"n": "\n", "t": "\t"}.get(found, found)


def _is_of(value: object, allowed: Any) -> bool:
    """Whether a value is of a type as it is: 4.0, "4" and True are no whole numbers."""
    try:
        msgspec.convert(value, allowed)
    except (msgspec.ValidationError, UnicodeError):
        return False
    return True


def _problem(backend: str, name: str) -> str:
    """What msgspec says isn't repeated: it quotes the value."""
    if name in ALLOWED.get(backend, {}):
        return f"{name} has a value that it can't have"
    what = REFUSED.get(backend, {}).get(name, "an option that this kerntune doesn't know")
    return f"{name} ({what}) differs from today's, and is never taken from a file"


def _comparable(name: str, value: Any) -> Any:
    """A value as JSON has it; of libraries the names of their files, since where they lie differs by machine."""
    if name == "extern_libs" and isinstance(value, str):
        return value.replace("\\", "/").rpartition("/")[2]
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _comparable(name, v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(_comparable(name, x) for x in value)
    return value
