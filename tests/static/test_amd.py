"""Figures out of amdgcn text."""

from __future__ import annotations

import pytest

from kerntune.errors import StoreError
from kerntune.static.instructions import amd_mnemonics, amd_resources

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
