"""What is put on a kernel to have it tuned: ``@kerntune.autotune``, ``@kerntune.pointwise`` and its like."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Union

import msgspec

from kerntune import heuristics
from kerntune.base.config import Config
from kerntune.base.policy import StaticPrune
from kerntune.errors import ConfigError, HintError, UsageError
from kerntune.heuristics.given_configs import BACKEND_OPTIONS, HIP_OPTIONS
from kerntune.heuristics.hints import HeuristicType, KernelHints, Modes
from kerntune.heuristics.proposer import Family, Proposer
from kerntune.kernels.compat import triton_compiler, tuners
from kerntune.kernels.source import function_of
from kerntune.search import Search
from kerntune.tuning.api.autotuner import Autotuner, DescentOptions, SearchTuner, descent_list
from kerntune.tuning.api.heuristic_tuner import CooperativeTuner, HeuristicTuner, checked_buffers, cooperative_family
from kerntune.tuning.tune_options import checked_patience, isolate_mode, tune_mode
from kerntune.tuning.verification import names_of, verify_mode

ArgumentNames = Mapping[str, Union[str, Sequence[str]]]
Dims = Union[int, Sequence[int]]
Decorator = Callable[[Any], HeuristicTuner]

TUNER_WORDS = ("key", "reset_to_zero", "cache_results", "table", "static_prune", "tune", "descend")
"""Options that are of the tuner, not of the proposal."""


def autotune(
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
    verify: str | None = None,
    patience: float | str | None = None,
    static_prune: Any = None,
    verify_ignore: Sequence[str] | str | None = None,
    search: Search | None = None,
    isolate: str | None = None,
    tune: str | None = None,
    descend: Any = None,
) -> Callable[[Any], Autotuner]:
    """Tune a ``@triton.jit`` kernel over ``configs`` whenever an argument in ``key`` is new: ``triton.Config`` or
    :class:`kerntune.Config`.

    The arguments are those of ``triton.autotune`` and mean the same, with these differences: times are always of the
    kernel alone (``warmup``, ``rep``, ``use_cuda_graph`` and ``do_bench`` are accepted and not needed); what the kernel
    writes is found from its code, saved and restored, so ``restore_value`` is not needed; winners are kept on disk
    unless ``cache_results`` is False. Hooks run outside every timed window. An empty list is Triton's default config.

    ``verify`` says which configs' results are compared before one wins: ``winner`` (the default, or
    ``KERNTUNE_VERIFY``), ``finalists``, ``all``, or ``off`` for none. Of configs that write unlike results those fail
    that agree with fewer others. With ``bitwise`` only configs whose results have the reference's bits can win: the
    bits of the captured run if there was one, else of the list's first config that runs. ``verify_ignore``
    names arguments that aren't compared, since what is written there rightly depends on the
    config or on chance.

    ``patience`` is for how many seconds a first call waits for configs that take far longer to compile than all others,
    once those have been raced; ``all`` waits for every one. The default, or ``KERNTUNE_PATIENCE``, is a tenth of what
    the call has taken so far. Those that are late go on compiling, are in ``kernel.untried``, and are held against the
    winner by a later call of the same key.

    ``static_prune`` leaves configs out once they are compiled, unrun: ``"spills"`` those that spill while others don't,
    ``"occupancy"`` those whose occupancy is below a tenth of the highest, ``"model"`` those whose predicted cost is
    more than three times the lowest, a share (``0.33`` or ``"33%"``) all but the best by predicted cost; several in one
    text or list. Those are in ``kernel.left_out``, with the reason. By default
    there are none. :class:`UsageError` for anything else.

    ``search`` (:class:`kerntune.search.Search`) goes on beyond the list, over a declared space: ``configs``, which may
    be empty then, are tried first. The winner is kept like any other, and every trial, so that a search that was broken
    off goes on where it was. Pruning applies to each config by itself, so there can be no ``perf_model``; no config is
    late, and none left out by ``static_prune``. :class:`ConfigError` for a config outside of the space, or with a dtype
    or a function, of which a space has no more than the text.

    ``isolate`` says where a config is launched first: ``auto`` (the default, or ``KERNTUNE_ISOLATE``) in a process of
    its own, on copies of the call's memory, so that one that faults, hangs or writes outside of its tensors costs no
    more than itself; in this process where memory doesn't allow for that, with a warning. ``always`` makes that an
    error, ``off`` launches all in this process.

    ``tune`` says how a winner is found: ``auto`` (the default, or ``KERNTUNE_TUNE``) takes a stored one or tunes,
    ``frozen`` raises :class:`~kerntune.errors.CacheMissError` where none is stored, ``force`` tunes anew, ``nearest``
    never tunes: without a stored winner it takes, and says so once a key, that of the nearest call of the same kernel,
    device and dtypes (:func:`kerntune.tuning.stored_winners.distance`), else the first config. Such a choice is
    not stored.

    ``descend=True`` goes on from the fastest of ``configs`` through its neighbours: each integer constexpr doubled and
    halved, warps, stages, then two of them at once; at most 25 configs more, or as many as a number says. A dictionary
    has ``trials``, ``all_directions`` (True: at last all fields at once), ``limits`` (upper bounds by field) and
    ``frozen`` (fields that stay). As for ``search``, every trial is kept, each config is pruned by itself, and none is
    late or left out by ``static_prune``.
    """
    descent = DescentOptions.given(descend, "kerntune.autotune")
    if descent is not None and search is not None:
        why = "search= and descend= are two ways to go on beyond the list"
        raise ConfigError(f"kerntune.autotune: {why}; give one")
    if descent is not None:
        _check_pruning("descend", prune_configs_by, static_prune)
    if search is not None:
        _check_search(search)
        _check_pruning("search", prune_configs_by, static_prune)

    ignore = None if verify_ignore is None else names_of(verify_ignore)
    mode = verify_mode(verify) if verify else None
    wait = None if patience is None else checked_patience(patience)
    prune = None if static_prune is None else StaticPrune.parse(static_prune, "kerntune.autotune, static_prune")
    where, how = isolate_mode(isolate) if isolate else None, tune_mode(tune) if tune else None

    def decorate(fn: Any) -> Autotuner:
        if not hasattr(fn, "arg_names"):
            raise ConfigError(f"{fn!r} is no Triton kernel: put kerntune.autotune above @triton.jit")
        names = fn.arg_names
        if unknown := [n for n in ignore or () if n.rpartition(".")[2] not in names]:
            why = f"the kernel has no argument {', '.join(unknown)}"
            raise UsageError(f"kerntune.autotune, verify_ignore: {why}")
        listed = [tuners.triton_config(c) if isinstance(c, Config) else c for c in configs or ()]
        if descent is not None:
            listed = descent_list(listed, f"kernel {function_of(fn).__name__}")
        kind = Autotuner if search is None else partial(SearchTuner, search)
        tuner = kind(
            fn, names, listed, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
            prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph,
            do_bench=do_bench, cache_results=cache_results,
        )  # fmt: skip
        tuner.verify, tuner.verify_ignore, tuner.patience, tuner.static_prune = mode, ignore, wait, prune
        tuner.isolate, tuner.tune_mode, tuner.descent = where, how, descent
        return tuner

    return decorate


def _check_search(search: Any) -> None:
    if not isinstance(search, Search):
        kind = search.__name__ if isinstance(search, type) else type(search).__name__
        how = "give a kerntune.search.Search(space, seconds=30)"
        raise ConfigError(f"kerntune.autotune: search is a {kind}; {how}")


def _check_pruning(option: str, prune_configs_by: Mapping[str, Any] | None, static_prune: Any) -> None:
    if (prune_configs_by or {}).get("perf_model") is not None:
        why = f"a perf_model chooses from a list; with {option}= give early_config_prune"
        raise ConfigError(f"kerntune.autotune: {why}")
    if static_prune is not None:
        why = f"static_prune leaves out configs of a list, so it can't go with {option}="
        raise ConfigError(f"kerntune.autotune: {why}")


def pointwise(*, sizes: ArgumentNames, blocks: Mapping[str, str], **options: Any) -> Decorator:
    """An elementwise kernel of one to three axes, ``x y z``.

    ``sizes`` names the arguments that hold the number of elements of each axis, ``{"x": "n_elements"}``; several are
    multiplied. ``blocks`` names the kernel's own constexprs, ``{"x": "BLOCK"}``. An axis may do without a block only
    where its block would be 1 in every candidate.

    Options of this and the following decorators: ``max_autotune=True`` (more candidates), ``preset="inductor-2.13"``,
    ``table=`` (a look-up table's file: a ready answer is launched untimed), ``key=`` (further arguments whose every
    value is tuned for), ``reset_to_zero=``, ``cache_results=``, ``static_prune=``, ``tune=`` and ``descend=`` as in
    :func:`kerntune.autotune`, and every field of :class:`~kerntune.heuristics.hints.KernelHints` that you know better.

    Raises :class:`~kerntune.errors.HintError` and :class:`~kerntune.errors.ConfigError`, which name the kernel: at once
    for names that don't exist and wrong hints; at a call for a negative size and a block that would have to exist. A
    launch of size 0 is launched as it is, with nothing tuned.
    """
    return _decorator(heuristics.pointwise, sizes, blocks, options)


def reduction(
    *, sizes: ArgumentNames, blocks: Mapping[str, str], reduced: Mapping[str, Dims] | None = None, **options: Any
) -> Decorator:
    """A kernel that walks the reduced axes ``r0`` (``r1``) in steps, for blocks of ``x`` (``y``) outputs.

    Whether it is an inner or an outer reduction is read off the strides of the tensors whose shape is that of the
    sizes; ``reduced`` says it where shapes don't (a square matrix): which dimensions of which argument are reduced,
    ``{"x_ptr": -1}``. ``reduction="inner"`` settles it. ``second_pass=True`` says that the kernel adds up parts that
    another one left. A kernel without a block of ``x`` has one output a program.
    Else as :func:`pointwise`.
    """
    return _decorator(heuristics.reduction, sizes, blocks, options, reduced=reduced, reduces=True)


def persistent_reduction(
    *, sizes: ArgumentNames, blocks: Mapping[str, str], reduced: Mapping[str, Dims] | None = None, **options: Any
) -> Decorator:
    """A reduction that holds whole rows: a block of ``r0``, if the kernel takes one, is the size, rounded up.

    Else as :func:`reduction`.
    """
    family = heuristics.persistent_reduction
    return _decorator(family, sizes, blocks, options, reduced=reduced, reduces=True, whole_rows=True)


def cooperative_reduction(
    *,
    sizes: ArgumentNames,
    blocks: Mapping[str, str],
    semaphores: str,
    workspace: Union[str, Mapping[str, str], None] = None,
    persistent: bool = False,
    reduced: Mapping[str, Dims] | None = None,
    **options: Any,
) -> Decorator:
    """A reduction over ``r0`` of few rows ``x``, whose ``RSPLIT`` programs (a constexpr) share each block of rows and
    meet at :func:`kerntune.grid_barrier`. Launch it on a :class:`~kerntune.grids.CooperativeReductionGrid`.

    A call leaves out the arguments ``semaphores`` (one int32 a row, zeroed for each launch) and ``workspace``: a name,
    or dtypes by name, ``{"partial": "float32"}``, each with an element for every row and program that shares it, in no
    set layout. torch's allocator holds them until the launch is over. Where programs wait for each other, the launch is
    cooperative, so a grid that isn't resident at once is an error instead of a hang; in Triton's interpreter ``RSPLIT``
    is 1. ``persistent``: a program holds its whole share, and a named block of r0 is its size.

    Else as :func:`reduction`. Raises :class:`~kerntune.errors.ConfigError` for a kernel without one of these parameters
    and for a dtype that torch doesn't have, :class:`~kerntune.errors.UsageError` for a call that gives a buffer itself.
    """

    def decorate(fn: Any) -> HeuristicTuner:
        _function(fn)
        buffers = checked_buffers(fn, semaphores, workspace)
        family = partial(cooperative_family, blocks.get("r0"), persistent)
        kind, tuner = HeuristicType.COOPERATIVE_REDUCTION, partial(CooperativeTuner, buffers=buffers)
        made = partial(_decorator, family, sizes, blocks, options, reduced=reduced, reduces=True)
        return made(kind=kind, tuner=tuner)(fn)

    return decorate


def split_scan(*, sizes: ArgumentNames, blocks: Mapping[str, str], **options: Any) -> Decorator:
    """A scan of ``x`` rows along ``r0`` whose programs pass their sums on: steps of 256 or more, one row a program.

    Else as :func:`pointwise`.
    """
    return _decorator(heuristics.split_scan, sizes, blocks, options, reduces=True)


def matmul(*, sizes: ArgumentNames, blocks: Mapping[str, str], group: str = "", **options: Any) -> Decorator:
    """A product with ``tl.dot``, ``y`` by ``r0`` times ``r0`` by ``x``, that loops over ``r0``; perhaps batched, ``z``.

    ``group`` names the constexpr, if the kernel has one, that says how many tiles along ``y`` a group of programs takes
    before the next column (``GROUP_M``): 8, as in torch's templates. Else as :func:`pointwise`.
    """
    options, kind = {"native_matmul": True, **options}, HeuristicType.USER_AUTOTUNE
    return _decorator(heuristics.reduction, sizes, blocks, options, counts=False, group=group, kind=kind)


def _decorator(
    family: Family,
    sizes: ArgumentNames,
    blocks: Mapping[str, str],
    options: dict[str, Any],
    *,
    reduced: Mapping[str, Dims] | None = None,
    counts: bool = True,
    tuner: Callable[..., HeuristicTuner] = HeuristicTuner,
    **fields: Any,
) -> Decorator:
    """``fields`` are further ones of the :class:`Proposer`."""
    rest = dict(options)
    words = {name: rest.pop(name) for name in TUNER_WORDS if name in rest}
    preset = rest.pop("preset", heuristics.DEFAULT)
    if not isinstance(preset, heuristics.Preset):
        if preset not in heuristics.PRESETS:
            raise HintError(f"unknown preset {preset!r}: the presets are {', '.join(heuristics.PRESETS)}")
        preset = heuristics.PRESETS[preset]
    if fields.get("reduces"):
        fields["second_pass"] = bool(rest.pop("second_pass", False))
    if rest.pop("max_autotune", False):
        rest["modes"] = msgspec.structs.replace(rest.get("modes", Modes()), max_autotune=True)

    def decorate(fn: Any) -> HeuristicTuner:
        function = _function(fn)
        known = {*KernelHints.__struct_fields__} - {"sizes", "kernel"}
        if unknown := [name for name in rest if name not in known]:
            raise HintError(f"kernel {function.__name__}: there is no option or hint {', '.join(unknown)}")
        proposer = Proposer(
            family=family,
            kernel=function.__name__,
            parameters=tuple(fn.arg_names),
            constexprs=constexprs_of(function),
            sizes={axis: _tuple(names) for axis, names in sizes.items()},
            blocks=dict(blocks),
            reduced={name: _tuple(dims) for name, dims in (reduced or {}).items()},
            known=rest,
            preset=preset,
            **{"kind": KINDS.get(family, HeuristicType.USER_AUTOTUNE), **fields},
        )
        return tuner(fn, proposer, counts=counts, **words)

    return decorate


def template(
    *configs: Union[Mapping[str, Any], Config],
    key: Sequence[str] = (),
    num_warps: int | None = None,
    num_stages: int | None = None,
    options: Mapping[str, Any] | None = None,
    **words: Any,
) -> Callable[[Any], Autotuner]:
    """A kernel whose configs are given, in the flat form of compilers: ``{"BLOCK_M": 64, "num_warps": 8}``.

    One config is launched as it is; several are tuned for each value of the arguments in ``key``. None at all is a
    kernel written for its blocks, with ``num_warps`` (4) and ``num_stages`` (3) alone. A count of None is Triton's
    default; AMD's ``waves_per_eu``, ``matrix_instr_nonkdim`` and ``kpack`` are compile options, unless the kernel has a
    parameter of that name; so are ``options``, for all configs. This is what Inductor keeps of a winner
    (``.best_config`` files) and what its templates have. Other words are those of
    :func:`kerntune.autotune`, ``descend=`` among them.

    :class:`~kerntune.errors.ConfigError` for a config that is none, for names that neither the kernel nor a compiler
    has, and for ``num_warps`` beside configs.
    """
    if configs and (num_warps, num_stages) != (None, None):
        why = "num_warps and num_stages belong into each config, where there are any"
        raise ConfigError(f"kerntune.template: {why}")
    for config in configs:
        if not isinstance(config, (Mapping, Config)):
            raise ConfigError(f"kerntune.template: {config!r} is no config; write a mapping of names to values")

    def decorate(fn: Any) -> Autotuner:
        _function(fn)
        if not configs:
            found = heuristics.template(num_warps or 4, num_stages or 3)
        elif len(configs) == 1 and not isinstance(configs[0], Config):
            found = heuristics.fixed_config(configs[0], fn.arg_names)
        else:
            found = heuristics.user_autotune(configs, fn.arg_names)
        given = [c.replace(options={**c.options, **(options or {})}) for c in found]
        _refuse_unknown(function_of(fn).__name__, fn.arg_names, given)
        return autotune(given, list(key), **words)(fn)

    return decorate


def _refuse_unknown(name: str, parameters: Sequence[str], configs: Sequence[Config]) -> None:
    if unknown := sorted({n for c in configs for n in c.kwargs} - set(parameters)):
        raise ConfigError(f"kernel {name}: a config gives {unknown[0]}, which is no parameter of it")
    options = {n for c in configs for n in c.options} - BACKEND_OPTIONS - HIP_OPTIONS
    if options and (unknown := sorted(options - triton_compiler.all_option_names())):
        what = f"the option {unknown[0]}, which no compiler of Triton has"
        raise ConfigError(f"kernel {name}: a config gives {what}")


KINDS: Mapping[Family, HeuristicType] = {
    heuristics.pointwise: HeuristicType.POINTWISE,
    heuristics.reduction: HeuristicType.REDUCTION,
    heuristics.persistent_reduction: HeuristicType.PERSISTENT_REDUCTION,
    heuristics.split_scan: HeuristicType.SPLIT_SCAN,
}
"""The families by name. A matrix product has none: its best config may spill, and no block of it is halved."""


def _function(fn: Any) -> Any:
    """The Python function under a kernel; :class:`ConfigError` for what can't be decorated."""
    if hasattr(fn, "configs"):
        raise ConfigError(f"kernel {function_of(fn).__name__}: it has a tuner already; it can have only one")
    if not hasattr(fn, "arg_names"):
        raise ConfigError(f"{fn!r} is no Triton kernel: put the heuristic's decorator above @triton.jit")
    return function_of(fn)


def constexprs_of(function: Any) -> frozenset[str]:
    """Parameters annotated ``tl.constexpr``, as Triton tells them."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in parameters if "constexpr" in str(p.annotation))


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
