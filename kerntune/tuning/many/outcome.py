"""What became of one job, as a process that tuned it says to the one that asked."""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec

from kerntune.base.tuning_job import TuningJob
from kerntune.errors import StoreError
from kerntune.tuning.cache import Winner

_T = TypeVar("_T")


class Ended(enum.Enum):
    """How a job ended: it was tuned, its winner was stored already, there is nothing to choose or to tune, it failed,
    or each process that had it died."""

    TUNED = "tuned"
    STORED = "stored"
    NOTHING = "nothing"
    FAILED = "failed"
    LOST = "lost"


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job, as it is given to a process: from which ``modules`` kernels may come (all if empty), where else Python
    looks for them, and whether a stored winner doesn't count."""

    job: TuningJob
    modules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    force: bool = False


class KeyOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What became of a job. ``error`` says why it failed, and what to do; ``notes`` what else is to be known.

    ``pid`` is of the process that had it, on ``host``, and ``worker`` its name for an executor that has such; with
    ``spoiled`` that process's device runs nothing any more. ``given_out`` counts the processes that had it.
    """

    job: str
    kernel: str
    key: str
    ended: Ended
    config: str = ""
    time_ns: float = 0.0
    seconds: float = 0.0
    winner: Winner | None = None
    error: str = ""
    notes: tuple[str, ...] = ()
    pid: int = 0
    host: str = ""
    worker: str = ""
    device: str = ""
    spoiled: bool = False
    given_out: int = 1

    @property
    def good(self) -> bool:
        """Whether nothing is left to do for the job."""
        return self.ended in (Ended.TUNED, Ended.STORED, Ended.NOTHING)


def encoded(value: JobRequest | KeyOutcome) -> bytes:
    """As bytes, which any executor can carry: no class of ours is pickled."""
    return _ENCODER.encode(value)


def request_of(data: bytes) -> JobRequest:
    """What :func:`encoded` gave; :class:`StoreError` otherwise."""
    return _decoded(_REQUEST, data)


def outcome_of(data: bytes) -> KeyOutcome:
    """What :func:`encoded` gave; :class:`StoreError` otherwise."""
    return _decoded(_OUTCOME, data)


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as exc:
        raise StoreError(f"what an executor handed on is not what was given to it: {exc}") from exc


_ENCODER = msgspec.json.Encoder()
_REQUEST = msgspec.json.Decoder(JobRequest)
_OUTCOME = msgspec.json.Decoder(KeyOutcome)
