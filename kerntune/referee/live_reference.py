"""A reference that runs live, as its author's code, and is timed beside a candidate's program.

Its calls are recorded as an unrolled graph of rotated copies, as the engine does with a program: event pairs around
single calls resolve half a microsecond, and two verdicts on one pair differed by 0.2 to 2.9 % by that.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kerntune.errors import MeasurementError
from kerntune.gpu.base import Executor, Gpu, GpuGraph, tensors_in
from kerntune.gpu.memory import MEMORY_SHARE
from kerntune.gpu.program import Program
from kerntune.referee.call_inputs import arguments_of, bytes_of, tensor_of
from kerntune.referee.layouts import KERNELBENCH, load
from kerntune.referee.reference_runs import reference_function
from kerntune.referee.tasks import LiveCall, TimedAs
from kerntune.timing.sampling import GRAPH_BELOW_NS, event_runs
from kerntune.timing.timers import (
    IN_PLACE_BYTES,
    TARGET_NS,
    EventSlot,
    GraphSlot,
    Rotated,
    Slot,
    flushed_runs,
    median_ns,
    most_in_place,
    unrolled_runs,
)


def open_by_torch() -> None:
    """Start torch on the GPU: its context, its allocator, and a first kernel."""
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()


OWN_SEGMENT, SEGMENT_STEP, GAPS = 10 << 20, 2 << 20, 16
"""From so many bytes on torch's allocator asks the driver for a tensor alone, in such steps (``kMinLargeAlloc`` and
``kRoundLarge``, c10/core/AllocatorConfig.h); the gaps before those have one of so many sizes."""


def gaps_before(nbytes: int) -> range:
    """How many bytes may lie between a copy of a tensor and what is allocated before it: another number each time.

    Copies in equal steps all lie alike to what their calls write. On an H200 the transpositions of 16 MB at one
    placement took up to 5 % longer than at another, and two verdicts were 1.1 % apart
    (``benchmarks/results/judge_h200_equal_steps.json``).
    """
    if nbytes < OWN_SEGMENT:
        return range(nbytes + 1)
    return range(OWN_SEGMENT, OWN_SEGMENT + GAPS * SEGMENT_STEP, SEGMENT_STEP)


@dataclass(frozen=True)
class LiveCopy:
    """A callable and its arguments; ``inputs`` are those tensors among them that are given, by number. ``gaps`` is
    memory that nothing uses."""

    function: Callable[..., Any]
    inputs: Mapping[int, Any]
    gaps: Sequence[Any]
    args: Sequence[Any]
    words: Mapping[str, Any]


class LiveReference:
    """An author's callable on the GPU, on inputs of its own that are restored before each call.

    It can be called on copies in turn (:class:`kerntune.timing.timers.Rotated`): each has inputs of its own, all with
    the same numbers, and a model of its own where parameters are inputs.
    """

    def __init__(self, gpu: Gpu, call: LiveCall) -> None:
        self.gpu, self._call, self._case = gpu, call, call.case
        tensors = [tensor_of(x, data) for x, data in zip(self._case.tensors, call.contents, strict=True)]
        module = load(call.source)
        self._function = reference_function(module, call.source, self._case, tensors)
        self._models = call.source.layout == KERNELBENCH
        self._mode: Callable[[], AbstractContextManager[object]] = (
            torch.no_grad if self._models else contextlib.nullcontext
        )
        self.in_place = [i for i in range(len(tensors)) if i not in self._case.parameters.values()]
        """Tensors that are restored: all but the parameters, which are the models'."""

        self._given = [call.contents[i] for i in self.in_place]
        self._first = [tensors[i].to("cuda") for i in self.in_place]
        self.keeps_tensors = any(isinstance(t, torch.Tensor) for t in tensors_in(vars(module).values()))
        """Whether the file has tensors of its own, of which calls would have no copies."""

        self._copies = [self._copy(self._function)]

    def _copy(self, function: Callable[..., Any]) -> LiveCopy:
        inputs, gaps = dict[int, Any](), []
        for i, first in zip(self.in_place, self._first, strict=True):
            gaps.append(torch.empty(random.choice(gaps_before(first.nbytes)), dtype=torch.uint8, device="cuda"))
            inputs[i] = first.clone()
        args, words = arguments_of(self._case, [inputs.get(i) for i in range(len(self._case.tensors))])
        return LiveCopy(function, inputs, gaps, args, words)

    def enqueue(self, replica: int = 0) -> object:
        """One call."""
        one = self._copies[replica]
        with self._mode():
            return one.function(*one.args, **one.words)

    def restore(self, replica: int = 0) -> None:
        """The first content of a copy's inputs. All copies are restored, the first one first: then no lines stay in the
        cache that the other side has marked."""
        if replica == 0:
            self.gpu.reset_persisting_l2()
        for tensor, first in zip(self._copies[replica].inputs.values(), self._first, strict=True):
            tensor.copy_(first)

    def captured(self) -> Callable[[], object] | None:
        """The call as a graph; None where it can't be captured."""
        try:
            for _ in range(3):
                self.enqueue()
            self.gpu.synchronize()
            graph = self.gpu.call_graph(self.enqueue)
            graph.replay()
            self.gpu.synchronize()
        except RuntimeError as exc:
            print(f"the reference can't be captured: {type(exc).__name__}: {exc}", file=sys.stderr)
            return None
        return graph.replay

    # copies

    def most_runs(self) -> float:
        """How many calls may have copies of their own: of the inputs, as the candidate's side may
        (:data:`~kerntune.timing.timers.IN_PLACE_BYTES`), and of what a call allocates, as there is memory."""
        self.gpu.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.enqueue()
        self.gpu.synchronize()
        allocated = int(torch.cuda.max_memory_allocated() - before)
        given = sum(len(data) for data in self._call.contents)  # a model's parameters are among them
        gaps = sum(gaps_before(first.nbytes)[-1] for first in self._first)
        room = self.gpu.free_bytes() * MEMORY_SHARE
        return min(IN_PLACE_BYTES / max(given, 1), room / max(given + gaps + allocated, 1))

    def rotate(self, replicas: int, runs: int) -> int:
        """A copy for each of ``runs`` calls. RuntimeError where a model can't be copied."""
        for _ in range(len(self._copies), runs):
            self._copies.append(self._copy(self._own_model() if self._models else self._function))
        return runs

    def _own_model(self) -> Callable[..., Any]:
        try:
            return copy.deepcopy(self._function)
        except Exception as exc:  # the author's classes
            raise RuntimeError(f"the model can't be copied: {type(exc).__name__}: {exc}") from exc

    def graph(self, runs: int, replicas: int) -> GpuGraph:
        """``runs`` calls on the copies in turn as one graph; each allocates memory of its own for its results."""
        return self.gpu.call_graph(*(partial(self.enqueue, i % replicas) for i in range(runs)))

    def drop_copies(self) -> None:
        """Have one copy alone."""
        del self._copies[1:]
        self.free_unused()

    @staticmethod
    def free_unused() -> None:
        """Give back what torch's allocator has and nothing uses."""
        torch.cuda.empty_cache()

    def elsewhere(self) -> LiveReference:
        """The same callable on copies of its own, which lie elsewhere."""
        other = copy.copy(self)
        other._copies = [other._copy(other._function)]
        return other

    def damaged(self) -> bool:
        """Whether the first content of any input has changed."""
        return any(bytes_of(first) != given for first, given in zip(self._first, self._given, strict=True))


