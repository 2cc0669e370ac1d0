"""Calls that stop without a GPU, at a value that only a GPU has: judged up to there, INCOMPLETE unless accepted."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block, scale_kernel, scaled, x_of

from gate.project import NODE, Project
from kerntune.base.case_result import CaseResult, End
from kerntune.base.policy import Outcome, Policy, StaticPolicy, StaticRule, Update, Verdict
from kerntune.compiling.compiler import Compiler
from kerntune.errors import UsageError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.call_capture import end_of
from kerntune.gate.claimed_cases import judge_stored
from kerntune.gate.reporting.failure import table_lines
from kerntune.gate.stores import Stores, known_case

SM90 = "cuda:90"

USERS_CODE = """
import torch
from fake_runs import N, scale_kernel

def grid(meta):
    return (-(-N // meta["BLOCK"]),)

def launch(x, size=64):
    y = torch.empty_like(x)
    scale_kernel[grid](x, y, N, 2.0, BLOCK=size)
    return y

def total(y):
    return y.sum().item()

def call(x):
    y = launch(x)
    if total(y) > 0:
        launch(y)
    return launch(y)
"""


def users(root: Path, text: str = USERS_CODE) -> Callable[..., Any]:
    """The function ``call`` of a module of the project that has this text."""
    path = root / "ops" / "steps.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    linecache.checkcache(str(path))
    scope: dict[str, Any] = {"__name__": "ops.steps"}
    exec(compile(text, str(path), "exec"), scope)
    return scope["call"]  # type: ignore[no-any-return]


def check(project: Project, fn: Callable[..., Any], update: Update = Update.NONE, **call: Any) -> CaseResult:
    with project.static_run(SM90, update=update) as run:
        return run.judge(fn, x_of(), **call)


def stored(project: Project) -> StaticBaseline:
    (path,) = project.files()
    found = BaselineStore(project.baselines, project.root).read(path)
    assert found is not None
    return found


REASON = "needs the value of a stand-in (aten._local_scalar_dense.default)"
ASKED = End("ops/steps.py", "total", "return y.sum().item()", REASON)


def test_a_cut_off_call_is_no_new_case_and_fails_in_ci(project: Project) -> None:
    result = check(project, users(project.root))
    assert (result.verdict, result.outcome, result.recorded) == (Verdict.INCOMPLETE, Outcome.WARN, False)
    assert (result.end, result.end_accepted, len(result.launches)) == (ASKED, False, 1)
    assert "stopped after 1 launch at ops/steps.py, total: return y.sum().item() (needs" in result.message
    assert "values=" in result.message
    assert "--kerntune-update" in result.message
    assert not project.files()
    in_ci = Policy(ci=True)
    assert project.static_once(SM90).judge(users(project.root), x_of(), policy=in_ci).outcome is Outcome.FAIL


@pytest.mark.parametrize("update", [Update.NEW, Update.IMPROVED, Update.REGRESSED, Update.RENAMED])
def test_only_a_refresh_accepts_an_end(project: Project, update: Update) -> None:
    assert not check(project, users(project.root), update).recorded
    assert not project.files()


def test_an_accepted_end_passes_and_is_shown(project: Project) -> None:
    accepting = check(project, users(project.root), Update.ALL)
    assert (accepting.verdict, accepting.outcome, accepting.recorded) == (Verdict.INCOMPLETE, Outcome.PASS, True)
    assert stored(project).end == ASKED
    again = check(project, users(project.root))
    assert (again.verdict, again.end, again.end_accepted) == (Verdict.PASS, ASKED, True)
    assert again.warnings == (f"stopped where the baseline accepts it, at {ASKED}",)
    plain = msgspec.structs.replace(again, end=None)
    *_, row, folded = [line for line, _ in table_lines([plain, again], whole=False, width=500)]
    assert "stopped at: return" in row, "a row that says something isn't folded"
    assert folded == "... and 1 more PASS"


def test_a_case_that_is_claimed_is_judged_as_its_call_is(project: Project) -> None:
    """By a sealed run, which has the claim alone."""
    check(project, users(project.root), Update.ALL)
    own, claimed = check(project, users(project.root)), stored(project)
    store = BaselineStore(project.baselines, project.root)
    stores = Stores(store, store)
    known = known_case(stores, claimed.target, claimed.case, claimed.fingerprint, Update.NONE)
    result = judge_stored(stores, known, claimed, claimed.launches, Policy())
    for name in ("verdict", "outcome", "message", "causes", "warnings", "end", "end_accepted", "baseline_path"):
        assert getattr(result, name) == getattr(own, name), name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def total", "# a remark\n\n\ndef total"),
        ("    return y.sum().item()", "        return y.sum().item()"),
        ("    y = torch.empty_like(x)", "    assert x.is_cuda\n    y = torch.empty_like(x)"),
    ],
    ids=["lines above", "indented", "another function"],
)
def test_an_edit_elsewhere_leaves_the_end_the_same(project: Project, before: str, after: str) -> None:
    check(project, users(project.root), Update.ALL)
    assert before in USERS_CODE
    text = USERS_CODE.replace(before, after)
    if after.startswith("        return"):
        text = text.replace("def total(y):", "def total(y):\n    if True:")
    assert check(project, users(project.root, text)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y.sum().item()", "y.mean().item()"),
        ("total(y", "whole(y"),
        (".item()", ".tolist()"),
        ("    y = launch(x)\n", "    y = launch(x)\n    assert y[0].item() != 3\n"),
    ],
    ids=["line", "function", "reason", "earlier"],
)
def test_another_end_than_the_accepted_one_is_incomplete(project: Project, before: str, after: str) -> None:
    check(project, users(project.root), Update.ALL)
    result = check(project, users(project.root, USERS_CODE.replace(before, after)))
    assert result.verdict is Verdict.INCOMPLETE
    assert f"the baseline accepts another end, at {ASKED}" in result.message


def test_a_call_that_goes_on_where_it_was_accepted_to_stop_is_whole(project: Project) -> None:
    check(project, users(project.root), Update.ALL)
    result = check(project, users(project.root, USERS_CODE.replace("total(y) > 0", "True")))
    assert (result.verdict, result.end, len(result.launches)) == (Verdict.PASS, None, 3)
    assert check(project, users(project.root, USERS_CODE.replace("total(y) > 0", "True")), Update.ALL).recorded
    assert stored(project).end is msgspec.UNSET


def test_a_regression_before_the_end_is_one(project: Project) -> None:
    check(project, users(project.root), Update.ALL)
    wider = USERS_CODE.replace("size=64", "size=8192")
    failing = Policy(static=StaticPolicy({"registers": StaticRule("fail", 0.0)}))
    result = check(project, users(project.root, wider.replace("y.sum()", "y.mean()")), policy=failing)
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    assert "stopped after 1 launch" in result.message


def test_a_revision_compiled_for_this_run_accepts_nothing(project: Project, tmp_path: Path) -> None:
    """It was recorded a moment ago, of the revision's own code, whatever that asked for."""
    check(project, users(project.root), Update.ALL)
    made = project.baselines.rename(tmp_path / "made")
    other: dict[str, Any] = {"reference": (made, "main")}
    with project.static_run(SM90, **other, read_only=True) as run:
        assert run.judge(users(project.root), x_of()).verdict is Verdict.INCOMPLETE
    assert project.static_once(SM90, **other).judge(users(project.root), x_of()).verdict is Verdict.PASS
    check(project, users(project.root), Update.ALL)
    result = project.static_once(SM90, **other, read_only=True).judge(users(project.root), x_of())
    assert (result.verdict, result.end_accepted) == (Verdict.PASS, True)


def test_a_baseline_of_another_triton_accepts_the_same_end(project: Project) -> None:
    check(project, users(project.root), Update.ALL)
    (path,) = project.files()
    (folder,) = project.baselines.glob("*/triton-*")
    found = msgspec.structs.replace(stored(project), triton="3.1")
    BaselineStore(project.baselines).write(Path(str(path).replace(folder.name, "triton-3.1")), found)
    path.unlink()
    result = check(project, users(project.root))
    assert (result.verdict, result.end_accepted, result.recorded) == (Verdict.NEW, True, True)


def test_the_line_is_the_users_wherever_the_question_was_put(project: Project) -> None:
    """Not torch's, which asks for it on the way, and not the last error of several."""
    with project.static_run(SM90) as run:
        y = x_of()

        def asks_twice() -> None:
            try:
                torch.testing.assert_close(float(y.sum()), 1.0)
            except Exception:
                y.max().item()

        with pytest.raises(Exception, match="scalar") as caught:
            asks_twice()
        end = end_of(run.session.backend, caught.value, Path(__file__).parent)
        assert end == End("test_call_ends.py", "asks_twice", "torch.testing.assert_close(float(y.sum()), 1.0)", REASON)
        elsewhere = end_of(run.session.backend, caught.value, project.root)
        assert elsewhere is not None
        assert elsewhere.file == __name__
        assert end_of(run.session.backend, ValueError("another"), project.root) is None


def test_a_question_whose_error_the_call_catches_is_an_end_too(project: Project) -> None:
    """It goes another way than on a GPU, which would have answered."""

    def text(caught: str) -> str:
        return USERS_CODE.replace(
            "    if total(y) > 0:", f"    try:\n        n = {caught}\n    except Exception:\n        n = 0\n    if n:"
        )

    result = check(project, users(project.root, text("total(y)")))
    assert (result.verdict, len(result.launches)) == (Verdict.INCOMPLETE, 2)
    assert result.end == msgspec.structs.replace(ASKED, reason=f"{REASON}; the call caught this error and went on")
    assert check(project, users(project.root, text("total(y)")), Update.ALL).recorded
    assert check(project, users(project.root, text("total(y)"))).end_accepted
    assert check(project, users(project.root, text("y.tolist()"))).verdict is Verdict.INCOMPLETE
    assert check(project, users(project.root, text("1 / 0"))).end is None
    assert check(project, users(project.root, text("torch.arange(3, device='cuda').sum().item()"))).end is None


class Sized(torch.autograd.Function):
    """Its backward pass, in which the stand-ins' modes are entered twice, launches by a known length."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(ends)
        return scaled(x, 64)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (ends,) = ctx.saved_tensors
        return scaled(grad, ends[-1].item()), None


def test_a_known_value_that_a_backward_pass_asks_for_is_no_end(project: Project) -> None:
    def both(x: torch.Tensor) -> None:
        y = Sized.apply(x.requires_grad_(), torch.tensor([8, 64], device="cuda"))
        y.backward(torch.ones_like(y))

    result = check(project, both)
    assert (result.verdict, result.end, len(result.launches)) == (Verdict.NEW, None, 2)


def test_what_a_launch_writes_is_asked_of_the_run_s_compiler(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose processes may crash; the one that runs the tests may not. What it compiles is compiled once."""
    compiled: list[str] = []
    original = Compiler._compile_now

    def compile_now(compiler: Compiler, launches: Any) -> Any:
        compiled.extend(x.name for x in launches)
        return original(compiler, launches)

    def routes(x: torch.Tensor) -> int:
        counts, known = torch.empty(4, dtype=torch.int32, device="cuda"), torch.arange(4, device="cuda")
        count_kernel[(1,)](known, counts, BLOCK=4)
        return int(known.sum())

    monkeypatch.setattr(Compiler, "_compile_now", compile_now)
    monkeypatch.setattr(triton, "compile", lambda *args, **kwargs: pytest.fail("compiled in this process"))
    with project.static_run(SM90) as run:
        assert run.check(routes, x_of()).value == 6
    assert compiled == ["count_kernel"]


# tests that stop between two calls


def asks(y: torch.Tensor) -> None:
    y.sum().item()


def asks_more(y: torch.Tensor) -> None:
    y.mean().item()


BETWEEN = End(Path(__file__).name, "asks", "y.sum().item()", REASON, between=True)


def two_calls(project: Project) -> None:
    with project.static_run(SM90) as run:
        for name in ("first", "second"):
            assert run.judge(scaled, x_of(), 64, name=name).recorded


def stop_after_first(
    project: Project, ask: Callable[[torch.Tensor], None] = asks, policy: Policy | None = None, **settings: Any
) -> tuple[str, list[CaseResult], CaseResult]:
    """Where the test is said to stop, the results of calls that it didn't reach, and what its first one came to."""
    with project.static_run(SM90, **settings) as run:
        run.session.settings = replace(run.session.settings, root=Path(__file__).parent)
        checked = run.check(scaled, x_of(), 64, name="first")
        with pytest.raises(Exception, match="scalar") as caught:
            ask(x_of())
        stopped = run.session.stopped(NODE, caught.value, [checked], policy or Policy())
        (last,) = stopped.checks
        return stopped.end, list(stopped.results), last.commit()


def test_a_call_after_the_stop_is_incomplete_where_it_has_a_baseline(project: Project) -> None:
    two_calls(project)
    end, (result,), first = stop_after_first(project)
    assert end == str(BETWEEN)
    assert (str(result.case), result.verdict, result.outcome) == (f"{NODE}::second", Verdict.INCOMPLETE, Outcome.WARN)
    assert f"the test stopped before this call, at {BETWEEN}" in result.message
    assert result.baseline_path in map(BaselineStore(project.baselines, project.root).shown, project.files())
    assert (first.verdict, first.recorded) == (Verdict.PASS, False)
    (in_ci,) = stop_after_first(project, policy=Policy(ci=True))[1]
    assert in_ci.outcome is Outcome.FAIL


def test_one_without_a_baseline_is_not_missed(project: Project) -> None:
    assert stop_after_first(project)[1] == []


def test_a_baseline_of_a_gpu_counts(project: Project) -> None:
    assert project.once().judge(scaled, x_of(), 64, name="on a GPU").recorded
    (result,) = stop_after_first(project)[1]
    assert result.case.call == "on a GPU"


def test_a_refresh_accepts_the_stop_and_no_other(project: Project) -> None:
    two_calls(project)
    _, (result,), first = stop_after_first(project, update=Update.ALL)
    assert (result.verdict, result.outcome) == (Verdict.INCOMPLETE, Outcome.PASS)
    assert first.recorded
    end, results, first = stop_after_first(project)
    assert (end, results, first.verdict) == (f"{BETWEEN}; not reached, which is accepted: second", [], Verdict.PASS)
    assert stop_after_first(project, asks_more)[1][0].outcome is Outcome.WARN
    with project.static_run(SM90) as run:
        assert [run.judge(scaled, x_of(), 64, name=n).verdict for n in ("first", "second")] == [Verdict.PASS] * 2


@pytest.mark.parametrize("update", [Update.NEW, Update.IMPROVED, Update.REGRESSED, Update.RENAMED])
def test_no_other_update_accepts_a_stop(project: Project, update: Update) -> None:
    two_calls(project)
    assert stop_after_first(project, update=update)[1][0].outcome is Outcome.WARN
    assert len(stop_after_first(project)[1]) == 1


def test_an_update_that_records_the_call_before_does_not_accept_either(project: Project) -> None:
    assert project.static_once(SM90).judge(scaled, x_of(), 64, name="second").recorded
    _, (result,), first = stop_after_first(project, update=Update.NEW)
    assert (result.outcome, first.verdict, first.recorded) == (Outcome.WARN, Verdict.NEW, True)
    assert len(stop_after_first(project)[1]) == 1


def test_an_update_of_something_else_keeps_what_was_accepted(project: Project) -> None:
    two_calls(project)
    stop_after_first(project, update=Update.ALL)
    failing = Policy(static=StaticPolicy({"registers": StaticRule("fail", 0.0)}))
    with project.static_run(SM90, update=Update.REGRESSED) as run:
        result = run.judge(scaled, x_of(), 8192, name="first", policy=failing)
    assert (result.verdict, result.recorded) == (Verdict.REGRESSED, True)
    assert stop_after_first(project)[1] == []


def test_the_accepted_end_of_a_call_accepts_what_is_not_reached_for_it(project: Project) -> None:
    check(project, users(project.root), Update.ALL, name="first")
    assert project.static_once(SM90).judge(scaled, x_of(), 64, name="second").recorded
    for text, missed in ((USERS_CODE, 0), (USERS_CODE.replace("y.sum()", "y.max()"), 1)):
        with project.static_run(SM90) as run:
            checked = run.check(users(project.root, text), x_of(), name="first")
            assert checked.ended is not None
            assert len(run.session.stopped(NODE, checked.ended, [checked], Policy()).results) == missed


# values that a test gives


@triton.jit
def count_kernel(x_ptr, counts_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(counts_ptr + i, (tl.load(x_ptr + i) > 0).to(tl.int32))


def routed(x: torch.Tensor, size: int = 4) -> int:
    """One launch for each of the rows that a kernel counts, as mixtures of experts do."""
    counts = torch.empty(size, dtype=torch.int32, device=x.device)
    count_kernel[(1,)](x, counts, BLOCK=4)
    rows = int(counts.sum())
    for _ in range(rows):
        scale_kernel[by_block](x, torch.empty_like(x), N, 2.0, BLOCK=64)
    return rows


COUNTS = torch.tensor([1, 0, 2, 0], dtype=torch.int32)


def counted(x: torch.Tensor, size: int = 4, start: int = 0) -> None:
    """Rows that a kernel counts, into a tensor or a part of one."""
    count_kernel[(1,)](x, torch.empty(size, dtype=torch.int32, device="cuda")[start:], BLOCK=4)


PART = {"size": 8, "start": 4}


def test_given_values_are_what_the_launch_leaves(project: Project) -> None:
    result = check(project, routed, values={"count_kernel": {"counts_ptr": COUNTS}})
    assert (result.verdict, result.end, len(result.launches)) == (Verdict.NEW, None, 4)
    assert check(project, routed).verdict is Verdict.INCOMPLETE


def test_given_values_may_be_of_another_type_or_known_stand_ins(project: Project) -> None:
    with project.static_run(SM90) as run:
        for given in (COUNTS.double(), COUNTS.to("cuda")):
            checked = run.check(routed, x_of(), values={"count_kernel": {"counts_ptr": given}})
            assert checked.value == 3


@pytest.mark.parametrize(
    ("kernel", "argument", "given", "told"),
    [
        ("count_kernel", "count_ptr", COUNTS, "the kernel has no such tensor; it has x_ptr, counts_ptr"),
        ("count_kernel", "BLOCK", COUNTS, "the kernel has no such tensor; it has x_ptr, counts_ptr"),
        ("count_kernel", "counts_ptr", COUNTS[:2], r"have the shape \(2,\), and the argument has \(4,\)"),
        ("count_kernel", "counts_ptr", None, "aren't known themselves: make them on the CPU"),
        ("counting", "counts_ptr", COUNTS, "which this call doesn't launch; it launches count_kernel"),
    ],
)
def test_values_that_can_not_be_are_refused_by_name(
    project: Project, kernel: str, argument: str, given: Any, told: str
) -> None:
    with project.static_run(SM90) as run:
        values = {kernel: {argument: torch.empty(4, device="cuda") if given is None else given}}
        with pytest.raises(UsageError, match=told) as caught:
            run.check(counted, x_of(), values=values)
    assert kernel in str(caught.value)


def test_what_is_given_for_kernels_after_the_end_is_not_missed(project: Project) -> None:
    """They aren't launched because the call stopped, not because their names are wrong."""

    def routes(x: torch.Tensor) -> None:
        scaled(x, 64).sum().item()
        routed(x)

    given = {"values": {"count_kernel": {"counts_ptr": COUNTS}}, "candidates": {"count_kernel": ()}}
    assert check(project, routes, **given).verdict is Verdict.INCOMPLETE


def test_values_of_a_part_of_a_tensor_are_refused(project: Project) -> None:
    with project.static_run(SM90) as run, pytest.raises(UsageError, match="a part of a tensor"):
        run.check(functools.partial(counted, **PART), x_of(), values={"count_kernel": {"counts_ptr": COUNTS}})


def test_values_that_contradict_what_a_kernel_only_reads_are_refused(project: Project) -> None:
    with project.static_run(SM90) as run:
        run.check(counted, COUNTS.to("cuda"), values={"count_kernel": {"x_ptr": COUNTS}})
        with pytest.raises(UsageError, match="the kernel doesn't write it"):
            run.check(counted, COUNTS.to("cuda"), values={"count_kernel": {"x_ptr": COUNTS + 1}})


def test_with_a_gpu_the_kernel_computes_them(project: Project) -> None:
    part = functools.partial(counted, **PART)
    with project.run() as run:
        run.check(part, x_of(), values={"count_kernel": {"counts_ptr": COUNTS[:1]}})
        with pytest.raises(UsageError, match="has no such tensor"):
            run.check(part, x_of(), values={"count_kernel": {"counts": COUNTS}})
