"""Takes a device's context before anything else is imported: the driver needs 0.2 to 0.3 s for it (H200)."""

from __future__ import annotations

from contextlib import suppress
from ctypes import CDLL, byref, c_int, c_void_p


def open_context(ordinal: int) -> None:
    """Take the device's primary context. What goes wrong is found again, and raised, by the next call that needs it."""
    with suppress(OSError, AttributeError):
        cuda, device, context = CDLL("libcuda.so.1"), c_int(), c_void_p()
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(byref(device), ordinal) == 0:
            cuda.cuDevicePrimaryCtxRetain(byref(context), device)
