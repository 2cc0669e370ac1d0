"""Compiles specialized launches, or a recording's stored TTIR, for any target and without a GPU.

The results are code, metadata and static facts. A recording's TTIR gives the same kernels from today's compiler,
however their source has changed since.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from kerntune.base.changed_items import changed_items
from kerntune.base.device import Target
from kerntune.base.recording import Artifacts, Binary, Recording, Scratch
from kerntune.compiling.binary.identity import (
    STAGES,
    bare_text,
    first_stage_of,
    identity_of,
    stage_hashes,
    text_identity,
)
from kerntune.compiling.farm import Farm, NotStarted, PrefetchedIterator
from kerntune.compiling.frontend import Shape, job_of
from kerntune.compiling.protocol import ASSEMBLY, CompileFailed, Done, Job, facts_of
from kerntune.compiling.stream import Compilations, stop
from kerntune.compiling.triton_cache import Made
from kerntune.compiling.worker_process import with_words
from kerntune.errors import CompileError, ReplayError, TrialError
from kerntune.kernels.access import Access
from kerntune.kernels.compat import launch_environment, stored_options, triton_compiler, versions
from kerntune.kernels.specialize import Specialized


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel: its description in a recording, and the bytes themselves."""

    binary: Binary
    data: bytes
    ttir: str
    asm: str
    access: Access
    metadata: Mapping[str, Any]
    compiled_for: Mapping[str, str]
    """The specialization of the launch, by argument, constant and option, for reports."""

    seconds: float | None = None
    """Seconds that the compiler took; None where its cache had the kernel."""

    files: Callable[[], Mapping[str, str]] = field(default=dict, compare=False, repr=False)
    """Paths of the kernel's files in Triton's cache, by their names."""

    def texts(self) -> dict[str, str]:
        """The text of each compiler stage, in their order, from Triton's cache. Empty if the files are gone."""
        paths = {name.rpartition(".")[2]: path for name, path in self.files().items()}
        try:
            return {stage: Path(paths[stage]).read_text() for stage in STAGES if stage in paths}
        except OSError:
            return {}

    @cached_property
    def stages(self) -> Mapping[str, str]:
        """A hash of each text. They are read at the first access, which is for winners only: it takes 20 ms."""
        return stage_hashes(self.texts())


