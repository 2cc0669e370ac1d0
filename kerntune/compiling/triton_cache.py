"""Triton's own disk cache: Triton finds there what the farm compiles, and the other way round.

Triton keeps no checksums, and reads an entry as it is: a disk that was full, a machine that lost power or a cache
that was copied in part would give a wrong result, or an error that names neither kernel nor file. Damaged entries
are found before they are used, set aside, and reported. The listeners of Triton's compiler are called for what the
farm has compiled.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kerntune.compiling.binary.elf import kernel_symbol
from kerntune.compiling.frontend import CompileRequest, Lowered
from kerntune.compiling.protocol import ASSEMBLY, Done, Facts
from kerntune.errors import StoreError

DAMAGED_SUFFIX = ".damaged"
"""The suffix of a file that was set aside, after its name."""

NEEDED_METADATA = ("target", "name", "shared", "num_warps")
"""Fields of a kernel's metadata in every Triton, for every target."""

_WHOLE = re.compile(r"\n[ \t]*\}")
"""The end of a module or function in a text: a text that was cut off lacks it."""

_AMD_END = ".end_amdgpu_metadata"


def damage_in(group: Mapping[str, str], backend: str) -> tuple[Path, str] | None:
    """The first file of an entry (paths by name) that can't be what Triton wrote, and why; None if all are sound."""
    for name, path in group.items():
        try:
            why = _damage(Path(path).read_bytes(), name.rpartition(".")[2], backend)
        except FileNotFoundError:
            why = "it is gone"
        if why:
            return Path(path), why
    return None


def set_aside(folder: Path, group: str, path: Path) -> None:
    """Move the list of an entry's files away, so that Triton doesn't find the entry, and its damaged file, if that is
    in the entry's own folder. In a read-only folder they stay: a new compilation doesn't read them."""
    for file in (folder / group, *([path] if path.parent == folder else [])):
        with contextlib.suppress(OSError):
            file.replace(file.with_name(file.name + DAMAGED_SUFFIX))


def _damage(data: bytes, stage: str, backend: str) -> str:
    assembly, binary = ASSEMBLY[backend]
    try:
        if stage == "json":
            found = json.loads(data)
            there = found if isinstance(found, dict) else ()
            missing = [key for key in NEEDED_METADATA if key not in there]
            return f"it lacks {', '.join(missing)}" if missing else ""
        if stage == binary:
            kernel_symbol(data)
            return ""
        text = data.decode()
    except (StoreError, ValueError) as exc:  # JSON's errors and UTF-8's are ValueErrors
        return str(exc)
    if not text.strip():
        return "it is empty"
    whole = _AMD_END in text if stage == assembly and backend == "hip" else _WHOLE.search(text) is not None
    return "" if whole else "it is cut off"


Group = dict[str, str]
"""Paths of a kernel's files in Triton's cache, by their names."""

THREADS = 4
"""Writing threads. On a slow file system a new file takes 10 ms, most of it waiting."""


@dataclass(frozen=True)
class Made:
    """A kernel that the farm compiled for a request, with the attribute names of Triton's ``CompiledKernel``.

    Its ``metadata`` is without ``hash``, for which the first kernels of a process would have to wait. ``seconds`` is
    the time of the stages.
    """

    request: CompileRequest
    asm: Mapping[str, Any]
    metadata: Mapping[str, Any]
    facts: Facts | None
    stored: Future[Group]
    seconds: float

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

    name = f"{request.file_name}.json"
    return not knobs.compilation.always_compile and bool(_manager(request).get_group(name))


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
    files: dict[str, Any] = {f"{name}.source": lowered.source_text}
    files[f"{name}.{request.source.ext}"] = lowered.job.ir
    files |= {f"{name}.{stage}": data for stage, data in _stages(request, done).items()}
    files[f"{name}.json"] = json.dumps({"hash": request.hash, **json.loads(done.metadata)})
    group = {file: manager.put(data, file, binary=isinstance(data, bytes)) for file, data in files.items()}
    manager.put_group(f"{name}.json", group)
    return group


def made_of(lowered: Lowered, done: Done, stored: Future[Group]) -> Made:
    """A kernel with the content of a ``CompiledKernel``, without reading the disk."""
    request = lowered.request
    asm = {"source": lowered.source_text, request.source.ext: lowered.job.ir, **_stages(request, done)}
    metadata = {**json.loads(done.metadata), "target": request.target}
    return Made(request, asm, metadata, done.facts, stored, done.seconds)


def _stages(request: CompileRequest, done: Done) -> dict[str, str | bytes]:
    binary = request.backend.binary_ext
    return {stage: data if stage == binary else data.decode() for stage, data in done.stages.items()}


def _manager(request: CompileRequest) -> Any:
    from triton.runtime.cache import get_cache_manager

    return get_cache_manager(request.hash)


def notify_listeners(made: Made, done: Done) -> None:
    """Call ``knobs.compilation.listener`` and ``knobs.runtime.jit_post_compile_hook`` as a plain compilation would."""
    from triton import knobs

    if knobs.compilation.listener:
        times = knobs.CompileTimes(ir_initialization=0, lowering_stages=list(done.times), store_results=0)
        metadata, group = {**made.metadata, "hash": made.hash}, made.metadata_group
        told = {"src": made.request.source, "metadata": metadata, "metadata_group": group}
        knobs.compilation.listener(**told, times=times, cache_hit=False)
    notify_post_compile(made.request)


def notify_post_compile(request: CompileRequest) -> None:
    """Call ``knobs.runtime.jit_post_compile_hook``, which ``JITFunction.run`` calls and ``triton.compile`` does not.

    The hook's ``key`` is our own name for the specialization: Triton's holds arguments that a launch no longer has.
    """
    from triton import knobs

    hook, launch = knobs.runtime.jit_post_compile_hook, request.launch
    if hook is None:
        return
    known = {
        "hook": hook,
        "key": launch.key(),
        "signature": launch.signature,
        "target": request.target,
        "device": _device(),
        "constants": launch.constexprs,
        "options": request.options,
        "configs": [launch.attrs],
        "is_warmup": False,
    }
    call = launch.jit._call_hook  # 3.6 takes no target
    call(**{name: known[name] for name in inspect.signature(call).parameters})


def _device() -> Any:
    from triton.runtime.driver import driver

    try:
        return driver.active.get_current_device()
    except RuntimeError:  # no driver: compiling for a GPU of another machine
        return 0
