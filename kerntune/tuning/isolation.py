"""Begins, asks, ends and gives up the processes for first launches of candidates, which may fault, hang or abort.

A process is asked with a time limit, and ended if it is late. One process can serve several tunings in turn, where many
follow each other. Starting one takes 0.24 s on an H200, mostly for its context: more than all the rest of a tuning
whose configs are compiled already. The process takes 526 MiB of the device's memory, so it stays for jobs
(:mod:`kerntune.tuning.many`) alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from enum import Enum

from kerntune.base.child_process import ChildEnded, ChildProcess, module_command
from kerntune.errors import BackendError, FrameError, MeasurementError, PeerTimeout
from kerntune.gpu.base import Gpu
from kerntune.gpu.cuda_driver import visible_env
from kerntune.gpu.staging import HOST, HostStaging, Staging, device_staging
from kerntune.timing.worker.requests import FirstLaunchesRequest, FirstLaunchMessage, ForgetRequest, Ready

START_LIMIT_S = 60.0


class FirstLaunchProcess:
    """One process. It starts at once; ``device`` has the words for its device, ``file`` is the descriptor of staging
    memory that it inherits."""

    def __init__(self, device: Sequence[str], file: int) -> None:
        command = module_command("kerntune.timing.worker", "first-launches", str(os.getpid()), str(file), *device)
        env = {**visible_env(os.environ), "CUDA_LAUNCH_BLOCKING": "0"}  # one that hangs would keep Python's lock
        self.child: ChildProcess[FirstLaunchMessage] = ChildProcess(command, FirstLaunchMessage, env, (file,))
        self.asked = 0

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.child.alive

    def wait(self) -> None:
        """Until it has its device. :class:`MeasurementError` if it can't have it."""
        try:
            first = self.child.ready(START_LIMIT_S)
        except FrameError as exc:
            raise MeasurementError(f"a process for first launches did not start: {exc}") from exc
        if not isinstance(first, Ready):
            raise MeasurementError(getattr(first, "message", "a process for first launches did not start"))

    def ask(self, request: FirstLaunchMessage, limit_s: float) -> FirstLaunchMessage:
        """The reply. :class:`ChildEnded` or :class:`PeerTimeout` if there is none; it can't be asked again then."""
        self.wait()
        self.asked += 1
        return self._reply(request, limit_s)

    def ask_each(
        self, request: FirstLaunchesRequest, limit_s: Callable[[], float]
    ) -> Generator[FirstLaunchMessage, None, None]:
        """The replies in order, each within its limit, as :meth:`ask`; the process is ended if not all are taken."""
        self.wait()
        self.asked += 1
        left, sending = len(request.requests), [request]
        try:
            while left:
                reply = self._reply(sending.pop() if sending else None, limit_s())
                left -= 1
                yield reply
        except GeneratorExit:
            if left:
                self.end(wait=False)
            raise

    def _reply(self, request: FirstLaunchMessage | None, limit_s: float) -> FirstLaunchMessage:
        try:
            return self.child.ask(request, limit_s)
        except (ChildEnded, PeerTimeout):
            raise
        except FrameError as exc:
            raise ChildEnded(f"its process wrote what is no answer: {exc}") from exc

    def end(self, wait: bool = True) -> None:
        """As :meth:`kerntune.base.child_process.ChildProcess.end`."""
        self.child.end(wait)


STAGE_LIMIT_S = 60.0

CANNOT_START = (OSError, RuntimeError)
"""What starting a process raises where the system or a shutdown of this process's threads forbids it."""

FAILED_STARTS = 2
"""After so many starts that failed no further process is started."""

_messages: weakref.WeakKeyDictionary[Gpu, set[str]] = weakref.WeakKeyDictionary()
"""Sentences about each device that messages of this process contain already."""


class Isolate(str, Enum):
    """First launches run in another process if it can be had (else here, which is said), only there, or here."""

    AUTO = "auto"
    ALWAYS = "always"
    OFF = "off"


