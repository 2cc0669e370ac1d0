"""Installs the stand-ins process-wide, and undoes all changes afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._library.triton import set_wrap_triton_enabled
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.base.device import DeviceSpec
from kerntune.base.users_line import UsersLine
from kerntune.errors import UsageError
from kerntune.gpu.fake_cuda.autograd import engine, hook_handlers, install_functions, replace_engine
from kerntune.gpu.fake_cuda.compiled_functions import CompiledFunctions
from kerntune.gpu.fake_cuda.cuda_api import install_cuda
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, install_driver
from kerntune.gpu.fake_cuda.launches import CapturedLaunches
from kerntune.gpu.fake_cuda.loading import Loaded, module_apply, parse_to
from kerntune.gpu.fake_cuda.modes import (
    Handler,
    RealImplementations,
    StandInFakeMode,
    TorchFunctionHandlers,
    Watch,
    entered,
)
from kerntune.gpu.fake_cuda.patches import Replacements, replace
from kerntune.gpu.fake_cuda.placement import KnownValues, Placement
from kerntune.gpu.fake_cuda.tensors import Addresses, Comparisons, ensure_guard, install_methods
from kerntune.kernels.access import Access
from kerntune.kernels.specialize import Specialized

_only_one = threading.Lock()


def are_active() -> bool:
    """Whether the GPU that torch reports in this process is a stand-in."""
    return _only_one.locked()


@contextlib.contextmanager
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
    except that tensors become stand-ins only on the thread that activated (torch's modes are per thread).
    """

    def __init__(self, spec: DeviceSpec, others: Sequence[DeviceSpec] = ()) -> None:
        self.spec = spec
        self.numbers = DeviceNumbers((spec, *others))
        self._addresses = Addresses()
        self._known = KnownValues()
        self.watch = Watch()
        self._comparisons = Comparisons(self._known)
        self._operators = RealImplementations(self._entered_modes)
        self._launches = CapturedLaunches(self.numbers, self.specializing, self._known)
        self.compiled = CompiledFunctions(self._entered_modes, lambda: self._answers)
        self._answers: TorchFunctionHandlers | None = None
        self._placement: Placement | None = None

    @contextlib.contextmanager
    def activate(self) -> Iterator[None]:
        """Install everything until the context closes.

        :class:`UsageError` if stand-ins are active already; :class:`BackendError` if this torch doesn't support them.
        Activate before users' modules are imported: ``skipif(not torch.cuda.is_available())`` is decided then.
        """
        with alone(), Replacements() as stack:
            ensure_guard()
            self._install(stack)
            yield

    def entered(self, ordinal: int) -> contextlib.AbstractContextManager[None]:
        """A device is current meanwhile."""
        return self.numbers.context()(ordinal)

    def address(self, tensor: torch.Tensor) -> int:
        """A tensor's synthetic device address in bytes, storage offset included; the real one of a real tensor."""
        return self._addresses.tensor(tensor)

    def storage_address(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's storage, a multiple of 256; views of one storage share it."""
        return self._addresses.storage(tensor)

    def launched(self, pointers: Sequence[Any], access: Callable[[], Access]) -> None:
        """Tell of a launch that reaches none of Triton's entry points (:meth:`KnownValues.launched`)."""
        self._known.launched(pointers, access)

    def supply(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Give a tensor values that a kernel would have computed (:meth:`KnownValues.supply`)."""
        self._known.supply(tensor, values)

    def take_unchecked(self) -> Mapping[UsersLine, bool]:
        """What has passed without values (:meth:`Comparisons.take_unchecked`)."""
        return self._comparisons.take_unchecked()

    def take_unanswered(self) -> list[tuple[UsersLine, str]]:
        """Questions that had no answer (:meth:`KnownValues.take_unanswered`)."""
        return self._known.take_unanswered()

    def ask_access(self, access_of: Callable[[Specialized], Access]) -> None:
        """Ask ``access_of`` what a launch's kernel writes, instead of compiling it in this process."""
        self._launches.access_of = access_of

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a stand-in, if they follow from what the host made (:meth:`KnownValues.of`)."""
        return self._known.of(tensor)

    def known_storage(self, tensor: torch.Tensor) -> Any:
        """The bytes of a stand-in's whole storage, as torch's storage in the CPU's memory; None if not known."""
        return self._known.storage_of(tensor)

    def give_up(self, tensor: torch.Tensor) -> None:
        """A tensor's values are known no more."""
        self._known.forget(tensor)

    def reserved(self, address: int) -> bool:
        """Whether a number is in a storage's synthetic memory, or was while the storage lived."""
        return self._addresses.reserved(address)

    @contextlib.contextmanager
    def specializing(self) -> Iterator[None]:
        """Make ``data_ptr`` of stand-ins return :meth:`address` to all callers, Triton's binder too.

        Outside of the context, only calls through torch functions get it: to torch itself 0 means that a tensor has no
        memory.
        """
        with contextlib.ExitStack() as stack:
            replace(stack, FakeTensor, "data_ptr", lambda tensor: self.address(tensor))
            yield

    def _install(self, stack: Replacements) -> None:
        # first: it imports parts of torch that list torch.cuda's functions
        fake = StandInFakeMode(len(self.numbers.specs), self.watch)
        install_cuda(stack, self.numbers)
        install_methods(stack, self._known)
        self._launches.install(stack)
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

    def _install_modes(self, stack: contextlib.ExitStack, fake: StandInFakeMode) -> None:
        stack.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") builds on the CPU, then moves
        self._answers = TorchFunctionHandlers(self._handlers())
        self._placement = Placement(fake, self._known, self._operators.find, self.watch)
        stack.enter_context(self._entered_modes())

    def _handlers(self) -> dict[Any, Handler]:
        return {torch.Tensor.data_ptr: self._data_ptr, **hook_handlers(), **self._comparisons.handlers()}

    def _data_ptr(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        self._known.forget(args[0])  # users' code that has the address may write there
        return self.address(args[0])

    def _entered_modes(self) -> contextlib.AbstractContextManager[None]:
        return entered(self._placement, self._answers)


def run_eagerly(model: Any = None, **options: Any) -> Any:
    """A ``torch.compile`` that compiles nothing: compiled functions wouldn't launch the user's kernels."""
    return model if model is not None else lambda function: function
