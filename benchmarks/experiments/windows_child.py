"""Question 3, one process: ask for an address range and say what the driver gave.

    python windows_child.py recorder|worker BASE BYTES [more bases]

The recorder is a process with torch that has worked on the GPU; the worker has the driver alone.
"""

from __future__ import annotations

import ctypes
import sys

from common import answer, library


def main() -> None:
    kind, size = sys.argv[1], int(sys.argv[3])
    bases = [int(sys.argv[2], 0), *(int(b, 0) for b in sys.argv[4:])]
    if kind == "recorder":
        import torch

        x = torch.randn(1 << 20, device="cuda")
        (x.view(1024, 1024) @ x.view(1024, 1024)).sum().item()
    else:
        driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
    window = library("window")
    rows = []
    for base in bases:
        given = ctypes.c_uint64()
        code = window.window_reserve(ctypes.c_uint64(base), ctypes.c_uint64(size), ctypes.byref(given))
        mapped = window.window_map(given, ctypes.c_uint64(2 << 20), 0xA5) if code in (0, -1) else None
        rows.append({"asked": hex(base), "code": code, "given": hex(given.value), "mapped": mapped})
    answer({"kind": kind, "rows": rows})


main()