# timed


PreparedRuns = tuple[Callable[[], object], Callable[[], object]]
"""What restores the memory of an execution, and the execution."""

LONGEST_GRAPH_NS = 10 * TARGET_NS
"""A graph of executions on all copies may last so long. A recurrence written in torch launches 700 kernels a call: to
record 256 calls took longer than a process has, beside a candidate of one kernel."""


class LiveSide:
    """A reference that runs as the author's code: its calls are recorded as an unrolled graph of rotated copies, as the
    candidate's executions are. Where that can't be, single executions of both are timed between events; of the side
    whose graph would be too long, where only one's would (:data:`LONGEST_GRAPH_NS`)."""

    def __init__(self, live: LiveReference) -> None:
        self._gpu, self._live = live.gpu, live
        self._single: tuple[PreparedRuns, PreparedRuns] | None = None
        self.timed_as: TimedAs = "single graphs"

    def single(self, candidate: Program) -> tuple[PreparedRuns, PreparedRuns]:
        """As graphs; the reference's calls as they are where they can't be recorded."""
        if self._single is None:
            candidate.restore()
            candidate.enqueue()
            self._gpu.synchronize()
            graph, captured = candidate.graph(1, 1), self._live.captured()
            if captured is None:
                self.timed_as = "single calls"
            self._single = ((self._live.restore, captured or self._live.enqueue), (candidate.restore, graph.replay))
        return self._single

    def slots(self, candidate: Program) -> tuple[Slot, Slot]:
        """Of both, unrolled if possible."""
        lasting = [_roughly(self._gpu, *one) for one in self.single(candidate)]
        if (slots := self._unrolled(candidate, lasting)) is not None:
            return slots
        return self._call_by_call(candidate, lasting, 0), self._call_by_call(candidate, lasting, 1)

    def _call_by_call(self, candidate: Program, lasting: Sequence[float], side: int) -> Slot:
        restore, work = self.single(candidate)[side]
        return EventSlot(self._gpu, work, event_runs(lasting[side]), restore, "single")

    def _unrolled(self, candidate: Program, lasting: Sequence[float]) -> tuple[Slot, Slot] | None:
        """Graphs of as many executions of both, each on memory of its own that is restored before: by the rules of
        :func:`~kerntune.timing.sampling.slot_for`. Of one side its calls where its graph would be too long."""
        live, recording, estimate = self._live, candidate.recording, min(lasting)
        replicas = candidate.memory.rotation(recording)
        if self.timed_as == "single calls" or live.keeps_tensors or estimate >= GRAPH_BELOW_NS or replicas < 2:
            return None
        most = min(most_in_place(candidate), live.most_runs())
        if most < replicas:
            return None
        runs = unrolled_runs(replicas, len(recording.launches), estimate, most)
        programs: tuple[Rotated, Rotated] = (live, candidate)
        long = [runs * each > LONGEST_GRAPH_NS for each in lasting]
        if all(long):
            return None
        try:
            reference, own = (
                self._call_by_call(candidate, lasting, side) if long[side] else GraphSlot(program, replicas, runs)
                for side, program in enumerate(programs)
            )
            self.timed_as = "unrolled beside calls" if any(long) else "unrolled"
            return reference, own
        except (RuntimeError, MeasurementError) as exc:
            print(f"the reference can't be unrolled: {type(exc).__name__}: {exc}", file=sys.stderr)
        live.drop_copies()
        return None


def _roughly(gpu: Executor, restore: Callable[[], object], work: Callable[[], object]) -> float:
    return median_ns(flushed_runs(gpu, work, 3, 1, restore))
