"""Compiles a recording's stored TTIR with today's compiler: the same kernels, however their source has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
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


def recompiled(
    farm: Farm, recording: Recording, artifacts: Artifacts, now: Recording | None = None
) -> tuple[Recording, dict[str, bytes]]:
    """The recording with every binary made anew from its TTIR, and the new binaries by checksum.

    ``now`` is today's recording of the same call: the only place from which options come that no file may set.
    :class:`ReplayError` where a TTIR is not stored, where such an option differs, and where today's compiler refuses
    the TTIR or crashes.
    """
    own = _own_options(recording, now)
    made = [
        _recompiled(farm, recording, binary, artifacts, own.get(index, {}))
        for index, binary in enumerate(recording.binaries)
    ]
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


def _own_options(before: Recording, now: Recording | None) -> dict[int, Mapping[str, Any]]:
    """The options of today's launch of the same kernel at the same place, by the number of the stored binary."""
    pairs = zip(before.launches, now.launches, strict=False) if now is not None else ()
    return {a.binary: now.binary_of(b).options for a, b in pairs if now is not None and a.kernel == b.kernel}


def _recompiled(
    farm: Farm, recording: Recording, binary: Binary, artifacts: Artifacts, own: Mapping[str, Any]
) -> tuple[Binary, bytes]:
    if binary.ttir_sha256 not in artifacts:
        raise ReplayError(f"kernel {binary.symbol}: its TTIR {binary.ttir_sha256[:12]} is not stored here")
    ttir = text_of(artifacts[binary.ttir_sha256], binary.symbol)
    job = _job(recording.target, _options(binary), ttir, binary.symbol, own)
    return _described(recording, binary, job, _done(farm, job, binary.symbol))


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
    return _done(farm, _job(target, options, text_of(ttir, kernel), kernel, own), kernel).stages


def text_of(ttir: bytes, kernel: str) -> str:
    """A stored TTIR as text; :class:`ReplayError` for what is none."""
    try:
        return ttir.decode()
    except UnicodeDecodeError as exc:
        raise ReplayError(f"kernel {kernel}: its TTIR is no text in UTF-8 ({exc.reason} at byte {exc.start})") from None


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


def _job(target: Target, stored: Mapping[str, Any], ttir: str, kernel: str, own: Mapping[str, Any]) -> Job:
    """The only way from stored code to a compiler: nothing of ``stored`` goes on that no file may set."""
    if compat.includes_files(target.backend, ttir):
        raise ReplayError(f"kernel {kernel}: its TTIR has assembler directives, which no stored code may have")
    wanted = compat.gpu_target(target.backend, target.triton_arch, target.warp_size)
    backend = compat.make_backend(wanted)
    todays = {**vars(backend.parse_options({})), **own}
    given, problems = compat.checked_options(target.backend, stored, todays)
    if problems:
        raise ReplayError(f"kernel {kernel}: its stored code isn't compiled: {'; '.join(problems)}")
    try:
        options = backend.parse_options(given)
    except (ValueError, AssertionError) as exc:  # options that don't fit each other, or the target
        raise ReplayError(f"kernel {kernel}: Triton {compat.triton_version()} refuses its options: {exc}") from exc
    metadata = {"hash": "", "target": wanted, **vars(options), "triton_version": compat.triton_version()}
    stage = first_stage_of(ttir)
    return job_of(ttir, stage, compat.language_of(stage), wanted, options, metadata)


def _options(binary: Binary) -> dict[str, Any]:
    """As it was launched: where warps are specialized, ``binary.num_warps`` counts those of all partitions."""
    return {"num_warps": binary.num_warps, "num_ctas": binary.num_ctas, **binary.options}


def _described(recording: Recording, old: Binary, job: Job, done: Done) -> tuple[Binary, bytes]:
    asm_stage, binary_stage = ASSEMBLY[job.backend]
    asm, data, metadata = done.stages[asm_stage].decode(), done.stages[binary_stage], json.loads(done.metadata)
    bare, settings = bare_text(asm, asm_stage), compat.compiler_settings(job.backend)
    fields = code_fields(recording.target, asm, bare, data, metadata, old.options, settings)
    return msgspec.structs.replace(old, unreplayable="", **fields), data
