"""What differs between the launches of two sides: lines for causes, findings of static rules, gated metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from math import prod
from typing import NamedTuple

import msgspec

from kerntune.base.config import COMPILE_OPTIONS, changed_settings, settings_text, split_settings
from kerntune.base.device import DeviceSpec
from kerntune.base.formatting import format_bytes, format_share, format_size
from kerntune.base.operator_list import places_text
from kerntune.base.policy import StaticPolicy
from kerntune.base.recording import Binary, Launch, LaunchWork, Recording, work_of
from kerntune.gate.fusion import SHOWN, fusion_changes, fusion_lines, lost_fusions, operators
from kerntune.gate.grid_changes import ARROW, accessed_bytes, idle_device, more_programs, resident, shape
from kerntune.gate.static_figures import AnyLaunch, LaunchStatic, LaunchStatics, compiler_of, in_both, paired
from kerntune.static.code_rules import Draft, Finding, change, worst_first
from kerntune.static.metrics import StaticMetrics
from kerntune.static.rules import DEFAULT_RULES, compare_static, judged


class Changes(NamedTuple):
    """What differs, a line for each difference; a cause without lines is the same on both sides.

    ``compiler``: Triton or the assembler. ``settings``: the environment's settings of the compiler. ``source``: the
    text of kernels that both sides launch. ``config``: what was chosen from a list. ``options``: constants and
    options that the launch was given by hand. ``launches``: which kernels, how often, in which order. ``choices``:
    choices that went to another implementation; other kernels in the place of earlier ones are no change of code then.
    """

    compiler: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


def changes_between(before: Recording, after: Recording) -> Changes:
    """The changes from ``before`` to ``after``, of launches that :func:`kerntune.gate.static_figures.paired` pairs."""
    pairs = in_both(before.launches, after.launches)
    same = [(i, a, b) for i, a, b in pairs if _alike(a, b, *(_names(r, x) for r, x in ((before, a), (after, b))))]
    binaries = [(before.binary_of(a), after.binary_of(b)) for _, a, b in same]
    config, options = setting_lines((a, b, _changed(before, after, a, b)) for _, a, b in same)
    works = [(f"launch {i} ({b.kernel})", work_of(before, a), work_of(after, b)) for i, a, b in same]
    launches = tuple(launch_lines(before.launches, after.launches))
    gone_to = [(name, before.choices.get(name, new), new) for name, new in after.choices.items()]
    choices = tuple(f"{name}: {old}{ARROW}{new}" for name, old, new in gone_to if old != new)
    return Changes(
        compiler=_compiler(before, after),
        settings=_once(moved_settings(a.settings, b.settings) for a, b in binaries),
        source=tuple(x for x in changed_sources(before.launches, after.launches) if not (choices and ARROW in x)),
        config=config,
        options=options,
        launches=launches,
        grid=tuple(f"{name}: grid changed" for name, a, b in works if a.grid != b.grid),
        arguments=tuple(_arguments(works, whole=not launches)),
        choices=choices,
    )


def changed_most(before: Recording, after: Recording, launches_ns: Sequence[float] = ()) -> str:
    """The generated kernel that takes the most time of those that do other work than before, with its operators; of the
    first where times (of the launches of ``after``) aren't known. Empty if there is none, or a person wrote them."""
    changed = [
        (launches_ns[i] if launches_ns else 0.0, -i, new)
        for i, old, new in in_both(before.launches, after.launches)
        if new.origins and work_of(before, old) != work_of(after, new)
    ]
    if not changed:
        return ""
    *_, launch = max(changed, key=lambda found: found[:2])
    return f"changed kernel with the most time: {launch.kernel} ({operators(launch.origins)})"


def _alike(before: AnyLaunch, after: AnyLaunch, old: Set[str], new: Set[str]) -> bool:
    """Whether settings have counterparts: of the same kernel, or of one with the same names of settings, as a renamed
    one has."""
    return before.kernel == after.kernel or (bool(old) and old == new)


def _names(recording: Recording, launch: Launch) -> set[str]:
    return {*recording.binary_of(launch).constexprs, *(launch.config.kwargs if launch.config else ())}


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for text in dict.fromkeys(texts) if text)


def _compiler(before: Recording, after: Recording) -> tuple[str, ...]:
    then, today = (sorted(set(map(compiler_of, r.binaries))) for r in (before, after))
    return () if then == today or not then or not today else (f"{'; '.join(then)} -> {'; '.join(today)}",)


