"""Combos and foreach: tuned on the scripted GPU, chosen by time, right in Triton's interpreter and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from doubles import raising
from fake_runs import recorded, script

import kerntune
from kerntune import ComboPart
from kerntune.errors import ConfigError, KerntuneError
from kerntune.gpu.probe import has_cuda
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.combined import sequential_kernel
from kerntune.kernels.compat import tuners
from kerntune.kernels.source import source_hash
from kerntune.tuning.api import combo_kernel, combo_tuner
from kerntune.tuning.api.combo_tuner import ComboChoice
from kerntune.tuning.choices import call_copies, deciding

from .combo_parts import PARTS, SCALE, SUMS, TRANSPOSE, each, four, increment, other_scale, scale, scaled, worst


@pytest.fixture
def ratio(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What timing both ways says: the last number; 1 launch is twice as fast to begin with."""
    found = [0.5]

    def race_calls(gpu: Any, calls: Any, restore: Any, incumbent: None) -> tuple[int, dict[int, float]]:
        for call in calls.values():
            call()
        return 0, {0: 1.0, 1: found[-1]}

    monkeypatch.setattr(deciding, "race_calls", race_calls)
    return found


def two(n: int = 1 << 16, m: int = 1 << 10) -> list[tuple[Any, ...]]:
    x, y = torch.empty(n, device="cuda"), torch.empty(n, device="cuda")
    return [(x, y, n, 2.0), (x, y, m, 3.0)]


@pytest.mark.slow
def test_each_part_gets_its_own_block(this_gpu: FakeBackend, ratio: list[float]) -> None:
    rules = [Rule(constexprs={"XBLOCK_0": a, "XBLOCK_1": b}, time_ns=900.0 + (a != 512) * 300 + (b != 256) * 200)
             for a in (256, 512, 1024) for b in (128, 256, 512, 1024)]  # fmt: skip
    script(this_gpu, *rules)
    kernel = kerntune.combo([SCALE, SCALE])
    kernel(*two())
    assert kernel.tuner.best_config.kwargs == {"XBLOCK_0": 512, "XBLOCK_1": 256}


def test_a_part_given_twice_is_tuned_once_by_itself(this_gpu: FakeBackend, ratio: list[float]) -> None:
    kernel = kerntune.combo([SCALE, SUMS, SCALE])
    tuners = [tuner for tuner, _ in kernel.apart]
    assert tuners[0] is tuners[2] is not tuners[1]


@pytest.mark.filterwarnings("ignore:.*has no stored winner")
def test_options_that_say_whether_to_tune_hold_for_the_parts_too(this_gpu: FakeBackend, ratio: list[float]) -> None:
    gpu = script(this_gpu)
    kerntune.combo([SCALE, SCALE], tune="nearest")(*two())
    assert gpu.launches == 0


@pytest.mark.slow
def test_a_winner_is_found_again(this_gpu: FakeBackend, ratio: list[float]) -> None:
    script(this_gpu)
    kerntune.combo([SCALE, SUMS])(two()[0], four()[0][2])
    gpu = script(this_gpu)
    again = kerntune.combo([SCALE, SUMS])
    again.tuner[again.grid](*two()[0], *four()[0][2])
    assert gpu.launches == 0


@pytest.mark.slow
def test_one_launch_where_it_pays_else_one_by_one(
    this_gpu: FakeBackend, launches: list[dict[str, Any]], ratio: list[float]
) -> None:
    kernel, given = kerntune.combo([SCALE, SCALE]), two()
    kernel(*given)
    before = len(launches)
    kernel(*given)
    assert len(launches) - before == 1
    (choice,) = kernel.choices.values()
    assert choice == ComboChoice(together=True, ratio=0.5)
    ratio.append(0.98)
    kernel(*(given := two(1 << 20)))
    before = len(launches)
    kernel(*given)
    assert len(launches) - before == 2
    assert [c.together for c in kernel.choices.values()] == [True, False]


