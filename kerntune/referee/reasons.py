"""Why a candidate can be refused: a closed list, a page of the reference."""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """A reason's value is what programs read; :data:`TOLD` says it to people."""

    UNSEALED = "unsealed"
    LAYOUT = "layout"
    CANDIDATE_FAILED = "candidate failed"
    CANDIDATE_DIED = "candidate died"
    CANDIDATE_LATE = "candidate late"
    SURVIVORS = "survivors"
    ANSWER = "answer"
    NO_LAUNCH = "no launch"
    OPERATOR = "operator"
    UNSEEN = "unseen launch"
    VALUES = "values"
    COMPILE = "compile"
    MEMORY = "unknown memory"
    ADDRESSES = "addresses"
    HARDWARE = "hardware state"
    STREAMS = "streams"
    INPUT_LAYOUT = "input layout"
    RESULT_COUNT = "result count"
    RESULT_LAYOUT = "result layout"
    RESULT_OVERLAP = "result overlap"
    RESULT_UNWRITTEN = "result unwritten"
    LATER_CALL = "later call"
    OUTSIDE = "outside write"
    FAULT = "fault"
    EMULATOR = "emulator"
    REPLAY = "replay"
    REPLAY_LATE = "replay late"
    DEGENERATE = "degenerate"
    REFERENCE = "reference"
    ROOFLINE = "roofline"


TOLD = {
    Reason.UNSEALED: "this system can't seal a process (no Landlock or no seccomp), and --unsealed was not given",
    Reason.LAYOUT: "the file has no such function, or none of the layouts that are read",
    Reason.CANDIDATE_FAILED: "the candidate raised an exception",
    Reason.CANDIDATE_DIED: "the candidate's process ended without an answer",
    Reason.CANDIDATE_LATE: "the candidate was not recorded within the time",
    Reason.SURVIVORS: "processes that the candidate started could not be ended",
    Reason.ANSWER: "what the candidate's process sent is no recording, or one that can't be",
    Reason.NO_LAUNCH: "no kernel was launched",
    Reason.OPERATOR: "an operator of torch that can't be replayed computes beside the kernels, or there is no kernel",
    Reason.UNSEEN: "a kernel was launched in a way that can't be recorded",
    Reason.VALUES: "the host's code depends on values of the inputs",
    Reason.COMPILE: "a kernel doesn't compile for the target",
    Reason.MEMORY: "a kernel reads memory whose content isn't known",
    Reason.ADDRESSES: "a kernel follows addresses that no argument gives",
    Reason.HARDWARE: "a kernel reads which part of the device it runs on, or a clock",
    Reason.STREAMS: "kernels are launched on several streams",
    Reason.INPUT_LAYOUT: "the recording has an input with another layout than the one that was given",
    Reason.RESULT_COUNT: "the call returns another number of tensors than the reference, or in another structure",
    Reason.RESULT_LAYOUT: "a result has another shape, dtype or strides than the reference's",
    Reason.RESULT_OVERLAP: "a result shares memory with another result or with an input where the reference's doesn't",
    Reason.RESULT_UNWRITTEN: "no recorded launch writes a result",
    Reason.LATER_CALL: "a later call does more than the first one, which is timed, or uses what that got or returned",
    Reason.OUTSIDE: "a kernel writes outside of all tensors",
    Reason.FAULT: "a kernel uses memory where none is, misaligned, or in a race; or a promise of its own doesn't hold",
    Reason.EMULATOR: "without a GPU: the emulator doesn't know an operation of a kernel",
    Reason.REPLAY: "the recording can't be replayed on this GPU",
    Reason.REPLAY_LATE: "the replay did not end within the time",
    Reason.DEGENERATE: "the reference's results are no evidence: they hardly vary, or not with the inputs",
    Reason.REFERENCE: "the reference, or the code that makes inputs, failed",
    Reason.ROOFLINE: "faster than the memory can deliver the bytes that must move",
}
"""A sentence for each."""


class Refusal(Exception):
    """A candidate, or a task, can't be judged for this reason; the message says what exactly."""

    def __init__(self, reason: Reason, text: str = "") -> None:
        super().__init__(text)
        self.reason = reason


_LIVE = "the reference runs live, as the author's code"
LIVE_TOLD = {
    "unrolled": f"{_LIVE}: both sides are timed as unrolled graphs",
    "unrolled beside calls": f"{_LIVE}: the far longer side is timed call by call, the other as an unrolled graph",
    "single graphs": f"{_LIVE}: each side is timed call by call, as a graph; it is long, or has memory of its own",
    "single calls": f"{_LIVE}, which no CUDA graph can hold: each side is timed call by call",
}
"""What a reader should know of how a live reference was timed. Call by call, a time resolves half a microsecond."""
