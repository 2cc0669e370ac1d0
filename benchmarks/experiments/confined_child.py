"""Judging 1, one process: replay a recording, free or confined from inside, before the driver is first called.

    python confined_child.py free|watched|landlock|both PLAN.json FOLDER1 FOLDER2

PLAN.json has ``read_only`` and ``read_write`` (paths) and ``calls`` (numbers of system calls that are allowed).
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from common import answer, library
from replay import same


def attempt(action: Any) -> str:
    try:
        action()
    except OSError as error:
        return f"refused: {error.strerror}"
    return "allowed"


def main() -> None:
    mode, plan = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    folders = [Path(p) for p in sys.argv[-2:]]
    native, result = library("confine"), {"mode": mode}  # type: ignore[var-annotated]
    library("window")
    begin = time.monotonic()
    if mode in ("landlock", "both"):
        lists = []
        for kind in ("read_only", "read_write"):
            paths = [p.encode() for p in plan[kind]]
            lists.append((ctypes.c_char_p * (len(paths) + 1))(*paths, None))
        result["landlock"] = native.confine_paths(*lists)
    if mode == "both":
        numbers = plan["calls"]
        result["seccomp"] = native.confine_calls((ctypes.c_int * len(numbers))(*numbers), len(numbers))
    if mode == "watched":
        number = os.dup(0)
        os.close(number)
        print(f"LISTENER {number}", flush=True)
        got = native.confine_watch()
        if got != number:
            os._exit(3)
    result["confine_ms"] = round(1e3 * (time.monotonic() - begin), 2)
    result.update(same(*folders))
    if mode != "watched":
        result["open_outside"] = attempt(lambda: open(plan["outside"]).close())
        result["write_own_folder"] = attempt(lambda: open(folders[0] / "written", "w").close())
        result["socket"] = attempt(lambda: socket.socket().close())
        result["new_program"] = attempt(lambda: os.posix_spawn("/bin/true", ["/bin/true"], {}))
    answer(result)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
