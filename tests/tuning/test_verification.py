"""What a candidate writes, held against what a reference does: kernels in Python on host memory."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from host_gpu import HostGpu, Kernel
from hypothesis import given
from hypothesis import strategies as st
from samples import H100, bytes_of, launch, recording, sha
from samples import binary as binary_of

from kerntune.base.recording import Param, Recording, Storage, Stored, View, Zeros
from kerntune.errors import ReplayError
from kerntune.gpu import memory as memory_room
from kerntune.gpu.memory import Memory, encode_floats, make_source
from kerntune.gpu.program import Loader, Program
from kerntune.tuning import verification
from kerntune.tuning.consensus import elected
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.verification import (
    POISONS,
    TOLERANCE,
    Verification,
    Verifier,
    Verify,
    WrittenAmount,
    arguments_at,
    explanations,
    names_of,
    parts_of,
    run_poisoned,
    storage_name,
    tolerance,
    verify_mode,
)

CLEAR = 2
MOST_VOTERS = 8
ATOMIC_FACTOR = 10.0


COUNT = 16
NUMBERS = np.arange(1, COUNT + 1).astype("f4")


def plan(code: str, reads: tuple[int, ...] = (0,), writes: tuple[int, ...] = (1,), dtype: str = "float32") -> Recording:
    size = len(encode_floats(NUMBERS, dtype))
    return recording(
        launches=(
            launch(
                params=(Param("x", f"*{dtype}", view=0), Param("y", f"*{dtype}", view=1)), reads=reads, writes=writes
            ),
        ),
        binaries=(binary_of(code),),
        storages=(
            Storage(size, dtype, Stored("in"), read=True),
            Storage(size, dtype, Zeros(), written=True),
        ),
        views=(View(0, dtype, (COUNT,), (1,)), View(1, dtype, (COUNT,), (1,))),
    )


def changed(plan: Recording, binaries: Any = None, **changes: Any) -> Recording:
    """The plan, whose one launch (and binary, by ``binaries``) is another."""
    (one,), (binary,) = plan.launches, plan.binaries
    return msgspec.structs.replace(
        plan,
        launches=(msgspec.structs.replace(one, **changes),),
        binaries=(msgspec.structs.replace(binary, **(binaries or {})),),
    )


def programs(*kernels: Kernel, host_only: bool = False, **words: Any) -> list[Program]:
    """On one memory; the second storage starts as zeros."""
    codes = [f"code {i}" for i in range(len(kernels))]
    gpu: Any = HostGpu(H100, kernels=dict(zip(codes, kernels, strict=True)))
    plans = [plan(code, **words) for code in codes]
    data = NUMBERS.tobytes()
    sources = [make_source(gpu, s, data if isinstance(s.content, Stored) else None) for s in plans[0].storages]
    if host_only:
        gpu.memory_bytes = sum(b.nbytes for b in gpu.buffers)
    memory = Memory(gpu, plans[0].storages, sources, frugal=host_only)
    if not host_only:
        memory.ensure(2)  # what is compared is the first copy alone
    artifacts = {sha(bytes_of(f"cubin {code}")): bytes_of(f"cubin {code}") for code in codes}
    return [Program(Loader(gpu), a, memory, artifacts) for a in plans]


def double(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[:] = (np.frombuffer(x, "f4") * 2).tobytes()


def half_done(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[: len(y) // 2] = (np.frombuffer(x, "f4") * 2).tobytes()[: len(y) // 2]


def accumulate(pointers: list[bytearray]) -> None:
    x, y = pointers
    y[:] = (np.frombuffer(x, "f4") + np.frombuffer(y, "f4")).tobytes()


def writes(pattern: int) -> Kernel:
    """A kernel that rightly writes what looks like poison in its second half."""

    def kernel(pointers: list[bytearray]) -> None:
        double(pointers)
        pointers[1][len(pointers[1]) // 2 :] = bytes([pattern]) * (len(pointers[1]) // 2)

    return kernel


def disagreement(reference: Kernel, candidate: Kernel, **words: Any) -> str | None:
    first, second = programs(reference, candidate, **words)
    return Verifier(first).disagreement(second)


def test_equal_outputs_agree() -> None:
    assert disagreement(double, double) is None


def test_what_is_not_written_is_found() -> None:
    text = disagreement(double, half_done)
    assert text is not None
    assert text.startswith("it wrote other values than the first candidate into y (8 of 16 elements, first at 8")
    assert text.endswith("dtype float32)")


def test_what_neither_writes_is_no_disagreement() -> None:
    assert disagreement(half_done, half_done) is None


@pytest.mark.parametrize("pattern", POISONS)
def test_a_missing_element_that_looks_like_poison_is_found(pattern: int) -> None:
    """With one pattern it would pass for written."""
    assert disagreement(writes(pattern), half_done) is not None


@pytest.mark.parametrize("pattern", POISONS)
def test_bytes_that_are_rightly_poison_agree(pattern: int) -> None:
    assert disagreement(writes(pattern), writes(pattern)) is None


def test_what_is_read_first_is_restored_and_not_poisoned() -> None:
    assert disagreement(accumulate, accumulate, reads=(0, 1)) is None
    text = disagreement(accumulate, double, reads=(0, 1))
    assert text is not None
    assert "first at 0: 2, not 1" in text


def test_one_reference_serves_several_candidates() -> None:
    reference, *others = programs(double, half_done, double, accumulate)
    verifier = Verifier(reference)
    found = [verifier.disagreement(program) is None for program in others]
    assert found == [False, True, False]


@pytest.mark.parametrize("host_only", [False, True])
def test_memory_is_as_before(host_only: bool) -> None:
    first, second = programs(accumulate, accumulate, reads=(0, 1), host_only=host_only)
    Verifier(first).disagreement(second)
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)
    assert first.gpu.read(first.memory.buffer(0, 0)) == NUMBERS.tobytes()


def test_without_room_on_the_device_the_reference_is_kept_on_the_host() -> None:
    first, second = programs(double, half_done, host_only=True)
    assert Verifier(first).disagreement(second) is not None
    gpu: Any = first.gpu
    assert gpu.host
    assert sum(b.nbytes for b in gpu.buffers) <= gpu.memory_bytes


def test_of_what_is_too_large_pieces_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the first 8 and the last 8 bytes of 64."""
    monkeypatch.setattr(memory_room, "copies_allowed", lambda *args: 0)
    for name, value in (("PIECES", 2), ("LEAST_KEPT", 16), ("PIECE_ALIGN", 4)):
        monkeypatch.setattr(memory_room, name, value)

    def off_at(element: int) -> Kernel:
        def kernel(pointers: list[bytearray]) -> None:
            double(pointers)
            pointers[1][4 * element : 4 * element + 4] = bytes([9]) * 4

        return kernel

    assert disagreement(double, off_at(1)) is not None
    assert "from byte 56 on" in str(disagreement(double, off_at(15)))
    assert disagreement(double, off_at(8)) is None


