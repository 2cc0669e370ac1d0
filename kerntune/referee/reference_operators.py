"""The operators of torch that the reference calls: what they promise, and what of them is computed otherwise."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._decomp import decomposition_table
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

from kerntune.capture.entry_points import REPLACED
from kerntune.errors import InterpreterLimit
from kerntune.gpu.base import tensors_in
from kerntune.gpu.emulator.ttir_program import TtirProgram, parse_ttir
from kerntune.gpu.interpreter.wider_programs import Launched
from kerntune.referee.exact_operators import ARITHMETIC, FINITE, KNOWN, _is_power, is_exact
from kerntune.referee.extreme_contents import END_EXPONENTS
from kerntune.referee.result_errors import TYPICAL
from kerntune.referee.rounding_limits import CHAIN, MOST_SUMS, ROUNDING_RMS
from kerntune.referee.tasks import OperatorChain
from kerntune.referee.torch_operators import DECIDING, MOVING

FIRST_OF_TIES = {"aten.argmax.default", "aten.argmin.default", "aten.max.dim", "aten.min.dim"}
"""Operators that return the first index of equal numbers, by torch's documentation."""

ANY_OF_TIES = {
    "aten.sort.default", "aten.sort.stable", "aten.topk.default", "aten.kthvalue.default", "aten.median.dim",
    "aten.nanmedian.dim", "aten.mode.default", "aten.cummax.default", "aten.cummin.default", "aten.multinomial.default",
}  # fmt: skip
"""Operators for which it promises none, or which may have been asked to be stable: that isn't looked at."""

ONE_OF_ORDER = ("aten.median.dim", "aten.kthvalue.default")
UNORDERED = ("aten.sort.default", "aten.sort.stable", "aten.topk.default", *ONE_OF_ORDER)
"""Operators that are asked again with equal numbers in other orders, unless they are stable."""

MULTIPLIED = {"convolution": 2.0, "mm": CHAIN, "bmm": CHAIN}
"""Roundings that short sums of products have at least: kernels take products apart, as three of tf32."""

RANKING = ("aten.kthvalue.default", "aten.sort.default", "aten.sort.stable", "aten.topk.default")
"""Operators whose first result is exact, but for NaN, whichever of equal numbers comes first."""

UNWRITTEN = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"))
"""Operators whose result anything may be."""

Caller = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Calls a function with these arguments and keywords, or does something else."""


class EachOperator(TorchDispatchMode):  # type: ignore[misc]  # torch's types are skipped
    """Meanwhile each operator of torch's goes through a caller."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._caller(func, args, kwargs or {})


