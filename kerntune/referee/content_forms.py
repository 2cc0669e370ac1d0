"""Which forms contents have beside the usual ones: extreme, ordered, of few numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.case_inputs import TensorInput

DRAWN = ("normal", "uniform", "integers")
"""Contents that differ from seed to seed."""

DRAWN_FLOATS = ("normal", "uniform")

EXTREMES = {
    "up": "is far above zero (a mean of 32 to 64 deviations)",
    "down": "is far below zero (a mean of -32 to -64 deviations)",
    "far": "is farther above zero, or below (a mean of 1,024 deviations)",
    "deep": "is so far below zero that exponentials are zero (around -256 to -512)",
    "tiny": "is tiny (a deviation of 2**-12)",
    "broad": "has a deviation of 4 to 8, zeros, rows, columns and planes of them among others, and rows in order",
    "wide": "has a deviation of 64 to 128",
    "huge": "has a deviation of 2**20, that of its rows from 2**10 on (float16: 2**12)",
    "vast": "has a deviation of 2**80 (float64: 2**600)",
    "banded": "has rows far from zero, with a deviation of 2**7 or 2**20, tiny ones, and some of zeros or one number",
    "ties": "has three different numbers",
    "grid": "has multiples of 1 to 1/256",
    "above": "has such far above zero",
    "below": "has such far below zero",
    "holes": "has NaN among its elements",
    "infinite": "has infinities among its elements",
    "hole": "has one element that is NaN or infinite",
    "round": "has whole numbers and halves, numbers that another input has, and rows of one number",
    "paired": "has what another input has at the same place, zeros, and the ends of its range",
    "scaled": "has numbers of all sizes, and those that another input has",
    "sparse": "is nearly constant but for a few elements, and in a few rows zeros where others are",
    "lone": "is one number, zero where that may be, but for a few elements",
    "none": "is zeros",
    "alike": "has equal rows, half of all",
    "ordered": "has its numbers in order along rows",
    "few": "has few different values, or one along a row",
    "full": "has the numbers of its range that are furthest from zero",
    "least": "has the numbers of its range that are nearest to zero",
    "powers": "has powers of two or ten, and the numbers beside them",
    "arranged": "has its numbers in order, with repeats, or one after the other; flags in tiles, and one alone in rows",
    "close": "has numbers that differ in their last places",
    "ends": "has zeros, infinities, and powers of two far from 1",
    "specks": "has zeros, and powers of two far from 1",
    "multiples": "has multiples of what another input has at the same place, or one",
    "signed": "has other signs and sizes than a constructor gives",
    "stretched": "is 4 to 8 times as large",
    "zeroed": "is zeros",
    "negated": "is 4 to 8 times as large, of the other sign",
    "enlarged": "is 64 to 128 times as large",
    "moved": "has its numbers, which the task makes alike each time, in another order",
}
"""What numbers may be in contents that are judged beside the usual ones, and what a verdict says of them: where a sum
of squares cancels, an epsilon counts, a clamp is reached, an exponential overflows, what is left out shows, however
small its weight is and wherever it lies, a counter overflows, a whole row is masked, or an index has a meaning of its
own, as 0 and 1 often have."""

FINITE_ALONE = ("vast", "banded", "deep")
"""Those of which it is demanded alone that what the reference computes well is finite."""

CANCELLING = ("up", "down", "huge")
"""And those of which the same holds where nothing is known in float64: means far from zero are rounded, too."""

BEYOND_HALF = ("huge", "vast")
"""Those for floats that don't end near 2**16 or before: where others have them, these are as usual (float16 has huge
ones of its own). The squares of vast numbers are beyond float32, too."""

OF_VARIED = ("up", "down", "tiny", "broad", "wide", "round", *BEYOND_HALF, "holes", "infinite")
"""The forms of floats that vary."""

GRIDS = ("grid", "above", "below")
"""Where numbers are equal, whole, halves or zeros; for references all of whose operators are exact."""

ODD = ("holes", "infinite", "hole")
"""Those with NaN or infinities, which demand something only where the reference replaces all of them."""

OF_MADE = ("signed", "stretched", "negated", "enlarged", "zeroed")
"""Of what a task's own code makes, which knows no extremes: where a clamp is reached, a floor counts, a scale is below
zero, an exponential overflows. Results count that are finite there."""

OF_ALIKE = "moved"
"""Of what a task's own code makes alike each time: masks, lengths, indices. Results count that are finite."""

DECIDED, OF_NAN = ("ordered", "close"), ("holes", "infinite")
"""The same where all operators but move and compare numbers; and where they compare as IEEE 754 says, or leave numbers
as they are, also NaN."""

OF_WHOLE = ("few", "full", "least", "powers", "arranged")
"""Those of whole numbers: sums are largest where all numbers are, and nothing is left where all are false; indices are
often sorted, or consecutive."""

MANY_WHOLE = 16
"""Of no more whole numbers others are powers of two, or beside one."""

SIZED = ("scaled",)
"""Where all operators but move and compare numbers, and round none to what can't hold it."""

ENDS = ("ends", "specks", "multiples")
"""Where functions have known results, as far as declared ranges have these numbers."""

MOST_LONE = 4
"""Tensors that are ``lone``, drawn where there are more."""

MOST_SINGLE = 6
"""Contents with a ``hole``: where half of a tensor is replaced, several holes would hardly ever all be."""

