"""Writes the Python function that launches calls of one form, as Triton writes its binders: one text, no loops.

A call of the form finds its entry by one dictionary look-up over the parts of its key (``KeyPart.items``), checks that
the entry still is what Triton and the tuner would use, and passes the arguments to the launcher. Everything else is a
miss.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from kerntune.kernels import compat
from kerntune.kernels.dispatch.argument_parts import KeyPart

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
    constexpr: bool = False

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
    single: bool = False
    staged: bool = False
    """Whether the config's hook or heuristics run first: an entry then is a ``Stage`` and has no binary."""

    one_device: bool = False
    settings: str = "False"
    """An expression that is true where Triton's knobs differ from those when the form was written."""

    layouts: bool = False

    globals: bool = False
    """Whether the kernel was compiled with globals whose values Triton checks at every launch."""

    @property
    def unusual(self) -> str:
        """An expression that is true when the call must take the long way, independently of its arguments."""
        return f"kt_more or {compat.UNUSUAL} or {self.settings}" + (
            " or not kt_globals_kept(kt_jit)" if self.globals else ""
        )


ENTRY = (
    "kt_kernel",
    "kt_config",
    "kt_choice",
    "kt_slot",
    "kt_rest",
    "kt_function",
    "kt_packed",
    *compat.DIRECT_NAMES,
    "kt_driver",
)
"""What an entry of the table holds: Triton's compiled kernel, the tuner's config and its key, the kernel's key in
Triton's own cache, values of the parameters that calls leave out, and how to launch."""


STAGED_ENTRY = ("kt_stage", "kt_config", "kt_choice")
"""The same of a staged form."""


def front_text(form: Form) -> str:
    """The function ``kt_front(grid, *args, **kwargs)``."""
    return "\n".join(
        [
            f"def kt_front(kt_grid, {_parameters(form)}):",
            "    kt_entry = None",
            f"    if not ({form.unusual}):",
            *_lookup(form, "        ", "kt_entry = kt_table.get({key})"),
            "    if kt_entry is not None:",
            f"        {', '.join(STAGED_ENTRY if form.staged else ENTRY)} = kt_entry",
            f"        if {_still_valid(form)}:",
            "            kt_tuner.best_config = kt_config",
            *(_staged_launch(form, "            ") if form.staged else _launched(form, "            ")),
            "        kt_table.clear()",
            f"    return kt_miss(kt_grid, ({_positional(form)}), {{{_named(form)}**kt_more}})",
            "",
        ]
    )


def key_text(form: Form) -> str:
    """The function ``kt_key(*args, **kwargs)``: the table's key of a call, None if it isn't of the form."""
    return "\n".join(
        [
            f"def kt_key({_parameters(form)}):",
            f"    if {form.unusual}: return None",
            *_lookup(form, "    ", "return {key}"),
            "    return None",
            "",
        ]
    )


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


def _positional(form: Form) -> str:
    return "".join(f"{PREFIX}{i}, " for i in range(len(form.arguments)))


def _named(form: Form) -> str:
    return "".join(f"{name!r}: {name}, " for name in form.keywords)


def _lookup(form: Form, indent: str, then: str) -> list[str]:
    """The look-up in the table, inside of all tests of the arguments. An exception in it means an argument of another
    kind."""
    parts = [a.part for a in form.arguments]
    pointers = [p.pointer for p in parts if p.pointer]
    items = [item for p in parts for item in p.items]
    tests = [test for p in parts for test in p.tests]
    if form.positional < len(parts):
        tests.insert(0, f"{PREFIX}{form.positional} is kt_absent")
    lines = [s for p in parts for s in p.setup]
    if pointers:
        lines.append(f"kt_ragged = ({' | '.join(pointers)}) & {ALIGNED}")
        each = "".join(f"{p} & {ALIGNED} == 0, " for p in pointers)
        lines.append(f"if kt_ragged: kt_ragged = ({each})")
        items.append("kt_ragged")
    lines.insert(0, "kt_device = " + ("0" if form.one_device else "kt_current_device()"))
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


def _staged_launch(form: Form, indent: str) -> list[str]:
    args = "".join(f"{PREFIX}{i}, " for i in range(form.positional))
    return [f"{indent}return kt_stage.launch(kt_grid, ({args}), {{{_named(form)}}})"]


def _launched(form: Form, indent: str) -> list[str]:
    return [*_grid(form, indent), *_launch(form, indent), f"{indent}return kt_kernel"]


def _grid(form: Form, indent: str) -> list[str]:
    given = "".join(f"{a.name!r}: {a.variable}, " for a in form.arguments if a.given)
    return [
        indent + line
        for line in (
            "if kt_grid.__class__ is not tuple and callable(kt_grid):",
            f"    kt_grid = kt_grid({{{given}**kt_rest}})",
            "kt_length = len(kt_grid)",
            "kt_x = kt_grid[0]",
            "kt_y = kt_grid[1] if kt_length > 1 else 1",
            "kt_z = kt_grid[2] if kt_length > 2 else 1",
        )
    ]


def _launch(form: Form, indent: str) -> list[str]:
    own = "".join(f", {_bound(a)}" for a in form.arguments)
    through_triton = (
        "kt_kernel.run(kt_x, kt_y, kt_z, kt_current_stream(kt_device), kt_function, kt_packed, None, None, None"
        + own
        + ")"
    )
    scratch = "kt_allocator.get()(kt_x * kt_y * kt_z * kt_scratch_size, kt_align, kt_current_stream(kt_device))"
    direct = compat.direct_call().format(arguments="".join(f"{_passed(a)}, " for a in form.arguments))
    return [
        f"{indent}if kt_launch is None:",
        f"{indent}    {through_triton}",
        f"{indent}else:",
        f"{indent}    kt_scratch = {scratch} if kt_scratch_size else None",
        f"{indent}    {direct}",
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
