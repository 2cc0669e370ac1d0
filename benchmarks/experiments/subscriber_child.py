"""Question 1, one process: a subscriber to CUPTI's callbacks comes and goes, before, between or during torch profiles.

python subscriber_child.py control|before|between|held|finalized
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from common import WORK, answer, library

LAUNCHES = 20_000


def cupti_file() -> str:
    """The file that torch has loaded: a second copy of the library would be a second instance."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcupti" in line:
            return line.split()[-1]
    raise RuntimeError("torch has loaded no libcupti")


def gpu_events(x: torch.Tensor) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(10):
            x.add_(1.0)
        torch.cuda.synchronize()
    return sum(
        1 for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA and "elementwise" in e.name
    )


def main() -> None:
    scenario = sys.argv[1]
    native, driver = library("subscriber"), ctypes.CDLL("libcuda.so.1")
    native.launch_ns.restype = ctypes.c_double
    x = torch.zeros(1024, device="cuda")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = (WORK / "nothing.cubin").read_bytes()
    for code in (
        driver.cuModuleLoadData(ctypes.byref(module), image),
        driver.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"),
    ):
        if code:
            raise RuntimeError(f"the driver gave {code}")
    result: dict[str, Any] = {"scenario": scenario, "cupti": cupti_file()}
    steps: list[Any] = []
    result["steps"] = steps

    def launches() -> None:
        times = sorted(native.launch_ns(function, ctypes.c_long(LAUNCHES // 10)) for _ in range(10))
        steps.append({"launch_ns": round((times[4] + times[5]) / 2, 1)})

    def profile() -> None:
        steps.append({"gpu_events": gpu_events(x)})

    def subscribe() -> None:
        code = native.subscribe(result["cupti"].encode(), 1, 1)
        native.launch_ns(function, ctypes.c_long(500))
        native.callbacks.restype = ctypes.c_long
        steps.append({"subscribed": code, "callbacks": native.callbacks()})

    def let_go(finalize: int = 0) -> None:
        steps.append({"let_go": native.let_go(finalize)})

    native.launch_ns(function, ctypes.c_long(LAUNCHES))
    launches()
    plans = {
        "control": [launches, profile, launches, launches, profile, launches],
        "before": [subscribe, let_go, launches, profile, launches],
        "between": [profile, launches, subscribe, let_go, launches, profile, launches],
        "held": [subscribe, profile, let_go, profile, launches],
        "finalized": [subscribe, lambda: let_go(1), launches, profile, launches],
    }
    for step in plans[scenario]:
        try:
            step()
        except Exception as error:
            steps.append({"error": f"{type(error).__name__}: {error}"})
    answer(result)


warnings.simplefilter("ignore")
main()
