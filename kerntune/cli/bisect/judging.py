"""What is asked of a version: its code by compiling alone, and whether it is slower than the good one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.device import Target
from kerntune.base.live_line import count_text, tell
from kerntune.base.policy import Verdict
from kerntune.cli.bisect.bisected_version import BisectedProject, BisectedVersion, Checkout, NotBuilt, last_lines
from kerntune.cli.bisect.preloaded import CommandRuns
from kerntune.cli.changes import SPILLED, grid_change
from kerntune.cli.static_diff import SAME_CODE, figures_text, launch_changes
from kerntune.cli.stored import load_folder, problems
from kerntune.errors import BaselineError, KerntuneError, UsageError
from kerntune.gate.baseline_files import inside
from kerntune.gate.baselines import Baseline, StaticBaseline, TimeBaseline
from kerntune.gate.console import some_of
from kerntune.gate.launch_changes import launch_lines
from kerntune.gate.report import RunReport, read_run
from kerntune.gate.static_figures import LaunchStatic, in_both
from kerntune.gpu.probe import has_cuda

NOTHING_RAN = 5
"""pytest's exit code of a run without a test; 0 and 1 are runs that ran, all others broke off."""

TRIES = 2
"""Measurements of a version before INCONCLUSIVE is what it is."""

NOT_SLOWER = (Verdict.PASS, Verdict.IMPROVED, Verdict.DRIFTED, Verdict.NEW)
"""NEW is among them where only static figures are compared: without a baseline of this Triton's own, no rule fails."""

Identity = tuple[tuple[CaseId, str, tuple[tuple[str, tuple[int, int, int]], ...]], ...]
"""Of each case its inputs' fingerprint, and the code and grid of its launches."""


@dataclass(frozen=True)
class ScreenedVersion:
    """A version's code. ``identity`` is None if it is unknown, for the ``reason``."""

    identity: Identity | None
    reason: str = ""
    launches: dict[CaseId, tuple[LaunchStatic, ...]] = field(default_factory=dict)
    triton: str = ""
    target: Target | None = None
    slower: bool | None = None
    """Whether a static rule fails against the good version; None if that is unknown."""

    messages: tuple[str, ...] = ()
    """Of its cases, by static figures."""


class TimedVersion(NamedTuple):
    """Whether a version is slower than the good one, None if that is unknown, and the messages of its cases."""

    slower: bool | None
    messages: tuple[str, ...]


