"""What the fixture makes of a call: its name, its errors, what it asks of the session, what it keeps."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from doubles import Item

from kerntune.base.config import Config
from kerntune.base.policy import Policy
from kerntune.errors import KerntuneError, ReferenceMismatch, UsageError
from pytest_kerntune import fixture
from pytest_kerntune.fixture import NO_DRIVER, Autotune, CallNames, GatedAutotune, PlainAutotune, Record, naming

NODE = "t.py::test_a"


def made(**marks: Any) -> Any:
    return Item(marks or None)


def launch(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


@triton.jit
def bare_kernel(x):
    pass


# names


def test_calls_are_numbered_but_for_those_with_a_name() -> None:
    names = CallNames(NODE)
    asked = [(None, None), ("mine", None), (None, None), (None, "marked"), ("2", "marked"), (None, None)]
    found = []
    for given, default in asked[:-1]:
        found.append(names.next(given, default))
    assert found == ["0", "mine", "1", "marked", "2"]
    for given, default, name in ((None, None, "2"), ("mine", None, "mine"), (None, "marked", "marked")):
        with pytest.raises(UsageError, match=rf"^{NODE}: two autotune calls are named '{name}'; a name is part of a"):
            names.next(given, default)


# errors of a call


class Called(Autotune):
    """Runs a call as it is, and notes what failed; ``ends`` is an error after which the test can't go on."""

    ends: Exception | None = None

    def _run(self, request: Any) -> Any:
        self.request = request
        return request.fn(*request.args, **request.kwargs)

    def _ends(self, error: KerntuneError) -> bool:
        return error is self.ends

    def _note_failed(self, reason: str) -> None:
        self.noted = reason


def failure(call: Called, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(pytest.fail.Exception) as caught:
        call(*args, **kwargs)
    assert not caught.value.pytrace
    assert call.noted == str(caught.value)
    return str(caught.value)


def test_a_call_hands_on_what_is_not_its_own() -> None:
    call = Called(made(name="marked"))
    assert call(launch, 1, 2, BLOCK=64, rtol=0.5, flops=7.0) == ((1, 2), {"BLOCK": 64})
    found = call.request
    assert (found.name, found.args, found.kwargs, found.rtol, found.atol) == (
        "marked",
        (1, 2),
        {"BLOCK": 64},
        0.5,
        None,
    )
    assert (found.reference, found.scope, found.flops, found.bytes, found.values) == (None, None, 7.0, None, {})


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((3,), {}, "autotune takes a function that launches kernels, not 3; write autotune(fn, *args)"),
        ((launch,), {"reference": 3}, "reference is a int; give a function without arguments: reference=lambda:"),
        ((launch,), {"scope": "all"}, "scope: 'all' is none of kernels, op"),
        ((launch,), {"values": {"x": 1}}, "values: {'x': 1} is no mapping from arguments of kernels to tensors"),
        ((launch,), {"name": " "}, "name: ' ' is no name"),
        ((bare_kernel, 1), {}, "kernel bare_kernel has no grid"),
    ],
)
def test_a_wrong_call_fails_its_test(args: Any, kwargs: Any, says: str) -> None:
    assert failure(Called(made()), *args, **kwargs).startswith(f"{NODE}: {says}")


def test_an_error_of_kerntune_fails_the_test_unless_that_can_not_go_on() -> None:
    def wrong() -> None:
        raise error

    error: KerntuneError = UsageError(f"{NODE}: no grid")
    call = Called(made())
    assert failure(call, wrong) == f"{NODE}: no grid"
    error = call.ends = KerntuneError("needs a GPU")
    with pytest.raises(KerntuneError, match=r"^needs a GPU$"):
        call(wrong)


def test_an_error_of_the_user_s_code_stays_and_begins_there() -> None:
    def wrong() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$") as caught:
        PlainAutotune(made())(wrong)
    assert [entry.name for entry in caught.traceback][1:] == ["__call__", "wrong"], "nothing of kerntune in between"


def test_arguments_that_do_not_fit_are_told_with_their_line() -> None:
    def two(a: int, b: int) -> None:
        """Never called."""

    call = PlainAutotune(made())
    with pytest.raises(pytest.fail.Exception, match=r"argument: 'b'; it was called as in test_fixture.py:\d+: call\("):
        call(two, 1)
    with pytest.raises(pytest.fail.Exception, match="; did you mean autotune's reference= where you wrote refrence="):
        call(two, 1, 2, refrence=None)


def test_a_coroutine_is_refused() -> None:
    async def later() -> None:
        """Never awaited."""

    assert "gives a coroutine, which launches nothing" in failure(Called(made()), later)
    assert "gives a coroutine" in failure(Called(made()), lambda: later())


# without --kerntune


@pytest.mark.parametrize(
    ("text", "device", "skips"), [(NO_DRIVER, "cpu", True), (NO_DRIVER, "cuda", False), ("mine", "cpu", False)]
)
def test_a_kernel_without_a_gpu_skips_a_plain_test(
    monkeypatch: pytest.MonkeyPatch, text: str, device: str, skips: bool
) -> None:
    def launches() -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(PlainAutotune, "device", device)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a skip that nobody expects would skip this test
        PlainAutotune(made())(launches)
    expected: Any = (pytest.skip.Exception, fixture.WITHOUT_GPU) if skips else (RuntimeError, text)
    assert (type(caught.value), str(caught.value)) == expected


