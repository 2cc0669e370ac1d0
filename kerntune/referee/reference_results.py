"""Runs the task author's code in a sealed process of its own: inputs that it makes, and the results that count.

Without a GPU everything runs on the CPU; tensors may be asked for on ``cuda``, and Triton kernels run on
the CPU.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from kerntune.base.device import Target, typical_device
from kerntune.base.formatting import ends_of
from kerntune.gpu.interpreter.launches import drawn_orders
from kerntune.gpu.interpreter.wider_programs import Launched, noted_launches, reduces_by_order
from kerntune.referee.call_inputs import (
    as_it_lies,
    bytes_of,
    contents_by,
    described,
    is_still,
    label_of,
    tensor_of,
    with_alike,
    without_unread,
)
from kerntune.referee.declared_inputs import is_one_number
from kerntune.referee.influences import FURTHER_ON, with_influences
from kerntune.referee.layouts import GPU_MODE, load
from kerntune.referee.open_elements import (
    FILLS,
    ORDERS,
    in_any_order,
    much_tied,
    much_unwritten,
    other_ties,
    tied,
    unwritten,
    with_open,
    with_others,
)
from kerntune.referee.reasons import Reason
from kerntune.referee.reference_operators import (
    OperatorKinds,
    exact_results,
    filled,
    kinds_of,
    noted_casts,
    noted_kernels,
    place_of,
    programs_of,
    promises_indices,
    rounded,
)
from kerntune.referee.reference_runs import as_given, in_float64, run_reference, widely, widened
from kerntune.referee.result_errors import FEW, ROUNDOFF, numbers_of
from kerntune.referee.tasks import (
    CallRefused,
    CaseInputs,
    DescribeTask,
    ExpectAnswer,
    ExpectedResult,
    ExpectedSeed,
    ExpectTask,
    TensorInput,
    encoded,
)


def answer(task: bytes) -> bytes:
    """Do a :class:`DescribeTask` or an :class:`ExpectTask`; the bytes of an :class:`ExpectAnswer`."""
    from kerntune.gpu.interpreter import Interpreter

    asked = _decoded(task)
    interpreter = Interpreter(typical_device(Target.parse("cuda:90")))
    try:
        with contextlib.nullcontext() if asked.gpu else interpreter.activate():
            if isinstance(asked, DescribeTask):
                return encoded(ExpectAnswer(cases=tuple(_described(asked))))
            return encoded(ExpectAnswer(seeds=tuple(_expected(asked))))
    except (Exception, SystemExit) as exc:
        return encoded(ExpectAnswer(refused=CallRefused(Reason.REFERENCE.value, _told(exc))))


def _told(exc: BaseException) -> str:
    print("".join(traceback.format_exception(exc))[-4000:], file=sys.stderr)
    return f"{type(exc).__name__}: {ends_of(str(exc), 500)}"


def _decoded(task: bytes) -> DescribeTask | ExpectTask:
    try:
        return msgspec.msgpack.decode(task, type=ExpectTask)
    except msgspec.ValidationError:
        return msgspec.msgpack.decode(task, type=DescribeTask)


def _described(task: DescribeTask) -> list[CaseInputs]:
    import torch

    module = load(task.source)
    found, numbers = dict[int, CaseInputs](), list[list[bool]]()
    cases = list[CaseInputs]()
    for i, given in enumerate(task.given):
        try:
            case = described(module, task.source, given)
            if task.source.layout == GPU_MODE:
                asked = ExpectTask(task.source, case, (0,), gpu=task.gpu)
                one, other = (contents_by(module, asked, seed) for seed in (0, 1))
                case = without_unread(case, one, partial(_computed, module, asked))
                items = (getattr(torch, t.dtype).itemsize for t in case.tensors)
                numbers.append([is_one_number(x, n) for *x, n in zip(one, other, items, strict=True)])
                found[i] = case
        except (Exception, SystemExit) as exc:  # of a shape that is too large, say
            case = CaseInputs(label_of(task.source, given), (), (), given=given, unmade=_told(exc))
        cases.append(case)
    for i, case in zip(found, with_alike([*found.values()], numbers), strict=True):
        cases[i] = case
    return cases


def _computed(module: Any, task: ExpectTask, contents: Sequence[bytes]) -> list[bytes]:
    """What the reference computes of contents, and leaves in its inputs where it changes them."""
    results, after, outline = run_reference(module, task, contents, as_given)
    every = [(as_it_lies(t, x), data) for t, x, data in zip(after, task.case.tensors, contents, strict=True)]
    changed = [b"" if is_still(t, data) else bytes_of(t) for t, data in every]
    return [outline.encode(), *map(bytes_of, results), *changed]


# results


def _expected(task: ExpectTask) -> Iterator[ExpectedSeed]:
    import torch

    module = load(task.source)
    kinds: Sequence[bool] = (True, False)
    of = OperatorKinds()
    end = time.monotonic() + (task.seconds or math.inf)
    extreme = None if task.draws else task.extreme
    for i, seed in enumerate(task.seeds):
        if i and time.monotonic() > end:
            return
        contents = task.contents[i] if task.contents else contents_by(module, task, seed)
        watched = partial(run_reference, module, task, contents, as_given)
        if task.ties and not promises_indices(watched):
            return
        exact = exact_results(watched, task.exact) if task.exact else []
        if task.exact and not exact:
            return
        if not of.others:
            native, after, outline = run_reference(module, task, contents, as_given)
        if i == 0 and not (task.ties or task.exact or task.draws):
            of = _kinds_of(watched)
        undefined, launches, open_there = "", list[Launched](), list[tuple[list[Any], Callable[[Sequence[Any]], str]]]()
        if of.others:
            runs = (run_reference(module, task, contents, as_given, rounding=partial(filled, byte)) for byte in FILLS)
            with noted_launches() as launches, noted_kernels() as compiled:
                native, after, outline = next(runs)
            masks = unwritten([*native, *after], ([*results, *left] for results, left, _ in runs))
            open_there.append((masks, much_unwritten))
            if i < ORDERED:
                with drawn_orders(seed):
                    second = run_reference(module, task, contents, as_given, rounding=partial(filled, FILLS[0]))
                undefined = in_any_order([*native, *after], [*second[0], *second[1]])
            programs = programs_of(launches, compiled)
            if (programs is None or any(map(reduces_by_order, programs))) and _is_odd(task.case.tensors, contents):
                undefined = undefined or "its kernels reduce by comparisons, which with NaN depend on the terms' order"
        began = time.monotonic()
        (wide, wide_after), casts = in_float64(module, task, contents, native, after, kinds, launches)
        seconds = time.monotonic() - began
        if i == 0 and all(x is None for x in (*wide, *wide_after)):
            kinds = ()  # its code forbids it, not these numbers
        places = {place_of(t): k for k, t in reversed(list(enumerate(after)))}
        each = zip(native, wide, _first_alike(native), strict=True)
        results = tuple(_result(n, w, places.get(place_of(n)), first) for n, w, first in each)
        if i < task.closely and all(r.dtype == "float32" and r.wide is not None for r in results):
            results = _moved(module, task, contents, results, native, casts)
        elif extreme is not None and i >= extreme and (few := _few_numbers(results)):
            results = _spread(module, task, contents, results, few, casts)
        changed = tuple(
            None if is_still(as_it_lies(t, given), before) else _result(t, w, k)
            for k, (t, w, before, given) in enumerate(zip(after, wide_after, contents, task.case.tensors, strict=True))
        )
        if extreme is not None and i >= extreme:
            results = _settled(module, task, contents, results)
            results = results if of.others else _sound(watched, task, results)
        floats = [r for r in results if r.dtype in ROUNDOFF]
        if task.draws and floats and all(r.wide is None for r in floats):
            results = _places_off(module, task, contents, results)
        elif task.draws:
            results, changed = _with_deviations(module, task, contents, results, changed, casts)
        found: list[Any] = [*results, *changed]
        if i < task.usual and any(kinds):
            again = partial(widely, module, task, launches, casts)
            found = with_influences(task.case, contents, found, again, seconds)
        if of.unordered:
            ties = (partial(other_ties, turn, seed) for turn in range(ORDERS))
            orders = [run_reference(module, task, contents, as_given, rounding=one) for one in ties]
            masks = tied([*native, *after], [[*made, *left] for made, left, _ in orders])
            open_there.append((masks, much_tied))
        for masks, much in open_there:
            found = with_open(found, masks)
            undefined = undefined or (much(masks) if i < task.usual else "")
        if not all(exact):
            every = zip([*native, *after], exact, strict=True)
            found = with_open(found, [torch.full(t.shape, not one) for t, one in every])
        given, count = () if task.contents else tuple(contents), len(results)
        results, changed = tuple(found[:count]), tuple(found[count:])
        yield ExpectedSeed(given, results, changed, outline, of.exact and i == 0 and task.closely > 0, undefined)


ORDERED = 2
"""Contents on which a reference's kernels run once more, with a drawn order of programs and terms."""


