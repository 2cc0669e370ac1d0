"""Which tuners' calls come to prepared launches: ours, heuristics', Triton's under ``install()``, and none besides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner as TritonAutotuner

import kerntune
from kerntune.kernels import dispatch as room
from kerntune.kernels.compat import tuners
from kerntune.tuning.api import autotuner, install
from tests.kernels.dispatch.fake_driver import FakeCuda, FakeTensor, fake_cuda


def make() -> Any:
    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        pass

    return kernel


def configs() -> list[Any]:
    return [triton.Config({"BLOCK": b}) for b in (64, 128)]


X, Y = FakeTensor(1 << 12), FakeTensor(1 << 16)


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_cuda() as found:
        yield found


def settle(kernel: Any, *args: Any) -> None:
    named = dict(zip(kernel.arg_names, args, strict=False))
    kernel.cache[tuners.autotuner_key(kernel, named, {})] = kernel.configs[1]


def test_what_the_package_offers() -> None:
    assert set(room.__all__) == {"LaunchPath", "LaunchOutcome", "compile_front"}


# kerntune's own


def test_run_comes_to_the_same_launches(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = kerntune.autotune(configs(), key=["n"])(make())
    settle(kernel, X, Y, 64)
    for _ in range(3):
        kernel[(4,)](X, Y, 64)
        kernel.run(X, Y, 64, grid=(4,), warmup=False)
        kernel.run(X, Y, 64, grid=(4,))
    assert len(slow) == 1
    assert len({repr(x) for x in cuda.launches}) == 1
    assert len(cuda.launches) == 9


def test_a_subclass_with_its_own_run_gets_every_call(cuda: FakeCuda) -> None:
    calls = []

    class Counting(autotuner.Autotuner):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(kwargs)
            return super().run(*args, **kwargs)

    kernel = Counting(make(), ["x", "y", "n", "BLOCK"], configs(), ["n"], None, None)
    settle(kernel, X, Y, 64)
    for _ in range(3):
        kernel[(4,)](X, Y, 64)
    assert calls == [{"grid": (4,), "warmup": False}] * 3
    assert len(cuda.launches) == 3


def test_a_run_put_on_one_tuner_gets_its_calls(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kerntune.autotune(configs(), key=["n"])(make())
    settle(kernel, X, Y, 64)
    kernel[(4,)](X, Y, 64)
    kernel[(4,)](X, Y, 64)
    monkeypatch.setattr(kernel, "run", lambda *args, **kwargs: "mine")
    assert kernel[(4,)](X, Y, 64) == "mine"


def test_warmup_is_tritons(cuda: FakeCuda) -> None:
    kernel = kerntune.autotune(configs(), key=["n"])(make())
    found = kernel.warmup(torch.float32, torch.float32, 64, grid=(1,))
    assert len(found) == 2
    assert cuda.launches == []


# heuristics


def pointwise() -> Any:
    return kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(make())


def known(kernel: Any, *args: Any) -> None:
    """A winner for a call of a heuristic's kernel."""
    key = kernel.tuning_key(dict(zip(kernel.arg_names, args, strict=False)))
    kernel.cache.setdefault(key, triton.Config({"BLOCK": 64}))


def test_heuristics_kernels_are_prepared_by_exact_sizes_and_layouts(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = pointwise()
    tall = FakeTensor(32, shape=(8, 8), strides=(8, 1))
    wide = FakeTensor(32, shape=(8, 8), strides=(1, 8))
    for _ in range(3):
        for args in ((tall, Y, 64), (wide, Y, 64), (tall, Y, 63)):
            known(kernel, *args)
            kernel[(4,)](*args)
    assert len(slow) == 3
    assert [x.arguments for x in cuda.launches[:3]] == [(32, 1 << 16, 64), (32, 1 << 16, 64), (32, 1 << 16, 63)]
    assert kernel.best_config.kwargs == {"BLOCK": 64}


# Triton's, under install()


def tritons(kind: Any = TritonAutotuner) -> Any:
    jit = make()
    kernel = kind(jit, jit.arg_names, configs(), ["n"], None, None)
    settle(kernel, X, Y, 64)
    return kernel


def test_tritons_tuners_are_prepared_while_installed(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tritons()
    with kerntune.install():
        for _ in range(3):
            kernel[(4,)](X, Y, 64)
        assert len(slow) == 1
        assert install.PATH in vars(kernel)
    assert install.PATH not in vars(kernel), "nothing prepared is left"
    kernel[(4,)](X, Y, 64)
    assert len(slow) == 1
    assert len({repr(x) for x in cuda.launches}) == 1
    with kerntune.install():
        kernel[(4,)](X, Y, 64)
    assert len(slow) == 2


def test_a_launch_kept_from_before_goes_the_new_way_and_back(
    cuda: FakeCuda, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tritons()
    before = kernel[(4,)]
    with kerntune.install():
        before(X, Y, 64)
        before(X, Y, 64)
        during = kernel[(4,)]
        during(X, Y, 64)
    assert len(slow) == 1
    before(X, Y, 64)
    assert during(X, Y, 64) is cuda.compiled[0]
    assert len(cuda.launches) == 5
    monkeypatch.setattr(TritonAutotuner, "run", lambda *args, **kwargs: "Triton's")
    assert during(X, Y, 64) == "Triton's"


def test_libraries_subclasses_get_their_calls(cuda: FakeCuda, slow: list[Any]) -> None:
    calls = []

    class Counting(TritonAutotuner):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(kwargs)
            return super().run(*args, **kwargs)

    kernel = tritons(Counting)
    with kerntune.install():
        for _ in range(3):
            kernel[(4,)](X, Y, 64)
    assert len(calls) == 3
    assert len(slow) == 1


def test_a_list_of_one_that_is_set_later_is_the_config(cuda: FakeCuda) -> None:
    """As in Triton: the only config of a list, not the winner of before."""
    kernel = kerntune.autotune(configs(), key=["n"])(make())
    settle(kernel, X, Y, 64)
    for _ in range(3):
        kernel[(4,)](X, Y, 64)
    before, kernel.configs = kernel.configs, kernel.configs[:1]
    kernels = [kernel[(4,)](X, Y, 64) for _ in range(3)]
    assert kernel.best_config is before[0]
    assert len({id(k) for k in kernels}) == 1
    kernel.configs = before
    assert kernel[(4,)](X, Y, 64) is not kernels[0]
    assert kernel.best_config is before[1]
