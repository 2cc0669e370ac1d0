"""The operators of torch that a call runs outside of captured kernels: what they move, and what results come from.

Every operator that reaches the device is observed where torch dispatches it, below autograd and in whichever thread of
Python it runs (:meth:`kerntune.gpu.base.Tensors.watching`). Storages are distinguished by weak references, so no tensor
is kept alive. While the call runs only these and places are noted, and layouts once for all calls that are alike; what
follows from them is computed when the call has ended.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from sys import _getframe
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import ref

from kerntune.base.operator_list import MAX_OUTSIDE, MAX_PLACES, MAX_ROWS, OperatorList, OperatorRow
from kerntune.base.recording import Recording
from kerntune.base.roofline import PointerAccess, bytes_moved
from kerntune.base.users_line import INSTALLED, users_frame
from kerntune.capture.inductor.compiled_calls import lines_of_call, shown
from kerntune.capture.operator_traits import NO_STORAGE, Operator, OperatorCall, operator_call, signature
from kerntune.gpu.base import tensors_in

NotedOperator = tuple[Any, ...]
"""A :class:`OperatorCall`, the launches before and after it, its place (code and instruction, or the lines that are
known), and from there on weak references to the storages that it took and made, None for one that there isn't."""


class OperatorEvent(NamedTuple):
    """An operator between two launches: ``launches`` were made before it. It computes the storages ``outs`` from
    ``ins``; of those in ``whole`` nothing is left that was there before."""

    launches: int
    operator: Operator | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    whole: frozenset[int]
    places: tuple[str, ...] = ()


