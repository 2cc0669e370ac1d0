"""``--kerntune-sealed``: what tests do in their own process changes nothing in the one that decides."""

from __future__ import annotations

import base64
import fnmatch
import json
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import git_project
import msgspec
import pytest
from doubles import raising
from inner import NO_SERVER, NO_SUMMARY

from kerntune.base.case_result import CaseId, CaseResult
from kerntune.base.codec import MAX_REPORT
from kerntune.base.device import Target
from kerntune.base.policy import Missing, Outcome, Policy, TuneMode, Update, Verdict
from kerntune.errors import KerntuneError, MeasurementError, UsageError
from kerntune.gate import git
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.claimed_cases import CodeFigures, Judge, claimed_cases, figures_of, unreported
from kerntune.gate.project import plugin_args
from kerntune.gate.report import RunReport, decode_run
from kerntune.gate.stores import ReferenceStore, Stores
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.sealing import landlock_version
from pytest_kerntune import run_conditions, sealed
from pytest_kerntune.marker import policy_of_marks
from pytest_kerntune.options import Options
from pytest_kerntune.payload import Payload, payload_of
from pytest_kerntune.reference_settings import ReferenceSettings
from pytest_kerntune.sealed import SealedRun, become, main, parsed
from pytest_kerntune.sealed_tasks import TestsRan

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")

TARGET = Target.parse("cuda:90")

KERNELS = """
import torch, triton, triton.language as tl

WARPS = 4

@triton.jit
def share_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(x + at)
    tl.store(y + at, row / tl.sum(row, 0))

def share(x):
    y = torch.empty_like(x)
    share_kernel[(x.numel() // 16384,)](x, y, BLOCK=16384, num_warps=WARPS)
    return y
"""

TESTS = """
import pytest, torch
from kernels import share

@pytest.mark.autotune
@pytest.mark.parametrize("n", [16384, 32768])
def test_share(autotune, n):
    x = torch.ones(n, device=autotune.device)
    assert autotune(share, x).shape == x.shape

def test_plain():
    assert 1 + 1 == 2
"""

CASES = ["test_it.py::test_share[16384]", "test_it.py::test_share[32768]"]

QUICK = (*NO_SERVER, *NO_SUMMARY)


class Project:
    """A repository whose tag ``base`` has baselines; :meth:`slower` makes its kernel spill."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *words: str) -> None:
        git_project.git(self.path, *words)

    def tag(self, name: str) -> None:
        git_project.tag(self.path, name)

    def slower(self) -> None:
        path = self.path / "kernels.py"
        path.write_text(path.read_text().replace("WARPS = 4", "WARPS = 1"))

    def sealed(self, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        command = ["--kerntune", "--kerntune-sealed", "--kerntune-baselines-ref=base", "--kerntune-json=run.json"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *QUICK, *command, *words],
            cwd=self.path, env=environ, capture_output=True, text=True, check=False, timeout=280,
        )  # fmt: skip
        print(done.stdout, done.stderr)  # seen where an assertion fails
        return done

    @property
    def verdicts(self) -> dict[str, tuple[str, str]]:
        run = json.loads((self.path / "run.json").read_text())
        return {r["case"]["nodeid"]: (r["verdict"], r["outcome"]) for r in run["results"]}


def plain(copies, project: Project, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """The same without ``--kerntune-sealed``."""
    command = ["-m", "pytest", *QUICK, "-p", "no:cacheprovider", "--kerntune", *words]
    return copies.run(*command, cwd=project.path, env={**environ, "PYTHONPATH": os.pathsep.join(
        [str(project.path), environ["PYTHONPATH"]])})  # fmt: skip


@pytest.fixture(scope="module")
def environ():
    """A subprocess's environment that imports kerntune from this source tree."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


INI = "[pytest]\nkerntune_target = cuda:90\n"


@pytest.fixture
def repository(tmp_path):
    """A repository whose tag ``base`` has settings alone."""
    project = Project(tmp_path)
    (project.path / "pytest.ini").write_text(INI)
    project.git("init", "-q", "-b", "main")
    project.tag("base")
    return project


@pytest.fixture(scope="module")
def base(copies, environ, tmp_path_factory):
    """The repository as its tag has it, and the JSON of a run whose kernel is slower, with all that it measured."""
    project = Project(tmp_path_factory.mktemp("sealed") / "project")
    project.path.mkdir()
    (project.path / "kernels.py").write_text(KERNELS)
    (project.path / "test_it.py").write_text(TESTS)
    (project.path / "pytest.ini").write_text(INI)
    (project.path / ".gitignore").write_text("__pycache__\nrun.json\n")
    done = plain(copies, project, environ)
    assert done.returncode == 0, done.stdout
    project.git("init", "-q", "-b", "main")
    project.tag("base")
    project.slower()
    assert plain(copies, project, environ, "--kerntune-json=run.json").returncode == 1
    project.report = (project.path / "run.json").read_bytes()
    project.git("checkout", "-q", "--", "kernels.py")
    return project


@pytest.fixture
def project(base, tmp_path):
    """A copy of it, to be changed."""
    copy = Project(tmp_path / "project")
    shutil.copytree(base.path, copy.path)
    (copy.path / "run.json").unlink()
    return copy


