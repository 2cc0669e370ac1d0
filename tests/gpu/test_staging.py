"""What travels to another process: every byte once, at its place."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import Target, typical_device
from kerntune.gpu.scripted import FakeGpu, Script
from kerntune.gpu.staging import HOST, PLACE_ALIGN, HostStaging, Receiver, batches, device_staging, staged_bytes


@dataclass(frozen=True)
class StagedBytes:
    offset: int
    at: int
    count: int


def gpu() -> FakeGpu:
    return FakeGpu(typical_device(Target.parse("cuda:90")), Script())


@given(sizes=st.lists(st.integers(0, 5000), max_size=6), pages=st.integers(1, 8))
def test_every_byte_goes_once_within_the_limit(sizes: list[int], pages: int) -> None:
    limit, seen = pages * PLACE_ALIGN, [bytearray(size) for size in sizes]
    for batch in batches(sizes, limit):
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
        assert len(list(batches(sizes, limit))) == 1


def test_through_the_hosts_memory() -> None:
    sender, receiver = gpu(), gpu()
    staging = HostStaging(sender)
    try:
        source, target = sender.allocate(5000), receiver.allocate(5000)
        sender.write(source, bytes(range(250)) * 20)
        staging.put(sender.part(source, 0, 3000), 512)
        staging.put(sender.part(source, 3000, 2000), 4096)
        staging.flush()
        pieces = [(StagedBytes(0, 512, 3000), target), (StagedBytes(3000, 4096, 2000), target)]
        Receiver(receiver, staging.file).take(HOST, b"", pieces)
        assert receiver.read(target) == bytes(range(250)) * 20
    finally:
        staging.close()


def test_a_scripted_gpu_shares_no_memory() -> None:
    assert device_staging(gpu(), 1000) is None
