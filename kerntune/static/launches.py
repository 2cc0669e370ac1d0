"""Static figures of a recording's launches."""

from __future__ import annotations

import msgspec

from kerntune.config import Config
from kerntune.device import DeviceSpec
from kerntune.recorder import Recorded
from kerntune.recording import Binary
from kerntune.static.metrics import BinaryInput, StaticMetrics, metrics_of


class LaunchStatic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Static figures of one launch."""

    kernel: str
    source: str
    code: str
    ttir_sha256: str
    grid: tuple[int, int, int]
    metrics: StaticMetrics
    config: Config | None = None


def launch_statics(recorded: Recorded, spec: DeviceSpec) -> tuple[LaunchStatic, ...]:
    """One entry a launch, in order; each distinct binary is looked at once."""
    recording = recorded.recording
    figures = metrics_of([_input(recorded, b) for b in recording.binaries], spec)
    return tuple(
        LaunchStatic(
            kernel=launch.kernel,
            source=launch.source,
            code=recording.binary_of(launch).code,
            ttir_sha256=recording.binary_of(launch).ttir_sha256,
            grid=launch.grid,
            metrics=figures[launch.binary],
            config=launch.config,
        )
        for launch in recording.launches
    )


def _input(recorded: Recorded, binary: Binary) -> BinaryInput:
    return BinaryInput(
        kind=binary.kind,
        data=recorded.artifacts[binary.sha256],
        asm=recorded.asm[binary.sha256],
        shared_bytes=binary.shared,
        num_warps=binary.num_warps,
        num_ctas=binary.num_ctas,
        arch=binary.arch,
        tensor_memory_columns=binary.tmem,
    )
