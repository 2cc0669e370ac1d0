"""Six experiments on a GPU and two questions of judging; see README.md beside this file.

    python benchmarks/experiments/run.py OUT_FOLDER [--parts relocated,launches,...]

Each part writes ``OUT_FOLDER/PART.json`` when it is done. A part's children are processes with a time limit, and what
goes wrong in one is its result.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import BASES, HERE, RESERVED, WORK, build, child, environment, guarded

AT_ONCE = 8
RECORD_SECONDS = 100


def recorded(name: str, *more: str) -> list[Path]:
    """Two recordings of a case, at two windows; an error of the second attempt is raised."""
    folders = [WORK / "cases" / name / str(number) for number in (1, 2)]

    def one(folder: Path, base: int) -> dict[str, Any]:
        if (folder / "case.json").exists():
            return {}
        (folder / "code").mkdir(parents=True, exist_ok=True)
        return child(
            ["record_case.py", name, hex(base), str(folder), *more], RECORD_SECONDS,
            {"RECORDER_CODE": str(folder / "code")}, folder / "lines.jsonl",
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, folders, BASES))
    for result in results:
        if "error" in result:
            raise RuntimeError(f"recording of {name}: {result}")
    return folders


def crowd(names: tuple[str, ...], work: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(names, pool.map(lambda n: guarded(work, n), names), strict=True))


def relocated() -> dict[str, Any]:
    """Question 4."""
    from cases_names import Q4

    def one(name: str) -> dict[str, Any]:
        folders = recorded(name)
        found = child(["replay.py", "same", *map(str, folders)], 60)
        found["error_of_call"] = json.loads((folders[0] / "case.json").read_text()).get("error_of_call")
        return found

    return crowd(Q4, one)


def launches() -> dict[str, Any]:
    """Question 2."""
    return child(["launches_child.py"], 170, recorder=WORK / "launches.jsonl")


def modules() -> dict[str, Any]:
    """Question 6."""
    (WORK / "modules").mkdir(exist_ok=True)
    return child(["modules_child.py"], 120, {"RECORDER_CODE": str(WORK / "modules")}, WORK / "modules.jsonl")


def windows() -> dict[str, Any]:
    """Question 3: fifty pairs at once ten wide; other bases once, in a worker and in a recorder."""
    size = str(RESERVED)

    def pair(number: int) -> dict[str, Any]:
        asked = hex(random.Random(number).randrange(0x200, 0x700) << 36)  # from 32 to 112 TiB in steps of 64 GiB
        with ThreadPoolExecutor(2) as pool:
            kinds = ("recorder", "worker")
            both = list(pool.map(lambda k: child(["windows_child.py", k, asked, size], 60), kinds))
        rows = [b["rows"][0] if "rows" in b else b for b in both]
        return {"asked": asked, "rows": rows, "both": all(r.get("code") == 0 and r.get("mapped") == 0 for r in rows)}

    with ThreadPoolExecutor(6) as pool:
        pairs = list(pool.map(pair, range(50)))
    bases = [hex(1 << n) for n in range(32, 48)] + ["0x550000000000", "0x700000000000", "0x7f0000000000"]
    probes = {k: child(["windows_child.py", k, bases[0], size, *bases[1:]], 60) for k in ("recorder", "worker")}
    failed = [p for p in pairs if not p["both"]]
    return {"pairs": len(pairs), "both_got_it": len(pairs) - len(failed), "failed": failed[:10], "probes": probes}


def subscriber() -> dict[str, Any]:
    """Question 1."""
    source = WORK / "nothing.cu"
    source.write_text('extern "C" __global__ void nothing() {}\n')
    command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(WORK / "nothing.cubin"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    plans = ["control"] * 4 + ["before"] * 4 + ["between"] * 4 + ["held"] * 2 + ["finalized"] * 2
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda s: child(["subscriber_child.py", s], 60), plans))
    return {"processes": rows}


def timing() -> dict[str, Any]:
    """Question 5: recordings at once, timing one after the other."""
    from cases_names import TIMED

    folders = crowd(TIMED, lambda name: {"folders": [str(f) for f in recorded(name)]})
    rows: dict[str, Any] = {}
    for name, made in folders.items():
        rows[name] = guarded(lambda m=made: child(["timing_child.py", *m["folders"]], 60)) if "folders" in made else made
    return rows


def contents() -> dict[str, Any]:
    """Judging 2."""
    from cases_names import CONTENTS, PLANTED

    def one(name: str) -> dict[str, Any]:
        return child(["replay.py", "contents", *map(str, recorded(name, "--other"))], 60)

    return crowd((*CONTENTS, *PLANTED), one)


def confined() -> dict[str, Any]:
    """Judging 1: free, watched for its system calls, under Landlock, under Landlock and seccomp."""
    folders = [str(f) for f in recorded("decode")]
    outside = WORK / "outside"
    outside.write_text("not for the worker")
    devices = sorted(str(p) for p in Path("/dev").glob("nvidia*"))
    system = ["/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/opt", str(HERE), *(str(WORK / f"{n}.so") for n in ("window", "confine"))]
    narrow = {"read_only": system + folders, "read_write": [*devices, "/dev/null", "/dev/zero", "/dev/urandom"]}
    levels = {
        "devices": narrow,
        "devices_and_shm": {**narrow, "read_write": [*narrow["read_write"], "/dev/shm", "/proc"]},
        "all_dev": {**narrow, "read_write": ["/dev", "/proc"]},
    }
    result: dict[str, Any] = {"devices": devices, "abi": ctypes.CDLL(str(WORK / "confine.so")).confine_abi()}

    def run(mode: str, plan: dict[str, Any]) -> dict[str, Any]:
        path = WORK / f"plan_{mode}.json"
        path.write_text(json.dumps({"outside": str(outside), "calls": [], **plan}))
        return child(["confined_child.py", mode, str(path), *folders], 60)

    result["free"] = [run("free", narrow) for _ in range(3)]
    result["watched"], seen = watched(narrow | {"outside": str(outside), "calls": []}, folders)
    result["calls"] = {named_call(n): count for n, count in sorted(seen.items(), key=lambda i: -i[1])}
    level = None
    for name, plan in levels.items():
        tried = run("landlock", plan)
        result.setdefault("landlock", {})[name] = tried
        if tried.get("outputs_equal"):
            level = plan
            break
    plan = level or narrow
    allowed = sorted(seen)
    result["both"] = [run("both", plan | {"calls": allowed}) for _ in range(3)]
    risky = {n for n in allowed if named_call(n) in RISKY}
    kept = [n for n in allowed if n not in risky]
    result["without_risky"] = {"denied": [named_call(n) for n in risky], **run("both", plan | {"calls": kept})}
    needed, spare = list(kept), []
    for number in kept:  # calls that the driver makes and can do without
        if named_call(number) in KEPT or time.monotonic() - START > 420:
            continue
        fewer = [n for n in needed if n != number]
        if child_ok(run("both", plan | {"calls": fewer})):
            needed = fewer
            spare.append(named_call(number))
    result["needed"], result["can_do_without"] = [named_call(n) for n in needed], spare
    return result


RISKY = {
    "socket", "connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg", "recvmsg", "execve", "execveat", "fork",
    "vfork", "ptrace", "kill", "tkill", "mount", "setuid", "socketpair", "process_vm_readv", "bpf", "unshare",
}  # fmt: skip
KEPT = {"mmap", "munmap", "ioctl", "openat", "read", "write", "close", "brk", "mprotect", "futex", "exit_group", "fstat", "newfstatat"}
START = time.monotonic()


def child_ok(result: dict[str, Any]) -> bool:
    return bool(result.get("outputs_equal"))


def named_call(number: int) -> str:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not CALLS and header.exists():
        for line in header.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[1].startswith("__NR_"):
                CALLS[int(parts[2])] = parts[1].removeprefix("__NR_")
    return CALLS.get(number, str(number))


CALLS: dict[int, str] = {}


def watched(plan: dict[str, Any], folders: list[str]) -> tuple[dict[str, Any], dict[int, int]]:
    path = WORK / "plan_watched.json"
    path.write_text(json.dumps(plan))
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "confined_child.py", "watched", str(path), *folders],
        cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    native = ctypes.CDLL(str(WORK / "confine.so"))
    native.confine_supervise.restype = ctypes.c_long
    assert process.stdout is not None
    line = process.stdout.readline().split()
    if line[:1] != ["LISTENER"]:
        return {"error": f"no listener: {line}"}, {}
    listener, until = -1, time.monotonic() + 10
    while listener < 0 and time.monotonic() < until:
        listener = native.confine_listener(process.pid, int(line[1]))
        time.sleep(0.002)
    if listener < 0:
        process.kill()
        return {"error": f"the listener could not be had: {listener}"}, {}
    counts = (ctypes.c_long * 512)()
    guard = threading.Timer(60, process.kill)
    guard.start()
    thread = threading.Thread(target=native.confine_supervise, args=(listener, counts, 512, 30_000), daemon=True)
    thread.start()
    text = process.stdout.read()
    process.wait()
    guard.cancel()
    thread.join(5)
    result: dict[str, Any] = {"error": text[-300:]}
    for answer in reversed(text.splitlines()):
        if answer.startswith("{"):
            result = json.loads(answer)
            break
    return result, {n: count for n, count in enumerate(counts) if count}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    f.__name__: f for f in (launches, relocated, windows, subscriber, timing, contents, confined, modules)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    build()
    about = {**environment(), "commit": options.commit}
    for name in options.parts.split(","):
        result = guarded(PARTS[name])
        path = options.out / f"{name}.json"
        path.write_text(json.dumps({"environment": about, "part": name, "result": result}, indent=1) + "\n")
        print(f"{name}: {result['seconds']} s, {str(result.get('error', 'done'))[:300]}", flush=True)


if __name__ == "__main__":
    main()
