"""``python -m kerntune.base.store_process PARENT TIMEOUT``: talks to a store for the process that started it.

Requests with a reply come first, one after the other. Renewals and what is to be written later are done while
nothing is asked. What is left to be written is done in the seconds after the parent has ended.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from contextlib import suppress
from threading import Timer
from typing import Union

from kerntune.base.frames import Reader, send
from kerntune.base.orphans import process_end
from kerntune.base.strict import StrictStruct
from kerntune.base.url_files import SFTP, UrlFiles, open_files, protocol_of, shown_url, without_password
from kerntune.errors import FrameError, KerntuneError


class ReadRequest(StrictStruct, frozen=True, tag=True):
    """Read files, at most ``limit`` bytes and one more of each."""

    names: tuple[str, ...]
    limit: int


class NamesRequest(StrictStruct, frozen=True, tag=True):
    """List all files below a folder."""

    prefix: str = ""


class CreateRequest(StrictStruct, frozen=True, tag=True):
    """Write a file where there is none, else read what is there."""

    name: str
    data: bytes
    limit: int


class ReplaceRequest(StrictStruct, frozen=True, tag=True):
    """Write a file in the place of what is there."""

    name: str
    data: bytes


class WriteLaterRequest(StrictStruct, frozen=True, tag=True):
    """Write a file some time later. There is no reply."""

    name: str
    data: bytes


class RemoveLaterRequest(StrictStruct, frozen=True, tag=True):
    """Remove files some time later. There is no reply."""

    names: tuple[str, ...]


class RenewRequest(StrictStruct, frozen=True, tag=True):
    """Write a file anew every ``seconds``, with another number each time, until :class:`EndRenewal`. No reply."""

    name: str
    text: str
    seconds: float


class EndRenewal(StrictStruct, frozen=True, tag=True):
    """Stop renewing a file. There is no reply."""

    name: str


AnsweredRequest = Union[ReadRequest, NamesRequest, CreateRequest, ReplaceRequest]
LaterRequest = Union[WriteLaterRequest, RemoveLaterRequest]
StoreRequest = Union[AnsweredRequest, LaterRequest, RenewRequest, EndRenewal]


class Contents(StrictStruct, frozen=True, tag=True):
    """What files hold, None for one that isn't there."""

    data: tuple[bytes | None, ...]


class Names(StrictStruct, frozen=True, tag=True):
    """Files, sorted."""

    names: tuple[str, ...]


class WriteReply(StrictStruct, frozen=True, tag=True):
    """A write came to its end: whether the file is now as it was to be; ``other`` is what was there before."""

    won: bool
    other: bytes | None = None


class StoreReady(StrictStruct, frozen=True, tag=True):
    """The process can be asked."""


class StoreFailed(StrictStruct, frozen=True, tag=True):
    """The store could not be asked, or refused."""

    message: str


StoreReply = Union[Contents, Names, WriteReply, StoreReady, StoreFailed]

URL = "KERNTUNE_STORE_PROCESS_URL"
"""The variable that has the store's URL: command lines can be read by all users of a machine, and it may have a
password."""

LAST_SECONDS = 5.0
"""For what is left to be written when the parent has ended."""