@pytest.mark.slow
def test_whether_one_launch_pays_is_asked_again_on_another_model_of_gpu(
    this_gpu: FakeBackend, ratio: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, many = kerntune.combo([SCALE, SCALE]), each()
    kernel(*two())
    many(*scaled("cuda", (100, 200)), 3.0)
    monkeypatch.setattr(tuners, "kind_of_gpu", lambda: ("Other GPU",))
    ratio.append(0.99)
    kernel(*two())
    many(*scaled("cuda", (100, 200)), 3.0)
    assert [c.together for c in kernel.choices.values()] == [True, False]
    assert [c.together for c in many.choices.values()] == [True, False]


@pytest.mark.slow
def test_what_the_call_holds_stays_as_it_is(this_gpu: FakeBackend, launches: list[dict[str, Any]], ratio: Any) -> None:
    """Timing runs a kernel that works in place many times: on copies."""
    kernel = kerntune.combo([ComboPart(increment, {"x": "n"}, {"x": "BLOCK"})] * 2)
    x = torch.zeros(1000, device="cuda")
    kernel((x, 1000), (x, 500))
    assert [call["x_ptr_0"] is x for call in launches if "x_ptr_0" in call].count(True) <= 1


def test_without_memory_for_copies_it_is_one_launch(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_copies, "CallCopies", raising(torch.OutOfMemoryError("CUDA out of memory")))
    assert combo_tuner.choose(print, print, []) == ComboChoice(together=True)


def test_a_kernel_is_known_by_its_parts() -> None:
    """Its own text is the same for all parts with the same parameters: theirs count."""
    codes = [ComboPart(fn, {"x": "n"}, {"x": "BLOCK"}).code for fn in (scale, other_scale, scale)]
    hashes = [source_hash(sequential_kernel("both", [code, code])) for code in codes]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"sizes": {"x": "m"}}, "axis x is to be argument 'm'"),
        ({"blocks": {"x": "YBLOCK"}}, "it has no argument YBLOCK"),
        ({"blocks": {"q": "BLOCK"}}, "is of axis 'q'"),
        ({"reduced": {"z_ptr": 1}}, "it has no argument z_ptr"),
        ({"hints": {"nope": 1}}, "unknown field `nope`"),
    ],
)
def test_unknown_names_are_refused_where_the_part_is_written(words: dict[str, Any], why: str) -> None:
    with pytest.raises(KerntuneError, match=why):
        ComboPart(scale, **{"sizes": {"x": "n"}, "blocks": {"x": "BLOCK"}, **words})


def test_foreach_refuses_unknown_options_at_once() -> None:
    with pytest.raises(TypeError, match="nope"):
        each(nope=1)


def test_a_capture_has_one_launch(backend: FakeBackend) -> None:
    kernel = kerntune.combo([SCALE, SCALE])
    given = two()
    found = recorded(backend, lambda: kernel(*given))
    assert [launch.kernel for launch in found.recording.launches] == ["combo_scale"]
    assert not any(choice.ratio for choice in kernel.choices.values())


def test_blocks_in_turn_share_one_block(this_gpu: FakeBackend, ratio: list[float]) -> None:
    kernel = kerntune.combo([SCALE, SCALE], order="round robin")
    kernel(*two())
    assert set(kernel.tuner.best_config.kwargs) == {"XBLOCK"}
    with pytest.raises(ConfigError, match="transpose has an axis y"):
        kerntune.combo([SCALE, TRANSPOSE], order="round robin")


@pytest.mark.slow
def test_a_descent_goes_on_after_the_groups(this_gpu: FakeBackend, ratio: list[float]) -> None:
    blocks = (64, 128, 256, 512, 1024)
    script(this_gpu, *(Rule(constexprs={"XBLOCK_1": b}, time_ns=1000.0 + b) for b in blocks))
    kernel = kerntune.combo([SCALE, SUMS, SCALE], descend=20)
    given = two()
    kernel(given[0], four()[0][2], given[1])
    assert kernel.tuner.cache


