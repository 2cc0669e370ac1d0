"""The compiler's stages as texts: which is the first that differs between two compilations."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping

from kerntune.compiling.binary.identity import AsmKind, anonymous, strip_debug

FIRST_STAGES = ("ttir", "glir")
"""What Triton's front end makes of a kernel in Triton, and of one in Gluon: the text that a baseline keeps."""

MLIR_STAGES = (*FIRST_STAGES, "ttgir")
STAGES = (*MLIR_STAGES, "llir", "ptx", "amdgcn")
"""Triton's stages that are text, in the order in which they are made; a kernel has one of the first two, a backend
one of the last two."""

HASH_DIGITS = 16
"""Of SHA-256: 64 bits tell the few texts of one case apart, and keep baselines small."""

_GLUON_MODULE = re.compile(r'^module attributes \{[^\n]*"ttg\.num-warps"', re.MULTILINE)
"""The head of a module whose layouts are given, which TTIR has none of (``IRSource.parse_options`` of Triton asks a
GLIR module for its warps there)."""

_MLIR_FUNCTION = re.compile(r"^[ \t]*tt\.func\b[^@\n]*@([\w.$]+)", re.MULTILINE)
_LLVM_FUNCTION = re.compile(r"^define\b[^@\n]*@([\w.$]+)", re.MULTILINE)
_MLIR_VALUE = re.compile(r"%[A-Za-z_][\w$-]*|%\d+")
_MLIR_DEFINES = re.compile(r"(?::\d+)?\s=|:\s")
"""After a name where it is defined: an operation's results (``%0:2 =``) or a block's argument (``%x: i32``)."""

_LLVM_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*"?)|;[^\n]*')
_LLVM_IDLE = re.compile(r"^(?:source_filename|!\S|\s*$)|^\s*(?:call void @llvm\.dbg|#dbg_)")
_LLVM_ATTACHED = re.compile(r",? !dbg !\d+")


def stage_hashes(texts: Mapping[str, str | bytes], asm_stage: AsmKind) -> dict[str, str]:
    """A hash of each stage's text, the first stage first.

    Source locations, comments and the names of values and functions don't count: they follow the Python source.
    """
    found = {name: text for name in STAGES if isinstance(text := texts.get(name), str)}
    return {name: _hash(_normal(name, text, asm_stage)) for name, text in found.items()}


def first_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The first stage that differs, as ``TTGIR``; empty if none does, or no stage is known of both sides."""
    known = [name for name in STAGES if name in before and name in after]
    return next((name.upper() for name in known if before[name] != after[name]), "")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def _normal(stage: str, text: str, asm_stage: AsmKind) -> str:
    if stage in MLIR_STAGES:
        return _renamed(strip_locations(text), _MLIR_FUNCTION)
    if stage == "llir":
        return _renamed("\n".join(_llvm_lines(text)), _LLVM_FUNCTION)
    return anonymous(strip_debug(text, kind=asm_stage), asm_stage)


def _llvm_lines(text: str) -> Iterable[str]:
    bare = _LLVM_COMMENT.sub(lambda m: m[1] or "", text)
    return (_LLVM_ATTACHED.sub("", line).rstrip() for line in bare.splitlines() if not _LLVM_IDLE.match(line))


def _renamed(text: str, functions: re.Pattern[str]) -> str:
    """Functions that the text defines and all values by their order."""
    names = {name: f"@function_{i}" for i, name in enumerate(dict.fromkeys(functions.findall(text)))}
    text = re.sub(r"@([\w.$]+)", lambda m: names.get(m[1], m[0]), text)
    values: dict[str, str] = {}
    made = itertools.count()

    def numbered(match: re.Match[str]) -> str:
        # A name may be used again in another region, so each definition is a new value.
        if match[0] not in values or _MLIR_DEFINES.match(text, match.end()):
            values[match[0]] = f"%{next(made)}"
        return values[match[0]]

    return _MLIR_VALUE.sub(numbered, text)


def first_stage_of(text: str) -> str:
    """Which of :data:`FIRST_STAGES` the text of a module is of."""
    return "glir" if _GLUON_MODULE.search(text) else "ttir"


def strip_locations(ttir: str) -> str:
    """MLIR text without source locations: the same module, whatever file and line it came from."""
    lines = [line for line in ttir.splitlines() if not line.startswith("#loc")]
    return "\n".join(_without_loc(line) for line in lines) + "\n"


def _without_loc(line: str) -> str:
    out, at = [], 0
    for match in re.finditer(r"\bloc\(", line):
        if match.start() < at:
            continue
        out.append(line[at : match.start()].rstrip())
        at = _closing(line, match.end())
    return "".join(out) + line[at:]


def _closing(line: str, at: int) -> int:
    depth, quoted = 1, False
    while at < len(line) and depth:
        char = line[at]
        if char == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
        at += 1
    return at
