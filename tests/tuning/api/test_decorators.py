"""Decorated kernels: proposed for by their calls, tuned, captured, launched; on the scripted GPU and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER, block, captured, recorded, scale_kernel, script
from hypothesis import given, settings
from hypothesis import strategies as st

import kerntune
from kerntune.base.config import Config
from kerntune.base.policy import StaticPrune
from kerntune.capture import Capture
from kerntune.errors import ConfigError, HintError, StoreError, UsageError
from kerntune.gpu.scripted import FakeBackend
from kerntune.grids import Grid1D, Grid2D
from kerntune.heuristics import LookupTable, read_table, write_table
from kerntune.kernels.compat import tuners
from kerntune.search import Descent
from kerntune.tuning import context
from kerntune.tuning.api import autotuner
from kerntune.tuning.api.decorators import HeuristicTuner

MILLION = 1 << 20
BY_BLOCK = Grid1D("n", "BLOCK")


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, cols, COLS):
        col = start + tl.arange(0, COLS)[None, :]
        total += tl.load(x_ptr + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(out_ptr + row, tl.sum(total, 1)[:, None], mask=row < rows)


@triton.jit
def row_kernel(x_ptr, out_ptr, cols, COLS: tl.constexpr):
    col = tl.arange(0, COLS)
    row = tl.load(x_ptr + tl.program_id(0) * cols + col, mask=col < cols, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(row, 0))


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    i = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    j = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        p = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + i * k + p[None, :], mask=(i < m) & (p[None, :] < k), other=0.0)
        b = tl.load(b_ptr + p[:, None] * n + j, mask=(p[:, None] < k) & (j < n), other=0.0)
        total += tl.dot(a, b)
    tl.store(c_ptr + i * n + j, total, mask=(i < m) & (j < n))


@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    pass


INDUCTOR = "inductor-2.13"


@pytest.fixture
def backend(this_gpu: FakeBackend) -> FakeBackend:
    """The GPU on which tuning happens."""
    return this_gpu


def pointwise(kernel: Any = scale_kernel, **options: Any) -> HeuristicTuner:
    return kerntune.pointwise(**{"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}, **options})(kernel)


def sums(**options: Any) -> HeuristicTuner:
    sizes, blocks = {"x": "rows", "r0": "cols"}, {"x": "ROWS", "r0": "COLS"}
    return kerntune.reduction(**{"sizes": sizes, "blocks": blocks, **options})(sum_kernel)


def call(kernel: Any, n: int = MILLION, dtype: torch.dtype = torch.float32, grid: Any = BY_BLOCK) -> Any:
    x, y = (torch.empty(max(n, 16), device="cuda", dtype=dtype) for _ in range(2))
    return kernel[grid](x, y, n, 2.0)


def matrix(rows: int, cols: int, *, outer: bool = False) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    x = torch.empty(cols, rows, device="cuda").T if outer else torch.empty(rows, cols, device="cuda")
    return x, torch.empty(rows, device="cuda"), rows, cols


FASTER_512 = (block(1024, 3000.0), block(512, 1000.0))


# tuning as a library


def test_the_faster_candidate_is_found_and_stays(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    gpu, kernel = script(backend, *FASTER_512), pointwise()
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 512}
    assert kernel.best_config.num_warps == 8
    assert len(launches) == 1, "the tuning call itself launches once"
    before = gpu.launches
    call(kernel)
    assert gpu.launches == before
    assert (launches[-1]["BLOCK"], launches[-1]["num_warps"]) == (512, 8)


@pytest.mark.slow
def test_a_winner_holds_for_its_bucket_of_sizes(backend: FakeBackend) -> None:
    gpu, kernel = script(backend, *FASTER_512), pointwise()
    call(kernel, MILLION)
    before = gpu.launches
    call(kernel, MILLION - 1000)
    assert (len(kernel.cache), gpu.launches) == (1, before)
    call(kernel, MILLION + 1)
    call(kernel, MILLION, torch.float16)
    assert len(kernel.cache) == 3
    assert gpu.launches > before


def test_a_winner_on_disk_holds_for_its_bucket_too(backend: FakeBackend) -> None:
    script(backend, *FASTER_512)
    call(pointwise(), MILLION)
    gpu, again = script(backend, block(1024, 1.0)), pointwise()
    call(again, MILLION - 1000)
    assert gpu.launches == 0
    assert again.best_config.kwargs == {"BLOCK": 512}
    call(again, 2 * MILLION)
    assert gpu.launches > 0


# the default preset, and the one before it


def test_the_default_is_the_measured_preset(backend: FakeBackend) -> None:
    arguments = (*(torch.empty(1, device="cuda"),) * 2, 16 * MILLION, 2.0)
    found, measured, inductor = (
        pointwise(**words).candidates(*arguments) for words in ({}, {"preset": "measured-2026"}, {"preset": INDUCTOR})
    )
    assert found == measured
    assert found[: len(inductor)] == inductor
    assert len(found) > len(inductor)


def test_another_preset_races_the_candidates_that_its_list_adds(backend: FakeBackend) -> None:
    script(backend, *FASTER_512)
    call(pointwise(preset=INDUCTOR))
    gpu, kernel = script(backend, block(2048, 1.0)), pointwise()
    call(kernel)
    assert gpu.launches > 0
    assert kernel.best_config.kwargs == {"BLOCK": 2048}


def test_key_arguments_are_tuned_for_one_by_one(backend: FakeBackend) -> None:
    kernel = pointwise(key=["factor"])
    x = torch.empty(MILLION, device="cuda")
    for factor in (1.0, 2.0, 1.0):
        kernel[BY_BLOCK](x, x, MILLION, factor)
    assert len(kernel.cache) == 2


@triton.jit
def twice(x):
    return 2 * x


@triton.jit
def apply_kernel(x_ptr, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, OP(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


def test_constexprs_are_told_apart_the_same_in_every_process(backend: FakeBackend) -> None:
    kernel, x = pointwise(apply_kernel), torch.empty(64, device="cuda")
    keys = [kernel.tuning_key({"x_ptr": x, "n": 64, "OP": op}) for op in (twice, scale_kernel, "relu")]
    assert len(set(keys)) == 3
    assert all("0x" not in str(key) for key in keys)
    assert kernel.candidates(x, MILLION, OP=twice)


def test_triton_s_own_engine_chooses_where_kerntune_can_t(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, launches: list[dict[str, Any]]
) -> None:
    asked: list[int] = []

    def choose(tuner: Any, /, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        asked.append(args[2])
        tuner.best_config = tuner.prune_configs(kwargs)[1]
        return tuner.fn.run(*args, **kwargs, **tuner.best_config.all_kwargs())

    monkeypatch.setattr(context, "this_gpu", lambda: None)
    monkeypatch.setattr(autotuner, "plain_run", lambda: choose)
    kernel = pointwise()
    for n in (MILLION, MILLION - 1, 2 * MILLION):
        call(kernel, n)
    assert asked == [MILLION, 2 * MILLION]
    assert [seen["BLOCK"] for seen in launches] == [512, 512, 512]


def test_a_single_candidate_is_launched_untimed(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    kernel = sums(preset=INDUCTOR)
    kernel[Grid1D("rows", "ROWS")](*matrix(300, 4096))
    assert backend.gpu.launches == 0
    assert (launches[0]["ROWS"], launches[0]["COLS"], launches[0]["num_warps"]) == (1, 2048, 16)


def test_strides_choose_the_candidates(backend: FakeBackend) -> None:
    inner, outer = (sums().candidates(*matrix(300, 4096, outer=outer)) for outer in (False, True))
    assert {c.kwargs["ROWS"] for c in inner} == {1}
    assert outer[0].kwargs["ROWS"] > 1
    assert sums(reduction="inner").candidates(*matrix(300, 4096, outer=True)) == inner


def test_more_candidates_on_request(backend: FakeBackend) -> None:
    few, many = (sums(max_autotune=m).candidates(*matrix(300, 4096)) for m in (False, True))
    assert set(few) < set(many)


def test_who_is_left_out_is_said_like_any_other_option(backend: FakeBackend) -> None:
    assert sums().static_prune is None, "no proposal is left out by default"
    assert sums(static_prune="spills model").static_prune == StaticPrune(spills=True, model=True)
    with pytest.raises(UsageError, match="static_prune: 'spill' is none of spills"):
        sums(static_prune="spill")


def test_presets_by_name(backend: FakeBackend) -> None:
    new, old = (sums(preset=p).candidates(*matrix(300, 512)) for p in ("inductor-2.13", "inductor-2.6"))
    assert new != old
    with pytest.raises(HintError, match=r"unknown preset 'inductor-3'.*inductor-2.13, inductor-2.6"):
        sums(preset="inductor-3")


def test_the_kernel_s_code_is_counted_once(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    below = context.COMPILER.compile
    monkeypatch.setattr(context.COMPILER, "compile", lambda launch: compiled.append(launch.name) or below(launch))
    kernel = sums()
    for rows in (300, 3000):
        kernel.candidates(*matrix(rows, 4096))
    (counts,) = kernel._counted.values()
    assert (counts.loads, counts.stores, counts.reductions) == (1, 1, 1)
    assert compiled == ["sum_kernel"]


def test_a_product_has_its_tiles(backend: FakeBackend) -> None:
    names = {"y": "BLOCK_M", "x": "BLOCK_N", "r0": "BLOCK_K"}
    words: dict[str, Any] = {"sizes": {"y": "m", "x": "n", "r0": "k"}, "blocks": names}
    a = torch.empty(256, 256, device="cuda", dtype=torch.float16)
    found = kerntune.matmul(**words, preset=INDUCTOR)(dot_kernel).candidates(a, a, a, 256, 256, 256)
    assert len(found) == 19
    assert all(set(c.kwargs) == set(names.values()) for c in found)
    kernel = kerntune.matmul(**words)(dot_kernel)
    halves, doubles = (
        kernel.candidates(t, t, t, 256, 256, 256)
        for t in (a, torch.empty(256, 256, device="cuda", dtype=torch.float64))
    )
    assert len(doubles) < len(halves) == 20, "the tiles of 8-byte operands that can't fit are left out"
    flat = kernel.candidates(a, a, a, 16, 256, 64)
    assert {c.kwargs["BLOCK_M"] for c in flat} == {16}
    assert max(c.kwargs["BLOCK_K"] for c in flat) == 64


def test_a_product_s_group_is_chosen_too(backend: FakeBackend) -> None:
    names = {"y": "BLOCK_M", "x": "BLOCK_N", "r0": "BLOCK_K"}
    words: dict[str, Any] = {"sizes": {"y": "m", "x": "n", "r0": "k"}, "blocks": names}
    kernel = kerntune.matmul(**words, group="GROUP_M", descend=True)(grouped_kernel)
    a = torch.empty(256, 256, device="cuda", dtype=torch.float16)
    assert {c.kwargs["GROUP_M"] for c in kernel.candidates(a, a, a, 256, 256, 256)} == {8}
    found = kernel.search_for({}, dict(zip(grouped_kernel.arg_names, (a, a, a, 256, 256, 256), strict=False)))
    assert isinstance(found, Descent)
    assert "GROUP_M" in [f.name for f in found.steps_from(found.listed[0]).fields]
    with pytest.raises(ConfigError, match="GROUP_M is given by the call"):
        kernel.candidates(a, a, a, 256, 256, 256, GROUP_M=4)
    with pytest.raises(ConfigError, match="block GROUP is no constexpr of it"):
        kerntune.matmul(**words, group="GROUP")(grouped_kernel)


def test_scans_take_one_row_a_program(backend: FakeBackend) -> None:
    kernel = kerntune.split_scan(sizes={"x": "rows", "r0": "cols"}, blocks={"r0": "COLS"})(sum_kernel)
    assert all(c.kwargs["COLS"] >= 256 for c in kernel.candidates(*matrix(16, 65536), ROWS=1))


def test_what_accumulates_is_reset(backend: FakeBackend) -> None:
    script(backend, *FASTER_512)
    kernel = pointwise(reset_to_zero=["y_ptr"])
    call(kernel)
    assert kernel.reset_to_zero == ["y_ptr"]
    assert kernel.best_config.kwargs == {"BLOCK": 512}


def test_sizes_come_through_heuristics_and_defaults(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    inner = triton.heuristics({"factor": lambda args: args["BLOCK"] / 2})(scale_kernel)
    script(backend, *FASTER_512)
    kernel, x = pointwise(inner), torch.empty(MILLION, device="cuda")
    kernel[BY_BLOCK](x, x, MILLION)
    assert launches[-1]["factor"] in (256.0, 512.0)
    kernel[BY_BLOCK](x_ptr=x, y_ptr=x, n=MILLION)
    assert launches[-1]["factor"] == 256.0


# empty and wrong calls


def test_a_launch_of_size_zero_launches_nothing_and_does_not_fail(backend: FakeBackend) -> None:
    kernel = pointwise()
    call(kernel, 0)
    assert backend.gpu.launches == 0
    capture = captured(backend, lambda: call(kernel, 0))
    assert [p.grid for p in capture.launches] == [(0, 1, 1)]


def test_an_empty_reduction_still_writes_its_outputs(backend: FakeBackend, launches: list[dict[str, Any]]) -> None:
    sums()[Grid1D("rows", "ROWS")](torch.empty(64, 0, device="cuda"), torch.empty(64, device="cuda"), 64, 0)
    assert len(launches) == 1, "its 64 sums are zero, and somebody must say so"


@settings(max_examples=20, deadline=None)
@given(n=st.integers(-(2**40), -1))
def test_a_negative_size_names_kernel_and_argument(shared: FakeBackend, n: int) -> None:
    kernel = pointwise()
    with pytest.raises(HintError, match=f"kernel scale_kernel: axis x is argument n={n}, which is no positive"):
        call(kernel, n, grid=(1,))
    with pytest.raises(HintError, match="kernel scale_kernel: axis x is argument n="):
        captured(shared, lambda: call(kernel, n, grid=(1,)))


def test_a_block_given_by_the_call_is_refused(backend: FakeBackend) -> None:
    x = torch.empty(64, device="cuda")
    with pytest.raises(ConfigError, match="kernel scale_kernel: BLOCK is given by the call"):
        pointwise()[BY_BLOCK](x, x, 64, 2.0, BLOCK=64)


def test_a_missing_block_is_an_error_where_it_would_not_be_one(backend: FakeBackend) -> None:
    kernel = kerntune.pointwise(sizes={"x": "rows", "y": "cols"}, blocks={"x": "ROWS"})(sum_kernel)
    x, out, _, _ = matrix(64, 64)
    assert kernel.candidates(x, out, 64, 1, COLS=1)
    with pytest.raises(ConfigError, match="kernel sum_kernel: no parameter for YBLOCK"):
        kernel.candidates(x, out, 64, 64, COLS=1)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"sizes": {"x": "rows"}}, HintError, "kernel scale_kernel: axis x is to be argument 'rows'"),
        ({"sizes": {"rows": "n"}}, HintError, "kernel scale_kernel: unknown axis 'rows'"),
        ({"blocks": {"x": "SIZE"}}, ConfigError, "kernel scale_kernel: block SIZE is no constexpr of it; it has BLOCK"),
        ({"load": 3}, HintError, "kernel scale_kernel: there is no option or hint load"),
        ({"loads": -3}, HintError, "kernel scale_kernel: .*loads=-3 can't be negative"),
    ],
)
def test_wrong_words_are_refused_where_they_stand(options: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        pointwise(**options)


def test_what_is_decorated_is_a_kernel_without_a_tuner() -> None:
    with pytest.raises(ConfigError, match=r"put the heuristic's decorator above @triton\.jit"):
        pointwise(len)
    with pytest.raises(ConfigError, match="kernel scale_kernel: it has a tuner already"):
        pointwise(pointwise())


# a known config


def test_a_table_s_answer_is_launched_untimed(
    backend: FakeBackend, launches: list[dict[str, Any]], tmp_path: Path
) -> None:
    table, answer = tmp_path / "ready.json", Config({"BLOCK": 256}, num_warps=2)
    write_table(table, LookupTable().with_entry(scale_kernel.src, {"x": MILLION}, answer))
    kernel = pointwise(table=table, preset=INDUCTOR)
    call(kernel, MILLION - 5)
    assert backend.gpu.launches == 0
    assert (launches[0]["BLOCK"], launches[0]["num_warps"]) == (256, 2)
    assert len(kernel.candidates(*(torch.empty(1, device="cuda"),) * 2, 2 * MILLION, 2.0)) == 2


def test_winners_can_be_kept_in_a_table(backend: FakeBackend, launches: list[dict[str, Any]], tmp_path: Path) -> None:
    script(backend, *FASTER_512)
    kernel, table = pointwise(), tmp_path / "ready.json"
    call(kernel)
    assert kernel.save_table(table) == 1
    call(kernel, 2 * MILLION)
    assert kernel.save_table(table) == 2
    assert len(read_table(table).entries) == 2
    gpu, again = script(backend), pointwise(table=table)
    call(again, MILLION - 7)
    assert gpu.launches == 0
    assert (launches[-1]["BLOCK"], launches[-1]["num_warps"]) == (512, 8)


def test_a_table_s_answer_must_have_the_blocks(backend: FakeBackend, tmp_path: Path) -> None:
    table = tmp_path / "ready.json"
    write_table(table, LookupTable().with_entry(scale_kernel.src, {"x": MILLION}, Config({"XBLOCK": 256})))
    with pytest.raises(ConfigError, match=r"kernel scale_kernel: its entry in .*ready.json .* has no BLOCK"):
        call(pointwise(table=table))
    with pytest.raises(StoreError, match=r"none.json: the look-up table can't be read"):
        call(pointwise(table=tmp_path / "none.json"))


def test_backend_options_travel_among_the_keywords() -> None:
    config = Config({"BLOCK": 64}, num_warps=8, num_stages=1, maxnreg=128, options={"waves_per_eu": 2})
    made = tuners.triton_config(config)
    assert made.kwargs == {"BLOCK": 64, "waves_per_eu": 2}
    assert (made.num_warps, made.num_stages, made.num_ctas, made.maxnreg, made.pre_hook) == (8, 1, 1, 128, None)


# captured, and without a GPU


def test_inside_a_capture_it_offers_its_candidates(backend: FakeBackend) -> None:
    kernel, capture = pointwise(), Capture(backend, COMPILER)
    with capture.active():
        call(kernel)
    site = capture.launches[0].site
    assert site is not None
    assert [c.config.kwargs["BLOCK"] for c in site.candidates] == [1024, 512, 2048, 1024]
    assert capture.launches[0].grid == (1024, 1, 1)
    site.settle(1)
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 512}
    assert backend.gpu.launches == 0


def test_it_is_recorded_with_its_config(backend: FakeBackend) -> None:
    x = torch.empty(300, 1000, device="cuda")
    kernel = kerntune.persistent_reduction(sizes={"r0": "cols"}, blocks={"r0": "COLS"})(row_kernel)
    found = recorded(backend, lambda: kernel[(300,)](x, torch.empty(300, device="cuda"), 1000))
    launch = found.recording.launches[0]
    assert launch.config is not None
    assert launch.config.kwargs == {"COLS": 1024}
    assert launch.grid == (300, 1, 1)


def test_under_stand_ins_alone_the_first_candidate_is_launched(
    shared: FakeBackend, launches: list[dict[str, Any]]
) -> None:
    """A test of a project without a GPU may call such a kernel outside of ``autotune(...)`` too."""
    kernel = pointwise()
    call(kernel)
    call(kernel)
    assert [seen["BLOCK"] for seen in launches] == [1024, 1024]


def test_two_axes_and_their_grid(backend: FakeBackend) -> None:
    kernel = kerntune.pointwise(sizes={"x": "cols", "y": "rows"}, blocks={"x": "COLS", "y": "ROWS"})(sum_kernel)
    capture = captured(backend, lambda: kernel[Grid2D("cols", "rows", "COLS", "ROWS")](*matrix(512, 2048)))
    site = capture.launches[0].site
    assert site is not None
    blocks = site.candidates[0].config.kwargs
    assert capture.launches[0].grid == (2048 // blocks["COLS"], 512 // blocks["ROWS"], 1)


INTERPRETED = """
import torch, triton, triton.language as tl, kerntune

@kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})
@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

x = torch.arange(5000.0)
y = torch.empty_like(x)
double[kerntune.grids.Grid1D("n", "BLOCK")](x, y, 5000)
assert torch.equal(y, 2 * x)
assert double.best_config.kwargs == {"BLOCK": 256}
"""


@pytest.mark.slow
def test_in_triton_s_interpreter_the_first_candidate_runs() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    script_text = INTERPRETED.replace("import torch,", "import kerntune.grids, torch,")
    subprocess.run([sys.executable, "-c", script_text], check=True, env=environment, timeout=300)


def test_an_empty_list_is_tritons_default_config() -> None:
    ours, theirs = (module.autotune([], key=["n"])(scale_kernel) for module in (kerntune, triton))
    assert [str(c) for c in ours.configs] == [str(c) for c in theirs.configs]
    assert len(ours.configs) == 1


def test_lists_may_hold_our_own_configs() -> None:
    ours = kerntune.Config({"BLOCK": 64}, num_warps=2, options={"waves_per_eu": 1})
    tuner = kerntune.autotune([ours, triton.Config({"BLOCK": 128})], key=["n"])(scale_kernel)
    first, second = tuner.configs
    assert first.all_kwargs() == triton.Config({"BLOCK": 64, "waves_per_eu": 1}, num_warps=2).all_kwargs()
    assert (first.pre_hook, second.kwargs) == (None, {"BLOCK": 128})


# configs that are given


def test_a_template_has_its_one_config(this_gpu: FakeBackend, launches: list[dict[str, Any]]) -> None:
    gpu = script(this_gpu)
    kernel = kerntune.template({"BLOCK": 256, "num_warps": 8, "num_stages": None})(scale_kernel)
    call(kernel)
    assert (launches[-1]["BLOCK"], launches[-1]["num_warps"], gpu.launches) == (256, 8, 0)


def test_given_configs_are_tuned_for_the_values_of_their_key(this_gpu: FakeBackend) -> None:
    script(this_gpu, *FASTER_512)
    given = ({"BLOCK": 1024}, Config({"BLOCK": 512}, num_warps=8), {"BLOCK": 1024, "num_warps": 4})
    kernel = kerntune.template(*given, key=["n"])(scale_kernel)
    assert len(kernel.configs) == 2, "each once"
    call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 512}


def test_options_of_compilers_are_no_constexprs(this_gpu: FakeBackend, launches: list[dict[str, Any]]) -> None:
    flat = {"BLOCK": 64, "waves_per_eu": 2, "num_warps": 2}
    kernel = kerntune.template(flat, options={"enable_fp_fusion": False})(scale_kernel)
    assert kernel.configs[0].all_kwargs()["waves_per_eu"] == 2
    assert kernel.configs[0].all_kwargs()["enable_fp_fusion"] is False


def test_a_template_without_blocks_has_warps_and_stages(this_gpu: FakeBackend, launches: list[dict[str, Any]]) -> None:
    kernel = kerntune.template(num_warps=2, num_stages=1)(scale_kernel)
    x, y = (torch.empty(64, device="cuda") for _ in range(2))
    kernel[(1,)](x, y, 64, 2.0, BLOCK=64)
    assert (launches[-1]["num_warps"], launches[-1]["num_stages"]) == (2, 1)
    with pytest.raises(ConfigError, match="belong into each config"):
        kerntune.template({"BLOCK": 64}, num_warps=2)
    with pytest.raises(ConfigError, match="at least one warp"):
        kerntune.template(num_warps=-1)(scale_kernel)


@pytest.mark.parametrize(
    ("given", "words", "why"),
    [
        ([{"BLOCKS": 64}], {}, "kernel scale_kernel: a config gives BLOCKS, which is no parameter of it"),
        ([{"BLOCK": 64}, Config({"BLOCKS": 32})], {"key": ["n"]}, "a config gives BLOCKS"),
        ([{"BLOCK": 64}], {"options": {"fp_fusion": False}}, "the option fp_fusion, which no compiler of Triton has"),
    ],
)
def test_unknown_names_of_a_template_are_refused_where_it_is_written(
    given: list[Any], words: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        kerntune.template(*given, **words)(scale_kernel)


def test_what_is_no_config_of_a_template_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kerntune.template: 64 is no config; write a mapping of names to values"):
        kerntune.template({"BLOCK": 64}, 64)  # type: ignore[arg-type]