def test_a_plain_test_compares_with_its_reference() -> None:
    call = PlainAutotune(made())
    assert call(lambda: 1.0, reference=lambda: 1.5, rtol=1.0) == 1.0
    with pytest.raises(pytest.fail.Exception, match=rf"^{NODE}::1: the result disagrees with its reference"):
        call(lambda: 1.0, reference=lambda: 1.5)
    assert issubclass(ReferenceMismatch, KerntuneError)
    assert (Autotune.interpreted, PlainAutotune.interpreted) == (False, False)


# under --kerntune


@dataclass
class Checked:
    value: Any = "value"
    result: Any = "a result"
    ended: Exception | None = None
    commits: list[int] = field(default_factory=list)

    def _replace(self, **changes: Any) -> Checked:
        return replace(self, **changes)

    def commit(self) -> Any:
        self.commits.append(1)
        return f"{self.result}, written"


def gated(checked: Checked, record: Record, process: int | None = None, **marks: Any) -> Any:
    asked: list[Any] = []

    def check(call: Any, progress: Any) -> Checked:
        asked.append((call, progress))
        return checked

    session: Any = SimpleNamespace(
        check=check, device="cuda", static_end=lambda exc: "why" if "GPU" in str(exc) else None
    )
    call = GatedAutotune(
        made(**marks), session=session, policy=Policy(tolerance=0.07), scope="kernels", record=record,
        progress=print, process=os.getpid() if process is None else process,
    )  # fmt: skip
    return call, asked


def test_a_call_is_checked_as_the_marker_says() -> None:
    record, config = Record(), Config({"BLOCK": 64})
    marks = {"tolerance": 0.5, "scope": "op", "candidates": {"k": [config]}}
    call, asked = gated(Checked(), record, **marks)
    assert call.device == "cuda"
    assert call(launch, 1, atol=0.25) == "value"
    ((found, progress),) = asked
    assert progress is print
    assert (found.nodeid, found.name, found.args, found.atol, found.scope) == (NODE, "0", (1,), 0.25, "op")
    assert (found.policy.tolerance, found.candidates) == (0.5, {"k": (config,)})
    assert (record.begun, record.checked, record.results) == (True, 1, ["a result"])
    assert [(x.value, x.ended) for x in record.checks] == [(None, None)], "the test's own to keep"
    for words, scope in (({}, "kernels"), ({"scope": "op"}, "op")):
        other, asked = gated(Checked(), Record(), **{})
        other(launch, **words)
        assert (asked[0][0].scope, asked[0][0].policy.tolerance) == (scope, 0.07)


def test_a_call_that_ended_early_counts_and_ends_the_test() -> None:
    record = Record()
    call, _ = gated(Checked(ended=RuntimeError("needs a GPU")), record)
    with pytest.raises(RuntimeError, match=r"^needs a GPU$"):
        call(launch)
    assert (record.checked, record.results) == (1, ["a result"])
    assert [call._ends(KerntuneError(text)) for text in ("needs a GPU", "other")] == [True, False]


def test_a_call_in_a_fork_is_refused() -> None:
    call, asked = gated(Checked(), Record(), process=os.getpid() + 1)
    with pytest.raises(pytest.fail.Exception, match="was called in a fork of pytest's process"):
        call(launch)
    assert asked == []


def test_only_what_fails_in_another_thread_is_kept() -> None:
    """In the test's own it fails the test by itself."""
    record = Record()
    call, _ = gated(Checked(), record)
    call._note_failed("here")
    thread = threading.Thread(target=call._note_failed, args=("there",))
    thread.start()
    thread.join()
    assert record.lost == ["there"]


def test_a_record_begins_with_nothing() -> None:
    record = Record()
    assert (record.begun, record.checked, record.finished, record.settled, record.concluded) == (
        False,
        0,
        False,
        False,
        0,
    )
    assert (record.failed, record.committed, record.standing, record.lost) == (False, 0, (), [])


def test_each_check_is_committed_once() -> None:
    first, second = Checked(result="a"), Checked(result="b")
    record: Any = Record(results=[first.result], checks=[first])  # type: ignore[list-item]
    record.commit()
    record.checks.append(second)
    record.results.append(second.result)
    record.commit()
    assert (first.commits, second.commits) == ([1], [1])
    assert record.results == ["a, written", "b, written"]


@pytest.mark.parametrize(("text", "told"), [("wrong", f"{NODE}: wrong"), (f"in {NODE}: wrong", f"in {NODE}: wrong")])
def test_an_error_names_its_test_once(text: str, told: str) -> None:
    assert naming(NODE, KerntuneError(text)) == told


def test_a_traceback_of_our_own_stays_whole() -> None:
    try:
        raise ValueError
    except ValueError:
        mine = sys.exc_info()[2]
    assert fixture._from_user_code(mine) is mine
    assert fixture._from_user_code(None) is None
    ours: Any = SimpleNamespace(tb_frame=SimpleNamespace(f_globals={"__name__": "kerntune.gate.call"}), tb_next=None)
    assert fixture._from_user_code(ours) is ours
    ours.tb_next = mine
    assert fixture._from_user_code(ours) is mine