class Compiler:
    """Compiles each distinct specialization once in this process (Triton's own disk cache serves the next one).

    A :class:`~kerntune.compiling.farm.Farm` compiles; its processes start when they are first needed. The compiler
    keeps the kernels, whose addresses are in the keys, but no launch: its arguments are the user's tensors.
    """

    def __init__(self, farm: Farm | None = None) -> None:
        self._done: dict[str, Compiled | TrialError] = {}
        self._kernels: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._tell: Callable[[str], None] = lambda text: None
        triton_compiler.parse_in_turn()
        self._compilations = Compilations(farm or Farm())

    def compile(self, launch: Specialized) -> Compiled:
        """The compiled kernel of a launch. Raises :class:`CompileError`, with the same text each time."""
        with self._lock:
            found = self._done.get(launch.key())
        while found is None:
            found = next(iter(self._compile_now([launch])), None)  # none if another thread has ended it meanwhile
        if isinstance(found, TrialError):
            raise _error_like(found)  # a new one: a raised error holds the frames of its traceback
        return found

    def compile_all(self, launches: Sequence[Specialized]) -> None:
        """Compile ahead, several at a time; :meth:`compile` raises the failures."""
        if self.missing(launches):
            self._compile_now(launches)

    def _compile_now(self, launches: Sequence[Specialized]) -> list[Compiled | TrialError]:
        """Compile launches; when this returns, the kernels are in Triton's cache too."""
        results = [found for _, found in self.compile_stream(launches)]
        self.flush()
        return results

    def telling(self, tell: Callable[[str], None]) -> AbstractContextManager[None]:
        """Within, ``tell`` is called with what is compiled: ``compiling add_kernel, 3 of 14``."""
        return changed_items(vars(self), {"_tell": tell})

    def flush(self) -> None:
        """Wait until all results of streams are in Triton's own cache too."""
        self._compilations.flush()

    def compile_stream(
        self, launches: Iterable[Specialized], made_before: Collection[int] = (), stopped: Future[None] | None = None
    ) -> Iterator[tuple[Specialized, Compiled | TrialError]]:
        """Each launch once, with its result, in the order in which they are done: known results come first.

        The front end runs between the first results, so a caller that takes long for each result should use
        :meth:`compile_aside`. Closing the iterator cancels what has not begun. Kernels are written to Triton's cache
        meanwhile; :meth:`flush` waits for that. ``made_before`` has the ``id`` of each launch that is probably in that
        cache. Once ``stopped`` is done, no more results come.
        """
        by_key: dict[str, list[Specialized]] = {}
        for launch in launches:
            by_key.setdefault(launch.key(), []).append(launch)
        with self._lock:
            known = {key: self._done[key] for key in by_key if key in self._done}
        for key, found in known.items():
            yield from ((same, found) for same in by_key[key])
        unknown = [x[0] for key, x in by_key.items() if key not in known]
        tell, done = self._tell, 0
        if unknown:
            tell(_progress(unknown[0], done, len(unknown)))
        for launch, result in self._compilations.stream(unknown, made_before, stopped):
            done += 1
            tell(_progress(launch, done, len(unknown)))
            found = self._remember(launch, result)
            yield from ((same, found) for same in by_key[launch.key()])

    def compile_aside(
        self, launches: Sequence[Specialized], made_before: Collection[int] = ()
    ) -> PrefetchedIterator[tuple[Specialized, Compiled | TrialError]]:
        """:meth:`compile_stream` in a thread of its own, which goes on to the end, and writes to Triton's cache,
        even if the results are not taken: the next stream has them at once. Stopping it cancels what has not begun."""
        stopped: Future[None] = Future()

        def results() -> Iterator[tuple[Specialized, Compiled | TrialError]]:
            yield from self.compile_stream(launches, made_before, stopped)
            self.flush()

        return PrefetchedIterator(results(), partial(stop, stopped), "kerntune-results")

    def missing(self, launches: Iterable[Specialized]) -> int:
        """How many of these launches this process has not compiled yet."""
        keys = {launch.key() for launch in launches}
        with self._lock:
            return len(keys - self._done.keys())

    def warm(self, jobs: int) -> None:
        """Start what compiling ``jobs`` launches will need, without waiting for it."""
        self._compilations.warm(jobs)

    @property
    def farm(self) -> Farm:
        """The processes that compile."""
        return self._compilations.farm

    def end(self) -> None:
        """Have the compiling processes end, and return before they are gone: an interrupted run has the processors for
        its own end. What is compiled and not taken yet is dropped. Later calls start new ones."""
        ended = self._compilations
        self._compilations = Compilations(ended.farm.like())
        ended.end()

    def close(self) -> None:
        """End the compiling processes. Later calls start new ones."""
        self._compilations.farm.close()
        self._compilations = Compilations(self._compilations.farm.like())

    def _remember(self, launch: Specialized, result: Any) -> Compiled | TrialError:
        found = _error_like(result) if isinstance(result, TrialError) else describe(launch, result)
        with self._lock:
            self._kernels[id(launch.jit)] = launch.jit  # keys hold its address, which must not be used again
            return self._done.setdefault(launch.key(), found)


def _progress(launch: Specialized, done: int, total: int) -> str:
    return f"compiling {launch.name}" + (f", {done} of {total}" if total > 1 else "")


def _error_like(error: TrialError) -> TrialError:
    other = type(error)(str(error))
    if isinstance(error, CompileError) and isinstance(other, CompileError):
        other.ttir_sha256 = error.ttir_sha256
    return other


def describe(launch: Specialized, kernel: Any) -> Compiled:
    """The :class:`Compiled` of Triton's ``CompiledKernel``, or of a kernel that the farm compiled."""
    asm_stage, binary_stage = ASSEMBLY[launch.target.backend]
    asm, data = kernel.asm[asm_stage], kernel.asm[binary_stage]
    facts = getattr(kernel, "facts", None) or facts_of(launch.target, kernel.asm)
    metadata = dict(kernel.metadata) if isinstance(kernel.metadata, Mapping) else kernel.metadata._asdict()
    metadata.pop("hash", None)  # the name of its entry in Triton's cache: no property of the kernel
    options = _option_values(vars(launch.options))
    binary = Binary(
        kind=binary_stage,
        ttir_sha256=hashlib.sha256(facts.ttir.encode()).hexdigest(),
        options=options,
        constexprs=launch.constexpr_texts(),
        warp_size=launch.target.warp_size,
        **code_fields(launch.target, asm, facts.bare, data, metadata, options, launch.settings),
    )
    # It holds neither the kernel nor its launch: it is kept for ever, the user's tensors must not be.
    is_made = isinstance(kernel, Made)
    files: Callable[[], Any] = kernel.stored.result if is_made else partial(dict, dict(kernel.metadata_group))
    seconds = getattr(kernel, "seconds", None)
    return Compiled(binary, data, facts.ttir, asm, facts.access, metadata, launch.compiled_for(), seconds, files)