class VersionJudge:
    """Runs the project's tests of one version after the other beside the good version's baselines.

    ``target`` is what to compile for where nothing is timed; empty to time on this machine's GPU. Runs write to the
    folder ``scratch``.
    """

    def __init__(self, project: BisectedProject, target: str, scratch: Path, processes: int = 1) -> None:
        self._project, self._target, self._scratch = project, target, scratch
        self.timed = not target
        self._processes = max(1, processes)
        self._numbers = count()
        self._runs = CommandRuns()
        self._good: dict[CaseId, Baseline] = {}
        self._known: dict[BisectedVersion, ScreenedVersion] = {}
        """The good version itself, where it was recorded by compiling."""

    @property
    def _yard(self) -> Path:
        """The good version's baselines."""
        return self._scratch / "good"

    def record_good(self, version: BisectedVersion) -> tuple[CaseId, ...]:
        """Record the version that all others are compared with; its cases. :class:`UsageError` if there are none."""
        tell(f"recording the good side, {version}")
        try:
            with self._project.laid_out(version) as layout:
                options = [f"--kerntune-target={self._target}"] if self._target else []
                done, run = self._run(layout, [*options, f"--kerntune-export={self._yard}"])
        except NotBuilt as exc:
            raise UsageError(f"the good side can't be built: {exc}") from None
        except OutOfOrder as exc:
            raise UsageError(f"the good side, {version}{self._need}: {exc}") from None
        cases = self._take_good(f"the good side, {version}", _failures(run) or last_lines(done))
        if not self.timed:
            self._known[version] = self._screened(version, run, self._yard)
        return cases

    def reuse_good(self, folder: Path) -> tuple[CaseId, ...]:
        """Take the good version's baselines from a folder that an earlier run has kept. :class:`UsageError` if a
        link leads out of it."""
        try:
            for place, folders, files in os.walk(folder):
                for name in (*folders, *files):
                    inside(folder, Path(place, name))
        except BaselineError as exc:
            raise UsageError(str(exc)) from None
        shutil.copytree(folder, self._yard, dirs_exist_ok=True)
        return self._take_good(str(folder), "no baseline of these tests")

    def keep_good(self, folder: Path) -> None:
        """Copy the good version's baselines to a folder, for :meth:`reuse_good`."""
        shutil.copytree(self._yard, folder, dirs_exist_ok=True)

    def _take_good(self, where: str, why: str) -> tuple[CaseId, ...]:
        kind = TimeBaseline if self.timed else StaticBaseline
        entries = load_folder(self._yard)
        self._good = {b.case: b for e in entries if isinstance(b := e.baseline, kind)}
        if not self._good:
            raise UsageError("\n".join([f"{where}: no case was recorded{self._need}: {why}", *problems(entries)]))
        return tuple(sorted(self._good))

    @property
    def _need(self) -> str:
        """What to do where there is no GPU, and nothing says what to compile for."""
        return "" if not self.timed or has_cuda() else " (without a GPU, say what to compile for: --target cuda:90)"

    def close(self) -> None:
        """End the processes in which versions run."""
        self._runs.close()

    def screen(self, versions: Sequence[BisectedVersion]) -> list[ScreenedVersion]:
        """The code of each version, compiled without a GPU, several versions at once."""
        new, begin = [v for v in versions if v not in self._known], time.monotonic()
        done = count(1)

        def screened(version: BisectedVersion) -> ScreenedVersion:
            if version in self._known:
                return self._known[version]
            found = self._screen(version)
            tell(f"{count_text(next(done), len(new), 'versions compiled', time.monotonic() - begin)}: {version}")
            return found

        if new:
            tell(f"compiling {some_of(list(map(str, new)), 2)}")
        with ThreadPoolExecutor(max_workers=self._processes) as pool:
            return list(pool.map(screened, versions))

    def _screen(self, version: BisectedVersion) -> ScreenedVersion:
        targets = self._target or ",".join(sorted({str(b.target) for b in self._good.values()}))
        try:
            run, folder = self._run_beside_good(version, f"--kerntune-target={targets}")
        except (NotBuilt, OutOfOrder) as exc:
            return ScreenedVersion(None, str(exc))
        except KerntuneError as exc:
            return ScreenedVersion(None, f"{version}: {exc}")
        return self._screened(version, run, folder)

    def _screened(self, version: BisectedVersion, run: RunReport, folder: Path) -> ScreenedVersion:
        missing = [c for c in self._good if c.nodeid in run.failed]
        if missing:
            return ScreenedVersion(None, f"{version}: {missing[0]} fails: {run.failed[missing[0].nodeid]}")
        mine = [r for r in run.results if r.case in self._good]
        ran = {(r.case, r.fingerprint) for r in mine}
        fresh = [b for b in (e.baseline for e in load_folder(folder)) if isinstance(b, StaticBaseline)]
        fresh = _of_one_triton([b for b in fresh if (b.case, b.fingerprint) in ran], self._good)
        absent = sorted(set(self._good) - {b.case for b in fresh})
        if absent:
            return ScreenedVersion(None, f"{version}: {absent[0]} has launched nothing that can be compiled")
        return ScreenedVersion(
            identity=tuple(sorted((b.case, b.fingerprint, tuple((x.code, x.grid) for x in b.launches)) for b in fresh)),
            launches={b.case: b.launches for b in fresh},
            triton=fresh[0].triton,
            target=fresh[0].target,
            slower=_slower(mine),
            messages=_messages(mine),
        )

    def measure(self, version: BisectedVersion) -> TimedVersion:
        """Time a version on the GPU beside the good one's binaries."""
        tell(f"timing {version}")
        last = TimedVersion(None, ())
        for _ in range(TRIES):
            last = self._measure(version)
            if last.slower is not None:
                break
        return last

    def _measure(self, version: BisectedVersion) -> TimedVersion:
        try:
            run, _ = self._run_beside_good(version, "--kerntune-update=new")
        except (NotBuilt, OutOfOrder, KerntuneError) as exc:
            return TimedVersion(None, (str(exc),))
        mine = [r for r in run.results if r.case in self._good]
        if not mine:
            return TimedVersion(None, (_failures(run) or f"{version}: none of the cases ran",))
        new = [r for r in mine if r.verdict is Verdict.NEW]
        return TimedVersion(None if new else _slower(mine), _messages(mine))

    def _run_beside_good(self, version: BisectedVersion, option: str) -> tuple[RunReport, Path]:
        """The report of a version's run beside a copy of the good side's baselines, and the folder of the copy."""
        folder = self._scratch / f"beside-{next(self._numbers)}"
        shutil.copytree(self._yard, folder)
        with self._project.laid_out(version) as layout:
            _, run = self._run(layout, [f"--kerntune-baselines={folder}", option])
        return run, folder

    def _run(self, layout: Checkout, options: Sequence[str]) -> tuple[str, RunReport]:
        """The output of the project's tests with ``options``, and the run's report; :class:`OutOfOrder` without one."""
        log = self._scratch / f"run-{next(self._numbers)}.json"
        command = ["baselines", "refresh", "-q", "-p", "no:cacheprovider", f"--kerntune-json={log}"]
        said = log.with_suffix(".txt")
        code = self._runs.run(layout, [*command, *options, *self._project.tests], said)
        output = said.read_text(errors="replace")
        if code not in (0, 1, NOTHING_RAN) or not log.exists():
            errors = [x.removeprefix("E ").strip() for x in output.splitlines() if x.startswith("E ")]
            shown = errors[-1] if errors else last_lines(output)
            raise OutOfOrder(f"its tests ended with code {code}: {shown}")
        return output, read_run(log)


