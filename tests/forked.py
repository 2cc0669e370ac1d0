"""Python programs in copies of one process that has done the imports: torch and its dynamo take three seconds of each.

For tests that need a process of their own because what they do is for a whole process, and not because of what is
imported when: torch is there from the start. Run as a program, this file is the process that makes the copies;
:mod:`forked_call` is what stands where Python is expected.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 300.0


def until(holds: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Wait for what another process or thread does; whether it holds."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(holds())


CALL = Path(__file__).parent / "forked_call.py"

PYTHON = "KERNTUNE_TESTS_PYTHON"
"""Where this variable is set, ``sys.executable`` of a copy is this program: what a copy starts is a copy too."""

IMPORTS = "KERNTUNE_TESTS_IMPORT"
"""Names of modules that copies needn't import, separated by commas, in place of :data:`OWN`."""

SOURCE = "KERNTUNE_TESTS_SOURCE"
"""The socket of a process that makes copies already; it need not have imported anything of kerntune."""

SHARED = "KERNTUNE_TESTS_SHARED"
"""The socket of the process that xdist's controller has started for its workers."""

OWN = ("pytest", "kerntune.gate.api", "kerntune.gate.gpu_check", "kerntune.gate.static_check", "kerntune.cli.command")
"""What takes half of a short run's processor time: 270 modules."""

PROGRAM = """#!/bin/sh
case "$1 $2" in
    "-m pytest" | "-m kerntune.cli" | "-m kerntune.cli.command" | "-u -c") exec {call} "$@" ;;
    "-m kerntune.cli.bisect.run_server") exec {call} "$@" ;;
    *) exec {python} "$@" ;;
esac
"""
"""As Python; pytest, the command and xdist's workers (``-u -c``) are copies. The farm's inherit more files."""


