"""Scripts that measure kernel after kernel for some seconds, on a GPU or, to try the script, on a scripted one."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.suite.results import environment
from kerntune.gpu.scripted import FakeBackend, Script
from kerntune.tuning import context


@contextlib.contextmanager
def device(dry: bool) -> Iterator[None]:
    """The GPU, or a scripted one in its place."""
    if not dry:
        yield
        return
    backend = FakeBackend(Script())
    context.this_gpu = lambda: backend
    with backend.activate():
        yield


def measure_each(
    doc: str | None, names: Sequence[str], seconds: float, measured: Callable[[str], dict[str, Any]]
) -> int:
    """The command ``OUT.json [NAME ...] [--seconds S] [--dry]``: what is ``measured`` of each name, or of those that
    are given, is written after each. None begins after ``seconds``, unless the command says otherwise."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="*", default=list(names))
    parser.add_argument("--seconds", type=float, default=seconds, help="no kernel begins later")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    begin, cases = time.monotonic(), []
    torch.manual_seed(0)
    with device(options.dry):
        where = {} if options.dry else environment()
        for name in options.kernels:
            if time.monotonic() - begin < options.seconds:
                cases.append(measured(name))
                print(json.dumps(cases[-1]), flush=True)
                options.out.write_text(json.dumps({"environment": where, "cases": cases}, indent=1) + "\n")
    return 0