@given(st.integers(0, 1 << 40), st.integers(1 << 15, 1 << 34))
def test_pieces_lie_within_are_apart_and_reach_both_ends(nbytes: int, limit: int) -> None:
    found = memory_room.pieces(nbytes, limit)
    assert sum(size for _, size in found) <= limit + 512
    assert all(0 <= start < start + size <= nbytes for start, size in found)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(found))
    if nbytes:
        assert found[0][0] == 0
        assert sum(found[-1]) == nbytes


def test_a_candidate_that_writes_what_the_reference_only_reads_is_found() -> None:
    """Another config may: what it wrote must not become the next one's input, nor the user's tensor."""

    def greedy(pointers: list[bytearray]) -> None:
        double(pointers)
        pointers[0][:] = bytes(len(pointers[0]))

    first, _ = programs(double, greedy)
    wide = changed(plan("code 1"), writes=(0, 1))
    artifacts = {sha(bytes_of("cubin code 1")): bytes_of("cubin code 1")}
    shared = first.memory.sources[0].pristine
    second = Program(Loader(first.gpu), wide, first.memory, artifacts)
    text = Verifier(first).disagreement(second)
    assert text is not None
    assert "into x (" in text
    assert first.gpu.read(shared) == NUMBERS.tobytes()


@given(st.floats(0.1, 0.9), st.booleans())
def test_sums_in_another_order_agree(share: float, atomics: bool) -> None:
    allowed = TOLERANCE["float32"] * (ATOMIC_FACTOR if atomics else 1.0)

    def nearly(pointers: list[bytearray]) -> None:
        double(pointers)
        numbers = np.frombuffer(pointers[1], "f4").copy()
        numbers[-1] *= 1 + share * allowed
        pointers[1][:] = numbers.tobytes()

    first, second = programs(double, nearly)
    second.recording = changed(second.recording, float_atomics=atomics)
    assert Verifier(first).disagreement(second) is None


