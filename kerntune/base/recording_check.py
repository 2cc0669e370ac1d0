"""What a decoded recording must be before anything is done with it: its indices lead somewhere, its sizes can be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kerntune.base.case_result import CaseId
from kerntune.base.codec import shortened
from kerntune.base.recording import Binary, Launch, Recording, Storage, Stored, Uniform, View

MAX_BYTES = 1 << 44
"""Bytes of one storage, or of a kernel's scratch memory: 16 TiB, more than any device has."""

MAX_DIMENSIONS = 64
"""Dimensions of a tensor: torch has no more."""

MAX_COUNT = 1 << 31
"""Warps, CTAs, blocks along an axis and the like: none has as many."""

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
        yield from _at(f"binaries[{i}]", _binary(binary))
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
    for j, blocks in enumerate(launch.grid):
        yield from within(f"grid[{j}]", blocks, 0, MAX_COUNT)


def _binary(binary: Binary) -> Iterator[str]:
    for name in ("sha256", "ttir_sha256"):
        if not is_sha256(getattr(binary, name)):
            yield f"{name} is no SHA-256 in 64 hexadecimal digits"
    if re.fullmatch(r"(?:sm_[0-9]{2,3}[a-z]?|gfx[0-9a-f]+)", binary.arch) is None:
        yield f"arch is {shortened(binary.arch)!r}, no architecture such as sm_90a"
    for name in ("symbol", "triton", "assembler"):
        yield from unprintable(name, getattr(binary, name))
    for name in ("num_warps", "num_ctas", "warp_size"):
        yield from within(name, getattr(binary, name), 1, MAX_COUNT)
    for name in ("shared", "tmem"):
        yield from within(name, getattr(binary, name), 0, MAX_COUNT)
    for name in ("global_scratch", "profile_scratch"):
        scratch = getattr(binary, name)
        yield from within(f"{name}.size", scratch.size, 0, MAX_BYTES)
        yield from within(f"{name}.align", scratch.align, 1, MAX_COUNT)


def _storage(storage: Storage) -> Iterator[str]:
    yield from within("nbytes", storage.nbytes, 0, MAX_BYTES)
    content = storage.content
    if isinstance(content, Stored) and not is_sha256(content.sha256):
        yield "content.sha256 is no SHA-256 in 64 hexadecimal digits"
    if isinstance(content, Uniform):
        yield from within("content.low", content.low, -MAX_INTEGER, MAX_INTEGER)
        yield from within("content.high", content.high, content.low, MAX_INTEGER)


def _view(recording: Recording, view: View) -> Iterator[str]:
    yield from _index("storage", view.storage, len(recording.storages))
    yield from within("offset_bytes", view.offset_bytes, 0, MAX_BYTES)
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
