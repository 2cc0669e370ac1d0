"""Which tensors become stand-ins, and who answers questions about them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kerntune.backend.standin.ends import StandInEnd

REAL_CPU_ELEMENTS = 1 << 22
"""A CPU tensor made with at most so many elements (16 MiB of float32) stays real; a larger one would only cost time."""

LENGTH_ARGUMENTS = ("n", "m", "end", "steps")
"""What the schemas of eye, randperm, arange, linspace call their lengths."""

_TAKING_DEVICE = (torch.Tensor.cuda, torch.Tensor.to)

Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Answers one torch function: ``handler(func, args, kwargs)``."""


class StandInFakeMode(FakeTensorMode):  # type: ignore[misc]  # torch's types are skipped
    """torch's fake mode, kept from touching a device even while ``torch.cuda.is_available()`` says True."""

    avoid_device_init = True

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=False, allow_non_fake_inputs=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> StandInFakeMode:
        """Itself: every stand-in refers to its mode, and a copy of a mode corrupts the heap (torch 2.13)."""
        return self


class Placement(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Makes stand-ins of what is created on or moved to CUDA, and of large CPU tensors. All else stays real."""

    supports_higher_order_operators = True

    def __init__(self, fake: StandInFakeMode, implementation: Callable[[Any], Callable[..., Any] | None]) -> None:
        super().__init__()
        self._fake = fake
        self._implementation = implementation

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = _without_pinning(kwargs or {})
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        on_stand_in = any(isinstance(tensor, FakeTensor) for tensor in _tensors(args, kwargs))
        if not on_stand_in and not _wants_stand_in(func, args, kwargs):
            return func(*args, **kwargs)
        real_code = self._implementation(func)
        if real_code is not None:
            return real_code(*args, **kwargs)
        args = tuple(_without_history(value) for value in args)
        if on_stand_in:
            _refuse_writes_to_real(func, args, kwargs)
            return func(*args, **kwargs)
        with self._fake:
            return func(*args, **kwargs)


class Answers(TorchFunctionMode):  # type: ignore[misc]  # torch's types are skipped
    """Answers what a caller asks of a stand-in at torch's surface: its address, a comparison."""

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
        if handler is not None and any(isinstance(tensor, FakeTensor) for tensor in _tensors(args, kwargs)):
            return handler(func, args, kwargs)
        return func(*args, **kwargs)


def _without_history(value: Any) -> Any:
    """Real tensors detached (autograd is above): fake mode looks at ``.grad`` of what it converts, and torch warns."""
    if isinstance(value, list):
        return [_without_history(item) for item in value]
    is_result = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_leaf
    return value.detach() if is_result else value


def _without_pinning(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pinned memory needs a driver; whether memory is pinned changes no kernel."""
    return {**kwargs, "pin_memory": False} if kwargs.get("pin_memory") else kwargs


def _name_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``device=0`` as ``device="cuda:0"``: torch looks for the accelerator that a number means, and finds none."""
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


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Tensors among the arguments, one level of lists deep (an operator's schema nests no deeper)."""
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item


def _wants_stand_in(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return False  # someone else's fake mode (torch.compile, a test's own) decides
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "cuda":
        return True
    made_on_cpu = device is None or torch.device(device).type == "cpu"
    return made_on_cpu and _elements(func, args, kwargs) > REAL_CPU_ELEMENTS


def _elements(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """How many elements a factory will make; 0 for operators that take tensors."""
    if func.namespace != "aten" or next(_tensors(args, kwargs), None) is not None:
        return 0
    given = {argument.name: value for argument, value in _bound(func, args, kwargs)}
    if "size" in given:
        return math.prod(given["size"])
    lengths = [given[name] for name in LENGTH_ARGUMENTS if isinstance(given.get(name), (int, float))]
    return int(math.prod(lengths)) if lengths else 0


def _bound(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The given arguments of an operator, each with what the schema says of it."""
    for place, argument in enumerate(func._schema.arguments):
        if place < len(args):
            yield argument, args[place]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _refuse_writes_to_real(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A real tensor would silently keep its old values: end here instead of failing a later comparison."""
    if not func._schema.is_mutable:
        return
    for argument, value in _bound(func, args, kwargs):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and any(not isinstance(tensor, FakeTensor) for tensor in _tensors((value,), {})):
            raise StandInEnd(f"{func} writes the values of a stand-in into a real CPU tensor")
