"""Has the tuners of kernels whose candidates are a heuristic's proposal for the call at hand.

A cooperative reduction's tuner launches cooperatively, and gives each launch its semaphores and workspace.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from kerntune import capture as captures
from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec
from kerntune.base.policy import StaticPrune
from kerntune.capture import LAUNCH_WORDS
from kerntune.capture.launch import config_of
from kerntune.compiling.compiler import Compiled
from kerntune.errors import (
    ConfigError,
    EnvironmentFault,
    HintError,
    StoreError,
    TargetError,
    TrialError,
    UsageError,
)
from kerntune.heuristics.hints import MAX_RSPLIT, MIX_ORDER_SPLIT, REDUCTION_AXES, KernelHints
from kerntune.heuristics.proposer import NO_COUNTS, ProposalInputs, Proposer
from kerntune.kernels.compat import tuners
from kerntune.kernels.cooperative_launch import LaunchBuffers
from kerntune.kernels.dispatch.codegen import Needs
from kerntune.kernels.source import defaults_of, is_kernel, jit_of, named_arguments, text_of
from kerntune.kernels.specialize import specialize
from kerntune.search import AnySearch, Descent
from kerntune.search.descent import Proposed, RegisterScaling
from kerntune.static.resource_model import quick_candidate
from kerntune.tuning import context
from kerntune.tuning.api import autotuner
from kerntune.tuning.api.autotuner import Autotuner, DescentOptions
from kerntune.tuning.tune_options import tune_mode

MOST_REGISTERS = 255
"""Registers that a thread may have (CUDA C++ Programming Guide, technical specifications)."""

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
        tune: str | None = None,
        descend: Any = None,
    ) -> None:
        undecided = [tuners.triton_config(config) for config in UNDECIDED]
        self._proposer = proposer
        super().__init__(fn, fn.arg_names, undecided, list(key), list(reset_to_zero), None, cache_results=cache_results)
        if static_prune is not None:
            self.static_prune = StaticPrune.parse(static_prune, f"kernel {proposer.kernel}, static_prune")
        self.tune_mode = tune_mode(tune) if tune else None
        self.descent = DescentOptions.given(descend, f"kernel {proposer.kernel}")
        self._counting = counts
        self._table = None if table is None else Path(table)
        self._defaults = defaults_of(self.base_fn)
        self._proposals: dict[tuple[Any, ...], tuple[list[Any], tuple[Config, ...]]] = {}
        self._counted: dict[tuple[Any, ...], heuristics.TtirCounts] = {}

    def needs(self) -> Needs:
        """The exact sizes (they stand for what they round up to), the ``key`` arguments, and the layouts of tensors."""
        return Needs(exact=frozenset({*self.keys, *self._sized()}), layouts=True)

    def _sized(self) -> set[str]:
        return {name for names in self._proposer.sizes.values() for name in names}

    def _without_engine(self, *args: Any, **kwargs: Any) -> Any:
        """Where kerntune can't time: Triton's own engine chooses, if there is a choice and something to time.

        Triton keeps its winners under keys of its own, by exact sizes; they are kept under ours too.
        """
        given = named_arguments(self, args, kwargs)
        found, _ = self._proposal(given)
        if len(found) > 1:
            result = autotuner.plain_run()(self, *args, **kwargs)
        else:
            self.best_config = found[0]
            result = self.fn.run(*args, **kwargs, **found[0].all_kwargs())
        self.cache.setdefault(tuners.autotuner_key(self, given, {}), self.best_config)
        return result

    def variety(self) -> list[Any] | None:
        """As in the base class: one config, since only blocks differ."""
        return [tuners.triton_config(Config(dict.fromkeys(self._proposer.chosen, SOME_BLOCK)))]

    def candidates(self, *args: Any, **kwargs: Any) -> tuple[Config, ...]:
        """What a call with these arguments (without a grid) would choose from, best guess first."""
        return self._proposal(named_arguments(self, args, kwargs))[1]

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """The candidates of the call that is under way, as Triton's configs."""
        return self._proposal({**(self.nargs or {}), **kwargs})[0]

    def search_for(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> AnySearch | None:
        """A descent, if one was asked for and the order of additions may vary; else halved reduction blocks, where
        registers may limit a reduction."""
        proposer, device = self._proposer, context.device_now()
        given = {**self._defaults, **named, **kwargs}
        hints = self._hints(given, device)
        if self.descent is not None and hints is not None and heuristics.may_descend(proposer.kind, hints):
            found = super().search_for(named, kwargs)
            if not isinstance(found, Descent):
                return found
            modes = hints.modes
            return dataclasses.replace(
                found,
                all_directions=found.all_directions or modes.descent_all_directions,
                radius=modes.descent_radius,
                proposed=Proposed(hints, proposer.blocks, proposer.kind, proposer.preset),
                further=self._of_other_presets(given),
            )
        if hints is None or not heuristics.may_scale(hints, device, proposer.kind):
            return None
        listed = self.listed(named, kwargs)
        halved = RegisterScaling(listed, proposer.blocks, hints, device, proposer.kind, proposer.preset)
        if not halved.may_help(dict.fromkeys(listed, MOST_REGISTERS)):
            return None
        if len(listed) > 1:
            return halved
        (config,) = listed
        compiled = self._compiled(config, given)
        registers = {config: None if compiled is None else static_registers(compiled)}
        return halved if halved.may_help(registers) else None  # a lone candidate is not timed where nothing limits it

    def _of_other_presets(self, arguments: Mapping[str, Any]) -> tuple[Config, ...]:
        """What other rules than the decorator's would propose: further starts of a descent, far from its own."""
        device = context.device_now()
        inputs, counts = self._known_of({**self._defaults, **arguments}, device)
        found: list[Config] = []
        for preset in (heuristics.MEASURED_2026, heuristics.INDUCTOR_2_13):
            with contextlib.suppress(HintError, ConfigError):  # a preset that can't decide for this kernel
                if preset != self._proposer.preset:
                    found += dataclasses.replace(self._proposer, preset=preset).propose(inputs, device, counts)
        return tuple(found)

    def kept_fields(self) -> tuple[str, ...]:
        """The blocks that hold a whole row, and the split that a mix-order kernel's launch is made for."""
        proposer = self._proposer
        rows = tuple(n for a, n in proposer.blocks.items() if proposer.whole_rows and a in REDUCTION_AXES)
        return rows if proposer.known.get("rsplit_size") is None else (*rows, MIX_ORDER_SPLIT)

    def most_spilled(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> int | None:
        """The registers that a candidate of a call may spill (:func:`kerntune.heuristics.spill_threshold`)."""
        device = context.device_now()
        hints = self._hints({**self._defaults, **named, **kwargs}, device)
        return None if hints is None else heuristics.spill_threshold(hints, device, self._proposer.kind)

    def _hints(self, given: Mapping[str, Any], device: DeviceSpec) -> KernelHints | None:
        inputs, counts = self._known_of(given, device)
        return None if inputs.empty else self._proposer.hints_of(inputs, device, counts)

    def _known_of(self, given: Mapping[str, Any], device: DeviceSpec) -> tuple[ProposalInputs, heuristics.TtirCounts]:
        counts = self._counted.get((self._kind(given), device), NO_COUNTS)
        return self._proposer.inputs(given, device), counts

    def listed(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Config, ...]:
        """The proposal for a call, from the best of which a descent begins."""
        return self._proposal({**named, **kwargs})[1]

    def tuning_key(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """What a winner depends on: rounded sizes, strides' order, dtypes, the call's constexprs, ``key`` arguments."""
        given = {**self._defaults, **arguments}
        return (self._proposer.inputs(given, context.device_now()), *self._kind(given))

    def _kind(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """The part of a key that sizes have no part in: equal kinds compile to equal operations."""
        sized = self._sized()
        values = {name: given[name] for name in self.arg_names if name in given}
        dtypes = [str(value.dtype) if hasattr(value, "dtype") else None for value in values.values()]
        told = [n for n in values if n in self.keys or (n in self._proposer.constexprs and n not in sized)]
        return (*dtypes, *(f"{name}={_text(values[name])}" for name in told))

    def _proposal(self, arguments: Mapping[str, Any]) -> tuple[list[Any], tuple[Config, ...]]:
        if clash := [block for block in self._proposer.chosen if block in arguments]:
            raise ConfigError(
                f"kernel {self._proposer.kernel}: {', '.join(clash)} is given by the call, but is a block that its "
                "heuristic chooses; leave it out of the call or of blocks="
            )
        given = {**self._defaults, **arguments}
        device = context.device_now()
        look, kind = self._proposer.inputs(given, device), self._kind(given)
        key = (look, kind, device)
        if key not in self._proposals:
            configs = self._ready(look) or self._propose(look, kind, device, given)
            self._proposals[key] = ([tuners.triton_config(config) for config in configs], configs)
        return self._proposals[key]

    def save_table(self, path: str | Path) -> int:
        """Write the winners of this process into a look-up table's file, for ``table=``; how many there are.

        Entries of a file that exists stay, but for kernels and rounded sizes that have a winner now. Where several
        winners differ in dtypes or constexprs alone, of which a table knows nothing, the last one counts. Winners of
        more than one kind of GPU don't belong into one file. :class:`StoreError` for a file that can't be read.
        """
        path, name = Path(path), f"kernel {self._proposer.kernel}"
        table = heuristics.read_table(path) if path.exists() else heuristics.LookupTable()
        found = [(key[0], config) for key, config in self.cache.items() if isinstance(key[0], ProposalInputs)]
        for look, config in found:
            table = table.with_entry(jit_of(self.fn).src, dict(look.sizes), config_of(config, name))
        heuristics.write_table(path, table)
        _read_table.cache_clear()
        return len(found)

    def _ready(self, look: ProposalInputs) -> tuple[Config, ...]:
        if self._table is None or look.empty or not is_kernel(self.fn):
            return ()
        found = _read_table(self._table).find(jit_of(self.fn).src, dict(look.sizes))
        missing = [] if found is None else [b for b in self._proposer.chosen if b not in found.kwargs]
        if missing:
            entry = f"kernel {self._proposer.kernel}: its entry in {self._table} ({found})"
            raise ConfigError(f"{entry} has no {', '.join(missing)}")
        return () if found is None else (found,)

    def _propose(
        self, look: ProposalInputs, kind: tuple[Any, ...], device: DeviceSpec, given: Mapping[str, Any]
    ) -> tuple[Config, ...]:
        first = self._proposer.propose(look, device)
        product = bool(self._proposer.known.get("native_matmul"))
        if look.empty or not (self._counting or product):
            return first
        if (kind, device) not in self._counted:
            narrow = heuristics.TtirCounts(operand_bytes=_least_bytes(given))
            self._counted[kind, device] = narrow if product else self._count(first[0], given)
        return self._proposer.propose(look, device, self._counted[kind, device])

    def _count(self, config: Config, given: Mapping[str, Any]) -> heuristics.TtirCounts:
        """What the kernel's TTIR does, compiled with the first candidate; nothing where kerntune doesn't compile.

        A candidate that doesn't compile says nothing either: it will cost its trial, with its reason.
        """
        compiled = self._compiled(config, given)
        return NO_COUNTS if compiled is None else heuristics.count_ttir(compiled.ttir)

    def _compiled(self, config: Config, given: Mapping[str, Any]) -> Compiled | None:
        """A candidate as it would be compiled for these arguments; None where kerntune doesn't, or it can't be."""
        recording = captures.current()
        backend = context.this_gpu() if recording is None else recording.backend
        compiler = context.COMPILER if recording is None else recording.compiler
        if backend is None or not is_kernel(self.fn):
            return None
        words = {name: value for name, value in given.items() if name not in LAUNCH_WORDS}
        layers, _ = tuners.heuristic_layers(self.fn)
        words = tuners.heuristic_values(layers, {**words, **config.all_kwargs()})
        try:
            with backend.tensors.specializing():
                launch = specialize(jit_of(self.fn), (), words, backend.spec.target)
            return compiler.compile(launch)
        except TrialError as exc:
            if recording is not None and isinstance(exc, EnvironmentFault):
                raise  # other configs would be proposed, and be taken for a change
            return None


def static_registers(compiled: Compiled) -> int | None:
    """The registers a thread that a binary says; None for one that can't be read."""
    try:
        return quick_candidate(compiled.binary, compiled.data, compiled.asm, (1, 1, 1)).registers
    except (StoreError, TargetError):
        return None


def _least_bytes(given: Mapping[str, Any]) -> int:
    """Bytes of an element of the narrowest tensor, which a product's operands have at least; 0 without tensors."""
    dtypes = [getattr(getattr(value, "base", value), "dtype", None) for value in given.values()]
    return min((int(getattr(dtype, "itemsize", 0)) for dtype in dtypes if dtype is not None), default=0)


def _text(value: Any) -> str:
    """A value the same in every process; a kernel function's text is remembered, since it is a hash of its source."""
    return _function_text(value) if hasattr(value, "src") else text_of(value)


_function_text = lru_cache(maxsize=256)(text_of)
_read_table = lru_cache(maxsize=8)(heuristics.read_table)

COOPERATIVE = "launch_cooperative_grid"
"""Triton's compile option: the driver refuses a grid that isn't resident at once, instead of letting it hang."""

SPLIT = "RSPLIT"


class CooperativeTuner(HeuristicTuner):
    """A kernel whose ``RSPLIT`` programs share a row block. A call leaves its semaphores and workspaces out: they are
    allocated for each launch on the device of its first tensor, by torch's allocator, and the semaphores are zeroed."""

    def __init__(self, fn: Any, proposer: Proposer, *, buffers: LaunchBuffers, **words: Any) -> None:
        super().__init__(fn, proposer, **words)
        self._buffers, self.verify_ignore = buffers, buffers.names

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """``kernel[grid](...)``, without the buffers."""
        return lambda *args, **kwargs: self._path.launch(grid, *args, **self._complete(args, kwargs))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As the base class's, without the buffers."""
        return super().run(*args, **self._complete(args, kwargs))

    def candidates(self, *args: Any, **kwargs: Any) -> tuple[Config, ...]:
        """As the base class's, without the buffers."""
        return super().candidates(*args, **self._complete(args, kwargs))

    def kept_fields(self) -> tuple[str, ...]:
        """What a descent leaves alone: the workspace is as long as the split asks for."""
        return (*super().kept_fields(), SPLIT)

    def _complete(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """A call's keywords, with buffers. :class:`UsageError` for a call that gives one, or has no tensor."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        name = self._proposer.kernel
        if clash := [n for n in self._buffers.names if n in given]:
            raise UsageError(
                f"kernel {name}: {', '.join(clash)} is allocated for each launch; leave it out of the call, and "
                "declare it after the arguments that the call gives by position"
            )
        tensor = next((value for value in given.values() if hasattr(value, "new_zeros")), None)
        if tensor is None:
            raise UsageError(f"kernel {name}: no argument is a tensor, so there is no device for its workspace")
        x = prod(int(given[n]) for n in self._proposer.sizes.get("x", ()) if n in given)
        cells = max(x, MAX_RSPLIT, context.device_now().sm_count)  # all rows' programs: one an SM at most, or one a row
        return {**kwargs, **self._buffers.made(tensor, x, cells, name)}


def cooperative_family(
    r0: str | None, persistent: bool, hints: KernelHints, device: DeviceSpec, preset: heuristics.Preset
) -> tuple[Config, ...]:
    """:func:`kerntune.heuristics.cooperative_reduction` as launches need it: cooperative where programs wait for each
    other, unsplit in Triton's interpreter, where they run one after the other. A ``persistent`` kernel's block ``r0``,
    if it takes one, holds a program's share."""
    if tuners.interprets():
        device = msgspec.structs.replace(device, sm_count=1)
    found = heuristics.cooperative_reduction(hints, device, preset, persistent=persistent)
    return tuple(_launchable(config, hints, r0 if persistent else None) for config in found)


def _launchable(config: Config, hints: KernelHints, r0: str | None) -> Config:
    split = config.kwargs[SPLIT]
    share = {} if r0 is None else {"R0_BLOCK": max(hints.sizes["r0"] // int(split or 1), 1)}
    options = {**config.options, COOPERATIVE: True} if split != 1 else config.options
    return config.replace(kwargs={**config.kwargs, **share}, options=options)


def checked_buffers(fn: Any, semaphores: str, workspace: Any) -> LaunchBuffers:
    """The buffers that a decorator names: ``workspace`` is a name (of float32), or dtypes by name. :class:`ConfigError`
    for a name that is no parameter, and for a kernel without ``RSPLIT``."""
    several = {workspace: "float32"} if isinstance(workspace, str) else dict(workspace or {})
    found = LaunchBuffers(semaphores, several)
    unknown = [name for name in (*found.names, SPLIT) if name not in fn.arg_names]
    if unknown:
        raise ConfigError(
            f"kernel {fn.__name__}: a cooperative reduction needs the parameter {', '.join(unknown)}; it has "
            f"{', '.join(fn.arg_names)}"
        )
    return found
