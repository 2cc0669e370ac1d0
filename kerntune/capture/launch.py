"""A launch as it was called: what would be compiled for it, over which grid and on which GPU it runs.

If its config is open, a site has its tuner, its arguments, and the configs that may be tried. While none of them has
run, limits say how many first launches may fail before the call is to blame. Triton takes the current GPU, whatever
memory the arguments are in. Which implementations the call's choices went to is recorded as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kerntune.base.config import COMPILE_FIELDS, Config
from kerntune.base.grid_check import check_grid
from kerntune.base.recording import Param
from kerntune.compiling.compiler import Compiled
from kerntune.errors import CaptureError, ConfigError, KerntuneError, LaunchFault
from kerntune.gpu.base import Backend
from kerntune.kernels.compat import tuners
from kerntune.kernels.source import jit_of, kernel_name, kernel_place, named_arguments, text_of
from kerntune.kernels.specialize import Specialized, specialize, tensor_of


@dataclass(frozen=True)
class Candidate:
    """A config to try. ``hook`` is what must run before a launch with it (a config's ``pre_hook``). ``objects`` are the
    values of which the config has the texts alone: dtypes, functions, infinities."""

    config: Config
    hook: Callable[[dict[str, Any]], Any] | None = None
    objects: Mapping[str, Any] = field(default_factory=dict)

    def words(self) -> dict[str, Any]:
        """What a launch is called with."""
        return {**self.config.all_kwargs(), **self.objects}


@dataclass
class Site:
    """A launch whose config was open: its tuner, its arguments, and the candidates after the user's pruning.

    ``run`` launches with one candidate's keywords (through ``@triton.heuristics`` and the like, if they are between).
    """

    kernel: str
    jit: Any
    arguments: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    run: Callable[..., Any]
    """``run(words)`` launches; ``run(words, trial=True)`` calls the user's hooks as for a config that is tried."""

    settle: Callable[[int], None]
    """Tells the user's tuner which candidate won."""

    tuner: Any = None
    originals: list[Any] = field(default_factory=list)
    """The user's tuner object and its configs, candidate by candidate; nothing for candidates from a marker."""

    writes_arguments: bool = False
    """Whether hooks around a launch may change arguments (``reset_to_zero``, a user's ``pre_hook``, ``post_hook``)."""

    post_hook: Callable[[Mapping[str, Any], Exception | None], Any] | None = None
    """The user's own, called with a launch's keywords after a config was tried, and why it failed if it did."""

    told: set[Config] = field(default_factory=set)
    """Configs with whose exceptions the user's ``post_hook`` has been called."""

    chosen: int = 0

    proven: int | None = None
    """The candidate that has won in an earlier run, if one has."""

    faults: dict[int, LaunchFault] = field(default_factory=dict)
    """Candidates that the captured run would have launched, had they not failed where they were launched before."""

    added: int = 0
    """How many of the candidates, the last ones, aren't in the list that was given."""

    search: Any = None
    """The tuner's :class:`kerntune.search.Search` for further candidates, if it has one."""

    most_spilled: int | None = None
    """Registers that a candidate may spill without being left out where others can be used; None for any number."""

    searched: bool = False
    """Whether they have been searched: the candidates are all that there will be."""

    @property
    def listed(self) -> tuple[Candidate, ...]:
        """The candidates of the list that was given."""
        return self.candidates[: len(self.candidates) - self.added]

    def ambiguous(self) -> frozenset[int]:
        """Candidates whose very config another one has with another hook: what is stored of them, by config, says
        nothing."""
        hooks: dict[Config, set[Any]] = {}
        if any(candidate.hook is not None for candidate in self.candidates):
            for candidate in self.candidates:
                hooks.setdefault(candidate.config, set()).add(candidate.hook)
        return frozenset(i for i, c in enumerate(self.candidates) if len(hooks.get(c.config, ())) > 1)


def site_of_tuner(tuner: Any, args: Sequence[Any], kwargs: dict[str, Any], options: Sequence[str]) -> Site:
    """A tuner's call, its candidates after the user's pruning; ``options`` are the compiler's that configs may set.

    Launches nothing. :class:`ConfigError` if no config is left, or one sets what it can't.
    """
    named = dict(zip(tuner.arg_names, args, strict=False))
    name = tuner.base_fn.__name__
    where = f"kernel {name} ({tuner.base_fn.__code__.co_filename})"
    configs = tuners.prune_configs(tuner, args, kwargs)
    candidates = tuple(_candidate_of(c, where) for c in configs)
    check_candidates(where, [c.config for c in candidates], [*tuner.arg_names, *options], kwargs)
    key = tuners.autotuner_key(tuner, named, kwargs)

    watched = tuner.user_defined_post_hook

    def run(words: Mapping[str, Any], *, trial: bool = False) -> Any:
        tuner.nargs = dict(named)
        # a post_hook may need what a pre_hook keeps, and that keeps nothing where it only resets
        how = {} if trial and watched else {"reset_only": True}
        try:
            tuner.pre_hook({**named, **kwargs, **words}, **how)
            return tuner.fn.run(*args, **kwargs, **words)
        finally:
            tuner.nargs = None

    def post_hook(words: Mapping[str, Any], exception: Exception | None) -> Any:
        return tuner.post_hook({**named, **kwargs, **words}, exception=exception)

    def settle(winner: int) -> None:
        tuner.best_config = configs[winner]
        tuner.cache[key] = configs[winner]

    writes = bool(tuner.reset_to_zero) or getattr(tuner, "user_defined_pre_hook", True) or watched
    site = Site(name, jit_of(tuner), {**named, **kwargs}, candidates, run, settle, tuner, configs, writes)
    site.post_hook = post_hook if watched else None
    site.search = tuner.search_for(named, kwargs) if hasattr(tuner, "search_for") else None
    site.most_spilled = tuner.most_spilled(named, kwargs) if hasattr(tuner, "most_spilled") else None
    return site


def site_of_given(
    jit: Any, args: Sequence[Any], kwargs: dict[str, Any], configs: Sequence[Config], options: Sequence[str]
) -> Site:
    """A bare kernel's call with candidates from elsewhere, which replace what the call itself sets.

    :class:`ConfigError` if a config sets what it can't, or the call's grid can't follow the configs.
    """
    where = f"kernel {kernel_place(jit)}"
    check_candidates(where, configs, [*jit.arg_names, *options], {})
    named = named_arguments(jit, args, kwargs)
    if not (callable(kwargs.get("grid")) or all(named.get(k) == v for c in configs for k, v in c.kwargs.items())):
        raise ConfigError(
            f"{where}: its grid is the plain tuple {kwargs.get('grid')}, which can't follow the tuned "
            f"{', '.join(sorted({k for c in configs for k in c.kwargs}))}. Give a grid function, "
            "grid=lambda meta: (triton.cdiv(n, meta['BLOCK']),)"
        )
    tuned = {k for c in configs for k in (*c.kwargs, *COMPILE_FIELDS)}
    fixed = {k: v for k, v in named.items() if k not in tuned}

    def run(words: Mapping[str, Any], *, trial: bool = False) -> Any:
        return jit.run(**{**fixed, **words})

    return Site(kernel_name(jit), jit, named, tuple(map(Candidate, configs)), run, lambda i: None)


def check_candidates(where: str, configs: Sequence[Config], names: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse an empty list, a config for a parameter that doesn't exist, and one that the call sets itself."""
    if not configs:
        raise ConfigError(f"{where}: its list of configs is empty; give at least one config")
    for config in configs:
        unknown = [k for k in config.kwargs if k not in names]
        if unknown:
            raise ConfigError(
                f"{where}: config ({config}) sets {', '.join(unknown)}, which the kernel doesn't have; "
                f"give one of {', '.join(names)}"
            )
        clash = [k for k in config.all_kwargs() if k in given]
        if clash:
            raise ConfigError(f"{where}: {', '.join(clash)} is given by the call and tuned by config ({config})")


def _candidate_of(config: Any, where: str) -> Candidate:
    objects = {name: value for name, value in config.kwargs.items() if not is_plain(value)}
    return Candidate(config_of(config, where), config.pre_hook, objects)


def config_of(config: Any, where: str) -> Config:
    """Triton's config as ours, which has the texts of values that it can't hold."""
    options = {"ir_override": config.ir_override} if getattr(config, "ir_override", None) else {}
    plain = {name: value if is_plain(value) else text_of(value) for name, value in config.kwargs.items()}
    try:
        found = Config.from_mapping({**plain, **{name: getattr(config, name) for name in COMPILE_FIELDS}})
    except ConfigError as exc:
        raise ConfigError(f"{where}: {exc}") from exc
    return found.replace(options=options)


def is_plain(value: Any) -> bool:
    """Whether a config can hold a value as it is: what a file can."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return value is None or (isinstance(value, (bool, int, float, str)) and finite)


T = TypeVar("T")

DOUBT_FAULTS, DOUBT_HANGS = 12, 3
"""So many in config order, and none that ran: the next ones are taken from all over the list."""

MORE_FAULTS, MORE_HANGS = 24, 5
"""So many more after that, and still none that ran: the rest isn't tried."""

GOLDEN = 0.6180339887498949
"""Multiples of it modulo 1 lie evenly wherever one stops (H. Weyl; D. Knuth, TAOCP 3, 6.4)."""


def in_doubt(faults: int, hangs: int) -> bool:
    """Whether candidates should be tried in another order, if none has run. ``faults`` include the ``hangs``."""
    return faults >= DOUBT_FAULTS or hangs >= DOUBT_HANGS


def is_hopeless(faults: int, hangs: int, candidates: int) -> bool:
    """Whether no more of the candidates need be tried, if none has run: most have failed, or the limits are reached."""
    if not in_doubt(faults, hangs):
        return False
    many = faults >= DOUBT_FAULTS + MORE_FAULTS or hangs >= DOUBT_HANGS + MORE_HANGS
    return many or 2 * faults > candidates


def spread(items: Iterable[T]) -> list[T]:
    """In an order whose first ones, however many, lie all over the list: configs that fail are often neighbors."""
    return [x for _, x in sorted(enumerate(items), key=lambda pair: (pair[0] + 1) * GOLDEN % 1.0)]


LAUNCH_WORDS = ("grid", "warmup")


@dataclass(frozen=True)
class MadeWith:
    """What a launch is made with: the binary and its parameters."""

    compiled: Compiled
    params: tuple[Param, ...]


@dataclass
class Pending:
    """A launch as it was called: what would be compiled for it, and where it ran."""

    jit: Any
    specialized: Specialized
    grid: tuple[int, int, int]
    site: Site | None = None
    ran: bool = True
    """Whether it was launched, on the user's own tensors."""

    settled: Config | None = None
    """The config that another tuner than Triton's has chosen: Inductor's, of the kernels that it generates."""

    made: MadeWith | KerntuneError | None = None
    """What the launch was made with, or why that isn't known; None where it is found out behind the call."""

    @property
    def config(self) -> Config | None:
        """The config that it was launched with; None where meta-parameters are written at the call."""
        return self.site.candidates[self.site.chosen].config if self.site is not None else self.settled

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return kernel_name(self.jit)


@dataclass(frozen=True)
class Probe:
    """What a candidate would launch."""

    specialized: Specialized
    grid: tuple[int, int, int]


def probe_of(backend: Backend, jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Probe:
    """What a call would launch. Raises what specializing raises."""
    words = {k: v for k, v in kwargs.items() if k not in LAUNCH_WORDS}
    with backend.tensors.specializing():
        launch = specialize(jit, args, words, backend.spec.target)
    grid: Any = kwargs.get("grid")
    values = grid(launch.bound) if callable(grid) else grid
    ctas, warps = int(kwargs.get("num_ctas") or 1), launch.options.num_warps
    place = kernel_place(jit)
    return Probe(launch, check_grid(values, kernel=place, spec=backend.spec, num_ctas=ctas, num_warps=warps))


def launch_device(backend: Backend, kernel: str, arguments: Mapping[str, Any]) -> int:
    """The number of the GPU that a launch with these arguments runs on, by name.

    :class:`CaptureError` where some of its tensors are on another one: it would reach them through the bus at best, and
    fault at worst.
    """
    mine = backend.current()
    devices = {name: _device(backend, value) for name, value in arguments.items()}
    others = {name: d for name, d in devices.items() if d is not None and d != mine}
    if not others:
        return mine
    told = ", ".join(f"{name} on cuda:{device}" for name, device in others.items())
    first = next(iter(others.values()))
    raise CaptureError(
        f"kernel {kernel} is launched on cuda:{mine}, the current device, with {told}: Triton launches on the current "
        "device, and a launch that mixes devices can't be tuned. Launch it inside of "
        f"`with torch.cuda.device({first}):`, or have all its tensors on one device"
    )


def _device(backend: Backend, value: Any) -> int | None:
    """Of a tensor on a GPU, or of what wraps one (a descriptor, a reinterpreted tensor)."""
    tensor = tensor_of(value)
    index = tensor.device.index if backend.tensors.is_tensor(tensor) else None
    return None if index is None else int(index)


def refuse_second_device(kernel: str, device: int, before: str, earlier: int) -> None:
    """One call is one case, with one device's times. :class:`CaptureError` if this launch is on another than the one
    before."""
    if device != earlier:
        raise CaptureError(
            f"a call mixes devices: kernel {before} was launched on cuda:{earlier}, kernel {kernel} on cuda:{device}; "
            "one call is timed on one GPU, so make a call of autotune for each"
        )


@dataclass
class RecordedChoices:
    """By choice and key, the implementation that was called and a line on how it was decided."""

    found: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def add(self, choice: str, key: str, implementation: str, told: str) -> None:
        """A call of a choice; ``key`` describes what it was decided by."""
        self.found.setdefault(choice, {})[key] = implementation, told

    @property
    def winners(self) -> dict[str, str]:
        """Implementations by choice. Of a choice that was called with several keys each has an entry of its own."""
        return {
            choice if len(keys) == 1 else entry_of(choice, key): implementation
            for choice, keys in self.found.items()
            for key, (implementation, _) in keys.items()
        }

    @property
    def texts(self) -> tuple[str, ...]:
        """How each was decided, a line each."""
        return tuple(told for keys in self.found.values() for _, told in keys.values())


def entry_of(choice: str, key: str) -> str:
    """What a choice's entry is called where it was called with several keys."""
    return f"{choice} ({key})"