def _is_odd(tensors: Sequence[TensorInput], contents: Sequence[bytes]) -> bool:
    """Whether inputs have NaN or infinities, which may become NaN."""
    floats = (tensor_of(t, data) for t, data in zip(tensors, contents, strict=True) if t.dtype in ROUNDOFF)
    return any(not bool(one.to("cuda").double().isfinite().all()) for one in floats)


def _kinds_of(run: Callable[[], Any]) -> OperatorKinds:
    """What that says of ``run``; nothing where it can't be watched."""
    try:
        return kinds_of(run)
    except Exception as exc:
        print(f"its operators can't be watched: {exc}", file=sys.stderr)
        return OperatorKinds()


FEW_INPUTS = 15 / 16
"""Where half of the inputs' numbers are others, an element that follows from n numbers is another with 1 - 2**-n."""

LEAST_CHANGED = 64
"""Elements of a result of which that share is taken."""


def _moved(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...],
    native: Sequence[Any], casts: bool,
) -> tuple[ExpectedResult, ...]:  # fmt: skip
    """The results, which are ``native``; float32 ones whose elements follow from at most four numbers each with
    :attr:`~.moved`."""
    import torch

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
        few = changed >= LEAST_CHANGED and partly <= FEW_INPUTS * changed
        found.append(msgspec.structs.replace(one, moved=bytes_of(moved.to(torch.float64))) if few else one)
    return tuple(found)