def code_fields(
    target: Target,
    asm: str,
    bare: str,
    data: bytes,
    metadata: Mapping[str, Any],
    options: Mapping[str, Any],
    settings: Mapping[str, str],
) -> dict[str, Any]:
    """The fields of a :class:`Binary` that follow from its code: ``asm`` is the assembly text, ``bare`` that text as a
    code identity sees it, ``data`` the machine code, ``metadata`` the compiler's, ``settings`` the environment's."""
    kind, assembler = ASSEMBLY[target.backend][0], versions.assembler_version(target.backend, target.triton_arch)
    in_no_text = launch_environment.ASSEMBLER_ONLY  # nor in an option
    unseen = {name: value for name, value in settings.items() if name in in_no_text}
    return {
        "arch": arch_of(target, asm),
        "symbol": metadata["name"],
        "sha256": hashlib.sha256(data).hexdigest(),
        "code": identity_of(bare, kind=kind, options=options, assembler=assembler, settings=unseen),
        "text": text_identity(data),
        "triton": versions.triton_version(),
        "assembler": assembler,
        "settings": dict(settings),
        **launch_needs(metadata),
    }


def arch_of(target: Target, asm: str) -> str:
    """The architecture that assembly text is for, with its suffix (``sm_90a``)."""
    match = re.search(r"^\.target\s+(\w+)", asm, re.M)
    return match[1] if match else target.arch


