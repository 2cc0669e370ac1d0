"""A call is tuned before it is launched: nothing of the user's changes, and little of the device is taken."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from fake_runs import COMPILER, N, block, by_block, configs, increment_kernel, scale_kernel, script, sum_kernel
from triton import knobs

from kerntune.base.policy import TuneMode
from kerntune.capture import Capture, Site
from kerntune.capture.entry_points import EntryPoints
from kerntune.compiling.compiler import Compiled, Compiler
from kerntune.errors import TuningError
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.kernels import compat
from kerntune.tuning import tune_call as module
from kerntune.tuning.cache import TrialCache, WinnerCache
from kerntune.tuning.candidates import pool_of
from kerntune.tuning.consensus import DOUBT
from kerntune.tuning.stored_trials import Trials
from kerntune.tuning.stored_winners import Winners
from kerntune.tuning.tune_call import tune_call
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuning_result import Tuned
from kerntune.tuning.verification import Verification, Verify

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
    order, back = list[str](), EntryPoints.restore
    capture, site, _ = scaled(backend)

    def interrupted(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Compiler, "end", lambda compiler: order.append("compilers"))
    monkeypatch.setattr(EntryPoints, "restore", lambda entries: (order.append("capture"), back(entries)))
    monkeypatch.setattr(FakeGpu, "flush_l2", interrupted)
    with pytest.raises(error):
        tune_call(capture, site)
    assert order == ended


# failures and wrong results


CHECKING = [mode for mode in Verify if mode not in (Verify.OFF, Verify.BITWISE)]
"""Modes in which most candidates are right; under ``bitwise`` the first one is (``test_tuner.py``)."""


@pytest.mark.parametrize("mode", CHECKING)
def test_a_wrong_candidate_never_wins(backend: FakeBackend, mode: Verify) -> None:
    script(backend, block(64, 1000.0, wrong=True), *RULES)
    capture, site, _ = scaled(backend)
    found = tune_call(capture, site, TuneOptions.now(verify=mode))
    assert blocks_of(site, [found.winner]) == {128}
    assert [f.config.kwargs["BLOCK"] for f in found.failures] == [64]
    assert "wrote other values than 3 of 4 configs into y_ptr" in found.failures[0].reason
    assert found.notes == ()


@pytest.mark.parametrize("mode", CHECKING)
@pytest.mark.parametrize("time_ns", [500.0, 20_000.0])
def test_the_first_candidate_is_not_right_for_being_the_first(
    backend: FakeBackend, mode: Verify, time_ns: float
) -> None:
    script(backend, block(32, time_ns, wrong=True), *RULES)
    capture, site, _ = scaled(backend)
    found = tune_call(capture, site, TuneOptions.now(verify=mode))
    assert blocks_of(site, [found.winner]) <= {64, 128}
    failed = {f.config.kwargs["BLOCK"] for f in found.failures if f.wrong}
    assert failed <= {32}
    assert failed == {32} or (mode is not Verify.ALL and time_ns > 1000.0)


def test_without_a_majority_the_first_stays_and_it_is_said(backend: FakeBackend) -> None:
    for first_ns in (500.0, 2000.0):
        script(backend, block(32, first_ns), block(64, 1000.0, wrong=True))
        capture, site, _ = scaled(backend, 32, 64)
        found = tune_call(capture, site)
        assert blocks_of(site, [found.winner]) == {32}
        (note,) = found.notes
        assert note.startswith("kernel scale_kernel: it wrote other values than the first candidate into y_ptr")
        assert note.endswith(DOUBT)


def test_off_believes_everybody(backend: FakeBackend) -> None:
    script(backend, block(64, 1000.0, wrong=True), *RULES)
    capture, site, _ = scaled(backend)
    found = tune_call(capture, site, TuneOptions.now(verify="off"))
    assert blocks_of(site, [found.winner]) == {64}
    assert (found.failures, found.notes) == ((), ())


def test_what_varies_by_itself_is_left_out_and_said(backend: FakeBackend) -> None:
    script(backend, *(Rule(constexprs={"BLOCK": b}, time_ns=t, varies=True) for b, t in ((32, 3e3), (64, 1e3))))
    capture, site, _ = scaled(backend, 32, 64)
    found = tune_call(capture, site)
    assert blocks_of(site, [found.winner]) == {64}
    assert found.failures == ()
    assert found.notes == (
        "kernel scale_kernel: y_ptr is not compared: one config writes other values there from run to run",
    )
    assert found.partly


def test_ignored_arguments_decide_nothing(backend: FakeBackend) -> None:
    for name in ("y_ptr", "scale_kernel.y_ptr"):
        script(backend, block(64, 1000.0, wrong=True), *RULES)
        capture, site, _ = scaled(backend)
        found = tune_call(capture, site, TuneOptions(Verification(ignore=(name,))))
        assert (blocks_of(site, [found.winner]), found.failures) == ({64}, ())
        assert found.partly


def test_only_all_looks_at_those_that_would_not_win(backend: FakeBackend) -> None:
    wrong = [block(128, 1020.0, wrong=True), block(256, 9000.0, wrong=True)]
    named = {}
    for mode in CHECKING:
        script(backend, *wrong, *RULES)
        capture, site, _ = scaled(backend)
        found = tune_call(capture, site, TuneOptions.now(verify=mode))
        assert blocks_of(site, [found.winner]) == {64}
        named[mode] = {f.config.kwargs["BLOCK"] for f in found.failures}
    assert named == {Verify.WINNER: set(), Verify.FINALISTS: {128}, Verify.ALL: {128, 256}}


def test_the_environment_chooses_who_is_verified(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_VERIFY", "all")
    script(backend, block(256, 9000.0, wrong=True), *RULES)
    capture, site, _ = scaled(backend)
    assert [f.config.kwargs["BLOCK"] for f in tune_call(capture, site, TuneOptions.now()).failures] == [256]


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


def without_pipelining(time_ns: float) -> list[Rule]:
    """Everything lacks resources, but for binaries that were made with one stage."""

    class OneStage(Rule):
        def matches(self, binary: Any) -> bool:
            return binary.options.get("num_stages") == 1

    return [OneStage(time_ns=time_ns), Rule(fails="needs more shared memory")]


def test_if_all_lack_resources_the_last_is_tried_without_pipelining(backend: FakeBackend) -> None:
    script(backend, *without_pipelining(500.0))
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

    def run(self, *blocks: int) -> tuple[Tuned, Site]:
        compiler = Compiler(COMPILER.farm)
        stream = compiler.compile_stream

        def told(*args: Any) -> Any:
            for launch, found in stream(*args):
                self.compiled.add(int(launch.constexpr_texts()["BLOCK"]))
                yield launch, found

        compiler.compile_stream = told  # type: ignore[method-assign]
        x = torch.empty(N, device="cuda")
        kernel = triton.autotune(configs(*blocks), key=["n"])(scale_kernel)
        capture, site = site_of(self.backend, kernel, x, x, N, 2.0, compiler=compiler)
        trials = Trials(Winners(WinnerCache(self.folder), TuneMode.AUTO, self.backend.gpu))
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


def test_processes_are_started_for_what_is_new_alone(backend: FakeBackend, tmp_path: Path) -> None:
    trials = Trials(Winners(WinnerCache(tmp_path), TuneMode.AUTO, backend.gpu))
    compiler = Compiler(COMPILER.farm)

    def left(*blocks: int) -> int:
        x = torch.empty(N, device="cuda")
        kernel = triton.autotune(configs(*blocks), key=["n"])(scale_kernel)
        capture, site = site_of(backend, kernel, x, x, N, 2.0, compiler=compiler)
        with capture.active():
            return pool_of(capture, site, trials.at(site)).to_compile()

    assert left(*BLOCKS) == 4
    x = torch.empty(N, device="cuda")
    capture, site = site_of(backend, triton.autotune(configs(64, 128), key=["n"])(scale_kernel), x, x, N, 2.0,
                            compiler=compiler)  # fmt: skip
    tune_call(capture, site)
    assert left(*BLOCKS) == 2


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


def test_what_launches_need_is_built_meanwhile(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[Any, ...]] = []
    for name in ("prepare_driver", "prepare_launcher"):
        monkeypatch.setattr(compat, name, lambda *args: built.append(args))
    monkeypatch.setattr(module, "compile_front", lambda: built.append(("front",)))
    monkeypatch.setattr(backend, "name", "cuda")
    capture, site, _ = scaled(backend)
    tune_call(capture, site)
    for thread in threading.enumerate():
        if thread.name in ("kerntune-driver", "kerntune-launcher", "kerntune-front"):
            thread.join()
    driver, front, (jit, signature, constexprs, _) = sorted(built, key=len)
    assert (driver, front) == ((), ("front",))
    assert (jit, list(signature), constexprs[4,]) == (scale_kernel, ["x_ptr", "y_ptr", "n", "factor", "BLOCK"], 32)


def test_what_triton_builds_is_waited_for(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch would build it a second time, beside the thread that is at it."""
    go_on, built = threading.Event(), []

    def slowly(*given: Any) -> None:
        go_on.wait(20)
        built.append(given)

    monkeypatch.setattr(compat, "prepare_driver", slowly)
    monkeypatch.setattr(compat, "prepare_launcher", slowly)
    monkeypatch.setattr(module, "compile_front", lambda: None)
    monkeypatch.setattr(backend, "name", "cuda")
    capture, site, _ = scaled(backend)
    tuning = module.tune
    monkeypatch.setattr(module, "tune", lambda *a, **k: (tuning(*a, **k), threading.Timer(0.2, go_on.set).start())[0])
    tune_call(capture, site)
    assert len(built) == 2


