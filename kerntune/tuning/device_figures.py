"""What a device reaches, measured once and kept in the cache folder: bytes and operations a second."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from kerntune.errors import CacheError, KerntuneError, MeasurementError
from kerntune.gpu.base import Executor
from kerntune.gpu.cuda import measured_matmul
from kerntune.timing.sampling import measured_bandwidth
from kerntune.tuning.cache.entries import Entries

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
    if (found := _stored(gpu, cache)) is not None:
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
    entries = _entries(cache)
    if gpu.spec.uuid:
        with contextlib.suppress(CacheError):
            entries.write(entries.path(gpu.spec.uuid), figures)
