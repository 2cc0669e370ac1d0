"""``kerntune export``: a tuned kernel run from C, without Python, against a stub of the driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fake_runs import active, block
from stub_driver import COMPILER, StubDriver, StubLaunch, built, f32, i32, needs_compiler

from cli.command import Command
from kerntune.base.config import Config
from kerntune.base.device import Target
from kerntune.cli import export
from kerntune.errors import UsageError
from kerntune.gpu.probe import has_cuda
from kerntune.grids.expr import Const, Mul, Name
from kerntune.tuning import context
from kerntune.tuning.launch_files import TensorLike, load_kernel

INCLUDES = Path(triton.__file__).parent / "backends" / "nvidia" / "include"

KERNELS = """
import kerntune, triton, triton.language as tl
from kerntune.grids import FixedGrid, Grid1D, ceil_div, maximum, minimum

@kerntune.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"], reset_to_zero=["y_ptr"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)

@triton.jit
def dot_kernel(a, b, c, M, N, K, scale, alpha, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        total += tl.dot(tl.load(a + rows[:, None] * K + ks), tl.load(b + ks[:, None] * N + columns))
    tl.store(c + rows[:, None] * N + columns, (total * scale).to(tl.float16) * alpha)

@triton.jit
def byte_kernel(x_ptr, flag, small, wide, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), (small + wide).to(tl.int8), mask=flag)

def by_block(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)

def by_shape(meta):
    return (meta["x_ptr"].shape[0],)

def tiles(meta):
    return (triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"]))

GRID = Grid1D("n", "BLOCK")
PERSISTENT = FixedGrid(maximum(1, minimum(132, ceil_div("n", "BLOCK"))))
"""

SCALE = ("--key", "x_ptr=fp32[4096]", "--key", "y_ptr=fp32[4096]", "--key", "n=4096", "--key", "factor=2.0")
CONFIG = ("--config", "BLOCK=128", "--target", "cuda:90")

MAIN = """
#include "scale_kernel.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  int n = atoi(argv[1]);
  long shift = atol(argv[2]);
  CUdevice device; CUcontext context; CUdeviceptr x, y;
  float *host = malloc(4096 * 4);
  scale_kernel_handle kernel;
  CUresult code = cuInit(0);
  if (!code) code = cuDeviceGet(&device, 0);
  if (!code) code = cuDevicePrimaryCtxRetain(&context, device);
  if (!code) code = cuCtxSetCurrent(context);
  if (!code) code = cuMemAlloc(&x, 4096 * 4);
  if (!code) code = cuMemAlloc(&y, 4096 * 4);
  for (int i = 0; i < 4096; i++) host[i] = i;
  if (!code) code = cuMemcpyHtoD(x, host, 4096 * 4);
  if (!code) code = scale_kernel_load(&kernel);
  if (!code) code = scale_kernel_launch(&kernel, 0, x + shift, y, n, 2.0f);
  if (!code) code = cuCtxSynchronize();
  if (!code) code = cuMemcpyDtoH(host, y, 4096 * 4);
  printf("%d %g %g\\n", code, host[1], host[4095]);
  if (!code) code = scale_kernel_unload(&kernel);
  return argc < 3;
}
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder. The module that the command loads ends with the test: others have a ``kernels`` of their own."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "kernels", None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "kernels")
    return tmp_path


