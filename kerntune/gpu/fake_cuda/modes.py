"""The fake mode at the dispatcher, the mode that handles torch functions, and custom operators under both.

Custom operators run their real code on stand-ins, so that the kernels inside are launched.

Torch is kept from importing its compiler for a fake mode that never compiles. ``FakeTensorMode`` reads two settings
of ``torch._dynamo.config``, and torch wraps every ``__torch_dispatch__`` so that Dynamo doesn't trace it. Each of
the two imports all of ``torch._dynamo``: 800 modules, and most of the start of a run without a GPU. So the settings
are loaded alone, and dispatch isn't wrapped.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import get_ident, local
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from kerntune.base.changed_items import changed_items
from kerntune.gpu.base import OperatorListener, tensors_in
from kerntune.gpu.fake_cuda.patches import replace

_PACKAGE = "torch._dynamo"
_SETTINGS = f"{_PACKAGE}.config"
_CACHED = "__dynamo_disable"
"""The attribute of torch's wrapper that holds dynamo's version of the wrapped function."""


class Unimported(ModuleType):
    """A placeholder for ``torch._dynamo`` as an attribute of ``torch``; it has the settings, and imports the package
    when another attribute is read.

    It isn't in ``sys.modules``, so ``import torch._dynamo`` is an ordinary import, after which torch has the real one.
    """

    def __init__(self, settings: ModuleType) -> None:
        super().__init__(_PACKAGE)
        self.__dict__["config"] = settings

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_imported(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_imported(), name)


def _imported() -> Any:
    import torch._dynamo  # noqa: F401 - asked for by its name below: torch has it as an attribute only afterwards

    return sys.modules[_PACKAGE]


def defer_dynamo() -> None:
    """Import the settings of ``torch._dynamo`` now, and the package when it is needed.

    The settings are the module that the package will have as ``config``, so values that are set in between are kept. It
    stays in place, since it changes no result. It does nothing if the package is imported, or if its settings can't be
    loaded alone.
    """
    if _PACKAGE in sys.modules or _SETTINGS in sys.modules:
        return
    settings = _settings_alone()
    if settings is not None:
        torch.__dict__["_dynamo"] = Unimported(settings)
        call_directly()


def _settings_alone() -> ModuleType | None:
    path = Path(torch.__file__).parent / "_dynamo" / "config.py"
    spec = importlib.util.spec_from_file_location(_SETTINGS, path)
    if spec is None or spec.loader is None or not path.is_file():
        return None
    sys.modules[_SETTINGS] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception:  # another torch, whose settings need their package: it is imported whole
        del sys.modules[_SETTINGS]
        return None
    return None if _PACKAGE in sys.modules else module


def undisabled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that ``torch._disable_dynamo`` has wrapped; any other function unchanged.

    The wrapper imports dynamo at its first call, to exclude the function from tracing.
    """
    return _wrapped(function) if getattr(function, "__code__", None) is _wrapper_code() else function


def call_directly() -> None:
    """Make functions that torch excludes from dynamo run without importing it, above all reference implementations of
    operators.

    Once dynamo is imported, the wrappers work as usual. All of torch's wrappers share their code, and torch has no list
    of them.
    """
    wrappers = (f for f in gc.get_referrers(_wrapper_code()) if isinstance(f, FunctionType))
    for wrapper in wrappers:
        function = _wrapped(wrapper)
        if not hasattr(function, _CACHED):
            with suppress(AttributeError, TypeError):  # a callable that takes no attributes
                setattr(function, _CACHED, _direct(wrapper, function))