class EachFunction(TorchFunctionMode):  # type: ignore[misc]
    """Meanwhile each function of torch's goes through a caller."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self._caller = caller

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._caller(function, args, kwargs or {})


class Observed(NamedTuple):
    """What ``run`` returns, its operators with overloads and arguments, and whether others compute, too: Triton's
    kernels, or what writes memory that no operator does."""

    value: Any
    operators: list[tuple[str, Sequence[Any], Mapping[str, Any]]]
    others: bool
    made: Mapping[int, bool]
    """By storage, whether what operators have written there is exact."""


def _observed(run: Callable[[], Any], where: str = "") -> Observed:
    found: list[tuple[str, Sequence[Any], Mapping[str, Any]]] = []
    unwritten, made, lost = set[int](), dict[int, bool](), list[str]()

    def watch(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        found.append((str(func), args, words))
        outcome = func(*args, **words)
        given, written = (list(map(place_of, tensors_in(x))) for x in ((*args, *words.values()), (outcome,)))
        exact = is_exact(where, str(func), args, words) if where else True
        if func._opname in UNWRITTEN:
            unwritten.update(place_of(t) for t in tensors_in((outcome,)) if t.numel())
        elif func._schema.is_mutable:
            unwritten.difference_update(given)
            written += given
        if not exact and not written:
            lost.append(str(func))  # a number of Python's, which any other may follow from
        known = all(made.get(place, True) for place in given)
        made.update(dict.fromkeys(written, exact and known))
        if where in FINITE and str(func) in RANKING and (*args[4:], words.get("sorted", True))[0]:
            made[written[0]] = known
        return outcome

    with noted_kernels() as launched, EachOperator(watch):
        value = run()
    others = bool(launched or unwritten)
    return Observed(value, found, others, made if not (lost or others) else dict.fromkeys(made, False))


@contextlib.contextmanager
def noted_kernels() -> Iterator[list[Any]]:
    """What launches of Triton's kernels give within the context: on a GPU, the compiled kernel."""
    found = list[Any]()

    def watched(below: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
            found.append(below(kernel, *args, **kwargs))
            return found[-1]

        return launch

    REPLACED.add(found, {(JITFunction, "run"): watched})
    try:
        yield found
    finally:
        REPLACED.remove(found)


def programs_of(launches: Sequence[Launched], kernels: Sequence[Any]) -> list[TtirProgram] | None:
    """The programs of launches that were interpreted, or of a GPU's kernels; None where one isn't known."""
    if launches:
        return [one.program for one in launches]
    try:
        return [parse_ttir(kernel.asm["ttir"]) for kernel in kernels]
    except (AttributeError, KeyError, InterpreterLimit):
        return None


def promises_indices(run: Callable[[], tuple[Any, Sequence[Any], Any]]) -> bool:
    """Whether ``run``, whose second value are its inputs, asks for indices of their own numbers, by operators for which
    torch documents the one of equal numbers. What is computed first may be rounded otherwise, so that other numbers
    are equal."""
    seen = _observed(run)
    asked = [(name, place_of(args[0])) for name, args, _ in seen.operators if name in FIRST_OF_TIES | ANY_OF_TIES]
    places = {place_of(t) for t in seen.value[1]}
    return bool(asked) and not seen.others and all(n in FIRST_OF_TIES and place in places for n, place in asked)


def unknown_at_ends(results: Sequence[Any], where: str) -> list[Any]:
    """Which elements are others than 0, 1, -1 and infinities, or the inputs' powers of two; whole quotients are all
    known."""
    if where == "multiples":
        return [torch.zeros_like(x, dtype=torch.bool) for x in results]
    ends = [0.0, 1.0, math.inf, *(2.0**k for end in END_EXPONENTS.values() for k in (-end, end) if where == "specks")]
    return [~torch.isin(x.detach().double().abs(), x.new_tensor(ends, dtype=torch.float64)) for x in results]


def moves_beside(run: Callable[[], Any]) -> bool:
    """Whether all of torch's operators move numbers."""
    return all(name.split(".")[1] in MOVING for name, *_ in _observed(run).operators)


class OperatorKinds(NamedTuple):
    """Whether a result follows from exact operators alone (:func:`exact_results`); whether others than torch's
    operators compute (:class:`Observed`); whether one has equal numbers in any order (:data:`UNORDERED`), and whether
    one is a convolution; and what else is known of all."""

    exact: bool = False
    others: bool = False
    unordered: bool = False
    convolves: bool = False
    chain: OperatorChain = OperatorChain()


Run = Callable[[], tuple[Sequence[Any], Sequence[Any], Any]]
"""What gives results, and inputs afterwards."""


def kinds_of(run: Run) -> OperatorKinds:
    """What ``run`` calls."""
    seen = _observed(run, "grid")
    unordered = any(name in UNORDERED and not words.get("stable") for name, _, words in seen.operators)
    convolves = any("convolution" in name for name, _, _ in seen.operators)
    chain = OperatorChain() if seen.others else chain_of(seen.operators)
    return OperatorKinds(bool(_exact_of(seen)), seen.others, unordered, convolves, chain)


def chain_of(operators: Sequence[tuple[str, Sequence[Any], Mapping[str, Any]]]) -> OperatorChain:
    """What is known of operators with their arguments."""
    rest = [(name, args, words) for name, args, words in operators if name.split(".")[1] not in MOVING]
    if not rest or any(not name.startswith("aten.") for name, *_ in rest):
        return OperatorChain()
    tagged = (getattr(getattr(torch.ops.aten, name.split(".")[1]), name.split(".")[2]).tags for name, *_ in rest)
    pointwise = all(torch.Tag.pointwise in tags for tags in tagged)
    (name, args, words), roundings = rest[0], None
    word = name.split(".")[1].rstrip("_")
    if len(rest) == 1 and not words:
        roundings = 0.0 if word in ARITHMETIC else None
        narrow = any(t.is_floating_point() and t.dtype.itemsize < 4 for t in tensors_in(args))
        if word in MULTIPLIED and not narrow and not any(x is True for x in args):
            terms = math.prod(args[1].shape[1:]) if word == "convolution" else args[0].shape[-1]
            roundings = max(MULTIPLIED[word], ROUNDING_RMS * math.sqrt(terms / 2))
    weights = len(rest) == 1 and word == "_softmax" and args[1] in (-1, args[0].dim() - 1)
    named = {name.split(".")[1] for name, *_ in rest}
    known = next((where for where, functions in KNOWN.items() if named <= {*functions}), "")
    known = "kept" if named == {"nan_to_num"} else known
    return OperatorChain(pointwise, roundings, weights, known)


def exact_results(run: Run, where: str = "grid") -> list[bool]:
    """For each result and each input afterwards, whether all operators that it follows from give one right result,
    whichever way it is computed: of numbers of few bits (``grid``), of any (``decided``), of any size (``sized``); or
    also of NaN whole numbers (``nan``) and floats (``kept``); or where functions have known results (:data:`KNOWN`),
    those of :func:`unknown_at_ends` aside. What a kernel computes isn't known. Empty where no result is exact, or
    without results an input isn't."""
    return _exact_of(_observed(run, where))


def _exact_of(seen: Observed) -> list[bool]:
    results, after = ([seen.made.get(place_of(t), not seen.others) for t in x] for x in seen.value[:2])
    return results + after if (any(results) if results else all(after)) else []


@contextlib.contextmanager
def noted_casts() -> Iterator[list[str]]:
    """What makes whole numbers of floats within the context whose other ways are as right: which of equal numbers comes
    first; and casts of NaN, or of what the dtype can't hold."""
    found = list[str]()

    def watch(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        outcome = func(*args, **words)
        if str(func) in FIRST_OF_TIES | ANY_OF_TIES:
            found.append(str(func))
        for given in tensors_in(args) if func._opname in ("_to_copy", "copy_") else ():
            dtype = outcome.dtype
            if given.is_floating_point() and given.numel() and not dtype.is_floating_point and dtype != torch.bool:
                limits, wide = torch.iinfo(dtype), given.double().nan_to_num(torch.inf)
                if wide.max() > limits.max or wide.min() < limits.min:
                    found.append(str(func))
        return outcome

    with EachOperator(watch):
        yield found


def wider_casts() -> contextlib.AbstractContextManager[Any]:
    """Casts to float32, float16 and bfloat16 make float64 meanwhile: exact numbers have no rounding of the reference's.
    Narrower formats are kept, for to round to them is what a reference of quantized numbers is about."""
    narrow = torch.float32, torch.float16, torch.bfloat16
    methods = torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16

    def wider(value: Any) -> Any:
        return torch.float64 if any(value is dtype for dtype in narrow) else value

    def call(function: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        if function in methods:
            return torch.Tensor.double(*args, **words)
        if function is torch.Tensor.view:  # of other bits
            return function(*args, **words)
        return function(*map(wider, args), **{name: wider(value) for name, value in words.items()})

    return EachFunction(call)


def as_kernels() -> contextlib.AbstractContextManager[Any]:
    """Meanwhile torch computes as its kernels of a GPU do. Attention of float16 and bfloat16 is that of a fused kernel,
    which rounds weights to these: it takes tensors of four dimensions and one width, and of others torch computes in
    float32 inside. A deviation is the root of a variance that float32 holds: a processor has float64's, which doesn't
    overflow."""

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        given, width, wide = (query, key, value), query.shape[-1], value.shape[-1]
        rest = (dropout_p, is_causal)
        four = query.dim() == 4 and width == wide
        if four or query.dim() > 4 or query.dtype not in (torch.float16, torch.bfloat16):
            return scaled_dot_product_attention(*given, attn_mask, *rest, scale=scale, enable_gqa=enable_gqa)
        scale, most = width**-0.5 if scale is None else scale, max(width, wide)
        given = tuple(_of_four(pad(x, (0, most - x.shape[-1]))) for x in given)
        mask = None if attn_mask is None else _of_four(attn_mask)
        found = scaled_dot_product_attention(*given, mask, *rest, scale=scale, enable_gqa=enable_gqa)
        return found[..., :wide].reshape(*query.shape[:-1], wide).contiguous()

    def deviation(given: Any, *rest: Any, **words: Any) -> Any:
        wide = given.float() if given.dtype in (torch.float16, torch.bfloat16) else given
        return torch.var(wide, *rest, **words).sqrt().to(given.dtype)

    replaced = {scaled_dot_product_attention: attention, torch.std: deviation, torch.Tensor.std: deviation}

    def call(function: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        other = function if "out" in words or "input" in words else replaced.get(function, function)
        return other(*args, **words)

    return EachFunction(call)


def _of_four(tensor: Any) -> Any:
    """With dimensions of one element in front."""
    return tensor[(None,) * (4 - tensor.dim())]


SOFTMAX_BACKWARD = "_softmax_backward_data"
"""Its sum over a row is that of the result times its gradient, of which attention has the rounded result (Dao,
FlashAttention-2, 2023, algorithm 2), and what it gives is an operand of products."""

SUMS = frozenset(("sum", "mm", "bmm", "mv", "dot"))
"""Operators whose roundings are a share of their terms, which may cancel."""

TRANSFORMS = frozenset(("_fft_c2c", "_fft_r2c", "_fft_c2r"))
"""Operators whose roundings are a share of the root mean square of what they give (Parseval: of their terms)."""

KEEPING_WHOLE = frozenset(("add", "sub", "rsub", "mul", "sum", "cumsum"))
"""Operators that give whole numbers of whole numbers, which are exact."""

BY_HARDWARE = frozenset(
    ("div", "reciprocal", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "tanh",
     "sin", "cos", "tan", "pow")
)  # fmt: skip
"""Operators whose kernels have functions of the hardware, which round otherwise than to the nearest number."""

PRODUCTS = frozenset(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"))
"""Operators whose last two tensors are the operands of a product; the first one's last dimension is summed over."""


def rounded(
    generator: Any, unit: float, every: bool = False, stored: float = 0.0
) -> contextlib.AbstractContextManager[Any]:
    """Meanwhile each operator's float64 elements are off by up to ``unit`` of their size, at random, as they are where
    it computes with fewer bits (Monte Carlo arithmetic: Parker, UCLA CSD-970002, 1997). Elements that float32 holds are
    exact, and stay, unless ``every`` one is off but whole sums and products of whole numbers (:data:`KEEPING_WHOLE`):
    to multiply by an inverse rounds where to divide doesn't. What the hardware approximates is off by
    :data:`~.rounding_limits.CHAIN` then, to either side: several such in a row may be off to the same one. Sums are off
    by more (:mod:`.result_errors`).

    Of backward passes each step is, as torch's compiler decomposes them: what cancels inside of one is noise of a
    kernel's. Those of a softmax are off by ``stored``, the roundoff in which a kernel keeps what it sums, and its
    weights follow from the logarithm of their sum, which is what a kernel keeps of them."""
    units = [unit]

    def off_by_units(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        word, steps = func._opname, decomposition_table.get(func)
        steps = _by_logarithm if word == "_softmax" else steps if "_backward" in word else None
        if steps is not None and not func._schema.is_mutable:
            units.append(max(unit, stored) if word == SOFTMAX_BACKWARD else unit)
            try:
                with mode:
                    return steps(*args, **words)
            finally:
                units.pop()
        outcome = func(*args, **words)
        if word in MOVING or word in DECIDING or (word.rstrip("_") in ("div", "mul") and _is_power(args[-1])):
            return outcome
        given = set() if word.endswith("_") else {place_of(t) for t in tensors_in(args)}
        wide = (torch.float64, torch.complex128)[: 1 + (word in TRANSFORMS)]
        for found in (t for t in tensors_in((outcome,)) if t.dtype in wide and place_of(t) not in given):
            made = torch.view_as_real(found) if found.is_complex() else found
            most = units[-1] * _roundings(word, args, made)
            off = torch.empty_like(made).uniform_(-most, most, generator=generator)
            if every and word.rstrip("_") in BY_HARDWARE:
                off = off.sign() * most * CHAIN
            terms = word in SUMS and not func._schema.is_mutable
            size = made.abs().maximum(_squares(func, args, words)) if terms else made.abs()
            if word in TRANSFORMS:
                typical = found.abs().square().mean(args[1], keepdim=True).sqrt()
                size = size.maximum(typical.unsqueeze(-1) if found.is_complex() else typical)
            kept = made == (made.round() if every else made.to(torch.float32))
            kept = kept & (not every or (word.rstrip("_") in KEEPING_WHOLE and all(map(_is_whole, tensors_in(args)))))
            made.copy_(torch.where(kept, made, made + size * off))
        return outcome

    mode = EachOperator(off_by_units)
    return mode


def _is_whole(tensor: Any) -> bool:
    return not tensor.is_floating_point() or bool((tensor == tensor.round()).all())


def _by_logarithm(given: Any, dim: int, half_to_float: bool) -> Any:
    return (given - given.logsumexp(dim, keepdim=True)).exp()


def _squares(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
    """The root of the sum of the squares of a sum's terms."""
    return func(*(x.square() if hasattr(x, "untyped_storage") else x for x in args), **words).sqrt()


def _roundings(word: str, args: Sequence[Any], made: Any) -> float:
    """How many drawn roundings a sum that an operator computes is off by in the root mean square, beside one."""
    given = [t for t in tensors_in(args) if t.is_floating_point() or t.is_complex()]
    if not given:
        return 1.0
    if word in TRANSFORMS:
        return max(TYPICAL * math.sqrt(math.prod(given[0].shape[i] for i in args[1]) / 2), 1.0)
    terms = given[-2].shape[-1] if word in PRODUCTS and len(given) > 1 else given[0].numel() / max(made.numel(), 1)
    return min(max(TYPICAL * math.sqrt(terms / 2), 1.0), MOST_SUMS)


def other_ties(turn: int, seed: int) -> contextlib.AbstractContextManager[Any]:
    """Meanwhile the operators of :data:`UNORDERED` have equal numbers in another order, by ``turn``."""
    chance = random.Random(seed)

    def reordered(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        names = [x.name for x in func._schema.arguments][: len(args)]
        named = {**dict(zip(names, args, strict=True)), **words}
        if str(func) not in UNORDERED or named.get("stable") or not named["self"].dim():
            return func(*args, **words)
        given, dim = named["self"], named.get("dim", -1)
        count = given.shape[dim]
        order = (range(count), range(count)[::-1], chance.sample(range(count), count))[turn]
        places = given.new_tensor(order, dtype=torch.int64)
        if str(func) in ONE_OF_ORDER:
            found = func(**{**named, "self": given.index_select(dim, places)})
            return found[0], places[found[1]]
        falling = named.get("largest", True) if "k" in named else named.get("descending", False)
        found = torch.sort(given.index_select(dim, places), dim=dim, descending=falling, stable=True)
        most = named.get("k", count)
        return found.values.narrow(dim, 0, most).clone(), places[found.indices.narrow(dim, 0, most)]

    return EachOperator(reordered)


def filled(byte: int) -> contextlib.AbstractContextManager[Any]:
    """Memory that torch's operators leave unwritten holds this byte meanwhile."""

    def with_byte(func: Any, args: Sequence[Any], words: Mapping[str, Any]) -> Any:
        outcome = func(*args, **words)
        for made in tensors_in((outcome,)) if func._opname in UNWRITTEN else ():
            made.untyped_storage().fill_(byte)
        return outcome

    return EachOperator(with_byte)


def place_of(tensor: Any) -> int:
    """The address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())