def _places_off(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...]
) -> tuple[ExpectedResult, ...]:
    """Results without float64 with :attr:`~.moved`: one number in four of the inputs is a last place off, or two.
    Kernels round to these inside, as attention does its weights; and terms cancel."""
    import torch

    drawn = _halves(task)

    def off(tensor: Any) -> Any:
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            return tensor
        place = 2 * ROUNDOFF[str(tensor.dtype).removeprefix("torch.")]
        other = _off(drawn, place, tensor).to(tensor.dtype)
        return torch.where(drawn(tensor) & drawn(tensor), other, tensor)

    replace = msgspec.structs.replace
    for run in _of_others(module, task, contents, results, (off,), False):
        pairs = zip(results, run, strict=True)
        return tuple(replace(r, moved=bytes_of(x.to(torch.float64))) if r.dtype in ROUNDOFF else r for r, x in pairs)
    return results


SPREADS = 2
"""Of one number a single draw may hardly move it, by chance."""


def _few_numbers(results: Sequence[ExpectedResult]) -> list[int]:
    """Which results have few elements, not all of them NaN or infinite, and were computed in float64."""
    known = [(k, numbers_of(one)) for k, one in enumerate(results) if one.wide is not None]
    return [k for k, numbers in known if numbers.size < FEW and any(map(math.isfinite, numbers.flat))]