# whole runs


@needs_landlock
@pytest.mark.slow
def test_verdicts_are_those_of_an_ordinary_run(project, environ, copies):
    for prepare, code in ((lambda: None, 0), (project.slower, 1)):
        prepare()
        words = ("--kerntune-baselines-ref=base", "--kerntune-json=plain.json")
        assert plain(copies, project, environ, *words).returncode == code
        assert project.sealed(environ).returncode == code
        ours, theirs = (json.loads((project.path / name).read_text()) for name in ("run.json", "plain.json"))
        assert ours["results"] == theirs["results"]
        assert len(ours["results"]) == 2


CHEAT = """
import atexit, json, os, pathlib, sys
import pytest

tried = []

def attempt(work):
    try:
        tried.append(f"did it {work()}")
    except OSError as exc:
        tried.append(type(exc).__name__)

def rewrite(path):
    run = json.loads(path.read_text())
    for result in run["results"]:
        result.update(verdict="PASS", outcome="pass", findings=[])
    for bundle in run["baselines"].values():
        for launch in bundle["static"]["launches"]:
            launch["metrics"].update(registers=10, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0)
    run.update(failed={}, exit_status=0, counts={"PASS": 2})
    path.write_text(json.dumps(run))

@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session):
    import kerntune.base.policy as policy, kerntune.gate.static_verdict as check
    policy._FIXED.update({verdict: policy.Outcome.PASS for verdict in policy._FIXED})
    check.decide = lambda evidence, policy: check.Verdict.PASS
    for path in pathlib.Path("baselines").rglob("*.json"):
        attempt(lambda: path.write_text("{}"))
    attempt(lambda: pathlib.Path("run.json").write_text("{}"))
    attempt(lambda: pathlib.Path("../cheat").write_text(""))
    attempt(lambda: os.listdir("/proc"))
    attempt(lambda: open("/proc/1/environ"))

def pytest_unconfigure(config):
    print("tried", *tried)
    sys.stdout.flush()
    for path in pathlib.Path(os.environ["TMPDIR"]).glob("*.json"):
        atexit.register(rewrite, path)
    atexit.register(os._exit, 0)  # those registered later run first
    for path in pathlib.Path(os.environ["TMPDIR"]).glob("*.json"):
        rewrite(path)
"""


@needs_landlock
@pytest.mark.slow
def test_a_conftest_decides_nothing(project, environ):
    """It makes its own process claim that all is well, by every means at once."""
    before = {path: path.read_bytes() for path in (project.path / "baselines").rglob("*") if path.is_file()}
    project.slower()
    (project.path / "conftest.py").write_text(CHEAT)
    (project.path / "pytest.ini").write_text("[pytest]\nkerntune_outcomes = regressed=pass\n")
    done = project.sealed(environ)
    assert done.returncode == 1
    assert project.verdicts == dict.fromkeys(CASES, ("REGRESSED", "fail"))
    (tried,) = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("| tried")]
    assert set(tried) == {"PermissionError"}
    assert len(tried) == 6
    assert {path: path.read_bytes() for path in before} == before


ENDS = {
    "exit": "import os\ndef pytest_runtest_call(item):\n    os._exit(0)\n",
    "no report": "import pytest_kerntune.run_end as end\nend.RunEnd._finish = lambda *args: None\n",
    "killed": "import os, signal\ndef pytest_collection():\n    os.kill(os.getppid(), signal.SIGKILL)\n",
    "deselected": "def pytest_collection_modifyitems(items):\n    items[:] = [x for x in items if 'plain' in x.name]\n",
}


@needs_landlock
@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
def test_what_is_not_reported_fails(project, environ, how):
    (project.path / "conftest.py").write_text(ENDS[how])
    done = project.sealed(environ)
    assert done.returncode == 1
    assert project.verdicts == dict.fromkeys(CASES, ("INCOMPLETE", "fail"))
    assert ("sealed-run" in done.stdout) == (how != "deselected")


@needs_landlock
@pytest.mark.slow
def test_a_failing_test_and_a_narrower_run(project, environ):
    (project.path / "test_it.py").write_text(TESTS.replace("1 + 1 == 2", "1 + 1 == 3"))
    done = project.sealed(environ, "test_it.py::test_plain", "--junitxml=junit.xml")
    assert done.returncode == 1
    assert project.verdicts == {}
    assert "FAILED test_it.py::test_plain" in done.stdout
    assert 'name="test_plain"' in (project.path / "junit.xml").read_text()


# what is decided about claims


def run_of(base, change=lambda run: None):
    """The slower run's JSON, after a change."""
    run = json.loads(base.report)
    change(run)
    return decode_run(json.dumps(run).encode(), "run")


@pytest.fixture
def stores(base, tmp_path):
    return Stores(BaselineStore(tmp_path / "baselines"), ReferenceStore(base.path / "baselines", "base"))


def decided(base, stores, change=lambda run: None, policy=None, compile_code=figures_of):
    asked, own = [], policy or Policy()

    def compiled(requests):
        asked.extend(requests)
        return compile_code(requests)

    claimed = claimed_cases(run_of(base, change), [TARGET])
    return Judge(stores, lambda case: own, compiled).results(claimed), asked


