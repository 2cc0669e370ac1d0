"""Static figures of a recording's launches, and each launch's share of the case's time."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from kerntune.base.case_result import CaseResult, LaunchFigures, LaunchReport, LaunchShare
from kerntune.base.config import COMPILE_OPTIONS, Config, changed_settings
from kerntune.base.device import DeviceSpec, Target
from kerntune.base.recording import Binary, Launch, Recording, Sha256
from kerntune.base.roofline import bytes_by_launch
from kerntune.base.strict import SparseStruct
from kerntune.capture.recorder import Recorded
from kerntune.kernels.compat import versions
from kerntune.kernels.source import GeneratedFrom
from kerntune.static.metrics import BinaryInput, StaticMetrics, metrics_of

CONSTANT = "constexpr "
"""What the text of a constant begins with in :attr:`LaunchStatic.compiled_for`."""


class LaunchStatic(SparseStruct, frozen=True):
    """Static figures of one launch, and how its code came about.

    ``stages`` has a hash of each compiler stage's text, ``compiled_for`` what the compiler knows of arguments,
    constants and options, ``compiler`` its version and the assembler's, ``compile_seconds`` what it took (None where
    its cache answered). Baselines of before these were kept have none of the four. ``compiler_settings`` has the
    environment's settings of the compiler, ``origins`` the ATen operators of a generated kernel, ``made_from`` the part
    of a graph that torch's compiler made it from.
    """

    kernel: str
    source: str
    code: str
    ttir_sha256: Sha256
    grid: tuple[int, int, int]
    metrics: StaticMetrics
    config: Config | None = None
    stages: dict[str, str] = {}
    compiled_for: dict[str, str] = {}
    compiler: str = ""
    compile_seconds: float | None = None
    compiler_settings: dict[str, str] = {}
    origins: tuple[str, ...] = ()
    made_from: GeneratedFrom | None = None
    nbytes: int = 0
    """Bytes that the launch reads and writes, each tensor once; 0 where a baseline doesn't say."""

    lines: tuple[str, ...] = ()
    """The users' lines that a generated kernel comes from (``model.py:12``). Baselines don't have them."""

    def without_lines(self) -> LaunchStatic:
        """The launch as a baseline has it, which doesn't change with the numbers of lines."""
        return self.but(lines=())

    @property
    def settings(self) -> dict[str, object]:
        """Meta-parameters and launch options by name, wherever they were written: in a config, in the call, as a
        parameter's default, or by a heuristic."""
        chosen = {
            name: text.removeprefix(CONSTANT)
            for name, text in self.compiled_for.items()
            if text.startswith(CONSTANT) or name in COMPILE_OPTIONS
        }
        return {**chosen, **self._tuned}

    @property
    def _tuned(self) -> dict[str, object]:
        return dict(self.config.all_kwargs()) if self.config else {}

    def setting_changes(self, after: LaunchStatic) -> dict[str, tuple[str, str]]:
        """What ``after`` is compiled with otherwise, by name. Of a baseline that doesn't say what it was compiled for,
        only the config is known."""
        if self.compiled_for and after.compiled_for:
            return changed_settings(self.settings, after.settings)
        return changed_settings(self._tuned, after._tuned)


LaunchStatics = Sequence[LaunchStatic]
"""A case's launches, in order."""


def launch_statics(
    recorded: Recorded, spec: DeviceSpec, known: Mapping[str, StaticMetrics] = MappingProxyType({})
) -> tuple[LaunchStatic, ...]:
    """One entry a launch, in order; each distinct binary is analysed once.

    ``known`` has the figures of code identities on this device: equal code needs no disassembler again.
    """
    recording = recorded.recording
    new = [b for b in recording.binaries if b.code not in known]
    inputs = [binary_input(b, recorded.artifacts[b.sha256], recorded.asm[b.sha256]) for b in new]
    made = metrics_of(inputs, spec)
    figures = {**known, **{b.code: m for b, m in zip(new, made, strict=True)}}
    moved = bytes_by_launch(recording, recorded.accesses)
    every = recorded.lines or ((),) * len(moved)
    return tuple(
        _of(recorded, x, figures[recording.binary_of(x).code], nbytes, lines)
        for x, nbytes, lines in zip(recording.launches, moved, every, strict=True)
    )


