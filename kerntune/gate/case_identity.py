"""Which case a call is: the tensors that tell it from others, and the name that its test had before.

Where no stored case has the call's tensors, the nearest one tells what differs.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Target
from kerntune.base.policy import Update
from kerntune.base.recording import Recording
from kerntune.errors import BaselineError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import Argument, Baseline, TimeBaseline, configs_by_kernel
from kerntune.gpu.base import Backend
from kerntune.kernels.source import DESCRIPTORS


def tensor_arguments(backend: Backend, tree: Any) -> tuple[Argument, ...]:
    """The layouts of the tensors among a call's arguments, in order; partial functions and modules included."""
    return tuple(_argument(backend, leaf) for leaf in leaves(backend, tree))


def _argument(backend: Backend, leaf: Any) -> Argument:
    if not backend.tensors.is_tensor(leaf):
        return Argument(str(leaf).removeprefix("torch."), (), ())
    dtype = str(leaf.dtype).removeprefix("torch.")
    return Argument(dtype, tuple(map(int, leaf.shape)), tuple(map(int, leaf.stride())))


def leaves(backend: Backend, tree: Any, depth: int = 0) -> list[Any]:
    """The tensors and dtypes in it, which is itself in ``depth`` containers."""
    if backend.tensors.is_tensor(tree) or type(tree).__name__ == "dtype":
        return [tree]
    children = _children(tree) if depth < MAX_DEPTH else []
    return [leaf for child in children for leaf in leaves(backend, child, depth + 1)]


def tensor_leaves(backend: Backend, tree: Any) -> list[Any]:
    """The tensors in it that are on the device."""
    return [leaf for leaf in leaves(backend, tree) if backend.tensors.is_tensor(leaf)]


MAX_DEPTH = 6
"""Nesting of containers in which tensors are looked for."""


