"""Says what may not be launched or raced: a whole call, or single candidates of it.

A call that launches nothing, or that changes what could not be put back, is not raced. A candidate is left out if its
binary needs more than the device has, or if its hook leaves other contents in memory than those of the others. A
matrix product that is split along its sum adds to its output, so its config has a ``pre_hook`` that zeroes it. The
other configs write every element and have none; each must start from what its own hook leaves. A first launch that
fails is blamed on the candidate or on the call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from kerntune.base.device import DeviceSpec
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.recording import Binary, Recording
from kerntune.capture import Capture, Probe, Site
from kerntune.capture.launch import in_doubt, is_hopeless
from kerntune.compiling.binary.elf import cubin_resources
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CompileError, ConfigError, GridError, StoreError, TrialError
from kerntune.gpu.base import Buffer, Gpu
from kerntune.gpu.memory import Memory, Source, keep_at_home
from kerntune.gpu.program import First
from kerntune.static.occupancy import Violation, launch_violations
from kerntune.tuning.candidates import CandidatePool, pool_of
from kerntune.tuning.consensus import CandidateWork
from kerntune.tuning.tuning_result import TuningResult, nothing_left

LAUNCHES_NOTHING = "its grid is empty, so there is nothing to time"
NOT_MEASURED = "the device was busy"


def first_usable(capture: Capture, site: Site, first: int | None = None) -> int:
    """The first candidate, ``first`` before the others in config order, that compiles, and that the device can launch
    as far as its binary tells. Nothing is loaded, and the device isn't waited for. :class:`TuningError` if there is
    none."""
    with capture.active(), contextlib.closing(pool_of(capture, site)) as pool:
        return unraced(capture, pool, first, NOT_MEASURED).winner


def launches_nothing(capture: Capture, site: Site) -> bool:
    """Whether a call of a site has an empty grid, by its first candidate. Only inside ``capture.active()``."""
    try:
        return _empty(capture.probe(site, 0))
    except (TrialError, ConfigError, GridError):
        return False


def all_empty(pool: CandidatePool) -> bool:
    """Whether no candidate would launch anything."""
    return bool(pool.probes) and all(map(_empty, pool.probes.values()))


def _empty(probe: Probe) -> bool:
    return 0 in probe.grid


def unraced(capture: Capture, pool: CandidatePool, incumbent: int | None, why: str) -> TuningResult:
    """The outcome without a race: the incumbent, else the first candidate in config order that can be used.

    :class:`TuningError` if none can.
    """
    pool.close()
    recording = Recording(capture.backend.spec.target, (), (), (), ())
    failures: list[FailedTrial] = []
    for index in sorted(pool.probes, key=lambda i: (i != incumbent, i)):
        broken = "" if _empty(pool.probes[index]) else _broken(capture, pool.probes[index])
        if not broken:
            return TuningResult(index, recording, {}, tuple(failures), unraced=why)
        failures.append(FailedTrial(pool.site.kernel, pool.site.candidates[index].config, broken))
    raise nothing_left(pool.site, failures)


def _broken(capture: Capture, probe: Probe) -> str:
    """Why a candidate can't be launched; empty if it can, as far as its binary tells."""
    try:
        compiled = capture.compiler.compile(probe.specialized)
    except CompileError as exc:
        return str(exc)
    return misfit(compiled.binary, compiled.data, capture.backend.spec)


MAX_CLUSTER = 16
"""CTAs of a cluster, where sizes that aren't portable are allowed (CUDA C++ Programming Guide, "Clusters")."""


def misfit(binary: Binary, data: bytes, spec: DeviceSpec) -> str:
    """Why ``spec`` can't launch a kernel; empty if no limit is exceeded (the driver decides in the end)."""
    found = launch_violations(
        spec,
        registers=_registers(binary, data),
        shared_bytes=binary.shared,
        threads=binary.num_warps * binary.warp_size,
        tensor_memory_columns=binary.tmem,
    )
    if binary.num_ctas > MAX_CLUSTER:
        found += (Violation("cluster", binary.num_ctas, MAX_CLUSTER, "blocks"),)
    return "; ".join(map(str, found))


