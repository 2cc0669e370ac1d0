"""The private parts of torch that capturing Inductor's kernels uses.

:mod:`kerntune.kernels.compat.torch_private` has all others. None of these names is promised by torch. Each stands in
a table with what it is used for, so that a test, and an error message, can say which of them another torch has moved.
Nothing here imports torch's compiler before a function is called.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from kerntune.errors import BackendError
from kerntune.kernels.compat.versions import PrivateName


@dataclass(frozen=True)
class InductorPart(PrivateName):
    """What a private name is used for. ``parameters`` are those that the function must have.

    ``optional`` ones are of some versions only: what lacks them needs no replacement.
    """

    use: str
    parameters: tuple[str, ...] = ()
    optional: bool = False

    def owner(self) -> tuple[Any, str]:
        """The object that has the attribute, and the attribute's name. :class:`BackendError` if torch moved it."""
        found = self.owner_in(module := self.load())
        if found is None:
            raise BackendError(self._used_for(self.problem_in(module)))
        return found

    def get(self) -> Any:
        """The object itself. :class:`BackendError` if torch moved it."""
        owner, name = self.owner()
        return getattr(owner, name)

    def exists(self) -> bool:
        """Whether this torch has it as it is known."""
        return not self.problem_in(self.load(), self.parameters)

    def problem(self) -> str:
        """What this torch has changed about it; empty if nothing that matters."""
        module = self.load()
        if self.optional and self.owner_in(module) is None:
            return ""
        said = self.problem_in(module, self.parameters)
        return said and self._used_for(said)

    def _used_for(self, problem: str) -> str:
        return f"{problem}, which is used for: {self.use}"


def moved_parts(*, required: bool = False) -> list[str]:
    """What the installed torch has moved or changed, a line each; empty if every part is in its place. ``required``:
    only parts that compiled functions can't be captured without."""
    parts = (part for part in INDUCTOR.values() if not (required and part.optional))
    return [text for part in parts if (text := part.problem())]


GATE_OFF = "the gate of compiled functions is off; kernels launched directly are judged"


def why_gate_is_off() -> str:
    """Why compiled functions can't be captured with this torch, and what still works; empty if they can be. Imports
    Inductor."""
    moved = moved_parts(required=True)
    return f"{'; '.join(moved)}: {GATE_OFF}" if moved else ""


# Inductor's kernels: launches, sources, grids, configs (capture/inductor) and generation without a GPU (gpu/fake_cuda)

_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_DEVICES = "torch._dynamo.device_interface"
_GUARDS = "torch._C._dynamo.guards"
_BENCHMARKS = "torch._inductor.runtime.benchmarking"
_PADDING = "torch._inductor.fx_passes.pad_mm"