def test_what_is_no_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="no parts"):
        kerntune.combo([])
    with pytest.raises(ConfigError, match=r"kerntune.combo: part 1 is 3; write ComboPart\(kernel, sizes, blocks\)"):
        kerntune.combo([SCALE, 3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="order is 'random'"):
        kerntune.combo([SCALE], order="random")
    with pytest.raises(ConfigError, match="is no Triton function"):
        ComboPart(len, {"x": "n"}, {"x": "BLOCK"})
    with pytest.raises(ConfigError, match="kind is 'scan'"):
        ComboPart(scale, {"x": "n"}, {"x": "BLOCK"}, kind="scan")
    with pytest.raises(ConfigError, match="can't have the axis z"):
        ComboPart(scale, {"z": "n"}, {"z": "BLOCK"})
    tuned = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(scale)
    with pytest.raises(ConfigError, match="a part has no tuner of its own"):
        ComboPart(tuned, {"x": "n"}, {"x": "BLOCK"})


# foreach


@pytest.mark.slow
def test_lists_go_in_as_few_launches_as_parameters_allow(
    this_gpu: FakeBackend, launches: list[dict[str, Any]], ratio: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = each()
    most = 64
    assert kernel.at_once([True, True, True, False]) == (most - 2) // 3 == 20
    xs, ys, ns = scaled("cuda", [4096] * 8)
    monkeypatch.setattr(combo_kernel, "MAX_PARAMETERS", 14)
    kernel(xs, ys, ns, 2.0)
    before = len(launches)
    kernel(xs, ys, ns, 3.0)
    assert len(launches) - before == 2
    ratio.append(1.5)
    kernel(xs[:7], ys[:7], ns[:7], 2.0)
    before = len(launches)
    kernel(xs[:7], ys[:7], ns[:7], 2.0)
    assert len(launches) - before == 7


@pytest.mark.slow
def test_the_warps_of_a_list_are_tuned(this_gpu: FakeBackend, ratio: list[float]) -> None:
    script(this_gpu, *(Rule(num_warps=w, time_ns=1000.0 + 500 * abs(w - 2)) for w in (1, 2, 4, 8)))
    kernel = each(elements=512)
    xs, ys, ns = scaled("cuda", [4096] * 6)
    kernel(xs, ys, ns, 2.0)
    tuner, _ = kernel.tuner_of(6, [True, True, True, False])
    assert (tuner.best_config.num_warps, tuner.best_config.kwargs) == (2, {"XBLOCK": 512})


def test_empty_lists_do_nothing(launches: list[dict[str, Any]]) -> None:
    each()([], [], [], 1.0)
    assert not launches


EXAMPLE = Path(__file__).parents[3] / "examples/several_in_one.py"


@pytest.mark.slow
def test_combos_cooperative_reductions_and_the_example_are_right_in_tritons_interpreter() -> None:
    """In one process: most of its time goes to imports."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    lines = (
        "import runpy, sys",
        f"sys.path[:0] = [{folder!r}]",
        "from tuning.api.combo_parts import *",
        "all_interpreted()",
        "import tuning.api.test_cooperative_tuner as cooperative",
        "cooperative.interpreted()",
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')",
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, check=True, env=environment, timeout=300, stdout=subprocess.PIPE)
    assert b"decay_and_sums: one launch, unmeasured" in done.stdout


# on a GPU

on_gpu = pytest.mark.skipif(not has_cuda(), reason="needs a CUDA GPU")


@pytest.mark.gpu
@on_gpu
@pytest.mark.filterwarnings("ignore:.*has no stored winner")
@pytest.mark.parametrize(("n", "tune"), [(1000, "auto"), (100_000, "nearest")])
@pytest.mark.parametrize("order", ["sequential", "round robin"])
def test_on_a_gpu_both_ways_are_right(
    order: str, n: int, tune: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Tuned, and with the first configs, which takes no tuning of five kernels."""
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    used = [i for i in range(4) if order == "sequential" or i != 1]
    kernel = kerntune.combo([PARTS[i] for i in used], order=order, tune=tune)
    for way in (None, True, False):
        given, errors = four("cuda", n)
        if way is not None:
            kernel.choices = dict.fromkeys(kernel.choices, ComboChoice(together=way))
        kernel(*(given[i] for i in used))
        assert worst([errors[i] for i in used]) < 1e-3, (way, kernel.choices)


@pytest.mark.gpu
@on_gpu
def test_on_a_gpu_in_place_parts_run_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    kernel = kerntune.combo([ComboPart(increment, {"x": "n"}, {"x": "BLOCK"})] * 2, cache_results=False)
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(77, device="cuda")
    for _ in range(3):
        kernel((x, 1000), (y, 77))
    assert (x == 3).all()
    assert (y == 3).all()


@pytest.mark.gpu
@on_gpu
def test_on_a_gpu_lists_are_right_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path))
    kernel = each(cache_results=False)
    xs, ys, ns = scaled("cuda", [(i * 977) % 40_000 + 1 for i in range(45)])
    for way in (None, True, False):
        if way is not None:
            kernel.choices = dict.fromkeys(kernel.choices, ComboChoice(together=way))
        kernel(xs, ys, ns, 3.0)
        assert all(torch.equal(y, 3 * x) for x, y in zip(xs, ys, strict=True)), way
        for y in ys:
            y.zero_()


@pytest.mark.gpu
@on_gpu
def test_on_a_gpu_the_example_is_right(tmp_path: Path) -> None:
    environment = {**os.environ, "KERNTUNE_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, EXAMPLE], check=True, env=environment, timeout=300)
