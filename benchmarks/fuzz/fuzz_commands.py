"""Gives mutated files to the commands and parts of the gate that read them: only documented errors may come of it.

    python -m benchmarks.fuzz.fuzz_commands benchmarks/results/fuzz_commands.json [--runs 200000] [--seed 1]

The files begin as whole ones: those of ``tests/data/formats``, and some made here. Each is mutated (values replaced by
hostile ones, bits flipped, cut off) and handed to one or two commands of those that read it, all in one process:
``kerntune baselines show|verify|prune|apply``, ``diff``, ``figures``, ``report``, ``history``, ``cache``,
``shapes``, ``tune --list``. Of the gate, the tuning of calls and ``export`` it is what they do with a file after they
have read it. No compiler is started and nothing runs on a GPU.

Allowed are kerntune's own errors, exit codes 0 to 2 and printed texts without a control character. The JSON counts the
files of each format, and what else was raised; it has the longest processor time of one file, and the memory beyond
that of the start. The first file of each failure is kept beside the JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import lzma
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import harness
from benchmarks.fuzz.fuzz_mutations import mutated, resident_mb
from benchmarks.harness import ROOT
from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.base.policy import Policy, StaticPolicy, Update
from kerntune.base.recording import same_work
from kerntune.base.roofline import bytes_moved, matmul_dtype
from kerntune.base.tuning_job import SCHEMA as SHAPES_SCHEMA
from kerntune.base.tuning_job import NamedArgument, ScalarText, TensorText, TuningJob
from kerntune.cli.command import build_parser
from kerntune.compiling.binary.elf import Elf, cubin_resources
from kerntune.compiling.binary.identity import strip_locations, text_identity
from kerntune.compiling.compiler import ttir_text
from kerntune.errors import KerntuneError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import StaticBaseline, TimeBaseline, fingerprint_of
from kerntune.gate.causes import config_causes, launch_cause
from kerntune.gate.code_changes import options_of
from kerntune.gate.comparison import comparable, floor_of, state_range_of
from kerntune.gate.console import complain
from kerntune.gate.history.index import Index
from kerntune.gate.history.places import Folder
from kerntune.gate.history.points import SCHEMA as HISTORY_SCHEMA
from kerntune.gate.history.points import HistoryRun, Point, Shift, encoded, work_name
from kerntune.gate.history.summary import curves_of
from kerntune.gate.launch_changes import compare_launches, launch_lines, static_setting_lines
from kerntune.gate.project import settings_in
from kerntune.gate.replay import stored_change
from kerntune.gate.report import read_run
from kerntune.gate.reporting.page import html_page
from kerntune.gate.static_figures import in_both
from kerntune.gate.stores import RunBaselines, Stores, known_case, stored_configs
from kerntune.kernels.compat import stored_options
from kerntune.tuning.cache import WinnerCache, winners
from kerntune.tuning.cache.winners import TrialCache
from kerntune.tuning.launch_files import arguments_of
from kerntune.tuning.stored_winners import nearest

FORMATS = ROOT / "tests" / "data" / "formats"
CUDA90 = Target.parse("cuda:90")
SLOWEST_S = 10.0
"""Processor time that one file may take."""

MOST_MB = 300


# commands, parsed once


class Commands:
    """The command line, whose parser takes longer than most commands."""

    def __init__(self) -> None:
        self._parser = build_parser()
        self._known: dict[tuple[str, ...], argparse.Namespace] = {}

    def run(self, *words: str) -> None:
        """Run a command; :class:`AssertionError` for an exit code or a text that may not be."""
        if words not in self._known:
            self._known[words] = self._parser.parse_args(words)
        out = io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                code = self._known[words].function(argparse.Namespace(**vars(self._known[words])))
            except (KerntuneError, OSError) as exc:
                if isinstance(exc, OSError) and not isinstance(exc, KerntuneError):
                    raise
                complain(f"error: {exc}")
        assert code in (0, 1, 2), f"exit code {code}"
        assert_plain(out.getvalue(), " ".join(words))


def assert_plain(text: str, what: str) -> None:
    """No control character but line breaks and tabs, and no mark of direction."""
    bad = next((x for x in text if not x.isprintable() and x not in "\n\t"), "")
    assert not bad, f"{what}: prints {bad!r}"


@dataclass
class Places:
    """The folders of a run, made once: ``left`` has the mutated baseline, ``right`` a good folder."""

    root: Path
    commands: Commands = field(default_factory=Commands)

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            shutil.copytree(FORMATS / "baselines", self.root / name)
        self.left, self.right = self.root / "left", self.root / "right"
        self.cache, self.history, self.run = self.root / "cache", self.root / "history", self.root / "run.json"
        shutil.copytree(FORMATS / "cache", self.cache)
        self.history.mkdir()
        (self.history / "a.json").write_bytes(encoded(history_run("a" * 40, "2026-01-01T00:00:00Z", 0.0)))
        (self.history / "b.json").write_bytes(encoded(history_run("b" * 40, "2026-01-02T00:00:00Z", 0.1)))
        self.time = sorted(self.left.glob("*/*/time/**/*.json"))[0]
        self.static = sorted(self.left.glob("*/*/static/**/*.json"))[0]
        self.winner = sorted((self.cache / "winners").glob("*/*/*.json"))[0]
        self.trial = sorted((self.cache / "trials").glob("*/*/*.json"))[0]
        self.artifact = sorted(self.left.glob("*/artifacts/*.xz"))[0]


def history_run(commit: str, created: str, value: float) -> HistoryRun:
    """A run of two cases."""
    points = tuple(
        Point(
            CaseId(f"tests/test_a.py::test_{name}[4096]", "0"), "cuda:90", "NVIDIA H100", "PASS", work=f"{value}",
            baseline_work="w", time_ns=1e4, change=Shift(value, 0.001, "2025-12-31T00:00:00Z"),
            since=Shift(value, 0.002, "2025-12-30T00:00:00Z"), configs=(Config({"BLOCK": 64}),), registers=(32,),
            environment={"triton": "3.9.0"},
        )
        for name in "ab"
    )  # fmt: skip
    return HistoryRun(HISTORY_SCHEMA, created, points, commit, created, "main", False, "host", {"triton": "3.9.0"})


# what is done with a file of each format, by parts that are chosen among

Part = Callable[[Places], None]


def read_baselines(words: tuple[str, ...]) -> Part:
    """A command on the folder with the mutated baseline."""
    return lambda p: p.commands.run(*words, f"--baselines={p.left}")


def use_gate(places: Places) -> None:
    """What a gate does with the folder before and after it compiles: today's side is a good baseline."""
    own, good = BaselineStore(places.left), BaselineStore(places.right)
    stores = Stores(own, own)
    spec = typical_device(CUDA90)
    for path, today in good.summaries():
        if not isinstance(today, (TimeBaseline, StaticBaseline)):
            continue
        with contextlib.suppress(KerntuneError):
            known_case(stores, CUDA90, today.case, today.fingerprint, Update.NONE)
            stored_configs(own, CUDA90, today.case, today.fingerprint)
            own.known_arguments(CUDA90, today.case)
        with contextlib.suppress(KerntuneError):
            before = own.read(own.folder / path.relative_to(good.folder))
            if before is not None:
                _compare(before, today)
    backend: Any = type("Backend", (), {"gpu": None, "spec": spec})
    for result in RunBaselines(own, backend, [CUDA90]).stale((), Policy(), selected_all=True):
        assert result.message


