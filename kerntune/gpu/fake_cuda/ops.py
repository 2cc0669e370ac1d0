"""Custom operators run their real code on stand-ins, so that the kernels inside are launched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from kerntune.gpu.fake_cuda.dynamo import undisabled
from kerntune.gpu.fake_cuda.patches import replace

REAL_KEYS = ("CUDA", "CompositeExplicitAutograd")
"""Dispatch keys under which the dispatcher finds a CUDA tensor's implementation, below autograd, first to last."""
TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "quantized", "_c10d_functional", "c10d", "higher_order"})
"""Operators of torch itself: their CUDA code is compiled code."""

Implementation = Callable[..., Any]
OutsideModes = Callable[[], contextlib.AbstractContextManager[None]]


class RealImplementations:
    """Finds the Python code of an operator that ``torch.library`` defines.

    Fake mode runs an operator's fake implementation only, which launches nothing. ``surroundings()`` is entered around
    the real one: at that depth torch has taken its modes off.
    """

    def __init__(self, surroundings: OutsideModes) -> None:
        self._surroundings = surroundings
        self._registered: dict[tuple[str, str], Implementation] = {}

    def install(self, stack: contextlib.ExitStack) -> None:
        """Record what is registered by ``Library.impl`` from now on, until ``stack`` closes; torch has no list of
        it."""
        original = torch.library.Library.impl

        def impl(
            library: torch.library.Library, op_name: Any, fn: Implementation, dispatch_key: str = "", **options: Any
        ) -> Any:
            result = original(library, op_name, fn, dispatch_key, **options)
            if not options.get("with_keyset"):
                name = f"{library.ns}::{str(op_name).split('::')[-1].removeprefix(library.ns + '.')}"
                self._registered[name, dispatch_key or library.dispatch_key] = fn
            return result

        replace(stack, torch.library.Library, "impl", impl)

    def find(self, func: Any) -> Implementation | None:
        """The real code of an operator, ready to call on stand-ins; ``None`` if it has none in Python."""
        if getattr(func, "namespace", "aten") in TORCH_NAMESPACES:
            return None
        code = self._defined(func._schema.name) or self._noted(func)
        return None if code is None else self._surrounded(code)

    def _defined(self, name: str) -> Implementation | None:
        definition = OPDEFS.get(name)
        if definition is None:
            return None
        code: Implementation | None = definition._backend_fns.get("cuda") or definition._backend_fns.get(None)
        return None if code is None else undisabled(code)

    def _noted(self, func: Any) -> Implementation | None:
        name = func._schema.name
        spellings = (
            (f"{name}.{func._overloadname}", name) if func._overloadname != "default" else (name, f"{name}.default")
        )
        found = (self._registered.get((spelling, key)) for key in REAL_KEYS for spelling in spellings)
        return next((code for code in found if code is not None), None)

    def _surrounded(self, code: Implementation) -> Implementation:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._surroundings():
                return code(*args, **kwargs)

        return run
