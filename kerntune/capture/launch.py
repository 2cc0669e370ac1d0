"""A launch as it was called: what each target would compile, over which grid and on which GPU it runs.

Triton takes the current GPU, whatever memory the arguments are in. Which implementations the call's choices went to
is recorded as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.base.grid_check import check_grid
from kerntune.capture.site import Site
from kerntune.errors import CaptureError, CompileError, TrialError
from kerntune.gpu.base import Backend
from kerntune.kernels.source import DESCRIPTORS, kernel_file, kernel_name
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


def launch_device(backend: Backend, kernel: str, arguments: Mapping[str, Any]) -> int:
    """The number of the GPU that a launch with these arguments runs on, by name.

    :class:`CaptureError` where some of its tensors are on another one: it would reach them through the bus at best, and
    fault at worst.
    """
    mine = backend.current()
    others = {name: d for name, v in arguments.items() if (d := _device(backend, v)) is not None and d != mine}
    if not others:
        return mine
    told = ", ".join(f"{name} on cuda:{device}" for name, device in others.items())
    first = next(iter(others.values()))
    raise CaptureError(
        f"kernel {kernel} is launched on cuda:{mine}, the current device, with {told}: Triton launches on the current "
        "device, and a launch that mixes devices can't be tuned. Launch it inside of "
        f"`with torch.cuda.device({first}):`, or have all its tensors on one device"
    )


def _device(backend: Backend, value: Any) -> int | None:
    """Of a tensor on a GPU, or of what wraps one (a descriptor, a reinterpreted tensor)."""
    tensor = getattr(value, "base", value) if type(value).__name__ in _WRAPPERS else value
    index = tensor.device.index if backend.tensors.is_tensor(tensor) else None
    return None if index is None else int(index)


_WRAPPERS = ("TensorWrapper", *DESCRIPTORS)
"""Triton's."""


def refuse_second_device(kernel: str, device: int, before: str, earlier: int) -> None:
    """One call is one case, with one device's times. :class:`CaptureError` if this launch is on another than the one
    before."""
    if device != earlier:
        raise CaptureError(
            f"a call mixes devices: kernel {before} was launched on cuda:{earlier}, kernel {kernel} on cuda:{device}; "
            "one call is timed on one GPU, so make a call of autotune for each"
        )


@dataclass
class RecordedChoices:
    """By choice and key, the implementation that was called and a line on how it was decided."""

    found: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def add(self, choice: str, key: str, implementation: str, told: str) -> None:
        """A call of a choice; ``key`` describes what it was decided by."""
        self.found.setdefault(choice, {})[key] = implementation, told

    @property
    def winners(self) -> dict[str, str]:
        """Implementations by choice. Of a choice that was called with several keys each has an entry of its own."""
        return {
            choice if len(keys) == 1 else entry_of(choice, key): implementation
            for choice, keys in self.found.items()
            for key, (implementation, _) in keys.items()
        }

    @property
    def texts(self) -> tuple[str, ...]:
        """How each was decided, a line each."""
        return tuple(told for keys in self.found.values() for _, told in keys.values())


def entry_of(choice: str, key: str) -> str:
    """What a choice's entry is called where it was called with several keys."""
    return f"{choice} ({key})"
