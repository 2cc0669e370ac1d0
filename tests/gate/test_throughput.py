"""Bytes from memory plans, shares of launches, and a device's bandwidth that is measured once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from doubles import raising
from fake_runs import N, block, by_block, increment_kernel, recorded, scale, scale_kernel, script
from hypothesis import given
from hypothesis import strategies as st

from kerntune.base.recording import Recording, View
from kerntune.base.roofline import bits_of, bytes_moved
from kerntune.errors import MeasurementError
from kerntune.gate.static_figures import launch_shares
from kerntune.gpu.program import Loader, Program
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.timing import sampling
from kerntune.timing.sampling import launch_times, measured_bandwidth
from kerntune.tuning.device_figures import device_bandwidth

RIGHT = 60
MAX_LAUNCHES = 16


replace = msgspec.structs.replace


def one() -> None:
    scale(scale_kernel, BLOCK=64)


def in_place() -> None:
    increment_kernel[by_block](torch.randn(N, device="cuda"), N, BLOCK=64)


def several() -> None:
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
    increment_kernel[by_block](y, N, BLOCK=64)
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)


# bytes


@pytest.mark.parametrize(("call", "launches"), [(one, 1), (in_place, 1), (several, 3)])
def test_what_each_launch_reads_and_writes_counts_once_each(backend: FakeBackend, call: Any, launches: int) -> None:
    assert bytes_moved(recorded(backend, call).recording) == launches * 2 * 4 * N


def with_input(backend: FakeBackend, *views: View) -> Recording:
    """``one`` whose input is seen through these views, a parameter each."""
    made = recorded(backend, one).recording
    (launch,) = made.launches
    first, *rest = launch.params
    inputs = tuple(replace(first, view=len(made.views) + i) for i in range(len(views)))
    return replace(made, views=(*made.views, *views), launches=(replace(launch, params=(*inputs, *rest)),))


def test_a_part_of_a_storage_is_a_part(backend: FakeBackend) -> None:
    assert bytes_moved(with_input(backend, View(0, "float32", (100,), (1,)))) == 400 + 4 * N


def test_broadcast_dimensions_count_once(backend: FakeBackend) -> None:
    assert bytes_moved(with_input(backend, View(0, "float32", (64, 100), (0, 1)))) == 400 + 4 * N


def test_the_same_view_twice_and_overlaps_are_no_more_than_the_storage(backend: FakeBackend) -> None:
    half = View(0, "float32", (N // 2,), (1,))
    assert bytes_moved(with_input(backend, half, half)) == 2 * N + 4 * N
    whole, shifted = View(0, "float32", (N,), (1,)), View(0, "float32", (N - 8,), (1,), offset_bytes=32)
    assert bytes_moved(with_input(backend, whole, shifted)) == 4 * N + 4 * N


def test_an_empty_grid_moves_nothing(backend: FakeBackend) -> None:
    made = recorded(backend, one).recording
    assert bytes_moved(replace(made, launches=(replace(made.launches[0], grid=(0, 1, 1)),))) == 0


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", 32), ("bfloat16", 16), ("float8_e4m3fn", 8), ("int64", 64), ("bool", 8), ("uint8", 8),
     ("complex64", 64), ("float4_e2m1fn_x2", 8), ("strange", 8)],
)  # fmt: skip
def test_sizes_of_dtypes(dtype: str, bits: int) -> None:
    assert bits_of(dtype) == bits


@pytest.mark.parametrize("name", ["float16", "float64", "int8", "int16", "int32", "bfloat16", "bool", "complex128"])
def test_sizes_are_torchs(name: str) -> None:
    assert bits_of(name) == 8 * getattr(torch, name).itemsize


# shares


def shares_of(backend: FakeBackend, call: Any, *rules: Rule) -> tuple[float, ...]:
    script(backend, *rules, noise=0.0)
    found = recorded(backend, call)
    return launch_times(Loader(backend.gpu), found.recording, found.sources, found.artifacts)


def test_each_launch_has_its_own_time(backend: FakeBackend) -> None:
    times = shares_of(backend, several, Rule("scale_kernel", time_ns=300.0), Rule("increment_kernel", time_ns=400.0))
    assert times == pytest.approx((300.0, 400.0, 300.0))
    found = launch_shares(recorded(backend, several).recording, times)
    assert [(s.index, s.kernel, s.share) for s in found] == [
        (1, "increment_kernel", 0.4),
        (0, "scale_kernel", 0.3),
        (2, "scale_kernel", 0.3),
    ]


def test_a_launch_without_blocks_takes_no_time(backend: FakeBackend) -> None:
    script(backend, Rule("scale_kernel", time_ns=300.0), Rule("increment_kernel", time_ns=400.0), noise=0.0)
    found = recorded(backend, several)
    empty = replace(found.recording.launches[1], grid=(1, 0, 1))
    for launches, times in (((empty, *found.recording.launches[:2]), (0.0, 300.0, 400.0)), ((empty, empty), ())):
        made = replace(found.recording, launches=launches)
        assert launch_times(Loader(backend.gpu), made, found.sources, found.artifacts) == pytest.approx(times)


def test_one_launch_is_all_of_it(backend: FakeBackend) -> None:
    assert shares_of(backend, one) == ()
    assert launch_shares(recorded(backend, one).recording, ()) == ()


def test_too_many_kinds_of_launches_are_not_taken_apart(backend: FakeBackend) -> None:
    def many() -> None:
        for count in range(MAX_LAUNCHES + 1):
            increment_kernel[by_block](torch.randn(N, device="cuda"), N - count, BLOCK=64)

    assert shares_of(backend, many) == ()


def test_without_room_there_are_no_shares(backend: FakeBackend) -> None:
    found = recorded(backend, several)
    backend.gpu.script.memory_bytes = 0
    assert launch_times(Loader(backend.gpu), found.recording, found.sources, found.artifacts) == ()


def test_equal_launches_are_timed_once(backend: FakeBackend) -> None:
    def again() -> None:
        x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
        for _ in range(2):
            scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)

    shares_of(backend, again, block(64, 1e6))
    twice = backend.gpu.launches
    shares_of(backend, several, Rule(time_ns=1e6))
    assert backend.gpu.launches > 1.5 * twice, "two kinds against one"


@pytest.mark.slow
@given(st.lists(st.floats(0.1, 1e9), min_size=3, max_size=3))
def test_shares_come_to_one_slowest_first(shared: FakeBackend, times: list[float]) -> None:
    found = launch_shares(recorded(shared, several).recording, times)
    assert sum(s.share for s in found) == pytest.approx(1.0, abs=0.001)
    assert [s.time_ns for s in found] == sorted((round(t, 1) for t in times), reverse=True)


def test_times_of_launches_have_a_tenth_of_a_nanosecond_and_shares_four_digits() -> None:
    recording: Any = SimpleNamespace(launches=[SimpleNamespace(kernel="a"), SimpleNamespace(kernel="b")])
    found = [(s.kernel, s.time_ns, s.share) for s in launch_shares(recording, [111.1111, 222.2222])]
    assert found == [("b", 222.2, 0.6667), ("a", 111.1, 0.3333)]


# bandwidth


@pytest.fixture
def copying(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Copies at a terabyte a second, which moves two."""
    real = FakeGpu.copy

    def copy(self: FakeGpu, target: Any, source: Any) -> None:
        self._clock += source.nbytes / 1e12 * 1e9
        real(self, target, source)

    monkeypatch.setattr(FakeGpu, "copy", copy)
    return backend


