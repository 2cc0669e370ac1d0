"""A second run with empty caches takes what Inductor chose when the baseline was recorded, whatever is faster today."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N
from samples import ARGUMENTS, CASE, H100, artifacts_of, time_baseline
from torch_warnings import ignore_torchs_own

from gate.project import NODE, Project, Run
from kerntune.base.config import Config
from kerntune.base.policy import Update, Verdict
from kerntune.capture import current
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.call import Call
from kerntune.gate.gpu_capture import choices_of, known_baseline
from kerntune.gpu.cuda import before_compiled
from kerntune.gpu.fake_cuda import StandIns
from kerntune.gpu.script import Rule
from kerntune.kernels.compat import inductor_parts
from kerntune.kernels.compat.inductor_parts import InductorCompilation

pytestmark = ignore_torchs_own

FAST, SLOW = Rule(constexprs={"XBLOCK": 1024}, time_ns=3_000.0), Rule(constexprs={"XBLOCK": 512}, time_ns=4_000.0)


@triton.jit
def triton_poi_fused_sigmoid_0(x_ptr, y_ptr, n, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(y_ptr + i, tl.sigmoid(tl.load(x_ptr + i, i < n)), i < n)


class Tuner:
    """As Inductor's of a kernel with two configs: its timing prefers ``block``."""

    def __init__(self, block: int) -> None:
        self.fn, self.custom_kernel, self.block = triton_poi_fused_sigmoid_0, False, block
        self.inductor_meta = {"kernel_name": "triton_poi_fused_sigmoid_0"}
        self.device_props = SimpleNamespace(type="cuda")
        self.configs = [triton.Config({"XBLOCK": n}, num_warps=4, num_stages=1) for n in (1024, 512)]
        self.launchers = [SimpleNamespace(config=config) for config in self.configs]

    def autotune_to_one_config(self, *args: Any, **kwargs: Any) -> None:
        self.launchers = [x for x in self.launchers if x.config.kwargs["XBLOCK"] == self.block]


