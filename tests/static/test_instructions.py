"""Opcodes and their classes, widths and work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.static.instructions import (
    AMD_CLASSES,
    NVIDIA_CLASSES,
    amd_bits,
    amd_class,
    amd_classes,
    nvidia_bits,
    nvidia_class,
    nvidia_classes,
    scratch_bytes,
    spilled_bytes,
)


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("HMMA.16816.F32", "tensor_core"),
        ("IMMA.16832.S8.S8", "tensor_core"),
        ("HGMMA.64x128x16.F32", "tensor_core"),
        ("QGMMA.64x64x32.F32.E4M3.E4M3", "tensor_core"),
        ("UTCHMMA", "tensor_core"),
        ("DMMA.884", "tensor_core"),
        ("DFMA", "fp64"),
        ("DSETP.GT.AND", "fp64"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "async_copy"),
        ("LDG.E.128", "global_load"),
        ("LD.E.64", "global_load"),
        ("LDL.LU", "local_load"),
        ("LDS.64", "shared_load"),
        ("LDSM.16.MT88.4", "shared_load"),
        ("LDC.64", "move"),
        ("ULDC.64", "move"),
        ("LDCU.128", "move"),
        ("LDTM.x64", "tensor_memory"),
        ("LDGDEPBAR", "fence"),
        ("STG.E", "global_store"),
        ("STL.64", "local_store"),
        ("STS.U16", "shared_store"),
        ("UTMALDG.2D", "tma"),
        ("UBLKCP", "tma"),
        ("UTCBAR", "tensor_memory"),
        ("ATOMS.ADD", "atomic"),
        ("RED.E.ADD.STRONG.GPU", "atomic"),
        ("REDG.E.ADD.STRONG.GPU", "atomic"),
        ("REDUX", "shuffle"),
        ("MUFU.EX2", "mufu"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "barrier"),
        ("FFMA.FTZ", "fp32"),
        ("FADD2", "fp32"),
        ("HADD2.F32", "fp16"),
        ("F2FP.F16.F32.PACK_AB", "convert"),
        ("IMAD.WIDE", "integer"),
        ("UIADD3.64", "integer"),
        ("VIADD", "integer"),
        ("BRA.U", "branch"),
        ("WARPSYNC", "barrier"),
        ("NOP", "nop"),
        ("WHATEVER.NEW", "other"),
    ],
)
def test_nvidia_class(opcode: str, kind: str) -> None:
    assert nvidia_class(opcode) == kind


@pytest.mark.parametrize(
    ("mnemonic", "kind"),
    [
        ("v_mfma_f32_32x32x8_f16", "tensor_core"),
        ("v_wmma_f32_16x16x16_f16", "tensor_core"),
        ("v_smfmac_f32_16x16x32_f16", "tensor_core"),
        ("v_fma_f64", "fp64"),
        ("v_cvt_f32_f64_e32", "convert"),
        ("global_load_dwordx4", "global_load"),
        ("buffer_load_dwordx4", "global_load"),
        ("global_load_lds_dwordx4", "async_copy"),
        ("buffer_store_short", "global_store"),
        ("scratch_load_dword", "local_load"),
        ("scratch_store_dwordx2", "local_store"),
        ("ds_read_b128", "shared_load"),
        ("ds_load_b64", "shared_load"),
        ("ds_write_b16", "shared_store"),
        ("ds_bpermute_b32", "shuffle"),
        ("ds_add_u32", "atomic"),
        ("global_atomic_add_f32", "atomic"),
        ("v_exp_f32_e32", "mufu"),
        ("s_barrier", "barrier"),
        ("s_waitcnt", "fence"),
        ("s_cbranch_execz", "branch"),
        ("s_nop", "nop"),
        ("v_add_f32_e32", "fp32"),
        ("v_pk_fma_f16", "fp16"),
        ("v_mov_b32_e32", "move"),
        ("v_add_u32_e32", "integer"),
        ("s_mul_i32", "integer"),
        ("whatever", "other"),
    ],
)
def test_amd_class(mnemonic: str, kind: str) -> None:
    assert amd_class(mnemonic) == kind


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [
        ("LDG.E", 32),
        ("LDG.E.128.CONSTANT", 128),
        ("LDG.E.U16", 16),
        ("LDG.E.S8", 8),
        ("LDGSTS.E.BYPASS.LTC128B.64", 64),
        ("LDG.E.LTC128B", 32),
        ("LDG.E.ENL2.256", 256),
        ("LDG.E.96", 96),
        ("LDG.E.64", 64),
        ("LDG.E.S16", 16),
        ("STG.E.U8", 8),
    ],
)
def test_nvidia_bits(opcode: str, bits: int) -> None:
    assert nvidia_bits(opcode) == bits


@pytest.mark.parametrize(
    ("mnemonic", "bits"),
    [
        ("global_load_dword", 32),
        ("global_load_dwordx4", 128),
        ("global_load_ushort", 16),
        ("buffer_load_short_d16", 16),
        ("global_load_d16_u8", 8),
        ("global_load_sbyte", 8),
        ("global_load_b64", 64),
        ("global_load_b128", 128),
        ("global_load_u16", 16),
        ("global_load_dwordx2", 64),
        ("global_load_dwordx3", 96),
        ("global_store_b96", 96),
        *((f"global_load_{name}", 8) for name in ("ubyte", "i8", "u8", "d16_b8")),
        *((f"global_load_{name}", 16) for name in ("short", "i16", "b16")),
    ],
)
def test_amd_bits(mnemonic: str, bits: int) -> None:
    assert amd_bits(mnemonic) == bits


def test_counts_by_class_and_width() -> None:
    found = nvidia_classes({"LDG.E.128": 3, "LDG.E": 2, "LDGSTS.E.128": 1, "STG.E.64": 4, "NOP": 9, "FADD": 5})
    assert found == {
        "async_copy": 1,
        "async_copy_128": 1,
        "fp32": 5,
        "global_load": 5,
        "global_load_128": 3,
        "global_load_32": 2,
        "global_store": 4,
        "global_store_64": 4,
        "nop": 9,
        "total": 15,
    }


def test_tensor_core_work() -> None:
    assert nvidia_classes({"HMMA.16816.F32": 4})["tensor_core_macs"] == 4 * 16 * 8 * 16
    assert nvidia_classes({"HMMA.1688.F32.TF32": 1})["tensor_core_macs"] == 16 * 8 * 8
    assert nvidia_classes({"HGMMA.64x128x16.F32": 2, "IMMA.16832.S8.S8": 1})["tensor_core_macs"] == 2 * 131072 + 4096
    assert amd_classes({"v_mfma_f32_32x32x8_f16": 3})["tensor_core_macs"] == 3 * 8192
    assert "tensor_core_macs" not in nvidia_classes({"HMMA.16816.F32": 4, "UTCHMMA": 1})


def test_spills_lie_behind_the_kernels_own_arrays() -> None:
    stack = {("STL", 0): 3, ("STL.64", 8): 2, ("STL", 32): 5, ("LDL.LU", 32): 4, ("LDL.128", 48): 1, ("LDL", 4): 7}
    assert spilled_bytes(stack, 0) == (3 * 4 + 2 * 8 + 5 * 4, 4 * 4 + 16 + 7 * 4)
    assert spilled_bytes(stack, 28) == (5 * 4, 4 * 4 + 16)


def test_scratch_bytes() -> None:
    assert scratch_bytes({"scratch_store_dwordx4": 2, "scratch_load_dword": 3, "global_load_dword": 9}) == (32, 12)


_OPCODES = st.dictionaries(
    st.sampled_from(["LDG.E.128", "LDG.E", "STG.E.U8", "HMMA.16816.F32", "NOP", "DADD", "STL", "BRA", "UNKNOWN"]),
    st.integers(1, 1000),
)


@given(_OPCODES)
def test_each_instruction_is_counted_once(opcodes: dict[str, int]) -> None:
    found = nvidia_classes(opcodes)
    classes = sum(count for name, count in found.items() if name in NVIDIA_CLASSES or name == "other")
    assert classes == sum(opcodes.values())
    assert found.get("total", 0) == classes - found.get("nop", 0)
    assert all(found.values())
    for kind in ("global_load", "global_store"):
        assert found.get(kind, 0) == sum(n for name, n in found.items() if name.startswith(f"{kind}_"))


def test_both_vendors_have_the_classes_that_rules_look_at() -> None:
    for name in ("tensor_core", "fp64", "global_load", "async_copy", "tma", "local_store", "atomic", "barrier", "nop"):
        assert name in NVIDIA_CLASSES
        assert name in AMD_CLASSES


@pytest.mark.parametrize(
    ("opcode", "weight"),
    [("IMMA.16832.S8.S8", 1), ("QGMMA.64x128x32.F32", 1), ("HMMA.16816.F32", 2), ("HGMMA.64x128x16.F32", 2),
     ("HMMA.1688.F32.TF32", 4), ("DMMA.16816", 4),
     ("v_mfma_f32_32x32x16_fp8_fp8", 1), ("v_mfma_i32_32x32x16_i8", 1), ("v_mfma_f32_32x32x8_f16", 2),
     ("v_mfma_f32_16x16x8_xf32", 4), ("v_mfma_f32_32x32x2f32", 4), ("v_mfma_f64_16x16x4_f64", 4)],
)  # fmt: skip
def test_products_take_longer_the_wider_their_operands(opcode: str, weight: int) -> None:
    found = (amd_classes if opcode.startswith("v_") else nvidia_classes)({opcode: 3})
    assert found["tensor_core_slots"] == weight * found["tensor_core_macs"] > 0


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        ({"UTMALDG.2D": 2, "UTMASTG.2D": 1, "UTMAREDG.2D.ADD": 3, "UBLKCP": 4},
         {"tma": 10, "tma_load": 2, "tma_store": 4, "total": 10}),
        ({"HGMMA.64x8x16.F32": 2, "HMMA.16816.F32": 1},
         {"tensor_core": 3, "warpgroup_mma": 2, "tensor_core_macs": 18432, "tensor_core_slots": 36864, "total": 3}),
        ({"UTCHMMA": 1, "NOP": 2}, {"tensor_core": 1, "warpgroup_mma": 1, "nop": 2, "total": 1}),
        ({"LDG.E.128": 0, "WHAT": 1}, {"other": 1, "total": 1}),
        ({}, {}),
    ],
)  # fmt: skip
def test_what_is_counted_beside_the_classes(names: dict[str, int], counts: dict[str, int]) -> None:
    assert nvidia_classes(names) == counts


def test_amd_instructions_are_counted_alike() -> None:
    names = {"tensor_load_to_lds": 2, "tensor_store_from_lds": 1, "buffer_load_dwordx4": 3, "s_nop": 4,
             "global_load_lds_dwordx4": 5, "v_mfma_i32_32x32x16_i8": 1, "v_add_f32_e64": 1}  # fmt: skip
    assert amd_classes(names) == {
        "async_copy": 5, "async_copy_128": 5, "fp32": 1, "global_load": 3, "global_load_128": 3, "nop": 4,
        "tensor_core": 1, "tensor_core_macs": 16384, "tensor_core_slots": 16384, "tma": 3, "tma_load": 2,
        "tma_store": 1, "total": 13,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "macs"),
    [("DMMA.8x8x4", 256), ("HMMA.1688.F32", 1024), ("IMMA.8816.S8.S8", 1024), ("HMMA.168128.F32", 16384),
     ("HMMA.32816.F32", None), ("HGMMA.64x256x16.F32", 262144), ("UTCHMMA", None)],
)  # fmt: skip
def test_products_by_the_shape_in_their_name(opcode: str, macs: int | None) -> None:
    assert nvidia_classes({opcode: 1}).get("tensor_core_macs") == macs


@pytest.mark.parametrize(("own", "spilled"), [(0, (12, 20)), (8, (8, 16)), (9, (0, 16)), (17, (0, 0))])
def test_the_stack_from_a_kernel_s_own_bytes_on_is_spilled(own: int, spilled: tuple[int, int]) -> None:
    stack = {("STL", 0): 1, ("STL.64", 8): 1, ("LDL", 4): 1, ("LDL.128", 16): 1}
    assert spilled_bytes(stack, own) == spilled
