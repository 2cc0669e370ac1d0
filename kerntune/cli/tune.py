"""``kerntune shapes`` and ``kerntune tune``: the calls that programs make of tuned kernels, and all their keys tuned.

A program or tests note their calls in files. The keys of the noted calls are tuned later, many at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.base.folders import scratch_folder
from kerntune.base.orphans import run_to_end
from kerntune.base.strict import StrictStruct
from kerntune.base.tuning_job import TuningJob
from kerntune.cli.cache import cache_dir_argument, open_cache
from kerntune.cli.command import INTERRUPTED
from kerntune.cli.static_record import RAN
from kerntune.errors import UsageError
from kerntune.gate.console import CONFIG_WIDTH, FINDINGS, OK, columns, complain, counted, fail_with, say, say_found
from kerntune.gate.git import own_environment
from kerntune.gate.project import plugin_args
from kerntune.gpu.host_gpus import by_nvml
from kerntune.tuning.many.gpu_pools import chosen_gpus
from kerntune.tuning.many.shapes_file import SHAPES, ShapesFile

if TYPE_CHECKING:
    from kerntune.tuning.many.job_run import KeyOutcome

STARTUP = Path(__file__).resolve().parents[2] / "kerntune" / "tuning" / "many" / "startup"
"""What a program's Python imports first, so that ``triton.autotune`` is noted as well."""

PLUGIN = "pytest_kerntune.noted_calls"

DEFAULT_TARGET = "cuda:90"
"""What calls are noted for on a machine without a GPU (H100, H200); heuristics' proposals depend on it."""


def record_shapes_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune shapes record`` takes."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="shapes.jsonl", help="file to add them to (default: shapes.jsonl)"
    )
    parser.add_argument("command", metavar="COMMAND", nargs=REMAINDER, help="after --, as `-- python train.py`")


def record_shapes(args: Namespace) -> int:
    """Run a command whose processes note calls and tune nothing; its own exit code, or 1 if it noted nothing."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("give the command to run: kerntune shapes record -- python train.py")
    file = ShapesFile(Path(os.path.abspath(args.output)))
    before = len(file.read()[0]) if file.path.exists() else 0
    try:
        code = subprocess.call(command, env=noting_environment(file.path))
    except OSError as exc:
        raise UsageError(f"{command[0]}: can't be run ({exc.strerror})") from exc
    return _report(file, before, code)


def noting_environment(file: Path, first: Sequence[str] = (str(STARTUP),)) -> dict[str, str]:
    """An environment in which every Python process notes calls in ``file``, and looks for modules in ``first``."""
    ours = own_environment()
    return {**ours, SHAPES: str(file), "PYTHONPATH": os.pathsep.join([*first, ours["PYTHONPATH"]])}


def _report(file: ShapesFile, before: int, code: int) -> int:
    jobs, damaged = file.read() if file.path.exists() else ([], [])
    findings = list(damaged)
    if not jobs:
        findings.append(
            "no call of a tuned kernel was noted: does the command launch any, in a Python that has kerntune, and not "
            "with -I or -S?"
        )
    kernels = len({job.name for job in jobs})
    say(f"{file.path}: {counted(len(jobs), 'call')} of {counted(kernels, 'kernel')}, {len(jobs) - before} of them new")
    if jobs:
        say(f"tune them with: kerntune tune --shapes {file.path}")
    return code or fail_with(findings)


class NotedKernel(StrictStruct, frozen=True):
    """A kernel whose calls were noted, as ``tune --list --json`` prints it."""

    kernel: str
    keys: int
    first_key: str
    file: str


def rows_of(jobs: Sequence[TuningJob]) -> list[NotedKernel]:
    """A row a kernel, by its name."""
    counts = Counter(job.name for job in jobs)
    first = {job.name: job for job in reversed(jobs)}
    return [NotedKernel(name, count, first[name].key, first[name].file) for name, count in sorted(counts.items())]


def table(jobs: Sequence[TuningJob]) -> str:
    """A row a kernel: how many keys, and the first of them."""
    rows = [msgspec.structs.astuple(row) for row in rows_of(jobs)]
    return columns(rows, ("kernel", "keys", "first key", "file"), [None, None, CONFIG_WIDTH, None])


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune tune`` takes."""
    parser.add_argument("tests", metavar="TESTS", nargs="*", help="files, folders or node ids, whose calls are tuned")
    parser.add_argument(
        "--shapes", metavar="FILE", action="append", default=[], help="calls that `kerntune shapes record` noted"
    )
    parser.add_argument(
        "--gpus", metavar="0,1", type=lambda text: text.split(","), help="this host's GPUs to tune on (default: all)"
    )
    parser.add_argument("--dask", metavar="HOST:PORT", help="tune on the workers of this Dask scheduler instead")
    parser.add_argument(
        "--module", metavar="NAME", action="append", default=[], help="import kernels from this module or package only"
    )
    parser.add_argument(
        "--path", metavar="DIR", action="append", default=[], help="where Python looks for modules first"
    )
    parser.add_argument("--target", metavar="TARGET", help="what tests' calls are noted for (default: this GPU's)")
    parser.add_argument("--run", action="store_true", help="run the tests on the GPU to note their calls, untuned")
    parser.add_argument("--force", action="store_true", help="tune keys that have a stored winner, too")
    parser.add_argument("--list", action="store_true", help="only say which keys would be tuned, and which can't be")
    parser.add_argument("--json", action="store_true", help="print JSON (with --list)")
    cache_dir_argument(parser)


