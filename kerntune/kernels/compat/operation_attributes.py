"""Attributes of TTIR's operations that decide what is computed. Triton 3.6 can't be asked for them: its text is read.

The module's text has them in the same words under Triton 3.6 to 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kerntune.errors import InterpreterLimit

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "arith.cmpi": ("predicate",),
    "arith.cmpf": ("predicate",),
    "tt.atomic_rmw": ("atomic_rmw_op",),
    "tt.clampf": ("propagateNan",),
    "tt.dot": ("inputPrecision",),
    "tt.expand_dims": ("axis",),
    "tt.fp_to_fp": ("rounding",),
    "tt.gather": ("axis",),
    "tt.get_num_programs": ("axis",),
    "tt.get_program_id": ("axis",),
    "tt.make_range": ("start", "end"),
    "tt.make_tensor_descriptor": ("padding",),
    "tt.reduce": ("axis",),
    "tt.scan": ("axis",),
}
"""By operation, the attributes that are numbers or words of :data:`WORDS`."""

WORDS: Mapping[str, Mapping[int, str]] = {
    "arith.cmpi": dict(enumerate(("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"))),
    "arith.cmpf": dict(enumerate((
        "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno",
        "true",
    ))),
    "tt.atomic_rmw": dict(enumerate(("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch"), 1)),
    "tt.clampf": {0: "none", 0xFFFF: "all"},
    "tt.dot": {0: "tf32", 1: "tf32x3", 2: "ieee", 3: "bf16x3", 4: "bf16x6"},
    "tt.fp_to_fp": {0: "rtz", 1: "rtne"},
}  # fmt: skip
"""The words that MLIR prints for an operation's numbers (MLIR's ArithBase.td, Triton's TritonAttrDefs.td)."""

_FIRST = ("arith.cmpi", "arith.cmpf", "tt.atomic_rmw", "tt.get_num_programs", "tt.get_program_id")
"""Operations whose attribute is the first word after the name."""

_UNSAID: Mapping[str, dict[str, int | str]] = {
    "tt.dot": {"inputPrecision": "ieee"},
    "tt.fp_to_fp": {},
    "tt.make_tensor_descriptor": {"padding": 1},
}
"""What isn't printed because it is the default."""


def operation_attributes(operation: Any, name: str, line: str) -> dict[str, int | str]:
    """The attributes of an MLIR operation that :data:`ATTRIBUTES` names. ``line`` is what the module's text has after
    the operation's name, where strings are empty. :class:`InterpreterLimit` for a value that isn't known."""
    if name not in ATTRIBUTES:
        return {}
    if not hasattr(operation, "get_int_attr"):  # Triton 3.6
        return attributes_in_text(name, line)
    found: dict[str, int | str] = {}
    for key in ATTRIBUTES[name]:
        number = operation.get_int_attr(key)
        if number is not None:
            found[key] = _known(name, WORDS[name].get(number)) if name in WORDS else number
    return found


def attributes_in_text(name: str, line: str) -> dict[str, int | str]:
    """The same as :func:`operation_attributes`, from the text alone. :class:`InterpreterLimit` as there."""
    if name in _FIRST:
        word = line.partition(",")[0].partition(":")[0].strip()
        axes = {"x": 0, "y": 1, "z": 2}
        (key,) = ATTRIBUTES[name]
        return {key: _known(name, word) if name in WORDS else _number(axes.get(word, ""), name)}
    before, _, rest = line.partition("{")
    inside, _, behind = rest.rpartition("}")
    if name not in WORDS:
        unsaid = _UNSAID.get(name, {})
        if unsaid and "{" in inside:  # a value in a nested dictionary would pass for what isn't printed
            raise InterpreterLimit(f"a {name} in its TTIR has a dictionary among its attributes")
        return {key: _number(_only(name, key, inside) or unsaid.get(key, ""), name) for key in ATTRIBUTES[name]}
    (key,) = ATTRIBUTES[name]
    word = _only(name, key, f"{before} {behind}")
    return {key: _known(name, word)} if word or name not in _UNSAID else {**_UNSAID[name]}


def _only(name: str, key: str, text: str) -> str:
    found = re.findall(rf"(?<![\w.$%-]){key} = (-?\w+)", text)
    if len(found) > 1:
        raise InterpreterLimit(f"a {name} in its TTIR has several attributes {key}")
    return found[0] if found else ""


def _known(name: str, word: str | None) -> str:
    if word not in WORDS[name].values():
        raise InterpreterLimit(f"a {name} in its TTIR has an attribute that isn't known")
    return str(word)


def _number(value: int | str, name: str) -> int:
    if not re.fullmatch(r"\d+", str(value)):
        raise InterpreterLimit(f"a {name} in its TTIR has an attribute that isn't known")
    return int(value)
