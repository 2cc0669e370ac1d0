"""A reference's results where its inputs, or its operators' roundings, are others: how far a right one may be off."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from msgspec.structs import replace

from kerntune.referee.call_inputs import bytes_of, large_of
from kerntune.referee.influences import FURTHER_ON
from kerntune.referee.open_elements import with_others
from kerntune.referee.reference_operators import noted_casts, rounded
from kerntune.referee.reference_runs import run_reference, widened
from kerntune.referee.result_numbers import ROUNDOFF, numbers_of, same_bytes
from kerntune.referee.rounding_limits import FEW
from kerntune.referee.tasks import ExpectedResult, ExpectTask

FEW_INPUTS = 15 / 16
"""Where half of the inputs' numbers are others, an element that follows from n numbers is another with 1 - 2**-n."""

LEAST_CHANGED = 64
"""Elements of a result of which that share is taken."""


def may_move(result: ExpectedResult) -> bool:
    """Whether a result may have :attr:`~.moved`."""
    return result.dtype == "float32" and result.wide is not None


def with_moved(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...],
    native: Sequence[Any], casts: bool,
) -> tuple[ExpectedResult, ...]:  # fmt: skip
    """The results, which are ``native``; those that may move, and whose elements follow from at most four numbers each,
    with :attr:`~.moved`."""
    drawn = _halves(task)

    def half(tensor: Any) -> Any:
        return torch.where(drawn(tensor), tensor, tensor.roll(FURTHER_ON))

    def off(tensor: Any) -> Any:
        return tensor if tensor.dtype == torch.float64 else _off(drawn, ROUNDOFF["float32"], tensor)

    runs = _of_others(module, task, contents, results, (lambda t: t.roll(FURTHER_ON), half, off), casts)
    if not runs:
        return results
    found = list[ExpectedResult]()
    for one, was, others, mixed, moved in zip(results, native, *runs, strict=True):
        changed, partly = (int((was != x).sum()) for x in (others, mixed))
        few = may_move(one) and changed >= LEAST_CHANGED and partly <= FEW_INPUTS * changed
        found.append(replace(one, moved=large_of(moved.to(torch.float64))) if few else one)
    return tuple(found)


def with_places_off(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...]
) -> tuple[ExpectedResult, ...]:
    """Results without float64 with :attr:`~.moved`: one number in four of the inputs is a last place off, or two.
    Kernels round to these inside, as attention does its weights; and terms cancel."""
    drawn = _halves(task)

    def off(tensor: Any) -> Any:
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            return tensor
        place = 2 * ROUNDOFF[str(tensor.dtype).removeprefix("torch.")]
        other = _off(drawn, place, tensor).to(tensor.dtype)
        return torch.where(drawn(tensor) & drawn(tensor), other, tensor)

    for run in _of_others(module, task, contents, results, (off,), False):
        pairs = zip(results, run, strict=True)
        return tuple(replace(r, moved=large_of(x.to(torch.float64))) if r.dtype in ROUNDOFF else r for r, x in pairs)
    return results


SPREADS = 2
"""Of one number a single draw may hardly move it, by chance."""


def few_results(results: Sequence[ExpectedResult]) -> list[int]:
    """Which results have few elements, not all of them NaN or infinite, and were computed in float64."""
    known = [(k, numbers_of(one)) for k, one in enumerate(results) if one.wide is not None]
    return [k for k, numbers in known if numbers.size < FEW and any(map(math.isfinite, numbers.flat))]


def with_spread(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...],
    few: Sequence[int], casts: bool,
) -> tuple[ExpectedResult, ...]:  # fmt: skip
    """The results, those of few elements with :attr:`~.moved`: of several draws what is furthest off."""
    kinds, found = [partial(_off, _halves(task), ROUNDOFF["float32"])] * SPREADS, list(results)
    runs = _of_others(module, task, contents, results, kinds, casts)
    for k in few if runs else ():
        moved = torch.stack([run[k].detach().to("cpu", torch.float64) for run in runs])
        exact = torch.from_numpy(numbers_of(results[k]).copy()).reshape(results[k].shape)
        furthest = (moved - exact).abs().nan_to_num(0.0).argmax(0, keepdim=True)
        found[k] = replace(results[k], moved=large_of(moved.gather(0, furthest)[0]))
    return tuple(found)


OF_WHOLE = 16
"""Draws more where results are whole numbers: of two that are as likely, one is in none of these once in 30,000."""


