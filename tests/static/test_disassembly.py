"""Many kernels in one run of the disassembler, each listed as if alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerntune.compiling.binary.elf import text_sections
from kerntune.errors import BackendError, StoreError
from kerntune.static import disassembly
from kerntune.static.disassembly import Disassembler, Jump, code_lines, find_tool, inside, loops

NAMES = ["add", "softmax", "histogram", "matmul"]


@pytest.fixture
def texts(compiled: Callable[..., Any]) -> list[bytes]:
    return [text_sections(compiled(name, "cuda:90").binary.data)[0][1] for name in NAMES]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the tool was run on, one entry a run."""
    seen: list[bytes] = []
    real = disassembly._listing

    def counted(code: bytes, arch: str) -> str:
        seen.append(code)
        return real(code, arch)

    monkeypatch.setattr(disassembly, "_listing", counted)
    return seen


@pytest.mark.slow
def test_a_batch_is_one_run_and_says_what_single_runs_say(texts: list[bytes], runs: list[bytes]) -> None:
    together = Disassembler().listings(texts, "sm_90a")
    assert len(runs) == 1
    assert together == [Disassembler().listings([text], "sm_90a")[0] for text in texts]
    assert len({tuple(sorted(listing.opcodes.items())) for listing in together}) == len(NAMES)
    assert [sum(listing.opcodes.values()) * 16 for listing in together] == [len(text) for text in texts]


@pytest.mark.slow
def test_known_code_is_not_disassembled_again(texts: list[bytes], runs: list[bytes]) -> None:
    tool = Disassembler()
    first = tool.listings(texts[:2], "sm_90a")
    again = tool.listings([texts[1], texts[0], texts[2], texts[1]], "sm_90a")
    assert again[:2] == first[::-1]
    assert again[3] == again[0]
    assert runs == [texts[0] + texts[1], texts[2]]


def test_the_memory_is_bounded_and_forgets_the_oldest(texts: list[bytes], runs: list[bytes]) -> None:
    tool = Disassembler(cache_size=2)
    tool.listings(texts[:3], "sm_90a")
    tool.listings(texts[1:3], "sm_90a")
    assert len(runs) == 1
    tool.listings(texts[:1], "sm_90a")
    assert runs[1:] == [texts[0]]


def test_nothing_to_list() -> None:
    assert Disassembler().listings([], "sm_90a") == []


def test_an_unknown_architecture_is_an_error(texts: list[bytes]) -> None:
    with pytest.raises(BackendError, match="can't disassemble sm_31"):
        Disassembler().listings(texts[:1], "sm_31")


FROM_CUDA_12_8 = """#!/bin/sh
if [ "$3" != SM120a ]; then
    echo "nvdisasm fatal   : Value '$3' is not defined for option 'binary'" >&2
    exit 1
fi
cat <<END
	.headerflags	@"EF_CUDA_64BIT_ADDRESS EF_CUDA_ACCELERATORS EF_CUDA_SM120 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM120)"
{lines}
END
"""
"""What Triton 3.6 has: it doesn't know sm_121, and tells of sm_120 how instructions are scheduled."""

SCHEDULED = [
    "STL [R1], R4                           &rd=0x0          ?trans1",
    "LDL R4, [R1+0x4]                       &wr=0x1          ?trans4",
    *["IADD3 R4, PT, PT, R4, 0x1, RZ          &req={1}         ?WAIT5_END_GROUP"] * 8,
    "@P0 BRA 0x10                                            ?trans5",
    "EXIT                                                    ?trans5",
]


