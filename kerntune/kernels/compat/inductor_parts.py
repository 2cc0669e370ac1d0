"""The private parts of torch that capturing Inductor's kernels uses.

:mod:`kerntune.kernels.compat.torch_private` has all others. None of these names is promised by torch. Each stands in
a table with what it is used for, so that a test, and an error message, can say which of them another torch has moved.
Nothing here imports torch's compiler before a function is called.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerntune.errors import BackendError
from kerntune.kernels.compat.versions import PrivateName


@dataclass(frozen=True)
class InductorPart(PrivateName):
    """What a private name is used for; ``optional`` ones are of some versions only, and need no replacement there."""

    use: str
    optional: bool = False

    def owner(self) -> tuple[Any, str]:
        """The object that has the attribute, and the attribute's name. :class:`BackendError` if torch moved it."""
        found = self.owner_in(self.load())
        if found is None:
            raise BackendError(self.changed())
        return found

    def get(self) -> Any:
        """The object itself. :class:`BackendError` if torch moved it."""
        return getattr(*self.owner())

    def exists(self) -> bool:
        """Whether this torch has it as it is known."""
        return not self.problem_in(self.load())

    def changed(self) -> str:
        """What this torch has moved or changed, and what that is used for."""
        return f"{self.problem_in(self.load())}, which is used for: {self.use}"


def moved_parts() -> list[str]:
    """What the installed torch has moved or changed of what captures can't be without, a line each."""
    return [part.changed() for part in INDUCTOR.values() if not (part.optional or part.exists())]


GATE_OFF = "the gate of compiled functions is off; kernels launched directly are judged"


def why_gate_is_off() -> str:
    """Why this torch's compiled functions can't be captured, and what still works; else empty. Imports Inductor."""
    moved = moved_parts()
    return f"{'; '.join(moved)}: {GATE_OFF}" if moved else ""


_HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_TUNER = f"{_HEURISTICS}:CachingAutotuner"
_MULTI_KERNEL = "torch._inductor.codegen.multi_kernel:MultiKernelCall"
_SCHEDULING = "torch._inductor.codegen.triton:TritonScheduling"
_DEVICES = "torch._dynamo.device_interface"
_GUARDS = "torch._C._dynamo.guards"
_BENCHMARKS = "torch._inductor.runtime.benchmarking"
_PADDING = "torch._inductor.fx_passes.pad_mm"