def shown(results):
    return [(r.case.nodeid, r.verdict.value, r.outcome.value) for r in results]


def claiming(run):
    """All is well."""
    for result in run["results"]:
        result.update(verdict="PASS", outcome="pass", message="fine", findings=[])


def launches_of(run):
    return [launch for bundle in run["baselines"].values() for launch in bundle["static"]["launches"]]


REGRESSED = [(case, "REGRESSED", "fail") for case in CASES]


@pytest.mark.slow
def test_figures_are_made_anew(base, stores):
    def forge(run):
        claiming(run)
        for launch in launches_of(run):
            launch["metrics"].update(registers=10, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0)
            launch["compiler_settings"] = {"DISABLE_PTXAS_OPT": "1"}  # other figures would only warn under it

    results, asked = decided(base, stores, forge)
    assert shown(results) == REGRESSED
    assert len(asked) == 1  # both cases launch the same code
    honest, _ = decided(base, stores)
    assert [r.launches for r in results] == [r.launches for r in honest]
    claimed = json.loads(base.report)["results"][0]["launches"][0]
    assert honest[0].launches[0].registers == claimed["registers"]
    assert honest[0].launches[0].spill_bytes == claimed["spill_bytes"] > 0


@pytest.mark.slow
def test_a_code_that_does_not_compile_is_not_decided(base, stores):
    results, _ = decided(base, stores, claiming, compile_code=lambda x: [CodeFigures(refused="no such operation")])
    assert [(r.verdict, r.outcome) for r in results] == [(Verdict.INCOMPLETE, Outcome.FAIL)] * 2
    assert "no such operation" in results[0].message


@pytest.mark.slow
def test_the_baselines_own_code_is_not_compiled_again(base, stores, copies, environ):
    project = base
    done = plain(copies, project, environ, "--kerntune-json=same.json")
    assert done.returncode == 0
    run = decode_run((project.path / "same.json").read_bytes(), "run")
    (project.path / "same.json").unlink()
    results = Judge(stores, lambda case: Policy(), lambda asked: pytest.fail("compiled")).results(
        claimed_cases(run, [TARGET])
    )
    assert shown(results) == [(case, "PASS", "pass") for case in CASES]


def another_code(run):
    """Not what its checksum says."""
    for bundle in run["baselines"].values():
        for sha in bundle["artifacts"]:
            bundle["artifacts"][sha] = base64.b64encode(lzma.compress(b"module {}")).decode()


def another_schema(run):
    for bundle in run["baselines"].values():
        bundle["schema"] = "x"


@pytest.mark.slow
@pytest.mark.parametrize("withhold", [another_code, another_schema, lambda run: run["baselines"].clear()])
def test_a_case_without_its_code_is_no_pass(base, stores, withhold):
    def forge(run):
        claiming(run)
        withhold(run)

    results, asked = decided(base, stores, forge)
    assert [(r.verdict, r.outcome) for r in results] == [(Verdict.INCOMPLETE, Outcome.FAIL)] * 2
    assert not asked


@pytest.mark.slow
def test_a_failure_that_is_claimed_is_one(base, stores):
    """Of configs that can't run, say, no code is there."""

    def claim(run):
        claiming(run)
        run["results"][0].update(verdict="REGRESSED", outcome="fail", message="a config can't\x1b[31m run")

    nothing_known = Stores(stores.own, ReferenceStore(stores.own.folder, "none"))
    results, _ = decided(base, nothing_known, claim, compile_code=lambda asked: [figures(base)] * len(asked))
    assert [(r.verdict, r.outcome) for r in results] == [
        (Verdict.REGRESSED, Outcome.FAIL),
        (Verdict.NEW, Outcome.PASS),
    ]
    assert "\x1b" not in results[0].message


def figures(base):
    """Of the code that the base has."""
    store = BaselineStore(base.path / "baselines")
    (_, known), *_ = store.readable(store.static_files())
    launch = known.launches[0]
    return CodeFigures(launch.code, launch.compiler, launch.stages, {}, launch.metrics)


@pytest.mark.slow
def test_claims_of_other_targets_and_of_stale_cases_count_for_nothing(base, stores):
    def change(run):
        run["results"][0]["target"] = "cuda:80"
        run["results"][1]["verdict"] = "STALE"

    assert claimed_cases(run_of(base, change), [TARGET]) == {}
    missing = unreported(stores, [TARGET], [])
    assert sorted(shown(missing)) == [(case, "INCOMPLETE", "fail") for case in CASES]
    keys = [(r.case, "", str(TARGET)) for r in missing]  # of another fingerprint
    assert len(unreported(stores, [TARGET], keys)) == 2
    claimed = claimed_cases(run_of(base), [TARGET])
    assert unreported(stores, [TARGET], claimed) == []


# what the command line and the revision say


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name the revision"),
        (["--kerntune-baselines-ref=base", "--kerntune-update"], "--kerntune-update can't be had"),
        (["--kerntune-baselines-ref=nowhere"], "no such commit"),
    ],
)
def test_what_a_sealed_run_can_not_do(repository, words, says):
    with pytest.raises(UsageError, match=says):
        SealedRun.of(["--kerntune", "--kerntune-sealed", *words], repository.path, {})


