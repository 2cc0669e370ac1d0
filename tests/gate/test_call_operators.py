"""Work that moves out of what is judged is seen: by bytes of operators, by where results come from."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

from gate import moved_work
from gate.project import Project
from kerntune.base.case_result import CaseResult
from kerntune.base.operator_list import OperatorList, OperatorRow
from kerntune.base.policy import STATIC_RULES, StaticPolicy, StaticRule, Update, Verdict
from kerntune.gate.call_operators import NO_LIST, OperatorChange, compare_operators, more_bytes, with_anchors
from kerntune.gpu.script import Rule

RULE = STATIC_RULES["other_operators"]
MIB = 1 << 20


def listed(*rows: OperatorRow, **known: Any) -> OperatorList:
    known = {"torch": "2.13.0", "kernel_bytes": 100 * MIB, "results": (True,), **known}
    return OperatorList(rows=rows, **known)


def row(name: str, nbytes: int, kind: str = "", count: int = 1) -> OperatorRow:
    return OperatorRow(name, "float32[8] -> float32[8]", count, nbytes, kind)


def compared(before: OperatorList | None, now: OperatorList | None, **known: Any) -> Any:
    known = {"timed": False, "same_kernels": True, **known}
    return compare_operators(before, now, known.pop("rule", RULE), **known)


# the rule


def test_more_bytes_than_the_limit_fail_where_nothing_runs():
    """The limit is a tenth of all that the call moved: 10.5 MiB here."""
    before = listed(row("aten.mm", 5 * MIB))
    assert compared(before, listed(row("aten.mm", 15 * MIB))).failures == ()
    (text,) = compared(before, listed(row("aten.mm", 5 * MIB), row("aten.exp", 11 * MIB))).failures
    assert "5.24 MB -> 16.8 MB (aten.exp)" in text


def test_less_than_a_mebibyte_never_fails():
    small = listed(kernel_bytes=0)
    assert compared(small, listed(row("aten.mm", MIB), kernel_bytes=0)).failures == ()
    assert compared(small, listed(row("aten.mm", MIB + 1), kernel_bytes=0)).failures


def test_no_stored_number_fails_a_case_that_is_timed():
    found = compared(listed(), listed(row("aten.mm", 20 * MIB)), timed=True)
    assert found.failures == ()
    assert "aten.mm" in found.unsure[0]


def test_filled_memory_and_upper_bounds_never_fail():
    for kind in ("filled", "bound"):
        found = compared(listed(), listed(row("own.op", 20 * MIB, kind)))
        assert found.failures == ()
        assert len(found.unsure) == 1
    assert compared(listed(), listed(row("aten.cos", 20 * MIB, "kept"))) == compared(listed(), listed())


def test_fewer_bytes_are_told_or_leave_it_open_by_whether_kernels_changed():
    before = listed(row("aten.mm", 20 * MIB))
    assert compared(before, listed()).unsure == ()
    assert compared(before, listed()).told
    (text,) = compared(before, listed(), same_kernels=False).unsure
    assert "kernels may do that work now" in text


def test_another_torch_is_not_judged_by_bytes():
    found = compared(listed(), listed(row("aten.mm", 20 * MIB), torch="2.15.0"))
    assert found.failures == ()
    assert "another torch (2.13.0 -> 2.15.0)" in found.unsure[0]


def test_other_operators_within_the_limit_are_told():
    found = compared(listed(row("aten.mul", 64)), listed(row("aten.add", 64)))
    assert (found.failures, found.unsure) == ((), ())
    assert found.differs
    assert found.told == ("other torch operators beside the kernels, within the limit: new aten.add, gone aten.mul",)
    assert found.qualified(("code unchanged, Triton 3.8 -> 3.9",)) == (
        "code of the kernels unchanged, other torch operators beside them, Triton 3.8 -> 3.9",
    )


def test_work_that_adds_up_since_the_anchor_is_told_once():
    quiet, more = compared(listed(), listed()), compared(listed(), listed(row("aten.mm", 20 * MIB)), timed=True)
    since = with_anchors(quiet, more, "2026-11-01")
    assert since.unsure[0].endswith("move more: 0 B -> 21 MB (aten.mm), since the anchor of 2026-11-01")
    assert with_anchors(more, more, "2026-11-01") == more
    fewer = compared(listed(row("aten.mm", 20 * MIB)), listed(), timed=True, same_kernels=False)
    assert fewer.taken_over
    assert with_anchors(quiet, fewer, "2026-11-01") == quiet, "looked at when the baseline was recorded"
    lost = compared(listed(), listed(results=(False,)), timed=True)
    assert with_anchors(quiet, lost, "2026-11-01").failures[0].endswith(", since the anchor of 2026-11-01")


# all bytes of a call

BYTES = STATIC_RULES["bytes_moved"]


def moved_more(kernels: int, now: OperatorList, rule: StaticRule = BYTES, **known: Any) -> OperatorChange:
    return more_bytes(listed(kernel_bytes=kernels), now, ["soft_kernel at model.py:3"], rule, **known)


def test_more_bytes_of_kernels_and_operators_fail_where_nothing_runs():
    assert moved_more(100 * MIB, listed(kernel_bytes=110 * MIB)) == OperatorChange()
    (text,) = moved_more(100 * MIB, listed(kernel_bytes=111 * MIB)).failures
    assert text == "the call moves more bytes: 105 MB -> 116 MB (+11%): soft_kernel at model.py:3"
    assert moved_more(MIB, listed(kernel_bytes=2 * MIB)).failures == (), "a mebibyte is nothing"
    assert moved_more(MIB, listed(kernel_bytes=2 * MIB + 1)).failures


def test_bytes_of_operators_are_named_and_count_where_they_are_judged():
    now = listed(OperatorRow("aten.copy_", "", 1, 20 * MIB, "", ("model.py:7",)))
    assert "torch operators aten.copy_ at model.py:7" in moved_more(100 * MIB, now).failures[0]
    assert moved_more(100 * MIB, now, operators_count=False) == OperatorChange()


def test_bytes_that_are_not_known_or_of_another_torch_fail_nothing():
    now = listed(kernel_bytes=200 * MIB)
    assert moved_more(0, now) == OperatorChange(), "the baseline doesn't say"
    found = moved_more(100 * MIB, listed(kernel_bytes=200 * MIB, torch="2.15.0"))
    assert (found.failures, len(found.unsure)) == ((), 1)
    assert moved_more(100 * MIB, now, StaticRule("warn", 0.1)).told
    assert moved_more(100 * MIB, now, StaticRule("off")) == OperatorChange()


def test_more_graphs_are_told_with_their_breaks():
    two = listed(graphs=2, breaks=("model.py:31: Data-dependent branching",))
    (text,) = compared(listed(graphs=1), two).qualified(())
    assert text == "2 graphs were 1 (break at model.py:31: Data-dependent branching)"
    assert compared(two, listed(graphs=1)).qualified(()) == ()


def test_a_baseline_has_no_lines():
    found = listed(OperatorRow("aten.mm", "", 1, 64, "", ("model.py:7",)), breaks=("model.py:31: why",), graphs=2)
    assert found.without_places() == listed(OperatorRow("aten.mm", "", 1, 64), graphs=2)


def test_equal_lists_say_nothing():
    same = listed(row("aten.mm", 20 * MIB), outside=(64,))
    assert compared(same, same) == compared(listed(), listed())


def test_a_result_that_kernels_wrote_and_no_longer_do_fails_at_any_size():
    found = compared(listed(results=(True, True)), listed(results=(True, False), makers=("aten._softmax",)), timed=True)
    (text,) = found.failures
    assert text.startswith("1 of 2 results comes from torch operators, which are not timed: aten._softmax")
    assert compared(listed(results=(False,)), listed(results=(False,))).failures == ()
    assert compared(listed(results=(True,)), listed(results=(True, False))).failures, "another number of results"
    assert compared(listed(results=(True, False)), listed(results=(True, False, False))).failures == ()


def test_precomputed_work_is_named():
    (text,) = compared(listed(), listed(outside=(20 * MIB,))).unsure
    assert "kernels read a tensor (21 MB)" in text
    assert compared(listed(outside=(20 * MIB,)), listed(outside=(20 * MIB,))).unsure == ()


def test_a_baseline_without_a_list_is_said_to_be_not_compared():
    assert compared(None, listed(row("aten.mm", 64))).told == (NO_LIST,)
    assert compared(None, listed()) == compared(listed(), None) == compared(listed(), listed())


def test_the_rule_can_warn_or_be_off():
    now = listed(row("aten.mm", 20 * MIB), results=(False,))
    warned = compared(listed(), now, rule=StaticRule("warn", 0.1))
    assert (warned.failures, warned.unsure) == ((), ())
    assert len(warned.told) == 2
    assert compared(listed(), now, rule=StaticRule("off")) == compared(listed(), listed())


# whole calls


def test_a_further_result_fails_by_its_bytes(project):
    """The kernels' code is the same; one of them runs twice."""

    def twice(x):
        return moved_work.soft(x), moved_work.soft(x)

    found = judged(project, False, twice)
    assert found.verdict is Verdict.REGRESSED
    assert "the call moves more bytes: 8.39 MB -> 16.8 MB (+100%): soft_kernel, new, 8.39 MB" in found.message
    warns = StaticPolicy({"bytes_moved": StaticRule("warn", 0.1)})
    with project.static_run("cuda:90") as run:
        policy = msgspec.structs.replace(run.session.settings.policy, static=warns)
        again = run.judge(twice, torch.randn(1024, 1024, device="cuda"), policy=policy)
    assert again.verdict is Verdict.PASS
    assert any("the call moves more bytes" in text for text in again.remarks)