@dataclass
class CallOperators:
    """The operators of one captured call.

    ``launches`` are the capture's, which grow; ``records`` tells whether what the calling thread does is the call's,
    and ``is_device`` whether a value is a tensor on the device.
    """

    launches: Sequence[Any]
    records: Callable[[], bool]
    is_device: Callable[[Any], bool]
    root: Path = Path()
    """The project's folder, to which places are named relative."""

    asks: bool = True
    """Whether ``records`` has to be asked; it isn't while all that runs is the call's."""

    events: list[OperatorEvent] = field(default_factory=list)
    """What is known of the operators, of those that were noted before :meth:`settle` was called last."""

    def __post_init__(self) -> None:
        self._numbers: dict[int, tuple[int, ref[Any]]] = {}
        self._noted: list[NotedOperator] = []
        self._made: set[int] = set()
        self._places: dict[tuple[int, Any], tuple[CodeType | None, tuple[str, ...]]] = {}
        self._next, self._lock = 0, threading.Lock()
        self._note = self._noted.append
        self._passed: CodeType | None = None
        self._users: CodeType | None = None
        """What was passed by, and met, on the way to the place that was found last: looked up once, it mostly comes
        again."""

    def observe(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        launches: int | None,
        alike: object | None = None,
    ) -> None:
        """Note an operator that has run; ``launches`` is :attr:`begin`'s answer from before. One during which kernels
        were launched is no operator of torch's: what it consists of is observed by itself.

        This runs for each operator and is most of what a list costs, so it calls no function of its own.
        """
        if self.asks and not self.records():
            return
        known = _calls.get(id(alike)) if alike is not None else None
        if known is None:
            known = alike, operator_call(func, args, kwargs, result, self.is_device)
            if alike is not None:
                if len(_calls) >= MAX_CALLS:
                    _calls.clear()
                _calls[id(alike)] = known
        call = known[1]
        if call is None:
            return
        code: CodeType | None = None
        at: Any = ()
        frame: FrameType | None = _getframe(3 if launches is None else 2)  # those before are a backend's
        while frame is not None:
            running = frame.f_code
            if running is self._passed:  # most operators come the way of the one before
                frame = frame.f_back
                continue
            if running is self._users:
                code, at = running, frame.f_lasti
                break
            kind = _kinds.get(running.co_filename)
            if kind is None:
                kind = _kinds[running.co_filename] = _kind_of(frame)
            if kind is USERS:
                code = self._users = running
                at = frame.f_lasti
                break
            if kind is GENERATED:
                at = lines_of_call(running.co_filename, frame.f_lineno)
                break
            self._passed, frame = running, frame.f_back
        now, taken = len(self.launches), call.taken
        begun = now if launches is None else launches
        # nearly all operators take one or two tensors, and a tuple that is written out is what takes least
        if taken is None:
            tensors = tensors_in((*args, *kwargs.values(), result))
            self._note((call, begun, now, code, at, *map(_storage_of, tensors)))
        elif len(taken) == 1:
            made = ref(result.untyped_storage())
            self._note((call, begun, now, code, at, ref(args[taken[0]].untyped_storage()), made))
        elif len(taken) == 2:
            first, second = args[taken[0]].untyped_storage(), args[taken[1]].untyped_storage()
            made = ref(result.untyped_storage())
            self._note((call, begun, now, code, at, ref(first), ref(second), made))
        else:
            storages = [ref(args[place].untyped_storage()) for place in taken]
            self._note((call, begun, now, code, at, *storages, ref(result.untyped_storage())))

    def settle(self) -> None:
        """Compute the events of what was noted since the last time."""
        with self._lock:
            noted = self._noted[:]
            del self._noted[: len(noted)]  # none that another thread has appended meanwhile
            self.events += filter(None, map(self._event, noted))

    def _event(self, found: NotedOperator) -> OperatorEvent | None:
        """What a noted operator did; None of one that made a view."""
        call, before, after, code, instruction, *storages = found
        numbers = [*map(self._number_of, storages)]
        effect = call.effect(numbers)
        if effect is None:
            return None
        operator, *groups = effect
        ins, outs, fresh, whole = [[numbers[i] for i in group] for group in groups]
        self._made.update(fresh)
        operator = operator if before == after else None
        return OperatorEvent(before, operator, (*ins,), (*outs,), frozenset(whole), self._places_of(code, instruction))

    def _places_of(self, code: CodeType | None, instruction: Any) -> tuple[str, ...]:
        """The users' lines of an operator, relative to the project's folder; none of backward passes, which autograd
        runs."""
        known = self._places.get((id(code), instruction))
        if known is None:
            lines: Sequence[str] = instruction
            if code is not None:
                number = next((n for begin, end, n in code.co_lines() if begin <= instruction < end), None)
                lines = (f"{code.co_filename}:{number}",)
            places = tuple(dict.fromkeys(shown(line, self.root) for line in lines))
            known = self._places[id(code), instruction] = code, places  # alive, its id is no other's
        return known[1]

    def begin(self) -> int:
        """How many launches there are before an operator runs."""
        return len(self.launches)

    def _numbers_of(self, tensors: Iterable[Any]) -> set[int]:
        return {number for x in tensors if (number := self._number(x)) is not None}

    def _number(self, tensor: Any) -> int | None:
        storage = _storage_of(tensor)
        return None if storage is None else self._number_of(storage)

    def _number_of(self, storage: ref[Any] | None) -> int:
        """A storage's number. A storage has one weak reference in Python, and another has another, wherever it lies."""
        if storage is None:
            return NO_STORAGE
        known = self._numbers.get(id(storage))
        if known is None:
            self._next += 1
            known = self._numbers[id(storage)] = (self._next, storage)
        return known[0]

    # what came of it

    def summary(
        self,
        recording: Recording,
        accesses: Mapping[int, PointerAccess],
        storages: Sequence[Any],
        arguments: Sequence[Any],
        results: Sequence[Any],
    ) -> OperatorList:
        """The list for one target. ``storages`` are tensors of the recording's storages, ``arguments`` the call's, and
        ``results`` what it returned."""
        import torch

        self.settle()
        numbers = [self._number(x) for x in storages]
        given = self._numbers_of(arguments)
        written = {i: {numbers[s] for s in x.writes} for i, x in enumerate(recording.launches)}
        covered, makers, changed = self._covered(written)
        returned = [self._number(x) for x in results]
        returned += [n for x in arguments if (n := self._number(x)) in changed and n not in returned]
        read_by = {i: {numbers[s] for s in x.reads} for i, x in enumerate(recording.launches)}
        kept = self._kept(given, {*returned}, storages, read_by, written)
        rows, left_out = self._rows(kept)
        read = {numbers[s] for x in recording.launches if 0 not in x.grid for s in x.reads}
        before = read - self._made - given
        outside = sorted(recording.storages[i].nbytes for i, n in enumerate(numbers) if n in before)
        return OperatorList(
            torch=torch.__version__.partition("+")[0],
            rows=rows,
            left_out=sum(r.count for r in left_out),
            left_out_bytes=sum(r.nbytes for r in left_out if not r.kind),
            kernel_bytes=bytes_moved(recording, accesses),
            results=tuple(n in covered for n in returned),
            makers=tuple(sorted({makers[n] for n in returned if n in makers and n not in covered})),
            outside=tuple(outside[-MAX_OUTSIDE:]),
        )

    def arguments_of(self, results: Sequence[Any], recording: Recording, storages: Sequence[Any]) -> frozenset[str]:
        """The names of the launches' arguments that point into the storages of ``results``."""
        returned: set[int | None] = {*self._numbers_of(results)}
        numbers = [self._number(x) for x in storages]
        pointers = ((p.name, p.view) for launch in recording.launches for p in launch.params)
        places = ((name, recording.views[view].storage) for name, view in pointers if view is not None)
        return frozenset(name for name, storage in places if numbers[storage] in returned)

    def _covered(
        self, written: Mapping[int, set[int | None]]
    ) -> tuple[set[int | None], dict[int | None, str], set[int]]:
        """The storages in whose content a launch has a part at the end, the operators that made others, and all that
        were written."""
        covered: set[int | None] = set()
        makers: dict[int | None, str] = {}
        changed: set[int] = set()
        at = 0
        for event in (*self.events, OperatorEvent(len(self.launches), None, (), (), frozenset())):
            for index in range(at, event.launches):
                covered |= written.get(index, set())
                changed |= {n for n in written.get(index, set()) if n is not None}
            at = max(at, event.launches)
            from_launch = not covered.isdisjoint(event.ins)
            for out in event.outs:
                changed.add(out)
                if from_launch:
                    covered.add(out)
                elif out in event.whole:
                    covered.discard(out)
                if event.operator is not None:
                    makers[out] = event.operator.name
        return covered, makers, changed

    def _kept(
        self,
        given: set[int],
        returned: set[int | None],
        held: Sequence[Any],
        read: Mapping[int, set[int | None]],
        written: Mapping[int, set[int | None]],
    ) -> set[int]:
        """Places of events whose results outlive the call and depend on no argument: caches, which the next call finds.
        ``held`` are tensors that the capture itself keeps alive. Where a call has no arguments of its own, whatever was
        there before counts as one."""
        from_given: set[int | None] = set(given)
        candidates: dict[int, tuple[int, ...]] = {}
        at = 0
        for place, event in enumerate(self.events):
            for index in range(at, event.launches):
                if not from_given.isdisjoint(read.get(index, ())):
                    from_given |= written.get(index, set())
            at = max(at, event.launches)
            before = {n for n in event.ins if n not in self._made}
            if not from_given.isdisjoint(event.ins) or (before and not given):
                from_given.update(event.outs)
            elif event.operator is not None and self._made.issuperset(event.outs):
                candidates[place] = event.outs
        if not candidates:
            return set()
        alive = {number for number, storage in self._numbers.values() if storage() is not None}
        asked = {n for outs in candidates.values() for n in outs}
        launched = {number: x for x in held if (number := self._number(x)) is not None}
        # who refers to a tensor takes a look at all objects, so few are asked about
        ours = {n for n in asked & launched.keys() if not _held_by_others(launched[n], (held, launched))}
        users: dict[int, set[int]] = {}
        for place, event in enumerate(self.events):
            for number in event.ins:
                users.setdefault(number, set()).add(place)
        kept: set[int] = set()
        for place in sorted(candidates, reverse=True):  # what a cache is computed from goes with it
            outs = candidates[place]
            stays = all(n in alive and n not in ours and n not in returned for n in outs)
            only_for_kept = not launched.keys() & {*outs} and all(users.get(n) and users[n] <= kept for n in outs)
            if stays or only_for_kept:
                kept.add(place)
        return kept

    def _rows(self, kept: set[int]) -> tuple[tuple[OperatorRow, ...], list[OperatorRow]]:
        found: dict[tuple[Operator, bool], Counter[tuple[str, ...]]] = {}
        for place, e in enumerate(self.events):
            if e.operator is not None:
                found.setdefault((e.operator, place in kept), Counter())[e.places] += 1
        rows = [
            OperatorRow(
                x.name,
                signature(x),
                places.total(),
                x.nbytes * places.total(),
                "kept" if is_kept else x.kind,
                tuple(dict.fromkeys(chain.from_iterable(places)))[:MAX_PLACES],
            )
            for (x, is_kept), places in found.items()
        ]
        rows.sort(key=lambda row: (-row.nbytes, row))
        return tuple(sorted(rows[:MAX_ROWS])), rows[MAX_ROWS:]