def with_deviations(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: Sequence[ExpectedResult],
    changed: Sequence[ExpectedResult | None], casts: bool, far: bool,
) -> tuple[tuple[ExpectedResult, ...], tuple[ExpectedResult | None, ...]]:  # fmt: skip
    """Both with :attr:`~.deviation`, whole numbers with :attr:`~.others`, where that can be had."""
    generator = torch.Generator("cuda" if task.gpu else "cpu").manual_seed(task.seeds[0])
    narrow = any(t.dtype in ROUNDOFF and t.dtype != "float64" for t in task.case.tensors)
    stored = max((ROUNDOFF.get(t.dtype, 0.0) for t in task.case.tensors), default=0.0)
    rounding = partial(rounded, generator, ROUNDOFF["float32" if narrow else "float64"], stored=stored)
    convert = partial(_jittered, generator) if far else widened
    found: list[Any] = [*results, *changed]
    wide = [k for k, one in enumerate(found) if one is not None and one.wide is not None]
    try:
        whole = any(one is not None and one.dtype not in ROUNDOFF for one in found)
        kinds = [rounding] * (task.draws if wide or whole else 0) + [partial(rounding, every=True)] * (whole * OF_WHOLE)
        every = [run_reference(module, task, contents, convert, casts, rounding=one) for one in kinds]
    except Exception as exc:
        print(f"no deviations: {exc}", file=sys.stderr)
        return tuple(results), tuple(changed)
    runs = [[*made, *after] for made, after, _ in every]
    found = with_others(found, runs) if whole else found
    for k in wide:
        drawn = torch.stack([run[k].to("cpu", torch.float64) for run in runs[: task.draws]])
        off = drawn - torch.from_numpy(numbers_of(found[k]).copy()).reshape(found[k].shape)
        found[k] = replace(found[k], deviation=bytes_of(off.square().mean(0).sqrt()))
    return tuple(found[: len(results)]), tuple(found[len(results) :])


def with_settled(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...]
) -> tuple[ExpectedResult, ...]:
    """The results, whole numbers with :attr:`~.settled` where inputs are of both kinds."""
    kinds = {given.dtype in ROUNDOFF for given in task.case.tensors}
    if len(kinds) == 1 or all(one.dtype in ROUNDOFF for one in results):
        return results

    def other(tensor: Any, sign: int) -> Any:
        return sign * tensor.roll(FURTHER_ON) if tensor.is_floating_point() else tensor

    runs = _of_others(module, task, contents, results, [partial(other, sign=sign) for sign in (1, -1)], False)
    every = zip(results, *runs, strict=True) if runs else ()
    return (
        tuple(
            replace(one, settled=one.dtype not in ROUNDOFF and all(same_bytes(bytes_of(x), one.native) for x in others))
            for one, *others in every
        )
        or results
    )


def with_sound(
    run: Callable[[], Any], task: ExpectTask, results: tuple[ExpectedResult, ...]
) -> tuple[ExpectedResult, ...]:
    """The results, whole numbers that follow from floats with :attr:`~.sound`."""
    whole = any(one.dtype not in ROUNDOFF and not one.settled for one in results)
    if not whole or all(given.dtype not in ROUNDOFF for given in task.case.tensors):
        return results
    try:
        with noted_casts() as found:
            run()
    except Exception as exc:
        print(f"its operators can't be watched: {exc}", file=sys.stderr)
        return results
    return tuple(replace(one, sound=not found and one.dtype not in ROUNDOFF) for one in results)


def _of_others(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: Sequence[ExpectedResult],
    kinds: Sequence[Callable[[Any], Any]], casts: bool,
) -> list[list[Any]]:  # fmt: skip
    """The results of inputs that are converted so, a list each; none where it takes its own numbers alone. Whole
    numbers that are fixed stay: offsets in another order have no meaning."""
    try:
        runs = [run_reference(module, task, contents, kind, casts, but_fixed=True)[0] for kind in kinds]
    except Exception as exc:
        print(f"no moved results: {exc}", file=sys.stderr)
        return []
    return runs if all([tuple(x.shape) for x in run] == [one.shape for one in results] for run in runs) else []


def _halves(task: ExpectTask) -> Callable[[Any], Any]:
    """Gives for a tensor which elements are the one half, drawn anew for each."""
    device = "cuda" if task.gpu else "cpu"
    chance = torch.Generator(device).manual_seed(task.seeds[0])
    return lambda t: (torch.rand(t.shape, generator=chance, device=device) < 0.5).to(t.device)


def _off(drawn: Callable[[Any], Any], unit: float, tensor: Any) -> Any:
    """A tensor in float64, so large a share of each element up or down."""
    wide = widened(tensor)
    return wide * (1 + unit * (2 * drawn(tensor).to(wide.dtype) - 1)) if tensor.is_floating_point() else tensor


def _jittered(generator: Any, tensor: Any) -> Any:
    """A tensor in float64, each float of fewer bits off by up to a rounding of float32: far from zero a right kernel
    may be off by what that moves, though no operator of the reference's is."""
    wide = widened(tensor)
    if wide is tensor or not tensor.is_floating_point():
        return wide
    return wide * torch.empty_like(wide).uniform_(1 - (unit := ROUNDOFF["float32"]), 1 + unit, generator=generator)
