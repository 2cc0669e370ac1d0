"""The device guard that a torch without CUDA lacks."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from kerntune.errors import BackendError
from kerntune.kernels.compat.versions import versions_run

REGISTRY_SYMBOL = "_ZN3c104impl26device_guard_impl_registryE"
"""``c10::impl::device_guard_impl_registry``: a pointer a device type (c10/core/impl/DeviceGuardImplInterface.h)."""
CUDA_DEVICE_TYPE = 1
"""``c10::DeviceType::CUDA`` (torch/headeronly/core/DeviceType.h)."""
REGISTRY_SLOTS = 20
"""At most ``COMPILE_TIME_MAX_DEVICE_TYPES``; only the one for CUDA is used."""
VIRTUAL_SLOTS = 64
"""More than the guard interface has virtual functions (about 25)."""

_kept_alive: list[Any] = []


def ensure_guard() -> None:
    """Make torch install its no-op guard for CUDA, unless there is a guard.

    Without a guard, slices of fake CUDA tensors raise and autograd on them aborts the process. Builds with CUDA
    replace a guard that counts no device by a no-op one (``torch._C._ensureCUDADeviceGuardSet``); a build without
    CUDA has none to replace. So a dummy whose every virtual function returns 0 is put there to be replaced.

    The no-op guard stays when stand-ins end, as it does after torch's own fake mode on a machine without a GPU:
    taking it away while a stand-in is alive would bring the aborts back.

    :class:`BackendError` for a torch whose guards work otherwise.
    """
    registry = _registry()
    if registry[CUDA_DEVICE_TYPE]:
        torch._C._ensureCUDADeviceGuardSet()
        return
    dummy = registry[CUDA_DEVICE_TYPE] = _dummy_guard()
    torch._C._ensureCUDADeviceGuardSet()
    if registry[CUDA_DEVICE_TYPE] == dummy:
        registry[CUDA_DEVICE_TYPE] = None
        raise BackendError(
            f"torch {torch.__version__} did not install its no-op device guard: "
            "stand-ins for CUDA tensors can't be used with this version"
        )


def _registry() -> Any:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return (ctypes.c_void_p * REGISTRY_SLOTS).in_dll(ctypes.CDLL(str(library)), REGISTRY_SYMBOL)
    except (OSError, ValueError) as error:
        raise BackendError(
            f"torch {torch.__version__} has no device guard registry in {library.name} ({error}): "
            f"stand-ins for CUDA tensors need Linux; {versions_run()}"
        ) from error


def _dummy_guard() -> int:
    """The address of an object whose virtual functions all return 0: a device type without devices."""
    zero = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: 0)
    table = (ctypes.c_void_p * VIRTUAL_SLOTS)(*([ctypes.cast(zero, ctypes.c_void_p).value] * VIRTUAL_SLOTS))
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(table))
    _kept_alive.extend([zero, table, guard])
    return ctypes.addressof(guard)
