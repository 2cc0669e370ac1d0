"""A kernel's tuner whose candidates are a heuristic's proposal for the call at hand."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kerntune import capture as captures
from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.capture import LAUNCH_WORDS
from kerntune.errors import CaptureError, ConfigError, EnvironmentFault, TrialError
from kerntune.gpu.probe import current_device
from kerntune.heuristics.proposer import NO_COUNTS, ProposalInputs, Proposer
from kerntune.kernels import compat
from kerntune.kernels.dispatch.argument_parts import Needs
from kerntune.kernels.source import jit_of
from kerntune.kernels.specialize import specialize
from kerntune.kernels.value_text import text_of
from kerntune.tuning import context
from kerntune.tuning.api import autotuner
from kerntune.tuning.api.autotuner import Autotuner

UNDECIDED = (Config(), Config())
"""Stands where Triton's tuners have their list: more than one, so that the choice is made call by call."""


SOME_BLOCK = 64
"""Stands for any size of a block."""


class HeuristicTuner(Autotuner):
    """A kernel whose candidates are a heuristic's proposal for the call at hand.

    Everything else is :class:`kerntune.Autotuner`'s. A winner holds for all sizes that round up to the same powers of
    two, with the same dtypes, constexprs and order of strides. ``configs`` says nothing: ask :meth:`candidates`.
    """

    def __init__(
        self,
        fn: Any,
        proposer: Proposer,
        *,
        counts: bool = True,
        table: str | Path | None = None,
        key: Sequence[str] = (),
        reset_to_zero: Sequence[str] = (),
        cache_results: bool = True,
        static_prune: Any = None,
    ) -> None:
        undecided = [compat.triton_config(config) for config in UNDECIDED]
        self._proposer = proposer
        super().__init__(fn, fn.arg_names, undecided, list(key), list(reset_to_zero), None, cache_results=cache_results)
        if static_prune is not None:
            self.static_prune = StaticPrune.parse(static_prune, f"kernel {proposer.kernel}, static_prune")
        self._counting = counts
        self._table = None if table is None else Path(table)
        self._defaults = _defaults(self.base_fn)
        self._proposals: dict[tuple[Any, ...], tuple[list[Any], tuple[Config, ...]]] = {}
        self._counted: dict[tuple[Any, ...], heuristics.TtirCounts] = {}

    def needs(self) -> Needs:
        """The exact sizes (they stand for what they round up to), the ``key`` arguments, and the layouts of tensors."""
        sized = {name for names in self._proposer.sizes.values() for name in names}
        return Needs(exact=frozenset({*self.keys, *sized}), layouts=True)

    def _without_engine(self, *args: Any, **kwargs: Any) -> Any:
        """Where kerntune can't time: Triton's own engine chooses, if there is a choice and something to time.

        Triton keeps its winners under keys of its own, by exact sizes; they are kept under ours too.
        """
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        found, _ = self._proposal(given)
        if len(found) > 1:
            result = autotuner.plain_run()(self, *args, **kwargs)
        else:
            self.best_config = found[0]
            result = self.fn.run(*args, **kwargs, **found[0].all_kwargs())
        self.cache.setdefault(self.tuning_key(given), self.best_config)
        return result

    def variety(self) -> list[Any] | None:
        """As in the base class: one config, since only blocks differ."""
        return [compat.triton_config(Config(dict.fromkeys(self._proposer.blocks.values(), SOME_BLOCK)))]

    def candidates(self, *args: Any, **kwargs: Any) -> tuple[Config, ...]:
        """What a call with these arguments (without a grid) would choose from, best guess first."""
        return self._proposal({**dict(zip(self.arg_names, args, strict=False)), **kwargs})[1]

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """The candidates of the call that is under way, as Triton's configs."""
        return self._proposal({**(self.nargs or {}), **kwargs})[0]

    def tuning_key(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a winner depends on: rounded sizes, strides' order, dtypes, the call's constexprs, ``key`` arguments."""
        given = {**self._defaults, **arguments}
        return (self._proposer.inputs(given), *self._kind(given))

    def _kind(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """The part of a key that sizes have no part in: equal kinds compile to equal operations."""
        sized = {name for names in self._proposer.sizes.values() for name in names}
        values = {name: given[name] for name in self.arg_names if name in given}
        dtypes = [str(value.dtype) if hasattr(value, "dtype") else None for value in values.values()]
        told = [n for n in values if n in self.keys or (n in self._proposer.constexprs and n not in sized)]
        return (*dtypes, *(f"{name}={_text(values[name])}" for name in told))

    def _proposal(self, arguments: Mapping[str, Any]) -> tuple[list[Any], tuple[Config, ...]]:
        self._refuse_given_blocks(arguments)
        given = {**self._defaults, **arguments}
        look, kind = self._proposer.inputs(given), self._kind(given)
        device = self._device()
        key = (look, kind, device)
        if key not in self._proposals:
            configs = self._ready(look) or self._propose(look, kind, device, given)
            self._proposals[key] = ([compat.triton_config(config) for config in configs], configs)
        return self._proposals[key]

    def _ready(self, look: ProposalInputs) -> tuple[Config, ...]:
        """The look-up table's answer, if there is one."""
        if self._table is None or look.empty or not _is_compiled(self.fn):
            return ()
        found = _read_table(self._table).find(jit_of(self.fn).src, dict(look.sizes))
        missing = [] if found is None else [b for b in self._proposer.blocks.values() if b not in found.kwargs]
        if missing:
            raise ConfigError(
                f"kernel {self._proposer.kernel}: its entry in {self._table} ({found}) has no {', '.join(missing)}"
            )
        return () if found is None else (found,)

    def _propose(
        self, look: ProposalInputs, kind: tuple[Any, ...], device: DeviceSpec, given: Mapping[str, Any]
    ) -> tuple[Config, ...]:
        first = self._proposer.propose(look, device)
        if look.empty or not self._counting:
            return first
        if (kind, device) not in self._counted:
            self._counted[kind, device] = self._count(first[0], given)
        return self._proposer.propose(look, device, self._counted[kind, device])

    def _count(self, config: Config, given: Mapping[str, Any]) -> heuristics.TtirCounts:
        """What the kernel's TTIR does, compiled with the first candidate; nothing where kerntune doesn't compile.

        A candidate that doesn't compile says nothing either: it will cost its trial, with its reason.
        """
        recording = captures.current()
        backend = context.this_gpu() if recording is None else recording.backend
        compiler = context.COMPILER if recording is None else recording.compiler
        if backend is None or not _is_compiled(self.fn):
            return NO_COUNTS
        words = {name: value for name, value in given.items() if name not in LAUNCH_WORDS}
        words = _through_heuristics(self.fn, {**words, **config.all_kwargs()})
        try:
            with backend.tensors.specializing():
                launch = specialize(jit_of(self.fn), (), words, backend.targets[0])
            return heuristics.count_ttir(compiler.compile(launch).ttir)
        except TrialError as exc:
            if recording is not None and isinstance(exc, EnvironmentFault):
                raise  # other configs would be proposed, and be taken for a change
            return NO_COUNTS

    def _device(self) -> DeviceSpec:
        recording = captures.current()
        return current_device() if recording is None else recording.backend.spec

    def _refuse_given_blocks(self, given: Mapping[str, Any]) -> None:
        clash = [block for block in self._proposer.blocks.values() if block in given]
        if clash:
            raise ConfigError(
                f"kernel {self._proposer.kernel}: {', '.join(clash)} is given by the call, but is a block that its "
                "heuristic chooses; leave it out of the call or of blocks="
            )


def _defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _is_compiled(fn: Any) -> bool:
    """Whether there is a JITFunction under a kernel, rather than Triton's interpreter."""
    try:
        jit_of(fn)
    except CaptureError:
        return False
    return True


def _through_heuristics(fn: Any, words: dict[str, Any]) -> dict[str, Any]:
    """The arguments after the ``@triton.heuristics`` between a tuner and its kernel."""
    while hasattr(fn, "fn"):
        for name, value in (getattr(fn, "values", None) or {}).items():
            words = {**words, name: value(words)}
        fn = fn.fn
    return words


def _text(value: Any) -> str:
    """A value the same in every process; a kernel function's text is remembered, since it is a hash of its source."""
    return _function_text(value) if hasattr(value, "src") else text_of(value)


@lru_cache(maxsize=256)
def _function_text(function: Any) -> str:
    return text_of(function)


@lru_cache(maxsize=8)
def _read_table(path: Path) -> heuristics.LookupTable:
    return heuristics.read_table(path)
