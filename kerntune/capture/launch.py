"""A launch as it was called: what each target would compile, and over which grid it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.grid_check import check_grid
from kerntune.capture.site import Site
from kerntune.errors import CompileError, TrialError
from kerntune.gpu.base import Backend
from kerntune.kernels.source import kernel_file, kernel_name
from kerntune.kernels.specialize import Specialized, specialize

LAUNCH_WORDS = ("grid", "warmup")


@dataclass
class Pending:
    """A launch as it was called: what each target would compile, and where it ran."""

    jit: Any
    specialized: dict[Target, Specialized | TrialError]
    grid: tuple[int, int, int]
    site: Site | None = None
    ran: bool = True
    """Whether it was launched, on the user's own tensors."""

    settled: Config | None = None
    """The config that another tuner than Triton's has chosen: Inductor's, of the kernels that it generates."""

    @property
    def config(self) -> Config | None:
        """The config that it was launched with; None where meta-parameters are written at the call."""
        return self.site.candidates[self.site.chosen].config if self.site is not None else self.settled

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return kernel_name(self.jit)


@dataclass(frozen=True)
class Probe:
    """What a candidate would launch."""

    specialized: Specialized
    grid: tuple[int, int, int]


def bind(backend: Backend, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any], site: Site | None) -> Pending:
    """The launch for each of the backend's targets. Raises what specializing raises if it can be for none."""
    found: dict[Target, Specialized | TrialError] = {}
    for target in backend.targets:
        try:
            found[target] = _specialize(backend, jit, args, kwargs, target)
        except CompileError as exc:
            found[target] = exc
    launches = [x for x in found.values() if isinstance(x, Specialized)]
    if not launches:
        raise next(x for x in found.values() if isinstance(x, TrialError))
    warps, bound = launches[0].options.num_warps, launches[-1].bound
    return Pending(jit, found, _grid(backend, jit, bound, kwargs, warps), site)


def probe_of(backend: Backend, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: Target) -> Probe:
    """The launch for one target. Raises what specializing raises."""
    launch = _specialize(backend, jit, args, kwargs, target)
    return Probe(launch, _grid(backend, jit, launch.bound, kwargs, launch.options.num_warps))


def _specialize(
    backend: Backend, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any], target: Target
) -> Specialized:
    words = {k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS}
    with backend.tensors.specializing():
        return specialize(jit, args, words, target)


def _grid(
    backend: Backend, jit: Any, bound: Mapping[str, Any], kwargs: Mapping[str, Any], warps: int
) -> tuple[int, int, int]:
    grid: Any = kwargs.get("grid")
    values = grid(bound) if callable(grid) else grid
    name = f"{kernel_name(jit)} ({kernel_file(jit)})"
    ctas = int(kwargs.get("num_ctas") or 1)
    return check_grid(values, kernel=name, spec=backend.spec, num_ctas=ctas, num_warps=warps)
