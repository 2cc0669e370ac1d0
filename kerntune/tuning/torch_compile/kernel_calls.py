"""Says what a traced call of a tuned kernel becomes: the plain kernel with its stored winner, or kerntune's operator.

A graph has to know which tensors the launch writes. Grids of :mod:`kerntune.grids` become plain functions, which
torch's tracers follow without settling any size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from kerntune.base.config import COMPILE_FIELDS
from kerntune.base.device import Target
from kerntune.base.warn import warn
from kerntune.capture.launch import config_of
from kerntune.compiling.frontend import lower, request_of
from kerntune.errors import GridError, UsageError
from kerntune.gpu.probe import WITHOUT_GPU
from kerntune.grids.expr import CeilDiv, Const, Expr, Name
from kerntune.grids.grid import Grid, PrecomputedGrid
from kerntune.kernels.compat import torch_private, tuners
from kerntune.kernels.source import jit_of, kernel_name
from kerntune.kernels.specialize import specialize
from kerntune.kernels.writes import access_of
from kerntune.tuning import context
from kerntune.tuning.context import engine_of
from kerntune.tuning.torch_compile.graph_launch import PLAIN, GraphLaunch, launch_operator, register
from kerntune.tuning.torch_compile.launch_arguments import (
    ArgumentPlan,
    ArgumentReader,
    DynamoReader,
    GraphValue,
    KnownValue,
    ListedValues,
    TensorDescription,
    TracingReader,
    Values,
    is_fixed,
    parts,
    winner_of,
)


def is_ours(kernel: Any) -> bool:
    """Whether kerntune launches a kernel, and there is something to choose, or a hook, which torch refuses."""
    if not hasattr(kernel, "configs") or engine_of(kernel) is None:
        return False
    return len(kernel.configs) > 1 or getattr(kernel, "searches", False) or has_hooks(kernel)


def has_hooks(kernel: Any) -> bool:
    """Whether anything of the user's runs around a launch."""
    own = (getattr(kernel, f"user_defined_{name}_hook", False) for name in ("pre", "post"))
    return any(own) or any(config.pre_hook is not None for config in kernel.configs)