def _of(
    recorded: Recorded, launch: Launch, metrics: StaticMetrics, nbytes: int, lines: tuple[str, ...]
) -> LaunchStatic:
    binary = recorded.recording.binary_of(launch)
    compiled = recorded.compiled[binary.sha256, binary.ttir_sha256]
    return LaunchStatic(
        kernel=launch.kernel,
        source=launch.source,
        code=binary.code,
        ttir_sha256=binary.ttir_sha256,
        grid=launch.grid,
        metrics=metrics,
        config=launch.config,
        stages=dict(compiled.stages),
        compiled_for=dict(compiled.compiled_for),
        compiler=compiler_of(binary),
        compile_seconds=None if compiled.seconds is None else round(compiled.seconds, 3),
        compiler_settings=dict(binary.settings),
        origins=launch.origins,
        made_from=recorded.made_from.get(launch.source),
        nbytes=nbytes,
        lines=lines,
    )


def compiler_of(binary: Binary) -> str:
    """What has compiled a binary: ``Triton 3.9.0, assembler 13.1``."""
    return f"Triton {binary.triton}, assembler {binary.assembler}"


def compiler_for(target: Target) -> str:
    """What compiles for a target today, in the words of :func:`compiler_of`."""
    assembler = versions.assembler_version(target.backend, target.triton_arch)
    return f"Triton {versions.triton_version()}, assembler {assembler}"


def binary_input(binary: Binary, data: bytes, asm: str) -> BinaryInput:
    """A recording's binary, its bytes and its assembly text, for :func:`kerntune.static.metrics.metrics_of`."""
    return BinaryInput(
        kind=binary.kind,
        data=data,
        asm=asm,
        shared_bytes=binary.shared,
        num_warps=binary.num_warps,
        arch=binary.arch,
        tensor_memory_columns=binary.tmem,
    )


def launch_reports(static: LaunchStatics, before: LaunchStatics = ()) -> tuple[LaunchReport, ...]:
    """Rows for reports from static figures, beside those of the baseline's launches that they correspond to."""
    old = {i: x for i, x, _ in in_both(before, static)}
    return tuple(_report(s, old.get(i)) for i, s in enumerate(static))


def _report(static: LaunchStatic, before: LaunchStatic | None) -> LaunchReport:
    today = static.config, _written(static)
    then = (before.config, _written(before)) if before is not None else today
    config_before, written_before = then if then != today else (None, {})
    return LaunchReport(
        kernel=static.kernel,
        config=static.config,
        grid=static.grid,
        **msgspec.structs.asdict(_figures(static.metrics)),
        limiter=static.metrics.occupancy_limiter,
        before=None if before is None else _figures(before.metrics),
        origins=static.origins,
        written=today[1],
        config_before=config_before,
        written_before=written_before,
    )


def _written(static: LaunchStatic) -> dict[str, str]:
    """Constants of a launch without config, then options other than Triton's defaults, as far as they are numbers or
    words."""
    if static.config is not None:
        return {}
    compiled_for = static.compiled_for
    constants = {k: v.removeprefix(CONSTANT) for k, v in compiled_for.items() if v.startswith(CONSTANT)}
    options = {k: v for k, v in compiled_for.items() if k in ("num_warps", "num_stages", "maxnreg")}
    ctas = compiled_for.get("num_ctas", "1")
    return {**constants, **options, **({"num_ctas": ctas} if ctas != "1" else {})}


def _figures(metrics: StaticMetrics) -> LaunchFigures:
    return LaunchFigures(metrics.registers, metrics.spill_bytes, metrics.shared_bytes, metrics.occupancy)


AnyLaunch = TypeVar("AnyLaunch", bound=LaunchStatic | Launch)
"""A launch, as compiled or as recorded."""


