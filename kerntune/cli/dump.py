"""``kerntune dump``: a case's launches as folders that run without kerntune, for a report to a compiler team."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from kerntune.base.case_result import CaseId
from kerntune.base.device import Target
from kerntune.base.folders import scratch_folder
from kerntune.base.orphans import run_to_end
from kerntune.base.recording import Binary
from kerntune.capture.launch_dump import LAUNCH_FILE, DumpedTexts, folder_name, plain_name, write_launch
from kerntune.cli.stored import Entry, folder_argument, given_folder, load_folder, not_found, one_case, readable
from kerntune.compiling.binary.identity import first_stage_of
from kerntune.compiling.compiler import stages_from, ttir_text
from kerntune.compiling.farm import Farm
from kerntune.compiling.protocol import ASSEMBLY
from kerntune.errors import ReplayError, UsageError
from kerntune.gate.baseline_files import BaselineStore, artifact_names
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.console import fail_with, say
from kerntune.gate.git import own_environment
from kerntune.gate.project import find_project
from kerntune.gpu.probe import has_cuda
from kerntune.kernels.compat import triton_compiler
from kerntune.tuning.launch_files import DUMP, DUMP_CONTENT


def run_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune dump`` takes."""
    parser.add_argument("case", metavar="CASE", help="a test's id (and call), or what only one case contains")
    parser.add_argument(
        "-o", "--output", metavar="DIR", default="kerntune-dump", help="folder (default: kerntune-dump)"
    )
    parser.add_argument(
        "--content",
        choices=("described", "recorded"),
        default="described",
        help="of tensors: how their numbers are distributed (default), or all bytes, before and after each launch",
    )
    parser.add_argument("--target", metavar="TARGET", help="what to compile for without a GPU")
    parser.add_argument(
        "--stored", action="store_true", help="what the baseline holds, instead of running the test: no source"
    )
    folder_argument(parser)


def run(args: Namespace) -> int:
    """Write the folders and print their paths; 1 if a file of a stored case is missing."""
    folder = given_folder(args.baselines)
    out = Path(args.output).absolute()
    triton_compiler.take_announcements()
    entries = load_folder(folder)
    missing: list[str] = []
    if args.stored:
        paths, missing = _stored(folder, _baseline(entries, args), out)
    else:
        case = _case(entries, args.case)
        paths = _launched(case, args, args.target or _known_targets(entries, case), out)
    for path in paths:
        say(str(path))
    return fail_with(missing)


def _case(entries: list[Entry], wanted: str) -> CaseId:
    """The one case with a baseline that is meant; a test's id needs none."""
    found = one_case(entries, wanted)
    if found is None and "::" not in wanted:
        what = f"no baseline's case is {wanted!r}, and it is no test's id (tests/test_it.py::test_it)"
        raise not_found(what, entries)
    return found or CaseId(wanted, "")


def _known_targets(entries: list[Entry], case: CaseId) -> str:
    """What to compile for without a GPU if nothing is said: the targets of the case's baselines, else of all."""
    if has_cuda():
        return ""
    baselines = readable(entries)
    mine = [b for b in baselines if b.case.nodeid == case.nodeid]
    return ",".join(sorted({str(b.target) for b in mine or baselines}))


def _launched(case: CaseId, args: Namespace, target: str, out: Path) -> list[Path]:
    """Run the case's test, and keep what it dumped. The name of a baseline's case starts in the project's folder."""
    root = find_project(Path.cwd()).root if case.call else None
    with scratch_folder("dump") as scratch:
        dumped, spare = scratch / "dump", scratch / "baselines"
        words = [f"--kerntune-baselines={spare}", "--kerntune-missing=warn", "-p", "no:cacheprovider", "-q"]
        words += [f"--kerntune-target={target}"] if target else []
        env = {**own_environment(), DUMP: str(dumped), DUMP_CONTENT: args.content}
        command = [sys.executable, "-m", "pytest", "--kerntune", *words, case.nodeid]
        done = run_to_end(command, root, env)
        found = sorted(dumped.iterdir()) if dumped.is_dir() else []
        mine = [place for place in found if not case.call or _case_in(place) == str(case)]
        if not mine:
            need = "" if target or has_cuda() else " (without a GPU, say what to compile for: --target cuda:90)"
            ended = f"pytest exit code {done.code}"
            raise UsageError(f"{case}: launched nothing that was dumped ({ended}){need}\n{done.last()}")
        return [path for place in mine for path in _moved(place, out / place.name)]


