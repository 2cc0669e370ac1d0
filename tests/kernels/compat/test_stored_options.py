"""Options that a file gives: each of Triton 3.6 to 3.9 is allowed with its values, or refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kerntune.base.device import Target
from kerntune.kernels.compat import triton_compiler, versions
from kerntune.kernels.compat.stored_options import ALLOWED, OF_TARGET, REFUSED, checked_options, includes_files

BOTH_36 = [
    "allowed_dot_input_precisions", "arch", "backend_name", "debug", "default_dot_input_precision",
    "deprecated_fp8_dot_operand_dtypes", "enable_fp_fusion", "extern_libs", "instrumentation_mode",
    "launch_cooperative_grid", "max_num_imprecise_acc_default", "num_ctas", "num_stages", "num_warps",
    "sanitize_overflow", "supported_fp8_dtypes",
]  # fmt: skip
CUDA_36 = ["enable_reflect_ftz", "ir_override", "launch_pdl", "maxnreg", "ptx_options", "ptx_version", "warp_size"]
HIP_36 = ["allow_flush_denorm", "kpack", "matrix_instr_nonkdim", "schedule_hint", "waves_per_eu"]

OF_VERSIONS = {
    ("3.6.0", "cuda"): [*BOTH_36, *CUDA_36],
    ("3.7.0", "cuda"): [*BOTH_36, *CUDA_36],
    ("3.8.0", "cuda"): [*BOTH_36, *CUDA_36],
    ("3.9.0", "cuda"): [*BOTH_36, *CUDA_36, "clc", "fpsan_homomorphic_casts", "min_shared_mem", "sched4reg"],
    ("3.6.0", "hip"): [*BOTH_36, *HIP_36],
    ("3.7.0", "hip"): [*BOTH_36, *HIP_36],
    ("3.8.0", "hip"): [*BOTH_36, *HIP_36, "llvm_fn_attrs"],
    ("3.9.0", "hip"): [*BOTH_36, *HIP_36, "fpsan_homomorphic_casts", "llvm_fn_attrs", "wgp_cu_mode"],
}
"""The fields of ``CUDAOptions`` and ``HIPOptions``, as the wheels of Triton have them."""

TARGETS = [Target.parse(text) for text in ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950", "hip:gfx1100")]


def defaults(target: Target) -> dict[str, Any]:
    return triton_compiler.default_options(target)


@pytest.mark.parametrize(("version", "backend"), OF_VERSIONS)
def test_each_option_is_allowed_or_refused(version: str, backend: str) -> None:
    for name in OF_VERSIONS[version, backend]:
        told = [name in ALLOWED[backend], name in REFUSED[backend], name in OF_TARGET]
        assert sum(told) == 1, name


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_the_table_is_that_of_the_triton_here(target: Target) -> None:
    known = OF_VERSIONS.get((versions.triton_version(), target.backend))
    here = set(defaults(target)) - {"base_arch", "warp_size"}  # HIP's own, which are no fields
    assert known is None or here == set(known) - {"warp_size"}
    assert here <= {*ALLOWED[target.backend], *REFUSED[target.backend], *OF_TARGET}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_triton_s_defaults_pass(target: Target) -> None:
    found, problems = checked_options(target.backend, defaults(target), defaults(target))
    assert not problems
    todays = {name: value for name, value in defaults(target).items() if name not in OF_TARGET and value}
    assert {name: value for name, value in found.items() if value} == todays


REFUSED_VALUES: list[tuple[str, str, Any]] = [
    ("cuda", "ptx_options", "--compiler-stats-file=/home/user/.bashrc"),
    ("cuda", "ptx_options", "-optf /etc/passwd"),
    ("cuda", "ptx_options", ["--opt-level", "0"]),
    ("cuda", "ir_override", "/tmp/their.ptx"),
    ("cuda", "extern_libs", [["libdevice", "/tmp/their.bc"]]),
    ("cuda", "extern_libs", {"libdevice": "/tmp/their.bc"}),
    ("cuda", "instrumentation_mode", "gsan"),
    ("cuda", "num_warps", 3),
    ("cuda", "num_warps", 1 << 40),
    ("cuda", "num_warps", True),
    ("cuda", "num_warps", "many"),
    ("cuda", "num_stages", -1),
    ("cuda", "num_ctas", 10**30),
    ("cuda", "maxnreg", 1e300),
    ("cuda", "ptx_version", "8.0\n.target sm_80"),
    ("cuda", "enable_fp_fusion", "yes"),
    ("cuda", "allowed_dot_input_precisions", ["tf32", "--x"]),
    ("cuda", "supported_fp8_dtypes", ["fp8e5"] * 1000),
    ("hip", "llvm_fn_attrs", "target-features=+x"),
    ("hip", "extern_libs", [["ocml", "/tmp/their.bc"]]),
    ("hip", "schedule_hint", "attention,other"),
    ("hip", "wgp_cu_mode", "other"),
    ("hip", "warp_size", 16),
]


@pytest.mark.parametrize(("backend", "name", "value"), REFUSED_VALUES, ids=str)
def test_no_other_value_of_a_file_reaches_a_compiler(backend: str, name: str, value: Any) -> None:
    target = next(t for t in TARGETS if t.backend == backend)
    found, problems = checked_options(backend, {name: value}, defaults(target))
    assert name not in found
    assert len(problems) == 1
    assert problems[0].startswith(f"{name} ")
    assert str(value) not in problems[0], "what it says isn't repeated"


@pytest.mark.parametrize("lanes", [32, 64])
def test_amds_warps_have_either_size(lanes: int) -> None:
    own = {**defaults(next(t for t in TARGETS if t.backend == "hip")), "warp_size": 128}
    assert checked_options("hip", {"warp_size": lanes}, own) == ({"warp_size": lanes}, ())


@pytest.mark.parametrize(("backend", "name", "value"), REFUSED_VALUES, ids=str)
def test_a_bad_value_is_told_by_a_triton_that_lacks_the_option(backend: str, name: str, value: Any) -> None:
    """Whether a file is sound doesn't depend on the version that reads it."""
    found, problems = checked_options(backend, {name: value}, {})
    assert name not in found
    assert [problem.split()[0] for problem in problems] == [name]


