"""``--kerntune-sealed``: verdicts, JSON and exit code come from a process that imports no file of the project.

pytest replaces itself by that process before it loads a conftest. It reads settings and baselines from git, has a
sealed child run the tests, and decides what the child claims anew (:mod:`kerntune.gate.claimed_cases`). It is a pytest
run without tests of its own: as xdist's controller it hands on reports, and writes at the end what they came to.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.codec import MAX_REPORT
from kerntune.base.device import TYPICAL_DEVICES, Target
from kerntune.base.folders import scratch_folder
from kerntune.base.formatting import visible
from kerntune.base.policy import Outcome, Policy
from kerntune.errors import KerntuneError, MeasurementError, StoreError, UsageError
from kerntune.gate import git
from kerntune.gate.api import Session, open_session
from kerntune.gate.claimed_cases import CodeFigures, CodeRequest, Judge, claimed_cases, unreported
from kerntune.gate.console import complain
from kerntune.gate.project import plugin_args
from kerntune.gate.report import RunReport, decode_run
from kerntune.referee.sealed_process import Answered, SealedProcesses
from pytest_kerntune import options
from pytest_kerntune.marker import SIGNATURE, policy_of_marks, without_id
from pytest_kerntune.options import FLAGS, Options
from pytest_kerntune.other_runs import FINE, UNATTENDED, ExtraTargets, anchor_folder
from pytest_kerntune.payload import Payload, attach
from pytest_kerntune.reference_settings import ReferenceSettings, reference_settings
from pytest_kerntune.run_conditions import covered, scratch_of
from pytest_kerntune.run_end import RunEnd
from pytest_kerntune.sealed_tasks import MOST_PRINTED, TestRun, TestsRan
from pytest_kerntune.terminal import write_text
from pytest_kerntune.values import parted

SECONDS = 3600.0
"""The tests, and then the compiler, may take an hour each: a CI job's own limit comes sooner as a rule."""

REF, NO_RERUNS = "--kerntune-baselines-ref", ("-p", "no:rerunfailures")  # beside xdist these open a socket

PASSED_ON = (
    "--kerntune-baselines",
    "--kerntune-tolerance",
    "--kerntune-strict",
    "--kerntune-anchor",
    "--kerntune-tune",
)
"""Options of kerntune that the tests' own run has, too."""

REFUSED = ("--kerntune-update", "--kerntune-against", "--kerntune-interpret", "--kerntune-export", "--kerntune-profile")
"""Options that need a run which writes, times or computes."""

PROGRAM = (
    "import sys; del sys.path[0]; sys.path.insert(0, sys.argv.pop(1)); "
    "from pytest_kerntune.sealed import main; sys.exit(main(sys.argv[1:]))"
)

OWN_REPORT = "sealed-run"
"""The node id of what is said of the run itself."""


