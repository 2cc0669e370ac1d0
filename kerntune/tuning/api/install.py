"""``kerntune.install()``: this process's ``triton.autotune`` becomes kerntune's, for kernels decorated before too."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import triton
from triton.runtime import autotuner as tritons
from triton.runtime.autotuner import Autotuner as TritonAutotuner
from triton.runtime.jit import KernelInterface

from kerntune.errors import UsageError
from kerntune.kernels.dispatch import LaunchOutcome, LaunchPath
from kerntune.kernels.dispatch.codegen import Needs
from kerntune.tuning.api.autotuner import STANDS_FOR, Autotuner
from kerntune.tuning.api.decorators import autotune
from kerntune.tuning.context import PlainPath, TunerEngine, find_engines_with, prepare_launches
from kerntune.tuning.dynamo_watch import watch_dynamo
from kerntune.tuning.tuned_call import run_tuned

MISSING = object()
"""Stands for an attribute that its owner didn't have itself."""


@dataclass(frozen=True)
class Swap:
    """An attribute that was replaced: its owner, its name, what it was and what it is."""

    owner: Any
    name: str
    before: Any
    after: Any

    def apply(self) -> None:
        """Put the new value in place."""
        setattr(self.owner, self.name, self.after)

    def holds(self) -> bool:
        """Whether the new value is still in place."""
        return vars(self.owner).get(self.name) is self.after

    def undo(self) -> None:
        """Put the old value back, or nothing where there was none."""
        if self.before is MISSING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


class Installed:
    """What :func:`install` gives: a context manager that undoes it at its end, or call :meth:`uninstall`."""

    def __init__(self) -> None:
        self._mine = True

    def uninstall(self) -> None:
        """Undo this one installation; the second time does nothing."""
        if self._mine:
            uninstall()
            self._mine = False

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()


_lock = threading.Lock()
_swaps: list[Swap] = []
_depth = 0
_keeps: list[bool] = []
"""What the installation in force was asked about keeping winners on disk."""


def install(*, cache_results: bool = True) -> Installed:
    """Tune with kerntune's engine wherever this process uses ``triton.autotune``.

    The decorator itself is replaced, and the engine of every Triton autotuner that exists or will: kernels decorated
    before, subclasses of ``triton.runtime.Autotuner`` (one whose own ``run`` never calls Triton's has it replaced), and
    whatever reaches a tuner through ``.fn`` (``@triton.heuristics``, wrappers of libraries). Winners that a tuner has
    already found stay. ``cache_results`` keeps winners of kernels with Triton's decorator on disk.

    Installing twice is installing once, to be undone twice; what the first call asked for holds. What the first launch
    of any process waits for begins now: Triton imports Gluon (0.1 s), and reads its own files, in a process beside
    this one (0.4 s; not with ``KERNTUNE_FORKS=0`` or on fewer than four cores).
    """
    global _depth
    with _lock:
        if _depth == 0:
            _swaps[:] = _planned(cache_results)
            for swap in _swaps:
                swap.apply()
        _depth += 1
        _keeps[:] = [*_keeps, cache_results][:1]
    prepare_launches()
    watch_dynamo()
    return Installed()


@find_engines_with
def _installed_engine(tuner: Any) -> TunerEngine | None:
    """How a tuner of Triton's launches while kerntune is installed; one with a ``run`` of its own does so by that."""
    if not (is_installed() and isinstance(tuner, TritonAutotuner)):
        return None
    slow = None if "run" in vars(tuner) else _SLOW.get(type(tuner).run)
    return TunerEngine(PlainPath(tuner) if slow is None else _path(tuner, slow), keep=_keeps[0])


def uninstall() -> None:
    """Undo one :func:`install`; with the last, all is exactly as before.

    :class:`UsageError` if nothing is installed, or if another tool has replaced the same attributes since: it must be
    undone first.
    """
    global _depth
    with _lock:
        if _depth == 0:
            raise UsageError("kerntune isn't installed in this process, so there is nothing to undo")
        if _depth == 1:
            _undo()
        _depth -= 1


def is_installed() -> bool:
    """Whether ``triton.autotune`` is kerntune's now."""
    return _depth > 0


