"""A compiling process: takes MLIR text, runs Triton's remaining stages, answers. It imports no torch or user code."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.device import Target
from kerntune.base.frames import Reader, send
from kerntune.base.orphans import end_with_parent
from kerntune.compiling.binary.identity import FIRST_STAGES
from kerntune.compiling.protocol import Answer, CompileFailed, Done, Hello, Job, facts_of
from kerntune.errors import PeerClosed
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.writes import access_of, ir_context, parse_module

MESSAGE = 4000
"""Characters of an exception's text that are sent: ptxas repeats whole kernels in some."""

NICE = 3
"""The parent comes first: it runs the front end, and first estimates of results while others are compiled."""


def main(memory_limit: int, knobs: str, folder: str, parent: int, inherited: int) -> None:
    """Serve jobs from standard input until it closes or process ``parent`` ends.

    ``knobs`` is JSON: ``[[group, name, value], ...]``; temporary files go to ``folder``; ``inherited`` bytes of address
    space, of the process that was forked, don't count.
    """
    inbox, outbox = _take_pipes()
    watch = end_with_parent(inbox, parent)
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    _limit(memory_limit + inherited if memory_limit else 0)
    import triton

    warnings.simplefilter("ignore")  # the parent's front end has warned
    for group, name, value in json.loads(knobs):
        setattr(getattr(triton.knobs, group), name, value)
    with contextlib.suppress(PeerClosed):
        send(outbox, Hello(triton.__version__, triton.__file__))
        _serve(Reader(inbox, Job), outbox, inherited)
    watch.join()


def _serve(jobs: Reader[Job], outbox: int, inherited: int) -> None:
    for job in jobs:
        answer = answer_to(job)
        if isinstance(answer, Done):
            answer = msgspec.structs.replace(answer, address_space=answer.address_space - inherited)
        sys.stdout.flush()
        sys.stderr.flush()
        send(outbox, answer)


def _take_pipes() -> tuple[int, int]:
    """The protocol's pipes, moved away from descriptors 0 and 1, which LLVM and Triton print to."""
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbox, outbox


def _limit(memory: int) -> None:
    """Bound the address space of this process and of each ptxas; write no core dumps; be the first choice of the OOM
    killer and the last of the scheduler."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def answer_to(job: Job) -> Answer:
    """Compile a job; an exception is answered with its text."""
    try:
        return _compile(job)
    except (Exception, SystemExit) as exc:
        text = str(exc).strip()
        reason = f"{type(exc).__name__}: {text[:MESSAGE]}" if text else type(exc).__name__
        return CompileFailed(reason, passing=isinstance(exc, OSError))


def _compile(job: Job) -> Answer:
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    backend = make_backend(GPUTarget(job.backend, job.arch, job.warp_size))
    options = options_from(backend, job.options)
    if options.hash() != job.options_hash:
        return CompileFailed("its compile options don't survive the way to another process", refused=True)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language[job.language])
    metadata = json.loads(job.metadata)
    context = ir_context(backend)
    module = parse_module(job.ir, context)
    module.context = context
    access = access_of(job.ir, module=module) if job.ext == "ttir" else None  # before a stage changes the module
    made: dict[str, bytes] = {}
    times: list[tuple[str, int]] = []
    for name, stage in triton_compiler.stages_after(stages, job.ext):
        start = time.perf_counter()
        module = stage(module, metadata)
        times.append((name, int((time.perf_counter() - start) * 1e6)))
        made[name] = module if isinstance(module, bytes) else str(module).encode()
    del context  # lives as long as the modules do
    texts = {job.ext: job.ir.encode(), **made}
    target = Target(job.backend, str(job.arch), job.warp_size)
    facts = facts_of(target, texts, access) if job.ext in FIRST_STAGES else None
    return Done(made, json.dumps(metadata, default=vars).encode(), times, address_space(), facts)


def options_from(backend: Any, fields: dict[str, Any]) -> Any:
    """A backend's option object from its fields, sequences as tuples (as the backends write them)."""
    kind = type(backend.parse_options({"enable_fp_fusion": True}))
    known = kind.__dataclass_fields__
    return kind(**{k: _tuples(v) for k, v in fields.items() if k in known})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def address_space() -> int:
    """Bytes of this process's; 0 where it may not look, in what a sealed process has started."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except PermissionError:
        return 0
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], os.getppid(), 0)