def _compare(before: TimeBaseline | StaticBaseline, today: TimeBaseline | StaticBaseline) -> None:
    sides = [x.static if isinstance(x, TimeBaseline) else x.launches for x in (before, today)]
    for found in compare_launches(*sides, StaticPolicy()):
        assert all(f.text for f in found.findings)
    launch_lines(*sides)
    config_causes(*static_setting_lines((a, b) for _, a, b in in_both(*sides)))
    for _, a, b in in_both(*sides):
        launch_cause(a, b, "3.9", "3.9")
        with contextlib.suppress(KerntuneError):
            stored_options.checked_options("cuda", options_of(a), {})
    fingerprint_of(before.arguments)
    if isinstance(before, TimeBaseline) and isinstance(today, TimeBaseline):
        same_work(before.recording, today.recording)
        bytes_moved(before.recording)
        matmul_dtype(before.recording)
        work_name(before.recording)
        stored_change(before, today.sample, 0.95)
        comparable(before, today.sample)
        floor_of(before), state_range_of(before)
        before.environment.differences(today.environment)


def use_report(places: Places) -> None:
    """The page without the library that draws it."""
    with contextlib.suppress(KerntuneError, FileNotFoundError):
        html_page([read_run(places.run)], [], "")


def use_run(*words: str) -> Part:
    return lambda p: p.commands.run(*(word.format(run=p.run, root=p.root, left=p.left) for word in words))


def use_history(*words: str) -> Part:
    return lambda p: p.commands.run("history", "show", f"--history={p.history}", *words)


def use_curves(places: Places) -> None:
    with contextlib.suppress(KerntuneError):
        for curve in curves_of(Index(Folder(places.history), places.root / "index")):
            html_page([], [curve], "")


