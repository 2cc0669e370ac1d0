"""Every private part of torch that kerntune touches, and which of them this torch lacks.

Those of Inductor's kernels are in :mod:`kerntune.kernels.compat.inductor_parts`. The versions of torch in
:data:`kerntune.kernels.compat.versions.TORCH_RUN` have all of :data:`PARTS`. Where one is missing or of another kind,
what needs it says so by name: a user's compilation never fails of it, and stand-ins refuse to begin.
``tests/kernels/compat/test_torch_private.py`` names what moved.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from kerntune.errors import BackendError
from kerntune.kernels.compat.versions import PrivateName, versions_run


@dataclass(frozen=True)
class PrivatePart(PrivateName):
    """What a private name is for; of a function also the names of the parameters that are used."""

    user: str
    """Where kerntune uses it."""

    breaks: str
    """What no longer works without it."""

    parameters: tuple[str, ...] = ()


TRACE = "kerntune/tuning/torch_compile/kernel_calls.py"
VALUES = "kerntune/tuning/torch_compile/launch_arguments.py"
CODE = "kerntune/tuning/torch_compile/hook_in.py"
KEYS = "kerntune/tuning/torch_compile/hook_in.py"
POOLS = "kerntune/tuning/tuned_call.py"
FAKE = "kerntune/gpu/fake_cuda/"

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
    PrivatePart(WRAP, "TracingTritonHOPifier", TRACE, "tuned kernels in triton_op are left to Inductor", kind="class"),
    PrivatePart(WRAP, "kernel_side_table.add_kernel", TRACE, TUNED, ("kernel",)),
    PrivatePart(FUNCTIONS, "TritonKernelVariable", VALUES, TUNED, kind="class"),
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
        kind="value",
    ),
    PrivatePart("torch._inductor.codegen.custom_extern_kernel_codegen", "CustomCodegen", CODE, TUNED, kind="class"),
    PrivatePart("torch.fx.experimental.proxy_tensor", "get_proxy_mode", TRACE, TUNED),
    PrivatePart("torch._inductor.ir", "FallbackKernel.codegen_args", CODE, TUNED),
    PrivatePart(WRAPPER, "PythonWrapperCodegen.val_to_arg_str", CODE, TUNED, ("s",)),
    PrivatePart(
        "torch._inductor.virtualized", "V", CODE, "AOTInductor and cpp_wrapper aren't recognised", kind="value"
    ),
    PrivatePart(
        AOT_CACHE,
        "AOTAutogradCacheDetails.get_triton_source_codes_from_gm",
        KEYS,
        "a triton_op traced with kerntune would share AOTAutograd's cache entries with one traced without",
        ("gm",),
    ),
    PrivatePart("torch._guards", "detect_fake_mode", TRACE, "wrap_triton outside of graphs is refused", ("inputs",)),
    PrivatePart(AOT_CACHE, "BypassAOTAutogradCache", KEYS, "the same", kind="class"),
    PrivatePart("torch._library.triton", "triton_ops_to_kernels", KEYS, "the same", kind="value"),
)
"""For kernels in compiled graphs."""

POOL_PARTS = (
    PrivatePart(TREES, "get_manager", POOLS, "tuning in a CUDA graph's warm-up allocates in the graph's pool"),
    PrivatePart(TREES, "CUDAGraphTreeManager.in_warmup", POOLS, "the same", kind="value"),
)
"""For ``mode="reduce-overhead"``."""

_TENSORS = "torch._subclasses.fake_tensor"
_SHAPES = "stand-ins have neither shape nor device"
_ENDS = "what a test body needs of a GPU's results is taken for its failure"
_TRACED = "what torch's compiler traces on another thread is taken for the call's own operators"
_NO_BACKWARD = "kernels of backward passes are not launched"
_NO_VALUES = "small integers are not known, so that control flow ends"
_NO_LOADING = "tensors that torch.load reads don't become stand-ins"
_NO_OPERATORS = "kernels in custom operators are not launched"

STAND_IN_PARTS = (
    PrivatePart(_TENSORS, "FakeTensor", FAKE + "modes.py", _SHAPES, kind="class"),
    PrivatePart(_TENSORS, "FakeTensorMode", FAKE + "modes.py", _SHAPES, kind="class"),
    PrivatePart(
        _TENSORS, "FakeTensorMode.__init__", FAKE + "modes.py", _SHAPES,
        ("allow_fallback_kernels", "allow_non_fake_inputs"),
    ),
    PrivatePart(_TENSORS, "FakeTensorMode.__torch_dispatch__", FAKE + "modes.py", _SHAPES, ("func", "types")),
    PrivatePart("torch._guards", "TracingContext", FAKE + "modes.py", _TRACED, kind="class"),
    PrivatePart("torch._guards", "TracingContext.try_get", FAKE + "modes.py", _TRACED),
    PrivatePart(_TENSORS, "DataDependentOutputException", FAKE + "patches.py", _ENDS, kind="class"),
    PrivatePart(_TENSORS, "DynamicOutputShapeException", FAKE + "patches.py", _ENDS, kind="class"),
    PrivatePart(_TENSORS, "UnsupportedFakeTensorException", FAKE + "patches.py", _ENDS, kind="class"),
    PrivatePart(_TENSORS, "UnsupportedOperatorException", FAKE + "patches.py", _ENDS, kind="class"),
    PrivatePart("torch._C", "_ensureCUDADeviceGuardSet", FAKE + "tensors.py", "slices of stand-ins raise"),
    PrivatePart("torch._C", "_nn._parse_to", FAKE + "session.py", "module.to(0) asks for a GPU"),
    PrivatePart("torch._C", "_only_lift_cpu_tensors", FAKE + "session.py", "torch.tensor asks for a GPU"),
    PrivatePart("torch._C", "_set_only_lift_cpu_tensors", FAKE + "session.py", "the same"),
    PrivatePart("torch._C", "_get_dispatch_mode", FAKE + "placement.py", "operators inside of fake ones recur"),
    PrivatePart("torch._C", "_TorchDispatchModeKey.FAKE", FAKE + "placement.py", "the same", kind="value"),
    PrivatePart("torch._C", "DisableTorchFunction", FAKE + "placement.py", _NO_VALUES, kind="class"),
    PrivatePart("torch._C", "_DisableTorchDispatch", FAKE + "placement.py", _NO_VALUES, kind="class"),
    PrivatePart("torch._C._functorch", "get_unwrapped", FAKE + "autograd.py", _NO_BACKWARD),
    PrivatePart("torch._C._functorch", "is_functorch_wrapped_tensor", FAKE + "autograd.py", _NO_BACKWARD),
    PrivatePart("torch.autograd", "_engine_run_backward", FAKE + "autograd.py", _NO_BACKWARD),
    PrivatePart("torch.autograd.graph", "_engine_run_backward", FAKE + "autograd.py", _NO_BACKWARD),
    PrivatePart("torch.autograd.function", "Function.apply", FAKE + "autograd.py", _NO_BACKWARD),
    PrivatePart(
        "torch.autograd.function", "FunctionCtx.set_materialize_grads", FAKE + "autograd.py", _NO_BACKWARD,
        ("value",),
    ),
    PrivatePart(
        "torch.autograd.function", "BackwardCFunction", FAKE + "autograd.py", _NO_BACKWARD, kind="class"
    ),
    PrivatePart(
        "torch.autograd.function", "BackwardCFunction._input_metadata", FAKE + "autograd.py", _NO_BACKWARD,
        kind="value",
    ),
    PrivatePart("torch", "Tensor._backward_hooks", FAKE + "autograd.py", "hooks of gradients fail", kind="value"),
    PrivatePart("torch", "_disable_dynamo", FAKE + "modes.py", "torch's compiler is imported for each run"),
    PrivatePart("torch", "ops.aten.add.Tensor._schema", FAKE + "placement.py", _SHAPES, kind="value"),
    PrivatePart("torch", "ops.aten.add.Tensor._overloadname", FAKE + "modes.py", _NO_OPERATORS, kind="value"),
    PrivatePart("torch._ops", "HigherOrderOperator", FAKE + "placement.py", _NO_OPERATORS, kind="class"),
    PrivatePart("torch._library.custom_ops", "OPDEFS", FAKE + "modes.py", _NO_OPERATORS, kind="value"),
    PrivatePart("torch._library.triton", "set_wrap_triton_enabled", FAKE + "session.py", _NO_OPERATORS, ("enabled",)),
    PrivatePart("torch._utils", "_restore_device_fake_mode", FAKE + "loading.py", _NO_LOADING, ("tensor",)),
    PrivatePart("torch.serialization", "_package_registry", FAKE + "loading.py", _NO_LOADING, kind="value"),
    PrivatePart("torch.storage", "_StorageBase", FAKE + "loading.py", _NO_LOADING, kind="class"),
    PrivatePart("torch.storage", "_StorageBase.to", FAKE + "loading.py", _NO_LOADING, ("device", "non_blocking")),
    PrivatePart("torch.nn", "Module._apply", FAKE + "session.py", "modules move in place", ("fn", "recurse")),
    PrivatePart("torch.utils._python_dispatch", "TorchDispatchMode", FAKE + "placement.py", _SHAPES, kind="class"),
)  # fmt: skip
"""For stand-ins for CUDA tensors, and for the interpreter, which replaces the same functions."""

STAND_INS_OFF = (
    "kernels can be neither compiled nor interpreted without a GPU; runs on a GPU, and tuning in programs, go on"
)

BACKWARD_PARTS = (
    PrivatePart(
        "torch._C", "_current_autograd_node", "kerntune/capture/entry_points.py",
        "threads of a backward pass are told from others while a choice is decided; calls without choices go on",
    ),
)  # fmt: skip
"""For captures, which see what a backward pass launches on another thread."""

PARTS = (*GRAPH_PARTS, *POOL_PARTS, *STAND_IN_PARTS, *BACKWARD_PARTS)
"""All of them."""


def missing_parts(parts: Sequence[PrivatePart] = PARTS, *, load: bool = True) -> tuple[PrivatePart, ...]:
    """Those that this torch lacks, that are of another kind, or whose parameters have other names. Imports their
    modules, unless ``load`` is False: of modules that aren't imported then, all parts are missing."""
    modules = {part.module: part.load() if load else sys.modules.get(part.module) for part in parts}
    return tuple(part for part in parts if part.problem_in(modules[part.module], part.parameters))


