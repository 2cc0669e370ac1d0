"""Winners and single trials of earlier runs on disk: what was tuned once is not tuned again.

A trial is one entry per config: one config more costs one trial, and failures are remembered. A package ships winners
in one file for each kind of device, which is only read. ``kerntune cache export --per-device`` makes such files. A
package calls ``kerntune.tuning.cache.add_shipped(Path(__file__).parent / "winners")``. ``KERNTUNE_WINNERS`` names more
folders, separated as in ``PATH``. A file that other users can write to is ignored, and so is one in a folder where they
can replace it; both are reported.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kerntune.base import codec
from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.errors import CacheError, StoreError
from kerntune.timing.timers import TimingProtocol
from kerntune.tuning.cache.entries import Entries, default_folder
from kerntune.tuning.cache.keys import SCHEMA, Nanoseconds, Question, Winner, WinnerKey, why_missed


class WinnerCache(Entries[Winner]):
    """One small file a winner, safe under many processes. A damaged file is set aside, never fatal.

    What isn't in the folder is looked for among the winners that packages ship (:func:`find_shipped`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder or default_folder(), "winners", Winner, SCHEMA)

    def get(self, key: WinnerKey) -> Winner | None:
        """The stored winner, else a shipped one, else None."""
        return self.own(key) or find_shipped(key, self.tell)

    def add(self, winner: Winner) -> None:
        """Store a winner. :class:`CacheError` if the folder can't be written."""
        self.write(self._path(winner.key), winner)

    def offer(self, winner: Winner, instead_of: Winner | None = None, *, first_stands: bool = False) -> Winner:
        """Store a winner unless another process has stored one of the same key meanwhile; the one that stands then.

        ``instead_of`` is what was stored when the tuning began: that is replaced, and so is a winner with untried
        configs by one without, unless the ``first_stands`` that was stored since. :class:`CacheError` if the folder
        can't be written.
        """
        path, again = self._path(winner.key), False
        while not self.write_new(path, winner):
            standing = self.own(winner.key)
            had_untried = standing is not None and bool(standing.untried)
            unfinished = had_untried and not winner.untried and not first_stands
            if standing is not None and standing != instead_of and not unfinished:
                return standing
            if standing is not None or again:
                self.write(path, winner)
                break
            again = True  # damage may have been set aside; else no winner of this key is in its place
        return winner

    def holds(self, key: WinnerKey) -> bool:
        """Whether the folder itself has a winner for a key."""
        return self.own(key) is not None

    def entries(self) -> list[Winner]:
        """All winners of the folder that can be read, in the order of their keys' digests."""
        return sorted(self.all(), key=lambda winner: winner.key.digest())

    def of_other_configs(self, key: WinnerKey) -> list[Winner]:
        """Winners of the very same question among other configs, in a stable order: reads no other questions'."""
        own, found = key.digest(), self.within(key.question[:2], key.question)
        return [w for w in found if w.key.question == key.question and w.key.digest() != own]

    def why_missed(self, key: WinnerKey, environment: Environment | None = None) -> list[str]:
        """What differs between ``key`` and the nearest stored winner of the kernel, a line each; its environment too.

        Reads every winner: for explanations, not for the way to a launch.
        """
        return why_missed(key, environment, self.all(), self.folder)

    def own(self, key: WinnerKey) -> Winner | None:
        """The folder's winner, without shipped ones."""
        found = self.read(self._path(key))
        return found if found is not None and found.key.digest() == key.digest() else None

    def _path(self, key: WinnerKey) -> Path:
        """Where a winner lies: beside those of the same question among other configs."""
        return self.path(key.question[:2], key.question, key.digest())


SHIPPED_SCHEMA = "kerntune.winners/1"


class DeviceWinners(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All winners of one kind of device."""

    schema: str
    target: str
    device: str
    winners: tuple[Winner, ...]


_folders: list[Path] = []
_read: dict[Path, dict[str, Winner]] = {}


def add_shipped(folder: Path) -> None:
    """Look for winners in a folder of per-device files too, after those that were added before."""
    if folder not in _folders:
        _folders.append(folder)


def shipped_folders() -> list[Path]:
    """Where shipped winners are looked for, in order."""
    named = os.environ.get("KERNTUNE_WINNERS", "")
    return [*_folders, *(Path(name) for name in named.split(os.pathsep) if name)]


def file_name(target: str, device: str) -> Path:
    """A device's file within a folder: ``cuda-90/nvidia-h200.json``."""
    return Path(_slug(target)) / f"{_slug(device)}.json"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_SLUG] or "unknown"


MAX_SLUG = 200
"""Characters of a name; most file systems end at 255 bytes."""


def find_shipped(key: WinnerKey, tell: Callable[[str], None]) -> Winner | None:
    """The first shipped winner for a key. Files are read once a process; a damaged one is reported and left
    unchanged."""
    digest = key.digest()
    for folder in shipped_folders():
        found = _winners(folder / file_name(key.target, key.device), tell).get(digest)
        if found is not None and found.key == key:
            return found
    return None


def shipped_of_device(target: str, device: str, tell: Callable[[str], None]) -> list[Winner]:
    """All shipped winners of a kind of device."""
    name = file_name(target, device)
    return [winner for folder in shipped_folders() for winner in _winners(folder / name, tell).values()]


