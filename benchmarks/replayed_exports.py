"""A launch outside of its program: its dump replayed, and its export run from C, beside the program's own launch.

    python benchmarks/replayed_exports.py benchmarks/results/replayed_exports_h200.json      on a machine with a GPU

A kernel is tuned, dumped with all bytes (``KERNTUNE_DUMP_CONTENT=recorded``) and exported. Then ``replay.py`` (in a
Python without packages), the C program and this process take turns; each times single launches between events with a
flushed L2 cache, by the same code: this process runs ``replay.py``'s own functions beside torch and Triton. ``right``
says whether the outputs are those of the program. A row is written as each round is done.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton

import kerntune
from kerntune.cli.command import main as kerntune_command
from kerntune.gpu import replay_script

N, ROUNDS, RUNS = 1 << 24, 10, 50

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
#include <stdio.h>
#include <stdlib.h>
#define CHECK(x) do { CUresult code = (x); if (code) { printf("failed %%d\\n", code); return 1; } } while (0)
static int by_size(const void *a, const void *b) { float x = *(float *)a, y = *(float *)b; return (x > y) - (x < y); }
int main(void) {
  CUdevice device; CUcontext context; CUdeviceptr x, y, flush; CUevent begin, end;
  size_t bytes = (size_t)%(n)d * 4, l2 = 128u << 20;
  float *host = malloc(bytes), times[%(runs)d];
  scale_kernel_handle kernel;
  CHECK(cuInit(0)); CHECK(cuDeviceGet(&device, 0)); CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context)); CHECK(cuMemAlloc(&x, bytes)); CHECK(cuMemAlloc(&y, bytes));
  CHECK(cuMemAlloc(&flush, l2));
  for (int i = 0; i < %(n)d; i++) host[i] = (float)(i %% 1000);
  CHECK(cuMemcpyHtoD(x, host, bytes)); CHECK(scale_kernel_load(&kernel));
  CHECK(cuEventCreate(&begin, 0)); CHECK(cuEventCreate(&end, 0));
  for (int i = 0; i < %(runs)d; i++) {
    CHECK(cuMemsetD8Async(flush, 0, l2, 0)); CHECK(cuEventRecord(begin, 0));
    CHECK(scale_kernel_launch(&kernel, 0, x, y, %(n)d, 2.0f));
    CHECK(cuEventRecord(end, 0)); CHECK(cuEventSynchronize(end)); CHECK(cuEventElapsedTime(&times[i], begin, end));
  }
  CHECK(cuMemcpyDtoH(host, y, bytes));
  int right = 1;
  for (int i = 0; i < %(n)d; i++) right &= host[i] == 2.0f * (float)(i %% 1000);
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
    (folder / "c" / "main.c").write_text(C_MAIN % {"n": N, "runs": RUNS})
    includes = Path(triton.__file__).parent / "backends" / "nvidia" / "include"
    sources = [str(folder / "c" / name) for name in ("scale_kernel.c", "main.c")]
    program = folder / "c" / "program"
    subprocess.run(["cc", "-O2", "-I", str(includes), *sources, "-o", str(program), "-l:libcuda.so.1"], check=True)
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
        replay_script.main([str(dump), "--runs", str(RUNS)])
    return replayed(said.getvalue())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        dump, program = prepared(Path(name))
        for _ in range(ROUNDS):
            script = [sys.executable, "-I", "-S", str(dump / "replay.py"), "--runs", str(RUNS)]
            fresh = replayed(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
            right, us = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
            own = here(dump)
            row = {"program_us": own[1], "replay_us": fresh[1], "c_us": float(us)}
            rows.append({**row, "right": own[0] and fresh[0] and right == "1"})
            print(json.dumps(rows[-1]), flush=True)
            ratios = {
                side: statistics.median(float(str(r[f"{side}_us"])) / float(str(r["program_us"])) for r in rows)
                for side in ("replay", "c")
            }
            result = {"device": torch.cuda.get_device_name(), "kerntune": kerntune.__version__, "rows": rows, **ratios}
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
