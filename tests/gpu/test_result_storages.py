"""Storages of two recordings are compared only where both are known to hold the same result."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from kerntune.base.device import Target
from kerntune.base.recording import Launch, Param, Recording, Storage, View, Zeros
from kerntune.gpu.result_compare import RELAID, RELAUNCHED, ComparableStorages, comparable_storages

X, Y, OUT, BETWEEN, OTHER = range(5)
Made = tuple[str, dict[str, int], dict[str, int]]
"""A kernel's name, what it reads and what it writes: storages by argument."""


def launched(
    *launches: Made, origins: Sequence[tuple[str, ...]] = (), shape: tuple[int, ...] = (32, 64),
    strides: tuple[int, ...] = (64, 1), out_shape: tuple[int, ...] | None = None,
) -> Recording:  # fmt: skip
    """A recording of launches on five storages; ``out_shape`` and ``strides`` are those of OUT."""
    views = tuple(
        View(i, "float32", (out_shape or shape) if i == OUT else shape, strides if i == OUT else (64, 1))
        for i in range(5)
    )
    made = tuple(
        Launch(
            kernel=name,
            source="",
            binary=0,
            grid=(1, 1, 1),
            params=tuple(Param(arg, "*fp32", view=i) for arg, i in {**reads, **writes}.items()),
            reads=tuple(reads.values()),
            writes=tuple(writes.values()),
            origins=origins[number] if origins else (),
        )
        for number, (name, reads, writes) in enumerate(launches)
    )
    return Recording(Target.parse("cuda:90"), made, (), (), views)


def compared(a: Recording, b: Recording, *sizes: int) -> ComparableStorages:
    nbytes = sizes or (8192,) * 5
    return comparable_storages(a, b, [Storage(n, "float32", Zeros()) for n in nbytes])


ONE = launched(("one", {"x_ptr": X}, {"y_ptr": OUT}))
GELU = ("triton_gelu", {"in_ptr0": X}, {"out_ptr0": OUT})


def test_the_same_launches_have_the_same_storages() -> None:
    again = launched(("renamed", {"a_ptr": X}, {"b_ptr": OUT}))
    assert compared(ONE, again) == ComparableStorages(frozenset({OUT}), frozenset(), {})


def test_an_output_that_one_side_never_writes_counts_in_launches_of_persons() -> None:
    both = {"y_ptr": OUT, "z_ptr": OTHER}
    writes, reads = launched(("one", {"x_ptr": X}, both)), launched(("one", {"x_ptr": X}, both))
    launch = msgspec.structs.replace(reads.launches[0], writes=(OUT,))
    fewer = msgspec.structs.replace(reads, launches=(launch,))
    assert compared(writes, fewer).known == compared(fewer, writes).known == {OUT, OTHER}
    generated = [
        msgspec.structs.replace(r, launches=(msgspec.structs.replace(r.launches[0], origins=("gelu",)),))
        for r in (writes, fewer)
    ]
    assert compared(*generated).known == {OUT}


def test_a_workspace_that_one_side_writes_does_not_count() -> None:
    first = ("one", {"x_ptr": X}, {"w_ptr": BETWEEN})
    writes = launched(first, ("other", {"w_ptr": BETWEEN}, {"y_ptr": OUT}))
    launch = msgspec.structs.replace(writes.launches[0], writes=())
    assert compared(writes, msgspec.structs.replace(writes, launches=(launch, writes.launches[1]))).known == {OUT}


def test_an_intermediate_result_counts_while_the_same_is_fused() -> None:
    steps = (("mm", {"in_ptr0": X}, {"out_ptr0": BETWEEN}), ("gelu", {"in_ptr0": BETWEEN}, {"out_ptr0": OUT}))
    plain = launched(*steps, origins=(("mm",), ("gelu",)))
    assert compared(plain, plain).known == {BETWEEN, OUT}
    assert compared(plain, plain).intermediate == {BETWEEN}
    otherwise = launched(*steps, origins=(("gelu", "mm"), ("add",)))
    assert compared(plain, otherwise) == ComparableStorages(frozenset({OUT}), frozenset({BETWEEN}), {})


def test_a_lost_fusion_s_output_is_compared_where_sizes_tell_it() -> None:
    lost = launched(
        ("triton_mul", {"in_ptr0": X}, {"out_ptr0": BETWEEN}),
        ("triton_erf", {"in_ptr0": BETWEEN, "in_ptr1": X}, {"out_ptr0": OUT}),
        origins=(("mul",), ("erf",)),
    )
    found = compared(launched(GELU, origins=(("gelu",),)), lost)
    assert found == ComparableStorages(frozenset({OUT}), frozenset(), {})


