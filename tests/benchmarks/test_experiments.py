"""The recorder and the comparison of addresses of ``benchmarks/experiments``, against a driver that has no GPU."""

from __future__ import annotations

import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments.addresses import compare, inside, relocated

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parents[1] / "benchmarks" / "experiments"
DISTANCE = 0xA5640000000
BASES = (0x400000000000, 0x400000000000 + DISTANCE)

needs_compiler = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64") or shutil.which("gcc") is None,
    reason="wants gcc on Linux on x86-64, whose calls and symbol versions the native files name",
)


def test_words_apart_by_the_distance_are_addresses_also_at_multiples_of_four() -> None:
    def made(by: int) -> bytes:
        return struct.pack("<QQIQI", 5, BASES[0] + 64 + by, 7, BASES[0] + 128 + by, 9)

    found = compare(made(0), made(DISTANCE), DISTANCE)
    assert (found.addresses, found.otherwise) == ([8, 20], [])
    assert relocated(made(0), found.addresses, 3 * DISTANCE) == made(3 * DISTANCE)


def test_words_that_differ_in_another_way_are_said() -> None:
    turned = 2**64 - 1  # an address with its bits turned round isn't taken for one
    one, two = (struct.pack("<QQ", b ^ turned, b) for b in BASES)
    found = compare(one, two, DISTANCE)
    assert (found.addresses, found.otherwise) == ([8], [0])
    assert compare(one + b"abc", two + b"abd", DISTANCE).otherwise == [0, 16]


def test_addresses_into_other_allocations_are_found() -> None:
    assert inside(struct.pack("<QQ", 50, 1000), [(900, 101)]) == [(8, 1000)]
    assert inside(struct.pack("<QQ", 50, 1001), [(900, 101)]) == []


@pytest.fixture(scope="module")
def natives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("natives")
    sources = {n: EXPERIMENTS / "native" / f"{n}.c" for n in ("recorder", "window", "confine")}
    options = ["gcc", "-O0", "-fPIC", "-shared"]
    for name, source in sources.items():
        subprocess.run(
            [*options, "-fvisibility=hidden", "-o", folder / f"{name}.so", source, "-ldl", "-lpthread"], check=True
        )
    subprocess.run([*options, "-o", folder / "libcuda.so.1", HERE / "stub_driver.c", "-ldl"], check=True)
    return folder


