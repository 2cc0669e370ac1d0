"""Memory plans of launches that write by addresses among their numbers: what is found, kept and put back."""

from __future__ import annotations

import gc
import struct
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.base.recording import Param
from kerntune.capture import memory_plan
from kerntune.capture.memory_plan import Plan, Spans, holders, possible_addresses, whose
from kerntune.errors import CaptureError, TrialError
from kerntune.gpu.scripted import FakeBackend

LOWEST_ADDRESS = 1 << 32
HIGHEST_ADDRESS = 1 << 57


BEYOND = SimpleNamespace(follows=True, beyond=("kernel.py:7",), reads=(), writes=())
WITHIN = SimpleNamespace(follows=False, beyond=(), reads=(), writes=(0,))


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (words(LOWEST_ADDRESS - 1, LOWEST_ADDRESS), [LOWEST_ADDRESS]),
        (words(HIGHEST_ADDRESS, HIGHEST_ADDRESS - 1), [HIGHEST_ADDRESS - 1]),
        (words(2**50, 2**45, 2**50, 2**47), [2**50, 2**45, 2**47]),
        (words(2**50) + words(2**45)[:7], [2**50]),
        (b"", []),
    ],
)
def test_words_that_could_be_addresses(data: bytes, found: list[int]) -> None:
    """Each once, in the order of their first appearance."""
    assert possible_addresses(data) == found


def test_pieces_of_memory_own_their_addresses() -> None:
    spans = Spans([(20, 30, "b"), (12, 20, "window"), (10, 15, "short"), (10, 20, "a"), (28, 35, "c")])
    assert [spans.at(n) for n in (9, 10, 14, 19, 20, 27, 28, 34, 35)] == [None, *"aaabbcc", None]
    assert Spans(()).at(5) is None