def paired(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> list[tuple[AnyLaunch | None, AnyLaunch | None]]:
    """Launches of two sides that belong together, in the order of ``after``; then those that only ``before`` has.

    Of one kernel those with the same code belong together, then those compiled for the same, with the same grid where
    there is one, then the n-th with the n-th; so a launch that is added in between shifts none. What is left over,
    renamed kernels among it, goes together in its order. Of launches as they were recorded only the kernel is compared.

    A generated kernel's name says little: those with the same code belong together whatever they are called, then those
    with the same source, then those of the same ATen operators, at last those that share most of them.
    """
    found: dict[int, AnyLaunch] = {}
    rest = dict(enumerate(before))
    compiled = all(isinstance(x, LaunchStatic) for x in (*before, *after))
    for common in (*(_COMPILED_IN_COMMON if compiled else ()), *_IN_COMMON):
        waiting: defaultdict[object, deque[int]] = defaultdict(deque)
        for j, old in rest.items():
            waiting[common(old)].append(j)
        for i, new in enumerate(after):
            if i not in found and waiting[common(new)]:
                found[i] = rest.pop(waiting[common(new)].popleft())
    for i, j in _by_operators(rest, {i: x for i, x in enumerate(after) if i not in found}):
        found[i] = rest.pop(j)
    return [*((found.get(i), new) for i, new in enumerate(after)), *((old, None) for old in rest.values())]


def _by_operators(before: Mapping[int, AnyLaunch], after: Mapping[int, AnyLaunch]) -> list[tuple[int, int]]:
    """Generated kernels that share operators, as indices after and before: those that share the largest part first."""
    shares = [
        (-share, i, j)
        for i, new in after.items()
        for j, old in before.items()
        if (share := _common_part(old.origins, new.origins)) > 0
    ]
    found: dict[int, int] = {}
    for _, i, j in sorted(shares):
        if i not in found and j not in found.values():
            found[i] = j
    return list(found.items())


def _common_part(one: Sequence[str], other: Sequence[str]) -> float:
    """How much of two multisets is in both: the size of what they share by that of what either has (Jaccard index)."""
    a, b = Counter(one), Counter(other)
    return (a & b).total() / max(1, (a | b).total())


def in_both(before: Sequence[AnyLaunch], after: Sequence[AnyLaunch]) -> list[tuple[int, AnyLaunch, AnyLaunch]]:
    """The launches of :func:`paired` that both sides have, with their index in ``after``."""
    pairs = enumerate(paired(before, after))
    return [(i, old, new) for i, (old, new) in pairs if old is not None and new is not None]


def _compiled_for(launch: LaunchStatic) -> object:
    return tuple(sorted(launch.compiled_for.items()))


def _known_as(launch: Any) -> object:
    """What tells a launch's kernel from others: a name that a person gave it, else its source."""
    return launch.source if launch.origins else launch.kernel


_COMPILED_IN_COMMON: tuple[Callable[[Any], object], ...] = (
    lambda x: (None if x.origins else x.kernel, x.code, x.grid),
    lambda x: (None if x.origins else x.kernel, x.code),
    lambda x: (_known_as(x), _compiled_for(x), x.grid),
    lambda x: (_known_as(x), _compiled_for(x)),
)
_IN_COMMON: tuple[Callable[[Any], object], ...] = (
    _known_as,
    lambda x: x.origins or x.kernel,
    lambda x: id(x) if x.origins else None,
)
"""Properties that corresponding launches have in common, the most specific first; those of compiled launches before."""


def with_launches(
    result: CaseResult, recording: Recording, static: LaunchStatics, before: LaunchStatics, times_ns: Sequence[float]
) -> CaseResult:
    """A result with each launch's figures beside those of the baseline's launches, and with its share of the time.

    ``times_ns`` is as for :func:`launch_shares`.
    """
    launches, shares = launch_reports(static, before), launch_shares(recording, times_ns)
    return result.but(launches=launches, shares=shares)


def launch_shares(recording: Recording, times_ns: Sequence[float]) -> tuple[LaunchShare, ...]:
    """Shares of the launches' summed times, slowest first. ``times_ns`` is as
    :func:`kerntune.timing.sampling.launch_times` gives it; without times there are no shares."""
    whole = sum(times_ns)
    if whole <= 0:
        return ()
    named = zip(recording.launches, times_ns, strict=True)
    found = [LaunchShare(i, x.kernel, round(ns, 1), round(ns / whole, 4)) for i, (x, ns) in enumerate(named)]
    return tuple(sorted(found, key=lambda s: -s.time_ns))
