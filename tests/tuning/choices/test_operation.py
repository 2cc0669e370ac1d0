"""``kerntune.choice``: which implementation a call goes to, what is compared, and what is kept."""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from doubles import raising
from fake_runs import scale_kernel

import kerntune
from kerntune.base.policy import TuneMode
from kerntune.errors import CacheMissError, MeasurementError, UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import agreement, context
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.choices import operation
from kerntune.tuning.choices.choice_place import ChoicePlace, choices_at
from kerntune.tuning.choices.declaration import implementations

Spend = Callable[[float], None]


class Timed:
    """Implementations of doubling that take ``ns`` of the scripted GPU's time, and count their calls."""

    def __init__(self, spend: Spend, slow_ns: float = 3000.0, fast_ns: float = 1000.0) -> None:
        self.calls: list[str] = []

        def slow(x: torch.Tensor) -> torch.Tensor:
            self.calls.append("slow")
            spend(slow_ns)
            return x * 2

        def fast(x: torch.Tensor) -> torch.Tensor:
            self.calls.append("fast")
            spend(fast_ns)
            return x + x

        self.slow, self.fast = slow, fast

    def choice(self, *others: Any, **options: Any) -> Any:
        return choice_of(self.slow, self.fast, *others, **options)


def choice_of(*functions: Any, **options: Any) -> Any:
    @kerntune.choice(list(functions), **{"key": ["x"], **options})
    def double(x: torch.Tensor) -> torch.Tensor:
        """Twice."""
        raise AssertionError("the signature's body never runs")

    return double


def taking(spend: Spend, ns: Any, result: Any = lambda x: x * 2, name: str = "other") -> Any:
    """An implementation that takes so many nanoseconds, which may depend on its argument."""

    def run(x: torch.Tensor) -> Any:
        spend(ns(x) if callable(ns) else ns)
        return result(x)

    run.__qualname__ = name
    return run


def winner(function: Any) -> str:
    return str(function.operation.decisions[-1].winner).rpartition(".")[2]


# which one is called


def test_the_fastest_is_called(spend: Spend) -> None:
    timed = Timed(spend)
    double = timed.choice()
    x = torch.arange(6.0)
    assert torch.equal(double(x), 2 * x)
    assert winner(double) == "fast"
    timed.calls.clear()
    assert torch.equal(double(x), 2 * x)
    assert timed.calls == ["fast"]


def test_each_key_is_decided(spend: Spend) -> None:
    large = taking(spend, lambda x: 500.0 if len(x) > 10 else 5000.0, name="large")
    double = Timed(spend).choice(large)
    for x in (torch.ones(4), torch.ones(40), torch.ones(4, dtype=torch.float64)):
        double(x)
    assert [d.winner.rpartition(".")[2] for d in double.operation.decisions] == ["fast", "large", "fast"]


