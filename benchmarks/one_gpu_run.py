"""Figures that need a GPU, one after the other in one run: each part in a process of its own, with a time limit.

    python benchmarks/one_gpu_run.py OUT_FOLDER [--parts cold,causes,turns,profiled,histories] [--seconds 900]

cold       first calls of attention and gated_mlp, ``triton.autotune``'s beside ours, in fresh processes (120 s)
turns      ``do_bench`` of both sides in turn in one process, beside one process a side (120 s)
profiled   winners of the tuning suite by timestamps of torch's profiler (90 s)
histories  planted slowdowns of 3 % in histories of 64 commits, by ``kerntune bisect`` (170 s)
causes     planted slowdowns of known causes; takes 285 s (310 s)

Each part's output is ``PART.log``, its result ``PART.json``; parts write as they go, so one that is ended at its limit
leaves what it has. ``run.json`` has commands, exit codes and seconds. ``--seconds`` is for all: a part that can't
have at least a third of its limit is not begun. Parts that a folder has with exit code 0 aren't run again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent

RECORDED = "benchmarks/results/verdict_recorded.json"
"""Has the sizes of planted slowdowns, so that they needn't be searched."""

CASES = "softmax_small,layer_norm_backward,matmul_1024,softmax_large"


@dataclass(frozen=True)
class Part:
    """Commands of ``benchmarks/``, run one after the other; ``{out}`` is the part's result, ``{folder}`` the folder."""

    limit: float
    commands: tuple[str, ...]


PARTS = {
    "cold": Part(160, ("tuning_suite.py {out} --part cold --kernels attention,gated_mlp --seconds 105",)),
    "turns": Part(
        140,
        (
            f"verdict_record.py {{folder}}/turns_recorded.json --turns 40 --processes 12 --cases {CASES} "
            f"--planted {RECORDED} --seconds 100",
            "verdict_turns.py {folder}/turns_recorded.json {out}",
        ),
    ),
    "profiled": Part(
        110, ("tuning_suite.py {out} --part quality --instrument profiler --shapes 1 --seconds 80",)
    ),
    "histories": Part(190, ("bisect_histories.py --gpu --seconds 130 --at-once 6 --processes 2 --out {out}",)),
    "causes": Part(310, ("verdict_causes.py {out}",)),
}  # fmt: skip


def run(part: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a part's commands, and end what has not ended in time."""
    begin, codes = time.monotonic(), []
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    with open(folder / f"{part}.log", "w") as log:
        for command in PARTS[part].commands:
            words = command.format(out=folder / f"{part}.json", folder=folder).split()
            started = subprocess.Popen(
                [sys.executable, str(HERE / words[0]), *words[1:]], cwd=ROOT, env=env, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            codes.append(_ended(started, seconds - (time.monotonic() - begin)))
    return {"commands": PARTS[part].commands, "exit_codes": codes, "seconds": round(time.monotonic() - begin, 1)}


def _ended(started: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Its exit code; None if it had to be ended: SIGABRT first, so that faulthandler says where each thread was."""
    try:
        return started.wait(max(seconds, 1))
    except subprocess.TimeoutExpired:
        os.kill(started.pid, signal.SIGABRT)
        time.sleep(1)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        return None


def main() -> int:
    """Run the parts that are missing; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=900)
    args = parser.parse_args()
    folder, end = args.folder.resolve(), time.monotonic() + args.seconds
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "run.json"
    rows: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for part in args.parts.split(","):
        left = min(PARTS[part].limit, end - time.monotonic())
        if (set(rows.get(part, {}).get("exit_codes", [1])) == {0}) or left < PARTS[part].limit / 3:
            continue
        rows[part] = run(part, folder, left)
        print(part, rows[part]["exit_codes"], rows[part]["seconds"], "s", flush=True)
        print(*(folder / f"{part}.log").read_text(errors="replace").splitlines()[-15:], sep="\n", flush=True)
        kept.write_text(json.dumps(rows, indent=1) + "\n")
    return sum(set(row["exit_codes"]) != {0} for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
