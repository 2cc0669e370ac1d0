"""What differs between a baseline and today, in the words of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from kerntune.config import Config
from kerntune.device import Environment
from kerntune.recording import Recording, differences


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