class TwoModels:
    """Two models of GPU in one process. What runs takes the time of the current one: on the second, the choice's other
    implementation is the faster one."""

    def __init__(self, first: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self.backends = monkeypatch, (first, FakeBackend(device_name="Other GPU"))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

        def one(x: torch.Tensor) -> torch.Tensor:
            return self._spend(x, 1000.0, 3000.0)

        def other(x: torch.Tensor) -> torch.Tensor:
            return self._spend(x, 3000.0, 1000.0)

        self.double = choice_of(one, other)
        self.use(0)

    def use(self, number: int) -> None:
        self.current: FakeBackend = self.backends[number]
        self._monkeypatch.setattr(context, "this_gpu", lambda: self.current)

    def place(self) -> ChoicePlace:
        """Where a gated test's choices are decided."""
        return ChoicePlace(self.current, WinnerCache(), TuneMode.AUTO)

    def _spend(self, x: torch.Tensor, *ns: float) -> torch.Tensor:
        for backend, taken in zip(self.backends, ns, strict=True):
            gpu: Any = backend.gpu
            gpu._clock += taken if backend is self.current else 0.0
        return x * 2

    def called(self, number: int, place: bool = False) -> tuple[str, str]:
        """Which one a call goes to on a GPU, and how that was found."""
        self.use(number)
        with choices_at(self.place()) if place else contextlib.nullcontext():
            self.double(torch.ones(4))
        return winner(self.double), self.double.operation.decisions[-1].how


@pytest.mark.parametrize("gated", [False, True])
def test_another_model_of_gpu_in_the_process_is_decided_by_its_own_race(this_gpu: FakeBackend, gated: bool) -> None:
    """Of a gated test the place has the GPU; all else that a decision depends on is equal."""
    with pytest.MonkeyPatch.context() as inside:  # undone while the stand-ins are still there
        models = TwoModels(this_gpu, inside)
        assert models.called(0, gated) == ("one", "raced")
        assert models.called(1, gated) == ("other", "raced")
        models.double.operation.forget_prepared()
        decided = len(models.double.operation.decisions)
        models.use(0)
        with choices_at(models.place()) if gated else contextlib.nullcontext():
            assert models.double.operation.winner_of(torch.ones(4)).__name__ == "one"
        assert len(models.double.operation.decisions) == decided, "known in this process"


def test_settings_that_change_what_torch_launches_are_part_of_the_key(spend: Spend) -> None:
    timed = Timed(spend)
    double = timed.choice()
    double(torch.ones(4))
    torch.use_deterministic_algorithms(True)
    try:
        double.operation.forget_prepared()
        double(torch.ones(4))
    finally:
        torch.use_deterministic_algorithms(False)
    first, second = (d.arguments for d in double.operation.decisions)
    assert "deterministic=False" in first
    assert "deterministic=True" in second


def test_a_tie_goes_to_the_first(spend: Spend) -> None:
    double = Timed(spend, slow_ns=1003.0).choice()
    double(torch.ones(4))
    assert winner(double) == "slow"


def test_the_functions_that_are_decorated_are_candidates_without_a_list(spend: Spend) -> None:
    timed = Timed(spend)
    double = kerntune.choice(key=["x"])(timed.slow, timed.fast)
    double(torch.ones(4))
    assert winner(double) == "fast"
    assert double.__name__ == "slow"


def test_it_looks_like_the_signature(spend: Spend) -> None:
    double = Timed(spend).choice()
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert list(inspect.signature(double).parameters) == ["x"]
    assert torch.equal(double(x=torch.ones(2)), torch.full((2,), 2.0))


def test_keywords_defaults_and_tensors_that_come_and_go(spend: Spend) -> None:
    calls: list[Any] = []

    def one(x: Any, n: int, /, bias: Any = None, *, scale: float = 1.0) -> Any:
        calls.append((n, bias is None, scale))
        spend(10.0)
        return x * scale if bias is None else x * scale + bias

    def other(x: Any, n: int, /, bias: Any = None, *, scale: float = 1.0) -> Any:
        spend(1000.0)
        return one.__wrapped__(x, n, bias, scale=scale) if hasattr(one, "__wrapped__") else one(x, n, bias, scale=scale)

    @kerntune.choice([one, other], key=["n"])
    def scaled(x: Any, n: int, /, bias: Any = None, *, scale: float = 1.0) -> Any: ...

    x = torch.ones(3)
    for _ in range(3):
        assert scaled(x, 1).tolist() == [1.0] * 3
        assert scaled(x, 1, x).tolist() == [2.0] * 3
        assert scaled(x, 1, bias=x, scale=3.0).tolist() == [4.0] * 3
    assert calls[-1] == (1, False, 3.0)
    assert len(scaled.operation.decisions) == 2
    calls.clear()
    scaled(x, 1)
    assert calls == [(1, True, 1.0)]


def test_a_choice_of_choices(spend: Spend) -> None:
    inner = Timed(spend).choice()
    outer = choice_of(inner, taking(spend, 900.0, name="fastest"))
    x = torch.ones(4)
    assert torch.equal(outer(x), 2 * x)
    assert (winner(inner), winner(outer)) == ("fast", "fastest")


def test_without_a_gpu_the_first_is_called(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "this_gpu", lambda: None)
    timed = Timed(spend)
    timed.choice()(torch.ones(4))
    assert timed.calls == ["slow"]


def test_functions_of_torch_have_the_names_that_users_know(spend: Spend) -> None:
    double = choice_of(Timed(spend).slow, torch.clone, verify="off")
    double(torch.ones(2))
    assert [d.winner for d in double.operation.decisions] == ["torch.clone"]


# what users say wrongly


async def coroutine(x: torch.Tensor) -> torch.Tensor:
    return x


def generator(x: torch.Tensor, n: int) -> Any:
    yield x


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: kerntune.choice([f], key=["x"])(f), "two implementations at least"),
        (lambda f: kerntune.choice([f, f], key=["x"])(f), "two implementations are called"),
        (lambda f: kerntune.choice([f, 3], key=["x"])(f), "can't be called"),
        (lambda f: kerntune.choice([f, scale_kernel], key=["x"])(f), "scale_kernel.* a kernel needs a function that"),
        (lambda f: kerntune.choice([f, coroutine], key=["x"])(f), "coroutine computes nothing when it is called"),
        (lambda f: kerntune.choice([f, partial(generator, n=1)], key=["x"])(f), "generator computes nothing when it"),
        (lambda f: kerntune.choice([f, torch.clone], key=["y"])(f), "'y', which is no parameter; there are x"),
        (lambda f: kerntune.choice([f, torch.clone], key="x")(f), "it is a list of names"),
        (lambda f: kerntune.choice([f, torch.clone], key=[])(lambda *xs: 0), "name all parameters"),
        (
            lambda f: kerntune.choice([f, torch.clone], key=[])(f),
            'key is empty, .* name the parameters .* key=\\["x"\\]',
        ),
        (
            lambda f: kerntune.choice([f, torch.clone], key=["x"], verify_ignore=["y"])(f),
            "verify_ignore has 'y', which is nothing that is compared; there are result .* and the parameters x",
        ),
        (lambda f: kerntune.choice(f, key=["x"]), "give a list"),
        (lambda f: kerntune.choice([f, torch.clone], key=["x"])(f, f), "not both"),
        (lambda f: kerntune.choice([f, torch.clone], key=["x"], tune="never")(f), "never"),
        (lambda f: kerntune.choice([f, torch.clone], key=["x"], isolate="on")(f), "isolate is 'on'; it can be auto, "),
    ],
)
def test_what_can_not_be_is_refused_by_name(make: Any, words: str) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with pytest.raises(UsageError, match=words):
        make(double)


