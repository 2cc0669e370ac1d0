"""Records one call of the stub driver at one window, as ``record_case.py`` does with torch.

LD_PRELOAD=recorder.so python stub_record.py BASE FOLDER [plain|table|graph]
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from pathlib import Path

from common import COMMON, POISON, RESERVED, SLOT, library

base, folder, kind = int(sys.argv[1], 0), Path(sys.argv[2]), sys.argv[3]
U64, POINTER = ctypes.c_uint64, ctypes.c_void_p
driver, recorder, window = ctypes.CDLL("libcuda.so.1"), library("recorder"), library("window")
window.window_alloc.restype = POINTER
assert driver.cuInit(0) == 0
assert window.window_open(U64(base), U64(RESERVED), U64(COMMON + SLOT), POISON) == 0

N = 1000
window.window_seek(U64(COMMON))
x, y, table = (window.window_alloc(ctypes.c_size_t(n), 0, None) for n in (4 * N, 4 * N, 16))
driver.cuMemcpyHtoD_v2(U64(x), struct.pack(f"{N}f", *range(N)), 4 * N)
driver.cuMemcpyHtoD_v2(U64(table), struct.pack("QQ", x, y), 16)
module, function = POINTER(), POINTER()
load = POINTER()
# As CUDA's runtime does it: the driver's functions by cuGetProcAddress.
assert driver.cuGetProcAddress_v2(b"cuModuleLoadData", ctypes.byref(load), 12000, U64(0), None) == 0
assert (
    ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_char_p)(load.value)(ctypes.addressof(module), b"text of a module")
    == 0
)
name = b"doubled" if kind in ("plain", "graph") else b"by_table"
assert driver.cuModuleGetFunction(ctypes.byref(function), module, name) == 0
values = [U64(x), U64(y), ctypes.c_int(N)] if name == b"doubled" else [U64(table), ctypes.c_int(N)]
params = (POINTER * len(values))(*(ctypes.addressof(v) for v in values))


def dump(to: str) -> list[list[int]]:
    size = window.window_used() - COMMON
    buffer = ctypes.create_string_buffer(size)
    driver.cuMemcpyDtoH_v2(buffer, U64(base + COMMON), ctypes.c_size_t(size))
    (folder / to).write_bytes(buffer.raw)
    return [[0, 0], [COMMON, size]]


def launch() -> None:
    assert driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, params, None) == 0


before = dump("before.bin")
recorder.recorder_level(2)
recorder.recorder_mark(f"begin {kind}".encode())
if kind == "graph":
    graph, executable = POINTER(), POINTER()
    driver.cuStreamBeginCapture_v2(None, 0)
    launch()
    driver.cuStreamEndCapture(None, ctypes.byref(graph))
    driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, U64(0))
    for _ in range(3):
        driver.cuGraphLaunch(executable, None)
launch()
recorder.recorder_mark(b"end")
after = dump("after.bin")
counts = (U64 * 16)()
recorder.recorder_counts(counts)
case = {
    "case": kind,
    "base": base,
    "start": COMMON,
    "before": before,
    "after": after,
    "inputs": {"x": [x - base, 4 * N]},
}
case.update(lines=f"{os.environ['RECORDER_OUT']}.{os.getpid()}", code=os.environ["RECORDER_CODE"])
case.update(outputs=[[y - base, 4 * N]], counts=list(counts))
(folder / "case.json").write_text(json.dumps(case))
print(json.dumps(case))
