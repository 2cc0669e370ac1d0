"""Every private part of torch's compiler that kerntune touches, and which of them this torch lacks.

torch 2.11 to 2.15 have all of :data:`PARTS`. Where one is missing, what needs it is not installed, and says so by name:
a user's compilation never fails of it. ``tests/kernels/compat/test_torch_private.py`` names what moved.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from kerntune.kernels.compat.private_name import PrivateName, lacking_parameters


@dataclass(frozen=True)
class PrivatePart(PrivateName):
    """What a private name is for; of a function also the names of the parameters that are used."""

    user: str
    """Where kerntune uses it."""

    breaks: str
    """What no longer works without it."""

    parameters: tuple[str, ...] = ()


TRACE = "kerntune/tuning/torch_compile/kernel_calls.py"
VALUES = "kerntune/tuning/torch_compile/argument_reader.py"
CODE = "kerntune/tuning/torch_compile/generated_calls.py"
KEYS = "kerntune/tuning/torch_compile/hook_in.py"
POOLS = "kerntune/tuning/private_pools.py"

WRAP = "torch._higher_order_ops.triton_kernel_wrap"
FUNCTIONS = "torch._dynamo.variables.functions"
WRAPPER = "torch._inductor.codegen.wrapper"
AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"
TREES = "torch._inductor.cudagraph_trees"
TUNED = "tuned kernels in compiled graphs are left to Inductor, or refused by torch"

GRAPH_PARTS = (
    PrivatePart(WRAP, "TritonHOPifier.init_variable", TRACE, TUNED, ("variable", "kernel", "kernel_idx", "grid")),
    PrivatePart(WRAP, "TritonHOPifier.call_triton_kernel", TRACE, TUNED, ("variable", "args", "kwargs", "tx")),
    PrivatePart(WRAP, "TritonHOPifier.raise_unsupported", TRACE, TUNED, ("msg",)),
    PrivatePart(WRAP, "TracingTritonHOPifier", TRACE, "tuned kernels in triton_op are left to Inductor"),
    PrivatePart(WRAP, "kernel_side_table.add_kernel", TRACE, TUNED, ("kernel",)),
    PrivatePart(FUNCTIONS, "TritonKernelVariable", VALUES, TUNED),
    PrivatePart(FUNCTIONS, "TMADescriptorStableVariable.to_metadata", VALUES, "tensor descriptors are refused"),
    PrivatePart(FUNCTIONS, "UserFunctionVariable.bind_args", VALUES, TUNED, ("args", "kwargs")),
    PrivatePart(FUNCTIONS, "UserFunctionVariable.get_code", VALUES, TUNED),
    PrivatePart(FUNCTIONS, "UserFunctionVariable.get_globals", VALUES, TUNED),
    PrivatePart(FUNCTIONS, "NestedUserFunctionVariable.bind_args", VALUES, TUNED, ("args", "kwargs")),
    PrivatePart(FUNCTIONS, "NestedUserFunctionVariable.get_code", VALUES, TUNED),
    PrivatePart(FUNCTIONS, "NestedUserFunctionVariable.get_globals", VALUES, TUNED),
    PrivatePart("torch._dynamo.side_effects", "SideEffects.load_cell", VALUES, TUNED, ("cellvar",)),
    PrivatePart("torch._dynamo.variables.base", "VariableTracker.is_tensor", VALUES, TUNED),
    PrivatePart("torch._dynamo.variables.base", "VariableTracker.realize", VALUES, TUNED),
    PrivatePart("torch._dynamo.variables.base", "VariableTracker.is_python_constant", VALUES, TUNED),
    PrivatePart("torch._dynamo.variables.tensor", "SymNodeVariable.evaluate_expr", VALUES, TUNED),
    PrivatePart("torch._dynamo.guards", "GuardBuilder.ID_MATCH", VALUES, TUNED),
    PrivatePart("torch._dynamo.guards", "install_guard", VALUES, TUNED),
    PrivatePart(
        "torch._inductor.codegen.custom_extern_kernel_codegen",
        "CUSTOM_EXTERN_KERNEL_CODEGEN",
        CODE,
        "generated code calls the operator through torch's dispatcher: 4 to 12 us more a call",
    ),
    PrivatePart("torch._inductor.codegen.custom_extern_kernel_codegen", "CustomCodegen", CODE, TUNED),
    PrivatePart("torch.fx.experimental.proxy_tensor", "get_proxy_mode", TRACE, TUNED),
    PrivatePart("torch._inductor.ir", "FallbackKernel.codegen_args", CODE, TUNED),
    PrivatePart(WRAPPER, "PythonWrapperCodegen.val_to_arg_str", CODE, TUNED, ("s",)),
    PrivatePart("torch._inductor.virtualized", "V", CODE, "AOTInductor and cpp_wrapper aren't recognised"),
    PrivatePart(
        AOT_CACHE,
        "AOTAutogradCacheDetails.get_triton_source_codes_from_gm",
        KEYS,
        "a triton_op traced with kerntune would share AOTAutograd's cache entries with one traced without",
        ("gm",),
    ),
    PrivatePart("torch._guards", "detect_fake_mode", TRACE, "wrap_triton outside of graphs is refused", ("inputs",)),
    PrivatePart(AOT_CACHE, "BypassAOTAutogradCache", KEYS, "the same"),
    PrivatePart("torch._library.triton", "triton_ops_to_kernels", KEYS, "the same"),
)
"""For kernels in compiled graphs."""

POOL_PARTS = (
    PrivatePart(TREES, "get_manager", POOLS, "tuning in a CUDA graph's warm-up allocates in the graph's pool"),
    PrivatePart(TREES, "CUDAGraphTreeManager.in_warmup", POOLS, "the same"),
)
"""For ``mode="reduce-overhead"``."""

PARTS = (*GRAPH_PARTS, *POOL_PARTS)
"""All of them."""


def missing_parts(parts: Sequence[PrivatePart] = PARTS, *, load: bool = True) -> tuple[PrivatePart, ...]:
    """Those that this torch lacks, or whose parameters have other names. Imports torch's compiler, unless ``load`` is
    False: of modules that aren't imported then, all parts are missing."""
    modules = _modules() if load else sys.modules
    return tuple(part for part in parts if not _is_there(part, modules.get(part.module)))


