"""Installs the stand-ins process-wide, and undoes all changes afterwards.

What ``torch.load`` reads, and modules that move to the GPU, become stand-ins here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._library.triton import set_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.base.changed_items import changed_items
from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import UsersLine
from kerntune.errors import UsageError
from kerntune.gpu.base import OperatorListener
from kerntune.gpu.fake_cuda.autograd import engine, hook_handlers, install_functions, replace_engine
from kerntune.gpu.fake_cuda.compiled_functions import CompiledFunctions
from kerntune.gpu.fake_cuda.cuda_api import install_cuda
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, install_driver
from kerntune.gpu.fake_cuda.launches import CapturedLaunches
from kerntune.gpu.fake_cuda.modes import (
    RealImplementations,
    StandInFakeMode,
    TorchFunctionHandlers,
    Watch,
    entered,
)
from kerntune.gpu.fake_cuda.patches import Replacements, replace, replace_known
from kerntune.gpu.fake_cuda.placement import KnownValues, Placement
from kerntune.gpu.fake_cuda.tensors import Addresses, Comparisons, ensure_guard, install_methods
from kerntune.kernels.access import Access

_only_one = Lock()


def are_active() -> bool:
    """Whether the GPU that torch reports in this process is a stand-in."""
    return _only_one.locked()


@contextmanager
def alone() -> Iterator[None]:
    """A context for the time in which this process reports a GPU that doesn't exist. :class:`UsageError` if it already
    does."""
    if not _only_one.acquire(blocking=False):
        raise UsageError("stand-ins are active already in this process: leave them before activating others")
    try:
        yield
    finally:
        _only_one.release()


class StandIns:
    """Full-size stand-ins for the tensors of a device that doesn't exist.

    While active, ``device="cuda"`` makes tensors with shape, strides, dtype and an address, but no memory; kernels are
    bound and not launched; torch and Triton report the device ``spec`` as number 0, and ``others`` as the next ones.
    Comparisons of values pass; what else asks for a value that isn't known ends the body. Everything is process-wide,
    except that tensors become stand-ins only on the thread that activated (torch's modes are per thread). They are a
    backend's :class:`~kerntune.gpu.base.Tensors` as well.
    """

    def __init__(self, spec: DeviceSpec, others: Sequence[DeviceSpec] = ()) -> None:
        self.spec = spec
        self.numbers = DeviceNumbers((spec, *others))
        self.addresses = Addresses()
        self.known_values = KnownValues()
        self.watch = Watch()
        self.comparisons = Comparisons(self.known_values)
        self._operators = RealImplementations(self._entered_modes)
        self.launches = CapturedLaunches(self.numbers, self.specializing, self.known_values)
        self.compiled = CompiledFunctions(self._entered_modes, lambda: self._answers)
        self._answers: TorchFunctionHandlers | None = None
        self._placement: Placement | None = None

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Install everything until the context closes.

        :class:`UsageError` if stand-ins are active already; :class:`BackendError` if this torch doesn't support them.
        Activate before users' modules are imported: ``skipif(not torch.cuda.is_available())`` is decided then.
        """
        with alone(), Replacements() as stack:
            ensure_guard()
            self._install(stack)
            yield

    def is_tensor(self, value: Any) -> bool:
        """A tensor that claims to be on the GPU."""
        # a stand-in's `device` is looked up in Python, and this is asked for each argument of each operator
        device = getattr(value, "fake_device", None) or (value.device if hasattr(value, "untyped_storage") else None)
        return device is not None and device.type == "cuda"

    def address(self, tensor: torch.Tensor) -> int:
        """A tensor's synthetic device address in bytes, storage offset included; the real one of a real tensor."""
        return self.addresses.tensor(tensor)

    def storage_address(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's storage, a multiple of 256; views of one storage share it."""
        return self.addresses.storage(tensor)

    def watching(self, listener: OperatorListener) -> AbstractContextManager[None]:
        """Operators on stand-ins, of all threads."""
        return self.watch.to(listener)

    def compiling(self, begin: Callable[[ExitStack], None]) -> AbstractContextManager[Sequence[str]]:
        """Code is generated for the device that doesn't exist; what only a time decides is guessed, and noted."""
        return self.compiled.generating(begin)

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """Tell of a launch that reaches none of Triton's entry points (:meth:`KnownValues.launched`)."""
        self.known_values.launched(pointers, access)

    def supply(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Give a tensor values that a kernel would have computed (:meth:`KnownValues.supply`)."""
        self.known_values.supply(tensor, values)

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        """Questions that had no answer (:meth:`KnownValues.take_unanswered`)."""
        return self.known_values.take_unanswered()

    @contextmanager
    def specializing(self) -> Iterator[None]:
        """Make ``data_ptr`` of stand-ins return :meth:`address` to all callers, Triton's binder too.

        Outside of the context, only calls through torch functions get it: to torch itself 0 means that a tensor has no
        memory.
        """
        with ExitStack() as stack:
            replace(stack, FakeTensor, "data_ptr", lambda tensor: self.address(tensor))
            yield

    def _install(self, stack: Replacements) -> None:
        # first: it imports parts of torch that list torch.cuda's functions
        fake = StandInFakeMode(len(self.numbers.specs), self.watch)
        install_cuda(stack, self.numbers)
        install_methods(stack, self.known_values)
        self.launches.install(stack)
        self._operators.install(stack)
        install_driver(stack, self.numbers)
        self._install_torch(stack)
        Loaded().install(stack)
        self._install_modes(stack, fake)

    def _install_torch(self, stack: Replacements) -> None:
        backward = engine(torch.autograd._engine_run_backward, self._entered_modes, self.watch)
        replace_engine(stack, backward)
        install_functions(stack)
        replace(stack, torch.nn.Module, "_apply", module_apply(torch.nn.Module._apply))
        replace(stack, torch._C._nn, "_parse_to", parse_to(torch._C._nn._parse_to))
        self.compiled.install(stack)
        stack.enter_context(set_wrap_triton_enabled(False))

    def _install_modes(self, stack: ExitStack, fake: StandInFakeMode) -> None:
        stack.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") builds on the CPU, then moves
        handlers = {torch.Tensor.data_ptr: self._data_ptr, **hook_handlers(), **self.comparisons.handlers()}
        self._answers = TorchFunctionHandlers(handlers)
        self._placement = Placement(fake, self.known_values, self._operators.find, self.watch)
        stack.enter_context(self._entered_modes())

    def _data_ptr(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self.known_values.forget(args[0])  # users' code that has the address may write there
        return self.address(args[0])

    def _entered_modes(self) -> AbstractContextManager[None]:
        return entered(self._placement, self._answers)


def run_eagerly(model: Any = None, **options: Any) -> Any:
    """A ``torch.compile`` that compiles nothing: compiled functions wouldn't launch the user's kernels."""
    return model if model is not None else lambda function: function


LOCATION = "cuda:0"
"""The name of the only device in files."""

FIRST = 0
"""The priority of these functions: before torch's own, which call a driver (``torch.serialization.register_package``:
10 and more)."""


def install_restoring(
    stack: ExitStack, put: Callable[[Any], None], there: Callable[[Any], bool] = lambda storage: False
) -> None:
    """Until ``stack`` closes, a storage that belongs on the GPU stays on the CPU, and ``put`` is called with it. One
    for which ``there`` is true is saved as the GPU's."""

    def tag(storage: Any) -> str | None:
        return LOCATION if there(storage) else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        put(storage)
        return storage

    entry = (FIRST, tag, restore)
    registry: list[Any] = torch.serialization._package_registry
    registry.insert(0, entry)
    stack.callback(registry.remove, entry)
    _install_moves(stack, put)


def _install_moves(stack: ExitStack, put: Callable[[Any], None]) -> None:
    """Support ``map_location=lambda storage, location: storage.cuda()`` as well as a name."""
    base = torch.storage._StorageBase
    original = base.to

    def cuda(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        copy = storage.clone()
        put(copy)
        return copy

    def to(storage: Any, *, device: Any, non_blocking: bool = False) -> Any:
        there = torch.device(device).type == "cuda"
        return cuda(storage) if there else original(storage, device=device, non_blocking=non_blocking)

    replace(stack, base, "cuda", cuda)
    replace(stack, base, "to", to)


class Loaded:
    """Makes stand-ins of the tensors that ``torch.load`` rebuilds over storages that belong on the GPU."""

    def __init__(self) -> None:
        self._moved: WeakKeyDictionary[Any, dict[torch.dtype, torch.Tensor]] = WeakKeyDictionary()
        self._read = True
        """Whether storages hold the file's contents already: the old format is read after tensors are rebuilt."""

    def install(self, stack: ExitStack) -> None:
        """Until ``stack`` closes."""
        install_restoring(stack, self._put)
        before = torch._utils._restore_device_fake_mode  # all functions that rebuild a tensor call it last
        replace(stack, torch._utils, "_restore_device_fake_mode", lambda tensor: self._rebuilt(before(tensor)))
        legacy = getattr(torch.serialization, "_legacy_load", None)
        replace_known(
            stack, torch.serialization, "_legacy_load", lambda *args, **words: self._late(legacy, args, words)
        )

    def _put(self, storage: Any) -> None:
        self._moved[storage] = {}

    def _rebuilt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view of the one stand-in of its storage, so that tensors that share memory still do."""
        moved = self._moved.get(tensor.untyped_storage())
        if moved is None:
            return tensor
        if tensor.dtype not in moved:
            moved[tensor.dtype] = self._stand_in(tensor.detach())
        view = moved[tensor.dtype].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return view.detach().requires_grad_(tensor.requires_grad)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        if not self._read:
            return torch.empty(count, dtype=tensor.dtype, device="cuda")
        return tensor.as_strided((count,), (1,), 0).to("cuda")

    def _late(self, load: Any, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        with changed_items(vars(self), {"_read": False}):
            return load(*args, **words)


Convert = Callable[[torch.Tensor], torch.Tensor]


def module_apply(original: Callable[..., Any]) -> Callable[..., Any]:
    """What replaces ``torch.nn.Module._apply``.

    torch swaps fake parameters in place, which fails as soon as something refers to them weakly (an optimizer, the
    fake mode itself). Here a moved parameter is a new one, unless it is on the device already.
    """

    def apply(self: torch.nn.Module, fn: Convert, recurse: bool = True) -> torch.nn.Module:
        own = (*self._parameters.values(), *self._buffers.values())
        if not any(isinstance(tensor, FakeTensor) for tensor in own):
            original(self, fn, recurse)
            return self
        if recurse:
            for child in self.children():
                child._apply(fn)
        self._parameters.update({n: _moved(value, fn) for n, value in self._parameters.items()})
        self._buffers.update({name: None if value is None else fn(value) for name, value in self._buffers.items()})
        return self

    return apply


def parse_to(original: Callable[..., Any]) -> Callable[..., Any]:
    """What replaces ``torch._C._nn._parse_to``: ``module.to(0)`` means the accelerator that torch lacks."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        named = [torch.device("cuda", arg) if type(arg) is int else arg for arg in args]
        return original(*named, **kwargs)

    return parse


def _moved(parameter: Any, fn: Convert) -> Any:
    if parameter is None:
        return None
    with torch.no_grad():
        moved = fn(parameter)
        if moved is parameter or (moved.device == parameter.device and moved.dtype == parameter.dtype):
            return parameter
        result = torch.nn.Parameter(moved, parameter.requires_grad)
        result.grad = None if parameter.grad is None else fn(parameter.grad)
    return result
