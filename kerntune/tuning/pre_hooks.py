"""What configs' hooks leave in memory, where that differs from config to config.

A matrix product that is split along its sum adds to its output, so such a config has a ``pre_hook`` that zeroes it;
the others write every element and have none. Each must start from what its own hook leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from kerntune.capture import Capture, Site
from kerntune.gpu.base import Buffer, Gpu
from kerntune.gpu.memory import Memory, Source, keep_at_home, keep_content
from kerntune.gpu.program import First

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
            saved[i] = keep_content(gpu, gpu.borrow(tensor), memory.inputs, held)
        begins = {i: saved[i] if memory.sources[i].shared else memory.sources[i].pristine for i in tensors}
        before = begins if pending.ran else saved  # what has run was followed by others, which the tensors hold
        tried = _Tried(gpu, tensors, before, begins, memory.inputs)
        return {i: tried.left_by(capture.trying(site, i)) for i in among}
    finally:
        for i, copy in saved.items():
            gpu.copy(gpu.borrow(tensors[i]), copy)


@dataclass
class _Tried:
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
        self._heads = {i: self._copy_of_head(i) for i in self.tensors}
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

    def _copy_of_head(self, i: int) -> Buffer:
        head = self._head(i)
        copy = self.gpu.allocate(head.nbytes)
        self.gpu.copy(copy, head)
        return copy

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
