"""Says which process tunes a key, and whether this process is one of several that go on with the same winners.

One process of a machine has a key by a lock on a file, one machine by a file of the shared store. A lease saves work
and decides nothing: which winner stands is decided by who stores one first. So a lease may be taken over too early
without harm.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

from kerntune.base.locks import let_go, locked_file, locks_work
from kerntune.base.store_process import (
    CreateRequest,
    EndRenewal,
    RemoveLaterRequest,
    RenewRequest,
    WriteLaterRequest,
    WriteReply,
)
from kerntune.tuning.cache.keys import WinnerKey
from kerntune.tuning.cache.shared_store import SharedStore, lease_name

RENEW_S = 3.0
"""Seconds between two signs of life of who holds a lease of the store."""

EXPIRY_S = 12.0
"""A lease of the store without a sign of life for so long is taken over. The one who waits measures that by its own
clock, so that clocks of machines needn't agree."""

RELEASED = b"released"

MAX_LEASE = 1024


class FileLease:
    """A lock on a file named after the key, which ends with the process that holds it; the file is removed then.

    In a folder where locks do nothing, or that can't be written, each process holds it.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self._folder, self._path = folder / "leases", folder / "leases" / digest
        self._handle: int | None = None
        self._free = False

    def take(self) -> bool:
        """Whether it is held now; doesn't wait."""
        if self._handle is not None or self._free:
            return True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not locks_work(self._folder):
                self._free = True
                return True
            self._handle = locked_file(self._path)
        except OSError:
            self._free = True
        return self._handle is not None or self._free

    def release(self) -> None:
        """Let another process have it."""
        handle, self._handle, self._free = self._handle, None, False
        if handle is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            let_go(handle)


class StoreLease:
    """A numbered file of the store: who creates the next number after one that was released, or whose holder gives no
    sign of life, holds it. The number is the fencing token: a holder writes and removes files of its number alone.
    """

    def __init__(self, store: SharedStore, key: WinnerKey) -> None:
        self._store, self._key = store, key
        self.token = 1
        """The number that is held, or that another holds."""

        self._held = False
        self._seen: tuple[int, bytes] | None = None
        self._seen_at = time.monotonic()

    def take(self) -> bool:
        """Whether it is held now, or the store can't be asked; one request."""
        while not self._held:
            text = f"{os.getpid()} on {socket.gethostname()}"
            name = lease_name(self._key, self.token)
            reply = self._store.client.ask(CreateRequest(name, f"{text} 0\n".encode(), MAX_LEASE))
            if not isinstance(reply, WriteReply):
                return True
            if reply.won:
                self._held = True
                self._store.client.tell(RenewRequest(name, text, RENEW_S))
            elif self._is_over(reply.other or b""):
                self.token += 1
            else:
                return False
        return True

    def _is_over(self, said: bytes) -> bool:
        if self._seen != (self.token, said):
            self._seen, self._seen_at = (self.token, said), time.monotonic()
        return said.startswith(RELEASED) or time.monotonic() - self._seen_at >= EXPIRY_S

    def release(self, found: bool) -> None:
        """Let another have it; with a winner ``found`` no process needs it any more."""
        if not self._held:
            return
        self._held = False
        name, client = lease_name(self._key, self.token), self._store.client
        client.tell(EndRenewal(name))
        client.tell(RemoveLaterRequest((name,)) if found else WriteLaterRequest(name, RELEASED))


class Lease:
    """Of one key: the file's lock first, so that one process of a machine asks the store."""

    def __init__(self, folder: Path, key: WinnerKey, store: SharedStore | None = None) -> None:
        self._file = FileLease(folder, key.digest())
        self._stored = StoreLease(store, key) if store is not None and not store.is_read_only else None

    def take(self) -> bool:
        """Whether this process holds it now; doesn't wait for another."""
        return self._file.take() and (self._stored is None or self._stored.take())

    def release(self, found: bool) -> None:
        """Let others have it."""
        if self._stored is not None:
            self._stored.release(found)
        self._file.release()


SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "SLURM_NTASKS")
"""Variables by which launchers (torchrun, Open MPI, MPICH, Slurm) say how many processes there are."""

BEGUN = time.time()
"""When this process loaded this module."""

MARGIN_S = 60.0
"""Ranks of one run start within so many seconds of each other, by clocks of several machines."""


def several_ranks() -> bool:
    """Whether a launcher or ``torch.distributed`` says that there are others."""
    if any(_size(os.environ.get(name, "")) > 1 for name in SIZES):
        return True
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return int(distributed.get_world_size()) > 1


def of_this_run(created: float) -> bool:
    """Whether something with this time stamp (seconds since 1970) was stored since this run began."""
    return created >= BEGUN - MARGIN_S


def _size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
