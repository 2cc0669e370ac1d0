"""URLs: which files one names, which packages it needs, and how messages show it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

from kerntune.base.formatting import visible
from kerntune.errors import UsageError

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
    protocol = url.partition("://")[0]
    needed = {PACKAGES[protocol]: PACKAGES[protocol]} if protocol in PACKAGES else {}
    if protocol not in {"file", *SFTP}:
        needed["fsspec.core"] = "kerntune[store], which brings fsspec"
    for module, package in needed.items():
        if not _is_installed(module):
            raise UsageError(f"{shown_url(url)}: install {package}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False
    except ValueError:  # imported, from no file
        return True


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
    if url.partition("://")[0] != "file":
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
