"""Python programs in copies of one process that has done the imports: torch and its dynamo take three seconds of each.

For tests that need a process of their own because what they do is for a whole process, and not because of what is
imported when: torch is there from the start. Run as a program, this file is the process that makes the copies.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_S = 300.0


class Copies:
    """The process that makes the copies, from the first need on. One program runs at a time."""

    def __init__(self) -> None:
        self._source: subprocess.Popen[str] | None = None

    def run(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run([sys.executable, *arguments], ...)`` for ``-m module`` or a script, with its output."""
        with tempfile.TemporaryDirectory(prefix="kerntune-copy-") as folder:
            out, err = (str(Path(folder) / name) for name in ("out", "err"))
            asked = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": out, "err": err}
            code = self._ask(asked, timeout_s)
            said = [Path(x).read_text(encoding="utf-8") if Path(x).exists() else "" for x in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *said)

    def subprocess_run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Stands in for ``subprocess.run`` where a test patches it: this Python's modules run in copies."""
        if list(command[:2]) != [sys.executable, "-m"]:
            return subprocess.run(command, cwd=cwd, env=env, timeout=timeout, **options)
        assert options == {"capture_output": True, "text": True, "check": False}
        return self.run(*command[1:], cwd=cwd or Path.cwd(), env=env or os.environ, timeout_s=timeout)

    def close(self) -> None:
        """End the process, and with it whatever still runs in a copy."""
        if self._source is not None:
            os.killpg(self._source.pid, signal.SIGKILL)
            self._source.communicate()
            self._source = None

    def _ask(self, asked: dict[str, Any], timeout_s: float) -> int:
        if self._source is None:
            self._source = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, start_new_session=True,
            )  # fmt: skip
        assert self._source.stdin is not None
        assert self._source.stdout is not None
        print(json.dumps(asked), file=self._source.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self._source.stdout, selectors.EVENT_READ)
            answer = self._source.stdout.readline() if selector.select(timeout_s) else ""
        if not answer:
            self.close()
            raise TimeoutError(f"no end of python {' '.join(asked['arguments'])} within {timeout_s} s")
        return int(answer)


def serve() -> None:
    """Make a copy for each line that is read, and write the code that it ended with."""
    import torch._dynamo  # noqa: F401 - what copies needn't import any more
    import triton  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_become(json.loads(line)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(asked: dict[str, Any]) -> int:
    """Run a program in this process as if it had been started for it; its exit code."""
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    for number, where in enumerate((os.devnull, asked["out"], asked["err"])):
        opened = os.open(where, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
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
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    module = arguments[0] == "-m"
    sys.path[:1] = [os.getcwd() if module else str(Path(arguments[0]).parent), *filter(None, paths)]
    sys.argv = arguments[1:] if module else arguments
    if module:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(arguments[0], run_name="__main__")


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
    serve()
