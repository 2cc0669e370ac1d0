"""Writes a launch as a folder that a compiler team can run: source, compiler stages, binary, arguments, a script."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import msgspec

from kerntune import __version__
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.recording import (
    Binary,
    Launch,
    Normal,
    Param,
    Recording,
    Scratch,
    Storage,
    Stored,
    View,
    Zeros,
)
from kerntune.compiling.binary.elf import Elf
from kerntune.errors import BackendError, StoreError
from kerntune.gpu import replay_script
from kerntune.gpu.compare import FLOATS
from kerntune.gpu.memory import TILE, content_bytes
from kerntune.static.disassembly import code_lines

REPEATED_BYTES = 8 * TILE
"""Of a described content, so many bytes are written, which ``replay.py`` repeats."""

LAUNCH_FILE, SCRIPT_FILE, SOURCE_FILE = "launch.json", "replay.py", "kernel.py"


class ContentFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stored", tag_field="kind"):
    """Bytes in a file of the folder, over and over."""

    file: str


class DumpedStorage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An allocation, as in a recording."""

    nbytes: int
    dtype: str
    content: Union[Zeros, ContentFile]
    read: bool
    written: bool


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a storage held after the recorded launch: the bytes of ``file``."""

    storage: int
    file: str


class LaunchDump(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``launch.json``: one launch with everything that running it needs, besides the files that it names.

    ``binary`` is a file; ``views`` and ``storages`` are those of this launch alone. ``compiled_for`` says what the
    compiler knew of each argument, ``unreplayable`` why the launch can't be run from these files (empty if it can).
    """

    kernel: str
    case: str
    symbol: str
    arch: str
    binary: str
    triton: str
    assembler: str
    kerntune: str
    environment: Environment | None
    config: Config | None
    constexprs: dict[str, str]
    compiled_for: dict[str, str]
    options: dict[str, Any]
    settings: dict[str, str]
    grid: tuple[int, int, int]
    num_warps: int
    warp_size: int
    num_ctas: int
    shared: int
    cooperative: bool
    pdl: bool
    global_scratch: Scratch
    profile_scratch: Scratch
    params: tuple[Param, ...]
    views: tuple[View, ...]
    storages: tuple[DumpedStorage, ...]
    expected: tuple[Expected, ...] = ()
    unreplayable: str = ""
    schema: str = replay_script.SCHEMA


AS_IN_BINARY = (
    "symbol", "arch", "triton", "assembler", "constexprs", "options", "settings", "num_warps", "warp_size", "num_ctas",
    "shared", "cooperative", "pdl", "global_scratch", "profile_scratch",
)  # fmt: skip
"""Fields of a :class:`LaunchDump` that its binary has by the same names."""


@dataclass(frozen=True)
class DumpedContents:
    """What storages held, by their index in the recording: ``before`` the launch where that is to be kept exactly, and
    ``after`` it where that is known."""

    before: Mapping[int, bytes] = field(default_factory=dict)
    after: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class DumpedTexts:
    """The kernel's ``source``, the texts of compiler ``stages`` by name, and what the compiler knew of arguments."""

    source: str = ""
    stages: Mapping[str, str] = field(default_factory=dict)
    compiled_for: Mapping[str, str] = field(default_factory=dict)


def write_launch(
    folder: Path,
    recording: Recording,
    index: int,
    artifacts: Mapping[str, bytes],
    texts: DumpedTexts,
    *,
    contents: DumpedContents | None = None,
    environment: Environment | None = None,
    case: str = "",
    name: str = "",
) -> Path:
    """Write launch ``index`` of a recording as a new folder in ``folder``; its path.

    The folder's name is ``name``, else the kernel's with a hash of code, grid and arguments: the same launch is written
    once. A folder appears whole. :class:`StoreError` if the binary is not among ``artifacts``, ``OSError`` where
    nothing can be written.
    """
    launch, binary = recording.launches[index], recording.binary_of(recording.launches[index])
    if binary.sha256 not in artifacts:
        raise StoreError(
            f"kernel {launch.kernel}: its binary {binary.sha256[:12]} is not stored, so it can't be dumped"
        )
    final = folder / (name or f"{plain_name(launch.kernel)}-{_digest(recording, launch, binary)}")
    if final.is_dir():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        _write_files(made, recording, launch, artifacts, texts, contents or DumpedContents(), environment, case)
        made.chmod(0o755)
        with contextlib.suppress(OSError):  # another process has written the same launch meanwhile
            os.rename(made, final)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not final.is_dir():
        raise OSError(f"{final} can't be written")
    return final


