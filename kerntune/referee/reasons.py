"""Why a candidate can be refused: a closed list, a page of the reference."""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """A reason's value is what programs read; ``told`` says it to people."""

    told: str

    def __new__(cls, value: str, told: str = "") -> Reason:
        """A value with its sentence."""
        made = str.__new__(cls, value)
        made._value_, made.told = value, told
        return made

    UNSEALED = "unsealed", "this system can't seal a process (no Landlock or no seccomp), and --unsealed was not given"
    LAYOUT = "layout", "the file has no such function, or none of the layouts that are read"
    CANDIDATE_FAILED = "candidate failed", "the candidate raised an exception"
    CANDIDATE_DIED = "candidate died", "the candidate's process ended without an answer"
    CANDIDATE_LATE = "candidate late", "the candidate was not recorded within the time"
    SURVIVORS = "survivors", "processes that the candidate started could not be ended"
    ANSWER = "answer", "what the candidate's process sent is no recording, or one that can't be"
    NO_LAUNCH = "no launch", "no kernel was launched"
    OPERATOR = (
        "operator", "an operator of torch that can't be replayed computes beside the kernels, or there is no kernel"
    )  # fmt: skip
    UNSEEN = "unseen launch", "a kernel was launched in a way that can't be recorded"
    VALUES = "values", "the host's code depends on values of the inputs"
    COMPILE = "compile", "a kernel doesn't compile for the target"
    MEMORY = "unknown memory", "a kernel reads memory whose content isn't known"
    ADDRESSES = "addresses", "a kernel follows addresses that no argument gives"
    HARDWARE = "hardware state", "a kernel reads which part of the device it runs on, or a clock"
    STREAMS = "streams", "kernels are launched on several streams"
    INPUT_LAYOUT = "input layout", "the recording has an input with another layout than the one that was given"
    LEFT_OTHERWISE = "left otherwise", "a call leaves a setting of torch's otherwise than it was"
    RESULT_COUNT = (
        "result count", "the call returns another number of tensors than the reference, or in another structure"
    )  # fmt: skip
    RESULT_LAYOUT = "result layout", "a result has another shape, dtype or strides than the reference's"
    RESULT_OVERLAP = (
        "result overlap", "a result shares memory with another result or with an input where the reference's doesn't"
    )  # fmt: skip
    RESULT_UNWRITTEN = "result unwritten", "no recorded launch writes a result"
    LATER_CALL = (
        "later call", "a later call does more than the first one, which is timed, or uses what that got or returned"
    )  # fmt: skip
    OUTSIDE = "outside write", "a kernel writes outside of all tensors"
    FAULT = (
        "fault", "a kernel uses memory where none is, misaligned, or in a race; or a promise of its own doesn't hold"
    )  # fmt: skip
    EMULATOR = "emulator", "without a GPU: the emulator doesn't know an operation of a kernel"
    REPLAY = "replay", "the recording can't be replayed on this GPU"
    REPLAY_LATE = "replay late", "the replay did not end within the time"
    DEGENERATE = "degenerate", "the reference's results are no evidence: they hardly vary, or not with the inputs"
    REFERENCE = "reference", "the reference, or the code that makes inputs, failed"
    ROOFLINE = "roofline", "faster than the memory can deliver the bytes that must move"


class Refusal(Exception):
    """A candidate, or a task, can't be judged for this reason; the message says what exactly, if anything is to say."""

    def __init__(self, reason: Reason, text: str = "") -> None:
        super().__init__(text or reason.told)
        self.reason = reason


_LIVE = "the reference runs live, as the author's code"
LIVE_TOLD = {
    "unrolled": f"{_LIVE}: both sides are timed as unrolled graphs",
    "unrolled beside calls": f"{_LIVE}: the far longer side is timed call by call, the other as an unrolled graph",
    "single graphs": f"{_LIVE}: each side is timed call by call, as a graph; it is long, or has memory of its own",
    "single calls": f"{_LIVE}, which no CUDA graph can hold: each side is timed call by call",
}
"""What a reader should know of how a live reference was timed. Call by call, a time resolves half a microsecond."""
