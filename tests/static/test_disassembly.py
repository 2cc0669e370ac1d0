"""Many kernels in one run of the disassembler, each listed as if alone."""

from __future__ import annotations

import subprocess
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


@pytest.mark.slow
def test_the_memory_is_bounded_and_forgets_the_oldest(texts: list[bytes], runs: list[bytes]) -> None:
    tool = Disassembler(cache_size=2)
    tool.listings(texts[:3], "sm_90a")
    tool.listings(texts[1:3], "sm_90a")
    assert len(runs) == 1
    tool.listings(texts[:1], "sm_90a")
    assert runs[1:] == [texts[0]]
    tool.listings(texts[2:3], "sm_90a")  # which is used, and so the newest
    tool.listings(texts[1:2], "sm_90a")
    tool.listings(texts[2:3], "sm_90a")
    assert runs[2:] == [texts[1]]


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


def listed(lines: list[str], first: int = 0) -> str:
    return "\n".join(f"        /*{first + STEP * i:04x}*/       {line} ;" for i, line in enumerate(lines))


LOOPED = ["STL.64 [R1+0x8], R2", "LDL R3, [R1]", *["FADD R4, R4, R3"] * 9, "{jump}", "LDL.64 R2, [R1+0x8]", "{end}"]


@pytest.mark.parametrize(
    ("jump", "end", "repeated"),
    [
        ("@P0 BRA 0x10", "EXIT", {("LDL", 0): 1}),
        ("@!P1 BRA 0x0", "EXIT", {("STL.64", 8): 1, ("LDL", 0): 1}),
        ("BRA.U UP0, 0x10", "EXIT", {("LDL", 0): 1}),
        ("JMP 0x10", "EXIT", {("LDL", 0): 1}),
        ("@P0 BRA 0xc0", "BRA 0x0", {("STL.64", 8): 1, ("LDL", 0): 1, ("LDL.64", 8): 1}),
        ("EXIT", "BRA 0xd0", {("STL.64", 8): 1, ("LDL", 0): 1, ("LDL.64", 8): 1}),  # no loop: all of it
        ("@P0 EXIT", "BRA 0x10", {("LDL", 0): 1, ("LDL.64", 8): 1}),
        ("RET.REL.NODEC R20 0x0", "BRA 0x10", {("STL.64", 8): 1, ("LDL", 0): 1, ("LDL.64", 8): 1}),
    ],
)
def test_which_accesses_to_the_stack_are_in_loops(jump: str, end: str, repeated: dict[tuple[str, int], int]) -> None:
    lines = [line.format(jump=jump, end=end) for line in LOOPED]
    (found,) = disassembly._split(listed(lines), [STEP * len(lines)])
    assert found.stack == {("STL.64", 8): 1, ("LDL", 0): 1, ("LDL.64", 8): 1}
    assert found.repeated_stack == repeated
    assert not found.stack_address_taken


@pytest.mark.parametrize(
    ("line", "taken"),
    [("IADD3 R2, R1, 0x8, RZ", True), ("IADD3 R1, R1, -0x8, RZ", False), ("MOV R1, c[0x0][0x28]", False),
     ("STL [R1], R1", False), ("FADD R11, R10, R1", True), ("FADD R2, R10, R11", False)],
)  # fmt: skip
def test_the_stack_s_address_may_be_taken(line: str, taken: bool) -> None:
    (found,) = disassembly._split(listed([line, "EXIT"]), [2 * STEP])
    assert found.stack_address_taken is taken
    assert found.opcodes.total() == 2  # type: ignore[attr-defined]


def test_pieces_are_told_apart_by_address() -> None:
    lines = ["LDG.E R1, [R2]", "EXIT", "STL [R1+0x4], R2", *["FADD R2, R2, R3"] * 9, "@P0 BRA 0x20", "EXIT", "NOP"]
    text = f"\t.headerflags\n{listed(lines)}\nnothing"
    first, second, third = disassembly._split(text, [2 * STEP, 12 * STEP, STEP])
    assert first.opcodes == {"LDG.E": 1, "EXIT": 1}
    assert second.opcodes == {"STL": 1, "FADD": 9, "BRA": 1, "EXIT": 1}
    assert (third.opcodes, third.stack) == ({"NOP": 1}, {})
    assert (second.stack, second.repeated_stack) == ({("STL", 4): 1},) * 2


@pytest.mark.parametrize("lengths", [[4 * STEP], [STEP, 3 * STEP]])
def test_what_is_no_instruction_is_an_error(lengths: list[int]) -> None:
    text = listed(["EXIT", "??? 0x1234", "NOP", "NOP"])
    count = lengths[-1] // STEP
    with pytest.raises(StoreError, match=f"of {count} instructions only {count - 1} are machine code"):
        disassembly._split(text, lengths)


@pytest.mark.parametrize(("body", "is_loop"), [(8, False), (9, True)])
def test_a_loop_of_up_to_eight_instructions_waits(body: int, is_loop: bool) -> None:
    assert numbers(jumps((body, 1, True)), body + 3) == ([(1, body + 1)] if is_loop else [])