_TABLE = {
    "run": (f"{_TUNER}.run(stream, benchmark_run)", "every launch of a kernel of Inductor's"),
    "debug_run": (f"{_HEURISTICS}:DebugAutotuner.run(stream)",
                  "the same while bandwidths are measured"),
    "compile_config": (f"{_TUNER}._precompile_config(cfg)", "what is compiled for a config"),
    "precompile": (f"{_TUNER}.precompile", "compilation, which kerntune does itself"),
    "tune": (f"{_TUNER}.autotune_to_one_config", "Inductor's own choice of a config"),
    "descend": (f"{_TUNER}.coordinate_descent_tuning", "Inductor's search on from its choice"),
    "grid": (f"{_TUNER}._interpret_args_grid(args, cfg)", "the grid of a launch"),
    "compile": (f"{_HEURISTICS}:triton.compile(src, target, options)",
                "the arguments of a compilation"),
    "driver": ("torch._inductor.runtime.triton_helpers:set_driver_to_gpu",
               "Triton's driver, which has none to set here"),
    "bench": (f"{_BENCHMARKS}:Benchmarker.benchmark", "launches that Inductor times"),
    "bench_gpu": (f"{_BENCHMARKS}:TritonBenchmarker.benchmark_gpu", "the same, by Triton's timer"),
    "bench_gpu_own": (f"optional {_BENCHMARKS}:InductorBenchmarker.benchmark_gpu",
                      "the same, by Inductor's timer"),
    "bench_profiling": ("optional torch._inductor.utils:do_bench_using_profiling",
                        "the same, by torch's profiler"),
    "graph_call": ("torch._inductor.output_code:CompiledFxGraph.__call__(inputs)",
                   "a call of a compiled graph"),
    "package_call": ("optional torch._inductor.package.package:AOTICompiledModel.__call__",
                     "a call of a packaged graph"),
    "cudagraphify": ("torch._inductor.compile_fx:cudagraphify(model)",
                     "CUDA graphs, which hide launches from a capture"),
    "generate": ("torch._inductor.compile_fx:_InProcessFxCompile.codegen_and_compile",
                 "generation of a graph's code"),
    "config": ("value torch._inductor:config", "caches, threads and choices of code generation"),
    "functorch_config": ("value torch._functorch:config",
                         "when a backward graph is compiled, and its cache"),
    "reset": ("torch._dynamo:reset", "forgetting compiled code"),
    "compile_frame": ("torch._dynamo.convert_frame:CatchErrorsWrapper.__call__(frame)",
                      "a frame's compilation"),
    "frame_result": ("class torch._dynamo.types:ConvertFrameReturn",
                     "frames of kerntune's that Dynamo leaves alone"),
    "frame_strategy": ("class torch._dynamo.types:FrameExecStrategy",
                       "what Dynamo does with such a frame, and below it"),
    "frame_action": ("class torch._dynamo.types:FrameAction", "the same"),
    "not_below": ("optional value torch._dynamo.decorators:_nonrecursive_disable_wrapper_code",
                  "functions of torch.compiler.disable(recursive=False), which Dynamo knows by their caller"),
    "wrap_module": ("torch._dynamo.variables.builder:VariableBuilder.wrap_module(value)",
                    "a compiled module that a compiled function calls"),
    "optimizer_call": ("torch._dynamo.variables.optimizer:OptimizerVariable.call_method(name)",
                       "an optimizer's states, which Dynamo makes while it traces its step"),
    "optimizer_steps": ("torch._dynamo.variables.optimizer:OptimizerVariable.move_step_if_cpu",
                        "the same, of states on the CPU"),
    "cuda_interface": (f"class {_DEVICES}:CudaInterface",
                       "the functions of torch.cuda as Dynamo has bound them"),
    "device_properties": (f"value {_DEVICES}:caching_worker_device_properties",
                          "properties of devices that are kept"),
    "handlers": ("torch._dynamo.variables.torch:TorchInGraphFunctionVariable._get_handlers",
                 "Dynamo's table of functions, which must be made of torch's own"),
    "no_modes": ("torch.utils._python_dispatch:_disable_current_modes",
                 "compilation outside of the stand-ins' modes"),
    "dispatch_mode": ("class torch.utils._python_dispatch:TorchDispatchMode",
                      "operators that a compiled graph calls"),
    "tree_leaves": ("torch.utils._pytree:tree_leaves(tree)", "the tensors of such an operator"),
    "has_triton": ("torch.utils._triton:has_triton", "a cached answer about the GPU"),
    "empty_strided": (f"{_GUARDS}:_empty_strided_cuda", "memory that generated code allocates"),
    "copy_misaligned": (f"optional {_GUARDS}:copy_if_misaligned", "a look at an address"),
    "reinterpret": (f"{_GUARDS}:_reinterpret_tensor", "views that generated code makes"),
    "raw_stream": ("optional torch._C:_cuda_getCurrentRawStream", "the stream of launches"),
    "function_modes": ("torch._C:_len_torch_function_stack",
                       "compilation without the stand-ins' modes"),
    "pop_function_mode": ("torch._C:_pop_torch_function_stack", "the same"),
    "push_function_mode": ("torch._C:_push_on_torch_function_stack", "the same"),
    "keeps_graph": ("torch._C._autograd:_get_current_graph_task_keep_graph",
                    "a question of compiled backward code to the engine"),
    "no_device": ("value torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init",
                  "tracing without touching the device"),
    "multi_kernel": (f"{_MULTI_KERNEL}.run", "multi_kernel's choice among kernels"),
    "bench_kernels": (f"{_MULTI_KERNEL}.benchmark_sub_kernels", "multi_kernel's times"),
    "load_choice": (f"optional {_MULTI_KERNEL}.load_cache",
                    "multi_kernel's choice of an earlier process; not asked where a setting has one taken"),
    "select": ("torch._inductor.select_algorithm:AlgorithmSelectorCache.__call__(name, choices, input_nodes, layout)",
               "max-autotune's choice among templates"),
    "time_fusion": ("torch._inductor.scheduler:Scheduler.speedup_by_fusion(node1, node2)",
                    "benchmark_fusion's choice"),
    "time_combo": ("torch._inductor.scheduler:Scheduler.speedup_by_combo_kernel(nodes)",
                   "benchmark_combo_kernel's choice"),
    "candidate_times": ("optional torch._inductor.codecache:PersistentCache.lookup(choices, op, inputs, benchmark)",
                        "the times of max-autotune's candidates"),
    "fused_time": (f"optional {_SCHEDULING}.benchmark_codegened_module(mod)",
                   "the time of a fused kernel, by which Inductor fuses"),
    "combo_time": (f"optional {_SCHEDULING}.benchmark_combo_kernel(node_list, node_benchmark_results)",
                   "the time of a combo kernel, by which Inductor makes one"),
    "padding_known": (f"optional {_PADDING}:get_cached_should_pad(key)",
                      "whether it pads a matrix product, if it knows"),
    "padding_times": (f"optional {_PADDING}:is_padded_faster(key, ori_time, pad_time)",
                      "the times of that"),
    "fold_uniform": ("torch._inductor.fx_passes.joint_graph:UniformValueConstantFolder._deduce_value",
                     "constants that are evaluated on the device"),
    "origins": ("optional torch._inductor.utils:aggregate_origins",
                "the nodes of a graph that a kernel computes"),
    "describe_kernel": ("optional torch._inductor.codegen.triton:get_kernel_metadata(node_schedule, wrapper)",
                        "the comment on a kernel, to which its lines are added"),
    "describe_template": ("optional torch._inductor.utils:get_kernel_metadata(node_schedule, wrapper)",
                          "the same of templates and combo kernels"),
    "describe_operator": ("optional torch._inductor.ir:get_kernel_metadata(node_schedule, wrapper)",
                          "the same of operators that generated code calls"),
    "copy_between_devices": ("optional torch._inductor.ir:DeviceCopy.codegen(wrapper)",
                             "a copy to the device, on which generated code has no comment of its own"),
    "graph_breaks": ("optional value torch._dynamo.utils:graph_break_reasons",
                     "why a graph ends, and where"),
}  # fmt: skip

