"""Values that people write in options and markers, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kerntune.errors import UsageError

SCOPES = ("kernels", "op")
"""``kernels``: the recorded Triton launches are timed on the device. ``op``: the whole call is."""

VERIFY = ("winner", "finalists", "all", "bitwise", "off")
"""Which candidates have to write what others write; the words of :class:`kerntune.tuning.verification.Verify`."""

MAX_TOLERANCE = 1.0
"""A tolerance of 1 lets a kernel take twice its time; a larger number is a percentage without its sign."""

_NS = {"": 1.0, "ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}


def parse_tolerance(value: object, where: str) -> float:
    """``0.02``, ``"0.02"`` or ``"2%"`` as a share, above 0 and below 1; ``where`` names the place in the error."""
    share = _share(value)
    if share is None or not 0 < share < MAX_TOLERANCE:
        raise UsageError(f"{where}: {value!r} is no tolerance; write a share above 0 and below 1, as 0.02 or 2%")
    return share


def parse_share(value: object, where: str, words: Sequence[str] = ()) -> float:
    """``0.1``, ``"0.1"`` or ``"10%"`` as a share, 0 or more. ``words`` may stand in its place: the error names them."""
    share = _share(value)
    if share is None or share < 0:
        *others, last = "0.1", "10%", *words
        raise UsageError(f"{where}: {value!r} is no share; write {', '.join(others)} or {last}")
    return share


def parse_floor(value: object, where: str) -> float:
    """``500``, ``"500ns"``, ``"0.5us"`` or ``"1ms"`` as nanoseconds, 0 or more."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*(ns|us|µs|μs|ms|s|)\s*", str(value))
    number = _number(match[1]) if match and not isinstance(value, bool) else None
    if match is None or number is None or number < 0:
        raise UsageError(f"{where}: {value!r} is no time; write nanoseconds, or a unit as in 500ns, 0.5us, 1ms")
    return number * _NS[match[2]]


def parse_choice(value: object, choices: Sequence[str], where: str) -> str:
    """One of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{where}: {value!r} is none of {', '.join(choices)}")
    return value


def parse_names(value: object, where: str) -> tuple[str, ...]:
    """Names of arguments, or ``kernel.name``: a list, or one text with commas or spaces between them."""
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(n, str) and _NAMES.fullmatch(n) for n in names):
        raise UsageError(f"{where}: {value!r} is no list of arguments; write names, or kernel.name")
    return tuple(names)


_NAMES = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")


def parse_kernel_values(value: object, where: str) -> dict[str, dict[str, Any]]:
    """``{"kernel.argument": tensor}`` as a mapping from kernels to one from their arguments."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and _ARGUMENT.fullmatch(k) for k in value):
        raise UsageError(
            f"{where}: {value!r} is no mapping from arguments of kernels to tensors: {{'kernel.argument': tensor}}; a "
            "keyword of your own function that is called values goes into a lambda: autotune(lambda: fn(values=...))"
        )
    found: dict[str, dict[str, Any]] = {}
    for name, tensor in value.items():
        kernel, _, argument = name.partition(".")
        if not hasattr(tensor, "untyped_storage"):
            raise UsageError(f"{where}: {name}: a {type(tensor).__name__} is no tensor; give a torch tensor on the CPU")
        found.setdefault(kernel, {})[argument] = tensor
    return found


_ARGUMENT = re.compile(r"[^\W\d]\w*\.[^\W\d]\w*")


def parse_switch(value: object, where: str) -> bool:
    """True or False, not something that is merely truthy."""
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {value!r} is neither True nor False")
    return value


def parse_name(value: object, where: str) -> str:
    """The name of a call: text without line breaks or ``::``, which separates it from the test."""
    if not isinstance(value, str) or not value.strip() or "::" in value or "\n" in value:
        raise UsageError(f"{where}: {value!r} is no name; write a short text without '::' and line breaks")
    return value


def _share(value: object) -> float | None:
    text = str(value).strip()
    if isinstance(value, bool):
        return None
    if text.endswith("%"):
        number = _number(text[:-1])
        return None if number is None else number / 100
    return _number(text)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
