"""The parent's half of a compilation: from a launch to MLIR text, before anything that can crash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from kerntune import compat
from kerntune.farm.expect import Shape, tile_of
from kerntune.farm.protocol import Job
from kerntune.kernels.specialize import Specialized

FILE_NAME = 150
"""Characters of a kernel's name that Triton's cache keeps in file names (triton/compiler/compiler.py)."""


@dataclass(frozen=True)
class Request:
    """A launch as ``triton.compile`` sees it: source, target, options and the hash that its cache goes by."""

    launch: Specialized
    source: Any
    target: Any
    backend: Any
    options: Any
    env: dict[str, str]
    hash: str

    @property
    def file_name(self) -> str:
        """The stem of its files in Triton's cache."""
        return str(self.source.name[:FILE_NAME])


@dataclass(frozen=True)
class Lowered:
    """A request after the front end: the first module's text (Triton's ``.source``) and the job for a worker."""

    request: Request
    source_text: str
    job: Job

    @property
    def shape(self) -> Shape:
        """What its compile time is guessed from."""
        return shape_of(self.request.launch, len(self.job.ir))

    def identity(self) -> str:
        """Equal for jobs whose answers are equal: the same text, target and options."""
        job = self.job
        parts = (job.ir, job.ext, job.language, job.backend, str(job.arch), str(job.warp_size), job.options_hash)
        return hashlib.sha256("\0".join((*parts, repr(sorted(self.request.env.items())))).encode()).hexdigest()


def shape_of(launch: Specialized, length: int = 1) -> Shape:
    """What is known of a launch's compile time; ``length`` is that of its TTIR, once there is one."""
    values = [getattr(v, "value", v) for v in launch.constexprs.values()]
    return Shape(length, tile_of(values), getattr(launch.options, "num_stages", 1) or 1)


def request_of(launch: Specialized) -> Request:
    """The hash is made as ``triton.compile`` makes it for an ``ASTSource``, so each finds what the other has stored."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.runtime.cache import get_cache_key

    target = compat.gpu_target(launch.target.backend, launch.target.triton_arch, launch.target.warp_size)
    backend = compat.make_backend(target)
    source = compat.source_of(launch.jit, launch.signature, launch.constexprs, launch.attrs)
    options = backend.parse_options(dict(vars(launch.options)))
    env = get_cache_invalidating_env_vars()
    key = get_cache_key(source, backend, options, env_vars=env)
    return Request(launch, source, target, backend, options, env, hashlib.sha256(key.encode()).hexdigest())


def lower(request: Request) -> Lowered:
    """Run the kernel's Python through Triton's front end and its first stage. Raises what that raises."""
    from triton._C.libtriton import ir

    backend, options, source = request.backend, request.options, request.source
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(request.target, options, functions, modules, context)
    source_text = str(module)
    metadata = first_metadata(request)
    text = str(stages[source.ext](module, metadata))
    return Lowered(request, source_text, _job(request, text, metadata))


def first_metadata(request: Request) -> dict[str, Any]:
    """What ``triton.compile`` knows of a kernel before its stages have run."""
    import triton

    return {
        "hash": request.hash,
        "target": request.target,
        **vars(request.options),
        **request.env,
        "triton_version": triton.__version__,
    }


def _job(request: Request, text: str, metadata: dict[str, Any]) -> Job:
    target = request.target
    return Job(
        ir=text,
        ext=request.source.ext,
        language=request.source.language.name,
        backend=target.backend,
        arch=target.arch,
        warp_size=target.warp_size,
        options=dict(vars(request.options)),
        options_hash=request.options.hash(),
        metadata=json.dumps(metadata, default=vars).encode(),
    )


def why_in_process(launch: Specialized) -> str:
    """Why only this process can compile a launch: a setting that looks into the stages. Empty for nearly all."""
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
