"""A lock with two sides on a device's node, and one by its UUID: one process measures there, or several share it.

That holds whatever project they work on. Measuring has the device alone; capturing, and tests of the same run, share
it. A side is never exchanged for the other while it is held: two that both share would wait for each other for ever.
What gives way is let go of first, and taken again at the end.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from threading import get_ident

from kerntune.base.device import DeviceSpec
from kerntune.base.locks import LockBusy, TwoSidedLock, let_go, locked_file, locks_work, open_lock_file
from kerntune.errors import MeasurementError

NOTICE_S = 10.0
"""Seconds of waiting after which a process says what it waits for."""

SHARED = "KERNTUNE_SHARED_GPU"
"""Environment variable that a process sets for those that it starts: its number, and the UUIDs of the devices that it
shares while a test runs. A test may wait for a process that measures, which can't wait for the test."""

_BEFORE, _AFTER = "kerntune-", ".lock"

COMPILERS = "compiler-"
"""What follows in the names of compilers' tokens (:mod:`kerntune.compiling.compiler_tokens`): those are no devices."""


def folder() -> Path:
    """Where the locks by UUID are."""
    return Path(tempfile.gettempdir())


def lock_file(uuid: str) -> Path:
    """The file of a device's lock by UUID."""
    return folder() / f"{_BEFORE}{uuid}{_AFTER}"


def held_by_others() -> list[str]:
    """UUIDs of the devices that another process measures on now, or runs on. OSError if no lock can be made."""
    names = {p.name.removeprefix(_BEFORE).removesuffix(_AFTER) for p in folder().glob(f"{_BEFORE}*{_AFTER}")}
    uuids = [name for name in names if not name.startswith(COMPILERS)]
    return [uuid for uuid in sorted({*uuids, "doctor"}) if _is_held(lock_file(uuid))]


def _is_held(path: Path) -> bool:
    handle = locked_file(path)
    if handle is not None:
        let_go(handle)
    return handle is None


# what this process holds


@dataclass
class _Mine:
    """What this process holds of one device. ``sharing`` has, by thread, how often it shares and won't give way."""

    pid: int = field(default_factory=os.getpid)
    alone: bool = False
    """Whether one of its threads has the device alone."""

    sharing: dict[int, int] = field(default_factory=dict)
    yielding: _SuspendableShare | None = None
    """The share that gives way, held for the tests of this process; None while it has, and where there is none."""

    @property
    def shares(self) -> bool:
        """Whether this process is among those that share."""
        return bool(self.sharing) or self.yielding is not None


_known: dict[str, _Mine] = {}


def _mine(uuid: str) -> _Mine:
    if uuid not in _known or _known[uuid].pid != os.getpid():  # forked: it is the parent's
        _known[uuid] = _Mine()
    return _known[uuid]


def _all_mine() -> list[_Mine]:
    return [one for one in list(_known.values()) if one.pid == os.getpid()]


@contextmanager
def hold(uuid: str, name: str, patience_s: float) -> Iterator[None]:
    """Have the device alone; :class:`MeasurementError` if others don't leave within ``patience_s``, or if the calling
    thread itself shares it.

    The lock on the device's node holds whatever ``TMPDIR`` is, and between containers that are given the same node. The
    one by UUID in the folder for temporary files serves where the node can't be opened. Each process takes the node's
    first. On a file system where locks do nothing, that is reported once. A process that was started by a test which
    shares the device (:data:`SHARED`) shares it too.
    """
    mine, thread = _mine(uuid), get_ident()
    if any(thread in one.sharing for one in _all_mine()):
        raise MeasurementError(f"this thread shares a GPU: it can't have {name} alone before it has let go")
    with sharing_suspended(), _sides(uuid, name, patience_s, alone=True):
        mine.alone = True
        try:
            yield
        finally:
            mine.alone = False


@contextmanager
def share(uuid: str, name: str, patience_s: float) -> Iterator[None]:
    """Run on the device beside others that share it, while no process measures; at once where this process has the
    device alone. :class:`MeasurementError` as :func:`hold`."""
    mine, thread = _mine(uuid), get_ident()
    if mine.alone:
        yield
        return
    with _sides(uuid, name, patience_s, alone=False, inside=mine.shares):
        mine.sharing[thread] = mine.sharing.get(thread, 0) + 1
        try:
            yield
        finally:
            mine.sharing[thread] -= 1
            if not mine.sharing[thread]:
                del mine.sharing[thread]


@contextmanager
def share_suspendable(uuid: str, name: str, patience_s: float) -> Iterator[None]:
    """As :func:`share`, for code that may want the device alone in between: :func:`hold` lets go of this side first,
    and takes it again at its end."""
    mine = _mine(uuid)
    if mine.alone or mine.yielding is not None:
        yield
        return
    own = _SuspendableShare(uuid, name, patience_s)
    own.take(bool(mine.sharing), patience_s)
    mine.yielding = own
    try:
        yield
    finally:
        mine.yielding = None
        own.stack.close()


@dataclass
class _SuspendableShare:
    """A side that is let go of when this process wants a device alone."""

    uuid: str
    name: str
    patience_s: float
    stack: ExitStack = field(default_factory=ExitStack)
    """Closing it lets go."""

    def take(self, inside: bool, patience_s: float) -> None:
        self.stack.enter_context(_sides(self.uuid, self.name, patience_s, alone=False, inside=inside))
        self.stack.enter_context(_children_know(self.uuid))