def test_an_output_that_became_an_intermediate_is_not_compared() -> None:
    """As in a lost fusion whose baseline worked in place: the plan has paired its buffer with the first step's."""
    lost = launched(
        ("triton_mul", {"in_ptr0": X}, {"out_ptr0": BETWEEN}),
        ("triton_erf", {"in_ptr0": BETWEEN, "in_ptr1": X}, {"out_ptr0": OUT}),
        origins=(("mul",), ("erf",)),
    )
    place = launched(("triton_gelu", {"in_out_ptr0": BETWEEN}, {"in_out_ptr0": BETWEEN}), origins=(("gelu",),))
    assert compared(place, lost) == ComparableStorages(frozenset(), frozenset(), {BETWEEN: RELAUNCHED})


def test_inputs_that_may_be_exchanged_leave_nothing_known() -> None:
    """Both are of one size, and generated kernels call every first input ``in_ptr0``."""
    one = launched(("triton_a", {"in_ptr0": X, "in_ptr1": Y}, {"out_ptr0": OUT}), origins=(("add",),))
    two = launched(
        ("triton_b", {"in_ptr0": Y}, {"out_ptr0": BETWEEN}),
        ("triton_c", {"in_ptr0": BETWEEN, "in_ptr1": X}, {"out_ptr0": OUT}),
        origins=(("mul",), ("add",)),
    )
    assert compared(one, two).unknown == {OUT: RELAUNCHED}
    assert compared(one, two, 8192, 4096, 8192, 8192, 8192).known == {OUT}, "the sizes say which is which"


def test_two_outputs_of_one_size_are_known_by_a_person_s_names_only() -> None:
    def both(reads: dict[str, int], generated: bool) -> Recording:
        made = ("kernel", reads, {"y_ptr": OUT, "z_ptr": BETWEEN})
        return launched(made, origins=(("add",),) if generated else ())

    def renamed(reads: dict[str, int]) -> Recording:
        return launched(("other", reads, {"y_ptr": OUT, "z_ptr": BETWEEN}), origins=(("mul",),))

    more = {"x_ptr": X, "w_ptr": Y}
    assert compared(both({"x_ptr": X}, False), both(more, False)).known == {OUT, BETWEEN}
    assert set(compared(both({"x_ptr": X}, True), renamed(more)).unknown) == {OUT, BETWEEN}


@pytest.mark.parametrize(
    ("shape", "strides", "known"),
    [
        ((32, 64), (64, 1), True),
        ((2048,), (1,), True),
        ((4, 8, 64), (512, 64, 1), True),
        ((1, 32, 64), (2048, 64, 1), True),
        ((32, 64), (1, 32), False),
        ((64, 32), (32, 1), False),
        ((16, 64), (128, 1), False),
    ],
)
def test_another_layout_is_not_another_result(shape: tuple[int, ...], strides: tuple[int, ...], known: bool) -> None:
    found = compared(ONE, launched(("one", {"x_ptr": X}, {"y_ptr": OUT}), out_shape=shape, strides=strides))
    assert (found.known, found.unknown) == ((frozenset({OUT}), {}) if known else (frozenset(), {OUT: RELAID}))


def test_an_input_that_only_the_baseline_reads_leaves_nothing_known() -> None:
    """Today's call has nothing in that storage, or something else."""
    two = launched(("one", {"x_ptr": X, "w_ptr": Y}, {"y_ptr": OUT}))
    assert compared(two, ONE).unknown == {OUT: RELAUNCHED}
    assert compared(ONE, two).known == {OUT}


def test_two_outputs_of_one_size_may_be_exchanged_though_their_input_is_known() -> None:
    one = launched(("triton_a", {"in_ptr0": X}, {"out_ptr0": OUT, "out_ptr1": BETWEEN}), origins=(("exp",),))
    two = launched(
        ("triton_b", {"in_ptr0": X}, {"out_ptr0": OUT}),
        ("triton_c", {"in_ptr0": X}, {"out_ptr0": BETWEEN}),
        origins=(("exp",), ("sin",)),
    )
    assert set(compared(one, two).unknown) == {OUT, BETWEEN}
    assert compared(one, two, 8192, 8192, 8192, 4096, 8192).known == {OUT, BETWEEN}


def test_what_today_s_code_writes_first_is_no_input_of_the_baseline_s() -> None:
    used = ("one", {"x_ptr": X, "w_ptr": Y}, {"y_ptr": OUT})
    made = launched(("weights", {}, {"w_ptr": Y}), used)
    assert OUT in compared(launched(used), made).unknown


def test_what_only_one_side_reads_again_is_not_compared() -> None:
    more = launched(("one", {"x_ptr": X}, {"y_ptr": OUT}), ("two", {"y_ptr": OUT}, {"z_ptr": BETWEEN}))
    assert compared(ONE, more) == ComparableStorages(frozenset(), frozenset(), {OUT: RELAUNCHED})