def require_stand_in_parts() -> None:
    """:class:`BackendError` that names what this torch lacks for stand-ins, and says what still works."""
    missing = missing_parts(STAND_IN_PARTS)
    if missing:
        said = "; ".join(f"{p.problem_in(p.load(), p.parameters)} ({p.user}): {p.breaks}" for p in missing)
        raise BackendError(f"{said}. {STAND_INS_OFF[0].upper()}{STAND_INS_OFF[1:]}. {versions_run()}")


# captures


def runs_backward() -> bool:
    """Whether torch runs a backward function in this thread, as far as one can know. :class:`BackendError` for a torch
    that doesn't say."""
    import torch

    node = getattr(torch._C, "_current_autograd_node", None)
    if node is None:
        (part,) = BACKWARD_PARTS
        raise BackendError(f"{part.problem_in(torch._C)}, by which {part.breaks}. {versions_run()}")
    return node() is not None


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
    from torch._dynamo import config
    from torch._dynamo.variables.functions import BaseUserFunctionVariable, NestedUserFunctionVariable
    from torch._dynamo.variables.functions import UserFunctionVariable as Plain

    if not isinstance(variable, BaseUserFunctionVariable) or not isinstance(
        variable, (NestedUserFunctionVariable, Plain)
    ):
        return None
    code = variable.get_code()
    if code.co_argcount < 1:
        raise NoConstant("a function without an argument")
    with config.patch(skip_guards_on_constant_func_defaults=False):  # torch 2.11: another default is another graph
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
