"""The script that runs a dumped launch through the driver alone: against a stub of the driver, and on a real GPU."""

from __future__ import annotations

import ast
import ctypes
import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stub_driver import StubDriver, StubLaunch, built, f32, i32, needs_compiler

from kerntune.base.recording import Param, TensorMap
from kerntune.gpu import cuda_driver, replay_script

pytestmark = needs_compiler

SCALE: dict[str, Any] = {
    "schema": "kerntune.dump/2",
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


def test_a_folder_of_an_earlier_version_has_its_own_script(driver: StubDriver, tmp_path: Path) -> None:
    made = folder(tmp_path, schema="kerntune.dump/1")
    said = f"{made} has kerntune.dump/1, not kerntune.dump/2: run the replay.py that lies there\n"
    assert replay(driver, made).stderr == said


def test_a_missing_driver_is_named(driver: StubDriver, tmp_path: Path) -> None:
    ran = replay(driver, folder(tmp_path), "--library", "libnothing-cuda.so.1")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert ran.stderr.startswith("no NVIDIA driver here (libnothing-cuda.so.1: cannot open")


def test_an_empty_grid_launches_nothing(driver: StubDriver, tmp_path: Path) -> None:
    assert replay(driver, folder(tmp_path, grid=[0, 1, 1], expected=[])).returncode == 0
    assert driver.launches() == []


# contents


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


# each call of the driver, with its arguments


class Library:
    """As libcuda: it notes its calls. What a call is to fill in gets the next number from 4097 on, or its answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {"cuEventElapsedTime": 0.25}
        self.settings: Any = None
        self._number = 4096

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append((name, *(self._noted(name, arg) for arg in args)))
            return 0

        return call

    def _noted(self, name: str, arg: Any) -> Any:
        made = getattr(arg, "_obj", None)
        if isinstance(made, replay_script.LaunchSettings):
            self.settings = made
            return [getattr(made, field) for field, _ in made._fields_ if field != "attributes"]
        if made is not None:
            self._number += 1
            made.value = self.answers.get(name, self._number)
            return made.value
        if isinstance(arg, ctypes.Array):
            return list(arg) if arg._type_ in (ctypes.c_uint32, ctypes.c_uint64) else len(arg)
        return getattr(arg, "value", arg)

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of these names."""
        return [call for call in self.calls if call[0] in names]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: found)
    return found


def test_a_device_is_entered_and_asked_as_cuda_h_says(library: Library) -> None:
    device = replay_script.ReplayDevice(2, "libcuda.so.1")
    assert library.calls == [
        ("cuInit", 0), ("cuDeviceGet", 4097, 2), ("cuDevicePrimaryCtxRetain", 4098, 4097), ("cuCtxSetCurrent", 4098)
    ]  # fmt: skip
    library.calls.clear()
    assert (device.attribute(97), device.allocate(5), device.allocate(0), device.read(7, 3)) == (
        4099,
        4100,
        4101,
        bytes(3),
    )
    device.write(8, b"abc")
    assert library.calls == [
        ("cuDeviceGetAttribute", 4099, 97, 4097),
        ("cuMemAlloc_v2", 4100, 5), ("cuMemsetD8Async", 4100, 0, 5, None),
        ("cuMemAlloc_v2", 4101, 1), ("cuMemsetD8Async", 4101, 0, 0, None),
        ("cuCtxSynchronize",), ("cuMemcpyDtoH_v2", 3, 7, 3),
        ("cuMemcpyHtoD_v2", 8, b"abc", 3),
    ]  # fmt: skip
    library.calls.clear()
    pair = device.event_pair()
    assert device.seconds(lambda: library.calls.append(("work",)), pair) == 0.00025
    assert library.calls == [
        ("cuEventCreate", 4102, 0), ("cuEventCreate", 4103, 0), ("cuEventRecord", 4102, None), ("work",),
        ("cuEventRecord", 4103, None), ("cuEventSynchronize", 4103), ("cuEventElapsedTime", 0.25, 4102, 4103),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "calls"),
    [
        ({"shared": 48 << 10, "num_ctas": 15}, []),
        ({"shared": (48 << 10) + 1}, [("cuFuncGetAttribute", 1000, 1, 4100), ("cuDeviceGetAttribute", 3000, 97, 4097),
                                      ("cuFuncSetCacheConfig", 4100, 1), ("cuFuncSetAttribute", 4100, 8, 2000)]),
        ({"num_ctas": 16}, [("cuFuncSetAttribute", 4100, 14, 1)]),
    ],
    ids=["none", "shared memory", "cluster"],
)  # fmt: skip
def test_a_kernel_may_have_what_it_needs(
    library: Library, tmp_path: Path, changed: dict[str, int], calls: list[tuple[Any, ...]]
) -> None:
    library.answers |= {"cuFuncGetAttribute": 1000, "cuDeviceGetAttribute": 3000}
    device = replay_script.ReplayDevice(0, "")
    library.calls.clear()
    assert replay_script.load(device, SCALE | changed, folder(tmp_path)).value == 4100
    loaded = [("cuModuleLoadData", 4099, b"\x7fELF of scale"), ("cuModuleGetFunction", 4100, 4099, b"scale")]
    assert library.calls == [*loaded, *calls]