LARGE, OF_LARGE = 1 << 21, 2
"""Elements of all inputs from which there are so many extreme contents."""

LARGE_RANGE = ("float32", "float64", "bfloat16")


def extreme_forms(tensors: Sequence[TensorInput], chance: random.Random) -> list[tuple[str, ...]]:
    """For each extreme content a key of :data:`EXTREMES` for each tensor, or nothing.

    Floats that vary have each once, and others than their neighbours. Declared distributions are ``sparse``, those of
    less than 32 bits ``ordered``; whole numbers have each of :data:`OF_WHOLE`. Two that are declared alike, and uniform
    ones, are ``paired``. One float is ``lone`` beside others that
    are ``alike``: small weights count where few of the weighted numbers aren't zero. All that vary are ``deep`` once,
    and once beside others that are ``up``: products are, too. Of large inputs :data:`OF_LARGE` of these are drawn,
    beside one that is ``banded``; of others one float has a ``hole`` in :data:`MOST_SINGLE` more. A single number is
    never NaN or infinite: all would follow from that."""
    varied = [i for i, t in enumerate(tensors) if t.varied]
    spread = [(i, t.content) for i, t in enumerate(tensors) if _spreads(t)]
    several = [i for i in varied if math.prod(tensors[i].shape) > 1]
    order = [form for form in OF_VARIED if any(_takes(tensors[i], form) for i in varied)]
    chance.shuffle(order)
    if "vast" in order:  # beside which round numbers would demand little
        order.remove("round")
        order.insert((order.index("vast") + len(order) // 2) % len(order), "round")
    turns = [{i: order[(turn + k) % len(order)] for k, i in enumerate(varied)} for turn in range(len(order))]
    turns = [{i: f if _takes(tensors[i], f) else "" for i, f in turn.items()} for turn in turns]
    turns = [{i: "" if f in ODD and i not in several else f for i, f in turn.items()} for turn in turns]
    turns = [part for turn in turns for part in _without_odd_neighbours(turn)]
    floats = [i for i, content in spread if content != "integers"]
    narrow = [i for i in floats if FLOAT_FORMATS[tensors[i].dtype].width < 4]
    whole = [i for i, content in spread if content == "integers"]
    many = [i for i in whole if tensors[i].high - tensors[i].low > MANY_WHOLE]
    of_whole = ((form, many if form == "powers" else whole) for form in OF_WHOLE)
    pairs = [("paired", _paired([tensors[i] for i in floats], floats)), ("none", _vectors(tensors, varied, floats))]
    turns += [
        dict.fromkeys(own, form) for form, own in (("sparse", floats), ("ordered", narrow), *of_whole, *pairs) if own
    ]
    turns += [{**dict.fromkeys(floats, "alike"), i: "lone"} for i in chance.sample(floats, min(MOST_LONE, len(floats)))]
    found = [tuple(turn.get(i, "") for i in range(len(tensors))) for turn in turns]
    if sum(math.prod(t.shape) for t in tensors) > LARGE:
        banded = [tuple("banded" if i in varied else "" for i in range(len(tensors)))] if varied else []
        return chance.sample(found, min(OF_LARGE, len(found))) + banded
    single = [several[k % len(several)] for k in range(MOST_SINGLE if several else 0)]
    found += [tuple("hole" if i == k else "" for i in range(len(tensors))) for k in single]
    for every in range(1, min(len(varied), 2) + 1):
        deep = {i: "up" if k % every else "deep" for k, i in enumerate(varied)}
        found.append(tuple(deep.get(i, "") for i in range(len(tensors))))
    return found


def _without_odd_neighbours(turn: dict[int, str]) -> list[dict[int, str]]:
    """NaN and infinities are drawn beside usual numbers: where they demand nothing, what is beside them doesn't."""
    odd = {i: form for i, form in turn.items() if form in ODD}
    return [part for part in (odd, {i: form for i, form in turn.items() if i not in odd}) if any(part.values())]


def _takes(given: TensorInput, form: str) -> bool:
    """Whether numbers of a form are within a float's range."""
    return form not in BEYOND_HALF or given.dtype in LARGE_RANGE or (form, given.dtype) == ("huge", "float16")


def _paired(floats: Sequence[TensorInput], places: Sequence[int]) -> list[int]:
    """Which of drawn floats have another that is declared alike, or ends."""
    alike = [(t.dtype, t.shape, t.content, t.low, t.high) for t in floats]
    both = zip(places, floats, alike, strict=True)
    return [i for i, given, one in both if alike.count(one) > 1 or given.content == "uniform"]


def _vectors(tensors: Sequence[TensorInput], varied: Sequence[int], floats: Sequence[int]) -> list[int]:
    """Floats that vary where all have one row: of others a row is zeros in a content that is ``broad``."""
    one_row = all(math.prod(tensors[i].shape[:-1]) == 1 < math.prod(tensors[i].shape) for i in floats)
    return list(varied) if one_row else []


def _spreads(given: TensorInput) -> bool:
    """Whether drawn elements may be different numbers."""
    if given.content not in DRAWN:
        return False
    return given.high != 0 if given.content == "normal" else given.low != given.high


def sparse_centre(given: TensorInput) -> float:
    """What most of ``sparse`` numbers are near to."""
    return min(max(0.0, given.low), given.high) if given.content == "uniform" else given.low