def launch_needs(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of a launch beside the code, as fields of a :class:`Binary`, from the compiler's metadata."""
    return {
        "num_warps": metadata["num_warps"],
        "num_ctas": metadata.get("num_ctas", 1),
        "shared": metadata["shared"],
        "tmem": metadata.get("tmem_size") or 0,
        "cooperative": bool(metadata.get("launch_cooperative_grid")),
        "pdl": bool(metadata.get("launch_pdl")),
        "global_scratch": _scratch(metadata, "global"),
        "profile_scratch": _scratch(metadata, "profile"),
    }


def _scratch(metadata: Mapping[str, Any], which: str) -> Scratch:
    return Scratch(metadata.get(f"{which}_scratch_size") or 0, metadata.get(f"{which}_scratch_align") or 1)


def _option_values(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        k: v if isinstance(v, plain) else [str(x) for x in v] if isinstance(v, (tuple, list)) else str(v)
        for k, v in sorted(options.items())
        if k not in NOT_CODE
    }


NOT_CODE = frozenset({"extern_libs", "backend_name"})
"""Options that contain paths of this machine or repeat the target; libdevice's effect is in the assembly text."""


def recompiled(
    farm: Farm, recording: Recording, artifacts: Artifacts, now: Recording | None = None
) -> tuple[Recording, dict[str, bytes]]:
    """The recording with every binary made anew from its TTIR, and the new binaries by checksum.

    ``now`` is today's recording of the same call: the only place from which options come that no file may set.
    :class:`ReplayError` where a TTIR is not stored, where such an option differs, and where today's compiler refuses
    the TTIR or crashes.
    """
    own: dict[int, Mapping[str, Any]] = {}  # by the number of the stored binary
    if now is not None:
        pairs = zip(recording.launches, now.launches, strict=False)
        own = {a.binary: now.binary_of(b).options for a, b in pairs if a.kernel == b.kernel}
    binaries, data = list[Binary](), dict[str, bytes]()
    for i, binary in enumerate(recording.binaries):
        if binary.ttir_sha256 not in artifacts:
            raise ReplayError(f"kernel {binary.symbol}: its TTIR {binary.ttir_sha256[:12]} is not stored here")
        ttir, options = artifacts[binary.ttir_sha256], _stored_options(binary)
        job, done = _compiled(farm, recording.target, ttir, options, binary.symbol, own.get(i, {}))
        fields = _fields_of(recording.target, job, done, binary.options)
        made = msgspec.structs.replace(binary, unreplayable="", **fields)
        data[made.sha256] = done.stages[made.kind]
        binaries.append(made)
    return msgspec.structs.replace(recording, binaries=tuple(binaries)), data


def under_todays_flags(before: Recording, now: Recording) -> Recording:
    """``before`` with the options that environment variables set as they are today, for recompiling it under them.

    Where an option of ``now``'s launches differs from today's environment, the caller has set it, and it stays.
    """
    target = now.target
    defaults = triton_compiler.default_options(target)
    binaries = list(before.binaries)
    for old, new in zip(before.launches, now.launches, strict=False):
        options = now.binary_of(new).options
        names = [n for n in triton_compiler.SURROUNDING_OPTIONS if n in options]
        todays = {n: options[n] for n in names if options[n] == defaults.get(n)}
        if old.kernel == new.kernel:
            binary = before.binary_of(old)
            binaries[old.binary] = msgspec.structs.replace(binary, options={**binary.options, **todays})
    return msgspec.structs.replace(before, binaries=tuple(binaries))


def stages_from(
    farm: Farm,
    target: Target,
    ttir: bytes,
    options: Mapping[str, Any],
    kernel: str,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> Mapping[str, bytes]:
    """The output of each stage of today's compiler for a TTIR, by the stage's name, under these compile options.

    Those that the backend doesn't have are ignored. ``own`` are the options of today's launch of the kernel, else
    Triton's defaults count: options that no file may set come from there. :class:`ReplayError` where one of them
    differs, and where the compiler refuses the TTIR.
    """
    return _compiled(farm, target, ttir, options, kernel, own)[1].stages


def binary_from(
    farm: Farm, target: Target, ttir: bytes, options: Mapping[str, Any], kernel: str
) -> tuple[Binary, Mapping[str, bytes]]:
    """The binary that today's compiler makes of a TTIR, and what its stages gave, by name; options and errors are those
    of :func:`stages_from`."""
    job, done = _compiled(farm, target, ttir, options, kernel, {})
    values = _option_values(job.options)
    binary = Binary(
        kind=ASSEMBLY[job.backend][1],
        ttir_sha256=hashlib.sha256(ttir).hexdigest(),
        options=values,
        constexprs={},
        warp_size=target.warp_size,
        **_fields_of(target, job, done, values),
    )
    return binary, done.stages


def ttir_text(ttir: bytes, kernel: str) -> str:
    """A stored TTIR as text; :class:`ReplayError` for what is none."""
    try:
        return ttir.decode()
    except UnicodeDecodeError as exc:
        raise ReplayError(f"kernel {kernel}: its TTIR is no text in UTF-8 ({exc.reason} at byte {exc.start})") from None


def _compiled(
    farm: Farm, target: Target, ttir: bytes, options: Mapping[str, Any], kernel: str, own: Mapping[str, Any]
) -> tuple[Job, Done]:
    job = _job_from_ttir(target, options, ttir_text(ttir, kernel), kernel, own)
    outcome = farm.submit(job, Shape(len(job.ir), 1, 1)).result()
    if isinstance(outcome, NotStarted):
        raise ReplayError(f"kernel {kernel}: its {job.ext.upper()} can't be compiled: {outcome.reason}")
    answer = outcome.answer
    if not isinstance(answer, Done):
        failed = isinstance(answer, CompileFailed)
        said = answer.reason if failed else f"the compiler died: {answer.reason}"
        why = with_words(said, outcome.output, last=not failed)
        raise ReplayError(f"kernel {kernel}: Triton {versions.triton_version()} refuses its {job.ext.upper()}: {why}")
    return job, answer


def _job_from_ttir(target: Target, stored: Mapping[str, Any], ttir: str, kernel: str, own: Mapping[str, Any]) -> Job:
    """The only way from stored code to a compiler: nothing of ``stored`` goes on that no file may set."""
    if stored_options.includes_files(target.backend, ttir):
        raise ReplayError(f"kernel {kernel}: its TTIR has assembler directives, which no stored code may have")
    wanted = triton_compiler.gpu_target(target)
    backend = triton_compiler.make_backend(wanted)
    todays = {**vars(backend.parse_options({})), **own}
    given, problems = stored_options.checked_options(target.backend, stored, todays)
    if problems:
        raise ReplayError(f"kernel {kernel}: its stored code isn't compiled: {'; '.join(problems)}")
    try:
        options = backend.parse_options(given)
    except (ValueError, AssertionError) as exc:  # options that don't fit each other, or the target
        raise ReplayError(f"kernel {kernel}: Triton {versions.triton_version()} refuses its options: {exc}") from exc
    metadata = {"hash": "", "target": wanted, **vars(options), "triton_version": versions.triton_version()}
    stage = first_stage_of(ttir)
    return job_of(ttir, stage, triton_compiler.language_of(stage), wanted, options, metadata)


def _stored_options(binary: Binary) -> dict[str, Any]:
    """As it was launched: where warps are specialized, ``binary.num_warps`` counts those of all partitions."""
    return {"num_warps": binary.num_warps, "num_ctas": binary.num_ctas, **binary.options}


def _fields_of(target: Target, job: Job, done: Done, options: Mapping[str, Any]) -> dict[str, Any]:
    asm_stage, binary_stage = ASSEMBLY[job.backend]
    asm, data = done.stages[asm_stage].decode(), done.stages[binary_stage]
    metadata = json.loads(done.metadata)
    settings = launch_environment.compiler_settings(job.backend)
    return code_fields(target, asm, bare_text(asm, asm_stage), data, metadata, options, settings)
