"""The parent's half of a compilation: from a launch to MLIR text, before the stages that can crash.

The text and the launch's tile say which launches' other stages may take longest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kerntune.compiling.forking import may_fork, text_of_fork
from kerntune.compiling.protocol import Job
from kerntune.kernels.compat import triton_compiler
from kerntune.kernels.specialize import Specialized
from kerntune.kernels.writes import ir_context

_TENSOR = re.compile(r"tensor<((?:\d+x)+)")


@dataclass(frozen=True)
class Shape:
    """The sizes of a compilation that are known beforehand: TTIR characters, tile elements, pipeline stages, warps."""

    length: int
    tile: int
    stages: int
    warps: int = 4

    @property
    def cost(self) -> float:
        """How long it may take, for an order only: the logarithm of a product of powers of the four sizes.

        Least squares within each list of 277 compilations of the tuning suite (sm_90, Triton 3.6). What a thread holds
        decides: 8192 elements of a row take 2 s with one warp, 0.2 s with four.
        """
        sizes = (self.length, self.tile, self.stages, self.warps)
        length, tile, stages, warps = (math.log(max(size, 1)) for size in sizes)
        return 0.33 * length + 0.47 * tile + 0.33 * stages - 0.45 * warps


def tile_of(constants: list[object]) -> int:
    """Elements of a tile by the constants: the product of the block sizes among them (16 and more, powers of two).

    An estimate: a group size of 8 or a flag is left out, a padded row length counts as a block size.
    """
    sizes = [v for v in constants if isinstance(v, int) and not isinstance(v, bool)]
    return math.prod(v for v in sizes if 16 <= v <= 1 << 16 and v & (v - 1) == 0)


def elements_in(ir: str) -> int:
    """Elements of the distinct tensor shapes that a module's text names: the data that its programs work on."""
    return sum(math.prod(map(int, sizes[:-1].split("x"))) for sizes in set(_TENSOR.findall(ir)))


FILE_NAME = 150
"""Characters of a kernel's name that Triton's cache keeps in file names (triton/compiler/compiler.py)."""


@dataclass(frozen=True)
class CompileRequest:
    """The arguments of ``triton.compile`` for a launch: source, target and options."""

    launch: Specialized
    source: Any
    target: Any
    backend: Any
    options: Any
    env: dict[str, str]

    @cached_property
    def hash(self) -> str:
        """The key of Triton's cache, made as ``triton.compile`` makes it for an ``ASTSource``, so that each finds
        what the other has stored. The first one of a process waits for :func:`prepare_hashes`."""
        from triton.runtime.cache import get_cache_key

        prepare_hashes().result()
        key = get_cache_key(self.source, self.backend, self.options, env_vars=self.env)
        return hashlib.sha256(key.encode()).hexdigest()

    @property
    def file_name(self) -> str:
        """The stem of its files in Triton's cache."""
        return str(self.source.name[:FILE_NAME])


@dataclass(frozen=True)
class Lowered:
    """A request after the front end: the first module's text (Triton's ``.source``) and the job for a worker."""

    request: CompileRequest
    source_text: str
    job: Job

    @property
    def shape(self) -> Shape:
        """The sizes from which its compile time is estimated."""
        return shape_of(self.request.launch, self.job.ir)

    def identity(self) -> str:
        """Equal for jobs whose answers are equal: the same text, target and options."""
        job = self.job
        parts = (job.ir, job.ext, job.language, job.backend, str(job.arch), str(job.warp_size), job.options_hash)
        env = repr(sorted(self.request.env.items()))
        return hashlib.sha256("\0".join((*parts, env)).encode()).hexdigest()


def shape_of(launch: Specialized, ir: str = "") -> Shape:
    """The sizes that a launch's compile time depends on, from its TTIR once there is one, else from its constants."""
    values = [getattr(v, "value", v) for v in launch.constexprs.values()]
    stages, warps = (getattr(launch.options, name, None) or 1 for name in ("num_stages", "num_warps"))
    return Shape(max(len(ir), 1), elements_in(ir) or tile_of(values), stages, warps)


