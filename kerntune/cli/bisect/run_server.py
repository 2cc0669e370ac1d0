"""Runs ``kerntune`` commands in forked copies of one process that has imported torch, Triton and pytest already.

``python -m kerntune.cli.bisect.run_server`` takes requests from the socket that is its standard input, each with the
pipe for its exit code. Nothing is written where the command needs a process of its own, because its code has modules of
the names of imported ones. It never touches a GPU itself, so that a copy can. It ends, and its copies with it, when the
socket is closed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import NoReturn

from kerntune.base.frames import receive_with
from kerntune.cli.bisect.preloaded import RunRequest
from kerntune.cli.command import main as command
from kerntune.errors import PeerClosed
from kerntune.gate.git import python_path
from kerntune.kernels.compat.triton_compiler import triton_key

IMPORTED = ("torch", "triton.language", "pytest", "kerntune.gate.session", "pytest_kerntune.fixture")
"""What is imported at the start."""

STABLE = frozenset({*sys.stdlib_module_names, "torch", "triton", "sympy", "mpmath", "numpy", "_pytest", "kerntune",
                    "pytest_kerntune"})  # fmt: skip
"""Packages of which all modules that a copy has imported are imported for the next ones, too: no commit can change
them, and none of them touches a GPU when it is imported."""


def shadowed(folders: Iterable[str], modules: Iterable[str]) -> bool:
    """Whether a folder that comes first on the path has a module of the name of an imported one."""
    names = {name.partition(".")[0] for name in modules}
    return any(_has_module(Path(folder), names) for folder in folders if os.path.isdir(folder))


def _has_module(folder: Path, names: set[str]) -> bool:
    ends = all_suffixes()
    found = [entry for entry in os.listdir(folder) if entry.partition(".")[0] in names]
    packages = (folder / entry / f"__init__{end}" for entry in found for end in ends)
    return any(f".{entry.partition('.')[2]}" in ends for entry in found) or any(p.is_file() for p in packages)


def installed_paths() -> list[str]:
    """What is on the path of this process after its first entry and PYTHONPATH."""
    given = {os.path.abspath(entry) for entry in python_path()}
    return [entry for entry in sys.path[1:] if os.path.abspath(entry) not in given]


def serve(requests: socket.socket) -> None:
    """Run what is requested, as many at once as are asked for, until the socket is closed; copies whose answer is no
    longer waited for are ended then."""
    base, own = installed_paths(), {os.path.abspath(entry) for entry in python_path()}
    running: dict[int, Path] = {}
    try:
        while True:
            request, (answer,) = receive_with(requests, RunRequest, 1)
            for child, imports in list(running.items()):
                ended, _ = os.waitpid(child, os.WNOHANG)
                if ended:
                    _import_more(imports)
                    del running[child]
            first = [p for p in (request.cwd, *python_path(request.env)) if os.path.abspath(p) not in own]
            if not shadowed(first, sys.modules):
                child = os.fork()
                if child == 0:
                    requests.close()
                    _answer(request, answer, base)
                running[child] = imports_of(request)
            os.close(answer)
    except PeerClosed:
        return
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)


def _answer(request: RunRequest, answer: int, base: Sequence[str]) -> NoReturn:
    try:
        os.set_inheritable(answer, False)
        held = ExitStack()
        held.callback(os.close, answer)
        os.register_at_fork(after_in_child=held.close)  # what lives on doesn't answer
        os.write(answer, bytes([_become(request, base) & 0xFF]))
    finally:
        os._exit(0)


def _become(request: RunRequest, base: Sequence[str]) -> int:
    """Run the command in this process as if it had been started for it; its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(request.output)
    os.environ.clear()
    os.environ.update(request.env)
    os.chdir(request.cwd)
    sys.path[:] = [request.cwd, *python_path(request.env), *base]
    importlib.invalidate_caches()
    code = 1
    try:
        code = command(request.arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    imports_of(request).write_text("\n".join(sys.modules))
    _end()
    return code


def imports_of(request: RunRequest) -> Path:
    """The file in which a copy leaves the names of the modules that it has imported."""
    return Path(f"{request.output}.imports")


def _import_more(left: Path) -> None:
    names = left.read_text().split() if left.exists() else []
    for name in [n for n in names if n.partition(".")[0] in STABLE and n not in sys.modules]:
        with suppress(Exception):  # the next copy imports it, or fails, by itself
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
    requests = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for name in IMPORTED:
        importlib.import_module(name)
    triton_key()  # a digest of Triton's files, which takes as long as a run
    gc.collect()
    gc.freeze()
    serve(requests)


if __name__ == "__main__":
    main()