OPTIONAL = "optional "

INDUCTOR: dict[str, InductorPart] = {
    word: InductorPart.parsed(text.removeprefix(OPTIONAL), use, optional=text.startswith(OPTIONAL))
    for word, (text, use) in _TABLE.items()
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


def matmul_precision() -> str:
    """How torch multiplies matrices of float32 in this process: it decides how fast its own operators are."""
    import torch

    return str(torch.get_float32_matmul_precision())


USED = ("torch._inductor.compiler_bisector", "torch._inductor.compile_fx", "torch._inductor.package")
"""Modules that ``torch.compile``, Inductor and a package of AOTInductor import. The step of any optimizer imports
``torch._dynamo`` and some of ``torch._inductor`` as well, but none of these."""


def inductor_is_used() -> bool:
    """Whether this process has compiled something with ``torch.compile``, or is about to."""
    return any(name in sys.modules for name in USED)


@dataclass(frozen=True)
class InductorCompilation:
    """What Inductor gives Triton for a kernel and a config: the source object's parts, and the compiler's options."""

    jit: Any
    signature: Mapping[str, Any]
    constants: Mapping[tuple[int, ...], Any]
    attrs: Mapping[tuple[int, ...], Any]
    options: Mapping[str, Any]


class _Asked(BaseException):
    """Carries what ``triton.compile`` was to be called with. No ``except Exception`` of torch's may log it."""


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
            parts = (dict(src.signature), dict(src.constants), dict(src.attrs))
            raise _Asked(InductorCompilation(src.fn, *parts, dict(options or {})))

        loaded_kernel(tuner)
        replace_part(stack, "compile", ask)
        replace_part(stack, "driver", lambda: None)  # where there is none to set, this may be called after a capture
        try:
            tuner._precompile_config(config)
        except _Asked as asked:
            compilation: InductorCompilation
            (compilation,) = asked.args
            return compilation
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

    A tuner that has chosen already, here or in an earlier process, or that searches (``coordinate_descent_tuning``),
    may not list it: ``make`` then makes it of another of the tuner's, and it is compiled.
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


def is_compiler_failure(exc: BaseException) -> bool:
    """Whether torch's compiler itself has failed, which doesn't mean that a user's function can't be compiled."""
    failures = {"BackendCompilerFailed", "InductorError", "InternalTorchDynamoError"}
    return any(kind.__name__ in failures for kind in type(exc).__mro__)


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
