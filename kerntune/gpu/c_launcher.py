"""A compiled kernel as C source: a header, and a launcher that has the binary and computes the grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kerntune.base.recording import Binary, Launch, Param
from kerntune.errors import UsageError
from kerntune.gpu.replay_script import NON_PORTABLE_CLUSTER, STATIC_SHARED_LIMIT
from kerntune.grids import Grid
from kerntune.grids.expr import C_HELPERS
from kerntune.grids.grid import GRID_ARGUMENTS

C_TYPES = {
    "i1": "int8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u1": "uint8_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "fp16": "uint16_t", "bf16": "uint16_t", "fp32": "float", "f32": "float", "fp64": "double",
}  # fmt: skip
"""Types of parameters; 16-bit floats are passed as their bits."""

_WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while class new
delete this template kernel stream grid config attributes params code count x y z most own device no_scratch"""

C_WORDS = frozenset(_WORDS.split())
"""Names that a parameter can't have in C or C++, or that the launcher uses itself."""

BYTES_A_LINE = 20


class CParameter(NamedTuple):
    """A parameter of the launcher: its ``name`` and ``type`` in C, and what must divide it (1: nothing)."""

    name: str
    type: str
    note: str = ""
    divisible: int = 1

    @property
    def declared(self) -> str:
        """``int32_t n``."""
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class CKernel:
    """What is exported: a launch, its binary with its bytes, and its grid with every constant bound.

    ``divisible`` has, by parameter, what the compiler took for granted: 16 of an aligned pointer or a size. ``fixed``
    are the values of arguments that are part of the binary, ``notes`` lines for the header.
    """

    name: str
    launch: Launch
    binary: Binary
    data: bytes
    grid: Grid
    divisible: Mapping[str, int]
    fixed: Mapping[str, str]
    notes: Sequence[str] = ()
    cpp: bool = False

    def __post_init__(self) -> None:
        if self.binary.kind != "cubin":
            raise UsageError(f"kernel {self.name}: only NVIDIA's binaries can be exported, not {self.binary.kind}")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name) or self.name in C_WORDS:
            raise UsageError(f"{self.name!r} can't name a function in C; give another one")
        known = {p.name for p in self.launch.params if p.type in C_TYPES and not _is_float(p)} | {*GRID_ARGUMENTS}
        if missing := sorted(self.grid.names - known):
            raise UsageError(f"kernel {self.name}: the grid needs {', '.join(missing)}, which is no integer argument")

    @property
    def parameters(self) -> list[CParameter]:
        """Those of the binary, in its order; scratch memory last."""
        names = c_names([p.name for p in self.launch.params])
        found = [self._parameter(p, n) for p, n in zip(self.launch.params, names, strict=True)]
        for kind in ("global", "profile"):
            scratch = getattr(self.binary, f"{kind}_scratch")
            if scratch.size:
                note = f"{scratch.size} bytes for each block of the grid, all zeros"
                found.append(CParameter(f"{kind}_scratch", "CUdeviceptr", note, scratch.align))
        return found

    @property
    def grid_parameters(self) -> list[CParameter]:
        """The grid's axes, where they are arguments of the launcher."""
        return [CParameter(name, "uint32_t") for name in GRID_ARGUMENTS if name in self.grid.names]

    def _parameter(self, param: Param, name: str) -> CParameter:
        divisor = self.divisible.get(param.name, 1)
        note = f"divisible by {divisor}" if divisor > 1 else ""
        if param.tensor_map is not None:
            spec = param.tensor_map
            box = "x".join(map(str, spec.block))
            note = f"tensor map: box {box}, swizzle {spec.swizzle}, element type {spec.elem_type}"
            return CParameter(name, "const CUtensorMap *", note)
        if param.type.startswith("*"):
            return CParameter(name, "CUdeviceptr", ", ".join(filter(None, [param.type, note])), divisor)
        if param.type not in C_TYPES:
            raise UsageError(f"kernel {self.name}: parameter {param.name} has type {param.type}, which C can't pass")
        bits = f"bits of {param.type}" if param.type in ("fp16", "bf16") else ""
        return CParameter(name, C_TYPES[param.type], ", ".join(filter(None, [bits, note])), divisor)

    @property
    def axes(self) -> tuple[str, str, str]:
        """The grid's expressions, in the launcher's names."""
        spelling = dict(zip([p.name for p in self.launch.params], [p.name for p in self.parameters], strict=False))
        return self.grid.to_cpp(spelling) if self.cpp else self.grid.to_c(spelling)


