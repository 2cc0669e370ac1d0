"""Launches that run on the CPU: bound and specialized as for a GPU, lowered to TTIR, and emulated.

Their memory are copies of tensors' storages, far apart, so that an access outside shows. Time is limited.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from functools import partial
from math import inf, prod
from threading import RLock
from typing import Any

import numpy as np
import torch
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kerntune.base.changed_items import changed_items
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import chain
from kerntune.compiling.frontend import lower, request_of
from kerntune.errors import CompileError, InterpreterLimit, KernelFault, KernelTimeout, KerntuneError
from kerntune.gpu.emulator.elements import bytes_of, unsigned
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.machine import HANDLERS, Machine
from kerntune.gpu.emulator.memory_operations import Descriptor, ValueTable
from kerntune.gpu.emulator.ttir_program import TtirOperation, TtirProgram, parse_ttir
from kerntune.gpu.fake_cuda.launches import Unlaunched, compiled_by_triton, launch_again, run_first
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.interpreter.wider_programs import holding, note, wider_program
from kerntune.grids import check_grid
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.source import kernel_file, kernel_name
from kerntune.kernels.specialize import Specialized, flattened, leaves, specialize, tensor_of

LAUNCH_SECONDS = 20.0
"""A launch that will take longer raises :class:`InterpreterLimit`: a test of small shapes never takes that long, and
one of full size would take hours (a program takes some 0.05 ms an operation, independent of its block size)."""

NEVER_ENDS_SECONDS = 60.0
"""Wall time after which a launch is ended: the time of a loop can't be estimated. Longer than any launch that
:data:`LAUNCH_SECONDS` lets pass, on a busy machine too."""

FIRST_ESTIMATE_SECONDS = 1.0
"""Time into a launch after which its total time is first estimated."""

LAUNCH_WORDS = ("grid", "warmup", "device", "device_type", "stream")

_CHANCE: ContextVar[random.Random | None] = ContextVar("what draws the order of programs", default=None)


def drawn_orders(seed: int) -> AbstractContextManager[object]:
    """Programs run in a drawn order within the context, and reductions have their terms so."""
    return holding(_CHANCE, random.Random(seed))


class InterpretedLaunches:
    """Replaces ``JITFunction.run`` and ``Autotuner.run``. ``count`` is how many kernels have run; ``on_gpu`` gives all
    storages that a kernel may reach by a number."""

    def __init__(
        self, spec: DeviceSpec, on_gpu: Callable[[], Iterable[Any]], limit: float = NEVER_ENDS_SECONDS
    ) -> None:
        self.count = 0
        self._limit = limit
        self._spec = spec
        self._on_gpu = on_gpu
        self._given: Mapping[str, tuple[Config, ...]] = {}
        self._programs: dict[str, tuple[Specialized, TtirProgram]] = {}
        self._lock = RLock()

    def install(self, stack: ExitStack) -> None:
        """Kernels run here until ``stack`` closes; of tuned ones the first config that pruning leaves."""
        replace(stack, JITFunction, "run", lambda kernel, /, *args, **kwargs: self.run(kernel, *args, **kwargs))
        replace(stack, Autotuner, "run", run_first)

    def given(self, candidates: Mapping[str, tuple[Config, ...]]) -> AbstractContextManager[None]:
        """Within the context, kernels of these names that have no tuner run with the first of their candidates."""
        return changed_items(vars(self), {"_given": candidates})

    def run(self, kernel: Any, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Unlaunched:
        """As ``JITFunction.run``; its result is compiled when an attribute is read that only a compiled kernel has, and
        can be launched again. :class:`InterpreterLimit` for kernels that can't be run here, :class:`KernelFault` for
        memory errors."""
        if not warmup:
            _refuse_gluon_and_autocast(kernel)
        if candidates := self._given.get(kernel_name(kernel)):
            named = dict(zip([p.name for p in kernel.params], args, strict=False))
            args, kwargs = (), {**named, **kwargs, **candidates[0].all_kwargs()}
        for hook in () if warmup else kernel.pre_run_hooks:
            hook(*args, **kwargs)
        launch = specialize(kernel, args, {k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS}, self._spec.target)
        if not warmup:
            with self._lock:
                self._launch(launch, self._grid(launch, grid, kwargs))
        again = partial(launch_again, kernel, kwargs)
        return Unlaunched(partial(compiled_by_triton, launch), self._spec, again)

    def _grid(self, launch: Specialized, grid: Any, kwargs: Mapping[str, Any]) -> tuple[int, int, int]:
        values = grid(launch.bound) if callable(grid) else grid
        name = f"{launch.name} ({kernel_file(launch.jit)})"
        ctas, warps = int(kwargs.get("num_ctas") or 1), launch.options.num_warps
        return check_grid(values, kernel=name, spec=self._spec, num_ctas=ctas, num_warps=warps)

    def _launch(self, launch: Specialized, grid: tuple[int, int, int]) -> None:
        """:class:`KernelTimeout` if it doesn't end within the limit."""
        where = f"kernel {launch.name} ({kernel_file(launch.jit)})"
        program = wider_program(launch.jit, _dtypes(launch)) or self._program(launch, where)
        note(launch.jit, program)
        memory = TensorMemory(self._storages(launch, program))
        machine = _LaunchMachine(launch, program, memory, grid, self._limit)
        try:
            arguments, written = _arguments(launch, program, memory)
            machine.launch(arguments, grid, written)
        except KernelTimeout:
            raise KernelTimeout(self._overdue(launch, grid, machine)) from None
        except KernelFault as exc:
            raise KernelFault(_named(exc, f"{where}, program {machine.place}")) from None
        except InterpreterLimit as exc:
            raise InterpreterLimit(_named(exc, where)) from None
        except KerntuneError:
            raise
        except Exception as exc:
            raise InterpreterLimit(f"{where} compiles, but can't be emulated: {type(exc).__name__}: {exc}") from exc
        memory.write_back()
        self.count += 1

    def _program(self, launch: Specialized, where: str) -> TtirProgram:
        """What the compiler's front end makes of a launch. It raises the kernel's own AssertionError, too."""
        key = launch.key()
        if key not in self._programs:
            try:
                text = lower(request_of(launch)).job.ir
            except Exception as exc:
                failed = next((e for e in chain(exc) if isinstance(e, CompileTimeAssertionFailure)), None)
                raise (
                    CompileError(f"{where}: {exc}") if failed is None else AssertionError(f"{where}: {failed}")
                ) from exc
            if "tt.elementwise_inline_asm" in text:
                raise InterpreterLimit(f"{where} has inline assembly (tl.inline_asm_elementwise), which no CPU runs")
            try:
                self._programs[key] = launch.without_arguments(), parse_ttir(text)
            except Exception as exc:
                raise InterpreterLimit(_named(exc, where)) from exc
        return self._programs[key][1]

    def _storages(self, launch: Specialized, program: TtirProgram) -> Iterator[tuple[str, Any]]:
        for name, _, value in leaves(launch):
            if isinstance(tensor := tensor_of(value), torch.Tensor):
                yield name, tensor.untyped_storage()
        if program.makes_pointers:
            yield from (("another tensor", storage) for storage in self._on_gpu())

    def _overdue(self, launch: Specialized, grid: tuple[int, int, int], machine: Machine) -> str:
        file = kernel_file(launch.jit)
        places = [op.location for block in machine.blocks for op in block.operations]
        lines = [found[1] for p in places if (found := re.search(rf'"{re.escape(file)}":(\d+)', p))]
        where = f"{file}:{lines[0]}" if lines else file
        return (
            f"kernel {launch.name} ({where}) has not ended after {self._limit:g} s in the interpreter, in program "
            f"{machine.place} of grid {grid}. "
            "The ini key kerntune_interpret_limit changes the limit; 0 is none"
        )


