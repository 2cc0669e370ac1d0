"""Tries listed mutants, several at a time: each in a copy of the tree, by the tests of its module.

    python -m benchmarks.mutants.mutants_run LISTED.json OUT.json [--workers 32] [--seconds 460] [--again]

Needs Python and pytest, neither Cosmic Ray nor git, so that it runs on a machine that is lent for minutes.
``LISTED.json`` is what ``mutants.py --list`` wrote. First each test file runs on the unchanged tree, traced: tests that
fail there are left out, and a mutant's tests begin with those that ran its line, the quickest first; a run ends with
the first failure. Runs without any change are mixed in: a test that fails in one of these shows nothing, and mutants
that it alone killed count as not settled. Results are written as they come, so the run may be ended at any time; the
next one goes on. ``--again`` tries survivors once more, after tests have been written for them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from benchmarks.mutants.mutants import package_of, package_table
from benchmarks.mutants.mutants_guard import guard, tryable

sys.path.insert(0, str(ROOT / "tests"))

from forked import MORE, Copies
from inner import NO_SUMMARY

TREE = ("kerntune", "pytest_kerntune", "tests", "benchmarks", "docs", "examples", "baselines", "README.md",
        "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "constraints.txt")  # fmt: skip

TIMES, LEAST_S = 5.0, 60.0
"""A mutant whose tests take so many times as long as they do usually, and a minute at least, hangs: it is killed."""

LEAST_TEST_S = 40.0
"""The same for one test, which begins or ends nothing for so long."""

LEARN_S, LEARN_TEST_S = 1200.0, 120.0
"""Limits of a test file, and of one test, on the unchanged tree."""

CONTROL_EACH = 20
"""One run in so many has no change."""

OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "--tb=line", "-p", "benchmarks.mutants.mutants_order", *NO_SUMMARY,
           "-W", "ignore:Module already imported so cannot be rewritten")  # fmt: skip
"""The warning is about hypothesis, which copies have imported."""


IMPORTED = ("pytest", "hypothesis.strategies", "numpy", "scipy.stats")
"""What copies needn't import, beside torch."""


@dataclass(frozen=True)
class Known:
    """What the unchanged tree's run showed of one test file."""

    passed: dict[str, float]
    """Seconds of each test."""

    failed: tuple[str, ...]
    lines: dict[tuple[str, int], list[str]]
    """Tests that run a line, by module and line."""

    seconds: float


@dataclass(frozen=True)
class Ran:
    """One run of pytest."""

    code: int | None
    """None if it was ended."""

    rows: list[dict[str, Any]]
    seconds: float
    output: str

    @property
    def failed(self) -> list[str]:
        return [row["test"] for row in self.rows if row.get("outcome") == "failed"]

    @property
    def last(self) -> str:
        """The test that had begun."""
        return next((row["test"] for row in reversed(self.rows)), "its start")