@pytest.mark.parametrize("words", [{"key": []}, {"key": ["y"]}, {"key": ["x"], "verify_ignore": "y"}])
def test_what_is_refused_is_named_with_its_file_and_line(words: Any) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    line = double.__code__.co_firstlineno
    with pytest.raises(UsageError, match=rf"^choice \S+\.double \({re.escape(__file__)}:{line}\): "):
        kerntune.choice([double, torch.clone], **words)(double)


@pytest.mark.parametrize("ignored", ["result", "x", "gradient of x", "MODULE.double.x"])
def test_what_is_compared_can_be_ignored_by_name(ignored: str) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.__qualname__ = "double"
    name = [ignored.replace("MODULE", __name__)]
    kerntune.choice([double, torch.clone], key=["x"], verify_ignore=name)(double)


def test_what_has_no_hash_is_refused_in_the_key_by_name(spend: Spend) -> None:
    def one(x: torch.Tensor, sizes: Any) -> torch.Tensor:
        return x

    same = kerntune.choice([one, lambda x, sizes: x], key=["sizes"])(lambda x, sizes: x)
    with pytest.raises(UsageError, match="sizes is in the key, and a set can't be looked up: pass numbers"):
        same(torch.ones(2), {1, 2})
    for sizes in ((1, 2), [1, 2]):
        same(torch.ones(2), sizes)


@pytest.mark.parametrize("key", [["xs"], ["n"]])
@pytest.mark.parametrize("kind", [list, tuple])
def test_tensors_in_lists_are_looked_at_in_each_call_and_not_kept(spend: Spend, key: list[str], kind: Any) -> None:
    def halves(xs: Any, n: int) -> Any:
        spend(10.0)
        if xs[0].dtype is not torch.float16:
            raise TypeError("half precision only")
        return [x * 2 for x in xs]

    def all_of_them(xs: Any, n: int) -> Any:
        spend(1000.0)
        return [x * 2 for x in xs]

    double = kerntune.choice([halves, all_of_them], key=key)(lambda xs, n: None)
    kept = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float16, torch.float32, torch.float16, torch.float32):
            x = torch.ones(3, dtype=dtype)
            kept.append(weakref.ref(x))
            assert double(kind([x]), 1)[0].dtype is dtype
            del x
    assert [ref() for ref in kept] == [None] * 4
    assert len(double.operation.decisions) == 2


