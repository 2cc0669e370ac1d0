"""A project that git keeps, and a kernel and a test for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

WHO = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    """What git prints, called as a user with a name."""
    done = subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def tag(folder: Path, name: str) -> None:
    """Commit all that is there under this tag."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", name)
    git(folder, "tag", name)


def kernels(size: object, warps: int = 4) -> str:
    """``kernels.py``, whose kernel has such blocks."""
    return f"SIZE = {size}\nWARPS = {warps}\n{KERNELS}"


KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), SIZE),)](x, y, x.numel(), BLOCK=SIZE, num_warps=WARPS)
    return y
"""
