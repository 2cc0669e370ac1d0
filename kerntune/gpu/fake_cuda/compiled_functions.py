"""``torch.compile`` without a GPU: Inductor generates code for a device that doesn't exist, and launches are recorded.

Outside of a capture compiled functions run as they are: nothing would look at what is generated. Inside of one,
Dynamo and Inductor compile them as on a GPU; the generated code then runs on stand-ins, and ends at each launch.
Where Inductor would time candidates, there is nothing to time them on.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from weakref import WeakSet

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.base.changed_items import changed_items
from kerntune.base.folders import scratch_folder
from kerntune.gpu.fake_cuda.modes import EnterModes
from kerntune.gpu.fake_cuda.patches import Replacements, replace
from kerntune.kernels.compat.inductor_parts import (
    INDUCTOR,
    inductor_part,
    is_compiler_failure,
    why_gate_is_off,
    wraps_in_cpp,
)
from kerntune.kernels.compat.torch_compiler import (
    forget_answers,
    interface_functions,
    leaving_out_own,
    only_code_generation,
)


def _replace_part(stack: ExitStack, word: str, value: Any) -> None:
    replace(stack, *INDUCTOR[word].owner(), value)


class TimedChoices:
    """The choices of one capture, in words, each once. Each is made without a measurement so that the rest of the call
    can be seen; what is generated for it may be another kernel than on the GPU."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def note(self, text: str) -> None:
        """Add a choice."""
        if text not in self.made:
            self.made.append(text)

    def install(self, stack: ExitStack) -> None:
        """Until ``stack`` closes, Inductor's timed choices are noted."""
        _replace_part(stack, "select", self._select(inductor_part("select")))
        fusion = self._untimed(inductor_part("time_fusion"), "benchmark_fusion", "what is fused")
        _replace_part(stack, "time_fusion", fusion)
        _replace_part(stack, "multi_kernel", self._multi_kernel())
        combo = self._untimed(inductor_part("time_combo"), "benchmark_combo_kernel", "which kernels are combined")
        _replace_part(stack, "time_combo", combo)
        if INDUCTOR["padding_known"].exists():
            _replace_part(stack, "padding_known", self._padding)

    def _select(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def select(cache: Any, name: str, choices: Any, *args: Any, **kwargs: Any) -> Any:
            if len(choices) > 1:
                self.note(f"max-autotune times {len(choices)} candidates for {name}")
            return original(cache, name, choices[:1], *args, **kwargs)

        return select

    def _untimed(self, original: Callable[..., Any], setting: str, times: str) -> Callable[..., Any]:
        """One of Inductor's decisions by ``setting``, without what it times."""
        config = inductor_part("config")

        def speedup(scheduler: Any, *nodes: Any, **kwargs: Any) -> Any:
            if getattr(config, setting):
                self.note(f"{setting} times {times}")
            with config.patch({setting: False}):
                return original(scheduler, *nodes, **kwargs)

        return speedup

    def _padding(self, key: str) -> bool:
        """Inductor's question whether it has timed a matrix product before: it is taken as it is."""
        self.note("shape_padding times whether a matrix product of these sizes is padded")
        return False

    def _multi_kernel(self) -> Callable[..., Any]:
        def run(call: Any, *args: Any, **kwargs: Any) -> Any:
            names = ", ".join(str(k.inductor_meta.get("kernel_name")) for k in call.kernels)
            self.note(f"multi_kernel times {names}")
            for i, kernel in enumerate(call.kernels[:1]):
                kernel.run(*call._get_filtered_args(args, i), **kwargs)

        return run


CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Inductor sets the second one for the process, at the first kernel that it makes."""

COMPILED = "kerntune_compiled"
"""The attribute of a function in the place of a compiled one: it returns torch's own, which it makes when it must."""

COMPILED_MARKS = ("_torchdynamo_", "_is_torch_compile")
WRAPPER_ID = "_torchdynamo_wrapper_id"
"""The number of the very function that is marked."""

INIT_GROUP = "_init_group"
"""The method of an optimizer that makes its states, at the first step."""


class CompiledFunctions:
    """The replacement of ``torch.compile``.

    ``entered_modes()`` enters the stand-ins' modes again where torch's compiler has none. ``function_mode()`` is the
    torch-function mode among them, which Dynamo would trace.
    """

    def __init__(self, entered_modes: EnterModes, function_mode: Callable[[], Any]) -> None:
        self._entered_modes = entered_modes
        self._function_mode = function_mode
        self._capture: Replacements | None = None
        """What is replaced while a call is captured, from its first compiled function on."""

        self._off = ""
        """Why no code is generated in this capture."""

        self._begin: Callable[[ExitStack], None] = _nothing
        self._compile: Callable[..., Any] = torch.compile
        self._calls: WeakSet[Callable[..., Any]] = WeakSet()
        """What has been returned for functions and modules so far."""

        self._stand_ins: Replacements | None = None
        self.choices = TimedChoices()

    def install(self, stack: Replacements) -> None:
        """Replace ``torch.compile`` until ``stack`` closes, which is the stand-ins' own."""
        self._compile, self._stand_ins = torch.compile, stack
        replace(stack, torch, "compile", self.compile)

    def compile(self, model: Any = None, **options: Any) -> Any:
        """As ``torch.compile``: a function or module that is compiled when it is called inside of a capture."""
        if model is None:
            return lambda function: self.compile(function, **options)
        if options.get("disable") or options.get("backend", "inductor") != "inductor":
            return model  # others run PyTorch's operators
        made = self._wrapped(model, options)
        if isinstance(model, torch.nn.Module):
            return CompiledModule(model, made)
        functools.update_wrapper(made, model)
        self._calls.add(made)
        if self._capture is not None and self._capture.made:
            _mark_compiled(made)
        return made

    @contextmanager
    def generating(self, begin: Callable[[ExitStack], None] | None = None) -> Iterator[list[str]]:
        """While a call is captured: functions are compiled, after ``begin``. The choices among kernels that Inductor
        would have made by their times, as they are made."""
        self.choices, self._off = TimedChoices(), ""
        with Replacements() as stack:
            self._capture, self._begin = stack, begin or _nothing
            try:
                yield self.choices.made
            finally:
                self._capture, self._begin = None, _nothing  # it has the capture, and so the call's tensors

    def _wrapped(self, model: Any, options: Mapping[str, Any]) -> Callable[..., Any]:
        @functools.cache
        def compiled() -> Any:
            return self._compile(model, **options)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._capture is None or not self._generates(self._capture):
                return model(*args, **kwargs)
            if wraps_in_cpp(options):
                self.choices.note("cpp_wrapper launches from C++")
                return model(*args, **kwargs)
            try:
                with without_function_mode(self._function_mode()):
                    return compiled()(*args, **kwargs)
            except Exception as exc:
                if not is_compiler_failure(exc):
                    raise
                self.choices.note(f"Inductor could not generate code here ({first_line(exc)})")
                return model(*args, **kwargs)

        setattr(call, COMPILED, compiled)
        return call

    def _generates(self, stack: Replacements) -> bool:
        """Whether code is generated while this call is captured, which its first compiled function begins. Where torch
        has moved a part that this needs, that is said, and compiled functions run as they are."""
        if not stack.made and not self._off:
            self._off = self._import_compiler()
            if self._off:
                self.choices.note(self._off)
            else:
                self._install_generation(stack)
        return not self._off

    def _import_compiler(self) -> str:
        """Import torch's compiler as on a machine without stand-ins: it keeps and lists functions of ``torch.cuda``.
        What this torch lacks of it; empty if all is there."""
        assert self._stand_ins is not None
        with self._stand_ins.lifted(), self._without_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its own use
            why = why_gate_is_off()
            if not why:
                inductor_part("handlers")()
            return why

    @contextmanager
    def _without_modes(self) -> Iterator[None]:
        with inductor_part("no_modes")(), without_function_mode(self._function_mode()):
            yield

    def _install_generation(self, stack: Replacements) -> None:
        stack.enter_context(own_caches())
        stack.enter_context(only_code_generation())
        stack.callback(forget_answers)
        forget_answers()
        self._install_device(stack)
        self.choices.install(stack)
        self._begin(stack)  # before the next: what it watches runs among stand-ins
        compile_frame, graph_call = inductor_part("compile_frame"), inductor_part("graph_call")

        def outside_modes(*args: Any, **kwargs: Any) -> Any:
            with self._without_modes():
                return compile_frame(*args, **kwargs)

        def among_stand_ins(graph: Any, inputs: Any) -> Any:
            with self._entered_modes():
                return graph_call(graph, inputs)

        _replace_part(stack, "compile_frame", leaving_out_own(outside_modes))
        _replace_part(stack, "graph_call", among_stand_ins)

        self._install_optimizers(stack)
        self._install_calls(stack)

    def _install_calls(self, stack: Replacements) -> None:
        """Where a compiled function calls another, Dynamo goes on in that one's original, as in those of torch's."""
        for call in list(self._calls):
            _mark_compiled(call)
        wrap_module = inductor_part("wrap_module")

        def wrap(builder: Any, value: Any) -> Any:
            return wrap_module(builder, value.compiled() if isinstance(value, CompiledModule) else value)

        _replace_part(stack, "wrap_module", wrap)

    def _install_optimizers(self, stack: Replacements) -> None:
        """Dynamo runs ``_init_group`` of an optimizer while it traces the step: its tensors are the step's own, so they
        are made among stand-ins."""
        call_method, move_steps = inductor_part("optimizer_call"), inductor_part("optimizer_steps")

        def call(variable: Any, tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as until_called:
                if name == INIT_GROUP and hasattr(variable.value, name):
                    self._initialise_among_stand_ins(until_called, type(variable.value))
                return call_method(variable, tx, name, *args, **kwargs)

        def move(variable: Any) -> None:
            with self._entered_modes():
                move_steps(variable)

        _replace_part(stack, "optimizer_call", call)
        _replace_part(stack, "optimizer_steps", move)

    def _initialise_among_stand_ins(self, until_called: ExitStack, optimizer: Any) -> None:
        """The next call of a class's ``_init_group`` is made in the stand-ins' modes."""
        original = getattr(optimizer, INIT_GROUP)

        @functools.wraps(original)  # with Dynamo's marks
        def init_group(*args: Any, **kwargs: Any) -> Any:
            until_called.close()
            with self._entered_modes():
                return original(*args, **kwargs)

        replace(until_called, optimizer, INIT_GROUP, init_group)

    @staticmethod
    def _install_device(stack: Replacements) -> None:
        interface = inductor_part("cuda_interface")
        for name, static in list(interface_functions()):
            answer = getattr(torch.cuda, name)
            replace(stack, interface, name, staticmethod(answer) if static else answer)
        replace(stack, interface, "get_raw_stream", staticmethod(lambda device: 0))
        replace(stack, torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)
        _replace_part(stack, "fold_uniform", folding_on_cpu(inductor_part("fold_uniform")))
        replace(stack, torch._subclasses.fake_tensor.FakeTensorMode, "avoid_device_init", True)
        for word, stub in _STUBS.items():
            if INDUCTOR[word].exists() or not INDUCTOR[word].optional:
                _replace_part(stack, word, stub)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


_STUBS: dict[str, Callable[..., Any]] = {
    "driver": _nothing,
    "precompile": _nothing,
    "run": _nothing,
    "empty_strided": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cuda"),
    "reinterpret": lambda t, size, stride, offset=0: t.as_strided(size, stride, t.storage_offset() + offset),
    "copy_misaligned": lambda tensor: tensor,
    "keeps_graph": lambda: False,
    "cudagraphify": lambda model, *args, **kwargs: model,
}
"""Replacements of private parts (:data:`kerntune.kernels.compat.inductor_parts.INDUCTOR`), by their words."""


def _mark_compiled(call: Callable[..., Any]) -> None:
    with suppress(Exception):  # options that torch refuses: it says so when the function is called
        made = getattr(call, COMPILED)()
        marks = {name: mark for name, mark in vars(made).items() if name.startswith(COMPILED_MARKS)}
        vars(call).update(marks)
        vars(call).update({WRAPPER_ID: id(call)} if WRAPPER_ID in marks else {})


class CompiledModule(torch.nn.Module):  # type: ignore[misc]  # torch's types are skipped
    """As the module that ``torch.compile`` makes of one: attributes are the original's."""

    def __init__(self, model: torch.nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self._orig_mod = model
        self.__dict__["_run"] = run

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def compiled(self) -> Any:
        """The module that torch has made."""
        return getattr(self.__dict__["_run"], COMPILED)()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled module."""
        return self.__dict__["_run"](*args, **kwargs)


def folding_on_cpu(fold: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's evaluation of constants, which makes them on the device: values that are equal everywhere, one element
    of each."""

    def folded(*args: Any, **kwargs: Any) -> Any:
        with OnCpu():
            return fold(*args, **kwargs)

    return folded


class OnCpu(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Operators that make or move a tensor to CUDA do so on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [_cpu_device(x) for x in args]
        kwargs = {k: _cpu_device(x) for k, x in (kwargs or {}).items()}
        return func(*args, **kwargs)


def _cpu_device(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def first_line(exc: Exception) -> str:
    """The first line of an error's message, after the line in which Dynamo names its backend."""
    lines = [x for x in str(exc).splitlines() if x.strip() and not x.startswith("backend=")]
    return lines[0] if lines else type(exc).__name__


@contextmanager
def own_caches() -> Iterator[None]:
    """Inductor's and Triton's folders for what is generated meanwhile: a new one, removed at the end.

    An entry of the user's cache would not be for this device, and an entry of ours must never be found on a GPU.
    """
    with scratch_folder("inductor") as folder:
        own = {name: str(folder / name.partition("_")[0].lower()) for name in CACHE_VARIABLES}
        with changed_items(os.environ, own):
            yield


@contextmanager
def without_function_mode(mode: Any) -> Iterator[None]:
    """Take one torch-function mode off this thread's stack; others, such as a default device, stay in their order."""
    modes = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())][::-1]
    others = [m for m in modes if m is not mode]
    for m in others:
        torch._C._push_on_torch_function_stack(m)
    try:
        yield
    finally:
        for _ in others:
            torch._C._pop_torch_function_stack()
        for m in modes:
            torch._C._push_on_torch_function_stack(m)
