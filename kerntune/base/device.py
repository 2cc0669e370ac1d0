"""Targets, devices and the environment of a measurement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from kerntune.base.strict import StrictStruct
from kerntune.errors import TargetError

MAX_GRID_X = 2**31 - 1
MAX_GRID_YZ = 65535
"""Grid limits of CUDA (CUDA C++ Programming Guide, table of technical specifications); HIP's x limit is lower."""


class Target(StrictStruct, frozen=True):
    """A kind of GPU to compile for, written ``cuda:90`` or ``hip:gfx942``.

    ``arch`` is the compute capability without a dot for CUDA, the gfx name for HIP.
    """

    backend: str
    arch: str
    warp_size: int = 32

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"

    @property
    def slug(self) -> str:
        """A folder name: ``cuda-90``."""
        return f"{self.backend}-{self.arch}"

    @property
    def triton_arch(self) -> int | str:
        """``arch`` as ``triton.backends.compiler.GPUTarget`` takes it: int for CUDA, text for HIP."""
        return int(self.arch) if self.backend == "cuda" else self.arch

    @classmethod
    def parse(cls, text: str) -> Target:
        """The target that a text such as ``cuda:90`` or ``hip:gfx942`` names; :class:`TargetError` for any other
        text."""
        backend, _, arch = text.strip().partition(":")
        if backend == "cuda" and re.fullmatch(r"[0-9]{2,3}", arch):
            return cls("cuda", arch)
        if backend == "hip" and re.fullmatch(r"gfx[0-9a-f]+", arch):
            return cls("hip", arch, 64 if arch.startswith("gfx9") else 32)
        from kerntune.base.formatting import did_you_mean  # not for workers, which load little

        raise TargetError(
            f"unknown target {text!r}: write backend:arch, for example cuda:90 (H100, H200), cuda:80 (A100) "
            f"or hip:gfx942 (MI300){did_you_mean(text, [*TYPICAL_DEVICES, *ALIASES])}"
        )


def targets_of_folders(names: Iterable[str]) -> list[Target]:
    """The targets whose :attr:`Target.slug` these names of folders are, sorted; other names count for nothing."""
    found = []
    for name in sorted(names):
        with suppress(TargetError):
            found.append(Target.parse(name.replace("-", ":", 1)))
    return found


def target_named(text: str) -> Target:
    """The target that a person names: also ``H100`` or ``sm_90`` (:data:`ALIASES`), which no file says."""
    return Target.parse(ALIASES.get(re.sub(r"[\s_-]", "", text).lower(), text))


