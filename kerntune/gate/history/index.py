"""An index of a history by case: a database beside the tuning cache, which can be thrown away and is made anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from hashlib import sha256
from math import nan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kerntune.base.codec import shortened
from kerntune.base.formatting import visible
from kerntune.errors import HistoryError
from kerntune.gate.history.places import Place, is_name
from kerntune.gate.history.points import HistoryRun, Point, Shift, decoded
from kerntune.gate.history.series import ChangeSeries

VERSION = 3
"""Of the tables; an index of another version is made anew."""

CHUNK = 256
"""Runs whose points of one case lie in one row: a run that is added rewrites a row a case."""

ROW = np.dtype(
    [
        ("run", "<i4"),
        ("work", "<i8"),
        ("baseline_work", "<i8"),
        ("against", "<i8"),
        ("change", "<f8"),
        ("sd", "<f8"),
        ("anchor", "<i8"),
        ("since", "<f8"),
        ("since_sd", "<f8"),
        ("setting", "<i4"),
    ]
)
"""A point. Texts are numbers of the table ``texts`` or the first eight bytes of their SHA-256; NaN is not measured."""

TABLES = """
CREATE TABLE files (name TEXT PRIMARY KEY, problem TEXT NOT NULL, run INTEGER);
CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, ordered TEXT, created TEXT, committed TEXT, sha TEXT,
    branch TEXT, host TEXT, dirty INTEGER);
