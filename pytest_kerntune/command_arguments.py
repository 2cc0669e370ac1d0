"""The command line's words, where argparse reads them otherwise than people mean them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from kerntune.base.policy import Update

UPDATE = "--kerntune-update"
MODES = tuple(u.value for u in Update if u is not Update.NONE)

_WORD = re.compile(r"[A-Za-z]+")
"""What may be a misspelt mode."""


def amend(config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Give a bare ``--kerntune-update`` its value in ``args``, which pytest parses later, and in what it has parsed
    already: argparse takes the word after it, mostly a path, for its value."""
    amended = with_update(args, config.invocation_params.dir)
    if amended == args:
        return
    args[:] = amended
    parsed, given = parser.parse_known_args(amended), config.known_args_namespace
    given.kerntune_update, given.file_or_dir = parsed.kerntune_update, parsed.file_or_dir


def with_update(args: Sequence[str], folder: Path) -> list[str]:
    """``args`` with ``--kerntune-update=all`` for the bare flag, and ``--kerntune-update=new`` for its two words.

    A word that names no mode, and nothing in ``folder`` either, stays its value, so that a misspelt one is reported.
    """
    end = args.index("--") if "--" in args else len(args)
    out: list[str] = []
    rest = list(args[:end])
    while rest:
        word = rest.pop(0)
        if word == UPDATE and rest and not rest[0].startswith("-") and not _names_tests(rest[0], folder):
            word = f"{UPDATE}={rest.pop(0)}"
        out.append(f"{UPDATE}=all" if word == UPDATE else word)
    return [*out, *args[end:]]


def without_update(args: Sequence[str], folder: Path) -> list[str]:
    """``args`` without the flag and its value."""
    return [a for a in with_update(args, folder) if not a.startswith(UPDATE)]


def _names_tests(word: str, folder: Path) -> bool:
    return word not in MODES and (_WORD.fullmatch(word) is None or os.path.exists(folder / word))