def _spread(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: tuple[ExpectedResult, ...],
    few: Sequence[int], casts: bool,
) -> tuple[ExpectedResult, ...]:  # fmt: skip
    """The results, those of few elements with :attr:`~.moved`: of several draws what is furthest off."""
    import torch

    kinds, found = [partial(_off, _halves(task), ROUNDOFF["float32"])] * SPREADS, list(results)
    runs = _of_others(module, task, contents, results, kinds, casts)
    for k in few if runs else ():
        moved = torch.stack([run[k].detach().to("cpu", torch.float64) for run in runs])
        exact = torch.from_numpy(numbers_of(results[k]).copy()).reshape(results[k].shape)
        furthest = (moved - exact).abs().nan_to_num(0.0).argmax(0, keepdim=True)
        found[k] = msgspec.structs.replace(results[k], moved=bytes_of(moved.gather(0, furthest)[0]))
    return tuple(found)


OF_WHOLE = 16
"""Draws more where results are whole numbers: of two that are as likely, one is in none of these once in 30,000."""


def _with_deviations(
    module: Any, task: ExpectTask, contents: Sequence[bytes], results: Sequence[ExpectedResult],
    changed: Sequence[ExpectedResult | None], casts: bool,
) -> tuple[tuple[ExpectedResult, ...], tuple[ExpectedResult | None, ...]]:  # fmt: skip
    """Both with :attr:`~.deviation`, whole numbers with :attr:`~.others`, where that can be had."""
    import torch

    generator = torch.Generator("cuda" if task.gpu else "cpu").manual_seed(task.seeds[0])
    narrow = any(t.dtype in ROUNDOFF and t.dtype != "float64" for t in task.case.tensors)
    rounding = partial(rounded, generator, ROUNDOFF["float32" if narrow else "float64"])
    convert = widened if task.extreme is None else partial(_jittered, generator)
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
        found[k] = msgspec.structs.replace(found[k], deviation=bytes_of(off.square().mean(0).sqrt()))
    return tuple(found[: len(results)]), tuple(found[len(results) :])


def _settled(
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
            msgspec.structs.replace(
                one, settled=one.dtype not in ROUNDOFF and all(bytes_of(x) == one.native for x in others)
            )
            for one, *others in every
        )
        or results
    )


def _sound(run: Callable[[], Any], task: ExpectTask, results: tuple[ExpectedResult, ...]) -> tuple[ExpectedResult, ...]:
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
    return tuple(msgspec.structs.replace(one, sound=not found and one.dtype not in ROUNDOFF) for one in results)


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
    import torch

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
    import torch

    wide = widened(tensor)
    if wide is tensor or not tensor.is_floating_point():
        return wide
    return wide * torch.empty_like(wide).uniform_(1 - (unit := ROUNDOFF["float32"]), 1 + unit, generator=generator)


def _first_alike(results: Sequence[Any]) -> list[int | None]:
    """Of each result the number of an earlier one that is the same memory, if it is."""
    lie = [(place_of(x), x.storage_offset(), x.shape, x.stride(), x.dtype) for x in results]
    return [first if (first := lie.index(one)) < number else None for number, one in enumerate(lie)]


def _result(native: Any, wide: Any, place: int | None, first: int | None = None) -> ExpectedResult:
    import torch

    data = None
    if wide is not None and wide.is_floating_point() and native.is_floating_point():
        data = b"" if torch.equal(native.double(), wide.double()) else bytes_of(wide.double())
    dtype = str(native.dtype).removeprefix("torch.")
    lies = tuple(native.shape), tuple(native.stride())
    return ExpectedResult(dtype, *lies, bytes_of(native), data, place, same=first)
