"""Which compile options of a file may reach a compiler: a table of every option of Triton 3.6 to 3.9.

A baseline comes from a stranger's pull request, and some options are arguments of ptxas, or paths. An option that is
:data:`ALLOWED` reaches the compiler if its value is one of those that it can have. Any other reaches it from today's
own launch alone, that is, from the user's source, environment and Triton.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AllowedValues:
    """The values of an option that a file may give. ``text`` says them in words."""

    text: str
    holds: Callable[[object], bool]


def _whole(low: int, high: int) -> AllowedValues:
    return AllowedValues(
        f"a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high
    )


def _power_of_two(high: int) -> AllowedValues:
    def holds(value: object) -> bool:
        return type(value) is int and 1 <= value <= high and value & (value - 1) == 0

    return AllowedValues(f"a power of two up to {high}", holds)


def _one_of(*values: str | int) -> AllowedValues:
    kinds = {type(value) for value in values}
    text = "one of " + ", ".join(repr(value) for value in values)
    return AllowedValues(text, lambda value: type(value) in kinds and value in values)


def _some_of(*words: str) -> AllowedValues:
    def holds(value: object) -> bool:
        return isinstance(value, (list, tuple)) and len(value) <= len(words) and all(x in words for x in value)

    return AllowedValues("a list of " + ", ".join(words), holds)


def _words_of(*words: str) -> AllowedValues:
    def holds(value: object) -> bool:
        return isinstance(value, str) and len(value) <= 100 and all(x in words for x in value.split(","))

    return AllowedValues("words of " + ", ".join(repr(w) for w in words), holds)


_BOOL = AllowedValues("a truth value", lambda value: type(value) is bool)

_FP8 = ("fp8e5", "fp8e4nv", "fp8e4b15", "fp8e4b8", "fp8e5b16")
_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")

_BOTH = {
    "num_warps": _power_of_two(64),
    "num_ctas": _whole(1, 16),
    "num_stages": _whole(0, 64),
    "enable_fp_fusion": _BOOL,
    "launch_cooperative_grid": _BOOL,
    "debug": _BOOL,
    "sanitize_overflow": _BOOL,
    "fpsan_homomorphic_casts": _BOOL,
    "supported_fp8_dtypes": _some_of(*_FP8),
    "deprecated_fp8_dot_operand_dtypes": _some_of(*_FP8),
    "default_dot_input_precision": _one_of(*_PRECISIONS),
    "allowed_dot_input_precisions": _some_of(*_PRECISIONS),
    "max_num_imprecise_acc_default": _whole(0, 1 << 30),
}

ALLOWED: dict[str, dict[str, AllowedValues]] = {
    "cuda": {
        **_BOTH,
        "backend_name": _one_of("cuda"),
        "warp_size": _one_of(32),
        "maxnreg": _whole(1, 1024),
        "ptx_version": _whole(10, 999),
        "sched4reg": _BOOL,
        "enable_reflect_ftz": _BOOL,
        "launch_pdl": _BOOL,
        "clc": _BOOL,
        "min_shared_mem": _whole(0, 1 << 20),
    },
    "hip": {
        **_BOTH,
        "backend_name": _one_of("hip"),
        "warp_size": _one_of(32, 64),
        "waves_per_eu": _whole(0, 64),
        "matrix_instr_nonkdim": _whole(0, 64),
        "kpack": _whole(1, 8),
        "allow_flush_denorm": _BOOL,
        "schedule_hint": _words_of("", "none", "attention", "memory-bound-attention"),
        "wgp_cu_mode": _one_of("wgp", "cu"),
    },
}
"""By backend, the options that a file may set, from ``CUDAOptions`` and ``HIPOptions`` of Triton 3.6 to 3.9. Limits are
beyond what any GPU has: 64 warps are 2,048 threads, ``.maxnreg`` ends at 255. None means unset, and always may be."""

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
        if name in OF_TARGET or _unset(value):
            continue
        rule = ALLOWED.get(backend, {}).get(name)
        if rule is not None and rule.holds(value):
            found[name] = tuple(value) if isinstance(value, list) else value
        elif name in own and _comparable(name, own[name]) == _comparable(name, value):
            found[name] = own[name]
        elif name in own or rule is not None or name in REFUSED.get(backend, {}):
            problems.append(_problem(backend, name, rule))
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


def _unset(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, tuple, dict)) and not value)


def _problem(backend: str, name: str, rule: AllowedValues | None) -> str:
    if rule is not None:
        return f"{name} is not {rule.text}"
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
