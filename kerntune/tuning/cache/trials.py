"""Single trials on disk, one entry per config: one config more costs one trial, and failures are remembered."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.timing.timers import TimingProtocol
from kerntune.tuning.cache.entries import Entries, default_folder
from kerntune.tuning.cache.keys import Nanoseconds, Question, why_missed

SCHEMA = "kerntune.trial/1"


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


class ConfigKey(TrialKey, frozen=True):
    """A whole question, as explanations compare it."""

    specialization: str
    config: str


class TrialCache:
    """A folder per question with a file per config: writers of different configs never meet."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._entries = Entries(self.folder, "trials", StoredTrial, SCHEMA)

    @property
    def damaged(self) -> list[str]:
        """What was found damaged so far, a line each."""
        return self._entries.damaged

    def tell(self, why: str) -> None:
        """Add a line to ``damaged``, once."""
        self._entries.tell(why)

    def of(self, key: TrialKey) -> list[StoredTrial]:
        """All trials of one question, whatever their environment."""
        digest = key.digest()
        return [t for t in self._entries.within(digest[:2], digest) if t.key.digest() == digest]

    def add(self, trial: StoredTrial) -> None:
        """Store a trial in the place of an earlier one of the same config. :class:`CacheError` if it can't be."""
        self._entries.write(self._path(trial), trial)

    def remove(self, key: TrialKey, config: Config, specialization: str) -> None:
        """Remove a trial, if there is one. A folder that can't be written keeps it."""
        digest = key.digest()
        with contextlib.suppress(OSError):
            self._entries.path(digest[:2], digest, trial_name(config, specialization)).unlink()

    def holds(self, trial: StoredTrial) -> bool:
        """Whether there is an entry for the trial's key, config and specialization."""
        found = self._entries.read(self._path(trial))
        return found is not None and found.key == trial.key

    def entries(self) -> list[StoredTrial]:
        """All trials that can be read."""
        return list(self._entries.all())

    def clear(self) -> int:
        """Remove all trials; how many there were."""
        return self._entries.clear()

    def why_missed(
        self, key: TrialKey, config: Config, specialization: str, environment: Environment | None = None
    ) -> list[str]:
        """What differs from the nearest stored trial of the kernel, a line each; the environment too. Reads all."""
        stored = ((_config_key(t.key, t.config, t.specialization), t.environment) for t in self._entries.all())
        return why_missed("trial", _config_key(key, config, specialization), environment, stored, self.folder)

    def _path(self, trial: StoredTrial) -> Path:
        digest = trial.key.digest()
        return self._entries.path(digest[:2], digest, trial.name())


def _config_key(key: TrialKey, config: Config, specialization: str) -> ConfigKey:
    return ConfigKey(**msgspec.structs.asdict(key), specialization=specialization, config=str(config))
