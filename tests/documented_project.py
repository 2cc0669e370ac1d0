"""The project in which ``test_documented_blocks.py`` follows the pages: its files, and what blocks take as given."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kerntune.referee.sealing import landlock_version

TUTORIAL = (Path(__file__).parents[1] / "docs/tutorial.md").read_text(encoding="utf-8")
WRITTEN = dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```$', TUTORIAL, re.M | re.S))
"""The tutorial's own files."""

SPILLED = ("num_warps=4)", "num_warps=1, maxnreg=24)")
"""The tutorial's edit."""

MORE_KERNELS = """

@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""

TEST = """import pytest
import torch
from mykernels import {fn}


@pytest.mark.autotune
def test_{name}(autotune):
    autotune({fn}, torch.randn(64, 1024, device=autotune.device))
"""

PROGRAM = """import kerntune
from scripted_kernels import add, scale

kerntune.install()
for n in (1000, 2000):
    add(n)
    scale(n)
"""

FILES: Mapping[str, str] = {
    "pytest.ini": "[pytest]\npythonpath = .\n",
    ".gitignore": "__pycache__/\ncache/\n",
    "mykernels.py": WRITTEN["mykernels.py"] + MORE_KERNELS,
    "tests/test_softmax.py": WRITTEN["test_softmax.py"],
    "tests/test_norms.py": TEST.format(fn="softmax", name="rms_norm"),
    "tests/test_a.py": TEST.format(fn="double", name="double"),
    "tests/test_it.py": TEST.format(fn="double", name="it"),
    "train.py": PROGRAM,
    "program.py": PROGRAM,
}

SCRIPTED = "import torch, triton, triton.language as tl, kerntune\nimport scripted_kernels\n"
"""A GPU without hardware, for what a block launches."""

CONFIGS = "configs = [triton.Config({'BLOCK': block}) for block in (64, 128, 256)]\n"
VECTOR = "n = 4096\nx, y = torch.empty(n, device='cuda'), torch.empty(n, device='cuda')\n"

PRODUCTS = """
def tiled_matmul(a, b):
    return a @ b

def skinny_matmul(a, b):
    return a @ b

skinny, tiled = skinny_matmul, tiled_matmul

def softmax_by_rows(x):
    return torch.softmax(x, -1)

def softmax_by_steps(x):
    return torch.softmax(x, -1)

def torch_softmax(x):
    return torch.softmax(x, -1)
"""

ROUTED = """import torch, triton, triton.language as tl


@triton.jit
def count_kernel(ids_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(counts_ptr + tl.load(ids_ptr + at, mask=at < n, other=0), 1, mask=at < n)


@triton.jit
def rows_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)


def route(x, ids):
    counts = torch.zeros(4, dtype=torch.int32, device=x.device)
    count_kernel[(1,)](ids, counts, ids.numel(), BLOCK=256)
    rows_kernel[(4,)](x, x, BLOCK=64)
    rows = int(counts.sum())
    rows_kernel[(rows,)](x, x, BLOCK=64)
    return x


def moe(x):
    return route(x, torch.randint(0, 4, (256,), device=x.device, dtype=torch.int32))
"""

EXPORTED = """import kerntune, triton, triton.language as tl


@kerntune.autotune([triton.Config({"ROWS": rows}) for rows in (1, 2)], key=["n_cols"])
@triton.jit
def softmax_kernel(out, inp, n_rows, n_cols, ROWS: tl.constexpr):
    at = tl.arange(0, 4096)
    for row in range(tl.program_id(0) * ROWS, min(n_rows, (tl.program_id(0) + 1) * ROWS)):
        e = tl.exp(tl.load(inp + row * n_cols + at))
        tl.store(out + row * n_cols + at, e / tl.sum(e, 0))
"""

TRAINED = """import scripted_kernels
import torch
from ops.softmax import softmax_kernel

