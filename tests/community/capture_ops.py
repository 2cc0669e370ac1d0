"""Runs operators of other packages without a GPU, forward and backward, and writes what each of them launches.

    python tests/community/capture_ops.py OUT.json [--install] PACKAGE/OPERATOR ...

A process of its own: packages decide by the device that they see when they are imported. Autotuned kernels are not
tuned: the first config stands for them. ``--install`` calls ``kerntune.install()`` before the packages are imported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import kerntune
from benchmarks.ops.ops_gate import catalog, tensors
from kerntune.base.device import Target
from kerntune.capture import Capture, Pending
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.fake_cuda.static_backend import StaticBackend


def launched(run: Callable[[], Any], backend: StaticBackend, compiler: Compiler) -> dict[str, Any]:
    """How many launches the forward pass makes, and all of them."""
    torch.manual_seed(0)
    capture = Capture(backend, compiler)
    with capture.active():
        outputs = tensors(run())
        forward = len(capture.launches)
        torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])
    compiler.compile_all([pending.specialized for pending in capture.launches])
    return {"forward": forward, "launches": [entry(pending, compiler) for pending in capture.launches]}


def entry(pending: Pending, compiler: Compiler) -> dict[str, Any]:
    """A launch as plain data."""
    return {
        "kernel": pending.kernel,
        "grid": list(pending.grid),
        "tuned": pending.site is not None,
        "code": compiler.compile(pending.specialized).binary.code,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    backend = StaticBackend(Target.parse("cuda:90"))
    with backend.activate():
        if options.install:
            kerntune.install()
        operators, compiler = catalog(), Compiler()
        found = {name: launched(operators[name], backend, compiler) for name in options.names}
        compiler.close()
    options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
