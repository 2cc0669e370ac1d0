"""Replays a checked recording, in a sealed process that holds no code of the candidate's host side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from kerntune.errors import InterpreterLimit, KernelFault, KernelTimeout, KerntuneError
from kerntune.gpu.emulator.flat_memory import FlatMemory
from kerntune.gpu.emulator.replayed_results import ReplayedResults, replay_results
from kerntune.referee import gpu_replay
from kerntune.referee.hostile_recording import given_contents
from kerntune.referee.operator_replay import run_operator, tensor_at
from kerntune.referee.reasons import Reason
from kerntune.referee.tasks import CallRefused, ReplayAnswer, ReplaySide, ReplayTask


def answer(task: bytes) -> ReplayAnswer:
    """Run the recording of a :class:`ReplayTask`."""
    return replayed(msgspec.msgpack.decode(task, type=ReplayTask))


def replayed(task: ReplayTask) -> ReplayAnswer:
    """What the launches leave. Failures are answers too. The emulator begins no execution when half of the time is
    used: of several contents the last ones may be missing."""
    if task.gpu:
        return gpu_replay.replayed_on_gpu(task)
    side, between = task.side, set[int]()
    try:
        ttir = {k: v.decode() for k, v in side.artifacts.items()}
        begin, found = time.monotonic(), list[ReplayedResults]()
        for contents in _each_content(task):
            spent = time.monotonic() - begin
            if found and spent > task.seconds / 2:
                break
            left = task.seconds - spent
            given = {i: contents[i] for i in task.wanted}
            beside = partial(_run_beside, side, given, between)
            found.append(replay_results(side.recording, ttir, contents, side.poison, left, beside))
    except UnicodeDecodeError:
        return _refused(Reason.ANSWER, "a kernel's TTIR is no text")
    except KernelFault as exc:
        return _refused(Reason.FAULT, str(exc))
    except KernelTimeout as exc:
        return _refused(Reason.REPLAY_LATE, f"{exc}; --budget gives it more")
    except (InterpreterLimit, KerntuneError) as exc:
        return _refused(Reason.EMULATOR, str(exc))
    except Exception as exc:  # TTIR that no compiler has written
        return _refused(Reason.EMULATOR, f"{type(exc).__name__}: {exc}")
    kept = ((one.contents[i], side.contents[i]) for one in found for i in task.wanted)
    outside = sum(one.outside for one in found)
    restored = tuple(i for i in sorted(between) if found[-1].contents[i] == given[i])
    return ReplayAnswer(tuple(None if after == before else after for after, before in kept), outside, restored=restored)


def _run_beside(
    side: ReplaySide, given: Mapping[int, bytes | None], between: set[int], launches: int, memory: FlatMemory
) -> frozenset[int]:
    """Run torch's operators between so many launches and the next, on the emulator's memory by torch's own code for
    processors; the storages that they use. Which of the ``given`` contents the last launch has changed is noted."""
    if 0 < launches < len(side.recording.launches):
        used = side.recording.pointed_at(side.recording.launches[launches - 1])
        between.update(i for i in used & given.keys() if given[i] not in (None, memory.content(i).tobytes()))
    views, rows = side.recording.views, [row for row in side.operators if row.before == launches]
    for row in rows:
        run_operator(row, lambda i: tensor_at(views[i], memory.content(views[i].storage)))
    return frozenset().union(*(row.storages(side.recording) for row in rows))


def _each_content(task: ReplayTask) -> Iterator[list[bytes | None]]:
    """What each storage begins with, for each of the task's distances."""
    sizes = [s.nbytes for s in task.side.recording.storages]
    for rolls in task.rolls:
        contents = given_contents(task.side)
        for storage, distance in zip(task.variation.storages, rolls, strict=bool(rolls)):
            content, nbytes = contents[storage] or b"", sizes[storage]
            moved = content[distance : distance + nbytes]
            contents[storage] = moved + content[: nbytes - len(moved)]
        yield contents


def _refused(reason: Reason, text: str) -> ReplayAnswer:
    return ReplayAnswer(refused=CallRefused(reason.value, text[:1000]))
