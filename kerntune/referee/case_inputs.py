"""What a call is given: tensors, plain arguments, and whose callable it is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Union

from kerntune.base.frames import StrictMessage

Plain = Union[bool, int, float, str, None]

Given = Union[bool, int, float, str, None, list[Plain]]
"""A value in a task's list of shapes."""

UNREAD = "unread"
"""The content of an input that the reference doesn't read: memory for results, which a candidate may write."""


class TensorInput(StrictMessage, frozen=True):
    """A tensor that both sides are given: torch's dtype, sizes and strides in elements.

    ``content`` says how its numbers are drawn: ``normal``, ``uniform``, ``integers`` (``low`` to ``high``, included),
    ``zeros``, ``fixed`` (``values``, known when the candidate is recorded), ``author`` (the task's own code makes
    them), or :data:`UNREAD`. ``varied``: mean and deviation of a ``normal`` vary from seed to seed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    content: str = "normal"
    low: float = 0.0
    high: float = 1.0
    varied: bool = False
    values: tuple[float, ...] = ()
    alike: bool = False
    """It is one number at this shape of a task that has others at another, which tell whether it is read."""

    held: bool = False
    """Its fixed values are never others: they belong to another input's."""

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.shape[-1] if self.shape else 1


class TensorAt(StrictMessage, frozen=True, tag="tensor"):
    """The input tensor of this number."""

    index: int


class PlainArgument(StrictMessage, frozen=True, tag="plain"):
    """A number, a text, a flag or None; ``held`` as :attr:`TensorInput.held`."""

    value: Plain = None
    held: bool = False


class SequenceArgument(StrictMessage, frozen=True, tag="sequence"):
    """A tuple or list of arguments; of a named tuple ``names`` has the fields."""

    items: tuple[CallArgument, ...]
    is_list: bool = False
    names: tuple[str, ...] = ()


class MappingArgument(StrictMessage, frozen=True, tag="mapping"):
    """A dict of arguments by name."""

    items: dict[str, CallArgument]


CallArgument = Union[TensorAt, PlainArgument, SequenceArgument, MappingArgument]


def plain_of(arguments: Iterable[CallArgument]) -> list[PlainArgument]:
    """Those that are no tensors, in data, too."""
    found = list[PlainArgument]()
    for one in arguments:
        inside = one.items.values() if isinstance(one, MappingArgument) else getattr(one, "items", ())
        found += [one] if isinstance(one, PlainArgument) else plain_of(inside)
    return found


class CaseInputs(StrictMessage, frozen=True):
    """One shape to judge: its tensors, and the call's arguments made of them.

    ``parameters`` has, by the name in the model's ``state_dict``, the tensor that it is. ``given`` are the keywords by
    which the task's own code makes the case.
    """

    label: str
    tensors: tuple[TensorInput, ...]
    arguments: tuple[CallArgument, ...]
    keywords: tuple[str, ...] = ()
    """Names of the last arguments, where they are passed by name."""

    parameters: dict[str, int] = {}
    init: tuple[CallArgument, ...] = ()
    given: dict[str, Given] = {}
    learned: tuple[int, ...] = ()
    """The tensors that training changes: parameters, but no buffers."""

    unmade: str = ""
    """Why the task's own code makes no inputs, where it fails."""

    @property
    def made_by_author(self) -> bool:
        """Whether the task's own code makes its inputs."""
        return bool(self.given) or any(t.content == "author" for t in self.tensors)

    @property
    def numbers(self) -> list[float]:
        """The finite numbers of the call."""
        found = [one.value for one in plain_of((*self.arguments, *self.init))]
        return [x for x in found if isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)]

    @property
    def holds(self) -> bool:
        """Whether any numbers that are known when recording are never others."""
        plain = (a for a in self.arguments if isinstance(a, PlainArgument))
        return any(t.held for t in self.tensors) or any(a.held for a in plain)


class UserCallable(StrictMessage, frozen=True):
    """A user's callable: its file, the name in it, the layout by which that is read (:mod:`.layouts`), the paths of
    ``modules`` that it may import beside those in its folder, and the folder of the ``package`` that it belongs to."""

    path: str
    name: str
    layout: str
    modules: dict[str, str] = {}
    package: str = ""

    @property
    def readable(self) -> tuple[str, ...]:
        """What its process may read: its package or folder, and these files."""
        return (self.package or str(Path(self.path).resolve().parent), *self.modules.values())
