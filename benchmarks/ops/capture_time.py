"""What noting operators adds to a capture: processor time of captures with and without it, in turn, in one process.

    python -m benchmarks.ops.capture_time [OUT.json] [--rounds 40]

Without a GPU, on stand-ins: calls with few and with many operators beside a kernel. A capture is what
``gate.call_capture.run_captured`` does: the call runs once and its launches are kept; nothing is compiled anew.
``events_ms`` is what the list takes after the call, whose operators' effects are computed then.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import harness
from kerntune.base.device import Target
from kerntune.capture import Capture
from kerntune.compiling.compiler import Compiler
from kerntune.gate.call import Call
from kerntune.gate.call_capture import run_captured
from kerntune.gpu.fake_cuda.static_backend import StaticBackend

sys.path.insert(0, str(harness.ROOT / "tests"))
from gate import moved_work


def many(x: torch.Tensor) -> torch.Tensor:
    """A kernel and fifty operators."""
    y = moved_work.soft(x)
    for _ in range(25):
        y = (y * 2.0) + x
    return y


def unwatched(capture: Capture) -> contextlib.AbstractContextManager[None]:
    """Instead of ``Capture.operators_watched``: a double of ``mock`` would take longer than some lists."""
    return contextlib.nullcontext()


def captured(backend: Any, compiler: Compiler, fn: Callable[..., Any], x: torch.Tensor) -> tuple[float, float]:
    """Processor time of one capture, and of what it has noted afterwards, in seconds."""
    begin = time.process_time()
    capture = run_captured(Capture(backend, compiler), Call("t", "0", fn, (x,)), ()).capture
    end = time.process_time()
    capture.operators.settle()
    return end - begin, time.process_time() - end


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    backend, compiler = StaticBackend((Target.parse("cuda:90"),)), Compiler()
    found = {}
    with backend.activate():
        x = torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda")
        for fn in (moved_work.soft, moved_work.backward, many):
            captured(backend, compiler, fn, x)
            times: dict[str, list[float]] = {"with": [], "without": [], "events": []}
            for i in range(2 * options.rounds):
                side = ("with", "without")[(i + i // 2) % 2]  # ABBA
                off = mock.patch.object(Capture, "operators_watched", unwatched)
                with contextlib.nullcontext() if side == "with" else off:
                    took, settled = captured(backend, compiler, fn, x)
                times[side].append(took)
                times["events"] += [settled] if side == "with" else []
            pairs = [a / b for a, b in zip(times["with"], times["without"], strict=True)]
            found[fn.__name__] = {
                "without_ms": round(1e3 * statistics.median(times["without"]), 3),
                "ratio": round(statistics.median(pairs), 3),
                "events_ms": round(1e3 * statistics.median(times["events"]), 3),
            }
    report = {**harness.environment(commit=harness.commit()), "rounds": options.rounds, "captures": found}
    print(json.dumps(report, indent=1))
    if options.out is not None:
        harness.write(options.out, report)


if __name__ == "__main__":
    main()
