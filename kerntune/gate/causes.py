"""Causes of a change: what differs between a baseline and today as sentences, and each cause's share of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kerntune.base.case_result import Attribution, CauseKind, LaunchCause, LostConfig, Share
from kerntune.base.config import settings_text, split_settings
from kerntune.base.device import Environment
from kerntune.base.recording import Recording, same_work
from kerntune.capture import Candidate, Capture
from kerntune.capture.recorder import Recorded, keep, make_launch
from kerntune.compiling.binary.identity import first_difference
from kerntune.errors import KerntuneError, ReplayError
from kerntune.gate.console import some_of
from kerntune.gate.launch_changes import Changes, changes_between, moved_settings
from kerntune.gate.static_figures import LaunchStatic, in_both
from kerntune.kernels.source import GeneratedFrom


def causes(before: Recording, after: Recording, then: Environment, today: Environment) -> tuple[str, ...]:
    """A line for each change of code, compiler, config, launch options and launches; code and config have a line where
    they are unchanged, too."""
    found = changes_between(before, after)
    code = code_cause(bool(found.source), then.triton, today.triton)
    if found.source and then.torch != today.torch and _generated_alone(before, after):
        code = f"{code.replace('code', 'generated code', 1)}, torch {then.torch} -> {today.torch}"
    if found.compiler and then.triton == today.triton:
        (told,) = found.compiler
        code += f", {told}"
    return (
        code,
        *(f"{OTHER_IMPLEMENTATION}: {text}" for text in found.choices),
        *config_causes(found.config, found.options),
        *(f"environment changed: {text}" for text in found.settings),
        *found.launches,
        *found.grid,
        *found.arguments,
    )


def _generated_alone(before: Recording, after: Recording) -> bool:
    changed = [(old, new) for _, old, new in in_both(before.launches, after.launches) if old.source != new.source]
    return bool(changed) and all(old.origins and new.origins for old, new in changed)


def code_cause(changed: bool, triton_before: str, triton_after: str) -> str:
    """Whether the kernels' sources or the compiler changed."""
    code = "code changed" if changed else "code unchanged"
    return code if triton_before == triton_after else f"{code}, Triton {triton_before} -> {triton_after}"


def config_causes(config: Sequence[str], options: Sequence[str]) -> list[str]:
    """The lines of changed configs and launch options, or a line that the config is unchanged."""
    return [*config, *options] or ["config unchanged"]


def launch_cause(
    before: LaunchStatic,
    after: LaunchStatic,
    triton_before: str,
    triton_after: str,
    *,
    same_code: bool = False,
    lost: LostConfig | None = None,
) -> LaunchCause | None:
    """Why the code of a launch differs, and the first compiler stage that differs; None if the code is the same.

    Same source and another Triton: the compiler. Another source: the code, or torch where it generated the kernel and
    is another version. Else the config, the launch options (options and constants that no config has), or what the
    compiler knows of the arguments (types, alignment, strides of 1). There can be several causes. ``same_code``: both
    sides are known to run the same files of the user. ``lost``: the config in whose place today's is.
    """
    if before.code == after.code:
        return None
    old, new = before.made_from, after.made_from
    blamed = dict(_asked_otherwise(before, after, lost))
    if old is not None and new is not None and old.torch != new.torch:
        # torch, for what it generated or asked for otherwise; an edit of the function may have changed the source, too
        details, either = [f"Inductor's {text}" for text in blamed.values()], ""
        if before.source != after.source:
            details.insert(0, regenerated(after, old, new))
            either = "" if same_code or old.remade(new) else " or code"
        text = f"torch {old.torch} -> {new.torch}{either} ({'; '.join(details)})"
        blamed = {"torch": text} if details else {}
    elif before.source != after.source:
        blamed = {"code": "code (its source changed)", **blamed}
    moved = moved_settings(before.compiler_settings, after.compiler_settings)
    if moved:
        blamed["environment"] = f"environment ({moved})"
    compilers = before.compiler or f"Triton {triton_before}", after.compiler or f"Triton {triton_after}"
    if triton_before != triton_after or (before.compiler and compilers[0] != compilers[1]):
        blamed["compiler"] = f"compiler ({compilers[0]} -> {compilers[1]})"
    why = " and ".join(blamed.values()) or NOT_KEPT
    stage = first_difference(before.stages, after.stages)
    return LaunchCause(after.kernel, f"{why}, first in {stage}" if stage else why, tuple(blamed))


