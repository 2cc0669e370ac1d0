"""``KERNTUNE_DUMP``: each tuned launch of a program as a folder that runs without kerntune."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gluon_kernels
import pytest
import torch
import triton
from doubles import raising
from fake_runs import N, block, configs, increment_kernel, scale, scale_kernel, script
from samples import recording
from stub_driver import built, f32, i32, needs_compiler

import kerntune
from kerntune.base.recording import Normal, Storage, Zeros
from kerntune.capture import launch_dump
from kerntune.errors import StoreError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.source import source_text
from kerntune.tuning import launch_files


@pytest.fixture
def dump(this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "dump"))
    return tmp_path / "dump"


def tuned(kernel: Any = scale_kernel) -> Any:
    return kerntune.autotune(configs(64, 128), key=["n"])(kernel)


def written(dump: Path) -> dict[str, Any]:
    (place,) = dump.iterdir()
    found: dict[str, Any] = json.loads((place / "launch.json").read_text())
    return found


def test_a_launch_into_a_cuda_graph_is_not_looked_at(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the device, as reading its memory does, ends the graph's capture."""
    scale(tuned())
    (place,) = dump.iterdir()
    shutil.rmtree(place)
    with monkeypatch.context() as capturing:
        capturing.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        kernel = tuned()  # its winner is stored
        scale(kernel)
    assert list(dump.iterdir()) == []


def test_a_folder_has_all_stages(dump: Path) -> None:
    kernel = tuned()
    scale(kernel)
    scale(kernel)
    (place,) = dump.iterdir()
    assert place.name.startswith("scale_kernel-")
    names = {p.name for p in place.iterdir()}
    stages = {f"kernel.{stage}" for stage in ("ttir", "ttgir", "llir", "ptx", "sass", "cubin", "py")}
    assert names == {*stages, "launch.json", "replay.py", "content-0.bin"}
    assert "STG.E" in (place / "kernel.sass").read_text()
    assert ".target sm_90a" in (place / "kernel.ptx").read_text()
    found = written(dump)
    assert (found["schema"], found["config"], found["grid"]) == (
        "kerntune.dump/2",
        {"kwargs": {"BLOCK": 128}},
        [32, 1, 1],
    )
    assert found["compiled_for"]["n"] == "i32, divisible by 16"
    assert [p["name"] for p in found["params"]] == ["x_ptr", "y_ptr", "n", "factor"]
    assert found["environment"]["device"] == "Fake GPU"


@pytest.mark.slow
def test_its_source_is_the_kernels(dump: Path, tmp_path: Path) -> None:
    scale(tuned())
    (place,) = dump.iterdir()
    (tmp_path / "again.py").write_text((place / "kernel.py").read_text())
    code = "import again; print(again.scale_kernel.src == open('before').read())"
    (tmp_path / "before").write_text(scale_kernel.src)
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


FACTOR: triton.language.constexpr = triton.language.constexpr(3)


@triton.jit
def helper(x):
    return x * FACTOR


@triton.jit
def nested_kernel(x_ptr, BLOCK: triton.language.constexpr):
    i = triton.language.arange(0, BLOCK)
    triton.language.store(x_ptr + i, helper(triton.language.load(x_ptr + i)))


def test_helpers_and_constants_come_before_the_kernel() -> None:
    text = source_text(nested_kernel)
    places = [text.index(part) for part in ("FACTOR = tl.constexpr(3)", "def helper", "def nested_kernel")]
    assert places == sorted(places)
    compile(text, "kernel.py", "exec")


def test_a_gluon_kernel_is_shown_in_its_language() -> None:
    text = source_text(gluon_kernels.wgmma_kernel)
    assert text.startswith(
        "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
    )
    assert "@gluon.jit\ndef wgmma_kernel(" in text
    assert "triton.jit" not in text


