"""How the compiled code of launches differs from the baseline's, as hunks of text for reports."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from kerntune.base.case_result import CodeChange
from kerntune.base.config import COMPILE_FIELDS
from kerntune.base.device import Target
from kerntune.base.recording import Artifacts, Recording
from kerntune.capture.recorder import Recorded
from kerntune.compiling.binary.elf import Elf
from kerntune.compiling.binary.identity import first_stage_of, strip_debug, strip_locations
from kerntune.compiling.compiler import stages_from
from kerntune.compiling.farm import Farm
from kerntune.compiling.protocol import ASSEMBLY
from kerntune.errors import KerntuneError
from kerntune.gate.static_figures import LaunchStatic, in_both
from kerntune.static.disassembly import code_lines

MAX_LAUNCHES = 4
"""Launches of a case whose code is shown: each distinct change once."""

MAX_LINES = 400
"""Lines of a stage's difference that are kept: what a person reads. The rest is counted; ``kerntune code`` has it."""

MAX_LINE = 300
"""Characters of a line that are kept."""


@dataclass(frozen=True)
class StoredCode:
    """A baseline's launches with the bytes that it names; ``recording`` is that of a device, where there is one."""

    launches: Sequence[LaunchStatic]
    artifacts: Artifacts
    recording: Recording | None = None


def code_changes(
    stored: StoredCode, recorded: Recorded, today: Sequence[LaunchStatic], farm: Farm
) -> tuple[CodeChange, ...]:
    """The hunks of each launch whose source changed, for the first :data:`MAX_LAUNCHES` of them.

    Assembly is compared where the baseline's TTIR compiles under the same compiler today, machine code of NVIDIA GPUs
    beside it; else the TTIR alone. What can't be made is left out: a report is no reason for an error.
    """
    changed = {
        (old.code, new.code): (i, old, new)
        for i, old, new in in_both(stored.launches, today)
        if old.code != new.code and (old.source != new.source or not old.setting_changes(new))
    }
    texts = _Texts(stored, recorded, farm)
    return tuple(
        found for index, old, new in list(changed.values())[:MAX_LAUNCHES] for found in texts.changes(index, old, new)
    )


def options_of(launch: LaunchStatic) -> dict[str, object]:
    """The compile options that a baseline keeps of a launch."""
    given = {name: _number(launch.compiled_for[name]) for name in COMPILE_FIELDS if name in launch.compiled_for}
    return {**(launch.config.all_kwargs() if launch.config else {}), **given}


def _number(text: str) -> int | str:
    """A compile field as a number; what is none stays a text, which no compiler takes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS else text


MOST_DIGITS = 10
"""Digits of a compile field: Python refuses to read thousands."""


@dataclass(frozen=True)
class _Texts:
    stored: StoredCode
    recorded: Recorded
    farm: Farm

    def changes(self, index: int, old: LaunchStatic, new: LaunchStatic) -> Iterator[CodeChange]:
        ttir = self.stored.artifacts.get(old.ttir_sha256), self.recorded.artifacts.get(new.ttir_sha256)
        sides = dict(self._assembly(index, old, new, ttir[0])) if old.compiler == new.compiler and ttir[0] else {}
        if not sides and ttir[0] and ttir[1]:
            texts = [text.decode(errors="replace") for text in ttir if text]
            sides = {first_stage_of(texts[1]): (strip_locations(texts[0]), strip_locations(texts[1]))}
        for stage, (before, after) in sides.items():
            text, cut = hunk_text(_lines(before), _lines(after), MAX_LINES)
            if text:
                yield CodeChange(new.kernel, stage, text, cut)

    def _assembly(
        self, index: int, old: LaunchStatic, new: LaunchStatic, ttir: bytes
    ) -> Iterator[tuple[str, tuple[str, str]]]:
        """Stage and both texts; nothing where the baseline's can't be made."""
        recording = self.recorded.recording
        binary = recording.binary_of(recording.launches[index])
        kind = ASSEMBLY[recording.target.backend][0]
        try:
            made = self._made(recording.target, old, ttir, binary.options)
            asm = made[kind].decode(), self.recorded.asm[binary.sha256]
            yield kind, (strip_debug(asm[0], kind=kind), strip_debug(asm[1], kind=kind))
            if binary.kind == "cubin":
                cubins = self._cubin(old) or made["cubin"], self.recorded.artifacts[binary.sha256]
                yield "sass", (_machine_code(cubins[0], binary.arch), _machine_code(cubins[1], binary.arch))
        except (KerntuneError, KeyError, ValueError):  # the verdict stands, and the report says what it has
            return

    def _made(self, target: Target, old: LaunchStatic, ttir: bytes, own: Mapping[str, object]) -> Mapping[str, bytes]:
        return stages_from(self.farm, target, ttir, options_of(old), old.kernel, own)

    def _cubin(self, old: LaunchStatic) -> bytes | None:
        """The baseline's own binary, if it keeps one."""
        binaries = self.stored.recording.binaries if self.stored.recording is not None else ()
        return next((self.stored.artifacts.get(b.sha256) for b in binaries if b.code == old.code), None)


def _machine_code(cubin: bytes, arch: str) -> str:
    return "\n".join(code_lines(b"".join(code for _, code in Elf(cubin).text), arch))


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
    for a, b in (bare, (before, after)):
        found = _grouped(a, b)
        if found:
            return found
    return []


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
