"""Decides one call of a choice: runs each implementation on copies, compares what they leave, and races the rest.

Calls are raced as a program makes them: one after another, so that the host's time counts where it is the longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kerntune.base.formatting import format_time
from kerntune.base.warn import warn
from kerntune.errors import MeasurementError
from kerntune.gpu.base import Gpu
from kerntune.kernels.compat import tuners
from kerntune.timing.timers import Reading, TimingProtocol, between_events
from kerntune.tuning.choices.call_copies import CallCopies, CallOutcome, outcome_of, random_state_kept, tensor_places
from kerntune.tuning.choices.declaration import ChoiceCandidate
from kerntune.tuning.choices.implementation_runs import ImplementationRuns, unwatched
from kerntune.tuning.isolation import KEPT_ISOLATION
from kerntune.tuning.race import DROP_FIRST, Trial, decided, near_best
from kerntune.tuning.verification import Verification, Verify


@dataclass(frozen=True)
class Decision:
    """What one key was decided to be. ``times_ns`` has nanoseconds a call of each implementation that was raced, by
    name; ``left_out`` why the others were not."""

    choice: str
    arguments: str
    winner: str
    times_ns: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    how: str = "raced"
    """``raced``, ``stored`` (by an earlier run or another process), ``nearest``, ``undecided``, or ``decided by the
    program`` (of a compiled function in a gated test, where the gate itself has decided nothing)."""

    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """What deciding took, with the tuning of what the implementations launch."""

    def __str__(self) -> str:
        fastest_first = sorted(self.times_ns.items(), key=lambda one: one[1])
        times = [f"{name} {format_time(ns)}" for name, ns in fastest_first]
        out = [f"{name} left out: {why}" for name, why in self.left_out.items()]
        return "; ".join([f"choice {self.choice} went to {self.winner} ({self.how})", *times, *out])


@dataclass
class Deciding:
    """One call of a choice that is to be decided. ``call`` passes values by parameter to a callable."""

    choice: str
    implementations: Sequence[ChoiceCandidate]
    values: Mapping[str, Any]
    call: Callable[[Callable[..., Any], Mapping[str, Any]], Any]
    reference: Callable[..., Any] | None
    verification: Verification
    gpu: Gpu
    first_runs: ImplementationRuns
    left_out: dict[int, str] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._grad = torch.is_grad_enabled()

    def race(self, incumbent: int | None) -> tuple[int, dict[int, float]]:
        """The winner's index, and nanoseconds a call by index. The call's own tensors stay as they are.

        What every implementation raises, if all do; :class:`MeasurementError` where one leaves the device unusable.
        """
        with random_state_kept() as back, KEPT_ISOLATION.keeping(0):
            copies = CallCopies(self.values, self._grad)
            outcomes = self._outcomes(copies, back)
            right = self._agreeing(outcomes)
            self.first_runs.keep_faults()
            self.notes += self.first_runs.notes
            del outcomes
            if len(right) == 1:
                return right[0], {}
            runs: dict[int, Callable[[], Any]] = {}
            for i in right:
                fn = self.implementations[i].fn
                if self._grad and copies.leaves:
                    runs[i] = partial(self._run, fn, copies)
                else:  # the bare call, since binding its arguments each time would count
                    runs[i] = self.call(partial(partial, fn), copies.values)
            with self.gpu.lock(), unwatched():
                most = 1 if copies.counts_on else MOST_CALLS
                return race_calls(self.gpu, runs, copies.restore, incumbent, most)

    def _run(self, fn: Callable[..., Any], copies: CallCopies) -> tuple[Any, Sequence[torch.Tensor | None]]:
        """One call as it will be made; where gradients are wanted, with its backward."""
        value = self.call(fn, copies.values)
        leaves = copies.leaves if self._grad else []
        outputs = [t for _, t in tensor_places(value) if t.requires_grad] if leaves else []
        if not outputs:
            return value, [None] * len(leaves)
        ones = [torch.ones_like(t) for t in outputs]
        return value, torch.autograd.grad(outputs, leaves, ones, allow_unused=True)

    # what they leave

    def _outcomes(self, copies: CallCopies, back: Callable[[], None]) -> dict[int | None, CallOutcome | None]:
        """By index what each implementation leaves; under None the reference's. None is what isn't compared."""
        compares = self.verification.mode is not Verify.OFF
        found: dict[int | None, CallOutcome | None] = {}
        if self.reference is not None and compares:
            found[None] = self._outcome(self.reference, copies, back)
        for i, one in enumerate(self.implementations):
            try:
                outcome = self._outcome(one.fn, copies, back)
                found[i] = outcome if compares else None
            except Exception as exc:
                self._leave_out(i, exc)
        copies.restore()
        if not found.keys() - {None}:  # then the call is to blame
            (_, first), *others = self.errors.items()
            for i, _ in others:
                name = self.implementations[i].name
                tuners.add_note(first, f"choice {self.choice}: {name}: {self.left_out[i]}")
            raise first
        return found

    def _outcome(self, fn: Callable[..., Any], copies: CallCopies, back: Callable[[], None]) -> CallOutcome:
        copies.restore()
        back()
        self.gpu.synchronize()
        try:
            with self.first_runs.watched():
                value, gradients = self._run(fn, copies)
            self.gpu.synchronize()
        except BaseException:
            copies.doubt()
            raise
        changed = copies.note_written()
        places = [place for place, t in copies.copies.items() if t.requires_grad and self._grad]
        return outcome_of(value, changed, dict(zip(places, gradients, strict=True)), copies.originals)

    def _leave_out(self, index: int, exc: Exception) -> None:
        """An implementation can't do this call; what it held of memory is given back."""
        name = self.implementations[index].name
        self.left_out[index] = f"{type(exc).__name__}: {exc}".partition("\n")[0]
        self.errors[index] = exc.with_traceback(None)
        try:
            self.gpu.synchronize()
        except Exception as broken:
            raise MeasurementError(
                f"choice {self.choice}: after {name} raised {self.left_out[index]}, the GPU runs nothing any more in "
                f"this process ({broken}); mend {name} or take it off the list"
            ) from exc
        if isinstance(exc, torch.OutOfMemoryError):
            torch.cuda.empty_cache()

    # who is right

    def _agreeing(self, outcomes: dict[int | None, CallOutcome | None]) -> list[int]:
        """The implementations that leave what the reference does, or what most do; in doubt what the first does.
        Bits are held against the reference's, else against those of the first that ran: no majority replaces it."""
        ran = [i for i in outcomes if i is not None]
        if self.verification.mode is Verify.OFF:
            return ran
        groups: list[tuple[CallOutcome, list[int | None]]] = []
        for i, outcome in outcomes.items():
            assert outcome is not None
            home = next((g for g in groups if self._differs(g[0], outcome) is None), None)
            if home is None:
                groups.append((outcome, [i]))
            else:
                home[1].append(i)
        given, bitwise = None in outcomes, self.verification.mode is Verify.BITWISE
        most = groups[0] if given or bitwise else max(groups, key=lambda g: len(g[1]))
        kept = [i for i in most[1] if i is not None]
        named = "the reference" if given else self._named([kept[0]] if bitwise else most[1], len(ran))
        for i in ran:
            if i not in kept:
                outcome = outcomes[i]
                assert outcome is not None
                self.left_out[i] = f"{self._differs(most[0], outcome)}: another result than {named}"
        if not (given or bitwise) and [len(g[1]) for g in groups].count(len(most[1])) > 1:
            self.notes.append(
                f"choice {self.choice}: as many implementations disagree with {self.implementations[kept[0]].name} as "
                "agree with it, so its result was taken for the right one; give reference="
            )
        if not kept:
            texts = [f"  {self.implementations[i].name}: {why}" for i, why in self.left_out.items()]
            head = f"choice {self.choice}: no implementation leaves what reference= does"
            raise MeasurementError("\n".join([head, *texts]))
        return kept

    def _differs(self, expected: CallOutcome, found: CallOutcome) -> str | None:
        bitwise = self.verification.mode is Verify.BITWISE
        ignored = partial(self.verification.ignores, self.choice)
        return expected.differs(found, self.gpu, ignored, bitwise)

    def _named(self, kept: Sequence[int | None], ran: int) -> str:
        first = self.implementations[kept[0] or 0].name
        return f"{len(kept)} of {ran} implementations" if len(kept) > 1 else first


