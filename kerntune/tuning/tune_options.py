"""Says how a launch is tuned: by a user's options, else by environment variables, else by the defaults.

One table has the environment variables that kerntune reads, and says whether each holds what it can. It is checked at
the start: a run without a GPU, or one that finds all winners stored, never reaches the place that reads the value. Also
here are how long a tuning waits for slow compilations, how long Python's threads wait for each other meanwhile, and
which observers the environment asks for.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kerntune.base.formatting import did_you_mean
from kerntune.base.policy import Policy, StaticPrune, TuneMode
from kerntune.compiling import compiler_tokens, forking
from kerntune.errors import UsageError
from kerntune.kernels.dispatch.launch_path import Observer, watch
from kerntune.tuning.cache.store_client import store_url
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.verification import Verification, Verify, one_of, verify_mode

if TYPE_CHECKING:
    from kerntune.search import AnySearch


PATIENCE_SHARE = 0.1
"""By default stragglers are waited for a tenth as long as everything else has taken. They are tried either way,
a little later and for some milliseconds: waiting costs a tenth at most, and could save no more than that."""

ALL = "all"


@dataclass(frozen=True)
class Patience:
    """Of one tuning, which began at ``begin`` (:func:`time.monotonic`): how many ``seconds`` it waits for stragglers
    once all others are raced; None for :data:`PATIENCE_SHARE` of the time since then."""

    seconds: float | None = None
    begin: float = field(default_factory=time.monotonic)

    def end(self, since: float) -> float:
        """Until when to wait, if waiting begins at ``since``."""
        return since + (PATIENCE_SHARE * (since - self.begin) if self.seconds is None else self.seconds)


def checked_patience(given: float | str) -> float | str:
    """Seconds, or :data:`ALL`. :class:`UsageError` for anything else."""
    try:
        value = ALL if given == ALL else float(given)
    except (TypeError, ValueError):
        value = -1.0
    if value != ALL and not value >= 0:  # type: ignore[operator]  # a number
        raise UsageError(f"patience is {given!r}; it can be a number of seconds from 0 on, or all")
    return value


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

    search: AnySearch | None = None
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
        text = os.environ.get(PATIENCE) or None if patience is None else patience
        value = None if text is None else checked_patience(text)
        wait, prune = None if isinstance(value, str) else Patience(value), static_prune or StaticPrune()
        return cls(verification, wait, prune, None, keep, isolate_mode(isolate))

    def searching(self, search: AnySearch | None) -> TuneOptions:
        """The options with a search, if any; for one that steps through a space, the whole list is run first."""
        if search is None:
            return self
        from kerntune.search.descent import RegisterScaling  # searches are loaded where there is one

        if isinstance(search, RegisterScaling):
            return replace(self, search=search)
        return replace(self, search=search, patience=None, static_prune=StaticPrune())


DEFAULTS = TuneOptions()


def options_of(tuner: Any, *, keep: bool = True) -> TuneOptions:
    """The options of any tuner; Triton's own have the attributes only where a user sets them."""
    return TuneOptions.now(**{name: getattr(tuner, name, None) for name in ATTRIBUTES}, keep=keep)


def options_of_policy(policy: Policy) -> TuneOptions:
    """Options of a policy's tests. All compilations are waited for: no winner may depend on a busy machine."""
    rules = {name: getattr(policy, name) for name in ("verify", "verify_ignore", "static_prune")}
    return TuneOptions.now(patience=ALL, **rules)


def isolate_mode(given: str | Isolate | None) -> Isolate:
    """As given, else as ``KERNTUNE_ISOLATE`` says, else ``auto``. :class:`UsageError` for anything else."""
    return one_of(Isolate, given or os.environ.get(ISOLATE) or Isolate.AUTO, "isolate")


def tune_mode(given: str | TuneMode | None = None) -> TuneMode:
    """How winners are found: as given, else as ``KERNTUNE_TUNE`` says, else ``auto``. ``frozen``: no stored winner is
    an error; ``force``: tune anew; ``nearest``: never tune; without a stored winner, that of the nearest call.

    :class:`UsageError` for anything else.
    """
    return one_of(TuneMode, given or os.environ.get(TUNE) or TuneMode.AUTO, "tune" if given else TUNE)


def mode_of(tuner: Any, *, keep: bool = True) -> TuneMode:
    """The mode of any tuner; what isn't kept is always tuned."""
    return tune_mode(getattr(tuner, "tune_mode", None)) if keep else TuneMode.FORCE


SWITCH_INTERVAL = "KERNTUNE_SWITCH_INTERVAL"
"""Environment variable for processes whose switch interval must stay: with ``0`` it does."""

SWITCH_SECONDS = 0.0005
"""Python's threads wait 5 ms for each other by default, and a tuning takes hundreds of short turns: cold tuning of
three kernels of 12 configs takes 0.82 of the time so (scripted GPU, two busy cores; 95 % interval 0.68 to 0.96)."""