def use_cache(*words: str) -> Part:
    return lambda p: p.commands.run("cache", *words, f"--cache-dir={p.cache}")


GOOD = sorted((FORMATS / "cache" / "winners").glob("*/*/*.json"))


def use_winners(places: Places) -> None:
    """What the call of a tuned kernel asks of the cache, and ``kerntune export``."""
    cache, asked = WinnerCache(places.cache), _asked()
    assert_found = [cache.get(asked), *cache.of_other_configs(asked)]
    nearest(cache, asked, lambda config: True)
    cache.why_missed(asked)
    for winner in [*cache.entries(), *(x for x in assert_found if x is not None)]:
        arguments_of(winner.key.arguments)
        winner.key.digest()


def _asked() -> Any:
    from kerntune.tuning.cache import Winner

    return msgspec.json.decode(GOOD[0].read_bytes(), type=Winner).key


def use_trials(places: Places) -> None:
    cache = TrialCache(places.cache)
    for trial in cache.entries():
        cache.of(trial.key)


def use_artifact(places: Places) -> None:
    """Bytes that a baseline names, as TTIR and as a binary."""
    data = places.artifact.read_bytes()
    with contextlib.suppress(KerntuneError, ValueError, lzma.LZMAError, EOFError):
        data = lzma.decompress(data, memlimit=80 << 20)
    for use in (
        lambda: strip_locations(ttir_text(data, "k")),
        lambda: stored_options.includes_files("hip", ttir_text(data, "k")),
        lambda: text_identity(data),
        lambda: cubin_resources(data),
        lambda: Elf(data).kernels,
    ):
        with contextlib.suppress(KerntuneError):
            use()


def use_shipped(places: Places) -> None:
    with contextlib.suppress(KerntuneError):
        for winner in winners.read_file(places.run).winners:
            winner.key.digest()
            arguments_of(winner.key.arguments)


def use_ini(places: Places) -> None:
    with contextlib.suppress(KerntuneError):
        settings_in(Path("pytest.ini"), places.run.read_bytes())
    with contextlib.suppress(KerntuneError):
        settings_in(Path("pyproject.toml"), places.run.read_bytes())


@dataclass(frozen=True)
class Format:
    """Whole files of a format, where a mutated one is put, and what is done with it."""

    seeds: tuple[bytes, ...]
    place: Callable[[Places], Path]
    parts: tuple[Part, ...]


BASELINES: tuple[Part, ...] = (
    read_baselines(("baselines", "show")),
    read_baselines(("baselines", "show", "--json")),
    read_baselines(("figures",)),
    read_baselines(("baselines", "verify")),
    read_baselines(("baselines", "prune", "--dry-run")),
    lambda p: p.commands.run("diff", str(p.left), str(p.right)),
    lambda p: p.commands.run("diff", "--markdown", str(p.right), str(p.left)),
    lambda p: p.commands.run("diff", "--static", str(p.left), str(p.right), f"--baselines={p.right}"),
    use_gate,
    use_gate,
)

JOB = TuningJob(
    SHAPES_SCHEMA, "kernels", "scale", (NamedArgument("x", TensorText("float32", (64,), (1,), 0, 256)),
                                        NamedArgument("n", ScalarText("int", "64"))),
    configs=(Config({"BLOCK": 64}),), key="(64,)", file="kernels.py",
)  # fmt: skip

INI = b"[pytest]\nkerntune = true\nkerntune_baselines = b\naddopts =\n  -q\n"
TOML = b'[tool.pytest.ini_options]\nkerntune = true\nkerntune_outcomes = "drifted=fail"\n'


def _files(pattern: str, root: Path = FORMATS) -> tuple[bytes, ...]:
    return tuple(p.read_bytes() for p in sorted(root.glob(pattern)))


