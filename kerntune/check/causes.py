"""What differs between a baseline and today, in the words of a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kerntune.binary.stages import first_difference
from kerntune.config import COMPILE_FIELDS, Config
from kerntune.device import Environment
from kerntune.recording import Recording, differences
from kerntune.static.launches import LaunchStatic


def causes(before: Recording, after: Recording, then: Environment, today: Environment) -> tuple[str, ...]:
    """Code, compiler, config and launches: each as changed or unchanged, the configs spelled out where they differ."""
    out = [
        code_cause([x.source for x in before.launches], [x.source for x in after.launches], then.triton, today.triton)
    ]
    out += config_causes(
        [(x.kernel, x.config) for x in before.launches], [(x.kernel, x.config) for x in after.launches]
    )
    only_code = ("code", "shared memory and launch flags")
    out += [d for d in differences(before, after) if not d.endswith(tuple(f"{w} changed" for w in only_code))]
    return tuple(out)


def code_cause(before: Sequence[str], after: Sequence[str], triton_before: str, triton_after: str) -> str:
    """Whether the kernels' sources or the compiler changed."""
    code = "code unchanged" if list(before) == list(after) else "code changed"
    if triton_before != triton_after:
        return f"{code}, Triton {triton_before} -> {triton_after}"
    return code


def config_causes(before: Sequence[tuple[str, Config | None]], after: Sequence[tuple[str, Config | None]]) -> list[str]:
    """One line if no config changed, else one per launch whose config did."""
    changed = [
        f"config of {name} changed: {then} -> {now}"
        for (_, then), (name, now) in zip(before, after, strict=False)
        if then != now
    ]
    return changed or ["config unchanged"]


def attribution(before: LaunchStatic, after: LaunchStatic, triton_before: str, triton_after: str) -> str:
    """What made other code of a launch, and the first compiler stage where it shows; empty if the code is the same.

    Same source and another Triton: the compiler. Another source: the code. Else the config, options and constants that
    the caller wrote out, or what the arguments told the compiler (types, alignment, strides of 1). Several can be to
    blame together.
    """
    if before.code == after.code:
        return ""
    blamed = list(_blamed(before, after, triton_before, triton_after))
    why = " and ".join(blamed) or "environment (same source, config, arguments and compiler)"
    stage = first_difference(before.stages, after.stages)
    return f"{after.kernel}: because of {why}" + (f", first in {stage}" if stage else "")


def _blamed(before: LaunchStatic, after: LaunchStatic, triton_before: str, triton_after: str) -> Iterator[str]:
    if before.source != after.source:
        yield "code (its source changed)"
    if before.config != after.config:
        yield f"config ({_config_change(before.config, after.config)})"
    yield from _told(before, after)
    compilers = before.compiler or f"Triton {triton_before}", after.compiler or f"Triton {triton_after}"
    if triton_before != triton_after or (before.compiler and compilers[0] != compilers[1]):
        yield f"compiler ({compilers[0]} -> {compilers[1]})"


def _config_change(before: Config | None, after: Config | None) -> str:
    """Only what differs of two configs."""
    if before is None or after is None:
        return f"{before} -> {after}"
    old, new = before.all_kwargs(), after.all_kwargs()
    names = [n for n in {**old, **new} if old.get(n) != new.get(n)]
    return "; ".join(f"{n}: {old.get(n)} -> {new.get(n)}" for n in names) or f"{before} -> {after}"


def _told(before: LaunchStatic, after: LaunchStatic) -> Iterator[str]:
    """What else the compiler was told otherwise: options, constants and arguments, those that a config set left out."""
    tuned = {name for config in (before.config, after.config) if config is not None for name in config.all_kwargs()}
    kinds: dict[str, list[str]] = {"options": [], "constants": [], "arguments": []}
    for name, text in after.compiled_for.items():
        old = before.compiled_for.get(name, text)
        if name not in tuned and old != text:
            constant = text.startswith("constexpr ")
            kind = "options" if name in COMPILE_FIELDS else "constants" if constant else "arguments"
            kinds[kind].append(f"{name}: {old} -> {text}".replace("constexpr ", ""))
    yield from (f"{kind} ({'; '.join(changes)})" for kind, changes in kinds.items() if changes)
