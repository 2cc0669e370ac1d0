"""Judges a captured call on a GPU: tune, time, compare with the baseline in turn."""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from kerntune.backend.base import Backend
from kerntune.baseline import (
    TIME_SCHEMA,
    Argument,
    BaselineStore,
    TimeBaseline,
    fingerprint_of,
    inputs_of,
    now,
)
from kerntune.capture import Capture, Site
from kerntune.check.call import Call, Checked, Pending
from kerntune.check.causes import causes
from kerntune.check.words import timed_message
from kerntune.errors import BaselineError, MeasurementError, OutOfResourcesError, ReplayError
from kerntune.judge import DRIFT, Evidence, decide, settled
from kerntune.launch import Loader, Program
from kerntune.measure.base import Sample, Slot
from kerntune.measure.calls import CallSlot
from kerntune.measure.timing import estimate_ns, slot_for, take_sample
from kerntune.memory import Memory
from kerntune.plan import describe
from kerntune.policy import Outcome, Update, Verdict
from kerntune.processes import Replay, compare
from kerntune.recorder import record
from kerntune.recording import Recording, same_work, scalar_addresses
from kerntune.replay import BLOCKS, MORE_BLOCKS, common_plan, live_memory, pair
from kerntune.result import CaseResult, FailedTrial, LaunchReport, TrialReport
from kerntune.static.launches import LaunchStatic, launch_statics
from kerntune.stats import Estimate, median
from kerntune.trials import Trials
from kerntune.tuner import tune
from kerntune.winners import Winners
from kerntune.worker.pool import Pairs

Kept = TypeVar("Kept")

SECOND_LOOKS = 3
"""Rests and further samples before the same work at another speed is called drift: what ran before may have driven the
device into its power limit, which it leaves within a second or two."""

HANDED_OVER = 64 << 20
"""Whole numbers of up to this many bytes go to a worker as they are: indices and tables can't be made up."""