def formats() -> dict[str, Format]:
    """All of them."""
    runs = _files("run-*.json")
    artifacts = _files("baselines/*/artifacts/*.xz")
    unpacked = tuple(map(lzma.decompress, artifacts))
    return {
        "time baseline": Format(_files("baselines/*/*/time/**/*.json"), lambda p: p.time, BASELINES),
        "static baseline": Format(_files("baselines/*/*/static/**/*.json"), lambda p: p.static, BASELINES),
        "run": Format(runs, lambda p: p.run, (
            use_run("report", "{run}", "--csv", "{root}/a.csv"), use_run("report", "{run}", "--summary", "{root}/a.md"),
            use_report, use_run("baselines", "apply", "{run}", "--baselines={root}/applied"),
            use_run("history", "add", "{run}", "--history={root}/added"), use_run("figures", "{run}"),
            use_run("baselines", "prune", "--dry-run", "--stale-from", "{run}", "--baselines={left}"),
        )),
        "history": Format((encoded(history_run("c" * 40, "2026-01-03", 0.2)),),
                          lambda p: p.history / "c.json",
                          (use_history(), use_history("--json"), use_history("--markdown"), use_curves)),
        "winner": Format(_files("cache/winners/*/*/*.json"), lambda p: p.winner,
                         (use_cache("show"), use_cache("show", "--json"), use_winners, use_winners)),
        "trial": Format(_files("cache/trials/*/*/*.json"), lambda p: p.trial, (use_cache("show"), use_trials)),
        "export": Format(_files("exported.json"), lambda p: p.run, (
            lambda p: p.commands.run("cache", "import", str(p.run), f"--cache-dir={p.root / 'imported'}"),)),
        "shipped": Format(_files("shipped/**/*.json"), lambda p: p.run, (use_shipped,)),
        "shapes": Format((JOB.to_json(), JOB.to_json() + b"\n" + JOB.to_json()), lambda p: p.run,
                         (use_run("tune", "--list", "--shapes", "{run}"),
                          use_run("tune", "--list", "--json", "--shapes", "{run}"))),
        "artifact": Format((*artifacts, *unpacked), lambda p: p.artifact,
                           (use_artifact, read_baselines(("baselines", "verify")))),
        "ini file": Format((INI, TOML), lambda p: p.run, (use_ini,)),
    }  # fmt: skip


@dataclass
class Found:
    """What came of the files: by format how many, what was raised with how often, the most that one took."""

    files: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    slowest_s: float = 0.0
    slowest: str = ""
    memory_mb: int = 0


def fuzz(runs: int, seed: int, folder: Path, keep: int = 40) -> Found:
    """Try so many files, each format in turn."""
    kinds, places, found = formats(), Places(folder), Found()
    rng = random.Random(seed)
    os.environ["KERNTUNE_CACHE_DIR"] = str(folder / "own")  # the indices of histories
    before = resident_mb("VmRSS")
    originals = {name: kind.place(places).read_bytes() for name, kind in kinds.items() if kind.place(places).exists()}
    for number in range(runs):
        name = list(kinds)[number % len(kinds)]
        kind = kinds[name]
        path, data = kind.place(places), mutated(kind.seeds, rng)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        begin = time.process_time()
        for part in rng.sample(kind.parts, min(len(kind.parts), 1)):
            try:
                part(places)
            except Exception as exc:  # what is looked for
                where = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(traceback.extract_tb(
                    exc.__traceback__)) if "/kerntune/" in f.filename), "")  # fmt: skip
                what = f"{name}: {type(exc).__name__} at {where}"
                found.failures[what] += 1
                if len(found.examples) < keep:
                    found.examples.setdefault(what, (data, "".join(traceback.format_exception(exc))))
        took = time.process_time() - begin
        if took > found.slowest_s:
            found.slowest_s, found.slowest = took, name
        found.files[name] += 1
        if name in originals:
            path.write_bytes(originals[name])
        elif name == "history":
            path.unlink(missing_ok=True)
            if number % 50 == 0:
                shutil.rmtree(folder / "own", ignore_errors=True)
        if number % 500 == 0:
            for left in ("applied", "added", "imported", "a.csv", "a.md", "index"):
                shutil.rmtree(folder / left, ignore_errors=True)
            (folder / "a.md").unlink(missing_ok=True)
    found.memory_mb = resident_mb("VmHWM") - before
    return found


def main() -> int:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    begin, wall = time.process_time(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        found = fuzz(args.runs, args.seed, Path(folder))
    report = {
        **harness.environment(commit=harness.commit()),
        "seed": args.seed,
        "files": sum(found.files.values()),
        "formats": dict(found.files),
        "not_documented": dict(found.failures),
        "slowest_s": round(found.slowest_s, 3),
        "slowest": found.slowest,
        "memory_mb": found.memory_mb,
        "cpu_seconds": round(time.process_time() - begin, 1),
        "wall_seconds": round(time.monotonic() - wall, 1),
    }
    harness.write(args.out, report)
    print(json.dumps(report, indent=1))
    for what, (data, text) in found.examples.items():
        name = hashlib.sha256(what.encode()).hexdigest()[:8]
        args.out.with_suffix(f".{name}.input").write_bytes(data)
        args.out.with_suffix(f".{name}.txt").write_text(f"{what}\n{text}")
    bad = bool(found.failures) or found.slowest_s > SLOWEST_S or found.memory_mb > MOST_MB
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
