"""A cooperative reduction's tuner: it launches cooperatively, and gives each launch its semaphores and workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import ConfigError, UsageError
from kerntune.heuristics.hints import MAX_RSPLIT, KernelHints
from kerntune.heuristics.proposer import Family, Proposer
from kerntune.kernels import compat
from kerntune.kernels.launch_buffers import LaunchBuffers
from kerntune.tuning import context
from kerntune.tuning.api.heuristic_tuner import HeuristicTuner

COOPERATIVE = "launch_cooperative_grid"
"""Triton's compile option: the driver refuses a grid that isn't resident at once, instead of letting it hang."""

SPLIT = "RSPLIT"


class CooperativeTuner(HeuristicTuner):
    """A kernel whose ``RSPLIT`` programs share a row block. A call leaves its semaphores and workspaces out: they are
    allocated for each launch on the device of its first tensor, by torch's allocator, and the semaphores are zeroed."""

    def __init__(self, fn: Any, proposer: Proposer, *, buffers: LaunchBuffers, **words: Any) -> None:
        super().__init__(fn, proposer, **words)
        self._buffers, self.verify_ignore = buffers, buffers.names

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """``kernel[grid](...)``, without the buffers."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            return self._path.front(grid, *args, **self._complete(args, kwargs))

        return launch

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As the base class's, without the buffers."""
        return super().run(*args, **self._complete(args, kwargs))

    def candidates(self, *args: Any, **kwargs: Any) -> tuple[Config, ...]:
        """As the base class's, without the buffers."""
        return super().candidates(*args, **self._complete(args, kwargs))

    def kept_fields(self) -> tuple[str, ...]:
        """What a descent leaves alone: the workspace is as long as the split asks for."""
        return (*super().kept_fields(), SPLIT)

    def _complete(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """A call's keywords, with buffers. :class:`UsageError` for a call that gives one, or has no tensor."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        name = self._proposer.kernel
        if clash := [n for n in self._buffers.names if n in given]:
            raise UsageError(
                f"kernel {name}: {', '.join(clash)} is allocated for each launch; leave it out of the call, and "
                "declare it after the arguments that the call gives by position"
            )
        tensor = next((value for value in given.values() if hasattr(value, "new_zeros")), None)
        if tensor is None:
            raise UsageError(f"kernel {name}: no argument is a tensor, so there is no device for its workspace")
        x = prod(int(given[n]) for n in self._proposer.sizes.get("x", ()) if n in given)
        cells = max(
            x, MAX_RSPLIT, context.device_now().sm_count
        )  # programs of all rows: at most one an SM, or one a row
        return {**kwargs, **self._buffers.made(tensor, x, cells, name)}


def cooperative_family(r0: str | None, *, persistent: bool) -> Family:
    """:func:`kerntune.heuristics.cooperative_reduction` as launches need it: cooperative where programs wait for each
    other, unsplit in Triton's interpreter, where they run one after the other. A ``persistent`` kernel's block ``r0``,
    if it takes one, holds a program's share."""

    def family(hints: KernelHints, device: DeviceSpec, preset: heuristics.Preset) -> tuple[Config, ...]:
        if compat.interprets():
            device = msgspec.structs.replace(device, sm_count=1)
        found = heuristics.cooperative_reduction(hints, device, preset, persistent=persistent)
        return tuple(_launchable(config, hints, r0 if persistent else None) for config in found)

    return family


def _launchable(config: Config, hints: KernelHints, r0: str | None) -> Config:
    split = config.kwargs[SPLIT]
    share = {} if r0 is None else {"R0_BLOCK": max(hints.sizes["r0"] // int(split or 1), 1)}
    options = {**config.options, COOPERATIVE: True} if split != 1 else config.options
    return config.replace(kwargs={**config.kwargs, **share}, options=options)


def checked_buffers(fn: Any, semaphores: str, workspace: Any) -> LaunchBuffers:
    """The buffers that a decorator names: ``workspace`` is a name (of float32), or dtypes by name. :class:`ConfigError`
    for a name that is no parameter, and for a kernel without ``RSPLIT``."""
    several = {workspace: "float32"} if isinstance(workspace, str) else dict(workspace or {})
    found = LaunchBuffers(semaphores, several)
    unknown = [name for name in (*found.names, SPLIT) if name not in fn.arg_names]
    if unknown:
        raise ConfigError(
            f"kernel {fn.__name__}: a cooperative reduction needs the parameter {', '.join(unknown)}; it has "
            f"{', '.join(fn.arg_names)}"
        )
    return found
