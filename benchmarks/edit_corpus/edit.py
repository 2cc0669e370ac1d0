"""An edit of a kernel, and the two sources that it leads from and to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"

Change = tuple[str, str]
"""A text of the kernel's file (every place of it) and what replaces it."""


@dataclass(frozen=True)
class Edit:
    """One change of a kernel's source. ``planted`` names the static cause of a slowdown that is planted, else empty.

    Both sides compute the same: the largest difference is at most ``tolerance`` of the largest value.
    """

    kernel: str
    name: str
    kind: str
    changes: tuple[Change, ...]
    planted: str = ""
    tolerance: float = 0.01

    @property
    def key(self) -> str:
        """Its name among all edits."""
        return f"{self.kernel}: {self.name}"

    def before(self) -> str:
        """The kernel's file."""
        return (KERNELS / f"{self.kernel}.py").read_text()

    def after(self) -> str:
        """The kernel's file with every change made; ValueError if there is no place for one."""
        text = self.before()
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.key}: kernels/{self.kernel}.py has no {old!r}")
            text = text.replace(old, new)
        return text