def _is_there(part: PrivatePart, module: ModuleType | None) -> bool:
    found = part.owner_in(module)
    return found is not None and not lacking_parameters(getattr(*found), part.parameters)


def _modules() -> dict[str, ModuleType]:
    """The modules of :data:`PARTS`, by name; those that this torch lacks are left out."""
    found: list[ModuleType] = []
    for load in (_tracing_modules, _inductors_modules, _cache_modules):
        with contextlib.suppress(ImportError):
            found += load()
    return {module.__name__: module for module in found}


def _tracing_modules() -> list[ModuleType]:
    from torch import _guards
    from torch._dynamo import guards, side_effects
    from torch._dynamo.variables import base, functions, tensor
    from torch._higher_order_ops import triton_kernel_wrap
    from torch._library import triton
    from torch.fx.experimental import proxy_tensor

    return [_guards, guards, side_effects, base, functions, tensor, triton_kernel_wrap, triton, proxy_tensor]


def _inductors_modules() -> list[ModuleType]:
    from torch._inductor import cudagraph_trees, ir, virtualized
    from torch._inductor.codegen import custom_extern_kernel_codegen, wrapper

    return [cudagraph_trees, ir, virtualized, custom_extern_kernel_codegen, wrapper]


def _cache_modules() -> list[ModuleType]:
    from torch._functorch._aot_autograd import autograd_cache

    return [autograd_cache]


# tracing


DYNAMO = FUNCTIONS
"""The module whose import says that torch's compiler is about to trace."""


def hopifier() -> Any:
    """The class that makes a call of a Triton kernel an operation of a graph, for Dynamo and for ``wrap_triton``."""
    from torch._higher_order_ops.triton_kernel_wrap import TritonHOPifier

    return TritonHOPifier


def accept(variable: Any, kernel: Any, grid: Any) -> None:
    """What ``init_variable`` does for a kernel that it doesn't refuse."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    variable.kernel, variable.grid = kernel, grid
    variable.kernel_idx = kernel_side_table.add_kernel(kernel)


def with_kernel(hopifier: Any, variable: Any, kernel: Any, grid: Any) -> Any:
    """The same call of another kernel; torch 2.11 makes variables without the source of the first."""
    if hasattr(hopifier, "recreate_variable"):
        return hopifier.recreate_variable(variable, kernel=kernel, kernel_idx=None, grid=grid)
    return type(variable)(kernel, None, grid)


def output_code(tx: Any, op: Any, args: tuple[Any, ...]) -> None:
    """Put a call of an operator without results into the graph that Dynamo is making."""
    tx.output.create_proxy("call_function", op, args, {})


def none_variable(tx: Any) -> Any:
    """Dynamo's None."""
    from torch._dynamo.variables.constant import ConstantVariable

    return ConstantVariable.create(None)


