"""Triton's entry points, by which kernels are launched, and what stands in for them while a call is captured.

Several users replace a function of a class at a time, and come and go in any order. Launches that nothing tunes are
seen before they are made. While one thread of a captured function decides a choice, launches of its other threads
wait: they are the call's.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kerntune.kernels.compat.torch_private import runs_backward
from kerntune.kernels.source import kernel_name
from kerntune.kernels.specialize import as_launch

FunctionPlace = tuple[type, str]
"""A class, and the name of one of its functions."""

FunctionLayer = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes the function below, and gives what stands over it. It is called again when another user comes or goes."""


class ReplacedFunctions:
    """What stands in the place of functions: the layers of all users over what was there before the first. The user
    that came last is asked first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: list[tuple[object, Mapping[FunctionPlace, FunctionLayer]]] = []
        self._originals: dict[FunctionPlace, Callable[..., Any]] = {}

    def add(
        self, user: object, layers: Mapping[FunctionPlace, FunctionLayer], *, instead_of: object | None = None
    ) -> None:
        """Put a user's layers over all others, in the whole process, once; those of ``instead_of`` go at the same
        moment: where both have a layer, no call comes between them."""
        with self._lock:
            self._users = [one for one in self._users if one[0] is not user and one[0] is not instead_of]
            for owner, name in layers:
                self._originals.setdefault((owner, name), getattr(owner, name))
            self._users.append((user, layers))
            self._set_and_forget()

    def remove(self, user: object) -> None:
        """Take a user's layers away; the others stay."""
        with self._lock:
            self._users = [one for one in self._users if one[0] is not user]
            self._set_and_forget()

    def _set_and_forget(self) -> None:
        for (owner, name), found in self._originals.items():
            for _, layers in self._users:
                if (owner, name) in layers:
                    found = layers[owner, name](found)
            setattr(owner, name, found)
        left = {place for _, layers in self._users for place in layers}
        self._originals = {place: found for place, found in self._originals.items() if place in left}


REPLACED = ReplacedFunctions()
"""Of this process."""


def launching_functions() -> tuple[FunctionPlace, ...]:
    """Triton's of a kernel, of a tuner and of a kernel that is compiled."""
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    return (JITFunction, "run"), (Autotuner, "run"), (CompiledKernel, "__getitem__")


class FunctionLayers:
    """The layers of one user of :data:`REPLACED`, in the whole process: backward passes run on other threads."""

    _layers: Mapping[FunctionPlace, FunctionLayer]

    def begin(self, instead_of: object | None = None) -> None:
        """From now on, and in the place of another user, which goes at the same moment."""
        REPLACED.add(self, self._layers, instead_of=instead_of)

    def end(self) -> None:
        """No longer; nothing if it hasn't begun."""
        REPLACED.remove(self)