@pytest.fixture(autouse=True)
def inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's own launches do nothing, and a capture on the scripted GPU watches them as on a real one."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def compilation(tuner: Any, config: Any) -> InductorCompilation:
        signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "XBLOCK": "constexpr"}
        return InductorCompilation(tuner.fn, signature, {(3,): config.kwargs["XBLOCK"]}, {}, {"num_warps": 4})

    monkeypatch.setattr(CachingAutotuner, "run", lambda self, *args, stream=None, **kwargs: None)
    monkeypatch.setattr(inductor_parts, "inductor_is_used", lambda: True)
    monkeypatch.setattr(inductor_parts, "inductor_compilation", compilation)
    monkeypatch.setattr(
        inductor_parts, "inductor_grid", lambda tuner, args, config: (args, (N // config.kwargs["XBLOCK"], 1, 1))
    )
    monkeypatch.setattr(StandIns, "compiling", lambda self, begin: before_compiled(begin))


def compiled(x: torch.Tensor, block: int = 1024, time: Callable[[], Any] = lambda: None) -> torch.Tensor:
    """A compiled function: what it does while it is compiled, and its launch."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    time()
    y = torch.empty_like(x)
    CachingAutotuner.run(Tuner(block), x, y, N, stream=0)
    return y


def judged(run: Run, block: int, node: str = NODE, **options: Any) -> Any:
    return run.judge(functools.partial(compiled, block=block, **options), torch.randn(N, device="cuda"), node=node)


@pytest.mark.slow
def test_a_run_with_other_times_passes_by_the_baselines_config(project: Project) -> None:
    with project.run(FAST, SLOW) as run:
        assert judged(run, 1024).verdict is Verdict.NEW
    with project.run(FAST, SLOW) as run:
        result = judged(run, 512)
    assert (result.verdict, result.rung) == (Verdict.PASS, "identity")


@pytest.mark.parametrize(("renamed", "chosen"), [(True, 1024), (False, 512)], ids=["a renamed test", "a new test"])
def test_a_test_has_the_choices_of_its_old_name_and_of_no_other(project: Project, renamed: bool, chosen: int) -> None:
    """Else it would not even be recognised, where another choice launches other kernels."""
    with project.run(FAST, SLOW) as run:
        judged(run, 1024)
    with project.run(FAST, SLOW) as run:
        run.session.tests_gone(lambda nodeid: renamed and nodeid == NODE)
        result = judged(run, 512, node=f"{NODE}_another")
    assert (f"renamed from {NODE}?" in result.message) == renamed
    assert [launch.config.kwargs for launch in result.launches] == [{"XBLOCK": chosen}]


def test_a_config_that_is_gone_is_chosen_anew_and_the_message_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.run(FAST, SLOW) as run:
        judged(run, 1024)
    only = [triton.Config({"XBLOCK": n}, num_warps=4, num_stages=1) for n in (512, 256)]
    made = Tuner.__init__

    def other(self: Tuner, block: int) -> None:
        made(self, block)
        self.launchers = [SimpleNamespace(config=config) for config in only]

    monkeypatch.setattr(Tuner, "__init__", other)
    with project.run(FAST, SLOW) as run:
        result = judged(run, 512)
    assert result.verdict is Verdict.REGRESSED
    assert "config of triton_poi_fused_sigmoid changed: XBLOCK 1024 -> 512" in result.message
    assert "Inductor can't choose the baseline's config of triton_poi_fused_sigmoid (XBLOCK=1024 " in result.message


def test_an_update_of_all_records_what_is_chosen_then(project: Project) -> None:
    with project.run(FAST, SLOW) as run:
        judged(run, 1024)
    with project.run(FAST, SLOW, update=Update.ALL) as run:
        judged(run, 512)
    (path,) = project.files()
    recorded = BaselineStore(project.baselines).read(path)
    assert recorded is not None
    assert recorded.recording.launches[0].config == Config({"XBLOCK": 512}, num_warps=4, num_stages=1)
    with project.run(FAST, SLOW) as run:
        assert judged(run, 1024).verdict is Verdict.PASS


def test_times_of_templates_and_fusions_are_kept_with_the_baseline(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.codegen.triton import TritonScheduling

    ms, told = [1.5], []
    monkeypatch.setattr(TritonScheduling, "benchmark_codegened_module", lambda self, mod: (ms[0], mod.__file__))

    def time() -> None:
        told.append(TritonScheduling.benchmark_codegened_module(None, SimpleNamespace(__file__="/a/ab/cab.py"))[0])

    with project.run(FAST) as run:
        judged(run, 1024, time=time)
    ms[0] = 9.0
    with project.run(FAST) as run:
        judged(run, 1024, time=time)
    assert told == [1.5, 1.5]


def stored(tmp_path: Path, times: Any) -> BaselineStore:
    store = BaselineStore(tmp_path / "baselines")
    store.put(msgspec.structs.replace(time_baseline(), inductor_times=times), artifacts_of())
    return store


CALL = Call(CASE.nodeid, CASE.call, lambda: None)


@pytest.mark.parametrize("arguments", [ARGUMENTS, ()])
def test_a_baseline_without_times_has_configs(tmp_path: Path, arguments: Any) -> None:
    """So had those of earlier versions. A call without tensors of its own is found if there is one baseline."""
    known = choices_of(known_baseline(stored(tmp_path, msgspec.UNSET), H100, CALL.case, arguments, Update.NONE))
    assert dict(known.configs) == {("add_kernel", "source"): [Config({"BLOCK": 128})]}
    assert dict(known.times) == {}


def test_a_candidate_that_cant_run_is_stored(tmp_path: Path) -> None:
    store = stored(tmp_path, {"a": 0.25, "b": None})
    known = choices_of(known_baseline(store, H100, CALL.case, ARGUMENTS, Update.NONE))
    assert dict(known.times) == {"a": 0.25, "b": None}


def test_a_damaged_baseline_leaves_the_choice_to_inductor(tmp_path: Path) -> None:
    """The case's check says that it is damaged."""
    store = stored(tmp_path, {"a": 0.25})
    (path,) = store.time_files()
    path.write_text(path.read_text().replace("0.25", '"fast"'))
    known = choices_of(known_baseline(store, H100, CALL.case, ARGUMENTS, Update.NONE))
    assert (dict(known.configs), dict(known.times)) == ({}, {})


@pytest.mark.parametrize("update", list(Update))
def test_what_may_become_a_baseline_is_timed_whatever_inductors_cache_has(tmp_path: Path, update: Update) -> None:
    """A first baseline, and one of all anew, follow none: everything is timed for them in any case."""
    seen: list[bool] = []
    with Project(tmp_path).run(FAST, update=update) as run:
        run.check(lambda: seen.append(current().compiled.choices.recorded))  # type: ignore[union-attr]
    assert seen == [update in (Update.IMPROVED, Update.REGRESSED)]
