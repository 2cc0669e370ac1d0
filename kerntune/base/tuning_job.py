"""A call of a tuned kernel as data: what must be known to tune it elsewhere, and nothing of what tensors hold."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Union

import msgspec

from kerntune.base.codec import UNREADABLE, shortened
from kerntune.base.config import Config
from kerntune.base.strict import SparseStruct, StrictStruct
from kerntune.errors import StoreError, UsageError

SCHEMA = "kerntune.shapes/1"

MAX_LINE = 1 << 20
"""Bytes that a job may have as JSON: 1 MiB. With 20 arguments and 300 configs it has 20 KB."""

ALIGNED = 256
"""Bytes: where a tensor's memory begins is kept up to this. Triton asks for 16 and TMA for 128; torch aligns at 512."""


class TensorText(SparseStruct, frozen=True, tag="tensor"):
    """A tensor: sizes, strides in elements, and where it lies.

    Tensors whose memory overlaps share a ``block`` of ``nbytes``, which begins ``misaligned`` bytes past an aligned
    address; the first element is ``offset`` bytes into it. ``host`` memory is the CPU's.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: int
    nbytes: Annotated[int, msgspec.Meta(ge=0)]
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0
    misaligned: Annotated[int, msgspec.Meta(ge=0, lt=ALIGNED)] = 0
    host: bool = False


class ScalarText(StrictStruct, frozen=True, tag="scalar"):
    """A number, text or None by its ``kind`` (``bool int float str none``) and Python's ``repr``."""

    kind: str
    text: str


class DtypeText(StrictStruct, frozen=True, tag="dtype"):
    """An element type: ``torch`` and ``float16``, or ``triton`` and ``fp16``."""

    library: str
    name: str


class ConstantText(StrictStruct, frozen=True, tag="constexpr"):
    """A ``tl.constexpr`` object around a value."""

    value: ArgumentText


class SequenceText(StrictStruct, frozen=True, tag="sequence"):
    """A tuple, or a list (``kind``)."""

    kind: str
    items: tuple[ArgumentText, ...]


class DescriptorText(StrictStruct, frozen=True, tag="descriptor"):
    """A TMA descriptor made on the host."""

    base: TensorText
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


class FunctionText(StrictStruct, frozen=True, tag="function"):
    """A ``@triton.jit`` function that is an argument, by module and name."""

    module: str
    name: str


ArgumentText = Union[TensorText, ScalarText, DtypeText, ConstantText, SequenceText, DescriptorText, FunctionText]


class NamedArgument(StrictStruct, frozen=True):
    """An argument with its name."""

    name: str
    value: ArgumentText


class GridText(SparseStruct, frozen=True):
    """A launch grid: ``fixed``, or for each config's meta-parameters (:func:`meta_text`) what the call's own function
    gave. Functions are code, and so aren't kept."""

    fixed: tuple[int, ...] = ()
    by_meta: dict[str, tuple[int, ...]] = {}
    names: tuple[str, ...] = ()
    """The meta-parameters that configs set."""


class TuningJob(SparseStruct, frozen=True):
    """One key of one kernel, to be tuned anywhere: plain names, numbers and texts.

    ``kernel`` is the tuner's qualified name in ``module``; the first ``positional`` of the ``arguments`` were given by
    position. ``configs`` are the candidates of a kernel that has no tuner (of a marker). ``key`` is the tuner's, and
    ``rounded`` says that it alone decides which winner holds, as a heuristic's does. ``file`` is for messages.
    ``unknown`` says why the call can't be repeated elsewhere; nothing is tuned then.
    """

    schema: str
    module: str
    kernel: str
    arguments: tuple[NamedArgument, ...] = ()
    grid: GridText = GridText()
    positional: Annotated[int, msgspec.Meta(ge=0)] = 0
    configs: tuple[Config, ...] = ()
    key: str = ""
    rounded: bool = False
    file: str = ""
    unknown: str = ""

    @property
    def name(self) -> str:
        """The kernel with its module."""
        return f"{self.module}.{self.kernel}" if self.module else self.kernel

    def __str__(self) -> str:
        where = f" ({self.file})" if self.file else ""
        return f"kernel {self.name}{where}, key {self.key or '()'}"

    def digest(self) -> str:
        """SHA-256 over all that the call consists of: the same on every host, wherever the kernel's file lies."""
        return sha256(self.but(file="").to_json()).hexdigest()

    def to_json(self) -> bytes:
        """One line. :class:`StoreError` if it is longer than :data:`MAX_LINE`."""
        found = _ENCODER.encode(self)
        if len(found) > MAX_LINE:
            raise StoreError(f"{self}: its description has {len(found)} bytes, and may have {MAX_LINE}")
        return found

    @classmethod
    def from_json(cls, line: bytes, where: str = "a job") -> TuningJob:
        """What :meth:`to_json` gave; :class:`StoreError`, naming ``where``, for anything else."""
        if len(line) > MAX_LINE:
            raise StoreError(f"{where}: has {len(line)} bytes, and may have {MAX_LINE}")
        try:
            found = _DECODER.decode(line)
        except UNREADABLE as exc:
            raise StoreError(f"{where}: is no description of a call ({exc}); record it anew") from exc
        if found.schema != SCHEMA:
            raise StoreError(f"{where}: has schema {shortened(found.schema)!r}, this kerntune reads {SCHEMA!r}")
        return found


def meta_text(names: tuple[str, ...], values: dict[str, object]) -> str:
    """The meta-parameters of one config: ``BLOCK=64 SPLIT=2``."""
    return " ".join(f"{name}={values[name]!r}" for name in names if name in values)


SCALARS = {"bool": bool, "int": int, "float": float, "str": str}


def scalar_text(value: object) -> ScalarText | None:
    """A scalar as data; None for anything else, subclasses too."""
    if value is None:
        return ScalarText("none", "None")
    kind = type(value).__name__
    if SCALARS.get(kind) is not type(value):
        return None
    return ScalarText(kind, value if isinstance(value, str) else repr(value))


def scalar_of(text: ScalarText) -> object:
    """The value of a described scalar; :class:`UsageError` for what is none."""
    try:
        if text.kind == "bool":
            return {"True": True, "False": False}[text.text]
        return None if text.kind == "none" else SCALARS[text.kind](text.text)
    except (KeyError, ValueError):
        given = f"{shortened(text.kind)} {shortened(text.text)!r}"
        raise UsageError(f"{given} is no scalar; record the shapes anew") from None


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(TuningJob)
