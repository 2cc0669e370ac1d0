"""What differs between a baseline and today, in the words of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kerntune.binary.stages import first_difference
from kerntune.config import COMPILE_OPTIONS, changed_settings, settings_text
from kerntune.device import Environment
from kerntune.recording import Recording, differences
from kerntune.static.launches import LaunchStatic


def causes(before: Recording, after: Recording, then: Environment, today: Environment) -> tuple[str, ...]:
    """Code, compiler, config and launches: each as changed or unchanged, the configs spelled out where they differ."""
    out = [
        code_cause([x.source for x in before.launches], [x.source for x in after.launches], then.triton, today.triton)
    ]
    sides = zip(_settings(before), _settings(after), strict=False)
    out += config_causes((name, changed_settings(old, new)) for (_, old), (name, new) in sides)
    out += _moved(before, after)
    only_code = ("code", "shared memory and launch flags")
    out += [d for d in differences(before, after) if not d.endswith(tuple(f"{w} changed" for w in only_code))]
    return tuple(out)


def _moved(before: Recording, after: Recording) -> Iterator[str]:
    """What the environment told the compiler otherwise, each once."""
    pairs = zip(before.launches, after.launches, strict=False)
    texts = [moved_settings(before.binary_of(a).settings, after.binary_of(b).settings) for a, b in pairs]
    yield from (f"environment changed: {text}" for text in dict.fromkeys(texts) if text)


def code_cause(before: Sequence[str], after: Sequence[str], triton_before: str, triton_after: str) -> str:
    """Whether the kernels' sources or the compiler changed."""
    code = "code unchanged" if list(before) == list(after) else "code changed"
    if triton_before != triton_after:
        return f"{code}, Triton {triton_before} -> {triton_after}"
    return code


def config_causes(changed: Iterable[tuple[str, Mapping[str, tuple[str, str]]]]) -> list[str]:
    """One line if no config changed, else one per launch whose config did, with what changed of it.

    ``changed`` has each launch's kernel and the changes of its settings (:func:`kerntune.config.changed_settings`).
    """
    lines = [f"config of {name} changed: {settings_text(other)}" for name, other in changed if other]
    return lines or ["config unchanged"]


def _settings(recording: Recording) -> list[tuple[str, dict[str, object]]]:
    """Each launch's meta-parameters and options, wherever they were written."""
    out = []
    for launch in recording.launches:
        binary = recording.binary_of(launch)
        options = {name: binary.options[name] for name in COMPILE_OPTIONS if name in binary.options}
        chosen = launch.config.all_kwargs() if launch.config else {}
        out.append((launch.kernel, {**binary.constexprs, **options, **chosen}))
    return out


def attribution(before: LaunchStatic, after: LaunchStatic, triton_before: str, triton_after: str) -> str:
    """What made other code of a launch, and the first compiler stage where it shows; empty if the code is the same.

    Same source and another Triton: the compiler. Another source: the code. Else the config (meta-parameters and
    options, wherever they are written), or what the arguments told the compiler (types, alignment, strides of 1).
    Several can be to blame together.
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
    changed = before.setting_changes(after)
    if changed:
        yield f"config ({settings_text(changed)})"
    told = [f"{n}: {old} -> {new}" for n, old, new in _arguments(before, after)]
    if told:
        yield f"arguments ({'; '.join(told)})"
    moved = moved_settings(before.compiler_settings, after.compiler_settings)
    if moved:
        yield f"environment ({moved})"
    compilers = before.compiler or f"Triton {triton_before}", after.compiler or f"Triton {triton_after}"
    if triton_before != triton_after or (before.compiler and compilers[0] != compilers[1]):
        yield f"compiler ({compilers[0]} -> {compilers[1]})"


def moved_settings(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What the environment tells the compiler otherwise: ``DISABLE_PTXAS_OPT unset -> 1``."""
    names = sorted({*before, *after})
    return settings_text({n: (before.get(n, ""), after.get(n, "")) for n in names if before.get(n) != after.get(n)})


def _arguments(before: LaunchStatic, after: LaunchStatic) -> Iterator[tuple[str, str, str]]:
    """What the compiler was told otherwise of arguments: types, alignment, strides of 1."""
    settings = {*before.settings, *after.settings}
    for name, new in after.compiled_for.items():
        old = before.compiled_for.get(name, new)
        if name not in settings and old != new:
            yield name, old, new
