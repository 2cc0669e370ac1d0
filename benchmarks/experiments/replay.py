"""Replay a recorded call in a process without torch: the driver alone, through ctypes.

python replay.py same FOLDER1 FOLDER2        two recordings, replayed at a third window: equal bit for bit?
python replay.py contents FOLDER1 FOLDER2    the same with other contents of the inputs: right?
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from addresses import Words, compare, inside, relocated, values
from common import GRANULE, POISON, RESERVED, TARGET, answer, library

KEPT_ATTRIBUTES = (2, 4, 5, 6)
"""Attributes of launches without addresses: cooperative, cluster's size, its scheduling, programmatic order."""

MAX_DYNAMIC_SHARED = 8
U64, SIZE, POINTER = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


@dataclass
class Recording:
    """One recorded call: ``case.json``, memory before and after, and lines of the recorder between its marks."""

    case: dict[str, Any]
    folder: Path
    lines: list[dict[str, Any]]
    ranges: list[tuple[int, int]]

    @classmethod
    def read(cls, folder: Path) -> Recording:
        case = json.loads((folder / "case.json").read_text())
        lines: list[dict[str, Any]] = []
        ranges: list[tuple[int, int]] = []
        within = False
        if "error" in case:
            raise RuntimeError(f"not recorded: {case['error']}")
        with Path(case["lines"]).open(encoding="utf-8", errors="replace") as text:
            for raw in text:
                if not raw.endswith("}\n"):
                    continue  # the last line of a process that is still writing
                line = json.loads(raw)
                if line["what"] == "mark":
                    within = line["text"] == f"begin {case['case']}"
                elif line["what"] == "allocation" and not case["base"] <= line["at"] < case["base"] + RESERVED:
                    ranges.append((line["at"], line["size"]))
                elif within and line["what"] in ("launch", "memory", "graph_launch"):
                    lines.append(line)
        return cls(case, folder, lines, ranges)

    def memory(self, name: str) -> bytes:
        return (self.folder / f"{name}.bin").read_bytes()


@dataclass
class Relocatable:
    """Two recordings compared: what has to be moved in memory and in parameters, and what makes that impossible."""

    first: Recording
    before: Words
    after: Words
    params: list[Words]
    report: dict[str, Any]

    @classmethod
    def of(cls, one: Recording, two: Recording) -> Relocatable:
        distance = two.case["base"] - one.case["base"]
        for key in ("start", "before", "after", "inputs", "outputs"):
            if one.case[key] != two.case[key]:
                raise ValueError(f"the layouts differ in {key}: {one.case[key]} and {two.case[key]}")
        if len(one.lines) != len(two.lines):
            raise ValueError(f"{len(one.lines)} and {len(two.lines)} operations")
        before = compare(one.memory("before"), two.memory("before"), distance)
        after = compare(one.memory("after"), two.memory("after"), distance)
        params, outside, unknown = [], [], []
        for a, b in zip(one.lines, two.lines, strict=True):
            if a["what"] != "launch":
                params.append(Words())
                continue
            if (a["name"], a["hash"], a["grid"], a["block"]) != (b["name"], b["hash"], b["grid"], b["block"]):
                raise ValueError(f"launches differ: {a['name']} and {b['name']}")
            found = compare(bytes.fromhex(a["params"]), bytes.fromhex(b["params"]), distance)
            params.append(found)
            hits = inside(bytes.fromhex(a["params"]), one.ranges)
            outside += [{"kernel": (a["name"] or "")[:80], "offset": at, "value": hex(v)} for at, v in hits]
            if not a["known"] or a["code"] < 0:
                unknown.append(a["name"])
        launches = [line for line in one.lines if line["what"] == "launch"]
        start = one.case["base"]
        seen = values(one.memory("after"), after.addresses)
        for line, found in zip(one.lines, params, strict=True):
            seen += values(bytes.fromhex(line["params"]), found.addresses) if line["what"] == "launch" else []
        ours = [(start + offset, start + offset + size) for offset, size in one.case["after"]]
        astray = [hex(v) for v in seen if not any(low <= v < high for low, high in ours)]
        report = {
            "launches": len(launches),
            "kernels": sorted({(line["name"] or "?")[:90] for line in launches}),
            "by": sorted({line["by"] for line in launches}),
            "memory_operations": [line["by"] for line in one.lines if line["what"] == "memory"],
            "params": {
                "words": sum(p.words for p in params),
                "addresses": sum(len(p.addresses) for p in params),
                "differ_otherwise": sum(len(p.otherwise) for p in params),
                "otherwise": [[i, p.otherwise[:8]] for i, p in enumerate(params) if p.otherwise][:8],
            },
            "memory_before": before.report(),
            "memory_after": after.report(),
            "addresses_not_in_window": astray[:8],
            "params_in_other_allocations": outside[:8],
            "unknown": unknown[:8],
        }
        return cls(one, before, after, params, report)


