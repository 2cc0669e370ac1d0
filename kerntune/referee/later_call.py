"""A later call behind the first one and another, on other inputs: what these have left may not matter.

The first is what is timed, so a later one may do no more than that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kerntune.base.device import Target
from kerntune.base.formatting import visible
from kerntune.base.recording import Launch
from kerntune.referee.case_inputs import CaseInputs
from kerntune.referee.hostile_recording import CheckedCall, check_outlines, check_results, checked
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.tasks import CALLS, Constant, ExpectedSeed, RecordedCall
from kerntune.referee.torch_operators import ViewAt

MULTIPLE = re.compile(rb" ?\{tt\.divisibility = \d+ : i32\}")
"""What the compiler notes of an argument that is a multiple of 16."""

IN_IT = "in a later call: "


def with_later(call: CheckedCall, again: RecordedCall | None, case: CaseInputs, target: Target) -> CheckedCall:
    """The call, and the later one. :class:`Refusal` where that can't be replayed, does more than the first, or uses or
    returns memory that the first was given or has returned."""
    if again is None:
        raise Refusal(Reason.ANSWER, "it was recorded once")
    try:
        all_calls = checked(replace(again, artifacts={**again.artifacts, **call.artifacts}), case, target, CALLS)
    except Refusal as exc:
        raise Refusal(exc.reason, f"{IN_IT}{exc}") from None
    between = {"operators": 3 * len(case.tensors)}  # by which the recorder exchanges what the inputs hold
    for (what, first), (_, count) in zip(_counts(call), _counts(all_calls), strict=True):
        if count > CALLS * first + between.get(what, 0):
            told = f"{CALLS - 1} later calls have {count - first:,} {what}, the first one, which is timed, {first:,}"
            raise Refusal(Reason.LATER_CALL, told)
    _refuse_other_work(call, all_calls)
    recording, own = all_calls.recording, {*all_calls.inputs}
    returned = {v.storage for v in call.results if v.storage not in {*call.inputs} | own}
    for number, view in enumerate(all_calls.results):
        if view.storage in returned and recording.storages[view.storage].nbytes:
            text = f"result {number} of a later call is memory that the first has returned"
            raise Refusal(Reason.RESULT_OVERLAP, text)
    model = {call.inputs[i] for i in case.parameters.values()}
    if _used_later(call, all_calls) & (returned | {*call.inputs} - own - model):
        raise Refusal(Reason.LATER_CALL, "a later call uses an input or a result of the first")
    return replace(call, again=all_calls)


def _refuse_other_work(call: CheckedCall, all_calls: CheckedCall) -> None:
    """:class:`Refusal` where later calls launch what the first, which is timed, doesn't launch as often."""
    first = Counter(_work(call, launch) for launch in call.recording.launches)
    behind_it = all_calls.recording.launches[len(call.recording.launches) :]
    for work, count in Counter(_work(all_calls, launch) for launch in behind_it).items():
        if count > (CALLS - 1) * first[work]:
            told = f"later calls launch {visible(work.kernel[:80])} otherwise than the first, which is timed"
            raise Refusal(Reason.LATER_CALL, f"{told}: with other constants, other options or another grid")


class _Work(NamedTuple):
    """What a launch is but for its arguments: seeds and addresses differ in each call."""

    kernel: str
    text: bytes
    warps: int
    ctas: int
    grid: tuple[int, int, int]


def _work(call: CheckedCall, launch: Launch) -> _Work:
    """Whether a number is a multiple of 16, which the compiler sees, counts as little as the number."""
    binary = call.recording.binary_of(launch)
    text = MULTIPLE.sub(b"", call.artifacts[binary.ttir_sha256])
    return _Work(launch.kernel, text, binary.num_warps, binary.num_ctas, launch.grid)


def _used_later(call: CheckedCall, all_calls: CheckedCall) -> set[int | None]:
    """The storages that launches and operators behind the first call's use."""
    recording, done, used = all_calls.recording, len(call.recording.launches), set[int | None]()
    for launch in recording.launches[done:]:
        used |= recording.pointed_at(launch)
    for row in all_calls.operators[len(call.operators) :]:
        storages = [recording.views[x.index].storage if isinstance(x, ViewAt) else None for x in row.args]
        exchanged = row.name == "copy_.default" and len(storages) == 2
        if not (exchanged and storages[0] in all_calls.inputs and storages[1] in call.inputs):
            used |= row.storages(recording)
    return used


def check_later_results(call: CheckedCall, case: CaseInputs, expected: Sequence[ExpectedSeed]) -> None:
    """Whether what the later call returns lies as the reference's does. :class:`Refusal` otherwise."""
    if call.again is None:
        return
    try:
        check_outlines(call.again, expected)
        check_results(call.again, case, expected[0].results)
    except Refusal as exc:
        raise Refusal(exc.reason, f"{IN_IT}{exc}") from None


def _counts(call: CheckedCall) -> tuple[tuple[str, int], ...]:
    """What takes time or memory in a recording."""
    filled = sum(not fill.before for fill in call.fills)
    return (
        ("launches", len(call.recording.launches)),
        ("operators", len(call.operators) + filled),
        ("bytes of memory", sum(s.nbytes for s in call.recording.storages)),
    )


def behind(call: CheckedCall, earlier: Sequence[bytes]) -> CheckedCall:
    """The later call of this one, behind the first on these contents."""
    again = call.again or call
    storages = again.recording.storages
    first = {
        i: Constant(i, data)
        for i, data in zip(call.inputs, earlier, strict=True)
        if i is not None and i not in again.inputs and i < len(storages) and storages[i].nbytes == len(data)
    }
    others = (c for c in again.constants if c.storage not in first)
    return replace(again, constants=(*others, *first.values()))