class Isolation:
    """Processes for first launches on one device, one at a time, for any number of tunings in turn or a single one.

    ``why_not`` says why there is none; empty if there is, or if none is wanted on this device.
    """

    def __init__(self, gpu: Gpu, mode: Isolate = Isolate.AUTO, single: bool = False) -> None:
        self.gpu, self.mode, self._single = gpu, mode, single
        self.why_not = ""
        self._failed_starts = 0
        self._device: tuple[str, ...] = ()
        if mode is not Isolate.OFF:
            try:
                self._device = gpu.first_launch_arguments()
            except BackendError as exc:
                self.give_up(str(exc))
        if mode is Isolate.ALWAYS and not self._device:
            self.give_up("this device's backend starts none")
        self._process: FirstLaunchProcess | None = None
        self._host: HostStaging | None = None
        self.kind = ""
        """How bytes travel: :data:`~kerntune.gpu.staging.IPC` or ``HOST``; empty before the first."""

    @property
    def wanted(self) -> bool:
        """Whether first launches run elsewhere."""
        return bool(self._device)

    def give_up(self, why: str) -> None:
        """First launches run in this process from now on. :class:`IsolationError` where they must not."""
        self._device, self.why_not = (), why
        if self.mode is Isolate.ALWAYS:
            raise IsolationError(f"first launches can't run in a process of their own: {why} (isolate=always)")

    def begin(self) -> None:
        """Have a process start, if none is there, and return before it has."""
        if self._process is not None or not self.wanted:
            return
        try:
            if self._host is None:
                self._host = HostStaging(self.gpu)
            self._process = FirstLaunchProcess(self._device, self._host.file)
        except CANNOT_START as exc:
            self.give_up(f"a process can't be started: {exc}")

    def process(self) -> FirstLaunchProcess:
        """One that can be asked; a new one if the last is gone. :class:`MeasurementError` if none can start; after
        :data:`FAILED_STARTS` of them none is wanted any more."""
        if self._process is not None and not self._process.alive:
            self.drop()
        self.begin()
        if self._process is None:
            raise MeasurementError(self.why_not)
        try:
            self._process.wait()
        except (MeasurementError, *CANNOT_START) as exc:
            self.drop()
            why = str(exc) if isinstance(exc, MeasurementError) else f"a process can't be started: {exc}"
            self._failed_starts += 1
            if self._failed_starts >= FAILED_STARTS and self.wanted:
                self.give_up(why)
            raise MeasurementError(why) from exc
        return self._process

    @property
    def ready(self) -> bool:
        """Whether a process has its context on the device already."""
        return self._process is not None and self._process.asked > 0 and self._process.alive

    def has(self, process: FirstLaunchProcess) -> bool:
        """Whether a process has not been dropped; it may have ended."""
        return self._process is process

    def staging(self, nbytes: int) -> Staging:
        """Where so many bytes are put for the process; as many of them as there is room for."""
        assert self._host is not None
        if self.kind == HOST:
            return self._host
        near = device_staging(self.gpu, nbytes)
        self.kind = HOST if near is None else near.kind
        return near or self._host

    def without_ipc(self) -> bool:
        """Let bytes travel through the host's memory from now on; whether that is new."""
        new, self.kind = self.kind != HOST, HOST
        return new

    def drop(self, wait: bool = True) -> None:
        """End the process, and wait until it has ended; the next one starts when it is wanted."""
        process, self._process = self._process, None
        with contextlib.suppress(*CANNOT_START):
            if process is not None:
                process.end(wait)

    def renew(self) -> None:
        """As :meth:`drop`; the next one starts at once, since further launches are likely."""
        self.drop()
        self.begin()

    def forget(self) -> None:
        """A tuning is over: the process frees its memory. One that has ended needn't, and is not waited for."""
        if self._single or self._process is None or not self._process.asked or not self._process.alive:
            return
        try:
            self._process.ask(ForgetRequest(), STAGE_LIMIT_S)
        except (ChildEnded, PeerTimeout, MeasurementError):
            self.drop()

    def close(self) -> None:
        """End the process, and return before it has ended."""
        self.drop(wait=False)
        host, self._host = self._host, None
        if host is not None:
            host.close()


def unsaid(gpu: Gpu) -> list[str]:
    """What a device's setting takes away of the processes' protection, if no message has said so yet."""
    said = _messages.setdefault(gpu, set())
    found = [text for text in gpu.unprotected() if text not in said]
    said.update(found)
    return found


class IsolationError(MeasurementError):
    """First launches must run in a process of their own, and can't."""


KEPT_S = 10.0
"""Seconds that a process stays after a tuning: the next job comes within milliseconds, or not soon."""


class KeptIsolation:
    """This process's. Outside of :meth:`keeping` each tuning has a process of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeping = 0
        self._kept: tuple[object, Isolation] | None = None
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def keeping(self, seconds: float = KEPT_S) -> Iterator[None]:
        """Tunings inside leave their process to the next; it ends so many seconds after the last, at 0 at once."""
        with self._lock:
            self._keeping += 1
            self._stop_timer()
        try:
            yield
        finally:
            with self._lock:
                self._keeping -= 1
                stays = self._kept is None or bool(self._keeping) or (seconds > 0 and self._ends_in(seconds))
            if not stays:
                self.close()

    @contextlib.contextmanager
    def lent(self, gpu: Gpu, mode: Isolate) -> Iterator[Isolation]:
        """For one tuning on a device. After an error its process is ended."""
        if not self._keeping:
            with contextlib.closing(Isolation(gpu, mode, single=True)) as isolation:
                yield isolation
            return
        isolation = self._taken(gpu, mode) or Isolation(gpu, mode)
        try:
            yield isolation
        except BaseException:
            isolation.close()
            raise
        self._keep(gpu, mode, isolation)

    def close(self) -> None:
        """End the process that is kept."""
        with self._lock:
            self._stop_timer()
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _taken(self, gpu: Gpu, mode: Isolate) -> Isolation | None:
        """The one that is kept, if it is of this device; it belongs to the caller now."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and kept[0] != (device_of(gpu), mode):
            kept[1].close()
            return None
        return None if kept is None else kept[1]

    def _keep(self, gpu: Gpu, mode: Isolate, isolation: Isolation) -> None:
        with self._lock:
            if isolation.wanted and self._keeping and self._kept is None:
                self._kept = (device_of(gpu), mode), isolation
                return
        isolation.close()

    def _ends_in(self, seconds: float) -> bool:
        """Have the process end later; whether a thread for that could be had."""
        self._timer = threading.Timer(seconds, self.close)
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return False
        return True

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def device_of(gpu: Gpu) -> object:
    """What tells a device from others: several objects may stand for it."""
    try:
        return gpu.spec, gpu.first_launch_arguments()
    except BackendError:  # it can't have a process any more
        return gpu.spec, None


KEPT_ISOLATION = KeptIsolation()
"""Of this process."""
