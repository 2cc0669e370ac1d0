"""Triton's own disk cache: what the farm compiles is found there by Triton, and the other way round."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerntune.farm.frontend import Lowered, Request
from kerntune.farm.protocol import Done


@dataclass(frozen=True)
class Stored:
    """A kernel in Triton's cache: ``triton``'s ``CompiledKernel`` and the paths of its files by name."""

    kernel: Any
    group: dict[str, str]


def is_stored(request: Request) -> bool:
    """Whether ``triton.compile`` would find this kernel in its cache, and may use it."""
    from triton import knobs

    return not knobs.compilation.always_compile and bool(_manager(request).get_group(f"{request.file_name}.json"))


def store(lowered: Lowered, done: Done) -> Stored:
    """Put a kernel where ``triton.compile`` looks for it, file by file as ``triton.compile`` does."""
    from triton.compiler import CompiledKernel

    request, manager = lowered.request, _manager(lowered.request)
    name = request.file_name
    files: dict[str, Any] = {f"{name}.source": lowered.source_text, f"{name}.{request.source.ext}": lowered.job.ir}
    for stage, data in done.stages.items():
        files[f"{name}.{stage}"] = data if stage == request.backend.binary_ext else data.decode()
    metadata = {**json.loads(done.metadata), "hash": request.hash}
    files[f"{name}.json"] = json.dumps(metadata)
    group = {file: manager.put(data, file, binary=isinstance(data, bytes)) for file, data in files.items()}
    manager.put_group(f"{name}.json", group)
    return Stored(CompiledKernel(request.source, group, request.hash), group)


def done_again(stored: dict[str, str], lowered: Lowered) -> Done | None:
    """The answer that the files of an equal job amount to; None if they are gone."""
    name, stages, metadata = lowered.request.file_name, {}, b""
    try:
        for file, path in stored.items():
            stage = file[len(name) + 1 :]
            if stage == "json":
                metadata = Path(path).read_bytes()
            elif stage not in ("source", lowered.job.ext):
                stages[stage] = Path(path).read_bytes()
    except OSError:
        return None
    return Done(stages, metadata, [])


def _manager(request: Request) -> Any:
    from triton.runtime.cache import get_cache_manager

    return get_cache_manager(request.hash)