def _registers(binary: Binary, data: bytes) -> int:
    if binary.kind != "cubin":
        return 0
    try:
        return cubin_resources(data, binary.symbol).registers
    except StoreError:
        return 0


HEAD = 1 << 20
"""Bytes of a tensor that are compared where torch has counted no change: a hook may have gone round torch."""


def first_contents(capture: Capture, index: int, memory: Memory, among: Iterable[int]) -> dict[int, First]:
    """By candidate (of launch ``index``, ``among`` these) what it finds in the storages for which hooks make a
    difference; None where that is what ``memory`` begins with. Empty if hooks make none.

    Hooks run on the call's own tensors, which hold afterwards what they held. Only inside ``capture.active()``, and
    before anything has run in ``memory``.
    """
    site = capture.launches[index].site
    if site is None or not _may_differ(site):
        return {}
    found = capture.plan.among(site.arguments.values())
    tensors = {i: tensor for i, tensor in found.items() if i < len(memory.storages)}  # others came after the recording
    left = _left(capture, index, memory, tensors, list(among)) if tensors else {}
    differing = sorted({storage for held in left.values() for storage in held})
    memory.will_write(differing)
    return {i: {s: held.get(s) for s in differing} for i, held in left.items()} if differing else {}


def _may_differ(site: Site) -> bool:
    """Whether hooks before a launch are the user's: ``reset_to_zero`` does the same for every config."""
    own = getattr(site.tuner, "user_defined_pre_hook", False)
    return own or any(candidate.hook is not None for candidate in site.candidates)


def _left(
    capture: Capture, index: int, memory: Memory, tensors: Mapping[int, Any], among: list[int]
) -> dict[int, dict[int, Source]]:
    """By candidate what its hooks leave, where that isn't what the memory begins with."""
    gpu, pending = capture.backend.gpu, capture.launches[index]
    site, saved = pending.site, dict[int, Buffer]()
    assert gpu is not None
    assert site is not None
    try:
        for i, tensor in tensors.items():
            held = sum(copy.nbytes for copy in saved.values())
            saved[i] = keep_at_home(gpu, gpu.borrow(tensor), memory.inputs, held).pristine
        begins = {i: saved[i] if memory.sources[i].shared else memory.sources[i].pristine for i in tensors}
        before = begins if pending.ran else saved  # what has run was followed by others, which the tensors hold
        tried = _HookTrials(gpu, tensors, before, begins, memory.inputs)
        return {i: tried.left_by(capture.trying(site, i)) for i in among}
    finally:
        for i, copy in saved.items():
            gpu.copy(gpu.borrow(tensors[i]), copy)


@dataclass
class _HookTrials:
    """A call's tensors by storage, on which hooks are tried. ``before`` is what these find; what they leave is
    compared with what the memory ``begins`` with."""

    gpu: Gpu
    tensors: Mapping[int, Any]
    before: Mapping[int, Buffer]
    begins: Mapping[int, Buffer]
    inputs: int
    """Bytes that the call holds."""

    def __post_init__(self) -> None:
        self._kept: dict[int, list[Source]] = {i: [] for i in self.tensors}
        self._put_back(self.tensors)
        self._heads = {i: self.gpu.allocate(self._head(i).nbytes) for i in self.tensors}
        for i, copy in self._heads.items():
            self.gpu.copy(copy, self._head(i))
        changed_before = [i for i in self.tensors if self.before[i] is not self.begins[i]]
        self._untouched = {i: found for i in changed_before if (found := self._content(i)) is not None}

    def left_by(self, hooks: AbstractContextManager[object]) -> dict[int, Source]:
        """What a launch would find, by storage, inside of ``hooks``. The tensors are as before."""
        versions = {i: _version(tensor) for i, tensor in self.tensors.items()}
        with hooks:
            changed = [i for i in self.tensors if self._has_changed(i, versions[i])]
            found = {i: source for i in changed if (source := self._content(i)) is not None}
        self._put_back({*changed, *(i for i in self.tensors if self._has_changed(i, versions[i]))})
        return {**{i: source for i, source in self._untouched.items() if i not in changed}, **found}

    def _has_changed(self, i: int, version: int | None) -> bool:
        if version is None or _version(self.tensors[i]) != version:
            return True
        return self._differs(self._heads[i], self._head(i))

    def _content(self, i: int) -> Source | None:
        """What a tensor's storage holds now, if that isn't what the memory begins with; one copy of what is alike."""
        now = self.gpu.borrow(self.tensors[i])
        if not self._differs(self.begins[i], now):
            return None
        alike = (source for source in self._kept[i] if not self._differs(source.pristine, now))
        return next(alike, None) or self._keep(i, now)

    def _keep(self, i: int, now: Buffer) -> Source:
        held = sum(source.pristine.nbytes for several in self._kept.values() for source in several)
        kept = keep_at_home(self.gpu, now, self.inputs, held)
        self._kept[i].append(Source(kept.pristine, shared=False, far=kept.far))
        return self._kept[i][-1]

    def _head(self, i: int) -> Buffer:
        now = self.gpu.borrow(self.tensors[i])
        return self.gpu.part(now, 0, min(HEAD, now.nbytes))

    def _differs(self, expected: Buffer, now: Buffer) -> bool:
        dtype = "uint8" if now.nbytes % 8 else "int64"
        return self.gpu.compare(expected, now, dtype, 0.0) is not None

    def _put_back(self, storages: Iterable[int]) -> None:
        for i in storages:
            self.gpu.copy(self.gpu.borrow(self.tensors[i]), self.before[i])


