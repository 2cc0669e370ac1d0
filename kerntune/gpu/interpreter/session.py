"""Runs tests' kernels on the CPU, process-wide, and undoes all changes afterwards.

Tensors that tests put on the GPU are real memory on the CPU, recorded as being on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import prod
from typing import Any
from weakref import WeakSet

import torch
import torch._dynamo  # lists torch.cuda's functions when it is imported: before they are replaced
from torch._library.triton import set_wrap_triton_enabled
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import chain
from kerntune.errors import InterpreterLimit
from kerntune.gpu.fake_cuda.autograd import replace_engine
from kerntune.gpu.fake_cuda.cuda_api import install_cuda
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, install_driver
from kerntune.gpu.fake_cuda.modes import RealImplementations, entered
from kerntune.gpu.fake_cuda.patches import replace
from kerntune.gpu.fake_cuda.session import alone, install_restoring, run_eagerly
from kerntune.gpu.interpreter.launches import NEVER_ENDS_SECONDS, InterpretedLaunches

LARGEST = 1 << 26
"""The most elements that a tensor on the GPU may have: 256 MiB of float32. Kernels over more take too long anyway."""

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")

UNINITIALIZED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


class GpuStorages:
    """The storages that are recorded as being on the GPU."""

    def __init__(self) -> None:
        self._there: WeakSet[Any] = WeakSet()
        self.named = False
        """Whether the test itself has given a device in the current call. torch's own code passes the device that its
        inputs really are on."""

    @contextmanager
    def naming(self, named: bool) -> Iterator[None]:
        """Set :attr:`named` within the context."""
        before, self.named = self.named, named
        try:
            yield
        finally:
            self.named = before

    def any_on_gpu(self, *values: Any) -> bool:
        """Whether one of the tensors in nested arguments is."""
        return any(map(self.on_gpu, _tensors_in(values)))

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is recorded as being on the GPU."""
        with torch._C.DisableTorchFunction():
            return tensor.layout is torch.strided and tensor.untyped_storage() in self._there

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Where a tensor is recorded as being."""
        return GPU if self.on_gpu(tensor) else CPU

    def put(self, tensor: torch.Tensor) -> None:
        """Record a tensor, and all that share its storage, as being on the GPU."""
        with torch._C.DisableTorchFunction():
            if tensor.layout is torch.strided:
                self._there.add(tensor.untyped_storage())

    def put_storage(self, storage: Any) -> None:
        """Record a storage that no tensor has yet."""
        self._there.add(storage)

    def has_storage(self, storage: Any) -> bool:
        """Whether a storage is recorded as being on the GPU."""
        return storage in self._there

    def all(self) -> list[Any]:
        """The storages that are there now."""
        return list(self._there)

    def put_new(self, outcome: Any, *inputs: Any) -> list[torch.Tensor]:
        """Record the new tensors of an operator's result, not its arguments: ``here.copy_(there)`` returns ``here``."""
        with torch._C.DisableTorchFunction():
            given = {t.untyped_storage()._cdata for t in _strided(inputs)}
            made = [t for t in _strided(outcome) if t.untyped_storage()._cdata not in given]
        for tensor in made:
            self.put(tensor)
        return made


def _strided(values: Any) -> list[torch.Tensor]:
    return [t for t in _tensors_in((values,)) if t.layout is torch.strided]


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those of an operator's arguments or results; torch's trees take four times as long."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple, dict)):
            yield from _tensors_in(value.values() if isinstance(value, dict) else value)


