"""Tunes one described call in whatever process it was given to, and says what became of it.

Request and outcome travel as bytes of JSON, which any executor can carry.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import sys
import time
import warnings
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import msgspec

from kerntune.base.changed_items import changed_items
from kerntune.base.policy import TuneMode
from kerntune.base.tuning_job import FunctionText, TuningJob
from kerntune.capture import Site
from kerntune.errors import KerntuneError, StoreError, UsageError
from kerntune.gpu.base import Backend
from kerntune.gpu.made_arguments import make_arguments
from kerntune.kernels.compat import tuners
from kerntune.kernels.source import jit_of, named_arguments
from kerntune.tuning import context, tuned_call
from kerntune.tuning.cache import Winner
from kerntune.tuning.isolation import KEPT_ISOLATION
from kerntune.tuning.many.describing import tuner_among_layers, tuner_of
from kerntune.tuning.many.shapes_file import SHAPES, noting
from kerntune.tuning.tune_options import ALL

_T = TypeVar("_T")


class JobEnd(enum.Enum):
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
    ended: JobEnd
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
        return self.ended in (JobEnd.TUNED, JobEnd.STORED, JobEnd.NOTHING)


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

NOTHING_STORED = "nothing was stored: its grid is empty, or it can't be timed"


def run_job(request: bytes) -> bytes:
    """A :class:`JobRequest` to its outcome, both as bytes: what is given to an executor.

    Whatever goes wrong with the call is in the outcome. An exception means that this process can't go on.
    """
    return encoded(outcome_for(request_of(request)))


def outcome_for(asked: JobRequest) -> KeyOutcome:
    """Import the kernel, make arguments like those described, and tune. The winner is stored, and in the outcome."""
    begin, job = time.perf_counter(), asked.job
    backend: Backend | None = None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            _look_in(asked.paths)
            kernel = tuner_of(job.module, job.kernel, asked.modules)
            backend = _device(job)
            with KEPT_ISOLATION.keeping():
                found = _tuned(job, kernel, asked.modules, asked.force)
        except Exception as exc:  # of a user's module, hooks and pruning too
            found = _outcome(job, JobEnd.FAILED, error=_text(job, exc), spoiled=_spoiled(backend))
    notes = tuple(dict.fromkeys(str(w.message) for w in seen if w.category is RuntimeWarning))
    device = "" if backend is None else backend.spec.name
    return msgspec.structs.replace(
        found, notes=(*found.notes, *notes), seconds=time.perf_counter() - begin, pid=os.getpid(),
        host=socket.gethostname(), worker=dask_worker(), device=device,
    )  # fmt: skip


def _outcome(job: TuningJob, ended: JobEnd, **words: Any) -> KeyOutcome:
    return KeyOutcome(job.digest(), job.name, job.key, ended, **words)


def _device(job: TuningJob) -> Backend:
    if job.unknown:
        raise UsageError(job.unknown)
    if noting():
        raise UsageError(f"{SHAPES} is set in this process, in which nothing is tuned; unset it")
    backend = context.this_gpu()
    if backend is None or backend.gpu is None:
        raise UsageError("kerntune finds no GPU to measure on in this process; tune where there is one")
    return backend


def _tuned(job: TuningJob, kernel: Any, modules: tuple[str, ...], force: bool) -> KeyOutcome:
    def find(text: FunctionText) -> Any:
        return tuner_of(text.module, text.name, modules)

    args, words = make_arguments(job, find)
    if job.configs:
        # A test's marker gives a kernel without a tuner candidates; its winner is stored where ``pytest --kerntune``
        # finds it.
        mode = TuneMode.FORCE if force else TuneMode.AUTO
        site, found, fresh = tuned_call.tune_given(jit_of(kernel), args, words, job.configs, mode)
        if found is None:
            return _outcome(job, JobEnd.NOTHING, notes=(NOTHING_STORED,))
        return _won(job, site, found, JobEnd.TUNED if fresh else JobEnd.STORED)
    tuner = tuner_among_layers(kernel)
    if tuner is None:
        why = "it has no tuner any more: no @triton.autotune or @kerntune.autotune"
        raise UsageError(f"{why}; record the shapes anew")
    with _settings(tuner, TuneMode.FORCE if force else TuneMode.AUTO):
        site, winners = tuned_call.site_and_winners(tuner, args, words)
        if len(site.candidates) == 1:
            return _outcome(job, JobEnd.NOTHING, config=str(site.candidates[0].config))
        stored = winners.stored(site)
        if stored is not None and not stored.untried:
            return _won(job, site, stored, JobEnd.STORED)
        key = tuners.autotuner_key(tuner, named_arguments(tuner, args, {}), words)
        tuner.cache.pop(key, None)  # of another call that this tuner takes for it
        tuned_call.run_tuned(tuner, args, {**words, "warmup": False}, keep=True, plain=_refuse)
        return _found(job, tuner, args, words)


def _found(job: TuningJob, tuner: Any, args: Any, words: dict[str, Any]) -> KeyOutcome:
    with _settings(tuner, TuneMode.AUTO):
        site, winners = tuned_call.site_and_winners(tuner, args, words)
        stored = winners.stored(site)
    if stored is not None:
        return _won(job, site, stored, JobEnd.TUNED)
    return _outcome(job, JobEnd.NOTHING, notes=(NOTHING_STORED,))


def _won(job: TuningJob, site: Site, winner: Winner, ended: JobEnd) -> KeyOutcome:
    notes = tuned_call.content_notes(site, winner.config) if ended is JobEnd.TUNED else ()
    return _outcome(job, ended, config=str(winner.config), time_ns=winner.time_ns, winner=winner, notes=notes)


def _refuse(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    raise UsageError("kerntune can't measure it on this device, so it wasn't tuned")


def _settings(tuner: Any, mode: TuneMode) -> AbstractContextManager[None]:
    """A tuner that tunes, whatever its decorator and the environment say, and waits for every config: no user
    waits for the call."""
    given = {"tune_mode": mode, "patience": ALL if getattr(tuner, "patience", None) is None else tuner.patience}
    return changed_items(vars(tuner), given)


def _look_in(paths: tuple[str, ...]) -> None:
    """Folders in which Python looks for modules first; they stay, since modules import further ones when they run."""
    for path in reversed(paths):
        if path not in sys.path:
            sys.path.insert(0, path)


def _text(job: TuningJob, exc: Exception) -> str:
    what = str(exc) if isinstance(exc, KerntuneError) else f"{type(exc).__name__}: {exc}"
    return f"{job}: {what.removeprefix(f'kernel {job.name}: ')}"


def _spoiled(backend: Backend | None) -> bool:
    """Whether the device runs nothing any more in this process."""
    if backend is None or backend.gpu is None:
        return False
    try:
        backend.gpu.synchronize()
    except Exception:
        return True
    return False


def dask_worker() -> str:
    """The address of the Dask worker whose task this thread does; empty if it does none."""
    distributed = sys.modules.get("distributed")
    with contextlib.suppress(Exception):  # no task of a worker; a package of another kind with this name
        return str(distributed.get_worker().address) if distributed else ""
    return ""
