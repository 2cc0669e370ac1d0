"""The name under which a kernel's tuner can be found in another process, and the way back."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerntune.errors import UsageError
from kerntune.kernels.source import function_of, wrappers

MAIN = "__main__"
NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def name_of(kernel: Any) -> tuple[str, str]:
    """Module and qualified name of a tuner, or of a kernel without one, as another process can import it.

    :class:`UsageError` says why there is none: it was made inside of a function, in a notebook, or is no module's.
    """
    function = function_of(kernel)
    module, name = function.__module__, function.__qualname__
    found = next((n for n in _names_in(module, name) if _reaches(_attribute(sys.modules.get(module), n), kernel)), "")
    if found:
        return _importable(module, function), found
    for other, held in list(sys.modules.items()):
        if other != MAIN and inspect.ismodule(held):
            for attribute, value in list(vars(held).items()):
                if value is kernel:
                    return other, attribute
    raise UsageError(
        f"kernel {name} ({function.__code__.co_filename}): no module has its tuner as an attribute, so another process "
        "can't find it; assign it to a name at the top level of a module"
    )


def _names_in(module: str, name: str) -> Iterator[str]:
    """The kernel's own qualified name first, then the module's others."""
    yield name
    yield from list(vars(sys.modules[module])) if module in sys.modules else ()


def _reaches(value: Any, kernel: Any) -> bool:
    """Whether a module's attribute is the kernel, or something around it (``@triton.heuristics``, a wrapper)."""
    if value is kernel:
        return True
    if not hasattr(type(value), "run") or not hasattr(value, "fn"):
        return False
    return any(layer is kernel for layer in wrappers(value))


def _importable(module: str, function: Any) -> str:
    """A module's name for another process: a script's is what it is called as a module."""
    if module != MAIN:
        return str(module)
    spec = getattr(sys.modules[MAIN], "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(f".{MAIN}")
    script = Path(function.__code__.co_filename)
    if script.suffix == ".py" and NAME.fullmatch(script.stem):
        return script.stem
    raise UsageError(
        f"kernel {function.__qualname__} ({script}): it is defined in a program that can't be imported; put the kernel "
        "into a module"
    )


def tuner_of(module: str, name: str, modules: tuple[str, ...] = ()) -> Any:
    """The kernel with this name, imported; with ``modules`` only from one of these or from within one.

    A module is imported as any ``import`` statement does, and attributes are looked up; nothing is called.
    :class:`UsageError` says what is missing, and what to do.
    """
    if not (NAME.fullmatch(module) and NAME.fullmatch(name)):
        raise UsageError(f"{module[:80]!r} and {name[:80]!r} are no names of a module and a kernel")
    if modules and not any(module == one or module.startswith(f"{one}.") for one in modules):
        raise UsageError(f"kernel {module}.{name}: only {', '.join(modules)} may be imported; add --module {module}")
    kernel = _attribute(_imported(module, name), name)
    if kernel is None or not hasattr(type(kernel), "run") or not hasattr(kernel, "fn"):
        raise UsageError(
            f"kernel {module}.{name}: {_file_of(module)} has no kernel of that name; it was renamed, or is made only "
            "when the program runs. Record the shapes anew"
        )
    return kernel


def _imported(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as exc:  # a user's module may raise anything
        if isinstance(exc, ModuleNotFoundError) and exc.name and (module == exc.name or module.startswith(exc.name)):
            raise UsageError(
                f"kernel {module}.{name}: there is no module {exc.name} here; install it, or give its folder with "
                f"--path (looked in the working folder {os.getcwd()} and where Python looks)"
            ) from exc
        raise UsageError(f"kernel {module}.{name}: importing {module} failed: {type(exc).__name__}: {exc}") from exc


def _attribute(holder: Any, name: str) -> Any:
    for part in name.split("."):
        holder = None if holder is None else inspect.getattr_static(holder, part, None)
        if isinstance(holder, staticmethod):
            holder = holder.__func__
    return holder


def _file_of(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__file__", None) or module)
