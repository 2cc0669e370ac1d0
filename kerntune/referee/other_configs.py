"""An autotuner's other configs: which one wins a user's GPU decides, so that each must be right."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, Union

from msgspec.structs import replace

from kerntune.base.formatting import visible
from kerntune.referee.element_errors import ResultError
from kerntune.referee.hostile_recording import CheckedCall
from kerntune.referee.reasons import Reason, Refusal

CONFIG_SECONDS = 3.0
"""After so long no further config is recorded, nor compared: a remark names those that are left."""

FATAL = frozenset((
    Reason.FAULT, Reason.LATER_CALL, Reason.OUTSIDE, Reason.RESULT_COUNT, Reason.RESULT_LAYOUT, Reason.RESULT_OVERLAP,
))  # fmt: skip
"""Reasons for which a candidate is refused, whichever config it is: others may be the judge's own, or its time."""

MOST_TEXT, MOST_NAMED = 80, 3

CallOrRefusal = Union[CheckedCall, Refusal]
T = TypeVar("T")
R = TypeVar("R")


def one_of_each(texts: Sequence[str], chance: random.Random) -> list[int]:
    """The numbers of configs, in a drawn order: one of those that have the same text, of which the first config's are
    left out where there are others. Warps and stages aren't in it."""
    kinds = dict[str, list[int]]()
    for number, text in enumerate(texts):
        kinds.setdefault(text, []).append(number)
    if len(kinds) > 1:
        kinds.pop(texts[0])
    found = [chance.choice([i for i in each if i]) for each in kinds.values() if any(each)]
    return chance.sample(found, len(found))


def done_in_time(do: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """What ``do`` gives of the items, so many at a time, as far as the time reaches; of the first in any case."""
    end = time.monotonic() + CONFIG_SECONDS

    def done(numbered: tuple[int, T]) -> tuple[R, ...]:
        number, item = numbered
        return (do(item),) if number == 0 or time.monotonic() < end else ()

    with ThreadPoolExecutor(max(1, threads)) as pool:
        return [x for each in pool.map(done, enumerate(items)) for x in each]


class OtherConfigs:
    """Of one candidate at one shape, whose ``call`` is known. ``record`` records it with the ``config`` of a number, in
    a process that is dead afterwards: so many at a time as there are processors."""

    def __init__(self, call: CallOrRefusal, record: Callable[..., CallOrRefusal]) -> None:
        self._texts = () if isinstance(call, Refusal) else call.configs
        self._numbers = one_of_each(self._texts, secrets.SystemRandom())
        threads = len(os.sched_getaffinity(0))
        self._recorded = done_in_time(lambda number: record(config=number), self._numbers, threads)

    def told(
        self, compare: Callable[[CheckedCall], Sequence[ResultError]], threads: int
    ) -> ResultError | tuple[str, ...]:
        """What is wrong with one, or what a reader should know, by what ``compare`` says of each."""

        def judged(one: tuple[int, CallOrRefusal]) -> ResultError | Refusal | None:
            try:
                if isinstance(one[1], Refusal):
                    return one[1]
                return next(iter(compare(one[1])), None)
            except Refusal as exc:
                return exc

        numbered = list(zip(self._numbers[: len(self._recorded)], self._recorded, strict=True))
        found = done_in_time(judged, numbered, threads)
        unjudged = dict[str, list[int]]()
        for (number, _), one in zip(numbered[: len(found)], found, strict=True):
            with_it = f"with {self._named([number])}, after a trial: "
            if isinstance(one, Refusal) and one.reason in FATAL:
                raise Refusal(one.reason, with_it + str(one))
            if isinstance(one, Refusal):
                unjudged.setdefault(str(one), []).append(number)
            elif one is not None:
                return replace(one, wrong=with_it + one.wrong)
        remarks = [f"not judged with {self._named(numbers)}: {text}" for text, numbers in unjudged.items()]
        if late := self._numbers[len(found) :]:
            remarks.append(f"not judged with {self._named(late)}: the time did not suffice")
        return tuple(remarks)

    def _named(self, numbers: Sequence[int]) -> str:
        """Of configs a word each, or of some, by which a reader finds them."""
        count, each = len(self._texts), [visible(self._texts[i][:MOST_TEXT]) for i in numbers[:MOST_NAMED]]
        more = f" and {len(numbers) - MOST_NAMED} more" * (len(numbers) > MOST_NAMED)
        texts = ", ".join(filter(None, each))
        which = f" ({texts}{more})" * bool(texts or more)
        return f"{len(numbers)} of {count} configs of an autotuner{which}"