class TimedCheck:
    """The check of one captured call. Lives inside the device's lock."""

    def __init__(
        self,
        backend: Backend,
        store: BaselineStore,
        winners: Winners,
        pairs: Pairs,
        call: Call,
        capture: Capture,
        arguments: tuple[Argument, ...],
        update: Update,
        progress: Callable[[str], None],
    ) -> None:
        assert backend.gpu is not None
        self.backend, self.gpu, self.store = backend, backend.gpu, store
        self.winners, self.pairs = winners, pairs
        self.call, self.capture, self.update, self.progress = call, capture, update, progress
        self.loader = Loader(self.gpu)
        self.recorded = record(capture, backend.targets[0])
        self.arguments = arguments or inputs_of(self.recorded.recording)
        self.fingerprint = fingerprint_of(self.arguments)
        self.failures: list[FailedTrial] = []
        self.trials: list[TrialReport] = []
        self.tuning_seconds = 0.0

    def run(self, value: object) -> Checked:
        """Tune, judge, and prepare the baseline that may be written."""
        try:
            baseline = readable(lambda: self.store.time(self.gpu.spec, self.call.case, self.fingerprint), self.update)
            self._tune(baseline)
            return self._judge(value, baseline)
        finally:
            self.loader.close()

    # tuning

    def _tune(self, baseline: TimeBaseline | None) -> None:
        start = time.perf_counter()
        for index, pending in enumerate(self.capture.launches):
            if pending.site is not None:
                self._tune_site(index, pending.site, baseline)
        self.tuning_seconds = time.perf_counter() - start

    def _tune_site(self, index: int, site: Site, baseline: TimeBaseline | None) -> None:
        stored = self.winners.find(site)
        if stored is not None and stored == site.chosen:
            site.settle(stored)
            return
        with self.capture.active():
            incumbent = stored if stored is not None else self._incumbent(index, site, baseline)
            tuned = tune(
                self.capture,
                self.recorded,
                index,
                self.loader,
                incumbent=incumbent,
                trials=Trials(self.winners),
                progress=self.progress,
            )
        self.recorded.recording = tuned.recording
        self.failures += tuned.failures
        self.trials += [
            TrialReport(site.kernel, site.candidates[i].config, round(ns, 1)) for i, ns in tuned.times_ns.items()
        ]
        site.chosen = tuned.winner
        site.settle(tuned.winner)
        self.winners.keep(site, tuned.winner, tuned.times_ns[tuned.winner])

    @staticmethod
    def _incumbent(index: int, site: Site, baseline: TimeBaseline | None) -> int | None:
        launches = baseline.recording.launches if baseline else ()
        configs = [c.config for c in site.candidates]
        if index < len(launches) and launches[index].kernel == site.kernel and launches[index].config in configs:
            return configs.index(launches[index].config)  # type: ignore[arg-type]  # None is never in configs
        return None

    # judging

    def _judge(self, value: object, baseline: TimeBaseline | None) -> Checked:
        recording = self.recorded.recording
        self.progress(f"{self.call.case}: timing")
        slot = self._op_slot() if self.call.scope == "op" else self._kernel_slot(recording)
        if self.trials:
            self.gpu.rest()
        sample = take_sample(slot)
        for _ in range(SECOND_LOOKS):
            if baseline is not None and self._moved(baseline, sample):
                self.gpu.rest()
                sample = take_sample(slot)
        replayed, why_not = None, ""
        if baseline is not None and not same_work(baseline.recording, recording):
            replayed, why_not = self._replay(baseline)
        evidence = self._evidence(baseline, sample, replayed)
        verdict = decide(evidence, self.call.policy)
        pending = self._pending(verdict, sample)
        result = self._result(verdict, baseline, sample, replayed, why_not, pending)
        return Checked(value, (result,), (pending,), self.store)

    def _kernel_slot(self, recording: Recording) -> Slot:
        memory = Memory(self.gpu, recording.storages, self.recorded.sources)
        program = Program(self.loader, recording, memory, self.recorded.artifacts)
        return slot_for(program, estimate_ns(program))

    def _op_slot(self) -> Slot:
        call, plan = self.call, self.capture.plan
        tensors = plan.tensors()

        def run() -> object:
            with self.capture.pinned():
                return call.fn(*call.args, **call.kwargs)

        return CallSlot(self.gpu, run, lambda: plan.preserving(tensors))

    def _moved(self, baseline: TimeBaseline, sample: Sample) -> bool:
        """Whether the same work took another time than stored: worth a second look before it is called drift."""
        stored = median(baseline.sample.times_ns)
        same = same_work(baseline.recording, self.recorded.recording)
        return same and stored > 0 and abs(median(sample.times_ns) / stored - 1) > DRIFT

    def _evidence(self, baseline: TimeBaseline | None, sample: Sample, replayed: Replay | None) -> Evidence:
        if baseline is None:
            return Evidence(launched=len(self.recorded.recording.launches))
        stored = median(baseline.sample.times_ns)
        today = median(replayed.a_ns) if replayed else median(sample.times_ns)
        identical = same_work(baseline.recording, self.recorded.recording)
        then, this = baseline.sample.protocol, sample.protocol
        comparable = (then.timer, then.version) == (this.timer, this.version)
        if self.call.scope == "op":
            # The kernels' replay says nothing of torch's operations between them, and their time is not the op's.
            identical = identical and stored > 0 and abs(today / stored - 1) <= self.call.policy.tolerance
            comparable = False
        return Evidence(
            launched=len(self.recorded.recording.launches),
            expected=len(baseline.recording.launches),
            identical=identical,
            replay=replayed.change if replayed else None,
            drift=today / stored - 1 if stored > 0 and comparable and (identical or replayed) else None,
            baseline_ns=stored,
        )

    def _replay(self, baseline: TimeBaseline) -> tuple[Replay | None, str]:
        stored = self.store.artifacts(self.gpu.spec.target)
        artifacts = ChainMap[str, bytes](self.recorded.artifacts, stored)  # type: ignore[arg-type]  # only read
        self.progress(f"{self.call.case}: replaying the baseline beside today's code")
        try:
            hidden = scalar_addresses(baseline.recording)
            if hidden:
                raise ReplayError(f"it takes addresses as numbers ({', '.join(hidden)}); pass tensors instead")
            if baseline.recording.hidden_pointers or self.recorded.recording.hidden_pointers:
                return self._replay_here(baseline, artifacts), ""
            return self._replay_afresh(baseline, artifacts), ""
        except (ReplayError, OutOfResourcesError, MeasurementError) as exc:
            return None, str(exc)

    def _settled(self, change: Estimate, a_ns: float) -> bool:
        return settled(change, self.call.policy, a_ns)

    def _replay_afresh(self, baseline: TimeBaseline, artifacts: Mapping[str, bytes]) -> Replay:
        """In fresh processes, on memory that is described to them."""
        mine = self.recorded.recording
        described, contents = describe(mine.storages, self.recorded.sources, self.backend, HANDED_OVER)
        storages, theirs = common_plan(mine, baseline.recording)
        storages = (*described, *storages[len(described) :])
        found = ChainMap[str, bytes](contents, artifacts)  # type: ignore[arg-type]  # only read
        return compare(self.pairs, theirs, mine, storages, found, self.call.policy, self._settled)

    def _replay_here(self, baseline: TimeBaseline, artifacts: Mapping[str, bytes]) -> Replay:
        """In this process, on today's memory: addresses hide in its contents."""
        mine = self.recorded.recording
        storages, theirs = common_plan(mine, baseline.recording)
        memory = live_memory(self.gpu, storages, self.recorded.sources, artifacts)
        pairing = pair(self.loader, theirs, mine, memory, artifacts)
        seen = pairing.run(BLOCKS, self.call.policy.level)
        if not self._settled(seen.change, median(seen.a_ns)):
            seen = pairing.run(MORE_BLOCKS, self.call.policy.level)
        return Replay(seen.a_ns, seen.b_ns, seen.change)

    # results

    def _pending(self, verdict: Verdict, sample: Sample) -> Pending:
        """The baseline as it would be stored; complete even if this run doesn't, for a run's JSON to carry."""
        write = should_write(verdict, self.update, self.call.policy.outcome(verdict), self.call.policy.missing.value)
        recording = self.recorded.recording
        storages, contents = describe(recording.storages, self.recorded.sources, self.backend)
        recording = msgspec.structs.replace(recording, storages=storages)
        return Pending(self._baseline(recording, sample), {**self.recorded.artifacts, **contents}, write)

    def _baseline(self, recording: Recording, sample: Sample) -> TimeBaseline:
        return TimeBaseline(
            schema=TIME_SCHEMA,
            case=self.call.case,
            fingerprint=self.fingerprint,
            arguments=self.arguments,
            device=msgspec.structs.replace(self.gpu.spec, uuid=""),
            environment=self.gpu.environment(),
            recorded=now(),
            recording=recording,
            sample=sample,
            static=self._static(),
        )

    def _static(self) -> tuple[LaunchStatic, ...]:
        return launch_statics(self.recorded, self.gpu.spec)

    def _result(
        self,
        verdict: Verdict,
        baseline: TimeBaseline | None,
        sample: Sample,
        replayed: Replay | None,
        why_not: str,
        pending: Pending,
    ) -> CaseResult:
        before, after = _times(baseline, sample, replayed)
        reasons = self._reasons(baseline, why_not)
        static = pending.baseline.static if isinstance(pending.baseline, TimeBaseline) else ()
        outcome = self.call.policy.outcome(verdict)
        if pending.write and self.update in (Update.ALL, Update.NEW):
            outcome = Outcome.PASS
        return CaseResult(
            case=self.call.case,
            fingerprint=self.fingerprint,
            verdict=verdict,
            outcome=outcome,
            message=timed_message(
                verdict, self.call.case, before, after, replayed.change if replayed else None, reasons
            ),
            target=str(self.gpu.spec.target),
            device=self.gpu.spec.name,
            launches=launch_reports(static),
            baseline_ns=before,
            current_ns=after,
            change=replayed.change if replayed else None,
            tolerance=self.call.policy.tolerance,
            rung=_rung(baseline, replayed, why_not),
            causes=reasons,
            trials=tuple(self.trials),
            failed_trials=tuple(self.failures),
            times_ns=sample.times_ns,
            timer=sample.protocol.timer,
            tuning_seconds=self.tuning_seconds,
            baseline_path=self.store.shown(self.store.time_path(self.gpu.spec, self.call.case, self.fingerprint)),
            flops=self.call.flops,
            bytes_moved=self.call.bytes,
        )

    def _reasons(self, baseline: TimeBaseline | None, why_not: str) -> tuple[str, ...]:
        if baseline is None:
            return ("no baseline on this device",)
        today = self.gpu.environment()
        reasons = causes(baseline.recording, self.recorded.recording, baseline.environment, today)
        moved = baseline.environment.differences(today)
        if moved:
            reasons = (*reasons, "environment " + "; ".join(moved))
        return (*reasons, f"the baseline can't be replayed: {why_not}") if why_not else reasons


