"""What a decoded recording must be before anything is done with it: its indices lead somewhere, its sizes can be.

Ranges of single numbers are refused where it is decoded, by the types in :mod:`kerntune.base.recording`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kerntune.base.case_result import CaseId
from kerntune.base.recording import Launch, Recording, Storage, Uniform, View

MAX_DIMENSIONS = 64
"""Dimensions of a tensor: torch has no more."""

MAX_INTEGER = 1 << 64
"""Sizes, strides and contents of a tensor are smaller."""


def is_sha256(text: str) -> bool:
    """Whether this is a checksum, and so no path."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def recording_problems(recording: Recording) -> Iterator[str]:
    """A sentence for each field that can't be, beginning with its place: ``launches[0].binary``."""
    for i, launch in enumerate(recording.launches):
        yield from _at(f"launches[{i}]", _launch(recording, launch))
    for i, binary in enumerate(recording.binaries):
        for name in ("symbol", "triton", "assembler"):
            yield from unprintable(f"binaries[{i}].{name}", getattr(binary, name))
    for i, storage in enumerate(recording.storages):
        yield from _at(f"storages[{i}]", _storage(storage))
    for i, view in enumerate(recording.views):
        yield from _at(f"views[{i}]", _view(recording, view))


MAX_TEXT = 4_000
"""Characters of an id, or of a name: those of tests with many parameters have hundreds."""


def unprintable(name: str, text: str) -> Iterator[str]:
    """A sentence, if a text can't be a name: no file of ours has control characters in one, or marks that change how
    the rest of a line is shown."""
    if not text.isprintable():
        yield f"{name} has a character that can't be printed"
    elif len(text) > MAX_TEXT:
        yield f"{name} has {len(text)} characters, more than {MAX_TEXT}"


def case_problems(case: CaseId) -> Iterator[str]:
    """The same for the name of a case."""
    yield from unprintable("case.nodeid", case.nodeid)
    yield from unprintable("case.call", case.call)


def _at(place: str, problems: Iterable[str]) -> Iterator[str]:
    return (f"{place}.{problem}" for problem in problems)


def _launch(recording: Recording, launch: Launch) -> Iterator[str]:
    yield from unprintable("kernel", launch.kernel)
    yield from _index("binary", launch.binary, len(recording.binaries))
    for j, param in enumerate(launch.params):
        if param.view is not None:
            yield from _index(f"params[{j}].view", param.view, len(recording.views))
    for name, indices in (("reads", launch.reads), ("writes", launch.writes)):
        for j, storage in enumerate(indices):
            yield from _index(f"{name}[{j}]", storage, len(recording.storages))


def _storage(storage: Storage) -> Iterator[str]:
    content = storage.content
    if isinstance(content, Uniform):
        yield from within("content.low", content.low, -MAX_INTEGER, MAX_INTEGER)
        yield from within("content.high", content.high, content.low, MAX_INTEGER)


def _view(recording: Recording, view: View) -> Iterator[str]:
    yield from _index("storage", view.storage, len(recording.storages))
    if len(view.shape) != len(view.strides):
        yield f"strides are {len(view.strides)}, and there are {len(view.shape)} sizes"
    if len(view.shape) > MAX_DIMENSIONS:
        yield f"shape has {len(view.shape)} dimensions, more than {MAX_DIMENSIONS}"
    for j, size in enumerate(view.shape):
        yield from within(f"shape[{j}]", size, 0, MAX_INTEGER)
    for j, stride in enumerate(view.strides):
        yield from within(f"strides[{j}]", stride, -MAX_INTEGER, MAX_INTEGER)


def _index(name: str, index: int, count: int) -> Iterator[str]:
    if not 0 <= index < count:
        yield f"{name} is {shortly(index)}, and there are {count} to choose from"


def within(name: str, value: float, low: float, high: float) -> Iterator[str]:
    """A sentence, if a number is none from ``low`` to ``high``."""
    if not low <= value <= high:
        yield f"{name} is {shortly(value)}, which can't be"


def shortly(value: float) -> str:
    """A number of at most 20 digits; of a longer one how long it is."""
    text = str(value)
    return text if len(text) <= 20 else f"a number of {len(text)} digits"
