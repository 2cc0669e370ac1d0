"""What the package offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

from kerntune import grids


def test_exports() -> None:
    assert grids.__all__ == sorted(grids.__all__)
    assert all(hasattr(grids, name) for name in grids.__all__)
    thirteen = {
        "Grid1D",
        "Grid2D",
        "Grid3D",
        "BatchMatmulGrid3D",
        "Grid2DWithYZOverflow",
        "MixOrderReductionGrid",
        "CooperativeReductionGrid",
        "SplitScanGrid",
        "FixedGrid",
        "PrecomputedGrid",
        "SequentialComboKernelGrid",
        "SequentialFlattenComboKernelGrid",
        "RoundRobinComboKernelGrid",
    }
    assert all(issubclass(getattr(grids, name), grids.Grid) for name in thirteen)


def test_imports_neither_torch_nor_triton() -> None:
    code = "import sys, kerntune.grids; print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "[]"
