"""Tries listed mutants, several at a time: each in a copy of the tree, by the tests of its module.

    python -m benchmarks.mutants.mutants_run LISTED.json OUT.json [--workers 32] [--seconds 460] [--again]

Needs Python and pytest, neither Cosmic Ray nor git nor coverage.py, so that it runs on a machine that is lent for
minutes. ``LISTED.json`` is what ``mutants.py --list`` wrote. A mutant's run begins with the tests that its list has
first and ends with the first failure. The test that failed runs once more on the unchanged tree, alone: if it fails
there, too, it is left out and the mutant is tried again. Runs without any change are mixed in: a test that fails in one
of these shows nothing, and mutants that it alone killed count as not settled. Results are written as they come, so the
run may be ended at any time; the next one goes on. ``--again`` tries survivors once more, after tests have been written
for them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from benchmarks.mutants.mutants import NO_END, package_scores, package_table, score
from benchmarks.mutants.mutants_guard import guard, tryable

sys.path.insert(0, str(ROOT / "tests"))

from forked import IMPORTS, SOURCE, Copies
from inner import NO_SUMMARY

TREE = ("kerntune", "pytest_kerntune", "tests", "benchmarks", "docs", "examples", "baselines", "README.md",
        "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "constraints.txt")  # fmt: skip

ROUNDS = ((3, 5.0), (9, 10.0))
"""Runs of a mutant, until one of them kills it: so many test files, and the processor time, in seconds, after which no
further test begins."""

REST_S = 20.0
"""The last run has what these left of a mutant's tests, the fastest first."""

USUAL_S = 0.1
"""Taken for the time of a test that hasn't run yet."""

LIMIT_S = 150.0
"""A mutant for which no test begins or ends for so long hangs: it is killed. No test that isn't slow takes a tenth."""

CONTROL_EACH = 20
"""One run in so many has no change."""

OPTIONS = ("-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line", *NO_SUMMARY,
           "-p", "benchmarks.mutants.mutants_order", "-W", "ignore:Module already imported so cannot")  # fmt: skip
"""The warning is about hypothesis, which copies have imported."""


IMPORTED = "pytest,xdist,_pytest.pytester,hypothesis.strategies,msgspec,numpy,scipy.stats"
"""What copies needn't import, beside torch and Triton: nothing of what is mutated."""


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
    def passed(self) -> dict[str, float]:
        """Seconds of each test that ended without a failure."""
        return {row["test"]: row["seconds"] for row in self.rows if "seconds" in row and row["test"] not in self.failed}

    @property
    def left(self) -> int:
        """Tests that didn't begin in the time that a round has."""
        return sum(row.get("left", 0) for row in self.rows)

    @property
    def killed(self) -> bool:
        return bool(self.failed) or not (self.code in (0, 5) or (self.code == 2 and self.left))

    @property
    def last(self) -> str:
        """The test that had begun."""
        return next((row["test"] for row in reversed(self.rows) if "test" in row), "its start")


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

    def run(self, tests: Sequence[str], seconds: float, files: Sequence[str] = (), done: Iterable[str] = ()) -> Ran:
        """Run tests in this order, and after them those of ``files`` that aren't ``done``, until one fails or the
        seconds are over."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            scratch, begin = Path(made), time.monotonic()
            progress = scratch / "progress"
            progress.touch()
            order = {"tests": tests, "files": files, "done": sorted(done), "seconds": seconds}
            (scratch / "order").write_text(json.dumps(order))
            env = self._environment(scratch) | {
                "MUTANT_PROGRESS": str(progress), "MUTANT_ORDER": str(scratch / "order"),
                "MUTANT_SCRATCH": str(scratch), "MUTANT_CORES": ",".join(map(str, self._cores)),
                SOURCE: self._copies.socket,
            }  # fmt: skip
            with open(scratch / "output", "w+") as output:
                started = subprocess.Popen(
                    [*self._copies.call, "-m", "pytest", *OPTIONS, *files_of([*tests, *files])], cwd=self.tree, env=env,
                    stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                )  # fmt: skip
                code = self._ended(started, progress)
            self._end_left_over(scratch)
            rows = [json.loads(line) for line in progress.read_text().splitlines() if line.endswith("}")]
            said = (scratch / "output").read_text(errors="replace")[-2000:]
            return Ran(code, rows, time.monotonic() - begin, said)

    def _environment(self, scratch: Path) -> dict[str, str]:
        path = [str(self.tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        (scratch / "tmp").mkdir()
        own = {name: str(scratch / "tmp") for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME")}
        return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": ""}

    @staticmethod
    def _ended(started: subprocess.Popen[bytes], progress: Path) -> int | None:
        """The exit code; None if it hung."""
        while (code := started.poll()) is None:
            if time.time() - progress.stat().st_mtime > LIMIT_S:
                started.kill()  # with it the copy that it stands for
                started.wait()
                return None
            time.sleep(0.02)
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


@dataclass
class Run:
    """All that is known while mutants are tried."""

    out: Path
    config: dict[str, Any]
    kept: dict[str, Any]
    workers: int
    end: float
    sound: dict[str, bool] = field(default_factory=dict)
    """Whether a test passes alone on the unchanged tree, of those that have failed."""

    took: dict[str, float] = field(default_factory=dict)
    """Seconds of each test when it last ran."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False

    def try_one(self, worker: Worker, mutant: dict[str, Any]) -> None:
        """Try a mutant and keep what came of it."""
        path = worker.tree / mutant["module"]
        text = path.read_text()
        changed = mutated(text, mutant)
        begin, runs = time.monotonic(), []
        rounds, done = [*rounds_of(mutant), (mutant["tests"], mutant["near"], REST_S)], set[str]()
        while rounds:
            (tests, files, seconds), *rest = rounds
            tests = [test for test in tests if self.sound.get(test, True) and test not in done]
            if not rest:
                tests.sort(key=lambda test: self.took.get(test, USUAL_S))
            if not tests and not files:  # pytest would take all
                rounds = rest
                continue
            with changed_file(path, changed):
                unsound = {test for test, passes in self.sound.items() if not passes}
                runs.append(ran := worker.run(tests, seconds, files, done | unsound))
            done |= ran.passed.keys()
            self.took |= ran.passed
            if not ran.killed:
                rounds = rest
            elif changed == text or self._stands(worker, ran):
                break
        row = {k: mutant[k] for k in ("name", "module", "digest", "line", "change", "ran_its_line")}
        row |= {"killed": ran.killed, "by": _by(ran), "seconds": round(time.monotonic() - begin, 1)}
        row |= {"tests": sum("seconds" in one for run in runs for one in run.rows), "left": runs[-1].left}
        if not ran.killed:
            row["diff"] = diff(text, changed, mutant["module"])
        with self.lock:
            if not self.over:
                self.keep(mutant, row)

    def _stands(self, worker: Worker, ran: Ran) -> bool:
        """Whether the test that failed passes without the change; if not, it runs no more."""
        test = (ran.failed or [ran.last])[0]
        if "::" not in test or self.sound.get(test):
            return True
        alone = worker.run([test], LIMIT_S)
        self.sound[test] = not alone.killed
        if alone.killed:
            with self.lock:
                self.kept["left_out"] = sorted({*self.kept["left_out"], test})
        return self.sound[test]

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
        """Try the mutants, by as many threads as there are workers. Each has a process of its own to copy: Linux shares
        processors out by session first (``autogroup`` in sched(7))."""
        os.environ |= {IMPORTS: IMPORTED, "OMP_NUM_THREADS": "1"}
        sources, waiting = [Copies() for _ in range(self.workers)], deque(with_controls(mutants))
        with tempfile.TemporaryDirectory(prefix="kerntune-mutants-", ignore_cleanup_errors=True) as folder:
            try:
                for copies in sources:
                    copies.start()
                self._share_out([Worker(Path(folder, str(i)), c, two_cores(i)) for i, c in enumerate(sources)], waiting)
            finally:
                with self.lock:
                    self.over = True
                    spent = sum(copies.processor_seconds() for copies in sources)
                    self.kept["core_seconds"] = round(self.kept.get("core_seconds", 0) + spent, 1)
                for copies in sources:
                    copies.close()

    def _share_out(self, workers: Sequence[Worker], waiting: deque[dict[str, Any]]) -> None:
        """Give mutants to whichever worker is free, until the time is up."""

        def work(worker: Worker) -> None:
            while waiting and time.monotonic() < self.end:
                try:
                    self.try_one(worker, waiting.popleft())
                except Exception as exc:
                    with self.lock:
                        self.kept["errors"].append(repr(exc))
                        print(repr(exc), flush=True)

        threads = [threading.Thread(target=work, args=[worker], daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.end + 2 - time.monotonic()))


