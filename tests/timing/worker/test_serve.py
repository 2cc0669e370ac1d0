"""What a process that times answers, in this process: pairs on a scripted device, failures, its start and its end."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_runs import block, recorded, scale, scale_kernel, script
from samples import recording

from kerntune.base.device import Target
from kerntune.errors import (
    BackendError,
    KerntuneError,
    MeasurementError,
    OutOfResourcesError,
    ReplayError,
)
from kerntune.gpu import driver_gpu, early_context
from kerntune.gpu.script import Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.timing.paired_processes import paired_work
from kerntune.timing.worker import __main__ as worker_main
from kerntune.timing.worker import first_launch_server, serve
from kerntune.timing.worker.pool import LocalPairs
from kerntune.timing.worker.requests import PairReply, PairRequest, Ready, RequestFailed

REQUEST = PairRequest(recording(), recording(), recording().storages, {}, blocks=1, seed=0)


def of(backend: FakeBackend, **words: Any) -> PairRequest:
    """A kernel beside the same one with blocks twice as large, which take twice as long."""
    script(backend, block(64, 1000.0), block(128, 2000.0), noise=0.0)
    a, b = (recorded(backend, lambda size=size: scale(scale_kernel, BLOCK=size)) for size in (64, 128))
    artifacts = {**a.artifacts, **b.artifacts}
    return paired_work(a.recording, b.recording, a.recording.storages, artifacts, **words)


def test_a_pair_is_timed_and_nothing_is_left(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    request, gpu = of(backend, blocks=4), backend.gpu
    before, loaded = gpu._allocated, list[object]()
    load, unload = FakeGpu.load, FakeGpu.unload
    monkeypatch.setattr(FakeGpu, "load", lambda g, *a: (found := load(g, *a), loaded.append(found))[0])
    monkeypatch.setattr(FakeGpu, "unload", lambda g, function: (loaded.remove(function), unload(g, function))[1])
    found = serve.answer(gpu, request)
    assert isinstance(found, PairReply)
    assert (len(found.a_ns), len(found.b_ns), found.results) == (4, 4, None)
    assert found.a_ns == pytest.approx([1000.0] * 4)
    assert found.b_ns == pytest.approx([2000.0] * 4)
    assert gpu._allocated <= before
    assert loaded == []


def test_results_are_compared_where_they_are_asked_for(backend: FakeBackend) -> None:
    found = LocalPairs(backend.gpu).run(of(backend, blocks=2, results=True))
    assert found.results is not None
    assert (found.results.outputs, found.results.why_not) == ((), "")


def test_equal_code_is_loaded_for_each_side(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As different code is: each side has a loader of its own."""
    request = of(backend, blocks=1)
    request = msgspec.structs.replace(request, b=request.a)
    monkeypatch.setattr(serve.Scatter, "code", lambda self, sides, artifacts: None)
    loads: list[str] = []
    load = FakeGpu.load
    monkeypatch.setattr(
        FakeGpu, "load", lambda g, binary, data: (loads.append(binary.symbol), load(g, binary, data))[1]
    )
    serve.answer(backend.gpu, request)
    assert loads.count("scale_kernel") == 2


@pytest.mark.parametrize("side", ["a", "b"])
def test_what_follows_addresses_is_not_replayed(backend: FakeBackend, side: str) -> None:
    request = of(backend, blocks=1)
    hidden = msgspec.structs.replace(getattr(request, side), hidden_pointers=True)
    with pytest.raises(ReplayError, match="it follows addresses"):
        LocalPairs(backend.gpu).run(msgspec.structs.replace(request, **{side: hidden}))


