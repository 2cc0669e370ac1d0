"""Six experiments on a GPU and two questions of judging; see README.md beside this file.

    python benchmarks/experiments/run.py OUT_FOLDER [--parts relocated,launches,...] [--seconds 600] [--commit HASH]

All parts write into ``OUT_FOLDER/results.json`` as they go, so a run that is ended leaves what it has. Children are
processes with a time limit; what goes wrong in one is its result. Recordings are made first, side by side; then replays
and what only counts; timing comes last, when nothing else runs.
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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import DEADLINE, HERE, RESERVED, WORK, build, child, environment, guarded

LIGER = "RMSNorm LayerNorm SiLUMul GELUMul Softmax CrossEntropy KLDivLoss JSD TVDLoss GroupNorm DyT Rope"
GROUPS = {
    "addresses": [
        "decode", "cublas_gemm", "cublas_gemm_split", "grouped_by_pointers", "foreach_add", "attention",
        "grouped_mm", "nvrtc",
    ],
    "tma": ["cuda_tma", "cute_tma"],
    "contents": [*(f"liger_{name}" for name in LIGER.split()), "planted_cache", "planted_branch"],
    "timed": ["timed_5", "timed_10", "timed_50"],
}  # fmt: skip
"""Names of ``cases.py`` that are recorded in one process, one after the other."""
PAIRS = 50
RECORD_SECONDS = 100


class Results:
    """Results by part and name, on disk after each."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about, self.parts = path, about, {}  # type: ignore[var-annotated]
        self.lock, self.begin = threading.Lock(), time.monotonic()

    def note(self, part: str, name: str, value: Any) -> Any:
        with self.lock:
            self.parts.setdefault(part, {})[name] = value
            self.about["seconds"] = round(time.monotonic() - self.begin, 1)
            text = json.dumps({"environment": self.about, **self.parts}, indent=1) + "\n"
            self.path.write_text(text, encoding="utf-8")
        return value


