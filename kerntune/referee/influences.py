"""Whether a result follows from each of its inputs, by what one input adds to each element.

What an input adds may be less than a rounding, so that no one element is wrong without it. Many elements tell: the
regression coefficient of errors on differences that another input makes is zero but for chance; it is about one half
where an input is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.declared_inputs import rolled
from kerntune.referee.errors_together import BlockMeans, block_means, looked_at, mean_of_blocks
from kerntune.referee.hostile_recording import ITEM_BYTES, CheckedCall
from kerntune.referee.open_elements import as_promised
from kerntune.referee.result_errors import FEW, SAMPLED, ResultError, numbers, numbers_of, taken
from kerntune.referee.tasks import UNREAD, CaseInputs, ExpectedResult, ExpectedSeed

if TYPE_CHECKING:
    import numpy as np

MISSING = 0.1
"""The coefficient that is no evidence yet: a fifth of what the input adds. Roundings to bfloat16 inside are 0.002."""

MOST_INPUTS = 8
"""Inputs that are looked at: for each the reference is computed once more."""

MOST_BYTES = 1 << 22
"""Bytes of inputs up to which that is done: more takes a second of a verdict's ten."""

FURTHER_ON = 37
"""Elements by which an input is moved on, to be another."""


def with_influences(
    case: CaseInputs, contents: Sequence[bytes], found: Sequence[ExpectedResult | None],
    run: Callable[[Sequence[bytes]], Sequence[Any]],
) -> list[Any]:  # fmt: skip
    """Results with :attr:`~.ExpectedResult.influences`. ``run`` computes them in float64, of other contents."""
    import numpy as np

    adds: list[dict[int, bytes]] = [{} for _ in found]
    floats = [k for k, t in enumerate(case.tensors) if t.dtype in FLOAT_FORMATS and t.content != UNREAD]
    wide = [None if one is None or one.wide is None else numbers_of(one)[:SAMPLED] for one in found]
    worth = sum(map(len, contents)) <= MOST_BYTES and any(x is not None and x.size >= FEW for x in wide)
    for k in floats[:MOST_INPUTS] if worth else ():
        at = FURTHER_ON * ITEM_BYTES[case.tensors[k].dtype] % max(1, len(contents[k]))
        other = rolled(contents[k], at)
        if other == contents[k]:
            continue
        try:
            others = run([*contents[:k], other, *contents[k + 1 :]])
        except Exception as exc:
            print(f"no other {case.tensors[k].name}: {exc}", file=sys.stderr)
            continue
        for add, was, now in zip(adds, wide, others, strict=True):
            if was is not None and now is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    moved = was - now.detach().reshape(-1)[:SAMPLED].cpu().double().numpy()
                add[k] = moved.astype("<f4").tobytes()
    return [one and msgspec.structs.replace(one, influences=add) for one, add in zip(found, adds, strict=True)]


def unfollowed(
    case: CaseInputs, call: CheckedCall, expected: Sequence[ExpectedSeed], left: Sequence[Sequence[bytes]]
) -> Iterator[ResultError]:
    """Results that don't follow from an input as the reference's do, by several contents."""
    if not any(r.influences for seed in expected for r in (*seed.results, *filter(None, seed.changed))):
        return
    seen = [
        {number: (taken(after[view.storage], view), want) for number, view, want in looked_at(case, call, seed)}
        for seed, after in ((s, as_promised(call, s, one)) for s, one in zip(expected, left, strict=True))
    ]
    for number in set.intersection(*map(set, seen)) if len(seen) > 1 else ():
        pairs = [one[number] for one in seen]
        for k in sorted(set.intersection(*(set(want.influences) for _, want in pairs))):
            share, most = _share(pairs, k)
            if share > most:
                name = case.tensors[k].name
                text = f"of what input {name} adds to it, {share:.0%} is left out or too much; {most:.0%} may be chance"
                yield ResultError(max(number, -1), pairs[0][1].dtype, size=1.0, wrong=text)


def _share(pairs: Sequence[tuple[np.ndarray, ExpectedResult]], k: int) -> tuple[float, float]:
    """Twice the coefficient's size, and what that may be: by what the stock operator's is, and by chance."""
    import numpy as np

    errors, own = list[BlockMeans](), list[BlockMeans]()
    for bits, want in pairs:
        moved = np.frombuffer(want.influences[k], "<f4").astype(np.float64)
        found = numbers(bits.reshape(-1)[: moved.size], want.dtype)
        exact, stock = (numbers_of(x)[: moved.size] for x in (want, msgspec.structs.replace(want, wide=None)))
        with np.errstate(invalid="ignore", over="ignore"):
            each = [np.where(np.isfinite(x), x, 0.0) for x in ((found - exact), (stock - exact), moved)]
            square = float(np.dot(each[2], each[2]))
            if not 0 < square < np.inf or np.count_nonzero(each[2]) < FEW:
                return 0.0, 0.0
            by = each[2] * (moved.size / square)
        errors.append(block_means(each[0] * by))
        own.append(block_means(each[1] * by))
    (mean, chance), (stock_mean, _) = mean_of_blocks(errors), mean_of_blocks(own)
    return 2 * abs(mean), 2 * (abs(stock_mean) + MISSING + chance)
