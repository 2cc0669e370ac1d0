"""Finds the best candidate of one launch: compile each, race them, verify the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from kerntune.capture import Capture, Probe, Site
from kerntune.errors import BackendError, ConfigError, TrialError, TuningError
from kerntune.launch import Loader, Program
from kerntune.measure.base import Slot
from kerntune.measure.timing import estimate_ns, same_kind, slot_for
from kerntune.memory import Memory, Source, written_storages
from kerntune.recorder import Recorded, with_candidate
from kerntune.recording import Recording
from kerntune.result import FailedTrial
from kerntune.stats import median
from kerntune.verify import Outputs, disagreement, outputs_of

DROP_FIRST = 1.5
"""After a first look (three executions), candidates slower than this times the best are hopeless."""

DROP_SECOND = 1.05
FIRST_ROUNDS, FINAL_ROUNDS = 3, 9
"""Slots a candidate gets in turn with the others, before and after the second drop."""

TIE = 0.005
"""Candidates within 0.5 % of the best tie; the incumbent wins a tie, so that winners don't flip from run to run."""


@dataclass
class Trial:
    """A candidate that runs: the recording it makes, its program, its times."""

    index: int
    recording: Recording
    program: Program
    estimate: float = 0.0
    slot: Slot | None = None
    times: list[float] = field(default_factory=list)

    @property
    def time_ns(self) -> float:
        """Median over its slots, or the first look's estimate."""
        return median(self.times) if self.times else self.estimate


@dataclass(frozen=True)
class Tuned:
    """The outcome for one launch: the winner's index among the site's candidates, times by index, failures."""

    winner: int
    recording: Recording
    times_ns: dict[int, float]
    failures: tuple[FailedTrial, ...]


def tune(
    capture: Capture,
    recorded: Recorded,
    index: int,
    loader: Loader,
    *,
    incumbent: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Race the candidates of launch ``index``. Call inside ``capture.active()`` and the GPU's lock.

    Raises :class:`TuningError`, listing every reason, if none is left.
    """
    site = capture.launches[index].site
    assert site is not None
    memory = memory_before(recorded, index, loader)
    failures: list[FailedTrial] = []
    trials = _compile(capture, recorded, index, site, loader, memory, failures, progress, incumbent)
    progress(f"{site.kernel}: timing {len(trials)} of {len(site.candidates)} configs")
    times: dict[int, float] = {}
    reference: Outputs | None = None
    while trials:
        best = race(trials, incumbent)[0]
        times.update({t.index: t.time_ns for t in trials})
        first = _first(trials, recorded, index)
        reference = outputs_of(first.program) if reference is None else reference
        why = None if best is first else disagreement(best.recording, reference, outputs_of(best.program))
        if why is None:
            (launch,) = best.recording.launches
            winner = recorded.recording.with_launch(index, launch, best.recording.binary_of(launch))
            return Tuned(best.index, winner, times, tuple(failures))
        failures.append(FailedTrial(site.kernel, site.candidates[best.index].config, why))
        trials.remove(best)
    lines = "\n".join(f"  {f.config}: {f.reason}" for f in failures)
    raise TuningError(f"kernel {site.kernel}: none of its {len(site.candidates)} configs can be used\n{lines}")


def _first(trials: Sequence[Trial], recorded: Recorded, index: int) -> Trial:
    """What the others' outputs are held against: the candidate of the captured run, whose result the user's reference
    has been compared with; if it can't be loaded, the first in config order."""
    chosen = recorded.recording.binary_of(recorded.recording.launches[index]).code
    same = [t for t in trials if t.recording.binaries[0].code == chosen]
    return same[0] if same else min(trials, key=lambda t: t.index)


def memory_before(recorded: Recorded, index: int, loader: Loader) -> Memory:
    """Memory as launch ``index`` found it: the launches before it are run once, their results become first content."""
    gpu, recording = loader.gpu, recorded.recording
    sources = recorded.sources
    if index == 0:
        return Memory(gpu, recording.storages, sources)
    before = Memory(gpu, recording.storages, sources)
    prefix = msgspec.structs.replace(recording, launches=recording.launches[:index]).pruned()
    Program(loader, prefix, before, recorded.artifacts).enqueue()
    changed = set(written_storages(prefix))
    later = [Source(before.buffer(0, i), shared=False) if i in changed else s for i, s in enumerate(sources)]
    gpu.synchronize()
    return Memory(gpu, recording.storages, later)


def _compile(
    capture: Capture,
    recorded: Recorded,
    index: int,
    site: Site,
    loader: Loader,
    memory: Memory,
    failures: list[FailedTrial],
    progress: Callable[[str], None],
    incumbent: int | None,
) -> list[Trial]:
    probes: dict[int, Probe] = {}
    for i, candidate in enumerate(site.candidates):
        try:
            probes[i] = capture.probe(site, i)
        except (TrialError, ConfigError) as exc:
            failures.append(FailedTrial(site.kernel, candidate.config, str(exc)))
    progress(f"{site.kernel}: compiling {len(probes)} configs")
    capture.compiler.compile_all([p.specialized for p in probes.values()])
    trials: dict[tuple[str, tuple[int, int, int]], Trial] = {}
    for i, probe in probes.items():
        try:
            recording, compiled = with_candidate(recorded, capture, index, probe, i)
            single = recording.only(index).pruned()
            same = (compiled.binary.code, probe.grid)
            if same not in trials or i == incumbent:
                trials[same] = Trial(i, single, Program(loader, single, memory, recorded.artifacts))
        except (TrialError, BackendError) as exc:
            failures.append(FailedTrial(site.kernel, site.candidates[i].config, str(exc)))
    return list(trials.values())


def race(trials: Sequence[Trial], incumbent: int | None = None) -> list[Trial]:
    """The trials, best first: few runs for all, more in turn for the hopeful.

    Ties go to the incumbent, then to config order.
    """
    for trial in trials:
        trial.estimate, trial.times = estimate_ns(trial.program), []
    alive = _near_best(trials, DROP_FIRST)
    first: Slot | None = None
    for trial in alive if len(alive) > 1 else []:
        trial.slot = (
            slot_for(trial.program, min(t.estimate for t in alive))
            if first is None
            else same_kind(trial.program, first)
        )
        first = first or trial.slot
    for rounds, drop in ((FIRST_ROUNDS, DROP_SECOND), (FINAL_ROUNDS, None)):
        if len(alive) > 1:
            _rounds(alive, rounds)
        alive = _near_best(alive, drop) if drop else alive
    best = min((t.time_ns for t in alive), default=0.0)
    tied = [t for t in alive if t.time_ns <= best * (1 + TIE)]
    tied.sort(key=lambda t: (t.index != incumbent, t.index))
    head = tied[:1]
    return head + sorted((t for t in trials if t not in head), key=lambda t: (t not in alive, t.time_ns))


def _near_best(trials: Sequence[Trial], factor: float) -> list[Trial]:
    best = min((t.time_ns for t in trials), default=0.0)
    return [t for t in trials if t.time_ns <= best * factor]


def _rounds(trials: Sequence[Trial], rounds: int) -> None:
    for _ in range(rounds):
        for trial in trials:
            assert trial.slot is not None
            trial.times.append(trial.slot.enqueue()())
