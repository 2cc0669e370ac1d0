"""Writes the Python function that launches calls of one form, as Triton writes its binders: one text, no loops.

Each argument adds its tests, its part of the binary's key, and the value that is passed.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from kerntune.kernels.compat import launch_environment, launcher
from kerntune.kernels.source import layout_of

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


ABSENT_PART = KeyPart("absent")
"""The part of a parameter that the call leaves out."""


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


PREFIX = "kt_"
"""The prefix of the generated names; a kernel with a parameter that begins so isn't prepared."""

ALIGNED = 15
"""Mask of an address's last four bits: Triton specializes on divisibility by 16."""


@dataclass(frozen=True)
class LaunchArgument:
    """A parameter of a form: its name, the variable that the text has it in, and its part."""

    name: str
    variable: str
    part: KeyPart
    constexpr: bool

    @property
    def given(self) -> bool:
        """Whether calls of the form pass it."""
        return self.part.kind != "absent"


@dataclass(frozen=True)
class Form:
    """The form of a call: the number of ``positional`` arguments, and the names of ``keywords`` in their order.

    ``arguments`` are all parameters in the kernel's order; ``single`` is whether there is only one config,
    ``one_device`` whether there is only one GPU.
    """

    positional: int
    keywords: tuple[str, ...]
    arguments: tuple[LaunchArgument, ...]
    single: bool
    staged: bool
    """Whether the config's hook or heuristics run first: an entry then is a ``Stage`` and has no binary."""

    one_device: bool
    settings: str
    """An expression that is true where Triton's knobs differ from those when the form was written."""

    layouts: bool
    globals: bool
    """Whether the kernel was compiled with globals whose values Triton checks at every launch."""

    @property
    def unusual(self) -> str:
        """An expression that is true when the call must take the long way, independently of its arguments."""
        changed = " or not kt_globals_kept(kt_jit)" if self.globals else ""
        return f"kt_more or {launch_environment.UNUSUAL} or {self.settings}{changed}"


ENTRY = (
    *("kt_kernel", "kt_config", "kt_choice", "kt_slot", "kt_rest", "kt_function", "kt_packed"),
    *launcher.DIRECT_NAMES,
    "kt_driver",
)
"""What an entry of the table holds: Triton's compiled kernel, the tuner's config and its key, the kernel's key in
Triton's own cache, values of the parameters that calls leave out, and how to launch."""

STAGED_ENTRY = ("kt_stage", "kt_config", "kt_choice")
"""The same of a staged form."""


def launch_text(form: Form) -> str:
    """The function ``kt_prepared(grid, *args, **kwargs)``."""
    launch = _staged_launch(form) if form.staged else [*_grid(form), *_launch(form), "return kt_kernel"]
    positional = "".join(f"{PREFIX}{i}, " for i in range(len(form.arguments)))
    lines = [
        f"def kt_prepared(kt_grid, {_parameters(form)}):",
        "    kt_entry = None",
        f"    if not ({form.unusual}):",
        *_lookup(form, "        ", "kt_entry = kt_table.get({key})"),
        "    if kt_entry is not None:",
        f"        {', '.join(STAGED_ENTRY if form.staged else ENTRY)} = kt_entry",
        f"        if {_still_valid(form)}:",
        "            kt_tuner.best_config = kt_config",
        *(f"            {line}" for line in launch),
        "        kt_table.clear()",
        f"    return kt_miss(kt_grid, ({positional}), {{{_named(form)}**kt_more}})",
        "",
    ]
    return "\n".join(lines)


def key_text(form: Form) -> str:
    """The function ``kt_key(*args, **kwargs)``: the table's key of a call, None if it isn't of the form."""
    lookup = _lookup(form, "    ", "return {key}")
    head = [f"def kt_key({_parameters(form)}):", f"    if {form.unusual}: return None"]
    return "\n".join([*head, *lookup, "    return None", ""])


def make(text: str, name: str, namespace: Mapping[str, Any]) -> FunctionType:
    """Compile the text to its function. Only parameters' names vary in it, which Python has parsed as names."""
    found: dict[str, Any] = {**namespace}
    exec(compile(text, f"<kerntune {name}>", "exec"), found)
    function = found[name]
    assert inspect.isfunction(function)
    return function


