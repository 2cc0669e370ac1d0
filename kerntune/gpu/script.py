"""The script of a scripted GPU: rules that say how each kernel behaves, its time, its results and its faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from kerntune.base.recording import Binary

RIGHT, WRONG = 0x3C, 0x42
"""What every byte is near to that a launch leaves in its pointers' buffers; which one exactly depends on its place, and
on what stood there (:class:`~kerntune.gpu.scripted_work.Mark`)."""

FIRST, GARBAGE = 0x30, 0xA8
"""The same of what users' memory holds at first, and of memory that is new."""

HANG, ABORT, OUT_OF_MEMORY = "hang", "abort", "out of memory"

ILLEGAL_ADDRESS = "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
MISALIGNED_ADDRESS = "CUDA_ERROR_MISALIGNED_ADDRESS (716)"

ASSERT, TRAP = "CUDA_ERROR_ASSERT (710)", "CUDA_ERROR_LAUNCH_FAILED (719)"

FAULTS = (HANG, ABORT, OUT_OF_MEMORY, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, ASSERT, TRAP)
"""What a launch can end in: it never ends, it aborts the process, there is no memory for it, or, as a real device has
it, an error that the driver gives for it and for everything after it (cuda.h)."""


@dataclass(frozen=True)
class Rule:
    """How launches of a kernel behave. A rule matches on the kernel's name and on constexprs, both if given.

    ``time_ns`` is the duration of one launch; ``fails`` an out-of-resources reason; ``wrong`` writes other values, or
    such as are near the byte ``leaves``; ``varies`` writes something else to the last pointer each time, ``spares``
    nothing.

    ``fault`` is one of :data:`FAULTS`, or an error of the driver in its words, after which the device answers nothing
    else; with ``after`` launches of the kernel that went well. ``beside`` is where a launch writes outside of the
    memory that its last pointer points into, and how many bytes: an offset from its end on, or a negative one from
    its begin.
    """

    kernel: str = ""
    constexprs: dict[str, Any] = field(default_factory=dict)
    num_warps: int | None = None
    time_ns: float = 10_000.0
    fails: str = ""
    wrong: bool = False
    leaves: int | None = None
    varies: bool = False
    spares: bool = False
    fault: str = ""
    after: int = 0
    beside: tuple[int, int] | None = None
    flips: tuple[tuple[int, int], ...] = ()
    """Of what a launch leaves in its last pointer's memory, the bits that are unlike those of other rules: offsets in
    bytes, and the bits of that byte."""

    skips: tuple[tuple[int, int], ...] = ()
    """Ranges of bytes of that memory which it doesn't write: from an offset to another one."""

    triton: str = ""
    """The version that compiled it."""

    def matches(self, binary: Binary) -> bool:
        """Whether the rule is about this binary."""
        named = self.kernel in ("", binary.symbol) and self.triton in ("", binary.triton)
        fits = named and self.num_warps in (None, binary.num_warps)
        return fits and all(binary.constexprs.get(k) == str(v) for k, v in self.constexprs.items())


def no_pause(launches: int) -> float:
    """A host that is always in time."""
    return 0.0


@dataclass
class Script:
    """A device's behaviour: the first matching rule decides. ``noise`` is a relative standard deviation per slot;
    ``shift`` multiplies every time (another clock, say)."""

    rules: Sequence[Rule] = ()
    noise: float = 0.0005
    shift: float = 1.0
    seed: int = 0
    memory_bytes: int = 1 << 40
    isolated: bool = False
    """Whether first launches are taken in another process, as on a real GPU, which gets the rules."""

    foreign: float = 0.0
    """The share of its time that other processes have."""

    unmapped: bool = False
    """Whether a write where no memory is faults, as on a real device."""

    unprotected: Sequence[str] = ()
    """What the device's setting takes away of the protection between processes."""

    pause: Callable[[int], float] = no_pause
    """By the number of launches so far, how long the host takes to enqueue what comes next while the device waits for
    it, in nanoseconds."""

    def rule(self, binary: Binary) -> Rule:
        """The rule for a binary."""
        return next((r for r in self.rules if r.matches(binary)), Rule())

    def to_json(self) -> str:
        """What a process for first launches needs to know: :meth:`from_json`."""
        known = {"rules": tuple(self.rules), "noise": self.noise, "shift": self.shift, "seed": self.seed}
        return msgspec.json.encode({**known, "memory_bytes": self.memory_bytes}).decode()

    @classmethod
    def from_json(cls, text: str) -> Script:
        """What :meth:`to_json` gave."""
        found = msgspec.json.decode(text)
        return cls(**{**found, "rules": msgspec.convert(found["rules"], tuple[Rule, ...])})


class FakeEvent(NamedTuple):
    """A time on the virtual clock, in nanoseconds."""

    at: float


@dataclass(eq=False)
class FakeFunction:
    """A loaded kernel. Asking a script for its rule once is enough: it is launched on hundreds of copies."""

    binary: Binary
    registers: int = 32
    _known: tuple[Script, Rule] | None = None

    def rule(self, script: Script) -> Rule:
        """How it behaves."""
        if self._known is None or self._known[0] is not script:
            self._known = script, script.rule(self.binary)
        return self._known[1]
