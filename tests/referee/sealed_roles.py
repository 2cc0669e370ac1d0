"""A fork server for tests of sealed processes: what these can be asked is to run a test's own lines."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import msgspec

from kerntune.referee.sealed_process import main

tempfile.gettempdir()  # known before there is a sealed process, as after torch's import


def run(task: bytes) -> bytes:
    """Run lines that give ``answer`` a value: bytes, or what JSON has."""
    names: dict[str, Any] = {}
    exec(msgspec.msgpack.decode(task, type=str), names)
    answer = names["answer"]
    return answer if isinstance(answer, bytes) else msgspec.json.encode(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), {"run": run, "echo": lambda task: task})
