"""The results of ``torch.cuda`` and related modules for a device that doesn't exist.

All work of its streams, events and graphs is always complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from kerntune.base.device import DeviceSpec
from kerntune.gpu.fake_cuda.driver import DeviceNumbers, capability, clocks_of, install_management
from kerntune.gpu.fake_cuda.patches import always, replace, replace_known

ELAPSED_MS = 1000.0
"""The elapsed time of every event pair: so long that benchmark loops, which divide a budget by it, call once or
twice."""


class Event:
    """``torch.cuda.Event``: recorded and done."""

    cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    record = wait = synchronize = always(None)
    query = always(True)
    elapsed_time = always(ELAPSED_MS)


class Stream:
    """``torch.cuda.Stream``: an empty queue."""

    cuda_stream = 0
    stream_id = 0
    priority = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())

    @property
    def device_index(self) -> int:
        """The number of the device that was current."""
        return int(self.device.index)

    synchronize = wait_stream = wait_event = always(None)
    query = always(True)
    is_capturing = always(False)
    """Code inside of a capture runs as usual."""

    def record_event(self, event: Any = None) -> Any:
        """The event given, or a new one."""
        return event or Event()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class StreamContext(nullcontext[None]):
    """``torch.cuda.stream`` and ``torch.cuda.graph``: code inside runs (and launches) as it does outside."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


class CUDAGraph:
    """``torch.cuda.CUDAGraph``: launches in a capture are recorded once, a replay does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    capture_begin = capture_end = replay = reset = always(None)
    pool = always((0, 0))


class Generator(torch.Generator):  # type: ignore[misc]  # torch's types are skipped
    """``torch.Generator`` that accepts the device CUDA; it is then a CPU generator whose ``device`` is CUDA."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        requested = torch.device(device)
        made: Generator = super().__new__(cls, device="cpu" if requested.type == "cuda" else requested)
        made._device = requested
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:
        """The device that the generator was made for."""
        return self._device


MEMORY_BYTES = 80 << 30
"""Total and free memory of a stand-in device; no test of a kernel should depend on it."""
CUDA_VERSION = "12.8"
HIP_VERSION = "6.4.0"
"""The toolkit's version in ``torch.version``, if the installed torch has none: users compare it to a minimum."""
BF16_CAPABILITY = (8, 0)
"""The first compute capability with bfloat16 arithmetic (CUDA C++ Programming Guide, feature support table)."""

_SAME_NAMES = ("torch.cuda.memory", "torch.cuda.random", "torch.cuda.graphs", "torch.cuda.streams")
"""Modules of which ``torch.cuda`` re-exports functions under the same names."""


def install_cuda(stack: ExitStack, numbers: DeviceNumbers) -> None:
    """Make torch report these devices until ``stack`` closes."""
    stubs, spec = cuda_stubs(numbers), numbers.specs[0]
    for module in (torch.cuda, *(sys.modules[name] for name in _SAME_NAMES if name in sys.modules)):
        for name, stub in stubs.items():
            replace_known(stack, module, name, stub)
    for name, stub in _nvtx_stubs().items():
        replace_known(stack, torch.cuda.nvtx, name, stub)
    for name, stub in _accelerator_stubs(numbers).items():
        replace_known(stack, torch.accelerator, name, stub)
    replace(stack, torch._C, "_cuda_getCurrentRawStream", lambda device: 0)  # imported by libraries' CUDA parts, too
    install_management(stack, spec, MEMORY_BYTES)
    replace(stack, torch, "Generator", Generator)
    given = torch.get_device_module
    replace(stack, torch, "get_device_module", lambda device=None: given("cuda" if device is None else device))
    _install_versions(stack, spec)


def properties(spec: DeviceSpec) -> SimpleNamespace:
    """The result of ``torch.cuda.get_device_properties``; sizes in bytes, clocks in kHz."""
    clocks, (major, minor) = clocks_of(spec.target), capability(spec.target)
    return SimpleNamespace(
        name=spec.name,
        major=major,
        minor=minor,
        total_memory=MEMORY_BYTES,
        multi_processor_count=spec.sm_count,
        max_threads_per_multi_processor=spec.max_threads_per_sm,
        max_threads_per_block=spec.max_threads_per_block,
        regs_per_multiprocessor=spec.registers_per_sm,
        shared_memory_per_block=min(spec.shared_memory_per_block, 49152),
        shared_memory_per_block_optin=spec.shared_memory_per_block,
        shared_memory_per_multiprocessor=spec.shared_memory_per_sm,
        L2_cache_size=spec.l2_bytes,
        warp_size=spec.warp_size,
        gcnArchName=spec.target.arch if spec.target.backend == "hip" else spec.name,
        clock_rate=1000 * clocks.sm_mhz,
        memory_clock_rate=1000 * clocks.memory_mhz,
        memory_bus_width=clocks.bus_bits,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid=spec.uuid,
    )


