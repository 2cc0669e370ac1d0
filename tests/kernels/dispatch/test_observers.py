"""Observers of prepared launches: all of them are seen, also those that users have stored, and then prepared again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.kernels.dispatch import launch_path as module
from kerntune.kernels.dispatch import native
from kerntune.kernels.dispatch.launch_path import ObservedLaunch, unwatch, watch
from tests.kernels.dispatch.fake_driver import FakeCuda, FakeTensor, fake_cuda
from tests.kernels.dispatch.test_launch_path import choose, tuned


class Counting:
    def __init__(self) -> None:
        self.seen: list[ObservedLaunch] = []

    def launch(self, seen: ObservedLaunch, run: Callable[[], Any]) -> Any:
        self.seen.append(seen)
        return run()


@pytest.fixture(params=["python", "C"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    if request.param == "python":
        monkeypatch.setattr(module, "native_front", lambda *args: None)
    elif native.module() is None:
        pytest.skip("there is no C compiler")
    with fake_cuda(driven=False) as found:
        yield found


def test_what_is_prepared_is_watched_and_prepared_again(cuda: FakeCuda) -> None:
    kernel = tuned()
    args = (FakeTensor(256), FakeTensor(512), 16, 1.0, 3)
    choose(kernel, args, {})
    for _ in range(3):
        kernel[(4,)](*args)
    stored = kernel[(4,)]
    prepared = kernel._path.launch
    assert prepared != kernel._path._first
    observer = Counting()
    watch(observer)
    try:
        for _ in range(2):
            kernel[(4,)](*args)
            stored(*args)
        assert len(observer.seen) == 4
        assert kernel._path.launch == kernel._path._first, "nothing is prepared meanwhile"
    finally:
        unwatch(observer)
    launched = len(cuda.launches)
    for _ in range(2):
        kernel[(4,)](*args)
    assert kernel._path.launch != kernel._path._first
    assert len(observer.seen) == 4
    assert len(cuda.launches) == launched + 2


def test_who_begins_to_watch_has_everything_dropped() -> None:
    dropped: list[str] = []

    class Path:
        def drop(self) -> None:
            dropped.append("dropped")

    path, first, second = Path(), Counting(), Counting()
    module.register(path)
    before = module.observers()
    watch(first)
    watch(second)
    unwatch(first)
    assert (module.observers(), dropped) == ((*before, second), ["dropped"] * 2)
    unwatch(second)
    assert module.observers() == before


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [
        ((4, 2), (4, 2)),
        ([3], (3,)),
        (5, (5,)),
        (lambda named: (named["n"], named["BLOCK"]), (7, 64)),
        (lambda named: named["no"], None),
    ],
)
def test_what_is_known_of_a_launch_that_is_watched(grid: Any, blocks: tuple[int, ...] | None) -> None:
    tuner = SimpleNamespace(arg_names=["x", "n", "BLOCK"], base_fn=SimpleNamespace(__name__="kernel"))
    config = SimpleNamespace(all_kwargs=lambda: {"BLOCK": 64})
    seen = ObservedLaunch(tuner, "key", config, ("x", 7), {"grid": grid, "BLOCK": 32})
    assert (seen.kernel, seen.named, seen.grid) == ("kernel", {"x": "x", "n": 7, "grid": grid, "BLOCK": 64}, blocks)
