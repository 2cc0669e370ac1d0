"""Finds out where a run takes place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

from kerntune.base.device import TYPICAL_DEVICES, DeviceSpec, Target, target_named, typical_device
from kerntune.errors import UsageError
from kerntune.gpu.base import Backend


def compiled_targets(
    targets: Sequence[str] = (), known: Sequence[Target] = (), folder: str = "the baseline folder"
) -> tuple[Target, ...]:
    """What a run only compiles for: ``targets``, without a GPU those that are ``known``; empty where a GPU runs it.

    ``known`` are the targets that the project's baselines in ``folder`` know. :class:`UsageError` if there is no GPU
    and no target.
    """
    chosen = tuple(dict.fromkeys(target_named(t) for text in targets for t in text.split(",") if t.strip()))
    if not chosen and has_cuda():
        return ()
    chosen = chosen or tuple(t for t in known if str(t) in TYPICAL_DEVICES)
    if not chosen:
        raise UsageError(
            f"there is no GPU here, and {folder} knows no target; say what to compile for, "
            "for example --kerntune-target=cuda:90 (H100, H200), and commit the baselines that it records"
        )
    for target in chosen:
        typical_device(target)
    return chosen


def find_backend(targets: Sequence[Target]) -> Backend:
    """The GPU of this machine; a backend that compiles for the first of ``targets`` if there are any."""
    if targets:
        from kerntune.gpu.fake_cuda.static_backend import StaticBackend

        return StaticBackend(targets[0])
    from kerntune.gpu.cuda import CudaBackend

    return CudaBackend()


def torch_device() -> str:
    """What a plain test makes its tensors on: ``cuda`` (AMD GPUs too) if torch sees a GPU, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def amd_gpus() -> int:
    """How many AMD GPUs torch sees, whatever stands in for them in this process; 0 with any other build of torch."""
    import torch

    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # a build for processors alone has none
    return 0 if torch.version.hip is None or count is None else int(count())


def has_cuda() -> bool:
    """Whether torch sees an NVIDIA GPU, not a stand-in. AMD GPUs can be compiled for, but not yet measured on."""
    import torch

    return bool(torch.cuda.is_available()) and torch.version.hip is None and not has_stand_ins()


def why_unused() -> str:
    """What keeps torch from a GPU that is there: ``torch 2.13.0+cpu was built without CUDA``."""
    import torch

    why = "can't use it" if torch.backends.cuda.is_built() else "was built without CUDA"
    return f"torch {torch.__version__} {why}"


def captures_graph() -> bool:
    """Whether the calling thread's current stream is being captured into a CUDA graph: nothing runs then."""
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


def is_exporting() -> bool:
    """Whether ``torch.export`` is running what calls."""
    import torch

    return bool(torch.compiler.is_exporting())


def device_in_use() -> int | None:
    """The number of torch's current GPU; None if torch has not used one, or there is none."""
    import torch

    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


def devices_used() -> list[int]:
    """The numbers of the GPUs on which torch has memory of this process: tensors, or what it keeps of earlier ones."""
    import torch

    if not torch.cuda.is_initialized():
        return []
    return [i for i in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(i)]


def current_thread_state() -> Callable[[], AbstractContextManager[Any]]:
    """What makes another thread launch as this one does: device, stream, inference mode."""
    import torch

    stream, inference = torch.cuda.current_stream(), torch.is_inference_mode_enabled()

    @contextmanager
    def state() -> Iterator[None]:
        with torch.cuda.stream(stream), torch.inference_mode(inference):
            yield

    return state


def has_stand_ins() -> bool:
    """Whether the GPU that torch reports in this process is none."""
    session = sys.modules.get("kerntune.gpu.fake_cuda.session")  # a module that isn't imported isn't active
    return session is not None and bool(session.are_active())


def current_device() -> DeviceSpec:
    """torch's current GPU as far as it can be asked; else the usual one of its target, and an H100 without any."""
    import torch

    if has_cuda():
        return _cuda_device(torch.cuda.current_device())
    if not torch.cuda.is_available():
        return TYPICAL_DEVICES[WITHOUT_GPU]
    if torch.version.hip is not None:
        found = torch.cuda.get_device_properties()
        target = Target.parse("hip:" + found.gcnArchName.partition(":")[0])
        return DeviceSpec(target, found.name, found.multi_processor_count)
    return typical_device(Target.parse("cuda:{}{}".format(*torch.cuda.get_device_capability())))


@lru_cache(maxsize=16)
def _cuda_device(ordinal: int) -> DeviceSpec:
    from kerntune.gpu.driver_gpu import DriverGpu

    return DriverGpu(ordinal).spec


WITHOUT_GPU = "cuda:90"
"""What a proposal is made for on a machine that has no GPU."""
