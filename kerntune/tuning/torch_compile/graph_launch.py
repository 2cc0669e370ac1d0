"""Has the launches that graphs contain, by token, and the operator that stands in a graph for one.

A launch knows its tuner and what is made of the operator's arguments. The grids of one launch are remembered by the
integers that the graph hands over. A call of a grid function takes 2 to 3 µs, most of it for the dictionary of all
arguments that it gets; Inductor works a grid out in the launcher's own code. A remembered grid is a tuple, and holds
while the call's winner is the config that it was made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

import kerntune
from kerntune.errors import UsageError
from kerntune.grids.grid import Grid
from kerntune.kernels.compat import tuners
from kerntune.kernels.source import function_of, is_kernel, jit_of, source_hash, text_of
from kerntune.tuning.context import PlainPath, engine_of
from kerntune.tuning.torch_compile.launch_arguments import (
    ArgumentPlan,
    GraphValue,
    KnownValue,
    RebuiltFunction,
    Values,
    is_fixed,
    parts,
)

MAX_GRIDS = 256
"""Grid functions of one launch that are kept, by the integers of the call; at the limit all are dropped."""


@dataclass(eq=False)
class GraphLaunch:
    """One call of a tuned kernel in a graph. ``args`` and ``kwargs`` are the kernel's arguments in the call's form;
    ``dtypes`` are those of the graph's tensors. ``layouts``: their strides are the same at every call. ``places`` says
    of each tensor which one it is of those that the operator is called with."""

    tuner: Any
    args: tuple[ArgumentPlan, ...]
    kwargs: tuple[tuple[str, ArgumentPlan], ...]
    grid: ArgumentPlan
    dtypes: tuple[str, ...] = ()
    layouts: bool = False
    places: tuple[int, ...] = ()
    grids: dict[tuple[int, ...], Any] = field(default_factory=dict)

    def run(self, tensors: Sequence[Any], ints: Sequence[int], floats: Sequence[float]) -> None:
        """Launch, as ``kernel[grid](...)`` does: the winner for this call's key, which is found first if need be."""
        values = Values(tensors, ints, floats)
        words = {name: plan.of(values) for name, plan in self.kwargs}
        self.tuner[self.grid.of(values)](*(plan.of(values) for plan in self.args), **words)

    @cached_property
    def grid_of(self) -> Callable[..., Any]:
        """``grid_of(*ints)``: the grid for the graph's integers, remembered, or a function that makes it."""
        return self.memo.finder(self._new_grid)

    def _new_grid(self, ints: tuple[int, ...]) -> Any:
        made = self.grids.get(ints)
        if made is None:
            if len(self.grids) >= MAX_GRIDS:
                self.grids.clear()
            grid = self.grid.of(Values((), ints, ()))
            made = self.grids[ints] = self.memo.noting(grid, ints) if callable(grid) else grid
        return made

    def made_grid(self, tensors: Sequence[Any], ints: Sequence[int], floats: Sequence[float]) -> Any:
        """The grid for these values, made at each call: it closes over tensors."""
        return self.grid.of(Values(tensors, ints, floats))

    @cached_property
    def memo(self) -> GridMemo:
        """Grids that are remembered."""
        named = self.named_plans.items()
        settled = (n for n, plan in named if is_fixed(plan) or (isinstance(plan, GraphValue) and plan.kind == "ints"))
        return GridMemo(self.tuner, frozenset(settled), self.layouts)

    @property
    def plans(self) -> tuple[ArgumentPlan, ...]:
        """How the kernel's arguments are made, positional ones first."""
        return (*self.args, *(plan for _, plan in self.kwargs))

    @property
    def named_plans(self) -> dict[str, ArgumentPlan]:
        """The same by the arguments' names."""
        return dict([*zip(self.tuner.arg_names, self.args, strict=False), *self.kwargs])

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The values that are the same at every call, positional ones first; None where there is another at each."""
        return tuple(plan.value if isinstance(plan, KnownValue) else None for plan in self.plans)

    @property
    def path(self) -> Any:
        """What launches with kerntune: ``path.launch(grid, *args, **kwargs)``; ``launch`` is read at each call."""
        engine = engine_of(self.tuner)  # None once kerntune.install() is undone: Triton launches then
        return PlainPath(self.tuner) if engine is None else engine.path

    def in_order(self, written: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """The tensors that the operator is called with, as the plans number them."""
        given = [*written, *read]
        return [given[place] for place in self.places]

    @property
    def fixed_grid(self) -> Any:
        """The grid, where it is the same object at every call."""
        return self.grid.of(Values((), (), ()))


_launches: dict[str, GraphLaunch] = {}


def register(launch: GraphLaunch) -> str:
    """The token of a launch: a hash of all that code generated for it depends on, and of the tuner's content, so that
    torch's caches hold it in their keys. Another tuner of the same content has another token."""
    base = token = "kt" + _digest(launch)
    count = 1
    while token in _launches and _launches[token].tuner is not launch.tuner:
        count += 1
        token = f"{base}_{count}"
    _launches[token] = launch
    return token


