"""A name in a module of torch's that torch makes no promise about."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from kerntune.kernels.compat.versions import torch_version

Kind = Literal["function", "class", "value"]
"""What a name must stand for: something that is called, a class, or an object of any other kind."""


@dataclass(frozen=True)
class PrivateName:
    """``path`` is the name in ``module``, with a dot before each attribute of a class."""

    module: str
    path: str
    kind: Kind = field(default="function", kw_only=True)

    @property
    def name(self) -> str:
        """``module:path``."""
        return f"{self.module}:{self.path}"

    def load(self) -> Any:
        """The module, imported now; it may be an extension's (``torch._C._dynamo.guards``) that isn't found by
        importing. None where there is none."""
        try:
            return importlib.import_module(self.module)
        except ImportError:
            found: Any = sys.modules.get(self.module.partition(".")[0])
            for step in self.module.split(".")[1:]:
                found = getattr(found, step, None)
            return found

    def owner_in(self, module: Any) -> tuple[Any, str] | None:
        """The object that has the attribute, and the attribute's name; None where ``module`` (None: there is none)
        lacks it."""
        found = module
        *outer, last = self.path.split(".")
        for step in outer:
            found = getattr(found, step, None)
        return (found, last) if found is not None and hasattr(found, last) else None

    def problem_in(self, module: Any, parameters: Collection[str] = ()) -> str:
        """What this torch has moved or changed, with its version; empty if the name stands for what it did."""
        torch = f"torch {torch_version()}"
        found = self.owner_in(module)
        if found is None:
            return f"{torch} has no {self.name}"
        value = getattr(*found)
        if not _is_of(value, self.kind):
            return f"{torch}'s {self.name} is no {self.kind} any more"
        lacking = lacking_parameters(value, parameters)
        return f"{torch}'s {self.name} has no parameter {', '.join(lacking)} any more" if lacking else ""


def _is_of(value: Any, kind: Kind) -> bool:
    if kind == "value":
        return not (inspect.isroutine(value) or isinstance(value, type))
    return isinstance(value, type) if kind == "class" else callable(value) and not isinstance(value, type)


def lacking_parameters(function: Any, parameters: Collection[str]) -> list[str]:
    """Those of ``parameters`` that a function doesn't take by these names; ``**kwargs`` takes any."""
    if not parameters:
        return []  # what is no function has no signature
    has = inspect.signature(function).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in has.values())
    return [p for p in parameters if p not in has and not takes_any]
