"""How a launch is tuned: what a user's options say, else environment variables, else the defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kerntune.base.policy import Policy, StaticPrune, TuneMode
from kerntune.errors import UsageError
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.patience import ALL, Patience, checked_patience
from kerntune.tuning.verification import Verification, Verify, verify_mode

if TYPE_CHECKING:
    from kerntune.search import ComboSearch, Descent, Search
    from kerntune.search.register_scaling import RegisterScaling

VERIFY, PATIENCE = "KERNTUNE_VERIFY", "KERNTUNE_PATIENCE"
ISOLATE, TUNE = "KERNTUNE_ISOLATE", "KERNTUNE_TUNE"

ATTRIBUTES = ("verify", "verify_ignore", "patience", "static_prune", "isolate")
"""The attributes of a tuner that say how it tunes, each None for its environment variable or its default."""


@dataclass(frozen=True)
class TuneOptions:
    """The options of one tuning, all of them settled: :meth:`now` has read the environment and the defaults. Without
    arguments everything is compiled, compared as by default, raced and stored."""

    verification: Verification = field(default_factory=Verification)
    """Which candidates are verified, and which arguments are not compared."""

    patience: Patience | None = None
    """How long stragglers among the compilations are waited for; None waits for all."""

    static_prune: StaticPrune = field(default_factory=StaticPrune)
    """Which candidates are left out unrun."""

    search: Search | Descent | ComboSearch | RegisterScaling | None = None
    """What chooses further candidates beyond the list."""

    keep: bool = True
    """Whether winners and trials are stored for later runs."""

    isolate: Isolate = Isolate.AUTO
    """Where candidates are launched first."""

    @classmethod
    def now(
        cls,
        *,
        verify: str | Verify | None = None,
        verify_ignore: tuple[str, ...] | None = None,
        patience: float | str | None = None,
        static_prune: StaticPrune | None = None,
        isolate: str | Isolate | None = None,
        keep: bool = True,
    ) -> TuneOptions:
        """Options as a user gives them, else as the environment says, else the defaults. Patience begins now.
        :class:`UsageError` for what no option or variable can be."""
        verification = Verification(verify_mode(verify or os.environ.get(VERIFY) or Verify.WINNER), verify_ignore or ())
        prune = static_prune or StaticPrune()
        return cls(verification, _patience_now(patience), prune, None, keep, isolate_mode(isolate))

    def searching(self, search: Search | Descent | ComboSearch | RegisterScaling | None) -> TuneOptions:
        """The options for a launch that may have a search of its own: with one that steps through a space, every
        candidate of the list is waited for and run."""
        if search is None:
            return self
        from kerntune.search.register_scaling import RegisterScaling  # searches are loaded where there is one

        if isinstance(search, RegisterScaling):
            return replace(self, search=search)
        return replace(self, search=search, patience=None, static_prune=StaticPrune())


DEFAULTS = TuneOptions()


def options_of(tuner: Any, *, keep: bool = True) -> TuneOptions:
    """The options of any tuner; Triton's own have the attributes only where a user sets them."""
    return TuneOptions.now(**{name: getattr(tuner, name, None) for name in ATTRIBUTES}, keep=keep)


def options_of_policy(policy: Policy) -> TuneOptions:
    """The options of the tests that a policy is for. All compilations are waited for: a winner must not depend on how
    busy the machine is."""
    return TuneOptions.now(
        verify=policy.verify,
        verify_ignore=policy.verify_ignore,
        patience=ALL,
        static_prune=policy.static_prune,
    )


def isolate_mode(given: str | Isolate | None) -> Isolate:
    """Where candidates are launched first: what is given, else ``KERNTUNE_ISOLATE``, else ``auto``. :class:`UsageError`
    for anything else."""
    text = given or os.environ.get(ISOLATE) or Isolate.AUTO
    try:
        return Isolate(text)
    except ValueError:
        raise UsageError(f"isolate is {text!r}; it can be auto, always or off") from None


def tune_mode(given: str | TuneMode | None = None) -> TuneMode:
    """How winners are found: as given, else as ``KERNTUNE_TUNE`` says, else ``auto``. ``frozen``: no stored winner is
    an error; ``force``: tune anew; ``nearest``: never tune; without a stored winner, that of the nearest call.

    :class:`UsageError` for anything else.
    """
    text = given or os.environ.get(TUNE) or TuneMode.AUTO
    try:
        return TuneMode(text)
    except ValueError:
        where = TUNE if not given else "tune"
        raise UsageError(f"{where} is {text!r}; it can be auto, frozen, force or nearest") from None


def mode_of(tuner: Any, *, keep: bool = True) -> TuneMode:
    """The mode of any tuner; what isn't kept is always tuned."""
    return tune_mode(getattr(tuner, "tune_mode", None)) if keep else TuneMode.FORCE


def _patience_now(given: float | str | None) -> Patience | None:
    text = os.environ.get(PATIENCE) or None if given is None else given
    value = None if text is None else checked_patience(text)
    return None if isinstance(value, str) else Patience(value)