@dataclass
class KernelCall:
    """A call of a tuned kernel in a function that is being traced; ``tx`` is None where Dynamo isn't the tracer."""

    hopifier: Any
    variable: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    tx: Any

    def __post_init__(self) -> None:
        self.reader: ArgumentReader = TracingReader() if self.tx is None else DynamoReader(tx=self.tx)

    @property
    def tuner(self) -> Any:
        """The tuner that is called."""
        return self.variable.kernel

    @cached_property
    def name(self) -> str:
        """The kernel's name, for messages."""
        return kernel_name(jit_of(self.tuner))

    def refused(self, why: str) -> Exception:
        """Raises what torch raises for a call that it can't trace: outside of ``fullgraph=True`` a graph break, after
        which the kernel is launched as in eager code."""
        self.hopifier.raise_unsupported(f"kerntune, kernel {self.name}: {why}")
        return UsageError(why)  # torch's method raises

    @cached_property
    def launch(self) -> GraphLaunch:
        """The call, its arguments as plans."""
        if self.variable.grid is None:
            raise self.refused("it is called without a grid; write kernel[grid](...)")
        constants = {p.name for p in jit_of(self.tuner).params if p.is_constexpr}
        names = list(self.tuner.arg_names)
        args = tuple(self._argument(names[i], v, constants) for i, v in enumerate(self.args))
        kwargs = tuple((k, self._argument(k, v, constants.union(COMPILE_FIELDS))) for k, v in self.kwargs.items())
        grid = self._read("its grid", self.variable.grid)
        tensors = [self.reader.examples[GraphValue("tensors", i)] for i in range(len(self.reader.tensors))]
        layouts = all(type(stride) is int for tensor in tensors for stride in tensor.stride())
        return GraphLaunch(self.tuner, args, kwargs, grid, tuple(str(tensor.dtype) for tensor in tensors), layouts)

    def _argument(self, name: str, value: Any, constants: frozenset[str] | set[str]) -> ArgumentPlan:
        if name in constants:
            return KnownValue(self._try(f"constexpr argument {name}", self.reader.constant_of, value))
        return self._read(f"argument {name}", value)

    def _read(self, what: str, value: Any) -> ArgumentPlan:
        found: ArgumentPlan = self._try(what, self.reader.plan_of, value)
        return found

    def _try(self, what: str, read: Callable[[Any], Any], value: Any) -> Any:
        try:
            return read(value)
        except torch_private.NoConstant as exc:
            why = str(exc)
        raise self.refused(
            f"{what} is or closes over {why}, which a graph can't hand over; give tensors, numbers, constants and "
            "functions of them, or launch the kernel in a torch.library.custom_op"
        )

    def examples(self) -> dict[str, Any]:
        """The arguments by name as they are while the graph is made: fake tensors, numbers (symbolic ones too); in the
        kernel's order."""
        named = self.launch.named_plans
        order = [*(name for name in self.tuner.arg_names if name in named), *named]
        return {name: self._example(named[name]) for name in dict.fromkeys(order)}

    def _example(self, plan: ArgumentPlan) -> Any:
        if isinstance(plan, GraphValue):
            return self.reader.examples[plan]
        if isinstance(plan, TensorDescription):
            base = self.reader.examples[plan.tensor]
            return DescribedExample(base, base.dtype, base.shape, base.stride(), plan.block_shape)
        return plan.of(Values((), (), ())) if is_fixed(plan) else plan

    def trace(self) -> Any:
        """Put the call into the graph."""
        if not torch_private.makes_graph(self.tx):
            if torch_private.runs_for_sizes(self.args, self.kwargs):
                return None
            return self.tuner[self.variable.grid](*self.args, **self.kwargs)  # wrap_triton in eager code
        exported = torch_private.exports(self.tx)
        config = winner_of(self.tuner, self.examples(), hints=exported)
        if config is not None and config.pre_hook is None and self._torch_can_launch(exported):
            return self._plain(config, exported)
        if exported:
            hooked = config is not None
            raise self.refused(
                "torch.export, AOTInductor and cpp_wrapper take the winner of the example's arguments into the graph, "
                + ("but its config has a pre_hook, which only Python can call" if hooked else NO_WINNER)
            )
        return self._operator()

    def _torch_can_launch(self, exported: bool) -> bool:
        """Whether torch's own means can launch this: what they would refuse is left to kerntune's operator."""
        if exported:
            return True
        listed = any(isinstance(plan, ListedValues) for plan in self.launch.plans)
        return not listed and all(type(value) in PLAIN for value in self._defaults().values())

    def _defaults(self) -> dict[str, Any]:
        """The kernel's own defaults of what the call leaves out. torch's launch knows none: it would take all tensors
        for written, and call the kernel with an argument too few."""
        layers, jit = tuners.heuristic_layers(self.tuner.fn)
        given = {*self.kwargs, *self.tuner.arg_names[: len(self.args)], *(n for _, values in layers for n in values)}
        given.update(name for config in self.tuner.configs for name in config.all_kwargs())
        return {p.name: p.default for p in jit_of(jit).params if p.has_default and p.name not in given}

    def _plain(self, config: Any, exported: bool) -> Any:
        if exported:
            head = f"kerntune: kernel {self.name} is exported with the config that won for the example's arguments"
            warn(f"{head}, {config}; other sizes are launched with it too")
        plain = tuners.tuner_of_one(self.tuner, config)
        grid = traceable_grid(self.variable.grid, self.tx)
        variable = torch_private.with_kernel(self.hopifier, self.variable, plain, grid)
        known = {name: value for name, value in self._defaults().items() if type(value) in PLAIN}
        defaults = {name: torch_private.as_constant(value, self.tx) for name, value in known.items()}
        return self.hopifier.call_triton_kernel(variable, self.args, {**defaults, **self.kwargs}, self.tx)

    def _operator(self) -> Any:
        reader, op = self.reader, launch_operator()
        written = self._written()
        order = sorted(range(len(reader.tensors)), key=lambda i: (i not in written, i))
        token = register(replace(self.launch, places=tuple(order.index(i) for i in range(len(order)))))
        tensors = [reader.tensors[i] for i in order]
        given = (token, tensors[: len(written)], tensors[len(written) :], list(reader.ints), list(reader.floats))
        if self.tx is None:
            return op(*given)
        torch_private.output_code(self.tx, op, given)
        return torch_private.constant_variable(None)

    def _written(self) -> frozenset[int]:
        named = self.launch.named_plans
        written = [named[name] for name in written_names(self.tuner, self.examples())]
        inside = [part for plan in written for part in parts(plan)]
        return frozenset(part.index for part in inside if isinstance(part, GraphValue) and part.kind == "tensors")


NO_WINNER = "but none is stored for these: call the function once on them first (or run with the cache that has it)"


class DescribedExample(NamedTuple):
    """A tensor descriptor while the graph is made, as :func:`kerntune.kernels.source.text_of` reads one."""

    base: Any
    dtype: Any
    shape: Any
    strides: Any
    block_shape: tuple[int, ...]


