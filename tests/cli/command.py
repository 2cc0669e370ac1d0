"""Calling the command in this process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kerntune.cli.command import main


@dataclass(frozen=True)
class CommandResult:
    """What a call of the command came to."""

    code: int
    out: str
    err: str

    @property
    def clean(self) -> bool:
        """Whether what it complained of is messages only."""
        return "Traceback" not in self.out + self.err

    def complains(self, code: int, *says: str) -> None:
        """It ended with this code, and says these words as messages."""
        assert self.code == code, self.out + self.err
        assert self.clean
        for words in says:
            assert words in self.err, self.err


@dataclass(frozen=True)
class Command:
    """``command("baselines", "show")``."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object) -> CommandResult:
        self.capsys.readouterr()
        try:
            code = main([str(w) for w in words])
        except SystemExit as exc:  # argparse's help and usage errors
            code = int(exc.code or 0)
        captured = self.capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)


def column_widths(table: str) -> list[int]:
    """Of a table for a terminal, by the line below its headers."""
    return [len(dashes) for dashes in table.splitlines()[1].split()]


def subcommands(parser: argparse.ArgumentParser, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every subcommand as it is typed: ``("baselines", "show")``."""
    for action in parser._subparsers._group_actions if parser._subparsers else ():
        for name, inner in (action.choices or {}).items():
            yield from subcommands(inner, (*before, name))
    if parser.get_default("function") is not None:
        yield before
