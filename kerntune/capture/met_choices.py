"""Which implementations the choices of a captured call went to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MetChoices:
    """By choice and key, the implementation that was called and a line on how it was decided."""

    found: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def add(self, choice: str, key: str, implementation: str, told: str) -> None:
        """A call of a choice; ``key`` describes what it was decided by."""
        self.found.setdefault(choice, {})[key] = implementation, told

    @property
    def winners(self) -> dict[str, str]:
        """Implementations by choice. Of a choice that was called with several keys each has an entry of its own."""
        return {
            choice if len(keys) == 1 else entry_of(choice, key): implementation
            for choice, keys in self.found.items()
            for key, (implementation, _) in keys.items()
        }

    @property
    def texts(self) -> tuple[str, ...]:
        """How each was decided, a line each."""
        return tuple(told for keys in self.found.values() for _, told in keys.values())


def entry_of(choice: str, key: str) -> str:
    """What a choice's entry is called where it was called with several keys."""
    return f"{choice} ({key})"