CREATE TABLE cases (id INTEGER PRIMARY KEY, name TEXT, target TEXT, device TEXT, UNIQUE (name, target, device));
CREATE TABLE settings (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE chunks (owner INTEGER, number INTEGER, data BLOB, PRIMARY KEY (owner, number)) WITHOUT ROWID;
"""

SEPARATOR = "\x1f"

DIRTY = "+"
"""Marks a commit whose checkout had other changes."""

PATIENCE_S = 60.0
"""Seconds that a process waits for another one that adds runs: 10 s of work for a million points."""

T = TypeVar("T")


class IndexDamaged(HistoryError):
    """The index isn't whole. Everything in it can be had again."""


class RunInfo(NamedTuple):
    """When a run was made, and its commit, with a mark where the checkout had changes that it doesn't have."""

    created: str
    code: str


class CaseSeries(NamedTuple):
    """What was measured of one case on one device; its runs are places in what :meth:`Index.series` was given."""

    case: str
    target: str
    device: str
    measured: ChangeSeries


class Index:
    """The index of one place's history in ``folder``."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._place = place
        self._path = folder / f"{sha256(place.name.encode()).hexdigest()[:24]}.sqlite"

    def update(self) -> list[str]:
        """Read the files that are new, and again those that couldn't be read; forget those that are gone. What is wrong
        with those that can't be read, a line each."""
        listed = self._place.names()
        names = [name for name in listed if is_name(name)]
        others = [shortened(visible(name)) for name in listed if not is_name(name)]
        wrong = [f"{name}: no file of a history is called so; remove it" for name in others]
        query = "SELECT name FROM files WHERE problem = ''"
        known = self._with(lambda base: {name for (name,) in base.execute(query)})
        read = [(name, *_decoded(data, name)) for name, data in self._place.read([n for n in names if n not in known])]
        problems = self._with(lambda base: _added(base, read, names))
        return [*problems, *(text.replace("\n", "\\n") for text in wrong)]

    def runs(self, branch: str = "") -> dict[int, RunInfo]:
        """Runs by number, in order of time; of one branch, or of all if it is empty."""
        query = "SELECT id, created, sha, branch, dirty FROM runs ORDER BY ordered, id"
        rows = self._with(lambda base: base.execute(query).fetchall())
        mine = [(i, created, sha + DIRTY * dirty) for i, created, sha, on, dirty in rows if branch in ("", on)]
        return {i: RunInfo(created, code) for i, created, code in mine}

    def main_branch(self) -> str:
        """The branch with most runs; empty if no run has one."""
        query = "SELECT branch FROM runs GROUP BY branch ORDER BY COUNT(*) DESC, branch LIMIT 1"
        found = self._with(lambda base: base.execute(query).fetchone())
        return str(found[0]) if found else ""

    def settings(self) -> dict[int, dict[str, str]]:
        """What the numbers of settings stand for: versions and the host, by name."""
        rows = self._with(lambda base: base.execute("SELECT id, text FROM settings").fetchall())
        return {i: dict(item.partition(" ")[::2] for item in t.split(SEPARATOR)) for i, t in rows}

    def series(self, runs: Sequence[int], text: str) -> list[CaseSeries]:
        """The series of all cases whose name contains ``text``, of the given runs in the given order."""
        lookup = np.full(max(runs, default=0) + 2, -1, dtype=np.int64)
        lookup[list(runs)] = np.arange(len(runs))

        def read(base: sqlite3.Connection) -> list[CaseSeries]:
            cases = base.execute("SELECT id, name, target, device FROM cases ORDER BY name, target, device").fetchall()
            return [
                CaseSeries(name, target, device, _measured(base, number, lookup))
                for number, name, target, device in cases
                if text in name
            ]

        return self._with(read)

    def discard(self) -> None:
        """Forget everything; :meth:`update` reads all files again. For an index that is damaged."""
        self._path.unlink(missing_ok=True)

    def _with(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """What ``action`` gives, in one transaction; :class:`IndexDamaged` if the file isn't whole."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=PATIENCE_S, isolation_level=None)) as base:
                base.execute("PRAGMA synchronous = OFF")  # what a power cut loses is read again
                base.execute("BEGIN IMMEDIATE")
                _make_tables(base)
                found = action(base)
                base.execute("COMMIT")
                return found
        except (OSError, sqlite3.OperationalError) as exc:  # locked, read-only, a full disk
            raise HistoryError(f"{self._path}: the history's index can't be used ({exc})") from exc
        except sqlite3.DatabaseError as exc:
            raise IndexDamaged(f"{self._path}: the history's index is damaged ({exc}); remove it") from exc


def _make_tables(base: sqlite3.Connection) -> None:
    """Those of this version, in the place of another one's."""
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        return
    own = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (table,) in base.execute(own).fetchall():
        base.execute(f'DROP TABLE "{table}"')
    for statement in filter(str.strip, TABLES.split(";")):
        base.execute(statement)
    base.execute(f"PRAGMA user_version = {VERSION}")


def _decoded(data: bytes, name: str) -> tuple[HistoryRun | None, str]:
    try:
        return decoded(data, name), ""
    except HistoryError as exc:
        return None, str(exc)


def _added(
    base: sqlite3.Connection, read: Sequence[tuple[str, HistoryRun | None, str]], names: Sequence[str]
) -> list[str]:
    """Forget all files but ``names``, and add those that no other process has added meanwhile; all problems that are
    known."""
    held = dict(base.execute("SELECT name, run FROM files").fetchall())
    gone = held.keys() - set(names)
    _forget(base, gone, [held[name] for name in gone if held[name] is not None])
    batch = _Batch(base)
    for name, run, problem in read:
        if held.get(name) is None:
            number = None if run is None else batch.take(run)
            base.execute("REPLACE INTO files VALUES (?, ?, ?)", (name, problem, number))
    batch.write()
    return [text for (text,) in base.execute("SELECT problem FROM files WHERE problem != '' ORDER BY name")]


def _forget(base: sqlite3.Connection, names: Iterable[str], runs: Sequence[int]) -> None:
    """Remove files and the runs that were read from them, with their points, and cases that have no point then."""
    base.executemany("DELETE FROM files WHERE name = ?", [(name,) for name in names])
    base.executemany("DELETE FROM runs WHERE id = ?", [(run,) for run in runs])
    for number in sorted({run // CHUNK for run in runs}):
        rows = base.execute("SELECT owner, data FROM chunks WHERE number = ?", (number,)).fetchall()
        for owner, data in rows:
            points = np.frombuffer(data, dtype=ROW)
            kept = points[~np.isin(points["run"], runs)]
            if len(kept):
                base.execute("REPLACE INTO chunks VALUES (?, ?, ?)", (owner, number, kept.tobytes()))
            else:
                base.execute("DELETE FROM chunks WHERE owner = ? AND number = ?", (owner, number))
    if runs:
        base.execute("DELETE FROM cases WHERE id NOT IN (SELECT owner FROM chunks)")


class _Batch:
    """Runs that are added together. Numbers of cases and settings are looked up once, and rows written at the end."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        cases = base.execute("SELECT name, target, device, id FROM cases")
        self._cases = {(name, target, device): number for name, target, device, number in cases}
        self._settings: dict[str, int] = dict(base.execute("SELECT text, id FROM settings"))
        self._rows: dict[tuple[int, int], list[tuple[float, ...]]] = {}

    def take(self, run: HistoryRun) -> int:
        """Add a run's points; its number, which no other run ever had."""
        cursor = self._base.execute(
            "INSERT INTO runs (ordered, created, committed, sha, branch, host, dirty) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (SEPARATOR.join(run.order), run.created, run.committed, run.commit, run.branch, run.host, run.dirty),
        )
        number = cursor.lastrowid or 0
        for point in run.points:
            setting = SEPARATOR.join(f"{k} {v}" for k, v in [*sorted(point.environment.items()), ("host", run.host)])
            row = _row(number, point, self._number("settings (text)", (setting,), self._settings, setting))
            case = (str(point.case), point.target, point.device)
            owner = self._number("cases (name, target, device)", case, self._cases, case)
            self._rows.setdefault((owner, number // CHUNK), []).append(row)
        return number

    def write(self) -> None:
        """Append the rows of all runs to those of earlier ones."""
        for key, rows in self._rows.items():
            held = self._base.execute("SELECT data FROM chunks WHERE owner = ? AND number = ?", key).fetchone()
            data = (held[0] if held else b"") + np.array(rows, dtype=ROW).tobytes()
            self._base.execute("REPLACE INTO chunks VALUES (?, ?, ?)", (*key, data))

    def _number(self, table: str, values: tuple[str, ...], known: dict[Any, int], key: object) -> int:
        if key not in known:
            marks = ", ".join("?" * len(values))
            known[key] = self._base.execute(f"INSERT INTO {table} VALUES ({marks})", values).lastrowid or 0
        return known[key]


def _row(number: int, point: Point, setting: int) -> tuple[float, ...]:
    change, since = point.change or _NOTHING, point.since or _NOTHING
    return (
        number,
        _short(point.work),
        _short(point.baseline_work),
        _short(change.against),
        change.value,
        change.sd,
        _short(since.against),
        since.value,
        since.sd,
        setting,
    )


_NOTHING = Shift(nan, nan, "")


@lru_cache(4096)
def _short(text: str) -> int:
    """A text as a number: equal for equal texts, 0 for none."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "little", signed=True) if text else 0


def _measured(base: sqlite3.Connection, owner: int, lookup: np.ndarray) -> ChangeSeries:
    """A case's changes, in the order that ``lookup`` gives to runs; -1 stands for runs that aren't wanted.

    Against the anchor where most points have one: it changes less often than the baseline.
    """
    chunks = base.execute("SELECT data FROM chunks WHERE owner = ? ORDER BY number", (owner,)).fetchall()
    rows = np.frombuffer(b"".join(c for (c,) in chunks), dtype=ROW)
    runs = lookup[np.minimum(rows["run"], len(lookup) - 1)]
    wanted = rows["since"][runs >= 0]
    by_anchor = bool(len(wanted)) and np.isfinite(wanted).mean() > 0.5
    reference, value, sd = ("anchor", "since", "since_sd") if by_anchor else ("against", "change", "sd")
    kept = np.flatnonzero((runs >= 0) & np.isfinite(rows[value]))
    order = kept[np.argsort(runs[kept], kind="stable")]
    column = {name: rows[name][order] for name in ("work", "baseline_work", reference, value, sd, "setting")}
    known = np.zeros(len(order), dtype=np.int64) if by_anchor else column["baseline_work"]
    return ChangeSeries(
        runs[order], column["work"], column[reference], known, column[value], column[sd], column["setting"]
    )
