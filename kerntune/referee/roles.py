"""What sealed processes can be asked to do. Importing this imports all that they need, and none of users' code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kerntune.capture.inductor.launches
import kerntune.gpu.cuda
import kerntune.gpu.emulator
import kerntune.gpu.interpreter  # noqa: F401 - so that forks needn't
from kerntune.kernels.compat.launcher import prepare_specializing
from kerntune.kernels.compat.triton_compiler import triton_key
from kerntune.referee import candidate_recorder, gpu_replay, gpu_times, reference_results, replayed_outputs

prepare_specializing()
triton_key()

ROLES: Mapping[str, Callable[[bytes], Any]] = {
    "record": candidate_recorder.answer,
    "expect": reference_results.answer,
    "replay": replayed_outputs.answer,
    "time": gpu_times.timed,
    "device": gpu_replay.device_answer,
    "prewarm": gpu_replay.prewarm,
}
"""By name, the function that gets the task's bytes and gives the answer, a message."""
