"""Says which store is shared, and asks it through its process, or from this process for commands.

A store that doesn't answer costs one call a second, and is left alone then. Commands wait as long as it takes, and say
what goes wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable

from kerntune.base.child_process import ChildProcess, module_command
from kerntune.base.store_process import URL, ReadRequest, StoreFailed, StoreReply, StoreRequest, StoreServer
from kerntune.base.url_files import CONDITIONAL, READ_ONLY, SFTP, check_place, is_url, shown_url, without_password
from kerntune.errors import CacheError, FrameError, PeerTimeout, UsageError
from kerntune.tuning.cache.entries import tell_user

WAIT_S = 0.5
"""Each wait for the network, in the store's process."""

LIMIT_S = 0.9
"""What a store may cost a caller before it is left alone: with the end of its process less than a second
(``benchmarks/results/store_outage.json``)."""

START_LIMIT_S = 15.0
"""For Python to start and import fsspec and what it needs: half a second on an idle machine."""

REST_S = 60.0
"""A store that failed is left alone for so long; twice as long after each further failure, up to ``LONGEST_REST_S``."""

LONGEST_REST_S = 900.0

_clients: weakref.WeakSet[StoreClient] = weakref.WeakSet()

PROBE = ReadRequest(("kerntune-probe",), 1)


class StoreClient:
    """One store, for all threads of one process. A forked copy starts a process of its own.

    No method raises for anything that the store does: what could not be asked is None.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.report: Callable[[str], None] = warn
        """Gets the one line that says why the store can't be used."""

        self._lock = threading.RLock()
        self._child: ChildProcess[StoreReply] | None = None
        self._has_answered: bool  # of the process: set when it starts
        self._pid = os.getpid()
        self._away_until = 0.0
        self._rest = REST_S
        self._probing_since: float | None = None
        self._said, self._why = False, ""
        _clients.add(self)

    @property
    def is_away(self) -> bool:
        """Whether the store is left alone now."""
        return self._away_until > 0

    def begin(self) -> None:
        """Have the process start, and return before it has."""
        with self._lock:
            self._forget_forked()
            if self._child is None and not self.is_away:
                with contextlib.suppress(OSError):
                    self._start()

    def ask(self, request: StoreRequest) -> StoreReply | None:
        """The reply; None if the store is left alone, or is from now on."""
        with self._lock:
            self._forget_forked()
            if self.is_away and not self._is_back():
                return None
            try:
                reply = self._running().ask(request, LIMIT_S, end_if_late=self._has_answered)
                self._has_answered = True
                if isinstance(reply, StoreFailed):
                    raise FrameError(reply.message)
                return reply
            except PeerTimeout as exc:
                if self._has_answered:
                    self._leave_alone(str(exc))
                else:
                    # To connect may take longer than a call should wait (SSH takes ten round trips). The process goes
                    # on, and the store counts as away until the reply is there, which no call waits for.
                    self._probing_since = self._away_until = time.monotonic()
                return None
            except (FrameError, OSError) as exc:
                self._leave_alone(str(exc))
                return None

    def tell(self, request: StoreRequest) -> None:
        """Have something done some time later; nothing, if the store is left alone."""
        with self._lock:
            self._forget_forked()
            if self.is_away:
                return
            try:
                self._running().tell(request, LIMIT_S)
            except (FrameError, OSError) as exc:
                self._leave_alone(str(exc))

    def close(self, wait_s: float = 10.0) -> None:
        """Let the process end when it has done what is left, which is waited for."""
        with self._lock:
            self._forget_forked()
            child, self._child = self._child, None
            if child is not None:
                child.let_end(wait_s)

    def _running(self) -> ChildProcess[StoreReply]:
        """The process, once it is ready; another one, if it has ended."""
        child = self._child
        if child is None or not child.alive:
            self._end()
            child = self._start()
        try:
            child.ready(START_LIMIT_S, end_if_late=False)
        except PeerTimeout:
            child.tell(PROBE, LIMIT_S)
            raise
        return child

    def _start(self) -> ChildProcess[StoreReply]:
        command = module_command("kerntune.base.store_process", str(os.getpid()), str(WAIT_S))
        self._child = ChildProcess(command, StoreReply, {**os.environ, URL: self.url})
        self._has_answered = False
        return self._child

    def _leave_alone(self, why: str) -> None:
        self._end()
        self._away_until = time.monotonic() + self._rest
        self._rest = min(2 * self._rest, LONGEST_REST_S)
        if not self._said:
            self._said = True
            why = without_password(why, self.url)  # it may be what the process has printed
            then = "tuning goes on with this machine's own cache"
            self.report(f"{shown_url(self.url)}: can't be used ({why}); {then}")

    def _is_back(self) -> bool:
        """Whether a store that was left alone answers again: it is asked once its rest is over, and not waited for."""
        if self._probing_since is None:
            if time.monotonic() < self._away_until:
                return False
            with contextlib.suppress(OSError, FrameError):
                child = self._start()
                self._probing_since = time.monotonic()
                child.tell(PROBE, LIMIT_S)
            return False
        found = self._probed()
        if found is None and time.monotonic() < self._probing_since + START_LIMIT_S:
            return False
        self._probing_since = None
        if found:
            self._away_until, self._rest, self._has_answered = 0.0, REST_S, True
        else:
            self._leave_alone(self._why or "it does not answer")
        return bool(found)

    def _probed(self) -> bool | None:
        assert self._child is not None
        try:
            self._child.ready(0.0, end_if_late=False)
            reply = self._child.ask(None, 0.0, end_if_late=False)
        except PeerTimeout:
            return None
        except FrameError:
            return False
        self._why = reply.message if isinstance(reply, StoreFailed) else ""
        return not isinstance(reply, StoreFailed)

    def _end(self) -> None:
        """Kill the process: what it does may never end."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _forget_forked(self) -> None:
        """In a forked copy of the process, the pipes are the other's."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            child, self._child = self._child, None
            self._probing_since = None
            if child is not None:
                child.forget()


