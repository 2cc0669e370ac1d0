"""One setting, and where its value comes from: the command line first, then the ini file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from kerntune.base.policy import Update
from kerntune.base.trying_folders import file_in_the_way
from kerntune.errors import UsageError
from pytest_kerntune.values import parse_choice

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """One setting: its flag, its ini key and its help. A flag says what one run does, and has no ini key then; an ini
    key says how a project's cases are judged, and may have no flag. ``help`` is empty for what kerntune tells another
    run of itself."""

    flag: str
    ini: str
    help: str
    metavar: str = ""
    bare: str = ""
    """The value of the flag without ``=value``; empty if it always takes one."""

    output: bool = False
    """Whether it has a run write something about itself, besides baselines."""

    @property
    def dest(self) -> str:
        """Where argparse keeps the value."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def switch(self) -> bool:
        """Whether it is on or off."""
        return not self.metavar


class SettingSource:
    """Where values come from: the command line first, then the ini file."""

    def __init__(
        self,
        config: pytest.Config,
        given: argparse.Namespace,
        options: Iterable[Option],
        *,
        reported_elsewhere: bool = False,
    ) -> None:
        self._reported_elsewhere = reported_elsewhere
        self._config = config
        self._given = given
        self._options = {o.flag or o.ini: o for o in options}
        self.root = config.inipath.parent if config.inipath else config.rootpath

    def on_command_line(self, flag: str) -> bool:
        return getattr(self._given, self._options[flag].dest) not in (None, False)

    def by_caller(self, flag: str) -> bool:
        """Whether who called pytest gave the option, and not an ini file's ``addopts``."""
        from pytest_kerntune.reference_settings import on_command_line  # asked of few runs

        return on_command_line(self._config, flag)

    def of_revision(self, read: Callable[[str, pytest.Config, argparse.Namespace, Path], T], revision: str) -> T:
        """What ``read`` makes of a revision for the tests that pytest was called for."""
        return read(revision, self._config, self._given, self.root)

    def read(self, name: str, parse: Callable[[str, str], T], default: T) -> T:
        """The parsed value of a flag or ini key; an empty one is the default."""
        text, where = self._text(name)
        return parse(text.strip(), where) if text.strip() else default

    def path(self, flag: str) -> Path | None:
        """A path: from the command line relative to where pytest was called, from the ini file to its folder."""
        text, where = self._text(flag)
        base = self._config.invocation_params.dir if where == flag else self.root
        return Path(os.path.abspath(base / Path(text).expanduser())) if text.strip() else None

    def folder(self, flag: str) -> Path | None:
        """A folder, which need not exist yet; a file where it would be is an error before anything runs."""
        path = self.path(flag)
        if path is not None and (file := file_in_the_way(path)) is not None:
            raise UsageError(f"{self._text(flag)[1]}: {path} can't be a folder, {file} is a file; name another one")
        return path

    def file(self, flag: str) -> Path | None:
        """A file to write; an existing folder of that name is an error before anything runs."""
        path = self.path(flag)
        if path is not None and path.is_dir():
            raise UsageError(f"{self._text(flag)[1]}: {path} is a folder; name a file")
        return path

    def leaves(self, option: Option) -> bool:
        """Whether another run writes what ``option`` asks for: one that reports this run's results, and takes them
        from the JSON that it names."""
        asked = option.flag == "--kerntune-json" and self.on_command_line(option.flag)
        return self._reported_elsewhere and option.output and not asked

    def _text(self, name: str) -> tuple[str, str]:
        option = self._options[name]
        given = getattr(self._given, option.dest) if option.flag else None
        if self.leaves(option):
            return "", option.flag
        if given is not None and not str(given).strip():
            raise UsageError(
                f"{option.flag}= has no value; a variable that should give one may be unset. Give one, or leave the "
                "option out"
            )
        if given is not None:
            return str(given), option.flag
        return str(_ini_value(self._config, option.ini)) if option.ini else "", f"ini key {option.ini}"


def ini_switch(config: pytest.Config, name: str) -> bool:
    """The ini key ``name``, on or off."""
    return bool(_ini_value(config, name, "; write true or false"))


def _ini_value(config: pytest.Config, name: str, hint: str = "") -> object:
    """What the ini file says. :class:`pytest.UsageError` with ``hint`` names the key if the value is of another kind;
    pytest's own error, before pytest 9 a ValueError or TypeError, may name the value alone."""
    try:
        return config.getini(name)
    except (TypeError, ValueError, pytest.UsageError) as exc:
        raise pytest.UsageError(f"ini key {name}: {exc}{hint}") from None


def choice(kind: type[T]) -> Callable[[str, str], T]:
    """A parser for the words of an enum."""

    def parse(text: str, where: str) -> T:
        if kind is Update and text not in _UPDATES:
            raise UsageError(
                f"{where}: {text!r} is none of {', '.join(_UPDATES)}; the flag alone means all, a path may follow it"
            )
        return kind(parse_choice(text, tuple(x.value for x in kind), where))  # type: ignore[attr-defined, call-arg]

    return parse


_UPDATES = tuple(u.value for u in Update if u is not Update.NONE)