@pytest.fixture
def kerntune(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def compiled(folder: Path, *sources: str, link: Path | None = None, options: tuple[str, ...] = ("-std=c99",)) -> Path:
    """The program of these sources, every warning an error; an object file without a library to link."""
    assert COMPILER is not None
    out = folder / ("program" if link else "object.o")
    words = [*(["-L", str(link), "-lcuda"] if link else ["-c"]), "-I", str(INCLUDES), "-I", str(folder), "-o", str(out)]
    command = [COMPILER, *options, "-Wall", "-Wextra", "-Werror", *(str(folder / s) for s in sources), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def run(program: Path, driver: StubDriver, *words: Any) -> str:
    done = subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, check=True, env=driver.environment()
    )
    return done.stdout


@pytest.mark.slow
@needs_compiler
def test_c_launches_what_python_would(kerntune: Command, kernels: Path) -> None:
    ran = kerntune("export", "kernels.py:scale_kernel", *SCALE, *CONFIG, "--grid", "by_block", "-o", "out")
    assert ran.code == 0, ran.err
    assert [Path(line).name for line in ran.out.splitlines()] == [
        "scale_kernel.cubin",
        "scale_kernel.h",
        "scale_kernel.c",
    ]
    (kernels / "out" / "main.c").write_text(MAIN)
    (kernels / "driver").mkdir()
    driver = built(kernels / "driver", sizes=(8, 8, 4, 4, 8, 8), scales=True)
    program = compiled(kernels / "out", "scale_kernel.c", "main.c", link=kernels / "driver")
    assert run(program, driver, 4096, 0) == "0 2 8190\n"
    (launch,) = driver.launches()
    assert (launch.grid, launch.block, launch.shared, launch.attributes) == ((32, 1, 1), (128, 1, 1), 0, {})
    assert launch.params[2:] == (i32(4096), f32(2.0), bytes(8), bytes(8))
    assert "load elf 0 0" in driver.lines()
    assert driver.lines()[-1].startswith("unload")
    assert run(program, driver, 1008, 0).startswith("0 ")
    assert driver.launches()[-1].grid == (8, 1, 1), "the grid follows the argument"


@needs_compiler
@pytest.mark.slow
def test_arguments_that_the_binary_is_not_for_are_refused(kerntune: Command, kernels: Path) -> None:
    kerntune("export", "kernels.py:scale_kernel", *SCALE, *CONFIG, "--grid", "GRID", "-o", "out")
    (kernels / "out" / "main.c").write_text(MAIN)
    (kernels / "driver").mkdir()
    driver = built(kernels / "driver")
    program = compiled(kernels / "out", "scale_kernel.c", "main.c", link=kernels / "driver")
    for n, shift, code in ((1000, 0, 1), (4096, 4, 1), (-16, 0, 1), (0, 0, 0)):
        assert run(program, driver, n, shift).split()[0] == str(code), (n, shift)
    assert driver.launches() == [], "none is launched, of an empty grid neither"
    text = (kernels / "out" / "scale_kernel.h").read_text()
    assert "n: divisible by 16" in text
    assert "Before each launch, fill y_ptr with zeros." in text


@pytest.mark.slow
@needs_compiler
def test_shared_memory_and_fixed_values(kerntune: Command, kernels: Path) -> None:
    keys = [
        "a=fp16[512,4096]",
        "b=fp16[4096,512]",
        "c=fp16[512,512]",
        "M=512",
        "N=512",
        "K=4096",
        "scale=0.5",
        "alpha=1",
    ]
    words = [w for key in keys for w in ("--key", key)]
    config = "BM=128,BN=128,BK=64,num_warps=8,num_stages=4"
    ran = kerntune(
        "export",
        "kernels.py:dot_kernel",
        *words,
        "--config",
        config,
        "--target",
        "cuda:90",
        "--grid",
        "tiles",
        "-o",
        "out",
    )
    assert ran.code == 0, ran.err
    assert "BM: 128" in (kernels / "out" / "dot_kernel.h").read_text()
    assert "alpha: 1" in (kernels / "out" / "dot_kernel.h").read_text()
    main = """#include "dot_kernel.h"
    int main(void) { dot_kernel_handle k; if (dot_kernel_load(&k)) return 1;
      return dot_kernel_launch(&k, (CUstream)7, 256, 512, 768, 256, 1040, 4096, 0.5f); }"""
    (kernels / "out" / "main.c").write_text(main)
    (kernels / "driver").mkdir()
    driver = built(kernels / "driver", sizes=(8, 8, 8, 4, 4, 4, 4))
    program = compiled(kernels / "out", "dot_kernel.c", "main.c", link=kernels / "driver")
    assert run(program, driver) == ""
    launch: StubLaunch = driver.launches()[0]
    assert (launch.grid, launch.block, launch.stream) == ((2, 9, 1), (256, 1, 1), 7)
    assert launch.shared > 48 << 10
    assert "prefer 1" in driver.lines()
    assert "set 8 231424" in driver.lines(), "all that the device allows, less the kernel's own"
    assert launch.params[6] == f32(0.5)


@needs_compiler
def test_without_a_grid_its_axes_are_arguments(kerntune: Command, kernels: Path) -> None:
    keys = ("x_ptr=i8[128]", "flag=True", "small=-3", f"wide={1 << 40}")
    words = [w for key in keys for w in ("--key", key)]
    options = ("--config", "BLOCK=128", "--target", "cuda:80", "-o", "out", "--name", "bytes_of")
    ran = kerntune("export", "kernels.py:byte_kernel", *words, *options)
    assert ran.code == 0, ran.err
    text = (kernels / "out" / "bytes_of.h").read_text()
    declared = r"CUdeviceptr x_ptr, u?int8_t flag, int32_t small, int64_t wide, uint32_t _grid_0, uint32_t _grid_1"
    assert re.search(declared, text)
    compiled(kernels / "out", "bytes_of.c")


def tune(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> None:
    """Tune the kernel on the scripted GPU, whose fastest config depends on the size."""
    for n, fast in zip(sizes, (64, 128), strict=False):
        with active(block(fast, 1000.0), block(64, 2000.0), block(128, 2000.0)) as backend:
            monkeypatch.setattr(context, "this_gpu", lambda found=backend: found)
            kernel, module = load_kernel("kernels.py:scale_kernel")
            x = torch.empty(n, device="cuda")
            kernel[module.by_block](x, torch.empty_like(x), n, 2.0)


def test_the_stored_winner_is_exported(kerntune: Command, kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(monkeypatch, 4096, 1 << 20)
    for n, size in ((4096, 64), (1 << 20, 128)):
        ran = kerntune("export", "kernels.py:scale_kernel", "--key", f"n={n}", "--grid", "GRID", "-o", f"out{n}")
        assert ran.code == 0, ran.err
        assert f"Config: BLOCK={size} " in (kernels / f"out{n}" / "scale_kernel.h").read_text()
    several = kerntune("export", "kernels.py:scale_kernel", "-o", "out")
    assert several.code == 2
    assert "2 stored winners fit; say more by --key NAME=VALUE:\n  Fake GPU (cuda:90): factor=2.0; n=" in several.err
    (kernels / "kernels.py").write_text(KERNELS.replace("* factor", "+ factor"))
    assert "no stored winner fits" in kerntune("export", "kernels.py:scale_kernel", "--key", "n=4096", "-o", "out").err


def test_a_kernel_is_imported_from_its_folder(kerntune: Command, kernels: Path) -> None:
    """A module from the working folder, a file beside those that it imports."""
    (kernels / "kernels.py").rename(kernels / "exported_here.py")
    (kernels / "ops").mkdir()
    (kernels / "ops" / "exported_sizes.py").write_text("SIZE = 128\n")
    (kernels / "ops" / "exported_ops.py").write_text(f"from exported_sizes import SIZE\n{KERNELS}")
    before = list(sys.path)
    for name in ("exported_here:scale_kernel", "ops/exported_ops.py:scale_kernel"):
        ran = kerntune("export", name, *SCALE, *CONFIG, "-o", "out")
        assert ran.code == 0, ran.err
    assert sys.path == before
    for name in ("exported_here", "exported_ops", "exported_sizes"):
        del sys.modules[name]


def test_what_can_not_be_exported_is_named(kerntune: Command, kernels: Path) -> None:
    told = {
        ("kernels.py:nothing", *SCALE, *CONFIG): "kernels.py has no nothing",
        ("kernels.py", *SCALE, *CONFIG): "name a kernel as package.module:kernel",
        ("nowhere.py:scale_kernel", *CONFIG): "nowhere.py: is no file",
        ("no.module.of.ours:kernel", *CONFIG): "there is no module no.module.of.ours here",
        ("kernels.py:GRID", *CONFIG): "is not a Triton kernel",
        ("kernels.py:scale_kernel", *SCALE): "no stored winner fits, so say what to compile for",
        ("kernels.py:scale_kernel", *SCALE, "--target", "cuda:90"): "tune it (call it once), or say --config",
        ("kernels.py:scale_kernel", *SCALE, *CONFIG, "--grid", "by_shape"): "asks the tensor x_ptr for its shape",
        ("kernels.py:scale_kernel", *SCALE, *CONFIG, "--grid", "n // BLOCK"): "can't stand in a grid",
        ("kernels.py:scale_kernel", *SCALE, *CONFIG, "--grid", "rows"): "the grid needs rows, which is no integer",
        ("kernels.py:scale_kernel", *CONFIG, "--key", "n=[1]"): "--key 'n=[1]': '[1]' is no argument",
        ("kernels.py:scale_kernel", "--config", "B=64 num_warps=4", "--target", "cuda:90"): "with commas)",
        ("kernels.py:scale_kernel", *CONFIG, "--key", "n"): "write NAME=VALUE",
        ("kernels.py:scale_kernel", *SCALE, *CONFIG, "--name", "a-b"): "'a-b' can't name a function in C",
        ("kernels.py:scale_kernel", *CONFIG, "--key", "n=4096"): "can't be called like this: missing 3 required",
        ("kernels.py:dot_kernel", *CONFIG): "say arguments by --key NAME=VALUE, constants by --config NAME=VALUE,...",
        ("kernels.py:scale_kernel", *CONFIG, "--key", "rows=1"): "--key rows: kernel scale_kernel has no such argument",
        ("kernels.py:scale_kernel", *SCALE, *CONFIG[:2], "--target", "hip:gfx942"): "only NVIDIA's binaries",
    }  # fmt: skip
    for words, why in told.items():
        ran = kerntune("export", *words, "-o", "out")
        assert ran.code != 0, words
        assert why in ran.err, (words, ran.err)
    assert not (kernels / "out").exists()


def hooked(*hooks: Any, **more: Any) -> Any:
    return SimpleNamespace(configs=[SimpleNamespace(pre_hook=hook) for hook in hooks], **more)


HOOK = "Before each launch, do what the kernel's pre_hook does in Python."


@pytest.mark.parametrize(
    ("kernel", "notes"),
    [
        (object(), []), (hooked(None), []), (hooked(None, print), [HOOK]), (hooked(user_defined_pre_hook=False), []),
        (hooked(user_defined_pre_hook=True), [HOOK]), (hooked(reset_to_zero=[]), []),
        (hooked(print, reset_to_zero=["x", "y"]), ["Before each launch, fill x, y with zeros.", HOOK]),
    ],
)  # fmt: skip
def test_what_a_caller_in_c_has_to_do_before_a_launch(kernel: Any, notes: list[str]) -> None:
    assert export._before_launch(kernel) == notes


def test_a_grid_function_gets_constants_as_they_are_and_numbers_to_follow() -> None:
    module: Any = SimpleNamespace(grid=lambda meta: (meta["n"] * 2 if meta["fixed"] == 3 else 1, meta["BLOCK"]))
    params = [SimpleNamespace(name=name, view=view) for name, view in (("n", None), ("fixed", None), ("x", 0))]
    made: Any = SimpleNamespace(constants={"fixed": 3}, launch=SimpleNamespace(params=params))
    given: Any = "grid", module, made, Config({"BLOCK": 64}), {"x": TensorLike("float32", (8,))}
    for text, times, y in (("grid", 2, 64), ("n * fixed", 3, 1)):
        assert export._grid(text, *given[1:]).axes == (Mul((Name("n"), Const(times))), Const(y), Const(1))


@pytest.mark.parametrize(
    ("configs", "config"),
    [(None, Config()), ([triton.Config({"BLOCK": 32}, num_warps=2)], Config({"BLOCK": 32}, num_warps=2)), ([], None),
     ([triton.Config({}), triton.Config({})], None)],
)  # fmt: skip
def test_the_only_config_there_is_needs_no_winner(configs: Any, config: Config | None) -> None:
    kernel = SimpleNamespace() if configs is None else SimpleNamespace(configs=configs)
    target = Target("cuda", "90")
    if config is None:
        with pytest.raises(UsageError, match=r"^kernel k: no stored winner fits these arguments; tune it"):
            export._config(None, kernel, "k", None, target)
    else:
        assert export._config(None, kernel, "k", None, target) == config
    assert export._config(" BLOCK=8, num_warps=1,", kernel, "k", None, target) == Config({"BLOCK": 8}, num_warps=1)


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")
def test_c_computes_what_python_does(kerntune: Command, kernels: Path) -> None:
    kerntune("export", "kernels.py:scale_kernel", *SCALE, "--config", "BLOCK=128", "--grid", "GRID", "-o", "out",
             "--target", "cuda:90")  # fmt: skip
    (kernels / "out" / "main.c").write_text(MAIN)
    program = compiled(kernels / "out", "scale_kernel.c", "main.c", link=Path("/usr/local/cuda/lib64/stubs"))
    done = subprocess.run([str(program), "4096", "0"], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout == "0 2 8190\n"
