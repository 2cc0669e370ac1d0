"""Which artifacts of a run's baselines can't be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kerntune.base.device import Target
from kerntune.errors import BaselineError
from kerntune.gate.baselines import BaselineStore


class Damage:
    """Looks for artifacts that a comparison will need one day, and that are damaged or gone. Many cases name the same
    ones: those that are sound are read once."""

    def __init__(self) -> None:
        self._sound: set[tuple[Path, Target, str]] = set()

    def among(self, store: BaselineStore, target: Target, names: Iterable[str]) -> Iterator[str]:
        """A sentence for each artifact of ``target`` (by checksum) that a baseline of ``store`` can't have."""
        artifacts = store.readable(target)
        for sha in dict.fromkeys(names):
            key = (store.folder, target, sha)
            problem = "" if key in self._sound else _problem(artifacts, sha)
            if problem:
                yield problem
            else:
                self._sound.add(key)


def _problem(artifacts: Mapping[str, bytes], sha: str) -> str:
    try:
        artifacts[sha]
    except BaselineError as exc:
        return str(exc)
    except KeyError:
        return f"the folder lacks artifact {sha}, which the baseline names; restore it or record the case anew"
    return ""
