"""The errors of single contents, looked at again where a result seems wrong."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec.structs import replace

from kerntune.referee.case_inputs import UNREAD
from kerntune.referee.element_errors import ResultError
from kerntune.referee.errors_together import ShapeComparison, errors_of, left_of
from kerntune.referee.further_contents import beside_deviations, has_deviations, is_far, may_be_emulated
from kerntune.referee.hostile_recording import side_of
from kerntune.referee.open_elements import as_promised
from kerntune.referee.reasons import Refusal
from kerntune.referee.replay_processes import ReplayProcesses
from kerntune.referee.result_errors import difference_of
from kerntune.referee.tasks import BytesLike, ExpectedSeed, ExpectTask, Variation

DRAWS = 16
"""Of roundings inside of a reference beside which a result seems wrong. Of 4,000 contents of Liger's dyt, 457
were off by more than sums explain, and none by six deviations."""

AS_WRITTEN_SECONDS = 5.0

OF_MEMORY = "; results follow from memory that nothing has written"
"""What a message on these says. Sums in another order aren't taken for it."""

Compared = tuple[ExpectedSeed, bytes, tuple[BytesLike, ...], Sequence[str]]
"""What the reference computes, what fills unwritten memory, what the replay left, and the content's form."""


class ContentErrors(ReplayProcesses):
    """Compares what the reference computes with what a replay left."""

    def _errors(
        self, of: ShapeComparison, given: Sequence[Compared], on_gpu: bool | None = None
    ) -> list[list[ResultError]]:
        """The errors of each content, looked at again."""
        return self._second_look(of, given, self._first_errors(of, given), on_gpu)

    def _first_errors(self, of: ShapeComparison, given: Sequence[Compared]) -> list[list[ResultError]]:
        with ThreadPoolExecutor(self._workers) as threads:
            return list(threads.map(lambda compared: list(errors_of(of, *compared)), given))

    def _second_look(
        self, of: ShapeComparison, given: Sequence[Compared], found: list[list[ResultError]], on_gpu: bool | None = None
    ) -> list[list[ResultError]]:
        """The errors; where a result is wrong, beside what roundings inside of the reference do to it, if that takes no
        time."""
        on_gpu, one = self._on_gpu if on_gpu is None else on_gpu, partial(errors_of, of)
        wrong = [i for i, errors in enumerate(found) if any(e.wrong for e in errors)]
        again = sorted((i for i in wrong if has_deviations(on_gpu, *given[i])), key=lambda i: is_far(given[i][3]))
        seeds, contents = tuple(secrets.randbits(63) for _ in again), tuple(given[i][0].contents for i in again)
        with contextlib.suppress(Refusal):
            extreme = sum(not is_far(given[i][3]) for i in again)
            task = ExpectTask(self._reference, of.case, seeds, contents, on_gpu, draws=DRAWS, extreme=extreme)
            for i, other in zip(again, self._authors(task).seeds if again else (), strict=True):
                found[i] = list(one(beside_deviations(given[i][0], other), *given[i][1:], again=True))

        def emulated(i: int) -> bool:
            found[i] = list(one(self._emulated_reference(of.case, of.call, given[i][0]), *given[i][1:], again=True))
            return not any(e.wrong for e in found[i])

        wrong = [i for i in wrong if any(e.wrong for e in found[i]) and may_be_emulated(given[i][0])]
        if self._on_gpu and wrong and emulated(wrong[0]):
            with ThreadPoolExecutor(self._workers) as threads:
                list(threads.map(emulated, wrong[1:]))
        return found

    def _as_written(
        self, of: ShapeComparison, given: Sequence[Compared], found: list[list[ResultError]]
    ) -> list[list[ResultError]]:
        """The errors; of vast numbers on a GPU those of the code as it is written, which is emulated where they are
        wrong: a product that is rounded with its sum is off by so much that an exponential of it is infinite."""
        vast = [i for i, errors in enumerate(found) if any(e.wrong for e in errors) and "vast" in given[i][3]]
        for i in vast if self._on_gpu else ():
            want, poison, _, form = given[i]
            side, end = side_of(of.call, want.contents, poison, binaries=False), time.monotonic() + AS_WRITTEN_SECONDS
            with contextlib.suppress(Refusal):
                answer = self._answer(side, of.call, end, Variation(), ((),), on_gpu=False)
                compared = (want, poison, left_of(of.call, want, answer), form)
                (emulated,) = self._errors(of, [compared], on_gpu=False)
                found[i] = found[i] if any(e.wrong for e in emulated) else emulated
        return found

    def _with_memory_told(
        self, of: ShapeComparison, found: list[list[ResultError]], given: Sequence[Compared]
    ) -> list[list[ResultError]]:
        """The errors, those that are wrong with a word more where the first wrong content has other results if memory
        that nothing has written, or that is handed out for results, has other numbers, and the same where it has the
        same: a buffer that isn't zeroed, a tail that is left out, but no order of sums."""
        odd = (i for i, errors in enumerate(found) if any(e.wrong and not e.unwritten for e in errors))
        if (first := next(odd, None)) is None:
            return found
        (want, poison, left, _), case, call = given[first], of.case, of.call
        other = bytes(len(poison)) if any(poison) else b"\xff" * len(poison)
        unread = [given.content == UNREAD for given in case.tensors]
        contents = tuple(bytes(len(x)) if u else x for u, x in zip(unread, want.contents, strict=True))
        ours = {*(v.storage for v in call.results), *(i for u, i in zip(unread, call.inputs, strict=True) if not u)}
        with contextlib.suppress(Refusal):
            for memory, held in ((other, contents), (poison, want.contents)) * 2:  # orders of sums may differ by chance
                end = time.monotonic() + self._budget
                again = left_of(call, replace(want, contents=held), self._replayed(call, held, memory, end))
                promised = (as_promised(call, want, each) for each in (left, again))
                kept = ({i: x for i, x in each.items() if i in ours} for each in promised)
                if bool(difference_of(case, call, *kept)) != (memory is other):
                    return found
            return [[replace(e, wrong=e.wrong + OF_MEMORY) if e.wrong else e for e in each] for each in found]
        return found
