"""The project that a command is for: its ini file and what that sets, and its tests run in this process.

The file is read without pytest; ``kerntune baselines refresh`` runs ``pytest --kerntune --kerntune-update=all``.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerntune.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings tomli there
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

DEFAULT_BASELINES = "baselines"

DEFAULT_ANCHOR = "anchors"
"""The folder of the anchor, beside that of the baselines."""

NO_ANCHOR = "off"
"""What the ini key says where a project wants none."""

INI_FILES = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
"""In the order in which pytest looks (pytest's reference, "Initialization: determining rootdir and configfile")."""


@dataclass(frozen=True)
class Project:
    """``root`` is the folder of the ini file, or the current one if there is none; ``values`` are its settings."""

    root: Path
    ini: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """A setting; empty if it isn't set."""
        return str(self.values.get(key, "")).strip()

    @property
    def baselines(self) -> Path:
        """The folder of the baselines."""
        return self.folder("kerntune_baselines") or self.root / DEFAULT_BASELINES

    def folder(self, key: str) -> Path | None:
        """The folder that an ini key names, relative to the ini file; None if it names none."""
        text = self.text(key)
        return Path(os.path.abspath(self.root / Path(text).expanduser())) if text else None


def find_project(start: Path) -> Project:
    """The project that a bare ``pytest`` in ``start`` would run; :class:`UsageError` for an ini file that is broken."""
    folders = [p := Path(os.path.abspath(start)), *p.parents]
    for path in (folder / name for folder in folders for name in INI_FILES):
        values = settings_in(path) if path.is_file() else None
        if values is not None:
            return Project(path.parent, path, values)
    for mark in ("pyproject.toml", "setup.py"):  # without settings these still say where a project begins
        for folder in folders:
            if (folder / mark).is_file():
                return Project(folder, folder / mark if mark == "pyproject.toml" else None)
    return Project(folders[0])


def project_name(root: Path) -> str:
    """``name`` of ``[project]`` in the folder's ``pyproject.toml``; empty if it says none, or can't be read."""
    try:
        data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    name = (_table(data, "project") or {}).get("name", "")
    return name if isinstance(name, str) else ""


def baseline_folder(given: str | None, start: Path) -> Path:
    """The folder of ``--baselines``, else of the ini key ``kerntune_baselines``, else ``baselines``."""
    if given is not None:
        return Path(os.path.abspath(Path(given).expanduser()))
    return find_project(start).baselines


def settings_in(path: Path, content: bytes | None = None) -> Mapping[str, Any] | None:
    """The settings for pytest in an ini file, with its content if that isn't what the disk has; None if it has none.
    :class:`UsageError` if it is broken."""
    try:
        text = (path.read_bytes() if content is None else content).decode("utf-8")
        return _toml(path, text) if path.suffix == ".toml" else _ini(path, text)
    except (OSError, ValueError, RecursionError, configparser.Error) as exc:
        raise UsageError(f"{path}: can't be read ({exc}); repair it, or say --baselines=DIR") from exc


def _toml(path: Path, text: str) -> Mapping[str, Any] | None:
    data = tomllib.loads(text)
    if path.name != "pyproject.toml":
        return _table(data, "pytest") or {}
    tool = _table(data, "tool") or {}
    pytest = _table(tool, "pytest")
    if pytest is None:
        return None
    old = _table(pytest, "ini_options")
    return old if old is not None else pytest


def _ini(path: Path, text: str) -> Mapping[str, Any] | None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text, str(path))
    section = "tool:pytest" if path.suffix == ".cfg" else "pytest"
    if parser.has_section(section):
        return dict(parser[section])
    return {} if path.name in ("pytest.ini", ".pytest.ini") else None


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found = data.get(key)
    return found if isinstance(found, Mapping) else None


PLUGIN = "pytest_kerntune.plugin"
IMPORTED = "Module already imported so cannot be rewritten"


def run(args: Sequence[str]) -> int:
    """Run pytest with ``args`` after the two options, so that they can say another update; pytest's exit code."""
    import pytest

    return int(pytest.main([*plugin_args(), "--kerntune", "--kerntune-update=all", *args]))


def plugin_args() -> list[str]:
    """What loads the plugin, wherever kerntune was started from. An installed plugin goes by the name of its entry
    point: pytest takes no module under two names. pytest warns that this process has imported it, which would end a
    project's run whose ini file makes warnings errors."""
    installed = importlib.metadata.entry_points(group="pytest11", name="kerntune")
    return ["-p", "kerntune" if list(installed) else PLUGIN, "-W", f"ignore:{IMPORTED}"]
