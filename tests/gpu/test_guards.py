"""Guard zones: what lies in them, and what is said of what has changed there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import Target, typical_device
from kerntune.errors import BackendError
from kerntune.gpu.base import Buffer
from kerntune.gpu.compare import FLOATS
from kerntune.gpu.guards import GuardDamage, GuardedBuffer, GuardReader, changed_bytes, damage_text, guards_bytes
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.gpu.scripted_work import FakeBuffer

BASE_ALIGN = 512
GUARD_BYTES = 1 << 20
PATTERN = 0x3B


def gpu() -> FakeGpu:
    return FakeGpu(typical_device(Target.parse("cuda:90")), Script())


def change(zone: Buffer, at: int, data: bytes) -> None:
    assert isinstance(zone, FakeBuffer)
    zone.put_at(at, data)


@given(nbytes=st.integers(0, 5000), residue=st.integers(0, BASE_ALIGN - 1))
def test_a_storage_lies_between_its_zones_at_its_alignment(nbytes: int, residue: int) -> None:
    guarded = GuardedBuffer(gpu(), nbytes, residue)
    (before, front), (behind, back) = guarded.zones
    assert guarded.buffer.address % BASE_ALIGN == residue
    assert (guarded.buffer.nbytes, behind) == (nbytes, nbytes)
    assert front.address + front.nbytes == guarded.buffer.address
    assert front.address == guarded.buffer.address + before
    assert back.address == guarded.buffer.address + nbytes
    assert min(front.nbytes, back.nbytes) >= GUARD_BYTES
    assert front.nbytes + back.nbytes <= guards_bytes()


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_what_a_load_beside_finds_is_a_small_number(dtype: str) -> None:
    value = np.frombuffer(bytes([PATTERN] * 16), FLOATS[dtype])
    assert np.isfinite(value).all()
    assert (np.abs(value) < 2).all()


@pytest.mark.slow
@given(data=st.data(), size=st.integers(1, 3000), residue=st.integers(0, BASE_ALIGN - 1))
def test_every_change_is_found_with_its_place(data: st.DataObject, size: int, residue: int) -> None:
    device = gpu()
    guarded = {3: GuardedBuffer(device, size, residue), 5: GuardedBuffer(device, 64)}
    reader = GuardReader(device)
    assert reader.damages(guarded) == []
    begin, zone = data.draw(st.sampled_from(guarded[3].zones))
    at = data.draw(st.integers(0, zone.nbytes - 1) | st.sampled_from([0, zone.nbytes - 1]))
    written = data.draw(st.binary(min_size=1, max_size=min(40, zone.nbytes - at)))
    change(zone, at, written)
    differing = [begin + at + k for k, byte in enumerate(written) if byte != PATTERN]
    expected = [GuardDamage(3, differing[0], differing[-1], len(differing))] if differing else []
    assert reader.damages(guarded) == expected
    guarded[3].mend()
    assert reader.damages(guarded) == []


def test_changes_on_both_sides_are_one_finding() -> None:
    device = gpu()
    guarded = GuardedBuffer(device, 100)
    (_, front), (_, back) = guarded.zones
    change(front, front.nbytes - 8, b"\0" * 4)
    change(back, 16, b"\0" * 2)
    assert GuardReader(device).damages({0: guarded}) == [GuardDamage(0, -8, 117, 6)]


def test_zones_are_compared_on_the_device_until_one_has_changed() -> None:
    device = gpu()
    guarded = {0: GuardedBuffer(device, 1000, 7)}
    reader = GuardReader(device)
    assert reader.damages(guarded) == []
    change(guarded[0].zones[1][1], 0, b"\0")
    assert reader.damages(guarded) == [GuardDamage(0, 1000, 1000, 1)]


def test_what_writes_over_the_pattern_too_is_found() -> None:
    """A write that is long enough hits a zone and what the zone is compared with alike."""
    device = gpu()
    guarded = {0: GuardedBuffer(device, 1000)}
    reader = GuardReader(device)
    assert reader.damages(guarded) == []
    for buffer in [*device._buffers.between(0, 1 << 64)]:
        change(buffer, 0, bytes(buffer.nbytes))
    (damage,) = reader.damages(guarded)
    assert damage.count == sum(zone.nbytes for _, zone in guarded[0].zones)


def test_where_the_kernel_can_not_be_loaded_the_host_compares() -> None:
    device = FakeGpu(typical_device(Target.parse("cuda:90")), Script([Rule(fails="no such image")]))
    guarded = {0: GuardedBuffer(device, 1000)}
    reader = GuardReader(device)
    reader.prepare()
    assert reader.damages(guarded) == []
    change(guarded[0].zones[0][1], GUARD_BYTES - 4, b"\0" * 4)
    assert reader.damages(guarded) == [GuardDamage(0, -4, -1, 4)]
    device.lost = "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
    with pytest.raises(BackendError, match="ILLEGAL_ADDRESS"):
        GuardReader(device).damages(guarded)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (GuardDamage(0, 100, 103, 4), "4 bytes from byte 0 behind the end of y_ptr (100 bytes)"),
        (GuardDamage(0, 1100, 1100, 1), "1 byte from byte 1,000 behind the end of y_ptr (100 bytes)"),
        (GuardDamage(0, -16, -9, 8), "8 bytes from 16 bytes before the begin of y_ptr (100 bytes)"),
        (GuardDamage(0, -8, 117, 6), "6 bytes on both sides of y_ptr, from 8 bytes before its begin (100 bytes)"),
    ],
)
def test_what_is_said(damage: GuardDamage, text: str) -> None:
    assert damage_text(damage, "y_ptr", 100) == text


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (GuardDamage(0, -1, -1, 1), "1 byte from 1 bytes before the begin of y_ptr (100 bytes)"),
        (GuardDamage(0, -1, 0, 2), "2 bytes on both sides of y_ptr, from 1 bytes before its begin (100 bytes)"),
        (GuardDamage(0, 0, 3, 4), "4 bytes from byte -100 behind the end of y_ptr (100 bytes)"),
    ],
)
def test_what_is_said_at_the_begin(damage: GuardDamage, text: str) -> None:
    assert damage_text(damage, "y_ptr", 100) == text


def test_zones_have_a_mebibyte_of_a_pattern_that_is_documented() -> None:
    assert (GUARD_BYTES, PATTERN, BASE_ALIGN, guards_bytes()) == (1 << 20, 0x3B, 512, (2 << 20) + 512)


def test_what_was_looked_at_last_is_let_go_of() -> None:
    device = gpu()
    guarded = {0: GuardedBuffer(device, 100)}
    reader = GuardReader(device)
    reader.prepare()
    assert (reader._compared, reader._compare()) == ([], [])
    assert reader.damages(guarded) == []
    assert reader._compared == [guarded[0]]
    reader.forget()
    assert (reader._compared, reader._compare()) == ([], [])
    assert reader.damages({}) == []


@pytest.mark.parametrize("count", [1, 7])
def test_changed_bytes_are_counted(count: int) -> None:
    data = bytearray([PATTERN] * 64)
    assert changed_bytes(data, 4, 1000) is None
    for i in range(count):
        data[5 + 3 * i] = 0
    assert changed_bytes(bytes(data), 4, 1000) == GuardDamage(4, 1005, 1005 + 3 * (count - 1), count)