def readable(read: Callable[[], Kept | None], update: Update) -> Kept | None:
    """The baseline; a damaged one counts as none where the run replaces it, as the error's text advises."""
    try:
        return read()
    except BaselineError:
        if update is not Update.ALL:
            raise
        return None


def launch_reports(static: Sequence[LaunchStatic]) -> tuple[LaunchReport, ...]:
    """Rows for people from static figures."""
    return tuple(
        LaunchReport(
            kernel=s.kernel,
            config=s.config,
            grid=s.grid,
            registers=s.metrics.registers,
            spill_bytes=s.metrics.spill_store_bytes + s.metrics.spill_load_bytes,
            shared_bytes=s.metrics.shared_bytes,
        )
        for s in static
    )


def should_write(verdict: Verdict, update: Update, outcome: Outcome, missing: str) -> bool:
    """Whether a case's baseline is written anew, given its verdict and the run's update mode."""
    if update is Update.ALL:
        return True  # fewer launches than before too: that is how a fusion is accepted
    if verdict is Verdict.NEW:
        return update is Update.NEW or missing == "record"
    return update is Update.IMPROVED and verdict is Verdict.IMPROVED


def _times(baseline: TimeBaseline | None, sample: Sample, replayed: Replay | None) -> tuple[float | None, float]:
    if replayed is not None:
        return median(replayed.a_ns), median(replayed.b_ns)
    return (median(baseline.sample.times_ns) if baseline else None), median(sample.times_ns)


def _rung(baseline: TimeBaseline | None, replayed: Replay | None, why_not: str) -> str:
    if baseline is None:
        return ""
    return "paired replay" if replayed else "stored sample" if why_not else "identity"