def c_names(names: Sequence[str]) -> list[str]:
    """Distinct identifiers for parameters such as ``x.shape[0]``."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "p"
        plain = f"p_{plain}" if plain[0].isdigit() else f"{plain}_" if plain in C_WORDS else plain
        while plain in found:
            plain += "_"
        found.append(plain)
    return found


def header(kernel: CKernel) -> str:
    """``NAME.h``."""
    name, guard = kernel.name, f"{kernel.name.upper()}_H"
    notes = [*kernel.notes]
    if kernel.fixed:
        notes.append(f"In the binary: {', '.join(f'{n}: {t}' for n, t in kernel.fixed.items())}.")
    checks = [f"{p.name}: {p.note}" for p in kernel.parameters if p.note]
    return f"""\
/* {kernel.launch.kernel} for {kernel.binary.arch}, compiled by Triton {kernel.binary.triton}.
{_indented(3, notes)}\
   Link with -lcuda. The context that is current at {name}_load must be current at each launch. */
#ifndef {guard}
#define {guard}
#include <cuda.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {{ CUmodule module; CUfunction function; }} {name}_handle;

/* Load the binary into the current context, and ask for its shared memory. */
CUresult {name}_load({name}_handle *kernel);
CUresult {name}_unload({name}_handle *kernel);

/* The number of blocks of a launch; CUDA_ERROR_INVALID_VALUE if no device can launch so many. */
CUresult {name}_grid(unsigned grid[3]{_declared(_sizes(kernel))});

/* Launch on a stream. CUDA_ERROR_INVALID_VALUE, and no launch, for arguments that the binary isn't for:
{_indented(3, checks)}   A grid of no blocks launches nothing. */
CUresult {name}_launch(const {name}_handle *kernel, CUstream stream{_declared(_arguments(kernel))});

#ifdef __cplusplus
}}
#endif
#endif
"""


def _indented(by: int, lines: Sequence[str]) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in lines)


def source(kernel: CKernel) -> str:
    """``NAME.c``, or ``NAME.cpp``."""
    parts = [f'#include "{kernel.name}.h"', *(["#include <algorithm>"] if kernel.cpp else []), ""]
    text = _grid(kernel)
    if "grid_max" in text or "grid_min" in text:
        used = [x for x in C_HELPERS.splitlines() if x.partition("(")[0].split()[-1] in text]
        parts += [*used, ""]
    return "\n".join([*parts, _bytes(kernel), _load(kernel), text, _launch(kernel)])


def _declared(parameters: Sequence[CParameter]) -> str:
    return "".join(f", {p.declared}" for p in parameters)


def _arguments(kernel: CKernel) -> list[CParameter]:
    return [*kernel.parameters, *kernel.grid_parameters]


def _sizes(kernel: CKernel) -> list[CParameter]:
    both = zip(kernel.launch.params, kernel.parameters, strict=False)
    return [*(c for p, c in both if p.name in kernel.grid.names), *kernel.grid_parameters]


def _bytes(kernel: CKernel) -> str:
    rows = [kernel.data[i : i + BYTES_A_LINE] for i in range(0, len(kernel.data), BYTES_A_LINE)]
    text = ",\n".join("  " + ",".join(map(str, row)) for row in rows)
    return f"static const unsigned char {kernel.name}_binary[] = {{\n{text}}};\n"


MORE_SHARED = """\
  int most = 0, own = 0;
  CUdevice device;
  if (code == CUDA_SUCCESS) code = cuCtxGetDevice(&device);
  if (code == CUDA_SUCCESS)
    code = cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  if (code == CUDA_SUCCESS) code = cuFuncGetAttribute(&own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function);
  if (code == CUDA_SUCCESS) code = cuFuncSetCacheConfig(kernel->function, CU_FUNC_CACHE_PREFER_SHARED);
  if (code == CUDA_SUCCESS)
    code = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - own);
"""
"""Asks for all shared memory that the device has for a block, as Triton does."""

WIDE_CLUSTERS = """\
  if (code == CUDA_SUCCESS)
    code = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
"""


def _load(kernel: CKernel) -> str:
    name, binary = kernel.name, kernel.binary
    more = MORE_SHARED if binary.shared > STATIC_SHARED_LIMIT else ""
    return f"""\
CUresult {name}_load({name}_handle *kernel) {{
  CUresult code = cuModuleLoadData(&kernel->module, {name}_binary);
  if (code != CUDA_SUCCESS) return code;
  code = cuModuleGetFunction(&kernel->function, kernel->module, "{binary.symbol}");
{more}{WIDE_CLUSTERS if binary.num_ctas == NON_PORTABLE_CLUSTER else ""}\
  if (code != CUDA_SUCCESS) cuModuleUnload(kernel->module);
  return code;
}}

