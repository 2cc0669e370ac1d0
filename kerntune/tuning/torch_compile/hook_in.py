"""Puts kerntune between torch's compiler and calls of tuned kernels."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from kerntune.kernels.compat import torch_private
from kerntune.kernels.compat.torch_private import PrivatePart
from kerntune.tuning.torch_compile.generated_calls import write_calls_directly
from kerntune.tuning.torch_compile.kernel_calls import KernelCall, is_ours, traceable_grid


def teach_tracing() -> None:
    """Have calls of tuned kernels traced by kerntune, in Dynamo and under ``wrap_triton``."""
    loaded = {torch_private.WRAP, torch_private.FUNCTIONS}  # the rest of Dynamo is still being imported
    if not lacks([part for part in torch_private.GRAPH_PARTS if part.module in loaded]):
        _wrap(torch_private.hopifier(), "init_variable", _init_variable)
        _wrap(torch_private.hopifier(), "call_triton_kernel", _call_triton_kernel)
        write_calls_directly()


def teach_cache() -> None:
    """Have AOTAutograd store no graph with a ``triton_op`` that launches a tuned kernel: its key has the kernel's
    source alone, and so can't tell who chooses the config."""
    if not lacks([part for part in torch_private.GRAPH_PARTS if part.module == torch_private.AOT_CACHE]):
        _wrap(torch_private.cache_details(), "get_triton_source_codes_from_gm", _source_codes)


def lacks(parts: Sequence[PrivatePart]) -> bool:
    """Whether this torch lacks one of these parts; then it is said by name, once."""
    missing = torch_private.missing_parts(parts, load=False)
    for part in missing:
        warnings.warn(
            f"kerntune: this torch has no {part.name} as {part.user} knows it: {part.breaks}",
            RuntimeWarning,
            stacklevel=2,
        )
    return bool(missing)


def _wrap(owner: Any, name: str, replacement: Any) -> None:
    """Replace a method by a function that gets the old one first."""
    before = getattr(owner, name)

    @functools.wraps(before)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(functools.partial(before, self), self, *args, **kwargs)

    setattr(owner, name, method)


def _init_variable(before: Any, hopifier: Any, variable: Any, kernel: Any, kernel_idx: Any, grid: Any) -> None:
    """torch refuses tuners with hooks and other options here; kerntune needs none of that."""
    if is_ours(kernel):
        torch_private.accept(variable, kernel, grid)
    else:
        before(variable, kernel, kernel_idx, grid)


def _call_triton_kernel(before: Any, hopifier: Any, variable: Any, args: Any, kwargs: Any, tx: Any) -> Any:
    if is_ours(variable.kernel):
        call = KernelCall(hopifier, variable, args, kwargs, tx)
        try:
            return call.trace()
        except (AttributeError, ImportError, TypeError) as exc:
            why = f"this torch is read wrongly ({type(exc).__name__}: {exc}); please report it with torch's version"
        raise call.refused(why)
    variable.grid = traceable_grid(variable.grid, tx)
    return before(variable, args, kwargs, tx)


def _source_codes(before: Any, details: Any, gm: Any) -> Any:
    for kernels in torch_private.kernels_in_operators(gm):
        if not kernels or any(map(is_ours, kernels)):
            raise torch_private.no_cache_entry("a triton_op may launch a kernel whose config kerntune chooses")
    return before(gm)