# one that can't, one that is wrong


def test_one_that_can_not_run_is_left_out_with_its_reason(spend: Spend) -> None:
    can_not = taking(spend, 0.0, raising(ValueError("only multiples of 8")), "can_not")
    double = Timed(spend).choice(can_not)
    with pytest.warns(RuntimeWarning, match="can_not is left out for such arguments: ValueError: only multiples of 8"):
        double(torch.ones(4))
    (why,) = double.operation.decisions[-1].left_out.values()
    assert why == "ValueError: only multiples of 8"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double(torch.ones(5))  # said once


def test_one_that_lacks_memory_is_left_out(spend: Spend) -> None:
    double = Timed(spend).choice(taking(spend, 0.0, raising(torch.OutOfMemoryError("CUDA out of memory"))))
    with pytest.warns(RuntimeWarning, match="OutOfMemoryError"):
        assert double(torch.ones(4)).tolist() == [2.0] * 4


def test_where_none_can_the_first_error_is_raised(spend: Spend) -> None:
    one, other = (raising(error) for error in (ValueError("one's"), TypeError("other's")))
    with pytest.raises(ValueError, match="one's") as caught:
        choice_of(taking(spend, 0.0, one, "one"), taking(spend, 0.0, other))(torch.ones(4))
    assert "other's" in "".join(caught.value.__notes__)


def wrong_in(spend: Spend) -> Any:
    return taking(spend, 10.0, lambda x: x * 3, "wrong")


def test_a_wrong_one_never_wins(spend: Spend) -> None:
    double = Timed(spend).choice(wrong_in(spend))
    with pytest.warns(RuntimeWarning, match=r"wrong is left out.*another result than 2 of 3 implementations"):
        assert double(torch.ones(4)).tolist() == [2.0] * 4
    assert winner(double) == "fast"


def test_the_reference_decides_against_a_majority(spend: Spend) -> None:
    timed = Timed(spend)
    triple = choice_of(timed.slow, timed.fast, wrong_in(spend), reference=lambda x: x * 3)
    with pytest.warns(RuntimeWarning, match="another result than the reference"):
        assert triple(torch.ones(4)).tolist() == [3.0] * 4


def test_in_doubt_the_first_is_right_and_it_is_said(spend: Spend) -> None:
    double = choice_of(Timed(spend).slow, wrong_in(spend))
    with pytest.warns(RuntimeWarning) as said:
        assert double(torch.ones(4)).tolist() == [2.0] * 4
    assert any("give reference=" in str(w.message) for w in said)


def test_where_all_are_wrong_it_is_an_error(spend: Spend) -> None:
    double = Timed(spend).choice(reference=lambda x: x * 5)
    with pytest.raises(MeasurementError, match="no implementation leaves what reference= does"):
        double(torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_values_are_compared_by_dtype(spend: Spend, dtype: torch.dtype) -> None:
    near = taking(spend, 10.0, lambda x: x * (1 + 1e-5) if x.is_floating_point() else ~x, "near")
    copy = choice_of(taking(spend, 1000.0, torch.clone, "same"), near, reference=torch.clone)
    x = torch.arange(8).to(dtype)
    if x.is_floating_point():
        copy(x)
        assert winner(copy) == "near"
    else:
        with pytest.warns(RuntimeWarning, match="near is left out"):
            assert torch.equal(copy(x), x)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ([3], [4], r"result\[0\] is 4, not 3"),
        ((torch.ones(4), ["nchw"]), (torch.ones(4), ["nhwc"]), r"result\[1\]\[0\] is 'nhwc', not 'nchw'"),
        ([1.5], [1.6], r"wrote other values into result\[0\]"),
        ([None], [1], r"result\[0\] is 1, not None"),
        (torch.ones(4), torch.ones(1, 4), r"result is float32\(1, 4\), not float32\(4,\)"),
        (1e300, 2e300, "other is left out"),  # which no float32 can be
    ],
)
def test_numbers_texts_and_shapes_within_a_result_are_compared(spend: Spend, one: Any, other: Any, said: str) -> None:
    both = choice_of(taking(spend, 3000.0, lambda x: one, "slow"), taking(spend, 0.0, lambda x: other))
    with pytest.warns(RuntimeWarning) as warned:
        both(torch.ones(4))
    assert any(re.search(said, str(w.message)) for w in warned)
    assert winner(both) == "slow"