class CpuExecutionMode(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Runs operators for the GPU on the CPU, and records the device of their results.

    ``implementation(func)`` is the Python code of a custom operator, if it has some: for a CPU tensor torch wouldn't
    call code that is registered for CUDA only.
    """

    supports_higher_order_operators = True

    def __init__(self, storages: GpuStorages, implementation: Callable[[Any], Callable[..., Any] | None]) -> None:
        super().__init__()
        self._storages = storages
        self._implementation = implementation

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        code = self._implementation(func)
        if code is not None:
            return code(*args, **kwargs)
        asked = kwargs.get("device")
        there = asked is not None and torch.device(asked).type == "cuda"
        if there:
            kwargs["device"] = CPU
        elif asked is None or not self._storages.named:
            there = self._storages.any_on_gpu(args, kwargs)
        kwargs.pop("pin_memory", None)
        _refuse_large(func, args, kwargs)
        outcome = func(*args, **kwargs)
        if there:
            for tensor in self._storages.put_new(outcome, args, kwargs):
                if _name(func) in UNINITIALIZED:
                    _fill_with_nan(tensor)
        return outcome


def _fill_with_nan(tensor: torch.Tensor) -> None:
    """Fill uninitialized memory with NaN, which shows that a kernel reads it, or doesn't write all of it."""
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor.fill_(float("nan"))
    elif not tensor.is_complex() and tensor.dtype in _LARGEST_INTEGER:
        tensor.fill_(_LARGEST_INTEGER[tensor.dtype])


_LARGEST_INTEGER = {t: torch.iinfo(t).max for t in (torch.int16, torch.int32, torch.int64)}


def _name(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return schema.name.removeprefix("aten::") if schema is not None else ""


def _refuse_large(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise before the memory is allocated, if an argument of the operator is a size."""
    sizes = args[0] if args and isinstance(args[0], (list, tuple)) else kwargs.get("size")
    if not isinstance(sizes, (list, tuple)) or not all(isinstance(n, int) for n in sizes):
        return
    if prod(sizes) > LARGEST:
        shape = " x ".join(map(str, sizes))
        raise InterpreterLimit(
            f"{_name(func)} of {shape} elements is too large for the interpreter (limit {LARGEST}); give smaller shapes"
        )


_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)


class GpuPlacementMode(TorchFunctionMode):  # type: ignore[misc]  # torch's types are skipped
    """A torch-function mode that reports recorded tensors as being on the GPU, and moves tensors by copies."""

    def __init__(self, storages: GpuStorages) -> None:
        super().__init__()
        self._storages = storages
        self._answers: dict[Any, Callable[..., Any]] = {
            torch.Tensor.device.__get__: lambda t, *_: storages.device_of(t),
            torch.Tensor.is_cuda.__get__: lambda t, *_: storages.on_gpu(t),
            torch.Tensor.is_cpu.__get__: lambda t, *_: not storages.on_gpu(t),
            torch.Tensor.get_device: lambda t: 0 if storages.on_gpu(t) else -1,
            torch.Tensor.cuda: lambda t, *args, **words: self._to(t, GPU),
            torch.Tensor.cpu: lambda t, *args, **words: self._to(t, CPU),
            torch.Tensor.to: self._to_any,
            torch.Tensor.pin_memory: lambda t, *args, **words: t,
            torch.Tensor.is_pinned: lambda t, *args, **words: False,
            torch.Tensor.record_stream: lambda t, *args: None,
            torch.Tensor.new_tensor: self._new_tensor,
        }

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        answer = self._answers.get(func)
        if answer is not None and isinstance(args[0], torch.Tensor):
            return answer(*args, **kwargs)
        if type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
        if func in _FROM_DATA and kwargs.get("device") is not None:
            return self._from_data(func, args, kwargs)
        named = kwargs.get("device") is not None
        with self._storages.naming(named):
            outcome = func(*args, **kwargs)
        if not named and self._storages.any_on_gpu(args, kwargs):
            self._storages.put_new(outcome, args, kwargs)  # those in between too
        return outcome

    def _from_data(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
        """Tensors from data: torch would make them on the CPU and move them, which needs a driver."""
        made: torch.Tensor = func(*args, **{**kwargs, "device": "cpu"})
        if torch.device(kwargs["device"]).type != "cuda":
            return made
        if func is not torch.tensor:
            return self._to(made, GPU)
        self._storages.put(made)  # a leaf, if it requires gradients
        return made

    def _new_tensor(self, tensor: torch.Tensor, data: Any, **words: Any) -> torch.Tensor:
        device = words.pop("device", None) or self._storages.device_of(tensor)
        return self._from_data(torch.tensor, (data,), {"dtype": tensor.dtype, **words, "device": device})

    def _to_any(self, tensor: torch.Tensor, *args: Any, copy: bool = False, **words: Any) -> torch.Tensor:
        words = {k: v for k, v in words.items() if k != "non_blocking"}
        other = args[0] if args else words.get("other")
        if isinstance(other, torch.Tensor):
            return self._to(tensor, self._storages.device_of(other), other.dtype, copy)
        named = [torch.device("cuda", a) if type(a) is int else a for a in args]
        device, dtype, _, layout = torch._C._nn._parse_to(*_plain(named), **words)
        return self._to(tensor, device or self._storages.device_of(tensor), dtype, copy, layout)

    def _to(
        self,
        tensor: torch.Tensor,
        device: torch.device,
        dtype: torch.dtype | None = None,
        copy: bool = False,
        layout: torch.memory_format | None = None,
    ) -> torch.Tensor:
        """The tensor itself if nothing changes; else a copy on that device, made by an operator that autograd
        records."""
        words = {} if layout is None else {"memory_format": layout}
        if self._storages.on_gpu(tensor) == (device.type == "cuda"):
            return tensor.to(dtype=dtype or tensor.dtype, copy=copy, **words)
        with self._storages.naming(True):
            return torch.ops.aten._to_copy(tensor, dtype=dtype or tensor.dtype, device=device, **words)


def _plain(args: Sequence[Any]) -> Iterator[Any]:
    """``_parse_to`` takes a device, a dtype and a flag; ``to`` also a second flag, for a copy."""
    flags = 0
    for arg in args:
        flags += isinstance(arg, bool)
        if not (isinstance(arg, bool) and flags > 1):
            yield arg


class Interpreter:
    """While active, ``device="cuda"`` makes tensors in the CPU's memory that are reported as on a GPU, torch and Triton
    report the device ``spec``, and kernels run on the CPU, also those that were decorated before.
    Everything is process-wide, except that torch's modes are per thread.

    Not detected: errors of asynchronous copies, of which intermediate code has none.
    """

    def __init__(self, spec: DeviceSpec, limit: float = NEVER_ENDS_SECONDS) -> None:
        """``limit``: seconds of wall time after which a launch is ended, 0 for none."""
        self.spec = spec
        self._operators = RealImplementations(self._entered_modes)
        storages = GpuStorages()
        self._storages = storages
        self._launches = InterpretedLaunches(spec, storages.all, limit)
        self._on_cpu = CpuExecutionMode(storages, self._operators.find)
        self._placement_mode = GpuPlacementMode(storages)

    @property
    def launched(self) -> int:
        """Kernels that have run so far."""
        return self._launches.count

    def given(self, candidates: Mapping[str, tuple[Config, ...]]) -> AbstractContextManager[None]:
        """Meanwhile, bare kernels of these names run with the first of their candidates."""
        return self._launches.given(candidates)

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Install everything until the context closes. Activate before users' modules are imported, since these check
        for a GPU.

        :class:`UsageError` if fake CUDA tensors are active.
        """
        with alone(), ExitStack() as stack:
            numbers = DeviceNumbers((self.spec,))
            install_cuda(stack, numbers)
            self._launches.install(stack)
            self._operators.install(stack)
            install_driver(stack, numbers)
            self._install_torch(stack)
            install_restoring(stack, self._storages.put_storage, self._storages.has_storage)
            stack.enter_context(self._entered_modes())
            yield

    def _install_torch(self, stack: ExitStack) -> None:
        original = torch.autograd._engine_run_backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            with entered(self._placement_mode):  # torch has taken it off on the way here
                return original(*args, **kwargs)

        replace_engine(stack, backward)
        replace(stack, torch, "compile", run_eagerly)
        stack.enter_context(set_wrap_triton_enabled(False))

    def _entered_modes(self) -> AbstractContextManager[None]:
        return entered(self._on_cpu, self._placement_mode)


def limit_of(error: BaseException | None) -> InterpreterLimit | None:
    """The :class:`InterpreterLimit` in the causes of an error, if there is one."""
    return next((link for link in chain(error) if isinstance(link, InterpreterLimit)), None)
