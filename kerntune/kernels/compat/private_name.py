"""A name in a module of torch's that torch makes no promise about."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrivateName:
    """``path`` is the name in ``module``, with a dot before each attribute of a class."""

    module: str
    path: str

    @property
    def name(self) -> str:
        """``module:path``."""
        return f"{self.module}:{self.path}"

    def owner_in(self, module: Any) -> tuple[Any, str] | None:
        """The object that has the attribute, and the attribute's name; None where ``module`` (None: there is none)
        lacks it."""
        found = module
        *outer, last = self.path.split(".")
        for step in outer:
            found = getattr(found, step, None)
        return (found, last) if found is not None and hasattr(found, last) else None


def lacking_parameters(function: Any, parameters: Collection[str]) -> list[str]:
    """Those of ``parameters`` that a function doesn't take by these names; ``**kwargs`` takes any."""
    if not parameters:
        return []  # what is no function has no signature
    has = inspect.signature(function).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in has.values())
    return [p for p in parameters if p not in has and not takes_any]
