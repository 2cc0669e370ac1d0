"""Runs ``kerntune`` commands in forked copies of one process that has imported torch, Triton and pytest already.

``python -m kerntune.cli.bisect.run_server`` reads a request a line (JSON) and writes a line for each
(:data:`ANSWER`): its number, and the exit code, or ``own`` where the command needs a process of its own, because its
code has modules of the names of imported ones. It never touches a GPU itself, so that a copy can. It ends, and its
copies with it, when its standard input is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from kerntune.cli.bisect.preloaded import ANSWER
from kerntune.cli.command import main as command
from kerntune.gate.git import python_path
from kerntune.kernels.compat import triton_key

IMPORTED = ("torch", "triton.language", "pytest", "kerntune.gate.session", "pytest_kerntune.fixture")
"""What is imported at the start."""

STABLE = frozenset({*sys.stdlib_module_names, "torch", "triton", "sympy", "mpmath", "numpy", "_pytest", "kerntune",
                    "pytest_kerntune"})  # fmt: skip
"""Packages of which all modules that a copy has imported are imported for the next ones, too: no commit can change
them, and none of them touches a GPU when it is imported."""

OWN_PROCESS = "own"


def shadowed(folders: Iterable[str], modules: Iterable[str]) -> bool:
    """Whether a folder that comes first on the path has a module of the name of an imported one."""
    names = {name.partition(".")[0] for name in modules}
    return any(_has_module(Path(folder), names) for folder in folders if os.path.isdir(folder))


def _has_module(folder: Path, names: set[str]) -> bool:
    ends = all_suffixes()
    for entry in os.listdir(folder):
        name, _, suffix = entry.partition(".")
        if name in names and (f".{suffix}" in ends or any((folder / entry / f"__init__{e}").is_file() for e in ends)):
            return True
    return False


def installed_paths() -> list[str]:
    """What is on the path of this process after its first entry and PYTHONPATH."""
    given = {os.path.abspath(entry) for entry in python_path()}
    return [entry for entry in sys.path[1:] if os.path.abspath(entry) not in given]


class RunCopies:
    """Copies of this process that run commands, as many at once as are asked for. Requests come on one descriptor, and
    answers go to another as copies end: the request's number, and the exit code or :data:`OWN_PROCESS`."""

    def __init__(self, requests: int, answers: int) -> None:
        self._requests, self._answers = requests, answers
        self._running: dict[int, tuple[int, dict[str, Any]]] = {}
        """By the descriptor that tells of its end: a copy, and what it was asked for."""

        self._base, self._own = installed_paths(), {os.path.abspath(entry) for entry in python_path()}
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until they are closed; copies whose answer is no longer waited for are ended then."""
        rest = b""
        try:
            while True:
                for number, _ in self._poll.poll():
                    if number in self._running:
                        self._ended(number)
                        continue
                    if not (data := os.read(self._requests, 1 << 16)):
                        return
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._begin(json.loads(line))
        finally:
            for child, _ in self._running.values():
                os.kill(child, signal.SIGKILL)

    def _begin(self, asked: dict[str, Any]) -> None:
        first = [p for p in (asked["cwd"], *python_path(asked["env"])) if os.path.abspath(p) not in self._own]
        if shadowed(first, sys.modules):
            self._answer(asked, OWN_PROCESS)
            return
        child = os.fork()
        if child == 0:
            os.close(self._requests)
            os.close(self._answers)
            os._exit(_become(asked, self._base))
        end = os.pidfd_open(child)
        self._running[end] = child, asked
        self._poll.register(end, select.POLLIN)

    def _ended(self, end: int) -> None:
        child, asked = self._running.pop(end)
        self._poll.unregister(end)
        os.close(end)
        self._answer(asked, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        _import_more(Path(imports_of(asked)))

    def _answer(self, asked: Mapping[str, Any], answer: object) -> None:
        os.write(self._answers, f"{ANSWER}{asked['number']} {answer}\n".encode())


def _become(asked: dict[str, Any], base: Sequence[str]) -> int:
    """Run the command in this process as if it had been started for it; its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(asked["output"])
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.path[:] = [asked["cwd"], *python_path(asked["env"]), *base]
    importlib.invalidate_caches()
    code = 1
    try:
        code = command(asked["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    Path(imports_of(asked)).write_text("\n".join(sys.modules))
    _end()
    return code


def imports_of(asked: Mapping[str, Any]) -> str:
    """The file in which a copy leaves the names of the modules that it has imported."""
    return f"{asked['output']}.imports"


def _import_more(left: Path) -> None:
    """Import what the last copy had to."""
    names = left.read_text().split() if left.exists() else []
    for name in [n for n in names if n.partition(".")[0] in STABLE and n not in sys.modules]:
        with contextlib.suppress(Exception):  # the next copy imports it, or fails, by itself
            importlib.import_module(name)
    left.unlink(missing_ok=True)
    gc.freeze()


def _redirect(output: str) -> None:
    with open(output, "wb") as file, open(os.devnull, "rb") as nothing:
        for number, target in enumerate((nothing, file, file)):
            os.dup2(target.fileno(), number)


def _end() -> None:
    """What an interpreter does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def main() -> None:
    """Import what commands need, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the copy takes it, and who waits for it
    requests, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for name in IMPORTED:
        importlib.import_module(name)
    triton_key()  # a digest of Triton's files, which takes as long as a run
    gc.collect()
    gc.freeze()
    RunCopies(requests, answers).serve()


if __name__ == "__main__":
    main()