def traceable_grid(grid: Any, tx: Any) -> Any:
    """A grid that torch's tracers can follow: of those of :mod:`kerntune.grids` a function, any other as it is."""
    found = torch_private.object_of_kind(grid, Grid)
    return grid if found is None else torch_private.as_grid(as_function(found), tx)


SOME_SIZE = 1024
"""Stands for a number that isn't known while a graph is made: neither 0 nor 1, which are compiled as constants."""


class Pointer:
    """A tensor as far as Triton's front end asks for it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    @staticmethod
    def data_ptr() -> int:
        """No address: aligned."""
        return 0


def written_names(tuner: Any, examples: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tensor arguments that some config's kernel, or a hook, may write. All of them where that can't be
    seen: what is declared written without being so costs at most a copy, the reverse a wrong result."""
    tensors = frozenset(name for name, value in examples.items() if _is_tensor(value))
    if has_hooks(tuner):
        return tensors
    configs = tuner.variety() if hasattr(tuner, "variety") else tuner.configs
    if configs is None:
        return tensors
    words = {name: _stand_in(value) for name, value in examples.items()}
    found = frozenset(tuner.reset_to_zero or ())
    try:
        for config in _unlike(configs):
            found |= _written_with(tuner, {**words, **config.all_kwargs()})
    except Exception:  # an argument that only a running call has, or code that this target can't compile
        return tensors
    return found & tensors


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _stand_in(value: Any) -> Any:
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        from triton.tools.tensor_descriptor import TensorDescriptor

        count = len(value.block_shape)
        strides = [SOME_SIZE] * (count - 1) + [1]
        return TensorDescriptor(Pointer(value.base.dtype), [SOME_SIZE] * count, strides, list(value.block_shape))
    if _is_tensor(value):
        return Pointer(value.dtype)
    return SOME_SIZE if type(value).__name__ == "SymInt" else 0.5 if type(value).__name__ == "SymFloat" else value


def _unlike(configs: Sequence[Any]) -> list[Any]:
    """One config of each kind: block sizes change no access, flags and counts of one may."""
    return list({_kind(config): config for config in reversed(configs)}.values())


def _kind(config: Any) -> str:
    plain = config_of(config, "").kwargs
    return repr(sorted((k, "above 1" if type(v) is int and v > 1 else repr(v)) for k, v in plain.items()))


def _written_with(tuner: Any, words: dict[str, Any]) -> frozenset[str]:
    layers, jit = tuners.heuristic_layers(tuner.fn)
    words = tuners.heuristic_values(layers, words)
    backend = context.this_gpu()
    target = Target.parse(WITHOUT_GPU) if backend is None else backend.spec.target
    launch = specialize(jit_of(jit), (), words, target)
    types = {name: str(kind) for name, kind in launch.signature.items()}
    pointers = [name for name, kind in types.items() if kind.startswith("*") or "tensordesc" in kind]
    access = access_of(lower(request_of(launch)).job.ir, target)
    if access.pointer_count != len(pointers):
        return frozenset(pointers)
    return frozenset(pointers[i] for i in access.writes)


Meta = Mapping[str, Any]
GridOfMeta = Callable[[Meta], Any]


def as_function(grid: Grid) -> GridOfMeta:
    """A grid as a function of a launch's arguments. What a grid checks of its values is checked where it is called
    outside of graphs: here sizes may be symbols."""
    if not isinstance(grid, PrecomputedGrid):
        return _triple(grid.axes)
    choices = [(choice.config, _triple(choice.grid.axes)) for choice in grid.choices]

    def chosen(meta: Meta) -> Any:
        for config, triple in choices:
            if all(meta.get(name) == value for name, value in config):
                return triple(meta)
        raise GridError("no grid was computed for these arguments")

    return chosen


def _triple(axes: tuple[Expr, Expr, Expr]) -> GridOfMeta:
    x, y, z = map(_function, axes)
    return lambda meta: (x(meta), y(meta), z(meta))


def _function(expr: Expr) -> GridOfMeta:
    if isinstance(expr, Const):
        number = expr.value
        return lambda meta: number
    if isinstance(expr, Name):
        name, default = expr.name, expr.default
        return (lambda meta: meta[name]) if default is None else (lambda meta: meta.get(name, default))
    if isinstance(expr, CeilDiv):
        numel, block = _function(expr.numel), _function(expr.block)
        return lambda meta: -(-numel(meta) // block(meta))
    items = [_function(item) for item in expr.items]
    combine: Callable[[list[Any]], Any] = type(expr).combine
    return lambda meta: combine([item(meta) for item in items])
