"""A tuner's launches: the long way once for each kind of call, then straight to the driver.

What watches every launch is asked only while something does. A config's hook or ``@triton.heuristics`` may change what
is launched: such a launch takes two steps.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

from kerntune.kernels.compat import launch_environment, launcher, triton_compiler, tuners
from kerntune.kernels.dispatch.codegen import (
    ABSENT_PART,
    Form,
    LaunchArgument,
    Needs,
    key_text,
    launch_text,
    make,
    parameters_of,
    part_of,
)
from kerntune.kernels.dispatch.native import MAX_PARAMETERS, native_front


@dataclass(frozen=True)
class ObservedLaunch:
    """A launch that is about to be made: the tuner, its key of the call, the config, and the call's arguments with the
    grid among the keywords."""

    tuner: Any
    key: Any
    config: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self.tuner.base_fn.__name__)

    @property
    def named(self) -> dict[str, Any]:
        """All arguments by name, the config's too."""
        given = dict(zip(self.tuner.arg_names, self.args, strict=False))
        return {**given, **self.kwargs, **self.config.all_kwargs()}

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The number of blocks; None where the grid function needs what only Triton computes at the launch."""
        grid = self.kwargs.get("grid")
        try:
            found = grid(self.named) if callable(grid) else grid
            return tuple(int(n) for n in (found if isinstance(found, (tuple, list)) else (found,)))
        except Exception:  # a user's function: Triton's own call of it decides what happens
            return None


class Observer(Protocol):
    """Something that watches launches."""

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        """Make the launch, ``run()``, exactly once, and return its result."""


_LOCK = threading.Lock()
_observers: tuple[Observer, ...] = ()
_paths: weakref.WeakSet[Any] = weakref.WeakSet()


def observers() -> tuple[Observer, ...]:
    """Those that watch now; while there are any, every launch takes the long way and none is prepared."""
    return _observers


def register(path: Any) -> None:
    """A tuner's prepared launches: an observer has them dropped (``drop()``)."""
    _paths.add(path)


def watch(observer: Observer) -> None:
    """From now on ``observer`` sees every launch: what is prepared is dropped, also what users have stored."""
    global _observers
    with _LOCK:
        _observers = (*_observers, observer)
        paths = list(_paths)
    for path in paths:
        path.drop()


def unwatch(observer: Observer) -> None:
    """From now on it sees none; the next launch of each kind is prepared again."""
    global _observers
    with _LOCK:
        _observers = tuple(o for o in _observers if o is not observer)


Layer = tuple[Sequence[str], Mapping[str, Callable[[dict[str, Any]], Any]]]
"""A ``@triton.heuristics``: the names of positional arguments, and its functions by the name that they set."""


class KernelWithConfig:
    """A kernel with its config, whose hook has already run, in the place of a tuner."""

    def __init__(self, jit: Any, words: Mapping[str, Any]) -> None:
        self.fn, self.arg_names = jit, jit.arg_names
        self.best_config = SimpleNamespace(pre_hook=None, all_kwargs=lambda: words)
        self.configs = [self.best_config]
        self.cache: dict[Any, Any] = {}

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Launch through Triton."""
        return self.fn.run(*args, **{**self.best_config.all_kwargs(), **kwargs})


@dataclass(frozen=True)
class Stage:
    """The first step for one config; ``path`` launches the result."""

    config: Any
    layers: Sequence[Layer]
    names: Sequence[str]
    path: Any
    words: Mapping[str, Any]

    def launch(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As ``Autotuner.run`` once the config is known, then ``Heuristics.run``: each hook and function gets the same
        arguments as from Triton."""
        launching = {"grid": grid, "warmup": False}
        if self.config.pre_hook is not None:
            self.config.pre_hook({**dict(zip(self.names, args, strict=False)), **launching, **kwargs, **self.words})
        for names, values in self.layers:
            for name, value in values.items():
                shown = {**dict(zip(names, args, strict=False)), **launching, **self.words, **kwargs}
                kwargs[name] = value(shown)
        return self.path.launch(grid, *args, **kwargs)


MAX_ENTRIES = 4096
"""Entries of one form, limited because a key argument may have a new value at each call. At the limit all are dropped,
and made again when needed."""

MAX_FORMS = 64

ABSENT = object()
"""The value of a parameter that a call leaves out."""


