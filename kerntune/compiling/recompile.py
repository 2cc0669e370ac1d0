"""Compiles a recording's stored TTIR with today's compiler: the same kernels, however their source has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from kerntune.base.device import Target
from kerntune.base.recording import Artifacts, Binary, Recording
from kerntune.compiling.binary.identity import bare_text
from kerntune.compiling.binary.stages import first_stage_of
from kerntune.compiling.compiler import code_fields
from kerntune.compiling.cost_estimate import Shape
from kerntune.compiling.farm import Farm, NotStarted
from kerntune.compiling.frontend import job_of
from kerntune.compiling.kernel_facts import ASSEMBLY
from kerntune.compiling.protocol import CompileFailed, Done, Job
from kerntune.compiling.worker_process import with_words
from kerntune.errors import ReplayError
from kerntune.kernels import compat


def recompiled(farm: Farm, recording: Recording, artifacts: Artifacts) -> tuple[Recording, dict[str, bytes]]:
    """The recording with every binary made anew from its TTIR, and the new binaries by checksum.

    :class:`ReplayError` where a TTIR is not stored, or today's compiler refuses it or crashes.
    """
    made = [_recompiled(farm, recording, binary, artifacts) for binary in recording.binaries]
    data = {binary.sha256: content for binary, content in made}
    return msgspec.structs.replace(recording, binaries=tuple(b for b, _ in made)), data


def under_todays_flags(before: Recording, now: Recording) -> Recording:
    """``before`` with the options that environment variables set as they are today, for recompiling it under them.

    Where an option of ``now``'s launches differs from today's environment, the caller has set it, and it stays.
    """
    target = now.target
    defaults = compat.default_options(compat.gpu_target(target.backend, target.triton_arch, target.warp_size))
    binaries = list(before.binaries)
    for old, new in zip(before.launches, now.launches, strict=False):
        options = now.binary_of(new).options
        todays = {n: options[n] for n in compat.SURROUNDING_OPTIONS if n in options and options[n] == defaults.get(n)}
        if old.kernel == new.kernel:
            binary = before.binary_of(old)
            binaries[old.binary] = msgspec.structs.replace(binary, options={**binary.options, **todays})
    return msgspec.structs.replace(before, binaries=tuple(binaries))


def _recompiled(farm: Farm, recording: Recording, binary: Binary, artifacts: Artifacts) -> tuple[Binary, bytes]:
    if binary.ttir_sha256 not in artifacts:
        raise ReplayError(f"kernel {binary.symbol}: its TTIR {binary.ttir_sha256[:12]} is not stored here")
    job = _job(recording.target, _options(binary), artifacts[binary.ttir_sha256].decode())
    return _described(recording, binary, job, _done(farm, job, binary.symbol))


def stages_from(farm: Farm, target: Target, ttir: str, options: Mapping[str, Any], kernel: str) -> Mapping[str, bytes]:
    """The output of each stage of today's compiler for a TTIR, by the stage's name, under these compile options; those
    that the backend doesn't have are ignored. :class:`ReplayError` where the compiler refuses the TTIR."""
    return _done(farm, _job(target, _readable(options), ttir), kernel).stages


def _done(farm: Farm, job: Job, kernel: str) -> Done:
    outcome = farm.submit(job, Shape(len(job.ir), 1, 1)).result()
    if isinstance(outcome, NotStarted):
        raise ReplayError(f"kernel {kernel}: its {job.ext.upper()} can't be compiled: {outcome.reason}")
    answer = outcome.answer
    if not isinstance(answer, Done):
        failed = isinstance(answer, CompileFailed)
        said = answer.reason if failed else f"the compiler died: {answer.reason}"
        why = with_words(said, outcome.output, last=not failed)
        raise ReplayError(f"kernel {kernel}: Triton {compat.triton_version()} refuses its {job.ext.upper()}: {why}")
    return answer


def _job(target: Target, given: Mapping[str, Any], ttir: str) -> Job:
    wanted = compat.gpu_target(target.backend, target.triton_arch, target.warp_size)
    options = compat.make_backend(wanted).parse_options(dict(given))
    metadata = {"hash": "", "target": wanted, **vars(options), "triton_version": compat.triton_version()}
    stage = first_stage_of(ttir)
    return job_of(ttir, stage, compat.language_of(stage), wanted, options, metadata)


def _options(binary: Binary) -> dict[str, Any]:
    """As it was launched: where warps are specialized, ``binary.num_warps`` counts those of all partitions."""
    return {"num_warps": binary.num_warps, "num_ctas": binary.num_ctas, **_readable(binary.options)}


def _readable(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a backend takes them, of those that a file holds: JSON has no tuples, and the target says what the
    architecture is. A backend ignores options that its Triton doesn't have."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in recorded.items() if k != "arch"}


def _described(recording: Recording, old: Binary, job: Job, done: Done) -> tuple[Binary, bytes]:
    asm_stage, binary_stage = ASSEMBLY[job.backend]
    asm, data, metadata = done.stages[asm_stage].decode(), done.stages[binary_stage], json.loads(done.metadata)
    bare, settings = bare_text(asm, asm_stage), compat.compiler_settings(job.backend)
    fields = code_fields(recording.target, asm, bare, data, metadata, old.options, settings)
    return msgspec.structs.replace(old, unreplayable="", **fields), data
