"""The messages between the farm, its fork server and its worker processes; :mod:`kerntune.base.frames` carries them."""

from __future__ import annotations

from typing import Any, Union

import msgspec

from kerntune.kernels.access import Access


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker that the fork server is to fork: its limit of address space in bytes (0: none), knobs as
    :class:`kerntune.compiling.knobs.CompilerEnvironment` has them, and its temporary folder.

    Standard input, output and error of the worker and its status pipe come with it (:data:`DESCRIPTORS`).
    """

    memory: int
    knobs: str
    folder: str


READY = "ready"
"""The fork server's first message: it takes requests."""

DESCRIPTORS = 4
"""Descriptors that come with a :class:`ForkRequest`."""


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """A worker's first message: it has imported ``triton`` of this version from ``path``."""

    triton: str
    path: str


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="job"):
    """A kernel after the front end: MLIR text after stage ``ext``, and the input of the other stages.

    ``options`` are the fields of the backend's option object and ``options_hash`` its hash; ``metadata`` is the JSON
    object that Triton's stages add to.
    """

    ir: str
    ext: str
    language: str
    backend: str
    arch: int | str
    warp_size: int
    options: dict[str, Any]
    options_hash: str
    metadata: bytes


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Static facts of a compiled kernel that take milliseconds to find, and need nothing of the parent's process.

    ``ttir`` is without source locations; ``bare`` the assembly text that a code identity hashes.
    """

    ttir: str
    bare: str
    access: Access


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="done"):
    """A compiled kernel: the output of each stage (text as UTF-8), the metadata after them, microseconds by stage.

    ``address_space`` is the worker's size in bytes afterwards.
    """

    stages: dict[str, bytes]
    metadata: bytes
    times: list[tuple[str, int]]
    address_space: int = 0
    facts: Facts | None = None

    @property
    def seconds(self) -> float:
        """Time that the stages took together."""
        return sum(us for _, us in self.times) / 1e6


class CompileFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"):
    """The compiler raised an exception, or (``refused``) the worker can't compile this as the parent would.

    ``passing``: the system has refused something (a full disk, say), which has nothing to do with the job.
    """

    reason: str
    refused: bool = False
    passing: bool = False


Answer = Union[Hello, Done, CompileFailed]