class Copies:
    """The process that makes the copies, started when it is first needed. ``call`` is the command that requests one.

    With ``shared``, the socket of a process that another one has started and ends, nothing is started or ended here.
    """

    def __init__(self, shared: str | None = None) -> None:
        self._source: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tests-of-kerntune-")
        shared = shared or os.environ.get(SOURCE)
        self.socket = shared or str(Path(self._folder.name) / "socket")
        self._others = bool(shared)
        self.call = [sys.executable, "-IS", str(CALL), self.socket]

    @property
    def python(self) -> str:
        """A program that runs pytest as this Python does, in a copy."""
        self.start()
        path = Path(self._folder.name) / "python"
        if not path.exists():
            path.write_text(PROGRAM.format(call=shlex.join(self.call), python=shlex.quote(sys.executable)))
            path.chmod(0o755)
        return str(path)

    def run(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run([sys.executable, *arguments], ...)`` for ``-m module`` or a script, with its output."""
        self.start()
        return subprocess.run(
            [*self.call, *arguments], cwd=cwd, env=env, timeout=timeout_s, capture_output=True, text=True, check=False
        )

    def close(self) -> None:
        """End the process, and with it all copies that still run."""
        if self._source is not None:
            os.killpg(self._source.pid, signal.SIGKILL)
            self._source.communicate()
            self._source = None
        self._folder.cleanup()

    def processor_seconds(self) -> float:
        """Of all copies that have ended, and of what these waited for (``cutime``, ``cstime`` of proc(5))."""
        if self._source is None:
            return 0.0
        ticks = Path(f"/proc/{self._source.pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def start(self) -> None:
        if self._source is not None or self._others:
            return
        with socket.socket(socket.AF_UNIX) as listener:  # callers wait meanwhile
            listener.bind(self.socket)
            listener.listen()
            self._source = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno()), os.environ.get("PYTHONPATH", "")],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, start_new_session=True,
                pass_fds=(listener.fileno(),),
            )  # fmt: skip


class Source:
    """Makes a copy for each caller, and sends back its exit code."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._events = selectors.DefaultSelector()
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """Process ids and callers, by a descriptor that is ready when the process has ended."""

        for wanted in (listener, sys.stdin.fileno()):  # the input ends when the starting process ends
            self._events.register(wanted, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the input ends."""
        while True:
            for ready in [key.fileobj for key, _ in self._events.select()]:
                if ready is self._listener:
                    self._copy(self._listener.accept()[0])
                elif ready in self._running:
                    self._ended(ready)
                elif isinstance(ready, socket.socket):
                    self._left(ready)
                else:
                    return

    def _copy(self, caller: socket.socket) -> None:
        asked, files = received(caller)
        child = os.fork()
        if child == 0:
            self._forget(caller)
            os._exit(become(asked, files))
        for one in files:
            os.close(one)
        end = os.pidfd_open(child)
        self._running[end] = child, caller
        for wanted in (end, caller):
            self._events.register(wanted, selectors.EVENT_READ)

    def _ended(self, end: int) -> None:
        child, caller = self._running.pop(end)
        _, status = os.waitpid(child, 0)
        for one in (end, caller):
            with contextlib.suppress(KeyError):  # the caller may have left before
                self._events.unregister(one)
        with caller, contextlib.suppress(OSError):
            caller.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
        os.close(end)

    def _left(self, caller: socket.socket) -> None:
        """Its process was killed, and so is the one that it stood for."""
        for child, other in self._running.values():
            if other is caller:
                self._events.unregister(caller)
                os.kill(child, signal.SIGKILL)

    def _forget(self, caller: socket.socket) -> None:
        self._events.close()
        self._listener.close()
        caller.close()
        for end, (_, other) in self._running.items():
            os.close(end)
            other.close()


def received(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What :mod:`forked_call` sends: how Python is called, and its standard files."""
    head, files, _, _ = socket.recv_fds(caller, 8, 3)
    length, text = int.from_bytes(head, "big"), b""
    while len(text) < length:
        text += caller.recv(length - len(text))
    return json.loads(text), files


def become(asked: dict[str, Any], files: list[int]) -> int:
    """Run a program in this process as if it had been started for it; its exit code."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=sys.stderr.encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.executable = os.environ.get(PYTHON, sys.executable)
    try:
        _run(asked["arguments"])
        code: Any = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    return _ended(code)


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-u":
        del arguments[0]
    how, rest = arguments[0], arguments[1:]
    sys.path[:1] = ["" if how == "-c" else os.getcwd() if how == "-m" else str(Path(how).parent)]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    _forget_other_kerntune()
    with contextlib.suppress(ImportError):  # as at Python's start
        import sitecustomize  # noqa: F401
    if how == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(rest[0], vars(main))
    elif how == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(how, run_name="__main__")


def _forget_other_kerntune() -> None:
    """Where this path leads to another kerntune, or to none, what is imported must be that."""
    found = importlib.machinery.PathFinder.find_spec("kerntune", sys.path)
    known = sys.modules.get("kerntune")
    if known is not None and (found is None or found.origin != known.__file__):
        for name in [name for name in sys.modules if name.partition(".")[0] == "kerntune"]:
            del sys.modules[name]


def _leave_kerntune_as_it_is() -> None:
    """pytest would warn that a plugin's package, imported here, can't be rewritten. Its assertions are no tests'."""
    from _pytest.assertion.rewrite import AssertionRewritingHook

    mark = AssertionRewritingHook.mark_rewrite
    AssertionRewritingHook.mark_rewrite = lambda hook, *names: mark(hook, *(n for n in names if n != "kerntune"))


def _ended(code: Any) -> int:
    """What a process does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    # a copy has the path of its own environment: this one's is for the imports alone, and starts no sitecustomize
    added = [str(Path(__file__).parents[1]), *filter(None, sys.argv[2].split(os.pathsep))]
    sys.path[:0] = added
    import torch._dynamo  # noqa: F401 - what copies needn't import any more
    import triton  # noqa: F401

    for name in os.environ[IMPORTS].split(",") if IMPORTS in os.environ else OWN:
        with contextlib.suppress(ImportError):  # what only a PYTHONPATH leads to, a copy imports by itself
            importlib.import_module(name)
    del sys.path[: len(added)]
    _leave_kerntune_as_it_is()
    gc.freeze()  # nor look for garbage in
    with socket.socket(fileno=int(sys.argv[1])) as made:
        Source(made).serve()
    os.killpg(0, signal.SIGKILL)