@pytest.mark.parametrize(
    ("changed", "settings", "attributes"),
    [
        ({}, [7, 8, 9, 128, 1, 1, 512, None, 0], {}),
        ({"num_ctas": 2}, [14, 8, 9, 128, 1, 1, 512, None, 2], {4: [2, 1, 1], 5: [1, 0, 0]}),
        ({"pdl": True}, [7, 8, 9, 128, 1, 1, 512, None, 1], {6: [1, 0, 0]}),
        ({"cooperative": True}, [7, 8, 9, 128, 1, 1, 512, None, 1], {2: [1, 0, 0]}),
    ],
    ids=["plain", "cluster", "programmatic", "cooperative"],
)
def test_a_launch_is_enqueued_as_cuda_h_says(
    library: Library, tmp_path: Path, changed: dict[str, Any], settings: list[Any], attributes: dict[int, list[int]]
) -> None:
    launch = {**SCALE, "grid": [7, 8, 9], **changed}
    device = replay_script.ReplayDevice(0, "")
    memory = replay_script.ReplayMemory(device, launch, folder(tmp_path))
    library.calls.clear()
    replay_script.prepared(device, launch, ctypes.c_void_p(3), memory)()
    assert library.calls == [("cuLaunchKernelEx", settings, 3, 6, None)]
    found = library.settings.attributes[: library.settings.attribute_count]
    assert {one.id: list(one.value)[:3] for one in found} == attributes


def test_parameters_are_addresses_values_and_scratch_for_each_block(library: Library, tmp_path: Path) -> None:
    launch = {**SCALE, "grid": [3, 5, 7], "num_ctas": 2, "global_scratch": {"size": 64}}
    device = replay_script.ReplayDevice(0, "")
    memory = replay_script.ReplayMemory(device, launch, folder(tmp_path))
    values = replay_script.parameters(device, launch, memory)
    x, y = memory.addresses
    assert [one.value for one in values] == [x + 16, y, 8, 2.0, y + 1, 0]
    assert library.of("cuMemAlloc_v2")[2:] == [("cuMemAlloc_v2", y + 1, 64 * 3 * 5 * 7 * 2)]