class StoreServer:
    """Serves one parent. ``files`` is opened by the first request, and again after an error."""

    def __init__(self, url: str, timeout_s: float | None) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._files: UrlFiles | None = None
        self._later: deque[LaterRequest] = deque()
        self._renewals: dict[str, tuple[RenewRequest, int, float]] = {}
        self.failed = ""
        """What went wrong last with what has no reply."""

    @property
    def files(self) -> UrlFiles:
        """The store's."""
        if self._files is None:
            self._files = open_files(self._url, self._timeout_s)
        return self._files

    def prepare(self) -> None:
        """Make what needs no network: the client of an object store takes half a second to be made."""
        if protocol_of(self._url) not in SFTP:
            with suppress(Exception):  # the first request says it
                self.files.prepare()

    def answer(self, request: StoreRequest) -> StoreReply | None:
        """Do what is asked now, or note what is to be done later; None where there is no reply."""
        if isinstance(request, RenewRequest):
            self._renewals[request.name] = (request, 1, time.monotonic() + request.seconds)
            return None
        if isinstance(request, EndRenewal):
            self._renewals.pop(request.name, None)
            return None
        if isinstance(request, (WriteLaterRequest, RemoveLaterRequest)):
            self._later.append(request)
            return None
        try:
            return self._act(request)
        except Exception as exc:  # each file system raises its own
            self._files = None
            text = str(exc) if isinstance(exc, KerntuneError) else f"{type(exc).__name__}: {exc}"
            text = without_password(text, self._url).removeprefix(f"{shown_url(self._url)}: ")  # who asks names it
            return StoreFailed(text)

    def _act(self, request: AnsweredRequest) -> StoreReply:
        if isinstance(request, ReadRequest):
            if len(request.names) == 1:
                return Contents((self.files.read(request.names[0], request.limit),))
            return Contents(tuple(self.files.read_many(request.names, request.limit)))
        if isinstance(request, NamesRequest):
            return Names(tuple(self.files.names(request.prefix)))
        if isinstance(request, ReplaceRequest):
            self.files.replace(request.name, request.data)
            return WriteReply(True)
        if self.files.create(request.name, request.data):
            return WriteReply(True)
        return WriteReply(False, self.files.read(request.name, request.limit))

    # what has no reply

    def wait_s(self) -> float | None:
        """Seconds until something is due; None if there is nothing."""
        if self._later:
            return 0.0
        times = [due for _, _, due in self._renewals.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def work(self) -> None:
        """Do one thing that is due."""
        try:
            if not self._renewed() and self._later:
                self._write(self._later.popleft())
        except Exception as exc:  # no reply: the next request that has one says what is wrong
            self._files = None
            self.failed = without_password(f"{type(exc).__name__}: {exc}", self._url)

    def finish(self) -> None:
        """Do all that is left to be written, and renew nothing more."""
        self._renewals.clear()
        while self._later:
            self.work()

    def _renewed(self) -> bool:
        for name, (request, count, due) in list(self._renewals.items()):
            if due <= time.monotonic():
                self._renewals[name] = (request, count + 1, time.monotonic() + request.seconds)
                self.files.replace(name, f"{request.text} {count}\n".encode())
                return True
        return False

    def _write(self, request: LaterRequest) -> None:
        if isinstance(request, WriteLaterRequest):
            self.files.replace(request.name, request.data)
        else:
            for name in request.names:
                self.files.remove(name)


def serve(server: StoreServer, parent: int, source: int, target: int) -> None:
    """Until the parent has ended or has closed its pipe."""
    reader: Reader[StoreRequest] = Reader(source, StoreRequest)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    ended = process_end(parent)
    if ended is not None:
        poll.register(ended, select.POLLIN)
    while True:
        wait = server.wait_s()
        ready = [file for file, _ in poll.poll(None if wait is None else wait * 1000)]
        if source in ready:
            try:
                requests = reader.arrived()
            except FrameError:
                return
            for request in requests:
                reply = server.answer(request)
                if reply is not None:
                    send(target, reply)
        elif ended in ready:  # a forked copy of the parent may hold the pipe still
            return
        else:
            server.work()


def main(words: list[str]) -> int:
    """Serve, and do then what is left; the exit code."""
    url, (parent, timeout) = os.environ.pop(URL), words
    server = StoreServer(url, float(timeout))
    target = os.dup(1)
    os.dup2(2, 1)  # what packages print is no message
    try:
        _load(url)
        server.prepare()
        send(target, StoreReady())
        serve(server, int(parent), 0, target)
    except FrameError:  # the parent has ended meanwhile
        pass
    Timer(LAST_SECONDS, os._exit, (0,)).start()
    server.finish()
    return 0


def _load(url: str) -> None:
    """Import and prepare what the first request needs, without the network: that takes half a second or two, and is no
    sign of an outage."""
    protocol = protocol_of(url)
    with suppress(Exception):  # the first request says it
        if protocol in SFTP:
            import paramiko  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401
        elif protocol != "file":
            from fsspec import get_filesystem_class  # type: ignore[import-not-found,import-untyped,unused-ignore]

            get_filesystem_class(protocol)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # fsspec's loop runs in a thread
