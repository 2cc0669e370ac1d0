"""Finds winners of earlier runs for the tuning sites of one device, or the winner of the nearest call.

The nearest call's winner is launched untuned in the mode ``nearest``, and where ranks go on without a tuning because
their device stays busy.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import Environment
from kerntune.base.policy import TuneMode
from kerntune.capture import LAUNCH_WORDS, Capture, Site
from kerntune.errors import CacheError, CacheMissError
from kerntune.gpu.base import Gpu
from kerntune.kernels.compat import launch_environment, tuners, versions
from kerntune.kernels.source import source_hash, text_of
from kerntune.tuning.cache import Winner, WinnerCache, WinnerKey, winners
from kerntune.tuning.cache.entries import report_damage, tell_user
from kerntune.tuning.cache.keys import SCHEMA
from kerntune.tuning.cache.leases import Lease, of_this_run, several_ranks
from kerntune.tuning.cache.shared_store import SharedWinnerCache
from kerntune.tuning.verification import BITWISE_RULE


class Winners:
    """Where winners of earlier runs come from and go to, for the sites of one device.

    ``lax`` says what of candidates' results isn't compared (:attr:`~kerntune.tuning.verification.Verification.lax`).
    What is found so is stored apart, and not used by runs that compare everything. Lax runs use both; runs that compare
    to the bit use their own alone.
    """

    _warned = False

    def __init__(self, cache: WinnerCache, mode: TuneMode, gpu: Gpu, lax: str = "") -> None:
        self.cache, self.mode, self.lax, self._gpu = cache, mode, lax, gpu
        self.shared_cache = cache if isinstance(cache, SharedWinnerCache) else None
        self._seen: dict[str, Winner | None] = {}
        """What was stored for a key when it was last looked up."""

    def find(self, site: Site, unfinished: bool = False) -> int | None:
        """The stored winner's index among the candidates; None if there is none or the mode forces a new race.

        A winner of candidates some of which were never tried counts only if ``unfinished`` ones do, or if the mode is
        ``frozen`` or ``nearest``: nothing will ever be tried there. Where winners are agreed upon with others
        (:attr:`agrees`) it counts if it was stored since this run began, whatever is asked for: else ranks would go on
        with different ones.
        """
        alone = len(site.candidates) == 1
        if alone and site.search is None:
            return 0
        if (index := self.arrived(site, unfinished, ask=False)) is not None:
            return index
        if alone and self.mode is TuneMode.FROZEN:
            return 0
        if self.mode is TuneMode.FROZEN:
            raise CacheMissError(
                f"kernel {site.kernel}: no stored winner for these arguments under --kerntune-tune=frozen (or "
                "KERNTUNE_TUNE=frozen); run once with --kerntune-tune=auto"
                + "".join(f"\n  {line}" for line in self.why_missed(site))
            )
        return None

    def _counts(self, found: Winner, unfinished: bool) -> bool:
        if not found.untried or self.mode in (TuneMode.FROZEN, TuneMode.NEAREST):
            return True
        return of_this_run(found.created) if self.agrees else unfinished

    @property
    def agrees(self) -> bool:
        """Whether other processes should go on with the same winners: a store is shared, or there are several ranks."""
        return self.shared_cache is not None or several_ranks()

    def lease(self, site: Site) -> Lease:
        """Of a site's key, not taken yet."""
        store = None if self.shared_cache is None else self.shared_cache.store
        return Lease(self.cache.folder, self.key(site), store)

    def arrived(self, site: Site, unfinished: bool, ask: bool = True) -> int | None:
        """As :meth:`find`, of what another process may have stored a moment ago: with ``ask``, by a request to the
        store for this very key. No winner is no error here."""
        if self.shared_cache is not None and ask:
            self.shared_cache.refresh(self.key(site))
        found = self.stored(site)
        return index_of(site, found.config) if found is not None and self._counts(found, unfinished) else None

    def settles(self, site: Site) -> bool:
        """Whether all candidates have to be tried now: the winner of an earlier run was found without some."""
        found = self.stored(site) if self.agrees else None
        return found is not None and bool(found.untried)

    def stored(self, site: Site) -> Winner | None:
        """What is stored of a site's winner; None if there is nothing or the mode forces a new race."""
        if self.mode is TuneMode.FORCE:
            return None
        key = self.key(site)
        found = self._seen[key.digest()] = self.cache.get(key)
        if found is None and self.lax and BITWISE_RULE not in self.lax:
            found = self.cache.get(self.key(site, lax=""))
        report_damage(self.cache.damaged)
        return found if found is not None and index_of(site, found.config) is not None else None

    def incumbent(self, site: Site) -> int | None:
        """The candidate that wins ties where nothing final is stored: an unfinished winner, else the one that won among
        other candidates for the same arguments, so that a config more or less doesn't change the winner."""
        if self.mode is TuneMode.FORCE:
            return None
        found = self.stored(site)
        if found is not None and found.untried:
            return index_of(site, found.config)
        others = self.cache.of_other_configs(self.key(site))
        return next((i for w in others if (i := candidate_of(site, w.config)) is not None), None)

    def keep(self, site: Site, winner: int, time_ns: float, untried: Collection[int] = ()) -> int:
        """Store a winner; some candidates may be ``untried``. The winner to go on with: that of another process which
        has stored one since this one looked, so that all go on with the same."""
        config = site.candidates[winner].config
        rest = tuple(site.candidates[i].config for i in sorted(untried))
        created = round(time.time(), 3) if rest and self.agrees else 0.0
        found = Winner(SCHEMA, self.key(site), config, time_ns, self.environment(), rest, created)
        try:
            if self.mode is not TuneMode.FORCE:
                before = self._seen.get(found.key.digest())
                if before is not None and self.agrees and of_this_run(before.created):
                    before = None  # others go on with it
                standing = self.cache.offer(found, before, first_stands=self.agrees)
                other = winner if standing is found else index_of(site, standing.config)
                if other is not None:
                    return other
            self.cache.add(found)
        except CacheError as exc:
            if not Winners._warned:
                Winners._warned = True
                tell_user(f"winners can't be kept for the next run: {exc}")
        return winner

    def nearest(self, site: Site) -> NearestWinner | None:
        """The winner of the nearest call that has one among the site's candidates (:func:`nearest`)."""
        return nearest(self.cache, self.key(site), lambda config: index_of(site, config) is not None)

    def why_missed(self, site: Site) -> list[str]:
        """What differs from the nearest stored winner of the kernel, a line each."""
        return self.cache.why_missed(self.key(site), self.environment())

    def environment(self) -> Environment:
        """Versions, clocks and throttle reasons now."""
        return self._gpu.environment()

    def key(self, site: Site, lax: str | None = None) -> WinnerKey:
        """What the winner of a site depends on; under these rules, or ``lax`` ones."""
        spec, (source, arguments) = self._gpu.spec, self.asked(site)
        return WinnerKey(
            kernel=site.kernel,
            source=source,
            target=str(spec.target),
            device=spec.name,
            triton=versions.triton_version(),
            arguments=arguments + (self.lax if lax is None else lax),
            configs=tuple(c.config for c in site.listed),
            search="" if site.search is None else str(site.search),
        )

    def asked(self, site: Any) -> tuple[str, str]:
        """A hash of what a site computes, and on what: its arguments and the compiler's settings."""
        return source_hash(site.jit), _arguments(site) + _settings(self._gpu.spec.target.backend)


