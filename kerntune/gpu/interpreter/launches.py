"""Launches that run in the interpreter: bound as for a GPU, scalars in their types, memory checked, time limited.

Python code that never ends in this thread is ended when its wall time is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import JITFunction

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import chain
from kerntune.compiling.frontend import lower, request_of
from kerntune.errors import CompileError, InterpreterLimit, KernelTimeout, KerntuneError
from kerntune.gpu.fake_cuda.launches import Unlaunched, compiled_by_triton, launch_again, run_first
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.interpreter.builder import LaunchMemory
from kerntune.gpu.interpreter.language import Language
from kerntune.gpu.interpreter.narrow_types import encode, numpy_type, word_type
from kerntune.grids import check_grid
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.source import kernel_file, kernel_name
from kerntune.kernels.specialize import Specialized, specialize

PAUSE_SECONDS = 0.001


class Overdue(BaseException):
    """Raised in the thread whose time is over. It isn't an :class:`Exception`, so that handlers of those don't catch
    it."""


class TimeLimit:
    """A context that ends with :class:`Overdue` once it has lasted so many ``seconds``; 0 for no limit.

    The exception is set from another thread (``PyThreadState_SetAsyncExc``), so it comes between two steps of Python
    code, on any thread, but not inside of one call into C.
    """

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._fire) if seconds else None
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._open, self._fired = True, False

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        with self._lock:
            self._open = False
        while self._fired and not isinstance(error, Overdue):
            time.sleep(PAUSE_SECONDS)  # it is on its way, and must not come later

    def _fire(self) -> None:
        with self._lock:
            if self._open:
                self._fired = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Overdue))


LAUNCH_SECONDS = 20.0
"""A launch that will take longer raises :class:`InterpreterLimit`: a test of small shapes never takes that long, and
one of full size would take hours (a program takes some 0.1 ms an operation, independent of its block size)."""

NEVER_ENDS_SECONDS = 60.0
"""Wall time after which a launch is ended: programs run one after the other here, so one that waits for a later one
never ends, and the time of a loop can't be estimated. Longer than any launch that :data:`LAUNCH_SECONDS` lets pass, on
a busy machine too."""

FIRST_ESTIMATE_SECONDS = 1.0
"""Time into a launch after which its total time is first estimated."""

LAUNCH_WORDS = ("grid", "warmup", "device", "device_type", "stream")


class InterpretedLaunches:
    """Replaces ``JITFunction.run`` and ``Autotuner.run``. ``count`` is how many kernels have run."""

    def __init__(self, spec: DeviceSpec, language: Language, limit: float = NEVER_ENDS_SECONDS) -> None:
        self.count = 0
        self._limit = limit
        self._spec = spec
        self._language = language
        self._given: Mapping[str, tuple[Config, ...]] = {}
        self._lock = threading.RLock()

    def install(self, stack: contextlib.ExitStack) -> None:
        """Kernels run here until ``stack`` closes; of tuned ones the first config that pruning leaves."""
        replace(stack, JITFunction, "run", lambda kernel, /, *args, **kwargs: self.run(kernel, *args, **kwargs))
        replace(stack, Autotuner, "run", run_first)

    @contextlib.contextmanager
    def given(self, candidates: Mapping[str, tuple[Config, ...]]) -> Iterator[None]:
        """Within the context, kernels of these names that have no tuner run with the first of their candidates."""
        before, self._given = self._given, candidates
        try:
            yield
        finally:
            self._given = before

    def run(self, kernel: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Unlaunched:
        """As ``JITFunction.run``; its result is compiled when an attribute is read that only a compiled kernel has, and
        can be launched again. :class:`InterpreterLimit` for kernels that can't be interpreted, :class:`KernelFault` for
        memory errors."""
        if not warmup:
            _refuse_gluon_and_autocast(kernel)
        args, kwargs = self._with_candidate(kernel, args, kwargs)
        for hook in () if warmup else kernel.pre_run_hooks:
            hook(*args, **kwargs)
        launch = specialize(kernel, args, {k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS}, self._spec.target)
        if not warmup:
            self._launch(launch, grid, kwargs)
        again = functools.partial(launch_again, kernel, kwargs)
        return Unlaunched(functools.partial(compiled_by_triton, launch), self._spec, again)

    def _launch(self, launch: Specialized, grid: Any, kwargs: Mapping[str, Any]) -> None:
        """:class:`KernelTimeout` if it doesn't end within the limit."""
        triple = self._grid(launch, grid, kwargs)
        try:
            with self._lock, self._language.running(), TimeLimit(self._limit):
                self._execute(launch, triple)
        except Overdue as exc:
            raise KernelTimeout(self._overdue(launch, triple, exc)) from None
        except Exception as exc:
            raise _reason(exc, launch) from exc
        self.count += 1

    def _with_candidate(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        candidates = self._given.get(kernel_name(kernel))
        if not candidates:
            return args, kwargs
        named = dict(zip([p.name for p in kernel.params], args, strict=False))
        return (), {**named, **kwargs, **candidates[0].all_kwargs()}

    def _grid(self, launch: Specialized, grid: Any, kwargs: Mapping[str, Any]) -> tuple[int, int, int]:
        values = grid(launch.bound) if callable(grid) else grid
        name = f"{launch.name} ({kernel_file(launch.jit)})"
        ctas, warps = int(kwargs.get("num_ctas") or 1), launch.options.num_warps
        return check_grid(values, kernel=name, spec=self._spec, num_ctas=ctas, num_warps=warps)

    def _overdue(self, launch: Specialized, grid: tuple[int, int, int], error: Overdue) -> str:
        file = kernel_file(launch.jit)
        lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
        where = f"{file}:{lines[-1]}" if lines else file
        return (
            f"kernel {launch.name} ({where}) has not ended after {self._limit:g} s in the interpreter, in program "
            f"{tuple(self._language.builder.grid_idx)} of grid {grid}. Programs run one after the other here: one that "
            "waits for a later one (a spin lock, a semaphore of split-K) waits for ever. "
            "The ini key kerntune_interpret_limit changes the limit; 0 is none"
        )

    def _execute(self, launch: Specialized, grid: tuple[int, int, int]) -> None:
        builder, function = self._language.builder, self._language.function(launch.jit)
        constant = {p.name for p in launch.jit.params if p.is_constexpr}
        memory = builder.memory = LaunchMemory(launch.name)
        moved = memory.moved(launch.bound)
        values = {n: v if n in constant else _argument(v, launch.signature[n]) for n, v in moved.items()}
        builder.next_program = _TimeEstimate(launch.name, grid, time.thread_time).next
        builder.set_grid_dim(*grid)
        try:
            for program in itertools.product(*map(range, grid)):
                builder.set_grid_idx(*program)
                function(**values)
            memory.write_back()
        finally:
            builder.memory, builder.next_program = None, lambda: None


class _TimeEstimate:
    """Estimates the time of the remaining programs from those that are done."""

    def __init__(self, kernel: str, grid: tuple[int, int, int], clock: Callable[[], float]) -> None:
        self._kernel, self._grid, self._clock = kernel, grid, clock
        self._begin = clock()
        self._done = -1

    def next(self) -> None:
        """Called before each program. :class:`InterpreterLimit` once all of them will take too long."""
        self._done += 1
        elapsed = self._clock() - self._begin
        if self._done < 1 or elapsed < FIRST_ESTIMATE_SECONDS:
            return
        total = math.prod(self._grid)
        guess = elapsed / self._done * total
        if guess > LAUNCH_SECONDS:
            raise InterpreterLimit(
                f"kernel {self._kernel}: {total} programs would take about {guess:.0f} s in the interpreter, more than "
                f"{LAUNCH_SECONDS:.0f} s; {SMALLER}"
            )


def _reason(exc: Exception, launch: Specialized) -> Exception:
    """The error to raise for an exception inside a kernel: the kernel's own if it asserts or doesn't compile either."""
    for kind in (KerntuneError, AssertionError):
        known = next((e for e in chain(exc) if isinstance(e, kind)), None)
        if known is not None:
            return known
    where = f"kernel {launch.name} ({kernel_file(launch.jit)})"
    wrong = _front_end_error(launch)
    if wrong is not None:
        return CompileError(f"{where}: {wrong}")
    return InterpreterLimit(f"{where} compiles, but Triton's interpreter fails on it: {_text(exc)}")


def _front_end_error(launch: Specialized) -> Exception | None:
    """The error with which Triton's own front end rejects a kernel; None if it accepts it."""
    try:
        lower(request_of(launch))
    except Exception as exc:
        return exc
    return None


SMALLER = (
    "give smaller shapes: @pytest.mark.autotune(interpret={'rows': 64}) for parameters, "
    "`if autotune.interpreted` for what the test's body chooses"
)
"""What to do about a size that is too large."""


def _refuse_gluon_and_autocast(kernel: Any) -> None:
    where = f"kernel {kernel_name(kernel)} ({kernel_file(kernel)})"
    if triton_compiler.is_gluon(kernel):
        raise InterpreterLimit(f"{where} is written in Gluon, which Triton's interpreter doesn't run")
    if torch.is_autocast_enabled("cuda"):
        raise InterpreterLimit(f"{where} is launched under autocast for CUDA, which tensors on the CPU don't follow")


def _argument(value: Any, word: Any) -> Any:
    """An argument as the kernel's body gets it: numbers in the type that they have in a compiled kernel (a float is a
    float32 there, a stride annotated as int64 is one), pointers and descriptors as Triton's interpreter has them."""
    if not isinstance(value, (bool, int, float)):
        return interpreter._implicit_cvt(value)
    dtype = tl.int32 if word == "constexpr" else word_type(word)  # the compiler makes a constant of 1
    floating = dtype.is_floating()
    data = encode(np.array([value], np.float64), dtype) if floating else np.array([value]).astype(numpy_type(dtype))
    return tl.tensor(interpreter.TensorHandle(data, dtype), dtype)


def _text(exc: BaseException) -> str:
    inner = exc.__cause__ if isinstance(exc, InterpreterError) and exc.__cause__ is not None else exc
    return f"{type(inner).__name__}: {inner}"
