"""Inductor's choices by timing: those of a baseline are taken again, whatever is faster today."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl
from torch_warnings import ignore_torchs_own

from kerntune.base.config import Config
from kerntune.capture.inductor.baseline_choices import BaselineChoices, InductorChoices
from kerntune.kernels.compat import inductor_parts
from kerntune.kernels.compat.inductor_parts import INDUCTOR, InductorPart
from kerntune.kernels.source import source_hash

pytestmark = ignore_torchs_own


@triton.jit
def triton_poi_fused_cos(x, n, XBLOCK: tl.constexpr):
    i = tl.arange(0, XBLOCK)
    tl.store(x + i, tl.cos(i.to(tl.float32)), i < n)


KEY = ("triton_poi_fused_cos", source_hash(triton_poi_fused_cos))


def ours(block: int, warps: int = 4) -> Config:
    return Config({"XBLOCK": block}, num_warps=warps, num_stages=1)


def theirs(block: int, warps: int = 4) -> Any:
    return triton.Config({"XBLOCK": block}, num_warps=warps, num_stages=1)


class Tuner:
    """As Inductor's: its timing prefers the last config of its list, or ``fastest``."""

    def __init__(self, *configs: Any, state: str = "miss", search: bool = False) -> None:
        self.fn = triton_poi_fused_cos
        self.launchers = [SimpleNamespace(config=c) for c in configs]
        self.inductor_meta = {"coordinate_descent_tuning": search}
        self.autotune_cache_info = {"autotune_cache_state": state}
        self.timed = 0

    def autotune_to_one_config(self, *args: Any, **kwargs: Any) -> None:
        self.timed += 1
        self.launchers = self.launchers[-1:]

    def _precompile_config(self, cfg: Any) -> Any:
        return SimpleNamespace(make_launcher=lambda: SimpleNamespace(config=cfg, compiled=True))


@contextlib.contextmanager
def choices_with(known: BaselineChoices, recorded: bool = False) -> Iterator[InductorChoices]:
    choices = InductorChoices(lambda: known, recorded=recorded)
    with contextlib.ExitStack() as stack:
        choices.install(stack)
        yield choices


def settled(tuner: Tuner, *configs: Config) -> tuple[Config, InductorChoices]:
    """The config that a launch has where a baseline has these for its kernel."""
    with choices_with(BaselineChoices({KEY: configs} if configs else {})) as choices:
        choices.follow(tuner, tuner.fn)
        found = inductor_parts.settled_config(tuner, (), {})
    return ours(found.kwargs["XBLOCK"], found.num_warps), choices


@pytest.mark.slow
def test_the_baselines_config_is_taken_without_timing() -> None:
    tuner = Tuner(theirs(1024), theirs(512, 8))
    assert settled(tuner, ours(1024))[0] == ours(1024)
    assert tuner.timed == 0


def test_without_a_baseline_inductor_times_its_configs() -> None:
    tuner = Tuner(theirs(1024), theirs(512, 8))
    found, choices = settled(tuner)
    assert (found, tuner.timed, choices.anew) == (ours(512, 8), 1, [])


def test_a_config_that_inductor_no_longer_lists_is_chosen_anew_and_said() -> None:
    tuner = Tuner(theirs(1024), theirs(512, 8))
    found, choices = settled(tuner, ours(64))
    assert (found, tuner.timed) == (ours(512, 8), 1)
    assert choices.anew == [
        "Inductor can't choose the baseline's config of triton_poi_fused_cos (XBLOCK=64 num_warps=4 num_stages=1) any "
        "more: it has chosen anew"
    ]


def test_another_code_of_the_same_name_is_timed() -> None:
    tuner = Tuner(theirs(1024), theirs(512, 8))
    known = BaselineChoices({(KEY[0], "other source"): [ours(1024)]})
    with choices_with(known) as choices:
        choices.follow(tuner, tuner.fn)
        inductor_parts.settled_config(tuner, (), {})
    assert (tuner.timed, choices.anew) == (1, [])


@pytest.mark.parametrize("kind", ["cached", "searched", "chosen before"])
def test_what_a_tuner_has_chosen_before_gives_way(kind: str) -> None:
    """A cache of before the baseline was updated, another case of the same kernel, a config that a search found."""
    tuner = Tuner(theirs(512, 8), state="hit" if kind == "cached" else "miss", search=kind == "searched")
    if kind == "chosen before":
        tuner.launchers = [SimpleNamespace(config=theirs(1024)), *tuner.launchers]
        assert settled(tuner)[0] == ours(512, 8)
    tuner._cached_launcher = tuner.launchers[0]  # torch 2.13 would launch it without a look
    found, choices = settled(tuner, ours(1024))
    assert (found, choices.anew, tuner._cached_launcher) == (ours(1024), [], None)
    assert tuner.launchers[0].compiled
    assert tuner.launchers[0].config.found_by_coordesc, "Inductor would search on from it"