def run(args: Namespace) -> int:
    """Tune; 0 if every key has a winner, 1 if not, 130 after Ctrl-C."""
    os.environ["KERNTUNE_CACHE_DIR"] = str(open_cache(args.cache_dir).folder)  # the processes' too
    os.environ.pop(SHAPES, None)
    if not args.list and not args.dask:
        chosen_gpus(args.gpus)  # before tests run for their calls
    paths = tuple(os.path.abspath(path) for path in [*args.path, Path.cwd()])
    jobs, folders = _jobs(args, paths)
    paths = tuple(dict.fromkeys([*paths, *folders]))
    if args.list:
        say_found(rows_of(jobs), args.json, lambda: table(jobs))
        return fail_with([f"{job}: {job.unknown}" for job in jobs if job.unknown])
    if not jobs:
        raise UsageError("there is nothing to tune: no call of a tuned kernel was found")
    from kerntune.tuning.many import tune_many  # Triton with it

    say(f"importing {', '.join(sorted({job.module for job in jobs}))}")
    outcomes: list[KeyOutcome] = []
    try:
        with _executor(args) as executor:
            tune_many.tune_many(
                jobs, executor=executor, gpus=args.gpus, modules=args.module, paths=paths, force=args.force,
                tell=outcomes.append,
            )  # fmt: skip
    except KeyboardInterrupt:
        complain(f"interrupted; the same command does the other {counted(len(jobs) - len(outcomes), 'key')}")
        return _summary(outcomes, INTERRUPTED)
    return _summary(outcomes, OK if all(o.good for o in outcomes) else FINDINGS)


def _summary(outcomes: Sequence[KeyOutcome], code: int) -> int:
    from kerntune.tuning.many.job_run import JobEnd
    from kerntune.tuning.many.tune_many import WORDS

    for text in dict.fromkeys(note for outcome in outcomes for note in outcome.notes):
        complain(f"note: {text}")
    parts = [f"{n} {WORDS[e]}" for e in JobEnd if (n := sum(o.ended is e for o in outcomes))]
    say(f"{counted(len(outcomes), 'key')}: {', '.join(parts) or 'none done'}")
    return code


def _jobs(args: Namespace, paths: Sequence[str]) -> tuple[list[TuningJob], list[str]]:
    """From the files, and from what the tests call, with the folders from which pytest imported those tests' modules.
    :class:`UsageError` for damaged files."""
    if not args.tests and not args.shapes:
        raise UsageError(
            "say what to tune: tests (`kerntune tune tests/`), or --shapes FILE of `kerntune shapes record`"
        )
    found: dict[str, TuningJob] = {}
    damaged: list[str] = []
    folders: list[str] = []
    for name in args.shapes:
        jobs, wrong = ShapesFile(Path(name)).read()
        damaged += wrong
        found.update((job.digest(), job) for job in jobs)
    if damaged:
        raise UsageError("\n".join(["some calls can't be read; remove their lines, or record them anew", *damaged]))
    if args.tests:
        noted = noted_in(args.tests, args.target, args.run, paths)
        found.update((job.digest(), job) for job in noted)
        folders = [folder for job in noted if (folder := folder_of(job))]
    return list(found.values()), folders


def folder_of(job: TuningJob) -> str:
    """Where Python finds a job's module by its name: ``/x`` for ``a.b`` in ``/x/a/b.py``; empty if its file doesn't
    say."""
    file, parts = Path(job.file), job.module.split(".")
    names = [*file.parent.parts, file.stem]
    return str(Path(*names[: -len(parts)])) if names[-len(parts) :] == parts else ""


def noted_in(tests: Sequence[str], target: str | None, really: bool, paths: Sequence[str]) -> list[TuningJob]:
    """The calls that tests make, noted in a pytest of its own: on stand-ins for ``target`` (default: this machine's
    GPU), or ``really`` on the GPU. :class:`UsageError` with the end of pytest's output if it can't run them."""
    options = [] if really else [f"--kerntune-note-target={target or target_here()}"]
    with scratch_folder("tune") as scratch:
        file = scratch / "shapes.jsonl"
        command = [sys.executable, "-m", "pytest", *plugin_args(), "-p", PLUGIN]
        command += ["-p", "no:cacheprovider", "-q", "--tb=no", *options, *tests]
        done = run_to_end(command, env=noting_environment(file, paths[:-1]))
        if done.code not in RAN:
            raise UsageError(f"pytest could not run {' '.join(tests)} (exit code {done.code})\n{done.last()}")
        jobs = ShapesFile(file).read()[0] if file.exists() else []
    say(f"{' '.join(tests)}: {counted(len(jobs), 'call')} noted{'' if really else ' on stand-ins'}; {done.last(1)}")
    if done.code and not really:
        complain(
            "tests that need results end early on stand-ins; --run runs them on the GPU, and notes all their calls"
        )
    return jobs


def target_here() -> str:
    """What this machine's first GPU compiles for."""
    found = by_nvml(lambda nvml: nvml.nvmlDeviceGetCudaComputeCapability(nvml.nvmlDeviceGetHandleByIndex(0)))
    return "cuda:{}{}".format(*found) if found else DEFAULT_TARGET


@contextmanager
def _executor(args: Namespace) -> Iterator[Any]:
    """Dask's, if asked for; else None: this host's GPUs."""
    if not args.dask:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as exc:
        raise UsageError("--dask needs Dask: pip install 'kerntune[dask]'") from exc
    try:
        client = Client(args.dask)
    except OSError as exc:
        raise UsageError(f"--dask {args.dask}: no scheduler answers there ({exc})") from exc
    with client:
        yield client.get_executor(pure=False, retries=0)