PASSING = ("frame", "generator", "list_iterator", "tuple_iterator")
"""What refers to a tensor while code runs."""

LAUNCHING = ("kerntune.", "triton.")
"""Modules whose objects refer to the arguments of a launch."""


def _held_by_others(tensor: Any, mine: Sequence[Any]) -> bool:
    """Whether something other than the capture, and ``mine``, refers to a tensor: a module, a cache, a list."""
    for referrer in gc.get_referrers(tensor):
        if any(referrer is x for x in mine) or type(referrer).__name__ in PASSING:
            continue
        if isinstance(referrer, (list, tuple)) or type(referrer).__module__.startswith(LAUNCHING):
            continue
        owners = gc.get_referrers(referrer) if isinstance(referrer, dict) else ()
        if not any(getattr(type(o), "__module__", "").startswith(LAUNCHING) for o in owners):
            return True  # else a dictionary holds the arguments of a launch
    return False


USERS, GENERATED, OTHERS = "users", "generated", ""
"""Functions of which the innermost is an operator's place; of generated ones the lines that their comments name."""

_kinds: dict[str, str] = {}
"""By file, whose code is in it."""


def _kind_of(frame: FrameType) -> str:
    path, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    if module and users_frame(frame):  # functions that AOTAutograd writes have no module
        return USERS
    generated = module.startswith("torch.") and not set(INSTALLED) & set(Path(path).parts)
    return GENERATED if generated else OTHERS


def _storage_of(tensor: Any) -> ref[Any] | None:
    try:
        return ref(tensor.untyped_storage())
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return None


MAX_CALLS = 4096
_calls: dict[int, tuple[object, OperatorCall | None]] = {}
"""By ``id`` what tells that calls are alike, which is kept alive, and what they have in common."""