INDUCTOR: dict[str, InductorPart] = {
    "run": InductorPart(
        _HEURISTICS, "CachingAutotuner.run", "every launch of a kernel of Inductor's", ("stream", "benchmark_run")
    ),
    "debug_run": InductorPart(_HEURISTICS, "DebugAutotuner.run", "the same while bandwidths are measured", ("stream",)),
    "compile_config": InductorPart(
        _HEURISTICS, "CachingAutotuner._precompile_config", "what is compiled for a config", ("cfg",)
    ),
    "precompile": InductorPart(_HEURISTICS, "CachingAutotuner.precompile", "compilation, which kerntune does itself"),
    "tune": InductorPart(_HEURISTICS, "CachingAutotuner.autotune_to_one_config", "Inductor's own choice of a config"),
    "grid": InductorPart(_HEURISTICS, "CachingAutotuner._interpret_args_grid", "the grid of a launch", ("args", "cfg")),
    "compile": InductorPart(
        _HEURISTICS, "triton.compile", "the arguments of a compilation", ("src", "target", "options")
    ),
    "driver": InductorPart(
        "torch._inductor.runtime.triton_helpers", "set_driver_to_gpu", "Triton's driver, which has none to set here"
    ),
    "graph_call": InductorPart(
        "torch._inductor.output_code", "CompiledFxGraph.__call__", "a call of a compiled graph", ("inputs",)
    ),
    "cudagraphify": InductorPart(
        "torch._inductor.compile_fx", "cudagraphify", "CUDA graphs, which hide launches from a capture", ("model",)
    ),
    "compile_frame": InductorPart(
        "torch._dynamo.convert_frame", "CatchErrorsWrapper.__call__", "a frame's compilation", ("frame",)
    ),
    "frame_result": InductorPart(
        "torch._dynamo.types", "ConvertFrameReturn", "frames of kerntune's that Dynamo leaves alone", kind="class"
    ),
    "frame_strategy": InductorPart(
        "torch._dynamo.types", "FrameExecStrategy", "what Dynamo does with such a frame, and below it", kind="class"
    ),
    "frame_action": InductorPart("torch._dynamo.types", "FrameAction", "the same", kind="class"),
    "not_below": InductorPart(
        "torch._dynamo.decorators",
        "_nonrecursive_disable_wrapper_code",
        "functions of torch.compiler.disable(recursive=False), which Dynamo knows by their caller",
        optional=True,
        kind="value",
    ),
    "wrap_module": InductorPart(
        "torch._dynamo.variables.builder",
        "VariableBuilder.wrap_module",
        "a compiled module that a compiled function calls",
        ("value",),
    ),
    "optimizer_call": InductorPart(
        "torch._dynamo.variables.optimizer",
        "OptimizerVariable.call_method",
        "an optimizer's states, which Dynamo makes while it traces its step",
        ("name",),
    ),
    "optimizer_steps": InductorPart(
        "torch._dynamo.variables.optimizer", "OptimizerVariable.move_step_if_cpu", "the same, of states on the CPU"
    ),
    "package_call": InductorPart(
        "torch._inductor.package.package", "AOTICompiledModel.__call__", "a call of a packaged graph", optional=True
    ),
    "config": InductorPart("torch._inductor", "config", "caches, threads and choices of code generation", kind="value"),
    "functorch_config": InductorPart(
        "torch._functorch", "config", "when a backward graph is compiled, and its cache", kind="value"
    ),
    "cuda_interface": InductorPart(
        _DEVICES, "CudaInterface", "the functions of torch.cuda as Dynamo has bound them", kind="class"
    ),
    "device_properties": InductorPart(
        _DEVICES, "caching_worker_device_properties", "properties of devices that are kept", kind="value"
    ),
    "handlers": InductorPart(
        "torch._dynamo.variables.torch",
        "TorchInGraphFunctionVariable._get_handlers",
        "Dynamo's table of functions, which must be made of torch's own",
    ),
    "no_modes": InductorPart(
        "torch.utils._python_dispatch", "_disable_current_modes", "compilation outside of the stand-ins' modes"
    ),
    "empty_strided": InductorPart(_GUARDS, "_empty_strided_cuda", "memory that generated code allocates"),
    "copy_misaligned": InductorPart(_GUARDS, "copy_if_misaligned", "a look at an address", optional=True),
    "raw_stream": InductorPart("torch._C", "_cuda_getCurrentRawStream", "the stream of launches", optional=True),
    "load_choice": InductorPart(
        "torch._inductor.codegen.multi_kernel",
        "MultiKernelCall.load_cache",
        "multi_kernel's choice of an earlier process; not asked where a setting has one taken",
        optional=True,
    ),
    "select": InductorPart(
        "torch._inductor.select_algorithm",
        "AlgorithmSelectorCache.__call__",
        "max-autotune's choice among templates",
        ("name", "choices", "input_nodes", "layout"),
    ),
    "time_fusion": InductorPart(
        "torch._inductor.scheduler", "Scheduler.speedup_by_fusion", "benchmark_fusion's choice", ("node1", "node2")
    ),
    "time_combo": InductorPart(
        "torch._inductor.scheduler", "Scheduler.speedup_by_combo_kernel", "benchmark_combo_kernel's choice", ("nodes",)
    ),
    "candidate_times": InductorPart(
        "torch._inductor.codecache",
        "PersistentCache.lookup",
        "the times of max-autotune's candidates",
        ("choices", "op", "inputs", "benchmark"),
        optional=True,
    ),
    "fused_time": InductorPart(
        "torch._inductor.codegen.triton",
        "TritonScheduling.benchmark_codegened_module",
        "the time of a fused kernel, by which Inductor fuses",
        ("mod",),
        optional=True,
    ),
    "combo_time": InductorPart(
        "torch._inductor.codegen.triton",
        "TritonScheduling.benchmark_combo_kernel",
        "the time of a combo kernel, by which Inductor makes one",
        ("node_list", "node_benchmark_results"),
        optional=True,
    ),
    "padding_known": InductorPart(
        _PADDING, "get_cached_should_pad", "whether it pads a matrix product, if it knows", ("key",), optional=True
    ),
    "padding_times": InductorPart(
        _PADDING, "is_padded_faster", "the times of that", ("key", "ori_time", "pad_time"), optional=True
    ),
    "multi_kernel": InductorPart(
        "torch._inductor.codegen.multi_kernel", "MultiKernelCall.run", "multi_kernel's choice among kernels"
    ),
    "has_triton": InductorPart("torch.utils._triton", "has_triton", "a cached answer about the GPU"),
    "reinterpret": InductorPart(_GUARDS, "_reinterpret_tensor", "views that generated code makes"),
    "fold_uniform": InductorPart(
        "torch._inductor.fx_passes.joint_graph",
        "UniformValueConstantFolder._deduce_value",
        "constants that are evaluated on the device",
    ),
    "keeps_graph": InductorPart(
        "torch._C._autograd", "_get_current_graph_task_keep_graph", "a question of compiled backward code to the engine"
    ),
    "generate": InductorPart(
        "torch._inductor.compile_fx", "_InProcessFxCompile.codegen_and_compile", "generation of a graph's code"
    ),
    "bench": InductorPart(_BENCHMARKS, "Benchmarker.benchmark", "launches that Inductor times"),
    "bench_gpu": InductorPart(_BENCHMARKS, "TritonBenchmarker.benchmark_gpu", "the same, by Triton's timer"),
    "bench_gpu_own": InductorPart(
        _BENCHMARKS, "InductorBenchmarker.benchmark_gpu", "the same, by Inductor's timer", optional=True
    ),
    "bench_profiling": InductorPart(
        "torch._inductor.utils", "do_bench_using_profiling", "the same, by torch's profiler", optional=True
    ),
    "descend": InductorPart(
        _HEURISTICS, "CachingAutotuner.coordinate_descent_tuning", "Inductor's search on from its choice"
    ),
    "bench_kernels": InductorPart(
        "torch._inductor.codegen.multi_kernel", "MultiKernelCall.benchmark_sub_kernels", "multi_kernel's times"
    ),
    "reset": InductorPart("torch._dynamo", "reset", "forgetting compiled code"),
    "dispatch_mode": InductorPart(
        "torch.utils._python_dispatch", "TorchDispatchMode", "operators that a compiled graph calls", kind="class"
    ),
    "tree_leaves": InductorPart("torch.utils._pytree", "tree_leaves", "the tensors of such an operator", ("tree",)),
    "function_modes": InductorPart("torch._C", "_len_torch_function_stack", "compilation without the stand-ins' modes"),
    "pop_function_mode": InductorPart("torch._C", "_pop_torch_function_stack", "the same"),
    "push_function_mode": InductorPart("torch._C", "_push_on_torch_function_stack", "the same"),
    "no_device": InductorPart(
        "torch._subclasses.fake_tensor",
        "FakeTensorMode.avoid_device_init",
        "tracing without touching the device",
        kind="value",
    ),
}
"""The parts that Inductor's kernels need, by a word of ours."""


