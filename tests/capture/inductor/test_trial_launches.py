"""What Inductor launches while it compiles and times is not the call's."""

from __future__ import annotations

import contextlib
import threading

import pytest
from torch_warnings import ignore_torchs_own

from kerntune.capture import Capture
from kerntune.capture.inductor.launches import COMPILING, TIMING, leave_out_trials
from kerntune.compiling.compiler import Compiler
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat.inductor_parts import INDUCTOR, inductor_part

pytestmark = ignore_torchs_own


@pytest.fixture
def capture() -> Capture:
    return Capture(FakeBackend(), Compiler())


@pytest.mark.parametrize("word", [*COMPILING, *TIMING])
def test_nothing_is_recorded_inside_of_each_part(word: str, capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part itself is a stand-in that launches: it says whether a launch of its would be recorded."""
    owner, name = INDUCTOR[word].owner()
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: (capture.records(), args, kwargs))
    with contextlib.ExitStack() as stack:
        leave_out_trials(stack, capture.paused)
        assert inductor_part(word)(1, two=2) == (False, (1,), {"two": 2})
        assert capture.records()
    assert inductor_part(word)() == (True, (), {})


def test_a_part_that_calls_another_ends_with_the_outer_one(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = (INDUCTOR[word].owner() for word in ("bench", "generate"))
    seen: list[bool] = []

    def generate() -> None:
        inductor_part("bench")()
        seen.append(capture.records())
        raise ValueError("a template doesn't compile")

    monkeypatch.setattr(*inner, lambda: None)
    monkeypatch.setattr(*outer, generate)
    with contextlib.ExitStack() as stack:
        leave_out_trials(stack, capture.paused)
        with pytest.raises(ValueError, match="doesn't compile"):
            inductor_part("generate")()
    assert seen == [False]
    assert capture.records()


def test_other_threads_are_recorded_meanwhile(capture: Capture) -> None:
    """A backward pass runs on its own thread while another thread compiles."""
    seen: list[bool] = []
    with capture.paused():
        thread = threading.Thread(target=lambda: seen.append(capture.records()))
        thread.start()
        thread.join()
    assert seen == [True]