class Worker:
    """A copy of the tree, and runs of pytest in it."""

    def __init__(self, folder: Path, copies: Copies, cores: Sequence[int]) -> None:
        self.folder, self.tree, self._copies, self._cores = folder, folder / "tree", copies, cores
        self.tree.mkdir(parents=True)
        for name in TREE:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.tree / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            elif source.exists():
                shutil.copy2(source, self.tree / name)
        if (ROOT / "benchmarks" / "results").exists():
            os.symlink(ROOT / "benchmarks" / "results", self.tree / "benchmarks" / "results")

    def run(
        self, tests: Sequence[str], limit: float, test_limit: float, order: dict[str, list[str]] | None = None,
        traced: Sequence[str] = (),
    ) -> Ran:  # fmt: skip
        """Run tests with a time limit for all and one for each."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            scratch, begin = Path(made), time.monotonic()
            progress = scratch / "progress"
            progress.touch()
            (scratch / "order").write_text(json.dumps(order))
            env = self._environment(scratch) | {
                "MUTANT_PROGRESS": str(progress), "MUTANT_ORDER": str(scratch / "order") if order else "",
                "MUTANT_SCRATCH": str(scratch), "MUTANT_CORES": ",".join(map(str, self._cores)),
                "MUTANT_MODULES": ":".join(str(self.tree / module) for module in traced),
            }  # fmt: skip
            options = [option for option in OPTIONS if order is not None or option != "-x"]
            with open(scratch / "output", "w+") as output:
                started = subprocess.Popen(
                    [*self._copies.call, "-m", "pytest", *options, *tests], cwd=self.tree, env=env, stdout=output,
                    stderr=output, stdin=subprocess.DEVNULL,
                )  # fmt: skip
                code = self._ended(started, progress, begin + limit, test_limit)
            self._end_left_over(scratch)
            rows = [json.loads(line) for line in progress.read_text().splitlines() if line.endswith("}")]
            said = (scratch / "output").read_text(errors="replace")[-2000:]
            return Ran(code, rows, time.monotonic() - begin, said)

    def _environment(self, scratch: Path) -> dict[str, str]:
        path = [str(self.tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        (scratch / "tmp").mkdir()
        own = {name: str(scratch / "tmp") for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME")}
        return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}

    @staticmethod
    def _ended(started: subprocess.Popen[bytes], progress: Path, end: float, test_limit: float) -> int | None:
        """The exit code; None if a limit was reached."""
        while (code := started.poll()) is None:
            if time.monotonic() > end or time.time() - progress.stat().st_mtime > test_limit:
                started.kill()  # with it the copy that it stands for
                started.wait()
                return None
            time.sleep(0.05)
        return code

    def _end_left_over(self, scratch: Path) -> None:
        """End what a run has started and left: processes that were given its scratch folder."""
        mark = f"MUTANT_SCRATCH={scratch}\0".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                try:
                    if mark in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    continue


@dataclass(frozen=True, eq=False)
class Job:
    """Something for a worker to do, once the test files that it needs are known."""

    call: Callable[[Worker], None]
    files: Sequence[str] = ()


@dataclass
class Run:
    """All that is known while mutants are tried."""

    out: Path
    config: dict[str, Any]
    kept: dict[str, Any]
    workers: int
    end: float
    known: dict[str, Known] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False

    def files(self, module: str) -> list[str]:
        """Test files of a module, its own ones first."""
        found: dict[str, None] = {}
        for path in [*self.config["tests"][module], *self.config["common"]]:
            there = ROOT / path
            each = sorted(there.rglob("test_*.py")) if there.is_dir() else [there]
            found |= dict.fromkeys(str(one.relative_to(ROOT)) for one in each)
        return list(found)

    def files_of(self, mutant: dict[str, Any]) -> list[str]:
        """Those of its module, and others of which a test runs the mutant's lines."""
        return [*self.files(mutant["module"]), *mutant.get("more", ())]

    # the unchanged tree

    def learn(self, worker: Worker, *, file: str, modules: Sequence[str]) -> None:
        """Run a test file on the unchanged tree; where a test fails under tracing, once more without."""
        ran = worker.run([file], LEARN_S, LEARN_TEST_S, traced=modules)
        lines: dict[tuple[str, int], list[str]] = {}
        for row in ran.rows:
            for path, line in row.get("lines", ()):
                lines.setdefault((os.path.relpath(path, worker.tree), line), []).append(row["test"])
        if ran.code not in (0, 5):
            ran = worker.run([file], LEARN_S, LEARN_TEST_S)
        failed = {*ran.failed, *([] if ran.code in (0, 1, 5) else [ran.last])}
        passed = {row["test"]: row["seconds"] for row in ran.rows if "seconds" in row and row["test"] not in failed}
        with self.lock:
            self.known[file] = Known(passed, tuple(sorted(failed)), lines, ran.seconds)
            self.kept["left_out"] = sorted({*self.kept["left_out"], *failed})
            self.kept["files"][file] = {
                "passed": len(passed), "failed": len(failed), "seconds": round(ran.seconds, 1),
                **({"output": ran.output} if ran.code not in (0, 1, 5) else {}),
            }  # fmt: skip
            print(f"{file}: {len(passed)} passed, {len(failed)} failed, {ran.seconds:.0f} s", flush=True)

    # mutants

    def order_of(self, mutant: dict[str, Any]) -> dict[str, list[str]]:
        """Tests that run the mutant's lines, the quickest first; and all that pass on the unchanged tree."""
        own, more = self.files(mutant["module"]), mutant.get("more", [])
        known = [self.known[file] for file in [*own, *more]]
        lines = range(mutant["line"], mutant["line"] + mutant["old"].count("\n") + 1)
        seconds = {test: s for one in known for test, s in one.passed.items()}
        hit = {t for one in known for line in lines for t in one.lines.get((mutant["module"], line), ())}
        first = sorted(hit & seconds.keys(), key=lambda test: seconds[test])
        return {"first": first, "only": [*{*first, *(test for file in own for test in self.known[file].passed)}]}

    def try_one(self, worker: Worker, *, mutant: dict[str, Any]) -> None:
        """Try a mutant and keep what came of it."""
        path = worker.tree / mutant["module"]
        text = path.read_text()
        files = [file for file in self.files_of(mutant) if self.known[file].passed]
        usual = sum(self.known[file].seconds for file in files)
        slowest = max((s for file in files for s in self.known[file].passed.values()), default=0.0)
        order = self.order_of(mutant)
        changed = mutated(text, mutant)
        path.write_text(changed)
        try:
            limits = (max(TIMES * usual, LEAST_S), max(TIMES * slowest, LEAST_TEST_S))
            ran = worker.run(files, *limits, order)
        finally:
            path.write_text(text)
        row = {k: mutant[k] for k in ("name", "module", "digest", "line", "change")}
        row |= {"killed": ran.code != 0, "ran_its_line": len(order["first"]), "seconds": round(ran.seconds, 1)}
        row |= {"by": _by(ran), "files": len(files)}
        if ran.code == 0:
            row["diff"] = diff(text, changed, mutant["module"])
        with self.lock:
            if not self.over and ran.code != 5:  # 5: no test of the module passes here
                self.keep(mutant, row)

    def keep(self, mutant: dict[str, Any], row: dict[str, Any]) -> None:
        """Add a result to the file; a survivor that a later test kills keeps that it was one."""
        kind = "rows" if mutant["old"] != mutant["new"] else "controls"
        rows = self.kept[kind]
        earlier = next((r for r in rows if r["name"] == row["name"] and kind == "rows"), None)
        if earlier is not None:
            row["first"] = earlier.get("first", "killed" if earlier["killed"] else "survived")
            rows.remove(earlier)
        rows.append(row)
        self.kept["score"] = score(self.kept)
        self.kept["packages"] = package_scores(self.kept, self.config.get("packages", {}))
        self.write()
        said = "killed" if row["killed"] else "SURVIVED"
        print(f"{len(rows)} {kind}: {said} {row['module']}:{row['line']} {row['change']} {row['by'] or ''}", flush=True)

    def write(self) -> None:
        whole = self.out.with_suffix(".part")
        harness.write(whole, self.kept)
        whole.replace(self.out)

    def run(self, mutants: Sequence[dict[str, Any]]) -> None:
        """Learn what is needed, then try the mutants, by as many threads as there are workers."""
        covered: dict[str, dict[str, None]] = {}
        for mutant in mutants:
            for file in self.files_of(mutant):
                covered.setdefault(file, {})[mutant["module"]] = None
        copies = Copies()
        with tempfile.TemporaryDirectory(prefix="kerntune-mutants-", ignore_cleanup_errors=True) as folder:
            copies._start()
            try:
                workers = [Worker(Path(folder, str(i)), copies, two_cores(i)) for i in range(self.workers)]
                large = sorted(covered, key=lambda file: -(ROOT / file).stat().st_size)
                jobs = [Job(partial(self.learn, file=file, modules=[*covered[file]])) for file in large]
                jobs += [Job(partial(self.try_one, mutant=m), self.files_of(m)) for m in with_controls(mutants)]
                self._share_out(workers, jobs)
            finally:
                with self.lock:
                    self.over = True
                copies.close()

    def _share_out(self, workers: Sequence[Worker], jobs: list[Job]) -> None:
        """Give jobs to whichever worker is free, until the time is up."""

        def work(worker: Worker) -> None:
            while time.monotonic() < self.end:
                with self.lock:
                    ready = next((job for job in jobs if self.known.keys() >= set(job.files)), None)
                    if ready is not None:
                        jobs.remove(ready)
                    elif not jobs:
                        return
                if ready is None:
                    time.sleep(0.2)
                    continue
                try:
                    ready.call(worker)
                except Exception as exc:
                    with self.lock:
                        self.kept["errors"].append(repr(exc))
                        print(repr(exc), flush=True)

        threads = [threading.Thread(target=work, args=[worker], daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.end + 2 - time.monotonic()))


