"""Runs one recorded launch through the CUDA driver alone: a copy lies as ``replay.py`` in the folder of each dump.

It needs Python 3.8 or later and the driver's ``libcuda``, nothing else: no torch, no Triton, no kerntune.

    python replay.py                       launch once, print checksums of what it wrote, then time it
    python replay.py --runs 0 --save OUT   launch once, and write the outputs to the folder OUT
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

SCHEMA = "kerntune.dump/2"
"""Of the ``launch.json`` that this script takes."""

DEVICE_L2_BYTES, DEVICE_SHARED_OPTIN = 38, 97
FUNCTION_STATIC_SHARED, FUNCTION_MAX_DYNAMIC_SHARED, FUNCTION_NON_PORTABLE_CLUSTER = 1, 8, 14
PREFER_SHARED = 1
STATIC_SHARED_LIMIT = 48 << 10
"""Above this a kernel must ask for its dynamic shared memory (CUDA C++ Programming Guide, technical specifications)."""

NON_PORTABLE_CLUSTER = 16
LAUNCH_COOPERATIVE, LAUNCH_CLUSTER, LAUNCH_CLUSTER_SCHEDULING, LAUNCH_PDL = 2, 4, 5, 6
CLUSTER_SCHEDULING_SPREAD = 1
TENSOR_MAP_TF32, L2_PROMOTION_128B, OOB_NONE, OOB_NAN = 11, 2, 0, 1
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGN = 128, 64
"""Numbers of cuda.h: ``CUdevice_attribute``, ``CUfunction_attribute``, ``CUfunc_cache``, ``CUlaunchAttributeID`` and
its values, ``CUtensorMapDataType`` and its like. ``kerntune.gpu.cuda_driver`` takes these and the structures, too."""

FLOATS = {"float16": "e", "float32": "f", "float64": "d"}

SCALARS: dict[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp16": ctypes.c_uint16, "bf16": ctypes.c_uint16,
    "fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip

HALF_OVERFLOW = 65520.0
"""From here on the nearest float16 is infinity."""


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16)]


class LaunchSettings(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = [
        ("grid_x", ctypes.c_uint), ("grid_y", ctypes.c_uint), ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint), ("block_y", ctypes.c_uint), ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)), ("attribute_count", ctypes.c_uint),
    ]  # fmt: skip


class ReplayDevice:
    """A GPU's memory, events and modules, through ``libcuda``."""

    def __init__(self, ordinal: int, library: str) -> None:
        try:
            self.cuda = ctypes.CDLL(library)
        except OSError as exc:
            sys.exit(f"no NVIDIA driver here ({exc}); run it where there is a GPU, or name the library: --library PATH")
        self.handle = ctypes.c_int()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self.handle), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.handle)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *args: Any) -> None:
        """Call the driver; an error ends the program with its name."""
        code = getattr(self.cuda, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(text))
            sys.exit(f"{name} failed: {(text.value or b'unknown error').decode()} ({code})")

    def attribute(self, number: int) -> int:
        """An attribute of the device."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.handle)
        return value.value

    def allocate(self, nbytes: int) -> int:
        """The address of new memory, all zeros."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        self.zero(address.value, nbytes)
        return address.value

    def zero(self, address: int, nbytes: int) -> None:
        """Enqueue zeros."""
        self.call(
            "cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), ctypes.c_void_p()
        )

    def write(self, address: int, data: bytes) -> None:
        """Copy from the host."""
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy to the host, after all enqueued work."""
        self.synchronize()
        place = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        return place.raw

    def synchronize(self) -> None:
        """Wait for all enqueued work."""
        self.call("cuCtxSynchronize")

    def event_pair(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Two events, made before anything is timed."""
        pair = ctypes.c_void_p(), ctypes.c_void_p()
        for event in pair:
            self.call("cuEventCreate", ctypes.byref(event), 0)
        return pair

    def seconds(self, work: Callable[[], None], pair: tuple[ctypes.c_void_p, ctypes.c_void_p]) -> float:
        """The time of enqueued work between two events. Nothing else is called between them: a device that waits for
        the host would count it."""
        begin, end = pair
        self.call("cuEventRecord", begin, ctypes.c_void_p())
        work()
        self.call("cuEventRecord", end, ctypes.c_void_p())
        self.call("cuEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
        return milliseconds.value / 1e3


# contents


def content_of(storage: dict[str, Any], folder: Path) -> bytes | None:
    """What a storage held; None for zeros, and the start of what repeats."""
    content = storage["content"]
    return None if content["kind"] == "zeros" else Path(folder, content["file"]).read_bytes()


class ReplayMemory:
    """The storages of a launch on the device."""

    def __init__(self, device: ReplayDevice, launch: dict[str, Any], folder: Path) -> None:
        self.device, self.storages = device, launch["storages"]
        self.contents = [content_of(s, folder) for s in self.storages]
        self.addresses = [device.allocate(s["nbytes"]) for s in self.storages]
        self.restore(range(len(self.storages)))

    def restore(self, which: Sequence[int]) -> None:
        """Write the first content into these storages."""
        for i in which:
            content, nbytes = self.contents[i], self.storages[i]["nbytes"]
            if content is None:
                self.device.zero(self.addresses[i], nbytes)
                continue
            for start in range(0, nbytes, max(len(content), 1)):
                self.device.write(self.addresses[i] + start, content[: nbytes - start])

    @property
    def written(self) -> list[int]:
        """Storages that the launch writes."""
        return [i for i, s in enumerate(self.storages) if s["written"]]

    def output(self, index: int) -> bytes:
        """What a storage holds now."""
        return self.device.read(self.addresses[index], self.storages[index]["nbytes"])


# the launch


def load(device: ReplayDevice, launch: dict[str, Any], folder: Path) -> ctypes.c_void_p:
    """The kernel's function, with the shared memory that it needs."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    device.call("cuModuleLoadData", ctypes.byref(module), (folder / launch["binary"]).read_bytes())
    device.call("cuModuleGetFunction", ctypes.byref(function), module, launch["symbol"].encode())
    if launch["shared"] > STATIC_SHARED_LIMIT:
        static = ctypes.c_int()
        device.call("cuFuncGetAttribute", ctypes.byref(static), FUNCTION_STATIC_SHARED, function)
        dynamic = device.attribute(DEVICE_SHARED_OPTIN) - static.value
        device.call("cuFuncSetCacheConfig", function, PREFER_SHARED)
        device.call("cuFuncSetAttribute", function, FUNCTION_MAX_DYNAMIC_SHARED, dynamic)
    if launch["num_ctas"] == NON_PORTABLE_CLUSTER:
        device.call("cuFuncSetAttribute", function, FUNCTION_NON_PORTABLE_CLUSTER, 1)
    return function


def parameters(device: ReplayDevice, launch: dict[str, Any], memory: ReplayMemory) -> list[Any]:
    """The values of the binary's parameters, in its order; two scratch pointers come last."""
    values = []
    for param in launch["params"]:
        address = 0
        if param.get("view") is not None:
            view = launch["views"][param["view"]]
            address = memory.addresses[view["storage"]] + view.get("offset_bytes", 0)
        values.append(encoded(device, param, address))
    blocks = math.prod(launch["grid"]) * launch["num_ctas"]
    for name in ("global_scratch", "profile_scratch"):
        size = launch[name]["size"] * blocks
        values.append(ctypes.c_uint64(device.allocate(size) if size else 0))
    return values


def encoded(device: ReplayDevice, param: dict[str, Any], address: int) -> Any:
    """One parameter as the bytes that the kernel takes."""
    if param.get("tensor_map") is not None:
        return tensor_map(partial(device.call, "cuTensorMapEncodeTiled"), param["tensor_map"], address)
    if param["type"].startswith("*"):
        return ctypes.c_uint64(address)
    return scalar(param["type"], param["value"])


def scalar(kind: str, value: Any) -> Any:
    """A number as the bytes that the kernel takes, of 16 bits the nearest. JSON has words for NaN and infinities."""
    number = float(value) if isinstance(value, str) else value
    if kind == "fp16":
        near = math.copysign(math.inf, number) if abs(number) >= HALF_OVERFLOW else number
        number = int.from_bytes(struct.pack("<e", near), "little")
    elif kind == "bf16":
        bits = int.from_bytes(bytes(ctypes.c_float(number)), "little")
        number = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return SCALARS[kind](number)


def tensor_map(encode: Callable[..., None], spec: dict[str, Any], address: int) -> Any:
    """A ``CUtensorMap``, encoded as Triton's driver does (dimensions innermost first)."""
    rank = len(spec["shape"])
    raw = (ctypes.c_uint8 * (TENSOR_MAP_BYTES + TENSOR_MAP_ALIGN))()
    offset = -ctypes.addressof(raw) % TENSOR_MAP_ALIGN
    aligned = (ctypes.c_uint8 * TENSOR_MAP_BYTES).from_buffer(raw, offset)
    steps = [s * spec["elem_size"] for s in reversed(spec["strides"][:-1])]
    encode(
        aligned, ctypes.c_int(TENSOR_MAP_TF32 if spec.get("tf32") else spec["elem_type"]),
        ctypes.c_uint32(rank), ctypes.c_void_p(address), (ctypes.c_uint64 * rank)(*reversed(spec["shape"])),
        (ctypes.c_uint64 * max(rank - 1, 1))(*steps), (ctypes.c_uint32 * rank)(*reversed(spec["block"])),
        (ctypes.c_uint32 * rank)(*([1] * rank)), 0, ctypes.c_int(spec["swizzle"]), L2_PROMOTION_128B,
        OOB_NAN if spec.get("nan_padding") else OOB_NONE,
    )  # fmt: skip
    return aligned


def settings_of(
    grid: Sequence[int], threads: int, num_ctas: int, shared: int, pdl: bool, cooperative: bool
) -> LaunchSettings:
    """A launch of ``grid`` clusters of ``num_ctas`` blocks, on the default stream."""
    wanted = [(LAUNCH_PDL, [1])] if pdl else []
    wanted += [(LAUNCH_COOPERATIVE, [1])] if cooperative else []
    if num_ctas != 1:
        wanted += [(LAUNCH_CLUSTER, [num_ctas, 1, 1]), (LAUNCH_CLUSTER_SCHEDULING, [CLUSTER_SCHEDULING_SPREAD])]
    found = (LaunchAttribute * len(wanted))()
    for attribute, (number, words) in zip(found, wanted):  # noqa: B905 - Python 3.8 has no strict
        attribute.id = number
        attribute.value[: len(words)] = words
    x, y, z = grid
    return LaunchSettings(x * num_ctas, y, z, threads, 1, 1, shared, None, found, len(wanted))


def prepared(device: ReplayDevice, launch: dict[str, Any], function: Any, memory: ReplayMemory) -> Callable[[], None]:
    """A call that enqueues the launch once."""
    values = parameters(device, launch, memory)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    threads = launch["num_warps"] * launch["warp_size"]
    given = {name: launch[name] for name in ("grid", "num_ctas", "shared", "pdl", "cooperative")}
    settings = settings_of(threads=threads, **given)

    def enqueue() -> None:
        device.call("cuLaunchKernelEx", ctypes.byref(settings), function, pointers, None)

    enqueue.keep = values  # type: ignore[attr-defined]  # the pointers don't own them
    return enqueue


# reports


def difference(dtype: str, expected: bytes, actual: bytes) -> str:
    """How an output differs from the recorded one; empty if it doesn't."""
    if expected == actual:
        return ""
    width = struct.calcsize(FLOATS[dtype]) if dtype in FLOATS else 1
    wrong = [i for i in range(0, len(expected), width) if expected[i : i + width] != actual[i : i + width]]
    text = f"{len(wrong)} of {len(expected) // width} {'elements' if width > 1 else 'bytes'} differ"
    if dtype not in FLOATS:
        return text
    code = f"<{FLOATS[dtype]}"
    apart = [abs(struct.unpack_from(code, expected, i)[0] - struct.unpack_from(code, actual, i)[0]) for i in wrong]
    return f"{text}, by {max(apart):.3g} at most"


def report_outputs(launch: dict[str, Any], memory: ReplayMemory, folder: Path, save: Path | None) -> bool:
    """Print a checksum of each output, and how it differs from the recorded one; whether any does."""
    recorded = {one["storage"]: one["file"] for one in launch.get("expected", [])}
    differs = False
    for i in memory.written:
        found, dtype = memory.output(i), memory.storages[i]["dtype"]
        line = f"output {i} ({dtype}, {len(found)} bytes): sha256 {sha256(found).hexdigest()[:16]}"
        if i in recorded:
            how = difference(dtype, (folder / recorded[i]).read_bytes(), found)
            differs = differs or bool(how)
            line += f", {how or 'as recorded'}"
        print(line)
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"output-{i}.bin").write_bytes(found)
    return differs