class LaunchOutcome(NamedTuple):
    """The outcome of the long way: the launch's result, and the config that was chosen before (None if it was tuned in
    this call, or launched by something else)."""

    result: Any
    config: Any = None


Slow = Callable[[Sequence[Any], dict[str, Any]], LaunchOutcome]


@dataclass(frozen=True)
class Prepared:
    """A form's functions, and its entries by key."""

    form: Form
    settings: Any
    launch: Callable[..., Any]
    key: FunctionType
    table: dict[Any, tuple[Any, ...]]


class LaunchPath:
    """How one tuner launches. ``launch(grid, *args, **kwargs)`` is the launch; read this attribute at each call, since
    it changes.

    ``slow(args, kwargs)`` is the long way, with ``grid`` and ``warmup`` among the keywords: it finds the config, tunes
    if necessary, and launches through Triton. ``needs`` is what the config depends on besides the arguments' types.

    An entry is made after a launch that took the long way, from what Triton itself launched then, and it is used while
    Triton's and the tuner's caches still hold the same. Any thread may call: an entry is added when it is complete.
    """

    def __init__(self, tuner: Any, slow: Slow, needs: Needs) -> None:
        self._tuner, self._slow, self._needs = tuner, slow, needs
        self._forms: dict[Any, list[Prepared]] = {}
        self._stages: dict[int, Stage] = {}
        self.launch: Callable[..., Any] = self._first
        register(self)

    def drop(self) -> None:
        """Drop all prepared launches, also those that the user has stored (``launch = kernel[grid]``)."""
        self.launch = self._first
        for prepared in [p for several in list(self._forms.values()) for p in several]:
            prepared.table.clear()
        self._forms.clear()
        self._stages.clear()

    def retire(self) -> None:
        """Drop all, and from now on pass each call to the tuner's ``run``, looked up at the call."""
        tuner = self._tuner
        self._slow = lambda args, kwargs: LaunchOutcome(tuner.run(*args, **kwargs))
        self.drop()

    def _first(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._launch(grid, args, self._in_order(kwargs))

    def _miss(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that no prepared launch could do; the parameters that it left out are among the arguments."""
        present = tuple(a for a in args if a is not ABSENT)
        return self._launch(grid, present, self._in_order({k: v for k, v in kwargs.items() if v is not ABSENT}))

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keywords in the kernel's order: the tuner's key lists arguments, and a prepared launch doesn't have the order
        in which they were given. Triton tunes again for another order."""
        names = self._tuner.arg_names
        return {**{name: kwargs[name] for name in names if name in kwargs}, **kwargs} if kwargs else kwargs

    def _launch(self, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        for prepared in () if observers() else self._forms.get(_classes(args, kwargs), ()):
            if prepared.key(*args, **kwargs) in prepared.table:
                self.launch = prepared.launch
                return prepared.launch(grid, *args, **kwargs)
        ran = self._slow(args, {"grid": grid, "warmup": False, **kwargs})
        if not observers() and ran.config is not None and triton_compiler.is_compiled_kernel(ran.result):
            self._add_entry(ran, args, kwargs)
        return ran.result

    def _add_entry(self, ran: LaunchOutcome, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        prepared = self._prepared(args, kwargs)
        if prepared is None or (key := prepared.key(*args, **kwargs)) is None:
            return
        entry = self._entry(prepared.form, ran, args, kwargs)
        if entry is None:
            return
        if len(prepared.table) >= MAX_ENTRIES:
            prepared.table.clear()
        prepared.table[key] = entry
        self.launch = prepared.launch

    def _prepared(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Prepared | None:
        """The functions of the call's form, written now if it is new; None if it can have none."""
        form = self._form(args, kwargs)
        if form is None:
            return None
        known = self._forms.setdefault(_classes(args, kwargs), [])
        settings = launch_environment.launch_settings()
        for prepared in list(known):
            if prepared.form == form and prepared.settings == settings:
                return prepared
        known[:] = [prepared for prepared in known if prepared.form != form]
        if len(self._forms) > MAX_FORMS:
            self.drop()
            known = self._forms.setdefault(_classes(args, kwargs), [])
        written = self._write(form)
        if written is not None:
            known.append(written)
        return written

    def _write(self, form: Form) -> Prepared | None:
        _, jit = tuners.heuristic_layers(self._tuner.fn)
        surroundings = launch_environment.launch_surroundings(jit)
        if surroundings is None:
            return None
        table: dict[Any, tuple[Any, ...]] = {}
        names = {
            **surroundings,
            "kt_tuner": self._tuner,
            "kt_fn": self._tuner.fn,
            "kt_table": table,
            "kt_absent": ABSENT,
            "kt_miss": self._miss,
            "kt_no_cache": ({},),
            "kt_globals_kept": launch_environment.globals_kept,
        }
        launch, key = make(launch_text(form), "kt_prepared", names), make(key_text(form), "kt_key", names)
        quick = native_front(form, launch, names) or launch
        return Prepared(form, launch_environment.launch_settings(), quick, key, table)

    def _form(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Form | None:
        layers, jit = tuners.heuristic_layers(self._tuner.fn)
        params = parameters_of(jit) if hasattr(jit, "params") else None
        if params is None or len(args) > len(params) or not set(kwargs) <= {p.name for p in params}:
            return None
        single = len(self._tuner.configs) == 1
        staged = bool(layers) or any(config.pre_hook is not None for config in self._tuner.configs)
        one = launch_environment.has_one_device()
        needs = replace(Needs() if single else self._needs, binary=not staged, one_device=one)
        arguments = []
        for i, param in enumerate(params):
            variable = f"kt_{i}" if i < len(args) else param.name
            value = args[i] if i < len(args) else kwargs.get(param.name, ABSENT)
            part = ABSENT_PART if value is ABSENT else part_of(value, param, variable, needs)
            if part is None:
                return None
            arguments.append(LaunchArgument(param.name, variable, part, param.is_constexpr))
        return Form(
            positional=len(args),
            keywords=tuple(kwargs),
            arguments=tuple(arguments),
            single=single,
            staged=staged,
            one_device=one,
            settings=launch_environment.settings_changed(launch_environment.launch_settings()),
            layouts=needs.layouts,
            globals=bool(jit.used_global_vals),
        )

    def _entry(
        self, form: Form, ran: LaunchOutcome, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """What a launch needs that isn't in the call (:data:`~kerntune.kernels.dispatch.codegen.ENTRY`)."""
        tuner, kernel = self._tuner, ran.result
        named = dict(zip(tuner.arg_names, args, strict=False))
        choice = None if form.single else tuners.autotuner_key(tuner, named, kwargs)
        if not (form.single or tuner.cache.get(choice) is ran.config):
            return None
        if form.staged:
            return (self._stage(ran.config), ran.config, choice)
        slot, rest = _slot_of(tuner.fn, kernel), _rest(form, tuner.fn, ran.config)
        if slot is None or rest is None:
            return None
        direct = launcher.direct_values(kernel) or (None,) * len(launcher.DIRECT_NAMES)
        plan = launcher.driver_plan(kernel, MAX_PARAMETERS)
        return (kernel, ran.config, choice, slot, rest, kernel.function, kernel.packed_metadata, *direct, plan)

    def _stage(self, config: Any) -> Stage:
        if id(config) not in self._stages:
            layers, jit = tuners.heuristic_layers(self._tuner.fn)
            words = config.all_kwargs()
            fixed = KernelWithConfig(jit, words)

            def slow(args: Sequence[Any], kwargs: dict[str, Any]) -> LaunchOutcome:
                return LaunchOutcome(fixed.run(args, kwargs), fixed.best_config)

            path = LaunchPath(fixed, slow, Needs())
            self._stages[id(config)] = Stage(config, layers, self._tuner.arg_names, path, words)
        return self._stages[id(config)]


def _classes(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """A key that differs for most calls of different forms."""
    return (tuple(map(type, args)), tuple(kwargs), tuple(map(type, kwargs.values())))


def _slot_of(jit: Any, kernel: Any) -> Any:
    """The key under which Triton keeps a compiled kernel for some device."""
    caches = [cache[0] for cache in list(jit.device_caches.values())]
    return next((key for cache in caches for key, value in list(cache.items()) if value is kernel), None)


def _rest(form: Form, jit: Any, config: Any) -> dict[str, Any] | None:
    """Values of the parameters that the call leaves out: the config's, else the defaults."""
    words = config.all_kwargs()
    given = {a.name for a in form.arguments if a.given}
    if given & set(words):
        return None
    rest = {}
    for param in jit.params:
        if param.name in given:
            continue
        if param.name not in words and not param.has_default:
            return None
        rest[param.name] = words.get(param.name, param.default)
    return rest