def cuda_stubs(numbers: DeviceNumbers) -> dict[str, Any]:
    """Replacements by name in ``torch.cuda``."""
    seeding = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
    return {
        **_device_stubs(numbers),
        **_each(("synchronize", "ipc_collect", "_sleep", "set_stream"), None),
        **dict.fromkeys(("Stream", "ExternalStream", "current_stream", "default_stream"), Stream),
        **dict.fromkeys(("stream", "StreamContext", "graph"), StreamContext),
        "Event": Event,
        "CUDAGraph": CUDAGraph,
        "graph_pool_handle": always((0, 0)),
        "is_current_stream_capturing": always(False),
        "current_blas_handle": always(0),
        **_memory_stubs(),
        **_each(seeding, None),
        "initial_seed": always(0),
        "get_rng_state": lambda *args, **kwargs: torch.zeros(16, dtype=torch.uint8),
        "get_rng_state_all": lambda *args, **kwargs: [torch.zeros(16, dtype=torch.uint8)],
    }


def _device_stubs(numbers: DeviceNumbers) -> dict[str, Any]:
    spec, context = numbers.specs[0], numbers.context()
    has_bf16 = spec.target.backend == "hip" or capability(spec.target) >= BF16_CAPABILITY
    zero = ("utilization", "memory_usage", "device_memory_used", "temperature", "power_draw")
    return {
        **_each(("is_available", "is_initialized"), True),
        **_each(("init", "_lazy_init"), None),
        **_each(zero, 0),
        "device_count": always(len(numbers.specs)),
        "current_device": _counted(numbers.current),
        "set_device": _counted(numbers.set),
        "get_device_capability": lambda device=None: capability(numbers.spec(device).target),
        "get_device_properties": lambda device=None: properties(numbers.spec(device)),
        "get_device_name": lambda device=None: numbers.spec(device).name,
        "get_arch_list": always([f"sm_{spec.target.arch}" if spec.target.backend == "cuda" else spec.target.arch]),
        "can_device_access_peer": always(False),
        "is_bf16_supported": always(has_bf16),
        "is_tf32_supported": always(spec.target.backend == "cuda" and has_bf16),
        **dict.fromkeys(("device", "device_of", "_DeviceGuard"), context),
        "clock_rate": always(clocks_of(spec.target).sm_mhz),
    }


def _memory_stubs() -> dict[str, Any]:
    nothing = ("empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
    more = ("reset_accumulated_memory_stats", "set_per_process_memory_fraction")
    zero = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    return {
        **_each((*nothing, *more), None),
        **_each(zero, 0),
        "mem_get_info": always((MEMORY_BYTES, MEMORY_BYTES)),
        "memory_stats": lambda *args, **kwargs: {},
        "memory_summary": always(""),
    }


def _nvtx_stubs() -> dict[str, Any]:
    names = ("range_push", "range_pop", "range_start", "range_end", "mark")
    return {**_each(names, 0), "range": StreamContext}


def _accelerator_stubs(numbers: DeviceNumbers) -> dict[str, Any]:
    return {
        "is_available": always(True),
        "device_count": always(len(numbers.specs)),
        "current_accelerator": always(torch.device("cuda")),
        **{n: _counted(numbers.current) for n in ("current_device_index", "current_device_idx")},
        **{name: _counted(numbers.set) for name in ("set_device_index", "set_device_idx")},
        "current_stream": Stream,
        **_each(("set_stream", "synchronize"), None),
        **_memory_stubs(),
    }


def _install_versions(stack: ExitStack, spec: DeviceSpec) -> None:
    """Set ``torch.version.cuda`` and ``.hip`` to their values on a machine with this device: users choose code paths by
    them."""
    hip = spec.target.backend == "hip"
    replace(stack, torch.version, "cuda", None if hip else torch.version.cuda or CUDA_VERSION)
    replace(stack, torch.version, "hip", (torch.version.hip or HIP_VERSION) if hip else None)


def _each(names: Iterable[str], answer: Any) -> dict[str, Callable[..., Any]]:
    """A function of its own for each name: dynamo, once imported, has a rule for each and refuses one with two."""
    return {name: always(answer) for name in names}


def _counted(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own that does the same, as :func:`_each` says."""
    return lambda *args, **kwargs: answer(*args, **kwargs)