def inductor_part(word: str) -> Any:
    """The object of an entry of :data:`INDUCTOR`. :class:`BackendError` if torch moved it."""
    return INDUCTOR[word].get()


def replace_part(stack: contextlib.ExitStack, word: str, value: Any) -> None:
    """Put ``value`` in the place of a part until ``stack`` closes."""
    owner, name = INDUCTOR[word].owner()
    stack.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, value)


# Dynamo and kerntune's own frames

UNTRACED = ("base", "capture", "compiling", "gate", "gpu", "kernels")
"""Packages of kerntune's that run where torch or Triton would, while Dynamo looks at each Python frame that begins:
operators on stand-ins, replaced methods, launches that are captured. (What users call, as :func:`kerntune.choice`, is
traced as any function of theirs.)"""

_OWN = (*(str(Path(__file__).parents[2] / package) + os.sep for package in UNTRACED), weakref.__file__)
"""Stand-ins are in dictionaries with weak keys, too: what removes dead ones runs at any time."""

_calls_users: set[CodeType] = set()

_Function = TypeVar("_Function", bound=Callable[..., Any])


def calls_users_code(function: _Function) -> _Function:
    """Mark a function of these packages that stands in the place of one of torch's, and calls users' code: Dynamo
    compiles that code as it does below torch's own."""
    _calls_users.add(function.__code__)
    return function


