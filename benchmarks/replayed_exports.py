"""A launch outside of its program: its dump replayed, and its export run from C, beside the program's own launch.

    python benchmarks/replayed_exports.py benchmarks/results/replayed_exports_h200.json      on a machine with a GPU

A kernel is tuned, dumped with all bytes (``KERNTUNE_DUMP_CONTENT=recorded``) and exported. Then ``replay.py`` (in a
Python without packages), the C program and this process take turns, in the other order every second round; each times
single launches between events, all of the same kind: 20 ms of warm-up, the output copied back from what it was, a
buffer of twice the L2 cache zeroed, nothing but the launch between two events made before. All have normal numbers.
This process runs ``replay.py``'s own functions beside torch and Triton, at both ends of a round: ``null`` is the one
over the other, the instrument's own error. ``right`` says whether the outputs are those of the program. A row
is written as each round is done. Some 2 s a round. Other work on the GPU makes single rounds up to 25 % slower: run it
alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton

import kerntune
from kerntune.cli.command import main as kerntune_command
from kerntune.gpu import replay_script

N, ROUNDS, RUNS, WARM_MS = 1 << 24, 16, 100, 20

MORE = ["--runs", str(RUNS), "--warm-up", str(WARM_MS)]

KERNEL = """
import kerntune, triton, triton.language as tl
from kerntune.grids import Grid1D

@kerntune.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b in (512, 1024, 2048) for w in (4, 8)], key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)

GRID = Grid1D("n", "BLOCK")
"""

C_MAIN = """
#include "scale_kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static double uniform(void) { return (rand() + 1.0) / (RAND_MAX + 2.0); }
#define CHECK(x) do { CUresult code = (x); if (code) { printf("failed %%d\\n", code); return 1; } } while (0)
static int by_size(const void *a, const void *b) { float x = *(float *)a, y = *(float *)b; return (x > y) - (x < y); }
int main(void) {
  CUdevice device; CUcontext context; CUdeviceptr x, y, before, flush; CUevent begin, end;
  size_t bytes = (size_t)%(n)d * 4, l2; int cache;
  float *host = malloc(bytes), *found = malloc(bytes), times[%(runs)d];
  scale_kernel_handle kernel;
  CHECK(cuInit(0)); CHECK(cuDeviceGet(&device, 0)); CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context)); CHECK(cuMemAlloc(&x, bytes)); CHECK(cuMemAlloc(&y, bytes));
  CHECK(cuDeviceGetAttribute(&cache, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device));
  l2 = (size_t)cache * 2; CHECK(cuMemAlloc(&flush, l2)); CHECK(cuMemAlloc(&before, bytes));
  for (int i = 0; i < %(n)d; i++) host[i] = (float)(sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
  CHECK(cuMemcpyHtoD(x, host, bytes)); CHECK(cuMemcpyHtoD(before, host, bytes)); CHECK(scale_kernel_load(&kernel));
  CHECK(cuEventCreate(&begin, 0)); CHECK(cuEventCreate(&end, 0));
  double warm = ms() + %(warm_ms)d;
  for (int i = 0; i < %(runs)d;) {
    CHECK(cuMemcpyDtoDAsync(y, before, bytes, 0)); CHECK(cuMemsetD8Async(flush, 0, l2, 0));
    CHECK(cuEventRecord(begin, 0));
    CHECK(scale_kernel_launch(&kernel, 0, x, y, %(n)d, 2.0f));
    CHECK(cuEventRecord(end, 0)); CHECK(cuEventSynchronize(end)); CHECK(cuEventElapsedTime(&times[i], begin, end));
    i += ms() >= warm;
  }
  CHECK(cuMemcpyDtoH(found, y, bytes));
  int right = 1;
  for (int i = 0; i < %(n)d; i++) right &= found[i] == 2.0f * host[i];
  qsort(times, %(runs)d, sizeof(float), by_size);
  printf("%%d %%.3f\\n", right, times[%(runs)d / 2] * 1e3);
  return 0;
}
"""


def prepared(folder: Path) -> tuple[Path, Path]:
    """The dump's folder and the C program."""
    (folder / "kernels.py").write_text(KERNEL)
    os.environ |= {"KERNTUNE_DUMP": str(folder / "dump"), "KERNTUNE_DUMP_CONTENT": "recorded"}
    os.environ["KERNTUNE_CACHE_DIR"] = str(folder / "cache")
    sys.path.insert(0, str(folder))
    import kernels  # type: ignore[import-not-found]  # written above

    x = torch.randn(N, device="cuda")
    kernels.scale_kernel[kernels.GRID](x, torch.empty_like(x), N, 2.0)
    torch.cuda.synchronize()
    (dump,) = (folder / "dump").iterdir()
    words = ["export", f"{folder / 'kernels.py'}:scale_kernel", "--grid", "GRID", "-o", str(folder / "c")]
    with contextlib.redirect_stdout(io.StringIO()):
        assert kerntune_command(words) == 0
    (folder / "c" / "main.c").write_text(C_MAIN % {"n": N, "runs": RUNS, "warm_ms": WARM_MS})
    includes = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    sources = [str(folder / "c" / name) for name in ("scale_kernel.c", "main.c")]
    program = folder / "c" / "program"
    subprocess.run(
        ["cc", "-O2", "-I", str(includes), *sources, "-o", str(program), "-l:libcuda.so.1", "-lm"], check=True
    )
    return dump, program


def replayed(text: str) -> tuple[bool, float]:
    """Whether the output was as recorded, and microseconds."""
    found = re.search(r"time: ([\d.]+) us", text)
    assert found is not None, text
    return "as recorded" in text, float(found[1])


def here(dump: Path) -> tuple[bool, float]:
    """The same launch in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        replay_script.main([str(dump), *MORE])
    return replayed(said.getvalue())


def output_of(command: list[str]) -> str:
    """What a process prints; its errors are raised with all that it said."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def from_c(text: str) -> tuple[bool, float]:
    """Whether the C program's output was right, and microseconds."""
    right, us = text.split()
    return right == "1", float(us)


def own_us(row: dict[str, Any]) -> float:
    """The program's own time in a round: the mean of both ends."""
    return float(row["program_us"] + row["again_us"]) / 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        dump, program = prepared(Path(name))
        sides = {
            "replay": lambda: replayed(output_of([sys.executable, "-I", "-S", str(dump / "replay.py"), *MORE])),
            "c": lambda: from_c(output_of([str(program)])),
        }
        for turn in range(ROUNDS):
            found = {"program": here(dump)}
            found |= {side: sides[side]() for side in (list(sides) if turn % 2 else reversed(sides))}
            found["again"] = here(dump)
            us = {f"{side}_us": time for side, (_, time) in found.items()}
            rows.append({**us, "right": all(right for right, _ in found.values())})
            print(json.dumps(rows[-1]), flush=True)
            ratios = {
                name: statistics.median(row[f"{side}_us"] / own_us(row) for row in rows)
                for name, side in (("replay", "replay"), ("c", "c"))
            }
            ratios["null"] = statistics.median(row["again_us"] / row["program_us"] for row in rows)
            result = {"device": torch.cuda.get_device_name(), "kerntune": kerntune.__version__, "rows": rows, **ratios}
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
