"""The mode ``nearest``: the winner of the nearest tuned call, said, never stored, and never a tuning."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
from fake_runs import block, configs, scale_kernel, script
from hypothesis import given
from hypothesis import strategies as st

import kerntune
from kerntune.errors import UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.cache import WinnerCache
from kerntune.tuning.launch_files import argument_of, arguments_of
from kerntune.tuning.stored_winners import distance, nearest
from kerntune.tuning.tune_options import TUNE, mode_of, tune_mode

FAST = {64: block(64, 1000.0), 128: block(128, 1000.0), 256: block(256, 1000.0)}


@pytest.fixture
def backend(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    monkeypatch.delenv(TUNE, raising=False)
    return this_gpu


def ours(*blocks: int, **options: Any) -> Any:
    return kerntune.autotune(configs(*(blocks or (64, 128, 256))), key=["n"], **options)(scale_kernel)


def call(kernel: Any, n: int, dtype: torch.dtype = torch.float32, factor: float = 2.0) -> None:
    x, y = (torch.empty(n, device="cuda", dtype=dtype) for _ in range(2))
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, factor)


def tuned(backend: FakeBackend, n: int, fastest: int, **more: Any) -> None:
    """Have a winner stored for ``n``."""
    script(backend, FAST[fastest])  # the others take 10 us
    kernel = ours()
    call(kernel, n, **more)
    assert kernel.best_config.kwargs["BLOCK"] == fastest


def near(kernel: Any, n: int, **more: Any) -> tuple[int, list[str]]:
    """The block that is launched, and what is said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(kernel, n, **more)
    return kernel.best_config.kwargs["BLOCK"], [str(w.message) for w in said if w.category is RuntimeWarning]


def test_the_nearest_winner_is_launched_and_said_once(
    backend: FakeBackend, tmp_path: Path, launches: list[dict[str, Any]]
) -> None:
    tuned(backend, 1000, 64)
    tuned(backend, 100_000, 256)
    gpu, stored = script(backend), len(WinnerCache(tmp_path).entries())
    launches.clear()
    kernel = ours(tune="nearest")
    found, said = near(kernel, 60_000)
    assert found == 256
    assert len(said) == 1
    assert "kernel scale_kernel" in said[0]
    assert "fake_runs.py" in said[0]
    assert "(60000, 'torch.float32', 'torch.float32')" in said[0]
    assert "n=100000" in said[0]
    assert "tune=nearest" in said[0]
    assert near(kernel, 60_000) == (256, []), "once a key"
    assert near(kernel, 1500)[0] == 64
    assert gpu.launches == 0, "nothing was timed"
    assert [launch["BLOCK"] for launch in launches] == [256, 256, 64]
    assert len(WinnerCache(tmp_path).entries()) == stored, "nothing was stored"


def test_its_own_winner_goes_before_and_says_nothing(backend: FakeBackend) -> None:
    tuned(backend, 1000, 64)
    tuned(backend, 1001, 256)
    assert near(ours(tune="nearest"), 1000) == (64, [])


def test_other_dtypes_are_not_near(backend: FakeBackend) -> None:
    tuned(backend, 1000, 256, dtype=torch.float16)
    found, said = near(ours(tune="nearest"), 1000)
    assert found == 64, "the first config"
    assert "no tuned call is near, so the first config that can be launched is used untuned" in said[0]


def test_a_float_makes_no_distance(backend: FakeBackend) -> None:
    tuned(backend, 1000, 256, factor=3.0)
    assert near(ours(tune="nearest"), 1000)[0] == 256


def test_only_configs_of_the_call_itself(backend: FakeBackend) -> None:
    tuned(backend, 1000, 256)
    assert near(ours(64, 128, tune="nearest"), 1100)[0] == 64


