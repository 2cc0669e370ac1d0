"""Keeps mutants from ending other processes than their own: no process that is started from here on, by fork or
otherwise, can send a signal to all processes or to the first one.

``os.killpg(0, SIGKILL)`` with a number that is one higher is ``kill(-1, SIGKILL)``, which ends every process of the
machine or container. Which argument of a mutant leads there isn't to be seen from its text (a process id comes from
elsewhere), so the kernel refuses it: a seccomp filter, which all children inherit and none can take off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
import sys

CALLS = {"x86_64": (0xC000003E, 62), "aarch64": (0xC00000B7, 129)}
"""What Linux calls the processor (``AUDIT_ARCH_*`` in linux/audit.h), and the number of its system call ``kill``."""

EVERYONE, FIRST = 0xFFFFFFFF, 1
"""Process ids that no test may send a signal to: -1 stands for all processes."""

NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
"""``PR_SET_NO_NEW_PRIVS``, ``PR_SET_SECCOMP``, ``SECCOMP_MODE_FILTER`` (linux/prctl.h, linux/seccomp.h)."""

LOAD, EQUAL, END = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM

DANGEROUS = re.compile(r"kill|pid|pgrp")


def guard() -> bool:
    """Have the kernel refuse such signals from now on; False where it can't: see :func:`tryable` then."""
    if sys.platform != "linux" or platform.machine() not in CALLS:
        return False
    steps = _filter(*CALLS[platform.machine()])
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    control = ctypes.CDLL(None).prctl
    control.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if control(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or control(SECCOMP, FILTER, ctypes.addressof(program), 0, 0):
        return False
    return refused()


def _filter(processor: int, kill: int) -> list[tuple[int, int, int, int]]:
    """Steps of the filter: what to do, how many steps to skip if equal and if not, a number or the place of one."""
    return [
        (LOAD, 0, 0, 4), (EQUAL, 0, 5, processor),
        (LOAD, 0, 0, 0), (EQUAL, 0, 3, kill),
        (LOAD, 0, 0, 16), (EQUAL, 2, 0, EVERYONE), (EQUAL, 1, 0, FIRST),
        (END, 0, 0, ALLOW), (END, 0, 0, REFUSE),
    ]  # fmt: skip


def refused() -> bool:
    """Whether the kernel refuses a signal to all; asked with signal 0, which does nothing."""
    try:
        os.kill(-1, 0)
    except PermissionError:
        return True
    return False


def tryable(module: str, *, guarded: bool) -> bool:
    """Whether a mutant of a module with this text may be tried: without the guard none of one that has to do with
    signals or process ids."""
    return guarded or not DANGEROUS.search(module)