def launch_of(token: str) -> GraphLaunch:
    """The launch of a token. :class:`UsageError` in a process that hasn't traced it."""
    found = _launches.get(token)
    if found is None:
        raise UsageError(
            f"a compiled graph asks kerntune for the launch {token}, which this process has not traced: compile the "
            "function in this process (torch.compile), or export it once its winners are stored"
        )
    return found


def _digest(launch: GraphLaunch) -> str:
    told = (*launch.plans, launch.grid)
    texts = [
        kerntune.__version__,
        tuner_text(launch.tuner),
        repr([name for name, _ in launch.kwargs]),
        repr((launch.dtypes, launch.layouts, launch.places)),
        *map(_plan_text, told),
    ]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def tuner_text(tuner: Any) -> str:
    """What a tuner does, as a text that is equal in every process: kernel, configs, key, hooks."""
    source = source_hash(jit_of(tuner)) if is_kernel(tuner) else code_text(function_of(tuner).__code__)
    hooks = [getattr(tuner, name, None) for name in ("pre_hook", "post_hook", "early_config_prune", "perf_model")]
    hooks += [config.pre_hook for config in tuner.configs]
    told = (type(tuner).__qualname__, source, list(map(str, tuner.configs)), list(tuner.keys), tuner.reset_to_zero)
    return repr((*told, tuner.restore_value, [value_text(hook) for hook in hooks]))


def _plan_text(plan: ArgumentPlan) -> str:
    texts = []
    for part in parts(plan):
        if isinstance(part, KnownValue):
            texts.append(value_text(part.value))
        elif isinstance(part, RebuiltFunction):
            texts.append(code_text(part.code))
        else:
            texts.append(repr(part) if not is_fixed(part) else type(part).__name__)
    return "; ".join(texts)


def value_text(value: Any, above: tuple[int, ...] = ()) -> str:
    """A value's text; of functions that of their code and of what they close over. An object that nothing is known of
    is distinguished by its identity, which a registered launch keeps."""
    function = getattr(value, "__func__", value)
    if id(function) in above:
        return "itself"
    if isinstance(function, FunctionType):
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        bound = getattr(value, "__self__", None)
        inside = [value_text(one, (*above, id(function))) for one in (*held, *([] if bound is None else [bound]))]
        return repr((code_text(function.__code__), inside))
    text = text_of(value)
    return f"{text}@{id(value)}" if text == type(value).__name__ else text


def code_text(code: CodeType) -> str:
    """A function's code without addresses."""
    constants = [code_text(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_name, code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars))


MAX_REMEMBERED = 4096
"""Grids of one launch; at the limit all are dropped."""


class GlobalRead(NamedTuple):
    """A global name that a grid reads, and the object that it had."""

    scope: dict[str, Any]
    name: str
    value: Any


class RememberedGrid(NamedTuple):
    """A grid, the config that it holds for, and the globals that it was made of."""

    key: tuple[Any, ...]
    config: Any
    grid: tuple[int, ...]
    reads: tuple[GlobalRead, ...]