def test_nothing_is_dumped_by_default(this_gpu: FakeBackend, tmp_path: Path) -> None:
    scale(tuned())
    assert not any(p.name.startswith("scale_kernel") for p in tmp_path.rglob("*"))


@pytest.mark.slow
def test_each_key_and_config_is_dumped_once(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, began = tuned(), []
    begin = launch_files._begin
    monkeypatch.setattr(launch_files, "_begin", lambda *a: began.append(0) or begin(*a))
    for dtype in (torch.float32, torch.float16, torch.float32):
        x = torch.empty(N, device="cuda", dtype=dtype)
        for _ in range(3):
            kernel[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](x, torch.empty_like(x), N, 2.0)
    assert len(list(dump.iterdir())) == len(began) == 2


@pytest.mark.slow
def test_all_bytes_are_kept_on_request(dump: Path, this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "recorded")
    gpu, kernel = this_gpu.gpu, tuned(increment_kernel)
    x = torch.empty(N, device="cuda")
    before = gpu.read(gpu.borrow(x))
    kernel[(64,)](x, N)
    (place,) = dump.iterdir()
    found = written(dump)
    assert found["storages"][0]["content"] == {"kind": "stored", "file": "content-0.bin"}
    assert (place / "content-0.bin").read_bytes() == before
    assert found["expected"] == [{"storage": 0, "file": "expected-0.bin"}]
    assert (place / "expected-0.bin").read_bytes() == gpu.read(gpu.borrow(x))


def test_another_content_is_refused_with_a_warning(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "all")
    with pytest.warns(RuntimeWarning, match="kernel scale_kernel: its launch was not dumped: KERNTUNE_DUMP_CONTENT is"):
        scale(tuned())


def test_a_folder_that_cannot_be_written_costs_no_launch(
    this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: list[Any]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="its launch was not dumped"):
        scale(tuned())
    assert len(launches) == 1


def test_without_a_disassembler_there_is_no_sass(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", "/nowhere/nvdisasm")
    scale(tuned())
    (place,) = dump.iterdir()
    assert not (place / "kernel.sass").exists()
    assert (place / "kernel.cubin").exists()


def test_a_killed_write_leaves_no_half_folder(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_dump, "machine_code", raising(StoreError("in the middle")))
    with pytest.warns(RuntimeWarning, match="in the middle"):
        scale(tuned())
    assert list(dump.iterdir()) == []


@pytest.mark.slow
@needs_compiler
def test_a_dump_runs_in_a_python_without_packages(dump: Path, tmp_path: Path) -> None:
    scale(tuned())
    (place,) = dump.iterdir()
    (tmp_path / "driver").mkdir()
    driver = built(tmp_path / "driver", sizes=(8, 8, 4, 4, 8, 8), scales=True)
    command = [sys.executable, "-I", "-S", str(place / "replay.py"), "--runs", "2", "--save", str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=driver.environment())
    assert "time: 12.50 us" in ran.stdout
    first = driver.launches()[0]
    assert (first.grid, first.block, first.params[2:4]) == ((32, 1, 1), (128, 1, 1), (i32(N), f32(2.0)))
    assert len(struct.unpack(f"<{N}f", (tmp_path / "out" / "output-1.bin").read_bytes())) == N


def test_contents_are_guessed_where_nothing_ran() -> None:
    """Numbers with a point are normally distributed, each storage with a seed of its own; others stay zeros."""
    kinds = ("float32", "int32", "bfloat16", "bool", "float64")
    made = recording(storages=tuple(Storage(64, kind, Zeros()) for kind in kinds))
    contents = [s.content for s in launch_dump.guessed(made).storages]
    assert contents == [Normal(seed=0), Zeros(), Normal(seed=2), Zeros(), Normal(seed=4)]


def test_names_of_files_have_80_plain_characters() -> None:
    assert launch_dump.plain_name("a/b::c[x] - d." + "e" * 100) == "a-b-c-x---d." + "e" * 68
    assert launch_dump.plain_name("..a b--") == "a-b"