def timed(
    device: ReplayDevice, memory: ReplayMemory, enqueue: Callable[[], None], runs: int, warm_ms: float
) -> list[float]:
    """Seconds of single launches, each with an L2 cache that holds none of its memory, after so many milliseconds of
    the same untimed: an idle device's clocks need 20 to rise."""
    nbytes = max(2 * device.attribute(DEVICE_L2_BYTES), 1 << 20)
    flushed, pair = device.allocate(nbytes), device.event_pair()

    def once() -> float:
        memory.restore(memory.written)
        device.zero(flushed, nbytes)
        return device.seconds(enqueue, pair)

    warm = time.monotonic() + warm_ms / 1e3
    while time.monotonic() < warm:
        once()
    return [once() for _ in range(runs)]


def main(words: Sequence[str] | None = None) -> int:
    """Launch what the folder describes; 1 if it writes something else than was recorded."""
    import argparse
    import json
    import statistics

    parser = argparse.ArgumentParser(description="Runs the kernel launch of this folder through the CUDA driver.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--runs", metavar="N", type=int, default=20, help="timed launches (default: 20)")
    parser.add_argument(
        "--warm-up", metavar="MS", type=float, default=20.0, help="untimed launches before (default: 20 ms)"
    )
    parser.add_argument("--save", metavar="FOLDER", type=Path, help="write what the kernel wrote to this folder")
    parser.add_argument("--device", metavar="N", type=int, default=0, help="which GPU (default: 0)")
    parser.add_argument("--library", metavar="PATH", default="libcuda.so.1", help="the driver's library")
    args = parser.parse_args(words)
    launch = json.loads((args.folder / "launch.json").read_text(encoding="utf-8"))
    if launch["schema"] != SCHEMA:
        sys.exit(f"{args.folder} has {launch['schema']}, not {SCHEMA}: run the replay.py that lies there")
    if launch.get("unreplayable"):
        sys.exit(f"{launch['symbol']} can't be replayed: {launch['unreplayable']}")
    x, y, z = launch["grid"]
    threads = launch["num_warps"] * launch["warp_size"]
    print(f"{launch['symbol']} ({launch['arch']}): grid {x}x{y}x{z}, {threads} threads, {launch['shared']} B shared")
    device = ReplayDevice(args.device, args.library)
    memory = ReplayMemory(device, launch, args.folder)
    enqueue = prepared(device, launch, load(device, launch, args.folder), memory)
    if 0 not in (x, y, z):
        enqueue()
    differs = report_outputs(launch, memory, args.folder, args.save)
    if args.runs and 0 not in (x, y, z):
        times = timed(device, memory, enqueue, args.runs, args.warm_up)
        print(f"time: {statistics.median(times) * 1e6:.2f} us (median of {len(times)}, between events, L2 flushed)")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
