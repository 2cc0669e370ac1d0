"""Winners of earlier runs on disk, so that what was tuned once is not tuned again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.tuning.cache import shipped
from kerntune.tuning.cache.entries import Entries, default_folder
from kerntune.tuning.cache.miss_reason import why_missed
from kerntune.tuning.cache.question_index import QuestionIndex
from kerntune.tuning.cache.winner import SCHEMA, Winner, WinnerKey


class WinnerCache:
    """One small file a winner, safe under many processes. A damaged file is set aside, never fatal.

    What isn't in the folder is looked for among the winners that packages ship (:mod:`kerntune.tuning.cache.shipped`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._entries = Entries(self.folder, "winners", Winner, SCHEMA)
        self._index = QuestionIndex(self.folder / "winners" / "questions")

    @property
    def damaged(self) -> list[str]:
        """What was found damaged so far, a line each."""
        return self._entries.damaged

    def get(self, key: WinnerKey) -> Winner | None:
        """The stored winner, else a shipped one, else None."""
        return self.own(key) or shipped.find(key, self._entries.tell)

    def put(
        self,
        key: WinnerKey,
        config: Config,
        time_ns: float,
        environment: Environment,
        untried: tuple[Config, ...] = (),
    ) -> None:
        """Store a winner. :class:`CacheError` if the folder can't be written."""
        self.add(Winner(SCHEMA, key, config, time_ns, environment, untried))

    def add(self, winner: Winner) -> None:
        """Store a winner as it is. :class:`CacheError` if the folder can't be written."""
        self._entries.write(self._indexed(winner.key), winner)

    def offer(self, winner: Winner, instead_of: Winner | None = None, *, first_stands: bool = False) -> Winner:
        """Store a winner unless another process has stored one of the same key meanwhile; the one that stands then.

        ``instead_of`` is what was stored when the tuning began: that is replaced, and so is a winner with untried
        configs by one without, unless the ``first_stands`` that was stored since. :class:`CacheError` if the folder
        can't be written.
        """
        path, again = self._indexed(winner.key), False
        while not self._entries.write_new(path, winner):
            standing = self.own(winner.key)
            unfinished = standing is not None and bool(standing.untried) and not winner.untried and not first_stands
            if standing is not None and standing != instead_of and not unfinished:
                return standing
            if standing is not None or again:
                self._entries.write(path, winner)
                break
            again = True  # damage may have been set aside; else no winner of this key is in its place
        return winner

    def holds(self, key: WinnerKey) -> bool:
        """Whether the folder itself has a winner for a key."""
        return self.own(key) is not None

    def entries(self) -> list[Winner]:
        """All winners of the folder that can be read."""
        return list(self._entries.all())

    def of_other_configs(self, key: WinnerKey) -> list[Winner]:
        """Winners of the very same question among other configs, in a stable order: reads no others."""
        own, question = key.digest(), _of_any(key).digest()
        found = (self._entries.read(self._file(name)) for name in self._names(question) if name != own)
        return [w for w in found if w is not None and _of_any(w.key).digest() == question]

    def clear(self) -> int:
        """Remove all winners of the folder; how many there were."""
        self._index.clear()
        return self._entries.clear()

    def why_missed(self, key: WinnerKey, environment: Environment | None = None) -> list[str]:
        """What differs between ``key`` and the nearest stored winner of the kernel, a line each; its environment too.

        Reads every winner: for explanations, not for the way to a launch.
        """
        stored = ((w.key, w.environment) for w in self._entries.all())
        return why_missed("winner", key, environment, stored, self.folder)

    def own(self, key: WinnerKey) -> Winner | None:
        """The folder's winner, without shipped ones."""
        digest = key.digest()
        found = self._entries.read(self._file(digest))
        return found if found is not None and found.key.digest() == digest else None

    def _indexed(self, key: WinnerKey) -> Path:
        """Where a winner lies. The index knows of it first: ended in between, it has a line too many."""
        if not self._index.is_whole and not self._entries.is_there:
            self._index.mark_whole()
        digest = key.digest()
        self._index.add(_of_any(key).digest(), digest)
        return self._file(digest)

    def _names(self, question: str) -> list[str]:
        """The digests of a question's winners. A folder that has none is left alone; one without an index that can't
        be written either is read through."""
        if not self._entries.is_there:
            return []
        if not self._index.is_whole and not self._index.build(self._questions()):
            return sorted(name for asked, name in self._questions() if asked == question)
        return self._index.entries(question)

    def _questions(self) -> Iterator[tuple[str, str]]:
        return ((_of_any(w.key).digest(), w.key.digest()) for w in self._entries.all())

    def _file(self, digest: str) -> Path:
        return self._entries.path(digest[:2], digest)


def _of_any(key: WinnerKey) -> WinnerKey:
    """The key without what was chosen from."""
    return msgspec.structs.replace(key, configs=(), search="")