@pytest.fixture
def means(spend: Spend) -> tuple[Any, Any]:
    """Two functions whose floats differ in their last digits; the second one is slow."""
    mean = taking(spend, 10.0, lambda x: float(x.mean()), "mean")
    return mean, taking(spend, 1000.0, lambda x: float(x.double().mean()), "mean_in_double")


THIRDS = torch.tensor([0.1, 0.2, 0.5])


def test_floats_of_a_result_may_differ_in_their_last_digits(means: tuple[Any, Any]) -> None:
    mean, mean_in_double = means
    assert mean(THIRDS) != mean_in_double(THIRDS)
    both = choice_of(mean, mean_in_double)
    both(THIRDS)
    assert not both.operation.decisions[-1].left_out


def test_bits_of_a_float_are_all_its_bits(means: tuple[Any, Any]) -> None:
    """A float has more of them than a float32."""
    mean, mean_in_double = means
    assert float(torch.tensor(mean_in_double(THIRDS), dtype=torch.float32)) == mean(THIRDS) != mean_in_double(THIRDS)
    both = choice_of(mean_in_double, mean, verify="bitwise")
    with pytest.warns(RuntimeWarning, match="mean is left out.*wrote other bits into result"):
        both(THIRDS)
    assert winner(both) == "mean_in_double"


@pytest.mark.parametrize(("one", "other"), [(1, 2), ("seen", None), (torch.ones(3), torch.ones(4)), (torch.ones(3), 1)])
def test_an_ignored_result_may_be_anything(spend: Spend, one: Any, other: Any) -> None:
    slow, fast = taking(spend, 3000.0, lambda x: [one], "slow"), taking(spend, 0.0, lambda x: [other], "fast")
    both = choice_of(slow, fast, verify_ignore=["result"])
    both(torch.ones(4))
    assert winner(both) == "fast"
    assert not both.operation.decisions[-1].left_out


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (torch.mm, "torch.mm"),
        (partial(torch.mm), "torch.mm"),
        (torch.nn.functional.softmax, "torch.nn.functional.softmax"),
        (torch.ops.aten.mm, "torch.ops.aten.mm"),
        (torch.ops.aten.mm.default, "torch.ops.aten.mm.default"),
    ],
)
def test_functions_of_torch_have_the_names_that_they_are_called_by(fn: Any, name: str) -> None:
    """Baselines have them: no name of what torch was built from."""
    (found, _) = (one.name for one in implementations([fn, torch.add], "choice"))
    assert found == name


def test_nothing_is_compared_with_verify_off(spend: Spend) -> None:
    double = choice_of(Timed(spend).slow, wrong_in(spend), verify="off")
    assert double(torch.ones(4)).tolist() == [3.0] * 4


def other_bits_in(spend: Spend) -> Any:
    return taking(spend, 10.0, lambda x: x * 2 * (1 + 2**-23), "near")


def test_bitwise_lets_no_other_bits_win(spend: Spend) -> None:
    timed, near = Timed(spend), other_bits_in(spend)
    lax = timed.choice(near)
    lax(torch.ones(4))
    assert winner(lax) == "near"
    strict = timed.choice(near, verify="bitwise")
    with pytest.warns(RuntimeWarning, match=r"near is left out.*wrote other bits into result .*another result than "):
        strict(torch.ones(4))
    assert winner(strict) == "fast"


