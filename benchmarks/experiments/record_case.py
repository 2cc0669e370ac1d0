"""Record calls at one window: memory before and after, launches, code; then run them with other contents.

    LD_PRELOAD=recorder.so RECORDER_OUT=... RECORDER_CODE=CODE python record_case.py NUMBER ROOT NAME,NAME,... [--other]

Memory comes from the window NUMBER (1 or 2) alone, from low to high, so two processes have the same layout. The first
part is common (workspaces of libraries), then each call has a slot. A call that fails is said in its ``case.json``.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case
from common import BASES, COMMON, POISON, RESERVED, SLOT, WORK, answer, library


class Recorder:
    """A window that torch's memory comes from, and what is dumped of it."""

    def __init__(self, base: int, slots: int) -> None:
        self.base, self.window, self.native = base, library("window"), library("recorder")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.window.window_used.restype = ctypes.c_uint64
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(WORK / "window.so"), "window_alloc", "window_free")
        torch.cuda.memory.change_current_allocator(allocator)
        torch.cuda.init()
        context = ctypes.c_void_p()
        for code in (
            self.driver.cuInit(0),
            self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            self.driver.cuCtxSetCurrent(context),
            self.window.window_open(*(ctypes.c_uint64(n) for n in (base, RESERVED, COMMON + slots * SLOT)), POISON),
        ):
            if code:
                raise RuntimeError(f"the window at {base:#x} could not be had: {code}")
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.ones(64, 64, device="cuda", dtype=dtype)
            x @ x
        torch.cuda.synchronize()
        self.common = self.used()

    def used(self) -> int:
        return int(self.window.window_used())

    def dump(self, path: Path, start: int) -> list[list[int]]:
        """Write the common part and the slot so far; their offsets and sizes."""
        regions = [[0, self.common], [start, self.used() - start]]
        with path.open("wb") as file:
            for offset, size in regions:
                buffer = (ctypes.c_uint8 * size)()
                at = ctypes.c_uint64(self.base + offset)
                code = self.driver.cuMemcpyDtoH_v2(buffer, at, ctypes.c_size_t(size))
                if code:
                    raise RuntimeError(f"reading the window gave {code}")
                file.write(buffer)
        return regions

    def place(self, tensor: torch.Tensor) -> list[int]:
        return [tensor.data_ptr() - self.base, tensor.numel() * tensor.element_size()]

    def record(self, name: str, folder: Path, start: int, with_other: bool) -> dict[str, Any]:
        self.window.window_seek(ctypes.c_uint64(start))
        case: Case = CASES[name]()
        torch.manual_seed(1)
        host = case.inputs()
        torch.manual_seed(2)
        other = case.inputs()
        inputs = {key: value.cuda() for key, value in host.items()}

        def fill(values: dict[str, torch.Tensor]) -> None:
            for key, value in values.items():
                inputs[key].copy_(value)
            torch.cuda.synchronize()

        call = case.prepare(inputs)
        ours = {value.data_ptr() for value in inputs.values()}
        for _ in range(2):
            given = call()
            for tensor in given:  # the call may get this block, and old results must not stand for the replay's
                flat = in_memory(tensor)
                if tensor.data_ptr() not in ours and flat.is_contiguous():
                    flat.reshape(-1).view(torch.uint8).fill_(POISON)
        fill(host)
        del given
        found: dict[str, Any] = {"case": name, "base": self.base, "start": start}
        found["before"] = self.dump(folder / "before.bin", start)
        self.native.recorder_level(2)
        self.native.recorder_mark(f"begin {name}".encode())
        results = call()
        torch.cuda.synchronize()
        self.native.recorder_mark(b"end")
        self.native.recorder_level(0)
        found["after"] = self.dump(folder / "after.bin", start)
        found["inputs"] = {key: self.place(value) for key, value in inputs.items()}
        found["outputs"] = [self.place(r) for r in results]
        found["dtypes"] = [str(r.dtype) for r in results]
        found["dense"] = all(in_memory(r).is_contiguous() for r in results)
        if case.reference is not None:
            found["error_of_call"] = worst(results, case.reference({k: v.cuda() for k, v in host.items()}))
        if with_other:
            self.with_other(found, case, call, results, folder, lambda: fill(other), other)
        return found

    def with_other(
        self, found: dict[str, Any], case: Case, call: Any, results: Any, folder: Path, fill: Any, other: Any
    ) -> None:
        first = [raw(in_memory(r)) for r in results]
        fill()
        again = call()
        torch.cuda.synchronize()
        expected = [raw(in_memory(r)) for r in again]
        for i, data in enumerate(expected):
            (folder / f"expected{i}.bin").write_bytes(data)
        for key, value in other.items():
            (folder / f"other_{key}.bin").write_bytes(raw(value))
        found["contents_matter"] = expected != first
        assert case.reference is not None
        right = case.reference({k: v.cuda() for k, v in other.items()})
        found["error_of_native"] = worst(again, right)
        for i, (tensor, like) in enumerate(zip(right, results, strict=True)):
            (folder / f"right{i}.bin").write_bytes(raw(in_memory(tensor.double(), like)))
        found["tolerance"] = case.tolerance


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().reshape(-1).contiguous().cpu().view(torch.uint8).numpy().tobytes()


def in_memory(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """``tensor`` with its dimensions in the order in which ``like`` (or itself) lies in memory."""
    like = tensor if like is None else like
    order = sorted(range(like.dim()), key=lambda d: -like.stride(d))
    return tensor.reshape(like.shape).permute(order)


def main() -> None:
    number, root, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].split(",")
    recorder, done = Recorder(BASES[number - 1], len(names)), {}
    for slot, name in enumerate(names):
        folder = root / name / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            found = recorder.record(name, folder, COMMON + slot * SLOT, "--other" in sys.argv)
            done[name] = "recorded"
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
            done[name] = found["error"]
        found.update(lines=f"{os.environ['RECORDER_OUT']}.{os.getpid()}", code=os.environ["RECORDER_CODE"])
        (folder / "case.json").write_text(json.dumps(found))
    recorder.native.recorder_mark(b"over")
    answer(done)
    sys.stdout.flush()
    os._exit(0)  # frees of the window's memory at the interpreter's end would come after the context's


def worst(results: list[torch.Tensor], right: list[torch.Tensor]) -> float:
    """The largest relative error in the norm of one of the results."""
    errors = []
    for got, wanted in zip(results, right, strict=True):
        difference = (got.double().reshape(wanted.shape) - wanted.double()).norm() / wanted.double().norm().clamp(
            min=1e-30
        )
        errors.append(float(difference))
    return max(errors)


main()
