"""``kerntune cache``: the winners and trials of earlier runs."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from kerntune.base.codec import shown
from kerntune.base.formatting import format_time
from kerntune.base.url_files import shown_url
from kerntune.errors import CacheError, UsageError
from kerntune.gate.console import CONFIG_WIDTH, OK, columns, counted, fail_with, say, say_json
from kerntune.gate.project import find_project
from kerntune.tuning.cache import TrialCache, Winner, WinnerCache, export_cache, export_devices, import_cache
from kerntune.tuning.cache.entries import ListingCache, default_folder
from kerntune.tuning.cache.exchange import CopiedEntries, pull_cache, push_cache
from kerntune.tuning.cache.shared_store import forget_stores
from kerntune.tuning.cache.store_client import check_url, store_url

HEADERS = ("kernel", "device", "Triton", "config", "time", "arguments")


def cache_dir_argument(parser: ArgumentParser) -> None:
    """Declare ``--cache-dir``, which :func:`open_cache` takes."""
    parser.add_argument("--cache-dir", metavar="DIR", help="folder of the cache (default: the ini file's, else yours)")


def show_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune cache show`` takes."""
    cache_dir_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def show(args: Namespace) -> int:
    """Print the winners; 1 if damaged entries were set aside."""
    cache = open_cache(args.cache_dir)
    trials = TrialCache(cache.folder)
    winners, tried = cache.entries(), len(trials.entries())
    damaged = [*cache.damaged, *trials.damaged]
    if args.json:
        say_json(winners)
        return fail_with(damaged)
    if winners:
        say(_table(winners))
    listed = ListingCache(cache.folder).count()
    say(f"{cache.folder}: {counted(len(winners), 'winner')}, {counted(tried, 'trial')}, {counted(listed, 'listing')}")
    return fail_with(damaged)


clear_arguments = cache_dir_argument


def clear(args: Namespace) -> int:
    """Remove winners, trials and listings of machine code: the next run tunes and disassembles anew."""
    cache = open_cache(args.cache_dir)
    winners, trials = cache.clear(), TrialCache(cache.folder).clear()
    forget_stores(cache.folder)
    listed = counted(ListingCache(cache.folder).clear(), "listing")
    say(f"{cache.folder}: removed {counted(winners, 'winner')}, {counted(trials, 'trial')}, {listed}")
    return OK


def export_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune cache export`` takes."""
    parser.add_argument("file", metavar="FILE", help="what to write; with --per-device a folder")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--winners-only", action="store_true", help="leave single trials out")
    form.add_argument("--per-device", action="store_true", help="a file of winners per device, to ship in a wheel")
    cache_dir_argument(parser)


def export(args: Namespace) -> int:
    """Write the cache as one file, or its winners as a file per device; 1 if damaged entries were left out."""
    cache, to = open_cache(args.cache_dir), Path(args.file)
    if args.per_device:
        for path in export_devices(cache.folder, to):
            say(str(path))
        return OK
    return _told(str(to), export_cache(cache.folder, to, with_trials=not args.winners_only))


def import_files_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune cache import`` takes."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="what export wrote, of either form")
    parser.add_argument("--replace", action="store_true", help="also where the cache has an entry already")
    cache_dir_argument(parser)


def import_files(args: Namespace) -> int:
    """Take files of ``export`` into the cache; 1 if one is damaged, after the others.

    :class:`UsageError` for a name that is no file, before any is taken.
    """
    missing = [name for name in args.files if not Path(name).is_file()]
    if missing:
        raise UsageError(f"{', '.join(missing)}: no such file; name what `kerntune cache export` wrote")
    cache, findings = open_cache(args.cache_dir), []
    for name in args.files:
        try:
            moved = import_cache(cache.folder, Path(name), replace=args.replace)
        except CacheError as exc:
            findings.append(str(exc))
            continue
        findings += moved.damaged
        say(_counts(name, moved))
    return fail_with(findings)


def push(args: Namespace) -> int:
    """Store winners and trials behind a URL; 1 if damaged entries were left out."""
    cache, url = open_cache(args.cache_dir), _url(args.url)
    return _told(shown_url(url), push_cache(cache.folder, url, with_trials=not args.winners_only))


def push_arguments(parser: ArgumentParser) -> None:
    """Declare what ``kerntune cache push`` and ``pull`` take."""
    stores = "s3://, gs://, sftp://, file:// or hf:// (default: KERNTUNE_STORE)"
    parser.add_argument("url", nargs="?", metavar="URL", help=stores)
    parser.add_argument("--winners-only", action="store_true", help="leave the trials out")
    cache_dir_argument(parser)


pull_arguments = push_arguments


def pull(args: Namespace) -> int:
    """Take winners and trials from behind a URL; 1 if some can't be used."""
    cache, url = open_cache(args.cache_dir), _url(args.url)
    moved = pull_cache(cache.folder, url, with_trials=not args.winners_only)
    if not (moved.winners or moved.trials or moved.kept or moved.damaged):
        say(f"{shown_url(url)}: nothing new there; `kerntune cache push` stores what a machine has")
        return OK
    return _told(shown_url(url), moved)


def _told(place: str, moved: CopiedEntries) -> int:
    say(_counts(place, moved))
    return fail_with(moved.damaged)


def _counts(place: str, moved: CopiedEntries) -> str:
    kept = f", {moved.kept} kept as they were" if moved.kept else ""
    return f"{place}: {counted(moved.winners, 'winner')}, {counted(moved.trials, 'trial')}{kept}"


def _url(given: str | None) -> str:
    if given:
        check_url(given)
    url = given.rstrip("/") if given else store_url()
    if not url:
        raise UsageError("no store: name its URL, or set KERNTUNE_STORE (s3://bucket/folder, file:///mnt/folder, ...)")
    return url


def open_cache(given: str | None) -> WinnerCache:
    """The cache of ``--cache-dir``, else of the ini key ``kerntune_cache_dir``, of ``KERNTUNE_CACHE_DIR``, or yours.
    :class:`UsageError` if there can be no folder of that name, or it can't be read."""
    if given is not None:
        return _cache_in(Path(os.path.abspath(Path(given).expanduser())), "--cache-dir=DIR")
    project = find_project(Path.cwd())
    named = project.folder("kerntune_cache_dir")
    if named is not None:
        return _cache_in(named, f"kerntune_cache_dir in {project.ini}")
    return _cache_in(default_folder(), "KERNTUNE_CACHE_DIR=DIR")


def _cache_in(folder: Path, named_by: str) -> WinnerCache:
    try:
        os.scandir(folder).close()
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        if not isinstance(exc, FileNotFoundError) or os.path.lexists(folder):  # a link to nothing
            raise UsageError(
                f"{shown(folder)}: can't be the folder of the cache ({why}); name another: {named_by}"
            ) from None
    return WinnerCache(folder)


def _config(winner: Winner) -> str:
    from kerntune.tuning.choices.declaration import implementation_in  # torch with it

    name = implementation_in(winner.config)
    if name is not None:
        return f"calls {name}"
    return f"{winner.config} ({len(winner.untried)} untried)" if winner.untried else str(winner.config)


def _table(winners: Sequence[Winner]) -> str:
    rows = [
        (
            w.key.kernel,
            f"{w.key.device} ({w.key.target})",
            w.key.triton,
            _config(w),
            format_time(w.time_ns),
            w.key.arguments,
        )
        for w in sorted(winners, key=lambda w: (w.key.kernel, w.key.device, w.key.arguments))
    ]
    return columns(rows, HEADERS, [None, None, None, CONFIG_WIDTH, None, CONFIG_WIDTH])
