"""``kerntune cache``: the winners that earlier runs found."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from kerntune.cache import Winner, WinnerCache
from kerntune.codec import to_json
from kerntune.commands.output import CONFIG_WIDTH, OK, counted, fail_with, say
from kerntune.commands.project import find_project
from kerntune.report import format_time

HEADERS = ("kernel", "device", "Triton", "config", "time", "arguments")


def show(args: argparse.Namespace) -> int:
    """Print the winners; 1 if damaged ones were set aside."""
    cache = open_cache(args.cache_dir)
    winners = cache.entries()
    if args.json:
        say(to_json(winners).decode(), end="")
        return fail_with(cache.damaged)
    if winners:
        say(_table(winners))
    say(f"{cache.folder}: {counted(len(winners), 'winner')}")
    return fail_with(cache.damaged)


def clear(args: argparse.Namespace) -> int:
    """Remove the winners: the next run tunes anew."""
    cache = open_cache(args.cache_dir)
    say(f"{cache.folder}: removed {counted(cache.clear(), 'winner')}")
    return OK


def open_cache(given: str | None) -> WinnerCache:
    """The cache of ``--cache-dir``, else of the ini key ``kerntune_cache_dir``, else the user's."""
    if given is not None:
        return WinnerCache(Path(os.path.abspath(Path(given).expanduser())))
    return WinnerCache(find_project(Path.cwd()).folder("kerntune_cache_dir"))


def _table(winners: Sequence[Winner]) -> str:
    rows = [
        (
            w.key.kernel,
            f"{w.key.device} ({w.key.target})",
            w.key.triton,
            str(w.config),
            format_time(w.time_ns),
            w.key.arguments,
        )
        for w in sorted(winners, key=lambda w: (w.key.kernel, w.key.device, w.key.arguments))
    ]
    widths = [None, None, None, CONFIG_WIDTH, None, CONFIG_WIDTH]
    return str(tabulate(rows, headers=HEADERS, tablefmt="simple", disable_numparse=True, maxcolwidths=widths))
