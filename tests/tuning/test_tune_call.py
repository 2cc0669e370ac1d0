"""A call is tuned before it is launched: nothing of the user's changes, and little of the device is taken."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from doubles import raising
from fake_runs import COMPILER, N, block, by_block, configs, increment_kernel, lacking, scale_kernel, script, sum_kernel
from source_path import source_path
from triton import knobs

from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Site
from kerntune.capture.entry_points import EntryPoints
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import TuningError
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.kernels.compat import launcher
from kerntune.tuning import tune_call as module
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.candidates import pool_of
from kerntune.tuning.consensus import DOUBT
from kerntune.tuning.isolation import Isolation
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_call import tune_call
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuning_result import TuningResult
from kerntune.tuning.verification import Verify

BLOCKS = (32, 64, 128, 256)
RULES = tuple(block(b, t) for b, t in zip(BLOCKS, (4000.0, 1000.0, 1020.0, 9000.0), strict=True))


@pytest.fixture
def backend(shared: FakeBackend) -> FakeBackend:
    script(shared, *RULES)
    return shared


def site_of(backend: FakeBackend, kernel: Any, *args: Any, compiler: Compiler = COMPILER) -> tuple[Capture, Site]:
    capture = Capture(backend, compiler)
    return capture, capture.site_of(kernel, args, {"grid": by_block, "warmup": False})


def scaled(backend: FakeBackend, *blocks: int, **options: Any) -> tuple[Capture, Site, torch.Tensor]:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    kernel = triton.autotune(configs(*(blocks or BLOCKS)), key=["n"], **options)(scale_kernel)
    return (*site_of(backend, kernel, x, y, N, 2.0), y)


def tuned(backend: FakeBackend, *rules: Rule, blocks: Any = (), **words: Any) -> tuple[TuningResult, int, list[int]]:
    """A tuning of these blocks under some rules and the usual ones, its winner's block, and those that failed."""
    script(backend, *rules, *RULES)
    capture, site, _ = scaled(backend, *blocks)
    found = tune_call(capture, site, TuneOptions.now(**words))
    failed = [int(f.config.kwargs["BLOCK"]) for f in found.failures]  # type: ignore[arg-type]
    return found, min(blocks_of(site, [found.winner])), failed


def blocks_of(site: Site, indices: Any) -> set[int]:
    return {int(site.candidates[i].config.kwargs["BLOCK"]) for i in indices}  # type: ignore[arg-type]


