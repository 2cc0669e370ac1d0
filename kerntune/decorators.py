"""``@kerntune.pointwise`` and its like: a heuristic's family as the candidates of a tuned kernel, call by call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import msgspec

from kerntune import heuristics
from kerntune.errors import ConfigError, HintError
from kerntune.heuristic_tuner import HeuristicTuner
from kerntune.heuristics.proposer import Family, Proposer
from kerntune.hints import KernelHints, Modes

Names = Mapping[str, Union[str, Sequence[str]]]
Dims = Union[int, Sequence[int]]
Decorator = Callable[[Any], HeuristicTuner]

TUNER_WORDS = ("key", "reset_to_zero", "cache_results", "table", "static_prune")
"""Options that are of the tuner, not of the proposal."""


def pointwise(*, sizes: Names, blocks: Mapping[str, str], **options: Any) -> Decorator:
    """An elementwise kernel of one to three axes, ``x y z``.

    ``sizes`` names the arguments that hold the number of elements of each axis, ``{"x": "n_elements"}``; several are
    multiplied. ``blocks`` names the kernel's own constexprs, ``{"x": "BLOCK"}``. An axis may do without a block only
    where its block would be 1 in every candidate.

    Options of all these decorators: ``max_autotune=True`` (more candidates), ``preset="measured-2026"``, ``table=`` (a
    look-up table's file: a ready answer is launched untimed), ``key=`` (further arguments whose every value is tuned
    for), ``reset_to_zero=``, ``cache_results=`` and ``static_prune=`` as in :func:`kerntune.autotune`, and every field
    of :class:`~kerntune.hints.KernelHints` that you know better.

    Raises :class:`~kerntune.errors.HintError` and :class:`~kerntune.errors.ConfigError`, which name the kernel: at once
    for names that don't exist and wrong hints; at a call for a negative size and a block that would have to exist. A
    launch of size 0 is launched as it is, with nothing tuned.
    """
    return _decorator(heuristics.pointwise, sizes, blocks, options)


def reduction(
    *, sizes: Names, blocks: Mapping[str, str], reduced: Mapping[str, Dims] | None = None, **options: Any
) -> Decorator:
    """A kernel that walks the reduced axes ``r0`` (``r1``) in steps, for blocks of ``x`` (``y``) outputs.

    Whether it is an inner or an outer reduction is read off the strides of the tensors whose shape is that of the
    sizes; ``reduced`` says it where shapes don't (a square matrix): which dimensions of which argument are reduced,
    ``{"x_ptr": -1}``. ``reduction="inner"`` settles it. A kernel without a block of ``x`` has one output a program.
    Else as :func:`pointwise`.
    """
    return _decorator(heuristics.reduction, sizes, blocks, options, reduced=reduced or {}, reduces=True)


def persistent_reduction(
    *, sizes: Names, blocks: Mapping[str, str], reduced: Mapping[str, Dims] | None = None, **options: Any
) -> Decorator:
    """A reduction that holds whole rows: a block of ``r0``, if the kernel takes one, is the size, rounded up.

    Else as :func:`reduction`.
    """
    family = heuristics.persistent_reduction
    return _decorator(family, sizes, blocks, options, reduced=reduced or {}, reduces=True, whole_rows=True)


def split_scan(*, sizes: Names, blocks: Mapping[str, str], **options: Any) -> Decorator:
    """A scan of ``x`` rows along ``r0`` whose programs pass their sums on: steps of 256 or more, one row a program.

    Else as :func:`pointwise`.
    """
    return _decorator(heuristics.split_scan, sizes, blocks, options, reduces=True)


def matmul(*, sizes: Names, blocks: Mapping[str, str], **options: Any) -> Decorator:
    """A product with ``tl.dot``, ``y`` by ``r0`` times ``r0`` by ``x``, that loops over ``r0``; perhaps batched, ``z``.

    Else as :func:`pointwise`.
    """
    return _decorator(heuristics.reduction, sizes, blocks, {"native_matmul": True, **options}, counts=False)


def _decorator(
    family: Family,
    sizes: Names,
    blocks: Mapping[str, str],
    options: dict[str, Any],
    *,
    reduced: Mapping[str, Dims] | None = None,
    reduces: bool = False,
    whole_rows: bool = False,
    counts: bool = True,
) -> Decorator:
    rest = dict(options)
    words = {name: rest.pop(name) for name in TUNER_WORDS if name in rest}
    preset = _preset(rest.pop("preset", heuristics.INDUCTOR_2_13))
    if rest.pop("max_autotune", False):
        rest["modes"] = msgspec.structs.replace(rest.get("modes", Modes()), max_autotune=True)

    def decorate(fn: Any) -> HeuristicTuner:
        function = _function(fn)
        unknown = [name for name in rest if name not in KernelHints.__struct_fields__ or name in ("sizes", "kernel")]
        if unknown:
            raise HintError(f"kernel {function.__name__}: there is no option or hint {', '.join(unknown)}")
        proposer = Proposer(
            family=family,
            kernel=function.__name__,
            parameters=tuple(fn.arg_names),
            constexprs=_constexprs(function),
            sizes={axis: _tuple(names) for axis, names in sizes.items()},
            blocks=dict(blocks),
            reduced={name: _tuple(dims) for name, dims in (reduced or {}).items()},
            known=rest,
            preset=preset,
            reduces=reduces,
            whole_rows=whole_rows,
        )
        return HeuristicTuner(fn, proposer, counts=counts, **words)

    return decorate


def _function(fn: Any) -> Any:
    """The Python function under a kernel; :class:`ConfigError` for what can't be decorated."""
    if hasattr(fn, "configs"):
        raise ConfigError(f"kernel {_function_below(fn).__name__}: it has a tuner already; it can have only one")
    if not hasattr(fn, "arg_names"):
        raise ConfigError(f"{fn!r} is no Triton kernel: put the heuristic's decorator above @triton.jit")
    return _function_below(fn)


def _function_below(fn: Any) -> Any:
    while not inspect.isfunction(fn):
        fn = fn.fn
    return fn


def _constexprs(function: Any) -> frozenset[str]:
    """Parameters annotated ``tl.constexpr``, as Triton tells them."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in parameters if "constexpr" in str(p.annotation))


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _preset(value: Any) -> heuristics.Preset:
    if isinstance(value, heuristics.Preset):
        return value
    if value not in heuristics.PRESETS:
        raise HintError(f"unknown preset {value!r}: the presets are {', '.join(heuristics.PRESETS)}")
    return heuristics.PRESETS[value]
