"""Combos and foreach against one by one: what is chosen, and what it saves, on a GPU.

    python benchmarks/combo_foreach.py benchmarks/results/combo_foreach_h200.json    on a machine with a GPU
    python benchmarks/combo_foreach.py out.json --scripted                           the same steps on the scripted GPU

Eight pointwise kernels of several sizes as one launch, and one function over 200 tensors. Of each, against the tuned
kernels launched one by one by a user's own loop: ``user`` is the ratio of times of calls after one another until the
device is done, the host's share included, of the combo as it is called; ``device`` is the ratio of times on the device
alone, of one launch. Below 1 is faster. A row is written as each is done.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch
import triton
import triton.language as tl

import kerntune
from benchmarks.graph_pairs import device_ratio
from benchmarks.registers import device
from kerntune import ComboPart
from kerntune.tuning.api import combo_choice

ROUNDS = 21
MIXED = (1_000, 5_000, 20_000, 65_536, 100_000, 3_000, 262_144, 40_000)
SIZES = {"1k": (1_000,) * 8, "mixed": MIXED, "1m": (1 << 20,) * 8, "16m": (1 << 24,) * 8}
LISTS = {"200 x 1k": 1_000, "200 x 64k": 1 << 16, "200 x 1m": 1 << 20}
MANY = 200


@triton.jit
def gelu(block, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=i < n)


@triton.jit
def square(block, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * x, mask=i < n)


@triton.jit
def sigmoid(block, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.sigmoid(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


@triton.jit
def shift(block, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


PARTS = [ComboPart(fn, {"x": "n"}, {"x": "BLOCK"}) for fn in (gelu, square, sigmoid, shift) * 2]


def tensors(sizes: Any) -> tuple[list[Any], list[Any]]:
    xs = [torch.randn(n, device="cuda") for n in sizes]
    return xs, [torch.empty_like(x) for x in xs]


def user_ratio(one: Callable[[], object], other: Callable[[], object]) -> dict[str, Any]:
    """Calls after one another until the device is done, in turn; the other against itself is the error."""
    from kerntune.tuning import context

    backend = context.this_gpu()
    assert backend is not None
    gpu = backend.gpu
    assert gpu is not None
    for call in (one, other) * 3:
        call()
    runs = combo_choice._runs(gpu, other)
    found: dict[str, Any] = {"us": 1e6 * combo_choice._seconds(gpu, other, runs)}
    for name, first in (("user", one), ("user_null", other)):
        ratios = []
        for i in range(ROUNDS):
            order = ("a", "b") if i % 2 else ("b", "a")
            times = {side: combo_choice._seconds(gpu, first if side == "a" else other, runs) for side in order}
            ratios.append(times["a"] / times["b"])
        found |= {name: statistics.median(ratios), f"{name}_ratios": [round(r, 4) for r in sorted(ratios)]}
    return found


def combo_row(name: str, sizes: tuple[int, ...], order: str, scripted: bool) -> dict[str, Any]:
    """Eight kernels: together as the combo is called, against the same parts' own kernels."""
    kernel = kerntune.combo(PARTS, order=order, cache_results=False)
    xs, ys = tensors(sizes)
    groups = [(x, y, x.numel()) for x, y in zip(xs, ys, strict=True)]
    loop = [(own, grid, group) for (own, grid), group in zip(kernel.apart, groups, strict=True)]

    def apart() -> None:
        for own, grid, group in loop:
            own[grid](*group)

    flat = [value for group in groups for value in group]
    return row(
        f"combo of 8, {order}, {name}", kernel, lambda: kernel(*groups), lambda: kernel._together(flat), apart, scripted
    )


def foreach_row(name: str, n: int, scripted: bool) -> dict[str, Any]:
    """200 tensors: many a launch as the kernel is called, against one launch for each."""
    kernel = kerntune.foreach(sizes={"x": "n"}, blocks={"x": "BLOCK"}, cache_results=False)(gelu)
    xs, ys = tensors([n] * MANY)
    ns = [n] * MANY
    own, grid = kernel.apart

    def apart() -> None:
        for x, y, size in zip(xs, ys, ns, strict=True):
            own[grid](x, y, size)

    listed = [True] * 3
    return row(
        f"foreach, {name}", kernel, lambda: kernel(xs, ys, ns),
        lambda: kernel._together(MANY, listed, (xs, ys, ns)), apart, scripted,
    )  # fmt: skip


def row(
    name: str,
    kernel: Any,
    called: Callable[[], None],
    together: Callable[[], None],
    apart: Callable[[], None],
    scripted: bool,
) -> dict[str, Any]:
    begin = time.monotonic()
    called()
    (choice,) = kernel.choices.values()
    found: dict[str, Any] = {"row": name, "together": choice.together, "measured_ratio": choice.ratio}
    found["decided_s"] = round(time.monotonic() - begin, 2)
    found |= {"user": None} if scripted else user_ratio(called, apart)
    if not scripted:
        found["user_if_together"] = user_ratio(together, apart)["user"]
        found["device"] = device_ratio(together, apart, rounds=9)
    found["seconds"] = round(time.monotonic() - begin, 2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scripted", action="store_true")
    options = parser.parse_args()
    jobs: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = [
        (foreach_row, (name, n)) for name, n in LISTS.items()
    ]
    jobs += [(combo_row, (name, sizes, "sequential")) for name, sizes in SIZES.items()]
    jobs.append((combo_row, ("mixed", MIXED, "round robin")))
    rows: list[dict[str, Any]] = []
    result = {"date": datetime.now(timezone.utc).date().isoformat(), "scripted": options.scripted, "rows": rows}
    with device(options.scripted):
        if not options.scripted:
            result["device"], result["torch"] = torch.cuda.get_device_name(), torch.__version__
            result["triton"] = triton.__version__
        for run, words in jobs[:1] + jobs[3:4] if options.scripted else jobs:
            try:
                rows.append(run(*words, options.scripted))
            except Exception:  # the other rows are worth having
                rows.append({"row": str(words[0]), "error": traceback.format_exc()})
            shown = {k: v for k, v in rows[-1].items() if not k.endswith("ratios") and k != "device"}
            print(json.dumps(shown | {"device": (rows[-1].get("device") or {}).get("ratio")}), flush=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("error" in found for found in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
