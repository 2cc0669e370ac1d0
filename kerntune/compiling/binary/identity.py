"""When two compilations are the same code, and which of the compiler's stages is the first that differs.

Hashes leave out names, paths, comments and debug information. The stages are compared as texts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from kerntune.compiling.binary.elf import text_sections
from kerntune.errors import UsageError

AsmKind = Literal["ptx", "amdgcn"]

NOT_CODE = frozenset({"hash", "name", "target", "ir_override"})
"""Options that don't change the code, or whose effect is in the assembler text anyway; ``hash`` covers the Python
source with its comments. Any other option counts, unknown ones too, and so does ``triton_version``, since Triton gives
ptxas flags of its own (3.9: ``--regAllocOptLevel=2``). Two hashes for one code cost a measurement, one hash for two
codes would hide a change."""

_PATHS = frozenset({"extern_libs"})
"""Options that hold paths; only file names count, since what is linked is in the assembler text."""

_STRING = r'"(?:\\.|[^"\\\n])*"?'
"""A text in quotes, to the end of its line if nothing closes it: each character is looked at once."""

_BLOCK = r"/\*.*?(?:\*/|\Z)"
_COMMENT = {
    "ptx": re.compile(rf"({_STRING})|//[^\n]*|{_BLOCK}", re.DOTALL),
    "amdgcn": re.compile(rf"({_STRING})|;[^\n]*|//[^\n]*|{_BLOCK}", re.DOTALL),
}
_PTX_DEBUG_SECTION = re.compile(r"^[ \t]*\.section[ \t]+\.debug_\w+\s*\{[^}]*(?:\}|\Z)", re.MULTILINE)
_AMD_DEBUG_SECTION = re.compile(
    r"^[ \t]*\.section[ \t]+\.debug_.*?(?=^[ \t]*\.(?:section|text|data|bss|amdgpu_metadata)\b|\Z)",
    re.MULTILINE | re.DOTALL,
)
_DEBUG_LINE = re.compile(r"^\s*\.(?:loc|file|ident|cfi_\w+)\b")
_LABEL = re.compile(r"^([$.]L[\w$.]*):$")
_LABEL_NAME = re.compile(r"(?<![\w$.])[$.]L[\w$.]*")

_PTX_FUNCTION = re.compile(r"^(?:\.(?:visible|weak)\s+)?\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)
_AMD_FUNCTION = re.compile(r"^\.type\s+([\w$.]+),@function", re.MULTILINE)


def bare_text(asm_text: str, kind: AsmKind) -> str:
    """Assembly text as an identity sees it: only what assembles to machine code, functions named by their order."""
    return anonymous(strip_debug(asm_text, kind=kind), kind)


def identity_of(
    bare: str,
    *,
    kind: AsmKind,
    options: Mapping[str, Any],
    assembler: str,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """SHA-256 (hex) of what a kernel's code is.

    ``bare`` is the PTX or amdgcn text as :func:`bare_text` makes it, ``options`` the compilation's options (a whole
    Triton metadata mapping will do), ``assembler`` the version of what makes machine code of it: ptxas's, or Triton's
    own for AMD, ``settings`` the assembler's settings that only the environment holds
    (:data:`kerntune.kernels.compat.launch_environment.ASSEMBLER_ONLY`).

    Comments, local names, the names of the kernel and of functions that it calls, paths and line numbers of the source
    don't change it. Not covered: a ``tl.device_assert`` that is compiled in carries its file and line as data.
    """
    parts: dict[str, Any] = {"kind": kind, "assembler": assembler.strip(), "code": bare}
    parts["options"] = _canonical_options(options)
    if settings:
        parts["settings"] = dict(settings)  # only then: what is compiled as usual keeps its identity
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def text_identity(binary: bytes) -> str:
    """SHA-256 (hex) of a cubin's or hsaco's machine code, its ``.text`` sections' bytes in order.

    A whole cubin changes with the source's path and comments, its machine code doesn't. Raises :class:`StoreError` for
    a damaged binary.
    """
    digest = hashlib.sha256()
    for _name, code in text_sections(binary):
        digest.update(len(code).to_bytes(8, "little") + code)
    return digest.hexdigest()


def strip_debug(asm_text: str, *, kind: AsmKind) -> str:
    """PTX or amdgcn text without comments, debug sections, line directives and labels that nothing names.

    What is left assembles to the same machine code; lines are stripped and blanks within them made single.
    """
    section = _PTX_DEBUG_SECTION if kind == "ptx" else _AMD_DEBUG_SECTION
    bare = _COMMENT[kind].sub(lambda m: m[1] or " ", asm_text)
    lines = (line for line in section.sub("", bare).splitlines() if not _DEBUG_LINE.match(line))
    said = [" ".join(line.split()) for line in lines if line.strip()]
    # Debug information marks the code with labels of its own; without it nothing names them.
    about = [line for line in said if "$L" in line or ".L" in line]  # quick, and few are
    named = {word for line in about if not _LABEL.match(line) for word in _LABEL_NAME.findall(line)}
    idle = {line for line in about if (label := _LABEL.match(line)) and label[1] not in named}
    return "\n".join(line for line in said if line not in idle) + "\n"


def anonymous(text: str, kind: AsmKind) -> str:
    """``text`` with the names of functions that it defines replaced by their order.

    Names come from the Python source; a called function's also from its module. Only places where a name can stand are
    touched, so that a kernel named ``add`` leaves the instruction ``add`` alone.
    """
    pattern = _PTX_FUNCTION if kind == "ptx" else _AMD_FUNCTION
    names = {name: f"function_{i}" for i, name in enumerate(dict.fromkeys(pattern.findall(text)))}
    if not names:
        return text
    renamed = _renamed_ptx if kind == "ptx" else _renamed_amd
    few = list(names) if len(names) <= FEW_NAMES else [""]  # then every line is looked at
    lines = text.split("\n")  # few have a name
    return "\n".join(renamed(line, names) if any(name in line for name in few) else line for line in lines)


FEW_NAMES = 8
"""Functions whose names are looked for in each line before its words are looked at."""

_PTX_WORD = re.compile(r"[\w$]+")
_PARAMETER = re.compile(r"_param_\d")


def _renamed_ptx(line: str, names: Mapping[str, str]) -> str:
    """A line of PTX with other names where functions stand: never first on a line, where instructions are, unless as
    in ``name, ...`` or ``name(``; and before ``_param_0``."""

    def new(match: re.Match[str]) -> str:
        word, before, after = match[0], line[match.start() - 1 : match.start()], line[match.end() : match.end() + 1]
        if word in names and ((before in _PTX_BEFORE and after != ".") or (not match.start() and after in _PTX_AFTER)):
            return names[word]
        if before not in ("%", "."):
            for at in _parameters(word):
                if word[:at] in names:
                    return names[word[:at]] + word[at:]
        return word

    return _PTX_WORD.sub(new, line)


_PTX_BEFORE, _PTX_AFTER = (" ", "(", "[", ","), (",", "(")

MOST_PARTS = 9
"""Parts of a name with dots, and parameters' suffixes in a word, that are looked at: none has two."""


def _parameters(word: str) -> list[int]:
    """Where ``_param_0`` stands in a word, the last first."""
    return [match.start() for match in itertools.islice(_PARAMETER.finditer(word), MOST_PARTS)][::-1]


_AMD_WORD = re.compile(r"[\w$.]+")


def _renamed_amd(line: str, names: Mapping[str, str]) -> str:
    """A line of amdgcn with other names where functions stand: as operands, as labels, and in local labels
    (``.Lname.end``)."""

    def new(match: re.Match[str]) -> str:
        word, before, after = match[0], line[match.start() - 1 : match.start()], line[match.end() : match.end() + 1]
        if not match.start() and after == ":" and word in names:
            return names[word]
        parts, out = word.split("."), []
        at = _named(parts, len(parts), names) if before in _AMD_BEFORE and match.start() else 0
        if at:
            out.append(names[".".join(parts[:at])])
        while at < len(parts):
            part, taken = parts[at], 0
            if at and part.startswith("L"):  # a dot must follow the name
                local = [part[1:], *parts[at + 1 : at + MOST_PARTS]]
                taken = _named(local, len(parts) - at - 1, names)
            out.append("L" + names[".".join(local[:taken])] if taken else part)
            at += taken or 1
        return ".".join(out)

    return _AMD_WORD.sub(new, line)


_AMD_BEFORE = (" ", ",", "(", "-")


def _named(parts: Sequence[str], most: int, names: Mapping[str, str]) -> int:
    """How many of the parts, joined by dots, make a name: at ``most`` so many, the most that do; 0 if none do."""
    longest = min(most, len(parts), MOST_PARTS)
    return next((n for n in range(longest, 0, -1) if ".".join(parts[:n]) in names), 0)


def _canonical_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that count, as JSON values; ``None`` is left out, so a new option that is unset changes nothing."""
    return {
        name: _canonical(name, _file_names(value) if name in _PATHS else value)
        for name, value in sorted(options.items())
        if name not in NOT_CODE and value is not None
    }


def _file_names(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\\", "/").rpartition("/")[2]
    if isinstance(value, Mapping):
        return {str(k): _file_names(v) for k, v in value.items()}
    return [_file_names(v) for v in value] if isinstance(value, (list, tuple)) else value


def _canonical(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): _canonical(name, v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, (list, tuple)):
        return [_canonical(name, v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_canonical(name, v)) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _canonical(name, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    kind = type(value).__name__
    raise UsageError(f"option {name!r} has a {kind}, which has no stable text; pass plain values")


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


def stage_hashes(texts: Mapping[str, str | bytes]) -> dict[str, str]:
    """A hash of each stage's text, the first stage first.

    Source locations, comments and the names of values and functions don't count: they follow the Python source.
    """
    found = {name: text for name in STAGES if isinstance(text := texts.get(name), str)}
    hashes = {name: hashlib.sha256(_normal(name, text).encode()) for name, text in found.items()}
    return {name: digest.hexdigest()[:HASH_DIGITS] for name, digest in hashes.items()}


def first_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The first stage that differs, as ``TTGIR``; empty if none does, or no stage is known of both sides."""
    known = [name for name in STAGES if name in before and name in after]
    return next((name.upper() for name in known if before[name] != after[name]), "")


def _normal(stage: str, text: str) -> str:
    if stage in MLIR_STAGES:
        return _renamed(strip_locations(text), _MLIR_FUNCTION)
    if stage == "llir":
        bare = _LLVM_COMMENT.sub(lambda m: m[1] or "", text)
        lines = (line for line in bare.splitlines() if not _LLVM_IDLE.match(line))
        return _renamed("\n".join(_LLVM_ATTACHED.sub("", line).rstrip() for line in lines), _LLVM_FUNCTION)
    return bare_text(text, "ptx" if stage == "ptx" else "amdgcn")


def _renamed(text: str, functions: re.Pattern[str]) -> str:
    names = {n: f"@function_{i}" for i, n in enumerate(dict.fromkeys(functions.findall(text)))}
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
