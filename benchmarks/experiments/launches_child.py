"""Question 2, one process under the recorder: are its launches those that torch's profiler counts?

LD_PRELOAD=recorder.so RECORDER_OUT=FILE python launches_child.py
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from cases import CASES
from common import answer, library

NAMES = (
    "modules", "launches", "captured", "graph_launches", "graph_kernels", "allocations", "memory_operations",
    "without_parameters", "without_code", "without_name", "graphs", "unknown_graphs", "kernel_handles",
)  # fmt: skip
FROM_CASES = ("nvrtc", "grouped_by_pointers", "decode", "cuda_tma", "cute_tma", "liger_RMSNorm")


def counted(recorder: ctypes.CDLL) -> dict[str, int]:
    raw = (ctypes.c_uint64 * 16)()
    recorder.recorder_counts(raw)
    return dict(zip(NAMES, raw, strict=False))


def profiled(call: Callable[[], Any]) -> Counter[str]:
    """Names of the kernels that the profiler has seen, with their numbers."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA, kinds.CPU]) as profile:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return Counter(e["name"] for e in events if e.get("cat") == "kernel")


def workloads() -> dict[str, Callable[[], Callable[[], Any]]]:
    def backward() -> Callable[[], Any]:
        layer = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda()
        x = torch.randn(128, 256, device="cuda")
        return lambda: layer(x).square().sum().backward()

    def conv() -> Callable[[], Any]:
        x, w = (torch.randn(*s, device="cuda", dtype=torch.float16) for s in ((4, 32, 64, 64), (64, 32, 3, 3)))
        return lambda: F.conv2d(x, w, padding=1)

    def mixed() -> Callable[[], Any]:
        x = torch.randn(100_000, device="cuda")
        return lambda: (x.sort(), x.topk(10), x.cumsum(0), x.sum(), torch.fft.rfft(x))

    def graph() -> Callable[[], Any]:
        return GRAPH.replay

    def side_thread() -> Callable[[], Any]:
        import threading

        x, stream = torch.randn(4096, device="cuda"), torch.cuda.Stream()

        def work() -> None:
            with torch.cuda.stream(stream):
                x.exp().sum()

        def run() -> None:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        return run

    def inductor() -> Callable[[], Any]:
        def body(x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x * 2 + 1, -1)

        compiled, x = torch.compile(body), torch.randn(256, 1024, device="cuda")
        return lambda: compiled(x)

    def of_case(name: str) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            case = CASES[name]()
            return case.prepare({k: v.cuda() for k, v in case.inputs().items()})

        return make

    def simple(
        function: Callable[[torch.Tensor, torch.Tensor], Any], dtype: torch.dtype
    ) -> Callable[[], Callable[[], Any]]:
        def make() -> Callable[[], Any]:
            a, b = (torch.randn(512, 512, device="cuda", dtype=dtype) for _ in range(2))
            return lambda: function(a, b)

        return make

    def attention() -> Callable[[], Any]:
        q = torch.randn(2, 4, 256, 64, device="cuda", dtype=torch.bfloat16)
        return lambda: F.scaled_dot_product_attention(q, q, q)

    plain = {
        "graph_made_before": graph, "elementwise": simple(lambda a, b: a * b + 1, torch.float32),
        "cublas_bf16": simple(torch.mm, torch.bfloat16), "cublas_fp32": simple(torch.mm, torch.float32),
        "attention": attention, "backward_on_other_thread": backward, "other_thread_and_stream": side_thread,
        "cudnn_convolution": conv, "sort_scan_fft": mixed, "inductor": inductor,
    }  # fmt: skip
    return {**plain, **{name: of_case(name) for name in FROM_CASES}}


def made_graph() -> torch.cuda.CUDAGraph:
    a = torch.randn(256, 256, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (a @ a).relu().sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (a @ a).relu().sum()
    return graph


def demangled(names: Counter[str]) -> Counter[str]:
    text = "\n".join(names)
    try:
        done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        readable = done.stdout.splitlines()
    except OSError:
        readable = [torch._C._demangle(n) if hasattr(torch._C, "_demangle") else n for n in names]
    found: Counter[str] = Counter()
    for name, n in zip(readable, names.values(), strict=True):
        found[name] += n
    return found


warnings.simplefilter("ignore")
recorder = library("recorder")
recorder.recorder_level(1)
GRAPH = made_graph()


def main() -> None:
    rows = {}
    for name, make in workloads().items():
        try:
            call = make()
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            recorder.recorder_mark(f"begin {name}".encode())
            before = counted(recorder)
            seen = profiled(call)
            after = counted(recorder)
            recorder.recorder_mark(f"end {name}".encode())
            delta = {k: after[k] - before[k] for k in NAMES}
            mine = delta["launches"] + delta["graph_kernels"]
            rows[name] = {
                "recorder": mine, "profiler": sum(seen.values()), "equal": mine == sum(seen.values()),
                "captured": delta["captured"], "without_parameters": delta["without_parameters"],
                "without_code": delta["without_code"], "profiler_names": dict(seen),
            }  # fmt: skip
        except Exception as error:
            rows[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    totals = counted(recorder)
    recorder.recorder_mark(b"over")
    path = Path(f"{os.environ['RECORDER_OUT']}.{os.getpid()}")
    seen_names: dict[str, Counter[str]] = {}
    section, modules = None, Counter()
    graphs: dict[int, Counter[str]] = {}
    nodes: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    with path.open(errors="replace") as lines:
        for raw in lines:
            line = json.loads(raw)
            what = line["what"]
            if what == "mark":
                section = line["text"].removeprefix("begin ") if line["text"].startswith("begin ") else None
            elif what == "module":
                modules[f"{line['by']} {line['kind']}"] += 1
            elif what == "node":
                nodes[line["name"]] += 1
            elif what == "graph":
                graphs[line["exec"]], nodes = nodes, Counter()
            if what == "launch" and (line["code"] < 0 or not line["known"]):
                missing[f"code {line['code'] >= 0}, parameters {line['known']}: {(line['name'] or '?')[:70]}"] += 1
            if section and what == "launch" and not line["captured"]:
                seen_names.setdefault(section, Counter())[line["name"]] += 1
            if section and what == "graph_launch":
                seen_names.setdefault(section, Counter()).update(graphs.get(line["exec"], Counter()))
    for name, row in rows.items():
        if "error" in row:
            continue
        mine, theirs = demangled(seen_names.get(name, Counter())), Counter(row.pop("profiler_names"))
        tight = [Counter({k.replace(" ", ""): n for k, n in c.items()}) for c in (mine, theirs)]
        row["names_equal"] = tight[0] == tight[1]
        if not row["names_equal"]:
            row["only_recorder"] = [f"{n} {k[:90]}" for k, n in list((tight[0] - tight[1]).items())[:4]]
            row["only_profiler"] = [f"{n} {k[:90]}" for k, n in list((tight[1] - tight[0]).items())[:4]]
    answer({"workloads": rows, "totals": totals, "modules": dict(modules), "missing": dict(missing.most_common(12))})


main()
