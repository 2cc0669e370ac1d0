"""Which jobs have the same code to compile: those of one kernel whose arguments are of the same types."""

from __future__ import annotations

import hashlib

from kerntune.base.tuning_job import (
    ArgumentText,
    ConstantText,
    DescriptorText,
    ScalarText,
    SequenceText,
    TensorText,
    TuningJob,
)

DIVISIBLE = 16
"""Triton compiles for integers, and for addresses in bytes, that are divisible by this, and for others."""


def kind_of(job: TuningJob) -> str:
    """A text that is equal for jobs whose code is equal, as far as a description tells: the kernel, the configs' own
    words, and of each argument what Triton compiles for. An integer that is a ``tl.constexpr`` of the kernel looks like
    any other here: such jobs are one kind, and compile each for itself."""
    parts = (f"{a.name}:{_of(a.value)}" for a in job.arguments)
    words = ";".join([job.name, *map(str, job.configs), *parts])
    return f"{job.name}:{hashlib.sha256(words.encode()).hexdigest()[:16]}"


def _of(value: ArgumentText) -> str:
    if isinstance(value, TensorText):
        aligned = (value.offset + value.misaligned) % DIVISIBLE == 0
        return f"{value.dtype}{'' if aligned else ' misaligned'}{' host' if value.host else ''}"
    if isinstance(value, ScalarText):
        return _of_scalar(value)
    if isinstance(value, ConstantText):
        return repr(value.value)
    if isinstance(value, SequenceText):
        return f"{value.kind}({','.join(map(_of, value.items))})"
    if isinstance(value, DescriptorText):
        return f"descriptor {value.base.dtype} {value.block_shape}"
    return repr(value)


def _of_scalar(value: ScalarText) -> str:
    if value.kind == "float":
        return value.kind
    if value.kind != "int" or not value.text.lstrip("-").isdecimal():
        return f"{value.kind} {value.text}"
    number = int(value.text)
    bits = 32 if -(1 << 31) <= number < 1 << 31 else 64
    return "int 1" if number == 1 else f"int{bits}{'' if number % DIVISIBLE else ' divisible'}"
