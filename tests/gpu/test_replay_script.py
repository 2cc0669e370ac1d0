"""The script that runs a dumped launch through the driver alone: against a stub of the driver, and on a real GPU."""

from __future__ import annotations

import ast
import json
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stub_driver import StubDriver, StubLaunch, built, f32, i32, needs_compiler

from kerntune.base.recording import Param, TensorMap
from kerntune.gpu import cuda_driver, replay_script

pytestmark = needs_compiler

SCALE: dict[str, Any] = {
    "kernel": "scale", "symbol": "scale", "arch": "sm_90a", "binary": "kernel.cubin", "grid": [32, 2, 1],
    "num_warps": 4, "warp_size": 32, "num_ctas": 1, "shared": 512, "cooperative": False, "pdl": False,
    "global_scratch": {"size": 0, "align": 1}, "profile_scratch": {"size": 0, "align": 1},
    "params": [
        {"name": "x", "type": "*fp32", "view": 0}, {"name": "y", "type": "*fp32", "view": 1},
        {"name": "n", "type": "i32", "value": 8}, {"name": "factor", "type": "fp32", "value": 2.0},
    ],
    "views": [{"storage": 0, "offset_bytes": 16}, {"storage": 1}],
    "storages": [
        {"nbytes": 48, "dtype": "float32", "content": {"kind": "stored", "file": "x.bin"}, "written": False},
        {"nbytes": 32, "dtype": "float32", "content": {"kind": "zeros"}, "written": True},
    ],
    "expected": [{"storage": 1, "file": "y.bin"}],
}  # fmt: skip
SIZES = (8, 8, 4, 4, 8, 8)
X = struct.pack("<12f", *range(12))
Y = struct.pack("<8f", *(2.0 * i for i in range(4, 12)))


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    (tmp_path / "driver").mkdir()
    return built(tmp_path / "driver", sizes=SIZES, scales=True)


def folder(tmp_path: Path, **changed: Any) -> Path:
    made = tmp_path / "dump"
    made.mkdir(exist_ok=True)
    (made / "launch.json").write_text(json.dumps({**SCALE, **changed}))
    (made / "kernel.cubin").write_bytes(b"\x7fELF of scale")
    (made / "x.bin").write_bytes(X)
    (made / "y.bin").write_bytes(Y)
    (made / "replay.py").write_text(Path(replay_script.__file__).read_text())
    return made


