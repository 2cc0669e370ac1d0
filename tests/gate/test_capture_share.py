"""The side of a device's lock that a capture holds, given up and taken again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.gate.gpu_capture import CaptureShare, call_bytes


class SharedGpu:
    """Notes how often it is shared, and whether it is now."""

    def __init__(self) -> None:
        self.taken, self.held, self.alone, self.free, self.waited = 0, False, False, 1, 0

    @contextlib.contextmanager
    def lock_shared(self) -> Iterator[None]:
        self.taken, self.held = self.taken + 1, True
        yield
        self.held = False

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        self.alone = True
        yield
        self.alone = False

    def free_bytes(self) -> int:
        return self.free

    def synchronize(self) -> None:
        self.waited += 1


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        pytest.param(None, 2, id="nothing"),
        pytest.param(ValueError, 2, id="an error"),
        pytest.param(KeyboardInterrupt, 1, id="Ctrl-C doesn't wait for others"),
    ],
)
def test_what_is_given_up_is_taken_again_where_the_call_can_go_on(error: Any, taken: int) -> None:
    gpu: Any = SharedGpu()
    with CaptureShare(0) as share:
        share.move(gpu)
        with pytest.raises(error) if error else contextlib.nullcontext(), share.given_up(gpu):
            assert not gpu.held
            if error:
                raise error
        assert (gpu.taken, gpu.held) == (taken, taken == 2)
    assert not gpu.held


@pytest.mark.parametrize(("free", "alone"), [(200, False), (201, False), (199, True), (0, True)])
def test_twice_the_calls_bytes_must_be_free_to_share_a_gpu(free: int, alone: bool) -> None:
    gpu: Any = SharedGpu()
    gpu.free = free
    with CaptureShare(100) as share:
        share.move(gpu)
        assert (gpu.held, gpu.alone) == (not alone, alone)
    assert (gpu.held, gpu.alone) == (False, False)


def test_who_moves_lets_go_of_the_gpu_before() -> None:
    first, second = SharedGpu(), SharedGpu()
    with CaptureShare(0) as share:
        for gpu, held in ((first, (True, False)), (second, (False, True))):
            share.move(gpu)  # type: ignore[arg-type]
            assert (first.held, second.held) == held
    assert (first.held, second.held) == (False, False)


def test_what_is_enqueued_is_waited_for_before_a_gpu_is_given_up() -> None:
    gpu: Any = SharedGpu()
    with CaptureShare(0) as share:
        share.move(gpu)
        with share.given_up(gpu):
            assert gpu.waited == 1


class Storage:
    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes

    def nbytes(self) -> int:
        return self._nbytes


def test_a_call_has_the_bytes_of_its_storages_each_once() -> None:
    a, b = Storage(64), Storage(8)
    views = [SimpleNamespace(untyped_storage=lambda s=s: s) for s in (a, a, b)]
    tensors = SimpleNamespace(is_tensor=lambda t: t in views, storage_address=lambda t: id(t.untyped_storage()))
    backend: Any = SimpleNamespace(tensors=tensors)
    assert call_bytes(backend, (views, 5, {"x": views[0]})) == 72
    assert call_bytes(backend, ()) == 0
