"""What the process that records a candidate has answered, or why it has none."""

from __future__ import annotations

from kerntune.base.formatting import ends_of, visible
from kerntune.referee.hostile_recording import decoded
from kerntune.referee.reasons import Reason, Refusal
from kerntune.referee.sealed_process import Answered
from kerntune.referee.tasks import RecordedCall

RECORDERS = (
    Reason.CANDIDATE_FAILED, Reason.COMPILE, Reason.INPUT_LAYOUT, Reason.LEFT_OTHERWISE, Reason.MEMORY,
    Reason.NO_LAUNCH, Reason.OPERATOR, Reason.RESULT_COUNT, Reason.RESULT_LAYOUT, Reason.STREAMS, Reason.UNSEEN,
    Reason.VALUES,
)  # fmt: skip
"""What a recorder may refuse for. It may be the candidate that says so."""


def answer_of(answered: Answered) -> tuple[RecordedCall, RecordedCall | None]:
    """What a recorder has answered; :class:`Refusal` for anything but a recorded call, and later ones."""
    end = answered.end
    if end.survivors:
        raise Refusal(Reason.SURVIVORS, f"{end.survivors} processes are left")
    if end.cannot_seal:
        raise Refusal(Reason.UNSEALED, end.cannot_seal)
    if answered.data is None:
        raise Refusal(Reason.CANDIDATE_LATE if end.late else Reason.CANDIDATE_DIED, answered.how)
    answer = decoded(answered.data)
    if answer.refused is not None:
        reason = next((r for r in RECORDERS if r.value == answer.refused.reason), Reason.ANSWER)
        raise Refusal(reason, visible(" ".join(ends_of(answer.refused.text, 1000).split())))
    if answer.call is None:
        raise Refusal(Reason.ANSWER, "its answer is empty")
    return answer.call, answer.again
