"""torch's compiler beside kerntune: Inductor's settings, kept answers about the GPU, frames that are left alone.

Dynamo leaves frames of kerntune alone that run where torch or Triton would. Nothing here imports torch's compiler
before it is used.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from kerntune.kernels.compat.inductor_parts import INDUCTOR, inductor_part

NO_GRAPH_CACHE = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
"""Settings of Inductor's by which each graph's code is generated anew."""

ONLY_GENERATE = {
    "compile_threads": 1,
    **NO_GRAPH_CACHE,
    **dict.fromkeys(("autotune_local_cache", "autotune_remote_cache", "bundled_autotune_remote_cache"), False),
    **dict.fromkeys(("use_static_cuda_launcher", "use_static_triton_launcher"), False),
}


def only_code_generation() -> contextlib.AbstractContextManager[None]:
    """Inductor's settings while it generates code that isn't run: in this process, and without a cache of graphs."""
    return _patched(ONLY_GENERATE, {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True})


def without_graph_caches() -> contextlib.AbstractContextManager[None]:
    """Each graph's code is generated anew: one that is kept contains the choices that were made for it."""
    return _patched(NO_GRAPH_CACHE, {"enable_autograd_cache": False})


@contextlib.contextmanager
def _patched(inductor: Mapping[str, Any], functorch: Mapping[str, Any]) -> Iterator[None]:
    """Settings of both, as far as this torch has them."""
    with contextlib.ExitStack() as stack:
        for word, wanted in (("config", inductor), ("functorch_config", functorch)):
            config = inductor_part(word)
            stack.enter_context(config.patch({k: v for k, v in wanted.items() if hasattr(config, k)}))
        yield


def interface_functions() -> Iterator[tuple[str, bool]]:
    """Names that Dynamo's CUDA interface has bound of ``torch.cuda``, and whether each is a static method there."""
    interface = inductor_part("cuda_interface")
    import torch

    for name, value in vars(interface).items():
        if not name.startswith("__") and hasattr(torch.cuda, name):
            yield name, isinstance(value, staticmethod)


def forget_answers() -> None:
    """Drop what torch has kept of its questions about the GPU: another one is there now, or none."""
    inductor_part("device_properties").clear()
    for asked in (inductor_part("has_triton"), *_kept_answers()):
        getattr(asked, "cache_clear", lambda: None)()


def _kept_answers() -> Iterator[Any]:
    """Cached functions of Inductor's that ask about the device; each is there in some versions."""
    for module in ("torch._inductor.utils", "torch._inductor.runtime.hints", "torch.utils._triton"):
        for value in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
            if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == module:
                yield value


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
    result, strategy, action = map(inductor_part, ("frame_result", "frame_strategy", "frame_action"))
    wrappers_code = inductor_part("not_below") if INDUCTOR["not_below"].exists() else None

    def compile_users(wrapper: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(_OWN):
            below = action.DEFAULT if code in _calls_users else action.SKIP
            return result(frame_exec_strategy=strategy(action.SKIP, below))
        if sys._getframe(1).f_code is wrappers_code:
            return result(apply_to_code=False)
        return compile_frame(wrapper, frame, *args, **kwargs)

    return compile_users
