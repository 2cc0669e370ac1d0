"""Settings of Inductor's while a call is captured, and what torch's compiler keeps of its questions about the GPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kerntune.kernels.compat.inductor_parts import inductor_part

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