def test_programs_of_other_binaries_are_refused_by_name() -> None:
    """The loader of these tests is the real one: an unreplayable binary has to say why."""
    (made,) = programs(double)
    a = msgspec.structs.replace(plan("code 0"), binaries=(binary_of(unreplayable="it prints"),))
    with pytest.raises(ReplayError, match="add_kernel: it prints"):
        Program(Loader(made.gpu), a, made.memory, {})


@pytest.mark.parametrize(
    ("given_", "variable", "mode"),
    [
        (None, None, Verify.WINNER),
        (None, "finalists", Verify.FINALISTS),
        ("all", "finalists", Verify.ALL),
        (Verify.WINNER, "all", Verify.WINNER),
    ],
)
def test_an_argument_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, given_: str | None, variable: str | None, mode: Verify
) -> None:
    monkeypatch.delenv("KERNTUNE_VERIFY", raising=False)
    if variable:
        monkeypatch.setenv("KERNTUNE_VERIFY", variable)
    assert TuneOptions.now(verify=given_).verification.mode is mode


# what can't be compared


def varying(begin: int = 1) -> Kernel:
    """Right in the first half; the second half holds the number of the run."""
    runs = itertools.count(begin)

    def kernel(pointers: list[bytearray]) -> None:
        double(pointers)
        half = len(pointers[1]) // 2
        pointers[1][half:] = np.full(half // 4, next(runs), "f4").tobytes()

    return kernel


def test_what_a_reference_writes_differently_each_time_is_left_out_and_said() -> None:
    for settled, other in ((True, half_done), (False, varying(100))):
        first, second = programs(varying(), other)
        verifier = Verifier(first, settled=settled)
        assert verifier.disagreement(second) is None
        assert verifier.left_out == {1: "y is not compared: one config writes other values there from run to run"}


def test_memory_is_as_before_when_something_was_left_out_whatever_other_copies_there_are() -> None:
    """What is read and written is run with one poison, so no further run restores it."""
    first, second = programs(varying(), half_done, reads=(0, 1))
    first.memory.ensure(3)
    verifier = Verifier(first, settled=True)
    assert verifier.disagreement(second) is None
    assert list(verifier.left_out) == [1]
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)