def constant_variable(value: Any) -> Any:
    """Dynamo's variable of a constant."""
    from torch._dynamo.variables.constant import ConstantVariable

    return ConstantVariable.create(value)


def as_constant(value: Any, tx: Any) -> Any:
    """A constant argument of a kernel that torch launches, for Dynamo or, where ``tx`` is None, for ``make_fx``."""
    return value if tx is None else constant_variable(value)


def makes_graph(tx: Any) -> bool:
    """Whether a call is to be put into a graph; under ``make_fx`` an operator's body also runs for its sizes alone."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return tx is not None or get_proxy_mode() is not None


def runs_for_sizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call without a tracer has fake tensors, of which only the sizes are asked."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode([*args, *kwargs.values()]) is not None


def exports(tx: Any) -> bool:
    """Whether the graph that is traced is for ``torch.export``, AOTInductor or a C++ wrapper: kerntune isn't there when
    it runs."""
    import torch
    from torch._inductor import config
    from torch._inductor.virtualized import V

    asked = tx is not None and bool(getattr(tx, "export", False) or getattr(tx.output, "export", False))
    return asked or torch.compiler.is_exporting() or bool(V.aot_compilation) or bool(config.cpp_wrapper)


# values that Dynamo traces


class NoConstant(Exception):
    """A traced value is of a kind that can't be handed to a graph's operator."""


def real(variable: Any) -> Any:
    """A variable itself, where Dynamo has made it lazily."""
    return variable.realize()


def is_tensor(variable: Any) -> bool:
    """Whether a traced value is a tensor."""
    return bool(variable.is_tensor())


def is_number(variable: Any) -> bool:
    """Whether a traced value is a number that isn't known when the graph is made."""
    from torch._dynamo.variables.tensor import SymNodeVariable

    return isinstance(variable, SymNodeVariable)


def example_of(variable: Any) -> Any:
    """What stands for a traced tensor or number while it is traced: a fake tensor, a symbolic number."""
    return variable.as_proxy().node.meta["example_value"]


def settled(variable: Any) -> Any:
    """The constant that a traced number is from now on: another value is another graph."""
    return variable.evaluate_expr()


def descriptor_parts(variable: Any) -> tuple[Any, Any] | None:
    """Tensor and block shape of a traced ``TensorDescriptor``; None for anything else."""
    from torch._dynamo.variables.functions import TMADescriptorStableVariable

    if not isinstance(variable, TMADescriptorStableVariable):
        return None
    return variable.tensor, variable.block_shape


def items_of(variable: Any) -> tuple[type, list[Any]] | None:
    """A traced tuple or list, and its items; None for anything else."""
    from torch._dynamo.variables.lists import ListVariable, TupleVariable

    if isinstance(variable, (ListVariable, TupleVariable)):
        return (list if isinstance(variable, ListVariable) else tuple), list(variable.items)
    return None


def object_of(variable: Any) -> Any:
    """The object that a traced value is known to be, with a guard that it is the same one at each call; a constant's
    value. :class:`NoConstant` for what exists only in the graph."""
    from torch._dynamo.variables.functions import TritonKernelVariable
    from torch._dynamo.variables.misc import PythonModuleVariable
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if isinstance(variable, TritonKernelVariable) and variable.grid is None:
        return variable.kernel
    if isinstance(variable, PythonModuleVariable):
        return variable.value
    if variable.is_python_constant():
        return variable.as_python_constant()
    if isinstance(variable, UserDefinedObjectVariable) and variable.source is not None:
        _same_object(variable.source)
        return variable.value
    raise NoConstant(f"a {type(variable).__name__.removesuffix('Variable')}")


def _same_object(source: Any) -> None:
    from torch._dynamo.guards import GuardBuilder, install_guard

    install_guard(source.make_guard(GuardBuilder.ID_MATCH))


def object_of_kind(variable: Any, kind: type) -> Any:
    """The object of a class that a traced value, or a real one, is; None for any other."""
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    if not isinstance(variable, VariableTracker):
        return variable if isinstance(variable, kind) else None
    variable = real(variable)
    if not (isinstance(variable, UserDefinedObjectVariable) and isinstance(variable.value, kind)):
        return None
    return object_of(variable)


