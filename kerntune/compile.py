"""Compiles specialized launches: code, metadata and what is known of it, for any target and without a GPU."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from kerntune import compat
from kerntune.binary.identity import code_identity, text_identity
from kerntune.errors import CompileError, TrialError
from kerntune.kernels.source import kernel_file
from kerntune.kernels.specialize import Specialized
from kerntune.kernels.writes import Access, access_of
from kerntune.recording import Binary, Scratch

ASSEMBLY: dict[str, tuple[Literal["ptx", "amdgcn"], Literal["cubin", "hsaco"]]] = {
    "cuda": ("ptx", "cubin"),
    "hip": ("amdgcn", "hsaco"),
}
"""Per backend: the last text stage and the binary stage of Triton's pipeline."""

COMPILE_THREADS = min(16, os.cpu_count() or 1)
"""Compilations at a time in one process: LLVM and ptxas release the interpreter lock."""


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel: what a recording says of it, and the bytes themselves."""

    binary: Binary
    data: bytes
    ttir: str
    asm: str
    access: Access
    metadata: Mapping[str, Any]


class Compiler:
    """Compiles each distinct specialization once in this process (Triton's own disk cache serves the next one).

    Keeps the kernels, whose ids are in the keys, but no launch: its arguments are the user's tensors.
    """

    def __init__(self) -> None:
        self._done: dict[str, Compiled | TrialError] = {}
        self._kernels: dict[int, Any] = {}
        self._lock = threading.Lock()

    def compile(self, launch: Specialized) -> Compiled:
        """The compiled kernel of a launch. Raises :class:`CompileError`, with the same text each time."""
        key = launch.key()
        with self._lock:
            found = self._done.get(key)
        if found is None:
            try:
                found = compile_one(launch)
            except TrialError as exc:
                found = type(exc)(str(exc))
            with self._lock:
                self._done[key] = found
                self._kernels[id(launch.jit)] = launch.jit
        if isinstance(found, TrialError):
            raise type(found)(str(found))  # a new one: a raised error holds the frames it went through
        return found

    def compile_all(self, launches: Sequence[Specialized]) -> None:
        """Compile ahead, several at a time, one target after the other; failures wait for :meth:`compile`.

        One target at a time, because Triton 3.6 makes wrong code when threads of one process compile for several.
        """
        for target in dict.fromkeys(launch.target for launch in launches):
            mine = {x.key(): x for x in launches if x.target == target}
            with ThreadPoolExecutor(COMPILE_THREADS) as pool:
                list(pool.map(self._quietly, mine.values()))

    def _quietly(self, launch: Specialized) -> None:
        try:
            self.compile(launch)
        except TrialError:
            return


def compile_one(launch: Specialized) -> Compiled:
    """Run Triton's compiler on one launch; :class:`CompileError` with the kernel, its file and the compiler's words."""
    import triton

    source = compat.source_of(launch.jit, launch.signature, launch.constexprs, launch.attrs)
    target = compat.gpu_target(launch.target.backend, launch.target.triton_arch, launch.target.warp_size)
    try:
        kernel = triton.compile(source, target=target, options=dict(vars(launch.options)))
    except Exception as exc:
        text = str(exc).strip() or type(exc).__name__
        raise CompileError(f"kernel {launch.name} ({kernel_file(launch.jit)}) for {launch.target}: {text}") from exc
    return _describe(launch, kernel)


def _describe(launch: Specialized, kernel: Any) -> Compiled:
    asm_stage, binary_stage = ASSEMBLY[launch.target.backend]
    asm, data, ttir = kernel.asm[asm_stage], kernel.asm[binary_stage], strip_locations(kernel.asm["ttir"])
    metadata = kernel.metadata._asdict()
    options = _options(launch.options)
    assembler = compat.assembler_version(launch.target.backend, launch.target.triton_arch)
    binary = Binary(
        kind=binary_stage,
        arch=_arch(launch, asm),
        symbol=metadata["name"],
        sha256=hashlib.sha256(data).hexdigest(),
        ttir_sha256=hashlib.sha256(ttir.encode()).hexdigest(),
        code=code_identity(asm, kind=asm_stage, options=options, assembler=assembler),
        text=text_identity(data),
        triton=compat.triton_version(),
        assembler=assembler,
        options=options,
        constexprs=launch.constexpr_texts(),
        num_warps=metadata["num_warps"],
        num_ctas=metadata.get("num_ctas", 1),
        warp_size=launch.target.warp_size,
        shared=metadata["shared"],
        tmem=metadata.get("tmem_size") or 0,
        cooperative=bool(metadata.get("launch_cooperative_grid")),
        pdl=bool(metadata.get("launch_pdl")),
        global_scratch=_scratch(metadata, "global"),
        profile_scratch=_scratch(metadata, "profile"),
    )
    return Compiled(binary, data, ttir, asm, access_of(ttir, launch.target), metadata)


def _arch(launch: Specialized, asm: str) -> str:
    match = re.search(r"^\.target\s+(\w+)", asm, re.M)
    return match[1] if match else launch.target.arch


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
"""Options that hold paths of this machine or repeat the target; libdevice's effect is in the assembly text."""


def strip_locations(ttir: str) -> str:
    """MLIR text without source locations: the same module, whatever file and line it came from."""
    lines = [line for line in ttir.splitlines() if not line.startswith("#loc")]
    return "\n".join(_without_loc(line) for line in lines) + "\n"


def _without_loc(line: str) -> str:
    out, at = [], 0
    for match in re.finditer(r"\s*\bloc\(", line):
        if match.start() < at:
            continue
        out.append(line[at : match.start()])
        at = _closing(line, match.end())
    return "".join(out) + line[at:]


def _closing(line: str, at: int) -> int:
    depth, quoted = 1, False
    while at < len(line) and depth:
        char = line[at]
        if char == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
        at += 1
    return at
