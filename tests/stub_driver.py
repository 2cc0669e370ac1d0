"""A driver's library for tests, built of ``stub_cuda.c``, and what was launched through it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


@dataclass(frozen=True)
class StubLaunch:
    """A launch as the driver was given it."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    attributes: dict[int, tuple[int, ...]]
    params: tuple[bytes, ...]

    @classmethod
    def read(cls, line: str) -> StubLaunch:
        words = line.split()
        extra = [w.split(":") for i, w in enumerate(words) if words[i - 1] == "attribute"]
        attributes = {int(number): tuple(map(int, values.split(","))) for number, values in extra}
        rest = [w for i, w in enumerate(words[11:], 11) if w != "attribute" and words[i - 1] != "attribute"]
        numbers = tuple(map(int, words[1:7]))
        params = tuple(bytes.fromhex(w) for w in rest)
        return cls(numbers[:3], numbers[3:], int(words[8]), int(words[10]), attributes, params)


@dataclass
class StubDriver:
    """``path`` is the library; ``sizes`` are the bytes of the kernel's parameters."""

    folder: Path
    sizes: tuple[int, ...] = ()
    scales: bool = False
    fails: str = ""

    @property
    def path(self) -> Path:
        return self.folder / "libcuda.so.1"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def environment(self) -> dict[str, str]:
        """Of a program that uses it."""
        env = {"STUB_CUDA_LOG": str(self.log), "STUB_CUDA_PARAMS": ",".join(map(str, self.sizes))}
        env |= {"STUB_CUDA_SCALE": "1"} if self.scales else {}
        env |= {"STUB_CUDA_FAIL": self.fails} if self.fails else {}
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.folder), **env}

    def lines(self) -> list[str]:
        """All that was logged."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def launches(self) -> list[StubLaunch]:
        return [StubLaunch.read(line) for line in self.lines() if line.startswith("launch")]


def built(folder: Path, **options: object) -> StubDriver:
    """The library, compiled into a folder."""
    found = StubDriver(folder, **options)  # type: ignore[arg-type]
    source = Path(__file__).parent / "stub_cuda.c"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(found.path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    return found


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def f32(value: float) -> bytes:
    return struct.pack("<f", value)