class Driver:
    """The CUDA driver's functions, with errors as exceptions that name the function."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.window = library("window")
        self("cuInit", 0)
        context = POINTER()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)
        self.functions: dict[tuple[str, str, int], POINTER] = {}

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name} gave {code} {(text.value or b'').decode()}")

    def write(self, at: int, data: bytes) -> None:
        self("cuMemcpyHtoD_v2", U64(at), data, SIZE(len(data)))

    def read(self, at: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self("cuMemcpyDtoH_v2", buffer, U64(at), SIZE(size))
        return buffer.raw

    def reserve(self, base: int, size: int = RESERVED) -> None:
        given = U64()
        code = self.window.window_reserve(U64(base), U64(size), ctypes.byref(given))
        if code:
            raise RuntimeError(f"the window at {base:#x} could not be had: {code}, {given.value:#x}")

    def map(self, start: int, end: int) -> None:
        """Memory with poison for the granules from ``start`` to ``end``."""
        start, end = start // GRANULE * GRANULE, -(-end // GRANULE) * GRANULE
        if end > start:
            code = self.window.window_map(U64(start), U64(end - start), POISON)
            if code:
                raise RuntimeError(f"memory at {start:#x} could not be had: {code}")

    def function(self, line: dict[str, Any], code: Path, side: int = 0) -> POINTER:
        """The function of a launch; each ``side`` has a module of its own."""
        key = (line["hash"], line["name"], side)
        if key not in self.functions:
            module, function = POINTER(), POINTER()
            image = (code / f"{line['hash']}.{line['kind']}").read_bytes()
            self("cuModuleLoadData", ctypes.byref(module), image)
            self("cuModuleGetFunction", ctypes.byref(function), module, line["name"].encode())
            self.functions[key] = function
        function = self.functions[key]
        if line["smem"] > 48 * 1024:
            self("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, line["smem"])
        return function


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint8 * 64)]


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("smem", ctypes.c_uint), ("stream", POINTER),
        ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


class Operation:
    """One operation of a recording, at a place ``by`` bytes from where it was recorded; it can be run often."""

    def __init__(
        self, driver: Driver, line: dict[str, Any], words: Words, by: int, recording: Recording, side: int = 0
    ) -> None:
        self.driver, self.line = driver, line
        base = recording.case["base"]
        if line["what"] == "memory":
            self.to, self.source = (line[k] + by if base <= line[k] < base + RESERVED else None for k in ("to", "from"))
            return
        if line["what"] != "launch":
            raise RuntimeError(f"{line['what']} can't be replayed")
        data = relocated(bytes.fromhex(line["params"]), words.addresses, by)
        # A multiple of 64, so that descriptors in the parameters lie as the driver wants them.
        self.raw = ctypes.create_string_buffer(len(data) + 64)
        start = (ctypes.addressof(self.raw) + 63) // 64 * 64
        ctypes.memmove(start, data, len(data))
        self.params = (POINTER * max(1, len(line["layout"])))(*(start + offset for offset, _ in line["layout"]))
        self.function = driver.function(line, Path(recording.case["code"]), side)
        kept = [(i, bytes.fromhex(v)) for i, v in line["attributes"] if i in KEPT_ATTRIBUTES]
        self.attributes = (Attribute * max(1, len(kept)))()
        for place, (number, value) in enumerate(kept):
            self.attributes[place].id = number
            ctypes.memmove(self.attributes[place].value, value, 64)
        u3 = ctypes.c_uint * 3
        self.config = Config(u3(*line["grid"]), u3(*line["block"]), line["smem"], None, self.attributes, len(kept))
        if line["by"] == "cuLaunchCooperativeKernel" and not any(i == 2 for i, _ in kept):
            raise RuntimeError("a cooperative launch without its attribute can't be replayed yet")

    def run(self, stream: POINTER | None = None) -> None:
        if self.line["what"] == "launch":
            self.config.stream = stream
            self.driver("cuLaunchKernelEx", ctypes.byref(self.config), self.function, self.params, None)
            return
        by, n = self.line["by"], SIZE(self.line["n"])
        if by.startswith("cuMemset") and self.to is not None:
            self.driver(by, U64(self.to), self.line["value"], n, stream)
        elif self.to is not None and self.source is not None:
            self.driver("cuMemcpyDtoDAsync_v2", U64(self.to), U64(self.source), n, stream)
        elif self.to is not None and "bytes" in self.line:
            self.driver("cuMemcpyHtoDAsync_v2", U64(self.to), bytes.fromhex(self.line["bytes"]), n, stream)
        elif self.to is None and self.source is not None:
            return  # a copy to the host: nothing on the GPU depends on it
        else:
            raise RuntimeError(f"{by} of memory outside of the window can't be replayed")


def operations(driver: Driver, moved: Relocatable, target: int, side: int = 0) -> list[Operation]:
    by = target - moved.first.case["base"]
    pairs = zip(moved.first.lines, moved.params, strict=True)
    return [Operation(driver, line, words, by, moved.first, side) for line, words in pairs]


def opened(driver: Driver, moved: Relocatable, target: int) -> None:
    """The window at ``target``, with memory where the recording has some."""
    driver.reserve(target)
    for offset, size in moved.first.case["after"]:
        driver.map(target + offset, target + offset + size)


def placed(
    driver: Driver, moved: Relocatable, target: int, contents: dict[str, bytes] | None = None, common: bool = True
) -> None:
    """Memory as it was before the call, at ``target``; ``contents`` in place of the inputs' own."""
    data = relocated(moved.first.memory("before"), moved.before.addresses, target - moved.first.case["base"])
    for number, (offset, size) in enumerate(moved.first.case["before"]):
        if size and (number or common):
            driver.write(target + offset, data[:size])
        data = data[size:]
    for name, given in (contents or {}).items():
        offset, size = moved.first.case["inputs"][name]
        if len(given) != size:
            raise ValueError(f"{name}: {len(given)} bytes for {size}")
        driver.write(target + offset, given)


