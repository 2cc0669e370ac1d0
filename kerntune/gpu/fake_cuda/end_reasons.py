"""Why a test body could not go on with stand-ins."""

from __future__ import annotations

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from kerntune.base.users_line import chain
from kerntune.errors import CaptureError


class StandInEnd(CaptureError):
    """A test body needs something that a stand-in doesn't have, such as a result. It is no failure of the test."""


_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (StandInEnd, "{}"),
    (DataDependentOutputException, "needs the value of a stand-in ({})"),
    (DynamicOutputShapeException, "needs a shape that depends on the values of a stand-in ({})"),
    (UnsupportedOperatorException, "torch can't tell the output shape of {} without running it"),
    (UnsupportedFakeTensorException, "torch has no stand-in for this kind of tensor ({})"),
)

_MESSAGES = (
    "Cannot copy out of meta tensor",
    "Torch not compiled with CUDA enabled",
    "not linked with support for cuda",
    "Cannot access data pointer of Tensor that doesn't have storage",
    "is not supported for tensor subclasses",
    "Cannot access accelerator device when none is available",
    "Found no NVIDIA driver on your system",
    "No CUDA GPUs are available",
)
"""Messages of torch's plain errors when an operation needs memory or a driver that doesn't exist."""


def static_reason(exc: BaseException | None) -> str | None:
    """Why a test body could not go on with stand-ins; ``None`` for a genuine failure.

    Follows ``__cause__`` and ``__context__``: ``assert_close`` wraps the original exception.
    """
    for link in chain(exc):
        for kind, text in _REASONS:
            if isinstance(link, kind):
                return text.format(link)
        if isinstance(link, (RuntimeError, AssertionError)) and any(known in str(link) for known in _MESSAGES):
            return f"needs a GPU: {str(link).splitlines()[0]}"
    return None