def test_a_config_that_cant_be_compiled_leaves_inductors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Tuner, cfg: Any) -> Any:
        raise RuntimeError("no such tile")

    monkeypatch.setattr(Tuner, "_precompile_config", refuse)
    found, choices = settled(Tuner(theirs(512, 8), state="hit"), ours(1024))
    assert found == ours(512, 8)
    assert len(choices.anew) == 1


def test_parameters_with_other_names_are_no_config_of_the_kernel() -> None:
    found, choices = settled(Tuner(theirs(512, 8), state="hit"), Config({"YBLOCK": 4}))
    assert found == ours(512, 8)
    assert len(choices.anew) == 1


def test_launches_of_one_code_have_their_configs_in_order() -> None:
    first, second = (Tuner(theirs(1024), theirs(512)) for _ in range(2))
    with choices_with(BaselineChoices({KEY: [ours(512), ours(1024)]})) as choices:
        for tuner in (first, second):
            choices.follow(tuner, tuner.fn)
    assert [t.launchers[0].config.kwargs["XBLOCK"] for t in (first, second)] == [512, 1024]


# times


class Choice:
    """A template of max-autotune, or a library's kernel."""

    def __init__(self, name: str) -> None:
        self.name = name

    def hash_key(self) -> str:
        return self.name


def looked_up(times: dict[str, float]) -> dict[str, float]:
    """What Inductor's own lookup gives, with an empty cache, where candidates would take these times."""
    from torch._inductor import config
    from torch._inductor.codecache import PersistentCache

    def benchmark(candidates: Any) -> dict[Any, float]:
        return {c: times[c.name] for c in candidates}

    candidates = [Choice(name) for name in times]
    with config.patch(autotune_local_cache=False):
        cache = PersistentCache.__new__(PersistentCache)
        cache.update_local_cache = lambda cache: None  # type: ignore[method-assign]
        found = cache.lookup(candidates, "mm", "shapes", benchmark, hint_override=None)
    return {choice.name: ms for choice, ms in found.items()}


def test_the_baselines_times_decide_among_templates() -> None:
    """Today's, which prefer another one, aren't even taken."""
    with choices_with(BaselineChoices()) as then:
        assert looked_up({"tem_0": 1.0, "tem_1": 2.0, "broken": math.inf})["tem_0"] == 1.0
    with choices_with(BaselineChoices(times=then.times)) as today:
        found = looked_up({"tem_0": 5.0, "tem_1": 2.0, "broken": 1.0})
    assert found == {"tem_0": 1.0, "tem_1": 2.0, "broken": math.inf}
    assert (today.times, today.anew) == (then.times, [])


def test_times_of_another_precision_of_matrix_products_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same candidates for the same shapes compute with TF32 or without."""
    with choices_with(BaselineChoices()) as then:
        looked_up({"tem_0": 1.0, "tem_1": 2.0})
    monkeypatch.setattr(inductor_parts, "matmul_precision", lambda: "another")
    with choices_with(BaselineChoices(times=then.times)) as today:
        assert looked_up({"tem_0": 5.0, "tem_1": 2.0}) == {"tem_0": 5.0, "tem_1": 2.0}
    assert today.anew == ["Inductor has timed the candidates for mm anew: the baseline has no times of them all"]


def test_another_candidate_has_all_of_them_timed_and_said() -> None:
    with choices_with(BaselineChoices()) as then:
        looked_up({"tem_0": 1.0, "tem_1": 2.0})
    with choices_with(BaselineChoices(times=then.times)) as today:
        assert looked_up({"tem_0": 5.0, "tem_2": 2.0}) == {"tem_0": 5.0, "tem_2": 2.0}
    assert today.anew == ["Inductor has timed the candidates for mm anew: the baseline has no times of them all"]


def test_nothing_is_compiled_to_be_timed_where_all_times_are_known() -> None:
    """Inductor asks without a benchmark first, and compiles all candidates if some time is missing."""
    from torch._inductor import config
    from torch._inductor.codecache import PersistentCache

    candidates = [Choice("tem_0"), Choice("tem_1")]
    cache = PersistentCache.__new__(PersistentCache)
    with config.patch(autotune_local_cache=False):
        with choices_with(BaselineChoices()) as then:
            assert cache.lookup(candidates, "mm", "shapes", benchmark=None) == {}
            looked_up({"tem_0": 1.0, "tem_1": 2.0})
        with choices_with(BaselineChoices(times=then.times)) as today:
            found = cache.lookup(candidates, "mm", "shapes", benchmark=None)
            assert list(found.values()) == [1.0, 2.0]
            assert cache.lookup([*candidates, Choice("tem_2")], "mm", "shapes", benchmark=None) == {}
    assert today.anew == []


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A fused kernel's module; ``ms`` is its time today."""
    from torch._inductor.codegen.triton import TritonScheduling

    made = SimpleNamespace(__file__="/cache/ab/cab12.py", ms=3.0)
    monkeypatch.setattr(
        TritonScheduling, "benchmark_codegened_module", lambda self, mod, n_spills_threshold=8: (mod.ms, mod.__file__)
    )
    return made


