"""Functions that stand in for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def raising(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    """A function that raises this, whatever it is given."""

    def fail(*args: Any, **words: Any) -> Any:
        raise error

    return fail
