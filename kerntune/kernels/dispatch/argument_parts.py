"""What one argument adds to a prepared launch: its tests, its part of the binary's key, the value that is passed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kerntune.kernels.value_text import layout_of

I32 = (-(2**31), 2**31 - 1)
I64 = (-(2**63), 2**63 - 1)
"""Triton types an integer by its value: ``i32`` if it fits, else ``i64``, else ``u64``."""

PLAIN_CONSTANTS = (bool, int, str, type(None))
"""Classes of constexprs of which equal values of the same class compile to the same code."""


@dataclass(frozen=True)
class KeyPart:
    """Python expressions over an argument, to be put into a prepared launch.

    ``kind`` differs for arguments that need different expressions. ``setup`` are statements, ``tests`` must all be
    true, ``items`` are equal exactly where Triton would compile the same (and the tuner would choose the same),
    ``value`` is what the driver's launcher takes. ``pointer`` names the variable that holds an address.
    """

    kind: str
    setup: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    value: str = "None"
    pointer: str = ""


@dataclass(frozen=True)
class Needs:
    """What the table's key must determine: the tuner's choice, which depends on types, on parameters whose ``exact``
    value counts, and perhaps on the ``layouts`` (shapes and strides) of all tensors; and the ``binary``, unless that is
    chosen later."""

    exact: Collection[str] = ()
    layouts: bool = False
    binary: bool = True
    one_device: bool = False
    """Whether the machine has exactly one GPU, so that every GPU tensor is on the current device."""

    def here(self, variable: str) -> str:
        """The test that a tensor is on the current device."""
        return f"{variable}.is_cuda" if self.one_device else f"{variable}.get_device() == kt_device"


def part_of(value: Any, param: Any, variable: str, needs: Needs) -> KeyPart | None:
    """The part of an argument given for ``param`` (a Triton ``KernelParam``) in ``variable``; None if there is none.

    Follows Triton's specialization, but may also distinguish arguments that compile to the same binary.
    """
    exact = param.name in needs.exact
    if param.is_constexpr:
        return _constexpr(value, variable)
    if value is None:
        return KeyPart("none", tests=(f"{variable} is None",))
    if value.__class__ in (bool, float):
        return _scalar(value.__class__.__name__, variable, exact)
    if value.__class__ is int:
        return _integer(value, variable, exact) if needs.binary else _scalar("int", variable, exact)
    if all(hasattr(value, name) for name in ("data_ptr", "dtype", "get_device")):
        takes_address = not param.annotation_type or param.annotation_type.startswith("*")
        return _tensor(variable, exact, needs) if takes_address else None  # else Triton passes the number in it
    if all(hasattr(value, name) for name in ("base", "block_shape", "strides")) and not exact:
        return _descriptor(value, variable, needs)
    return None


def absent_part() -> KeyPart:
    """The part of a parameter that the call leaves out."""
    return KeyPart("absent")


def _scalar(kind: str, variable: str, exact: bool) -> KeyPart:
    items = (variable,) if exact else ()
    return KeyPart(kind, tests=(f"{variable}.__class__ is {kind}",), items=items, value=variable)


def _integer(value: int, variable: str, exact: bool) -> KeyPart:
    """Its type by range, and whether it is 1 (2 stands for it, since 1 equals True) or divisible by 16."""
    is_int = f"{variable}.__class__ is int"
    if exact:
        return KeyPart("int", tests=(is_int,), items=(variable,), value=variable)
    kind, within = _range_of(value, variable)
    items = (f"2 if {variable} == 1 else not {variable} & 15",)
    return KeyPart(kind, tests=(is_int, within), items=items, value=variable)


def _range_of(value: int, variable: str) -> tuple[str, str]:
    if I32[0] <= value <= I32[1]:
        return "i32", f"{I32[0]} <= {variable} <= {I32[1]}"
    if I64[0] <= value <= I64[1]:
        return "i64", f"({I64[0]} <= {variable} < {I32[0]} or {I32[1]} < {variable} <= {I64[1]})"
    return "u64", f"{variable} > {I64[1]}"


def _tensor(variable: str, exact: bool, needs: Needs) -> KeyPart | None:
    """Its element type and device; alignment is one item for all pointers together."""
    if exact and not needs.layouts:
        return None
    here = (needs.here(variable),)
    items = (f"{variable}.dtype", *((f"{variable}.shape", f"{variable}.stride()") if needs.layouts else ()))
    if not needs.binary:
        return KeyPart("tensor", tests=here, items=items)
    pointer = f"{variable}_at"
    setup = (f"{pointer} = {variable}.data_ptr()",)
    return KeyPart("tensor", setup=setup, tests=here, items=items, value=pointer, pointer=pointer)


def _descriptor(value: Any, variable: str, needs: Needs) -> KeyPart | None:
    """Its class, and for the binary its element type and block; a hook may change the block first."""
    if value.__class__.__name__ != "TensorDescriptor" or layout_of(value):
        return None
    here = (needs.here(f"{variable}.base"),)
    items: tuple[str, ...] = (f"{variable}.__class__",)
    if needs.binary:
        items += (f"{variable}.base.dtype", f"tuple({variable}.block_shape)")
    return KeyPart("descriptor", tests=here, items=items, value=variable)


def _constexpr(value: Any, variable: str) -> KeyPart | None:
    """A constant's class is part of its kind: ``True``, ``1`` and ``1.0`` are equal and compile differently."""
    kind = value.__class__
    if kind in PLAIN_CONSTANTS:
        name = "None.__class__" if value is None else kind.__name__
        return KeyPart(f"constant {kind.__name__}", tests=(f"{variable}.__class__ is {name}",), items=(variable,))
    if kind is float:
        return KeyPart("constant float", tests=(f"{variable}.__class__ is float",), items=(f"{variable}.hex()",))
    if kind.__module__.partition(".")[0] in ("torch", "triton") and kind.__name__ in ("dtype", "JITFunction"):
        return KeyPart("constant object", items=(f"{variable}.__class__", variable))
    return None
