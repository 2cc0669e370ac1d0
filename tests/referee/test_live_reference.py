"""A reference that runs live beside a candidate: how often it is called, on which memory, and how both are timed."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.msgpack import encode as encoded

from kerntune.base.device import typical_device
from kerntune.gpu.interpreter import Interpreter
from kerntune.referee import gpu_replay, gpu_times, live_reference
from kerntune.referee.candidate_speed import SealedPairs
from kerntune.referee.case_inputs import CaseInputs, TensorAt, TensorInput, UserCallable
from kerntune.referee.layouts import FUNCTION, KERNELBENCH
from kerntune.referee.live_reference import LiveReference, LiveSide
from kerntune.referee.reasons import LIVE_TOLD, Reason, Refusal
from kerntune.referee.sealed_process import Answered, SealedEnd
from kerntune.referee.tasks import LiveCall, TimeTask
from kerntune.timing.timers import GraphSlot, Slot
from kerntune.timing.worker.requests import PairRequest
from tests.referee.computing_gpu import CALL, CASE, NBYTES, TARGET, VARIATION, ComputingGpu, candidate, side, varied

pytestmark = pytest.mark.usefixtures("turn_file", "on_stand_ins")

CONTENT = bytes(range(256)) * (NBYTES // 256)


@pytest.fixture
def on_stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``cuda`` tensors are the CPU's."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    with Interpreter(typical_device(TARGET)).activate():
        yield
    for name in [name for name in sys.modules if name.startswith("live_r")]:
        del sys.modules[name]


def live_call(
    tmp_path: Path, source: str, case: CaseInputs = CASE, layout: str = FUNCTION, name: str = "r"
) -> LiveCall:
    path = tmp_path / f"live_r{tmp_path.name}.py"
    path.write_text(f"import torch\ncalls = []\n{source}\n")
    return LiveCall(UserCallable(str(path), name, layout), case, (CONTENT,) * len(case.tensors))


NOTING = """
def r(x):
    calls.append((x.data_ptr(), float(x.view(torch.uint8).sum())))
    return x.add_(1.0)
"""


def calls_of(call: LiveCall) -> list[Any]:
    return sys.modules[Path(call.source.path).stem].calls  # type: ignore[no-any-return]


def prepared(gpu: ComputingGpu) -> gpu_times.VariedProgram:
    task = TimeTask(side(CONTENT), side(CONTENT), (1,), VARIATION, ((8,),), 2, True, 2, 1)
    sources = gpu_replay.VariedSources(gpu, task.candidate, VARIATION)
    return varied(gpu, task, sources)


def slots(gpu: ComputingGpu, call: LiveCall) -> tuple[LiveSide, tuple[Slot, Slot]]:
    one = LiveSide(LiveReference(gpu, call))
    return one, one.slots(prepared(gpu))


# unrolled


def test_both_sides_are_graphs_of_as_many_executions(tmp_path: Path) -> None:
    gpu = ComputingGpu(ns=20_000.0)
    one, (reference, own) = slots(gpu, live_call(tmp_path, NOTING))
    assert isinstance(reference, GraphSlot)
    assert isinstance(own, GraphSlot)
    assert one.timed_as == "unrolled"
    assert reference.protocol == own.protocol
    assert own.protocol.runs_per_slot > 1


@pytest.mark.parametrize("longer", [0, 1])
def test_of_a_far_longer_side_single_calls_are_timed(
    longer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph of a call on each copy would be too long to be recorded; of two long sides neither is unrolled."""
    lasting = [20_000.0, 20_000.0]
    lasting[longer] = live_reference.LONGEST_GRAPH_NS
    monkeypatch.setattr(live_reference, "_roughly", lambda *args: lasting.pop(0))
    one, both = slots(ComputingGpu(ns=20_000.0), live_call(tmp_path, NOTING))
    assert [isinstance(slot, GraphSlot) for slot in both] == [longer == 1, longer == 0]
    assert both[longer].protocol.runs_per_slot == 1 < both[1 - longer].protocol.runs_per_slot
    assert one.timed_as == "unrolled beside calls"
    assert one.timed_as in LIVE_TOLD