def _children(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if hasattr(value, "func") and hasattr(value, "args") and hasattr(value, "keywords"):
        return [value.args, value.keywords]
    if callable(getattr(value, "parameters", None)) and hasattr(value, "buffers"):
        return [*value.parameters(), *value.buffers()]
    base = getattr(value, "base", None)
    return [base] if type(value).__name__ in DESCRIPTORS else []


Inputs = tuple[Argument, ...]


def case_inputs(store: BaselineStore, target: Target, case: CaseId, recording: Recording) -> Inputs:
    """The inputs that a closure's baseline is stored by, or would be.

    An edit that adds or drops an input, or a kernel that isn't compiled any more, doesn't change the case: of stored
    inputs those count that have all of today's or are among them. Today's do where these are stored, or where that is
    ambiguous. Another shape, dtype or stride of an input is another case.
    """
    today, known = inputs_of(recording), store.known_arguments(target, case)
    if today in known:
        return today
    alike = [other for other in known if set(other) <= set(today) or set(today) <= set(other)]
    return alike[0] if len(alike) == 1 else today


def inputs_of(recording: Recording) -> Inputs:
    """The tensor layouts that a recording's launches read before any of them writes there.

    What identifies a call that takes no tensors itself (a closure). Temporaries don't count, so that an edit which
    adds one leaves the case the same.
    """
    inputs: dict[Argument, None] = {}
    written: set[int] = set()
    for launch in recording.launches:
        for view in (recording.views[p.view] for p in launch.params if p.view is not None):
            if view.storage in launch.reads and view.storage not in written:
                inputs[Argument(view.dtype, view.shape, view.strides)] = None
        written.update(launch.writes)
    return tuple(inputs)


KernelHashes = tuple[tuple[str, str], ...]
"""Kernels and the hashes of their sources, in the order of their launches."""


class Move(NamedTuple):
    """A baseline, its path, and its new case. ``replaces`` is the baseline that is at the new path already."""

    store: BaselineStore
    path: Path
    baseline: Baseline
    case: CaseId
    replaces: Baseline | None = None

    @property
    def renamed(self) -> Baseline:
        """The same baseline, of the other case."""
        return self.baseline.but(case=self.case)

    @property
    def destination(self) -> Path:
        """Its new path."""
        return self.store.path_of(self.renamed)

    @property
    def loses(self) -> bool:
        """Whether it would replace a baseline of other work. One of the same work is no loss: it is a later record of
        it, made under the new name."""
        return self.replaces is not None and kernel_hashes(self.replaces) != kernel_hashes(self.baseline)

    def write(self) -> None:
        """Write it whole under its new name. The old file stays until :meth:`BaselineStore.remove`."""
        self.store.write(self.destination, self.renamed)


def moves_of(store: BaselineStore, cases: Mapping[CaseId, CaseId]) -> list[Move]:
    """The moves of all readable baselines of these cases in a folder: of every target, device and Triton series."""
    found = list(store.readable())
    moves = [Move(store, path, b, cases[b.case]) for path, b in found if cases.get(b.case, b.case) != b.case]
    leaving = {move.path for move in moves}
    staying = {path: b for path, b in found if path not in leaving}
    return [move._replace(replaces=staying.get(move.destination)) for move in moves]


def make_moves(moves: list[Move]) -> None:
    """Make them all, also where names are exchanged: first every new file is written, then the old ones are removed. If
    that is interrupted, some baselines exist twice and none is lost."""
    kept = {move.destination for move in moves}
    for move in moves:
        move.write()
    for move in moves:
        if move.path not in kept:
            move.store.remove(move.path)


def kernel_hashes(launched: Baseline | Recording) -> KernelHashes:
    """The kernels of a baseline's launches, or a recording's."""
    return tuple((launch.kernel, launch.source) for launch in launched.launches)


TAKING_OVER = (Update.ALL, Update.NEW, Update.RENAMED)
"""Updates under which a renamed test's baselines go with it. ``all`` records it anew on top, as it does any case."""


class Renamed(NamedTuple):
    """The sentence about a case that was renamed, empty for others; whether it has its old baselines now; and whether
    it was ``edited`` as well, as far as its likeness to another one tells."""

    said: str = ""
    taken: bool = False
    edited: bool = False

    @property
    def remarks(self) -> tuple[str, ...]:
        """The sentence as a case's remark, for the table: NEW alone would hide that a baseline is left behind."""
        return (self.said,) if self.said else ()


class Renames:
    """Finds what cases were called before.

    The same case is one with equal tensors (fingerprint) and kernels of equal source, whose test is gone: ``gone``
    says so of a node id, False where that can't be known. Of several the one with the most similar name is taken;
    each is taken once. A case whose kernels were edited as well is only likely to be another one: it is named, and
    nothing is taken over.
    """

    def __init__(
        self,
        stores: Iterable[BaselineStore],
        update: Update = Update.NONE,
        gone: Callable[[str], bool] | None = None,
    ) -> None:
        self._gone = gone
        self._stores = tuple(stores)
        self._update = update
        self._by_fingerprint: dict[str, list[Baseline]] | None = None
        self._by_kernel: defaultdict[str, list[Baseline]] = defaultdict(list)
        self._given: dict[CaseId, CaseId] = {}

    def settle(
        self, case: CaseId, fingerprint: str, recording: Recording, path: Path, arguments: Inputs = ()
    ) -> Renamed:
        """The sentence about a case whose own baseline would be at ``path``: its earlier name, and what was done.

        Empty if it has a baseline, or never had another name. Where the run was asked to (:data:`TAKING_OVER`), the
        old name's baselines of all devices and targets, and its anchors, are moved here first.
        """
        if path.exists():
            return Renamed()
        work = kernel_hashes(recording)
        old = self._named_before(case, fingerprint, work)
        if old is None:
            return self._edited(case, fingerprint, arguments, [kernel for kernel, _ in work])
        if self._update not in TAKING_OVER:
            return Renamed(f"renamed from {old}? {move_command(old, case)} keeps what is known of it")
        moves = [move for store in self._stores for move in moves_of(store, {old: case})]
        try:
            make_moves([move for move in moves if not move.loses])
        except BaselineError:
            return Renamed()
        said = f"renamed from {old}, whose baselines were taken over"
        return Renamed(said, True) if moves else Renamed()

    def _edited(self, case: CaseId, fingerprint: str, arguments: Inputs, kernels: Sequence[str]) -> Renamed:
        """The hint at the case that is the most like this one by names of tests and kernels, and by tensors."""
        gone = {b.case: b for b in self._candidates(fingerprint, kernels)}
        alike = {old: _alike(case, arguments, kernels, b) for old, b in gone.items() if old not in self._given}
        best = max(sorted(alike), key=lambda old: alike[old], default=None)
        if best is None or alike[best] < ALIKE:
            return Renamed()
        said = f"renamed from {best} and edited? {move_command(best, case)} holds it against what is known of it"
        return Renamed(f"{said}, --kerntune-update=new records it as a new case", edited=True)

    def configs(self, case: CaseId, fingerprint: str | None) -> dict[str, list[Config]]:
        """Configs of what may be this case's old baselines, by kernel: they are tried first."""
        likest = sorted(self._candidates(fingerprint), key=lambda b: -_likeness(b.case, case))
        return configs_by_kernel(likest)

    def timed_before(self, case: CaseId, fingerprint: str, device: DeviceSpec) -> TimeBaseline | None:
        """The baseline on a kind of device of what may be this case under its old name."""
        kind = device.slug, device.target
        timed = [b for b in self._candidates(fingerprint) if isinstance(b, TimeBaseline)]
        found = [b for b in timed if (b.device.slug, b.device.target) == kind]
        return max(found, key=lambda b: _likeness(b.case, case), default=None)

    def _named_before(self, case: CaseId, fingerprint: str, work: KernelHashes) -> CaseId | None:
        if case in self._given.values():
            return next(old for old, new in self._given.items() if new == case)
        cases = {b.case for b in self._candidates(fingerprint) if kernel_hashes(b) == work}
        best = max(sorted(cases - self._given.keys()), key=lambda old: _likeness(old, case), default=None)
        if best is not None:
            self._given[best] = case
        return best

    def _candidates(self, fingerprint: str | None, kernels: Iterable[str] = ()) -> Iterator[Baseline]:
        """Baselines of equal tensors, and those of any of these kernels, whose test is gone. The folder is read once,
        by the first case that has none."""
        gone = self._gone
        if gone is None:
            return
        if self._by_fingerprint is None:
            self._by_fingerprint = defaultdict(list)
            for store in self._stores[:1]:
                for _, baseline in store.readable():
                    self._by_fingerprint[baseline.fingerprint].append(baseline)
                    for kernel, _ in dict.fromkeys(kernel_hashes(baseline)):
                        self._by_kernel[kernel].append(baseline)
        found = [*self._by_fingerprint.get(fingerprint or "", ()), *(b for k in kernels for b in self._by_kernel[k])]
        yield from (b for b in found if gone(b.case.nodeid))


def renamed_to(stale: Baseline, living: Iterable[Baseline]) -> str:
    """The sentence about a stale baseline if another case, recorded later, does the same work on the same tensors."""
    same = [
        b.case
        for b in living
        if b.fingerprint == stale.fingerprint
        and b.recorded > stale.recorded
        and kernel_hashes(b) == kernel_hashes(stale)
    ]
    new = max(sorted(same), key=lambda case: _likeness(stale.case, case), default=None)
    return "" if new is None else f", renamed to {new}? {move_command(stale.case, new)} keeps what is known of it"


def move_command(old: CaseId, new: CaseId) -> str:
    """The command that moves a case's baselines."""
    return f"`{shlex.join(['kerntune', 'baselines', 'mv', str(old), str(new)])}`"


ALIKE = 2 / 3
"""The least likeness that a hint needs: two of test, kernels and tensors are the same, or all three are similar."""

HABITUAL = frozenset(("test", "tests", "kernel", "kernels", "py"))
"""Words in names that say nothing of what is tested."""


def _alike(case: CaseId, arguments: Inputs, kernels: Sequence[str], old: Baseline) -> float:
    """0 to 1: how much two cases have in common, names of tests, kernels and tensors in equal parts."""
    before = [kernel for kernel, _ in kernel_hashes(old)]
    named = _common(" ".join(before), " ".join(kernels))
    one, other = Counter(arguments), Counter(old.arguments)
    tensors = (one & other).total() / ((one | other).total() or 1)
    return (_common(str(old.case), str(case)) + named + tensors) / 3


def _common(one: str, other: str) -> float:
    """0 to 1: how much two names have in common, but for :data:`HABITUAL` words."""
    a, b = (" ".join(w for w in re.findall(r"[a-z0-9]+", x.lower()) if w not in HABITUAL) for x in (one, other))
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def _likeness(a: CaseId, b: CaseId) -> float:
    one, other = f"{a.nodeid}::{a.call}", f"{b.nodeid}::{b.call}"
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


SHOWN = 2
"""Tensors that a line names; the others are counted."""


def nearest_difference(today: Inputs, stored: Iterable[Inputs]) -> str:
    """How ``today`` differs from the nearest of ``stored``, as "tensor 0 has shape (41,) stored and (37,) today".

    The nearest is the one with the fewest tensors that differ, in the fewest ways, among those of as many tensors.
    Empty if there is none, and if ``today`` is itself stored.
    """
    return _fewest((today, other) for other in stored)


def nearest_of_run(stored: Inputs, met: Iterable[Inputs]) -> str:
    """The same of one stored case and the nearest of those that a run has ``met``, equal ones left out."""
    return _fewest((today, stored) for today in met if today != stored)


def _fewest(pairs: Iterable[tuple[Inputs, Inputs]]) -> str:
    alike = (differences(today, stored) for today, stored in pairs if len(stored) == len(today))
    found = min(alike, key=lambda lines: (len(lines), sum(map(len, lines)), lines), default=[])
    more = [f"{len(found) - SHOWN} more differ"] if len(found) > SHOWN else []
    return ", ".join([*found[:SHOWN], *more])


def differences(today: Inputs, stored: Inputs) -> list[str]:
    """A phrase for each tensor that differs; of as many tensors."""
    pairs = enumerate(zip(stored, today, strict=True))
    return [f"tensor {i} has {' and '.join(_parts(old, new))}" for i, (old, new) in pairs if old != new]


def _parts(old: Argument, new: Argument) -> Iterator[str]:
    if old.dtype != new.dtype:
        yield f"dtype {old.dtype} stored and {new.dtype} today"
    if old.shape != new.shape:
        yield f"shape {old.shape} stored and {new.shape} today"
    elif old.strides != new.strides:
        yield f"strides {old.strides} stored and {new.strides} today"