def test_a_winner_that_cannot_be_launched_falls_back_and_is_said(
    backend: FakeBackend, launches: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime.errors import OutOfResources
    from triton.runtime.jit import JITFunction

    tuned(backend, 1000, 256)
    launches.clear()
    below = JITFunction.run

    def run(kernel: Any, *args: Any, **words: Any) -> Any:
        if words["BLOCK"] == 256:
            raise OutOfResources(2, 1, "shared memory")
        return below(kernel, *args, **words)

    monkeypatch.setattr(JITFunction, "run", run)
    kernel = ours(tune="nearest")
    found, said = near(kernel, 2000)
    assert found == 64
    assert len(said) == 2
    assert "the winner of the nearest tuned call, can't be launched here (out of resource" in said[1]
    assert near(kernel, 2000) == (64, [])
    assert [launch["BLOCK"] for launch in launches] == [64, 64]


def test_the_same_source_goes_before_a_smaller_distance(backend: FakeBackend, tmp_path: Path) -> None:
    tuned(backend, 1000, 64)
    cache = WinnerCache(tmp_path)
    (winner,) = cache.entries()
    arguments = winner.key.arguments.replace("1000", "2000")
    edited = msgspec.structs.replace(winner.key, source="0" * 64, arguments=arguments)
    config = winner.config.replace(kwargs={"BLOCK": 256})
    cache.add(msgspec.structs.replace(winner, key=edited, config=config))
    assert near(ours(tune="nearest"), 2000)[0] == 64
    cache.clear()
    cache.add(msgspec.structs.replace(winner, key=edited, config=config))
    found, said = near(ours(tune="nearest"), 2000)
    assert found == 256
    assert "(distance 0.00, of another source)" in said[0]


def test_it_reads_winners_that_come_later(backend: FakeBackend) -> None:
    assert near(ours(tune="nearest"), 1000)[0] == 64
    tuned(backend, 1000, 256)
    assert near(ours(tune="nearest"), 1100)[0] == 256


def test_winners_of_a_shared_store_are_near_too(backend: FakeBackend, tmp_path: Path) -> None:
    """Those that a miss has fetched lie in a folder of their own."""
    tuned(backend, 1000, 256)
    (winner,) = WinnerCache(tmp_path).entries()
    shared, empty = WinnerCache(tmp_path / "mirror"), WinnerCache(tmp_path / "own")
    shared.add(winner)
    empty.mirror = shared  # type: ignore[attr-defined]
    key = msgspec.structs.replace(winner.key, arguments=winner.key.arguments.replace("1000", "1100"))
    found = nearest(empty, key, lambda config: True)
    assert found is not None
    assert found.winner == winner


def test_ranks_that_choose_alike_have_one_fingerprint(backend: FakeBackend) -> None:
    tuned(backend, 1000, 256)
    before = kerntune.fingerprint()
    near(ours(tune="nearest"), 1717)
    assert kerntune.fingerprint() != before, "it counts like any other choice"


# modes


def test_the_environment_and_the_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TUNE, raising=False)
    assert tune_mode().value == "auto"
    monkeypatch.setenv(TUNE, "nearest")
    assert mode_of(ours()).value == "nearest"
    assert mode_of(ours(tune="frozen")).value == "frozen"
    assert mode_of(triton.autotune(configs(64, 128), key=[])(scale_kernel)).value == "nearest"
    assert mode_of(ours(), keep=False).value == "force"
    with pytest.raises(UsageError, match="tune is 'often'; it can be auto, frozen, force or nearest"):
        ours(tune="often")
    monkeypatch.setenv(TUNE, "often")
    with pytest.raises(UsageError, match="KERNTUNE_TUNE is 'often'"):
        tune_mode()


def test_a_heuristic_takes_it_too() -> None:
    decorate = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"}, tune="nearest")
    assert decorate(scale_kernel).tune_mode.value == "nearest"


# distance

BASE = "a=torch.float32(64, 32)(32, 1); n=64; eps=1e-05; name='n3'; flag=True"


@pytest.mark.parametrize(
    ("other", "far"),
    [
        (BASE, 0.0),
        (BASE.replace("1e-05", "0.5"), 0.0),
        (BASE.replace("n=64", "n=129"), 1.0),
        (BASE.replace("n=64", "n=-64"), None),
        (BASE.replace("float32", "float16"), None),
        (BASE.replace("(32, 1)", "(1, 64)"), None),
        (BASE.replace("(32, 1)", "(48, 1)"), 0.0),
        (BASE.replace("(32, 1)", "(0, 1)"), None),
        (BASE.replace("True", "False"), None),
        (BASE.replace("'n3'", "'n4'"), None),
        (BASE.replace("(64, 32)(32, 1)", "(64,)(1,)"), None),
        (BASE.replace("n=64; ", ""), None),
        (BASE.replace("n=64", "m=64"), None),
    ],
)
def test_distance(other: str, far: float | None) -> None:
    found = distance(BASE, other)
    assert found == far if far is None else found == pytest.approx(far)


@given(st.lists(st.integers(0, 1 << 40), min_size=3, max_size=3))
def test_distance_is_a_metric(sizes: list[int]) -> None:
    a, b, c = (f"x=torch.int8({n}, 4)(4, 1); n={n // 2}" for n in sizes)
    ab, bc, ac = (distance(*pair) for pair in ((a, b), (b, c), (a, c)))
    assert ab is not None
    assert bc is not None
    assert ac is not None
    assert ab == distance(b, a)
    assert ac <= ab + bc + 1e-9
    assert (ab == 0) == (a == b)


@pytest.mark.parametrize("stored", [
    f"n={'9' * 5000}", f"x=torch.float32({'9' * 5000},)(1,)", f"n={'-' * 5000}1", "n=٣" * 99, "=" * 5000, "; " * 5000,
])  # fmt: skip
def test_a_hostile_winner_makes_no_call_fail(stored: str) -> None:
    """A shared store has keys that others write."""
    assert distance(stored, BASE) is None
    assert distance(stored, stored) in (0.0, None)
    arguments_of(stored)


@pytest.mark.parametrize("text", [
    "9" * 5000, "(" * 5000, "-" * 5000 + "1", f"fp16[{'9' * 5000}]", f"fp16[4]:{'9' * 30}", "[" * 99 + "]" * 99, "1+2j",
    "'a' 'b'", "__import__('os')", "{}", "\0",
])  # fmt: skip
def test_what_is_no_argument_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        argument_of(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("text", "value"), [
    ("12", 12), ("-1.5e3", -1500.0), ("+2", 2), ("None", None), ("True", True), ("'a\\'b'", "a'b"), ('"x"', "x"),
])  # fmt: skip
def test_plain_values_are_arguments(text: str, value: object) -> None:
    assert argument_of(text) == value
