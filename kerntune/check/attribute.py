"""Takes a change apart: environment, compiler, code and choice of config, each with its share where it can be timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from kerntune import compat
from kerntune.capture import Candidate, Capture
from kerntune.errors import KerntuneError, ReplayError
from kerntune.recorder import Recorded, keep, make_launch
from kerntune.recording import Binary, Launch, Recording, same_work
from kerntune.result import Attribution, Share

Measure = Callable[[Recording, Recording], float]
"""The change from one recording to another; KerntuneError where one can't be run."""


@dataclass(frozen=True)
class Step:
    """One cause with the two recordings that it lies between."""

    before: Recording
    after: Recording
    why: str = ""

    @property
    def nothing(self) -> bool:
        """Whether both do the same work: then the share is zero, and nobody needs to time it."""
        return self.before is self.after or same_work(self.before, self.after)


def attribute(steps: Sequence[Step | Share], total: float | None, environment: Share, measure: Measure) -> Attribution:
    """Shares of compiler, code and config (``steps``, in this order), of which some may be known already.

    Where one step alone is left, it is the whole of ``total`` (the change from the first recording to the last); of
    several, the last takes what the measured ones leave. So at most two pairs are timed.
    """
    shares: list[Share | None] = [_known(s) for s in steps]
    left = [i for i, s in enumerate(shares) if s is None]
    whole = total is not None and not any(s is not None and s.change is None for s in shares)
    rest = 1 + total if total is not None else 1.0
    for position, i in enumerate(left):
        step = steps[i]
        assert isinstance(step, Step)
        if whole and position == len(left) - 1:
            shares[i] = Share(rest - 1, step.why)
            continue
        shares[i] = share = _measured(step, measure)
        whole = whole and share.change is not None
        rest /= 1 + (share.change or 0.0)
    compiler, code, config = (s or Share() for s in shares)
    return Attribution(environment, compiler, code, config)


def _known(step: Step | Share) -> Share | None:
    if isinstance(step, Share):
        return step
    return Share(0.0, step.why) if step.nothing else None


def _measured(step: Step, measure: Measure) -> Share:
    try:
        return Share(measure(step.before, step.after), step.why)
    except KerntuneError as exc:
        return Share(None, f"not measured: {exc}")


def steps_between(
    before: Recording, again: Callable[[], Recording], now: Recording, then: Callable[[], Recording]
) -> list[Step | Share]:
    """The steps from the baseline's recording to today's.

    ``again`` gives the baseline compiled from its TTIR today, ``then`` today's source with the baseline's configs;
    both raise where that can't be had, and the step is then part of the next one.
    """
    compiler, middle = _compiler(before, again, now)
    source = "source changed" if _sources(before) != _sources(now) else "source unchanged"
    try:
        chosen = now if _configs(before) == _configs(now) else then()
    except Exception as exc:  # the user's own hooks run in it, and the verdict stands without it
        return [compiler, Step(middle, now, f"{source}; together with the choice of config"), Share(None, str(exc))]
    config = "config unchanged" if chosen is now else "another config won"
    return [compiler, Step(middle, chosen, source), Step(chosen, now, config)]


def _compiler(before: Recording, again: Callable[[], Recording], now: Recording) -> tuple[Step | Share, Recording]:
    """The compiler's step, and where the next one begins."""
    then, today = _compilers(before), _compilers(now)
    if then == today and _sources(before) != _sources(now):
        return Share(0.0, "the same Triton and assembler"), before
    why = "the same Triton and assembler" if then == today else f"{'; '.join(then)} -> {'; '.join(today)}"
    try:
        middle = again()
    except KerntuneError as exc:
        return Share(None, f"not measured: {exc}"), before
    step = Step(before, middle, why)
    return (step if then != today or step.nothing else replace(step, why=f"{why}, {OTHER_SETTINGS}")), middle


OTHER_SETTINGS = "other machine code of the same TTIR: other settings of the compiler in the environment"


def _compilers(recording: Recording) -> list[str]:
    return sorted({f"Triton {b.triton}, assembler {b.assembler}{_flags(b)}" for b in recording.binaries})


def _flags(binary: Binary) -> str:
    """What the environment may have told the compiler, where it isn't what Triton does by itself."""
    said = {n: binary.options.get(n) for n in compat.SURROUNDING_OPTIONS}
    return "".join(f", {n}={v}" for n, v in said.items() if v not in (None, True))


def _sources(recording: Recording) -> list[str]:
    return [x.source for x in recording.launches]


def _configs(recording: Recording) -> list[str]:
    return [str(x.config) for x in recording.launches]


def at_configs(capture: Capture, recorded: Recorded, before: Recording) -> Recording:
    """Today's recording as it would be with the configs of ``before``, launch by launch.

    A config that is no longer among the candidates is compiled all the same. :class:`ReplayError` where the launches
    don't correspond, or today's source doesn't take such a config.
    """
    now = recorded.recording
    if len(before.launches) != len(now.launches):
        raise ReplayError("other launches are made, so configs have no counterpart")
    with capture.active():
        for index, (old, new) in enumerate(zip(before.launches, now.launches, strict=True)):
            if old.config != new.config:
                now = _with_config(capture, recorded, now, index, old)
    return msgspec.structs.replace(now, views=capture.plan.views)


def _with_config(capture: Capture, recorded: Recorded, now: Recording, index: int, old: Launch) -> Recording:
    pending = capture.launches[index]
    if pending.site is None or old.config is None:
        raise ReplayError(f"kernel {old.kernel}: its meta-parameters are written out, there or here")
    candidates = [c for c in pending.site.candidates if c.config == old.config] or [Candidate(old.config)]
    probe = capture.probe(replace(pending.site, candidates=(candidates[0],)), 0)
    compiled = capture.compiler.compile(probe.specialized)
    keep(recorded, compiled)
    launch = make_launch(capture.plan, probe.specialized, compiled, probe.grid)
    return now.with_launch(index, msgspec.structs.replace(launch, config=old.config), compiled.binary)
