"""Figures of compiled kernels equal what the vendors' own tools say."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerntune.base.device import Target, typical_device
from kerntune.errors import StoreError, TargetError
from kerntune.static.disassembly import Disassembler, Listing, find_tool
from kerntune.static.instructions import amd_mnemonics, amd_resources
from kerntune.static.metrics import (
    DISASSEMBLER,
    BinaryInput,
    StaticMetrics,
    _check_target,
    _nvidia,
    _own_local_bytes,
    _slow_paths,
    metrics_of,
)

NVIDIA = ["cuda:80", "cuda:90", "cuda:100"]

CASES: list[tuple[str, dict[str, Any]]] = [
    ("add", {}),
    ("softmax", {"num_warps": 8}),
    ("softmax", {"num_warps": 1, "maxnreg": 64}),
    ("double", {"maxnreg": 40}),
    ("sine", {}),
    ("sine", {"num_warps": 2, "maxnreg": 32}),
    ("histogram", {}),
    ("printing", {}),
    ("printing", {"num_warps": 1, "maxnreg": 32}),
    ("calling", {"num_warps": 1, "maxnreg": 32}),
    ("matmul", {}),
    ("matmul", {"maxnreg": 64}),
    ("descriptor_matmul", {}),
]
POINTERS: list[tuple[str, dict[str, Any]]] = [
    ("add_whole", {"aligned": True}),
    ("add_whole", {}),
    ("add_half", {}),
]
SPILLING = {("softmax", 64), ("printing", 32), ("calling", 32)}

Compile = Callable[..., Any]


def metrics(binary: BinaryInput, where: str) -> StaticMetrics:
    return metrics_of([binary], typical_device(Target.parse(where)))[0]


@pytest.fixture(scope="module")
def listed(compiled: Compile) -> Callable[[str], None]:
    """Has one run of the disassembler list all kernels for an architecture: one takes as long as all."""

    @functools.cache
    def together(where: str) -> None:
        binaries = [compiled(name, where, **options).binary for name, options in CASES + POINTERS]
        metrics_of(binaries, typical_device(Target.parse(where)))

    return together


@pytest.fixture(params=[pytest.param(n, marks=() if n == "cuda:90" else pytest.mark.slow) for n in NVIDIA])
def where(request: pytest.FixtureRequest, listed: Callable[[str], None]) -> str:
    listed(request.param)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v))
def test_spills_registers_and_stack_equal_the_tools(
    name: str, options: dict[str, Any], where: str, compiled: Compile, tmp_path: Path
) -> None:
    binary, log = compiled(name, where, **options)
    found = metrics(binary, where)
    said = [sum(map(int, re.findall(rf"(\d+) bytes {what}", log))) for what in ("spill stores", "spill loads")]
    assert "spill stores" in log
    assert [found.spill_store_bytes, found.spill_load_bytes] == said
    path = tmp_path / "kernel.cubin"
    path.write_bytes(binary.data)
    command = [str(find_tool("cuobjdump")), "--dump-resource-usage", str(path)]
    usage = re.search(r"REG:(\d+) STACK:(\d+)", subprocess.run(command, capture_output=True, text=True).stdout)
    assert usage
    assert (found.registers, found.stack_bytes) == (int(usage[1]), int(usage[2]))
    if (name, options.get("maxnreg")) in SPILLING:
        assert found.spill_store_bytes > 0
        assert found.spill_load_bytes > 0


def test_a_stack_is_no_spill(where: str, compiled: Compile) -> None:
    found = metrics(compiled("printing", where).binary, where)
    assert found.stack_bytes > 0
    assert found.spill_store_bytes == found.spill_load_bytes == 0


def test_what_has_no_stack_frame_spills_nothing_and_is_not_disassembled(where: str, compiled: Compile) -> None:
    class Counting(Disassembler):
        texts = 0

        def listings(self, texts: Sequence[bytes], arch: str) -> list[Listing]:
            self.texts += len(texts)
            return DISASSEMBLER.listings(texts, arch)

    counting, spec = Counting(), typical_device(Target.parse(where))
    binaries = [compiled(name, where, **options).binary for name, options in CASES]
    cheap = metrics_of(binaries, spec, disassembler=counting, instructions=False)
    whole = metrics_of(binaries, spec)
    assert [msgspec.structs.replace(x, instructions={}) for x in cheap] == [
        msgspec.structs.replace(x, instructions={}) for x in whole
    ]
    framed = [i for i, x in enumerate(whole) if x.stack_bytes]
    assert len(SPILLING) <= len(framed) <= counting.texts < len(CASES)


def test_every_instruction_has_a_class(where: str, compiled: Compile) -> None:
    for name, options in CASES:
        found = metrics(compiled(name, where, **options).binary, where).instructions
        assert found.get("other", 0) <= 0.01 * found["total"], name


def test_fp64_is_seen_where_it_is(where: str, compiled: Compile) -> None:
    assert metrics(compiled("double", where, maxnreg=40).binary, where).instructions["fp64"] > 0
    assert "fp64" not in metrics(compiled("softmax", where, num_warps=8).binary, where).instructions


def test_tensor_cores_atomics_and_special_functions_are_seen(where: str, compiled: Compile) -> None:
    assert metrics(compiled("matmul", where).binary, where).instructions["tensor_core"] > 0
    assert metrics(compiled("histogram", where).binary, where).instructions["atomic"] > 0
    softmax = metrics(compiled("softmax", where, num_warps=8).binary, where).instructions
    assert softmax["mufu"] > 0
    assert softmax["barrier"] > 0
    assert softmax["shared_store"] > 0


def test_tensor_core_work_on_known_shapes(compiled: Compile) -> None:
    """64 x 64 x 32 a turn and warp group, or a sixteenth of it for each of sm_80's four warps' instructions."""
    for where in ("cuda:80", "cuda:90"):
        macs = metrics(compiled("matmul", where).binary, where).instructions["tensor_core_macs"]
        per_block = macs * (4 if where == "cuda:80" else 1)
        assert per_block % (64 * 64 * 32) == 0
        assert per_block > 0


@pytest.mark.slow
def test_descriptors_use_bulk_copies_where_there_are_any(compiled: Compile) -> None:
    found = {w: metrics(compiled("descriptor_matmul", w).binary, w).instructions for w in NVIDIA}
    assert "tma" not in found["cuda:80"]
    assert found["cuda:90"]["tma"] > 0
    assert found["cuda:100"]["tma"] > 0


def test_aligned_pointers_have_wide_loads(where: str, compiled: Compile) -> None:
    wide = metrics(compiled("add_whole", where, aligned=True).binary, where).instructions
    narrow = metrics(compiled("add_whole", where).binary, where).instructions
    assert wide["global_load"] == wide["global_load_128"] > 0
    assert wide["global_store"] == wide["global_store_128"] > 0
    assert narrow["global_load"] == narrow["global_load_32"] == 4 * wide["global_load"]
    half = metrics(compiled("add_half", where).binary, where).instructions
    assert half["global_load"] == half["global_load_16"]


@pytest.mark.slow
def test_shared_memory_over_the_limit_is_found(compiled: Compile) -> None:
    binary, _ = compiled("matmul_deep", "cuda:80", aligned=True, num_warps=8, num_stages=4)
    found = metrics(binary, "cuda:80")
    assert found.shared_bytes == binary.shared_bytes > 166912
    assert [v.resource for v in found.over_limit] == ["shared memory"]
    assert f"needs {binary.shared_bytes:,} bytes a block, the device has 166,912" in str(found.over_limit[0])
    assert (found.occupancy, found.occupancy_limiter) == (0, "shared memory")


def test_occupancy_is_of_this_kernel(compiled: Compile) -> None:
    found = metrics(compiled("matmul", "cuda:90").binary, "cuda:90")
    per_warp = -(-found.registers * 32 // 256) * 256
    assert found.occupancy_limiter == "registers"
    assert found.occupancy == 16384 // per_warp * 4 // 4 * 4 / 64


@pytest.mark.slow
def test_order_is_kept_in_a_mixed_batch(compiled: Compile) -> None:
    names = ["matmul", "add", "softmax", "histogram", "add"]
    binaries = [compiled(name, "cuda:90").binary for name in names]
    spec = typical_device(Target.parse("cuda:90"))
    together = metrics_of(binaries, spec, disassembler=Disassembler())
    assert together == [metrics_of([b], spec, disassembler=Disassembler())[0] for b in binaries]
    assert together[1] == together[4] != together[3]
    assert metrics_of([], spec) == []


@pytest.mark.parametrize("where", ["hip:gfx942", "hip:gfx1100"])
def test_amd(where: str, compiled: Compile) -> None:
    found = metrics(compiled("softmax", where, num_warps=8).binary, where)
    assert found.registers == found.vgprs
    assert found.vgprs is not None
    assert 0 < found.vgprs <= 512
    assert found.sgprs is not None
    assert found.sgprs > 0
    assert (found.vgpr_spills, found.spill_store_bytes, found.stack_bytes) == (0, 0, 0)
    assert found.occupancy is not None
    assert 0 < found.occupancy <= 1
    assert found.instructions["mufu"] > 0
    assert found.instructions["barrier"] > 0
    assert found.instructions["global_load"] > 0
    assert found.code_bytes > 0


def test_amd_tensor_cores_and_widths(compiled: Compile) -> None:
    matmul = metrics(compiled("matmul", "hip:gfx942").binary, "hip:gfx942").instructions
    assert matmul["tensor_core"] > 0
    assert matmul["tensor_core_macs"] * 4 % (64 * 64 * 32) == 0
    wide = metrics(compiled("add_whole", "hip:gfx942", aligned=True).binary, "hip:gfx942").instructions
    assert wide["global_load"] == wide["global_load_128"] > 0


@pytest.mark.slow
def test_amd_spills_are_found(compiled: Compile) -> None:
    found = metrics(compiled("add_huge", "hip:gfx1100", num_warps=1).binary, "hip:gfx1100")
    assert found.vgpr_spills is not None
    assert found.vgpr_spills > 0
    assert found.spill_store_bytes > 0
    assert found.stack_bytes > 0


def test_what_a_kernel_repeats_is_told(compiled: Compile) -> None:
    found = {name: metrics(compiled(name, "cuda:90").binary, "cuda:90").instructions for name in ("add", "histogram")}
    assert found["add"]["straight_line"] == 1
    assert "repeated_atomics" not in found["add"]
    assert found["histogram"]["repeated_atomics"] > 0


def test_a_sines_slow_path_is_told_apart(compiled: Compile) -> None:
    found = metrics(compiled("sine", "cuda:90").binary, "cuda:90").instructions
    assert found["fp64"] > 0
    assert found["slow_path"] >= 1
    assert found["slow_path_fp64"] == 1
    assert {type(n) for n in found.values()} == {int}  # a bool is no count: its baseline couldn't be read
    double = metrics(compiled("double", "cuda:90").binary, "cuda:90").instructions
    assert double["fp64"] > 0
    assert not {"slow_path", "slow_path_fp64"} & double.keys()


@pytest.mark.slow
def test_spills_within_loops_are_told_apart(compiled: Compile) -> None:
    straight = metrics(compiled("add_huge", "cuda:90", num_warps=1, maxnreg=64).binary, "cuda:90")
    assert straight.repeated_spill_bytes == straight.spill_store_bytes + straight.spill_load_bytes > 0
    looped = metrics(compiled("matmul", "cuda:90", maxnreg=64).binary, "cuda:90")
    assert isinstance(looped.repeated_spill_bytes, int)
    assert 0 < looped.repeated_spill_bytes < looped.spill_store_bytes + looped.spill_load_bytes


def test_another_devices_binary_is_refused(compiled: Compile) -> None:
    binary, _ = compiled("add", "cuda:80")
    with pytest.raises(TargetError, match="a cubin for sm_80 has no metrics on NVIDIA H100"):
        metrics(binary, "cuda:90")
    with pytest.raises(TargetError, match="MI300X"):
        metrics(binary, "hip:gfx942")


def test_a_damaged_binary_is_an_error(compiled: Compile) -> None:
    binary = compiled("add", "cuda:80").binary
    with pytest.raises(StoreError):
        metrics(msgspec.structs.replace(binary, data=binary.data[:500]), "cuda:80")


def test_metrics_survive_json(compiled: Compile) -> None:
    for where, name in (("cuda:90", "matmul"), ("cuda:90", "sine"), ("hip:gfx942", "add")):
        found = metrics(compiled(name, where).binary, where)
        assert msgspec.json.decode(msgspec.json.encode(found), type=StaticMetrics) == found


# figures out of amdgcn text


TEXT = """
	.text