_said: set[tuple[str, str, str]] = set()


def warn_left_out(choice: str, left_out: Mapping[str, str], notes: Sequence[str]) -> None:
    """RuntimeWarnings for implementations that were left out, each once a process for one reason."""
    for name, why in left_out.items():
        if (choice, name, why) not in _said:
            _said.add((choice, name, why))
            warn(f"choice {choice}: {name} is left out for such arguments: {why}")
    for note in notes:
        warn(note)


SLOT_NS, LEAST_CALLS, MOST_CALLS = 1e6, 2, 100
"""A slot is a stream of calls of about a millisecond: the device's first wait for the host is little of it then."""

WARM_CALLS = 2
"""Calls before the first that is timed: kernels are loaded, and prepared launches made, by the first two."""

WARM_NS, WARM_SLOTS = 10e6, 12
"""The first candidate runs so long before any is timed, in as many slots at most: the clocks of a device and of a
processor that waited rise. Tuning what the candidates launch went before."""

ESTIMATE_NS, ESTIMATE_CALLS, ESTIMATES = 0.25e6, 10, 4
"""How long a slot of an estimate lasts, and the calls that it has, at most; the shortest of four counts."""

SCREEN_ROUNDS, DROP_SCREENED = 3, 1.15
"""Rounds before the finals, and how far behind the best a candidate's shortest time may be then. A single reading drops
none: the host may pause, and clocks may rise (two of 48 decisions were lost in rounds that dropped sooner: H200)."""


