"""Keeps torch from importing its compiler for a fake mode that never compiles.

``FakeTensorMode`` reads two settings of ``torch._dynamo.config``, and torch wraps every ``__torch_dispatch__`` so that
dynamo would leave it alone. Each of the two imports all of ``torch._dynamo``, 800 modules and most of the start of a
run without a GPU, though nothing is compiled there: ``torch.compile`` runs functions as they are. So the settings are
loaded alone, and dispatch isn't wrapped. Whoever asks for anything else of ``torch._dynamo`` imports it then.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_PACKAGE = "torch._dynamo"
_SETTINGS = f"{_PACKAGE}.config"
_CACHED = "__dynamo_disable"
"""Where torch's wrapper keeps what dynamo has made of the wrapped function."""


class Unimported(ModuleType):
    """Stands for ``torch._dynamo`` as an attribute of ``torch``; imports it at the first question but for its settings.

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
    """Have ``torch._dynamo`` imported when it is needed, its settings now.

    The settings are the module that the package will have as ``config``, so what is set in between counts. Stays in
    place: it changes no answer. Does nothing once the package is imported, or where its settings don't load alone.
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
    """What ``torch._disable_dynamo`` has wrapped; any other function as it is.

    The wrapper imports dynamo at its first call, to tell it to leave the function alone.
    """
    return _wrapped(function) if getattr(function, "__code__", None) is _wrapper_code() else function


def call_directly() -> None:
    """Have whatever torch keeps from dynamo run without it, reference implementations of operators above all.

    Until somebody imports dynamo: then the wrappers tell it, as ever. All of torch's wrappers share their code, and
    torch has no list of them.
    """
    wrappers = (f for f in gc.get_referrers(_wrapper_code()) if isinstance(f, FunctionType))
    for wrapper in wrappers:
        function = _wrapped(wrapper)
        if not hasattr(function, _CACHED):
            with contextlib.suppress(AttributeError, TypeError):  # a callable that takes no attributes
                setattr(function, _CACHED, _direct(wrapper, function))


def _wrapped(wrapper: Any) -> Callable[..., Any]:
    """The function that a wrapper calls. ``__wrapped__`` isn't always: further decorators may have changed it."""
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


@functools.cache
def _wrapper_code() -> CodeType:
    wrapper: Any = torch._disable_dynamo(lambda: None)
    code: CodeType = wrapper.__code__
    return code