def candidate_of(site: Site, config: Config) -> int | None:
    """A config's place among the candidates; one that the site's search might try is added. None for any other, and
    for one that is there several times with other hooks."""
    configs = [c.config for c in site.candidates]
    if config in configs:
        index = configs.index(config)
        return None if index in site.ambiguous() else index
    return Capture.add_candidate(site, 0, config) if site.search is not None and site.search.has(config) else None


def index_of(site: Site, config: Config) -> int | None:
    """As :func:`candidate_of`, of a winner. The last one with a single stage is added if that is what it is: it wins
    where nothing else fits (:meth:`kerntune.tuning.tuner._Tuning.stages`)."""
    found = candidate_of(site, config)
    if found is not None:
        return found
    from kerntune.heuristics import without_pipelining  # most winners are candidates

    last = len(site.listed) - 1
    single = without_pipelining(site.candidates[last].config)
    return Capture.add_candidate(site, last, config) if config == single else None


def _arguments(site: Site) -> str:
    """Every argument's layout or value, or what the tuner itself says that a winner depends on; and the constants that
    ``@triton.heuristics`` below the tuner make of them."""
    if hasattr(site.tuner, "tuning_key"):
        own = "; ".join(map(str, site.tuner.tuning_key(site.arguments)))
    else:
        own = exact_arguments(site)
    return "; ".join([own, *(f"{name}={text}" for name, text in _heuristics(site))])


def _settings(backend: str) -> str:
    """What the environment has the compiler do that it doesn't do by default; empty where nothing is set. In a store
    that machines share, such a machine's winners are for machines like it."""
    found = launch_environment.compiler_settings(backend)
    return "".join(f"; {name}={text}" for name, text in sorted(found.items()))


def _heuristics(site: Site) -> Iterator[tuple[str, str]]:
    """What heuristics set, by name: one value, or where it depends on the config a hash of all."""
    layers, _ = tuners.heuristic_layers(site.tuner.fn) if site.tuner is not None else ([], None)
    if not layers:
        return
    seen = [_set_by(layers, {**site.arguments, **candidate.words()}) for candidate in site.listed]
    for name in sorted(seen[0]):
        first, *others = dict.fromkeys(values[name] for values in seen)
        yield name, hashlib.sha256(repr([first, *others]).encode()).hexdigest()[:16] if others else first