def test_what_a_reference_writes_differently_now_and_then_is_left_out() -> None:
    """A race may go the same way twice: here every second run writes what the one before it wrote."""
    runs = itertools.count()

    def seldom(pointers: list[bytearray]) -> None:
        double(pointers)
        half = len(pointers[1]) // 2
        pointers[1][half:] = np.full(half // 4, next(runs) // 2, "f4").tobytes()

    first, second = programs(seldom, half_done)
    verifier = Verifier(first, settled=True)
    assert verifier.disagreement(second) is None
    assert list(verifier.left_out) == [1]


def test_a_candidate_that_varies_beside_a_reference_that_does_not_is_wrong() -> None:
    first, second = programs(double, varying())
    verifier = Verifier(first)
    assert verifier.disagreement(second) is not None
    assert verifier.left_out == {}


def test_a_candidate_that_varies_alone_is_no_reference() -> None:
    first, second = programs(varying(), double)
    verifier = Verifier(first)
    assert verifier.disagreement(second) is not None
    assert verifier.left_out == {}
    assert election(varying(), double, double, double) == (1, 2, True)


def test_a_reference_that_agrees_runs_once_for_each_poison() -> None:
    runs: list[int] = []

    def counted(pointers: list[bytearray]) -> None:
        runs.append(1)
        double(pointers)

    for reads, most in (((0,), len(POISONS)), ((0, 1), 1)):
        runs.clear()
        first, *others = programs(counted, double, double, reads=reads)
        verifier = Verifier(first)
        assert [verifier.disagreement(program) for program in others] == [None, None]
        assert len(runs) == most, "what is read before is not poisoned"


def test_a_reference_that_a_candidate_disagrees_with_runs_twice_more() -> None:
    runs: list[int] = []

    def counted(pointers: list[bytearray]) -> None:
        runs.append(1)
        double(pointers)

    first, second = programs(counted, half_done)
    assert Verifier(first).disagreement(second) is not None
    assert len(runs) == 3


def test_what_a_race_has_left_is_no_first_content() -> None:
    first, second = programs(accumulate, accumulate, reads=(0, 1))
    first.enqueue()
    verifier = Verifier(first)
    assert verifier.disagreement(second) is None
    assert verifier.left_out == {}


def test_what_the_reference_writes_is_no_input_of_a_candidate() -> None:
    """Here it writes over what the candidate only reads."""

    def greedy(pointers: list[bytearray]) -> None:
        double(pointers)
        pointers[0][:] = bytes(len(pointers[0]))

    first, second = programs(greedy, double, writes=(0, 1))
    second.written = [1]
    text = Verifier(first, ignored=lambda name: name == "x").disagreement(second)
    assert text is None


def test_a_workspace_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although no further poison is run after the last one."""
    monkeypatch.setattr(verification, "POISONS", POISONS[:1])
    first, second = programs(sums(1), sums(2))
    verifier = Verifier(in_blocks(first, 1))
    assert verifier.disagreement(in_blocks(second, 2)) is None
    assert list(verifier.left_out) == [1]
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)


def test_ignored_arguments_are_not_compared() -> None:
    first, second = programs(double, half_done)
    assert Verifier(first, ignored=lambda name: name == "y").disagreement(second) is None
    assert Verifier(first, ignored=lambda name: name == "x").disagreement(second) is not None


def with_params(program: Program, *params: Param) -> Program:
    """The program, whose one launch takes other parameters."""
    program.recording = changed(program.recording, params=params)
    return program


def test_memory_is_ignored_only_if_all_arguments_that_point_to_it_are() -> None:
    x, y, z = Param("x", "*f", view=0), Param("y", "*f", view=1), Param("z", "*f", view=1)
    both = programs(*(lambda pointers, k=kernel: k(pointers[:2]) for kernel in (double, half_done)))
    first, second = (with_params(program, x, y, z) for program in both)
    for names, agrees in (({"y"}, False), ({"z"}, False), ({"y", "z"}, True), (set(), False)):
        verifier = Verifier(first, ignored=names.__contains__)
        assert (verifier.disagreement(second) is None) is agrees, names


def test_memory_that_no_argument_names_is_never_ignored() -> None:
    """What a kernel reaches by addresses that it loads, say."""
    (program,) = programs(double)
    verifier = Verifier(program, ignored=lambda name: True)
    with_params(program, program.recording.launches[0].params[0])
    assert [verifier._ignores(program, i) for i in (0, 1)] == [True, False]


def sums(block: int) -> Kernel:
    """A sum of each block, one after the other: what is behind them stays."""

    def kernel(pointers: list[bytearray]) -> None:
        found = np.frombuffer(pointers[0], "f4").reshape(-1, block).sum(1).astype("f4").tobytes()
        pointers[1][: len(found)] = found

    return kernel


def in_blocks(program: Program, block: int, **constants: str) -> Program:
    """The program, as launched with one block for ``block`` elements."""
    constexprs, grid = {"BLOCK": str(block), **constants}, (COUNT // block, 1, 1)
    program.recording = changed(program.recording, {"constexprs": constexprs}, grid=grid)
    return program


@pytest.mark.parametrize(("mine", "other"), [(1, 2), (4, 2), (2, 8)])
def test_partial_sums_are_no_wrong_values(mine: int, other: int) -> None:
    first, second = programs(sums(mine), sums(other))
    verifier = Verifier(in_blocks(first, mine))
    assert verifier.disagreement(in_blocks(second, other)) is None
    assert verifier.left_out[1].startswith("y is not compared: how much is written there follows how a config splits")
    assert f"writes {COUNT // mine}, " in verifier.left_out[1]
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)


def forgetful(done: int, off: float = 0.0) -> Kernel:
    """The first ``done`` elements, off by so much."""

    def kernel(pointers: list[bytearray]) -> None:
        pointers[1][: 4 * done] = (np.frombuffer(pointers[0], "f4")[:done] * 2 + np.float32(off)).tobytes()

    return kernel


def test_how_much_partial_sums_write_is_counted_however_small_they_are() -> None:
    """A change of memory, which is what counts as written, has no tolerance: sums of small numbers are within one."""
    small = (np.arange(1, COUNT + 1) * 1e-5).astype("f4")

    def tiny(block: int) -> Kernel:
        def kernel(pointers: list[bytearray]) -> None:
            found = small.reshape(-1, block).sum(1).astype("f4").tobytes()
            pointers[1][: len(found)] = found

        return kernel

    first, second = programs(tiny(1), tiny(2), reads=(0, 1))
    verifier = Verifier(in_blocks(first, 1))
    assert verifier.disagreement(in_blocks(second, 2)) is None
    assert f"writes {COUNT}, " in verifier.left_out[1]
    assert f"writes {COUNT // 2} elements" in verifier.left_out[1]


@pytest.mark.parametrize(
    ("candidate", "block"),
    [
        (forgetful(8), 8),  # half as many blocks write half as much, but what they write is right
        (forgetful(8, off=5.0), 2),  # more blocks write less
        (forgetful(12, off=5.0), 8),  # less is written, not half of it
        (forgetful(16, off=5.0), 8),  # all is written
    ],
)
def test_wrong_kernels_are_no_workspaces(candidate: Kernel, block: int) -> None:
    first, second = programs(double, candidate)
    verifier = Verifier(in_blocks(first, 4))
    assert verifier.disagreement(in_blocks(second, block)) is not None
    assert verifier.left_out == {}


HALF_AND_WRONG = forgetful(8, off=5.0)
"""With twice the block of :func:`double` this looks like partial sums: half as much, and nothing of it agrees."""


@pytest.mark.parametrize("blocks", [(4, 8), (8, 4)], ids=["right first", "wrong first"])
def test_who_writes_the_same_with_another_block_shows_that_there_is_no_workspace(blocks: tuple[int, int]) -> None:
    kernels = {4: double, 8: HALF_AND_WRONG}
    *two, third = programs(*(kernels[b] for b in blocks), double)
    first, second = (in_blocks(p, b) for p, b in zip(two, blocks, strict=True))
    said = Verifier(first).disagreement(second, [second, in_blocks(third, 2)])
    assert said is not None
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)
    assert Verifier(first).disagreement(second) is None, "nobody to ask: a note, not a verdict"
    assert first.gpu.read(first.memory.buffer(0, 1)) == bytes(4 * COUNT)


@pytest.mark.parametrize(("block", "constants"), [(4, {}), (2, {"BLOCK": "8"})], ids=["as the reference", "in part"])
def test_who_splits_alike_shows_nothing(block: int, constants: dict[str, str]) -> None:
    first, second, third = programs(double, HALF_AND_WRONG, double)
    verifier = Verifier(in_blocks(first, 4))
    assert verifier.disagreement(in_blocks(second, 8), [in_blocks(third, block, **constants)]) is None
    assert verifier.left_out


def test_other_partial_sums_are_no_witness_against_them() -> None:
    first, second, *others = programs(*(sums(b) for b in (1, 2, 4, 8)))
    verifier = Verifier(in_blocks(first, 1))
    witnesses = [in_blocks(p, b) for p, b in zip(others, (4, 8), strict=True)]
    assert verifier.disagreement(in_blocks(second, 2), witnesses) is None
    assert verifier.left_out


def test_candidates_are_each_others_witnesses() -> None:
    wrong, right, another = programs(HALF_AND_WRONG, double, double)
    found, lead = elected(Verifier(in_blocks(wrong, 8)), [in_blocks(right, 4), in_blocks(another, 2)])
    assert (found.reference, lead) == (right, 1)
    assert not found.left_out


@given(rows=st.integers(2, 4096), columns=st.integers(1, 512), a=st.integers(0, 6), b=st.integers(0, 6))
def test_rows_for_each_block_are_told_in_flat_grids_too(rows: int, columns: int, a: int, b: int) -> None:
    """Blocks of rows and of columns in one axis: the number of rows follows the one's size alone."""
    total = rows * 64

    def written(block: int, wide: int) -> WrittenAmount:
        parts = parts_of((total // block * wide, 1, 1), {"M": str(block), "N": str(wide)})
        return WrittenAmount(total // block * columns, parts, "")

    one, other = written(1 << a, 3), written(1 << b, 5)
    different = max(one.count, other.count)
    assert ("size M" in explanations(one, other, different)) is (a != b)
    assert not explanations(one, other, max(one.count, other.count) - min(one.count, other.count))


# which result is right


def election(*kernels: Kernel) -> tuple[int, int, bool]:
    """The index of the kernel that is chosen, by how many votes, and whether that is clear."""
    first, *others = programs(*kernels)
    found, lead = elected(Verifier(first), others)
    assert found.settled
    return [first, *others].index(found.reference), lead, found.confirmed


def test_most_candidates_are_right() -> None:
    wrong, worse = forgetful(4), forgetful(5)
    assert election(wrong, double, double) == (1, 1, False)
    assert election(wrong, double, double, double) == (1, 2, True)
    assert election(double, wrong, double, double) == (0, 2, True)
    assert election(wrong, worse, double, double, double) == (2, 2, True)


def test_in_doubt_the_first_is_right() -> None:
    assert election(forgetful(4), double) == (0, 0, False)
    assert election(forgetful(4), double, forgetful(5)) == (0, 0, False)
    assert election(double, forgetful(5), double, forgetful(5)) == (0, 0, False)


def test_no_more_are_asked_than_it_takes() -> None:
    asked: list[int] = []

    def counted(pointers: list[bytearray]) -> None:
        asked.append(1)
        double(pointers)

    assert election(forgetful(4), double, double, double, counted) == (1, CLEAR, True)
    assert not asked
    many = [k for n in range(1, MOST_VOTERS) for k in (forgetful(n),)]
    assert election(*many, double, counted)[1] == 0
    assert not asked


def test_who_is_the_reference_is_said() -> None:
    first, *others, last = programs(forgetful(4), double, double, double, half_done)
    found, _ = elected(Verifier(first), others)
    assert str(found.disagreement(last)).startswith("it wrote other values than 3 of 4 configs into y (")


def test_what_is_left_out_is_left_out_for_all() -> None:
    first, *others = programs(varying(), varying(100), half_done)
    found, lead = elected(Verifier(first), others)
    assert (found.reference, lead) == (first, CLEAR)
    assert list(found.left_out) == [1]


# options


def test_no_name_is_ignored_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNTUNE_VERIFY", raising=False)
    assert TuneOptions.now().verification == Verification(Verify.WINNER, ())
    assert TuneOptions.now().verification.all_compared
    found = TuneOptions.now(verify="all", verify_ignore=names_of("parts, other.counts")).verification
    assert found == Verification(Verify.ALL, ("parts", "other.counts"))
    assert not found.all_compared
    asked = [("any", "parts"), ("other", "counts"), ("any", "counts"), ("other", "part")]
    assert [found.ignores(*names) for names in asked] == [True, True, False, False]
    assert TuneOptions.now(verify_ignore=("x",)).verification.ignore == ("x",)
    assert TuneOptions.now(verify_ignore=()).verification.all_compared
    assert not TuneOptions.now(verify="off").verification.all_compared


@pytest.mark.parametrize(
    ("rules", "lax", "all_compared"),
    [
        (Verification(), "", True),
        (Verification(Verify.ALL), "", True),
        (Verification(Verify.OFF), "; verify=off", False),
        (Verification(Verify.OFF, ("y",)), "; verify=off", False),
        (Verification(Verify.BITWISE), "; verify=bitwise", True),
        (Verification(Verify.WINNER, ("y", "k.x")), "; verify_ignore=k.x,y", False),
        (Verification(Verify.BITWISE, ("y",)), "; verify=bitwise; verify_ignore=y", False),
    ],
    ids=str,
)
def test_what_is_stored_beside_a_winner_says_by_which_rules_it_won(
    rules: Verification, lax: str, all_compared: bool
) -> None:
    assert (rules.lax, rules.all_compared) == (lax, all_compared)


@pytest.mark.parametrize("text", [mode.value for mode in Verify])
def test_modes_are_named(text: str) -> None:
    assert verify_mode(text) is Verify(text)
    assert verify_mode(Verify(text)) is Verify(text)


@pytest.mark.parametrize("given_", ["a,b c", "a b,c", ["a", "b", "c"], ("a", "b", "c")])
def test_names_come_in_a_list_or_a_text(given_: Any) -> None:
    assert names_of(given_) == ("a", "b", "c")
    assert names_of("") == names_of(()) == ()


@pytest.mark.parametrize(
    ("dtype", "allowed", "with_atomics"),
    [
        ("float64", 1e-9, 1e-8),
        ("float32", 1e-3, 1e-2),
        ("float16", 1e-2, 0.1),
        ("bfloat16", 3e-2, 0.3),
        ("int32", 0, 0),
    ],
)
def test_how_far_numbers_may_be_off(dtype: str, allowed: float, with_atomics: float) -> None:
    one = plan("code", dtype="float32")
    assert tolerance(one, dtype) == pytest.approx(allowed)
    assert tolerance(changed(one, float_atomics=True), dtype) == pytest.approx(with_atomics)


def test_bits_that_differ_are_said_to() -> None:
    """A NaN with other bits is equal under a tolerance."""

    def writes_(value: int) -> Kernel:
        def kernel(pointers: list[bytearray]) -> None:
            pointers[1][:] = value.to_bytes(4, "little") * COUNT

        return kernel

    first, second = programs(writes_(0x7FC00000), writes_(0x7FC00001))
    assert Verifier(first).disagreement(second) is None
    text = Verifier(first, name="the trusted run", bitwise=True).disagreement(second)
    assert text is not None
    assert text.startswith("it wrote other bits than the trusted run into y")


def test_a_hint_names_a_grid_that_does_not_follow_the_constants() -> None:
    first, second = programs(double, half_done)
    second.recording = changed(second.recording, {"constexprs": {"BLOCK": "64"}})
    text = Verifier(first).disagreement(second)
    assert text is not None
    assert ", and the grid (8, 1, 1) does not depend on the config: look there (8 of 16" in text


def test_only_what_is_written_and_not_read_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = programs(double)
    filled: list[tuple[Any, int]] = []
    fill = made.gpu.fill
    monkeypatch.setattr(made.gpu, "fill", lambda buffer, value: filled.append((buffer, value)) or fill(buffer, value))
    waited: list[int] = []
    synchronize = made.gpu.synchronize
    monkeypatch.setattr(made.gpu, "synchronize", lambda: waited.append(1) or synchronize())
    run_poisoned(made, 0x7F, frozenset({1}))
    assert filled == [(made.memory.buffer(0, 1), 0x7F)], "of the first copy"
    assert waited
    assert POISONS == (0x7F, 0x7B)


def test_arguments_are_found_by_the_storage_that_they_point_into() -> None:
    one = plan("code")
    assert [arguments_at(one, i) for i in range(3)] == [("x",), ("y",), ()]
    assert [storage_name(one, i) for i in range(3)] == ["x", "y", "storage 2"]
    twice = msgspec.structs.replace(one, launches=one.launches * 2)
    assert storage_name(twice, 0) == "x"
    assert not Verifier.ignored("x")


def test_where_results_differ_is_where_they_begin_to() -> None:
    first, second = programs(double, half_done)
    verifier = Verifier(first)
    found: Any = [(64, "the first difference"), (128, "a later one")]
    text = verifier._text(second, 1, found)
    assert text.endswith("the first candidate into y from byte 64 on (the first difference, dtype float32)")
    assert "from byte" not in verifier._text(second, 1, [(0, "it"), *found])  # type: ignore[list-item]


def nothing_like_it(pointers: list[bytearray]) -> None:
    pointers[1][:] = np.full(COUNT, 99.0, "f4").tobytes()


@pytest.mark.parametrize(("before", "found"), [(0, True), (1, True), (2, False)])
def test_two_witnesses_are_asked_at_most(before: int, found: bool) -> None:
    """The first that writes as one of the two would refute a workspace; those before it write like neither."""
    kernels = [nothing_like_it] * before
    first, second, *others = programs(double, HALF_AND_WRONG, *kernels, double)
    asked = [in_blocks(p, block) for p, block in zip(others, [*(1, 16)[:before], 2], strict=True)]
    verifier = Verifier(in_blocks(first, 4))
    assert (verifier.disagreement(in_blocks(second, 8), asked) is not None) is found
    assert bool(verifier.left_out) is not found