class CallStream:
    """A slot of calls between two events, with what they write restored before. The device's wait for the host between
    the calls is part of their time, so it is never ``late``."""

    late = False

    def __init__(self, gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], calls: int) -> None:
        self._gpu, self._call, self._restore, self._calls = gpu, call, restore, calls
        self.protocol = TimingProtocol("stream", calls, 1)

    def enqueue(self) -> Reading:
        """The calls; the device is idle before them, as it is after a call that waits."""
        self._restore()
        self._gpu.synchronize()
        piece = between_events(self._gpu, self._calls_in_turn)
        return lambda: piece.ns() / self._calls

    def _calls_in_turn(self) -> None:
        for _ in range(self._calls):
            self._call()


def race_calls(
    gpu: Gpu,
    calls: Mapping[int, Callable[[], object]],
    restore: Callable[[], object],
    incumbent: int | None,
    most: int = MOST_CALLS,
) -> tuple[int, dict[int, float]]:
    """The fastest of some calls by index, and nanoseconds of each. Ties go to the ``incumbent``, then to the first. At
    ``most`` so many calls run between two calls of ``restore``.

    Each is estimated; those near the best are timed in turn, until their order is clear
    (:func:`kerntune.tuning.race.decided`).
    """
    nothing: Any = None  # of a call there is neither a recording nor a program
    trials = [Trial(i, nothing, nothing) for i in calls]
    for call in calls.values():
        for _ in range(WARM_CALLS):
            restore()
            call()
    _warm_up(gpu, next(iter(calls.values())), restore, most)
    for trial in trials:
        trial.estimate, trial.estimated = _estimate(gpu, calls[trial.index], restore, most), True
    near = near_best(trials, DROP_FIRST)
    count = _calls_within(SLOT_NS, min(t.estimate for t in trials), most)
    for trial in near:
        trial.slot = CallStream(gpu, calls[trial.index], restore, count)
    finalists = _screened(near) if len(near) > 1 else near
    winner = decided(finalists, incumbent)[0]
    for trial in trials:
        if not any(trial is one for one in finalists):
            _settle(trial, winner)
    return winner.index, {t.index: t.time_ns for t in trials}


def _calls_within(ns: float, one_ns: float, most: int) -> int:
    return int(min(most, max(LEAST_CALLS, ns / max(one_ns, 1.0))))


def _warm_up(gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], most: int) -> None:
    one_ns, spent = CallStream(gpu, call, restore, min(LEAST_CALLS, most)).enqueue()(), 0.0
    slot = CallStream(gpu, call, restore, _calls_within(SLOT_NS, one_ns, most))
    for _ in range(WARM_SLOTS):
        spent += slot.enqueue()() * slot.protocol.runs_per_slot
        if spent >= WARM_NS:
            return


def _estimate(gpu: Gpu, call: Callable[[], object], restore: Callable[[], object], most: int) -> float:
    first = CallStream(gpu, call, restore, min(LEAST_CALLS, most)).enqueue()()
    slot = CallStream(gpu, call, restore, _calls_within(ESTIMATE_NS, first, min(ESTIMATE_CALLS, most)))
    return min(slot.enqueue()() for _ in range(ESTIMATES))


def _screened(trials: Sequence[Trial]) -> list[Trial]:
    """The finalists. They keep the rounds, which all took."""
    for done in range(SCREEN_ROUNDS):
        for trial in trials[:: -1 if done % 2 else 1]:
            assert trial.slot is not None
            trial.times.append(trial.slot.enqueue()())
    best = min(min(t.times) for t in trials)
    return [t for t in trials if min(t.times) <= best * DROP_SCREENED]


def _settle(trial: Trial, winner: Trial) -> None:
    """The time of one that dropped out early, as it compared with the winner's then."""
    if trial.times and winner.times:
        mine, winners = min(trial.times), min(winner.times[: len(trial.times)])
    else:
        mine, winners = trial.estimate, winner.estimate
    trial.settled = winner.time_ns * mine / winners if winners else mine