class OutOfOrder(Exception):
    """A run of pytest that broke off: nothing can be said of its version."""


def _failures(run: RunReport) -> str:
    return next((f"{name} fails: {why}" for name, why in run.failed.items()), "")


def _of_one_triton(found: list[StaticBaseline], good: dict[CaseId, Baseline]) -> list[StaticBaseline]:
    """Those of the run's own Triton: the folder has the good side's from before, which may be of another one."""
    before = {b.triton for b in good.values() if isinstance(b, StaticBaseline)}
    return [b for b in found if b.triton not in before] or found


def _messages(results: Sequence[CaseResult]) -> tuple[str, ...]:
    found = tuple(r.message for r in results if r.verdict is not Verdict.PASS)
    return found or tuple(r.message for r in results)


def _slower(results: Sequence[CaseResult]) -> bool | None:
    verdicts = {r.verdict for r in results}
    if Verdict.REGRESSED in verdicts:
        return True
    return False if verdicts and verdicts <= set(NOT_SLOWER) else None


FIGURES_SHOWN = ("registers", SPILLED, "shared bytes", "occupancy")
"""Figures of a launch that are listed for each version; the sizes of its code follow any change."""


def differences(before: ScreenedVersion, after: ScreenedVersion, *, same_code: bool = False) -> list[str]:
    """What differs between the code of two versions: for each launch a sentence with the first compiler stage, its
    figures that changed, and what the static rules say of them. ``same_code``: both are of one commit."""
    lines: list[str] = []
    for case, new in after.launches.items():
        old = before.launches.get(case, ())
        for launch in launch_changes(old, new, (before.triton, after.triton), after.target, same_code=same_code):
            lines += [f"{launch.kernel}: because of {launch.because}"] if launch.because != SAME_CODE else []
            figures = [x for x in launch.figures if x.name in FIGURES_SHOWN]
            lines += [f"{launch.kernel}: {figures_text(figures)}"] if figures else []
            lines += [f"{x.severity}: {launch.kernel}: {x.text}" for x in launch.findings if x.severity != "info"]
        lines += launch_lines(old, new)
        lines += [text for _, a, b in in_both(old, new) for text in grid_change(a, b)]
    return list(dict.fromkeys(lines))
