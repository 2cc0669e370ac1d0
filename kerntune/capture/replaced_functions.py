"""Functions of classes that several users replace at a time, who come and go in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

FunctionPlace = tuple[type, str]
"""A class, and the name of one of its functions."""

FunctionLayer = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes the function below, and gives what stands over it. It is called again when another user comes or goes."""


class ReplacedFunctions:
    """What stands in the place of functions: the layers of all users over what was there before the first. The user
    that came last is asked first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: list[tuple[object, Mapping[FunctionPlace, FunctionLayer]]] = []
        self._originals: dict[FunctionPlace, Callable[..., Any]] = {}

    def add(
        self, user: object, layers: Mapping[FunctionPlace, FunctionLayer], *, instead_of: object | None = None
    ) -> None:
        """Put a user's layers over all others, in the whole process, once; those of ``instead_of`` go at the same
        moment: where both have a layer, no call comes between them."""
        with self._lock:
            self._users = [one for one in self._users if one[0] is not user and one[0] is not instead_of]
            for owner, name in layers:
                self._originals.setdefault((owner, name), getattr(owner, name))
            self._users.append((user, layers))
            self._set_and_forget()

    def remove(self, user: object) -> None:
        """Take a user's layers away; the others stay."""
        with self._lock:
            self._users = [one for one in self._users if one[0] is not user]
            self._set_and_forget()

    def _set_and_forget(self) -> None:
        for (owner, name), found in self._originals.items():
            for _, layers in self._users:
                if (owner, name) in layers:
                    found = layers[owner, name](found)
            setattr(owner, name, found)
        left = {place for _, layers in self._users for place in layers}
        self._originals = {place: found for place, found in self._originals.items() if place in left}


REPLACED = ReplacedFunctions()
"""Of this process."""