@pytest.mark.parametrize(("tf32", "nan"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_tensor_map_is_encoded_innermost_first(tf32: bool, nan: bool, rank: int) -> None:
    asked: list[Any] = []
    spec = {"shape": (5, 100, 200), "strides": (20000, 200, 1), "block": (1, 16, 32), "elem_size": 4, "elem_type": 7,
            "swizzle": 3, "tf32": tf32, "nan_padding": nan}  # fmt: skip
    spec |= {name: spec[name][-rank:] for name in ("shape", "strides", "block")}  # type: ignore[index]
    made = replay_script.tensor_map(lambda *args: asked.extend(args), spec, 0x7000)
    place, *numbers = asked
    assert (place, ctypes.addressof(made) % 64, len(made)) == (made, 0, 128)
    told = [list(one) if isinstance(one, ctypes.Array) else getattr(one, "value", one) for one in numbers]
    lists = [[200, 100, 5][:rank], [800, 80000] if rank == 3 else [0], [32, 16, 1][:rank], [1] * rank]
    assert told == [11 if tf32 else 7, rank, 0x7000, *lists, 0, 3, 2, 1 if nan else 0]


@pytest.mark.parametrize(("dtype", "text"), [("float32", "2 of 3 elements differ, by 1.5 at most"),
                                             ("float64", "2 of 3 elements differ, by 1.5 at most"),
                                             ("int8", "2 of 3 bytes differ")])  # fmt: skip
def test_differences_are_counted_and_the_largest_is_told(dtype: str, text: str) -> None:
    code = replay_script.FLOATS.get(dtype, "b")
    pack = struct.Struct(f"<3{code}").pack
    assert replay_script.difference(dtype, pack(1, 2, 3), pack(1, 2, 3)) == ""
    changed = (1, 3, 4.5) if dtype in replay_script.FLOATS else (1, 3, 5)
    assert replay_script.difference(dtype, pack(1, 2, 3), pack(*changed)) == text


def test_what_repeats_is_written_piece_by_piece_up_to_the_end(tmp_path: Path) -> None:
    did: list[tuple[int, bytes]] = []
    device: Any = SimpleNamespace(allocate=lambda nbytes: 4096, write=lambda *place: did.append(place))
    storages = []
    for nbytes, data in ((8, b"abc"), (0, b"")):
        (tmp_path / f"{nbytes}.bin").write_bytes(data)
        storages.append({"nbytes": nbytes, "content": {"kind": "stored", "file": f"{nbytes}.bin"}})
    replay_script.ReplayMemory(device, {"storages": storages}, tmp_path)
    assert did == [(4096, b"abc"), (4099, b"abc"), (4102, b"ab")]


@pytest.mark.parametrize(
    ("words", "l2", "warming", "runs", "flushed"),
    [((), 1 << 20, 4, 20, 2 << 20), (("--runs", "2", "--warm-up", "7"), 3, 2, 2, 1 << 20),
     (("--runs", "1", "--warm-up", "0"), 3, 0, 1, 1 << 20), (("--runs", "0",), 3, 0, 0, 0)],
)  # fmt: skip
def test_a_run_launches_once_warms_up_and_times(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...], l2: int, warming: int, runs: int, flushed: int,
) -> None:  # fmt: skip
    """Each timed launch after a restore of its output and a flush; by default 20 after 20 ms, of 5 ms each here."""
    library.answers["cuDeviceGetAttribute"] = l2
    monkeypatch.setattr(replay_script.time, "monotonic", lambda: 0.005 * len(library.of("cuEventElapsedTime")))
    assert replay_script.main([str(folder(tmp_path, expected=[])), *words]) == 0
    assert library.of("cuDeviceGet") == [("cuDeviceGet", 4097, 0)]
    assert len(library.of("cuLaunchKernelEx")) == 1 + warming + runs
    assert library.of("cuMemAlloc_v2")[2:] == [("cuMemAlloc_v2", 4104, flushed)] * bool(runs)
    did = [call[0] for call in library.calls]
    once = ["cuMemsetD8Async", "cuMemsetD8Async", "cuEventRecord", "cuLaunchKernelEx", "cuEventRecord",
            "cuEventSynchronize", "cuEventElapsedTime"]  # fmt: skip
    assert did[len(did) - 7 * (warming + runs) :] == once * (warming + runs)
    head, output, *rest = capsys.readouterr().out.splitlines()
    assert head == "scale (sm_90a): grid 32x2x1, 128 threads, 512 B shared"
    assert output == f"output 1 (float32, 32 bytes): sha256 {hashlib.sha256(bytes(32)).hexdigest()[:16]}"
    assert rest == [f"time: 250.00 us (median of {runs}, between events, L2 flushed)"] * bool(runs)
