"""How a reference runs: on its inputs as they are, and in float64."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from kerntune.gpu.interpreter.wider_programs import Launched, noted_launches, rounds, wider_launches
from kerntune.referee.call_inputs import (
    SEEDS,
    arguments_of,
    bytes_of,
    model_of,
    named_in,
    on_device,
    seed_generators,
    value_of,
)
from kerntune.referee.candidate_recorder import outlined
from kerntune.referee.case_inputs import CaseInputs, TensorInput, UserCallable
from kerntune.referee.layouts import KERNELBENCH
from kerntune.referee.reference_operators import as_kernels, noted_kernels, programs_of, wider_casts
from kerntune.referee.rounding_limits import COARSE
from kerntune.referee.tasks import ExpectTask

FLOATS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that the second run computes in float64."""


def run_reference(
    module: Any, task: ExpectTask, contents: Sequence[bytes], convert: Callable[[Any], Any], casts: bool = False,
    but_fixed: bool = False, rounding: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> tuple[list[Any], list[Any], str]:  # fmt: skip
    """The reference's results, its inputs afterwards, and how the results lie in what it returned. Its inputs are
    converted, all of them or all but whole numbers that are fixed; ``casts``: where that makes float64 of them, its own
    casts do, too, and what it makes without a dtype. ``rounding``: what changes its operators' results. Where it draws
    random numbers, results of its inputs as they are must be the same with others: a layer draws weights that are
    replaced at once."""
    ran = partial(_called, module, task, contents, convert, casts, but_fixed, rounding)
    results, after, outline, drew = ran()
    if convert is as_given and drew:
        again = ran(SEEDS)
        values, others = ([bytes_of(t) for t in each] for each in ((*results, *after), (*again[0], *again[1])))
        if values != others:
            raise ValueError("it draws random numbers of torch's: which ones, its inputs must say")
    return results, after, outline


def _called(
    module: Any, task: ExpectTask, contents: Sequence[bytes], convert: Callable[[Any], Any], casts: bool,
    but_fixed: bool, rounding: Callable[[], contextlib.AbstractContextManager[Any]], seed: int | None = None,
    twice: bool = False,
) -> tuple[list[Any], list[Any], str, bool]:  # fmt: skip
    """Those, and whether the call draws random numbers. ``seed``: what it draws from, else from what there is, which
    for a model is alike each time. ``twice``: a call on the same inputs comes before."""
    case = task.case

    def made(given: TensorInput, data: bytes) -> Any:
        tensor = on_device(given, data)
        stays = but_fixed and given.content == "fixed" and not tensor.is_floating_point()
        return tensor if stays else convert(tensor)

    tensors = [made(given, data) for given, data in zip(case.tensors, contents, strict=True)]
    function = reference_function(module, task.source, case, tensors, wide=convert in WIDE)
    args, words = arguments_of(case, tensors)
    places, _ = arguments_of(case, list(range(len(tensors))))
    moved = dict(_paired(places, args))
    own = {getattr(torch, x.dtype) for x in case.tensors}
    with contextlib.ExitStack() as stack:
        if task.source.layout == KERNELBENCH:
            stack.enter_context(torch.no_grad())
        if casts and (convert in WIDE or torch.float64 in {t.dtype for t in tensors} - own):
            stack.enter_context(wider_casts())
            stack.enter_context(_wide_default())
        stack.enter_context(as_kernels())
        stack.enter_context(rounding())
        if seed is not None:
            seed_generators(seed)
        if twice:
            function(*args, **words)
            tensors = [made(given, data) for given, data in zip(case.tensors, contents, strict=True)]
            _give_state(function, case, tensors)
            args, words = arguments_of(case, tensors)
        before = _generators(task.gpu)
        value = function(*args, **words)
        drew = _generators(task.gpu) != before
    after = [moved.get(i, t) for i, t in enumerate(tensors)]
    if case.parameters:  # a model has copies of what it was given
        state = function.state_dict()  # type: ignore[attr-defined]
        for name, i in case.parameters.items():
            after[i] = state[name]
    results, outline = outlined(value)
    return [x.detach().resolve_conj().resolve_neg() for x in results], [x.detach() for x in after], outline, drew


def _generators(gpu: bool) -> list[bytes]:
    """The states of torch's generators."""
    return [bytes(s.numpy()) for s in (torch.get_rng_state(), *([torch.cuda.get_rng_state()] if gpu else []))]


def reference_function(
    module: Any, source: UserCallable, case: CaseInputs, tensors: Sequence[Any], wide: bool = False
) -> Callable[..., Any]:
    """The reference as it is called; a model has the tensors that are its parameters, all ``wide`` in float64."""
    if source.layout != KERNELBENCH:
        return named_in(module, source)  # type: ignore[no-any-return]
    model = model_of(module, source, [value_of(a, ()) for a in case.init])
    if wide:
        model = model.double()
    _give_state(model, case, tensors)
    return model.to("cuda")  # type: ignore[no-any-return]


def _give_state(model: Any, case: CaseInputs, tensors: Sequence[Any]) -> None:
    model.load_state_dict({name: tensors[i] for name, i in case.parameters.items()})


def keeps_state(module: Any, task: ExpectTask, contents: Sequence[bytes], native: Sequence[Any]) -> bool:
    """Whether a model has other results than ``native`` in a second call on the same inputs and parameters: it keeps
    something in an attribute. Another order of a sum is nothing."""
    if task.source.layout != KERNELBENCH:
        return False
    again, *_ = _called(module, task, contents, as_given, False, False, contextlib.nullcontext, twice=True)
    return not all(map(_much_alike, native, again))


def _much_alike(one: Any, other: Any) -> bool:
    a, b = one.cpu(), other.cpu()
    if a.shape != b.shape or not a.is_floating_point():
        return bool(torch.equal(a, b))
    a, b = a.double(), b.double()
    most = COARSE * float(a.nan_to_num(0, 0, 0).abs().mean())
    return bool(torch.allclose(a, b, rtol=COARSE, atol=most, equal_nan=True))


def _paired(numbers: Any, tensors: Any) -> Iterator[tuple[int, Any]]:
    for number, value in zip(numbers, tensors, strict=True):
        if isinstance(number, (tuple, list)):
            yield from _paired(number, value)
        elif isinstance(number, dict):
            yield from _paired(number.values(), value.values())
        elif hasattr(value, "untyped_storage"):
            yield number, value


def as_given(tensor: Any) -> Any:
    return tensor


def widened(tensor: Any) -> Any:
    return tensor.to(torch.float64) if str(tensor.dtype).removeprefix("torch.") in FLOATS else tensor


def _widened_for_kernels(tensor: Any) -> Any:
    """Kernels read 8-bit floats as they are, which are exact."""
    return tensor if tensor.element_size() == 1 else widened(tensor)


WIDE = (widened, _widened_for_kernels)
"""Conversions to float64."""


def in_float64(
    module: Any, task: ExpectTask, contents: Sequence[bytes], native: Sequence[Any], after: Sequence[Any],
    kinds: Sequence[bool], launches: Sequence[Launched],
) -> tuple[tuple[Sequence[Any], Sequence[Any]], bool]:  # fmt: skip
    """What ``native`` and ``after`` are in float64, a None for each where that can't be, and whether the reference's
    own casts were widened, too. Where code needs the bits of a dtype, they can't be. ``kinds``: which is tried."""
    why: object = "its results have other shapes"
    for casts in kinds:
        try:
            every = widely(module, task, launches, casts, contents)
            count = len(every) - len(after)
            wide, wide_after = every[:count], every[count:]
            if [x.shape for x in wide] == [x.shape for x in native]:
                return (wide, wide_after), casts
        except Exception as exc:  # a kernel of Triton's has the types that it has
            why = exc
    print(f"no float64: {why}", file=sys.stderr)
    return ([None] * len(native), [None] * len(after)), False


@contextlib.contextmanager
def _wide_default() -> Iterator[None]:
    """What torch makes without a dtype is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def widely(
    module: Any, task: ExpectTask, launches: Sequence[Launched], casts: bool, contents: Sequence[bytes]
) -> list[Any]:
    """Results and inputs afterwards, of these contents in float64; kernels, too, whose ``launches`` the interpreter
    has done before. ``ValueError`` where others cast to fewer bits inside."""
    kernels = casts and launches
    rounding = partial(wider_launches, launches) if kernels else contextlib.nullcontext
    convert = _widened_for_kernels if kernels else widened
    with noted_launches() as again, noted_kernels() as compiled:
        results, after, _ = run_reference(module, task, contents, convert, casts=casts, rounding=rounding)
    programs = programs_of(again, compiled)
    if programs is None or any(map(rounds, programs)):
        raise ValueError("its kernels round inside")
    return [*results, *after]