def test_lines_of_operators_are_named(project):
    found = judged(project, False, moved_work.more_beside)
    (line,) = {place for row in found.operators.rows for place in row.places}
    assert line in found.message
    assert line.startswith("moved_work.py:")


@pytest.mark.slow
def test_kernels_that_took_over_work_and_take_longer_leave_it_open(project):
    """The baseline's kernel copied what torch had computed."""
    rules = (Rule("copy_kernel", time_ns=10_000.0), Rule("soft_kernel", time_ns=20_000.0))
    found = []
    for fn in (moved_work.into_torch_and_copied, moved_work.soft):
        with project.run(*rules) as run:
            found.append(run.judge(fn, torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda")))
    assert [x.verdict for x in found] == [Verdict.NEW, Verdict.INCONCLUSIVE]
    assert "kernels may do that work now" in found[1].message
    assert "+100" in found[1].message


def test_work_that_moved_since_the_anchor_leaves_it_open_on_a_gpu(project):
    """The baseline was accepted with it; the anchor is from before."""

    def run(fn: Callable[..., Any], **options: Any) -> CaseResult:
        with project.run(**options) as opened:
            return opened.judge(fn, torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda"))

    run(moved_work.soft, update=Update.ALL)
    there = project.root / "anchors"
    shutil.copytree(project.baselines, there)
    run(moved_work.more_beside, update=Update.ALL)
    assert run(moved_work.more_beside).verdict is Verdict.PASS
    found = run(moved_work.more_beside, anchor=there)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "since the anchor of" in found.message


def judged(
    project: Project, timed: bool, fn: Callable[..., Any], before: Callable[..., Any] = moved_work.soft, **policy: Any
) -> CaseResult:
    """A baseline of one function, and the verdict on another one."""

    def data() -> torch.Tensor:
        return torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda")

    def run(**options: Any) -> Any:
        return project.run(**options) if timed else project.static_run("cuda:90", **options)

    with run(update=Update.ALL) as first:
        first.judge(before, data())
    with run() as second:
        x = data()
        moved_work.KEPT_TENSORS[tuple(x.shape)] = torch.softmax(x, -1)
        moved_work.CACHE.clear()
        return second.judge(fn, x, **policy)


NAMES = ("torch operators", "results", "kernels read a tensor")


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True], ids=["static", "scripted"])
def test_work_that_moved_is_never_passed(project, timed):
    for fn in moved_work.MOVED:
        found = judged(project, timed, fn)
        assert found.verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE), (fn.__name__, found.message)
        assert any(name in found.message for name in NAMES), (fn.__name__, found.message)


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True], ids=["static", "scripted"])
def test_edits_that_move_nothing_pass(project, timed):
    """In one run and in another order; 40 pairs. INCONCLUSIVE is allowed to none of them."""

    def run(pairs: list[str], edited: bool, **options: Any) -> dict[str, CaseResult]:
        with project.run(**options) if timed else project.static_run("cuda:90", **options) as opened:
            found = {}
            for pair in pairs:
                x = torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda")
                found[pair] = opened.judge(moved_work.PAIRS[pair][edited], x, name=pair.replace(" ", "_"))
            return found

    pairs = list(moved_work.PAIRS)
    run(pairs, False, update=Update.ALL)
    for order in (pairs, random.Random(7).sample(pairs, len(pairs))):
        found = run(order, True)
        assert {name: x.message for name, x in found.items() if x.verdict is not Verdict.PASS} == {}