kernel:                                 ; @kernel
	.loc	1 2 3                           ; file.py:2:3
	s_load_dwordx2 s[2:3], s[0:1], 0x0
	s_waitcnt lgkmcnt(0)
	global_load_dwordx4 v[0:3], v0, s[2:3]  ; global_load_dword in a comment
	v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]
	v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]
	s_endpgm
; codeLenInByte = 52
; Occupancy: 6
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
    .private_segment_fixed_size: 16
    .sgpr_count:     45
    .sgpr_spill_count: 2
    .vgpr_count:     78
    .vgpr_spill_count: 3
"""


def test_resources() -> None:
    found = amd_resources(TEXT)
    assert (found.vgprs, found.agprs, found.sgprs, found.private_bytes) == (78, 4, 45, 16)
    assert (found.vgpr_spills, found.sgpr_spills) == (3, 2)
    assert (found.waves_per_simd, found.code_bytes) == (6, 52)


def test_a_kernel_s_figures_come_after_those_of_what_it_calls() -> None:
    called = TEXT.replace("Occupancy: 6", "Occupancy: 9").replace("codeLenInByte = 52", "codeLenInByte = 8")
    found = amd_resources(called + TEXT)
    assert (found.waves_per_simd, found.code_bytes) == (6, 52)


def test_text_without_comments_has_no_occupancy() -> None:
    found = amd_resources("\n".join(line for line in TEXT.splitlines() if not line.startswith(";")))
    assert found.waves_per_simd is None
    assert found.code_bytes is None


def test_gpus_without_accumulators() -> None:
    assert amd_resources(TEXT.replace(".agpr_count:     4", ".args:")).agprs == 0


def test_text_without_metadata_is_an_error() -> None:
    with pytest.raises(StoreError, match=r"no \.vgpr_count in its metadata"):
        amd_resources("s_endpgm")


def test_mnemonics_leave_comments_and_directives_out() -> None:
    assert amd_mnemonics(TEXT) == {
        "s_load_dwordx2": 1,
        "s_waitcnt": 1,
        "global_load_dwordx4": 1,
        "v_mfma_f32_16x16x16_f16": 2,
        "s_endpgm": 1,
    }


@pytest.mark.parametrize(
    ("ptx", "nbytes"),
    [("", 0), (".local .align 8 .b8 \t__local_depot0[24];", 24), (".shared .b8 x[9];", 0),
     ("  .local .align 4 .b8 a[4];\n.local .align 4 .b8 b[12];\n .local .b8 c[8];", 12)],
)  # fmt: skip
def test_local_arrays_that_a_text_declares(ptx: str, nbytes: int) -> None:
    assert _own_local_bytes(ptx) == nbytes


PRODUCT = "mul.f64 %fd1, %fd2, 0d3BF921FB54442D19;"


@pytest.mark.parametrize(
    ("ptx", "paths"),
    [
        ("", {}),
        (PRODUCT, {"slow_path": 1, "slow_path_fp64": 1}),
        (f"@%p1 {PRODUCT}\n{PRODUCT}", {"slow_path": 2, "slow_path_fp64": 1}),
        (f"{PRODUCT}\nadd.f64 %fd1, %fd2, %fd3;", {"slow_path": 1}),
        (f"{PRODUCT}\n\t@!%p2 fma.rn.f64 %fd1, %fd2, %fd3, %fd4;", {"slow_path": 1}),
        (f"{PRODUCT}\nld.global.f64 %fd1, [%rd1];", {"slow_path": 1, "slow_path_fp64": 1}),
        ("add.f64 %fd1, %fd2, %fd3;", {}),
    ],
)
def test_slow_paths_of_a_text(ptx: str, paths: dict[str, int]) -> None:
    assert _slow_paths(ptx) == paths


@pytest.mark.parametrize(
    ("kind", "arch", "where", "fits"),
    [("cubin", "sm_90a", "cuda:90", True), ("cubin", "sm_90", "cuda:90", True), ("cubin", "sm_80", "cuda:90", False),
     ("hsaco", "gfx942", "hip:gfx942", True), ("hsaco", "gfx950", "hip:gfx942", False),
     ("hsaco", "sm_90", "cuda:90", False), ("cubin", "gfx942", "hip:gfx942", False)],
)  # fmt: skip
def test_a_binary_is_of_its_device(kind: Any, arch: str, where: str, fits: bool) -> None:
    binary, spec = BinaryInput(kind, b"", "", 0, 4, arch), typical_device(Target.parse(where))
    if fits:
        _check_target(binary, spec)
        return
    with pytest.raises(TargetError, match=f"^a {kind} for {arch} has no metrics on {re.escape(spec.name)} "):
        _check_target(binary, spec)


def test_what_figures_of_an_amd_kernel_are_read_from() -> None:
    text = TEXT.replace("s_endpgm", "scratch_store_dwordx2 off, v[0:1]\n\tscratch_load_dword v0, off\n\ts_endpgm")
    found = metrics(BinaryInput("hsaco", b"", text, 1024, 4, "gfx942"), "hip:gfx942")
    assert (found.registers, found.vgprs, found.agprs, found.sgprs) == (78, 78, 4, 45)
    assert (found.spill_store_bytes, found.spill_load_bytes, found.spill_bytes) == (8, 4, 12)
    assert (found.stack_bytes, found.shared_bytes, found.threads, found.code_bytes) == (16, 1024, 256, 52)
    assert (found.vgpr_spills, found.sgpr_spills) == (3, 2)
    assert (found.occupancy, found.occupancy_limiter, found.over_limit) == (0.75, "registers", ())
    assert (found.repeated_spill_bytes, found.product_loops) == (msgspec.UNSET, msgspec.UNSET)
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("; Occ"))
    found = metrics(BinaryInput("hsaco", b"", bare, 1 << 20, 4, "gfx942"), "hip:gfx942")
    assert (found.occupancy, found.occupancy_limiter) == (None, "")
    assert [v.resource for v in found.over_limit] == ["shared memory"]
    assert BinaryInput("cubin", b"", "", 0, 4, "sm_90").tensor_memory_columns == 0


@pytest.mark.parametrize(("taken", "counted"), [(False, (4, 8, 4)), (True, (0, 8, 0))])
def test_only_a_frame_whose_address_is_taken_begins_with_the_kernels_own_arrays(
    taken: bool, counted: tuple[int, int, int], compiled: Callable[..., Any]
) -> None:
    binary, _ = compiled("add", "cuda:90")
    listing = Listing({}, {("STL", 0): 1, ("LDL", 8): 2}, taken, {("STL", 0): 1})
    own = msgspec.structs.replace(binary, asm="\t.local .align 8 .b8 depot[8];\n")
    found = _nvidia(own, typical_device(Target.parse("cuda:90")), listing)
    assert (found.spill_store_bytes, found.spill_load_bytes, found.repeated_spill_bytes) == counted