def test_descriptors_of_who_is_ahead_are_built_for(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    monkeypatch.setattr(compat, "prepare_driver", lambda: None)
    monkeypatch.setattr(compat, "prepare_launcher", lambda *given: built.append((given[2][4,], *given[4:])))
    monkeypatch.setattr(module, "compile_front", lambda: None)
    monkeypatch.setattr(backend, "name", "cuda")
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
    compat.prepare_driver()
    compat.prepare_launcher(None, {"x": "*fp32"}, {}, {})
    compat.prepare_launcher(None, {"x": "tensordesc<fp32[64]>"}, {}, {})


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
    kernel = triton.autotune(
        [
            triton.Config({"BLOCK": b}, pre_hook=lambda named: gpu.fill(gpu.borrow(named["total_ptr"]), 0))
            for b in (64, 128)
        ],
        key=["n"],
    )(sum_kernel)
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


def in_place(backend: FakeBackend, share: float) -> tuple[FakeGpu, Callable[[], Tuned], torch.Tensor, int]:
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
    script(backend, Rule(constexprs={"BLOCK": 32}, time_ns=500.0, varies=True), *RULES)
    capture, site, _ = scaled(backend)
    found = tune_call(capture, site)
    assert blocks_of(site, [found.winner]) == {64}
    assert [f.config.kwargs["BLOCK"] for f in found.failures] == [32]
    assert found.notes == ()