def test_settings_are_the_revisions(repository):
    project = repository
    words = ["--kerntune-baselines-ref=base", "--kerntune-sealed", "-k", "x", "tests", "--", "-y"]
    (project.path / "pytest.ini").write_text("[pytest]\nkerntune_outcomes = regressed=pass\n")
    run = SealedRun.of(words, project.path, {})
    assert run.options.policy.outcome(Verdict.REGRESSED) is Outcome.FAIL
    assert run.targets == (TARGET,)
    assert run.root == project.path
    assert run.tests_words[-2:] == ["--", "-y"]
    assert "--kerntune-sealed" not in run.tests_words
    of_caller = SealedRun.of([*words[:2], "--kerntune-tolerance=0.3", "--kerntune-json=x"], project.path, {"CI": "1"})
    assert of_caller.options.policy.tolerance == 0.3
    assert of_caller.options.policy.missing is Missing.FAIL
    assert "--kerntune-tolerance=0.3" in of_caller.tests_words
    assert not any(word.startswith("--kerntune-json") for word in of_caller.tests_words)


def test_the_callers_own_settings_come_first(repository):
    words = ["--kerntune-baselines-ref=base", "-o", "kerntune_outcomes=regressed=warn", "--override-ini=xfail_strict=1"]
    run = SealedRun.of(words, repository.path, {})
    assert run.options.policy.outcome(Verdict.REGRESSED) is Outcome.WARN
    assert run.tests_words[-2:] == ["--override-ini=kerntune_outcomes=regressed=warn", "--override-ini=xfail_strict=1"]


@pytest.mark.parametrize(("words", "there"), [([], False), (["--reruns=2"], True), (["--reruns-delay", "1"], True)])
def test_what_would_open_a_socket_is_left_out_where_nobody_asks_for_it(repository, words, there):
    run = SealedRun.of(["--kerntune-baselines-ref=base", *words], repository.path, {})
    assert ("no:rerunfailures" not in run.tests_words) == there


def test_words_of_pytest_and_of_kerntune():
    given, rest = parsed(["-n", "2", "--kerntune-strict", "-vv", "a/test.py", "--lf", "--", "--kerntune-json=x"])
    assert given.kerntune_strict
    assert given.verbose == 2
    assert rest == ["-n", "2", "a/test.py", "--lf", "--", "--kerntune-json=x"]


MARKED = """
import pytest
pytestmark = [pytest.mark.autotune(static={"spills": "warn"}, missing="warn")]
LIMIT = 3

@pytest.mark.autotune(outcomes={"REGRESSED": "warn"})
def test_a(): pass

@pytest.mark.autotune(tolerance=LIMIT)
def test_b(): pass

@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.autotune(missing="warn"))])
def test_c(n): pass

@pytest.mark.autotune(**{"tolerance": 0.5})
def test_f(): pass

class TestD:
    pytestmark = pytest.mark.autotune(missing="fail")
    def test_e(self): pass
"""


def test_markers_are_read_from_the_revision_as_literals(repository):
    project = repository
    (project.path / "test_marked.py").write_text(MARKED)
    project.tag("marked")
    (project.path / "test_marked.py").write_text(MARKED.replace("warn", "pass"))
    top = project.path.resolve()
    settings = ReferenceSettings(top, revision="HEAD", top=top, commit="HEAD")

    def marks(name):
        return settings.own_marks(f"test_marked.py::{name}", top)

    policy = policy_of_marks(marks("test_a"), "test_a", Policy())
    assert policy.outcomes == {Verdict.REGRESSED: Outcome.WARN}
    assert policy.static.rule("spills").severity == "warn"
    assert marks("test_b") is None
    assert marks("test_c[1]") is None
    assert marks("test_f") is None
    assert policy_of_marks(marks("test_a"), "a", Policy()).missing is Missing.WARN
    assert policy_of_marks(marks("TestD::test_e"), "e", Policy()).missing is Missing.FAIL
    assert settings.own_marks("test_new.py::test_x", top) == []


@pytest.mark.slow
def test_case_ids_with_anything_odd_are_no_cases(base):
    def change(run):
        for result in run["results"]:
            result["case"]["nodeid"] = "a\x00b"

    assert claimed_cases(run_of(base, change), [TARGET]) == {}


# the process that decides, with what a sealed process would answer


def case(nodeid, outcome=Outcome.PASS, target="cuda:90", **more):
    found = CaseResult(CaseId(nodeid, "0"), "f", Verdict.PASS, outcome, f"{outcome.value} {nodeid}", target)
    return msgspec.structs.replace(found, **more)


def answer(data=None, printed="", **end):
    return Answered(data, SealedEnd(**end), printed)


def ran(code=0, printed=b"", report=b'{"schema": "kerntune.run/1", "results": []}'):
    return msgspec.msgpack.encode(TestsRan(code, printed, report))


class Processes:
    """Gives one answer, and notes what was asked for."""

    def __init__(self, given):
        self.given, self.asked, self.closed = given, [], False

    def ask(self, *words, **named):
        self.asked.append((words, named))
        return self.given

    def close(self):
        self.closed = True


