"""What it costs a choice to launch kernels that nothing tunes in another process first.

Run ``python benchmarks/choices_elsewhere.py OUT.json`` on a machine with a GPU (some 40 s on an H200); ``--scripted``
tries the script. Two kinds of choices are decided, ``REPEATS`` times each, with empty caches of winners and compiled
kernels, with ``isolate="off"`` and ``"auto"`` in turn: ``mixed`` has a tuned kernel, two that nothing tunes and torch;
``bare`` the same without the tuned one. ``seconds`` is the whole decision, ``alone_s`` the implementations' own first
calls, ``elsewhere_s`` the launches in the other process with its start. ``above`` is the median of the pairs'
``auto / off - 1``. What the process has compiled stays compiled, so little but tuning and racing is left to compare
with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("KERNTUNE_PATIENCE", "all")

import torch
import triton
import triton.language as tl

import kerntune
from benchmarks.choices import scripted_gpu
from benchmarks.dispatch import environment

REPEATS, SIZES = 3, (1 << 16, 1 << 22)


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def of_kernel(name: str, kernel: Any, **meta: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """An implementation that launches a kernel."""

    def double(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel[lambda words: (triton.cdiv(x.numel(), words["BLOCK"]),)](x, y, x.numel(), **meta)
        return y

    double.__qualname__ = name
    return double


def by_torch(x: torch.Tensor) -> torch.Tensor:
    """The same."""
    return x * 2


def choice_of(kind: str, isolate: str) -> Any:
    """A choice of new tuners."""
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024, 4096) for w in (4, 8)]
    tuned = of_kernel("tuned", kerntune.autotune(configs, key=["n"])(double_kernel))
    bare = [of_kernel(f"block_{b}", double_kernel, BLOCK=b) for b in (512, 2048)]
    functions = [*([tuned] if kind == "mixed" else []), *bare, by_torch]
    return kerntune.choice(functions, key=["x"], isolate=isolate)(by_torch)


def decided(kind: str, isolate: str, size: int) -> dict[str, Any]:
    """One decision in empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNTUNE_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = f"{folder}/winners", f"{folder}/triton"
        double = choice_of(kind, isolate)
        double(torch.empty(size, device="cuda"))
        found = double.operation.decisions[-1]
    row = {"kind": kind, "isolate": isolate, "size": size, "winner": found.winner, "left_out": dict(found.left_out)}
    return {**row, **{name: getattr(found, name) for name in ("seconds", "alone_s", "elsewhere_s")}}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By kind and size, medians over the repeats."""
    out: dict[str, Any] = {}
    good = [r for r in rows if "error" not in r]
    for kind, size in sorted({(r["kind"], r["size"]) for r in good}):
        off, auto = ([r for r in good if (r["kind"], r["size"], r["isolate"]) == (kind, size, m)] for m in MODES)
        pairs = list(zip(off, auto, strict=False))
        if pairs:
            out[f"{kind}[{size}]"] = {
                "off_s": statistics.median(a["seconds"] for a, _ in pairs),
                "auto_s": statistics.median(b["seconds"] for _, b in pairs),
                "elsewhere_s": statistics.median(b["elsewhere_s"] for _, b in pairs),
                "above": statistics.median(b["seconds"] / a["seconds"] - 1 for a, b in pairs),
            }
    return out


MODES = ("off", "auto")


def run(out: Path) -> None:
    """Decide all, and write what is known after each."""
    rows: list[dict[str, Any]] = []
    decided("mixed", "off", 1 << 10)  # compilers and torch's operations are loaded
    for repeat in range(REPEATS):
        for kind in ("mixed", "bare"):
            for size in SIZES:
                for mode in MODES[:: -1 if repeat % 2 else 1]:
                    try:
                        rows.append(
                            decided(kind, mode, size + 16 * repeat)
                        )  # a launch is made elsewhere once a process
                        rows[-1]["size"] = size
                    except Exception:
                        rows.append({"kind": kind, "isolate": mode, "size": size, "error": traceback.format_exc()})
                    data = {"environment": environment(), "summary": summary(rows), "rows": rows}
                    out.write_text(json.dumps(data, indent=1) + "\n")
    print(json.dumps(summary(rows), indent=1))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scripted", action="store_true", help="on a scripted GPU, whose times say nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    with scripted_gpu() if options.scripted else contextlib.nullcontext():
        run(options.out)


if __name__ == "__main__":
    main()
