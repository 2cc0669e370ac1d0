"""The fake mode at the dispatcher, and the mode that handles torch functions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from kerntune.gpu.base import OperatorListener
from kerntune.gpu.fake_cuda.dynamo import defer_dynamo, undisabled

_TAKING_DEVICE = (torch.Tensor.cuda, torch.Tensor.to)

Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Replaces one torch function: ``handler(func, args, kwargs)`` returns its result."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.in_kernel_invocation = False
        self.enter_stack: list[Any] = []


class _Noting(threading.local):
    inside = False


class Watch:
    """Passes the operators that run on stand-ins to a listener, if there is one.

    The listener is that of all threads. What runs inside of a noted operator isn't noted.
    """

    def __init__(self) -> None:
        self._listeners: list[OperatorListener] = []
        self._noting = _Noting()
        self._home = threading.get_ident()

    def active(self) -> bool:
        """Whether an operator of the calling thread is to be noted."""
        return bool(self._listeners) and not self._noting.inside

    def away(self) -> bool:
        """Whether that is so in a thread that stand-ins' modes weren't entered in, outside of torch's compiler."""
        return (
            self.active()
            and threading.get_ident() != self._home
            and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None
            and torch._guards.TracingContext.try_get() is None
        )

    def run(self, func: Any, args: Any, kwargs: Mapping[str, Any], operator: Callable[[], Any]) -> Any:
        """Run an operator, and note it."""
        listener = self._listeners[-1]
        begun = listener.begin()
        with self.silent():
            result = operator()
        with torch._C.DisableTorchFunction():  # each look at a tensor would call the mode below
            listener.observe(func, args, kwargs, result, begun)
        return result

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing that the calling thread runs meanwhile is noted."""
        before, self._noting.inside = self._noting.inside, True
        try:
            yield
        finally:
            self._noting.inside = before

    @contextlib.contextmanager
    def to(self, listener: OperatorListener) -> Iterator[None]:
        """Pass operators to this listener meanwhile, and to no other."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


_fake_dispatch = undisabled(FakeTensorMode.__torch_dispatch__)


class StandInFakeMode(FakeTensorMode):  # type: ignore[misc]  # torch's types are skipped
    """torch's fake mode, which must not access a device even while ``torch.cuda.is_available()`` is True.

    Several threads may use it at a time. torch's own keeps in one place for all of them whether an operator runs, and
    what it was entered over; then a second thread meets its assertions, or tensors on the device ``meta``.
    """

    avoid_device_init = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._watch.away():
            return _fake_dispatch(self, func, types, args, kwargs)
        return self._watch.run(func, args, kwargs or {}, lambda: _fake_dispatch(self, func, types, args, kwargs))

    def __init__(self, devices: int = 1, watch: Watch | None = None) -> None:
        self._of_thread = _OfThread()
        self._watch = watch or Watch()
        defer_dynamo()
        super().__init__(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        if devices > 1:
            self.cache_enabled = False  # it would give ``device="cuda"`` the number that was current at an earlier call

    @property
    def in_kernel_invocation(self) -> bool:
        """Whether an operator runs in the calling thread, for which stand-ins are on the device ``meta``."""
        return self._of_thread.in_kernel_invocation

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, runs: bool) -> None:
        self._of_thread.in_kernel_invocation = runs

    @property
    def enter_stack(self) -> list[Any]:
        """What torch goes back to when the calling thread leaves the mode."""
        return self._of_thread.enter_stack

    @enter_stack.setter
    def enter_stack(self, found: list[Any]) -> None:
        self._of_thread.enter_stack = found

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would wrap the dispatch above again."""
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> StandInFakeMode:
        """Return the mode itself: every stand-in refers to its mode, and a copy of a mode corrupts the heap (torch
        2.13)."""
        return self


class TorchFunctionHandlers(TorchFunctionMode):  # type: ignore[misc]  # torch's types are skipped
    """A torch-function mode with handlers for calls on stand-ins: their address, comparisons."""

    def __init__(self, handlers: Mapping[Any, Handler]) -> None:
        super().__init__()
        self._handlers = dict(handlers)

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = _name_device(func, args, kwargs or {})
        handler = self._handlers.get(func)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if handler is not None and any(isinstance(tensor, FakeTensor) for tensor in tensors_in(args, kwargs)):
            return handler(func, args, kwargs)
        return func(*args, **kwargs)


def _name_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``device=0`` as ``device="cuda:0"``: torch looks up the accelerator for a number, and finds none."""
    if type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
    if func in _TAKING_DEVICE and len(args) > 1 and type(args[1]) is int:
        args = (args[0], torch.device("cuda", args[1]), *args[2:])
    return args, kwargs


@contextlib.contextmanager
def entered(*modes: Any) -> Iterator[None]:
    """Enter modes again where torch has taken them off: inside a torch function, below the dispatcher."""
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


def tensors_in(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Tensors among the arguments, one level of lists deep (an operator's schema nests no deeper)."""
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item