_hashing: Future[None] | None = None
_hashing_lock = threading.Lock()


def prepare_hashes() -> Future[None]:
    """Have Triton read its own files, which are part of every hash, in a thread: 0.3 to 0.5 s, once a process. The
    future is done when they are read.

    Where a fork may be made, it reads them: half a gigabyte is read in pieces of one megabyte, each of which waits
    twice for Python's lock, so that a thread of a process that tunes took 0.5 to 1 s.
    """
    global _hashing
    with _hashing_lock:
        if _hashing is None:
            _hashing = Future()
            threading.Thread(target=_read_triton, args=(_hashing,), name="kerntune-hash", daemon=True).start()
        return _hashing


def _forget_hashing() -> None:
    """In any fork: the thread that reads is the parent's."""
    global _hashing, _hashing_lock
    _hashing_lock = threading.Lock()
    if _hashing is not None and not _hashing.done():
        _hashing = None


os.register_at_fork(after_in_child=_forget_hashing)

HASH_SECONDS = 10.0
"""A fork that takes longer hangs; this process reads the files itself then."""


def _read_triton(done: Future[None]) -> None:
    try:
        if not triton_compiler.triton_key_is_known() and may_fork():
            triton_compiler.know_triton_key(text_of_fork(triton_compiler.triton_key, HASH_SECONDS))
        triton_compiler.triton_key()
    finally:  # the next access to a hash raises the error
        done.set_result(None)


def hashes_are_ready() -> bool:
    """Whether :attr:`Request.hash` can be had without waiting."""
    return prepare_hashes().done()


def request_of(launch: Specialized) -> CompileRequest:
    """The request for a launch."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    target = triton_compiler.gpu_target(launch.target)
    backend = triton_compiler.make_backend(target)
    source = triton_compiler.source_of(launch.jit, launch.signature, launch.constexprs, launch.attrs)
    options = backend.parse_options(dict(vars(launch.options)))
    return CompileRequest(launch, source, target, backend, options, get_cache_invalidating_env_vars())


def lower(request: CompileRequest) -> Lowered:
    """Run the kernel's Python through Triton's front end and its first stage, which for Gluon changes nothing. Raises
    what these raise."""
    import triton

    backend, options, source = request.backend, request.options, request.source
    context = ir_context(backend)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(request.target, options, functions, modules, context)
    source_text = str(module)
    # as in ``triton.compile`` before the stages run; the hash, which none reads, is added when the kernel is stored
    metadata = {"target": request.target, **vars(options), **request.env, "triton_version": triton.__version__}
    ext = triton_compiler.front_end_stage(source)
    text = str(stages[ext](module, metadata)) if ext in stages else source_text
    job = job_of(text, ext, source.language.name, request.target, options, metadata)
    return Lowered(request, source_text, job)


def job_of(ir: str, ext: str, language: str, target: Any, options: Any, metadata: dict[str, Any]) -> Job:
    """The job for a worker: MLIR text after stage ``ext``, Triton's target and option object, the metadata so far."""
    return Job(
        ir=ir,
        ext=ext,
        language=language,
        backend=target.backend,
        arch=target.arch,
        warp_size=target.warp_size,
        options=dict(vars(options)),
        options_hash=options.hash(),
        metadata=json.dumps(metadata, default=vars).encode(),
    )


def why_in_process(launch: Specialized) -> str:
    """Why only this process can compile a launch: a setting that inspects the stages. Empty for nearly all."""
    from triton import knobs

    for name in ("override", "dump_ir", "use_ir_loc", "store_binary_only"):
        if getattr(knobs.compilation, name, None):
            return f"triton.knobs.compilation.{name} is set"
    if getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None:
        return "triton.knobs.runtime.add_stages_inspection_hook is set"
    for name in ("ir_override", "instrumentation_mode"):
        if getattr(launch.options, name, None):
            return f"the compile option {name} is set"
    return ""
