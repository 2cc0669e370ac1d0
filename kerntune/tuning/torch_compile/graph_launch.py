"""The launches that graphs contain, by token: which tuner, with what made of the operator's arguments."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

import kerntune
from kerntune.errors import UsageError
from kerntune.kernels.source import function_of, is_kernel, jit_of, source_hash
from kerntune.kernels.value_text import text_of
from kerntune.tuning.launch_paths import PlainPath, engine_of
from kerntune.tuning.torch_compile.argument_plan import (
    ArgumentPlan,
    Given,
    KnownValue,
    RebuiltFunction,
    Values,
    is_fixed,
    parts,
    renumbered,
)
from kerntune.tuning.torch_compile.grid_memo import GridMemo

MAX_GRIDS = 256
"""Grid functions of one launch that are kept, by the integers of the call; at the limit all are dropped."""


@dataclass(eq=False)
class GraphLaunch:
    """One call of a tuned kernel in a graph. ``args`` and ``kwargs`` are the kernel's arguments in the call's form;
    ``dtypes`` are those of the graph's tensors. ``layouts``: their strides are the same at every call."""

    tuner: Any
    args: tuple[ArgumentPlan, ...]
    kwargs: tuple[tuple[str, ArgumentPlan], ...]
    grid: ArgumentPlan
    dtypes: tuple[str, ...] = ()
    layouts: bool = False
    grids: dict[tuple[int, ...], Any] = field(default_factory=dict, repr=False)

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
        named = [*zip(self.tuner.arg_names, self.args, strict=False), *self.kwargs]
        settled = (n for n, plan in named if is_fixed(plan) or (isinstance(plan, Given) and plan.kind == "ints"))
        return GridMemo(self.tuner, frozenset(settled), self.layouts)

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The values that are the same at every call, positional ones first; None where there is another at each."""
        plans = (*self.args, *(plan for _, plan in self.kwargs))
        return tuple(plan.value if isinstance(plan, KnownValue) else None for plan in plans)

    @property
    def path(self) -> Any:
        """What launches with kerntune: ``path.front(grid, *args, **kwargs)``; ``front`` is read at each call."""
        engine = engine_of(self.tuner)  # None once kerntune.install() is undone: Triton launches then
        return PlainPath(self.tuner) if engine is None else engine.path

    def with_tensors(self, places: Mapping[int, int]) -> GraphLaunch:
        """The same launch, its tensors handed over in another order."""
        kwargs = tuple((name, renumbered(plan, places)) for name, plan in self.kwargs)
        args = tuple(renumbered(plan, places) for plan in self.args)
        dtypes = {places[old]: dtype for old, dtype in enumerate(self.dtypes)}
        ordered = tuple(dtypes[place] for place in sorted(dtypes))
        return GraphLaunch(self.tuner, args, kwargs, renumbered(self.grid, places), ordered, self.layouts)

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
    told = (*launch.args, *(p for _, p in launch.kwargs), launch.grid)
    texts = [
        kerntune.__version__,
        tuner_text(launch.tuner),
        repr([name for name, _ in launch.kwargs]),
        repr((launch.dtypes, launch.layouts)),
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