class DeviceSpec(StrictStruct, frozen=True):
    """The properties of a GPU that decisions depend on. Sizes are in bytes, registers in 32-bit words."""

    target: Target
    name: str
    sm_count: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_threads_per_block: int = 1024
    shared_memory_per_block: int = 49152
    shared_memory_per_sm: int = 65536
    l2_bytes: int = 0
    uuid: str = ""

    @property
    def slug(self) -> str:
        """A folder name for this kind of device: ``nvidia-h200``."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "unknown"

    @property
    def warp_size(self) -> int:
        """Threads in a warp (wave)."""
        return self.target.warp_size


RESTLESS = frozenset({"sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"})
"""Fields of an environment that change from second to second."""


class Environment(StrictStruct, frozen=True):
    """The conditions under which a time was taken. They are compared when a time changes and the code did not."""

    triton: str
    torch: str = ""
    python: str = ""
    driver: str = ""
    assembler: str = ""
    kerntune: str = ""
    device: str = ""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle: str = ""
    power_w: float | None = None
    temperature_c: int | None = None

    def differences(self, other: Environment) -> list[str]:
        """Lines ``field: mine -> theirs`` for the fields that differ, except those that always change
        (:data:`RESTLESS`)."""
        return [
            f"{f}: {getattr(self, f)} -> {getattr(other, f)}"
            for f in self.__struct_fields__
            if f not in RESTLESS and getattr(self, f) != getattr(other, f)
        ]


def _cuda(arch: str, name: str, sms: int, block: int, sm: int, threads: int, l2_mib: int) -> DeviceSpec:
    return DeviceSpec(Target("cuda", arch), name, sms, 65536, threads, 1024, block, sm, l2_mib << 20)


def _hip(target: Target, name: str, units: int, registers: int, threads: int, lds: int, l2_mib: int) -> DeviceSpec:
    return DeviceSpec(target, name, units, registers, threads, 1024, lds, lds, l2_mib << 20)


TYPICAL_DEVICES: dict[str, DeviceSpec] = {
    "cuda:75": _cuda("75", "NVIDIA T4", 40, 65536, 65536, 1024, 4),
    "cuda:80": _cuda("80", "NVIDIA A100", 108, 166912, 167936, 2048, 40),
    "cuda:86": _cuda("86", "NVIDIA A10", 72, 101376, 102400, 1536, 6),
    "cuda:87": _cuda("87", "NVIDIA Jetson AGX Orin", 16, 166912, 167936, 1536, 4),
    "cuda:89": _cuda("89", "NVIDIA L40S", 142, 101376, 102400, 1536, 96),
    "cuda:90": _cuda("90", "NVIDIA H100", 132, 232448, 233472, 2048, 50),
    "cuda:100": _cuda("100", "NVIDIA B200", 148, 232448, 233472, 2048, 126),
    "cuda:103": _cuda("103", "NVIDIA B300", 148, 232448, 233472, 2048, 126),
    "cuda:120": _cuda("120", "NVIDIA RTX 5090", 170, 101376, 102400, 1536, 96),
    "cuda:121": _cuda("121", "NVIDIA GB10", 48, 101376, 102400, 1536, 24),
    "hip:gfx90a": _hip(Target("hip", "gfx90a", 64), "AMD MI250", 104, 131072, 2048, 65536, 8),
    "hip:gfx942": _hip(Target("hip", "gfx942", 64), "AMD MI300X", 304, 131072, 2048, 65536, 4),
    "hip:gfx950": _hip(Target("hip", "gfx950", 64), "AMD MI355X", 256, 131072, 2048, 163840, 4),
    "hip:gfx1100": _hip(Target("hip", "gfx1100"), "AMD RX 7900 XTX", 96, 98304, 1024, 65536, 6),
    "hip:gfx1200": _hip(Target("hip", "gfx1200"), "AMD RX 9060 XT", 32, 98304, 1024, 65536, 4),
    "hip:gfx1201": _hip(Target("hip", "gfx1201"), "AMD RX 9070 XT", 64, 98304, 1024, 65536, 8),
}
"""A typical device of each target, for machines without that device.

Shared memory per block is the opt-in maximum: 163 KiB (sm_80 and sm_87, CUDA guide: 166,912 B), 227 KiB
(sm_90, 100 and 103: 232,448 B), 99 KiB (sm_86, 89, 120, 121); from the same guide's table of compute capabilities.
SM counts and L2 sizes are of the named product's datasheet; Orin's of the Jetson AGX Orin technical brief, GB10's 48 of
6,144 CUDA cores (DGX Spark hardware overview) at 128 each; B300's are taken to be B200's, of which it is a variant.
Of gfx12 they are in ROCm's "GPU hardware specifications", and a compute unit's 1,536 registers in each of two SIMDs and
16 waves in LLVM's ``FeatureISAVersion12``, as for gfx1100.
"""

OTHER_PRODUCTS = {
    "a30": "cuda:80", "a40": "cuda:86", "rtx3090": "cuda:86", "l4": "cuda:89", "l40": "cuda:89",
    "rtx4090": "cuda:89", "h200": "cuda:90", "gh200": "cuda:90", "gb200": "cuda:100", "gb300": "cuda:103",
    "mi210": "hip:gfx90a", "mi300": "hip:gfx942", "mi300a": "hip:gfx942", "mi325x": "hip:gfx942",
    "mi350x": "hip:gfx950",
}  # fmt: skip
"""Products whose figures are taken to be those of their target's typical device (NVIDIA's list "CUDA GPU Compute
Capability"; ROCm's "GPU hardware specifications")."""

ALIASES = {
    **{arch.replace("cuda:", "sm"): arch for arch in TYPICAL_DEVICES if arch.startswith("cuda:")},
    **{arch.removeprefix("hip:"): arch for arch in TYPICAL_DEVICES if arch.startswith("hip:")},
    **{re.sub(r"^(NVIDIA|AMD) (Jetson AGX )?| ", "", spec.name).lower(): t for t, spec in TYPICAL_DEVICES.items()},
    **OTHER_PRODUCTS,
}
"""Other names of targets, in lower case and without spaces, ``_`` and ``-``: ``sm90``, ``gfx942``, ``h100``."""


def typical_device(target: Target) -> DeviceSpec:
    """The typical device of a target; :class:`TargetError` if none is listed."""
    try:
        return TYPICAL_DEVICES[str(target)]
    except KeyError:
        known = ", ".join(TYPICAL_DEVICES)
        raise TargetError(f"no device is known for target {target}; known targets: {known}") from None