def _set_by(layers: Sequence[Any], words: dict[str, Any]) -> dict[str, str]:
    """The texts of what heuristics make of a call's arguments and one config, each seeing what those before it set."""
    found = {}
    for _, values in layers:
        for name, value in values.items():
            try:
                words[name] = value(words)
            except Exception:  # a user's: it is raised where this config is tried, if it ever is
                words.pop(name, None)
            found[name] = text_of(words.get(name))
    return found


def exact_arguments(site: Site) -> str:
    """Every argument's layout or value, whatever the tuner rounds or leaves out; of a grid, a new function object at
    every call, nothing."""
    return "; ".join(f"{k}={text_of(v)}" for k, v in sorted(site.arguments.items()) if k not in LAUNCH_WORDS)


NUMBER = re.compile(r"(?<![\w.])-?\d{1,20}(?![\w.])")
"""A size, stride or integer of 64 bits; not the digits of ``float32``, nor those of a float. What has more digits is a
text: Python refuses to read thousands, and keys come from stores that others write."""

FLOAT = re.compile(r"(?<![\w.])-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?![\w.])")
"""A float: kernels are compiled for its type, not for its value."""

LAYOUT = re.compile(r"(\([\d, ]*\))(\([\d, ]*\))$")
"""A tensor's shape and strides, as :func:`kerntune.kernels.source.text_of` writes them."""


@dataclass(frozen=True)
class NearestWinner:
    """A stored winner of other arguments: how far away, and what its code and Triton differ in."""

    winner: Winner
    distance: float
    other: tuple[str, ...]

    def __str__(self) -> str:
        but = f", of another {' and '.join(self.other)}" if self.other else ""
        return f"{self.winner.config}, the winner of {self.winner.key.arguments} (distance {self.distance:.2f}{but})"


def nearest(cache: WinnerCache, key: WinnerKey, usable: Callable[[Config], bool]) -> NearestWinner | None:
    """The nearest winner of the same kernel, device and target with the same dtypes and layouts whose config is
    ``usable``; None if there is none.

    Winners of the same source and Triton go before others, then the smaller :func:`distance` does, then the text of the
    arguments, so that every process takes the same.
    """
    found = []
    for winner in _of_kernel(cache, key):
        far = distance(winner.key.arguments, key.arguments)
        if far is not None and usable(winner.config):
            other = tuple(n for n in ("source", "triton") if getattr(winner.key, n) != getattr(key, n))
            found.append(NearestWinner(winner, far, other))
    return min(found, key=lambda n: (len(n.other), n.distance, n.winner.key.arguments), default=None)


def _of_kernel(cache: WinnerCache, key: WinnerKey) -> Sequence[Winner]:
    asked = (key.kernel, key.device, key.target)
    caches = (cache, getattr(cache, "mirror", None))  # a shared store's, which a miss has just filled
    stored = [winner for one in caches if one is not None for winner in _all(one)]
    stored += winners.shipped_of_device(key.target, key.device, cache.tell)
    return [w for w in stored if (w.key.kernel, w.key.device, w.key.target) == asked]


_known: dict[str, tuple[object, list[Winner]]] = {}


def _all(cache: WinnerCache) -> list[Winner]:
    """The folder's winners, read again only where one was added since: a folder of each question shows it."""
    place = cache.folder / "winners"
    stamp = {str(path): path.stat().st_mtime_ns for path in (*place.glob("*"), *place.glob("*/*"))}
    before, found = _known.get(str(place), (None, []))
    if before != stamp:
        found = cache.entries()
        _known[str(place)] = stamp, found
    return found


def distance(stored: str, asked: str) -> float | None:
    """How far apart two calls' arguments are: the root of the sum, over all sizes and integers, of the squared
    differences of log2(1 + n). None where anything else differs: names, dtypes, ranks, texts, which strides are 0 or
    1, an integer's sign. Floats don't count.

    The log is taken since twice the size is the same step for small and large; 1 more, so that 0 has one.
    """
    (one, numbers), (other, others) = _numbers_apart(stored), _numbers_apart(asked)
    if one != other:
        return None
    return math.dist(list(map(_log, numbers)), list(map(_log, others)))


def _log(number: int) -> float:
    return math.log2(1 + abs(number))


@lru_cache(maxsize=4096)
def _numbers_apart(arguments: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    numbers: list[int] = []

    def taken(match: re.Match[str]) -> str:
        numbers.append(int(match.group()))
        return "-#" if match.group().startswith("-") else "#"

    texts = [NUMBER.sub(taken, FLOAT.sub("~", _by_layout(part))) for part in arguments.split("; ")]
    return tuple(texts), tuple(numbers)


def _by_layout(part: str) -> str:
    """Strides as their pattern: their sizes follow from the shape where a tensor is dense."""
    match = LAYOUT.search(part)
    if match is None:
        return part
    strides = re.sub(r"\d+", lambda m: {"0": "zero", "1": "one"}.get(m.group(), "more"), match[2])
    return f"{part[: match.start(2)]}{strides}"
