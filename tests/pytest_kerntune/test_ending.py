"""A run that SIGTERM ends leaves nothing behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from pytest_kerntune import run_lifetime
from pytest_kerntune.run_lifetime import collect_again
from pytest_kerntune.session import Gate


@pytest.mark.slow
def test_sigterm_ends_a_run_in_order(project, plugin_name, source_environ):
    """Folders are removed, JSON is written, the exit code shows what ended the run."""
    project.file(
        "from pathlib import Path\n"
        "def test_a(autotune):\n    autotune(kernel())\n"
        "def test_b(autotune, pytestconfig):\n"
        "    from pytest_kerntune.run_conditions import RunFolders\n"
        "    folder = RunFolders(pytestconfig).folder('mine', lambda into: into)\n"
        "    Path('folder').write_text(str(folder))\n"
        "    print('here', flush=True)\n"
        "    import time; time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", plugin_name, "--kerntune", "--kerntune-json=run.json", "-s"]
    run = subprocess.Popen(command, cwd=project.path, env=source_environ, stdout=-1, text=True)
    assert run.stdout is not None
    while "here" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate()
    assert run.returncode == 128 + signal.SIGTERM
    assert "Exit: SIGTERM" in said
    assert project.json()["counts"] == {"PASS": 1}
    assert not project.path.joinpath(project.path.joinpath("folder").read_text()).exists()


def test_who_handles_it_already_goes_on_doing_so(project):
    project.file("import signal\ndef test_a(autotune): assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN\n")
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        project.run().assert_outcomes(passed=1)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_is_as_before_after_the_run(project, one_test):
    before = signal.getsignal(signal.SIGTERM)
    project.file(one_test())
    assert project.run().ret == pytest.ExitCode.OK
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_can_be_left_as_it_is(project, monkeypatch):
    monkeypatch.setenv("KERNTUNE_SIGTERM", "0")
    project.file("import signal\ndef test_a(autotune): assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n")
    project.run().assert_outcomes(passed=1)


def interrupted_config(fulltrace: bool = False) -> types.SimpleNamespace:
    return types.SimpleNamespace(option=types.SimpleNamespace(fulltrace=fulltrace), stash=pytest.Stash())


def nested(depth: int, argument: object = None) -> None:
    if not depth:
        raise KeyboardInterrupt
    nested(depth - 1, argument)


def handling(argument: object) -> None:
    """Interrupted while an error is handled."""
    try:
        raise ValueError
    except ValueError:
        nested(3, argument)


class OnDevice:
    """A tensor's text waits for the device."""


@pytest.mark.parametrize("full", [False, True])
def test_the_place_of_an_interrupt_is_all_that_is_made_of_it(full: bool) -> None:
    """pytest makes text of each frame's arguments and of its source, and shows one line."""
    with pytest.raises(KeyboardInterrupt) as caught:
        nested(50)
    whole = str(caught.getrepr(funcargs=True).reprcrash)
    config = interrupted_config(full)
    Gate.pytest_keyboard_interrupt(types.SimpleNamespace(config=config), caught)  # type: ignore[arg-type]
    collect_again(config)  # type: ignore[arg-type]
    found = caught.getrepr(funcargs=True)
    assert str(found.reprcrash) == whole
    assert "KeyboardInterrupt" in whole
    assert (len(found.reprtraceback.reprentries) > 50) is full


@pytest.mark.parametrize("handled", [False, True])
def test_no_argument_is_read_to_report_an_interrupt(handled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that never ends on the device, reading a tensor would not end either."""
    read: list[str] = []
    monkeypatch.setattr(OnDevice, "__repr__", lambda self: read.append("") or "", raising=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        handling(OnDevice()) if handled else nested(3, OnDevice())
    config = interrupted_config()
    Gate.pytest_keyboard_interrupt(types.SimpleNamespace(config=config), caught)  # type: ignore[arg-type]
    collect_again(config)  # type: ignore[arg-type]
    assert "KeyboardInterrupt" in str(caught.getrepr(funcargs=True).reprcrash)
    assert read == []


def without_lines() -> None:
    """What a handler or the cleanup of a ``with`` may be compiled to."""
    raise KeyboardInterrupt


def test_an_interrupt_between_two_lines_is_placed_at_its_caller() -> None:
    code = without_lines.__code__
    nowhere = bytes([0xFF]) * (len(code.co_code) // 16 + 1)  # 3.11: a location without a line, of eight units
    lines = {"co_linetable": nowhere if sys.version_info >= (3, 11) else bytes([len(code.co_code), 0x80])}
    without_lines.__code__ = code.replace(**lines)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt) as caught:
        without_lines()
    assert caught.traceback[-1]._rawentry.tb_lineno is None
    config = interrupted_config()
    Gate.pytest_keyboard_interrupt(types.SimpleNamespace(config=config), caught)  # type: ignore[arg-type]
    collect_again(config)  # type: ignore[arg-type]
    found = caught.getrepr(funcargs=True).reprcrash
    assert found is not None
    assert (Path(found.path).name, found.message) == ("test_ending.py", "KeyboardInterrupt")


def test_what_was_found_before_sigterm_is_shown(project, one_test):
    """pytest itself has no summary for that exit code."""
    project.file(one_test("REGRESSED") + "def test_b():\n    pytest.exit('SIGTERM', returncode=143)\n")
    ran = project.run()
    assert ran.ret == 128 + signal.SIGTERM
    ran.stdout.fnmatch_lines(
        ["REGRESSED test_it.py::test_add*", "1 REGRESSED", "FAILED *", "*1 failed*", "*Exit: SIGTERM*"]
    )


COLLECTING = """
from pathlib import Path
import pytest
from pytest_kerntune import run_lifetime

def note(name):
    Path(name).write_text(str(run_lifetime.gc.get_freeze_count()))

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.add_cleanup(lambda: note("cleanup"))

def pytest_unconfigure():
    note("unconfigure")
"""
"""A plugin that collects garbage at the end, as pytest's own for unraisable exceptions does, sees this."""


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "pytest.exit('enough')", "pass"])
def test_an_interrupted_run_collects_less_until_its_end(project, monkeypatch, end):
    project.file(f"import pytest\ndef test_a(autotune):\n    autotune(kernel())\n    {end}\n")
    monkeypatch.syspath_prepend(project.path)
    (project.path / "collecting.py").write_text(COLLECTING)
    frozen: list[int] = []
    collector = types.SimpleNamespace(
        get_freeze_count=lambda: len(frozen), freeze=lambda: frozen.append(1), unfreeze=frozen.clear
    )
    monkeypatch.setattr(run_lifetime, "gc", collector)  # this process's objects are frozen already
    with contextlib.suppress(KeyboardInterrupt):
        project.run("-p", "collecting")
    spared = [int((project.path / name).read_text()) > 0 for name in ("unconfigure", "cleanup")]
    assert spared == [end != "pass"] * 2
    assert frozen == []