CUresult {name}_unload({name}_handle *kernel) {{ return cuModuleUnload(kernel->module); }}
"""


def _grid(kernel: CKernel) -> str:
    x, y, z = kernel.axes
    widest = (2**31 - 1) // kernel.binary.num_ctas
    signed = [p.name for p in _sizes(kernel) if not p.type.startswith("u")]
    return f"""\
CUresult {kernel.name}_grid(unsigned grid[3]{_declared(_sizes(kernel))}) {{
{_indented(2, [f"if ({name} < 0) return CUDA_ERROR_INVALID_VALUE;" for name in signed])}\
  const int64_t x = {x}, y = {y}, z = {z};
  if (x > {widest} || y > 65535 || z > 65535) return CUDA_ERROR_INVALID_VALUE;
  grid[0] = (unsigned)x, grid[1] = (unsigned)y, grid[2] = (unsigned)z;
  return CUDA_SUCCESS;
}}
"""


def _launch(kernel: CKernel) -> str:
    name, binary, parameters = kernel.name, kernel.binary, kernel.parameters
    passed = [f"(void *){p.name}" if p.type.endswith("*") else f"&{p.name}" for p in parameters]
    passed += ["&no_scratch" for scratch in (binary.global_scratch, binary.profile_scratch) if not scratch.size]
    checked = [p for p in parameters if p.divisible > 1]
    before = [f"if ({p.name} % {p.divisible}) return CUDA_ERROR_INVALID_VALUE;" for p in checked]
    before += ["CUdeviceptr no_scratch = 0;"] if "&no_scratch" in passed else []
    attributes = _attributes(kernel)
    counted = ["config.attrs = attributes, config.numAttrs = count;"] if attributes else []
    return f"""\
CUresult {name}_launch(const {name}_handle *kernel, CUstream stream{_declared(_arguments(kernel))}) {{
  unsigned grid[3];
  CUresult code = {name}_grid(grid{"".join(f", {p.name}" for p in _sizes(kernel))});
  if (code != CUDA_SUCCESS || grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return code;
{_indented(2, before)}\
  void *params[] = {{{", ".join(passed)}}};
{_indented(2, attributes)}\
  CUlaunchConfig config = {_zeros(kernel)};
  config.gridDimX = grid[0]{f" * {binary.num_ctas}" if binary.num_ctas != 1 else ""};
  config.gridDimY = grid[1], config.gridDimZ = grid[2];
  config.blockDimX = {binary.num_warps * binary.warp_size}, config.blockDimY = 1, config.blockDimZ = 1;
  config.sharedMemBytes = {binary.shared}, config.hStream = stream;
{_indented(2, counted)}\
  return cuLaunchKernelEx(&config, kernel->function, params, NULL);
}}
"""


def _zeros(kernel: CKernel) -> str:
    return "{}" if kernel.cpp else "{0}"


def _attributes(kernel: CKernel) -> list[str]:
    """The launch attributes that Triton's own launcher sets."""
    wanted, binary = list[tuple[str, str]](), kernel.binary
    if binary.pdl:
        wanted.append(("PROGRAMMATIC_STREAM_SERIALIZATION", "programmaticStreamSerializationAllowed = 1"))
    if binary.cooperative:
        wanted.append(("COOPERATIVE", "cooperative = 1"))
    if binary.num_ctas != 1:
        wanted.append(("CLUSTER_DIMENSION", f"clusterDim.x = {binary.num_ctas}"))
        policy = "CLUSTER_SCHEDULING_POLICY_PREFERENCE"
        wanted.append((policy, "clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD"))
    if not wanted:
        return []
    count = len(wanted)
    lines = [f"CUlaunchAttribute attributes[{count}] = {_zeros(kernel)};", f"const unsigned count = {count};"]
    for i, (number, value) in enumerate(wanted):
        lines.append(f"attributes[{i}].id = CU_LAUNCH_ATTRIBUTE_{number};")
        if number == "CLUSTER_DIMENSION":
            lines.append(f"attributes[{i}].value.clusterDim.y = 1, attributes[{i}].value.clusterDim.z = 1;")
        lines.append(f"attributes[{i}].value.{value};")
    return lines


def _is_float(param: Param) -> bool:
    return C_TYPES.get(param.type) in ("float", "double") or param.type in ("fp16", "bf16")
