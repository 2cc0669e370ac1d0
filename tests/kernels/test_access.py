"""What an access says, and which operations it is read from."""

from __future__ import annotations

import pytest

from kerntune.kernels.access import ATOMICS, ON_CHIP, PURE_READERS, READERS, WRITERS, Access


@pytest.mark.parametrize(("follows", "beyond", "found"), [(False, (), False), (True, (), True), (False, ("x",), True)])
def test_of_a_kernel_that_cannot_be_analysed_everything_is_assumed(
    follows: bool, beyond: tuple[str, ...], found: bool
) -> None:
    """Each reason once; one that may write beyond its arguments follows addresses."""
    every = frozenset({0, 1})
    assert Access.everything(2, ["b", "a", "b"], follows=follows, beyond=[*beyond, *beyond]) == Access(
        every, every, every, True, ("b", "a"), 2, found, beyond
    )


def test_what_is_read_and_written_is_in_place() -> None:
    some = Access(frozenset({0, 1}), frozenset({1, 2}), frozenset(), False, (), 3)
    assert (some.in_place, some.follows, some.beyond) == (frozenset({1}), False, ())


def test_an_atomic_reads_and_writes_and_a_pure_reader_writes_nothing() -> None:
    assert ATOMICS <= WRITERS
    assert {
        "tt.atomic_rmw",
        "tt.descriptor_reduce",
        "amdg.buffer_atomic_cas",
        "ttng.async_tma_reduce",
    } <= READERS & ATOMICS
    assert PURE_READERS == READERS - WRITERS
    assert not PURE_READERS & WRITERS
    assert {"tt.load", "ttg.async_copy_global_to_local"} <= PURE_READERS
    assert not ON_CHIP & (READERS | WRITERS)
