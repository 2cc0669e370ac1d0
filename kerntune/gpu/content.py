"""What a storage held, described in a recording, and made anew from that."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from kerntune.base.recording import Content, Normal, Storage, Stored, Uniform, Zeros
from kerntune.errors import ReplayError
from kerntune.gpu.compare import FLOATS, SENSIBLE, decode_floats, whole_elements

if TYPE_CHECKING:  # as in gpu/compare
    import numpy as np

TILE = 1 << 19
"""Floating-point numbers that are made at most; what holds more repeats them. Kernels see the same distribution, and
64 Mi numbers, which take a second to draw, would be drawn anew in every process of a replay."""


def content_bytes(storage: Storage, stored: bytes | None = None) -> bytes | None:
    """A storage's first content as bytes; None for all zeros. ``stored`` is the artifact of :class:`Stored` content.

    More than :data:`TILE` floating-point numbers are that many, over and over: then only these are given.
    """
    content = storage.content
    if isinstance(content, Zeros):
        return None
    if isinstance(content, Stored):
        if stored is None or len(stored) != storage.nbytes:
            raise ReplayError(f"the stored content {content.sha256[:12]} of a storage is missing or has another size")
        return stored
    if isinstance(content, Normal):
        return _normal(storage, content)
    return _uniform(storage, content)


INTEGERS = {"int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1", "uint8": "u1", "bool": "u1",
            "uint16": "<u2", "uint32": "<u4", "uint64": "<u8"}  # fmt: skip


def _normal(storage: Storage, content: Normal) -> bytes:
    import numpy as np

    width = int(np.dtype(FLOATS.get(storage.dtype, "<f2" if storage.dtype == "bfloat16" else "u1")).itemsize)
    count = min(TILE, -(-storage.nbytes // width))
    with np.errstate(all="ignore"):
        numbers = standard_normal(content.seed, count) * content.std + content.mean
        return encode_floats(numbers, storage.dtype)[: storage.nbytes]


def standard_normal(seed: int, count: int) -> np.ndarray:
    """``count`` standard normal numbers, at most :data:`TILE`; a longer row begins as a shorter one does."""
    import numpy as np

    return _standard_tile(seed)[:count] if count > TILE // 8 else np.random.default_rng(seed).standard_normal(count)


@lru_cache(maxsize=8)
def _standard_tile(seed: int) -> np.ndarray:
    """4 MiB each: a process that serves several requests draws them once."""
    import numpy as np

    return np.random.default_rng(seed).standard_normal(TILE)


def encode_floats(numbers: np.ndarray, dtype: str) -> bytes:
    """Numbers as little-endian bytes of a torch dtype; bfloat16 by dropping mantissa bits, float8 as raw bytes
    of small magnitude (exponents around 1), which is what random data looks like to a kernel."""
    if dtype in FLOATS:
        return numbers.astype(FLOATS[dtype]).tobytes()
    if dtype == "bfloat16":
        return (numbers.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return bytes(((abs(numbers) * 16).astype("u1") % 48 + 32).tobytes())


def _uniform(storage: Storage, content: Uniform) -> bytes:
    import numpy as np

    kind = np.dtype(INTEGERS.get(storage.dtype, "u1"))
    count = -(-storage.nbytes // kind.itemsize)
    numbers = np.random.default_rng(content.seed).integers(content.low, content.high, count, dtype=kind, endpoint=True)
    return bytes(numbers.tobytes())[: storage.nbytes]


STORE_LIMIT = 1 << 16
"""Integers up to this many bytes are stored as they are: indices, offsets and masks can't be made up."""


def describe_content(
    data: bytes, dtype: str, nbytes: int | None = None, store_limit: int = STORE_LIMIT
) -> tuple[Content, bytes | None]:
    """How to remember what a storage held, and the bytes to keep as an artifact, if any.

    ``data`` is the start of a storage of ``nbytes`` bytes (default: all of it). Whole numbers are kept when they are
    few; many of them, and all floating-point numbers, as a distribution.
    """
    if not any(data):
        return Zeros(), None
    if dtype in FLOATS or dtype == "bfloat16":
        return _distribution(decode_floats(data, dtype)), None
    if dtype not in INTEGERS:
        return Normal(), None
    if (len(data) if nbytes is None else nbytes) <= store_limit:
        return Stored(hashlib.sha256(data).hexdigest()), data
    import numpy as np

    numbers = np.frombuffer(whole_elements(data, np.dtype(INTEGERS[dtype]).itemsize), INTEGERS[dtype])
    return Uniform(int(numbers.min()), int(numbers.max())), None


def _distribution(numbers: np.ndarray) -> Normal:
    import numpy as np

    sensible = numbers[np.isfinite(numbers) & (np.abs(numbers) < SENSIBLE)]
    if not sensible.size:
        return Normal()
    return Normal(mean=_rounded(float(sensible.mean())), std=_rounded(float(sensible.std())))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
