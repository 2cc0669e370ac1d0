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
    """What a private name is for: where kerntune uses it (``user``), and what no longer works without it
    (``breaks``)."""

    user: str
    breaks: str


def _parts(user: str, breaks: str, module: str, *names: str) -> tuple[PrivatePart, ...]:
    """Names of a module: ``Name.method(a, b)``, ``class Name``, ``value Name.attribute``."""
    found = (name.rpartition(" ") if name.startswith(("class", "value")) else ("", "", name) for name in names)
    return tuple(PrivatePart.parsed(f"{kind}{space}{module}:{path}", user, breaks) for kind, space, path in found)


TRACE = "kerntune/tuning/torch_compile/kernel_calls.py"
VALUES = "kerntune/tuning/torch_compile/launch_arguments.py"
CODE = "kerntune/tuning/torch_compile/hook_in.py"
FAKE = "kerntune/gpu/fake_cuda/"

WRAP = "torch._higher_order_ops.triton_kernel_wrap"
FUNCTIONS = "torch._dynamo.variables.functions"
EXTERN_CODE = "torch._inductor.codegen.custom_extern_kernel_codegen"
AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"
TREES = "torch._inductor.cudagraph_trees"
TUNED = "tuned kernels in compiled graphs are left to Inductor, or refused by torch"
SHARED_ENTRIES = "a triton_op traced with kerntune would share AOTAutograd's cache entries with one traced without"

GRAPH_PARTS = (
    *_parts(TRACE, TUNED, WRAP,
        "TritonHOPifier.init_variable(variable, kernel, kernel_idx, grid)",
        "TritonHOPifier.call_triton_kernel(variable, args, kwargs, tx)",
        "TritonHOPifier.raise_unsupported(msg)", "kernel_side_table.add_kernel(kernel)"),
    *_parts(TRACE, TUNED, "torch.fx.experimental.proxy_tensor", "get_proxy_mode"),
    *_parts(TRACE, "tuned kernels in triton_op are left to Inductor", WRAP, "class TracingTritonHOPifier"),
    *_parts(TRACE, "wrap_triton outside of graphs is refused", "torch._guards", "detect_fake_mode(inputs)"),
    *_parts(VALUES, TUNED, FUNCTIONS,
        "class TritonKernelVariable",
        *(f"{kind}FunctionVariable.{part}" for kind in ("User", "NestedUser")
          for part in ("bind_args(args, kwargs)", "get_code", "get_globals"))),
    *_parts(VALUES, "tensor descriptors are refused", FUNCTIONS, "TMADescriptorStableVariable.to_metadata"),
    *_parts(VALUES, TUNED, "torch._dynamo.side_effects", "SideEffects.load_cell(cellvar)"),
    *_parts(VALUES, TUNED, "torch._dynamo.variables.base",
        "VariableTracker.is_tensor", "VariableTracker.realize", "VariableTracker.is_python_constant"),
    *_parts(VALUES, TUNED, "torch._dynamo.variables.tensor", "SymNodeVariable.evaluate_expr"),
    *_parts(VALUES, TUNED, "torch._dynamo.guards", "GuardBuilder.ID_MATCH", "install_guard"),
    *_parts(CODE, "generated code calls the operator through torch's dispatcher: 4 to 12 us more a call",
        EXTERN_CODE, "value CUSTOM_EXTERN_KERNEL_CODEGEN"),
    *_parts(CODE, TUNED, EXTERN_CODE, "class CustomCodegen"),
    *_parts(CODE, TUNED, "torch._inductor.ir", "FallbackKernel.codegen_args"),
    *_parts(CODE, TUNED, "torch._inductor.codegen.wrapper", "PythonWrapperCodegen.val_to_arg_str(s)"),
    *_parts(CODE, "AOTInductor and cpp_wrapper aren't recognised", "torch._inductor.virtualized", "value V"),
    *_parts(CODE, SHARED_ENTRIES, AOT_CACHE,
        "AOTAutogradCacheDetails.get_triton_source_codes_from_gm(gm)", "class BypassAOTAutogradCache"),
    *_parts(CODE, SHARED_ENTRIES, "torch._library.triton", "value triton_ops_to_kernels"),
)  # fmt: skip
"""For kernels in compiled graphs."""

POOL_PARTS = _parts("kerntune/tuning/tuned_call.py", "tuning in a CUDA graph's warm-up allocates in the graph's pool",
    TREES, "get_manager", "value CUDAGraphTreeManager.in_warmup")  # fmt: skip
"""For ``mode="reduce-overhead"``."""

_TENSORS = "torch._subclasses.fake_tensor"
_SHAPES = "stand-ins have neither shape nor device"
_NO_BACKWARD = "kernels of backward passes are not launched"
_NO_LOADING = "tensors that torch.load reads don't become stand-ins"
_NO_OPERATORS = "kernels in custom operators are not launched"

