"""Damaged entries of Triton's cache: found before they are used, set aside, and reported.

Triton keeps no checksums, and reads an entry as it is: a disk that was full, a machine that lost power or a cache that
was copied in part would give a wrong result, or an error that names neither kernel nor file.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from kerntune.compiling.binary.elf import kernel_symbol
from kerntune.compiling.kernel_facts import ASSEMBLY
from kerntune.errors import StoreError

SUFFIX = ".damaged"
"""The suffix of a file that was set aside, after its name."""

NEEDED = ("target", "name", "shared", "num_warps")
"""Fields of a kernel's metadata in every Triton, for every target."""

_WHOLE = re.compile(r"\n[ \t]*\}")
"""The end of a module or function in a text: a text that was cut off lacks it."""

_AMD_END = ".end_amdgpu_metadata"


def damage_in(group: Mapping[str, str], backend: str) -> tuple[Path, str] | None:
    """The first file of an entry (paths by name) that can't be what Triton wrote, and why; None if all are sound."""
    for name, path in group.items():
        try:
            why = _damage(Path(path).read_bytes(), name.rpartition(".")[2], backend)
        except FileNotFoundError:
            why = "it is gone"
        if why:
            return Path(path), why
    return None


def set_aside(folder: Path, group: str, path: Path) -> None:
    """Move the list of an entry's files away, so that Triton doesn't find the entry, and its damaged file, if that is
    in the entry's own folder. In a read-only folder they stay: a new compilation doesn't read them."""
    for file in (folder / group, *([path] if path.parent == folder else [])):
        with contextlib.suppress(OSError):
            file.replace(file.with_name(file.name + SUFFIX))


def _damage(data: bytes, stage: str, backend: str) -> str:
    assembly, binary = ASSEMBLY[backend]
    try:
        if stage == "json":
            return _metadata_damage(data)
        if stage == binary:
            kernel_symbol(data)
            return ""
        return _text_damage(data.decode(), stage == assembly, backend)
    except (StoreError, ValueError) as exc:  # JSON's errors and UTF-8's are ValueErrors
        return str(exc)


def _metadata_damage(data: bytes) -> str:
    found = json.loads(data)
    missing = [key for key in NEEDED if key not in found] if isinstance(found, dict) else list(NEEDED)
    return f"it lacks {', '.join(missing)}" if missing else ""


def _text_damage(text: str, is_assembly: bool, backend: str) -> str:
    if not text or text.isspace():
        return "it is empty"
    whole = _AMD_END in text if is_assembly and backend == "hip" else _WHOLE.search(text) is not None
    return "" if whole else "it is cut off"