def found_after(driver: Driver, moved: Relocatable, target: int) -> bytes:
    return b"".join(driver.read(target + o, n) for o, n in moved.first.case["after"] if n)


def same(one: Path, two: Path) -> dict[str, Any]:
    """The call relocated to a third window; is all memory as it was after the call, bit for bit?"""
    begin = time.monotonic()
    moved = Relocatable.of(Recording.read(one), Recording.read(two))
    result = dict(moved.report)
    try:
        driver = Driver()
        opened(driver, moved, TARGET)
        placed(driver, moved, TARGET)
        for operation in operations(driver, moved, TARGET):
            operation.run()
        driver("cuCtxSynchronize")
        got = found_after(driver, moved, TARGET)
        wanted = relocated(moved.first.memory("after"), moved.after.addresses, TARGET - moved.first.case["base"])
        a, b = (np.frombuffer(x, dtype=np.uint8) for x in (got, wanted))
        result["bytes"] = len(wanted)
        result["bytes_that_differ"] = int((a != b).sum())
        case = moved.first.case
        skipped = case["after"][0][1] - case["start"]  # outputs lie in the slot, which comes after the common part
        spans = [slice(o + skipped, o + skipped + n) for o, n in case["outputs"]]
        result["outputs_equal"] = all(got[s] == wanted[s] for s in spans)
        start = relocated(moved.first.memory("before"), moved.before.addresses, TARGET - case["base"])
        start = start.ljust(len(wanted), bytes([POISON]))
        changed = [int((np.frombuffer(start[s], np.uint8) != np.frombuffer(wanted[s], np.uint8)).sum()) for s in spans]
        result["output_bytes_written"] = sum(changed)  # 0: the results lay there before the replay
        result["bytes_new_in_call"] = case["after"][1][1] - case["before"][1][1]
    except Exception as error:
        result["replay_error"] = f"{type(error).__name__}: {error}"
    result["replay_seconds"] = round(time.monotonic() - begin, 2)
    return result


def contents(one: Path, two: Path) -> dict[str, Any]:
    """The call with the contents of seed 2, which its recording has never seen; right and the same as natively?"""
    moved = Relocatable.of(Recording.read(one), Recording.read(two))
    case = moved.first.case
    result: dict[str, Any] = {"launches": moved.report["launches"], "contents_matter": case["contents_matter"]}
    result.update(error_of_native=case["error_of_native"], dense=case["dense"])
    driver = Driver()
    opened(driver, moved, TARGET)
    others = {name: (one / f"other_{name}.bin").read_bytes() for name in case["inputs"]}
    runs = []
    for _ in range(2):  # once more from the same start: deterministic?
        for offset, size in case["after"]:
            driver("cuMemsetD8_v2", U64(TARGET + offset), POISON, SIZE(size))
        placed(driver, moved, TARGET, others)
        for operation in operations(driver, moved, TARGET):
            operation.run()
        driver("cuCtxSynchronize")
        runs.append([driver.read(TARGET + o, n) for o, n in case["outputs"]])
    expected = [(one / f"expected{i}.bin").read_bytes() for i in range(len(case["outputs"]))]
    result["equal_to_native"] = runs[0] == expected
    result["deterministic"] = runs[0] == runs[1]
    errors = []
    for i, data in enumerate(runs[0]):
        right = np.frombuffer((one / f"right{i}.bin").read_bytes(), dtype=np.float64)
        got = numbers(data, case["dtypes"][i])
        errors.append(float(np.linalg.norm(got - right) / max(np.linalg.norm(right), 1e-30)))
    result["error_of_replay"] = max(errors)
    result["right"] = bool(max(errors) <= case["tolerance"])
    return result


def numbers(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "torch.bfloat16":
        return (np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, dtype=dtype.removeprefix("torch.")).astype(np.float64)


def main() -> None:
    mode, folders = sys.argv[1], [Path(p) for p in sys.argv[-2:]]
    if mode == "same":
        answer(same(*folders))
    elif mode == "contents":
        answer(contents(*folders))
    else:
        raise SystemExit(f"unknown mode {mode}")


if __name__ == "__main__":
    main()