def test_holders_are_one_tensor_a_storage(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    x, y = torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    place = backend.tensors.storage_address
    found, nobodys = holders(backend.tensors, [place(y) + 31, place(x), place(y), 5])
    assert [place(tensor) for tensor in found] == [place(y), place(x)]
    assert nobodys == [5]


HIDDEN = " (of 1,234 objects under gc.freeze() those were found that modules lead to)"


@pytest.mark.parametrize(("frozen", "hidden"), [(0, ""), (1234, HIDDEN)])
def test_an_address_in_no_tensor_is_told(monkeypatch: pytest.MonkeyPatch, frozen: int, hidden: str) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    assert whose(0xABC) == f"the address 0xabc lies in memory of no tensor that Python knows{hidden}"


# what a launch reaches


@pytest.fixture
def held(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """What tensors hold, by address; the others a byte all over."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    read, found = backend.gpu.read, dict[int, bytes]()

    def answer(buffer: Any, limit: int | None = None) -> bytes:
        return found.get(buffer.address) or read(buffer, limit)

    monkeypatch.setattr(backend.gpu, "read", answer)
    return found


def reached(plan: Plan, *values: Any, access: Any = BEYOND) -> list[int]:
    """The storages that a launch with these arguments is taken to write by addresses."""
    params = tuple(
        Param(f"p{i}", "i64", value=v) if isinstance(v, int) else Param(f"p{i}", "*i64", view=plan.view_of(v))
        for i, v in enumerate(values)
    )
    plan.params_of = lambda launch, compiled: params  # type: ignore[method-assign]
    plan.look_ahead(SimpleNamespace(access=access), SimpleNamespace(name="k"))  # type: ignore[arg-type]
    return plan.beyond(access)


def table(count: int = 4, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(count, device="cuda", dtype=dtype)


def test_tables_of_tables_are_followed(backend: FakeBackend, held: dict[int, bytes]) -> None:
    plan, first, second, x, y = Plan(backend), table(), table(), torch.empty(8, device="cuda"), table(8, torch.int8)
    place = backend.tensors.address
    held[place(first)] = words(place(second), place(x), place(first))
    held[place(second)] = words(place(y) + 7, place(first))
    assert reached(plan, first) == [0, 1, 2, 3]
    assert [place(t) for t in plan.tensors()] == [place(t) for t in (first, second, x, y)]
    assert (plan.follows, plan.searched, plan.unsaved) == (True, True, "")


def test_an_address_may_be_a_number(backend: FakeBackend, held: dict[int, bytes]) -> None:
    plan, x, y = Plan(backend), torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    assert reached(plan, x, backend.tensors.address(y), 8, True) == [1]
    assert plan.unsaved == ""


def test_what_follows_no_address_is_not_searched(backend: FakeBackend, held: dict[int, bytes]) -> None:
    plan, x = Plan(backend), table()
    held[backend.tensors.address(x)] = words(backend.tensors.address(x))
    assert reached(plan, x, access=WITHIN) == []
    assert (plan.follows, plan.searched, plan.unsaved) == (False, False, "")
    with pytest.raises(TrialError, match="writes where no argument points, which the recorded run did not"):
        plan.beyond(BEYOND)  # type: ignore[arg-type]


NONE = "none of its arguments holds the address of a tensor"


@pytest.mark.parametrize(
    ("count", "dtype", "why"),
    [
        (8, torch.int64, ""),
        (9, torch.int64, "a tensor of 0 MiB of 64-bit integers is too large to search for addresses"),
        (8, torch.int32, ""),
        (9, torch.int32, NONE),
        (32, torch.uint8, ""),
        (8, torch.float32, NONE),
        (8, torch.int16, NONE),
    ],
)
def test_which_tensors_are_searched(
    backend: FakeBackend, held: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, count: int, dtype: Any, why: str
) -> None:
    monkeypatch.setattr(memory_plan, "TABLE_LIMIT", 64)
    monkeypatch.setattr(memory_plan, "BYTES_LIMIT", 32)
    plan, x, y = Plan(backend), table(count, dtype), torch.empty(8, device="cuda")
    held[backend.tensors.address(x)] = words(backend.tensors.address(y))
    assert reached(plan, x) == ([] if why else [1])
    assert plan.unsaved == (f"kernel k writes where no argument points (kernel.py:7), and {why}" if why else "")


def test_a_tensor_counts_by_all_of_its_views(backend: FakeBackend, held: dict[int, bytes]) -> None:
    plan, x, y = Plan(backend), torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    held[backend.tensors.address(x)] = words(backend.tensors.address(y))
    plan.view_of(table())
    plan.view_of(x)
    assert reached(plan, x) == []
    plan.unsaved = ""
    assert reached(plan, x, x.view(torch.int64)) == [2]


@pytest.mark.parametrize(("most", "why"), [(2, ""), (1, "2 numbers among its arguments may be addresses")])
def test_not_all_numbers_are_asked_about(
    backend: FakeBackend, held: dict[int, bytes], monkeypatch: pytest.MonkeyPatch, most: int, why: str
) -> None:
    monkeypatch.setattr(memory_plan, "MOST_ADDRESSES", most)
    plan, x = Plan(backend), torch.empty(8, device="cuda")
    reached(plan, backend.tensors.address(x), backend.tensors.address(x), backend.tensors.address(x) + 4)
    assert plan.unsaved == (f"kernel k writes where no argument points (kernel.py:7), and {why}" if why else "")


def test_memory_of_no_tensor_is_not_kept(
    backend: FakeBackend, held: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(backend)
    monkeypatch.setattr(backend.gpu, "reaches", lambda address: True)
    monkeypatch.setattr(memory_plan, "holders", lambda tensors, addresses: ([], addresses))
    assert reached(plan, LOWEST_ADDRESS) == []
    assert f"and the address {LOWEST_ADDRESS:#x} lies in memory of no tensor" in plan.unsaved


@pytest.mark.parametrize(("index", "refused"), [(None, False), (0, False), (1, True)])
def test_memory_of_another_gpu_is_refused(backend: FakeBackend, index: int | None, refused: bool) -> None:
    tensor, plan = SimpleNamespace(device=SimpleNamespace(index=index)), Plan(backend)
    if not refused:
        return plan._refuse_other_gpu(tensor)
    with pytest.raises(CaptureError, match=r"on cuda:0 follows an address into a tensor on cuda:1: .* one device"):
        plan._refuse_other_gpu(tensor)


# what is kept of it


def byte(backend: FakeBackend, tensor: torch.Tensor) -> int:
    return int(backend.gpu.read(backend.gpu.borrow(tensor), 1)[0])


def test_what_is_used_in_place_is_put_back(backend: FakeBackend, held: dict[int, bytes]) -> None:
    plan, x, y = Plan(backend), torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    gpu, buffers = backend.gpu, [backend.gpu.borrow(t) for t in (x, y)]
    for buffer in buffers:
        gpu.fill(buffer, 3)
    assert reached(plan, x, backend.tensors.address(y)) == [1]
    assert [(s.shared, s.home) for s in plan.sources()] == [(True, None), (False, buffers[1])]
    with plan.homes_preserved():
        for buffer in buffers:
            gpu.fill(buffer, 4)
    assert [byte(backend, t) for t in (x, y)] == [4, 3]
    gpu.fill(buffers[1], 5)
    plan.rewind()
    assert [byte(backend, t) for t in (x, y)] == [4, 3]


def test_what_was_kept_before_a_launch_wrote_it_stays_the_first_content(
    backend: FakeBackend, held: dict[int, bytes]
) -> None:
    """It is no second copy."""
    plan, x, gpu = Plan(backend), torch.empty(8, device="cuda"), backend.gpu
    gpu.fill(gpu.borrow(x), 3)
    reached(plan, x, access=WITHIN)
    compiled: Any = SimpleNamespace(access=WITHIN)
    plan.observe(compiled, SimpleNamespace(name="k"))  # type: ignore[arg-type]
    (kept,) = plan.sources()
    gpu.fill(gpu.borrow(x), 4)
    assert reached(plan, backend.tensors.address(x)) == [0]
    (source,) = plan.sources()
    assert (source.pristine, source.shared, source.home) == (kept.pristine, False, gpu.borrow(x))
    assert gpu.read(source.pristine, 1) == b"\x03"


def test_room_is_asked_for_with_what_is_there_already(
    backend: FakeBackend, held: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of all tensors, and of those kept so far."""
    asked, keep = [], memory_plan.keep_at_home

    def kept(gpu: Any, buffer: Any, inputs: int, held: int = 0) -> Any:
        asked.append((buffer.nbytes, inputs, held))
        return keep(gpu, buffer, inputs, held)

    monkeypatch.setattr(memory_plan, "keep_at_home", kept)
    plan, tensors = Plan(backend), [torch.empty(n, device="cuda") for n in (8, 4, 2)]
    reached(plan, tensors[0], *(backend.tensors.address(t) for t in tensors))
    assert asked == [(32, 56, 0), (16, 56, 32), (8, 56, 48)]
    asked.clear()
    with plan.preserving(tensors):
        assert asked == [(32, 56, 0), (16, 56, 32), (8, 56, 48)]


def test_which_values_launches_touch(backend: FakeBackend) -> None:
    plan, x, y = Plan(backend), torch.empty(8, device="cuda"), torch.empty(8, device="cuda")
    empty, z = torch.empty(0, device="cuda"), torch.empty(8, device="cuda")
    for tensor in (x, y, empty):
        plan.view_of(tensor)
    found = plan.among([y, 3, "text", None, z, empty, x])
    assert {index: id(tensor) for index, tensor in found.items()} == {1: id(y), 0: id(x)}