def test_the_fastest_wins_and_nothing_was_launched_for_real(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, site, y = scaled(backend)
    backend.gpu.fill(backend.gpu.borrow(y), 9)
    monkeypatch.setattr(Capture, "launch", None)
    found = tune_call(capture, site)
    assert site.candidates[found.winner].config.kwargs == {"BLOCK": 64}
    assert set(found.times_ns) == {0, 1, 2, 3}
    assert not capture.launches[0].ran
    assert backend.gpu.read(backend.gpu.borrow(y), 1) == b"\x09"


def test_losing_modules_are_unloaded(backend: FakeBackend) -> None:
    capture, site, _ = scaled(backend)
    tune_call(capture, site)
    assert backend.gpu.modules == 0


def test_candidates_race_while_others_are_compiled(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is not compiled before another has been looked at."""
    capture, site, _ = scaled(backend)
    ran, compiled, stream, flush = threading.Event(), list[bool](), Compiler.compile_stream, FakeGpu.flush_l2

    def told(compiler: Compiler, *args: Any) -> Any:
        for launch, found in stream(compiler, *args):
            compiled.append(len(compiled) < 3 or ran.wait(60))
            yield launch, found

    monkeypatch.setattr(Compiler, "compile_stream", told)
    monkeypatch.setattr(FakeGpu, "flush_l2", lambda gpu: (ran.set(), flush(gpu))[1])
    tune_call(capture, site)
    assert compiled == [True] * 4


@pytest.mark.parametrize(("error", "ended"), [(KeyboardInterrupt, ["compilers", "capture"]), (ValueError, ["capture"])])
def test_ctrl_c_ends_compilers_first(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], ended: list[str]
) -> None:
    """Sixteen busy ones would take the processors from all that follows."""
    order, back = list[str](), EntryPoints.end
    capture, site, _ = scaled(backend)

    monkeypatch.setattr(Compiler, "end", lambda compiler: order.append("compilers"))
    monkeypatch.setattr(EntryPoints, "end", lambda entries: (order.append("capture"), back(entries)))
    monkeypatch.setattr(FakeGpu, "flush_l2", raising(error))
    with pytest.raises(error):
        tune_call(capture, site)
    assert order == ended


# failures and wrong results


CHECKING = [mode for mode in Verify if mode not in (Verify.OFF, Verify.BITWISE)]
"""Modes in which most candidates are right; under ``bitwise`` the first one is (``test_tuner.py``)."""


@pytest.mark.parametrize("mode", CHECKING)
def test_a_wrong_candidate_never_wins(backend: FakeBackend, mode: Verify) -> None:
    found, winner, failed = tuned(backend, block(64, 1000.0, wrong=True), verify=mode)
    assert (winner, failed) == (128, [64])
    assert "wrote other values than 3 of 4 configs into y_ptr" in found.failures[0].reason
    assert found.notes == ()


@pytest.mark.parametrize("mode", CHECKING)
@pytest.mark.parametrize("time_ns", [500.0, 20_000.0])
def test_the_first_candidate_is_not_right_for_being_the_first(
    backend: FakeBackend, mode: Verify, time_ns: float
) -> None:
    found, winner, failed = tuned(backend, block(32, time_ns, wrong=True), verify=mode)
    assert winner in (64, 128)
    assert all(f.wrong for f in found.failures)
    assert failed == [32] or (failed == [] and mode is not Verify.ALL and time_ns > 1000.0)


def test_without_a_majority_the_first_stays_and_it_is_said(backend: FakeBackend) -> None:
    for first_ns in (500.0, 2000.0):
        found, winner, _ = tuned(backend, block(32, first_ns), block(64, 1000.0, wrong=True), blocks=(32, 64))
        assert winner == 32
        (note,) = found.notes
        assert note.startswith("kernel scale_kernel: it wrote other values than the first candidate into y_ptr")
        assert note.endswith(DOUBT)


def test_what_varies_by_itself_is_left_out_and_said(backend: FakeBackend) -> None:
    rules = [Rule(constexprs={"BLOCK": b}, time_ns=t, varies=True) for b, t in ((32, 3e3), (64, 1e3))]
    found, winner, failed = tuned(backend, *rules, blocks=(32, 64))
    assert (winner, failed) == (64, [])
    assert found.notes == (
        "kernel scale_kernel: y_ptr is not compared: one config writes other values there from run to run",
    )
    assert found.partly


def test_ignored_arguments_decide_nothing(backend: FakeBackend) -> None:
    for name in ("y_ptr", "scale_kernel.y_ptr"):
        found, winner, failed = tuned(backend, block(64, 1000.0, wrong=True), verify_ignore=(name,))
        assert (winner, failed) == (64, [])
        assert found.partly


@pytest.mark.parametrize(
    ("mode", "failed"), [(Verify.WINNER, []), (Verify.FINALISTS, [128]), (Verify.ALL, [128, 256]), (None, [128, 256])]
)
def test_only_all_looks_at_those_that_would_not_win(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, mode: Verify | None, failed: list[int]
) -> None:
    """Also where the environment asks for it."""
    monkeypatch.setenv("KERNTUNE_VERIFY", "all")
    wrong = [block(128, 1020.0, wrong=True), block(256, 9000.0, wrong=True)]
    assert tuned(backend, *wrong, verify=mode)[1:] == (64, failed)


def test_off_believes_everybody(backend: FakeBackend) -> None:
    found, winner, failed = tuned(backend, block(64, 1000.0, wrong=True), verify="off")
    assert (winner, failed, found.notes) == (64, [], ())


def test_if_none_compiles_every_reason_is_listed(backend: FakeBackend) -> None:
    capture, site, _ = scaled(backend, 100, 1 << 21)
    with pytest.raises(TuningError, match="none of its 2 configs can be used") as caught:
        tune_call(capture, site)
    assert "BLOCK=100 num_warps=4 num_stages=3: " in str(caught.value)
    assert "power of 2" in str(caught.value)
    assert "BLOCK=2097152 num_warps=4 num_stages=3: " in str(caught.value)


def test_a_reason_that_all_share_stands_there_once(backend: FakeBackend) -> None:
    x = torch.empty(N, device="cuda")
    capture, site = site_of(backend, triton.autotune(configs(*BLOCKS), key=["n"])(scale_kernel), x, x, "N", 2.0)
    with pytest.raises(TuningError, match="none of its 4 configs can be used: kernel scale_kernel") as caught:
        tune_call(capture, site)
    assert str(caught.value).count("failed to specialize argument of type: str") == 1


def test_if_all_lack_resources_the_last_is_tried_without_pipelining(backend: FakeBackend) -> None:
    script(backend, *lacking())
    capture, site, _ = scaled(backend)
    found = tune_call(capture, site)
    assert found.winner == 4
    assert site.candidates[4].config == site.candidates[3].config.replace(num_stages=1)
    assert (site.originals[4].num_stages, site.originals[4].kwargs) == (1, {"BLOCK": 256})
    site.settle(found.winner)
    assert site.tuner.best_config.num_stages == 1
    assert len(found.failures) == 4


# what is known


class World:
    """A cache folder, and runs over it as new processes would make them."""

    def __init__(self, backend: FakeBackend, folder: Path) -> None:
        self.backend, self.folder, self.compiled = backend, folder, set[int]()

    def call(self, *blocks: int, compiler: Compiler) -> tuple[Capture, Site, Trials]:
        x = torch.empty(N, device="cuda")
        kernel = triton.autotune(configs(*blocks), key=["n"])(scale_kernel)
        trials = Trials(Winners(WinnerCache(self.folder), TuneMode.AUTO, self.backend.gpu))
        return (*site_of(self.backend, kernel, x, x, N, 2.0, compiler=compiler), trials)

    def run(self, *blocks: int) -> tuple[TuningResult, Site]:
        compiler = Compiler(COMPILER.farm)
        stream = compiler.compile_stream

        def told(*args: Any) -> Any:
            for launch, found in stream(*args):
                self.compiled.add(int(launch.constexpr_texts()["BLOCK"]))
                yield launch, found

        compiler.compile_stream = told  # type: ignore[method-assign]
        capture, site, trials = self.call(*blocks, compiler=compiler)
        self.compiled.clear()
        return tune_call(capture, site, trials=trials), site


def test_one_config_more_compiles_and_runs_it_and_its_contenders(backend: FakeBackend, tmp_path: Path) -> None:
    world = World(backend, tmp_path)
    world.run(*BLOCKS)
    assert world.compiled == set(BLOCKS)
    script(backend, block(512, 990.0), *RULES)
    found, site = world.run(*BLOCKS, 512)
    assert world.compiled == {64, 128, 512}
    assert blocks_of(site, [found.winner]) <= {64, 512}
    assert set(found.times_ns) == {0, 1, 2, 3, 4}
    assert len(TrialCache(tmp_path).entries()) == 5


def test_first_launches_begin_before_compiling_processes_and_only_for_what_is_new(
    backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers' threads would hold their process up, and it takes the longest to be ready."""
    order, warm, world = list[str](), Compiler.warm, World(backend, tmp_path)
    monkeypatch.setattr(Isolation, "begin", lambda isolation: order.append("first launches"))
    monkeypatch.setattr(Compiler, "warm", lambda one, jobs: (order.append("compilers"), warm(one, jobs))[1])
    world.run(*BLOCKS)
    assert order[:2] == ["first launches", "compilers"]
    order.clear()
    world.run(*BLOCKS)
    assert order == ["compilers"]


def test_processes_are_started_for_what_is_new_alone(backend: FakeBackend, tmp_path: Path) -> None:
    world, compiler = World(backend, tmp_path), Compiler(COMPILER.farm)

    def left() -> int:
        capture, site, trials = world.call(*BLOCKS, compiler=compiler)
        with capture.active():
            return pool_of(capture, site, trials.at(site)).to_compile()

    assert left() == 4
    tune_call(*world.call(64, 128, compiler=compiler)[:2])
    assert left() == 2


def test_results_that_were_pulled_early_come_again(backend: FakeBackend) -> None:
    capture, site, _ = scaled(backend)
    with capture.active():
        pool = pool_of(capture, site)
        (indices, *_) = pool.stages()
        first = next(pool.first_compiled(indices))
        results = list(pool.compiled(indices))
    assert results[0] == first
    assert sorted(i for i, _ in results) == [0, 1, 2, 3]
    assert all(isinstance(found, Compiled) for _, found in results)


@pytest.fixture
def building(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], None]:
    """The device has launchers; each part that is built for them calls a function instead, with its arguments."""

    def build_by(build: Callable[..., object]) -> None:
        monkeypatch.setattr(launcher, "prepare_driver", build)
        monkeypatch.setattr(launcher, "prepare_launcher", build)
        monkeypatch.setattr(module, "compile_front", lambda: build("front"))
        monkeypatch.setattr(backend, "name", "cuda")

    return build_by


def test_what_launches_need_is_built_meanwhile(backend: FakeBackend, building: Any) -> None:
    built: list[tuple[Any, ...]] = []
    building(lambda *args: built.append(args))
    capture, site, _ = scaled(backend)
    tune_call(capture, site)
    for thread in threading.enumerate():
        if thread.name in ("kerntune-driver", "kerntune-launcher", "kerntune-front"):
            thread.join()
    driver, front, (jit, signature, constexprs, _) = sorted(built, key=len)
    assert (driver, front) == ((), ("front",))
    assert (jit, list(signature), constexprs[4,]) == (scale_kernel, ["x_ptr", "y_ptr", "n", "factor", "BLOCK"], 32)


def test_what_triton_builds_is_waited_for(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, building: Any) -> None:
    """A launch would build it a second time, beside the thread that is at it."""
    go_on, built = threading.Event(), []

    def slowly(*given: Any) -> None:
        if given != ("front",):
            go_on.wait(20)
            built.append(given)

    building(slowly)
    capture, site, _ = scaled(backend)
    tuning = module.tune
    monkeypatch.setattr(module, "tune", lambda *a, **k: (tuning(*a, **k), threading.Timer(0.2, go_on.set).start())[0])
    tune_call(capture, site)
    assert len(built) == 2


def test_descriptors_of_who_is_ahead_are_built_for(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, building: Any
) -> None:
    built: list[Any] = []
    building(lambda *given: built.append((given[2][4,], *given[4:])) if len(given) > 1 else None)
    capture, site, _ = scaled(backend)
    compile_one = capture.compiler.compile

    def with_descriptors(launch: Any) -> Any:
        compiled = compile_one(launch)
        return dataclasses.replace(compiled, metadata={**compiled.metadata, "tensordesc_meta": ["meta"]})

    monkeypatch.setattr(capture.compiler, "compile", with_descriptors)
    assert blocks_of(site, [tune_call(capture, site).winner]) == {64}
    assert built[0] == (32,), "of the first, before anything is compiled"
    assert built[1:] == [(64, ["meta"])]


def test_comparing_is_practised_once_a_dtype(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    compare = backend.gpu.compare
    monkeypatch.setattr(backend.gpu, "compare", lambda a, b, d, t: (compared.append(d), compare(a, b, d, t))[1])
    capture, site, _ = scaled(backend)
    for _ in range(2):
        module._prepare_verifying(capture, site, lambda: False)
    assert compared == ["float32", "float32"], "bytes that agree, and such that don't"


def test_comparing_is_practised_only_until_there_is_work(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(backend.gpu, "compare", lambda *given: compared.append(given[2]))
    capture, site, _ = scaled(backend)
    module._prepare_verifying(capture, site, lambda: bool(compared))
    assert compared == ["float32"]
    module._prepare_verifying(capture, site, lambda: False)
    assert len(compared) == 3, "what was left is done another time"


def test_preparing_a_launch_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither without a driver nor for arguments that mean nothing."""
    launcher.prepare_driver()
    launcher.prepare_launcher(None, {"x": "*fp32"}, {}, {})
    launcher.prepare_launcher(None, {"x": "tensordesc<fp32[64]>"}, {}, {})


def test_comparing_is_practised_for_what_the_call_holds(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not where everything is known, and errors in it are ignored."""
    practised: list[str] = []

    def compare(gpu: FakeGpu, expected: Any, actual: Any, dtype: str, tolerance: float) -> None:
        practised.append(dtype)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(FakeGpu, "compare", compare)
    x, i = torch.empty(N, device="cuda", dtype=torch.float16), torch.empty(N, device="cuda", dtype=torch.int32)
    kernel = triton.autotune(configs(64), key=["n"])(scale_kernel)
    compiler = Compiler(COMPILER.farm)
    for _ in range(2):
        capture, site = site_of(backend, kernel, x, i, N, 2.0, compiler=compiler)
        tune_call(capture, site)
    assert practised == ["float16"]


# hooks


def test_what_hooks_write_is_undone_and_is_first_content_meanwhile(backend: FakeBackend) -> None:
    total, gpu = torch.empty(1, device="cuda"), backend.gpu
    gpu.fill(gpu.borrow(total), 9)
    contents: list[bytes] = []

    def zero(named: dict[str, Any]) -> None:
        gpu.fill(gpu.borrow(named["total_ptr"]), 0)

    kernel = triton.autotune([triton.Config({"BLOCK": b}, pre_hook=zero) for b in (64, 128)], key=["n"])(sum_kernel)
    capture, site = site_of(backend, kernel, torch.empty(N, device="cuda"), total, N)
    copy = gpu.copy

    def watched(target: Any, source: Any) -> None:
        contents.append(gpu.read(source, 1))
        copy(target, source)

    gpu.copy = watched  # type: ignore[method-assign]
    tune_call(capture, site)
    assert gpu.read(gpu.borrow(total), 1) == b"\x09"
    assert b"\0" in contents, "the race starts from what the hook leaves"


def test_the_post_compile_hook_hears_of_each_candidate(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    heard: list[int] = []
    monkeypatch.setattr(
        knobs.runtime, "jit_post_compile_hook", lambda **told: heard.append(told["compile"]["constants"][(4,)])
    )
    compiler = Compiler(COMPILER.farm)
    x = torch.empty(N, device="cuda")
    kernel = triton.autotune(configs(64, 128), key=["n"])(scale_kernel)
    capture, site = site_of(backend, kernel, x, x, N, 2.0, compiler=compiler)
    tune_call(capture, site)
    assert sorted(heard) == [64, 128]


# memory


CARD = 128 << 30


def in_place(backend: FakeBackend, share: float) -> tuple[FakeGpu, Callable[[], TuningResult], torch.Tensor, int]:
    """An in-place kernel whose argument holds a share of the card."""
    held = int(CARD * share)
    gpu = script(backend, *RULES, memory_bytes=CARD - held)
    x = torch.empty(held // 4, device="cuda")
    gpu.fill(gpu.borrow(x), 7)
    kernel = triton.autotune(configs(*BLOCKS), key=["n"])(increment_kernel)
    capture, site = site_of(backend, kernel, x, N)
    return gpu, lambda: tune_call(capture, site), x, held


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_what_holds_half_the_card_is_tuned_with_a_tenth_on_top(backend: FakeBackend, share: float) -> None:
    gpu, tune, x, held = in_place(backend, share)
    found = tune()
    assert found.failures == ()
    assert gpu.peak_bytes <= held * 0.1
    assert gpu.read(gpu.borrow(x), 1) == b"\x07"
    assert gpu.host_bytes == 0, "what was kept on the host is free again"


def test_what_is_small_is_copied_on_the_device(backend: FakeBackend) -> None:
    gpu, tune, _, held = in_place(backend, 0.01)
    hosted: list[int] = []
    host = gpu.allocate_host
    gpu.allocate_host = lambda nbytes: (hosted.append(nbytes), host(nbytes))[1]  # type: ignore[method-assign]
    tune()
    assert hosted == []
    assert gpu.peak_bytes >= held


def test_the_users_memory_is_given_back_also_after_an_error(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, tune, x, _ = in_place(backend, 0.5)
    home = gpu.borrow(x)
    prepare = gpu.prepare

    def writing(*args: Any) -> Any:
        call = prepare(*args)
        return lambda: (call(), gpu.fill(home, 1))

    gpu.prepare = writing  # type: ignore[method-assign]
    monkeypatch.setattr("kerntune.tuning.race.screened", lambda trials: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tune()
    assert gpu.read(home, 1) == b"\x07"


def test_a_first_config_that_alone_varies_is_wrong(backend: FakeBackend) -> None:
    """It has a race; what the others write is no matter of chance."""
    found, winner, failed = tuned(backend, Rule(constexprs={"BLOCK": 32}, time_ns=500.0, varies=True))
    assert (winner, failed, found.notes) == (64, [32], ())


# a program that ends while C is being built for it


PROGRAM = """
import os, sys, time
import torch, triton, triton.language as tl
from kerntune.base.device import Target
from kerntune.kernels.specialize import specialize
from kerntune.tuning.tune_call import build_beside

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

build_beside(specialize(kernel, (torch.empty(64),), {"BLOCK": 64}, Target("cuda", "90")))
while not os.path.exists(os.environ["BEGUN"]):
    time.sleep(0.01)
if sys.argv[1] == "raises":
    raise SystemExit("enough")
"""

SLOW = """#!/bin/sh
touch "$BEGUN"
sleep 1
exec COMPILER "$@"
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A C compiler that takes a second longer than a short program lives."""
    path = tmp_path / "cc"
    path.write_text(SLOW.replace("COMPILER", os.environ.get("CC") or "cc"))
    path.chmod(0o755)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("end", ["returns", "raises"])
def test_nothing_is_said_and_nothing_left_when_a_program_ends(tmp_path: Path, compiler: Path, end: str) -> None:
    program, begun, scratch = tmp_path / "program.py", tmp_path / "begun", tmp_path / "scratch"
    program.write_text(PROGRAM)
    scratch.mkdir()
    quiet = {"TRITON_DEFAULT_FP_FUSION": "1"}  # or 3.9 warns of 3.10
    places = {"TMPDIR": scratch, "TRITON_CACHE_DIR": tmp_path / "cache", "CC": compiler, "BEGUN": begun}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(program), end],
        env={
            **os.environ,
            **quiet,
            "PYTHONPATH": source_path(root),
            **{name: str(path) for name, path in places.items()},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert begun.exists(), "the compiler was running"
    assert done.stderr.strip() == ("enough" if end == "raises" else "")
    assert done.stdout == ""
    assert list(scratch.iterdir()) == []
    assert list((tmp_path / "cache").rglob("kerntune_front*.so")), "it serves the next process"
