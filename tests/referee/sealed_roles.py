"""A fork server for tests of sealed processes: what these can be asked is to run a test's own lines."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any

import msgspec

from kerntune.referee.sealed_process import main

tempfile.gettempdir()  # known before there is a sealed process, as after torch's import


def run(task: bytes) -> msgspec.Raw:
    """Run lines that give ``answer`` a value: bytes, or what JSON has."""
    names: dict[str, Any] = {}
    exec(msgspec.msgpack.decode(task, type=str), names)
    answer = names["answer"]
    return msgspec.Raw(answer if isinstance(answer, bytes) else msgspec.json.encode(answer))


prewarmed: list[str] = []


def prewarm(task: bytes) -> None:
    """Note when, and that folders of users can be read. It takes long where a test has left the word."""
    if os.path.exists("../slow"):
        time.sleep(1.5)
    prewarmed.append(f"{os.getpid()} {time.monotonic()} {msgspec.msgpack.decode(task)}")
    with open("prewarmed", "w"):
        pass


def noted(task: bytes) -> list[str]:
    """What was noted, and the task."""
    return [*prewarmed, msgspec.msgpack.decode(task)]


def started(task: bytes) -> float:
    """When it began."""
    return time.monotonic()


def hang(task: bytes) -> None:
    """Take longer than anyone waits."""
    time.sleep(60)


if __name__ == "__main__":
    roles = {"run": run, "echo": msgspec.Raw, "time": started, "prewarm": prewarm, "noted": noted, "hang": hang}
    main(int(sys.argv[1]), int(sys.argv[2]), roles)
