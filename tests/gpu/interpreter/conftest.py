"""An interpreter around each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kerntune.base.device import TYPICAL_DEVICES
from kerntune.gpu.interpreter import Interpreter
from kerntune.kernels.compat import triton_compiler


@pytest.fixture
def interpreter() -> Iterator[Interpreter]:
    triton_compiler.take_announcements()
    made = Interpreter(TYPICAL_DEVICES["cuda:90"])
    with made.activate():
        yield made
