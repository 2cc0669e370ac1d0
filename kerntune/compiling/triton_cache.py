"""Triton's own disk cache: Triton finds there what the farm compiles, and the other way round."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kerntune.compiling.damaged import damage_in, set_aside
from kerntune.compiling.frontend import CompileRequest, Lowered
from kerntune.compiling.protocol import Done, Facts

Group = dict[str, str]
"""Paths of a kernel's files in Triton's cache, by their names."""


THREADS = 4
"""Writing threads. On a slow file system a new file takes 10 ms, most of it waiting."""


@dataclass(frozen=True)
class Made:
    """A kernel that the farm compiled for a request, with the attribute names of Triton's ``CompiledKernel``.

    Its ``metadata`` is without ``hash``, for which the first kernels of a process would have to wait. ``seconds`` is
    the time of the stages; None for a kernel that was compiled before.
    """

    request: CompileRequest
    asm: Mapping[str, Any]
    metadata: Mapping[str, Any]
    facts: Facts | None
    stored: Future[Group]
    seconds: float | None = None

    @property
    def hash(self) -> str:
        """The key of Triton's cache."""
        return self.request.hash

    @cached_property
    def metadata_group(self) -> Group:
        """The paths of its files; waits until they are written."""
        return self.stored.result()


class Store:
    """Writes kernels to Triton's cache in a few threads: eight small files of a kernel take longer than its race.

    The threads start when there is something to write; :meth:`flush` waits for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._open: list[Future[Group]] = []
        self._told = False

    def put(self, lowered: Lowered, done: Done) -> Future[Group]:
        """Write a kernel's files soon."""
        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(THREADS, "kerntune-store")
            try:
                future = self._pool.submit(store, lowered, done)
            except BaseException:  # Ctrl-C while it starts a thread: the pool doesn't know that one, and never ends it
                self._pool.shutdown(wait=False)
                self._pool = None
                raise
            self._open.append(future)
        return future

    def flush(self) -> None:
        """Wait until everything so far is written; the last caller that waits ends the threads. A file that can't be
        written is a warning, once."""
        with self._lock:
            so_far = set(self._open)
        wait(so_far)
        with self._lock:
            self._open = [future for future in self._open if future not in so_far]
            pool = None
            if not self._open:
                pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        errors = [error for future in so_far if (error := future.exception()) is not None]
        if errors and not self._told:
            self._told = True
            text = f"compiled kernels can't be kept in Triton's cache: {errors[0]}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def is_stored(request: CompileRequest) -> bool:
    """Whether ``triton.compile`` would find this kernel in its cache, and may use it."""
    from triton import knobs

    return not knobs.compilation.always_compile and bool(_manager(request).get_group(f"{request.file_name}.json"))


def take_damage(request: CompileRequest) -> str:
    """Set a damaged entry aside and return a sentence about it; an empty text if it is sound or isn't there.

    After that :func:`is_stored` is false, unless the folder is read-only.
    """
    manager = _manager(request)
    group = manager.get_group(f"{request.file_name}.json") or {}
    found = damage_in(group, request.target.backend)
    if found is None:
        return ""
    path, why = found
    set_aside(Path(getattr(manager, "cache_dir", path.parent)), f"__grp__{request.file_name}.json", path)
    return f"{path} in Triton's cache is damaged ({why}): it was set aside, and the kernel is compiled anew"


def store(lowered: Lowered, done: Done) -> Group:
    """Write a kernel to Triton's cache, file by file as ``triton.compile`` does."""
    request, manager = lowered.request, _manager(lowered.request)
    name = request.file_name
    files: dict[str, Any] = {f"{name}.source": lowered.source_text, f"{name}.{request.source.ext}": lowered.job.ir}
    files |= {f"{name}.{stage}": data for stage, data in _stages(request, done).items()}
    files[f"{name}.json"] = json.dumps(metadata_of(request, done))
    group = {file: manager.put(data, file, binary=isinstance(data, bytes)) for file, data in files.items()}
    manager.put_group(f"{name}.json", group)
    return group


def metadata_of(request: CompileRequest, done: Done) -> dict[str, Any]:
    """A kernel's metadata as Triton's cache keeps it."""
    return {"hash": request.hash, **json.loads(done.metadata)}


def made_of(lowered: Lowered, done: Done, stored: Future[Group]) -> Made:
    """A kernel with the content of a ``CompiledKernel``, without reading the disk."""
    request = lowered.request
    asm = {"source": lowered.source_text, request.source.ext: lowered.job.ir, **_stages(request, done)}
    metadata = {**json.loads(done.metadata), "target": request.target}
    return Made(request, asm, metadata, done.facts, stored, done.seconds if done.times else None)


def _stages(request: CompileRequest, done: Done) -> dict[str, str | bytes]:
    """The output of each stage, text decoded."""
    binary = request.backend.binary_ext
    return {stage: data if stage == binary else data.decode() for stage, data in done.stages.items()}


def done_again(stored: Group, lowered: Lowered) -> Done | None:
    """The answer of an equal job, read from its files; None if they are gone."""
    name, stages, metadata = lowered.request.file_name, {}, {}
    try:
        for file, path in stored.items():
            stage = file[len(name) + 1 :]
            if stage == "json":
                metadata = json.loads(Path(path).read_bytes())
            elif stage not in ("source", lowered.job.ext):
                stages[stage] = Path(path).read_bytes()
    except (OSError, ValueError):  # gone, or damaged since
        return None
    metadata.pop("hash", None)
    return Done(stages, json.dumps(metadata).encode(), [])


def _manager(request: CompileRequest) -> Any:
    from triton.runtime.cache import get_cache_manager

    return get_cache_manager(request.hash)
