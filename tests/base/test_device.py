"""Targets, devices and environments."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.device import (
    ALIASES,
    RESTLESS,
    TYPICAL_DEVICES,
    DeviceSpec,
    Environment,
    Target,
    target_named,
    typical_device,
)
from kerntune.errors import TargetError


@pytest.mark.parametrize(
    ("text", "target", "triton_arch", "slug"),
    [
        ("cuda:90", Target("cuda", "90", 32), 90, "cuda-90"),
        (" cuda:120 ", Target("cuda", "120", 32), 120, "cuda-120"),
        ("hip:gfx942", Target("hip", "gfx942", 64), "gfx942", "hip-gfx942"),
        ("hip:gfx90a", Target("hip", "gfx90a", 64), "gfx90a", "hip-gfx90a"),
        ("hip:gfx1100", Target("hip", "gfx1100", 32), "gfx1100", "hip-gfx1100"),
    ],
)
def test_parse(text: str, target: Target, triton_arch: int | str, slug: str) -> None:
    assert Target.parse(text) == target
    assert target.triton_arch == triton_arch
    assert target.slug == slug
    assert str(target) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "cuda", "cuda:", "cuda:9", "cuda:90a", "cuda:9000", "sm_90", "hip:942", "hip:gfx", "rocm:gfx942", "CUDA:90"],
)
def test_parse_refuses_with_an_example(text: str) -> None:
    with pytest.raises(TargetError, match=re.escape(repr(text))) as info:
        Target.parse(text)
    assert "cuda:90" in str(info.value)


@given(st.text(max_size=12))
def test_what_parses_is_its_own_text(text: str) -> None:
    try:
        target = Target.parse(text)
    except TargetError:
        return
    assert Target.parse(str(target)) == target
    assert str(target) == text.strip()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("H100", "cuda:90"),
        ("h200", "cuda:90"),
        ("a100", "cuda:80"),
        ("sm_90", "cuda:90"),
        ("RTX 4090", "cuda:89"),
        ("MI300X", "hip:gfx942"),
        ("gfx942", "hip:gfx942"),
        ("rx-7900-xtx", "hip:gfx1100"),
        ("cuda:90", "cuda:90"),
    ],
)
def test_people_may_name_products_and_architectures(text: str, target: str) -> None:
    assert target_named(text) == Target.parse(target)


def test_every_other_name_is_of_a_device_whose_figures_are_known() -> None:
    assert set(ALIASES.values()) == set(TYPICAL_DEVICES)
    assert all(target_named(TYPICAL_DEVICES[t].name.split()[1]) == Target.parse(t) for t in ("cuda:80", "cuda:90"))


@pytest.mark.parametrize(("text", "meant"), [("cuda:9", "cuda:90"), ("h10", "h100"), ("xyz", "")])
def test_what_was_meant_is_said(text: str, meant: str) -> None:
    with pytest.raises(TargetError) as info:
        target_named(text)
    assert str(info.value).partition("; did you mean ")[2] == (f"{meant}?" if meant else "")


def test_what_nothing_is_known_of_has_small_figures() -> None:
    """Those of the first GPUs with Triton."""
    assert DeviceSpec(Target("cuda", "70"), "x", 9) == DeviceSpec(
        Target("cuda", "70", 32), "x", 9, 65536, 2048, 1024, 49152, 65536, 0, ""
    )


def test_digits_are_ascii() -> None:
    with pytest.raises(TargetError):
        Target.parse("cuda:٩٠")


@pytest.mark.parametrize("text", sorted(TYPICAL_DEVICES))
def test_typical_devices_are_plausible(text: str) -> None:
    spec = typical_device(Target.parse(text))
    assert spec.target == Target.parse(text)
    assert 49152 <= spec.shared_memory_per_block <= spec.shared_memory_per_sm
    assert spec.sm_count > 0
    assert spec.l2_bytes >= 1 << 20
    assert spec.max_threads_per_block <= spec.max_threads_per_sm
    assert spec.max_threads_per_sm % spec.warp_size == 0
    assert spec.registers_per_sm >= 32768
    assert spec.warp_size == spec.target.warp_size


def test_typical_device_names_are_distinct_folders() -> None:
    slugs = [spec.slug for spec in TYPICAL_DEVICES.values()]
    assert len(set(slugs)) == len(slugs)


def test_unknown_device_lists_the_known() -> None:
    with pytest.raises(TargetError, match=r"cuda:70.*cuda:90") as info:
        typical_device(Target("cuda", "70"))
    assert info.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("  Tesla/T4 ", "tesla-t4"),
        ("../..", "unknown"),
        ("", "unknown"),
    ],
)
def test_device_slug(name: str, slug: str) -> None:
    assert DeviceSpec(Target("cuda", "90"), name, 132).slug == slug


@given(st.text())
def test_device_slug_is_always_one_plain_folder(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", DeviceSpec(Target("cuda", "90"), name, 132).slug)


def test_environment_differences_leave_clocks_out() -> None:
    before = Environment("3.8.0", driver="560.1", sm_clock_mhz=1980, memory_clock_mhz=2619, throttle="")
    after = Environment("3.9.0", driver="570.2", sm_clock_mhz=1200, memory_clock_mhz=1, throttle="power", power_w=699.0)
    assert before.differences(after) == ["triton: 3.8.0 -> 3.9.0", "driver: 560.1 -> 570.2", "throttle:  -> power"]
    assert before.differences(before) == []


@pytest.mark.parametrize("field", [f for f in Environment.__struct_fields__ if f not in RESTLESS])
def test_every_other_field_of_an_environment_counts(field: str) -> None:
    before = Environment("3.9.0")
    after = msgspec.structs.replace(before, **{field: "other"})
    assert before.differences(after) == [f"{field}: {getattr(before, field)} -> other"]


PRODUCTS = {
    # multiprocessors or compute units, MiB of L2; data sheets
    "cuda:75": (40, 4), "cuda:80": (108, 40), "cuda:86": (72, 6), "cuda:87": (16, 4), "cuda:89": (142, 96),
    "cuda:90": (132, 50), "cuda:100": (148, 126), "cuda:103": (148, 126), "cuda:120": (170, 96), "cuda:121": (48, 24),
    "hip:gfx90a": (104, 8), "hip:gfx942": (304, 4), "hip:gfx950": (256, 4), "hip:gfx1100": (96, 6),
    "hip:gfx1200": (32, 4), "hip:gfx1201": (64, 8),
}  # fmt: skip
CAPABILITIES = {
    # KiB of shared memory of a multiprocessor, its threads; CUDA C++ Programming Guide, "Compute Capabilities"
    75: (64, 1024), 80: (164, 2048), 86: (100, 1536), 87: (164, 1536), 89: (100, 1536), 90: (228, 2048),
    100: (228, 2048), 103: (228, 2048), 120: (100, 1536), 121: (100, 1536),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPICAL_DEVICES)
def test_figures_of_devices_are_those_that_are_published(name: str) -> None:
    spec = TYPICAL_DEVICES[name]
    assert (spec.sm_count, spec.l2_bytes / 2**20) == PRODUCTS[name]
    assert spec.max_threads_per_block == 1024
    if spec.target.backend == "cuda":
        capability = int(spec.target.arch)
        kib, threads = CAPABILITIES[capability]
        assert (spec.shared_memory_per_sm, spec.max_threads_per_sm) == (kib << 10, threads)
        assert spec.shared_memory_per_block == (kib - (capability >= 80) << 10), "a block's own KiB is reserved"
        assert (spec.registers_per_sm, spec.warp_size) == (65536, 32)
    else:
        wide = spec.target.arch.startswith("gfx9")
        assert (spec.warp_size, spec.max_threads_per_sm) == ((64, 2048) if wide else (32, 1024))
        assert spec.registers_per_sm == (4 * 512 * 64 if wide else 2 * 1536 * 32)
        assert spec.shared_memory_per_block == spec.shared_memory_per_sm == (160 if name == "hip:gfx950" else 64) << 10
