"""``kerntune doctor``: what kerntune can use on this machine, and what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kerntune
from kerntune.base.urls import READ_ONLY, shown_url
from kerntune.cli.cache import open_cache
from kerntune.errors import UsageError
from kerntune.gate.baselines import BaselineStore, TimeBaseline
from kerntune.gate.calibration import is_current
from kerntune.gate.console import FINDINGS, OK, counted, say
from kerntune.gate.project import baseline_folder
from kerntune.gpu import device_lock
from kerntune.gpu.shared_device import unprotected
from kerntune.kernels import compat
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.shared_store import store_folder, store_url
from kerntune.tuning.cache.store_client import PROBE, StoreClient

LEAST_TRITON = (3, 6)
LEAST_TORCH = (2, 10)
"""What pyproject.toml requires."""

SAMPLE_ARCH = 90
"""The assembler is asked for with this architecture: Triton picks one by it."""


@dataclass(frozen=True)
class Check:
    """One line: what was checked, what was found, and what to do about it (empty: it is in order)."""

    name: str
    found: str
    advice: str = ""


def run(args: argparse.Namespace) -> int:
    """Print every check; 1 if one needs something done."""
    checks = list(examine(args.baselines, args.cache_dir))
    width = max(len(c.name) for c in checks)
    for check in checks:
        say(f"{'!!' if check.advice else 'ok'}  {check.name:<{width}}  {check.found}")
        if check.advice:
            say(f"    {'':<{width}}  -> {check.advice}")
    return FINDINGS if any(c.advice for c in checks) else OK


def examine(baselines: str | None, cache_dir: str | None) -> Iterator[Check]:
    """All checks, in the order in which a run needs them."""
    yield Check("kerntune", f"{kerntune.__version__}, Python {platform.python_version()}")
    yield check_version("Triton", compat.triton_version(), LEAST_TRITON)
    yield check_version("torch", compat.torch_version(), LEAST_TORCH)
    gpu = guarded("GPU", _gpu)
    yield gpu
    yield guarded("ptxas", _ptxas)
    yield guarded("nvdisasm", _nvdisasm)
    yield guarded("lock", _lock)
    yield guarded("cache", lambda: _cache(cache_dir))
    if os.environ.get("KERNTUNE_STORE"):
        yield guarded("store", lambda: check_store(cache_dir))
    yield guarded("baselines", lambda: check_baselines(baselines, gpu=not gpu.found.startswith("none")))


def check_version(name: str, found: str, least: tuple[int, int]) -> Check:
    """Whether a package is there and new enough."""
    wanted = ".".join(map(str, least))
    if not found:
        return Check(name, "not installed", f"install {name.lower()}>={wanted}")
    match = re.match(r"(\d+)\.(\d+)", found)
    if match and (int(match[1]), int(match[2])) < least:
        return Check(name, found, f"kerntune needs {name.lower()}>={wanted}")
    return Check(name, found)


def check_baselines(given: str | None, gpu: bool) -> Check:
    """The targets that the folder has: without a GPU, a run compiles for these."""
    folder = baseline_folder(given, Path.cwd())
    store = BaselineStore(folder)
    targets = ", ".join(map(str, store.targets()))
    if not targets and not gpu:
        advice = "without a GPU a run must be told what to compile for: pytest --kerntune --kerntune-target=cuda:90"
        return Check("baselines", f"{folder}: none", advice)
    files = counted(len(store.time_files()) + len(store.static_files()), "baseline")
    return Check("baselines", f"{folder}: {files}" + (f" for {targets}" if targets else "") + _calibrations(store))


def _calibrations(store: BaselineStore) -> str:
    """How many time baselines are calibrated by an earlier rule, and what to do; empty where none is."""
    found = [b.calibration for _, b in store.summaries() if isinstance(b, TimeBaseline) and b.calibration is not None]
    earlier = sum(not is_current(c) for c in found)
    return f"; {earlier} calibrated by an earlier rule, `kerntune calibrate` on its GPU does it anew" if earlier else ""


def guarded(name: str, look: Callable[[], Check]) -> Check:
    """The check, or why it failed. The other checks are made in any case."""
    try:
        return look()
    except UsageError as exc:  # a setting that can't be
        return Check(name, "can't be used as it is set", str(exc))
    except Exception as exc:
        return Check(name, f"{type(exc).__name__} when looking", str(exc) or "see the error's name")


def _gpu() -> Check:
    from kerntune.gpu.probe import has_cuda

    if has_cuda():
        from kerntune.gpu.cuda import CudaGpu

        gpu = CudaGpu()
        found = f"{gpu.spec.name} ({gpu.spec.target}), driver {gpu.environment().driver or 'unknown'}"
        return Check("GPU", found, "; ".join(unprotected(gpu.spec.uuid)))
    driver = _driver()
    if driver:
        advice = (
            f"there is an NVIDIA driver ({driver}), but torch {compat.torch_version()} sees no GPU: install a torch "
        )
        return Check("GPU", "none that torch sees", advice + "with CUDA, or look at CUDA_VISIBLE_DEVICES")
    return Check("GPU", "none: kernels are compiled and their static figures compared, nothing is timed")


def _driver() -> str:
    """The version of NVIDIA's driver; empty without one."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return ""


def _ptxas() -> Check:
    return Check("ptxas", f"{compat.assembler_version('cuda', SAMPLE_ARCH)} (Triton's for sm_{SAMPLE_ARCH})")


def _nvdisasm() -> Check:
    from kerntune.static.disassembly import find_tool

    return Check("nvdisasm", str(find_tool("nvdisasm")))


def _lock() -> Check:
    """Whether locks of devices can be taken; nothing waits here."""
    held = device_lock.held_by_others()
    return Check("lock", f"{device_lock.folder()}" + (f", now measuring: {', '.join(held)}" if held else ""))


def _cache(given: str | None) -> Check:
    cache = open_cache(given)
    cache.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache.folder):
        pass
    return Check("cache", f"{cache.folder}: {counted(len(cache.entries()), 'winner')}")


def check_store(given: str | None) -> Check:
    """Whether the store of ``KERNTUNE_STORE`` answers, and how much of it this machine has."""
    url = store_url()
    mirror = WinnerCache(store_folder(open_cache(given).folder, url))
    found = f"{shown_url(url)}: {counted(len(mirror.entries()), 'winner')} of it here"
    client, failures = StoreClient(url), list[str]()
    client.report = failures.append
    begin = time.perf_counter()
    reply = client.ask(PROBE)
    seconds = time.perf_counter() - begin
    client.close()
    if reply is None:
        return Check("store", found, "; ".join(failures))
    written = "read only, `kerntune cache push` writes" if url.partition("://")[0] in READ_ONLY else "first writer wins"
    return Check("store", f"{found}, {written}; answered within {seconds:.1f} s of its process's start")
