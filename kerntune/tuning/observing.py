"""Finds who watches launches, and what they are told: names for profilers, and what a device reaches.

Observers are those that the environment asks for, and torch's profiler. A range in torch's profiler or in NVTX has the
kernel, hash, config, grid and stream. A device's bytes and operations a second are measured once, and kept in the cache
folder.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kerntune.errors import CacheError, KerntuneError, MeasurementError, UsageError
from kerntune.gpu.base import Executor
from kerntune.gpu.matmul_peak import measured_matmul
from kerntune.kernels import compat
from kerntune.kernels.dispatch.observers import ObservedLaunch, Observer, observers, watch
from kerntune.kernels.source import jit_of
from kerntune.timing.bandwidth import measured_bandwidth
from kerntune.tuning.cache.entries import Entries


def observed(seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
    """Make a launch, seen by all observers, in a range of torch's profiler while that is active."""
    for observer in observers():
        run = partial(observer.launch, seen, run)
    with compat.profiler_range(lambda: range_name(seen)):
        return run()


_WATCHED: list[Observer] | None = None
"""What this process's environment asked for; None before the first launch. (Dynamo warns of a ``functools.cache``.)"""


def watch_environment() -> None:
    """Begin what ``KERNTUNE_NVTX`` and ``KERNTUNE_BANDWIDTH`` ask for: once a process, before its first launch.
    :class:`UsageError` for a variable, these or another, that is what it can't be."""
    global _WATCHED
    if _WATCHED is not None:
        return
    from kerntune.tuning.tune_options import check_variables  # what all variables are for; not needed again

    check_variables()
    found = observers_of(os.environ)
    for observer in found:
        watch(observer)
    _WATCHED = found


def observers_of(environment: Mapping[str, str]) -> list[Observer]:
    """The observers that variables ask for; :class:`UsageError` for a value that one can't have."""
    found: list[Observer] = []
    text = environment.get(NVTX, "")
    if text not in ("", "0", "1"):
        raise UsageError(f"{NVTX} is {text!r}; it can be 1 or 0")
    if text == "1":
        found.append(NvtxRanges())
    if file := environment.get("KERNTUNE_BANDWIDTH", ""):
        from kerntune.tuning.bandwidth_report import bandwidth  # not loaded by programs that don't ask for it

        report = bandwidth(file)
        atexit.register(report.tell)
        found.append(report)
    return found


NVTX = "KERNTUNE_NVTX"

SHORT_HASH = 12
"""Characters of a source's hash in a profile."""


def range_name(seen: ObservedLaunch) -> str:
    """``softmax_kernel [0a1b2c3d4e5f] BLOCK=1024, num_warps: 8, ... grid=(4096, 1, 1) stream=0``."""
    parts = [seen.kernel, f"[{jit_of(seen.tuner).cache_key[:SHORT_HASH]}]", str(seen.config)]
    grid = seen.grid
    if grid is not None:
        parts.append(f"grid={(*grid, 1, 1)[:3]}")
    stream = compat.current_stream()
    return " ".join([*parts, *([] if stream is None else [f"stream={stream}"])])


class NvtxRanges:
    """An observer that marks each launch for Nsight Systems and other tools that read NVTX."""

    def __init__(self) -> None:
        self._missing = False

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Within a range; a warning, once, where torch has no NVTX."""
        if self._missing:
            return run()
        try:
            end = compat.begin_nvtx_range(range_name(seen))
        except RuntimeError as exc:
            self._missing = True
            warnings.warn(f"{NVTX}: torch has no NVTX here: {exc}", RuntimeWarning, stacklevel=2)
            return run()
        try:
            return run()
        finally:
            end()


SCHEMA = "kerntune.device/1"


class DeviceFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was measured of one device, by its UUID. ``bandwidth`` in bytes a second; ``matmul`` has operations a second
    of a large product of random numbers, by dtype."""

    schema: str
    name: str
    uuid: str
    bandwidth: float
    matmul: dict[str, float] = {}


def device_bandwidth(gpu: Executor, cache: Path) -> float | None:
    """The device's measured bandwidth in bytes a second: from the cache folder, else measured now (some 20 ms) and kept
    there. None where it can't be measured."""
    found = _stored(gpu, cache)
    if found is not None:
        return found.bandwidth
    try:
        measured = measured_bandwidth(gpu)
    except MeasurementError:  # no free memory now
        return None
    if measured is not None:
        _keep(gpu, cache, DeviceFigures(SCHEMA, gpu.spec.name, gpu.spec.uuid, round(measured)))
    return measured


def device_matmul(gpu: Executor, cache: Path, dtype: str) -> float | None:
    """The device's measured operations a second in products of a dtype (torch's name): from the cache folder, else
    measured now (some 50 ms) and kept there. None where it can't be measured, or for no dtype."""
    if not dtype:
        return None
    device_bandwidth(gpu, cache)  # the entry that the rate is kept in
    found = _stored(gpu, cache)
    if found is not None and dtype in found.matmul:
        return found.matmul[dtype]
    try:
        measured = measured_matmul(gpu, dtype)
    except (KerntuneError, RuntimeError):  # torch's errors: no room, or no such product on this device
        return None
    if measured is not None and found is not None:
        _keep(gpu, cache, msgspec.structs.replace(found, matmul={**found.matmul, dtype: round(measured)}))
    return measured


def stored_figures(cache: Path) -> list[DeviceFigures]:
    """What the cache folder has of all devices."""
    return list(_entries(cache).all())


def _entries(cache: Path) -> Entries[DeviceFigures]:
    return Entries(cache, "devices", DeviceFigures, SCHEMA)


def _stored(gpu: Executor, cache: Path) -> DeviceFigures | None:
    entries = _entries(cache)
    found = entries.read(entries.path(gpu.spec.uuid or gpu.spec.slug))
    return found if found is not None and found.name == gpu.spec.name else None


def _keep(gpu: Executor, cache: Path, figures: DeviceFigures) -> None:
    """A folder that can't be written costs another measurement in the next run."""
    if not gpu.spec.uuid:
        return
    entries = _entries(cache)
    try:
        entries.write(entries.path(gpu.spec.uuid), figures)
    except CacheError:
        return