x = torch.empty(512, 4096, device="cuda")
softmax_kernel[lambda meta: (512 // meta["ROWS"],)](torch.empty_like(x), x, 512, 4096)
"""

OPERATORS = """import torch
from mykernels import softmax


def rms_norm(x, weight):
    return softmax(x)


def swiglu(a, b):
    return softmax(a)
"""

ADDED = """
@triton.jit
def kernel(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr): ...

"""

ROWS = """
rows, cols = 512, 4096
x, out = torch.empty(rows, cols, device="cuda"), torch.empty(rows, device="cuda")
rows_in, n = x, 4096
weights = [torch.empty(size, device="cuda") for size in (1000, 3000)]
from kerntune.grids import CooperativeReductionGrid


@triton.jit
def row_sums(x_ptr, row, rows, cols, part, STEP: tl.constexpr, RSPLIT: tl.constexpr):
    return tl.load(x_ptr + row * cols + part, mask=row < rows, other=0.0)

"""

COMPILED = """
up, down = torch.randn(512, 2048, device="cuda"), torch.randn(2048, 512, device="cuda")
mlp = lambda x, up, down: torch.softmax(x @ up, -1) @ down
layer = torch.nn.Linear(512, 64, device="cuda")
compiled = torch.compile(lambda x: torch.nn.functional.gelu(layer(x)))
"""

PRELUDES: Mapping[str, tuple[str, str]] = {
    "docs/choices.md": (f"{SCRIPTED}{PRODUCTS}", "assert matmul.operation and softmax.operation"),
    "docs/ci.md": ("from ops.moe import moe\nx = torch.empty(4096, device='cuda')\n", ""),
    "docs/grids.md": (
        f"{SCRIPTED}{VECTOR}{ADDED}n_elements = n\n"
        "from kerntune.base.device import TYPICAL_DEVICES\ndevice = TYPICAL_DEVICES['cuda:90']\n"
        "arguments = {'n_elements': n, 'BLOCK': 128}\n",
        "assert persistent({'NUM_SMS': 132, 'M': 4096, 'N': 4096, 'BLOCK_M': 128, 'BLOCK_N': 128}) == (132, 1, 1)",
    ),
    "docs/heuristics.md": (f"{SCRIPTED}{ROWS}", ""),
    "docs/how-to/gate-more-than-time.md": ("", ""),
    "docs/how-to/keys-that-dont-retune.md": (f"{SCRIPTED}{CONFIGS}{VECTOR}", "kernel[(32,)](x, n)"),
    "docs/how-to/share-winners.md": (
        f"{SCRIPTED}import torch.distributed\nworld_size = 1\nscripted_kernels.add(1000)\n"
        "torch.distributed.init_process_group('gloo', init_method='file:///dev/shm/%d' % __import__('os').getpid(), "
        "rank=0, world_size=1)\n",
        "",
    ),
    "docs/how-to/tune-at-installation.md": (
        f"{SCRIPTED}from scripted_kernels import scale_kernel as kernel\ngrid = (32,)\n",
        "",
    ),
    "docs/judge.md": ("import kerntune\n", "assert verdict.word == 'UNTIMED' and verdict.exit_code == 6"),
    "docs/library.md": (f"{SCRIPTED}{CONFIGS}{VECTOR}{PRODUCTS}def train():\n    scripted_kernels.add(1000)\n", ""),
    "docs/torch-compile.md": (f"{SCRIPTED}{CONFIGS}{COMPILED}", ""),
    "docs/one-case.md": ("x = torch.randn(64, 1024, device='cuda')\n", ""),
}
"""By page: what stands before each Python block, and after it."""


def second_commit(made: Any) -> None:
    """A commit whose kernel spills."""
    made.write("mykernels.py", (made.folder / "mykernels.py").read_text().replace(*SPILLED))
    made.shell("git commit -qam 'one warp a row'")


def spilled(made: Any) -> None:
    """The tutorial's edit after its baselines."""
    made.write("test_softmax.py", FILES["tests/test_softmax.py"])
    made.shell("pytest --kerntune --kerntune-target=cuda:90 test_softmax.py")
    made.write("mykernels.py", (made.folder / "mykernels.py").read_text().replace(*SPILLED))


def candidate(made: Any) -> None:
    """A kernel and what it is judged against; needs a system that can seal a process."""
    if not landlock_version():
        pytest.skip("this kernel has no Landlock")
    made.write("candidate.py", CANDIDATE)
    made.write("reference.py", "import torch\n\n\ndef fn(x):\n    return torch.softmax(x, -1)\n")


CANDIDATE = (
    WRITTEN["mykernels.py"].replace('other=-float("inf"))', 'other=-float("inf")).to(tl.float32)')
    + "\n\nfn = softmax\n"
)


def moved_test(made: Any) -> None:
    (made.folder / "tests/test_a.py").rename(made.folder / "tests/test_b.py")


def history(made: Any) -> None:
    """Forty runs, with a step in the middle, on the branch that the page names."""
    made.write("filled.py", FILLED)
    made.shell("python filled.py")


FILLED = """
import numpy as np
from pathlib import Path
from kerntune.base.case_result import CaseId
from kerntune.gate.history.places import add_run, place_of
from kerntune.gate.history.points import SCHEMA, HistoryRun, Point, Shift
place = place_of("git:kerntune-history", Path.cwd())
for i, error in enumerate(np.random.default_rng(1).normal(0, 0.001, 20)):
    change = Shift(float(error) + 0.05 * (i >= 10), 0.001, "2026-01-01")
    point = Point(CaseId("tests/test_a.py::test_x", "0"), "cuda:90", "NVIDIA H200", "PASS", f"w{i}", "a", 1e3, change)
    moment = f"2026-01-{1 + i:02}T00:00:00+00:00"
    add_run(place, HistoryRun(SCHEMA, moment, (point,), f"{i:04x}" * 10, moment, "main"))
"""


def other_series(made: Any) -> None:
    """Baselines of another series of Triton, and the module that the page's tests import."""
    (series,) = (made.folder / "baselines/cuda-90").glob("triton-*")
    for path in series.rglob("*.json"):
        made.write(str(path.relative_to(made.folder)).replace(series.name, "triton-3.8"), path.read_text())
    made.write("ops/moe.py", ROUTED)
    test = "import torch\nfrom ops.moe import moe\n\ndef test_moe(autotune):\n"
    made.write("test_moe.py", test + "    autotune(moe, torch.empty(4096, device='cuda'))\n")


def observed(made: Any) -> None:
    """A stored winner to be exported, and a run's figures."""
    made.write("ops/softmax.py", EXPORTED)
    made.write("winners.py", TRAINED)
    made.write("filled.py", TIMED)
    made.shell("python winners.py && python filled.py")


TIMED = """
from pathlib import Path
import msgspec
from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.report import RunReport, write_run

def result(name, time_ns, **figures):
    made = CaseResult(CaseId(f"test_it.py::{name}", "0"), "0" * 16, Verdict.PASS, Outcome.PASS, "", "cuda:90", "H200")
    return msgspec.structs.replace(made, current_ns=time_ns, bandwidth=4e12, **figures)

write_run(Path("run.json"), RunReport((
    result("test_slow", 80_000.0, bytes_moved=32e6),
    result("test_matmul", 10_000.0, bytes_moved=1e6, flops=6e9, matmul_peak=800e12, matmul_dtype="float16"),
)))
"""


def two_runs(made: Any) -> None:
    made.write("nightly.json", (made.folder / "kerntune.json").read_text())
    history(made)


def noted(made: Any) -> None:
    made.shell("kerntune shapes record -- python train.py")


PREPARED: Mapping[str, Callable[[Any], None]] = {
    "docs/bisect.md": second_commit,
    "docs/ci.md": other_series,
    "docs/history.md": history,
    "kerntune baselines mv tests/test_a.py tests/test_b.py": moved_test,
    "docs/how-to/adopt-in-a-large-repository.md": lambda made: made.write("mylib/ops.py", OPERATORS),
    "docs/judge.md": candidate,
    "docs/many-gpus.md": noted,
    "docs/observing.md": observed,
    "docs/plugin.md": spilled,
    "docs/report.md": two_runs,
}
"""What a page needs before its first block, or a command before it is run."""
