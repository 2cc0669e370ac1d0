"""Compiles specialized launches into code, metadata and static facts, for any target and without a GPU."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from kerntune.base.device import Target
from kerntune.base.recording import Binary, Scratch
from kerntune.compiling.binary.identity import identity_of, text_identity
from kerntune.compiling.binary.stages import STAGES, stage_hashes
from kerntune.compiling.farm import Farm
from kerntune.compiling.kernel_facts import ASSEMBLY, facts_of
from kerntune.compiling.prefetch import Pulled
from kerntune.compiling.stream import Compilations, stop
from kerntune.compiling.triton_cache import Made
from kerntune.errors import CompileError, TrialError
from kerntune.kernels import compat
from kerntune.kernels.access import Access
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

    @cached_property
    def stages(self) -> Mapping[str, str]:
        """A hash of each compiler stage's text, in their order (:func:`kerntune.compiling.binary.stages.stage_hashes`).

        Read from Triton's cache at the first access, which is for winners only: it takes 20 ms. Empty if the files are
        gone.
        """
        try:
            return stage_hashes(_texts(self.files()), ASSEMBLY[self._backend][0])
        except OSError:
            return {}

    @property
    def _backend(self) -> str:
        """``cuda`` or ``hip``."""
        return "cuda" if self.binary.kind == "cubin" else "hip"


class Compiler:
    """Compiles each distinct specialization once in this process (Triton's own disk cache serves the next one).

    A :class:`~kerntune.compiling.farm.Farm` compiles; its processes start when they are first needed. The compiler
    keeps the kernels, whose addresses are in the keys, but no launch: its arguments are the user's tensors.
    """

    def __init__(self, farm: Farm | None = None) -> None:
        self._done: dict[str, Compiled | TrialError] = {}
        self._kernels: dict[int, Any] = {}
        self._lock = threading.Lock()
        compat.parse_in_turn()
        self._compilations = Compilations(farm or Farm())

    def compile(self, launch: Specialized) -> Compiled:
        """The compiled kernel of a launch. Raises :class:`CompileError`, with the same text each time."""
        with self._lock:
            known = self._done.get(launch.key())
        found = known
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

    def flush(self) -> None:
        """Wait until all results of streams are in Triton's own cache too."""
        self._compilations.flush()

    def compile_stream(
        self,
        launches: Iterable[Specialized],
        made_before: Collection[int] = (),
        stopped: Future[None] | None = None,
    ) -> Iterator[tuple[Specialized, Compiled | TrialError]]:
        """Each launch once, with its result, in the order in which they are done: known results come first.

        The front end runs between the first results, so a caller that takes long for each result
        should use :meth:`compile_aside`. Closing the iterator cancels what has not begun. Kernels are
        written to Triton's cache meanwhile; :meth:`flush` waits for that. ``made_before`` has the ``id`` of each launch
        that is probably in that cache. Once ``stopped`` is done, no more results come.
        """
        by_key: dict[str, list[Specialized]] = {}
        for launch in launches:
            by_key.setdefault(launch.key(), []).append(launch)
        with self._lock:
            known = {key: self._done[key] for key in by_key if key in self._done}
        for key, found in known.items():
            yield from ((same, found) for same in by_key[key])
        unknown = [x[0] for key, x in by_key.items() if key not in known]
        for launch, result in self._compilations.stream(unknown, made_before, stopped):
            found = self._remember(launch, result)
            yield from ((same, found) for same in by_key[launch.key()])

    def compile_aside(
        self, launches: Sequence[Specialized], made_before: Collection[int] = ()
    ) -> Pulled[tuple[Specialized, Compiled | TrialError]]:
        """:meth:`compile_stream` in a thread of its own, which goes on to the end, and writes to Triton's cache,
        even if the results are not taken: the next stream has them at once. Stopping it cancels what has not begun."""
        stopped: Future[None] = Future()

        def results() -> Iterator[tuple[Specialized, Compiled | TrialError]]:
            yield from self.compile_stream(launches, made_before, stopped)
            self.flush()

        return Pulled(results(), partial(stop, stopped), "kerntune-results")

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


def _error_like(error: TrialError) -> TrialError:
    """A new error of the same kind, with the same text."""
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
    options = _options(launch.options)
    binary = Binary(
        kind=binary_stage,
        ttir_sha256=hashlib.sha256(facts.ttir.encode()).hexdigest(),
        options=options,
        constexprs=launch.constexpr_texts(),
        warp_size=launch.target.warp_size,
        **code_fields(launch.target, asm, facts.bare, data, metadata, options, launch.settings),
    )
    files = _files_of(kernel)
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
    assembler = compat.assembler_version(target.backend, target.triton_arch)
    unseen = unseen_settings(settings)
    return {
        "arch": arch_of(target, asm),
        "symbol": metadata["name"],
        "sha256": hashlib.sha256(data).hexdigest(),
        "code": identity_of(
            bare, kind=ASSEMBLY[target.backend][0], options=options, assembler=assembler, settings=unseen
        ),
        "text": text_identity(data),
        "triton": compat.triton_version(),
        "assembler": assembler,
        "settings": dict(settings),
        **launch_needs(metadata),
    }


def unseen_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings whose effect appears in no option and no assembly text."""
    return {name: value for name, value in settings.items() if name in compat.ASSEMBLER_ONLY}


def _files_of(kernel: Any) -> Callable[[], Mapping[str, str]]:
    """A function that holds neither the kernel nor its launch: it is kept for ever, the user's tensors must not be."""
    if isinstance(kernel, Made):
        return kernel.stored.result
    group = dict(kernel.metadata_group)
    return lambda: group


def _texts(files: Mapping[str, str]) -> dict[str, str]:
    by_stage = {name.rpartition(".")[2]: path for name, path in files.items()}
    return {stage: Path(by_stage[stage]).read_text() for stage in STAGES if stage in by_stage}


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


def _options(options: Any) -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        k: v if isinstance(v, plain) else [str(x) for x in v] if isinstance(v, (tuple, list)) else str(v)
        for k, v in sorted(vars(options).items())
        if k not in NOT_CODE
    }


NOT_CODE = frozenset({"extern_libs", "backend_name"})
"""Options that contain paths of this machine or repeat the target; libdevice's effect is in the assembly text."""
