"""A launch of Inductor's on a GPU: with the config that Inductor has settled on, and not the one before."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl
from fake_runs import COMPILER, wait_until_blocked
from torch_warnings import ignore_torchs_own

from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.capture import Capture
from kerntune.capture.inductor import launches
from kerntune.capture.inductor.baseline_choices import InductorChoices
from kerntune.capture.inductor.launches import InductorLaunch, _recording
from kerntune.errors import CompileError
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.compat import inductor_parts
from kerntune.kernels.compat.inductor_parts import InductorCompilation

pytestmark = ignore_torchs_own

TARGET = Target.parse("cuda:90")


@triton.jit
def triton_poi_fused_sin_3(x, n, XBLOCK: tl.constexpr):
    i = tl.arange(0, XBLOCK)
    tl.store(x + i, tl.sin(i.to(tl.float32)), i < n)


@triton.jit
def fill_3(x, n):
    tl.store(x, n)


class Recorder:
    """As a capture on a GPU: it keeps what is launched."""

    def __init__(self) -> None:
        self.backend = SimpleNamespace(gpu=object(), spec=typical_device(TARGET))
        self.launches: list[Any] = []
        self.compiler: Any = None

    def records_launch(self, kernel: str) -> bool:
        return True

    def paused(self) -> Any:
        return contextlib.nullcontext()

    def launch(self, site: Any) -> Any:
        raise AssertionError("Inductor's config is not open on a GPU")

    def launch_other(self, probe: Any, pending: Any, run: Any) -> Any:
        result = run()
        self.launches.append(pending)
        return result


def config(block: int) -> Any:
    return triton.Config({"XBLOCK": block}, num_warps=4, num_stages=1)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tuner whose configs are gone once they are compiled, as Inductor's are."""
    made = SimpleNamespace(
        fn=triton_poi_fused_sin_3,
        configs=None,
        launchers=[SimpleNamespace(config=config(64))],
        inductor_meta={"kernel_name": "triton_poi_fused_sin_3"},
        custom_kernel=False,
        device_props=SimpleNamespace(type="cuda"),
    )

    def compilation(tuner: Any, config: Any) -> InductorCompilation:
        signature = {"x": "*fp32", "n": "i32", "XBLOCK": "constexpr"}
        return InductorCompilation(tuner.fn, signature, {(2,): config.kwargs["XBLOCK"]}, {}, {"num_warps": 4})

    monkeypatch.setattr(inductor_parts, "inductor_compilation", compilation)
    monkeypatch.setattr(
        inductor_parts, "inductor_grid", lambda tuner, args, config: (args, (256 // config.kwargs["XBLOCK"], 1, 1))
    )
    return made


def test_the_config_that_inductor_settled_on_is_recorded(tuner: Any) -> None:
    recorder = Recorder()
    assert InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: "ran").make() == "ran"
    (pending,) = recorder.launches
    assert pending.config == Config({"XBLOCK": 64}, num_warps=4, num_stages=1)
    assert (pending.kernel, pending.grid, pending.site) == ("triton_poi_fused_sin", (4, 1, 1), None)
    assert dict(pending.specialized.bound) == {"x": "tensor", "n": 256, "XBLOCK": None}


def test_where_nothing_runs_stand_ins_hear_what_the_launch_may_write(tuner: Any) -> None:
    """Its code reaches none of Triton's entry points, by which they hear of others."""
    told: list[Any] = []
    recorder, tuner.configs = Recorder(), [config(64)]
    tensors = SimpleNamespace(launched=lambda pointers, access: told.append((pointers, access())))
    recorder.backend.gpu, recorder.backend.tensors = None, tensors
    recorder.compiler = SimpleNamespace(compile=lambda launch: SimpleNamespace(access=("of", launch.name)))
    assert InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: "not run").make() is None
    assert told == [(["tensor"], ("of", "triton_poi_fused_sin"))]


def test_a_config_that_the_first_launch_has_found_replaces_it(tuner: Any) -> None:
    recorder = Recorder()

    def run() -> None:
        tuner.launchers = [SimpleNamespace(config=config(128))]

    InductorLaunch(recorder, tuner, ("tensor", 256), {}, run).make()
    (pending,) = recorder.launches
    assert (pending.config.kwargs["XBLOCK"], pending.grid) == (128, (2, 1, 1))


def test_a_users_kernel_keeps_its_name_and_has_no_config(tuner: Any) -> None:
    recorder = Recorder()
    tuner.fn, tuner.custom_kernel = fill_3, True
    tuner.launchers = [SimpleNamespace(config=triton.Config({}, num_warps=4))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductor_parts, "inductor_grid", lambda tuner, args, config: (args, (4, 1, 1)))
        patch.setattr(
            inductor_parts,
            "inductor_compilation",
            lambda tuner, config: InductorCompilation(tuner.fn, {"x": "*fp32", "n": "i32"}, {}, {}, {}),
        )
        patch.delattr(triton_poi_fused_sin_3, "_kerntune_generated", raising=False)
        InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: None).make()
    (pending,) = recorder.launches
    assert (pending.kernel, pending.config) == ("fill_3", None)