def test_zeros_in_the_place_of_empty_leaves_it_open(project):
    """Filled memory alone fails nothing: a kernel may need it. The other way round passes."""

    def zeroed(x):
        return moved_work.launch(moved_work.soft_kernel, x, torch.zeros_like(x))

    found = judged(project, False, zeroed)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "torch operators beside the kernels fill more memory: 0 B -> 4.19 MB" in found.message
    assert judged(project, False, moved_work.soft, before=zeroed).verdict is Verdict.PASS


def test_kernels_of_another_name_and_size_are_told(project):
    assert (
        "kernel soft_kernel -> nop_kernel, grid 1,024x1x1 -> 1x1x1"
        in judged(project, False, moved_work.into_torch).message
    )


def test_fewer_launches_are_no_fusion_where_operators_took_the_work(project):
    def twice(x):
        return moved_work.soft(moved_work.soft(x))

    def once(x):
        return moved_work.soft(torch.softmax(x, -1))

    found = judged(project, False, once, before=twice)
    assert found.verdict is Verdict.REGRESSED
    assert "--kerntune-update" not in found.message


def test_the_list_is_in_the_result_and_its_file(project):
    found = judged(project, False, moved_work.more_beside, before=moved_work.more_beside)
    assert found.verdict is Verdict.PASS
    assert found.operators is not None
    assert found.elsewhere == {"aten.clone": 2}
    assert any(
        text.startswith("2 torch operators beside the kernels: 16.8 MB (aten.clone 2x)") for text in found.remarks
    )
    (path,) = project.files("cuda-90/*/static/**/*.json")
    assert b'"name":"aten.clone"' in path.read_bytes().replace(b" ", b"")


