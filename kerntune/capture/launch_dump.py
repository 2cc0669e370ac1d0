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
        missing = f"kernel {launch.kernel}: its binary {binary.sha256[:12]} is not stored"
        raise StoreError(f"{missing}, so it can't be dumped")
    final = folder / (name or f"{plain_name(launch.kernel)}-{_digest(recording, launch, binary)}")
    if final.is_dir():
        return final
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        contents = contents or DumpedContents()
        _LaunchFolder(made, recording, launch, artifacts, texts, contents, environment, case).write()
        made.chmod(0o755)
        with contextlib.suppress(OSError):  # another process has written the same launch meanwhile
            os.rename(made, final)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not final.is_dir():
        raise OSError(f"{final} can't be written")
    return final


@dataclass
class _LaunchFolder:
    """The folder of one launch while it is written: ``made`` gets its files."""

    made: Path
    recording: Recording
    launch: Launch
    artifacts: Mapping[str, bytes]
    texts: DumpedTexts
    contents: DumpedContents
    environment: Environment | None = None
    case: str = ""

    def __post_init__(self) -> None:
        self._binary, views = self.recording.binary_of(self.launch), self.recording.views
        self._views = list(dict.fromkeys(p.view for p in self.launch.params if p.view is not None))
        self._used = sorted({views[v].storage for v in self._views})

    def write(self) -> None:
        """All files."""
        for stage, text in self.texts.stages.items():
            (self.made / f"kernel.{stage}").write_text(text, encoding="utf-8")
        if self.texts.source:
            (self.made / SOURCE_FILE).write_text(self.texts.source, encoding="utf-8")
        data = self.artifacts[self._binary.sha256]
        (self.made / f"kernel.{self._binary.kind}").write_bytes(data)
        if sass := machine_code(self._binary, data):
            (self.made / "kernel.sass").write_text(sass, encoding="utf-8")
        (self.made / LAUNCH_FILE).write_bytes(to_json(self._described()))
        if self._binary.kind == "cubin":
            shutil.copyfile(replay_script.__file__, self.made / SCRIPT_FILE)

    def _described(self) -> LaunchDump:
        used, after, replace = self._used, self.contents.after, msgspec.structs.replace
        views = [self.recording.views[v] for v in self._views]
        at = self._views.index
        params = (p if p.view is None else replace(p, view=at(p.view)) for p in self.launch.params)
        hidden = "it follows addresses that are of the recorded process" if self.recording.hidden_pointers else ""
        return LaunchDump(
            **{name: getattr(self._binary, name) for name in AS_IN_BINARY},
            kernel=self.launch.kernel,
            case=self.case,
            binary=f"kernel.{self._binary.kind}",
            kerntune=__version__,
            environment=self.environment,
            config=self.launch.config,
            compiled_for=dict(self.texts.compiled_for),
            grid=self.launch.grid,
            params=tuple(params),
            views=tuple(replace(view, storage=used.index(view.storage)) for view in views),
            storages=tuple(map(self.storage, used)),
            expected=tuple(_expected(self.made, used.index(i), after[i]) for i in used if i in after),
            unreplayable=self._binary.unreplayable or hidden,
        )

    def storage(self, index: int) -> DumpedStorage:
        """A storage, whose first content is written where it is known."""
        storage, launch = self.recording.storages[index], self.launch
        content: Zeros | ContentFile = Zeros()
        data = self.contents.before.get(index)
        if data is None:
            data = _first_content(storage, self.artifacts)
        if data is not None:
            content = ContentFile(f"content-{index}.bin")
            (self.made / content.file).write_bytes(data)
        return DumpedStorage(storage.nbytes, storage.dtype, content, index in launch.reads, index in launch.writes)


def _first_content(storage: Storage, artifacts: Mapping[str, bytes]) -> bytes | None:
    """What replays of kerntune's own give a storage; None for zeros."""
    if not isinstance(storage.content, Stored):
        return content_bytes(msgspec.structs.replace(storage, nbytes=min(storage.nbytes, REPEATED_BYTES)))
    if storage.content.sha256 not in artifacts:
        content = storage.content.sha256[:12]
        raise StoreError(f"a storage's content {content} is not stored, so it can't be dumped")
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
