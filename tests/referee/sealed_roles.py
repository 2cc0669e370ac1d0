"""What the sealed processes of :mod:`.test_sealed_process` can be asked to do: a fork server without torch."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time

import msgspec

from kerntune.referee import sealing
from kerntune.referee.sealed_process import main


def echo(task: bytes) -> bytes:
    """The task's bytes, the last one first."""
    return task[::-1]


def speak(task: bytes) -> bytes:
    """Print on both outputs and end without an answer."""
    print("x" * 10_000, flush=True)
    print("said\x1b\n \n", end="", flush=True)
    print("last words\n\n", file=sys.stderr, flush=True)
    os._exit(3)


def hang(task: bytes) -> bytes:
    """Take longer than anyone waits."""
    time.sleep(60)
    return b""


def litter(task: bytes) -> bytes:
    """Leave two processes, one of them in a session of its own and without its parent; their ids."""
    told, tell = os.pipe()
    for detached in (False, True):
        if child := os.fork():
            if detached:
                os.waitpid(child, 0)
        else:
            if detached:
                os.setsid()
                if os.fork():
                    os._exit(0)
            os.write(tell, f"{os.getpid()} ".encode())
            time.sleep(60)
    os.close(tell)
    found = b""
    while found.count(b" ") < 2:
        found += os.read(told, 100)
    return found


def crowd(task: bytes) -> bytes:
    """One process more than there may be."""
    for _ in range(64):
        if not os.fork():
            break
    time.sleep(60)
    return b""


def hoard(task: bytes) -> bytes:
    """More files than anyone needs."""
    for i in range(10_001):
        open(str(i), "w").close()
    time.sleep(60)
    return b""


def facts(task: bytes) -> bytes:
    """What such a process is like, as JSON; the task has files that it tries to read."""
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("CORE", "CPU", "AS")}
    tried = {}
    for path in ("../written", *msgspec.msgpack.decode(task)):
        try:
            with open(path, "w" if path == "../written" else "r"):
                tried[path] = True
        except OSError:
            tried[path] = False
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    found = {
        "cwd": os.getcwd(), "environ": dict(os.environ), "tempdir": tempfile.gettempdir(), "limits": limits,
        "tried": tried, "size": size, "turn": sealing.turn_file,
    }  # fmt: skip
    return json.dumps(found).encode()


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        int(sys.argv[2]),
        {f.__name__: f for f in (echo, speak, hang, litter, crowd, hoard, facts)},
    )