def _version(tensor: Any) -> int | None:
    """How often torch has changed a tensor's memory; None where it doesn't count (tensors of the inference mode)."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return None


@dataclass
class FirstLaunchFault:
    """What a first launch came to; ``same`` are the candidates of this very ``work``, ``code`` is what their trials are
    stored with (:func:`kerntune.tuning.consensus.stored_code`)."""

    reason: str
    compiled: Compiled
    work: CandidateWork
    code: str
    same: list[int]
    hung: bool = False
    passing: bool = False
    """Another run may not find that."""


@dataclass
class FirstLaunchFaults:
    """Those of one kernel's tuning. A fault is settled once it is remembered."""

    _open: list[FirstLaunchFault] = field(default_factory=list)
    _settled: list[FirstLaunchFault] = field(default_factory=list)

    def add(self, fault: FirstLaunchFault) -> None:
        """One more."""
        self._open.append(fault)

    def like(self, work: CandidateWork) -> FirstLaunchFault | None:
        """The fault of the very same launch on the same contents."""
        return next((f for f in self._all() if f.work == work), None)

    def has(self, work: CandidateWork) -> bool:
        """Whether a launch has failed, on whatever contents."""
        code, grid, _ = work
        return any((code, grid) == f.work[:-1] for f in self._all())

    def indices(self) -> list[int]:
        """The candidates."""
        return [i for fault in self._all() for i in fault.same]

    def _all(self) -> list[FirstLaunchFault]:
        return self._open + self._settled

    def take_hung(self) -> list[FirstLaunchFault]:
        """Those that did not end, to be launched once more; they are no faults until then."""
        hung = [fault for fault in self._open if fault.hung]
        self._open = [fault for fault in self._open if not fault.hung]
        return hung

    @property
    def hangs(self) -> int:
        """How many did not end."""
        return sum(fault.hung for fault in self._open)

    def in_doubt(self, good: int) -> bool:
        """Whether so many have failed, and none is good, that others should be tried before the next in the list."""
        return not good and in_doubt(len(self._open), self.hangs)

    def without_hope(self, good: int, candidates: int) -> bool:
        """Whether it is clear before all were tried that the call is to blame."""
        return not good and is_hopeless(len(self._open), self.hangs, candidates)

    def blame_call(self, incumbent: int | None, good: int) -> bool:
        """Whether the incumbent is among them, or they are more than the ``good``."""
        return bool(self._open) and (incumbent in self.indices() or len(self._open) > good)

    def settle(self) -> list[FirstLaunchFault]:
        """Those that are to be remembered, once."""
        settled, self._open = self._open, []
        self._settled += settled
        return settled
