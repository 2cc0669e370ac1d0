"""``kerntune baselines verify``: whether everything in the folder can be read and is whole."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from kerntune.cli.stored import Entry, load_folder, path_of, target_of
from kerntune.errors import BaselineError, UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Baseline
from kerntune.gate.bundle import needed
from kerntune.gate.console import counted, fail_with, say
from kerntune.gate.project import baseline_folder


def run(args: argparse.Namespace) -> int:
    """Check every file and every artifact; 1 if anything is wrong."""
    folder = baseline_folder(args.baselines, Path.cwd())
    if not folder.exists():
        raise UsageError(f"{folder}: no such folder, so nothing was verified; name the right one: --baselines=DIR")
    entries = load_folder(folder)
    found = list(findings(folder, entries))
    artifacts = {(target_of(b), sha) for e in entries if (b := e.baseline) is not None for sha in needed(b)}
    say(f"{folder}: {counted(len(entries), 'baseline')}, {counted(len(artifacts), 'artifact')}, {_wrong(found)}")
    return fail_with(found)


def findings(folder: Path, entries: list[Entry]) -> Iterator[str]:
    """What is wrong, a sentence each, naming the file; an artifact that several baselines need is read once."""
    store = BaselineStore(folder)
    seen: dict[tuple[str, str], str] = {}
    for entry in entries:
        if entry.baseline is None:
            yield entry.problem
            continue
        yield from _misplaced(store, entry, entry.baseline)
        yield from _artifacts(store, entry, entry.baseline, seen)


def _misplaced(store: BaselineStore, entry: Entry, baseline: Baseline) -> Iterator[str]:
    path = store.folder / entry.path
    if path_of(store, baseline) != path:
        yield (
            f"{path}: holds {baseline.case}, which is looked for in {path_of(store, baseline)}; "
            "move it there or remove it"
        )


def _artifacts(
    store: BaselineStore, entry: Entry, baseline: Baseline, seen: dict[tuple[str, str], str]
) -> Iterator[str]:
    target = target_of(baseline)
    for sha in needed(baseline):
        key = (target.slug, sha)
        if key not in seen:
            seen[key] = _damage(store, baseline, sha)
        if seen[key]:
            yield f"{store.folder / entry.path}: {seen[key]}"


def _damage(store: BaselineStore, baseline: Baseline, sha: str) -> str:
    """Why an artifact can't be used, empty if it can."""
    folder = store.artifacts_of(baseline)
    try:
        folder[sha]
    except KeyError:
        return f"its artifact {folder.folder / sha}.xz is not there; restore it or record the case anew"
    except BaselineError as exc:
        return str(exc)
    return ""


def _wrong(found: list[str]) -> str:
    return counted(len(found), "problem") if found else "all whole"
