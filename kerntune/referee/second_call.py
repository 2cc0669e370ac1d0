"""A second call behind the first one, on other inputs: what the first has left may not matter.

The first is what is timed, so the second may do no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results, checked
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import CaseInputs, Constant, ExpectedSeed, RecordedCall


def with_second(call: CheckedCall, again: RecordedCall | None, case: CaseInputs, target: Target) -> CheckedCall:
    """The call, and the second one. :class:`Refusal` where that can't be replayed, does more than the first, or returns
    memory that the first has returned."""
    if again is None:
        raise Refusal(Reason.ANSWER, "it was recorded once")
    try:
        both = checked(replace(again, artifacts={**again.artifacts, **call.artifacts}), case, target, calls=2)
    except Refusal as exc:
        raise Refusal(exc.reason, f"in a second call: {exc}") from None
    for (what, first), (_, count) in zip(_counts(call), _counts(both), strict=True):
        if count > 2 * first:
            told = f"a second call has {count - first:,} {what}, the first one, which is timed, {first:,}"
            raise Refusal(Reason.SECOND_CALL, told)
    mine = {*call.inputs, *both.inputs}
    first_ones = {v.storage for v in call.results if v.storage not in mine}
    recording, done, rows = both.recording, len(call.recording.launches), both.operators[len(call.operators) :]
    used = {i for launch in recording.launches[done:] for i in recording.pointed_at(launch)}
    used = used.union(*(row.storages(recording) for row in rows))
    for number, view in enumerate(both.results):
        if view.storage in first_ones and recording.storages[view.storage].nbytes:
            text = f"result {number} of a second call is memory that the first has returned"
            raise Refusal(Reason.RESULT_OVERLAP, text)
    if used & (first_ones | {*call.inputs} - {*both.inputs}):
        raise Refusal(Reason.SECOND_CALL, "a second call uses an input or a result of the first")
    return replace(call, again=both)


def check_second_results(call: CheckedCall, case: CaseInputs, expected: Sequence[ExpectedSeed]) -> None:
    """Whether what the second call returns lies as the reference's does. :class:`Refusal` otherwise."""
    if call.again is None:
        return
    try:
        check_outlines(call.again, expected)
        check_results(call.again, case, expected[0].results)
    except Refusal as exc:
        raise Refusal(exc.reason, f"in a second call: {exc}") from None


def _counts(call: CheckedCall) -> tuple[tuple[str, int], ...]:
    """What takes time or memory in a recording."""
    filled = sum(not fill.before for fill in call.fills)
    return (
        ("launches", len(call.recording.launches)),
        ("operators of torch's and fills", len(call.operators) + filled),
        ("bytes of memory", sum(s.nbytes for s in call.recording.storages)),
    )


def behind(call: CheckedCall, earlier: Sequence[bytes]) -> CheckedCall:
    """The second call of this one, behind the first on these contents."""
    again = call.again or call
    storages = again.recording.storages
    first = {
        i: Constant(i, data)
        for i, data in zip(call.inputs, earlier, strict=True)
        if i is not None and i not in again.inputs and i < len(storages) and storages[i].nbytes == len(data)
    }
    others = (c for c in again.constants if c.storage not in first)
    return replace(again, constants=(*others, *first.values()))
