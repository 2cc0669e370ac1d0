"""Exports functions with AOTInductor and runs the packages, in a process of its own.

    python exported_driver.py FOLDER SECONDS

``none`` has no Triton kernel of ours; ``tuned`` launches one whose winner is known. Each step is printed when it is
done. After so many seconds the process ends with the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import warnings
from pathlib import Path

import torch
import triton
from compiled_runs import configs, scaled

import kerntune


class Doubling(torch.nn.Module):
    def __init__(self, tuned: bool) -> None:
        super().__init__()
        self.kernel = kerntune.autotune(configs(64, 128, 256), key=["n"])(scaled) if tuned else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kernel is None:
            return x * 2
        y, n = torch.empty_like(x), x.numel()
        self.kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 2.0)
        return y


def run(folder: Path, kind: str) -> None:
    module, x, start = Doubling(kind == "tuned"), torch.randn(4096, device="cuda"), time.monotonic()

    def say(done: str) -> None:
        print(kind, done, f"after {time.monotonic() - start:.1f} s", flush=True)

    module(x)
    program = torch.export.export(module, (x,), strict=True)
    say("exported")
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / f"{kind}.pt2"))
    say("packaged")
    loaded = torch._inductor.aoti_load_package(package)
    say("loaded")
    say("equal" if torch.equal(loaded(x), x * 2) else "unequal")


def main() -> None:
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    for kind in ("none", "tuned"):  # in one process, which compiles torch's headers once
        run(Path(sys.argv[1]), kind)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
