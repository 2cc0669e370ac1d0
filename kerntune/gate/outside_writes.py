"""Writes of a case's own launches outside of their tensors, found between guard zones in a process of their own."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kerntune.base.case_result import OutsideWrite
from kerntune.base.policy import Update
from kerntune.base.recording import Launch, Recording
from kerntune.capture import Capture
from kerntune.capture.recorder import Recorded
from kerntune.errors import MeasurementError
from kerntune.gpu.guards import GuardDamage, damage_text
from kerntune.gpu.memory import Memory
from kerntune.timing.worker.look_requests import ChangedGuard
from kerntune.tuning.first_launches import FirstLaunches, name_and_size
from kerntune.tuning.isolation import Isolation

FLOATS = ("*fp", "*bf")
"""How the types of pointers to numbers begin that are no integers: addresses are hardly ever computed from these."""


@dataclass(frozen=True)
class OutsideWrites:
    """What a look at a case's launches came to. ``why_not`` says why it could not be finished."""

    found: tuple[OutsideWrite, ...] = ()
    why_not: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence for each write that decides the verdict."""
        return tuple(outside_text(w) for w in self.found if w.certain)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences beside a verdict."""
        doubt = (
            "; that decides nothing, for the call may have changed what an earlier launch wrote and this one reads. It "
            "becomes no baseline, which would end the search for it, unless --kerntune-update=all asks for that"
        )
        unsure = [outside_text(w) + doubt for w in self.found if not w.certain]
        why = [f"not looked for writes outside of tensors: {self.why_not}"] if self.why_not else []
        return (*unsure, *why)

    def may_be_baseline(self, update: Update) -> bool:
        """Whether the case's baseline may be written: later runs look at equal work no more. No update accepts a
        certain write, and only one that rewrites every baseline an uncertain one."""
        return not self.found or (not self.failures and update is Update.ALL)


NOT_LOOKED = OutsideWrites()


def has_fixed(capture: Capture) -> bool:
    """Whether a call launches something that isn't a candidate: these have been launched between guard zones already,
    each before it ran anywhere else."""
    return any(0 not in p.grid and (p.site is None or len(p.site.candidates) < 2) for p in capture.launches)


def look_for(isolation: Isolation, recorded: Recorded) -> OutsideWrites:
    """Run a case's launches in order in a process of their own, on the contents that they found. Nothing is said where
    they can't run there: addresses in memory or integers lead somewhere else, or there is no room for copies."""
    recording = recorded.recording
    memory = Memory(isolation.gpu, recording.storages, recorded.sources)
    elsewhere = FirstLaunches(isolation, recording.working[0].kernel, memory)
    try:
        if elsewhere.cannot(recording):
            return NOT_LOOKED
        changed = elsewhere.whole_call(recording, recorded.artifacts)
    except MeasurementError as exc:
        return OutsideWrites(why_not=str(exc))
    finally:
        memory.give_back()
        elsewhere.close()
    return OutsideWrites(tuple(_write(recording, x) for x in changed))


def outside_text(write: OutsideWrite) -> str:
    """``launch 0 (kernel add) wrote outside of its tensors: 4 bytes from byte 0 behind the end of y (4,096 bytes)``."""
    damage = GuardDamage(0, write.offset, write.last, write.count)
    where = damage_text(damage, write.argument, write.nbytes)
    return f"launch {write.launch} (kernel {write.kernel}) wrote outside of its tensors: {where}"


def _write(recording: Recording, changed: ChangedGuard) -> OutsideWrite:
    launch = recording.working[changed.launch]
    single = msgspec.structs.replace(recording, launches=(launch,))
    name, nbytes = name_and_size(single, changed.storage)
    certain = _as_found(recording, changed.launch)
    return OutsideWrite(
        launch.kernel, changed.launch, name, changed.first, changed.last, changed.count, nbytes, certain
    )


def _as_found(recording: Recording, place: int) -> bool:
    """Whether a launch found the integers that it reads as they are when only launches are run: no earlier one uses
    their storage, so what the call itself does to it came before the first content."""
    launch = recording.working[place]
    earlier = {i for x in recording.working[:place] for i in (*x.reads, *x.writes)}
    return not earlier & _integers(recording, launch)


def _integers(recording: Recording, launch: Launch) -> set[int]:
    """Storages that a launch reads, and that it may take for something else than floating-point numbers."""
    views = [p.view for p in launch.params if p.view is not None and not p.type.startswith(FLOATS)]
    return {recording.views[v].storage for v in views} & set(launch.reads)