def rounds_of(mutant: dict[str, Any]) -> list[tuple[list[str], list[str], float]]:
    """Tests, files of which all tests follow, and seconds of each round but the last."""
    rounds: list[tuple[list[str], list[str], float]] = [([], mutant["first"], ROUNDS[0][1])]
    files, begin = files_of(mutant["tests"]), 0
    for count, seconds in ROUNDS:
        own = set(files[begin : begin + count])
        rounds.append(([test for test in mutant["tests"] if test.partition("::")[0] in own], [], seconds))
        begin += count
    tests, _, seconds = rounds[-1]
    rounds[-1] = tests, mutant["near"], seconds
    return [one for one in rounds if one[0] or one[1]]


def files_of(tests: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


MTIMES = itertools.count(1_000_000_000)


@contextmanager
def changed_file(path: Path, changed: str) -> Iterator[None]:
    """Another text for a while, with a time of its own: by it Python tells which bytecode is that of a text."""
    text, stat = path.read_text(), path.stat()
    if changed == text:
        yield
        return
    path.write_text(changed)
    moment = next(MTIMES)
    os.utime(path, (moment, moment))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


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


def _by(ran: Ran) -> str | None:
    """The test that failed."""
    if not ran.killed:
        return None
    if ran.code is None and not ran.failed:
        return NO_END + ran.last
    return ran.failed[0] if ran.failed else f"exit {ran.code}: {ran.output[-300:]}"


def earlier(out: Path, seed: int) -> dict[str, Any]:
    """The results that a run goes on with. Those of another seed are moved aside, to a name with their seed."""
    kept = json.loads(out.read_text()) if out.exists() else {}
    if kept.get("seed", seed) != seed:
        aside = out.with_suffix(f".{kept['seed']}.json")
        out.replace(aside)
        print(f"{out} had results of seed {kept['seed']}; they are in {aside} now", flush=True)
        kept = {}
    return {"rows": [], "controls": [], "errors": [], **kept}


def main() -> int:
    """Try what is listed and not known; the number of survivors."""
    parser = harness.parser(__doc__)
    parser.add_argument("listed", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--again", action="store_true", help="survivors as well")
    args = parser.parse_args()
    begin, listed = time.monotonic(), json.loads(args.listed.read_text())
    kept = earlier(args.out, listed["seed"])
    kept = {
        "environment": harness.environment("pytest", "hypothesis", workers=args.workers),
        "seed": listed["seed"], "of": listed["of"], "score": {}, "left_out": [], **kept,
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
