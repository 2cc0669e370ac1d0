"""What is remembered of a case: the baselines as values, and how their JSON is decoded and refused.

:mod:`kerntune.gate.baseline_files` reads and writes them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TypeVar, Union

import msgspec

from kerntune.base import codec
from kerntune.base.case_result import CaseId, End
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Environment, Target
from kerntune.base.operator_list import MAX_OUTSIDE, MAX_ROWS, OperatorList
from kerntune.base.recording import MAX_BYTES, Launch, Recording
from kerntune.base.recording_check import case_problems, recording_problems, unprintable, within
from kerntune.base.stats import Estimate
from kerntune.base.strict import StrictStruct
from kerntune.errors import BaselineError, TargetError
from kerntune.gate.static_figures import LaunchStatic, LaunchStatics
from kerntune.timing.timers import Sample

TIME_SCHEMA = "kerntune.time/1"

STATIC_SCHEMA = "kerntune.static/1"


class Argument(StrictStruct, frozen=True):
    """A tensor among a case's launches, as it enters the fingerprint."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Calibration(StrictStruct, frozen=True):
    """A case compared with itself in fresh processes: which changes a verdict on it can and can't detect. Relative
    (0.01 is 1 %).

    ``floor`` is the smallest change that the first processes can detect, ``bias`` the standard deviation that a
    process adds to a ratio, ``median_sd`` (``spread`` on disk) that of the processes' median times.
    """

    processes: int
    blocks: int
    floor: float
    bias: float
    median_sd: float = msgspec.field(name="spread")
    state_range: float = msgspec.field(name="drift", default=0.0)
    """How far apart the times of this one binary lie in the states that its device gets into (clocks, power limits),
    with a margin for states that the calibration didn't see: a time that is off by less than that is no drift."""

    throttle: tuple[str, ...] = ()
    """Throttle reasons (NVML's bits, in hexadecimal) that were seen meanwhile."""

    version: Union[int, msgspec.UnsetType] = msgspec.UNSET
    """The rule that it was made by (:data:`kerntune.gate.replay.VERSION`). Earlier files don't have it, and are
    written again without it; :func:`kerntune.gate.replay.version_of` tells theirs."""


class SinceAnchor(StrictStruct, frozen=True):
    """What the comparison with an anchor showed when a baseline was recorded: how much longer (0.01: 1 %) the recorded
    work took than that of ``anchor`` (:func:`work_id`). Two works that stay the same needn't be compared twice."""

    anchor: str
    change: Estimate


class TimeBaseline(StrictStruct, frozen=True):
    """A case's time on one kind of device, and the recording that took it."""

    schema: str
    case: CaseId
    fingerprint: str
    arguments: tuple[Argument, ...]
    device: DeviceSpec
    environment: Environment
    recorded: str
    recording: Recording
    sample: Sample
    static: tuple[LaunchStatic, ...]
    calibration: Union[Calibration, None] = None
    since: Union[SinceAnchor, None] = None
    inductor_times: Union[dict[str, Union[float, None]], msgspec.UnsetType] = msgspec.UNSET
    """Of a compiled function: the times (ms; None for what can't run) by which Inductor took its templates and fused
    them, by a hash of each candidate; see :mod:`kerntune.capture.inductor.baseline_choices`."""

    operators: Union[OperatorList, msgspec.UnsetType] = msgspec.UNSET
    """What the call ran beside its captured kernels; earlier files don't have it."""

    @property
    def target(self) -> Target:
        """What it was compiled for."""
        return self.device.target

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches that were recorded."""
        return self.recording.launches


class StaticBaseline(StrictStruct, frozen=True):
    """A case's static figures for one target and Triton series."""

    schema: str
    case: CaseId
    fingerprint: str
    arguments: tuple[Argument, ...]
    target: Target
    triton: str
    recorded: str
    launches: tuple[LaunchStatic, ...]
    end: Union[End, msgspec.UnsetType] = msgspec.UNSET
    """Where the call stopped, or the test after it, as ``--kerntune-update`` has accepted it."""

    operators: Union[OperatorList, msgspec.UnsetType] = msgspec.UNSET
    """As :attr:`TimeBaseline.operators`, of a call on stand-ins."""


Baseline = TimeBaseline | StaticBaseline

Kept = TypeVar("Kept", TimeBaseline, StaticBaseline)


def operators_of(baseline: Baseline | None) -> OperatorList | None:
    """What a baseline's call ran beside its captured kernels; None where the baseline doesn't say."""
    return None if baseline is None or baseline.operators is msgspec.UNSET else baseline.operators