@pytest.mark.slow
def test_each_call_of_a_graph_has_first_content_in_memory_of_its_own(tmp_path: Path) -> None:
    """Although the reference changes its input."""
    gpu, call = ComputingGpu(ns=20_000.0), live_call(tmp_path, NOTING)
    _, (reference, _) = slots(gpu, call)
    for _ in range(2):
        del calls_of(call)[:]
        reference.enqueue()()
        found = calls_of(call)
        assert len(found) == reference.protocol.runs_per_slot
        assert len({place for place, _ in found}) == len(found)
        assert {total for _, total in found} == {float(sum(CONTENT))}


def test_a_slot_of_either_side_begins_with_no_persisting_lines_and_a_flush(tmp_path: Path) -> None:
    gpu = ComputingGpu(ns=20_000.0)
    _, both = slots(gpu, live_call(tmp_path, NOTING))
    runs = both[0].protocol.runs_per_slot
    for slot, graph in zip(both, (f"calls of {runs}", f"graph of {runs}"), strict=True):
        del gpu.did[:]
        slot.enqueue()()
        flushes = gpu.did.count("flush")
        assert flushes >= 1
        assert gpu.did == ["reset", *["flush"] * flushes, graph]


MODEL = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1024))
    def forward(self, x):
        calls.append((self.weight.data_ptr(), float(self.weight.detach().view(torch.uint8).sum())))
        return x * self.weight
"""


@pytest.mark.slow
def test_each_call_of_a_model_has_parameters_of_its_own(tmp_path: Path) -> None:
    """Else they would be in the cache, where the candidate's are not."""
    tensors = tuple(TensorInput(name, "float32", (1024,), (1,)) for name in ("x", "weight"))
    case = CaseInputs("m", tensors, (TensorAt(0),), parameters={"weight": 1})
    gpu, call = ComputingGpu(ns=20_000.0), live_call(tmp_path, MODEL, case, KERNELBENCH, "Model")
    one, (reference, _) = slots(gpu, call)
    assert one.timed_as == "unrolled"
    del calls_of(call)[:]
    reference.enqueue()()
    assert len({place for place, _ in calls_of(call)}) == reference.protocol.runs_per_slot
    assert {total for _, total in calls_of(call)} == {float(sum(CONTENT))}


def test_there_are_as_many_calls_as_there_is_memory_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveReference(ComputingGpu(), live_call(tmp_path, "def r(x): return x"))
    many = live.most_runs()
    monkeypatch.setattr(live_reference, "IN_PLACE_BYTES", 8 * NBYTES)
    assert many > live.most_runs() == 8
    monkeypatch.setattr(live.gpu, "free_bytes", lambda: 20 * NBYTES)
    monkeypatch.setattr(live_reference, "gaps_before", lambda nbytes: range(1))
    assert live.most_runs() == 5
    monkeypatch.setattr(live_reference, "gaps_before", lambda nbytes: range(4 * nbytes + 1))
    assert live.most_runs() == 1, "gaps are memory, too"


@pytest.mark.parametrize("nbytes", [16, NBYTES, (10 << 20) - 1, 10 << 20, 1 << 30])
def test_gaps_before_copies_are_other_ones_and_bounded(nbytes: int) -> None:
    """What the allocator asks the driver for alone moves by that much alone."""
    found = {random.choice(live_reference.gaps_before(nbytes)) for _ in range(200)}
    assert len(found) > 8
    alone = nbytes >= 10 << 20
    assert min(found) >= (10 << 20 if alone else 0)
    assert max(found) <= (40 << 20 if alone else nbytes)
    assert not alone or {n % (2 << 20) for n in found} == {0}


def test_copies_do_not_lie_in_equal_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one placement and of the next one. Gaps are held as long as the copies are."""
    asked: list[int] = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **words: asked.append(args[0]) or empty(*args, **words))
    live = LiveReference(ComputingGpu(), live_call(tmp_path, "def r(x): return x"))
    live.rotate(2, 16)
    other = live.elsewhere()
    other.rotate(2, 16)
    for one in (live, other):
        assert len({sum(gap.nbytes for gap in copy.gaps) for copy in one._copies}) > 4
        assert all(copy.gaps for copy in one._copies)
    assert len(asked) == 32


# call by call


def single(one: LiveSide, both: tuple[Slot, Slot]) -> bool:
    assert both[0].protocol == both[1].protocol
    return all(slot.protocol.timer == "single" for slot in both) and one.timed_as != "unrolled"


def test_of_two_sides_whose_graphs_are_too_long_neither_is_unrolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reference, "LONGEST_GRAPH_NS", 1.0)
    one, both = slots(ComputingGpu(ns=20_000.0), live_call(tmp_path, NOTING))
    assert single(one, both)
    assert one.timed_as == "single graphs"


def test_a_longer_side_has_fewer_calls_in_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrence that no graph can hold, of 20 ms a call, took 20 of them, as many as its candidate."""
    lasting = [2e7, 20_000.0]
    monkeypatch.setattr(live_reference, "_roughly", lambda *args: lasting.pop(0))
    source = "tables = [(torch.ones(4),)]\ndef r(x): return x[:4] * tables[0][0]"
    _, both = slots(ComputingGpu(ns=20_000.0), live_call(tmp_path, source))
    assert [slot.protocol.runs_per_slot for slot in both] == [1, 20]


