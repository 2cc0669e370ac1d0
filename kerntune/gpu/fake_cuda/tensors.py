"""Stand-ins as tensors: methods that would access their memory, addresses, comparisons, the device guard.

Methods raise, or copy the stand-in. Comparisons pass, except where metadata (shape, dtype, device) differ. A torch
without CUDA lacks the device guard.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from ctypes import CDLL, CFUNCTYPE, addressof, c_int64, c_void_p, cast
from functools import partial
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from kerntune.base.users_line import UsersLine, calling_line
from kerntune.errors import BackendError
from kerntune.gpu.fake_cuda.modes import Handler
from kerntune.gpu.fake_cuda.patches import StandInEnd, always, replace, replace_known
from kerntune.gpu.fake_cuda.placement import KnownValues
from kerntune.kernels.compat.versions import versions_run

MEMORY_METHODS = ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")
"""Methods that read a tensor's memory: in some of them torch crashes, or raises an error about subclasses."""


def install_methods(stack: ExitStack, known: KnownValues) -> None:
    """Give stand-ins methods of their own until ``stack`` closes."""
    for name in MEMORY_METHODS:
        replace(stack, FakeTensor, name, _ending(name, known))
    # Printing needs no values, and must not end a test body.
    replace(stack, FakeTensor, "__format__", lambda t, spec: f"<stand-in {tuple(t.shape)} {t.dtype}>")
    replace_known(stack, fake_tensor, "init_gpu_context", always(None))  # allocates, for torch's own engine
    replace(stack, FakeTensor, "__deepcopy__", _deepcopy)
    replace(stack, FakeTensor, "__copy__", _copy)
    replace(stack, FakeTensor, "record_stream", always(None))  # torch's parses its argument before a mode is called


def _ending(name: str, known: KnownValues) -> Callable[..., Any]:
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        real = known.of(self)
        if real is not None and name == "tolist":
            return real.tolist()
        error = StandInEnd(f"needs the values of a stand-in (Tensor.{name})")
        known.note_unanswered(error)
        raise error

    return method