class QuickSwitches:
    """While a call is tuned, threads that start processes, read answers and hash files have their turns sooner. After
    the last of several tunings the interval is as it was, unless the program has set another one meanwhile."""

    def __init__(self) -> None:
        self._lock, self._users, self._usual, self._quick = threading.Lock(), 0, 0.0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getswitchinterval()
                if self._usual > SWITCH_SECONDS and os.environ.get(SWITCH_INTERVAL) != "0":
                    sys.setswitchinterval(SWITCH_SECONDS)
                self._quick = sys.getswitchinterval()
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and sys.getswitchinterval() == self._quick != self._usual:
                sys.setswitchinterval(self._usual)


QUICK_SWITCHES = QuickSwitches()
"""One for the whole process."""

PREFIX = "KERNTUNE_"


def _switch(text: str) -> None:
    if text not in ("0", "1"):
        raise UsageError(f"it is {text!r}; it can be 1 or 0")


def _content_of_dumps(text: str) -> None:
    from kerntune.tuning.launch_files import keeps_content  # few runs dump anything

    keeps_content()


@dataclass(frozen=True)
class Variable:
    """An environment variable. ``check`` raises :class:`UsageError` for a text that it can't be; ``help`` is empty for
    what kerntune tells its own processes."""

    check: Callable[[str], object]
    help: str = ""


VARIABLES: Mapping[str, Variable] = {
    "KERNTUNE_BANDWIDTH": Variable(str, "A file: each tuned launch's bandwidth is written to it at the end."),
    "KERNTUNE_CACHE_DIR": Variable(str, "The folder of winners and trials (default: the user's cache folder)."),
    compiler_tokens.SWITCH: Variable(
        lambda text: compiler_tokens.token_count(),
        "How many compilers may run at once on this host (default: its cores); 0 sets no limit.",
    ),
    "KERNTUNE_DUMP": Variable(str, "A folder: each launch is written to it, as a folder that runs without kerntune."),
    "KERNTUNE_DUMP_CONTENT": Variable(
        _content_of_dumps, "`recorded`: such a folder holds all bytes before and after the launch."
    ),
    forking.SWITCH: Variable(_switch, "0: no process is a fork of this one."),
    ISOLATE: Variable(isolate_mode, "Where a config is launched first: auto (default), always or off."),
    "KERNTUNE_LOG": Variable(str, "A file: what became of each config is added to it, a line of JSON each."),
    "KERNTUNE_NVTX": Variable(_switch, "1: ranges of kernel, config and grid for Nsight Systems."),
    PATIENCE: Variable(
        checked_patience,
        "Seconds that a first call waits for configs that compile far longer than the rest, or all.",
    ),
    "KERNTUNE_SHAPES": Variable(str, "A file: calls of tuned kernels are noted in it, and nothing is tuned."),
    "KERNTUNE_SHARED_GPU": Variable(str),
    "KERNTUNE_SIGTERM": Variable(_switch, "0: SIGTERM does not end a run as Ctrl-C does."),
    "KERNTUNE_STORE": Variable(lambda text: store_url(), "The URL of winners and trials that machines share."),
    "KERNTUNE_STORE_PROCESS_URL": Variable(str),
    SWITCH_INTERVAL: Variable(_switch, "0: Python's switch interval stays as it is while a first call is tuned."),
    TUNE: Variable(lambda text: tune_mode(), "auto (default), frozen (never tune), force (tune anew), nearest."),
    VERIFY: Variable(verify_mode, "Whose output is verified: winner (default), finalists, all, bitwise or off."),
    "KERNTUNE_WINNERS": Variable(str, "Folders of shipped winners, separated by colons."),
}
"""The variables that kerntune reads, by name."""


def check_variables() -> None:
    """:class:`UsageError` for the first variable of this process's environment that is what it can't be: its name, and
    what it can be. An empty one counts as none."""
    for name, variable in VARIABLES.items():
        try:
            if text := os.environ.get(name):
                variable.check(text)
        except UsageError as exc:
            raise exc if name in str(exc) else UsageError(f"{name}: {exc}") from None


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What is named as if kerntune read it, and isn't: a sentence each."""
    unknown = (name for name in sorted(environ) if name.startswith(PREFIX) and name not in VARIABLES)
    return [f"{name} is read by nothing{did_you_mean(name, VARIABLES)}" for name in unknown]


_WATCHED: list[Observer] | None = None
"""What this process's environment asked for; None before the first launch. (Dynamo warns of a ``functools.cache``.)"""


def watch_environment() -> None:
    """Begin what ``KERNTUNE_NVTX`` and ``KERNTUNE_BANDWIDTH`` ask for: once a process, before its first launch.
    :class:`UsageError` for a variable, these or another, that is what it can't be."""
    global _WATCHED
    if _WATCHED is not None:
        return
    check_variables()
    found = observers_of(os.environ)
    for observer in found:
        watch(observer)
    _WATCHED = found


def observers_of(environment: Mapping[str, str]) -> list[Observer]:
    """The observers that variables, which have been checked, ask for."""
    from kerntune.tuning.context import NVTX, NvtxRanges  # its compiler loads Triton, which the gate does without

    found: list[Observer] = []
    if environment.get(NVTX) == "1":
        found.append(NvtxRanges())
    if file := environment.get("KERNTUNE_BANDWIDTH", ""):
        from kerntune.tuning.bandwidth_report import bandwidth  # not loaded by programs that don't ask for it

        report = bandwidth(file)
        atexit.register(report.tell)
        found.append(report)
    return found
