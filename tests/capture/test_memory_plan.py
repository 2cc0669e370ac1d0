"""Memory plans: storages in the order of their first use, views into them, and what they held."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fake_runs import COMPILER, N, captured, increment_kernel, recorded, scale_kernel, script
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.recording import Normal, Param, Storage, Stored, Uniform, View, Zeros
from kerntune.capture import memory_plan
from kerntune.capture.memory_plan import Plan, describe
from kerntune.errors import CaptureError, MeasurementError
from kerntune.gpu.scripted import FakeBackend, FakeGpu

SAMPLE_BYTES = 1 << 20


def launch_scale(x: torch.Tensor, y: torch.Tensor) -> None:
    scale_kernel[(64,)](x, y, N, 2.0, BLOCK=64)


# views and storages


def view(plan: Plan, tensor: torch.Tensor) -> View:
    index = plan.view_of(tensor)
    return plan.views[index]


def test_one_tensor_is_one_view(backend: FakeBackend) -> None:
    plan, x = Plan(backend), torch.empty(4, 8, device="cuda")
    assert [plan.view_of(x), plan.view_of(x), plan.view_of(x.view(4, 8))] == [0, 0, 0]
    assert plan.views[0].shape == (4, 8)
    assert plan.views[0].strides == (8, 1)


def test_slices_and_transposes_share_their_storage(backend: FakeBackend) -> None:
    plan, x = Plan(backend), torch.empty(4, 8, device="cuda", dtype=torch.float16)
    views = [view(plan, t) for t in (x, x.t(), x[1:, 2:])]
    assert {v.storage for v in views} == {0}
    assert [v.offset_bytes for v in views] == [0, 0, (8 + 2) * 2]
    assert [v.strides for v in views] == [(8, 1), (1, 8), (8, 1)]
    assert plan.storages(set(), set())[0].nbytes == 64


def test_storages_are_whole_and_in_the_order_of_first_use(backend: FakeBackend) -> None:
    plan = Plan(backend)
    a, b = torch.empty(100, device="cuda"), torch.empty(50, device="cuda", dtype=torch.int64)
    assert [plan.storage_of_view(plan.view_of(t)) for t in (b[10:], a[5:6], b)] == [0, 1, 0]
    assert [(s.nbytes, s.dtype) for s in plan.storages({0}, {1})] == [(400, "int64"), (400, "float32")]
    assert [(s.read, s.written) for s in plan.storages({0}, {1})] == [(True, False), (False, True)]


def test_reinterpreted_tensors_keep_their_memory_and_show_the_new_dtype(backend: FakeBackend) -> None:
    plan, x = Plan(backend), torch.empty(16, device="cuda", dtype=torch.int8)
    views = [plan.view_of(x), plan.view_of(triton.reinterpret(x, triton.language.float8e5))]
    assert [plan.views[v].dtype for v in views] == ["int8", "fp8e5"]
    assert [plan.storage_of_view(v) for v in views] == [0, 0]


@pytest.mark.parametrize("tensor", [torch.empty(4), torch.empty(4, device="meta")], ids=["cpu", "meta"])
def test_memory_elsewhere_is_refused(backend: FakeBackend, tensor: torch.Tensor) -> None:
    if tensor.device.type == "cuda":
        pytest.fail("made before the stand-ins")
    with pytest.raises(CaptureError, match=f"kernel k: x is a tensor on {tensor.device.type}.*device=autotune.device"):
        Plan(backend).view_of(tensor, "kernel k: x")


def test_a_plan_keeps_its_tensors_so_that_no_address_returns(backend: FakeBackend) -> None:
    plan = Plan(backend)
    for _ in range(20):
        plan.view_of(torch.empty(256, device="cuda"))
    assert len(plan.tensors()) == len(plan.views) == len({backend.tensors.address(t) for t in plan.tensors()}) == 20


def test_empty_tensors_are_one_storage_however_often_they_are_looked_at(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real empty tensor's address is 0. A plan that grew by looking made a candidate's views unknown to the run's."""
    monkeypatch.setattr(backend.tensors, "storage_address", lambda tensor: 0)
    monkeypatch.setattr(backend.tensors, "address", lambda tensor: 0)
    plan, x = Plan(backend), torch.empty(0, device="cuda")
    assert [plan.view_of(x), plan.view_of(x), plan.view_of(torch.empty(0, device="cuda"))] == [0, 0, 0]
    assert [s.nbytes for s in plan.storages(set(), set())] == [0]


