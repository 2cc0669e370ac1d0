"""Failures of the machine are distinguished from those of a kernel."""

from __future__ import annotations

import errno
import os

import pytest

from kerntune.compiling.stream import refusal
from kerntune.compiling.worker_process import is_fault, remedy
from kerntune.errors import CompileError, EnvironmentFault

from . import kernels

PTXAS = "PTXASError: PTXAS error: `ptxas` failed with error code {}\n`ptxas` stderr:\n{}\nRepro command: ptxas -v"

FAULTS = {
    "killed": PTXAS.format(-9, ""),
    "ended": PTXAS.format(-15, ""),
    "killed below a shell": PTXAS.format(137, ""),
    "mapped file on a full disk": PTXAS.format(-7, ""),
    "no room": PTXAS.format(255, f"ptxas fatal   : {os.strerror(errno.ENOSPC)}"),
    "no output": PTXAS.format(255, "ptxas fatal   : Could not open output file '/tmp/a.o'"),
    "not found": "RuntimeError: Cannot find ptxas",
    "another libc": PTXAS.format(1, "ptxas: /lib64/libc.so.6: version `GLIBC_2.34' not found"),
    "linker": "ld.lld: error: cannot open output file a.hsaco: Permission denied",
}

KERNELS = {
    "crash": PTXAS.format(-11, ""),
    "abort": PTXAS.format(-6, ""),
    "refused": PTXAS.format(255, "ptxas error : Entry function 'k' uses too much shared data (0x40000 bytes)"),
    "its own words": "CompileTimeAssertionFailure: Permission denied",
    "hang": "the compiler did not come back and was ended after 30 s",
}


@pytest.mark.parametrize("why", FAULTS.values(), ids=FAULTS)
def test_what_the_machine_does_is_a_fault(why):
    assert is_fault(why)
    error = refusal(kernels.add_launch(), why)
    assert type(error) is EnvironmentFault
    assert kernels.__file__ in str(error)
    assert "What to do: " in str(error)


@pytest.mark.parametrize("why", KERNELS.values(), ids=KERNELS)
def test_what_may_be_the_kernels_doing_is_none(why):
    assert not is_fault(why)
    assert type(refusal(kernels.add_launch(), why)) is CompileError


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/x"), "make room"),
        (FAULTS["no room"], "make room"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/home/x/.triton"), "make /home/x/.triton one that"),
        (MemoryError(), "want of memory"),
        (FAULTS["killed"], "want of memory"),
        (FAULTS["not found"], "installation"),
    ],
    ids=str,
)
def test_it_says_what_to_do(why, words):
    assert is_fault(why)
    assert words in remedy(why)
