"""What a sealed process can't do, tried from inside: each attempt would succeed without its rule."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kerntune.referee import sealing
from kerntune.referee.sealing import REFUSED_CALLS, filter_steps, landlock_version

AT_LEAST = 53
EQUAL = 21
LOAD = 32
RETURN = 6
X32 = 0x40000000


ROOT = Path(__file__).parents[2]

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


def attempt(body: str, folder: Path, sealed: bool = True, seconds: int = 20) -> str:
    """What a process prints that seals itself, with ``folder`` to write in, and then runs ``body``."""
    code = f"""
    import sys; sys.path.insert(0, {str(ROOT)!r})
    import os, resource, signal, socket, ctypes
    from kerntune.referee.sealing import SYSTEM, DEVICES, SealLimits, import_folders, seal
    limits = SealLimits((*SYSTEM, *import_folders()), ({str(folder)!r}, *DEVICES), 1 << 30, {seconds})
    if {sealed}: seal(limits)
    def tried(work):
        try:
            return f"did it {{work()}}"
        except (OSError, MemoryError, ValueError) as exc:
            return type(exc).__name__
    """
    text = textwrap.dedent(code) + textwrap.dedent(body)
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    return done.stdout.strip() or f"status {done.returncode}: {done.stderr[-300:]}"


FORBIDDEN = {
    "write beside the folder": "print(tried(lambda: open(os.path.join(os.pardir, 'x'), 'w')))",
    "read beside the folder": "print(tried(lambda: open(os.path.join(os.pardir, 'secret')).read()))",
    "list beside the folder": "print(tried(lambda: os.listdir(os.pardir)))",
    "make a folder": "print(tried(lambda: os.mkdir(os.path.join(os.pardir, 'y'))))",
    "remove": "print(tried(lambda: os.unlink(os.path.join(os.pardir, 'secret'))))",
    "rename out": "open('z', 'w').close(); print(tried(lambda: os.rename('z', os.path.join(os.pardir, 'z'))))",
    "truncate": "print(tried(lambda: os.truncate(os.path.join(os.pardir, 'secret'), 0)))",
    "network": "print(tried(lambda: socket.socket()))",
    "unix sockets": "print(tried(lambda: socket.socket(socket.AF_UNIX)))",
    "signal the parent": "print(tried(lambda: os.kill(os.getppid(), 0)))",
    "another's environment": "print(tried(lambda: open(f'/proc/{os.getppid()}/environ').read()))",
    "another's memory": "print(tried(lambda: open(f'/proc/{os.getppid()}/mem', 'rb')))",
    "another's limits": "print(tried(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE)))",
    "another's priority": "print(tried(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)))",
    "another's processors": "print(tried(lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))))",
    "a large file": "print(tried(lambda: os.truncate(os.open('big', os.O_CREAT | os.O_WRONLY), 1 << 30)))",
    "more address space": "print(tried(lambda: len(bytearray(1 << 31))))",
}  # fmt: skip


@needs_landlock
@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    body = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + FORBIDDEN[name]
    said = attempt(body, folder)
    assert said in ("PermissionError", "OSError", "MemoryError", "ProcessLookupError"), said
    assert (tmp_path / "secret").read_text() == "secret"


@needs_landlock
@pytest.mark.parametrize("name", ["read beside the folder", "network", "signal the parent", "more address space"])
def test_all_that_can_be_done_unsealed(name: str, tmp_path: Path) -> None:
    """The attempts themselves are right."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    assert attempt(FORBIDDEN[name], folder, sealed=False).startswith("did it")


@needs_landlock
def test_what_a_candidate_needs_goes_on(tmp_path: Path) -> None:
    body = """
    open("own", "w").write("x")
    import json, subprocess
    print(open("own").read(), subprocess.run(["/bin/sh", "-c", "echo $((1+1))"], capture_output=True).stdout)
    """
    assert attempt(body, tmp_path) == "x b'2\\n'"


@needs_landlock
def test_system_calls_are_refused_by_number(tmp_path: Path) -> None:
    at = 0 if os.uname().machine == "x86_64" else 1
    numbers = [pair[at] for pair in REFUSED_CALLS.values()]
    body = f"""
    libc, found = ctypes.CDLL(None, use_errno=True), []
    for number in {numbers}:
        found.append((libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0), ctypes.get_errno()))
    print(set(found))
    """
    assert attempt(body, tmp_path) == "{(-1, 1)}"


@needs_landlock
def test_children_are_sealed_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    body = """
    import subprocess
    print(subprocess.run(["/bin/cat", "../secret"], capture_output=True, text=True).returncode)
    """
    assert attempt(body, folder) == "1"


@needs_landlock
def test_processor_time_is_bounded(tmp_path: Path) -> None:
    assert attempt("while True: pass", tmp_path, seconds=1).startswith("status -")


def run_filter(
    steps: list[tuple[int, int, int, int]], machine: int, number: int, arguments: tuple[int, ...] = ()
) -> int:
    """What a filter says, by the rules of seccomp's machine."""
    place, value = 0, 0
    while True:
        code, if_so, if_not, k = steps[place]
        if code == RETURN:
            return k
        if code == LOAD:
            value = {0: number, 4: machine}[k] if k < 16 else arguments[(k - 16) // 8]
            place += 1
        else:
            assert code in (EQUAL, AT_LEAST)
            holds = value == k if code == EQUAL else value >= k
            place += 1 + (if_so if holds else if_not)


def test_the_filter_refuses_its_numbers_and_no_others() -> None:
    steps = filter_steps(0xC000003E, [41, 62, 101])
    for number in (41, 62, 101, X32 + 1, X32 + 41):
        assert run_filter(steps, 0xC000003E, number) == sealing.REFUSE
    for number in (0, 40, 42, 61, 63, 300):
        assert run_filter(steps, 0xC000003E, number) == sealing.ALLOW
    assert run_filter(steps, 0x40000003, 0) == sealing.END_PROCESS


def test_calls_on_other_processes_are_refused_by_their_argument() -> None:
    steps = filter_steps(0xC000003E, [41, 500], [(302, 0), (141, 1)])

    def said(number: int, *arguments: int) -> int:
        return run_filter(steps, 0xC000003E, number, arguments)

    assert said(302, 0, 9) == said(141, 9, 0) == said(142, 9, 9) == sealing.ALLOW
    assert said(302, 9, 0) == said(141, 0, 9) == said(41, 0, 0) == said(500, 0, 0) == sealing.REFUSE


def test_a_system_without_landlock_cannot_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "landlock_version", lambda: 0)
    with pytest.raises(sealing.CannotSeal, match="Landlock"):
        sealing.seal(sealing.SealLimits((), (), 0, 1))
