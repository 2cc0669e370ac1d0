"""``kerntune doctor``: what kerntune can use on this machine, and what is missing."""

from __future__ import annotations

import os
import platform
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import kerntune
from kerntune.base.folders import why_unwritable
from kerntune.base.url_files import READ_ONLY, local_folder, shown_url
from kerntune.cli.cache import cache_dir_argument, open_cache
from kerntune.cli.stored import folder_argument
from kerntune.errors import StoreError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.console import FINDINGS, OK, counted, say, say_json
from kerntune.gate.project import baseline_folder, find_project
from kerntune.gate.replay import is_current
from kerntune.gpu import device_lock
from kerntune.gpu.host_gpus import by_nvml, unprotected
from kerntune.kernels.compat import versions
from kerntune.static.disassembly import find_tool
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.shared_store import store_folder
from kerntune.tuning.cache.store_client import PROBE, StoreClient, store_url
from kerntune.tuning.tune_options import VARIABLES, check_variables, unknown_variables

SAMPLE_ARCH = 90
"""The assembler is asked for with this architecture: Triton picks one by it."""


@dataclass(frozen=True)
class Check:
    """One line: what was checked, what was found, and what to do about it (empty: it is in order)."""

    name: str
    found: str
    advice: str = ""


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune doctor`` takes."""
    folder_argument(parser)
    cache_dir_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    """Print every check; 1 if one needs something done."""
    checks = list(examine(args.baselines, args.cache_dir))
    width = max(len(c.name) for c in checks)
    if args.json:
        say_json(checks)
    for check in () if args.json else checks:
        say(f"{'!!' if check.advice else 'ok'}  {check.name:<{width}}  {check.found}")
        if check.advice:
            say(f"    {'':<{width}}  -> {check.advice}")
    return FINDINGS if any(c.advice for c in checks) else OK


def examine(baselines: str | None, cache_dir: str | None) -> Iterator[Check]:
    """All checks, in the order in which a run needs them."""
    yield Check("kerntune", kerntune.__version__)
    yield check_version("Python", platform.python_version(), versions.PYTHON_RUN)
    yield check_version("Triton", versions.triton_version(), versions.TRITON_RUN)
    yield check_version("torch", versions.torch_version(), versions.TORCH_RUN)
    gpu = guarded("GPU", _gpu)
    yield gpu
    assembler = f"(Triton's for sm_{SAMPLE_ARCH})"
    yield guarded("ptxas", lambda: Check("ptxas", f"{versions.assembler_version('cuda', SAMPLE_ARCH)} {assembler}"))
    yield guarded("nvdisasm", lambda: Check("nvdisasm", str(find_tool("nvdisasm"))))
    yield guarded("lock", _lock)
    yield check_settings()
    yield guarded("cache", lambda: _cache(cache_dir))
    if os.environ.get("KERNTUNE_STORE"):
        yield guarded("store", lambda: check_store(cache_dir))
    yield guarded("baselines", lambda: check_baselines(baselines, gpu=not gpu.found.startswith("none")))


def check_settings() -> Check:
    """Whether each variable that kerntune reads is what it can be, and none is written that nothing reads."""
    try:
        check_variables()
    except UsageError as exc:
        return Check("variables", "one can't be what it is", str(exc))
    count = sum(bool(os.environ.get(name)) for name in VARIABLES)
    return Check("variables", f"{counted(count, 'KERNTUNE_ variable')} set", "; ".join(unknown_variables()))


def check_version(name: str, found: str, run: Sequence[str]) -> Check:
    """Whether a package is there, and of a series that kerntune was ``run`` with, oldest first."""
    package, oldest, newest = name.lower(), run[0], run[-1]
    if not found:
        return Check(name, "not installed", f"install {package}>={oldest}")
    series, least = versions.as_series(found), versions.as_series(oldest)
    if series and least and series < least:
        return Check(name, found, f"kerntune needs {package}>={oldest}")
    newer = versions.newer_than_run(name, found, run)
    return Check(name, found, newer and f"{newer}: where something fails, take {package} {newest}")


def check_baselines(given: str | None, gpu: bool) -> Check:
    """The targets that the folder has: without a GPU, a run compiles for these."""
    folder = baseline_folder(given, Path.cwd())
    store = BaselineStore(folder)
    targets = ", ".join(map(str, store.targets()))
    if not targets and not gpu:
        advice = "without a GPU a run must be told what to compile for: pytest --kerntune --kerntune-target=cuda:90"
        return Check("baselines", f"{folder}: none", advice)
    kept = [b for _, b in store.summaries()]
    unread = [str(b) for b in kept if isinstance(b, StoreError)]
    files = f"{folder}: {counted(len(kept), 'baseline')}" + (f" for {targets}" if targets else "")
    others = f", and {len(unread) - 1} more can't be read" if len(unread) > 1 else ""
    found = [b.calibration for b in kept if isinstance(b, TimeBaseline) and b.calibration]
    if earlier := sum(not is_current(c) for c in found):
        files += f"; {earlier} calibrated by an earlier rule, `kerntune calibrate` on its GPU does it anew"
    return Check("baselines", files, unread[0] + others if unread else "")


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
    if driver := by_nvml(lambda nvml: nvml.nvmlSystemGetDriverVersion()):
        advice = (
            f"there is an NVIDIA driver ({driver}), but torch {versions.torch_version()} sees no GPU: install a torch "
        )
        return Check("GPU", "none that torch sees", advice + "with CUDA, or look at CUDA_VISIBLE_DEVICES")
    return Check("GPU", "none: kernels are compiled and their static figures compared, nothing is timed")


def _lock() -> Check:
    """Whether locks of devices can be taken; nothing waits here."""
    held = device_lock.held_by_others()
    return Check("lock", f"{device_lock.folder()}" + (f", now measuring: {', '.join(held)}" if held else ""))


def _cache(given: str | None) -> Check:
    folder = open_cache(given).folder
    if why := why_unwritable(folder):
        named = find_project(Path.cwd()).folder("kerntune_cache_dir")
        setting = "the ini key kerntune_cache_dir" if named else "KERNTUNE_CACHE_DIR"
        setting = setting if given is None else "--cache-dir"
        advice = f"nothing can be kept there ({why}); name a folder that can be written by {setting}"
        return Check("cache", f"{folder}: can't be written", advice)
    return Check("cache", f"{folder}: {counted(len(WinnerCache(folder).entries()), 'winner')}")


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
    answered = f"answered within {seconds:.1f} s of its process's start"
    if url.partition("://")[0] in READ_ONLY:
        return Check("store", f"{found}, read only, `kerntune cache push` writes; {answered}")
    if (folder := local_folder(url)) is None:
        return Check("store", f"{found}, first writer wins; {answered}; writing was not tried")
    if why := why_unwritable(folder):
        advice = f"no winner can be shared there ({why}); let KERNTUNE_STORE name a folder that can be written"
        return Check("store", f"{found}, can't be written", advice)
    return Check("store", f"{found}, first writer wins; {answered}, and can be written")