def test_a_copy_reads_and_writes(copying: FakeBackend) -> None:
    assert measured_bandwidth(copying.gpu) == pytest.approx(2e12)


def test_what_is_copied_is_larger_than_the_cache_and_not_in_it(
    copying: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, sizes, flushed = copying.gpu, [], []
    allocate = gpu.allocate
    monkeypatch.setattr(gpu, "allocate", lambda nbytes: sizes.append(nbytes) or allocate(nbytes))
    monkeypatch.setattr(gpu, "flush_l2", lambda: flushed.append(len(sizes)))
    monkeypatch.setattr(sampling, "LEAST_COPIED_BYTES", 1)
    monkeypatch.setattr(sampling, "flushes_before", lambda gpu, run: 2)
    measured_bandwidth(gpu)
    assert sizes == [8 * gpu.spec.l2_bytes] * 2
    assert len(flushed) == 2 * 9


def test_without_memory_or_time_there_is_no_figure(backend: FakeBackend) -> None:
    assert measured_bandwidth(backend.gpu) is None
    backend.gpu.script.memory_bytes = 0
    assert measured_bandwidth(backend.gpu) is None


def test_a_full_device_is_not_measured(copying: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeGpu, "allocate", raising(MeasurementError("no room")))
    assert device_bandwidth(copying.gpu, tmp_path) is None


def test_a_device_is_measured_once(copying: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copying.gpu.spec = replace(copying.gpu.spec, uuid="abc")
    assert device_bandwidth(copying.gpu, tmp_path) == pytest.approx(2e12)
    monkeypatch.setattr(FakeGpu, "copy", None)
    assert device_bandwidth(copying.gpu, tmp_path) == pytest.approx(2e12)
    assert [p.name for p in tmp_path.rglob("*.json")] == ["abc.json"]


def test_another_device_is_measured_anew(copying: FakeBackend, tmp_path: Path) -> None:
    copying.gpu.spec = replace(copying.gpu.spec, uuid="abc", name="one")
    device_bandwidth(copying.gpu, tmp_path)
    copying.gpu.spec = replace(copying.gpu.spec, name="other")
    before = copying.gpu._clock
    assert device_bandwidth(copying.gpu, tmp_path) == pytest.approx(2e12)
    assert copying.gpu._clock > before


def test_a_damaged_entry_is_measured_over(copying: FakeBackend, tmp_path: Path) -> None:
    copying.gpu.spec = replace(copying.gpu.spec, uuid="abc")
    device_bandwidth(copying.gpu, tmp_path)
    (tmp_path / "devices" / "abc.json").write_text("{")
    assert device_bandwidth(copying.gpu, tmp_path) == pytest.approx(2e12)
    assert (tmp_path / "devices" / "abc.damaged").exists()


def test_without_an_identity_nothing_is_kept(copying: FakeBackend, tmp_path: Path) -> None:
    assert device_bandwidth(copying.gpu, tmp_path) == pytest.approx(2e12)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_launch_works_on_what_those_before_it_leave(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that the first launch makes is the second one's input: what lay there before the call could be any
    address."""
    script(backend, noise=0.0)
    found = recorded(backend, several)
    asked: list[bytes] = []
    real = Program.enqueue

    def looking(self: Program, replica: int = 0) -> None:
        if [x.kernel for x in self.recording.launches] == ["increment_kernel"]:
            asked.append(self.gpu.read(self.memory.buffer(replica, 1), 1))
        real(self, replica)

    monkeypatch.setattr(Program, "enqueue", looking)
    launch_times(Loader(backend.gpu), found.recording, found.sources, found.artifacts)
    assert {byte & 0xF8 for (byte,) in asked} == {RIGHT & 0xF8}