def _case_in(place: Path) -> str:
    launch = next(iter(sorted(place.glob(f"*/{LAUNCH_FILE}"))), None)
    return "" if launch is None else str(json.loads(launch.read_bytes())["case"])


def _moved(source: Path, target: Path) -> list[Path]:
    if target.exists():
        raise UsageError(f"{target}: is there already; remove it, or say -o DIR")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(source), str(target))
    return sorted(target.iterdir())


def _baseline(entries: list[Entry], args: Namespace) -> TimeBaseline:
    """The stored baseline of the case with a binary: a device's; the latest, if there are several devices."""
    case = _case(entries, args.case)
    mine = [b for b in readable(entries) if b.case == case]
    timed = [b for b in mine if isinstance(b, TimeBaseline) and args.target in (None, str(b.target))]
    if not timed:
        what = f"{case}: no baseline of a device holds its binary; without --stored its test is run"
        raise not_found(what, entries)
    return max(timed, key=lambda b: b.recorded)


def _stored(folder: Path, baseline: TimeBaseline, out: Path) -> tuple[list[Path], list[str]]:
    """Write what the baseline holds: the recorded binary, and the other stages compiled from its TTIR today. The
    folders, and what is missing in which of them."""
    kept = BaselineStore(folder).artifacts(baseline.recording.target)
    named = artifact_names(baseline.recording)
    artifacts = {name: data for name in named if (data := kept.get(name)) is not None}
    place = out / folder_name(f"{baseline.case} {baseline.recording.target}")
    paths, missing = [], []
    with closing(Farm()) as farm:
        for index, launch in enumerate(baseline.recording.launches):
            binary = baseline.recording.binary_of(launch)
            stages, why_not = _stages(farm, baseline.recording.target, binary, artifacts)
            path = write_launch(
                place,
                baseline.recording,
                index,
                artifacts,
                DumpedTexts(stages=stages),
                environment=baseline.environment,
                case=str(baseline.case),
                name=f"{index:02d}-{plain_name(launch.kernel)}",
            )
            paths.append(path)
            missing += [f"{path}: {why_not}"] if why_not else []
    return paths, missing


def _stages(farm: Farm, target: Target, binary: Binary, artifacts: Mapping[str, bytes]) -> tuple[dict[str, str], str]:
    ttir = artifacts.get(binary.ttir_sha256)
    first = "ttir" if ttir is None else first_stage_of(ttir.decode(errors="replace"))
    wanted = (first, "ttgir", "llir", ASSEMBLY[target.backend][0])
    if ttir is None:
        return {}, f"no {_files(wanted)}: its TTIR {binary.ttir_sha256[:12]} is not among the baselines' artifacts"
    found: dict[str, str] = {}
    try:
        found = {first: ttir_text(ttir, binary.symbol)}
        options = {"num_warps": binary.num_warps, "num_ctas": binary.num_ctas, **binary.options}
        made = stages_from(farm, target, ttir, options, binary.symbol)
    except ReplayError as exc:  # another Triton than it was recorded with
        return found, f"no {_files([name for name in wanted if name not in found])}: {exc}"
    return found | {stage: made[stage].decode() for stage in wanted if stage in made and stage not in found}, ""


def _files(stages: Sequence[str]) -> str:
    return ", ".join(f"kernel.{stage}" for stage in stages)