@pytest.mark.parametrize(
    ("error", "replayable"),
    [
        (ReplayError("no"), False),
        (OutOfResourcesError("no"), False),
        (MeasurementError("no"), True),
        (BackendError("no"), True),
        (KerntuneError("no"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_are_answers(monkeypatch: pytest.MonkeyPatch, error: KerntuneError, replayable: bool) -> None:
    def fail(*words: object) -> None:
        raise error

    monkeypatch.setattr(serve, "run_pair", fail)
    assert serve.answer(None, REQUEST) == RequestFailed(str(error), replayable=replayable)  # type: ignore[arg-type]


def test_a_process_that_times_answers_nothing_else() -> None:
    found = serve.answer(None, Ready("GPU"))  # type: ignore[arg-type]
    assert found == RequestFailed("a worker can't answer Ready", replayable=False)


# its start


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What goes to the parent; descriptors stay as they are."""
    found: list[Any] = []
    for module in (serve, first_launch_server):
        monkeypatch.setattr(module, "send", lambda outbox, message: found.append((outbox, message)))
    monkeypatch.setattr(serve, "end_with_parent", lambda inbox, parent: found.append((inbox, parent)))
    own = SimpleNamespace(
        dup=lambda descriptor: 70 + descriptor, dup2=lambda old, new: found.append((old, new)), getppid=os.getppid
    )
    for module in (serve, first_launch_server):
        monkeypatch.setattr(module, "os", own)
    return found


def test_requests_are_answered_in_turn(backend: FakeBackend, sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = backend.gpu
    monkeypatch.setattr(driver_gpu, "DriverGpu", lambda ordinal: gpu if ordinal == 3 else None)
    monkeypatch.setattr(serve, "Reader", lambda inbox, kind: iter([REQUEST, REQUEST]))
    chances: list[object] = []
    monkeypatch.setattr(serve, "answer", lambda device, request, chance: chances.append(chance) or device)
    serve.serve(3)
    assert sent == [(2, 1), (0, os.getppid()), (71, Ready(gpu.spec.name)), (71, gpu), (71, gpu)]
    assert chances[0] is chances[1], "layouts differ from request to request"


def test_a_device_that_can_not_be_opened_is_told(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ordinal: int) -> None:
        raise BackendError("no such device")

    monkeypatch.setattr(driver_gpu, "DriverGpu", refuse)
    serve.serve(0)
    assert sent[-1] == (71, RequestFailed("no such device", replayable=False))
    monkeypatch.setattr(first_launch_server, "end_with_parent", lambda inbox, parent: None)
    monkeypatch.setattr(first_launch_server.resource, "setrlimit", lambda which, limits: sent.append((which, limits)))
    assert first_launch_server.main(["1", "5", "0"]) == 1
    assert sent[-3:] == [
        (first_launch_server.resource.RLIMIT_CORE, (0, 0)),
        (2, 1),
        (71, RequestFailed("no such device", replayable=False)),
    ]


def test_first_launches_are_served_on_the_device_that_is_named(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[object] = []
    monkeypatch.setattr(driver_gpu, "DriverGpu", lambda ordinal: f"GPU {ordinal}")
    monkeypatch.setattr(first_launch_server, "end_with_parent", lambda *given: served.append(given))
    monkeypatch.setattr(first_launch_server.resource, "setrlimit", lambda which, limits: None)
    monkeypatch.setattr(first_launch_server, "serve_first_launches", lambda *words: served.append(words) or 9)
    assert first_launch_server.main(["17", "5", "2"]) == 9
    assert served == [(0, 17), ("GPU 2", 5, 71)]


def test_a_scripted_device_is_opened_by_its_script() -> None:
    found = first_launch_server.open_device(["--script", Script([block(64, 5.0)]).to_json(), "cuda:80"])
    assert isinstance(found, FakeGpu)
    assert (found.spec.target, len(found.script.rules)) == (Target.parse("cuda:80"), 1)


@pytest.mark.parametrize(("device", "opened"), [("2", [2]), ("--script", [])])
def test_a_context_is_opened_while_the_rest_is_imported(
    monkeypatch: pytest.MonkeyPatch, device: str, opened: list[int]
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(early_context, "open_context", seen.append)
    monkeypatch.setattr(first_launch_server, "main", lambda words: (words, [*seen]))
    assert worker_main.run_first_launches(["1", "5", device]) == (["1", "5", device], opened)
