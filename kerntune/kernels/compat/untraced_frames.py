"""Which frames Dynamo leaves alone: those of kerntune that run where torch or Triton would.

Nothing here imports torch's compiler before it is used.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from kerntune.kernels.compat import inductor_parts

UNTRACED = ("base", "capture", "compiling", "gate", "gpu", "kernels")
"""Packages of kerntune's that run where torch or Triton would, while Dynamo looks at each Python frame that begins:
operators on stand-ins, replaced methods, launches that are captured. (What users call, as :func:`kerntune.choice`, is
traced as any function of theirs.)"""

_OWN = (*(str(Path(__file__).parents[3] / "kerntune" / package) + os.sep for package in UNTRACED), weakref.__file__)
"""Stand-ins are in dictionaries with weak keys, too: what removes dead ones runs at any time."""

_calls_users: set[CodeType] = set()

_Function = TypeVar("_Function", bound=Callable[..., Any])


def calls_users_code(function: _Function) -> _Function:
    """Mark a function of these packages that stands in the place of one of torch's, and calls users' code: Dynamo
    compiles that code as it does below torch's own."""
    _calls_users.add(function.__code__)
    return function


def leaving_out_own(compile_frame: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo's compilation of a frame (the part ``compile_frame``) for all frames but kerntune's own, which run as they
    are, and with them all that they call. Dynamo would else compile the very code that stands for a device: graphs
    that the user's function doesn't have.

    It is put around all other replacements of that part. Dynamo leaves a function alone that is called by the wrapper
    of ``torch.compiler.disable(recursive=False)``. It looks for this caller above its own module, where it would find
    a replacement instead.
    """
    result, strategy, action = (
        inductor_parts.inductor_part(word) for word in ("frame_result", "frame_strategy", "frame_action")
    )
    wrappers_code = inductor_parts.inductor_part("not_below") if inductor_parts.INDUCTOR["not_below"].exists() else None

    def compile_users(wrapper: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(_OWN):
            below = action.DEFAULT if code in _calls_users else action.SKIP
            return result(frame_exec_strategy=strategy(action.SKIP, below))
        if sys._getframe(1).f_code is wrappers_code:
            return result(apply_to_code=False)
        return compile_frame(wrapper, frame, *args, **kwargs)

    return compile_users