def as_grid(function: Callable[..., Any], tx: Any) -> Any:
    """A function as the grid of a kernel that torch launches, for Dynamo or, where ``tx`` is None, for ``make_fx``."""
    from torch._dynamo.variables.functions import UserFunctionVariable

    return function if tx is None else UserFunctionVariable(function)


@dataclass(frozen=True)
class TracedFunction:
    """A function of one argument that Dynamo has met, taken apart: what it closes over and its defaults are traced
    values."""

    code: CodeType
    scope: dict[str, Any]
    cells: Mapping[str, Any]
    defaults: Mapping[str, Any]


def function_parts(variable: Any, tx: Any) -> TracedFunction | None:
    """The parts of a traced function; None for what is none. :class:`NoConstant` for one without an argument."""
    from torch._dynamo.variables.functions import BaseUserFunctionVariable, NestedUserFunctionVariable
    from torch._dynamo.variables.functions import UserFunctionVariable as Plain

    if not isinstance(variable, BaseUserFunctionVariable) or not isinstance(
        variable, (NestedUserFunctionVariable, Plain)
    ):
        return None
    code = variable.get_code()
    if code.co_argcount < 1:
        raise NoConstant("a function without an argument")
    bound = variable.bind_args(tx, [constant_variable(None)], {})
    cells = {name: tx.output.side_effects.load_cell(bound[name]) for name in code.co_freevars}
    rest = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return TracedFunction(code, variable.get_globals(), cells, {name: bound[name] for name in rest})


# constants


def mark_constant(function: Any) -> None:
    """Have Dynamo call a function while it traces, and take what it returns as a constant: the mark that
    ``torch.compiler.assume_constant_result`` sets, without the import of Dynamo that this takes."""
    function._dynamo_marked_constant = True


# generated code


def set_generated_call(op: str, write: Callable[[Any, Callable[[str], None]], None]) -> None:
    """How Inductor's Python wrapper calls an operator: ``write(node, writeline)``."""
    from torch._inductor.codegen.custom_extern_kernel_codegen import CUSTOM_EXTERN_KERNEL_CODEGEN, CustomCodegen

    CUSTOM_EXTERN_KERNEL_CODEGEN[op] = CustomCodegen(python=write)


@dataclass(frozen=True)
class _Reference:
    text: str

    def __repr__(self) -> str:
        return self.text


def texts_of_arguments(node: Any) -> list[Any]:
    """An operator call's arguments as texts of the generated code; of lists the items' texts."""
    from torch._inductor.virtualized import V

    tensors = [_Reference(tensor.codegen_reference()) for tensor in node.inputs]
    args, _ = node.unflatten_args(tensors, node.constant_args)
    text = V.graph.wrapper_code.val_to_arg_str
    return [[text(v) for v in arg] if isinstance(arg, (list, tuple)) else arg for arg in args]


def write_once(line: str) -> None:
    """Put a line where the generated module begins, unless it is there."""
    from torch._inductor.virtualized import V

    V.graph.wrapper_code.add_import_once(line)


# cache keys


def cache_details() -> Any:
    """The class whose attributes are AOTAutograd's cache key of a graph."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails

    return AOTAutogradCacheDetails


def no_cache_entry(why: str) -> Exception:
    """What is raised for a graph that AOTAutograd must not store."""
    from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache

    found: Exception = BypassAOTAutogradCache(why)
    return found


def kernels_in_operators(gm: Any) -> Iterator[list[Any]]:
    """For each ``triton_op`` operator that a graph calls the Triton kernels in it, as far as torch has found them in
    its source: it may be none of them."""
    from torch._library.triton import triton_ops_to_kernels

    for module in gm.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            name = str(getattr(node.target, "_name", None) or getattr(node.target, "_qualified_op_name", ""))
            if (known := triton_ops_to_kernels.get(name.partition(".")[0])) is not None:
                yield known


# CUDA graphs


def warms_up_for_graph(device: int) -> bool:
    """Whether a CUDA graph of ``mode="reduce-overhead"`` is being warmed up on a device: what torch allocates in this
    thread is in the graph's private pool then."""
    trees = sys.modules.get(TREES)
    if trees is None:
        return False
    manager = trees.get_manager(device, create_if_none_exists=False)
    return manager is not None and bool(manager.in_warmup)