def test_no_majority_replaces_the_first_ones_bits(spend: Spend) -> None:
    timed = Timed(spend)
    functions, words = (other_bits_in(spend), timed.slow, timed.fast), {"verify": "bitwise", "tune": "force"}
    strict = choice_of(*functions, verify="bitwise")
    with pytest.warns(RuntimeWarning, match=r"(slow|fast) is left out.*another result than \S+near$"):
        strict(torch.ones(4))
    assert winner(strict) == "near"
    given = choice_of(*functions, reference=lambda x: x * 2, **words)
    with pytest.warns(RuntimeWarning, match=r"near is left out.*another result than the reference"):
        given(torch.ones(4))
    assert winner(given) == "fast"


# mutated inputs, gradients, random numbers


def in_place(spend: Spend, factor: float, ns: float) -> Callable[..., None]:
    def scale_(x: torch.Tensor) -> None:
        spend(ns)
        x.mul_(factor)

    scale_.__qualname__ = f"scale_{factor}_{ns}"
    return scale_


def test_what_is_written_in_place_is_written_once(spend: Spend) -> None:
    double_ = choice_of(in_place(spend, 2.0, 900.0), in_place(spend, 2.0, 100.0))
    x = torch.ones(6)
    part = x[2:]
    assert double_(part) is None
    assert x.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]


def test_a_position_that_calls_move_on_stays_within_its_tensor(spend: Spend) -> None:
    def one(place: torch.Tensor, x: torch.Tensor) -> None:
        spend(10.0)
        x[place] = 1.0  # IndexError where it is behind the end
        place.add_(1)

    def other(place: torch.Tensor, x: torch.Tensor) -> None:
        spend(1000.0)
        x.index_fill_(0, place, 1.0)
        place += 1

    put = kerntune.choice([one, other], key=["x"])(lambda place, x: None)
    place, x = torch.tensor([3]), torch.zeros(4)
    put(place, x)
    assert winner(put) == "one"
    assert (place.tolist(), x.tolist()) == ([4], [0.0, 0.0, 0.0, 1.0])


def test_what_is_written_in_place_is_compared(spend: Spend) -> None:
    functions = [in_place(spend, 2.0, 900.0), in_place(spend, 2.0, 800.0), in_place(spend, 3.0, 10.0)]
    x = torch.ones(4)
    with pytest.warns(RuntimeWarning, match="wrote other values into x"):
        choice_of(*functions)(x)
    assert x.tolist() == [2.0] * 4


def test_tensors_that_share_memory_do_so_in_the_copy(spend: Spend) -> None:
    def through_both(x: torch.Tensor, y: torch.Tensor) -> None:
        spend(100.0)
        x.add_(1)
        y.mul_(2)

    def other(x: torch.Tensor, y: torch.Tensor) -> None:
        spend(1000.0)
        through_both(x, y)

    both = kerntune.choice([other, through_both], key=["x"])(lambda x, y: None)
    memory = torch.ones(8)
    both(memory[:6], memory[2:].view(3, 2).t())
    assert memory.tolist() == [2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 2.0, 2.0]


def test_a_choice_brings_its_own_backward(spend: Spend) -> None:
    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, ns: float) -> torch.Tensor:
            ctx.ns = ns
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
            spend(ctx.ns)
            return gradient * 2, None

    def quick_forward(x: torch.Tensor) -> Any:
        spend(100.0)
        return Backward.apply(x, 5000.0)

    def quick_both(x: torch.Tensor) -> Any:
        spend(1000.0)
        return Backward.apply(x, 10.0)

    double = choice_of(quick_forward, quick_both)
    double(torch.ones(4))
    assert winner(double) == "quick_forward"
    x = torch.ones(4, requires_grad=True)
    double(x).sum().backward()
    assert winner(double) == "quick_both"
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 4
    with torch.no_grad():
        double(x)
    assert len(double.operation.decisions) == 2


def test_a_wrong_gradient_is_left_out(spend: Spend) -> None:
    def detached(x: torch.Tensor) -> torch.Tensor:
        return 2 * x + x.detach() - x.detach() * 1.0 + 0 * x - 1.0 * (x - x.detach())

    double = Timed(spend).choice(detached)
    with pytest.warns(RuntimeWarning, match="detached is left out.*gradient of x"):
        double(torch.ones(4, requires_grad=True))


