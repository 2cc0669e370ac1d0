"""What is asked of the driver for a kernel, by a library that notes the calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.gpu import cuda_driver

STATIC, MOST = 1024, 232448


class Library:
    """As libcuda: each kernel has some static shared memory, and all calls succeed."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append((name, *args[1:]))
            if name == "cuFuncGetAttribute":
                args[0]._obj.value = STATIC
            return 0

        return call


@pytest.mark.parametrize(("shared", "reserved"), [(48 << 10, []), ((48 << 10) + 1, [MOST - STATIC])])
def test_a_kernel_beyond_the_static_limit_may_have_all_that_the_device_allows(
    monkeypatch: pytest.MonkeyPatch, shared: int, reserved: list[int]
) -> None:
    library = Library()
    monkeypatch.setattr(cuda_driver, "library", lambda: library)
    binary: Any = SimpleNamespace(symbol="k", shared=shared, num_warps=4, warp_size=32, num_ctas=1)
    cuda_driver.CudaFunction(binary, b"", MOST)
    asked = [call[2] for call in library.calls if call[:2] == ("cuFuncSetAttribute", cuda_driver.MAX_DYNAMIC_SHARED)]
    assert asked == reserved
