"""Code under test that replaces what decides about verdicts: the run fails by name."""

from __future__ import annotations

import pytest

from kerntune.base import policy
from kerntune.base.policy import Outcome, Verdict
from pytest_kerntune import conclude
from pytest_kerntune.run_conditions import DECIDING, DecisionWatch

TABLE = """
from kerntune.base import policy

policy._FIXED[policy.Verdict.REGRESSED] = policy.Outcome.PASS

def test_it(autotune):
    autotune(kernel("PASS"))
"""

FUNCTION = """
from pytest_kerntune import conclude

conclude._settle = lambda item, record, accepts: None

def test_it(autotune):
    autotune(kernel("REGRESSED"))
"""

RESULTS = """
def test_it(autotune, request):
    autotune(kernel("REGRESSED"))

def test_later(request):
    from kerntune.base.policy import Outcome, Verdict
    import msgspec
    gate = next(p for p in request.config.pluginmanager.get_plugins() if type(p).__name__ == "Gate")
    for result in gate.end.collected.results:
        msgspec.structs.force_setattr(result, "verdict", Verdict.PASS)
        msgspec.structs.force_setattr(result, "outcome", Outcome.PASS)
"""

EXIT_CODE = """
import pytest

def test_it(autotune):
    autotune(kernel("REGRESSED"))

class Late:
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        session.exitstatus = 0

@pytest.fixture(autouse=True, scope="session")
def late(request):
    request.config.pluginmanager.register(Late())
"""


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner run is one of this process."""
    monkeypatch.setitem(policy._FIXED, Verdict.REGRESSED, Outcome.FAIL)
    monkeypatch.setattr(conclude, "_settle", conclude._settle)


@pytest.mark.parametrize(("source", "said"), [
    (TABLE, "*changed while tests ran: kerntune.base.policy._FIXED; the verdicts of this run mean nothing*"),
    (FUNCTION, "*changed while tests ran: pytest_kerntune.conclude._settle; *"),
    (RESULTS, "*changed while tests ran: the results of test_it.py::test_it; *"),
], ids=["table", "function", "results"])  # fmt: skip
def test_a_changed_decision_fails_the_run_by_name(project, source, said):
    project.file(source)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([said])


def test_an_exit_code_that_hides_a_failing_case_stays(project):
    project.file(EXIT_CODE)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stderr.fnmatch_lines(["*the exit code of a run with failing cases was set to 0; it stays 1"])


def test_a_users_outcomes_are_no_such_change(project):
    project.pytester.makeini("[pytest]\nkerntune_outcomes = regressed=pass\n")
    project.file("def test_it(autotune):\n    autotune(kernel('REGRESSED'))\n")
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*what decides*")


def test_what_is_watched_is_there(project):
    """Each name that a gate has loaded is one of its own: a name that is gone would watch nothing."""
    import kerntune.gate.api
    import kerntune.gate.gpu_check
    import kerntune.gate.static_check  # noqa: F401
    import pytest_kerntune.session  # noqa: F401

    assert set(DecisionWatch()._kept) == {f"{module}.{name}" for module, name in DECIDING}
    assert DecisionWatch().changed() == []
