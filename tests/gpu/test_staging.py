"""What travels to another process: every byte once, at its place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from doubles import raising
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import Target, typical_device
from kerntune.errors import BackendError, MeasurementError
from kerntune.gpu.base import Buffer
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeGpu
from kerntune.gpu.staging import HOST, IPC, HostStaging, Receiver, StagedPiece, batches, device_staging, staged_bytes

PLACE_ALIGN = 256


def gpu() -> FakeGpu:
    return FakeGpu(typical_device(Target.parse("cuda:90")), Script())


@given(sizes=st.lists(st.integers(0, 5000), max_size=6), pages=st.integers(1, 8))
def test_every_byte_goes_once_within_the_limit(sizes: list[int], pages: int) -> None:
    limit, seen = pages * PLACE_ALIGN, [bytearray(size) for size in sizes]
    for batch in batches(dict(enumerate(sizes)), limit):
        assert batch
        end = 0
        for number, offset, at, count in batch:
            assert at % PLACE_ALIGN == 0
            assert at >= end, "nothing lies over another"
            end = at + count
            assert end <= limit
            for k in range(offset, offset + count):
                seen[number][k] += 1
    assert all(set(one) <= {1} for one in seen)
    if sum(sizes) and staged_bytes(sizes) <= limit:
        assert len(list(batches(dict(enumerate(sizes)), limit))) == 1


def test_through_the_hosts_memory() -> None:
    sender, receiver = gpu(), gpu()
    staging = HostStaging(sender)
    try:
        source, target = sender.allocate(5000), receiver.allocate(5000)
        sender.write(source, bytes(range(250)) * 20)
        staging.put(sender.part(source, 0, 3000), 512)
        staging.put(sender.part(source, 3000, 2000), 4096)
        staging.flush()
        pieces = [(StagedPiece(0, 0, 512, 3000), target), (StagedPiece(0, 3000, 4096, 2000), target)]
        Receiver(receiver, staging.file).take(HOST, b"", pieces)
        assert receiver.read(target) == bytes(range(250)) * 20
    finally:
        staging.close()


def test_a_scripted_gpu_shares_no_memory() -> None:
    assert device_staging(gpu(), 1000) is None


class Sharing(FakeGpu):
    """A scripted GPU whose memory others can map."""

    def __init__(self) -> None:
        super().__init__(typical_device(Target.parse("cuda:90")), Script())
        self.opened: list[tuple[bytes, int]] = []
        self.events: list[object] = []

    def share(self, buffer: Buffer) -> bytes:
        self.near = buffer
        return b"handle"

    @contextlib.contextmanager
    def shared(self, handle: bytes, nbytes: int) -> Iterator[Buffer]:
        self.opened.append((handle, nbytes))
        yield self.near

    def synchronize(self) -> None:
        self.events.append("wait")

    def copy(self, target: Buffer, source: Buffer) -> None:
        self.events.append((target.address, source.address, target.nbytes, source.nbytes))


@pytest.mark.parametrize(("nbytes", "taken"), [(0, 2), (1, 2), (2 << 20, 2), ((2 << 20) + 1, 4), (100 << 20, 64)])
def test_staging_memory_of_the_device_is_whole_pages_and_64_mebibytes_at_most(nbytes: int, taken: int) -> None:
    found = device_staging(Sharing(), nbytes)
    assert found is not None
    assert found._buffer.nbytes == taken << 20
    assert (found.kind, found.handle) == (IPC, b"handle")


def test_through_the_device_s_memory() -> None:
    device = Sharing()
    near = device_staging(device, 8192)
    assert near is not None
    source, target = device.allocate(5000), device.allocate(5000)
    device.events.clear()
    near.put(device.part(source, 0, 3000), 512)
    near.put(device.part(source, 3000, 2000), 4096)
    near.flush()
    begin = device.near.address
    assert device.events == [
        (begin + 512, source.address, 3000, 3000), (begin + 4096, source.address + 3000, 2000, 2000), "wait",
    ]  # fmt: skip
    device.events.clear()
    pieces = [(StagedPiece(0, 0, 512, 3000), target), (StagedPiece(0, 3000, 4096, 2000), target)]
    Receiver(device, -1).take(IPC, near.handle, pieces)
    assert device.opened == [(b"handle", 64 << 20)]
    assert device.events == [
        (target.address, begin + 512, 3000, 3000), (target.address + 3000, begin + 4096, 2000, 2000), "wait",
    ]  # fmt: skip


@pytest.mark.parametrize("error", [BackendError("not permitted"), MeasurementError("no room")])
def test_memory_that_can_not_be_shared_is_none(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Sharing()
    monkeypatch.setattr(device, "share", raising(error))
    assert device_staging(device, 100) is None


def test_the_host_s_staging_memory_goes_with_it() -> None:
    staging = HostStaging(gpu())
    assert os.fstat(staging.file).st_size == 64 << 20
    assert (staging.kind, staging.handle) == (HOST, b"")
    staging.close()
    assert staging._map.closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(staging.file)


@pytest.mark.parametrize(
    ("sizes", "limit", "found"),
    [
        ([], 512, []),
        ([0, 0], 512, []),
        ([100, 300], 1024, [[(0, 0, 0, 100), (1, 0, 256, 300)]]),
        ([512, 1], 512, [[(0, 0, 0, 512)], [(1, 0, 0, 1)]]),
        ([700], 512, [[(0, 0, 0, 512), ], [(0, 512, 0, 188)]]),
        ([100, 300], 512, [[(0, 0, 0, 100), (1, 0, 256, 256)], [(1, 256, 0, 44)]]),
    ],
)  # fmt: skip
def test_what_goes_together(sizes: list[int], limit: int, found: list[list[tuple[int, int, int, int]]]) -> None:
    assert list(batches(dict(enumerate(sizes)), limit)) == found


def test_places_are_256_bytes_apart() -> None:
    assert [staged_bytes(sizes) for sizes in ([], [0], [1], [256], [257, 1])] == [0, 0, 256, 256, 768]
    assert list(batches({0: (64 << 20) + 1})) == [[(0, 0, 0, 64 << 20)], [(0, 64 << 20, 0, 1)]]