STAND_IN_PARTS = (
    *_parts(FAKE + "modes.py", _SHAPES, _TENSORS,
        "class FakeTensor", "class FakeTensorMode",
        "FakeTensorMode.__init__(allow_fallback_kernels, allow_non_fake_inputs)",
        "FakeTensorMode.__torch_dispatch__(func, types)"),
    *_parts(FAKE + "modes.py",
        "what torch's compiler traces on another thread is taken for the call's own operators",
        "torch._guards", "class TracingContext", "TracingContext.try_get"),
    *_parts(FAKE + "modes.py", "each look at a tensor is a call of a torch function", "torch._C",
        "_len_torch_function_stack"),
    *_parts(FAKE + "modes.py", "torch's compiler is imported for each run", "torch", "_disable_dynamo"),
    *_parts(FAKE + "modes.py", _NO_OPERATORS, "torch", "value ops.aten.add.Tensor._overloadname"),
    *_parts(FAKE + "modes.py", _NO_OPERATORS, "torch._library.custom_ops", "value OPDEFS"),
    *_parts(FAKE + "patches.py", "what a test body needs of a GPU's results is taken for its failure", _TENSORS,
        "class DataDependentOutputException", "class DynamicOutputShapeException",
        "class UnsupportedFakeTensorException", "class UnsupportedOperatorException"),
    *_parts(FAKE + "tensors.py", "slices of stand-ins raise", "torch._C", "_ensureCUDADeviceGuardSet"),
    *_parts(FAKE + "session.py", "module.to(0) asks for a GPU", "torch._C", "_nn._parse_to"),
    *_parts(FAKE + "session.py", "torch.tensor asks for a GPU", "torch._C",
        "_only_lift_cpu_tensors", "_set_only_lift_cpu_tensors"),
    *_parts(FAKE + "session.py", _NO_OPERATORS, "torch._library.triton", "set_wrap_triton_enabled(enabled)"),
    *_parts(FAKE + "session.py", "modules move in place", "torch.nn", "Module._apply(fn, recurse)"),
    *_parts(FAKE + "placement.py", "operators inside of fake ones recur", "torch._C",
        "_get_dispatch_mode", "value _TorchDispatchModeKey.FAKE"),
    *_parts(FAKE + "placement.py", "small integers are not known, so that control flow ends", "torch._C",
        "class DisableTorchFunction", "class _DisableTorchDispatch"),
    *_parts(FAKE + "placement.py", _SHAPES, "torch", "value ops.aten.add.Tensor._schema"),
    *_parts(FAKE + "placement.py", _SHAPES, "torch.utils._python_dispatch", "class TorchDispatchMode"),
    *_parts(FAKE + "placement.py", _NO_OPERATORS, "torch._ops", "class HigherOrderOperator"),
    *_parts(FAKE + "autograd.py", _NO_BACKWARD, "torch._C._functorch",
        "get_unwrapped", "is_functorch_wrapped_tensor"),
    *_parts(FAKE + "autograd.py", _NO_BACKWARD, "torch.autograd", "_engine_run_backward"),
    *_parts(FAKE + "autograd.py", _NO_BACKWARD, "torch.autograd.graph", "_engine_run_backward"),
    *_parts(FAKE + "autograd.py", _NO_BACKWARD, "torch.autograd.function",
        "Function.apply", "FunctionCtx.set_materialize_grads(value)", "class BackwardCFunction",
        "value BackwardCFunction._input_metadata"),
    *_parts(FAKE + "autograd.py", "hooks of gradients fail", "torch", "value Tensor._backward_hooks"),
    *_parts(FAKE + "session.py", _NO_LOADING, "torch._utils", "_restore_device_fake_mode(tensor)"),
    *_parts(FAKE + "session.py", _NO_LOADING, "torch.serialization", "value _package_registry"),
    *_parts(FAKE + "session.py", _NO_LOADING, "torch.storage",
        "class _StorageBase", "_StorageBase.to(device, non_blocking)"),
)  # fmt: skip
"""For stand-ins for CUDA tensors, and for the interpreter, which replaces the same functions."""

STAND_INS_OFF = (
    "Kernels can be neither compiled nor interpreted without a GPU; runs on a GPU, and tuning in programs, go on"
)

BACKWARD_PARTS = _parts("kerntune/capture/entry_points.py",
    "threads of a backward pass are told from others while a choice is decided; calls without choices go on",
    "torch._C", "_current_autograd_node")  # fmt: skip
"""For captures, which see what a backward pass launches on another thread."""

