"""Distinguishes failures of the machine from those of a kernel, and names what to do about them."""

from __future__ import annotations

import errno
import os
import re
import signal
import tempfile

PASSING = (OSError, MemoryError)
"""Exceptions of a compilation that aren't the launch's: a full disk or memory, a folder that can't be written."""

TOOL = re.compile(r"ptxas|ld\.lld", re.IGNORECASE)
"""Programs that Triton runs, and whose failures it reports as text."""

_CODE = re.compile(r"failed with error code (-?\d+)")
"""How Triton words an exit code of ptxas (``make_cubin`` of its NVIDIA backend), negative for a signal."""

FROM_OUTSIDE = frozenset(
    {
        signal.SIGHUP, signal.SIGINT, signal.SIGBUS, signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU, signal.SIGXFSZ,
    }
)  # fmt: skip
"""Signals that a process of ours, or a program that one runs, gets from other processes or because of the system's
limits. SIGBUS is among them: the system has no page for a mapped file or for shared memory (a full disk, a container's
memory limit), which neither a kernel's source nor its launch brings about. SIGSEGV and SIGABRT come from the process
itself, and may be the kernel's fault."""

SHELL = 128
"""A shell that wraps a program adds this to the number of the signal that has ended it."""

_SYSTEM = re.compile(
    "|".join(
        re.escape(os.strerror(code))
        for code in (
            errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
            errno.EAGAIN, errno.ETXTBSY, errno.ENOEXEC,
        )
    )
    + r"|cannot find|could not open (?:in|out)put file|error while loading shared libraries"
    + r"|version `GLIBC[^']*' not found",
    re.IGNORECASE,
)  # fmt: skip
"""Messages that programs print when the system refuses a request."""

_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_HELD = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})


def is_fault(why: BaseException | str) -> bool:
    """Whether the machine made a compilation fail, so that the same one may succeed another time."""
    if isinstance(why, PASSING):
        return True
    text = str(why)
    return TOOL.search(text) is not None and (_was_killed(text) or _SYSTEM.search(text) is not None)


def remedy(why: BaseException | str) -> str:
    """What to do about a fault, as the end of a sentence."""
    code = why.errno if isinstance(why, OSError) else None
    text = str(why)
    if code in _ROOM or _says(text, _ROOM):
        return f"make room in {tempfile.gettempdir()} (TMPDIR) and in the folder of TRITON_CACHE_DIR"
    if code in _HELD or _says(text, _HELD):
        return "raise the limits of this machine on memory, processes and open files, or run less beside it"
    if isinstance(why, MemoryError) or _was_killed(text) or "SIGKILL" in text:
        return "the system ends processes for want of memory, mostly: give it more, or run less beside it"
    if isinstance(why, OSError) and why.filename is not None:
        return (
            f"make {why.filename} one that this user can read and write, or set TRITON_CACHE_DIR (else HOME) to another"
        )
    return "look at HOME, TRITON_CACHE_DIR and TMPDIR (space, permissions) and at the compiler's installation"


def _was_killed(text: str) -> bool:
    found = _CODE.search(text)
    code = int(found[1]) if found else 0
    return -code in FROM_OUTSIDE or code - SHELL in FROM_OUTSIDE


def _says(text: str, codes: frozenset[int]) -> bool:
    return any(os.strerror(code).lower() in text.lower() for code in codes)