def changed_sources(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> Iterator[str]:
    """Kernels whose text is another one. A kernel that only one side launches is no change of code, unless another one
    stands in its place."""
    pairs = in_both(before, after)
    for _, old, new in pairs:
        if old.source != new.source and not other_torch(old, new):
            yield new.kernel if old.kernel == new.kernel else f"{old.kernel}{ARROW}{new.kernel}"
    for fused in fusion_changes(before, after):
        if fused.replaced and not any(new is x for *_, new in pairs for x in fused.after):
            yield ARROW.join(", ".join(x.kernel for x in s) for s in (fused.before, fused.after))


def other_torch(old: AnyLaunch, new: AnyLaunch) -> bool:
    """Whether another torch alone can have generated a kernel otherwise, which is no change of the user's code. Of
    launches as they were recorded that isn't known."""
    if not (isinstance(old, LaunchStatic) and isinstance(new, LaunchStatic) and old.made_from and new.made_from):
        return False
    return old.source != new.source and old.made_from.remade(new.made_from)


def launch_lines(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> Iterator[str]:
    """Another number of launches, the same kernels in another order, or generated kernels that are fused otherwise."""
    old, new = [x.kernel for x in before], [x.kernel for x in after]
    if len(old) != len(new):
        yield f"launches: {len(old)} -> {len(new)}"
    elif old != new and Counter(old) == Counter(new):
        yield "order of launches changed"
    yield from fusion_lines(before, after)


def replaced_kernels(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> Iterator[str]:
    """Kernels of another name, or grids of another size, under another source: what a kernel did may be done elsewhere.
    Generated kernels are left out, whose names are numbered."""
    for _, old, new in in_both(before, after):
        if old.source == new.source or (old.origins and new.origins):
            continue
        name = new.kernel if old.kernel == new.kernel else f"{old.kernel}{ARROW}{new.kernel}"
        grid = "" if prod(old.grid) == prod(new.grid) else f"grid {shape(old.grid)}{ARROW}{shape(new.grid)}"
        if grid or old.kernel != new.kernel:
            yield ", ".join(filter(None, [f"kernel {name}", grid]))


def _arguments(works: Sequence[tuple[str, LaunchWork, LaunchWork]], whole: bool) -> Iterator[str]:
    """Where launches were added or moved, storages are numbered otherwise, so their numbers are not compared."""
    for name, a, b in works:
        if _seen(a, whole) != _seen(b, whole):
            yield f"{name}: arguments changed"


def _seen(work: LaunchWork, whole: bool) -> list[tuple[object, ...]]:
    if whole:
        return list(work.arguments)
    return [(*rest, view and {**msgspec.structs.asdict(view), "storage": None}) for *rest, view in work.arguments]


def setting_lines(
    launches: Iterable[tuple[AnyLaunch, AnyLaunch, Mapping[str, tuple[str, str]]]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Per kernel what changed of its config, and of what the launch was given by hand.

    ``launches`` has a launch on both sides, and the changes of all that it is compiled with
    (:func:`kerntune.base.config.changed_settings`).
    """
    config, options = [], []
    for before, after, changed in launches:
        name = after.kernel
        chosen, given = split_settings(changed, before.config, after.config)
        config += [f"config of {name} changed: {settings_text(chosen)}"] if chosen else []
        options += [f"launch options of {name}: {settings_text(given)}"] if given else []
    return _once(config), _once(options)


def _changed(before: Recording, after: Recording, a: Launch, b: Launch) -> dict[str, tuple[str, str]]:
    """Options that aren't tuned (``launch_pdl``, ``enable_fp_fusion``) count where the launch alone can have set them:
    another Triton and the environment's settings change their defaults."""
    old, new = before.binary_of(a), after.binary_of(b)
    tuned = changed_settings(_settings(a, old), _settings(b, new))
    if (old.triton, old.settings) != (new.triton, new.settings):
        return tuned
    names = [n for n in new.options if n in old.options and n not in COMPILE_OPTIONS]
    texts = {n: tuple("" if x is None else str(x) for x in (old.options[n], new.options[n])) for n in names}
    return {**{n: (was, now) for n, (was, now) in texts.items() if was != now}, **tuned}


def _settings(launch: Launch, binary: Binary) -> dict[str, object]:
    """Meta-parameters and options that are tuned, wherever they were written."""
    options = {name: binary.options[name] for name in COMPILE_OPTIONS if name in binary.options}
    return {**binary.constexprs, **options, **(launch.config.all_kwargs() if launch.config else {})}


def static_setting_lines(
    pairs: Iterable[tuple[LaunchStatic, LaunchStatic]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """:func:`setting_lines` of compiled launches."""
    alike = ((a, b) for a, b in pairs if _alike(a, b, set(a.settings), set(b.settings)))
    return setting_lines((a, b, a.setting_changes(b)) for a, b in alike)


def moved_settings(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The environment's settings of the compiler that differ: ``DISABLE_PTXAS_OPT unset -> 1``."""
    names = sorted({*before, *after})
    moved = [n for n in names if before.get(n) != after.get(n)]
    return settings_text({n: (before.get(n, ""), after.get(n, "")) for n in moved})


class LaunchFindings(msgspec.Struct, frozen=True):
    """A launch of both sides, and the rules' findings on its change."""

    before: LaunchStatic
    after: LaunchStatic
    findings: tuple[Finding, ...]


def compare_launches(
    before: LaunchStatics, after: LaunchStatics, rules: StaticPolicy = DEFAULT_RULES, spec: DeviceSpec | None = None
) -> list[LaunchFindings]:
    """The launches that both sides have (:func:`kerntune.gate.static_figures.paired`), those without a finding too.
    ``spec`` is the device, if it is known: how much of it a launch fills decides whether loads are hidden."""
    pairs = paired(before, after)
    changed = [a for a, b in pairs if a is not None and (b is None or (a.code, a.grid) != (b.code, b.grid))]
    return [
        LaunchFindings(a, b, tuple(_findings(a, b, rules, spec, alone=all(x is a for x in changed))))
        for a, b in pairs
        if a is not None and b is not None
    ]


def grown_launches(before: LaunchStatics, after: LaunchStatics) -> Iterator[str]:
    """``triton_poi_fused_add (add) at model.py:12, 16.8 MB -> 33.6 MB``: launches that move more bytes than before, and
    new ones, those that grew the most first."""
    pairs = [(old.nbytes if old else 0, new) for old, new in paired(before, after) if new is not None]
    for old, new in sorted(pairs, key=lambda pair: pair[0] - pair[1].nbytes)[:SHOWN]:
        if new.nbytes > old:
            computed = f" ({operators(new.origins)})" if new.origins else ""
            now = format_bytes(new.nbytes)
            moved = f"{format_bytes(old)}{ARROW}{now}" if old else f"new, {now}"
            yield f"{new.kernel}{computed}{places_text(new.lines)}, {moved}"


def count_findings(before: LaunchStatics, after: LaunchStatics, rules: StaticPolicy = DEFAULT_RULES) -> list[Finding]:
    """The rules' findings on the number of launches, and on what is fused. Without a launch before there is nothing to
    compare."""
    counts = _counts(before, after, rules.rule("launches").threshold or 0.0) if before else ()
    fusions = (Draft("fail", "fusion", *c.counts, c.text(), "fusion") for c in lost_fusions(before, after))
    return judged([*fusions, *counts], rules)


def _findings(
    before: LaunchStatic, after: LaunchStatic, rules: StaticPolicy, spec: DeviceSpec | None, *, alone: bool
) -> list[Finding]:
    """``alone``: whether every other launch of the call is as it was. Else this one may have taken over work of
    theirs, and what it does more only warns."""
    other_config, found = bool(before.setting_changes(after)), list[Finding]()
    if before.code != after.code:
        found = compare_static(
            before.metrics,
            after.metrics,
            rules=rules,
            other_config=other_config,
            resident=None if spec is None else resident(after, spec),
            same_programs=prod(before.grid) == prod(after.grid),
        )
    drafts = [*accessed_bytes(before, after, rules.rule("work").threshold or 0.0), *idle_device(before, after, spec)]
    found += judged(drafts, rules, other_config=other_config)
    found += judged(more_programs(before, after, rules.rule("grid").threshold or 0.0), rules)
    moved = [] if alone else [f for f in found if f.metric in ("accessed_bytes", "repeated_atomics")]
    return worst_first(f.but(severity="warn") if f in moved else f for f in found)


def _counts(before: LaunchStatics, after: LaunchStatics, threshold: float) -> Iterator[Draft]:
    if len(after) <= len(before) * (1 + threshold):
        return
    old, new = (Counter(x.kernel for x in side) for side in (before, after))
    told = ", ".join(f"{kernel} {old[kernel]} -> {count}" for kernel, count in new.items() if count > old[kernel])
    text = f"{len(after) / len(before):.3g} times as many launches: {change(len(before), len(after))} ({told})"
    yield Draft("fail", "launches", len(before), len(after), text, "launches")


FIGURES: dict[str, tuple[str, Callable[[StaticMetrics], int]]] = {
    "registers": ("a thread", lambda m: m.registers),
    "spills": ("bytes a thread", lambda m: m.spill_bytes),
    "shared_memory": ("bytes a block", lambda m: m.shared_bytes),
    "binary_size": ("bytes", lambda m: m.code_bytes),
    "instructions": ("in the code", lambda m: m.instructions.get("total", 0)),
}
"""Of each metric that :data:`kerntune.base.policy.METRIC_TOLERANCES` names: its unit, and where it is found. A binary's
size is that of its machine code: the file around it changes with a path."""


def exceeded(before: LaunchStatics, after: LaunchStatics, limits: Mapping[str, float]) -> tuple[str, ...]:
    """A sentence for each launch and metric that grew by more than its share. Launches are paired by kernel; one that
    the baseline doesn't have is compared with none."""
    found = []
    for index, old, new in in_both(before, after):
        for name, limit in limits.items() if old.code != new.code else ():
            unit, figure = FIGURES[name]
            was, now = figure(old.metrics), figure(new.metrics)
            if now > was * (1 + limit):
                grown = f"{format_share(now / was - 1)}, " if was else ""
                text = f"{name} {was:,} -> {now:,} {unit} ({grown}{format_size(limit)} allowed)"
                found.append(f"launch {index} ({new.kernel}): {text}")
    return tuple(found)