def _parameters(form: Form) -> str:
    slots = [f"{PREFIX}{i}=kt_absent" for i in range(len(form.arguments))]
    words = [f"{name}=kt_absent" for name in form.keywords]
    return ", ".join([*slots, "/", *(["*", *words] if words else []), "**kt_more"])


def _named(form: Form) -> str:
    return "".join(f"{name!r}: {name}, " for name in form.keywords)


def _lookup(form: Form, indent: str, then: str) -> list[str]:
    """The look-up in the table, inside of all tests of the arguments. An exception in it means an argument of another
    kind."""
    parts = [a.part for a in form.arguments]
    pointers = [p.pointer for p in parts if p.pointer]
    items = [item for p in parts for item in p.items]
    tests = [f"{PREFIX}{form.positional} is kt_absent"] if form.positional < len(parts) else []
    tests += [test for p in parts for test in p.tests]
    lines = ["kt_device = " + ("0" if form.one_device else "kt_current_device()")]
    lines += [s for p in parts for s in p.setup]
    if pointers:
        lines.append(f"kt_ragged = ({' | '.join(pointers)}) & {ALIGNED}")
        each = "".join(f"{p} & {ALIGNED} == 0, " for p in pointers)
        lines.append(f"if kt_ragged: kt_ragged = ({each})")
        items.append("kt_ragged")
    decisive = items if form.one_device else ["kt_device", *items]
    lines.append(f"if {' and '.join(tests) or 'True'}:")
    lines.append("    " + then.format(key=f"({''.join(f'{i}, ' for i in decisive)})"))
    tried = [f"{indent}try:", *(f"{indent}    {line}" for line in lines), f"{indent}except Exception:"]
    return [*tried, f"{indent}    pass"]


def _still_valid(form: Form) -> str:
    """The test that the long way would give the same entry: the tuner's and Triton's caches were neither emptied nor
    changed."""
    chosen = "len(kt_tuner.configs) == 1 and kt_tuner.configs[0] is kt_config" if form.single else ""
    chosen = chosen or "len(kt_tuner.configs) > 1 and kt_tuner.cache.get(kt_choice) is kt_config"
    chosen += " and kt_tuner.fn is kt_fn"
    if form.staged:
        return chosen
    return f"{chosen} and kt_jit.device_caches.get(kt_device, kt_no_cache)[0].get(kt_slot) is kt_kernel"


def _staged_launch(form: Form) -> list[str]:
    args = "".join(f"{PREFIX}{i}, " for i in range(form.positional))
    return [f"return kt_stage.launch(kt_grid, ({args}), {{{_named(form)}}})"]


def _grid(form: Form) -> list[str]:
    given = "".join(f"{a.name!r}: {a.variable}, " for a in form.arguments if a.given)
    return [
        "if kt_grid.__class__ is not tuple and callable(kt_grid):",
        f"    kt_grid = kt_grid({{{given}**kt_rest}})",
        "kt_length = len(kt_grid)",
        "kt_x = kt_grid[0]",
        "kt_y = kt_grid[1] if kt_length > 1 else 1",
        "kt_z = kt_grid[2] if kt_length > 2 else 1",
    ]


def _launch(form: Form) -> list[str]:
    own = "".join(f", {_bound(a)}" for a in form.arguments)
    scratch = "kt_allocator.get()(kt_x * kt_y * kt_z * kt_scratch_size, kt_align, kt_current_stream(kt_device))"
    return [
        "if kt_launch is None:",
        "    kt_kernel.run(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_packed, None, None, None"
        f"{own})",
        "else:",
        f"    kt_scratch = {scratch} if kt_scratch_size else None",
        "    " + launcher.direct_call().format(arguments="".join(f"{_passed(a)}, " for a in form.arguments)),
    ]


def _passed(argument: LaunchArgument) -> str:
    if argument.constexpr:
        return "None"
    return argument.part.value if argument.given else f"kt_rest[{argument.name!r}]"


def _bound(argument: LaunchArgument) -> str:
    return argument.variable if argument.given else f"kt_rest[{argument.name!r}]"


def parameters_of(jit: Any) -> Sequence[Any] | None:
    """A kernel's parameters (Triton's ``KernelParam``); None if no form can be written for one of them."""
    kinds = {p.kind for p in jit.signature.parameters.values()}
    if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
        return None
    if any(p.name.startswith(PREFIX) or p.name in ("debug", "instrumentation_mode") for p in jit.params):
        return None
    return tuple(jit.params)