def _deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """``torch.Tensor.__deepcopy__`` decides by ``data_ptr() == 0``, which warns for fake tensors."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol at the moment")
    memo[id(self)] = _like(self, self.detach().clone())
    return memo[id(self)]


def _like(original: torch.Tensor, detached: torch.Tensor) -> torch.Tensor:
    """``detached`` as the same kind of tensor as ``original``: a parameter, a leaf that requires gradients, or
    neither."""
    if isinstance(original, torch.nn.Parameter):
        return torch.nn.Parameter(detached, original.requires_grad)
    return detached.requires_grad_(original.requires_grad)


def _copy(self: torch.Tensor) -> torch.Tensor:
    return _like(self, self.detach())


ALIGNMENT = 256
"""Bytes. cudaMalloc aligns to at least 256 (CUDA C++ Programming Guide, device memory accesses)."""
FIRST_ADDRESS = 1 << 40
"""The address of the first storage; too large for a 32-bit check to treat it as a null or small pointer."""


class Addresses:
    """Gives every storage an address. A view's address includes its offset, so its alignment is correct too."""

    def __init__(self) -> None:
        self._bases: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._next = FIRST_ADDRESS

    def storage(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's storage: real for a real tensor, else synthetic and a multiple of 256."""
        storage = tensor.untyped_storage()
        if not isinstance(tensor, FakeTensor):
            return int(storage.data_ptr())
        base = self._bases.get(storage)
        if base is None:
            base = self._bases[storage] = self._reserve(storage.nbytes())
        return base

    def tensor(self, tensor: torch.Tensor) -> int:
        """The address of a tensor's first element; 0 for an empty tensor, as torch answers."""
        if tensor.numel() == 0:
            return 0
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self.storage(tensor) + offset

    def reserved(self, address: int) -> bool:
        """Whether an address has been given to a storage."""
        return FIRST_ADDRESS <= address < self._next

    def _reserve(self, size: int) -> int:
        base = self._next
        self._next += (size // ALIGNMENT + 1) * ALIGNMENT
        return base


TRUTH = "_kerntune_truth"
"""The attribute of a reduced comparison that holds the result of ``bool()``."""

_ASSERT = re.compile(r"\s*assert\b|.*\bassert(True|False)\(")
_NEGATED = re.compile(r"\s*assert\s+not\b|.*\bassertFalse\(")
_SEVERAL = re.compile(r"\sand\s|\sor\s|;")
_QUIET_FOLDERS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class Comparisons:
    """Handlers that give the results of comparisons; for known values torch's own results are used.

    ``torch.testing.assert_close`` needs no entry: it compares shapes, dtypes, devices and strides first, for real,
    and values last, by ``torch.all``.
    """

    def __init__(self, known: KnownValues) -> None:
        self._known = known
        self._unchecked: dict[UsersLine, bool] = {}
        self._lock = Lock()

    def take_unchecked(self) -> dict[UsersLine, bool]:
        """The users' lines whose comparisons passed although values weren't known, since the last call of this; and
        whether each is an assertion."""
        with self._lock:
            taken, self._unchecked = self._unchecked, {}
            return taken

    def handlers(self) -> dict[Any, Handler]:
        """The handlers by torch function, for :class:`~kerntune.gpu.fake_cuda.modes.TorchFunctionHandlers`."""
        tensor = torch.Tensor
        handlers: dict[Any, Handler] = dict.fromkeys((torch.allclose, tensor.allclose), self._allclose)
        handlers |= dict.fromkeys((torch.equal, tensor.equal), self._equal)
        # all is usually asserted, any usually denied: assert not x.isnan().any()
        handlers |= dict.fromkeys((torch.all, tensor.all), partial(self._reduction, True))
        handlers |= dict.fromkeys((torch.any, tensor.any), partial(self._reduction, False))
        return handlers | dict.fromkeys((tensor.__bool__, tensor.item), self._truth)

    def _allclose(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._all_known(args, kwargs):
            return func(*args, **kwargs)
        torch.isclose(*args, **kwargs)  # tensors that can't be compared (dtypes, shapes) raise here, as on a GPU
        return self._passed(default=True)

    def _equal(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        left, right = (*args, *kwargs.values())[:2]
        if self._all_known(args, kwargs):
            return func(*args, **kwargs)
        if left.shape != right.shape:
            return False
        torch.eq(left, right)
        return self._passed(default=True)

    def _reduction(self, usual: bool, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if isinstance(result, FakeTensor) and result.numel() == 1 and not self._known.knows(result):
            setattr(result, TRUTH, usual)
        return result

    def _truth(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``bool(t)`` and ``t.item()`` of a reduced comparison, and of any comparison inside of an ``assert``."""
        asked = args[0]
        if self._known.knows(asked):
            return func(*args, **kwargs)
        usual = getattr(asked, TRUTH, None)
        if usual is not None:
            return self._passed(default=usual)
        if asked.dtype == torch.bool and asked.numel() == 1 and _assertion(_calling_line()):
            return self._passed(default=True)
        return func(*args, **kwargs)

    def _passed(self, default: bool) -> bool:
        """The value with which the calling line passes, False in ``assert not torch.equal(a, b)``; the users' line is
        noted."""
        text, users = _calling_line(), calling_line()
        if users is not None:
            with self._lock:
                self._unchecked[users] = "assert" in text or "assert" in users.text
        return not _NEGATED.match(text) if _assertion(text) else default

    def _all_known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        return all(map(self._known.knows, tensors))


def _assertion(line: str) -> bool:
    """Whether a line asserts a single condition: with several, one value can't fit all of them."""
    return _ASSERT.match(line) is not None and not _SEVERAL.search(line)


def _calling_line() -> str:
    """The source line, outside torch and this package, that calls; empty if unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_QUIET_FOLDERS):
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""


REGISTRY_SYMBOL = "_ZN3c104impl26device_guard_impl_registryE"
"""``c10::impl::device_guard_impl_registry``: a pointer a device type (c10/core/impl/DeviceGuardImplInterface.h)."""
CUDA_DEVICE_TYPE = 1
"""``c10::DeviceType::CUDA`` (torch/headeronly/core/DeviceType.h)."""
REGISTRY_SLOTS = 20
"""At most ``COMPILE_TIME_MAX_DEVICE_TYPES``; only the one for CUDA is used."""
VIRTUAL_SLOTS = 64
"""More than the guard interface has virtual functions (about 25)."""

_kept_alive: list[Any] = []


def ensure_guard() -> None:
    """Make torch install its no-op guard for CUDA, unless there is a guard.

    Without a guard, slices of fake CUDA tensors raise and autograd on them aborts the process. Builds with CUDA
    replace a guard that counts no device by a no-op one (``torch._C._ensureCUDADeviceGuardSet``); a build without
    CUDA has none to replace. So a dummy whose every virtual function returns 0 is put there to be replaced.

    The no-op guard stays when stand-ins end, as it does after torch's own fake mode on a machine without a GPU:
    taking it away while a stand-in is alive would bring the aborts back.

    :class:`BackendError` for a torch whose guards work otherwise.
    """
    registry = _registry()
    if registry[CUDA_DEVICE_TYPE]:
        torch._C._ensureCUDADeviceGuardSet()
        return
    zero = CFUNCTYPE(c_int64)(lambda: 0)
    table = (c_void_p * VIRTUAL_SLOTS)(*([cast(zero, c_void_p).value] * VIRTUAL_SLOTS))
    guard = (c_void_p * 1)(addressof(table))
    _kept_alive.extend([zero, table, guard])
    dummy = registry[CUDA_DEVICE_TYPE] = addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[CUDA_DEVICE_TYPE] == dummy:
        registry[CUDA_DEVICE_TYPE] = None
        raise BackendError(
            f"torch {torch.__version__} did not install its no-op device guard: "
            "stand-ins for CUDA tensors can't be used with this version"
        )


def _registry() -> Any:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return (c_void_p * REGISTRY_SLOTS).in_dll(CDLL(str(library)), REGISTRY_SYMBOL)
    except (OSError, ValueError) as error:
        raise BackendError(
            f"torch {torch.__version__} has no device guard registry in {library.name} ({error}): "
            f"stand-ins for CUDA tensors need Linux; {versions_run()}"
        ) from error
