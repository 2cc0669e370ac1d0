"""The side of a device's lock that a capture holds, given up and taken again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kerntune.gate.capture_share import CaptureShare


class SharedGpu:
    """Notes how often it is shared, and whether it is now."""

    def __init__(self) -> None:
        self.taken, self.held = 0, False

    @contextlib.contextmanager
    def lock_shared(self) -> Iterator[None]:
        self.taken, self.held = self.taken + 1, True
        yield
        self.held = False

    def free_bytes(self) -> int:
        return 1

    def synchronize(self) -> None:
        pass


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
