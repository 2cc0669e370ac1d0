"""Baselines made by hand, without compiling anything."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import Environment, Target, typical_device
from kerntune.base.recording import Binary, Launch, Param, Recording, Storage, Stored, View, Zeros
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import STATIC_SCHEMA, TIME_SCHEMA, Argument, StaticBaseline, TimeBaseline, fingerprint_of
from kerntune.gate.call import PendingBaseline
from kerntune.gate.static_figures import LaunchStatic
from kerntune.static.metrics import StaticMetrics
from kerntune.timing.timers import Sample, TimingProtocol

CUDA90 = Target("cuda", "90")
H200 = msgspec.structs.replace(typical_device(CUDA90), name="NVIDIA H200")
SOFTMAX = "tests/test_softmax.py::test_softmax[4096]"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def argument(n: int = 4096) -> Argument:
    return Argument("float32", (n,), (1,))


def metrics(registers: int = 32, spilled: int = 0, shared: int = 2048) -> StaticMetrics:
    return StaticMetrics(
        registers=registers,
        spill_store_bytes=spilled,
        spill_load_bytes=spilled,
        stack_bytes=spilled,
        shared_bytes=shared,
        code_bytes=1024,
        threads=128,
        instructions={"fma": 8},
        occupancy=1.0,
        occupancy_limiter="registers",
    )


def launch_static(ttir: bytes, config: Config | None, figures: StaticMetrics) -> LaunchStatic:
    return LaunchStatic("softmax_kernel", "5" * 64, "c" * 64, sha(ttir), (4096, 1, 1), figures, config)


def timed(
    nodeid: str = SOFTMAX,
    call: str = "0",
    *,
    times: tuple[float, ...] = (12_400.0, 12_500.0, 12_300.0),
    config: Config | None = Config({"BLOCK": 1024}, num_warps=8),  # noqa: B008 - frozen
    n: int = 4096,
    figures: StaticMetrics | None = None,
    driver: str = "580.65",
    binary: bytes = b"\x7fELF of softmax",
    timer: str = "graph",
) -> PendingBaseline:
    """A case of one kernel over one tensor and one stored table of indices."""
    ttir, content = b"module { softmax }", bytes(range(16))
    storages = (Storage(4 * n, "float32", Zeros(), written=True), Storage(16, "int32", Stored(sha(content)), read=True))
    views = (View(0, "float32", (n,), (1,)), View(1, "int32", (4,), (1,)))
    params = (Param("x", "*fp32", view=0), Param("i", "*i32", view=1), Param("n", "i32", value=n))
    launch = Launch("softmax_kernel", "5" * 64, 0, (4096, 1, 1), params, reads=(1,), writes=(0,), config=config)
    code = Binary(
        "cubin", "sm_90a", "softmax_kernel", sha(binary), sha(ttir), "c" * 64, "d" * 64, "3.9.0", "12.8", {}, {}, 8
    )
    baseline = TimeBaseline(
        schema=TIME_SCHEMA,
        case=CaseId(nodeid, call),
        fingerprint=fingerprint_of([argument(n)]),
        arguments=(argument(n),),
        device=H200,
        environment=Environment(triton="3.9.0", torch="2.13.0", driver=driver, device=H200.name),
        recorded="2026-01-02T03:04:05Z",
        recording=Recording(CUDA90, (launch,), (code,), storages, views),
        sample=Sample(TimingProtocol(timer, 20, 4), times),
        static=(launch_static(ttir, config, figures or metrics()),),
    )
    return PendingBaseline(baseline, {sha(x): x for x in (binary, ttir, content)}, write=True)


def static(
    nodeid: str = SOFTMAX,
    call: str = "0",
    *,
    config: Config | None = None,
    n: int = 4096,
    figures: StaticMetrics | None = None,
    triton: str = "3.9",
    ttir: bytes = b"module { softmax }",
) -> PendingBaseline:
    """The same case, compiled only."""
    launch = launch_static(ttir, config, figures or metrics())
    arguments = (argument(n),)
    baseline = StaticBaseline(
        STATIC_SCHEMA,
        CaseId(nodeid, call),
        fingerprint_of(arguments),
        arguments,
        CUDA90,
        triton,
        "2026-01-02T03:04:05Z",
        (launch,),
    )
    return PendingBaseline(baseline, {sha(ttir): ttir}, write=True)


def folder(path: Path, *pendings: PendingBaseline) -> BaselineStore:
    """A baseline folder that holds them."""
    store = BaselineStore(path)
    for pending in pendings:
        pending.commit(store)
    return store


def tree(path: Path) -> dict[str, bytes]:
    """Every file under a folder, with its bytes."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
