"""The code of launches in each compiler stage, and how it differs from the baseline's, as hunks for reports."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType

from kerntune.base.case_result import CodeChange
from kerntune.base.config import COMPILE_FIELDS
from kerntune.base.device import Target
from kerntune.base.recording import Artifacts, Binary
from kerntune.capture.recorder import Recorded
from kerntune.compiling.binary.elf import Elf
from kerntune.compiling.binary.identity import STAGES, first_stage_of, strip_debug, strip_locations
from kerntune.compiling.compiler import stages_from, ttir_text
from kerntune.compiling.farm import Farm
from kerntune.compiling.protocol import ASSEMBLY
from kerntune.errors import KerntuneError, UsageError
from kerntune.gate.static_figures import LaunchStatic, LaunchStatics, in_both
from kerntune.static.disassembly import code_lines

MAX_LAUNCHES = 4
"""Launches of a case whose code is shown: each distinct change once."""

MAX_LINES = 400
"""Lines of a stage's difference that are kept: what a person reads. The rest is counted; ``kerntune code`` has it."""

MAX_LINE = 300
"""Characters of a line that are kept."""


@dataclass(frozen=True)
class Side:
    """One side: its label, the bytes that it names, and its binaries if these are kept."""

    name: str
    artifacts: Artifacts
    binaries: Sequence[Binary] = ()


def code_changes(
    before: LaunchStatics, stored: Side, today: LaunchStatics, recorded: Recorded, farm: Farm
) -> tuple[CodeChange, ...]:
    """The hunks of each launch whose source changed, for the first :data:`MAX_LAUNCHES` of them.

    Assembly is compared where the baseline's TTIR compiles under the same compiler today, machine code of NVIDIA GPUs
    beside it; else the TTIR alone. What can't be made is left out: a report is no reason for an error.
    """
    changed = {
        (old.code, new.code): (i, old, new)
        for i, old, new in in_both(before, today)
        if old.code != new.code and (old.source != new.source or not old.setting_changes(new))
    }
    recording = recorded.recording
    now = Side("today", recorded.artifacts, recording.binaries)
    found: list[CodeChange] = []
    for index, old, new in list(changed.values())[:MAX_LAUNCHES]:
        binary = recording.binary_of(recording.launches[index])
        texts = Texts(farm, recording.target, binary.options)
        texts.know_assembly(new, recorded.asm.get(binary.sha256, ""))
        for stage, (a, b) in _both_sides(texts, (stored, old), (now, new)).items():
            text, cut = hunk_text(_lines(a), _lines(b), MAX_LINES)
            found += [CodeChange(new.kernel, stage, text, cut)] if text else []
    return tuple(found)


def _both_sides(
    texts: Texts, before: tuple[Side, LaunchStatic], after: tuple[Side, LaunchStatic]
) -> dict[str, tuple[str, str]]:
    """By stage both texts; of the first stage where no assembly can be made, and none where that isn't kept."""
    sides: dict[str, tuple[str, str]] = {}
    with suppress(KerntuneError, KeyError, ValueError):  # assembly stays where machine code can't be had
        for stage in texts.last_stages if before[1].compiler == after[1].compiler else ():
            sides[stage] = texts.of(*before, stage), texts.of(*after, stage)
    if not sides:
        with suppress(KerntuneError):
            old, new = texts.stages_of(*before)[0], texts.stages_of(*after)[0]
            sides[new] = texts.of(*before, old), texts.of(*after, new)
    return sides


def options_of(launch: LaunchStatic) -> dict[str, object]:
    """The compile options that a baseline keeps of a launch."""
    given = {name: _number(launch.compiled_for[name]) for name in COMPILE_FIELDS if name in launch.compiled_for}
    return {**(launch.config.all_kwargs() if launch.config else {}), **given}