def become(config: pytest.Config) -> NoReturn:
    """Replace this process by the one that decides, with the same arguments. Of what was loaded here (plugins that the
    ini file names) nothing is left."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)  # standard output and error are files of its own until then
    sys.stdout.flush()
    sys.stderr.flush()
    given = [str(word) for word in config.invocation_params.args]
    root = [f"--rootdir={config.rootpath}"] if config.inipath is None else []
    os.chdir(config.invocation_params.dir)
    os.execv(sys.executable, [sys.executable, "-E", "-c", PROGRAM, git.own_path(), *root, *given])


def main(arguments: Sequence[str]) -> int:
    """Run the tests in a sealed child and decide here; pytest's exit code. ``arguments`` are those of pytest."""
    environment = dict(os.environ)
    words = [*shlex.split(environment.get("PYTEST_ADDOPTS", "")), *arguments]
    try:
        run = SealedRun.of(words, Path.cwd(), environment)
    except (KerntuneError, pytest.UsageError) as exc:
        complain(str(exc))
        return int(pytest.ExitCode.USAGE_ERROR)
    _forget_project(run.top)
    for name in [n for n in os.environ if n.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with scratch_folder("sealed") as scratch:
        ini = scratch / "pytest.ini"
        ini.write_text(f"[pytest]\ntestpaths = {' '.join(run.testpaths)}\n")
        return int(pytest.main([f"--config-file={ini}", *run.own_arguments], plugins=[run]))


def _forget_project(top: Path) -> None:
    """Nothing is imported from the repository any more, but for an environment in it, and this kerntune."""
    kept = (Path(sys.prefix).resolve(), Path(git.own_path()))
    places = {entry: Path(entry).resolve() for entry in sys.path}
    sys.path[:] = [e for e, p in places.items() if not p.is_relative_to(top) or any(p.is_relative_to(k) for k in kept)]


# what the command line and the revision say


def parsed(words: Sequence[str]) -> tuple[Namespace, list[str]]:
    """kerntune's options and those of pytest that this process needs; all other words, which are for the tests."""
    parser = ArgumentParser(prog="pytest", add_help=False, allow_abbrev=False)
    registry: Any = SimpleNamespace(addoption=parser.add_argument, addini=lambda *args, **kwargs: None)
    for option in FLAGS:
        option.register(registry, registry)
    parser.add_argument("--rootdir")
    parser.add_argument("-c", "--config-file", dest="inifilename")
    parser.add_argument("-o", "--override-ini", action="append", default=[])
    parser.add_argument("--junitxml", "--junit-xml", dest="xmlpath")
    parser.add_argument("--color")
    parser.add_argument("-v", "--verbose", action="count", default=0)
    parser.add_argument("-q", "--quiet", action="count", default=0)
    args, names = parted(words)
    given, rest = parser.parse_known_args(args)
    return given, [*rest, *names]


class RevisionConfig:
    """What :class:`~pytest_kerntune.setting.SettingSource` reads of pytest's config, of a revision instead: the ini
    file is the revision's."""

    def __init__(self, given: Namespace, words: Sequence[str], folder: Path, revision: str) -> None:
        self.invocation_params = SimpleNamespace(args=tuple(words), dir=folder)
        self.option = given
        self.pluginmanager = SimpleNamespace(hasplugin=lambda name: False)
        self.inipath = None
        start = Path(os.path.abspath(folder / given.rootdir)) if given.rootdir else folder
        config: Any = self
        self.settings: ReferenceSettings = reference_settings(revision, config, given, start)
        self.rootpath = start if given.rootdir else self.settings.root

    def getini(self, name: str) -> str:
        """A setting of the command line (``-o``), else of the revision's ini file."""
        said = dict(word.split("=", 1) for word in self.option.override_ini if "=" in word)
        return str(said[name]) if name in said else self.settings.text(name)


def _words(value: object) -> list[str]:
    """``addopts`` or ``testpaths`` of an ini file, which may be a list in TOML."""
    return [str(x) for x in value] if isinstance(value, (list, tuple)) else shlex.split(str(value))


@dataclass(eq=False)
class SealedRun:
    """The plugin of the process that decides. It holds what was read from the revision before pytest began."""

    options: Options
    settings: ReferenceSettings
    given: Namespace
    rest: list[str]
    """The words of the command line for the tests' own run."""

    root: Path
    folder: Path
    environment: Mapping[str, str]
    testpaths: list[str]
    targets: tuple[Target, ...]
    _unread: dict[str, None] = field(default_factory=dict)
    """Tests whose markers can't be read without running their file."""

    @classmethod
    def of(cls, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> SealedRun:
        """What this command line asks for. :class:`UsageError` for what a sealed run can't do."""
        given, rest = parsed(words)
        if not given.kerntune_baselines_ref:
            raise UsageError(f"--kerntune-sealed: name the revision that counts, as {REF}=origin/main")
        given.file_or_dir = [word for word in rest if not word.startswith("-")]
        config: Any = RevisionConfig(given, words, folder, given.kerntune_baselines_ref)
        settings = config.settings
        of_file, _ = parsed(_words(settings.values.get("addopts", "")))
        for option in FLAGS:  # the command line comes first
            if getattr(given, option.dest) in (None, False):
                setattr(given, option.dest, getattr(of_file, option.dest))
        named = [flag for flag in REFUSED if getattr(given, _dest(flag)) not in (None, False)]
        if named:
            raise UsageError(f"--kerntune-sealed: {', '.join(named)} can't be had there; run pytest without it")
        found = options.resolve(config, given, environment)
        known = tuple(t for t in settings.targets(found.reference_baselines) if str(t) in TYPICAL_DEVICES)
        targets = tuple(Target.parse(t) for text in found.targets for t in text.split(",")) or known
        if not targets:
            raise UsageError(
                f"--kerntune-sealed compares static figures, and {given.kerntune_baselines_ref} has baselines of no "
                "target; say one, as --kerntune-target=cuda:90"
            )
        testpaths = _words(settings.values.get("testpaths", ""))
        return cls(found, settings, given, rest, config.rootpath, folder, environment, testpaths, targets)

    @property
    def top(self) -> Path:
        """The root of the repository."""
        return self.settings.top

    @property
    def own_arguments(self) -> list[str]:
        """What pytest is called with in this process."""
        more = [f"--junitxml={self.given.xmlpath}"] if self.given.xmlpath else []
        more += [f"--color={self.given.color}"] if self.given.color else []
        more += ["-v"] * self.given.verbose + ["-q"] * self.given.quiet
        there = [word for word in self.given.file_or_dir if (self.folder / word.partition("::")[0]).exists()]
        return ["--noconftest", "-p", "no:cacheprovider", f"--rootdir={self.root}", *more, *there]

    @property
    def tests_words(self) -> list[str]:
        """What the tests' own pytest is called with; where its JSON goes is for the child to say."""
        flags = ["--kerntune", f"{REF}={self.settings.commit}", f"--kerntune-target={','.join(map(str, self.targets))}"]
        flags += ["--kerntune-missing=warn", f"--rootdir={self.root}", "-o", "cache_dir=$TMPDIR/pytest_cache"]
        for flag in PASSED_ON:
            value = getattr(self.given, _dest(flag))
            flags += [flag] if value is True else [f"{flag}={value}"] if value else []
        flags += [f"--config-file={self.given.inifilename}"] if self.given.inifilename else []
        flags += [f"--override-ini={word}" for word in self.given.override_ini]
        args, names = parted(self.rest)
        without = () if any(w.startswith("--reruns") for w in self.rest) else NO_RERUNS
        return [*plugin_args(), *UNATTENDED, *without, *args, *flags, *names]

    # pytest's hooks

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        options.add_options(parser)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", SIGNATURE)
        config.option.kerntune_sealed = True
        self.end = RunEnd(config, self.options)
        config.pluginmanager.register(self.end, "kerntune_end")
        self._config = config

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Any:
        with options.usage_errors():
            self._open()
        return (yield)

    def _open(self) -> None:
        asked, into = self.options, scratch_of(self._config)
        settings = replace(asked.settings(), targets=tuple(map(str, self.targets)))
        self.engine: Session = open_session(settings, every_target=True)
        self._config.add_cleanup(self.engine.close)
        name = f"{self.given.kerntune_baselines_ref} ({self.settings.commit[:10]})"
        self.engine.hold_against(git.extract(self.settings.commit, asked.reference_baselines, into, asked.root), name)
        if asked.anchor:
            self.engine.anchor_at(anchor_folder(asked, into), asked.anchor_name)
        told = "sealed: tests run in a process that decides nothing; only static figures are compared"
        self.end.begin(self.engine, (*self.engine.header(), told), ExtraTargets())

    def pytest_collection(self) -> bool:
        """Nothing is collected here."""
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        with options.usage_errors():
            reports = self._reports()
        session.testscollected = len(reports)
        for report in reports:
            session.config.hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
            session.config.hook.pytest_runtest_logreport(report=report)
        return True

    # the run

    def _reports(self) -> list[pytest.TestReport]:
        with closing(SealedProcesses(module="pytest_kerntune.sealed_tasks")) as processes:
            ran, run, problem = self._tests(processes)
            claimed = claimed_cases(run, self.targets)
            judge = Judge(self.engine.stores, self._policy, lambda asked: _figures(processes, asked))
            results = judge.results(claimed)
        decided = [key for key, case in claimed.items() if case.decidable]
        missing = unreported(self.engine.stores, self.targets, decided)
        failing = {(r.case, r.target) for r in results if r.outcome is Outcome.FAIL}  # with a reason of their own
        left_out = [r for r in missing if self._selected(r.case.nodeid) and (r.case, r.target) not in failing]
        results += left_out
        if left_out and any(word[:2] in ("-k", "-m") for word in self.rest):
            self.end.notes.append("-k and -m don't narrow a sealed run: what they leave out is missing; name the tests")
        reports = list(_by_test(results, run.failed))
        failed = any(report.failed for report in reports)
        if not problem and ran is not None and ran.code == pytest.ExitCode.TESTS_FAILED and not failed:
            problem = "the tests' pytest ended with exit code 1, and named no failure"
        if problem:
            reports.append(_report(OWN_REPORT, (), problem))
        self._print(ran, bool(problem) or failed)
        if self._unread:
            self.end.notes.append(
                f"markers that aren't literals in {self.given.kerntune_baselines_ref}; there the ini file's settings "
                f"count: {', '.join(self._unread)}"
            )
        return reports

    def _tests(self, processes: SealedProcesses) -> tuple[TestsRan | None, RunReport, str]:
        """What the child says of itself, the run that it claims, and what is wrong with that."""
        nothing = RunReport(())
        task = TestRun(tuple(self.tests_words), str(self.folder), self._environment)
        most = MAX_REPORT + 2 * MOST_PRINTED
        answered = processes.ask("tests", task, self._readable, SECONDS, most, memory=0)  # libraries of CUDA map GiB
        if answered.end.cannot_seal:
            raise UsageError(f"--kerntune-sealed: {answered.end.cannot_seal}; nothing was run")
        ran = _decoded(answered)
        if ran is None:
            why = f"did not end within {SECONDS:.0f} s" if answered.end.late else f"ended ({answered.end.code})"
            return None, nothing, f"the tests' process {why} and left no answer"
        problem = "" if ran.code in FINE else f"the tests' pytest ended with exit code {ran.code}"
        if answered.end.survivors:
            problem = f"{answered.end.survivors} processes that tests have started could not be ended"
        if not ran.report:
            return ran, nothing, f"the tests' pytest ended with exit code {ran.code} and reported nothing"
        try:
            return ran, decode_run(ran.report, "the tests' report"), problem
        except StoreError as exc:
            return ran, nothing, visible(str(exc)[:500])

    @property
    def _readable(self) -> tuple[str, ...]:
        """What tests may read beside Python and the system: the repository, and what the caller has Python import."""
        found = git.git_output(self.top, "rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir") or b""
        imported = [str(Path(entry).resolve()) for entry in git.python_path(self.environment)]
        return (str(self.top), *found.decode().splitlines(), *imported, git.own_path())

    @cached_property
    def _environment(self) -> dict[str, str]:
        """The caller's, as far as it isn't about this run of pytest. The repository may be another user's."""
        dropped = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_VERSION")
        kept = {k: v for k, v in self.environment.items() if k not in dropped and not k.startswith("PYTEST_XDIST")}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join([*git.python_path(self.environment), git.own_path()]),
            "GIT_CONFIG_NOSYSTEM": "1",  # that file can't be read there, for it may hold tokens
            "PYTHONUSERBASE": site.getuserbase(),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }

    def _policy(self, case: CaseId) -> Policy:
        marks = self.settings.own_marks(case.nodeid, self.root)
        if marks is None:
            self._unread[case.nodeid.partition("[")[0]] = None
            return self.options.policy
        return policy_of_marks(marks, case.nodeid, self.options.policy)

    def _selected(self, nodeid: str) -> bool:
        named = [word for word in self._config.args if "::" in word]
        base, (file, _, rest) = self.folder, nodeid.partition("::")
        for word in named:
            path, _, inside = word.partition("::")
            same = Path(os.path.abspath(base / path)) == self.root / file
            if same and (rest == inside or rest.startswith((f"{inside}::", f"{inside}["))):
                return True
        return covered(self._config, nodeid)

    def _print(self, ran: TestsRan | None, whole: bool) -> None:
        """What the tests have printed, marked: a CI obeys lines that begin as its commands do."""
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        printed = b"" if ran is None or reporter is None else ran.printed
        lines = printed.decode(errors="replace").rstrip().splitlines()
        for line in lines if whole or reporter.verbosity > 0 else lines[-1:]:
            write_text(reporter, f"| {line}")


def _dest(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _decoded(answered: Answered) -> TestsRan | None:
    try:
        return None if answered.data is None else msgspec.msgpack.decode(answered.data, type=TestsRan)
    except msgspec.MsgspecError:
        return None


def _figures(processes: SealedProcesses, asked: Sequence[CodeRequest]) -> list[CodeFigures]:
    """What the code compiles to, found out by a sealed process that knows nothing but these texts."""
    answered = processes.ask("figures", list(asked), (git.own_path(),), SECONDS, MAX_REPORT)
    with suppress(msgspec.MsgspecError):
        found = msgspec.msgpack.decode(answered.data or b"", type=list[CodeFigures])
        if len(found) == len(asked):
            return found
    raise MeasurementError(f"the compiling process has ended without an answer: {answered.printed[-500:]}")


def _by_test(results: Iterable[CaseResult], failed: Mapping[str, str]) -> Iterable[pytest.TestReport]:
    tests: dict[str, list[CaseResult]] = {}
    for result in results:
        tests.setdefault(result.case.nodeid, []).append(result)
    for nodeid in (*tests, *(x for x in failed if x not in tests)):
        mine = tests.get(nodeid, [])
        failing = [without_id(r.message, nodeid) for r in mine if r.outcome is Outcome.FAIL]
        said = "\n".join(failing) or failed.get(nodeid, "")
        yield _report(nodeid, tuple(mine), said or ("failed" if nodeid in failed else ""))


def _report(nodeid: str, results: tuple[CaseResult, ...], failure: str) -> pytest.TestReport:
    """``failure`` is the text of a test that failed, empty for one that passed."""
    shown = visible(nodeid)
    file, _, name = shown.partition("::")
    text = "\n".join(visible(line) for line in failure.splitlines())
    report = pytest.TestReport(
        nodeid=shown, location=(file, None, name), keywords={}, outcome="failed" if failure else "passed",
        longrepr=text or None, when="call",
    )  # fmt: skip
    if results:
        attach(report, Payload(nodeid, results, finished=True))
    return report
