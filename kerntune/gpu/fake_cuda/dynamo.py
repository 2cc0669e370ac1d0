"""Keeps torch from importing its compiler for a fake mode that never compiles.

``FakeTensorMode`` reads two settings of ``torch._dynamo.config``, and torch wraps every ``__torch_dispatch__`` so that
dynamo doesn't trace it. Each of the two imports all of ``torch._dynamo``, 800 modules and most of the start of a run
without a GPU, though nothing is compiled there: ``torch.compile`` runs functions as they are. So the settings are
loaded alone, and dispatch isn't wrapped. Any other attribute of ``torch._dynamo`` imports the package when it is read.
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
            with contextlib.suppress(AttributeError, TypeError):  # a callable that takes no attributes
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


@functools.cache
def _wrapper_code() -> CodeType:
    wrapper: Any = torch._disable_dynamo(lambda: None)
    code: CodeType = wrapper.__code__
    return code
