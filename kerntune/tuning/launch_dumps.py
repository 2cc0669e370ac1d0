"""Dumps of what is launched: ``KERNTUNE_DUMP=FOLDER`` writes each tuned launch of a program as a folder of its own."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace as _replace

from kerntune import capture as captures
from kerntune.base.recording import Recording
from kerntune.capture import Capture, Site
from kerntune.capture.launch_dump import DumpedContents, DumpedTexts, guessed, write_launch
from kerntune.capture.memory_plan import describe
from kerntune.capture.recorder import Recorded, record
from kerntune.capture.site import config_of
from kerntune.compiling.binary.stages import STAGES, first_stage_of
from kerntune.compiling.compiler import Compiled
from kerntune.errors import KerntuneError, TuningError, UsageError
from kerntune.gpu.base import Backend, Executor, Gpu
from kerntune.gpu.probe import captures_graph
from kerntune.kernels.source import is_kernel, source_text
from kerntune.tuning.stored_winners import candidate_of

DUMP, DUMP_CONTENT = "KERNTUNE_DUMP", "KERNTUNE_DUMP_CONTENT"

DESCRIBED, RECORDED = "described", "recorded"
"""What is kept of tensors: the distribution of floating-point numbers and small integers as they are (the default), or
all bytes, before the launch and after it."""


def dump_folder() -> Path | None:
    """The folder of ``KERNTUNE_DUMP``; None where nothing is dumped."""
    text = os.environ.get(DUMP, "")
    return Path(text).expanduser() if text else None


def keeps_content() -> bool:
    """Whether ``KERNTUNE_DUMP_CONTENT`` asks for all bytes; :class:`UsageError` for what it can't be."""
    text = os.environ.get(DUMP_CONTENT) or DESCRIBED
    if text not in (DESCRIBED, RECORDED):
        raise UsageError(f"{DUMP_CONTENT} is {text!r}; it can be {DESCRIBED} or {RECORDED}")
    return text == RECORDED


_dumped: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()
"""Of each tuner, the keys whose launch has been dumped, with their configs."""


def dumping(
    tuner: Any, key: Any, config: Any, args: Sequence[Any], kwargs: Mapping[str, Any], launch: Callable[[], Any]
) -> Any:
    """``launch()``, dumped if it is the first of this tuner with this key and config.

    A launch that can't be dumped is launched all the same, with a RuntimeWarning that says why. Nothing is read while a
    CUDA graph is captured: that would end the capture.
    """
    folder, seen = dump_folder(), _dumped.setdefault(tuner, set())
    mark = (key, str(config))
    if folder is None or mark in seen or kwargs.get("warmup") or captures_graph():
        return launch()
    seen.add(mark)
    finish = None
    try:
        finish = _begin(folder, tuner, config, args, dict(kwargs))
    except (KerntuneError, OSError) as exc:
        _warn(tuner, exc)
    result = launch()
    try:
        if finish is not None:
            finish()
    except (KerntuneError, OSError) as exc:
        _warn(tuner, exc)
    return result


def _warn(tuner: Any, error: Exception) -> None:
    warnings.warn(f"kernel {tuner.base_fn.__name__}: its launch was not dumped: {error}", RuntimeWarning, stacklevel=2)


def _begin(
    folder: Path, tuner: Any, config: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Callable[[], object] | None:
    """Take what the launch finds; the rest is done after it. None where nothing is compiled here."""
    from kerntune.tuning import (
        context,  # makes a compiler, which loads Triton: the gate imports this module for its texts
    )

    backend = context.this_gpu()
    if backend is None or backend.gpu is None or not is_kernel(tuner) or captures.current() is not None:
        return None
    gpu, exact = backend.gpu, keeps_content()
    capture = Capture(backend, context.COMPILER, thread=threading.get_ident())
    recorded = staged_launch(capture, tuner, config, args, kwargs)
    recording, kept = with_content(recorded, backend)
    before = exact_contents(gpu, recorded) if exact else {}
    texts = texts_of(recorded, 0, capture.launches[0].jit)

    def finish() -> Path:
        after = written_contents(gpu, recorded.recording, capture.plan.tensors()) if exact else {}
        contents, environment = DumpedContents(before, after), gpu.environment()
        return write_launch(folder, recording, 0, kept, texts, contents=contents, environment=environment)

    return finish


def staged_launch(capture: Capture, tuner: Any, config: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Recorded:
    """What a tuner's call launches with one of its configs, as a recording; nothing is launched.

    :class:`TuningError` for a config that isn't among the call's.
    """
    site = capture.site_of(tuner, args, kwargs)
    index = _index_of(site, config)
    with capture.active():
        probe = capture.probe(site, index)
        capture.stage(site, index, probe, capture.compiler.compile(probe.specialized))
        return record(capture, capture.backend.targets[0])


def _index_of(site: Site, config: Any) -> int:
    for i, original in enumerate(site.originals or ()):
        if original is config:
            return i
    found = candidate_of(site, config_of(config, f"kernel {site.kernel}"))
    if found is None:
        raise TuningError(f"kernel {site.kernel}: {config} is not among the configs of this call")
    return found


def with_content(recorded: Recorded, backend: Backend) -> tuple[Recording, dict[str, bytes]]:
    """The recording with its storages' contents described, and all artifacts; guessed where nothing runs."""
    if backend.gpu is None:
        return guessed(recorded.recording), dict(recorded.artifacts)
    storages, kept = describe(recorded.recording.storages, recorded.sources, backend)
    return _replace(recorded.recording, storages=storages), {**recorded.artifacts, **kept}


def exact_contents(gpu: Executor, recorded: Recorded) -> dict[int, bytes]:
    """All bytes that storages hold before the launches."""
    return {i: gpu.read(source.pristine) for i, source in enumerate(recorded.sources)}


def written_contents(gpu: Gpu, recording: Recording, tensors: Sequence[Any]) -> dict[int, bytes]:
    """All bytes of the storages that were written; ``tensors`` has one of each storage."""
    written = [i for i, storage in enumerate(recording.storages) if storage.written]
    return {i: gpu.read(gpu.borrow(tensors[i])) for i in written}


def texts_of(recorded: Recorded, index: int, jit: Any) -> DumpedTexts:
    """The kernel's source and the compiler's stages of a launch."""
    binary = recorded.recording.binary_of(recorded.recording.launches[index])
    compiled = recorded.compiled[binary.sha256, binary.ttir_sha256]
    return DumpedTexts(source_text(jit), stages_of(compiled), compiled.compiled_for)


def stages_of(compiled: Compiled) -> dict[str, str]:
    """The texts of a compilation: first stage and assembly, and what lies between where Triton's cache still has it."""
    assembly = "ptx" if compiled.binary.kind == "cubin" else "amdgcn"
    found = {first_stage_of(compiled.ttir): compiled.ttir, assembly: compiled.asm}
    try:
        by_stage = {name.rpartition(".")[2]: path for name, path in compiled.files().items()}
        between = {s: Path(by_stage[s]).read_text() for s in STAGES if s in by_stage and s not in found}
    except OSError:
        between = {}
    return {stage: text for stage in STAGES if (text := {**between, **found}.get(stage)) is not None}