def time_of(mod: Any) -> Any:
    from torch._inductor.codegen.triton import TritonScheduling

    return TritonScheduling.benchmark_codegened_module(None, mod)


def test_the_baselines_times_decide_what_is_fused(fused: SimpleNamespace) -> None:
    with choices_with(BaselineChoices()) as then:
        assert time_of(fused) == (3.0, fused.__file__)
    fused.ms, fused.__file__ = 7.0, "/another/cache/ab/cab12.py"
    with choices_with(BaselineChoices(times=then.times)) as today:
        assert time_of(fused) == (3.0, fused.__file__)
    assert today.times == then.times
    with choices_with(BaselineChoices(times={"another": 1.0})) as later:
        assert time_of(fused) == (7.0, fused.__file__)
    assert len(later.anew) == 1


@pytest.fixture
def combined(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A combo kernel's times today: its own, and that of the copies of its arguments."""
    from torch._inductor.codegen.triton import TritonScheduling

    times = [4.0, 0.5]
    monkeypatch.setattr(
        TritonScheduling,
        "benchmark_combo_kernel",
        lambda self, node_list, node_benchmark_results: (times[0], times[1], ["file"]),
    )
    return times


def time_of_combo(*modules: str) -> Any:
    from torch._inductor.codegen.triton import TritonScheduling

    nodes = list(range(len(modules)))
    alone = {node: (1.0, f"/cache/ab/{module}.py") for node, module in zip(nodes, modules, strict=True)}
    return TritonScheduling.benchmark_combo_kernel(None, nodes, alone)[:2]


def test_the_baselines_times_decide_on_combo_kernels(combined: list[float]) -> None:
    with choices_with(BaselineChoices()) as then:
        assert time_of_combo("cab1", "cab2") == (4.0, 0.5)
    combined[:] = [9.0, 1.0]
    with choices_with(BaselineChoices(times=then.times)) as today:
        assert time_of_combo("cab1", "cab2") == (4.0, 0.5)
        assert (today.times, today.anew) == (then.times, [])
        assert time_of_combo("cab1", "cab3") == (9.0, 1.0)
    assert today.anew == ["Inductor has timed combo kernels anew: the baseline has no times"]


@triton.jit
def triton_red_fused_cos_7(x, n, XBLOCK: tl.constexpr):
    tl.store(x, n)


class Timed:
    """As a kernel of multi_kernel's, which notes its launches."""

    def __init__(self, kernel: Any, launched: list[str]) -> None:
        self.fn, self.size_hints, self.launched = kernel, {"x": 1024}, launched
        self.inductor_meta = {"kernel_name": kernel.fn.__name__}
        self.device_props = SimpleNamespace(type="cuda")

    def run(self, *args: Any, **kwargs: Any) -> None:
        self.launched.append(self.inductor_meta["kernel_name"])


def launched_of(
    ms: list[float], monkeypatch: pytest.MonkeyPatch, picked: int | None = None, forced: int | None = None
) -> list[str]:
    """What a call of multi_kernel's launches where its kernels would take these times, and how often it asks for them;
    ``picked`` is what an earlier process has left in Inductor's cache, ``forced`` what a setting has taken."""
    from torch._inductor.codegen.multi_kernel import MultiKernelCall
    from torch._inductor.runtime.benchmarking import benchmarker

    launched: list[str] = []
    waiting = list(ms)

    def benchmark(call: Any, *args: Any, **kwargs: Any) -> float:
        launched.append("timed")
        return waiting.pop(0)

    monkeypatch.setattr(benchmarker, "benchmark", benchmark)
    call = MultiKernelCall.__new__(MultiKernelCall)
    call._kernels = [Timed(kernel, launched) for kernel in (triton_poi_fused_cos, triton_red_fused_cos_7)]
    call.multi_kernel_name, call.arg_index, call.picked_kernel = "multi", [[slice(0, 1)]] * 2, forced
    call.disable_cache, call._recorded = True, True
    file = SimpleNamespace(exists=lambda: picked is not None, open=lambda: io.StringIO(str(picked)))
    monkeypatch.setattr(MultiKernelCall, "cache_file_path", lambda self: file)
    if forced is None:
        call.load_cache()
    for _ in range(2):
        call.run(object(), stream=0)
    return launched


def test_the_baselines_times_decide_which_of_several_kernels_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = "triton_poi_fused_cos", "triton_red_fused_cos_7"
    with choices_with(BaselineChoices()) as then:
        assert launched_of([2.0, 1.0], monkeypatch) == ["timed", "timed", second, second]
    known = BaselineChoices(times=then.times)
    with choices_with(known) as today:
        assert launched_of([1.0, 2.0], monkeypatch) == [second, second]
        assert launched_of([1.0, 2.0], monkeypatch, picked=0) == [second, second], "whatever Inductor's cache has"
    assert (today.times, today.anew) == (then.times, [])
    with choices_with(BaselineChoices(times={"another": 1.0})) as later:
        assert launched_of([1.0, 2.0], monkeypatch, picked=1) == [second, second], "what its cache has"
        assert launched_of([1.0, 2.0], monkeypatch) == ["timed", "timed", first, first]
    assert later.anew == ["Inductor has timed the kernels of multi_kernel anew: the baseline has no times"]


def test_a_first_recording_has_the_times_of_what_inductor_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    with choices_with(BaselineChoices()) as then:
        launched_of([2.0, 1.0], monkeypatch, picked=0)
    assert sorted(filter(None, then.times.values())) == [1.0, 2.0]


def test_a_baseline_that_is_made_of_the_call_has_the_times_of_what_inductor_knew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cache has what an earlier run of changed code has chosen, without the times."""
    with choices_with(BaselineChoices(times={"another": 1.0}), recorded=True) as later:
        second = "triton_red_fused_cos_7"
        assert launched_of([2.0, 1.0], monkeypatch, picked=0) == ["timed", "timed", second, second]
        assert padded(monkeypatch, 4.0, 3.0, kept=False) is True
    assert sorted(filter(None, later.times.values())) == [1.0, 2.0, 3.0, 4.0]
    assert len(later.anew) == 2


def test_a_kernel_that_a_setting_takes_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    with choices_with(BaselineChoices()) as then:
        assert launched_of([2.0, 1.0], monkeypatch, forced=0) == ["triton_poi_fused_cos"] * 2
    assert then.times == {}


def padded(monkeypatch: pytest.MonkeyPatch, plain: float, with_padding: float, kept: bool | None = None) -> Any:
    """Whether Inductor pads a matrix product that takes these times; ``kept`` is what its cache has."""
    from torch._inductor.fx_passes import pad_mm

    cache = SimpleNamespace(lookup=lambda key: kept, set_value=lambda key, value: None)
    monkeypatch.setattr(pad_mm, "get_pad_cache", lambda: cache)
    known = pad_mm.get_cached_should_pad("mm 1000x1001")
    return pad_mm.is_padded_faster("mm 1000x1001", plain, with_padding) if known is None else known


def test_the_baselines_times_decide_on_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    with choices_with(BaselineChoices()) as then:
        assert padded(monkeypatch, 3.0, 1.0) is True
        assert padded(monkeypatch, 3.0, 1.0, kept=False) is True, "a recording has times"
    with choices_with(BaselineChoices(times=then.times)) as today:
        assert padded(monkeypatch, 1.0, 3.0) is True
    assert (today.times, today.anew) == (then.times, [])
    with choices_with(BaselineChoices(times={"another": 1.0})) as later:
        assert padded(monkeypatch, 1.0, 3.0, kept=True) is True
        assert padded(monkeypatch, 1.0, 3.0) is False
    assert later.anew == ["Inductor has timed the padding of a matrix product anew: the baseline has no times"]


def test_a_part_that_torch_has_moved_leaves_the_choice_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("candidate_times", "fused_time"):
        monkeypatch.setitem(INDUCTOR, word, InductorPart("torch._inductor.nowhere", word, "", optional=True))
    with choices_with(BaselineChoices(times={"x": 1.0})) as choices:
        assert looked_up({"tem_0": 5.0}) == {"tem_0": 5.0}
    assert choices.times == {}


def test_graphs_are_generated_anew_meanwhile() -> None:
    """One that is kept contains the choices of its time."""
    from torch._inductor import config

    with config.patch(fx_graph_cache=True):
        with choices_with(BaselineChoices()):
            assert not config.fx_graph_cache
        assert config.fx_graph_cache