def _wrapped(wrapper: Any) -> Callable[..., Any]:
    """The function that a wrapper calls. It need not be ``__wrapped__``, which further decorators may have changed."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True))
    function: Callable[..., Any] = cells["fn"].cell_contents if "fn" in cells else wrapper
    return function


def _direct(wrapper: Any, function: Any) -> Callable[..., Any]:
    def direct(*args: Any, **kwargs: Any) -> Any:
        if _PACKAGE not in sys.modules:
            return function(*args, **kwargs)
        vars(function).pop(_CACHED, None)
        return wrapper(*args, **kwargs)

    return direct


@cache
def _wrapper_code() -> CodeType:
    wrapper: Any = torch._disable_dynamo(lambda: None)
    code: CodeType = wrapper.__code__
    return code


_TAKING_DEVICE = (torch.Tensor.cuda, torch.Tensor.to)

Handler = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Replaces one torch function: ``handler(func, args, kwargs)`` returns its result."""


class _OfThread(local):
    def __init__(self) -> None:
        self.in_kernel_invocation = False
        self.enter_stack: list[Any] = []


def _of_thread(name: str) -> property:
    """An attribute of a mode that each thread has for itself."""
    return property(
        lambda mode: getattr(mode._of_thread, name), lambda mode, value: setattr(mode._of_thread, name, value)
    )


UNANSWERED: tuple[Any, ...] = ()
COMPUTED: tuple[Any, ...] = (None, None, None)


class Noting(local):
    """What is known of the operator that is being noted in a thread; ``answer`` is None where none is.

    It is :data:`UNANSWERED` until torch's cache of fake results answers, and then the operator, the result and the
    cache's entry. Once an operator is computed it is :data:`COMPUTED`: what the cache answers then is a part of it.
    """

    answer: tuple[Any, ...] | None = None


_function_modes = torch._C._len_torch_function_stack


class Watch:
    """Passes the operators that run on stand-ins to a listener, if there is one.

    The listener is that of all threads. What runs inside of a noted operator isn't noted.
    """

    def __init__(self) -> None:
        self.listeners: list[OperatorListener] = []
        self.noting = Noting()
        self._home = get_ident()

    def away(self) -> bool:
        """Whether there is a listener, in a thread that stand-ins' modes weren't entered in, outside of torch's
        compiler."""
        return (
            get_ident() != self._home
            and bool(self.listeners)
            and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None
            and torch._guards.TracingContext.try_get() is None
        )

    def run(
        self,
        func: Any,
        args: Any,
        kwargs: Mapping[str, Any],
        operator: Callable[[Any, Any, Any], Any],
    ) -> Any:
        """Run ``operator(func, args, kwargs)``, and note it unless it is a part of another. There must be a
        listener."""
        noting = self.noting
        if noting.answer is not None:
            return operator(func, args, kwargs)
        listener = self.listeners[-1]
        noting.answer = UNANSWERED
        try:
            result = operator(func, args, kwargs)
        finally:
            answer, noting.answer = noting.answer, None
        alike = answer[2] if answer and answer[0] is func and answer[1] is result else None
        if alike is not None and not _function_modes():
            listener.observe(func, args, kwargs, result, None, alike)
        else:
            with torch._C.DisableTorchFunction():  # each look at a tensor would call a mode, or a subclass
                listener.observe(func, args, kwargs, result, None, alike)
        return result

    def silent(self) -> AbstractContextManager[None]:
        """Nothing that the calling thread runs meanwhile is noted."""
        return changed_items(vars(self.noting), {"answer": COMPUTED})

    @contextmanager
    def to(self, listener: OperatorListener) -> Iterator[None]:
        """Pass operators to this listener meanwhile, and to no other."""
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)


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
        return self._watch.run(func, args, kwargs or {}, lambda f, a, k: _fake_dispatch(self, f, types, a, k))

    def _output_from_cache_entry(self, state: Any, entry: Any, key: Any, func: Any, args: Any) -> Any:
        output = super()._output_from_cache_entry(state, entry, key, func, args)
        noting = self._watch.noting
        if noting.answer is UNANSWERED:
            noting.answer = func, output, entry
        return output

    def _dispatch_impl(self, *operator: Any) -> Any:
        noting = self._watch.noting
        if noting.answer is UNANSWERED:
            noting.answer = COMPUTED
        return super()._dispatch_impl(*operator)

    def __init__(self, devices: int = 1, watch: Watch | None = None) -> None:
        self._of_thread = _OfThread()
        self._watch = watch or Watch()
        defer_dynamo()
        super().__init__(allow_fallback_kernels=False, allow_non_fake_inputs=True)
        if devices > 1:
            self.cache_enabled = False  # it would give ``device="cuda"`` the number that was current at an earlier call

    in_kernel_invocation = _of_thread("in_kernel_invocation")
    """Whether an operator runs in the calling thread, for which stand-ins are on the device ``meta``."""

    enter_stack = _of_thread("enter_stack")
    """What torch goes back to when the calling thread leaves the mode."""

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
        if handler is not None and any(isinstance(tensor, FakeTensor) for tensor in tensors_in(args, kwargs.values())):
            return handler(func, args, kwargs)
        return func(*args, **kwargs)