@contextmanager
def _children_know(uuid: str) -> Iterator[None]:
    pid, me = os.environ.get(SHARED, "").partition(" ")[0], str(os.getpid())
    if pid and pid != me:
        _of_parents[me] = os.environ[SHARED]
    _list_shares([*_listed_shares(), uuid])
    try:
        yield
    finally:
        shared = _listed_shares()
        if uuid in shared:  # a test may have cleared its environment meanwhile
            shared.remove(uuid)
            _list_shares(shared)


_of_parents: dict[str, str] = {}
"""What the variable was when this process, by its number, began to set it."""


def _listed_shares() -> list[str]:
    pid, _, shared = os.environ.get(SHARED, "").partition(" ")
    return shared.split() if pid == str(os.getpid()) else []


def _list_shares(uuids: list[str]) -> None:
    before = _of_parents.get(str(os.getpid()), "")
    os.environ[SHARED] = " ".join([str(os.getpid()), *uuids]) if uuids else before
    if not os.environ[SHARED]:
        del os.environ[SHARED]


def _is_shared_by_parent(uuid: str) -> bool:
    pid, _, shared = os.environ.get(SHARED, "").partition(" ")
    return uuid in shared.split() and pid != str(os.getpid())


@contextmanager
def sharing_suspended() -> Iterator[None]:
    """Let go meanwhile of this process's shares that give way, of all devices.

    Who keeps one and waits for another process may be waited for by that one. What ends the run (Ctrl-C) doesn't wait:
    the share is taken again if it is free.
    """
    given = [(one, one.yielding) for one in _all_mine() if one.yielding is not None]
    for one, own in given:
        one.yielding = None
        own.stack.close()
    ends = False
    try:
        yield
    except BaseException as exc:
        ends = not isinstance(exc, Exception)
        raise
    finally:
        for one, own in given:
            with suppress(MeasurementError):  # without it, what runs then may disturb others
                own.take(bool(one.sharing), 0.0 if ends else own.patience_s)
            one.yielding = own


LOCK_TIMEOUT_S = 3600.0
"""How long a process waits for its turn to measure on a device that another one holds."""


class LockedDevice:
    """The locks of an :class:`~kerntune.gpu.base.Executor`, which describes the methods. A scripted device without an
    id needs none."""

    spec: DeviceSpec

    def lock(self, patience_s: float = LOCK_TIMEOUT_S) -> AbstractContextManager[None]:
        return self._locked(hold, patience_s)

    def lock_shared(self) -> AbstractContextManager[None]:
        return self._locked(share)

    def lock_suspendable(self) -> AbstractContextManager[None]:
        return self._locked(share_suspendable)

    def _locked(
        self, side: Callable[[str, str, float], AbstractContextManager[None]], patience_s: float = LOCK_TIMEOUT_S
    ) -> AbstractContextManager[None]:
        spec = self.spec
        return side(spec.uuid, spec.name, patience_s) if spec.uuid else nullcontext()


# the two places


def device_node(uuid: str) -> Path | None:
    """As :func:`kerntune.gpu.host_gpus.device_node`."""
    from kerntune.gpu import host_gpus  # processes that only measure load nothing of it

    return host_gpus.device_node(uuid)


@contextmanager
def _sides(uuid: str, name: str, patience_s: float, *, alone: bool, inside: bool = False) -> Iterator[None]:
    """One side of the lock on the node and of the one by UUID."""
    if _is_shared_by_parent(uuid):  # what waits for the parent must not be waited for either
        alone, inside = False, True
    end = time.monotonic() + patience_s
    with ExitStack() as stack:
        take = partial(_take, stack, name, alone=alone, inside=inside)
        node = device_node(uuid)
        held = node is not None and take(_opened(node), node, patience_s)
        if not held and not locks_work(folder()):
            _warn_unlocked(str(folder()), name)
        file, handle = lock_file(uuid), None
        with suppress(OSError):
            handle = open_lock_file(file)
        if not take(handle, file, max(0.0, end - time.monotonic())) and not held:
            _warn_unlocked(str(folder()), name)
        yield


def _take(
    stack: ExitStack,
    name: str,
    handle: int | None,
    place: Path,
    patience_s: float,
    *,
    alone: bool,
    inside: bool,
) -> bool:
    if handle is None:
        return False
    lock = TwoSidedLock(handle)
    try:
        found = lock.acquire(alone, patience_s, _notice(name, place, alone), inside=inside)
    except LockBusy as exc:
        use = "shared" if exc.shared else "measured on"
        raise MeasurementError(f"{name} is {use} by another process: {place}") from exc
    stack.callback(lock.release)
    return found


def _notice(name: str, place: Path, alone: bool) -> Callable[[float], None]:
    """A function that is called with the seconds waited so far, and warns once that this process waits."""
    untold = iter([True])

    def waited(seconds: float) -> None:
        if seconds >= NOTICE_S and next(untold, False):
            does = "measures on it, or runs there" if alone else "measures on it"
            warnings.warn(f"waiting for {name}: another process {does} ({place})", stacklevel=2)

    return waited


@lru_cache(maxsize=16)
def _warn_unlocked(place: str, name: str) -> None:
    """Once a process."""
    warnings.warn(
        f"locks do nothing in {place}: another process that measures on {name} at the same time will not be noticed; "
        "set TMPDIR to a folder on a local disk",
        RuntimeWarning,
        stacklevel=2,
    )


def _opened(node: Path) -> int | None:
    """A descriptor of a device's node, to be written if that may be, else to be read."""
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            handle = os.open(node, mode | os.O_CLOEXEC)
        except OSError:
            continue
        if stat.S_ISCHR(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
    return None