def test_a_block_that_jumps_to_itself_is_a_loop_and_one_that_falls_through_is_none() -> None:
    assert numbers(jumps((20, 5, True), (40, 21, False)), 41) == [(5, 21), (21, 41)]
    assert numbers(jumps((20, 30, True), (40, None, True)), 60) == []
    assert numbers(jumps((20, 100, True), (40, -3, True)), 60) == [], "jumps out of the code"


@pytest.mark.parametrize(
    ("arch", "older"), [("sm_103a", "SM100a"), ("sm_103f", "SM100f"), ("sm_121", "SM120"), ("sm_121a", "SM120a")]
)
def test_an_architecture_that_is_not_known_is_read_by_its_family(
    arch: str, older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(command: list[str], **words: Any) -> Any:
        asked.append(command[command.index("--binary") + 1])
        said = "Value is not defined for option 'binary'" if len(asked) == 1 else ""
        return subprocess.CompletedProcess(command, len(said) and 1, "the listing", said)

    monkeypatch.setattr(disassembly, "find_tool", lambda name: Path("nvdisasm"))
    monkeypatch.setattr(disassembly.subprocess, "run", run)
    assert disassembly._listing(b"", arch) == "the listing"
    assert asked == [arch.replace("sm_", "SM"), older]


@pytest.mark.parametrize(
    ("code", "output", "errors", "told"),
    [(1, "", "one\nnvdisasm fatal: bad code\n", "nvdisasm fatal: bad code"), (2, "said\n", "", "said"),
     (3, "", "", "exit 3"), (1, "", "Value is not defined for option 'binary'", "is not defined for option")],
)  # fmt: skip
def test_what_the_tool_says_of_an_error_is_told(
    code: int, output: str, errors: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def run(command: list[str], **words: Any) -> Any:
        runs.append(1)
        return subprocess.CompletedProcess(command, code, output, errors)

    monkeypatch.setattr(disassembly, "find_tool", lambda name: Path("nvdisasm"))
    monkeypatch.setattr(disassembly.subprocess, "run", run)
    with pytest.raises(BackendError, match=f"^nvdisasm can't disassemble sm_90a: .*{told}"):
        disassembly._listing(b"", "sm_90a")
    assert len(runs) == 1


@pytest.mark.parametrize("error", [OSError("no such file"), subprocess.TimeoutExpired("nvdisasm", 120)])
def test_a_tool_that_does_not_run_is_an_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **words: Any) -> Any:
        assert words["timeout"] == 120
        raise error

    monkeypatch.setattr(disassembly, "find_tool", lambda name: Path("nvdisasm"))
    monkeypatch.setattr(disassembly.subprocess, "run", run)
    with pytest.raises(BackendError, match=r"^nvdisasm could not be run: "):
        disassembly._listing(b"", "sm_90a")


@pytest.mark.parametrize("arch", ["sm_90a --help", "sm_9", "SM90", "sm_1000", "sm_90ab", "", "x" * 200])
def test_only_an_architecture_s_name_becomes_a_word_of_a_command(arch: str) -> None:
    with pytest.raises(BackendError, match=f"^nvdisasm knows no architecture '{arch[:80]}'$"):
        disassembly._listing(b"", arch)


class Stored:
    """A store that has the listings of some codes."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def complete(self, codes: Any, make: Any) -> Any:
        found = make([code for code in codes if code.instructions == 2])
        self.made.append(len(found))
        return {code: found.get(code, disassembly.Listing({"STORED": 1}, {}, False, {})) for code in codes}


def test_a_store_is_asked_for_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "_listing", lambda code, arch: listed(["EXIT"] * (len(code) // STEP)))
    tool, store = Disassembler(), Stored()
    one, two = bytes(STEP), bytes(2 * STEP)
    with tool.remembering(store):
        stored, made = tool.listings([one, two], "sm_90a")
        assert (stored.opcodes, made.opcodes) == ({"STORED": 1}, {"EXIT": 2})
        assert tool.listings([two, one], "sm_90a") == [made, stored]
    assert store.made == [1, 0]
    (other,) = tool.listings([one], "sm_80")
    assert other.opcodes == {"EXIT": 1}, "of another architecture, after the store is gone"


@pytest.mark.parametrize(
    ("opcode", "operands", "predicated", "jump"),
    [
        ("BRA", "0x40", False, (0x40, False)),
        ("BRA", "UP0, 0x40", False, (0x40, True)),
        ("BRA", "0x40", True, (0x40, True)),
        ("JMP", "0x50", False, (0x50, False)),
        ("EXIT", "", False, (None, False)),
        ("RET.REL.NODEC", "R2 0x0", True, (None, True)),
        ("BRX", "R2 -0x40", False, None),
        ("BRA", "R2", False, None),
        ("IADD3", "R1, R2, 0x40", False, None),
    ],
)
def test_which_instructions_jump_and_which_fall_through(
    opcode: str, operands: str, predicated: bool, jump: tuple[int | None, bool] | None
) -> None:
    piece = disassembly._ListingBuilder(0, 32)
    piece.add(16, opcode, operands, predicated=predicated)
    assert piece.jumps == ([] if jump is None else [disassembly.Jump(16, *jump)])
