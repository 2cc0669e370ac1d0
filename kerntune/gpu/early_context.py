"""Takes a device's context before anything else is imported: the driver needs 0.2 to 0.3 s for it (H200)."""

from __future__ import annotations

import contextlib
import ctypes


def open_context(ordinal: int) -> None:
    """Take the device's primary context. What goes wrong is found again, and raised, by the next call that needs it."""
    with contextlib.suppress(OSError, AttributeError):
        cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0:
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