def two_cores(worker: int) -> list[int]:
    """Two neighbouring cores, one of them shared with the next worker: tests start as many compilers as they see."""
    cores = sorted(os.sched_getaffinity(0))
    return sorted({cores[worker % len(cores)], cores[(worker + 1) % len(cores)]})


def with_controls(mutants: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The mutants, and among them copies of some that change nothing."""
    for i, mutant in enumerate(mutants):
        if i % CONTROL_EACH == 0:
            yield {**mutant, "new": mutant["old"], "change": "none"}
        yield mutant


def safe(mutants: Sequence[dict[str, Any]], *, guarded: bool) -> list[dict[str, Any]]:
    """Those that can be tried without danger for other processes; how many can't is printed."""
    modules = {m["module"]: (ROOT / m["module"]).read_text() for m in mutants}
    found = [m for m in mutants if tryable(modules[m["module"]], guarded=guarded)]
    if len(found) < len(mutants):
        print(f"{len(mutants) - len(found)} mutants aren't tried: they might signal other processes", flush=True)
    return found


def mutated(text: str, mutant: dict[str, Any]) -> str:
    at, old = mutant["at"], mutant["old"]
    if hashlib.sha256(text.encode()).hexdigest()[:16] != mutant["digest"] or text[at : at + len(old)] != old:
        raise ValueError(f"{mutant['module']} is not the text that {mutant['name']} was made of: list the mutants anew")
    return text[:at] + mutant["new"] + text[at + len(old) :]


def diff(before: str, after: str, module: str) -> str:
    return "".join(unified_diff(before.splitlines(True), after.splitlines(True), module, module, n=2))


NO_END = "no end: "


def _by(ran: Ran) -> str | None:
    """The test that failed."""
    if ran.code == 0:
        return None
    if ran.code is None:
        return NO_END + ran.last
    return ran.failed[0] if ran.failed else f"exit {ran.code}: {ran.output[-300:]}"


# figures


def score(kept: dict[str, Any], z: float = 1.959964) -> dict[str, Any]:
    """Killed of tried, with Wilson's interval of 95 %. Kills by a test that fails without a change don't count."""
    unsure = {row["by"] for row in kept["controls"] if row["killed"]}
    rows = [row for row in kept["rows"] if not (row["killed"] and row["by"] in unsure)]
    n, at_first = (
        len(rows),
        sum(row.get("first", "killed" if row["killed"] else "survived") == "killed" for row in rows),
    )
    found: dict[str, Any] = {"tried": n, "killed": sum(row["killed"] for row in rows), "killed_at_first": at_first}
    found |= {"not_settled": len(kept["rows"]) - n, "controls": len(kept["controls"])}
    found["killed_by_limit"] = sum(row["killed"] and row["by"].startswith(NO_END) for row in rows)
    found["controls_failed"] = sum(row["killed"] for row in kept["controls"])
    for name in ("killed", "killed_at_first"):
        if n:
            share = found[name] / n
            middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
            low, high = (max(0.0, min(1.0, (middle + sign * half) / (1 + z * z / n))) for sign in (-1, 1))
            found[f"share_{name}"] = [round(share, 4), round(low, 4), round(high, 4)]
    return found


def package_scores(kept: dict[str, Any], packages: Mapping[str, int]) -> dict[str, Any]:
    """The score of each package that was drawn from; ``of`` is how many mutants it has. Runs without a change count for
    all: a test that fails in one shows nothing of any package."""
    own: dict[str, list[dict[str, Any]]] = {package: [] for package in packages}
    for row in kept["rows"]:
        own.setdefault(package_of(row["module"]), []).append(row)
    return {name: {"of": packages[name], **score({**kept, "rows": own[name]})} for name in packages}


def earlier(out: Path, seed: int) -> dict[str, Any]:
    """The results that a run goes on with. Those of another seed are moved aside, to a name with their seed."""
    kept = json.loads(out.read_text()) if out.exists() else {}
    if kept.get("seed", seed) != seed:
        aside = out.with_suffix(f".{kept['seed']}.json")
        out.replace(aside)
        print(f"{out} had results of seed {kept['seed']}; they are in {aside} now", flush=True)
        kept = {}
    return {"rows": [], "controls": [], "errors": [], **kept}


def installed(names: Sequence[str]) -> list[str]:
    """Those that a Python without ``PYTHONPATH`` finds: copies are made by such a process."""
    code = (
        "import importlib, sys\nfor n in sys.argv[1:]:\n"
        " try: importlib.import_module(n); print(n)\n except ImportError: pass"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.check_output([sys.executable, "-c", code, *names], env=env, text=True).split()


def main() -> int:
    """Try what is listed and not known; the number of survivors."""
    parser = harness.parser(__doc__)
    parser.add_argument("listed", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--again", action="store_true", help="survivors as well")
    args = parser.parse_args()
    begin, listed = time.monotonic(), json.loads(args.listed.read_text())
    kept = earlier(args.out, listed["seed"])
    os.environ |= {MORE: ",".join(installed(IMPORTED)), "OMP_NUM_THREADS": "1"}
    kept = {
        "environment": harness.environment("pytest", "hypothesis", workers=args.workers),
        "seed": listed["seed"], "of": listed["of"], "score": {}, **kept,
        "files": {}, "left_out": [],
    }  # fmt: skip
    done = {row["name"] for row in kept["rows"] if row["killed"] or not args.again}
    left = [mutant for mutant in safe(listed["mutants"], guarded=guard()) if mutant["name"] not in done]
    run = Run(args.out.resolve(), listed, kept, args.workers, begin + args.seconds)
    run.run(left)
    with run.lock:
        kept["seconds"] = round(kept.get("seconds", 0) + time.monotonic() - begin, 1)
        kept["score"] = score(kept)
        kept["packages"] = package_scores(kept, listed.get("packages", {}))
        run.write()
        print(*package_table(kept["packages"]), sep="\n")
        print(json.dumps(kept["score"]), flush=True)
        os._exit(0)  # threads whose runs were not over


if __name__ == "__main__":
    sys.exit(main())