def _number(text: str) -> int | str:
    """A compile field as a number; what is none stays a text, which no compiler takes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else text


MOST_DIGITS = 10
"""Digits of a compile field: Python refuses to read thousands."""

SASS = "sass"


class Texts:
    """The code of a launch in each stage. What isn't stored is compiled from the stored TTIR, in another process;
    ``own`` are options of today's launch (:func:`kerntune.compiling.compiler.stages_from`)."""

    def __init__(self, farm: Farm, target: Target, own: Mapping[str, object] = MappingProxyType({})) -> None:
        self._farm, self._target, self._own = farm, target, own
        self._made: dict[tuple[str, str], Mapping[str, bytes]] = {}

    @property
    def last_stages(self) -> tuple[str, ...]:
        """The target's assembly, and machine code where it can be disassembled."""
        assembly = ASSEMBLY[self._target.backend][0]
        return (assembly, SASS) if self._target.backend == "cuda" else (assembly,)

    def know_assembly(self, launch: LaunchStatic, text: str) -> None:
        """The launch was compiled to this already."""
        if text:
            self._made[self._key(launch)] = {self.last_stages[0]: text.encode()}

    def stages_of(self, side: Side, launch: LaunchStatic) -> tuple[str, ...]:
        """The stages of a launch, first to last; :class:`UsageError` if its first one isn't stored."""
        first = first_stage_of(ttir_text(self._stored(side, launch), launch.kernel))
        return (*(s for s in STAGES if s in (first, "ttgir", "llir")), *self.last_stages)

    def of(self, side: Side, launch: LaunchStatic, stage: str) -> str:
        """The text of one stage, without source locations; :class:`UsageError` if the kernel has no such stage there,
        or its first one isn't stored."""
        ttir = self._stored(side, launch)
        stages = self.stages_of(side, launch)
        if stage not in stages:
            raise UsageError(f"{launch.kernel} has no stage {stage} for {self._target}; there are {', '.join(stages)}")
        if stage == stages[0]:
            return strip_locations(ttir_text(ttir, launch.kernel))
        if stage == SASS:
            return self._machine_code(side, launch, ttir)
        made = self._compiled(launch, ttir)[stage].decode()
        kind = ASSEMBLY[self._target.backend][0]
        return strip_debug(made, kind=kind) if stage == kind else strip_locations(made)

    @staticmethod
    def _stored(side: Side, launch: LaunchStatic) -> bytes:
        found = side.artifacts.get(launch.ttir_sha256)
        if found is None:
            raise UsageError(f"{side.name}: the TTIR of {launch.kernel} ({launch.ttir_sha256[:12]}) is not stored")
        return found

    def _machine_code(self, side: Side, launch: LaunchStatic, ttir: bytes) -> str:
        """Of the side's own binary, if it keeps one."""
        binary = next((b for b in side.binaries if b.code == launch.code), None)
        cubin = None if binary is None else side.artifacts.get(binary.sha256)
        arch = "" if binary is None else binary.arch
        if cubin is None:
            made = self._compiled(launch, ttir)
            cubin, arch = made["cubin"], arch_in(made["ptx"].decode())
        return "\n".join(code_lines(b"".join(code for _, code in Elf(cubin).text), arch))

    def _key(self, launch: LaunchStatic) -> tuple[str, str]:
        return launch.ttir_sha256, repr(sorted(options_of(launch).items()))

    def _compiled(self, launch: LaunchStatic, ttir: bytes) -> Mapping[str, bytes]:
        key = self._key(launch)
        if key not in self._made:
            options = options_of(launch)
            self._made[key] = stages_from(self._farm, self._target, ttir, options, launch.kernel, self._own)
        return self._made[key]


def arch_in(ptx: str) -> str:
    """``sm_90a`` of ``.target sm_90a``."""
    line = next(line for line in ptx.splitlines() if line.startswith(".target"))
    return line.split()[1].rstrip(",")


def _lines(text: str) -> list[str]:
    return [line[:MAX_LINE] for line in text.splitlines()]


CONTEXT = 3
"""Lines that are shown before and after each difference, as diff -u does."""

MAX_COMPARED = 8_000
"""Lines of each side, without those in common at its beginning and end, that are compared: the time grows with the
product of both. What is beyond counts as not compared."""

_NUMBERED = re.compile(r"%[\w.$#]+|\$L\w+|\bU?[RP]\d+\b")
"""Values, labels and registers, which compilers number: one line more renames all that follow."""

Opcode = tuple[str, int, int, int, int]
"""Kind of a difference and the ranges of both sides, as :class:`difflib.SequenceMatcher` gives them."""


def hunks(before: Sequence[str], after: Sequence[str]) -> list[list[Opcode]]:
    """Differences with :data:`CONTEXT` lines around them.

    Lines that differ only in how values are numbered count as equal, unless nothing else differs.
    """
    bare = [[_NUMBERED.sub("%", line) for line in lines] for lines in (before, after)]
    return _grouped(*bare) or _grouped(before, after)


def hunk_text(before: Sequence[str], after: Sequence[str], most: int) -> tuple[str, int]:
    """:func:`hunks` as ``diff -u`` writes them, at most ``most`` lines; and how many lines were left out."""
    lines = [line for hunk in hunks(before, after) for line in _unified(hunk, before, after)]
    return "\n".join(lines[:most]), max(0, len(lines) - most)


def _grouped(before: Sequence[str], after: Sequence[str]) -> list[list[Opcode]]:
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    if start == len(before) == len(after):
        return []
    begin = max(0, start - CONTEXT)
    rest = zip(reversed(before[start:]), reversed(after[start:]), strict=False)
    end = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest)) - CONTEXT)
    old, new = (lines[begin : len(lines) - end][:MAX_COMPARED] for lines in (before, after))
    groups = difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT)
    return [
        [(tag, i + begin, j + begin, k + begin, m + begin) for tag, i, j, k, m in group]
        for group in groups
        if any(tag != "equal" for tag, *_ in group)
    ]


def _unified(hunk: Sequence[Opcode], before: Sequence[str], after: Sequence[str]) -> list[str]:
    first, last = hunk[0], hunk[-1]
    lines = [f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"]
    for tag, i, j, k, m in hunk:
        if tag == "equal":
            lines += [f" {line}" for line in after[k:m]]
        else:
            lines += [f"-{line}" for line in before[i:j]] + [f"+{line}" for line in after[k:m]]
    return lines