@pytest.mark.slow
def test_the_whole_operations_time_has_its_operators(project):
    found = judged(project, True, moved_work.more_beside, scope="op")
    assert found.verdict is not Verdict.INCONCLUSIVE, found.message
    assert any("move more" in text for text in found.remarks)


def test_sums_of_gradients_are_not_counted(project):
    def backward(x):
        weight = x.detach().requires_grad_()
        for _ in range(2):
            (weight * 1.0).backward(torch.ones_like(x))
        return moved_work.soft(weight.detach())

    found = judged(project, False, backward, before=backward)
    assert found.operators is not None
    assert "aten.add" not in found.operators.by_name
    assert found.operators.by_name["aten.mul"] == 4


def test_the_rule_of_a_test_is_followed(project):
    off = StaticPolicy({"other_operators": StaticRule("off")})
    with project.static_run("cuda:90", update=Update.ALL) as run:
        run.judge(moved_work.soft, torch.randn(1024, 1024, device="cuda"))
        policy = run.session.settings.policy
    with project.static_run("cuda:90") as run:
        relaxed = msgspec.structs.replace(policy, static=off)
        found = run.judge(moved_work.more_beside, torch.randn(1024, 1024, device="cuda"), policy=relaxed)
    assert found.verdict is Verdict.PASS


@pytest.mark.slow
def test_elements_of_a_result_that_are_not_written_any_more_fail(project):
    """The replay fills memory first, so that what operators wrote there in the call is of no use."""

    def other(a):
        y = torch.empty_like(a)
        moved_work.soft_kernel[(moved_work.ROWS,)](a, y, moved_work.COLS, BLOCK=1024, num_warps=8)
        return y

    def judge(*rules: Rule, fn: Callable[..., Any] = other, **options: Any) -> CaseResult:
        with project.run(*rules, **options) as run:
            return run.judge(fn, torch.randn(moved_work.ROWS, moved_work.COLS, device="cuda"))

    judge(fn=moved_work.soft, update=Update.ALL)
    found = judge(Rule("soft_kernel", num_warps=8, skips=((0, 4096),)))
    assert found.verdict is Verdict.REGRESSED
    assert "y_ptr: 1,024 of 1,048,576 elements of a result are no longer written by captured kernels" in found.message
    assert judge().verdict is Verdict.PASS