def replay(driver: StubDriver, made: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a Python that finds no package at all."""
    command = [sys.executable, "-I", "-S", str(made / "replay.py"), "--runs", "0", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=driver.environment())


def one(driver: StubDriver) -> StubLaunch:
    (launch,) = driver.launches()
    return launch


def test_it_needs_nothing_but_python() -> None:
    tree = ast.parse(Path(replay_script.__file__).read_text())
    found = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    found |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in found} <= set(sys.stdlib_module_names)


def test_the_launch_is_the_recorded_one(driver: StubDriver, tmp_path: Path) -> None:
    ran = replay(driver, folder(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "sha256" in ran.stdout
    assert "as recorded" in ran.stdout
    launch = one(driver)
    assert (launch.grid, launch.block, launch.shared) == ((32, 2, 1), (128, 1, 1), 512)
    assert launch.attributes == {}
    assert launch.params[2:] == (i32(8), f32(2.0), bytes(8), bytes(8))
    assert driver.lines()[:2] == ["load elf 0 0", "function scale"]


def test_another_output_is_told(driver: StubDriver, tmp_path: Path) -> None:
    made = folder(tmp_path)
    (made / "y.bin").write_bytes(struct.pack("<8f", *(2.0 * i for i in range(4, 11)), 23.0))
    ran = replay(driver, made, "--save", str(tmp_path / "out"))
    assert ran.returncode == 1
    assert "1 of 8 elements differ, by 1 at most" in ran.stdout
    assert (tmp_path / "out" / "output-1.bin").read_bytes() == Y


def test_attributes_scratch_and_shared_memory(driver: StubDriver, tmp_path: Path) -> None:
    changed = {"num_ctas": 2, "cooperative": True, "pdl": True, "shared": 100_000}
    ran = replay(driver, folder(tmp_path, **changed, global_scratch={"size": 64, "align": 128}, expected=[]))
    assert ran.returncode == 0, ran.stderr
    launch = one(driver)
    assert launch.grid == (64, 2, 1)
    assert launch.attributes == {6: (1, 0, 0), 2: (1, 0, 0), 4: (2, 1, 1), 5: (1, 0, 0)}
    assert int.from_bytes(launch.params[4], "little") % 256 == 0 < int.from_bytes(launch.params[4], "little")
    assert "set 8 231424" in driver.lines(), "all that the device allows, less the kernel's own"
    assert "prefer 1" in driver.lines()


def test_it_is_timed(driver: StubDriver, tmp_path: Path) -> None:
    ran = replay(driver, folder(tmp_path), "--runs", "3", "--warm-up", "0")
    assert "time: 12.50 us (median of 3, between events, L2 flushed)" in ran.stdout
    assert len(driver.launches()) == 4


def test_a_device_is_warmed_up_before_it_is_timed(driver: StubDriver, tmp_path: Path) -> None:
    ran = replay(driver, folder(tmp_path), "--runs", "3", "--warm-up", "2")
    assert "(median of 3, " in ran.stdout
    assert len(driver.launches()) > 4


def test_errors_are_named(driver: StubDriver, tmp_path: Path) -> None:
    driver.fails = "cuModuleLoadData"
    ran = replay(driver, folder(tmp_path))
    assert (ran.returncode, ran.stderr) == (1, "cuModuleLoadData failed: CUDA_ERROR_INVALID_VALUE (1)\n")
    ran = replay(driver, folder(tmp_path, unreplayable="it follows addresses"))
    assert ran.stderr == "scale can't be replayed: it follows addresses\n"


def test_a_missing_driver_is_named(driver: StubDriver, tmp_path: Path) -> None:
    ran = replay(driver, folder(tmp_path), "--library", "libnothing-cuda.so.1")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("no NVIDIA driver here (libnothing-cuda.so.1: cannot open")


def test_an_empty_grid_launches_nothing(driver: StubDriver, tmp_path: Path) -> None:
    assert replay(driver, folder(tmp_path, grid=[0, 1, 1], expected=[])).returncode == 0
    assert driver.launches() == []


# contents

DTYPES = ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_described_numbers_have_their_distribution(dtype: str) -> None:
    width = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}.get(dtype, 1)
    content = {"kind": "normal", "mean": 3.0, "std": 0.5, "seed": 1}
    data = replay_script.content_of({"nbytes": 4096 * width, "dtype": dtype, "content": content}, Path())
    assert data is not None
    assert len(data) == 4096 * width
    if width > 1:
        kind = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}.get(dtype)
        numbers = np.frombuffer(data, kind) if kind else (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        assert float(numbers.astype(float).mean()) == pytest.approx(3.0, abs=0.05)
        assert float(numbers.astype(float).std()) == pytest.approx(0.5, abs=0.05)


def test_described_eight_bit_floats_are_small_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 32 on, 16 for each standard deviation up to 15, round after round of 48."""
    monkeypatch.setattr(replay_script, "normals", lambda seed: [0.0, 1.0, -2.0, 0.5, 14.9, 20.0])
    content = {"kind": "normal", "mean": 0.0, "std": 1.0, "seed": 1}
    assert replay_script.floats("float8_e4m3fn", 6, content) == bytes([32, 48, 64, 40, 78, 32])


def test_zeros_are_restored_as_other_contents_are(tmp_path: Path) -> None:
    did: list[tuple[int, Any]] = []
    device: Any = SimpleNamespace(
        allocate=lambda nbytes: 4096, zero=lambda *place: did.append(place), write=lambda *place: did.append(place)
    )
    (tmp_path / "x.bin").write_bytes(b"xy")
    contents = [{"kind": "zeros"}, {"kind": "stored", "file": "x.bin"}]
    storages = [{"nbytes": 2, "dtype": "int8", "content": content, "written": True} for content in contents]
    memory = replay_script.ReplayMemory(device, {"storages": storages}, tmp_path)
    did.clear()
    memory.restore(memory.written)
    assert did == [(4096, 2), (4096, b"xy")]


def test_described_integers_are_in_their_range() -> None:
    content = {"kind": "uniform", "low": -3, "high": 5, "seed": 1}
    data = replay_script.content_of({"nbytes": 8 * 1000, "dtype": "int64", "content": content}, Path())
    assert data is not None
    assert set(np.frombuffer(data, "<i8")) == set(range(-3, 6))


def test_long_contents_repeat(driver: StubDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage of 10 numbers, of which 4 are made."""
    monkeypatch.setattr(replay_script, "TILE", 4)
    replay_script.normals.cache_clear()
    content = {"kind": "normal", "mean": 0.0, "std": 1.0, "seed": 1}
    storage = {"nbytes": 40, "dtype": "float32", "content": content, "read": True, "written": True}
    monkeypatch.setenv("STUB_CUDA_LOG", str(driver.log))
    device = replay_script.ReplayDevice(0, str(driver.path))
    memory = replay_script.ReplayMemory(device, {"storages": [storage]}, Path())
    numbers = struct.unpack("<10f", memory.output(0))
    assert numbers[:4] == numbers[4:8]
    assert numbers[:2] == numbers[8:]
    replay_script.normals.cache_clear()


# the same bytes as the library's own launches


@pytest.mark.parametrize(
    ("type_", "value"),
    [("i32", -5), ("i64", 1 << 40), ("u8", 200), ("i1", True), ("fp32", 0.1), ("fp64", "inf"), ("fp16", 0.1),
     ("bf16", 0.1), ("bf16", 1 + 1 / 256), ("bf16", 1 + 3 / 256), ("fp32", "nan"), ("u64", (1 << 64) - 1)],
)  # fmt: skip
def test_scalars_are_encoded_as_our_own_launches_do(type_: str, value: Any) -> None:
    ours = bytes(cuda_driver._encode(Param("p", type_, value=value), None))
    device: Any = None
    assert bytes(replay_script.encoded(device, {"type": type_, "value": value}, 0)) == ours


def test_tensor_maps_are_encoded_by_the_driver(driver: StubDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_CUDA_LOG", str(driver.log))
    spec = TensorMap(3, 2, 6, (64, 32), (4096, 1024), (1024, 1))
    device = replay_script.ReplayDevice(0, str(driver.path))
    fields = {f: getattr(spec, f) for f in spec.__struct_fields__}
    made = bytes(replay_script.encoded(device, {"type": "nvTmaDesc", "tensor_map": fields}, 256))
    assert made[:8] == struct.pack("<2i", 32, 64), "the box, innermost dimension first"
    assert driver.lines()[-1] == "map  6 2"
