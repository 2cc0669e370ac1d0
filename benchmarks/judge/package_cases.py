"""Kernels of public packages as they are installed, beside torch: liger-kernel and flash-linear-attention."""

from __future__ import annotations

from benchmarks.judge.cases import Case

_ROWS, _WEIGHTS = "x: bf16[4096,2048]", "w: bf16[2048]"
_HEADS = "q: f32[2,64,4,64]; k: f32[2,64,4,64] uniform(-0.1, 0.1); v: f32[2,64,4,64]"
_GATED = f"{_HEADS}; g: f32[2,64,4,64] uniform(-1, 0)"
_TWO = "a: bf16[4096,4096]; b: bf16[4096,4096]"

PACKAGE_HONEST: dict[str, str] = {
    "liger:rms_norm": f"{_ROWS}; {_WEIGHTS}",
    "liger:rms_norm_by_rows:rms_norm": "x: f16[4096,2000]; w: f16[2000]",
    "liger:rms_norm_of_gemma": f"{_ROWS}; {_WEIGHTS}",
    "liger:swiglu": _TWO,
    "liger:geglu": _TWO,
    "liger:layer_norm": "x: f16[4096,2048]; w: f16[2048]; b: f16[2048]",
    "liger:softmax": "x: bf16[4096,4000]",
    "liger:kl_divergence": "p: f32[2048,4000]; q: f32[2048,4000]",
    "liger:total_variation": "p: f32[2048,4000] uniform(0, 1); q: f32[2048,4000] uniform(0, 1)",
    "liger:add_and_norm": f"{_ROWS}; r: bf16[4096,2048]; {_WEIGHTS}",
    "liger:dynamic_tanh": "x: f32[4096,2048]; a: f32[1]; g: f32[2048]; b: f32[2048]",
    "liger:poly_norm": "x: f32[2048,2048]; w: f32[3]; b: f32[1]",
    "liger:divergence": "p: f32[2048,4000]; q: f32[2048,4000]",
    "liger:rms_norm_gradients": "x: f32[4096,2048]; w: f32[2048]; g: f32[4096,2048]",
    "liger:layer_norm_gradients": "x: f32[4096,2048]; w: f32[2048]; b: f32[2048]; g: f32[4096,2048]",
    "liger:dynamic_tanh_gradients": "x: f32[4096,2048]; a: f32[1]; g: f32[2048]; b: f32[2048]; d: f32[4096,2048]",
    "fla:root_norm_gradients:rms_norm_gradients": "x: f32[4096,2048]; w: f32[2048]; g: f32[4096,2048]",
    "fla:gated_attention": _GATED,
    "fla:delta_rule": f"{_HEADS}; b: f32[2,64,4] uniform(0, 1)",
    "fla:sums_of_chunks": "g: f32[8,4096,16]",
    "fla:sums_of_chunks_backwards": "g: bf16[8,4096,16]",
    "fla:running_sums": "g: f32[4,2048,16]",
    "fla:l2_norm": "x: bf16[4096,16,128]",
    "fla:l2_norm_backward": "x: f32[4096,16,128]; g: f32[4096,16,128]",
    "fla:norm:layer_norm": f"{_ROWS}; {_WEIGHTS}; b: bf16[2048]",
    "fla:root_norm": f"{_ROWS}; {_WEIGHTS}",
    "fla:add_and_root_norm": f"{_ROWS}; {_WEIGHTS}; r: bf16[4096,2048]",
    "fla:token_shift": "x: f32[8,1024,1024]",
    "fla:rotary": "x: f32[4,1024,16,64]; c: f32[1024,32]; s: f32[1024,32]",
    "fla:swiglu": _TWO,
    "fla:logsigmoid": "x: f32[4096,2048]",
    "fla:gated_recurrence": "x: f32[4,64,512]; g: f32[4,64,512] uniform(-1, 0)",
    "fla:attention": "q: f16[2,1024,8,64]; k: f16[2,1024,8,64]; v: f16[2,1024,8,64]",
    "fla:pooled": "x: f32[4,2048,8,64]",
}
"""By package and function, and the reference's where that has another name."""

PACKAGE_PLANTED: dict[str, str] = {
    "liger:rms_norm_with_another_epsilon:rms_norm": f"{_ROWS}; {_WEIGHTS}",
    "liger:rms_norm_of_gemma_without_offset:rms_norm_of_gemma": f"{_ROWS}; {_WEIGHTS}",
    "liger:layer_norm_gradients_of_a_part:layer_norm_gradients": "x: f32[99,64]; w: f32[64]; b: f32[64]; g: f32[99,64]",
    "fla:gated_attention_without_scale:gated_attention": _GATED,
    "fla:sums_of_chunks_backwards:sums_of_chunks": "g: f32[8,4096,16]",
}
"""Calls that forget something."""


def package_cases() -> list[Case]:
    """These, for which the packages must be installed."""
    found = []
    for family, rows in (("honest", PACKAGE_HONEST), ("planted", PACKAGE_PLANTED)):
        for key, line in rows.items():
            package, name, *other = key.split(":")
            reference = f"package_references.py::{(*other, name)[0]}"
            found.append(Case(f"{package}_{name}", family, f"{package}_candidates.py::{name}", reference, (line,)))
    return found