def test_long_executions_are_graphs_of_one(tmp_path: Path) -> None:
    gpu = ComputingGpu(ns=300_000.0)
    one, both = slots(gpu, live_call(tmp_path, NOTING))
    assert single(one, both)
    assert one.timed_as == "single graphs"
    del gpu.did[:]
    both[0].enqueue()()
    assert set(gpu.did) == {"reset", "flush", "calls of 1"}
    assert gpu.did.count("reset") == gpu.did.count("calls of 1") == both[0].protocol.runs_per_slot


def test_a_reference_with_tensors_of_its_own_is_a_graph_of_one(tmp_path: Path) -> None:
    """They would be in the cache."""
    source = "tables = [(torch.ones(4),)]\ndef r(x): return x[:4] * tables[0][0]"
    one, both = slots(ComputingGpu(ns=20_000.0), live_call(tmp_path, source))
    assert single(one, both)
    assert one.timed_as == "single graphs"


def test_what_no_graph_can_hold_is_called_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, call = ComputingGpu(ns=20_000.0), live_call(tmp_path, NOTING)

    def refused(*calls: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(gpu, "call_graph", refused)
    one, both = slots(gpu, call)
    assert single(one, both)
    assert one.timed_as == "single calls"
    del calls_of(call)[:]
    both[0].enqueue()
    assert len(calls_of(call)) == both[0].protocol.runs_per_slot


def test_a_graph_of_many_calls_that_fails_leaves_graphs_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, first = ComputingGpu(ns=20_000.0), ComputingGpu.call_graph

    def of_one(*calls: Any) -> Any:
        if len(calls) > 1:
            raise RuntimeError("CUDA out of memory")
        return first(gpu, *calls)

    monkeypatch.setattr(gpu, "call_graph", of_one)
    one, both = slots(gpu, live_call(tmp_path, NOTING))
    assert single(one, both)
    assert one.timed_as == "single graphs"
    assert len(one._live._copies) == 1


# whole processes


@pytest.mark.slow
@pytest.mark.parametrize(("ns", "how"), [(20_000.0, "unrolled"), (300_000.0, "single graphs")])
def test_a_verdict_says_how_its_reference_was_timed(
    ns: float, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = live_call(tmp_path, NOTING)
    monkeypatch.setattr(gpu_times, "gpu_of", lambda with_torch: ComputingGpu(ns=ns))
    monkeypatch.setattr(gpu_times, "PLACEMENTS", 2)
    monkeypatch.setattr(gpu_times, "PLACING_SECONDS", 600.0)
    task = TimeTask(side(CONTENT), call, (1,), VARIATION, ((8,),), 2, True, 2, 1, details=True)
    told = gpu_times.timed(encoded(task))

    class Answering:
        def ask(self, *args: Any, **words: Any) -> Answered:
            return Answered(encoded(told), SealedEnd(), "")

    why = Refusal(Reason.OPERATOR, "torch's aten.add compute instead")
    right = candidate(reference=why, source=call.source)
    pairs = SealedPairs(Answering(), right)  # type: ignore[arg-type]
    reply = pairs.run(PairRequest(CALL.recording, CALL.recording, (), {}, blocks=2))
    pairs.close()
    assert len(reply.a_ns) == len(reply.b_ns) == 4
    assert list(pairs.remarks()) == [LIVE_TOLD[how]]
    assert pairs.warm is not None
    assert set(told.stages) == {"prepare", "wait", "time", "others", "read"}


def test_the_references_first_contents_are_checked(tmp_path: Path) -> None:
    live = LiveReference(ComputingGpu(), live_call(tmp_path, "def r(x): return x"))
    assert not live.damaged()
    live._first[0][3] += 1
    assert live.damaged()