def test_random_numbers_are_as_after_one_call(spend: Spend) -> None:
    noise = taking(spend, 10.0, lambda x: x + torch.rand(4), "noise")
    add_noise = choice_of(taking(spend, 1000.0, lambda x: torch.rand(4) + x), noise)
    torch.manual_seed(3)
    expected = [torch.rand(4), torch.rand(4)]
    torch.manual_seed(3)
    found = [add_noise(torch.zeros(4)), torch.rand(4)]
    assert winner(add_noise) == "noise"
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


# what is kept


def test_a_winner_is_kept_and_found_again(spend: Spend, cache_folder: Path) -> None:
    Timed(spend).choice()(torch.ones(4))
    first = kerntune.fingerprint()
    agreement._chosen.clear()
    assert kerntune.fingerprint() != first
    timed = Timed(spend)
    again = timed.choice()
    again(torch.ones(4))
    assert timed.calls == ["fast"]
    assert kerntune.fingerprint() == first
    decision = again.operation.decisions[-1]
    assert decision.how == "stored"
    assert sorted(decision.times_ns.values()) == [1000.0, 3000.0]


def test_another_list_keeps_the_incumbent_in_a_tie(spend: Spend) -> None:
    timed, third = Timed(spend), taking(spend, 1001.0, name="third")
    timed.choice()(torch.ones(4))
    longer = choice_of(third, timed.slow, timed.fast)
    longer(torch.ones(4))
    assert (winner(longer), longer.operation.decisions[-1].how) == ("fast", "raced")
    fresh = choice_of(third, timed.fast, tune="force")
    fresh(torch.ones(4))
    assert winner(fresh) == "third"