@pytest.mark.parametrize("timing", [False, True])
def test_a_kernel_that_inductor_times_is_launched_and_not_recorded(tuner: Any, timing: bool) -> None:
    """An epilogue's benchmark calls a generated module, whose kernels don't say that they are timed."""
    recorder, ran = Recorder(), []
    recorder.records_launch = lambda kernel: not timing  # type: ignore[method-assign]
    run = _recording(recorder, lambda tuner, *args, **kwargs: ran.append(args), InductorChoices())
    run(tuner, "tensor", 256, stream=0)
    assert ran == [("tensor", 256)]
    assert len(recorder.launches) == (not timing)


@pytest.mark.parametrize("timed", [True, False])
def test_a_benchmark_stays_one(tuner: Any, timed: bool) -> None:
    """What isn't one isn't told so: older tuners don't take the word."""
    recorder, ran = Recorder(), []
    recorder.records_launch = lambda kernel: timed  # type: ignore[method-assign]
    run = _recording(recorder, lambda tuner, *args, **words: ran.append(words), InductorChoices())
    run(tuner, "tensor", 256, stream=7, benchmark_run=timed, other=1)
    assert ran == [{"stream": 7, **({"benchmark_run": True} if timed else {}), "other": 1}]
    assert recorder.launches == []


def test_what_inductor_launches_to_choose_its_config_is_left_out(tuner: Any) -> None:
    recorder, seen = Recorder(), []
    recorder.paused = lambda: contextlib.closing(SimpleNamespace(close=lambda: seen.append("ended")))  # type: ignore
    tuner.launchers = [SimpleNamespace(config=config(64)), SimpleNamespace(config=config(128))]

    def choose(*args: Any) -> None:
        assert seen == []
        tuner.launchers = tuner.launchers[1:]
        seen.append("timed")

    tuner.autotune_to_one_config = choose
    InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: seen.append("launched")).make()
    assert seen == ["timed", "ended", "launched"]


def test_one_of_another_thread_waits_for_a_decision_and_is_recorded(tuner: Any, backend: FakeBackend) -> None:
    """It reaches none of Triton's entry points, where others wait."""
    one, ran = Capture(backend, COMPILER, {}), list[str]()
    recorder = Recorder()
    recorder.records_launch = one.records_launch  # type: ignore[method-assign]
    run = _recording(recorder, lambda tuner, *args, **kwargs: ran.append("launched"), InductorChoices())
    go = threading.Event()

    def launch_then() -> None:
        assert go.wait(60.0)
        run(tuner, "tensor", 256, stream=0)

    thread = threading.Thread(target=launch_then, daemon=True)
    with one.active():
        thread.start()
        with one.suspended():
            go.set()
            wait_until_blocked(thread)
            ran.append("decided")
            run(tuner, "tensor", 256, stream=0)
        thread.join(60.0)
    assert (ran, len(recorder.launches)) == (["decided", "launched", "launched"], 1)


def test_where_nothing_runs_a_list_of_configs_is_open(tuner: Any) -> None:
    """Each candidate launches Inductor's config of the same place."""
    sites: list[Any] = []
    recorder, tuner.configs = Recorder(), [config(64), config(128), config(32)]
    recorder.backend.gpu = None
    recorder.launch = lambda site: sites.append(site) or "launched"  # type: ignore[method-assign]
    made = InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: None)
    assert made.make() == "launched"
    (site,) = sites
    assert (site.kernel, site.jit) == ("triton_poi_fused_sin", triton_poi_fused_sin_3)
    assert [c.config.kwargs["XBLOCK"] for c in site.candidates] == [64, 128, 32]
    recorder.backend.tensors = SimpleNamespace(launched=lambda pointers, access: None)
    for index, grid in ((1, 2), (2, 8), (0, 4)):
        site.chosen = index
        site.run(site.candidates[index].words())
        pending = recorder.launches[-1]
        assert (pending.grid, pending.site, pending.config) == ((grid, 1, 1), site, site.candidates[index].config)


@pytest.mark.parametrize("broken", [False, True])
def test_a_launch_that_no_target_can_make_is_an_error(
    tuner: Any, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    class Broken:
        def parse_options(self, options: dict[str, Any]) -> Any:
            raise ValueError("no such option")

    recorder, ran = Recorder(), []
    if broken:
        monkeypatch.setattr(launches.triton_compiler, "make_backend", lambda target: Broken())
    launch = InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: ran.append(1))
    if not broken:
        launch.make()
        assert ran == [1]
        return
    with pytest.raises(CompileError, match=r"^kernel triton_poi_fused_sin for cuda:90: no such option$"):
        launch.make()
    assert ran == []


def test_a_grid_is_one_of_single_blocks(tuner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launches, "check_grid", lambda grid, **given: asked.append((grid, given)) or (7, 1, 1))
    recorder = Recorder()
    InductorLaunch(recorder, tuner, ("tensor", 256), {}, lambda: None).make()
    ((grid, given),) = asked
    file = triton_poi_fused_sin_3.fn.__code__.co_filename
    assert (grid, given["num_ctas"], given["num_warps"], given["spec"]) == ((4, 1, 1), 1, 4, recorder.backend.spec)
    assert given["kernel"] == f"triton_poi_fused_sin ({file})"
    assert recorder.launches[0].grid == (7, 1, 1)