class EntryPoints(FunctionLayers):
    """``on_launch`` and ``on_tuned`` take a kernel or a tuner, its arguments and its keywords, where
    ``records(kernel)`` is true of that kernel or tuner in the calling thread."""

    def __init__(
        self, on_launch: Callable[..., Any], on_tuned: Callable[..., Any], records: Callable[[Any], bool]
    ) -> None:
        self._on_launch, self._on_tuned, self._records = on_launch, on_tuned, records
        places, layers = launching_functions(), (self._over_jit, self._over_tuners, self._over_compiled)
        self.run_jit: Callable[..., Any] = getattr(*places[0])
        """Makes a launch that is recorded."""

        self._layers = dict(zip(places, layers, strict=True))

    def _over_jit(self, run_jit: Callable[..., Any]) -> Callable[..., Any]:
        self.run_jit = run_jit

        def jit_run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._on_launch(jit, args, kwargs) if self._records(jit) else run_jit(jit, *args, **kwargs)

        return jit_run

    def _over_tuners(self, run_tuned: Callable[..., Any]) -> Callable[..., Any]:
        def tuned_run(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._on_tuned(tuner, args, kwargs) if self._records(tuner) else run_tuned(tuner, *args, **kwargs)

        return tuned_run

    def _over_compiled(self, get_launcher: Callable[..., Any]) -> Callable[..., Any]:
        def launcher(compiled: Any, grid: Any) -> Any:
            return (as_launch(compiled, grid) if self._records(compiled) else None) or get_launcher(compiled, grid)

        return launcher


class _Launching(threading.local):
    tuned = 0


_launching = _Launching()


@contextlib.contextmanager
def launching_tuned() -> Iterator[None]:
    """What the calling thread launches meanwhile is a winner, or what stands for one: it isn't bare."""
    _launching.tuned += 1
    try:
        yield
    finally:
        _launching.tuned -= 1


class BareLaunches(FunctionLayers):
    """``before(jit, args, kwargs)`` is called before each launch by ``kernel[grid](...)`` that no tuner of ours makes,
    in whichever thread; what it raises is raised instead of the launch. Launches of compiled functions and of kernels
    that were compiled before (``compiled[grid](...)``) aren't seen."""

    def __init__(self, before: Callable[..., None]) -> None:
        self._before = before
        self._layers = {launching_functions()[0]: self._over_jit}

    def _over_jit(self, run_jit: Callable[..., Any]) -> Callable[..., Any]:
        def jit_run(jit: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not (_launching.tuned or kwargs.get("warmup")):
                self._before(jit, args, kwargs)
            return run_jit(jit, *args, **kwargs)

        return jit_run


PATIENCE_S = 30.0
"""So long a launch waits. The decision may itself wait for what the launching thread does, if that is one of a pool
which was there before: then it goes on, unrecorded."""


class Suspension(FunctionLayers):
    """``missed`` gets the names of kernels that were launched unrecorded in the end. After the :meth:`end` launches are
    no longer held up; those that wait still do, until the :meth:`release`."""

    def __init__(self, missed: list[str]) -> None:

        self._missed, self._over = missed, threading.Event()
        self._helpers: weakref.WeakSet[threading.Thread] = weakref.WeakSet([threading.current_thread()])
        """The deciding thread, those that were started for it, and those that have waited in vain."""

        held_up = {place: functools.partial(self._over_launches, place) for place in launching_functions()}
        self._layers = {(threading.Thread, "start"): self._over_start, **held_up}

    def release(self) -> None:
        """Those that wait go on."""
        self._over.set()

    def wait(self, kernel: str) -> bool:
        """Whether the calling thread is one of the function's own, and has waited for the end."""
        if runs_backward() or (me := threading.current_thread()) in self._helpers:
            return False
        if self._over.wait(PATIENCE_S):
            return True
        self._missed.append(kernel)
        self._helpers.add(me)
        return False

    def _over_start(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def started(thread: threading.Thread) -> None:
            if threading.current_thread() in self._helpers:
                self._helpers.add(thread)
            start(thread)

        return started

    def _over_launches(self, place: FunctionPlace, below: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
            waited = not kwargs.get("warmup") and self.wait(name_of(kernel))  # that compiles, and launches nothing
            return (getattr(*place) if waited else below)(kernel, *args, **kwargs)

        return launch


def name_of(kernel: Any) -> str:
    """The name of what is launched: of a kernel, a tuner of one, or a compiled one; or this name itself."""
    if isinstance(kernel, str):
        return kernel
    if (metadata := getattr(kernel, "metadata", None)) is not None:
        return str(metadata.name)
    base_fn = getattr(kernel, "base_fn", None)
    return kernel_name(kernel) if base_fn is None else str(base_fn.__name__)


class OneHolder:
    """A lock that knows its user. Who lets go of it without having it does nothing, so that an interrupt, which may
    come just before or after it is taken, leaves it right."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # used itself: the condition's ``__enter__`` may be interrupted with it locked
        self._free = threading.Condition(self._lock)
        self.holder: object | None = None

    def take(self, user: object) -> bool:
        """Take it if it is free; whether it was."""
        with self._lock:
            if self.holder is not None:
                return False
            self.holder = user
            return True

    def wait_for(self, user: object) -> None:
        """Take it as soon as no other user has it."""
        with self._lock:
            while self.holder is not None and self.holder is not user:
                self._free.wait()
            self.holder = user

    def let_go(self, user: object) -> None:
        """Let the next have it, if this user has it."""
        with self._lock:
            if self.holder is user:
                self.holder = None
                self._free.notify()