NOT_KEPT = "something that is not kept (same source, config, launch options, arguments and compiler)"


def _asked_otherwise(
    before: LaunchStatic, after: LaunchStatic, lost: LostConfig | None
) -> Iterator[tuple[CauseKind, str]]:
    chosen, given = split_settings(before.setting_changes(after), before.config, after.config)
    if chosen:
        gone = f"; {lost.removal}" if lost and lost.removal else ""
        yield "config", f"config ({settings_text(chosen)}{gone})"
    if given:
        yield "launch options", f"launch options ({settings_text(given)})"
    told = [f"{n}: {old} -> {new}" for n, old, new in _arguments(before, after)]
    if told:
        yield "arguments", f"arguments ({'; '.join(told)})"


SHOWN_CALLS = 3
"""Calls of torch that a cause names; the others are counted."""


def regenerated(launch: LaunchStatic, old: GeneratedFrom, new: GeneratedFrom) -> str:
    """What torch does otherwise for a generated kernel: it decomposes the calls into other operators, or it writes
    other code for the same ones."""
    names = list(dict.fromkeys(new.calls or (x.removeprefix("aten.") for x in launch.origins))) or [launch.kernel]
    whose = some_of(names, SHOWN_CALLS)
    other = old.operators != new.operators and bool(old.operators and new.operators)
    return f"{whose}'s decomposition" if other else f"{whose}'s generated code"


def _arguments(before: LaunchStatic, after: LaunchStatic) -> Iterator[tuple[str, str, str]]:
    """What the compiler knows of arguments and that differs: types, alignment, strides of 1."""
    settings = {*before.settings, *after.settings}
    for name, new in after.compiled_for.items():
        old = before.compiled_for.get(name, new)
        if name not in settings and old != new:
            yield name, old, new


MeasureChange = Callable[[Recording, Recording], float]
"""The change from one recording to another; KerntuneError where one can't be run."""

STEPS = ("environment", "compiler", "code", "launch", "config")
"""The fields of :class:`kerntune.base.case_result.Attribution` in the order of its chain."""

SAME = {name: Share(0.0, f"nothing that runs differs by the {name}") for name in STEPS[1:]}
"""Shares of causes that are absent, by the field of :class:`kerntune.base.case_result.Attribution`."""


class Step(NamedTuple):
    """Two recordings, and what differs between them: by the attribution's field, without changes yet."""

    before: Recording
    after: Recording
    blamed: Mapping[str, Share]

    @property
    def nothing(self) -> bool:
        """Whether both do the same work: then the share is zero, without a measurement."""
        return same_work(self.before, self.after)

    def shares(self, change: float | None, why_not: str = "") -> dict[str, Share]:
        """The first cause has the whole change; the others are within it, since they can't be timed apart."""
        first, *others = self.blamed
        found = {first: self.blamed[first].but(change=change)}
        if why_not:
            found[first] = found[first].but(why=why_not)
        return found | {name: self.blamed[name].but(within=first) for name in others}


@dataclass(frozen=True)
class Chain:
    """The steps from the baseline's recording to today's, and the causes without a step."""

    steps: tuple[Step, ...]
    known: Mapping[str, Share] = field(default_factory=dict)


def attribute(chain: Chain, total: float | None, environment: Share, measure: MeasureChange) -> Attribution:
    """The shares of compiler, code, launch and config.

    Where one step alone is left, it is the whole of ``total`` (the change from the first recording to the last); of
    several, the last takes what the measured ones leave. So at most two pairs are timed.
    """
    left = [step for step in chain.steps if not step.nothing]
    whole = total is not None and all(s.change is not None for s in chain.known.values())
    rest, found = 1 + (total or 0.0), dict(chain.known)
    for step in left:
        if whole and step is left[-1]:
            found |= step.shares(rest - 1)
            continue
        change, why_not = None, ""
        try:
            change = measure(step.before, step.after)
        except KerntuneError as exc:
            why_not = f"not measured: {exc}"
        found |= step.shares(change, why_not)
        whole = whole and change is not None
        rest /= 1 + (change or 0.0)
    return Attribution(environment, **{name: found.get(name, same) for name, same in SAME.items()})