@dataclass(eq=False)
class GridMemo:
    """The grids of one tuner's launches; ``fixed`` are the arguments that can't differ among calls with equal
    integers. ``layouts``: tensors' strides can't differ either, on which a heuristic's winner depends."""

    tuner: Any
    fixed: frozenset[str]
    layouts: bool = False
    known: dict[tuple[int, ...], RememberedGrid] = field(default_factory=dict)

    def finder(self, otherwise: Callable[[tuple[int, ...]], Any]) -> Callable[..., Any]:
        """``f(*ints)``: the grid of a call, if the winner is still the config that it was made for and no global has
        changed; else what ``otherwise(ints)`` gives. It runs at each launch: one function, few look-ups."""
        remembered, tuner = self.known.get, self.tuner

        def find(*ints: int) -> Any:
            found = remembered(ints)
            if found is not None:
                key, config, grid, reads = found
                if tuner.cache.get(key) is config:
                    for scope, name, value in reads:
                        if scope.get(name) is not value:
                            return otherwise(ints)
                    return grid
            return otherwise(ints)

        return find

    def noting(self, grid: Callable[[Any], Any], ints: tuple[int, ...]) -> Callable[[Any], Any]:
        """The grid function itself, which also remembers what it gives for the call's winner."""
        if (hasattr(self.tuner, "tuning_key") and not self.layouts) or reads_of(grid) is None:
            return grid

        def noted(meta: Mapping[str, Any]) -> Any:
            config, key = self._winner(meta)
            if config is None:
                return grid(meta)
            seen, reads = NotingMapping(meta), reads_of(grid)
            try:
                made = tuple(grid(seen))
            except Exception:  # a grid that needs a dictionary
                return grid(meta)
            if reads is not None and seen.read <= self.fixed | set(config.kwargs):
                self._keep(ints, RememberedGrid(key, config, made, reads))
            return made

        return noted

    def _winner(self, meta: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        arguments = {name: meta[name] for name in self.tuner.arg_names if name in meta}
        listed = self.tuner.variety() if hasattr(self.tuner, "tuning_key") else self.tuner.configs
        config_names = set(listed[0].kwargs) if listed else set()
        key = tuners.autotuner_key(self.tuner, {k: v for k, v in arguments.items() if k not in config_names}, {})
        config = self.tuner.cache.get(key)
        if config is None or any(meta.get(name) != value for name, value in config.kwargs.items()):
            return None, key
        return config, key

    def _keep(self, ints: tuple[int, ...], found: RememberedGrid) -> None:
        if len(self.known) >= MAX_REMEMBERED:
            self.known.clear()
        self.known[ints] = found


class NotingMapping(Mapping[str, Any]):
    """A launch's arguments, and which of them were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self.read.update(self._values)
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


PURE_MODULES = ("triton", "math", "builtins", "operator")
"""Modules whose functions a grid may call and still be a function of its argument alone."""

PLAIN = (bool, int, float, str, type(None))
"""Types of values of which a grid may be made, another being another object, and that a graph can have as they are."""


def reads_of(grid: Any) -> tuple[GlobalRead, ...] | None:
    """The globals that a grid is made of, besides its argument and the integers that it closes over, with which it is
    made anew. None where it may answer otherwise each time: it reads what can change in place, or calls it."""
    if isinstance(grid, Grid):
        return ()
    found: dict[tuple[int, str], GlobalRead] = {}
    return tuple(found.values()) if isinstance(grid, FunctionType) and _read(grid, found, closed=True) else None


def _read(function: FunctionType, found: dict[tuple[int, str], GlobalRead], closed: bool) -> bool:
    """Add what a function reads, and the functions that it calls; whether all of it is known. Cells of the grid's own
    function are made with it (``closed``), those of another can be bound anew."""
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    if held and not closed:
        return False
    for value in held:
        if type(value) is not int and not _is_steady(value) and not _is_read(value, found):
            return False
    scope = function.__globals__
    for name in _names(function.__code__):
        if name not in scope or _is_steady(value := scope[name]) or (id(scope), name) in found:
            continue
        found[id(scope), name] = GlobalRead(scope, name, value)
        if type(value) not in PLAIN and not _is_read(value, found):
            return False
    return True


def _is_read(value: Any, found: dict[tuple[int, str], GlobalRead]) -> bool:
    """Whether it is a function of the user's, read in its turn; its defaults are no constants."""
    plain = isinstance(value, FunctionType) and not value.__defaults__ and not value.__kwdefaults__
    return plain and _read(value, found, closed=False)


def _names(code: CodeType) -> Iterator[str]:
    """The global names of code and of what is nested in it; attributes' names are among them."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_steady(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in PURE_MODULES
    if callable(value):
        return str(getattr(value, "__module__", "")).partition(".")[0] in PURE_MODULES
    return False


NAME = "kerntune::launch"

SCHEMA = "launch(str token, Tensor(a!)[] written, Tensor[] read, SymInt[] ints, Scalar[] floats) -> ()"
"""``written`` are the tensors that the kernel may change: torch moves no operation across such a call."""

WRITTEN_AS = "torch.ops.kerntune.launch.default"
"""Its name in Inductor's tables."""

NO_GRADIENT = ("Autograd", "ADInplaceOrView")
"""Dispatch keys that it has no part in, as torch's own operator for Triton kernels: a launch has no gradient."""

_library: list[Any] = []


@lru_cache(maxsize=1)
def launch_operator() -> Any:
    """The operator, defined when it is first asked for."""
    library = torch.library.Library("kerntune", "FRAGMENT")
    library.define(SCHEMA, tags=(torch.Tag.needs_exact_strides,))
    library.impl("launch", _launch, "CompositeExplicitAutograd")
    for key in NO_GRADIENT:
        library.impl("launch", torch.library.fallthrough_kernel, key)
    torch.library.register_fake(NAME, lambda token, written, read, ints, floats: None, lib=library)
    _library.append(library)  # the operator lives as long as this
    return torch.ops.kerntune.launch.default


def _launch(
    token: str, written: Sequence[Any], read: Sequence[Any], ints: Sequence[int], floats: Sequence[float]
) -> None:
    launch = launch_of(token)
    launch.run(launch.in_order(written, read), ints, floats)