def _write_files(
    made: Path,
    recording: Recording,
    launch: Launch,
    artifacts: Mapping[str, bytes],
    texts: DumpedTexts,
    contents: DumpedContents,
    environment: Environment | None,
    case: str,
) -> None:
    binary = recording.binary_of(launch)
    used = sorted({recording.views[p.view].storage for p in launch.params if p.view is not None})
    for stage, text in texts.stages.items():
        (made / f"kernel.{stage}").write_text(text, encoding="utf-8")
    if texts.source:
        (made / SOURCE_FILE).write_text(texts.source, encoding="utf-8")
    data = artifacts[binary.sha256]
    (made / f"kernel.{binary.kind}").write_bytes(data)
    sass = machine_code(binary, data)
    if sass:
        (made / "kernel.sass").write_text(sass, encoding="utf-8")
    storages = tuple(_storage(made, recording, launch, i, artifacts, contents) for i in used)
    expected = tuple(_expected(made, used.index(i), contents.after[i]) for i in used if i in contents.after)
    found = _described(recording, launch, used, storages, expected, texts, environment, case)
    (made / LAUNCH_FILE).write_bytes(to_json(found))
    if binary.kind == "cubin":
        shutil.copyfile(replay_script.__file__, made / SCRIPT_FILE)


def _described(
    recording: Recording,
    launch: Launch,
    used: list[int],
    storages: tuple[DumpedStorage, ...],
    expected: tuple[Expected, ...],
    texts: DumpedTexts,
    environment: Environment | None,
    case: str,
) -> LaunchDump:
    binary = recording.binary_of(launch)
    seen = list(dict.fromkeys(p.view for p in launch.params if p.view is not None))
    params = tuple(p if p.view is None else msgspec.structs.replace(p, view=seen.index(p.view)) for p in launch.params)
    views = tuple(
        msgspec.structs.replace(recording.views[v], storage=used.index(recording.views[v].storage)) for v in seen
    )
    hidden = "it follows addresses that are of the recorded process" if recording.hidden_pointers else ""
    return LaunchDump(
        **{name: getattr(binary, name) for name in AS_IN_BINARY},
        kernel=launch.kernel,
        case=case,
        binary=f"kernel.{binary.kind}",
        kerntune=__version__,
        environment=environment,
        config=launch.config,
        compiled_for=dict(texts.compiled_for),
        grid=launch.grid,
        params=params,
        views=views,
        storages=storages,
        expected=expected,
        unreplayable=binary.unreplayable or hidden,
    )


def _storage(
    made: Path,
    recording: Recording,
    launch: Launch,
    index: int,
    artifacts: Mapping[str, bytes],
    contents: DumpedContents,
) -> DumpedStorage:
    storage = recording.storages[index]
    content: Zeros | ContentFile = Zeros()
    data = contents.before.get(index)
    if data is None:
        data = _first_content(storage, artifacts)
    if data is not None:
        content = ContentFile(f"content-{index}.bin")
        (made / content.file).write_bytes(data)
    return DumpedStorage(storage.nbytes, storage.dtype, content, index in launch.reads, index in launch.writes)


def _first_content(storage: Storage, artifacts: Mapping[str, bytes]) -> bytes | None:
    """What replays of kerntune's own give a storage; None for zeros."""
    if not isinstance(storage.content, Stored):
        return content_bytes(msgspec.structs.replace(storage, nbytes=min(storage.nbytes, REPEATED_BYTES)))
    if storage.content.sha256 not in artifacts:
        raise StoreError(f"a storage's content {storage.content.sha256[:12]} is not stored, so it can't be dumped")
    return artifacts[storage.content.sha256]


def _expected(made: Path, index: int, data: bytes) -> Expected:
    file = f"expected-{index}.bin"
    (made / file).write_bytes(data)
    return Expected(index, file)


def _digest(recording: Recording, launch: Launch, binary: Binary) -> str:
    views = [recording.views[p.view] for p in launch.params if p.view is not None]
    text = to_json((binary.sha256, launch.grid, launch.params, views))
    return hashlib.sha256(text).hexdigest()[:12]


def machine_code(binary: Binary, data: bytes) -> str:
    """The instructions of an NVIDIA binary, as nvdisasm prints them; empty without a disassembler for it."""
    if binary.kind != "cubin":
        return ""
    try:
        return "\n".join([*code_lines(b"".join(code for _, code in Elf(data).text), binary.arch), ""])
    except (BackendError, StoreError):
        return ""


def guessed(recording: Recording) -> Recording:
    """Where nothing ran: floating-point numbers are taken for normally distributed, all else for zeros."""
    storages = tuple(
        msgspec.structs.replace(s, content=Normal(seed=i)) if s.dtype in FLOATS or s.dtype == "bfloat16" else s
        for i, s in enumerate(recording.storages)
    )
    return msgspec.structs.replace(recording, storages=storages)


def folder_name(text: str) -> str:
    """A case's or kernel's name as that of a folder, distinct for distinct texts."""
    return f"{plain_name(text)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def plain_name(text: str) -> str:
    """A case's or kernel's name as part of a file's name: no separator, at most 80 characters."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:80]