def sealed_run(tmp_path, *words, **given):
    namespace, rest = parsed(["--kerntune-baselines-ref=base", *words])
    namespace.file_or_dir = [word for word in rest if not word.startswith("-")]
    settings = ReferenceSettings(tmp_path, revision="base", top=tmp_path, commit="0123456789abcdef")
    policy = SimpleNamespace(policy=Policy())
    run = SealedRun(policy, settings, namespace, rest, tmp_path, tmp_path, {}, [], (TARGET,), **given)
    run.end = SimpleNamespace(notes=[])
    run._config = SimpleNamespace(args=["."], pluginmanager=SimpleNamespace(getplugin=lambda name: None))
    return run


@pytest.mark.parametrize(
    ("given", "code", "problem"),
    [
        (answer(ran(0)), 0, ""), (answer(ran(1)), 1, ""), (answer(ran(5)), 5, ""),
        (answer(ran(2)), 2, "the tests' pytest ended with exit code 2"),
        (answer(ran(0), survivors=3), 0, "3 processes that tests have started could not be ended"),
        (answer(ran(0, report=b"")), 0, "the tests' pytest ended with exit code 0 and reported nothing"),
        (answer(ran(0, report=b"{")), 0, "the tests' report: not readable as JSON (Input data was truncated)*"),
        (answer(None, late=True), None, "the tests' process did not end within 3600 s and left no answer"),
        (answer(b"no", code=-9), None, "the tests' process ended (-9) and left no answer"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_answer(tmp_path, given, code, problem):
    processes = Processes(given)
    found, run, said = sealed_run(tmp_path)._tests(processes)
    assert (found and found.code, run.results) == (code, ())
    assert fnmatch.fnmatchcase(said, problem)
    ((words, named),) = processes.asked
    assert (words[0], words[3:], named) == ("tests", (3600.0, MAX_REPORT + (512 << 10)), {"memory": 0})


def test_without_a_seal_nothing_is_run(tmp_path):
    with pytest.raises(UsageError, match=r"^--kerntune-sealed: no Landlock; nothing was run$"):
        sealed_run(tmp_path)._tests(Processes(answer(cannot_seal="no Landlock")))


def test_figures_are_of_all_codes_or_of_none():
    one = CodeFigures(refused="no such operation")
    assert sealed._figures(Processes(answer(msgspec.msgpack.encode([one]))), ["asked"]) == [one]
    for data in (msgspec.msgpack.encode([one, one]), b"?", None):
        processes = Processes(answer(data, "x" * 600 + "out of memory"))
        with pytest.raises(MeasurementError) as caught:
            sealed._figures(processes, ["asked"])
        end = "x" * 487 + "out of memory"
        assert str(caught.value) == f"the compiling process has ended without an answer: {end}"
        assert processes.asked[0] == (("figures", ["asked"], (git.own_path(),), 3600.0, MAX_REPORT), {})


def test_a_report_for_each_test():
    results = [case("a.py::x"), case("a.py::x", Outcome.FAIL, "cuda:80"), case("a.py::y"), case("b.py::z[\x1b]")]
    failed = {"a.py::x": "by itself", "a.py::y": "E  1\x1b\nE  2", "c.py::w": "", "d.py": "SyntaxError"}
    reports = list(sealed._by_test(results, failed))
    assert [(r.nodeid, r.outcome, r.longrepr, r.location) for r in reports] == [
        ("a.py::x", "failed", "fail a.py::x", ("a.py", None, "x")),
        ("a.py::y", "failed", "E  1\\u001b\nE  2", ("a.py", None, "y")),
        ("b.py::z[\\u001b]", "passed", None, ("b.py", None, "z[\\u001b]")),
        ("c.py::w", "failed", "failed", ("c.py", None, "w")),
        ("d.py", "failed", "SyntaxError", ("d.py", None, "")),
    ]
    payloads = [payload_of(r) for r in reports]
    assert payloads == [*(Payload(r.nodeid, tuple(mine), True) for r, mine in
                          ((reports[0], results[:2]), (reports[1], results[2:3]))),
                        Payload("b.py::z[\x1b]", (results[3],), True), None, None]  # fmt: skip
    assert [r.longrepr for r in sealed._by_test(results[2:3], {"a.py::y": ""})] == ["failed"]
    assert {r.when for r in reports} == {"call"}
    regressed = msgspec.structs.replace(results[1], message="REGRESSED a.py::x (cuda:90): 1 -> 2")
    assert [r.longrepr for r in sealed._by_test([regressed], {})] == ["REGRESSED (cuda:90): 1 -> 2"]


@pytest.mark.parametrize(
    ("code", "problem", "results", "failed", "reports"),
    [
        (0, "", [case("a.py::x")], {}, [("a.py::x", "passed")]),
        (1, "", [case("a.py::x")], {}, [("a.py::x", "passed"), ("sealed-run", "failed")]),
        (1, "", [case("a.py::x")], {"a.py::x": "no"}, [("a.py::x", "failed")]),
        (2, "broke off", [case("a.py::x", Outcome.FAIL)], {}, [("a.py::x", "failed"), ("sealed-run", "failed")]),
        (None, "no answer", [], {}, [("a.py::gone", "failed"), ("sealed-run", "failed")]),
    ],
)  # fmt: skip
def test_a_failure_that_is_not_named_is_one_of_the_run(tmp_path, monkeypatch, code, problem, results, failed, reports):
    """A case of the base of which nothing is reported fails, where it is selected and not failing already."""
    run, printed, processes = sealed_run(tmp_path), [], Processes(None)
    answered = None if code is None else TestsRan(code, b"", b"")
    missing = [case("a.py::gone", Outcome.FAIL), case("b.py::other", Outcome.FAIL)] if code is None else []
    missing += [case("a.py::x", Outcome.FAIL)] if problem == "broke off" else []
    claimed = {"decided": SimpleNamespace(decidable=True), "not decided": SimpleNamespace(decidable=False)}
    run.engine = SimpleNamespace(stores="stores")
    run.rest = ["a.py", "-kx"]
    run._unread = {"a.py::x": None, "a.py::y": None}
    monkeypatch.setattr(sealed, "SealedProcesses", lambda module: processes)
    monkeypatch.setattr(run, "_tests", lambda given: (answered, RunReport((), failed=failed), problem))
    monkeypatch.setattr(sealed, "claimed_cases", lambda of, targets: claimed)
    monkeypatch.setattr(sealed, "Judge", lambda *words: SimpleNamespace(results=lambda claimed: [*results]))
    monkeypatch.setattr(sealed, "unreported", lambda stores, targets, keys: missing if keys == ["decided"] else None)
    monkeypatch.setattr(run, "_selected", lambda nodeid: nodeid.startswith("a.py"))
    monkeypatch.setattr(run, "_print", lambda ran, whole: printed.append((ran, whole)))
    found = run._reports()
    assert [(r.nodeid, r.outcome) for r in found] == reports
    if found[-1].nodeid == "sealed-run":
        assert found[-1].longrepr == (problem or "the tests' pytest ended with exit code 1, and named no failure")
    assert printed == [(answered, any(outcome == "failed" for _, outcome in reports))]
    assert processes.closed
    narrow = "-k and -m don't narrow a sealed run: what they leave out is missing; name the tests"
    assert run.end.notes == [
        *([narrow] if "a.py::gone" in dict(reports) else []),
        "markers that aren't literals in base; there the ini file's settings count: a.py::x, a.py::y",
    ]


@pytest.mark.parametrize(
    ("arguments", "nodeid", "selected"),
    [
        (["t.py::test_a"], "t.py::test_a", True), (["t.py::test_a"], "t.py::test_a[3]", True),
        (["t.py::Test"], "t.py::Test::test_a", True), (["t.py::test_a"], "t.py::test_ab", False),
        (["t.py::test_a"], "u.py::test_a", False), (["u.py", "t.py::test_a"], "u.py::test_x", True),
        (["u.py", "t.py::test_a"], "t.py::test_x", False), (["x/../t.py::test_a"], "t.py::test_a", True),
    ],
)  # fmt: skip
def test_which_tests_a_run_of_these_arguments_has(tmp_path, arguments, nodeid, selected):
    run = sealed_run(tmp_path)
    place = SimpleNamespace(dir=tmp_path)
    run._config = SimpleNamespace(args=arguments, rootpath=tmp_path, invocation_params=place)
    assert run._selected(nodeid) is selected


@pytest.mark.parametrize(("whole", "verbosity", "shown"), [(True, 0, 3), (False, 1, 3), (False, 0, 1)])
def test_what_tests_print_is_marked(tmp_path, whole, verbosity, shown):
    """A CI obeys lines that begin as its commands do."""
    run, lines = sealed_run(tmp_path), []
    reporter = SimpleNamespace(verbosity=verbosity, write_line=lambda text, **markup: lines.append(text))
    run._config.pluginmanager = SimpleNamespace(getplugin={"terminalreporter": reporter}.get)
    run._print(TestsRan(0, b"::error::x\n\xff\n2 passed\n\n", b""), whole)
    assert lines == ["| ::error::x", "| \ufffd", "| 2 passed"][-shown:]
    lines.clear()
    run._print(None, whole)
    assert lines == []


def test_words_of_both_processes(tmp_path):
    (tmp_path / "there.py").touch()
    words = (
        "-v",
        "-q",
        "--color=yes",
        "--junitxml=j.xml",
        "--kerntune-strict",
        "--kerntune-tolerance=3%",
        "-c",
        "my.ini",
    )
    run = sealed_run(tmp_path, *words, "there.py::x", "gone.py", "-x")
    assert run.own_arguments == [
        "--noconftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "--junitxml=j.xml", "--color=yes", "-v",
        "-q", "there.py::x",
    ]  # fmt: skip
    begin = [*plugin_args(), "-p", "pytest_kerntune.unattended", "-p", "no:rerunfailures"]
    assert run.tests_words == [
        *begin, "there.py::x", "gone.py", "-x", "--kerntune", "--kerntune-baselines-ref=0123456789abcdef",
        "--kerntune-target=cuda:90", "--kerntune-missing=warn", f"--rootdir={tmp_path}", "-o",
        "cache_dir=$TMPDIR/pytest_cache", "--kerntune-tolerance=3%", "--kerntune-strict", "--config-file=my.ini",
    ]  # fmt: skip


def test_the_environment_of_tests_is_the_callers(tmp_path, monkeypatch):
    """But for what is about this run of pytest; git takes the repository of another user."""
    monkeypatch.setattr(sealed.site, "getuserbase", lambda: "/user")
    run = sealed_run(tmp_path)
    own = {"PYTEST_ADDOPTS": "-x", "PYTEST_CURRENT_TEST": "a", "PYTEST_VERSION": "9", "PYTEST_XDIST_WORKER": "gw0"}
    run.environment = {"PATH": "/bin", "PYTEST_PLUGINS": "p", "PYTHONPATH": "/a::/b", **own}
    assert run._environment == {
        "PATH": "/bin", "PYTEST_PLUGINS": "p", "PYTHONPATH": f"/a:/b:{git.own_path()}", "PYTHONUSERBASE": "/user",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }  # fmt: skip


def test_nothing_is_imported_from_the_repository(tmp_path, monkeypatch):
    """But for an environment in it, and this kerntune."""
    top, own = tmp_path / "top", tmp_path / "top" / "kerntune"
    paths = [str(path) for path in (top, top / "src", top / "venv" / "lib", own, tmp_path, tmp_path / "topmost")]
    monkeypatch.setattr(sys, "path", [*paths])
    monkeypatch.setattr(sys, "prefix", str(top / "venv"))
    monkeypatch.setattr(git, "own_path", lambda: str(own))
    sealed._forget_project(top)
    assert sys.path == paths[2:]


@pytest.mark.parametrize(("ini", "root"), [(None, ["--rootdir=/root"]), ("/root/pytest.ini", [])])
def test_pytest_is_replaced_with_its_own_arguments(monkeypatch, tmp_path, ini, root):
    did = []
    capture = SimpleNamespace(suspend_global_capture=lambda in_: did.append(f"capture {in_}"))
    monkeypatch.setattr(os, "execv", lambda path, words: did.append((path, words)))
    monkeypatch.setattr(os, "chdir", lambda folder: did.append(folder))
    for plugin in (capture, None):
        did.clear()
        become(SimpleNamespace(
            pluginmanager=SimpleNamespace(getplugin={"capturemanager": plugin}.get), rootpath="/root", inipath=ini,
            invocation_params=SimpleNamespace(args=["-k", Path("x")], dir=tmp_path),
        ))  # fmt: skip
        command = [sys.executable, "-E", "-c", sealed.PROGRAM, git.own_path(), *root, "-k", "x"]
        assert did == [*(["capture True"] if plugin else []), tmp_path, (sys.executable, command)]


def test_a_run_that_can_not_be_sealed_is_a_usage_error(monkeypatch, capsys):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--kerntune-update")
    assert main(["--kerntune-sealed"]) == pytest.ExitCode.USAGE_ERROR
    assert capsys.readouterr().err == (
        "kerntune: --kerntune-sealed: name the revision that counts, as --kerntune-baselines-ref=origin/main\n"
    )


@pytest.mark.slow
def test_settings_of_the_revisions_file_come_after_the_command_line(repository):
    project = repository
    addopts = "addopts = --kerntune-tolerance=7% --kerntune-strict -x\ntestpaths = 'a b' c\n"
    (project.path / "sub").mkdir()
    (project.path / "sub" / "pytest.ini").write_text(INI + addopts)
    project.tag("settings")
    words = ["--kerntune-baselines-ref=settings", "--kerntune-tolerance=2%", "-k", "test_x"]
    run = SealedRun.of(words, project.path / "sub", {})
    assert (run.given.kerntune_tolerance, run.given.kerntune_strict) == ("2%", True)
    assert (run.root, run.testpaths) == (project.path / "sub", ["a b", "c"])
    assert SealedRun.of([*words, "--rootdir=sub"], project.path, {}).root == project.path / "sub"
    assert SealedRun.of([*words, "--rootdir=.."], project.path / "sub", {}).root == project.path
    assert run.given.file_or_dir == ["test_x"], "what is no option may be a file"
    assert sealed._words(["a b", 1]) == ["a b", "1"]
    for flag in ("-h", "--kerntune-strict-not"):
        assert parsed([flag])[1] == [flag], "of the tests' pytest"


def test_markers_that_can_not_be_read_leave_the_ini_files_settings(tmp_path):
    run = sealed_run(tmp_path)
    run.settings = SimpleNamespace(own_marks=lambda nodeid, root: None if "[" in nodeid else [])
    assert run._policy(CaseId("a.py::x[1]", "0")) is run.options.policy
    assert run._unread == {"a.py::x": None}
    assert run._policy(CaseId("a.py::y", "0")) == run.options.policy
    assert list(run._unread) == ["a.py::x"]


@pytest.mark.parametrize("anchor", ["", "anchors"])
def test_a_sealed_run_opens_a_session_that_compares_with_the_revision(tmp_path, monkeypatch, anchor):
    did = []
    engine = SimpleNamespace(
        close=lambda: None, header=lambda: ["device"], hold_against=lambda *words: did.append(words),
        anchor_at=lambda *words: did.append(words),
    )  # fmt: skip
    run, into = sealed_run(tmp_path), tmp_path / "into"
    run.options = SimpleNamespace(
        settings=lambda: Options.settings(options_of(tmp_path)), anchor=anchor, anchor_name="the anchor",
        reference_baselines="baselines", root=tmp_path,
    )  # fmt: skip
    monkeypatch.setattr(run_conditions, "TemporaryFolder", lambda kind: SimpleNamespace(folder=into, remove="remove"))
    monkeypatch.setattr(
        sealed, "open_session", lambda settings, **named: did.append((settings.targets, named)) or engine
    )
    monkeypatch.setattr(git, "extract", lambda *words: words)
    monkeypatch.setattr(sealed, "anchor_folder", lambda options, folder: folder / options.anchor)
    cleanups, run.end = [], SimpleNamespace(begin=lambda *words: did.append(words))
    run._config = SimpleNamespace(add_cleanup=cleanups.append)
    next(run.pytest_sessionstart())
    held = (("0123456789abcdef", "baselines", into, tmp_path), "base (0123456789)")
    told = "sealed: tests run in a process that decides nothing; only static figures are compared"
    begun = (engine, ("device", told), sealed.ExtraTargets())
    assert did == [
        (("cuda:90",), {"every_target": True}),
        held,
        *([(into / "anchors", "the anchor")] if anchor else []),
        begun,
    ]
    assert cleanups == ["remove", engine.close]
    assert run.pytest_collection() is True


def options_of(root):
    return Options(root, root / "baselines", Update.NONE, TuneMode.AUTO, Policy(), "kernels", (), None, None)


def test_reports_of_tests_go_to_pytest(tmp_path, monkeypatch):
    run, said = sealed_run(tmp_path), []
    hook = SimpleNamespace(
        pytest_runtest_logstart=lambda nodeid, location: said.append((nodeid, location)),
        pytest_runtest_logreport=lambda report: said.append(report),
    )
    session = SimpleNamespace(config=SimpleNamespace(hook=hook), testscollected=0)
    report = sealed._report("a.py::x", (), "")
    monkeypatch.setattr(run, "_reports", lambda: [report, report])
    assert run.pytest_runtestloop(session) is True
    assert said == [("a.py::x", ("a.py", None, "x")), report] * 2
    assert session.testscollected == 2


@pytest.mark.parametrize("hook", ["pytest_sessionstart", "pytest_runtestloop"])
def test_an_error_of_a_sealed_run_is_a_usage_error(tmp_path, monkeypatch, hook):
    run = sealed_run(tmp_path)

    for name in ("_open", "_reports"):
        monkeypatch.setattr(run, name, raising(KerntuneError("no such commit")))
    with pytest.raises(pytest.UsageError, match=r"^no such commit$"):
        next(run.pytest_sessionstart()) if hook == "pytest_sessionstart" else run.pytest_runtestloop(None)


def test_its_pytest_reads_no_file_of_the_project(tmp_path, monkeypatch):
    """But for the folders that the revision names for tests."""
    seen = []
    run = sealed_run(tmp_path)
    run.testpaths = ["a", "b"]
    monkeypatch.setattr(SealedRun, "of", lambda words, folder, environment: seen.append(words) or run)
    monkeypatch.setattr(sealed, "_forget_project", lambda top: seen.append(top))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k 'a b'")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "0")  # so that it is put back

    def run_pytest(words, plugins):
        ini = Path(words[0].removeprefix("--config-file="))
        seen.extend([ini.read_text(), words[1:], plugins])
        assert {k: v for k, v in os.environ.items() if k.startswith("PYTEST_")} == {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
        }
        return pytest.ExitCode.TESTS_FAILED

    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            patch.setenv(name, os.environ[name])
        patch.setattr(pytest, "main", run_pytest)
        assert main(["--kerntune-sealed"]) == 1
    assert seen == [
        ["-k", "a b", "--kerntune-sealed"], tmp_path, "[pytest]\ntestpaths = a b\n", run.own_arguments, [run],
    ]  # fmt: skip


def test_it_is_a_run_of_pytest_of_its_own(tmp_path, monkeypatch):
    run, did = sealed_run(tmp_path), []
    monkeypatch.setattr(sealed, "RunEnd", lambda config, options: ("end", options))
    config = SimpleNamespace(
        option=SimpleNamespace(), addinivalue_line=lambda *words: did.append(words),
        pluginmanager=SimpleNamespace(register=lambda *words: did.append(words)),
    )  # fmt: skip
    run.pytest_configure(config)
    assert did == [("markers", sealed.SIGNATURE), (("end", run.options), "kerntune_end")]
    assert config.option.kerntune_sealed is True


def test_a_sealed_run_leaves_the_report_that_it_was_asked_for(repository):
    """No plugin of another run takes it."""
    words = ["--kerntune-baselines-ref=base", "--kerntune-json=out.json", "--kerntune-html=out.html"]
    options = SealedRun.of(words, repository.path, {}).options
    assert (options.json, options.html) == (repository.path / "out.json", repository.path / "out.html")


def test_its_pytest_knows_the_options(tmp_path):
    """By which a user's words are read, though no plugin of kerntune is there."""
    parser = pytest.Parser(_ispytest=True)
    sealed_run(tmp_path).pytest_addoption(parser)
    assert parser.parse_known_args(["--kerntune-strict"]).kerntune_strict is True
