"""What differs between a baseline and today, in the words of a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kerntune.base.config import settings_text, split_settings
from kerntune.base.device import Environment
from kerntune.base.recording import Recording
from kerntune.compiling.binary.stages import first_difference
from kerntune.gate.launch_changes import changes_between, moved_settings
from kerntune.gate.static_figures import LaunchStatic


def causes(before: Recording, after: Recording, then: Environment, today: Environment) -> tuple[str, ...]:
    """Code, compiler, config, launch options and launches: what changed in so many words, code and config as unchanged
    where they are."""
    found = changes_between(before, after)
    code = code_cause(bool(found.source), then.triton, today.triton)
    if found.compiler and then.triton == today.triton:
        code += f", {found.compiler[0]}"
    return (
        code,
        *config_causes(found.config, found.options),
        *(f"environment changed: {text}" for text in found.settings),
        *found.launches,
        *found.grid,
        *found.arguments,
    )


def code_cause(changed: bool, triton_before: str, triton_after: str) -> str:
    """Whether the kernels' sources or the compiler changed."""
    code = "code changed" if changed else "code unchanged"
    return code if triton_before == triton_after else f"{code}, Triton {triton_before} -> {triton_after}"


def config_causes(config: Sequence[str], options: Sequence[str]) -> list[str]:
    """The lines of changed configs and launch options; where neither changed, that."""
    return [*config, *options] or ["config unchanged"]


def attribution(before: LaunchStatic, after: LaunchStatic, triton_before: str, triton_after: str) -> str:
    """What made other code of a launch, and the first compiler stage where it shows; empty if the code is the same.

    Same source and another Triton: the compiler. Another source: the code. Else the config, the launch options (options
    and constants that no config has), or what the arguments told the compiler (types, alignment, strides of 1).
    Several can be to blame together.
    """
    if before.code == after.code:
        return ""
    blamed = list(_blamed(before, after, triton_before, triton_after))
    why = " and ".join(blamed) or UNKNOWN
    stage = first_difference(before.stages, after.stages)
    return f"{after.kernel}: because of {why}" + (f", first in {stage}" if stage else "")


UNKNOWN = "something that is not kept (same source, config, launch options, arguments and compiler)"


def _blamed(before: LaunchStatic, after: LaunchStatic, triton_before: str, triton_after: str) -> Iterator[str]:
    if before.source != after.source:
        yield "code (its source changed)"
    chosen, given = split_settings(before.setting_changes(after), before.config, after.config)
    if chosen:
        yield f"config ({settings_text(chosen)})"
    if given:
        yield f"launch options ({settings_text(given)})"
    told = [f"{n}: {old} -> {new}" for n, old, new in _arguments(before, after)]
    if told:
        yield f"arguments ({'; '.join(told)})"
    moved = moved_settings(before.compiler_settings, after.compiler_settings)
    if moved:
        yield f"environment ({moved})"
    compilers = before.compiler or f"Triton {triton_before}", after.compiler or f"Triton {triton_after}"
    if triton_before != triton_after or (before.compiler and compilers[0] != compilers[1]):
        yield f"compiler ({compilers[0]} -> {compilers[1]})"


def _arguments(before: LaunchStatic, after: LaunchStatic) -> Iterator[tuple[str, str, str]]:
    """What the compiler was told otherwise of arguments: types, alignment, strides of 1."""
    settings = {*before.settings, *after.settings}
    for name, new in after.compiled_for.items():
        old = before.compiled_for.get(name, new)
        if name not in settings and old != new:
            yield name, old, new
