"""Record one call at one window: memory before and after, launches, code; then run it with other contents.

    LD_PRELOAD=recorder.so RECORDER_OUT=... RECORDER_CODE=FOLDER/code python record_case.py CASE BASE FOLDER [--other]

Memory comes from the window alone, from low to high, so two processes at two windows have the same layout.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from cases import CASES
from common import MAPPED, POISON, RESERVED, WORK, answer, library


def main() -> None:
    name, base, folder = sys.argv[1], int(sys.argv[2], 0), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    window, recorder, driver = library("window"), library("recorder"), ctypes.CDLL("libcuda.so.1")
    window.window_used.restype = ctypes.c_uint64
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(WORK / "window.so"), "window_alloc", "window_free")
    torch.cuda.memory.change_current_allocator(allocator)
    torch.cuda.init()
    context = ctypes.c_void_p()
    for code in (
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
        window.window_open(*(ctypes.c_uint64(n) for n in (base, RESERVED, MAPPED)), POISON),
    ):
        if code:
            raise RuntimeError(f"the window at {base:#x} could not be had: {code}")

    case = CASES[name]()
    torch.manual_seed(1)
    host = case.inputs()
    torch.manual_seed(2)
    other = case.inputs()
    inputs = {key: value.cuda() for key, value in host.items()}

    def fill(values: dict[str, torch.Tensor]) -> None:
        for key, value in values.items():
            inputs[key].copy_(value)
        torch.cuda.synchronize()

    def dump(path: Path) -> int:
        used = int(window.window_used())
        buffer = (ctypes.c_uint8 * used)()
        code = driver.cuMemcpyDtoH_v2(buffer, ctypes.c_uint64(base), ctypes.c_size_t(used))
        if code:
            raise RuntimeError(f"reading the window gave {code}")
        path.write_bytes(buffer)
        return used

    def within(tensor: torch.Tensor) -> list[int]:
        return [tensor.data_ptr() - base, tensor.numel() * tensor.element_size()]

    def raw(tensor: torch.Tensor) -> bytes:
        return tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes() if tensor.dim() else (
            tensor.detach().reshape(1).cpu().view(torch.uint8).numpy().tobytes()
        )

    call = case.prepare(inputs)
    for _ in range(2):
        call()
        fill(host)
    before = dump(folder / "before.bin")
    recorder.recorder_level(2)
    recorder.recorder_mark(b"begin")
    results = call()
    torch.cuda.synchronize()
    recorder.recorder_mark(b"end")
    recorder.recorder_level(0)
    after = dump(folder / "after.bin")

    found: dict[str, Any] = {"case": name, "base": base, "before": before, "after": after}
    found["inputs"] = {key: within(value) for key, value in inputs.items()}
    found["outputs"] = [within(r) for r in results]
    found["dtypes"] = [str(r.dtype) for r in results]
    found["contiguous"] = all(r.is_contiguous() for r in results)
    if case.reference is not None:
        found["error_of_call"] = worst(results, case.reference({k: v.cuda() for k, v in host.items()}))
    first = [raw(r) for r in results]
    if "--other" in sys.argv:
        fill(other)
        again = call()
        torch.cuda.synchronize()
        expected = [raw(r) for r in again]
        for i, data in enumerate(expected):
            (folder / f"expected{i}.bin").write_bytes(data)
        for key, value in other.items():
            (folder / f"other_{key}.bin").write_bytes(raw(value))
        found["contents_matter"] = expected != first
        assert case.reference is not None
        right = case.reference({k: v.cuda() for k, v in other.items()})
        found["error_of_native"] = worst(again, right)
        for i, tensor in enumerate(right):
            (folder / f"right{i}.bin").write_bytes(raw(tensor.double()))
        found["tolerance"] = case.tolerance
    counts = (ctypes.c_uint64 * 16)()
    recorder.recorder_counts(counts)
    found["counts"] = list(counts)
    (folder / "case.json").write_text(json.dumps(found))
    answer({k: found[k] for k in ("case", "base", "before", "after")})
    sys.stdout.flush()
    os._exit(0)  # frees of the window's memory at the interpreter's end would come after the context's


def worst(results: list[torch.Tensor], right: list[torch.Tensor]) -> float:
    """The largest relative error in the norm of one of the results."""
    errors = []
    for got, wanted in zip(results, right, strict=True):
        difference = (got.double().reshape(wanted.shape) - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30)
        errors.append(float(difference))
    return max(errors)


main()
