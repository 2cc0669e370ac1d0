"""What the tuning of one launch comes to: its winner and the candidates' times, or an error with every reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kerntune.base.case_result import FailedTrial
from kerntune.base.config import by_text, configs_text
from kerntune.base.recording import Recording
from kerntune.capture import Site
from kerntune.errors import TuningError
from kerntune.tuning.batch import Batch


@dataclass(frozen=True)
class Tuned:
    """The outcome for one launch: the winner's index among the site's candidates, times by index, failures.

    ``remembered`` are the candidates that were not tried again because earlier runs had; their times and failures are
    among the others.
    """

    winner: int
    recording: Recording
    times_ns: dict[int, float]
    failures: tuple[FailedTrial, ...]
    remembered: frozenset[int] = frozenset()
    slots_ns: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Each slot's time of the candidates that were raced."""

    stragglers: Batch | None = None
    """Candidates that were not waited for."""

    left_out: dict[int, str] = field(default_factory=dict)
    """Why candidates were not run, for what their static figures say."""

    unraced: str = ""
    """Why nothing was timed, where nothing was: ``winner`` is the config to launch then, and has no time."""

    predicted_rank: int | None = None
    """The winner's place by the resource model among the candidates that were compiled; None where it can't tell."""

    partly: bool = False
    """Whether some of what the winner writes was not compared."""

    notes: tuple[str, ...] = ()
    """What a user should know of the verification: arguments that were not compared, configs that no other one
    confirms."""


def nothing_left(site: Site, failures: Sequence[FailedTrial]) -> TuningError:
    """The error of a site none of whose candidates can be used. Equal reasons stand there once; one that all share, a
    call's own mistake mostly, beside the kernel."""
    head = f"kernel {site.kernel}: none of its {len(site.candidates)} configs can be used"
    if len(failures) > 1 and len({f.reason for f in failures}) == 1:
        return TuningError(f"{head}: {failures[0].reason}", failures)
    told = [f"  {configs_text(configs)}: {text}" for configs, text in by_text((f.config, f.reason) for f in failures)]
    return TuningError("\n".join([head, *told]), failures)
