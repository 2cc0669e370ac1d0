"""Exports a function with AOTInductor and runs the package, in a process of its own.

    python exported_driver.py FOLDER none | tuned

``none`` has no Triton kernel of ours; ``tuned`` launches one whose winner is known.
"""

from __future__ import annotations

import sys
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


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    module, x = Doubling(kind == "tuned"), torch.randn(4096, device="cuda")
    module(x)
    program = torch.export.export(module, (x,), strict=True)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "doubled.pt2"))
    print("packaged", flush=True)
    result = torch._inductor.aoti_load_package(package)(x)
    print("equal" if torch.equal(result, x * 2) else "unequal")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
