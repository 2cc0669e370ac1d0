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
import torch
from msgspec.structs import replace

from kerntune.base.device import Target, typical_device
from kerntune.base.formatting import ends_of
from kerntune.gpu.interpreter.launches import drawn_orders
from kerntune.gpu.interpreter.wider_programs import Launched, noted_launches, reduces_by_order, rounds
from kerntune.gpu.number_formats import FLOAT_FORMATS
from kerntune.referee.call_inputs import (
    as_it_lies,
    bytes_of,
    contents_by,
    described,
    is_still,
    label_of,
    large_of,
    tensor_of,
    with_alike,
    without_unread,
)
from kerntune.referee.case_inputs import CaseInputs, TensorInput
from kerntune.referee.declared_inputs import is_one_number
from kerntune.referee.exact_operators import KNOWN
from kerntune.referee.hostile_recording import ITEM_BYTES
from kerntune.referee.influences import WITHOUT_GPU, with_influences
from kerntune.referee.layouts import GPU_MODE, load
from kerntune.referee.moved_results import (
    few_results,
    may_move,
    with_deviations,
    with_moved,
    with_places_off,
    with_settled,
    with_sound,
    with_spread,
)
from kerntune.referee.open_elements import (
    FAILS,
    FILLS,
    ORDERS,
    in_any_order,
    much_tied,
    much_unwritten,
    tied,
    unwritten,
    with_open,
    with_rearranged,
)
from kerntune.referee.product_operands import with_products
from kerntune.referee.reasons import Reason
from kerntune.referee.reference_operators import (
    OperatorKinds,
    exact_results,
    filled,
    kinds_of,
    moves_beside,
    noted_kernels,
    other_ties,
    place_of,
    programs_of,
    promises_indices,
    unknown_at_ends,
)
from kerntune.referee.reference_runs import as_given, in_float64, keeps_state, run_reference, widely
from kerntune.referee.result_numbers import ROUNDOFF
from kerntune.referee.tasks import (
    CallRefused,
    DescribeTask,
    ExpectAnswer,
    ExpectedResult,
    ExpectedSeed,
    ExpectTask,
    pieces_of,
)


def answer(task: bytes) -> ExpectAnswer:
    """Do a :class:`DescribeTask` or an :class:`ExpectTask`."""
    from kerntune.gpu.interpreter import Interpreter

    asked = _decoded(task)
    interpreter = Interpreter(typical_device(Target.parse("cuda:90")))
    try:
        with contextlib.nullcontext() if asked.gpu else interpreter.activate():
            if isinstance(asked, DescribeTask):
                found = ExpectAnswer(cases=tuple(_described(asked)))
                pieces_of(found)  # what the task's code makes may be no message
                return found
            return ExpectAnswer(seeds=tuple(_expected(asked)))
    except (Exception, SystemExit) as exc:
        return ExpectAnswer(refused=CallRefused(Reason.REFERENCE.value, _told(exc)))


def _told(exc: BaseException) -> str:
    print("".join(traceback.format_exception(exc))[-4000:], file=sys.stderr)
    return f"{type(exc).__name__}: {ends_of(str(exc), 500)}"


def _decoded(task: bytes) -> DescribeTask | ExpectTask:
    try:
        return msgspec.msgpack.decode(task, type=ExpectTask)
    except msgspec.ValidationError:
        return msgspec.msgpack.decode(task, type=DescribeTask)


