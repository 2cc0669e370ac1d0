"""Values that kernels' tensors are given where nothing runs, and launches that reach none of Triton's entry points."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_runs import COMPILER, N, by_block, scale, scale_kernel, tuned

from kerntune.capture import Capture, Pending
from kerntune.capture import capture as captures
from kerntune.errors import OutOfResourcesError, UsageError
from kerntune.gpu.scripted import FakeBackend


@pytest.fixture
def supplied(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What tensors were given."""
    found: list[Any] = []
    monkeypatch.setattr(backend.tensors, "supply", lambda tensor, given: found.append((tensor, given)), raising=False)
    return found


def launch(backend: Any, values: Any, x: torch.Tensor) -> None:
    with Capture(backend, COMPILER, values={"scale_kernel": values}).active():
        scale_kernel[by_block](x, x, N, 2.0, BLOCK=64)


FILE = scale_kernel.fn.__code__.co_filename


def test_values_are_given_where_nothing_runs_alone(
    backend: FakeBackend, supplied: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.empty(N, device="cuda")
    launch(backend, {"x_ptr": "values"}, x)
    assert supplied == []
    monkeypatch.setattr(backend, "gpu", None)
    launch(backend, {"x_ptr": "values", "y_ptr": "others"}, x)
    assert [(tensor is x, given) for tensor, given in supplied] == [(True, "values"), (True, "others")]
    with Capture(backend, COMPILER, values={"other": {"x_ptr": "values"}}).active():
        scale_kernel[by_block](x, x, N, 2.0, BLOCK=64)
    assert len(supplied) == 2


def test_every_argument_is_looked_at_where_nothing_is_given(backend: FakeBackend) -> None:
    with pytest.raises(UsageError, match=r"scale_kernel\.z_ptr .*the kernel has no such tensor"):
        launch(backend, {"x_ptr": "values", "z_ptr": "values"}, torch.empty(N, device="cuda"))


@pytest.mark.parametrize("argument", ["n", "z_ptr"])
def test_values_of_what_is_no_tensor_name_those_that_are(backend: FakeBackend, argument: str) -> None:
    with pytest.raises(UsageError) as caught:
        launch(backend, {argument: 1}, torch.empty(N, device="cuda"))
    where = f"values of scale_kernel.{argument} ({FILE}): "
    assert str(caught.value) == f"{where}the kernel has no such tensor; it has x_ptr, y_ptr"


def test_values_of_a_kernel_without_tensors_say_so(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "gpu", None)
    with pytest.raises(UsageError, match=r"no such tensor; it has none$"):
        launch(backend, {"x_ptr": 1}, 2**40)  # type: ignore[arg-type]


def test_values_that_do_not_fit_name_kernel_and_file(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tensor: Any, given: Any) -> None:
        raise UsageError("have another shape")

    monkeypatch.setattr(backend.tensors, "supply", refuse, raising=False)
    monkeypatch.setattr(backend, "gpu", None)
    with pytest.raises(UsageError) as caught:
        launch(backend, {"x_ptr": 1}, torch.empty(N, device="cuda"))
    assert str(caught.value) == f"values of scale_kernel.x_ptr ({FILE}) have another shape"


# launches of others


def test_a_launch_by_other_ways_is_recorded_and_made(backend: FakeBackend) -> None:
    capture, x = Capture(backend, COMPILER), torch.empty(N, device="cuda")
    with capture.active():
        scale_kernel[by_block](x, x, N, 2.0, BLOCK=64)
        before = capture.launches[0]
        pending = Pending(before.jit, before.specialized, (3, 1, 1))
        result = capture.launch_other(lambda: pytest.fail("it is no probe"), pending, lambda: "made")
    assert (result, capture.launches[1:], capture.latest) == ("made", [pending], pending)


def test_a_launch_by_other_ways_is_probed(backend: FakeBackend) -> None:
    capture, probes = Capture(backend, COMPILER), [SimpleNamespace(target="first"), SimpleNamespace(target="second")]
    pending: Any = SimpleNamespace(kernel="k", specialized=SimpleNamespace(bound={}))

    def run(words: Any, trial: bool = False) -> Any:
        for probe in probes:
            found = capture.launch_other(lambda p=probe: p, pending, lambda: pytest.fail("made"))
            assert found is None

    with capture.active():
        scale(tuned(64))
        site = capture.launches[0].site
        assert site is not None
        site.run = run
        assert capture.probe(site, 0) == probes[1]
    assert len(capture.launches) == 1


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_where_nothing_runs_a_candidate_must_fit(backend: FakeBackend, more: int, fits: bool) -> None:
    capture, have = Capture(backend, COMPILER), backend.spec.shared_memory_per_block
    compiled: Any = SimpleNamespace(binary=SimpleNamespace(shared=have + more))
    if fits:
        return capture._refuse_misfit(compiled)
    with pytest.raises(OutOfResourcesError, match=f"^needs {have + 1} B shared memory a block, .* has {have} B$"):
        capture._refuse_misfit(compiled)


def test_a_capture_of_one_thread_is_no_others(backend: FakeBackend) -> None:
    mine = Capture(backend, COMPILER, thread=threading.get_ident())
    other = Capture(backend, COMPILER, thread=-1)
    found = []
    for capture in (mine, other):
        with capture.active():
            scale(scale_kernel, BLOCK=64)
            found.append((capture.records(), captures.current() is capture, len(capture.launches)))
    assert found == [(True, True, 1), (False, False, 0)]
    assert captures.current() is None
    last = captures.last_capture()
    assert last is not None
    assert last() is other


def test_what_is_paused_is_not_recorded(backend: FakeBackend) -> None:
    capture = Capture(backend, COMPILER)
    with capture.active():
        assert capture.in_users_code()
        with capture.paused(), capture.paused():
            scale(scale_kernel, BLOCK=64)
            scale(tuned(64, 128))
            assert (capture.records(), capture.records_launch("k"), capture.in_users_code()) == (False, False, False)
            operator(capture)
        assert capture.records_launch("k")
        scale(scale_kernel, BLOCK=64)
        operator(capture)
    assert len(capture.launches) == 1
    capture.operators.settle()
    assert len(capture.operators.events) == 1


def operator(capture: Capture) -> None:
    """One runs on the device, and is told of."""
    x = torch.empty(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture.operators, "is_device", lambda value: True)
        capture.operators.observe(torch.ops.aten.exp.default, (x,), {}, x.clone(), None)


def test_operators_are_those_of_the_captures_thread(backend: FakeBackend) -> None:
    for thread, count in ((None, 1), (threading.get_ident(), 1), (-1, 0)):
        capture = Capture(backend, COMPILER, thread=thread)
        operator(capture)
        capture.operators.settle()
        assert len(capture.operators.events) == count


def test_operators_of_what_is_suspended_are_not_the_calls(backend: FakeBackend) -> None:
    capture = Capture(backend, COMPILER)
    with capture.active():
        operator(capture)
        with capture.suspended():
            operator(capture)
    capture.operators.settle()
    assert len(capture.operators.events) == 1
