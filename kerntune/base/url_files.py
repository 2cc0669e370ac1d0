"""Files behind a URL: which one it names, which packages it needs, and how it is read and written.

Messages show a URL without its secrets. Reads are bounded, and a file that is created is created by one of all who try.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kerntune.base import codec
from kerntune.base.folders import temporary_name
from kerntune.base.formatting import visible
from kerntune.errors import StoreError, UsageError

CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs"})
"""Protocols whose service takes a write on the condition that there is nothing yet: fsspec's ``mode="create"``. S3 by
``If-None-Match: *`` (AWS's documentation of PutObject), Google's by ``ifGenerationMatch=0``."""

SFTP = frozenset({"sftp", "ssh"})

READ_ONLY = frozenset({"hf"})
"""Protocols that are only read here: each write to a repository of Hugging Face is a commit."""

PACKAGES = {
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    "hf": "huggingface_hub",
}
"""What each protocol needs beside fsspec; of the ones that aren't here fsspec says it."""

_URL = re.compile(r"[a-z][a-z0-9+.-]+://")


def is_url(text: str) -> bool:
    """Whether a text is a URL rather than a path."""
    return bool(_URL.match(text))


def protocol_of(url: str) -> str:
    """``s3`` of ``s3://bucket/path``."""
    return url.partition("://")[0]


def shown_url(url: str) -> str:
    """A URL for messages, without a password and with nothing that can't be printed."""
    url = visible(url)
    head, at, rest = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}{at}{rest}" if at and "/" not in user else url


def without_password(text: str, url: str) -> str:
    """A text that may have a URL in it, without its password."""
    return text.replace(url, shown_url(url))


def check_packages(url: str) -> None:
    """:class:`UsageError` if a package that a URL needs is missing, without connecting to anything."""
    protocol = protocol_of(url)
    needed = {PACKAGES[protocol]: PACKAGES[protocol]} if protocol in PACKAGES else {}
    if protocol not in {"file", *SFTP}:
        needed["fsspec.core"] = "kerntune[store], which brings fsspec"
    for module, package in needed.items():
        found = None
        with suppress(ModuleNotFoundError):  # the package that it is in
            found = sys.modules.get(module) or find_spec(module)
        if not found:
            raise UsageError(f"{shown_url(url)}: install {package}")


def check_place(url: str) -> None:
    """:class:`UsageError` for a URL whose files would be looked for elsewhere than it says, without opening it."""
    protocol, _, place = url.partition("://")
    local_folder(url)
    if protocol in SFTP:
        unqueried(url)
    if not place.strip("/"):
        raise UsageError(f"{shown_url(url)}: names no place; a bucket, a host or a path follows ://")


def local_folder(url: str) -> Path | None:
    """The folder of a ``file`` URL (RFC 8089): an absolute path on this machine, percent-encoded or not; None for other
    protocols. :class:`UsageError` for one with a host, which would be left out, or with ``?`` or ``#``."""
    if protocol_of(url) != "file":
        return None
    host, _, path = unqueried(url).removeprefix("file://").partition("/")
    if host.lower() not in ("", "localhost") or not path.strip("/"):
        raise UsageError(f"{url}: names no absolute path on this machine; for a folder write file:///path")
    folder = unquote(f"/{path.lstrip('/')}", errors="surrogateescape")  # as os.fsdecode does
    if "\0" in folder:
        raise UsageError(f"{url}: no path has a NUL; for a folder write file:///path")
    return Path(folder)


def unqueried(url: str) -> str:
    """The URL, if all behind its host is a path; :class:`UsageError` otherwise: what follows it would be left out."""
    if re.search(r"[?#\x00-\x1f]", url):
        raise UsageError(
            f"{shown_url(url)}: has a ?, a # or a control character, which no path in a URL has; write "
            "%3F for ?, %23 for #"
        )
    return url


CONNECTING = ("timeout", "banner_timeout", "auth_timeout")
HANDSHAKE = 6.0
"""Each part of SSH's handshake has so many times the limit of one wait: it consists of several round trips."""


