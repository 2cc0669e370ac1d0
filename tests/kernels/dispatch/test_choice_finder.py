"""What a choice's look-up tells apart, in C and in Python alike."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch import choice_function as module
from kerntune.kernels.dispatch import native
from kerntune.kernels.dispatch.choice_function import PythonFinder, choice_finder


def asking_python(keyed: Any) -> Any:
    """In C, as with a torch that exports neither its settings nor an exchange."""
    compiled = native.module()
    compiled.use_settings(0, 0)
    compiled.use_exchange(torch.Tensor.__dlpack_c_exchange_api__, 2, (int,), [])  # for no tensor type
    return choice_finder(keyed)


@pytest.fixture(params=["C", "asking Python", "Python"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    compiled = native.module()
    if compiled is None and request.param != "Python":
        pytest.skip("there is no C compiler")
    yield {"C": choice_finder, "asking Python": asking_python, "Python": PythonFinder}[request.param]
    if compiled is not None:
        compiled.use_settings(*launcher.setting_addresses())
        native.use_exchange(compiled)


def wanting(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


class Named(dict[str, Any]):
    """A mapping of another class."""


X = torch.zeros(4, 6)

DIFFERENT: list[Any] = [
    X,
    torch.zeros(6, 4),
    torch.zeros(24),
    torch.zeros(6, 4).t(),
    torch.zeros(4, 12)[:, ::2],
    X.half(),
    X.bfloat16(),
    X.int(),
    X.bool(),
    X.to(torch.int8),
    X.to(torch.uint8),
    X.to(torch.float8_e4m3fn),
    X.to(torch.complex64),
    torch.zeros(()),
    torch.zeros((4, 6), device="meta"),
    wanting(X),
    torch.zeros([1] * 20),
    None,
    True,
    False,
    0,
    1,
    2,
    -1,
    2**63 - 1,
    2**63,
    2**64,
    0.0,
    1.0,
    2.5,
    "1",
    "x",
    torch.float16,
    (),
    (1,),
    [1],
    (X,),
    [X],
    (X.half(),),
    (torch.zeros(6, 4),),
    (wanting(X),),
    {"a": X},
    Named(a=X),
    {"b": X},
    {"a": X.half()},
]


def test_what_differs_is_told_apart(make: Callable[[Any], Any]) -> None:
    find = make([True])
    for i, value in enumerate(DIFFERENT):
        assert find(value) is None, value
        find.keep(i, value)
    for _ in range(2):
        assert [find(value) for value in DIFFERENT] == list(range(len(DIFFERENT)))


def test_each_argument_has_its_own_place(make: Callable[[Any], Any]) -> None:
    few = [X, torch.zeros(24), None, 0, 4, 6, True, (4, 6), (X,), "x"]
    find = make([True, True])
    pairs = list(itertools.product(few, repeat=2))
    for i, pair in enumerate(pairs):
        find.keep(i, *pair)
    assert [find(*pair) for pair in pairs] == list(range(len(pairs)))


def test_equal_values_are_found(make: Callable[[Any], Any]) -> None:
    find = make([True, True, True])
    find.keep("found", X, 10**6, "".join(["a", "b"]))
    assert find(X.clone(), int("1000000"), "".join(["a", "b"])) == "found"
    assert find(torch.nn.Parameter(X, requires_grad=False), 10**6, "ab") in ("found", None)


def test_outside_of_the_key_sizes_and_values_do_not_count(make: Callable[[Any], Any]) -> None:
    find = make([False, False])
    find.keep("found", X, 1)
    assert find(torch.zeros(3), 2**70) in ("found", None)
    assert find(torch.zeros(3), 7) == "found"
    for other in ((X.half(), 1), (X, 1.0), (X, True), (X, None), (None, 1), (wanting(X), 1)):
        assert find(*other) is None
    find.keep("flag", X, True)
    assert find(X, False) == "flag"


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    """``torch.autocast`` does nothing without a GPU."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_settings_count(make: Callable[[Any], Any]) -> None:
    find = make([True])
    around: list[Callable[[], Any]] = [contextlib.nullcontext, torch.no_grad, autocast]
    want = wanting(X)
    for i, setting in enumerate(around):
        with setting():
            assert find(want) is None
            find.keep(i, want)
            assert find(want) == i
    assert find(want) == 0
    with torch.no_grad():
        assert find(X) == 1, "no gradient is recorded for either"


def test_torch_says_where_its_settings_are() -> None:
    """Otherwise a decided call asks by Python, which takes longer than the rest of the look-up."""
    assert all(launcher.setting_addresses())
    with torch.no_grad(), autocast():
        assert all(launcher.setting_addresses())


def test_what_has_no_hash_is_not_found(make: Callable[[Any], Any]) -> None:
    find = make([True])
    find.keep("found", {1, 2})
    assert find({1, 2}) is None
    find.keep("found", [{1, 2}])
    assert find([{1, 2}]) is None


def test_what_is_kept_later_counts(make: Callable[[Any], Any]) -> None:
    find = make([True])
    for found in ("first", "second"):
        find.keep(found, X)
        assert [find(X), find(X)] == [found, found]
    find.clear()
    assert find(X) is None


def test_it_keeps_no_tensor_alive(make: Callable[[Any], Any]) -> None:
    find = make([True, True])
    tensor = torch.zeros(5)
    find.keep("found", tensor, [tensor])
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is None


def test_references_are_given_back(make: Callable[[Any], Any]) -> None:
    class Found:
        pass

    find, found, text = make([True, True]), Found(), "some text"
    before = sys.getrefcount(found), sys.getrefcount(text)
    for _ in range(100):
        find.keep(found, X, text)
        assert find(X, text) is found
        assert find(X.half(), text) is None
        assert find(X, {1}) is None
        find.keep(found, X, 1)
        assert find(X, 1) is found
    gone = weakref.ref(found)
    find.clear()
    assert (sys.getrefcount(found), sys.getrefcount(text)) == before
    find.keep(find, X, 1)  # a cycle
    find.keep(found, X, 2)
    find(X, 2)
    del find, found
    gc.collect()
    assert gone() is None


def test_c_does_it_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.module() is None or launcher.tensor_exchange() is None:
        pytest.skip("there is no C compiler, or no exchange")
    monkeypatch.setattr(module, "part_of", None)
    find = choice_finder([True] * 5)
    find.keep("found", X, X.half(), 3, None, True)
    assert find(X, X.half(), 3, None, True) == "found"


@pytest.mark.parametrize("decided", [False, True])
def test_arguments_reach_what_is_called_as_they_were_given(decided: bool) -> None:
    """Those that only go by keyword too, and defaults."""

    def like(a: Any, /, b: Any, *, c: Any = 3, d: Any) -> Any: ...

    def seen(*args: Any, **words: Any) -> Any:
        return args, words

    function = module.ChoiceFunction([*inspect.signature(like).parameters.values()]).make(seen, seen, lambda: False)
    if decided:
        module.find_by(function, lambda *values: seen)
    assert function(1, b=2, d=4) == ((1, 2), {"c": 3, "d": 4})
    with pytest.raises(TypeError):
        function(1, 2, 3, 4)


@pytest.mark.parametrize(("count", "python"), [(1, False), (64, False), (65, True)])
def test_more_values_than_the_c_code_takes_are_looked_up_by_python(count: int, python: bool) -> None:
    if native.module() is None:
        pytest.skip("there is no C compiler")
    find = choice_finder([True] * count)
    assert isinstance(find, PythonFinder) is python
    find.keep("found", *range(count))
    assert (find(*range(count)), find(*range(1, count + 1))) == ("found", None)