def configs_by_kernel(baselines: Iterable[Baseline]) -> dict[str, list[Config]]:
    """The configs of baselines' launches by kernel, each once, in their order."""
    found: dict[str, list[Config]] = {}
    for baseline in baselines:
        for launch in baseline.launches:
            if launch.config is not None and launch.config not in found.setdefault(launch.kernel, []):
                found[launch.kernel].append(launch.config)
    return found


def lasting(baseline: Baseline) -> Baseline:
    """Without what differs from run to run: when it was recorded, and how long the compiler took."""
    where = "static" if isinstance(baseline, TimeBaseline) else "launches"
    launches = tuple(x.but(compile_seconds=None) for x in getattr(baseline, where))
    return baseline.but(recorded="", **{where: launches})


def fingerprint_of(arguments: Iterable[Argument]) -> str:
    """16 hex digits over shapes, dtypes and strides: cases with another fingerprint are other cases."""
    return sha256(msgspec.json.encode(tuple(arguments))).hexdigest()[:16]


def work_id(recording: Recording) -> str:
    """16 hex digits over all of a recording."""
    return sha256(msgspec.json.encode(recording)).hexdigest()[:16]


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def decode_time(data: bytes, where: str) -> TimeBaseline:
    """A time baseline's file; :class:`BaselineError` names the file, and the field that can't be."""
    return _decoded(data, TimeBaseline, TIME_SCHEMA, where)


def decode_static(data: bytes, where: str) -> StaticBaseline:
    """A static baseline's file; :class:`BaselineError` names the file, and the field that can't be."""
    return _decoded(data, StaticBaseline, STATIC_SCHEMA, where)


def _decoded(data: bytes, kind: type[Kept], schema: str, where: str) -> Kept:
    found = codec.from_json(data, kind, schema, where=where, error=BaselineError)
    if (problem := next(problems_of(found), "")) != "":
        raise BaselineError(f"{where}: {problem}. Restore the file or record it anew")
    return found


def problems_of(found: Baseline) -> Iterator[str]:
    """A sentence for each field that can't be, beginning with its place: ``recording.launches[0].binary``."""
    yield from case_problems(found.case)
    yield from unprintable("recorded", found.recorded)
    if isinstance(found, TimeBaseline):
        yield from (f"recording.{problem}" for problem in recording_problems(found.recording))
        yield from _target_problems("device.target", found.device.target)
        yield from _target_problems("recording.target", found.recording.target)
        yield from unprintable("device.name", found.device.name)
        yield from _too_long("device.name", found.device.slug)
        yield from _figures_problems("static", found.static)
    else:
        yield from _target_problems("target", found.target)
        if not re.fullmatch(r"\d+\.\d+", found.triton):
            yield f"triton is {codec.shortened(found.triton)!r}, which is no Triton series such as 3.9"
        yield from _too_long("triton", f"triton-{found.triton}")
        yield from _figures_problems("launches", found.launches)
    yield from _operator_problems(found)


def _too_long(place: str, folder: str) -> Iterator[str]:
    if len(folder) > MAX_FOLDER:
        yield f"{place} makes a folder's name of {len(folder)} characters, more than {MAX_FOLDER}"


def _target_problems(place: str, target: Target) -> Iterator[str]:
    known = None
    with suppress(TargetError):
        known = Target.parse(str(target))
    if known != target or len(target.slug) > MAX_FOLDER:
        told = f"{codec.shortened(str(target))!r} with {target.warp_size} threads a warp"
        yield f"{place} is {told}, no target such as cuda:90 with 32"


def _figures_problems(place: str, launches: LaunchStatics) -> Iterator[str]:
    for i, launch in enumerate(launches):
        yield from unprintable(f"{place}[{i}].kernel", launch.kernel)


def _operator_problems(found: Baseline) -> Iterator[str]:
    listed = operators_of(found)
    if listed is None:
        return
    if len(listed.rows) > MAX_ROWS or len(listed.outside) > MAX_OUTSIDE:
        yield f"operators has more than {MAX_ROWS} rows, or more than {MAX_OUTSIDE} sizes"
    for i, row in enumerate(listed.rows):
        yield from within(f"operators.rows[{i}].nbytes", row.nbytes, 0, MAX_BYTES)
        yield from within(f"operators.rows[{i}].count", row.count, 1, MAX_BYTES)
    for name in ("left_out", "left_out_bytes", "kernel_bytes"):
        yield from within(f"operators.{name}", getattr(listed, name), 0, MAX_BYTES)


MAX_FOLDER = 255
"""Longest name of a folder."""
