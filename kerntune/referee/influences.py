"""Whether a result follows from each of its inputs, by what one input adds to each element.

What an input adds may be less than a rounding, so that no one element is wrong without it. Many elements tell: the
regression coefficient of errors on differences that another input makes is zero but for chance; it is about one half
where an input is left out.
"""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from msgspec.structs import replace

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import UNREAD, CaseInputs
from kerntune.referee.declared_inputs import rolled
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import BlockMeans, block_means, looked_at, mean_of_blocks
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.open_elements import as_promised
from kerntune.referee.result_numbers import numbers, numbers_of, taken
from kerntune.referee.rounding_limits import FEW, SAMPLED
from kerntune.referee.tasks import BytesLike, ExpectedResult, ExpectedSeed

MISSING = 0.1
"""The coefficient that is no evidence yet: a fifth of what the input adds. Roundings to bfloat16 inside are 0.002."""

MOST_INPUTS = 16
"""Inputs that are looked at, drawn where there are more: for each the reference is computed once more."""

MOST_BYTES, MOST_SECONDS = 1 << 22, 0.1
"""Bytes of inputs, or seconds of a reference, up to which that is done: more takes a second of a verdict's ten."""

WITHOUT_GPU = 5
"""Without one a reference may take so many times as long: no verdict has ten seconds there."""

BLOCK_ERRORS = 6.0
"""Standard errors of one block's coefficient, of which there are many, that are chance."""

FURTHER_ON = 37
"""Elements by which an input is moved on, to be another."""


def with_influences(
    case: CaseInputs, contents: Sequence[bytes], found: Sequence[ExpectedResult | None],
    run: Callable[[Sequence[bytes]], Sequence[Any]], seconds: float = math.inf,
) -> list[Any]:  # fmt: skip
    """Results with :attr:`~.ExpectedResult.influences`. ``run`` computes them in float64, of other contents, which
    takes so many ``seconds``."""
    adds: list[dict[int, bytes]] = [{} for _ in found]
    floats = [k for k, t in enumerate(case.tensors) if t.dtype in FLOAT_FORMATS and t.content != UNREAD]
    pieces = [slice(0) if one is None else _piece(one) for one in found]
    wide = [
        None if one is None or one.wide is None else numbers_of(one)[at] for at, one in zip(pieces, found, strict=True)
    ]
    worth = (sum(map(len, contents)) <= MOST_BYTES or seconds <= MOST_SECONDS) and any(
        x is not None and x.size >= FEW for x in wide
    )
    for k in sorted(random.sample(floats, min(MOST_INPUTS, len(floats)))) if worth else ():
        at = FURTHER_ON * ITEM_BYTES[case.tensors[k].dtype] % max(1, len(contents[k]))
        other = rolled(contents[k], at)
        if other == contents[k]:
            continue
        try:
            others = run([*contents[:k], other, *contents[k + 1 :]])
        except Exception as exc:
            print(f"no other {case.tensors[k].name}: {exc}", file=sys.stderr)
            continue
        for add, piece, was, now in zip(adds, pieces, wide, others, strict=True):
            if was is not None and now is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    moved = was - now.detach().reshape(-1)[piece].cpu().double().numpy()
                add[k] = moved.astype("<f4").tobytes()
    return [one and replace(one, influences=add) for one, add in zip(found, adds, strict=True)]


def _piece(one: ExpectedResult) -> slice:
    """Which of many elements are looked at, everywhere: those at a step, from where what a reference computes says."""
    step = max(1, -(-math.prod(one.shape) // SAMPLED))
    return slice(zlib.crc32(one.native) % step, None, step)


def unfollowed(
    case: CaseInputs,
    call: CheckedCall,
    expected: Sequence[ExpectedSeed],
    left: Sequence[Sequence[BytesLike]],
    workers: int,
) -> Iterator[ResultError]:
    """Results that don't follow from an input as the reference's do, by several contents, so many at once."""
    if not any(r.influences for seed in expected for r in seed.computed):
        return
    seen = [
        {number: (taken(after[view.storage], view), want) for number, view, want in looked_at(case, call, seed)}
        for seed, after in ((s, as_promised(call, s, one)) for s, one in zip(expected, left, strict=True))
    ]
    for number in set.intersection(*map(set, seen)) if len(seen) > 1 else ():
        pairs = [one[number] for one in seen]
        with ThreadPoolExecutor(workers) as threads:
            each = list(threads.map(_means, *zip(*pairs, strict=True)))
        for k in sorted(set.union(*map(set, each))):
            with_k = [one[k] for one in each if k in one]
            every = _shares(with_k) if len(with_k) > 1 and all(with_k) else iter(())
            if odd := next(((share, most, at) for share, most, at in every if share > most), None):
                told = f"of what input {case.tensors[k].name} adds to it{odd[2]}"
                text = f"{told}, {odd[0]:.0%} is left out or too much; {odd[1]:.0%} may be chance"
                yield ResultError(max(number, -1), pairs[0][1].dtype, size=1.0, wrong=text)


def _means(bits: np.ndarray, want: ExpectedResult) -> dict[int, tuple[BlockMeans, ...]]:
    """Of one content, by input: coefficients of the candidate's errors, of the stock operator's, and of what the input
    adds; none where that is zero."""
    if not want.influences:
        return {}
    piece, means = _piece(want), dict[int, tuple[BlockMeans, ...]]()
    stock = np.frombuffer(want.native, bits.dtype)[piece]
    exact = numbers_of(want)[piece] if want.wide else numbers(stock, want.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = [_finite(numbers(x, want.dtype) - exact) for x in (bits.reshape(-1)[piece], stock)]
    for k, add in want.influences.items():
        moved = _finite(np.frombuffer(add, "<f4").astype(np.float64))
        square = float(np.dot(moved, moved))
        if 0 < square < np.inf and np.count_nonzero(moved) >= FEW:
            by = moved * (moved.size / square)
            means[k] = tuple(block_means(x * by) for x in (*errors, moved))
        else:
            means[k] = ()
    return means


def _finite(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, 0.0)


def _shares(contents: Sequence[tuple[BlockMeans, ...]]) -> Iterator[tuple[float, float, str]]:
    """Twice the coefficient's size, what that may be, by what the stock operator's is and by chance, and where: of all
    elements, and of the block that is furthest off."""
    errors, own, _ = zip(*contents, strict=True)
    blocks = [np.array([means[1] for means in one]) for one in contents]
    (mean, chance), (stock_mean, _) = mean_of_blocks(errors), mean_of_blocks(own)
    yield 2 * abs(mean), 2 * (abs(stock_mean) + MISSING + chance), ""
    if len(contents) < 3 or not all((one[2] > 0).all() for one in blocks):
        return
    both = np.array([one[:2] / one[2] for one in blocks])
    spread = both[:, 0].std(0, ddof=1)
    chances = BLOCK_ERRORS * np.maximum(spread, math.sqrt(float(np.mean(spread**2)))) / math.sqrt(len(contents))
    off, explained = np.abs(both.mean(0))
    most = explained + MISSING + chances
    at = int(np.argmax(off - most))
    yield 2 * float(off[at]), 2 * float(most[at]), f" in piece {at + 1} of {len(off)}"