class UrlFiles(ABC):
    """Files by name below one URL. Names have ``/`` between folders. All but :class:`FileNotFoundError`, which is not
    raised, is raised as the file system has it. Reads of several may take ``timeout_s`` together."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what takes time and needs no network."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes | None:
        """A file's bytes, None if there is none; one byte more than ``limit`` at most, so that longer ones are seen."""

    def read_many(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        """The same of several, at once where the service can, else one after the other until ``timeout_s`` are over.
        None for one that can't be read, or that there was no time for."""
        return self._in_turn(names, lambda name: self.read(name, limit))

    def _in_turn(self, names: Sequence[str], read: Callable[[str], bytes | None]) -> list[bytes | None]:
        """One file after the other, for at most ``timeout_s`` and one file more."""
        begin, found = time.monotonic(), list["bytes | None"]()
        for name in names:
            found.append(None)
            if self._timeout_s is None or time.monotonic() - begin <= self._timeout_s:
                with suppress(OSError, StoreError):
                    found[-1] = read(name)
        return found

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """All files below a folder, sorted."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; whether there was none."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a file in the place of what was there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""


def open_files(url: str, timeout_s: float | None = None) -> UrlFiles:
    """The files below a URL. ``timeout_s`` limits each wait for the network, without retries, where the protocol's
    package can: ``s3``, ``sftp``. :class:`UsageError` if a package is missing or the URL can't be understood."""
    if not is_url(url):
        raise UsageError(f"{url}: is no URL; write file:///{url.lstrip('/')} for a folder")
    check_packages(url)
    protocol = protocol_of(url)
    if (folder := local_folder(url)) is not None:
        return FolderFiles(folder, timeout_s)
    if protocol in SFTP:
        return SftpFiles(url, timeout_s)
    return FsspecFiles(url, timeout_s)


class FolderFiles(UrlFiles):
    """A folder, also one that several machines mount. A hard link decides who creates a file."""

    def __init__(self, folder: Path, timeout_s: float | None = None) -> None:
        super().__init__(timeout_s)
        self._folder = folder

    def read(self, name: str, limit: int) -> bytes | None:
        """Empty for what is no regular file."""
        try:
            handle = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(handle, "rb") as file:
            return file.read(limit + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""

    def names(self, prefix: str = "") -> list[str]:
        found = (p for p in (self._folder / prefix).rglob("*") if not p.name.startswith(".") and p.is_file())
        return sorted(p.relative_to(self._folder).as_posix() for p in found)

    def create(self, name: str, data: bytes) -> bool:
        return codec.write_new(self._folder / name, data)

    def replace(self, name: str, data: bytes) -> None:
        codec.write_atomic(self._folder / name, data)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._folder / name)


class FsspecFiles(UrlFiles):
    """What fsspec reaches. Nothing is cached. :class:`UsageError` if fsspec can't have the URL."""

    def __init__(self, url: str, timeout_s: float | None) -> None:
        super().__init__(timeout_s)
        protocol = protocol_of(url)
        self._has_folders = protocol not in CONDITIONAL
        from fsspec.core import url_to_fs  # type: ignore[import-not-found,import-untyped,unused-ignore]

        try:
            self._fs, root = url_to_fs(url, **_options(protocol, timeout_s))
        except (ImportError, ValueError) as exc:
            raise UsageError(f"{shown_url(url)}: {without_password(str(exc), url)}") from None
        self._root = root.rstrip("/")
        if timeout_s is not None and hasattr(self._fs, "retries"):
            self._fs.retries = 1  # s3fs tries each request five times

    def prepare(self) -> None:
        if hasattr(self._fs, "connect"):
            self._fs.connect()  # s3fs: reads the description of the service, 2 MB of JSON

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            data: bytes = self._fs.cat_file(f"{self._root}/{name}", start=0, end=limit + 1)
        except FileNotFoundError:
            return None
        except Exception as exc:
            if "InvalidRange" in str(exc) or "416" in str(exc):  # no byte at that place: the object is empty
                return b""
            raise
        return data

    def read_many(self, names: Sequence[str], limit: int) -> list[bytes | None]:
        def at_once(names: Sequence[str]) -> list[bytes | None]:
            paths = [f"{self._root}/{name}" for name in names]
            found = self._fs.cat_ranges(paths, [0] * len(paths), [limit + 1] * len(paths), on_error="return")
            return [data if isinstance(data, bytes) else None for data in found]

        if self._fs.async_impl:
            return at_once(names)
        return self._in_turn(names, lambda name: at_once([name])[0])  # as is Hugging Face's

    def names(self, prefix: str = "") -> list[str]:
        folder = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._fs.find(folder)
        except FileNotFoundError:
            return []
        return sorted(path.removeprefix(self._root).lstrip("/") for path in found)

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._write(name, data, mode="create")
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._write(name, data)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{name}")

    def _write(self, name: str, data: bytes, **how: str) -> None:
        """Object stores have no folders; others may lack one."""
        path = f"{self._root}/{name}"
        if self._has_folders:
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        self._fs.pipe_file(path, data, **how)


def _options(protocol: str, timeout_s: float | None) -> dict[str, Any]:
    """What a file system is made with: nothing cached, each wait limited."""
    found: dict[str, Any] = {"skip_instance_cache": True}
    if protocol in CONDITIONAL:
        found["use_listings_cache"] = False
    if protocol in ("s3", "s3a") and timeout_s is not None:
        waits = {"connect_timeout": timeout_s, "read_timeout": timeout_s, "retries": {"total_max_attempts": 1}}
        found["config_kwargs"] = waits
    return found


class SftpFiles(UrlFiles):
    """An SFTP server, by paramiko: fsspec's ``mv`` replaces what is there, and waits have no limit.

    A plain rename fails where the target exists (draft-ietf-secsh-filexfer-02, 6.5; OpenSSH links and unlinks): that
    decides who creates a file. The server's key must be known to ``~/.ssh/known_hosts``.
    """

    def __init__(self, url: str, timeout_s: float | None) -> None:
        super().__init__(timeout_s)
        import paramiko  # type: ignore[import-not-found,import-untyped,unused-ignore]

        where = urlsplit(unqueried(url))
        self._root = unquote(where.path).rstrip("/")
        self._client = paramiko.SSHClient()
        self._client.load_system_host_keys()
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        limits = {} if timeout_s is None else dict.fromkeys(CONNECTING, HANDSHAKE * timeout_s)
        user = unquote(where.username) if where.username else None
        password = unquote(where.password) if where.password else None
        self._client.connect(where.hostname or "", where.port or 22, username=user, password=password, **limits)
        self._sftp = self._client.open_sftp()
        self._sftp.get_channel().settimeout(timeout_s)
        self._made: set[str] = set()

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            with self._sftp.open(f"{self._root}/{name}", "rb") as file:
                return bytes(file.read(limit + 1))
        except FileNotFoundError:
            return None

    def names(self, prefix: str = "") -> list[str]:
        return sorted(self._below(prefix.rstrip("/")))

    def _below(self, folder: str) -> Iterator[str]:
        try:
            found = self._sftp.listdir_attr(posixpath.join(self._root, folder))
        except FileNotFoundError:
            return
        for entry in found:
            name = posixpath.join(folder, entry.filename)
            if stat.S_ISDIR(entry.st_mode or 0):
                yield from self._below(name)
            elif not entry.filename.startswith("."):
                yield name

    def create(self, name: str, data: bytes) -> bool:
        unnamed = self._written(name, data)
        try:
            self._sftp.rename(unnamed, f"{self._root}/{name}")
        except OSError:
            with suppress(OSError):
                self._sftp.remove(unnamed)
            with suppress(FileNotFoundError):
                self._sftp.stat(f"{self._root}/{name}")
                return False  # another process has made it
            raise
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._sftp.posix_rename(self._written(name, data), f"{self._root}/{name}")

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._sftp.remove(f"{self._root}/{name}")

    def _written(self, name: str, data: bytes) -> str:
        folder, _, last = f"{self._root}/{name}".rpartition("/")
        self._make(folder)
        unnamed = f"{folder}/{temporary_name(last)}"
        with self._sftp.open(unnamed, "wbx") as file:
            file.write(data)
        return unnamed

    def _make(self, folder: str) -> None:
        """A folder and those above it, each once."""
        if not folder or folder in self._made:
            return
        try:
            self._sftp.stat(folder)
        except FileNotFoundError:
            self._make(folder.rpartition("/")[0])
            with suppress(OSError):  # another process has made it meanwhile
                self._sftp.mkdir(folder)
        self._made.add(folder)
