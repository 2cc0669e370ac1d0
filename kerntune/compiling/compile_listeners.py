"""Calls the listeners of Triton's compiler for what the farm has compiled."""

from __future__ import annotations

import inspect
from typing import Any

from kerntune.compiling.frontend import CompileRequest
from kerntune.compiling.protocol import Done
from kerntune.compiling.triton_cache import Made


def notify_listeners(made: Made, done: Done) -> None:
    """Call ``knobs.compilation.listener`` and ``knobs.runtime.jit_post_compile_hook`` as a plain compilation would."""
    from triton import knobs

    if knobs.compilation.listener:
        times = knobs.CompileTimes(ir_initialization=0, lowering_stages=list(done.times), store_results=0)
        metadata, source = {**made.metadata, "hash": made.hash}, made.request.source
        knobs.compilation.listener(
            src=source, metadata=metadata, metadata_group=made.metadata_group, times=times, cache_hit=False
        )
    notify_post_compile(made.request)


def notify_post_compile(request: CompileRequest) -> None:
    """Call ``knobs.runtime.jit_post_compile_hook``, which ``JITFunction.run`` calls and ``triton.compile`` does not.

    The hook's ``key`` is our own name for the specialization: Triton's holds arguments that a launch no longer has.
    """
    from triton import knobs

    hook, launch = knobs.runtime.jit_post_compile_hook, request.launch
    if hook is None:
        return
    known = {
        "hook": hook,
        "key": launch.key(),
        "signature": launch.signature,
        "target": request.target,
        "device": _device(),
        "constants": launch.constexprs,
        "options": request.options,
        "configs": [launch.attrs],
        "is_warmup": False,
    }
    call = launch.jit._call_hook  # 3.6 takes no target
    call(**{name: known[name] for name in inspect.signature(call).parameters})


def _device() -> Any:
    from triton.runtime.driver import driver

    try:
        return driver.active.get_current_device()
    except RuntimeError:  # no driver: compiling for a GPU of another machine
        return 0