NOTE_PARTS = _parts(FAKE + "modes.py", "captures of calls with many operators of torch take longer", _TENSORS,
    "FakeTensorMode._output_from_cache_entry(state, entry, key, func, args)",
    "FakeTensorMode._dispatch_impl(func)")  # fmt: skip
"""Which of a call's operators have the same layouts; without them each is looked at."""

JUDGE_PARTS = _parts("kerntune/referee/reference_operators.py", "what cancels in backward passes is taken for exact",
    "torch._decomp", "value decomposition_table")  # fmt: skip
PARTS = (*GRAPH_PARTS, *POOL_PARTS, *STAND_IN_PARTS, *BACKWARD_PARTS, *NOTE_PARTS, *JUDGE_PARTS)
"""All of them."""


def missing_parts(parts: Sequence[PrivatePart] = PARTS, *, load: bool = True) -> tuple[PrivatePart, ...]:
    """Those that this torch lacks, that are of another kind, or whose parameters have other names. Imports their
    modules, unless ``load`` is False: of modules that aren't imported then, all parts are missing."""
    modules = {part.module: part.load() if load else sys.modules.get(part.module) for part in parts}
    return tuple(part for part in parts if part.problem_in(modules[part.module]))


def require_stand_in_parts() -> None:
    """:class:`BackendError` that names what this torch lacks for stand-ins, and says what still works."""
    missing = missing_parts(STAND_IN_PARTS)
    if missing:
        said = "; ".join(f"{p.problem_in(p.load())} ({p.user}): {p.breaks}" for p in missing)
        raise BackendError(f"{said}. {STAND_INS_OFF}. {versions_run()}")


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
    """Whether the traced graph is for ``torch.export``, AOTInductor or a C++ wrapper, which run without kerntune."""
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
    from torch._dynamo.guards import GuardBuilder, install_guard
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
        install_guard(variable.source.make_guard(GuardBuilder.ID_MATCH))
        return variable.value
    raise NoConstant(f"a {type(variable).__name__.removesuffix('Variable')}")


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
    """The parts of a function of one argument that Dynamo has met; cells and defaults are traced values."""

    code: CodeType
    scope: dict[str, Any]
    cells: Mapping[str, Any]
    defaults: Mapping[str, Any]


def function_parts(variable: Any, tx: Any) -> TracedFunction | None:
    """The parts of a traced function; None for what is none. :class:`NoConstant` for one without an argument."""
    from torch._dynamo import config
    from torch._dynamo.variables.functions import NestedUserFunctionVariable, UserFunctionVariable

    if not isinstance(variable, (NestedUserFunctionVariable, UserFunctionVariable)):
        return None
    code = variable.get_code()
    if code.co_argcount < 1:
        raise NoConstant("a function without an argument")
    with config.patch(skip_guards_on_constant_func_defaults=False):  # torch 2.11: another default is another graph
        bound = variable.bind_args(tx, [constant_variable(None)], {})
    cells = {name: tx.output.side_effects.load_cell(bound[name]) for name in code.co_freevars}
    rest = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return TracedFunction(code, variable.get_globals(), cells, {name: bound[name] for name in rest})


def mark_constant(function: Any) -> None:
    """Have Dynamo call a function while it traces, and take what it returns as a constant: the mark that
    ``torch.compiler.assume_constant_result`` sets, without the import of Dynamo that this takes."""
    function._dynamo_marked_constant = True


# generated code


def set_generated_call(op: str, write: Callable[[Any, Callable[[str], None]], None]) -> None:
    """How Inductor's Python wrapper calls an operator: ``write(node, writeline)``."""
    from torch._inductor.codegen.custom_extern_kernel_codegen import CUSTOM_EXTERN_KERNEL_CODEGEN, CustomCodegen

    CUSTOM_EXTERN_KERNEL_CODEGEN[op] = CustomCodegen(python=write)


class _Reference(str):
    """A text that generated code has without quotes."""

    __repr__ = str.__str__


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

    return BypassAOTAutogradCache(why)  # type: ignore[no-any-return]


def kernels_in_operators(gm: Any) -> Iterator[list[Any]]:
    """The Triton kernels that torch has found, perhaps not all, in each ``triton_op`` operator that a graph calls."""
    from torch._library.triton import triton_ops_to_kernels

    for module in gm.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            name = str(getattr(node.target, "_name", None) or getattr(node.target, "_qualified_op_name", ""))
            if (known := triton_ops_to_kernels.get(name.partition(".")[0])) is not None:
                yield known


# CUDA graphs


def warms_up_for_graph(device: int) -> bool:
    """Whether a graph of ``mode="reduce-overhead"`` is being warmed up on a device: allocations are in its pool."""
    trees = sys.modules.get(TREES)
    if trees is None:
        return False
    manager = trees.get_manager(device, create_if_none_exists=False)
    return manager is not None and bool(manager.in_warmup)