def test_an_empty_part_of_memory_lies_at_its_beginning(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch gives 0 as its address, which is below that of its memory."""
    plan, x = Plan(backend), torch.empty(8, device="cuda")
    monkeypatch.setattr(backend.tensors, "address", lambda tensor: 0)
    part = view(plan, x[8:])
    assert (part.storage, part.shape, part.offset_bytes) == (0, (0,), 0)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    picks=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(1, 8), st.booleans()), min_size=1, max_size=12
    )
)
def test_any_views_lie_inside_their_storage(shared: FakeBackend, picks: list[tuple[int, int, int, bool]]) -> None:
    bases = [torch.empty(8, 8, device="cuda", dtype=d) for d in (torch.float32, torch.float16, torch.int64)]
    plan = Plan(shared)
    for which, start, length, transposed in picks:
        part = bases[which][start : start + length, start:]
        tensor = part.t() if transposed else part
        found = view(plan, tensor)
        assert found.shape == tuple(tensor.shape)
        size = plan.storages(set(), set())[found.storage].nbytes
        last = found.offset_bytes + sum((n - 1) * s for n, s in zip(found.shape, found.strides, strict=True)) * (
            tensor.element_size()
        )
        assert last + tensor.element_size() <= size
    assert len(plan.tensors()) == len({which for which, *_ in picks})


# what was there before


def test_written_memory_is_kept_as_it_was_before_the_first_write(backend: FakeBackend) -> None:
    x = torch.empty(N, device="cuda")
    backend.gpu.fill(backend.gpu.borrow(x), 1)

    def op() -> None:
        increment_kernel[(64,)](x, N, BLOCK=64)
        backend.gpu.fill(backend.gpu.borrow(x), 2)
        increment_kernel[(64,)](x, N, BLOCK=64)
        backend.gpu.fill(backend.gpu.borrow(x), 3)

    (source,) = recorded(backend, op).sources
    assert backend.gpu.read(source.pristine, 1) == b"\x01"
    assert not source.shared


def test_memory_that_is_only_read_is_borrowed(backend: FakeBackend) -> None:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    first, second = recorded(backend, lambda: launch_scale(x, y)).sources
    assert (first.shared, first.pristine) == (True, backend.gpu.borrow(x))
    assert (second.shared, second.pristine is backend.gpu.borrow(y)) == (False, False)


def test_keeping_needs_room(backend: FakeBackend) -> None:
    script(backend, memory_bytes=N)
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with pytest.raises(MeasurementError, match=r"keeping the first content.*use smaller inputs"):
        captured(backend, lambda: launch_scale(x, y))


def test_preserving_undoes_writes_even_after_an_error(backend: FakeBackend) -> None:
    x, gpu = torch.empty(N, device="cuda"), backend.gpu
    gpu.fill(gpu.borrow(x), 4)
    with pytest.raises(ValueError, match="oops"), Plan(backend).preserving([x, 3, "text", None]):  # noqa: PT012
        gpu.fill(gpu.borrow(x), 5)
        raise ValueError("oops")
    assert gpu.read(gpu.borrow(x), 1) == b"\x04"


def test_each_copy_to_preserve_counts_beside_those_before(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no room on the device goes to the host."""
    asked: list[tuple[int, int, int]] = []
    keep = memory_plan.keep_at_home
    monkeypatch.setattr(
        memory_plan,
        "keep_at_home",
        lambda gpu, b, inputs, held: (asked.append((b.nbytes, inputs, held)), keep(gpu, b, inputs, held))[1],
    )
    tensors = [torch.empty(n, device="cuda", dtype=torch.int8) for n in (100, 20, 3)]
    plan = Plan(backend)
    with plan.preserving([*tensors, "text"]):
        pass
    assert asked == [(100, 123, 0), (20, 123, 100), (3, 123, 120)]
    asked.clear()
    for tensor in tensors:
        plan.view_of(tensor)
    for index in (1, 1, 0):
        plan._keep_at_home(index)
    assert asked == [(20, 123, 0), (100, 123, 20)]
    assert plan.among([tensors[0][5:], "text", torch.empty(4, device="cuda"), tensors[2]]).keys() == {0, 2}


@pytest.mark.parametrize(("nbytes", "whole"), [(16, True), (20, False)])
def test_what_a_storage_is_described_by(nbytes: int, whole: bool) -> None:
    """Each has its number as its seed; of what is read alone something is kept."""
    data, asked = struct.pack("<8i", 3, 7, 5, 5, 5, 5, 5, 5)[:nbytes], list[int | None]()
    gpu = SimpleNamespace(read=lambda buffer, most: (asked.append(most), data)[1])
    storages = tuple(
        Storage(nbytes, dtype, Zeros(), read=read)
        for dtype, read in (("int32", False), ("int32", True), ("float16", True))
    )
    device: Any = SimpleNamespace(gpu=gpu)
    (unread, integers, floats), kept = describe(storages, [SimpleNamespace(pristine=None)] * 3, device, store_limit=16)
    assert unread is storages[0]
    assert asked == [None if whole else SAMPLE_BYTES, SAMPLE_BYTES]
    assert isinstance(floats.content, Normal)
    assert floats.content.seed == 2
    if whole:
        assert isinstance(integers.content, Stored)
        assert kept == {integers.content.sha256: data}
    else:
        assert (integers.content, kept) == (Uniform(3, 7, seed=1), {})


# content


def content_of(backend: FakeBackend, dtype: torch.dtype, byte: int, count: int = 1024) -> Any:
    x = torch.empty(count, device="cuda", dtype=dtype)
    backend.gpu.fill(backend.gpu.borrow(x), byte)
    y = torch.empty(count, device="cuda", dtype=torch.float32)
    found = recorded(backend, lambda: scale_kernel[(4,)](x, y, count, 2.0, BLOCK=64))
    storages, kept = describe(found.recording.storages, found.sources, backend)
    return storages, kept


def test_floats_become_a_distribution(backend: FakeBackend) -> None:
    storages, kept = content_of(backend, torch.float32, 0x3F)
    (value,) = struct.unpack("<f", b"\x3f" * 4)
    assert storages[0].content == Normal(mean=float(f"{value:.4g}"), std=0.0, seed=0)
    assert kept == {}


def test_few_whole_numbers_are_kept(backend: FakeBackend) -> None:
    storages, kept = content_of(backend, torch.int32, 1)
    assert isinstance(storages[0].content, Stored)
    assert kept == {storages[0].content.sha256: b"\x01" * 4096}


@pytest.mark.parametrize(
    ("dtype", "count", "sample"),
    [(torch.float32, 16, SAMPLE_BYTES), (torch.int32, 1 << 14, None), (torch.int32, (1 << 14) + 1, SAMPLE_BYTES)],
)
def test_what_is_kept_whole_is_read_whole(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, count: int, sample: int | None
) -> None:
    """Whole numbers of up to 64 KiB; of all else a sample is."""
    asked: list[int | None] = []
    read = FakeGpu.read
    monkeypatch.setattr(FakeGpu, "read", lambda gpu, b, most=None: (asked.append(most), read(gpu, b, most))[1])
    content_of(backend, dtype, 1, count=count)
    assert asked == [sample]


def test_many_whole_numbers_become_a_range(backend: FakeBackend) -> None:
    storages, kept = content_of(backend, torch.int32, 1, count=SAMPLE_BYTES)
    assert storages[0].content == Uniform(0x01010101, 0x01010101, seed=0)
    assert kept == {}


def test_what_is_only_written_is_not_looked_at(backend: FakeBackend) -> None:
    storages, _ = content_of(backend, torch.float32, 0x3F)
    assert storages[1].content == Zeros()
    assert storages[1].written
    assert not storages[1].read


def test_storages_have_seeds_of_their_own(backend: FakeBackend) -> None:
    tensors = [torch.empty(N, device="cuda") for _ in range(3)]
    for t in tensors:
        backend.gpu.fill(backend.gpu.borrow(t), 0x3F)
    found = recorded(backend, lambda: [launch_scale(t, tensors[0]) for t in tensors])
    storages, _ = describe(found.recording.storages, found.sources, backend)
    assert len({s.content.seed for s in storages if isinstance(s.content, Normal)}) == 3


# hidden pointers


@pytest.mark.parametrize("offset", [0, 4 * N - 1])
def test_an_address_in_a_number_is_found(backend: FakeBackend, offset: int) -> None:
    x = torch.empty(N, device="cuda")
    address = backend.tensors.address(x) + offset
    found = recorded(backend, lambda: scale_kernel[(1,)](x, x, address, 2.0, BLOCK=64))
    assert found.recording.hidden_pointers


@pytest.mark.parametrize("value", [N, 2**40 - 1, 2**62])
def test_sizes_are_no_addresses(backend: FakeBackend, value: int) -> None:
    x = torch.empty(N, device="cuda")
    found = recorded(backend, lambda: scale_kernel[(1,)](x, x, value, 2.0, BLOCK=64))
    assert not found.recording.hidden_pointers


def test_one_past_the_end_is_no_address(backend: FakeBackend) -> None:
    plan, x = Plan(backend), torch.empty(N, device="cuda")
    plan.view_of(x)
    end = backend.tensors.address(x) + 4 * N
    assert plan.hides_pointers([Param("p", "i64", value=end - 1)])
    assert not plan.hides_pointers([Param("p", "i64", value=end)])
    assert not plan.hides_pointers([Param("p", "fp32", value=float(end - 1)), Param("q", "*fp32", view=0)])


def test_touched_maps_pointers_to_storages(backend: FakeBackend) -> None:
    plan, x, y = Plan(backend), torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    views = [plan.view_of(x), None, plan.view_of(y), plan.view_of(x[2:])]
    assert plan.touched(views, [0, 3]) == [0]
    assert plan.touched(views, [1]) == []
    assert plan.touched(views, [2, 0, 9]) == [0, 1]


def test_a_capture_plans_with_its_compiler(backend: FakeBackend) -> None:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    capture = captured(backend, lambda: launch_scale(x, y))
    assert capture.compiler is COMPILER
    assert [v.storage for v in capture.plan.views] == [0, 1]


def test_which_pythons_tell_a_function_s_variables_without_keeping_them() -> None:
    """From 3.13 on (PEP 667)."""
    assert (sys.version_info >= (3, 13)) is memory_plan.LOCALS_STAY_AS_THEY_ARE