def test_frozen_needs_a_stored_winner(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    with pytest.raises(CacheMissError, match=r"^choice .*double: no stored winner"):
        Timed(spend).choice()(torch.ones(4))
    monkeypatch.setenv("KERNTUNE_TUNE", "auto")
    Timed(spend).choice()(torch.ones(4))
    monkeypatch.setenv("KERNTUNE_TUNE", "frozen")
    timed = Timed(spend)
    timed.choice()(torch.ones(4))
    assert timed.calls == ["fast"]


def test_force_decides_anew(spend: Spend) -> None:
    Timed(spend).choice()(torch.ones(4))
    timed = Timed(spend, slow_ns=10.0)
    again = timed.choice(tune="force")
    again(torch.ones(4))
    assert winner(again) == "slow"


def test_nearest_uses_the_nearest_winner_and_says_its_regret(spend: Spend) -> None:
    small = taking(spend, lambda x: 100.0 if len(x) < 100 else 9000.0, name="small")
    decided, timed = Timed(spend).choice(small), Timed(spend)
    for n in (10, 20, 1000, 2000):
        decided(torch.ones(n))
    near = timed.choice(small, tune="nearest")
    with pytest.warns(RuntimeWarning, match=r"over 4 decided keys.*0.0% slower than the best in the median"):
        near(torch.ones(1500))
    assert (winner(near), timed.calls) == ("fast", ["fast"])
    assert len(WinnerCache().entries()) == 4
    regrets = near.operation.regrets(torch.ones(10))
    assert [r.share for r in regrets] == [0.0] * 4


def test_a_regret_is_the_share_that_the_nearest_winner_loses(spend: Spend) -> None:
    decided = Timed(spend).choice(taking(spend, lambda x: 500.0 if len(x) < 100 else 2000.0, name="small"))
    for n in (64, 512):
        decided(torch.ones(n))
    found = {r.arguments.partition(";")[0]: r for r in decided.operation.regrets(torch.ones(1))}
    assert found["x=torch.float32(64,)(1,)"].share == pytest.approx(1.0)  # fast takes 1000, small 500
    assert found["x=torch.float32(512,)(1,)"].share == pytest.approx(1.0)  # small takes 2000, fast 1000


def test_other_code_is_decided_anew(spend: Spend) -> None:
    def make(factor: int) -> Any:
        if factor == 2:

            def double(x: torch.Tensor) -> torch.Tensor:
                return x * 2

        else:

            def double(x: torch.Tensor) -> torch.Tensor:
                return x + x

        return double

    timed = Timed(spend)
    timed.choice(make(2))(torch.ones(4))
    again = timed.choice(make(3))
    again(torch.ones(4))
    assert again.operation.decisions[-1].how == "raced"


# where nothing can be raced


def test_a_graph_capture_is_refused_before_and_served_after(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(spend)
    double = timed.choice()
    monkeypatch.setattr(operation, "captures_graph", lambda: True)
    with pytest.raises(MeasurementError, match="call it once before the capture"):
        double(torch.ones(4))
    assert timed.calls == []
    monkeypatch.setattr(operation, "captures_graph", lambda: False)
    double(torch.ones(4))
    monkeypatch.setattr(operation, "captures_graph", lambda: True)
    timed.calls.clear()
    double(torch.ones(4))
    other = Timed(spend)
    other.choice()(torch.ones(4))  # of the store
    assert (timed.calls, other.calls) == (["fast"], ["fast"])


def test_export_is_refused_by_name(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "is_exporting", lambda: True)
    with pytest.raises(UsageError, match=r"choice .*double: torch\.export"):
        Timed(spend).choice()(torch.ones(4))


def test_a_gpu_that_is_lost_is_said_with_who_lost_it(
    spend: Spend, this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = taking(spend, 0.0, raising(RuntimeError("CUDA error: an illegal memory access")), "faults")
    double = choice_of(faults, Timed(spend).slow)
    monkeypatch.setattr(this_gpu.gpu, "synchronize", raising(RuntimeError("CUDA error")))
    with pytest.raises(MeasurementError, match=r"faults raised .* the GPU runs nothing any more"):
        double(torch.ones(4))


def test_one_that_fails_after_it_has_written_changes_nothing_for_the_next(spend: Spend) -> None:
    def breaks(x: torch.Tensor) -> None:
        x.zero_()
        raise ValueError("too late")

    x = torch.ones(4)
    with pytest.warns(RuntimeWarning, match="too late"):
        choice_of(breaks, in_place(spend, 2.0, 900.0), in_place(spend, 2.0, 100.0))(x)
    assert x.tolist() == [2.0] * 4


@pytest.mark.slow
def test_decided_calls_of_all_forms_don_t_go_the_long_way(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(x: Any, bias: Any = None, *, n: int = 1) -> Any:
        return x * n if bias is None else x * n + bias

    def other(x: Any, bias: Any = None, *, n: int = 1) -> Any:
        spend(500.0)
        return one(x, bias, n=n)

    form = kerntune.choice([one, other], key=["bias", "n"])(lambda x, bias=None, *, n=1: None)
    x = torch.ones(3)
    wants = torch.ones(3, requires_grad=True)
    calls: list[Any] = [((x,), {}), ((x, x), {}), ((x, x[:1]), {"n": 4}), ((wants, x), {}), ((x,), {"bias": wants})]
    for _ in range(2):  # once more, since the first one with a bias makes the earlier ones look again
        expected = [form(*args, **words) for args, words in calls]
    monkeypatch.setattr(operation.Operation, "_chosen", None)
    again = [form(*args, **words) for args, words in calls]
    assert all(torch.equal(a, b) for a, b in zip(expected, again, strict=True))


def test_tensors_in_lists_count_as_others_do(spend: Spend, monkeypatch: pytest.MonkeyPatch) -> None:
    def stacked(xs: Any) -> Any:
        return torch.stack(xs).sum(0)

    slow = taking(spend, lambda xs: 3000.0 if xs[0].dtype == torch.float32 else 10.0, stacked, "slow")
    total = kerntune.choice([slow, taking(spend, 1000.0, stacked, "fast")], key=["xs"])(lambda xs: None)
    calls: list[Any] = [[torch.ones(3)] * 2, [torch.ones(3).double()] * 2, (torch.ones(3),) * 2]
    expected = [total(xs) for xs in calls]
    assert [d.winner.rpartition(".")[2] for d in total.operation.decisions] == ["fast", "slow"]
    monkeypatch.setattr(operation.Operation, "_chosen", None)
    copies = [type(xs)(x.clone() for x in xs) for xs in calls]
    assert all(torch.equal(total(xs), y) for xs, y in zip(copies, expected, strict=True))
