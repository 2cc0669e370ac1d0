"""The winner that is already known for a call whose arguments a graph fixes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerntune.base.policy import TuneMode
from kerntune.capture import Capture
from kerntune.kernels import compat
from kerntune.tuning import context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.cache.shared_store import with_store
from kerntune.tuning.context import engine_of
from kerntune.tuning.deferred import late_of
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_options import mode_of, options_of


class NotStatic(Exception):
    """A value isn't known while the graph is made."""


@dataclass(frozen=True)
class ExampleLayout:
    """What matters to a winner of a tensor with symbolic sizes, for its example's sizes."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def stride(self, dim: int | None = None) -> Any:
        """Elements between neighbours, of one dimension or of all."""
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @staticmethod
    def data_ptr() -> int:
        """No address: aligned."""
        return 0


def winner_of(tuner: Any, examples: Mapping[str, Any], hints: bool) -> Any:
    """The config that has won for these arguments, from this process's winners or the stored ones; None if there is
    none, or if what the winner depends on differs from call to call. ``hints``: symbolic sizes are their examples'."""
    named = {name: _known(value, hints) for name, value in examples.items()}
    return _remembered(tuner, named) or _stored(tuner, named)


def _remembered(tuner: Any, named: Mapping[str, Any]) -> Any:
    """The winner in this process: what it depends on must be known, the rest need not."""
    needed = named if hasattr(tuner, "tuning_key") else [name for name in tuner.keys if name in named]
    if any(named[name] is UNKNOWN for name in needed):
        return None
    key = compat.autotuner_key(tuner, named, {})
    return None if late_of(tuner, key) is not None else tuner.cache.get(key)


def _stored(tuner: Any, named: Mapping[str, Any]) -> Any:
    """The winner on disk: it is stored for the exact arguments."""
    engine, backend = engine_of(tuner), context.this_gpu()
    unknown = any(value is UNKNOWN or getattr(value, "dtype", None) is UNKNOWN for value in named.values())
    if engine is None or not engine.keep or unknown or backend is None or backend.gpu is None:
        return None
    mode = mode_of(tuner)
    if any(isinstance(value, OpenTensor) for value in named.values()) or mode is TuneMode.FORCE:
        return None
    lax = options_of(tuner).verification.lax
    winners = Winners(with_store(WinnerCache()), mode, backend.gpu, lax)
    given, names = list(named), tuner.arg_names
    count = next((i for i, name in enumerate(given) if i >= len(names) or name != names[i]), len(given))
    args, kwargs = [named[name] for name in given[:count]], {name: named[name] for name in given[count:]}
    try:
        site = Capture(backend, context.COMPILER).site_of(tuner, args, kwargs)
        index = winners.find(site)
    except Exception:  # no stored winner; or the user's pruning needs more of an argument than a traced graph has
        return None
    if index is None:
        return None
    site.settle(index)
    return site.originals[index]


class _Unknown:
    """Stands for a value that differs from call to call."""


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class OpenTensor:
    """A tensor of which only the dtype is known."""

    dtype: Any


def _known(value: Any, hints: bool) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "stride"):
        try:
            shape, strides = (tuple(_number(n, hints) for n in sizes) for sizes in (value.shape, value.stride()))
        except NotStatic:
            return OpenTensor(value.dtype)
        return ExampleLayout(value.dtype, shape, strides)
    try:
        return _number(value, hints)
    except NotStatic:
        return UNKNOWN


def _number(value: Any, hints: bool) -> Any:
    node = getattr(value, "node", None)
    if node is None or not hasattr(node, "expr"):
        return value
    if node.is_constant() or (hints and node.has_hint()):
        return node.hint if node.has_hint() else node.maybe_as_int()
    raise NotStatic
