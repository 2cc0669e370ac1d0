"""What two sides, with a GPU and without, must agree on: a call's launches as plain data, and how they are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kerntune.base.device import DeviceSpec, Target
from kerntune.capture import Capture, Pending
from kerntune.compiling.compiler import Compiled
from kerntune.errors import TrialError
from kerntune.gate.static_figures import binary_input
from kerntune.kernels.specialize import Specialized
from kerntune.static.metrics import metrics_of

Entry = dict[str, Any]
"""A launch, or what a candidate would launch: see :func:`entry_of`."""

COMPARED = ("kernel", "grid", "config", "specialization", "constants", "options", "code", "failure")
"""What two sides must have alike. Machine code (``text``) is counted apart: see :func:`other_machine_code`."""


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

    def entries(self, target: Target) -> list[Entry]:
        """One entry a launch, in order. On a GPU, ``same_as_launched``: whether Triton ran these bytes."""
        launches = [p.specialized[target] for p in self.launches]
        self.compiler.compile_all([x for x in launches if isinstance(x, Specialized)])
        return [self._entry(p, ran, target) for p, ran in zip(self.launches, self.ran, strict=True)]

    def _entry(self, pending: Pending, ran: Any, target: Target) -> Entry:
        config = pending.site.candidates[pending.site.chosen].config if pending.site else None
        entry = entry_of(self, pending.specialized[target], pending.grid, config)
        if self.backend.gpu is not None and ran is not None:
            own = hashlib.sha256(ran.asm["cubin"]).hexdigest()
            entry["same_as_launched"] = own == entry["sha256"]
        return entry


def entry_of(capture: Capture, launch: Specialized | TrialError, grid: Any, config: Any) -> Entry:
    """A launch as data: kernel, grid, what it was specialized for, and the identity of what that compiles to."""
    if isinstance(launch, TrialError):
        return {"kernel": "", "failure": first_line(launch)}
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


def compiled_of(capture: Capture, launch: Specialized | TrialError) -> Compiled | None:
    """What a launch compiles to; None if it doesn't."""
    try:
        return None if isinstance(launch, TrialError) else capture.compiler.compile(launch)
    except TrialError:
        return None


def static_figures(compiled: Sequence[Compiled], spec: DeviceSpec) -> list[dict[str, Any]]:
    """kerntune's static metrics of compiled kernels, as plain data."""
    found = metrics_of([binary_input(c.binary, c.data, c.asm) for c in compiled], spec)
    return [msgspec.to_builtins(m) for m in found]


def first_line(error: BaseException) -> str:
    """An error in one line, with its class."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def differences(without: Entry | None, with_: Entry | None) -> list[str]:
    """The differences of two entries; one line if a side has no entry."""
    if without is None or with_ is None:
        return ["launched only without a GPU" if with_ is None else "launched only with a GPU"]
    return [k for k in COMPARED if without.get(k) != with_.get(k)]


def paired(without: Sequence[Entry], with_: Sequence[Entry]) -> list[tuple[Entry | None, Entry | None]]:
    """Launches of both sides in order; where one side has more, the other's are found by kernel, in order."""
    if [x["kernel"] for x in without] == [x["kernel"] for x in with_]:
        return list(zip(without, with_, strict=True))
    rest, out = list(without), []
    for launch in with_:
        same = next((x for x in rest if x["kernel"] == launch["kernel"]), None)
        out.append((same, launch))
        rest = [x for x in rest if x is not same]
    return [*out, *((x, None) for x in rest)]


def compared(without: Sequence[Entry], with_: Sequence[Entry]) -> dict[str, Any]:
    """How many launches agree in all, and those that don't: what differs, and both values of it."""
    pairs = paired(without, with_)
    gaps = [_gap(i, a, b) for i, (a, b) in enumerate(pairs) if differences(a, b)]
    return {"launches": len(pairs), "alike": len(pairs) - len(gaps), "gaps": gaps}


def other_machine_code(without: Sequence[Entry], with_: Sequence[Entry]) -> list[str]:
    """Kernels whose code identity is the same on both sides but whose machine code is not: the assembler's doing.

    ptxas 12.8 makes one of two cubins of some PTX, at random.
    """
    pairs = [(a, b) for a, b in paired(without, with_) if a and b and a.get("code") == b.get("code")]
    return sorted({a["kernel"] for a, b in pairs if a.get("text") != b.get("text")})


def _gap(index: int, without: Entry | None, with_: Entry | None) -> dict[str, Any]:
    different = differences(without, with_)
    kernel = (with_ or without or {}).get("kernel", "")
    gap: dict[str, Any] = {"launch": index, "kernel": kernel, "differs": different}
    if without is not None and with_ is not None:
        gap |= {"without": _only(without, with_, different), "with": _only(with_, without, different)}
    return gap


def _only(entry: Entry, other: Entry, names: Sequence[str]) -> dict[str, Any]:
    """The values that differ; of mappings only the keys that do."""
    out: dict[str, Any] = {}
    for name in names:
        mine, theirs = entry.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            out[name] = {k: v for k, v in mine.items() if theirs.get(k) != v}
        else:
            out[name] = mine
    return out


def on_error(function: Callable[[], Any]) -> tuple[Any, str]:
    """What a function returns, and its error in one line; one of them is nothing."""
    try:
        return function(), ""
    except Exception as exc:  # an op's failure is a result of its own, named in the table
        return None, first_line(exc)
