"""What a process tunes with: who launches a tuner, who sees launches, and what a range is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune import capture as captures
from kerntune.errors import BackendError
from kerntune.gpu import cuda
from kerntune.kernels.compat import launch_environment, launcher
from kerntune.tuning import context
from kerntune.tuning.context import NvtxRanges, PlainPath, TunerEngine, engine_of


def seen(grid: Any = (4, 2)) -> Any:
    return SimpleNamespace(kernel="softmax", tuner="tuner", config="BLOCK=64", grid=grid)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "jit_of", lambda tuner: SimpleNamespace(cache_key="0123456789abcdef"))
    monkeypatch.setattr(launch_environment, "current_stream", lambda: 5)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("grid", "stream", "name"),
    [
        ((4, 2), 5, "softmax [0123456789ab] BLOCK=64 grid=(4, 2, 1) stream=5"),
        ((4,), 0, "softmax [0123456789ab] BLOCK=64 grid=(4, 1, 1) stream=0"),
        (None, None, "softmax [0123456789ab] BLOCK=64"),
    ],
)
def test_what_a_range_is_called(grid: Any, stream: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_environment, "current_stream", lambda: stream)
    assert context.range_name(seen(grid)) == name


@pytest.mark.usefixtures("kernel")
def test_a_launch_is_within_all_observers_and_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def observer(name: str) -> Any:
        def launch(seen: Any, run: Any) -> Any:
            steps.append(name)
            return run()

        return SimpleNamespace(launch=launch)

    @contextlib.contextmanager
    def ranged(name: Any) -> Iterator[None]:
        steps.append(name()[:7])
        yield
        steps.append("end")

    monkeypatch.setattr(context, "observers", lambda: [observer("inner"), observer("outer")])
    monkeypatch.setattr(launch_environment, "profiler_range", ranged)
    assert context.launch_observed(seen(), lambda: steps.append("run") or 7) == 7
    assert steps == ["softmax", "outer", "inner", "run", "end"]


@pytest.mark.usefixtures("kernel")
def test_an_nvtx_range_ends_whatever_the_launch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(
        launch_environment, "begin_nvtx_range", lambda name: steps.append(name[:7]) or (lambda: steps.append("end"))
    )
    ranges = NvtxRanges()
    assert ranges.launch(seen(), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        ranges.launch(seen(), lambda: 1 / 0)
    assert steps == ["softmax", "end"] * 2


@pytest.mark.usefixtures("kernel")
def test_a_torch_without_nvtx_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def missing(name: str) -> Any:
        asked.append(name)
        raise RuntimeError("no NVTX")

    monkeypatch.setattr(launch_environment, "begin_nvtx_range", missing)
    ranges = NvtxRanges()
    with pytest.warns(RuntimeWarning, match=r"^KERNTUNE_NVTX: torch has no NVTX here: no NVTX$") as told:
        assert ranges.launch(seen(), lambda: 7) == 7
    assert told[0].filename == __file__
    assert ranges.launch(seen(), lambda: 8) == 8
    assert len(asked) == 1


def test_the_first_that_knows_a_tuner_launches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_finders", [])
    first, second = TunerEngine(1, keep=True), TunerEngine(2, keep=False)
    assert engine_of("a") is None

    @context.find_engines_with
    def find(tuner: Any) -> TunerEngine | None:
        return first if tuner == "a" else None

    context.find_engines_with(lambda tuner: second)
    assert (engine_of("a"), engine_of("b")) == (first, second)
    assert find("b") is None


def test_a_tuners_own_way_is_a_path() -> None:
    calls: list[Any] = []

    class Tuner:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **words: calls.append((grid, args, words))

    PlainPath(Tuner()).launch((3,), 1, 2, n=4)
    assert calls == [((3,), (1, 2), {"n": 4})]


@pytest.mark.parametrize(("captured", "device"), [(True, "captured"), (False, "torch's")])
def test_what_kernels_are_launched_on(captured: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = SimpleNamespace(backend=SimpleNamespace(spec="captured"))
    monkeypatch.setattr(captures, "current", lambda: recording if captured else None)
    monkeypatch.setattr(context, "current_device", lambda: "torch's")
    assert context.device_now() == device  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("cuda_here", "driver", "found"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_gpu_needs_a_driver(cuda_here: bool, driver: bool, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def backend() -> str:
        if not driver:
            raise BackendError("no driver")
        return "backend"

    monkeypatch.setattr(context, "has_cuda", lambda: cuda_here)
    monkeypatch.setattr(cuda, "CudaBackend", backend)
    assert context.this_gpu() == ("backend" if found else None)


@pytest.mark.parametrize("forks", [True, False])
def test_what_a_first_launch_waits_for_is_begun(forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(launcher, "prepare_specializing", lambda: steps.append("specializing"))
    monkeypatch.setattr(context, "may_fork", lambda: forks)
    monkeypatch.setattr(context, "prepare_hashes", lambda: steps.append("hashes"))
    context.prepare_launches()
    assert steps == ["specializing", *["hashes"] * forks]