def steps_between(
    before: Recording, again: Callable[[], Recording], now: Recording, then: Callable[[], Recording]
) -> Chain:
    """The steps from the baseline's recording to today's, each named after what differs between its two ends.

    ``again`` gives the baseline compiled from its TTIR today, ``then`` today's source with the baseline's configs;
    both raise where that can't be made, and the causes that it would have separated are then one step.
    """
    known: dict[str, Share] = {}
    changed = changes_between(before, now)
    try:
        middle = before if changed.source and not changed.compiler and not changed.settings else again()
    except KerntuneError as exc:
        middle = before
        known["compiler"] = Share(None, f"not measured: {exc}")
    try:
        chosen = then() if changed.config else now
    except Exception as exc:  # the user's own hooks run in it, and the verdict stands without it
        chosen = now
        known["config"] = Share(None, str(exc))
    config = {"config": Share(why="; ".join(changed.config))}
    # the same TTIR on both sides: the compiler or its settings are the cause, whatever differs
    compiler = dict(_blamed_compiler(changes_between(before, middle)))
    compiler = compiler or {"compiler": Share(why=OTHER_SETTINGS, cause=SETTINGS_CAUSE)}
    steps = (Step(before, middle, compiler), _step(middle, chosen, changed), Step(chosen, now, config))
    blamed = {name for step in steps if not step.nothing for name in step.blamed}
    return Chain(steps, {name: share for name, share in known.items() if name not in blamed})


def _step(before: Recording, after: Recording, changed: Changes) -> Step:
    """``changed`` differs from the baseline to today: a difference that only the recompilation makes is no cause."""
    found = changes_between(before, after)
    found = Changes(**{name: x for name, x in found._asdict().items() if getattr(changed, name)})
    blamed = dict([*_blamed_call(found), *_blamed_compiler(found)])
    return Step(before, after, blamed or {"code": Share(why=UNKNOWN, cause="unknown cause")})


def _blamed_call(found: Changes) -> Iterator[tuple[str, Share]]:
    """Causes in the call, by the attribution's field. Where another implementation won, launches, grids and arguments
    are its own."""
    if found.choices:
        yield "launch", Share(why="; ".join(found.choices), cause=OTHER_IMPLEMENTATION)
    if found.source:
        yield "code", Share(why="source changed")
    kinds = {"launch options": found.options, "launches": found.launches}
    kinds |= {"grid": found.grid, "arguments": found.arguments}
    lines = [line for kind in kinds.values() for line in kind]
    if lines and not found.choices:
        names = [name for name, kind in kinds.items() if kind]
        yield "launch", Share(why="; ".join(lines), cause=" and ".join(names))
    if found.config:
        yield "config", Share(why="; ".join(found.config))


OTHER_IMPLEMENTATION = "another implementation won"
"""Of a choice (:mod:`kerntune.tuning.choices`)."""


def _blamed_compiler(found: Changes) -> Iterator[tuple[str, Share]]:
    if found.compiler:
        both = "compiler and its settings" if found.settings else ""
        yield "compiler", Share(why="; ".join((*found.compiler, *found.settings)), cause=both)
    elif found.settings:
        yield "compiler", Share(why="; ".join(found.settings), cause=SETTINGS_CAUSE)


SETTINGS_CAUSE = "compiler settings"

OTHER_SETTINGS = "other machine code of the same TTIR: settings of the compiler that nobody recorded"

UNKNOWN = "other work, though source, tuned options, constants, grid, arguments and compiler are the same"


def at_configs(capture: Capture, recorded: Recorded, before: Recording) -> Recording:
    """Today's recording as it would be with the configs of ``before``, launch by launch.

    A config that is no longer among the candidates is compiled all the same. :class:`ReplayError` where the launches
    don't correspond, or today's source doesn't take such a config.
    """
    now = recorded.recording
    if len(before.launches) != len(now.launches):
        raise ReplayError("other launches are made, so configs have no counterpart")
    with capture.active():
        for index, old in enumerate(before.launches):
            if old.config == now.launches[index].config:
                continue
            site = capture.launches[index].site
            if site is None or old.config is None:
                raise ReplayError(f"kernel {old.kernel}: its meta-parameters are written out, there or here")
            candidates = [c for c in site.candidates if c.config == old.config] or [Candidate(old.config)]
            probe = capture.probe(replace(site, candidates=(candidates[0],)), 0)
            compiled = capture.compiler.compile(probe.specialized)
            keep(recorded, compiled)
            launch = make_launch(capture.plan, probe.specialized, compiled, probe.grid)
            now = now.with_launch(index, launch.but(config=old.config), compiled.binary)
    return now.but(views=capture.plan.views)