def leaving_out_own(compile_frame: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo's compilation of a frame (the part ``compile_frame``) for all frames but kerntune's own, which run as they
    are, and with them all that they call. Dynamo would else compile the very code that stands for a device: graphs
    that the user's function doesn't have.

    It is put around all other replacements of that part. Dynamo leaves a function alone that is called by the wrapper
    of ``torch.compiler.disable(recursive=False)``. It looks for this caller above its own module, where it would find
    a replacement instead.
    """
    result, strategy, action = (inductor_part(word) for word in ("frame_result", "frame_strategy", "frame_action"))
    wrappers_code = inductor_part("not_below") if INDUCTOR["not_below"].exists() else None

    def compile_users(wrapper: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(_OWN):
            below = action.DEFAULT if code in _calls_users else action.SKIP
            return result(frame_exec_strategy=strategy(action.SKIP, below))
        if sys._getframe(1).f_code is wrappers_code:
            return result(apply_to_code=False)
        return compile_frame(wrapper, frame, *args, **kwargs)

    return compile_users


@contextlib.contextmanager
def before_compiled(begin: Callable[[contextlib.ExitStack], None]) -> Iterator[Sequence[str]]:
    """``begin`` is called before a function compiled by ``torch.compile`` runs meanwhile, with a stack that closes at
    the end: now if such a function may exist, else when the first is made. Torch's compiler isn't imported for a call
    that has none. Where this torch has moved a part that ``begin`` needs, a warning names the part, and kernels that
    aren't compiled by torch are captured as always."""
    import torch

    with contextlib.ExitStack() as stack:
        if inductor_is_used():
            _begin(begin, stack)
            yield ()
            return
        original = torch.compile
        begun: list[bool] = []

        def compile_(*args: Any, **kwargs: Any) -> Any:
            if not begun:
                begun.append(True)
                _begin(begin, stack)
            return original(*args, **kwargs)

        torch.compile = compile_
        stack.callback(setattr, torch, "compile", original)
        yield ()


def _begin(begin: Callable[[contextlib.ExitStack], None], stack: contextlib.ExitStack) -> None:
    why = why_gate_is_off()
    if not why:
        try:
            begin(stack)
        except BackendError as exc:
            why = f"{exc}: {GATE_OFF}"
    if why:
        warnings.warn(f"kernels of functions compiled by torch are not captured: {why}", RuntimeWarning, stacklevel=2)


def matmul_precision() -> str:
    """How torch multiplies matrices of float32 in this process: it decides how fast its own operators are."""
    import torch

    return str(torch.get_float32_matmul_precision())


def triton_folder() -> str:
    """Triton's cache of this process."""
    from triton import knobs

    return str(knobs.cache.dir)


USED = ("torch._inductor.compiler_bisector", "torch._inductor.compile_fx", "torch._inductor.package")
"""Modules that ``torch.compile``, Inductor and a package of AOTInductor import. The step of any optimizer imports
``torch._dynamo`` and some of ``torch._inductor`` as well, but none of these."""


def inductor_is_used() -> bool:
    """Whether this process has compiled something with ``torch.compile``, or is about to."""
    return any(name in sys.modules for name in USED)


class _Asked(BaseException):
    """Carries what ``triton.compile`` was to be called with. No ``except Exception`` of torch's may log it."""

    def __init__(self, source: Any, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.source, self.options = source, options


@dataclass(frozen=True)
class InductorCompilation:
    """What Inductor gives Triton for a kernel and a config: the source object's parts, and the compiler's options."""

    jit: Any
    signature: Mapping[str, Any]
    constants: Mapping[tuple[int, ...], Any]
    attrs: Mapping[tuple[int, ...], Any]
    options: Mapping[str, Any]


_asking = threading.Lock()


def inductor_compilation(tuner: Any, config: Any) -> InductorCompilation:
    """What Inductor's ``tuner`` would compile for one of its configs; nothing is compiled.

    It is taken from Inductor's own call of ``triton.compile``, so it holds in every version, whatever options it gives.
    :class:`BackendError` for a torch that compiles in another way.
    """
    me, original = threading.get_ident(), inductor_part("compile")
    with _asking, contextlib.ExitStack() as stack:

        def ask(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
            if threading.get_ident() != me:
                return original(src, target=target, options=options, **more)
            raise _Asked(src, dict(options or {}))

        loaded_kernel(tuner)
        replace_part(stack, "compile", ask)
        replace_part(stack, "driver", lambda: None)  # where there is none to set, this may be called after a capture
        try:
            tuner._precompile_config(config)
        except _Asked as asked:
            source = asked.source
            return InductorCompilation(
                source.fn, dict(source.signature), dict(source.constants), dict(source.attrs), asked.options
            )
    raise BackendError(f"{INDUCTOR['compile_config'].name} compiled without calling triton.compile")


def loaded_kernel(tuner: Any) -> Any:
    """The tuner's ``JITFunction`` with its Python function, which a tuner that a worker has made is without."""
    if tuner.fn.fn is None:
        tuner.fn = tuner._reload_kernel().fn
    return tuner.fn


def inductor_grid(tuner: Any, args: Sequence[Any], config: Any) -> tuple[tuple[Any, ...], tuple[int, int, int]]:
    """The arguments that the kernel itself takes, and the grid of a launch with one of the tuner's configs."""
    kernel_args, grid = tuner._interpret_args_grid(tuple(args), config)
    x, y, z = (int(n) for n in grid)
    return tuple(kernel_args), (x, y, z)


def settled_config(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Inductor's config for a launch that is about to be made on a GPU; it is compiled and tuned if it isn't yet."""
    compile_listed(tuner)
    if len(tuner.launchers) > 1:
        note_configs(tuner)
        tuner.autotune_to_one_config(*args, **kwargs)
    return tuner.launchers[0].config if tuner.launchers else tuner.configs[0]


def compile_listed(tuner: Any) -> None:
    """Compile a tuner's configs, if that isn't done yet."""
    if not tuner.launchers:
        tuner.precompile()


def keep_config(tuner: Any, wanted: Callable[[Any], bool], make: Callable[[Any], Any]) -> bool:
    """Settle a tuner on the config for which ``wanted`` is true, without timing; False if it can't choose that one.
    Its list is compiled (:func:`compile_listed`).

    A tuner that has chosen already, here or in an earlier process, has that config alone, and a search
    (``coordinate_descent_tuning``) finds configs that are in no list: the wanted one is compiled then, which ``make``
    makes of another of the tuner's. A tuner that still has its whole list must have it there.
    """
    if not tuner.launchers:
        return False
    kept = next((launcher for launcher in tuner.launchers if wanted(launcher.config)), None)
    if kept is None and _has_chosen(tuner, wanted):
        kept = _compiled_launcher(tuner, make(tuner.launchers[0].config))
    if kept is None:
        return False
    note_configs(tuner)
    if tuner.launchers != [kept]:
        tuner.launchers = [kept]
        tuner._cached_launcher = None  # torch 2.13 keeps the launcher of its first launch there
    for searched in ("found_by_coordesc", "found_by_combo_autotune"):
        setattr(kept.config, searched, True)  # so that Inductor doesn't search on from it
    return True


def note_configs(tuner: Any) -> None:
    """Remember a tuner's list, of which its choice leaves one."""
    if len(tuner.launchers) > 1:
        tuner.kerntune_listed = [launcher.config for launcher in tuner.launchers]


def _has_chosen(tuner: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether a tuner's list may have had a config that it doesn't have now."""
    if any(wanted(config) for config in getattr(tuner, "kerntune_listed", ())):
        return True
    kept = (getattr(tuner, "autotune_cache_info", None) or {}).get("autotune_cache_state") == "hit"
    return kept or bool(tuner.inductor_meta.get("coordinate_descent_tuning"))


def _compiled_launcher(tuner: Any, config: Any) -> Any:
    """A launcher of a config, as Inductor's search makes it; None if the kernel can't have that config."""
    if config is None:
        return None
    try:
        loaded_kernel(tuner)
        return tuner._precompile_config(config).make_launcher()
    except Exception:  # whatever Triton or torch raise of it, Inductor's own choice is left
        return None


def listed_kernels(call: Any) -> list[Any]:
    """The tuners of the kernels among which a call of ``multi_kernel``'s chooses."""
    return list(call.kernels)


def size_hints_text(tuner: Any) -> str:
    """The sizes that a kernel was generated for, as Inductor rounds them."""
    return repr(getattr(tuner, "size_hints", None))


def choose_anew(call: Any) -> None:
    """Have a call of ``multi_kernel`` choose by times at this launch, if the choice is its own (:func:`mark_free`)."""
    if getattr(call, "kerntune_free", False):
        call.picked_kernel = None


def mark_free(call: Any) -> None:
    """Note that no setting has the kernel taken."""
    call.kerntune_free = True


def combo_settings() -> tuple[str, ...]:
    """The settings by which Inductor divides kernels into combo kernels."""
    config = inductor_part("config")
    names = ("combo_kernels_autotune", "combo_kernel_allow_mixed_sizes", "combo_kernel_per_subkernel_blocks")
    return tuple(repr(getattr(config, name, None)) for name in names)


def launched_config(tuner: Any, config: Any) -> Any:
    """The config that a tuner keeps after a launch with ``config``; the very object if that one stays."""
    return tuner.launchers[0].config if tuner.launchers else config


def launches_kernels(graph: Any) -> bool:
    """Whether a compiled graph's generated code has Triton kernels."""
    source = str(getattr(graph, "source_code", "") or "")
    return "async_compile.triton(" in source or "triton_heuristics" in source


def why_hidden(graph: Any) -> str:
    """Where a graph that launched nothing visible makes its launches, as far as is known."""
    if (getattr(graph, "fx_kwargs", None) or {}).get("cpp_wrapper"):
        return "a graph compiled with cpp_wrapper, which launches from C++"
    return "a compiled graph whose launches were recorded before, such as in a CUDA graph that it replays"


def kernel_word(tuner: Any) -> str:
    """The name that Inductor gave a kernel: a number at its end, its ATen operators before."""
    return str(tuner.inductor_meta.get("kernel_name") or tuner.fn.__name__)


COMPILER_FAILURES = frozenset({"BackendCompilerFailed", "InductorError", "InternalTorchDynamoError"})
"""Exceptions of torch's compiler that say that it failed, and not that a user's function can't be compiled."""


def is_compiler_failure(exc: BaseException) -> bool:
    """Whether torch's compiler itself has failed."""
    return any(kind.__name__ in COMPILER_FAILURES for kind in type(exc).__mro__)


def wraps_in_cpp(options: Mapping[str, Any]) -> bool:
    """Whether a function compiled with these options of ``torch.compile`` launches from C++."""
    given = (options.get("options") or {}).get("cpp_wrapper")
    return bool(inductor_part("config").cpp_wrapper if given is None else given)


def runs_on_gpu(tuner: Any) -> bool:
    """Whether the kernel is for a GPU; Triton compiles for CPUs too."""
    return getattr(tuner.device_props, "type", "cuda") != "cpu"


def is_users_kernel(tuner: Any) -> bool:
    """Whether the kernel is the user's own, which Inductor only launches."""
    return bool(getattr(tuner, "custom_kernel", False))


@contextlib.contextmanager
def only_code_generation() -> Iterator[None]:
    """Inductor's settings while it generates code that isn't run: in this process, and without a cache of graphs."""
    inductor, functorch = inductor_part("config"), inductor_part("functorch_config")
    wanted: dict[str, Any] = {
        "compile_threads": 1,
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
        "autotune_local_cache": False,
        "autotune_remote_cache": False,
        "bundled_autotune_remote_cache": False,
        "use_static_cuda_launcher": False,
        "use_static_triton_launcher": False,
    }
    later = {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True}
    with contextlib.ExitStack() as stack:
        stack.enter_context(inductor.patch({k: v for k, v in wanted.items() if hasattr(inductor, k)}))
        stack.enter_context(functorch.patch({k: v for k, v in later.items() if hasattr(functorch, k)}))
        yield


@contextlib.contextmanager
def without_graph_caches() -> Iterator[None]:
    """Each graph's code is generated anew: one that is kept contains the choices that were made for it."""
    inductor, functorch = inductor_part("config"), inductor_part("functorch_config")
    wanted = {"fx_graph_cache": False, "fx_graph_remote_cache": False}
    with contextlib.ExitStack() as stack:
        stack.enter_context(inductor.patch({k: v for k, v in wanted.items() if hasattr(inductor, k)}))
        if hasattr(functorch, "enable_autograd_cache"):
            stack.enter_context(functorch.patch({"enable_autograd_cache": False}))
        yield


def interface_functions() -> Iterator[tuple[str, bool]]:
    """Names that Dynamo's CUDA interface has bound of ``torch.cuda``, and whether each is a static method there."""
    interface = inductor_part("cuda_interface")
    import torch

    for name, value in vars(interface).items():
        if not name.startswith("__") and hasattr(torch.cuda, name):
            yield name, isinstance(value, staticmethod)


def forget_answers() -> None:
    """Drop what torch has kept of its questions about the GPU: another one is there now, or none."""
    inductor_part("device_properties").clear()
    for asked in (inductor_part("has_triton"), *_kept_answers()):
        clear: Callable[[], None] | None = getattr(asked, "cache_clear", None)
        if clear is not None:
            clear()


def _kept_answers() -> Iterator[Any]:
    """Cached functions of Inductor's that ask about the device; each is there in some versions."""
    for module in ("torch._inductor.utils", "torch._inductor.runtime.hints", "torch.utils._triton"):
        found = sys.modules.get(module)
        for value in list(vars(found).values()) if found is not None else ():
            if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == module:
                yield value