class Experiments:
    def __init__(self, results: Results) -> None:
        self.results, self.pool = results, ThreadPoolExecutor(64)
        self.recordings: dict[str, Future[Any]] = {}
        self.lock = threading.Lock()

    def recorded(self, group: str) -> dict[str, list[Path]]:
        """Folders of a group's cases at two windows; the group is recorded once, by two processes side by side."""
        with self.lock:
            if group not in self.recordings:
                there = all((WORK / "cases" / n / k / "case.json").exists() for n in GROUPS[group] for k in "12")
                self.recordings[group] = self.pool.submit(int if there else lambda: self._record(group))
        self.recordings[group].result()
        root = WORK / "cases"
        return {name: [root / name / str(number) for number in (1, 2)] for name in GROUPS[group]}

    def _record(self, group: str) -> None:
        def one(number: int) -> None:
            code = WORK / f"code_{group}_{number}"
            code.mkdir(parents=True, exist_ok=True)
            more = ["--other"] if group == "contents" else []
            arguments = ["record_case.py", str(number), str(WORK / "cases"), ",".join(GROUPS[group]), *more]
            lines = WORK / f"lines_{group}_{number}"
            found = child(arguments, RECORD_SECONDS, {"RECORDER_CODE": str(code)}, lines)
            self.results.note("recordings", f"{group} {number}", found)

        list(self.pool.map(one, (1, 2)))

    def each(self, part: str, names: dict[str, list[Path]], mode: str) -> None:
        def one(name: str) -> None:
            folders = names[name]
            found = guarded(child, ["replay.py", mode, *map(str, folders)], 40)
            path = folders[0] / "case.json"
            if path.exists():
                found["error_of_call"] = json.loads(path.read_text()).get("error_of_call")
            self.results.note(part, name, found)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, names))

    def relocated(self) -> None:
        """Question 4."""
        threads = [
            self.pool.submit(lambda g=g: self.each("relocated", self.recorded(g), "same")) for g in ("addresses", "tma")
        ]
        for thread in threads:
            thread.result()

    def contents(self) -> None:
        """Judging 2."""
        self.each("contents", self.recorded("contents"), "contents")

    def launches(self) -> None:
        """Question 2."""
        found = child(["launches_child.py"], 170, recorder=WORK / "launches.jsonl")
        self.results.note("launches", "all", found)

    def modules(self) -> None:
        """Question 6."""
        (WORK / "modules").mkdir(exist_ok=True)
        found = child(["modules_child.py"], 120, {"RECORDER_CODE": str(WORK / "modules")}, WORK / "modules.jsonl")
        self.results.note("modules", "all", found)

    def windows(self) -> None:
        """Question 3: pairs of a recorder and a worker; many bases once, in one of each."""
        size = str(RESERVED)

        def probe(kind: str) -> None:
            bases = [hex(1 << n) for n in range(32, 48)] + ["0x550000000000", "0x700000000000", "0x7f0000000000"]
            found = child(["windows_child.py", kind, bases[0], size, *bases[1:]], 40)
            self.results.note("windows", f"probe {kind}", found)

        def pair(number: int) -> None:
            asked = hex(random.Random(number).randrange(0x200, 0x700) << 36)  # 32 to 112 TiB in steps of 64 GiB
            kinds = ("recorder", "worker")
            both = list(self.pool.map(lambda k: child(["windows_child.py", k, asked, size], 40), kinds))
            rows = [b["rows"][0] if "rows" in b else b for b in both]
            got = all(r.get("code") == 0 and r.get("mapped") == 0 for r in rows)
            self.results.note(
                "windows", f"pair {number}", {"asked": asked, "both": got, **({} if got else {"rows": rows})}
            )

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(probe, ("recorder", "worker")))
            list(pool.map(pair, range(PAIRS)))

    def subscriber(self) -> None:
        """Question 1."""
        self.wait_for_recordings()
        source = WORK / "nothing.cu"
        source.write_text('extern "C" __global__ void nothing() {}\n')
        command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(WORK / "nothing.cubin"), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        plans = ["before", "between", "control", "held", "finalized", *["before", "between", "control"] * 2]

        for number, plan in enumerate(plans):  # one at a time: launches are timed
            self.results.note("subscriber", f"{plan} {number}", child(["subscriber_child.py", plan], 40))

    def wait_for_recordings(self) -> None:
        for future in list(self.recordings.values()):
            future.result()

    def timing(self) -> None:
        """Question 5."""
        for name, folders in self.recorded("timed").items():
            self.results.note("timing", name, child(["timing_child.py", *map(str, folders)], 60))

    def confined(self) -> None:
        """Judging 1: free, watched for its system calls, under Landlock, under Landlock and seccomp."""
        folders = [str(f) for f in self.recorded("addresses")["decode"]]
        note = lambda name, value: self.results.note("confined", name, value)  # noqa: E731
        outside = WORK / "outside"
        outside.write_text("not for the worker")
        devices = sorted(str(p) for p in Path("/dev").glob("nvidia*"))
        own = [f"{n}.so" for n in ("window", "confine")] + [f"{k}_addresses_{i}" for k in ("code",) for i in (1, 2)]
        own += [p.name for p in WORK.glob("lines_addresses_*")]
        system = ["/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/opt", str(HERE), *(str(WORK / n) for n in own)]
        narrow = {"read_only": system + folders, "read_write": [*devices, "/dev/null", "/dev/zero", "/dev/urandom"]}
        levels = {
            "devices": narrow,
            "devices_proc_shm": {**narrow, "read_write": [*narrow["read_write"], "/dev/shm", "/proc"]},
            "all_dev": {**narrow, "read_write": ["/dev", "/proc"]},
        }
        note("devices", devices)
        note("abi", ctypes.CDLL(str(WORK / "confine.so")).confine_abi())

        def run(mode: str, plan: dict[str, Any]) -> dict[str, Any]:
            path = WORK / f"plan_{mode}.json"
            path.write_text(json.dumps({"outside": str(outside), "calls": [], **plan}))
            return child(["confined_child.py", mode, str(path), *folders], 20)

        note("free", [run("free", narrow) for _ in range(3)])
        plan = None
        for name, level in levels.items():
            tried = note(f"landlock {name}", run("landlock", level))
            if tried.get("outputs_equal"):
                plan = level
                break
        found, seen = watched(narrow | {"outside": str(outside), "calls": []}, folders)
        note("watched", found)
        note("calls", {named_call(n): count for n, count in sorted(seen.items(), key=lambda i: -i[1])})
        plan, allowed = plan or narrow, sorted(seen)
        note("both", [run("both", plan | {"calls": allowed}) for _ in range(3)])
        risky = {n for n in allowed if named_call(n) in RISKY}
        needed = [n for n in allowed if n not in risky]
        tried = run("both", plan | {"calls": needed})
        note("without_risky", {"denied": [named_call(n) for n in risky], **tried})


PARTS = ("relocated", "launches", "contents", "confined", "modules", "windows", "subscriber", "timing")

RISKY = {
    "socket", "connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg", "recvmsg", "execve", "execveat",
    "fork", "vfork", "ptrace", "kill", "tkill", "mount", "setuid", "socketpair", "process_vm_readv", "bpf", "unshare",
}  # fmt: skip


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    DEADLINE[0] = time.monotonic() + options.seconds
    results = Results(options.out / "results.json", {"commit": options.commit})
    build()
    results.about.update(environment())
    experiments, parts = Experiments(results), options.parts.split(",")

    def one(part: str) -> None:
        found = guarded(getattr(experiments, part))
        results.note("parts", part, found)
        print(part, {k: v for k, v in found.items() if k != "result"}, flush=True)

    needs = {
        "relocated": ("addresses", "tma"),
        "contents": ("contents",),
        "confined": ("addresses",),
        "timing": ("timed",),
    }
    for part in parts:
        for group in needs.get(part, ()):
            threading.Thread(target=experiments.recorded, args=(group,), daemon=True).start()
    time.sleep(0.2)
    threads = [threading.Thread(target=one, args=(p,), daemon=True) for p in parts if p != "timing"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.1, DEADLINE[0] + 3 - time.monotonic()))
    if "timing" in parts:
        last = threading.Thread(target=one, args=("timing",), daemon=True)
        last.start()
        last.join(max(0.1, DEADLINE[0] + 3 - time.monotonic()))
    sys.stdout.flush()
    os._exit(0)  # nothing is waited for: a process that can't be ended must not hold this one


if __name__ == "__main__":
    main()