@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a"])
def test_what_triton_3_6_prints_of_new_gpus(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvdisasm"
    lines = [f"        /*{16 * i:04x}*/                   {line};" for i, line in enumerate(SCHEDULED)]
    tool.write_text(FROM_CUDA_12_8.replace("{lines}", "\n".join(lines)))
    tool.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tool))
    code = bytes(16 * len(SCHEDULED))
    (listing,) = Disassembler().listings([code], arch)
    assert listing.stack == {("STL", 0): 1, ("LDL", 4): 1}
    assert listing.repeated_stack == {("LDL", 4): 1}, "the jump is read"
    assert code_lines(code, arch)[-2:] == ["@P0 BRA 0x10 ;", "EXIT ;"]
    with pytest.raises(BackendError, match="can't disassemble sm_110a"):
        Disassembler().listings([code], "sm_110a")


def test_bytes_that_are_no_code_are_an_error() -> None:
    with pytest.raises(StoreError, match="not a multiple of 16"):
        Disassembler().listings([b"12345"], "sm_90a")
    with pytest.raises((StoreError, BackendError)):
        Disassembler().listings([b"\xff" * 160], "sm_90a")


@pytest.mark.parametrize("name", ["nvdisasm", "cuobjdump", "ptxas"])
def test_tools_come_with_triton(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"TRITON_{name.upper()}_PATH", raising=False)
    assert find_tool(name).is_file()
    assert find_tool(name).name == name


def test_a_given_path_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_NVDISASM_PATH", sys.executable)
    assert find_tool("nvdisasm") == Path(sys.executable)


def test_a_given_path_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(tmp_path / "none"))
    with pytest.raises(BackendError, match="none, which is no file: correct it or unset it"):
        find_tool("ptxas-blackwell")


def test_a_missing_tool_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRITON_NVDISASM_PATH", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="set TRITON_NVDISASM_PATH to the one of a CUDA toolkit"):
        find_tool("nvdisasm")


# which instructions are repeated


STEP = 16


def jumps(*found: tuple[int, int | None, bool]) -> list[Jump]:
    """By instruction's number: its own, that of the target, and whether the next may follow."""
    return [Jump(at * STEP, None if target is None else target * STEP, falls) for at, target, falls in found]


def numbers(found: list[Jump], count: int) -> list[tuple[int, int]]:
    return [(a // STEP, b // STEP) for a, b in loops(found, 0, count * STEP, STEP)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], [], id="straight"),
        pytest.param([(40, 20, True), (60, None, False)], [(20, 41)], id="a loop"),
        pytest.param([(5, 50, True), (49, None, False)], [], id="over an if"),
        pytest.param([(60, 60, False)], [], id="the end of Triton's kernels: a branch to itself"),
        pytest.param([(30, 28, True), (60, None, False)], [], id="a barrier that is waited for"),
        pytest.param([(40, 20, True), (60, 5, True)], [(5, 20), (20, 41), (41, 61)], id="a loop in a loop"),
    ],
)
def test_ranges(found: list[tuple[int, int | None, bool]], expected: list[tuple[int, int]]) -> None:
    assert numbers(jumps(*found), 61) == expected


def test_a_wait_out_of_line_makes_no_loop_of_what_lies_between() -> None:
    """In the loop (10 to 30) a barrier is tested; if it isn't complete, code at the end (70) polls it."""
    found = jumps((12, 70, True), (30, 10, True), (60, None, False), (72, 70, True), (73, 13, False))
    repeated = numbers(found, 74)
    assert inside(20 * STEP, [(a * STEP, b * STEP) for a, b in repeated])
    assert inside(71 * STEP, [(a * STEP, b * STEP) for a, b in repeated])
    assert not inside(40 * STEP, [(a * STEP, b * STEP) for a, b in repeated])


def test_other_kernels_of_the_listing_are_left_alone() -> None:
    assert loops(jumps((140, 120, True), (160, None, False)), 100 * STEP, 161 * STEP, STEP) == [
        (120 * STEP, 141 * STEP)
    ]


@pytest.mark.parametrize(("address", "is_in"), [(0, False), (16, True), (31, True), (32, False), (64, True)])
def test_inside(address: int, is_in: bool) -> None:
    assert inside(address, [(16, 32), (48, 80)]) is is_in