def test_what_todays_own_launch_says_is_taken_from_there() -> None:
    own = {**defaults(TARGETS[1]), "ptx_options": "--opt-level 0", "extern_libs": (("libdevice", "/here/it.bc"),)}
    stored = {"ptx_options": "--opt-level 0", "extern_libs": [["libdevice", "/elsewhere/it.bc"]]}
    found, problems = checked_options("cuda", stored, own)
    assert not problems
    assert found == {name: own[name] for name in stored}


def test_what_this_triton_does_not_have_is_left_out() -> None:
    """A constant of the kernel is none of its options. A sound value of another version's option does no harm."""
    assert checked_options("cuda", {"BLOCK": 64, "clc": False}, {}) == ({"clc": False}, ())
    assert checked_options("cuda", {"BLOCK": 64}, defaults(TARGETS[1])) == ({}, ())
    assert checked_options("cuda", {"arch": "sm_80", "maxnreg": None}, defaults(TARGETS[1])) == ({}, ())


def test_an_option_of_a_later_triton_is_not_taken_from_a_file() -> None:
    found, problems = checked_options("cuda", {"later": "x"}, {"later": "y"})
    assert not found
    assert problems == ("later (an option that this kerntune doesn't know) differs from today's, and is never taken "
                        "from a file",)  # fmt: skip
    assert checked_options("cuda", {"later": "y"}, {"later": "y"}) == ({"later": "y"}, ())


ASM = 'tt.elementwise_inline_asm "{}" {{constraints = "=v,v"}} %x : i32 -> i32'


@pytest.mark.parametrize("text", [
    ".incbin \\22/etc/passwd\\22", ".INCLUDE \\22x\\22", "\\2Eincbin", "nop\\0A .include", "/**/.incbin", ".macro a",
])  # fmt: skip
def test_assembly_that_may_read_files_is_seen(text: str) -> None:
    assert includes_files("hip", ASM.format(text))
    assert includes_files(
        "hip", ASM.replace("tt.elementwise_inline_asm", '"tt.elementwise_inline\\5Fasm"').format(text)
    )
    assert not includes_files("cuda", ASM.format(text)), "ptxas has no such directive"


def test_instructions_are_none() -> None:
    assert not includes_files("hip", ASM.format("v_exp_f32 $0, $1\\0A.LBB0_1:\\0As_nop 0"))
    assert not includes_files("hip", 'tt.assert %0, "see x .incbin"'), "no assembly at all"


EDGES = {
    "num_warps": ([1, 2, 64], [0, 3, 65, 128, 4.0, "4", True]),
    "num_ctas": ([1, 16], [0, 17, "1"]),
    "num_stages": ([0, 64], [-1, 65, True]),
    "max_num_imprecise_acc_default": ([0, 1 << 30], [-1, (1 << 30) + 1]),
    "debug": ([True, False], [0, 1, "yes"]),
    "default_dot_input_precision": (["tf32", "ieee"], ["fp64", 1, "\ud800"]),
    "allowed_dot_input_precisions": ([[], ["tf32"], ("ieee", "bf16x6")], [["fp64"], "tf32", ["tf32"] * 6]),
    "maxnreg": ([1, 1024], [0, 1025]),
    "ptx_version": ([10, 999], [9, 1000]),
    "min_shared_mem": ([0, 1 << 20], [-1, (1 << 20) + 1]),
    "waves_per_eu": ([0, 64], [-1, 65]),
    "matrix_instr_nonkdim": ([0, 64], [-1, 65]),
    "kpack": ([1, 8], [0, 9]),
    "schedule_hint": (["", "none", "attention,memory-bound-attention"], ["fast", "none;", ",".join([""] * 102)]),
}


def refused_values(backend: str, name: str, values: Iterable[Any]) -> list[Any]:
    return [value for value in values if checked_options(backend, {name: value}, {})[1]]


@pytest.mark.parametrize("name", EDGES)
def test_the_first_and_the_last_value_of_each_option(name: str) -> None:
    """Beyond what any GPU has, and no further."""
    backend = "cuda" if name in ALLOWED["cuda"] else "hip"
    held, refused = EDGES[name]
    assert refused_values(backend, name, held) == []
    assert refused_values(backend, name, refused) == refused


@pytest.mark.parametrize(("backend", "lanes"), [("cuda", [32]), ("hip", [32, 64])])
def test_warps_have_these_lanes(backend: str, lanes: list[int]) -> None:
    assert refused_values(backend, "warp_size", lanes) == []
    assert len(refused_values(backend, "warp_size", range(129))) == 129 - len(lanes)
