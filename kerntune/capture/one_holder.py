"""What one user at a time may have."""

from __future__ import annotations

import threading


class OneHolder:
    """A lock that knows its user. Who lets go of it without having it does nothing, so that an interrupt, which may
    come just before or after it is taken, leaves it right."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # used itself: the condition's ``__enter__`` may be interrupted with it locked
        self._free = threading.Condition(self._lock)
        self.holder: object | None = None

    def take(self, user: object) -> bool:
        """Take it if it is free; whether it was."""
        with self._lock:
            if self.holder is not None:
                return False
            self.holder = user
            return True

    def wait_for(self, user: object) -> None:
        """Take it as soon as no other user has it."""
        with self._lock:
            while self.holder is not None and self.holder is not user:
                self._free.wait()
            self.holder = user

    def let_go(self, user: object) -> None:
        """Let the next have it, if this user has it."""
        with self._lock:
            if self.holder is user:
                self.holder = None
                self._free.notify()