def _name_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``device=0`` as ``device="cuda:0"``: torch looks up the accelerator for a number, and finds none."""
    if type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
    if func in _TAKING_DEVICE and len(args) > 1 and type(args[1]) is int:
        args = (args[0], torch.device("cuda", args[1]), *args[2:])
    return args, kwargs


@contextmanager
def entered(*modes: Any) -> Iterator[None]:
    """Enter modes again where torch has taken them off: inside a torch function, below the dispatcher."""
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        yield


REAL_KEYS = ("CUDA", "CompositeExplicitAutograd")
"""Dispatch keys under which the dispatcher finds a CUDA tensor's implementation, below autograd, first to last."""
TORCH_NAMESPACES = frozenset({"aten", "prim", "prims", "quantized", "_c10d_functional", "c10d", "higher_order"})
"""Operators of torch itself: their CUDA code is compiled code."""

Implementation = Callable[..., Any]
EnterModes = Callable[[], AbstractContextManager[None]]


class RealImplementations:
    """Finds the Python code of an operator that ``torch.library`` defines.

    Fake mode runs an operator's fake implementation only, which launches nothing. ``entered_modes()`` is entered around
    the real one: at that depth torch has taken its modes off.
    """

    def __init__(self, entered_modes: EnterModes) -> None:
        self._entered_modes = entered_modes
        self._registered: dict[tuple[str, str], Implementation] = {}

    def install(self, stack: ExitStack) -> None:
        """Record what is registered by ``Library.impl`` from now on, until ``stack`` closes; torch has no list of
        it."""
        original = torch.library.Library.impl

        def impl(
            library: torch.library.Library, op_name: Any, fn: Implementation, dispatch_key: str = "", **options: Any
        ) -> Any:
            result = original(library, op_name, fn, dispatch_key, **options)
            if not options.get("with_keyset"):
                name = f"{library.ns}::{str(op_name).split('::')[-1].removeprefix(library.ns + '.')}"
                self._registered[name, dispatch_key or library.dispatch_key] = fn
            return result

        replace(stack, torch.library.Library, "impl", impl)

    def find(self, func: Any) -> Implementation | None:
        """The real code of an operator, ready to call on stand-ins; ``None`` if it has none in Python."""
        if getattr(func, "namespace", "aten") in TORCH_NAMESPACES:
            return None
        defined = OPDEFS.get(func._schema.name)
        made = defined._backend_fns if defined is not None else {}
        code = made.get("cuda") or made.get(None)
        code = self._noted(func) if code is None else undisabled(code)
        return None if code is None else self._surrounded(code)

    def _noted(self, func: Any) -> Implementation | None:
        name = func._schema.name
        full = f"{name}.{func._overloadname}"
        spellings = (full, name) if func._overloadname != "default" else (name, full)
        found = (self._registered.get((x, key)) for key in REAL_KEYS for x in spellings)
        return next((code for code in found if code is not None), None)

    def _surrounded(self, code: Implementation) -> Implementation:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._entered_modes():
                return code(*args, **kwargs)

        return run