def _dtypes(launch: Specialized) -> Iterator[str | None]:
    """Of what its pointers and descriptors lead to."""
    for _, type_, value in leaves(launch):
        if type_.startswith(("*", "tensordesc")):
            tensor = tensor_of(value)
            yield str(tensor.dtype).removeprefix("torch.") if isinstance(tensor, torch.Tensor) else None


class _LaunchMachine(Machine):
    """Runs one launch, with addresses that are numbers, and prints what the kernel prints."""

    _memory: TensorMemory

    def __init__(
        self, launch: Specialized, program: TtirProgram, memory: TensorMemory, grid: tuple[int, int, int], limit: float
    ) -> None:
        deadline = time.monotonic() + (limit or inf)
        super().__init__(program, memory, deadline, _CHANCE.get(), launch.options.num_warps)
        self.begin = _TimeEstimate(launch.name, grid, time.thread_time).next  # type: ignore[method-assign]

    def pointer(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        return (self._memory.pointer(np.asarray(values[op.operands[0]])),)

    def show(self, op: TtirOperation, values: ValueTable) -> Sequence[Any]:
        """A line for each value, with the program."""
        head = f"{self.place}{op.attributes.get('prefix', '')}"
        if not op.operands:
            print(head)
        for operand, signed in zip(op.operands, op.attributes["signed"], strict=True):
            value = np.asarray(values[operand])
            if value.dtype.kind == "i" and (op.attributes["hex"] or not signed):
                value = unsigned(value)
            in_hex = op.attributes["hex"] and value.dtype.kind == "u"
            print(head + np.array2string(value, formatter={"int": hex} if in_hex else None))
        return ()

    handlers = {
        **HANDLERS,
        "tt.int_to_ptr": pointer,
        "tt.ptr_to_int": Machine.bitcast,
        "tt.print": show,
        "tt.grid_dependency_wait": Machine.nothing,
        "tt.grid_dependency_launch_dependents": Machine.nothing,
    }


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
        total = prod(self._grid)
        guess = elapsed / self._done * total
        if guess > LAUNCH_SECONDS:
            raise InterpreterLimit(
                f"kernel {self._kernel}: {total} programs would take about {guess:.0f} s in the interpreter, more than "
                f"{LAUNCH_SECONDS:.0f} s; {SMALLER}"
            )


SMALLER = (
    "give smaller shapes: @pytest.mark.autotune(interpret={'rows': 64}) for parameters, "
    "`if autotune.interpreted` for what the test's body chooses"
)
"""What to do about a size that is too large."""


def _named(error: Exception, where: str) -> str:
    return str(error) if str(error).startswith("kernel ") else f"{where}: {error}"


def _refuse_gluon_and_autocast(kernel: Any) -> None:
    where = f"kernel {kernel_name(kernel)} ({kernel_file(kernel)})"
    if triton_compiler.is_gluon(kernel):
        raise InterpreterLimit(f"{where} is written in Gluon, which only a GPU runs")
    if torch.is_autocast_enabled("cuda"):
        raise InterpreterLimit(f"{where} is launched under autocast for CUDA, which tensors on the CPU don't follow")


def _arguments(launch: Specialized, program: TtirProgram, memory: TensorMemory) -> tuple[list[Any], list[bool]]:
    kinds = program.argument_types
    found: list[Any] = []
    written = [program.makes_pointers] * memory.count
    for name, type_, value in leaves(launch):
        if len(found) in program.written:
            written[memory.storage_of(tensor_of(value))] = True
        if type_.startswith("tensordesc") and kinds[len(found)].element == "desc":
            sizes, strides = [int(x) for x in value.shape], [int(x) for x in value.strides]
            tf32 = bool(getattr(value, "round_f32_to_tf32", False))
            nan = getattr(value, "padding", "zero") == "nan"
            base = memory.address_of(value.base)
            found += [Descriptor(base, sizes, strides, kinds[len(found)], nan, tf32), *sizes, *strides]
            continue
        for param, tensor in flattened(launch, name, type_, value, None):
            found.append(param.value if tensor is None else memory.address_of(tensor_of(tensor)))
    return found, written


GUARD = 1 << 20
"""Bytes around each storage that no access may reach."""

SHOWN = 3
"""Addresses that a message names."""

DOES = {"read": "reads", "written": "writes", "updated": "updates"}


class TensorMemory(FlatMemory):
    """Complete storages, shared by views as in the original. Each is given with an argument's name, which messages
    have. What isn't loaded is 0."""

    def __init__(self, storages: Iterable[tuple[str, Any]]) -> None:
        found: dict[int, tuple[str, Any]] = {}
        for name, storage in storages:
            found.setdefault(storage._cdata, (name, storage))
        self._numbers = {key: number for number, key in enumerate(found)}
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            self._originals = [_bytes(storage) for _, storage in found.values()]
        super().__init__(self._originals, b"\0", random.Random(0), GUARD)
        self.names = {number: name for number, (name, _) in enumerate(found.values())}
        bounds = sorted((self.address(i), self.address(i) + one.nbytes) for i, one in enumerate(self._originals))
        self._starts, self._ends = np.array(bounds, np.int64).reshape(-1, 2).T

    @property
    def count(self) -> int:
        """How many storages there are."""
        return len(self._originals)

    def write_back(self) -> None:
        """Copy the contents back to the original tensors."""
        for number, original in enumerate(self._originals):
            np.copyto(original, self.content(number))

    def storage_of(self, tensor: torch.Tensor) -> int:
        """A tensor's storage by number."""
        return self._numbers[tensor.untyped_storage()._cdata]

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where a tensor's first element lies."""
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self.address(self.storage_of(tensor)) + offset

    def pointer(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as addresses: a tensor's ``data_ptr()`` leads to its copy here."""
        found = numbers
        for number, original in enumerate(self._originals):
            offset = numbers - original.ctypes.data
            found = np.where((offset >= 0) & (offset < original.nbytes), self.address(number) + offset, found)
        return found

    def check(self, addresses: np.ndarray, element: str, how: str) -> np.ndarray:
        """As there. :class:`KernelFault` for addresses in none of the storages, too."""
        size = bytes_of(element)
        owner = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = owner >= 0
        if self._ends.size:
            inside &= addresses + size <= self._ends[owner]
        if not inside.all():
            wrong = addresses[~inside]
            some = [self._told_near(int(address)) for address in wrong[:SHOWN]] + ["..."] * (wrong.size > SHOWN)
            raise KernelFault(
                f"it {DOES[how]} {wrong.size} elements of {size} bytes outside of its tensors: {', '.join(some)}; a "
                "mask is missing or wrong, or an offset is"
            )
        return super().check(addresses, element, how)

    def _told_near(self, address: int) -> str:
        after = [(address - int(end), "bytes after the end of a tensor") for end in self._ends if address >= end]
        before = [(int(start) - address, "bytes before a tensor") for start in self._starts if address < start]
        return " ".join(map(str, min(after + before, default=(f"{address:#x}",))))


def _bytes(storage: Any) -> np.ndarray:
    everything = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return np.asarray(everything.numpy())
