"""What a call launches as plain data, with a GPU or without."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from kerntune.capture import Capture, Pending
from kerntune.errors import TrialError
from kerntune.kernels.specialize import Specialized

Entry = dict[str, Any]
"""A launch, or what a candidate would launch: see :func:`entry_of`."""


class Observed(Capture):
    """A capture that also keeps what Triton itself launched: on a GPU its own ``CompiledKernel``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ran: list[Any] = []

    def _record(self, jit: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        before = len(self.launches)
        result = super()._record(jit, args, kwargs)
        if len(self.launches) > before:
            self.ran.append(result)
        return result

    def entries(self) -> list[Entry]:
        """One entry a launch, in order. On a GPU, ``same_as_launched``: whether Triton ran these bytes."""
        self.compiler.compile_all([p.specialized for p in self.launches])
        return [self._entry(p, ran) for p, ran in zip(self.launches, self.ran, strict=True)]

    def _entry(self, pending: Pending, ran: Any) -> Entry:
        config = pending.site.candidates[pending.site.chosen].config if pending.site else None
        entry = entry_of(self, pending.specialized, pending.grid, config)
        if self.backend.gpu is not None and ran is not None:
            own = hashlib.sha256(ran.asm["cubin"]).hexdigest()
            entry["same_as_launched"] = own == entry["sha256"]
        return entry


def entry_of(capture: Capture, launch: Specialized, grid: Any, config: Any) -> Entry:
    """A launch as data: kernel, grid, what it was specialized for, and the identity of what that compiles to."""
    try:
        compiled = capture.compiler.compile(launch)
    except TrialError as exc:
        return {"kernel": launch.name, "grid": list(grid), "failure": first_line(exc)}
    binary = compiled.binary
    written = {p.name for p in launch.jit.params if p.is_constexpr}
    told = dict(compiled.compiled_for)
    return {
        "kernel": launch.name,
        "grid": list(grid),
        "config": None if config is None else str(config),
        "specialization": {k: v for k, v in told.items() if k in launch.signature and k not in written},
        "constants": {k: v for k, v in told.items() if k in written},
        "options": {k: v for k, v in told.items() if k not in launch.signature},
        "code": binary.code,
        "text": binary.text,
        "sha256": binary.sha256,
    }


def first_line(error: BaseException) -> str:
    """An error in one line, with its class."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