def _described(task: DescribeTask) -> list[CaseInputs]:
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
    module = load(task.source)
    kinds: Sequence[bool] = (True, False)
    of = OperatorKinds()
    end = time.monotonic() + (task.seconds or math.inf)
    extreme: int | None = None if task.draws else task.extreme
    upcast = any(given.dtype in FLOAT_FORMATS and ITEM_BYTES[given.dtype] <= 2 for given in task.case.tensors)
    last: ExpectedSeed | None = None
    for i, seed in enumerate(task.seeds):
        if i and time.monotonic() > end:
            return
        contents = task.contents[i] if task.contents else contents_by(module, task, seed)
        watched = partial(run_reference, module, task, contents, as_given)
        by_kernels = task.ties and not task.gpu and _decided_by_kernels(module, task, contents, seed)
        if task.ties and not (by_kernels or promises_indices(watched)):
            return
        exact = exact_results(watched, task.exact) if task.exact else []
        if task.exact and not exact:
            return
        if not of.others:
            try:
                native, after, outline = run_reference(module, task, contents, as_given)
            except Exception as exc:
                if last is None or extreme is None or i < extreme:
                    raise
                print(f"left out: {exc}", file=sys.stderr)
                yield replace(last, undefined=FAILS)
                continue
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
            by_order = programs is None or any(map(reduces_by_order, programs))
            if by_order and _is_odd(task.case.tensors, contents, lambda x: ~x.isfinite()):
                undefined = undefined or "its kernels reduce by comparisons, which with NaN depend on the terms' order"
        if i == 0 and task.usual and keeps_state(module, task, contents, native):
            undefined = "its model keeps something in an attribute: a second call on the same inputs has other results"
        if of.unordered and _is_odd(task.case.tensors, contents, torch.isnan):
            undefined = undefined or "no operator of torch's promises where NaN is in an order"
        began = time.monotonic()
        (wide, wide_after), casts = in_float64(module, task, contents, native, after, kinds, launches)
        seconds = time.monotonic() - began
        if i == 0 and all(x is None for x in (*wide, *wide_after)):
            kinds = ()  # its code forbids it, not these numbers
        places = {place_of(t): k for k, t in reversed(list(enumerate(after)))}
        each = zip(native, wide, _first_alike(native), strict=True)
        results = tuple(_result(n, w, places.get(place_of(n)), first) for n, w, first in each)
        if i < task.closely and any(map(may_move, results)):
            results = with_moved(module, task, contents, results, native, casts)
        elif extreme is not None and i >= extreme and (few := few_results(results)):
            results = with_spread(module, task, contents, results, few, casts)
        changed = tuple(
            None if is_still(as_it_lies(t, given), before) else _result(t, w, k)
            for k, (t, w, before, given) in enumerate(zip(after, wide_after, contents, task.case.tensors, strict=True))
        )
        if far := extreme is not None and i >= extreme:
            results = with_settled(module, task, contents, results)
            results = results if of.others else with_sound(watched, task, results)
        floats = [r for r in results if r.dtype in ROUNDOFF]
        if task.draws and floats and all(r.wide is None for r in floats):
            results = with_places_off(module, task, contents, results)
        elif task.draws:
            far = task.extreme is not None and i >= task.extreme
            results, changed = with_deviations(module, task, contents, results, changed, casts, far)
        found: list[Any] = [*results, *changed]
        if upcast and not (of.others or task.draws or task.exact):
            found, upcast = with_products(watched, found, [*native, *after], far)
        if i < task.usual and any(kinds):
            again = partial(widely, module, task, launches, casts)
            quick = seconds if task.gpu else seconds / WITHOUT_GPU
            found = with_influences(task.case, contents, found, again, quick)
        if of.unordered:
            ties = (partial(other_ties, turn, seed) for turn in range(ORDERS))
            orders = [run_reference(module, task, contents, as_given, rounding=one) for one in ties]
            runs_of = [[*made, *left] for made, left, _ in orders]
            found = with_rearranged(found, [*native, *after], runs_of)
            open_there.append((tied([*native, *after], runs_of), much_tied))
        for masks, much in open_there:
            found = with_open(found, masks)
            undefined = undefined or (much(masks) if i < task.usual else "")
        if not all(exact):
            every = zip([*native, *after], exact, strict=True)
            found = with_open(found, [torch.full(t.shape, not one) for t, one in every])
        if task.exact in KNOWN:
            found = with_open(found, unknown_at_ends([*native, *after], task.exact))
        found = [x and replace(x, chain=of.chain) for x in found]
        given, count = () if task.contents else tuple(contents), len(results)
        results, changed = tuple(found[:count]), tuple(found[count:])
        exactly = of.exact and i == 0 and task.closely > 0
        last = ExpectedSeed(given, results, changed, outline, exactly, undefined, of.convolves)
        yield last


def _decided_by_kernels(module: Any, task: ExpectTask, contents: Sequence[bytes], seed: int) -> bool:
    """Whether kernels that the interpreter runs compare and move numbers alone, and their results are the same in any
    order of programs and terms, whatever unwritten memory holds."""
    runs = list[list[bytes]]()
    for order in range(ORDERS):
        fill = partial(filled, FILLS[order % 2])
        with noted_launches() as launches, drawn_orders(seed + order):
            results, after, _ = run_reference(module, task, contents, as_given, rounding=fill)
        if not launches or any(rounds(one.program) for one in launches):
            return False
        runs.append(list(map(bytes_of, (*results, *after))))
    return all(run == runs[0] for run in runs) and moves_beside(
        partial(run_reference, module, task, contents, as_given)
    )


ORDERED = 2
"""Contents on which a reference's kernels run once more, with a drawn order of programs and terms."""


def _is_odd(tensors: Sequence[TensorInput], contents: Sequence[bytes], odd: Callable[[Any], Any]) -> bool:
    """Whether inputs have NaN, or also infinities, which may become NaN."""
    floats = (tensor_of(t, data) for t, data in zip(tensors, contents, strict=True) if t.dtype in ROUNDOFF)
    return any(bool(odd(one.to("cuda").double()).any()) for one in floats)


def _kinds_of(run: Callable[[], Any]) -> OperatorKinds:
    """What that says of ``run``; where it can't be watched, nothing but that it may convolve."""
    try:
        return kinds_of(run)
    except Exception as exc:
        print(f"its operators can't be watched: {exc}", file=sys.stderr)
        return OperatorKinds(convolves=True)


def _first_alike(results: Sequence[Any]) -> list[int | None]:
    """Of each result the number of an earlier one that is the same memory, if it is."""
    lie = [(place_of(x), x.storage_offset(), x.shape, x.stride(), x.dtype) for x in results]
    return [first if (first := lie.index(one)) < number else None for number, one in enumerate(lie)]


def _result(native: Any, wide: Any, place: int | None, first: int | None = None) -> ExpectedResult:
    data = None
    if wide is not None and wide.is_floating_point() and native.is_floating_point():
        data = b"" if torch.equal(native.double(), wide.double()) else large_of(wide.double())
    dtype = str(native.dtype).removeprefix("torch.")
    lies = tuple(native.shape), tuple(native.stride())
    return ExpectedResult(dtype, *lies, large_of(native), data, place, same=first)