def _renew_locks() -> None:
    """In a forked copy, a thread that held a lock is no more."""
    for client in _clients:
        client._lock = threading.RLock()


def _let_end() -> None:
    """At the end of this process, theirs end by themselves."""
    for client in list(_clients):
        client.close(0.0)


os.register_at_fork(after_in_child=_renew_locks)
atexit.register(_let_end)


def warn(text: str) -> None:
    """Warn of a store, which never ends a run."""
    tell_user(f"kerntune's store: {text}")


class DirectClient:
    """As :class:`StoreClient`, for a command: it works in this process, and :class:`CacheError` says what failed."""

    def __init__(self, url: str) -> None:
        self._server, self._url = StoreServer(url, None), url

    def ask(self, request: StoreRequest) -> StoreReply:
        """The reply."""
        reply = self._server.answer(request)
        if reply is None or isinstance(reply, StoreFailed):
            raise CacheError(f"{shown_url(self._url)}: {getattr(reply, 'message', 'no answer')}")
        return reply

    def tell(self, request: StoreRequest) -> None:
        """Note what is to be done by :meth:`finish`."""
        self._server.answer(request)

    def finish(self) -> None:
        """Do what was noted."""
        self._server.finish()
        if self._server.failed:
            raise CacheError(f"{shown_url(self._url)}: {self._server.failed}")


# which store


def store_url() -> str:
    """``KERNTUNE_STORE``; empty if no store is shared. :class:`UsageError` for a URL of which of several writers all
    may believe that they were first, or that is none."""
    url = os.environ.get("KERNTUNE_STORE", "")
    if url:
        check_url(url, "KERNTUNE_STORE")
    return url.rstrip("/")


def check_url(url: str, variable: str = "") -> None:
    """:class:`UsageError` for what can't be a store; it names the ``variable`` that the URL is from, if it is."""
    shown = shown_url(url)
    where = f"{variable} is {shown!r}" if variable else shown
    known = sorted({"file", *CONDITIONAL, *SFTP, *READ_ONLY})
    if not is_url(url):
        raise UsageError(f"{where}: no URL; for a folder write file:///path")
    if url.partition("://")[0] not in known:
        raise UsageError(
            f"{where}: nothing is known there by which one of several writers is the "
            f"first, so ranks could go on with different winners; use one of {', '.join(f'{k}://' for k in known)}"
        )
    try:
        check_place(url)
    except UsageError as exc:
        raise UsageError(f"{where}: {str(exc).removeprefix(f'{shown}: ')}") from None