@pytest.fixture
def run(natives: Path) -> Callable[..., dict[str, Any]]:
    def run(script: Path, *arguments: Any, **more: str) -> dict[str, Any]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(natives), "EXPERIMENTS_WORK": str(natives)}
        environment.update(EXPERIMENTS_SLOT=str(2 << 20), EXPERIMENTS_COMMON=str(2 << 20))
        environment.update(PYTHONPATH=str(EXPERIMENTS), **more)
        command = [sys.executable, str(script), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run


@pytest.fixture
def record(natives: Path, run: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[[str], list[Path]]:
    def record(kind: str) -> list[Path]:
        folders = [tmp_path / str(i) for i in (1, 2)]
        for folder, base in zip(folders, BASES, strict=True):
            (folder / "code").mkdir(parents=True)
            given = {"RECORDER_OUT": str(folder / "lines.jsonl"), "RECORDER_CODE": str(folder / "code")}
            run(HERE / "stub_record.py", hex(base), folder, kind, LD_PRELOAD=str(natives / "recorder.so"), **given)
        return folders

    return record


def lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("lines.jsonl.*")
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_compiler
@pytest.mark.parametrize(("kind", "in_memory"), [("plain", 2), ("table", 2)])
def test_a_call_is_replayed_at_a_third_window(
    record: Callable[[str], list[Path]], run: Callable[..., dict[str, Any]], kind: str, in_memory: int
) -> None:
    result = run(EXPERIMENTS / "replay.py", "same", *record(kind))
    assert "replay_error" not in result, result
    assert (result["launches"], result["unknown"]) == (1, [])
    assert result["params"]["addresses"] == (2 if kind == "plain" else 1)
    assert result["memory_before"] == {
        "words": 1088,
        "addresses": in_memory,
        "differ_otherwise": 0,
        "first_otherwise": [],
    }
    assert (result["outputs_equal"], result["bytes_that_differ"]) == (True, 0)
    assert result["output_bytes_written"] > 3000  # of 4000; single bytes of results may be the poison's
    assert result["addresses_not_in_window"] == []


@needs_compiler
def test_the_recorder_sees_modules_parameters_and_the_kernels_of_graphs(record: Callable[[str], list[Path]]) -> None:
    folder = record("graph")[0]
    counts = json.loads((folder / "case.json").read_text())["counts"]
    modules, launches, captured, graph_launches, graph_kernels = counts[:5]
    assert (modules, launches, captured, graph_launches, graph_kernels) == (1, 1, 1, 3, 3)
    seen = lines(folder)
    (node,) = [line for line in seen if line["what"] == "node"]
    launch = next(line for line in seen if line["what"] == "launch" and not line["captured"])
    assert node["params"] == launch["params"]
    assert launch["name"] == "doubled"
    assert launch["layout"] == [[0, 8], [8, 8], [16, 4]]
    x, _, n = struct.unpack("<QQI", bytes.fromhex(launch["params"]))
    assert (x, n) == (BASES[0] + (2 << 20), 1000)
    (code,) = (folder / "code").iterdir()
    assert code.read_bytes() == b"text of a module\0"
    assert code.name == f"{launch['hash']}.ptx"


@needs_compiler
def test_the_window_gives_freed_memory_again_and_the_same_layout_to_the_same_calls(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import ctypes, json
from common import library
window, base = library("window"), 0x400000000000
window.window_alloc.restype, window.window_used.restype = ctypes.c_void_p, ctypes.c_uint64
u64, size = ctypes.c_uint64, ctypes.c_size_t
assert window.window_open(u64(base), u64(1 << 30), u64(1 << 22), 0xA5) == 0
def alloc(n): return (window.window_alloc(size(n), 0, None) or 0) - base
def free(at, n): window.window_free(ctypes.c_void_p(base + at), size(n), 0, None)
a, b, c = alloc(1000), alloc(512), alloc(1)
free(a, 1000); free(b, 512)
again = [alloc(1500), alloc(1)]
window.window_seek(u64(1 << 21))
free(c, 1)
print(json.dumps({"first": [a, b, c], "again": again, "slot": alloc(1), "full": alloc(1 << 22) == -base}))
"""
    )
    found = run(script)
    assert found == {"first": [0, 1024, 1536], "again": [0, 2048], "slot": 1 << 21, "full": True}


@needs_compiler
def test_a_confined_process_opens_what_it_may_and_has_the_calls_it_may(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "inside").write_text("x")
    script = tmp_path / "script.py"
    script.write_text(
        """
import ctypes, json, os, socket, sys
from confined_child import attempt
from common import library
native, inside, outside = library("confine"), sys.argv[1].encode(), sys.argv[2]
if native.confine_abi() < 0:
    print(json.dumps({"kernel": "has no Landlock"})); sys.exit()
paths, none = (ctypes.c_char_p * 2)(inside, None), (ctypes.c_char_p * 1)(None)
numbers = [n for n in range(512) if n != 41]  # socket
codes = [native.confine_paths(paths, none), native.confine_calls((ctypes.c_int * 511)(*numbers), 511)]
tries = [lambda: open(inside).close(), lambda: open(outside).close(), lambda: socket.socket().close()]
print(json.dumps({"codes": codes, "tries": [attempt(t).split(":")[0] for t in tries]}))
"""
    )
    found = run(script, tmp_path / "inside", script)
    if "kernel" in found:
        pytest.skip("the kernel has no Landlock")
    assert found == {"codes": [0, 0], "tries": ["allowed", "refused", "refused"]}