def _winners(path: Path, tell: Callable[[str], None]) -> dict[str, Winner]:
    if path not in _read:
        try:
            if path.exists() and (who := writable_by_others(path)):
                why = "other users can write to it, so its winners are not used"
                raise CacheError(f"{who}: {why}; chmod go-w, or chown")
            _read[path] = {w.key.digest(): w for w in read_file(path).winners}
        except FileNotFoundError:
            return {}
        except (StoreError, OSError) as exc:
            tell(str(exc))
            _read[path] = {}
    return _read[path]


def writable_by_others(path: Path) -> Path | None:
    """The first of a file, its folder and all above them that users beside this one and the superuser can change, None
    if there is none. A folder in which users may remove only their own files (``/tmp``) counts as safe."""
    real = path.resolve()
    return next((p for p in (real, *real.parents) if _others_can_write(p)), None)


def _others_can_write(path: Path) -> bool:
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    group = bool(found.st_mode & stat.S_IWGRP) and not _is_private(found.st_gid, found.st_uid)
    return group or bool(found.st_mode & stat.S_IWOTH)


def _is_private(group: int, user: int) -> bool:
    """Whether a group is a user's own, without members: many systems give each user one, and a umask of 002."""
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return group == owner.pw_gid and set(found.gr_mem) <= {owner.pw_name}


def read_file(path: Path) -> DeviceWinners:
    """A device's file. :class:`CacheError` if it is damaged or can't be read, FileNotFoundError if there is none."""
    data = codec.read_file(path, error=CacheError, limit=codec.MAX_REPORT)
    if data is None:
        raise FileNotFoundError(path)
    most = codec.MAX_REPORT_VALUES
    found = codec.from_json(data, DeviceWinners, SHIPPED_SCHEMA, where=str(path), error=CacheError, most_values=most)
    wrong = [w for w in found.winners if w.schema != SCHEMA]
    if wrong:
        raise CacheError(f"{path}: holds winners of schema {wrong[0].schema!r}; export them anew")
    return found


def write_file(folder: Path, winners: Sequence[Winner]) -> Path:
    """Write winners that are all of one device; the file."""
    key = winners[0].key
    path = folder / file_name(key.target, key.device)
    ordered = tuple(sorted(winners, key=lambda w: w.key.digest()))
    found = DeviceWinners(SHIPPED_SCHEMA, key.target, key.device, ordered)
    codec.write_atomic(path, codec.to_json(found), error=CacheError)
    return path


TRIAL_SCHEMA = "kerntune.trial/1"


class TrialKey(Question, frozen=True, forbid_unknown_fields=True):
    """What a trial's time depends on beside its config and environment.

    Its ``arguments`` are exact; ``protocol`` says how times are taken.
    """

    protocol: str


class StoredTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What trying one config gave: times in nanoseconds, or a failure's reason.

    ``specialization`` hashes what the config was compiled for (types, alignment, constants, options) and its grid;
    ``estimate_ns`` is the first look's; ``time_ns`` the median in turn with others under ``timing``, None for what was
    dropped before; ``code`` the identity of the binary with its arguments, empty if it has none.
    """

    schema: str
    key: TrialKey
    config: Config
    specialization: str
    environment: Environment
    estimate_ns: Nanoseconds | None = None
    time_ns: Nanoseconds | None = None
    timing: TimingProtocol | None = None
    failure: str = ""
    code: str = ""
    grid: tuple[int, int, int] = (1, 1, 1)

    def name(self) -> str:
        """The entry's name among those of its key."""
        return trial_name(self.config, self.specialization)


def trial_name(config: Config, specialization: str) -> str:
    """32 hex digits over what tells trials of one key apart."""
    return hashlib.sha256(f"{config.key()}\0{specialization}".encode()).hexdigest()[:32]


class TrialCache(Entries[StoredTrial]):
    """A folder per question with a file per config: writers of different configs never meet."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder or default_folder(), "trials", StoredTrial, TRIAL_SCHEMA)

    def of(self, key: TrialKey) -> list[StoredTrial]:
        """All trials of one question, whatever their environment."""
        digest = key.digest()
        return [t for t in self.within(digest[:2], digest) if t.key.digest() == digest]

    def add(self, trial: StoredTrial) -> None:
        """Store a trial in the place of an earlier one of the same config. :class:`CacheError` if it can't be."""
        self.write(self._path(trial), trial)

    def remove(self, key: TrialKey, config: Config, specialization: str) -> None:
        """Remove a trial, if there is one. A folder that can't be written keeps it."""
        digest = key.digest()
        with contextlib.suppress(OSError):
            self.path(digest[:2], digest, trial_name(config, specialization)).unlink()

    def holds(self, trial: StoredTrial) -> bool:
        """Whether there is an entry for the trial's key, config and specialization."""
        found = self.read(self._path(trial))
        return found is not None and found.key == trial.key

    def entries(self) -> list[StoredTrial]:
        """All trials that can be read."""
        return list(self.all())

    def _path(self, trial: StoredTrial) -> Path:
        digest = trial.key.digest()
        return self.path(digest[:2], digest, trial.name())
