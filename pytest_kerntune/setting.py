"""One setting, and where its value comes from: the command line first, then the ini file.

Settings make the policy of a project: how its cases are judged where a test says nothing else.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from kerntune.base.folders import file_in_the_way
from kerntune.base.policy import Missing, Policy, Update, Verdict
from kerntune.errors import UsageError
from pytest_kerntune.values import POLICY, member_of

T = TypeVar("T")


class Option(NamedTuple):
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
        return bool(self.flag) and not self.metavar

    def register(self, parser: pytest.Parser, group: pytest.OptionGroup) -> None:
        """Add the flag to ``group``, and the ini key."""
        shown = self.help or SUPPRESS
        if self.switch:
            group.addoption(self.flag, action="store_true", default=False, help=shown)
        elif self.flag:
            bare = {"nargs": "?", "const": self.bare} if self.bare else {}
            group.addoption(self.flag, default=None, metavar=self.metavar, help=shown, **bare)
        if self.ini:
            said = f"Default of {self.flag}: {self.help}" if self.flag else self.help
            kind, default = ("bool", False) if self.switch else ("string", "")
            parser.addini(self.ini, said.replace("%%", "%"), type=kind, default=default)  # type: ignore[arg-type]


class SettingSource:
    """Where values come from: the command line first, then the ini file."""

    def __init__(
        self,
        config: pytest.Config,
        given: Namespace,
        options: Iterable[Option],
        *,
        reported_elsewhere: bool,
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

    def of_revision(self, read: Callable[[str, pytest.Config, Namespace, Path], T], revision: str) -> T:
        """What ``read`` makes of a revision for the tests that pytest was called for."""
        return read(revision, self._config, self._given, self.root)

    def text(self, name: str) -> str:
        """A flag or ini key as it was written; empty if it wasn't."""
        return self._text(name)[0].strip()

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


def policy_of(source: SettingSource, update: Update, ci: bool) -> Policy:
    """What the command line and the ini file say of it. ``--kerntune-strict`` rules out what the ini file says of
    INCONCLUSIVE."""
    names = {"tolerance": "--kerntune-tolerance"}
    said = {name: source.read(names.get(name, f"kerntune_{name}"), parse, None) for name, parse in POLICY.items()}
    fields = {"floor_ns" if name == "floor" else name: value for name, value in said.items() if value is not None}
    strict = source.on_command_line("--kerntune-strict")
    if strict:
        fields.get("outcomes", {}).pop(Verdict.INCONCLUSIVE, None)
    return Policy(**fields, missing=_missing(source, update, ci), strict=strict, ci=ci)


def _missing(source: SettingSource, update: Update, ci: bool) -> Missing:
    """An update that writes new cases implies ``record``; saying otherwise in the same command contradicts it."""
    writes_new = update in (Update.ALL, Update.NEW)
    missing = source.read("--kerntune-missing", member_of(Missing), None)
    if not writes_new:
        return missing or (Missing.FAIL if ci else Missing.RECORD)
    if missing not in (None, Missing.RECORD) and source.on_command_line("--kerntune-missing"):
        raise UsageError(
            f"--kerntune-update={update.value} records cases without a baseline, "
            f"--kerntune-missing={missing.value} refuses to: drop one of them"
        )
    return Missing.RECORD
