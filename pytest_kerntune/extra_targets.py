"""Several targets without a GPU: the first is this run's, each other one's tests run in a process of their own.

What a device is asked (its capability, ``torch.version.hip``, ``driver.active``) is asked anywhere: in the function
that is checked, in the test's body, while modules are imported, once for ever behind ``lru_cache``. Only a process in
which every question has been answered for the target launches what that target would see launched.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.orphans import bound_command
from kerntune.base.policy import Outcome, Verdict
from kerntune.errors import KerntuneError
from kerntune.gate.pytest_run import plugin_args
from kerntune.gate.report import RunReport, read_run
from pytest_kerntune.against import FINE, LINES
from pytest_kerntune.options import PART_OF_ANOTHER

UNATTENDED = ("-p", PART_OF_ANOTHER)
"""The plugin that these runs have in addition."""

WARN = ("-W", "default::pytest_kerntune.warning.KerntuneWarning")
"""What these runs warn of, this one warns of, or fails for under ``-W error``: there it would hide the verdict."""

LOOKING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")
"""Destinations of options with which pytest only shows what it would run."""


@dataclass(frozen=True)
class Further:
    """The results of the runs for further targets, by target; and which tests of this process have reported them."""

    runs: Mapping[str, RunReport] = field(default_factory=dict)

    def results(self, nodeid: str) -> list[CaseResult]:
        """What a test came to for the further targets. One that fails there by itself is INCOMPLETE and fails."""
        found: list[CaseResult] = []
        for target, run in self.runs.items():
            found += _results(nodeid, target, run)
        return found

    @property
    def tests(self) -> list[str]:
        """The node ids of all tests that have something to say, each once."""
        named = (n for run in self.runs.values() for n in (*(r.case.nodeid for r in _checked(run)), *run.failed))
        return list(dict.fromkeys(named))

    @property
    def stale(self) -> list[CaseResult]:
        """The stale baselines of the further targets."""
        return [r for run in self.runs.values() for r in run.results if r.verdict is Verdict.STALE]

    @property
    def static_only(self) -> dict[str, str]:
        """Tests that ended early there for want of a GPU, and why."""
        return {n: f"{why} ({target})" for target, run in self.runs.items() for n, why in run.static_only.items()}

    @property
    def baselines(self) -> dict[str, Any]:
        """The bundles of these runs."""
        return {name: bundle for run in self.runs.values() for name, bundle in run.baselines.items()}


def runs_tests(config: pytest.Config) -> bool:
    """Whether this run runs its tests."""
    return not any(getattr(config.option, name, False) for name in LOOKING)


def run_further(config: pytest.Config, targets: Sequence[str], into: Path) -> Path:
    """Run this run's tests once for each target; ``into``, under which :func:`read_further` finds what they say.

    :class:`KerntuneError` if such a run breaks off.
    """
    for target in targets:
        _run(config, target, into / target.replace(":", "-"))
    return into


def read_further(targets: Sequence[str], folder: Path) -> Further:
    """What :func:`run_further` left for ``targets``."""
    return Further({t: read_run(_json(folder / t.replace(":", "-"))) for t in targets})


def _run(config: pytest.Config, target: str, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", *plugin_args(), *UNATTENDED, *arguments(config, target, into)]
    done = subprocess.run(
        bound_command(command), cwd=config.invocation_params.dir, env=_environment(), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in FINE or not _told(done.returncode, _json(into)):
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-LINES:])
        raise KerntuneError(f"the run for {target} ended with code {done.returncode}:\n{tail}")


def arguments(config: pytest.Config, target: str, into: Path) -> list[str]:
    """This run's own, with another target, and with its files under ``into``. Of an option given twice pytest takes
    the last. What else kerntune would write these runs leave to this one, wherever it was asked for
    (:meth:`SettingSource.leaves <pytest_kerntune.setting.SettingSource.leaves>`)."""
    out = [str(a) for a in config.invocation_params.args]
    separator = out.index("--") if "--" in out else len(out)
    more = [
        "--kerntune",
        "--continue-on-collection-errors",
        f"--kerntune-target={target}",
        f"--kerntune-json={_json(into)}",
        "--maxfail=0",
        "--tb=line",
        *WARN,
    ]
    if config.getoption("benchmark_disable", None) is not None and not config.getoption("benchmark_only"):
        more.append("--benchmark-disable")  # a user's own benchmarks are this run's to time and to save
    if config.getoption("xmlpath", None):
        more.append(f"--junitxml={into / 'junit.xml'}")
    return [*out[:separator], *more, *out[separator:]]


def _environment() -> dict[str, str]:
    """Ours, with this kerntune, wherever it was started from."""
    paths = (str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", ""))
    mine = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST" and not k.startswith("PYTEST_XDIST")}
    return {**mine, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def _json(folder: Path) -> Path:
    return folder / "run.json"


def _told(code: int, path: Path) -> bool:
    """Whether a run's file says why the run failed, if it did."""
    if not path.is_file():
        return False
    run = read_run(path)
    return code != pytest.ExitCode.TESTS_FAILED or bool(run.failed)


def _results(nodeid: str, target: str, run: RunReport) -> Iterator[CaseResult]:
    mine = [r for r in _checked(run) if r.case.nodeid == nodeid]
    yield from mine
    if nodeid in run.failed and not any(r.outcome is Outcome.FAIL for r in mine):
        message = f"INCOMPLETE {nodeid} ({target}): the test fails there: {run.failed[nodeid]}"
        yield CaseResult(CaseId(nodeid, "0"), "", Verdict.INCOMPLETE, Outcome.FAIL, message, target)


def _checked(run: RunReport) -> list[CaseResult]:
    return [r for r in run.results if r.verdict is not Verdict.STALE]
