"""What Inductor launches while it compiles, and while it times candidates: no part of the call that is captured."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from kerntune.kernels.compat import inductor_parts

COMPILING = ("compile_frame", "generate")
"""Parts in which code is made: templates are timed here, fused kernels, and choices of padding. Backward graphs are
generated when they first run, outside of a frame's compilation."""

TIMING = ("bench", "bench_gpu", "bench_gpu_own", "bench_profiling", "tune", "descend", "bench_kernels")
"""Parts that time candidates, which a compiled function's first call does as well."""

Pause = Callable[[], contextlib.AbstractContextManager[None]]


def leave_out_trials(stack: contextlib.ExitStack, pause: Pause) -> None:
    """Until ``stack`` closes, nothing that these parts launch is captured or counted; ``pause()`` holds for the thread
    that enters it."""
    for word in (*COMPILING, *TIMING):
        part = inductor_parts.INDUCTOR[word]
        if part.exists() or not part.optional:
            inductor_parts.replace_part(stack, word, _paused(part.get(), pause))


def _paused(original: Callable[..., Any], pause: Pause) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with pause():
            return original(*args, **kwargs)

    return call