def _undo() -> None:
    other = [f"{s.owner.__name__}.{s.name}" for s in _swaps if not s.holds()]
    if other:
        raise UsageError(
            f"kerntune can't be uninstalled now: {', '.join(other)} was replaced since by something else (another "
            "tool, or a measurement under way); undo that first"
        )
    for swap in reversed(_swaps):
        swap.undo()
    _swaps.clear()
    STANDS_FOR.clear()
    _SLOW.clear()
    _keeps.clear()
    for tuner in list(_prepared):
        tuner.__dict__.pop(PATH).retire()
    _prepared.clear()


def _planned(cache_results: bool) -> list[Swap]:
    swaps = [
        Swap(owner, "autotune", tritons.autotune, autotune)
        for owner in (triton, triton.runtime, tritons)
        if vars(owner).get("autotune") is tritons.autotune
    ]
    for kind in (TritonAutotuner, *_kinds(TritonAutotuner)):
        if kind is TritonAutotuner or _own_engine(kind):
            swaps.append(Swap(kind, "run", vars(kind)["run"], _engine(vars(kind)["run"], cache_results)))
    if "__getitem__" not in vars(TritonAutotuner):
        swaps.append(Swap(TritonAutotuner, "__getitem__", MISSING, _getitem))
    before = vars(TritonAutotuner).get("__init_subclass__", MISSING)
    return [*swaps, Swap(TritonAutotuner, "__init_subclass__", before, _watch(before, cache_results))]


def _engine(plain: Callable[..., Any], cache_results: bool) -> Callable[..., Any]:
    def slow(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> LaunchOutcome:
        return run_tuned(tuner, args, kwargs, keep=cache_results, plain=plain)

    def run(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup") or "grid" not in kwargs:
            return slow(tuner, args, kwargs).result
        kwargs.pop("warmup", None)
        return _path(tuner, slow).launch(kwargs.pop("grid"), *args, **kwargs)

    STANDS_FOR[run] = plain
    _SLOW[run] = slow
    return run


def _getitem(tuner: Any, grid: Any) -> Any:
    """``kernel[grid]`` of Triton's own tuners: past ``run``, where it would only come to the engine's."""
    slow = None if "run" in tuner.__dict__ else _SLOW.get(type(tuner).run)
    if slow is None:
        return KernelInterface.__getitem__(tuner, grid)
    return partial(_path(tuner, slow).launch, grid)


PATH = "_kerntune_path"
"""The attribute under which a tuner of Triton's keeps its prepared launches, while kerntune is installed."""

_SLOW: dict[Callable[..., Any], Callable[..., LaunchOutcome]] = {}
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()


def _path(tuner: Any, slow: Callable[..., LaunchOutcome]) -> LaunchPath:
    path: LaunchPath | None = tuner.__dict__.get(PATH)
    if path is None:
        path = LaunchPath(tuner, partial(slow, tuner), Needs(exact=frozenset(tuner.keys)))
        setattr(tuner, PATH, path)
        _prepared.add(tuner)
    return path


def _watch(before: Any, cache_results: bool) -> Any:
    """An ``__init_subclass__`` that also takes over classes that are made while kerntune is installed."""

    def watch(cls: Any, /, **words: Any) -> None:
        if before is MISSING:
            super(TritonAutotuner, cls).__init_subclass__(**words)
        else:
            before.__get__(None, cls)(**words)
        if _own_engine(cls):
            swap = Swap(cls, "run", vars(cls)["run"], _engine(vars(cls)["run"], cache_results))
            swap.apply()
            _swaps.append(swap)

    return classmethod(watch)


def _kinds(kind: Any) -> Iterator[Any]:
    for child in type.__subclasses__(kind):
        yield child
        yield from _kinds(child)


def _own_engine(kind: Any) -> bool:
    """Whether a class has a ``run`` of its own that never comes to the one it inherits."""
    run = vars(kind).get("run")
    if run is None or issubclass(kind, Autotuner):
        return False
    code = getattr(inspect.unwrap(run), "__code__", None)
    if code is None:
        return False
    inherits = "super" in code.co_names or "__class__" in code.co_freevars
    names_it = "run" in code.co_names and any(base.__name__ in code.co_names for base in kind.__mro__[1:])
    return not (inherits or names_it)
