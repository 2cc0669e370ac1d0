"""Every error that kerntune raises on purpose.

::

    KerntuneError
    ├── UsageError                what the user asked for can't be done as asked
    │   ├── ConfigError           a candidate config is wrong, missing or empty
    │   ├── HintError             a size hint or another heuristic input is wrong
    │   ├── GridError             a launch grid is wrong or over the device's limits
    │   ├── TargetError           a target is unknown, or this Triton can't compile for it
    │   └── NoGpuError            a kernel is launched where Triton finds no GPU (also a RuntimeError)
    ├── CaptureError              a launch could not be recorded
    ├── TrialError                one candidate failed; costs a trial, never a run
    │   ├── CompileError          the compiler refused it
    │   │   └── EnvironmentFault  the machine refused the compiler something; says nothing of the kernel
    │   ├── OutOfResourcesError   it compiles, but this device can't launch it
    │   └── LaunchFault           its first launch, in a process of its own, faulted or wrote outside of its tensors
    │       └── LaunchTimeout     that launch did not end
    ├── TuningError               no candidate is left; lists every reason
    ├── CacheMissError            ``frozen`` tuning met a kernel without a stored winner
    ├── MeasurementError          a time could not be taken
    ├── BackendError              the driver refused a call
    ├── ReplayError               a stored recording can't be run here; says why
    ├── ReferenceMismatch         a result disagrees with its reference (also an AssertionError)
    ├── InterpreterLimit          no CPU runs this faithfully, or not in time; says what to do
    ├── KernelFault               an interpreted kernel touches memory outside of its tensors, or races
    ├── KernelTimeout             an interpreted kernel does not end within the limit on wall time
    ├── FrameError                a message of another process is damaged or too long
    │   ├── PeerClosed            the other process has ended, or closed its end, perhaps within a message
    │   └── PeerTimeout           the other process has not sent or taken a whole message in time
    ├── DeviceFault               the GPU runs nothing any more in this process; says what it ran last
    └── StoreError                something on disk is damaged, of another schema, or can't be written
        ├── BaselineError
        ├── HistoryError
        └── CacheError
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KerntuneError(Exception):
    """Base of every error that kerntune raises on purpose."""


class UsageError(KerntuneError):
    """What the user asked for can't be done as asked."""


class ConfigError(UsageError):
    """A candidate config is wrong, missing or empty."""


class HintError(UsageError):
    """A size hint or another input of a heuristic is wrong."""


class GridError(UsageError):
    """A launch grid is wrong or over the device's limits."""


class TargetError(UsageError):
    """A compilation target is unknown, or this Triton can't compile for it."""


class NoGpuError(UsageError, RuntimeError):
    """A kernel is launched where Triton finds no GPU. A RuntimeError as well, as Triton's own is: code that falls back
    on it goes on doing so."""


class CaptureError(KerntuneError):
    """A launch could not be recorded."""


class TrialError(KerntuneError):
    """One candidate failed: it costs a trial, never the run."""


class CompileError(TrialError):
    """The compiler refused a candidate."""

    ttir_sha256 = ""
    """Checksum of the TTIR (without source locations) that the compiler was given; empty if it didn't get so far."""


class EnvironmentFault(CompileError):
    """A kernel was not compiled because the machine refused the compiler something: a folder that can't be written, a
    full disk, a process that the system has killed. It says nothing of the kernel, so no verdict comes of it."""


class OutOfResourcesError(TrialError):
    """A candidate compiles, but the device can't launch it."""


class LaunchFault(TrialError):
    """A candidate's first launch, in a process of its own, faulted, ended that process or wrote outside of its tensors;
    the message says which."""

    remembered = False
    """Whether an earlier run has found that, and nothing was launched today."""

    passing = False
    """Whether another run may not find that: memory was short, or others have ended the process."""


class LaunchTimeout(LaunchFault):
    """A candidate's first launch did not end within its limit."""


class TuningError(KerntuneError):
    """No candidate of a kernel is left; the message lists every reason. ``failures`` has them one by one (config,
    reason), if there was a tuning."""

    def __init__(self, message: str, failures: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


class CacheMissError(KerntuneError):
    """Frozen tuning met a kernel that has no stored winner."""


class MeasurementError(KerntuneError):
    """A time could not be taken."""


class BackendError(KerntuneError):
    """The driver refused a call."""


class ReplayError(KerntuneError):
    """A stored recording can't be run on this device; the message says why."""


class ReferenceMismatch(KerntuneError, AssertionError):
    """A result disagrees with its reference; the message says where and by how much."""


class InterpreterLimit(KerntuneError):
    """No CPU can run a kernel faithfully, or not in time: its numbers are not checked."""


class KernelFault(KerntuneError):
    """A kernel touches memory outside of its tensors, races, or breaks a promise of its own; a GPU may not notice."""


class KernelTimeout(KerntuneError):
    """An interpreted kernel does not end within the limit on wall time."""


class FrameError(KerntuneError):
    """A message of another process is damaged or too long."""


class PeerClosed(FrameError):
    """Another process has ended, or closed its end, instead of sending or taking a whole message."""


class PeerTimeout(FrameError):
    """Another process has not sent, or not taken, a whole message in time."""


class DeviceFault(KerntuneError):
    """The GPU runs nothing any more in this process: a kernel has faulted there, or the device is gone. The message
    says what was launched last."""


class StoreError(KerntuneError):
    """A file of ours is damaged, of another schema, or can't be written."""


class BaselineError(StoreError):
    """A baseline can't be read or written."""


class HistoryError(StoreError):
    """A run of the history can't be read, or none can be added."""


class CacheError(StoreError):
    """The tuning cache can't be read or written."""
