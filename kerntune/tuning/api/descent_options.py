"""How a tuner descends, as users say it: ``descend=True``, a number of trials, or these options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.errors import UsageError
from kerntune.search import Descent
from kerntune.search.declared_descent import TRIALS, descent_limits


@dataclass(frozen=True)
class DescentOptions:
    """At most ``trials`` configs beyond the list; ``all_directions`` at once where neither one field nor two help;
    upper ``limits`` by field; fields that are ``frozen``."""

    trials: int = TRIALS
    all_directions: bool = False
    limits: tuple[tuple[str, int], ...] = ()
    frozen: tuple[str, ...] = ()

    @classmethod
    def given(cls, value: Any, where: str) -> DescentOptions | None:
        """What ``descend=`` says: None or False for none, True, a number of trials, or a dictionary of the fields
        above. :class:`UsageError` for anything else."""
        if value is None or value is False:
            return None
        if value is True:
            return cls()
        if isinstance(value, int) and value > 0:
            return cls(value)
        if isinstance(value, Mapping) and set(value) <= {"trials", "all_directions", "limits", "frozen"}:
            words = {**value, "limits": descent_limits(value.get("limits")), "frozen": tuple(value.get("frozen", ()))}
            return cls(**words)
        raise UsageError(
            f"{where}, descend: {value!r}; it can be True, a number of trials, or a dictionary with trials, "
            "all_directions, limits and frozen"
        )

    def of(self, listed: tuple[Config, ...], device: DeviceSpec, kept: tuple[str, ...] = ()) -> Descent:
        """The descent from the best of a list; the fields that are ``kept`` stay, too."""
        frozen = tuple(dict.fromkeys((*self.frozen, *kept)))
        return Descent(listed, device, self.trials, self.all_directions, self.limits, frozen)
