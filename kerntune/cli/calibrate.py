"""``kerntune calibrate``: every stored case of this device compared with itself, in fresh processes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path

from kerntune.base.policy import DEFAULT_TOLERANCE, TIMERS
from kerntune.cli.stored import Pattern, case_argument, folder_argument, given_folder
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.console import complain, fail_with, say
from kerntune.gate.gpu_capture import pairs_for
from kerntune.gate.replay import CALIBRATION_PROCESSES, calibrate
from kerntune.gpu.base import Backend
from kerntune.gpu.probe import compiled_targets, find_backend
from kerntune.timing.paired_processes import paired_work
from kerntune.timing.worker.pool import Pairs

HIDDEN = "its memory holds addresses, so it can't be run outside its test"


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune calibrate`` takes."""
    folder_argument(parser)
    case_argument(parser)
    parser.add_argument(
        "--processes", metavar="N", type=int, default=0, help="fresh processes a case, 2 or more (default: 4)"
    )


def run(args: Namespace) -> int:
    """Write each case's calibration into its baseline, from the stored files alone; the exit code."""
    processes = args.processes or CALIBRATION_PROCESSES
    if processes < 2:
        raise UsageError(f"--processes: {processes} is too few to tell one process from another; give 2 or more")
    store = BaselineStore(given_folder(args.baselines))
    backend = find_backend(compiled_targets((), store.targets()))
    if backend.gpu is None:
        raise UsageError("there is no GPU here, so nothing can be calibrated")
    paths = store.time_files(backend.spec.slug, backend.spec.target.slug)
    if not paths:
        complain(f"{store.folder} has no time baselines of {backend.spec.name}")
    with closing(pairs_for(backend.gpu)) as pairs, backend.gpu.lock():
        found = [_case(store, backend, pairs, p, Pattern(args.case), processes) for p in paths]
    return fail_with([problem for problem in found if problem])


def _case(store: BaselineStore, backend: Backend, pairs: Pairs, path: Path, pattern: Pattern, processes: int) -> str:
    baseline = store.read(path)
    if not isinstance(baseline, TimeBaseline) or not pattern.matches(baseline):
        return ""
    recording = baseline.recording
    if all(0 in x.grid for x in recording.launches):
        return ""
    if recording.hidden_pointers:
        return f"{baseline.case}: {HIDDEN}"
    work = paired_work(recording, recording, recording.storages, store.artifacts(backend.spec.target))
    gpu, timer = backend.gpu, baseline.sample.protocol.timer
    seen_ns = baseline.sample.times_ns if timer in TIMERS else ()  # a whole call's time is not its kernels'
    assert gpu is not None
    try:
        found = calibrate(pairs, work, processes, seen_ns, throttle=lambda: gpu.environment().throttle)
    except KerntuneError as exc:
        return f"{baseline.case}: {exc}"
    store.write(path, baseline.but(calibration=found))
    noisy = f"; too noisy for a tolerance of {DEFAULT_TOLERANCE:.0%}" if found.floor > DEFAULT_TOLERANCE else ""
    told = f"changes from {found.floor:.2%} on can be told, process bias {found.bias:.2%}"
    say(f"{baseline.case}: {told}, medians differ by {found.median_sd:.2%}{noisy}")
    return ""
