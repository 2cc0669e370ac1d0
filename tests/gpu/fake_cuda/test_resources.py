"""Registers and spills, against the assembler's own tool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kerntune.gpu.fake_cuda.launches import Resources, resources

from . import kernels

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compiled(target: GPUTarget, block: int, **options: Any) -> Any:
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(kernels.add_kernel, signature, constexprs={"BLOCK": block})
    return triton.compile(source, target=target, options={"enable_fp_fusion": True, **options})


@pytest.mark.slow
@pytest.mark.skipif(not CUOBJDUMP.exists(), reason="this Triton brings no cuobjdump")
@pytest.mark.parametrize(("arch", "block", "maxnreg"), [(80, 1024, None), (90, 256, None), (90, 32768, 24)])
def test_cubin(arch: int, block: int, maxnreg: int | None, tmp_path: Path) -> None:
    kernel = compiled(GPUTarget("cuda", arch, 32), block, maxnreg=maxnreg)
    file = tmp_path / "kernel.cubin"
    file.write_bytes(kernel.asm["cubin"])
    said = subprocess.run([CUOBJDUMP, "--dump-resource-usage", file], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found
    assert resources(kernel.asm) == Resources(int(found[1]), int(found[2]) // 4)
    assert (resources(kernel.asm).spills > 0) == (maxnreg is not None)


def test_amdgcn() -> None:
    text = compiled(GPUTarget("hip", "gfx942", 64), 1024).asm["amdgcn"]
    found = resources({"amdgcn": text})
    assert f".vgpr_count:     {found.registers}" in text
    assert found.registers > 0
    assert found.spills == 0


def test_unknown_binaries_are_refused() -> None:
    with pytest.raises(ValueError, match="no cubin and no amdgcn"):
        resources({"ttir": "module {}"})
