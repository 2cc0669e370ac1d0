"""What differs between then and now, in words."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any, get_args

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import N, block, by_block, scale_kernel, tuned, x_of
from hypothesis import given
from hypothesis import strategies as st
from samples import ENVIRONMENT, binary, launch, recording

from gate.project import Project
from kerntune.base.case_result import Attribution, CaseResult, CauseKind, LaunchCause, Share
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.policy import Verdict
from kerntune.base.recording import Recording
from kerntune.errors import ReplayError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TimeBaseline
from kerntune.gate.causes import (
    SAME,
    Chain,
    Step,
    _generated_alone,
    attribute,
    causes,
    code_cause,
    launch_cause,
    regenerated,
    steps_between,
)
from kerntune.gate.launch_changes import changed_sources, other_torch
from kerntune.gate.messages import shares_text
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.gpu.script import Rule
from kerntune.kernels.source import GeneratedFrom
from kerntune.static.metrics import StaticMetrics

replace = msgspec.structs.replace
NEWER = replace(ENVIRONMENT, triton="3.10.0")
SMALL, LARGE = Config({"BLOCK": 128}), Config({"BLOCK": 256}, num_warps=8)


def with_launch(**changes: object) -> Recording:
    return recording(launches=(launch(**changes),))


BASE = with_launch(config=SMALL)


@pytest.mark.parametrize(
    ("changed", "triton", "text"),
    [
        (False, "3.9.0", "code unchanged"),
        (True, "3.9.0", "code changed"),
        (False, "3.10.0", "code unchanged, Triton 3.9.0 -> 3.10.0"),
        (True, "3.10.0", "code changed, Triton 3.9.0 -> 3.10.0"),
    ],
)
def test_code_and_compiler(changed: bool, triton: str, text: str) -> None:
    assert code_cause(changed, "3.9.0", triton) == text


def bound(config: Config | None, constexprs: dict[str, str], **options: object) -> Recording:
    """A launch of a binary with these constants and options."""
    words = {"options": options, "constexprs": constexprs} if options else {"constexprs": constexprs}
    return recording(binaries=(binary(**words),), launches=(launch(config=config),))


PLAIN = ("code unchanged", "config unchanged")
MOVED = replace(ENVIRONMENT, driver="other", torch="other", sm_clock_mhz=1)
ASSEMBLED = recording(launches=BASE.launches, binaries=(binary(assembler="13.0"),))
TWO = (launch(kernel="a", source="a", grid=(2, 1, 1)), launch(kernel="b", source="b"))
EDITED = recording(
    launches=(launch(config=SMALL, source="edited", grid=(9, 1, 1)),), binaries=(binary("other", shared=4096),)
)


@pytest.mark.parametrize(
    ("before", "after", "today", "told"),
    [
        pytest.param(BASE, BASE, ENVIRONMENT, PLAIN, id="nothing"),
        pytest.param(BASE, BASE, MOVED, PLAIN, id="a driver, which is no code or compiler, and which the caller adds"),
        pytest.param(
            BASE,
            ASSEMBLED,
            ENVIRONMENT,
            ("code unchanged, Triton 3.9.0, assembler 12.9 -> Triton 3.9.0, assembler 13.0", PLAIN[1]),
            id="an assembler",
        ),
        pytest.param(BASE, ASSEMBLED, NEWER, ("code unchanged, Triton 3.9.0 -> 3.10.0", PLAIN[1]), id="a Triton"),
        pytest.param(
            recording(launches=(launch(kernel="a", config=SMALL), launch(kernel="b", config=SMALL))),
            recording(launches=(launch(kernel="a", config=LARGE), launch(kernel="b", config=SMALL))),
            ENVIRONMENT,
            (PLAIN[0], "config of a changed: BLOCK 128 -> 256, num_warps 4 -> 8"),
            id="a line for each config that changed",
        ),
        pytest.param(  # what specialization made of an argument is neither
            bound(None, {"BLOCK": "128", "stride": "1"}, num_warps=4, arch="sm90"),
            bound(None, {"BLOCK": "256", "EVEN": "True"}, num_warps=8, arch="sm90"),
            ENVIRONMENT,
            (PLAIN[0], "launch options of add_kernel: num_warps 4 -> 8, BLOCK 128 -> 256"),
            id="constants and options that a launch passes",
        ),
        pytest.param(
            bound(SMALL, {"BLOCK": "128", "HEAD": "64"}),
            bound(LARGE, {"BLOCK": "256", "HEAD": "128"}),
            ENVIRONMENT,
            (
                PLAIN[0],
                "config of add_kernel changed: BLOCK 128 -> 256, num_warps 4 -> 8",
                "launch options of add_kernel: HEAD 64 -> 128",
            ),
            id="a constant beside a config",
        ),
        pytest.param(  # other machine code is not said twice
            BASE,
            EDITED,
            NEWER,
            ("code changed, Triton 3.9.0 -> 3.10.0", PLAIN[1], "launch 0 (add_kernel): grid changed"),
            id="code, a Triton and a grid",
        ),
        pytest.param(
            BASE,
            recording(launches=(*BASE.launches, launch(config=None))),
            ENVIRONMENT,
            (*PLAIN, "launches: 1 -> 2"),
            id="a launch that was added",
        ),
        pytest.param(
            recording(launches=TWO),
            recording(launches=TWO[::-1]),
            ENVIRONMENT,
            (*PLAIN, "order of launches changed"),
            id="launches in another order",
        ),
    ],
)
def test_what_changed_is_told(before: Recording, after: Recording, today: Any, told: tuple[str, ...]) -> None:
    assert causes(before, after, ENVIRONMENT, today) == told


def test_another_kernel_in_its_place_is_other_code() -> None:
    after = recording(launches=(launch(kernel="mul_kernel", source="other", config=Config({"ROWS": 8})),))
    assert causes(BASE, after, ENVIRONMENT, ENVIRONMENT)[:2] == ("code changed", "config unchanged")


def static(**changes: object) -> LaunchStatic:
    told = {"x": "*fp32, divisible by 16", "n": "i32", "BLOCK": "constexpr 128", "num_warps": "4"}
    stages = {"ttir": "1", "ttgir": "2", "llir": "3", "ptx": "4"}
    made = LaunchStatic("add", "s", "c", "t", (1, 1, 1), FIGURES, SMALL, stages, told, "Triton 3.9.0, assembler 12.8")
    return replace(made, **changes)


def told(**changes: str) -> dict[str, str]:
    return static().compiled_for | changes


FIGURES = StaticMetrics(32, 0, 0, 0, 0, 1024, 128, {}, 1.0, "threads")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"source": "other"}, "code (its source changed)"),
        ({"config": LARGE}, "config (BLOCK 128 -> 256, num_warps 4 -> 8)"),
        (
            {"config": Config({"BLOCK": 256}), "source": "other"},
            "code (its source changed) and config (BLOCK 128 -> 256)",
        ),
        ({"config": LARGE, "compiled_for": told(BLOCK="constexpr 256", num_warps="8")}, "config (BLOCK 128 -> 256, "),
        ({"config": None, "compiled_for": told(BLOCK="constexpr 64", num_stages="3")}, "config (BLOCK 128 -> 64)"),
        ({"compiled_for": told(x="*fp32", n="== 1")}, "arguments (x: *fp32, divisible by 16 -> *fp32; n: i32 -> == 1)"),
        ({"compiler": "Triton 3.9.1, assembler 12.8"}, "compiler (Triton 3.9.0, assembler 12.8 -> Triton 3.9.1, "),
        ({"source": "other", "compiled_for": told(n="i64")}, "code (its source changed) and arguments (n: i32 -> i64)"),
        ({}, "something that is not kept (same source, config, launch options, arguments and compiler)"),
    ],
)
def test_who_is_to_blame(changes: dict[str, object], why: str) -> None:
    after = static(code="other", stages={**static().stages, "llir": "9", "ptx": "9"}, **changes)
    cause = launch_cause(static(), after, "3.9", "3.9")
    assert str(cause).startswith(f"add: because of {why}")
    assert str(cause).endswith(", first in LLIR")
    assert cause is not None
    assert cause == because(cause.why)
    assert launch_cause(static(), replace(after, code="c"), "3.9", "3.9") is None


def because(why: str, kernel: str = "add") -> LaunchCause:
    """A cause whose kinds are those that its text names."""
    named = re.findall(rf"(?:^| and )({'|'.join(get_args(CauseKind))}) ", why)
    return LaunchCause(kernel, why, tuple(named))


SOFTMAX_2_13 = GeneratedFrom("2.13.0", ("softmax",), ("aten.div", "aten.exp"), "g1")


def generated(torch: str = "2.15.0", **changes: object) -> LaunchStatic:
    """A softmax of another torch, from the same graph with another text unless ``changes`` say otherwise."""
    made_from = replace(SOFTMAX_2_13, torch=torch, **{k: changes.pop(k) for k in GRAPH if k in changes})
    given = {"code": "other", "source": "other", "kernel": "triton_softmax", "made_from": made_from, "stages": {}}
    return static(**(given | changes))


GRAPH = ("calls", "operators", "graph")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "torch 2.13.0 -> 2.15.0 (softmax's generated code)"),
        ({"operators": ("aten.exp",), "graph": "g2"}, "torch 2.13.0 -> 2.15.0 (softmax's decomposition)"),
        ({"graph": "g2"}, "torch 2.13.0 -> 2.15.0 or code (softmax's generated code)"),
        ({"calls": ("tanh",), "graph": "g2"}, "torch 2.13.0 -> 2.15.0 or code (tanh's generated code)"),
        ({"graph": ""}, "torch 2.13.0 -> 2.15.0 or code (softmax's generated code)"),
        ({"calls": tuple("abcde")}, "torch 2.13.0 -> 2.15.0 (a, b, c and 2 more's generated code)"),
        (
            {"source": "s", "config": LARGE},
            "torch 2.13.0 -> 2.15.0 (Inductor's config (BLOCK 128 -> 256, num_warps 4 -> 8))",
        ),
        ({"torch": "2.13.0"}, "code (its source changed)"),
        (
            {"compiler": "Triton 3.9.1, assembler 12.8"},
            "torch 2.13.0 -> 2.15.0 (softmax's generated code) and compiler (Triton 3.9.0, assembler 12.8 -> "
            "Triton 3.9.1, assembler 12.8)",
        ),
        (
            {"source": "s", "compiler": "Triton 3.9.1, assembler 12.8"},
            "compiler (Triton 3.9.0, assembler 12.8 -> Triton 3.9.1, assembler 12.8)",
        ),
    ],
)
def test_another_torch_is_to_blame_for_what_it_generates(changes: dict[str, object], why: str) -> None:
    before = static(made_from=SOFTMAX_2_13, stages={})
    after = generated(**changes)  # type: ignore[arg-type]
    assert launch_cause(before, after, "3.9", "3.9") == because(why, "triton_softmax")
    known = launch_cause(before, after, "3.9", "3.9", same_code=True)
    assert known == because(why.replace(" or code", ""), "triton_softmax")
    alone = why.startswith("torch") and " or code" not in why and "Inductor's" not in why
    assert other_torch(before, after) == alone
    users = not alone and after.source != "s"
    assert [*changed_sources([before], [after])] == (["add -> triton_softmax"] if users else [])


def test_a_persons_kernel_is_not_torchs() -> None:
    after = static(code="other", source="other", stages={})
    cause = launch_cause(static(), after, "3.9", "3.9", same_code=True)
    assert cause == because("code (its source changed)")


def test_generated_code_under_another_torch_is_not_called_the_users() -> None:
    moved = replace(ENVIRONMENT, torch="2.15.0")
    before, after = (recording(launches=(launch(source=s, origins=("aten.exp",)),)) for s in "ab")
    (code, *_) = causes(before, after, ENVIRONMENT, moved)
    assert code == f"generated code changed, torch {ENVIRONMENT.torch} -> 2.15.0"
    mine = recording(launches=(launch(source="b"),))
    assert causes(recording(launches=(launch(source="a"),)), mine, ENVIRONMENT, moved)[0] == "code changed"


def test_constants_and_options_of_a_kernel_without_a_config() -> None:
    before = static(config=None)
    after = replace(before, code="other", compiled_for=told(BLOCK="constexpr 64", num_warps="8"), stages={})
    why = "launch options (num_warps 4 -> 8, BLOCK 128 -> 64)"
    assert launch_cause(before, after, "3.9", "3.9") == because(why)


def test_another_series_is_another_compiler_even_if_baselines_did_not_keep_it() -> None:
    cause = launch_cause(static(compiler="", stages={}), static(code="other"), "3.8", "3.9")
    assert cause == because("compiler (Triton 3.8 -> Triton 3.9.0, assembler 12.8)")


def names(pairs: list[tuple[LaunchStatic | None, LaunchStatic | None]]) -> list[tuple[str, str]]:
    return [(a.code if a else "", b.code if b else "") for a, b in pairs]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a1 b1", "a1 b1", [("a1", "a1"), ("b1", "b1")]),
        ("a1 b1", "b2 a2", [("b1", "b2"), ("a1", "a2")]),
        ("a1 a2", "a3 a4", [("a1", "a3"), ("a2", "a4")]),
        ("a1 b1", "a1 c1", [("a1", "a1"), ("b1", "c1")]),
        ("a1", "b1 a1", [("", "b1"), ("a1", "a1")]),
        ("a1 b1", "b1", [("b1", "b1"), ("a1", "")]),
        ("", "a1", [("", "a1")]),
    ],
)
def test_launches_that_belong_together(before: str, after: str, expected: list[tuple[str, str]]) -> None:
    sides = [[static(kernel=word[0], code=word) for word in text.split()] for text in (before, after)]
    assert names(paired(*sides)) == expected


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_every_launch_is_paired_once(before: list[str], after: list[str]) -> None:
    old, new = ([static(kernel=k, code=f"{k}{i}") for i, k in enumerate(side)] for side in (before, after))
    pairs = paired(old, new)
    assert [b for _, b in pairs if b is not None] == new
    assert sorted(a.code for a, _ in pairs if a is not None) == sorted(x.code for x in old)
    assert not any(a is None for a, _ in pairs) or not any(b is None for _, b in pairs)


def test_storages_are_compared_only_where_the_launches_are_the_same() -> None:
    """With a launch more, they are numbered otherwise."""
    moved = (replace(BASE.views[0], storage=1), BASE.views[1])
    other = replace(BASE, views=moved)
    text = "launch 0 (add_kernel): arguments changed"
    assert causes(BASE, other, ENVIRONMENT, ENVIRONMENT) == ("code unchanged", "config unchanged", text)
    more = replace(other, launches=(*BASE.launches, launch(kernel="mul_kernel", source="mul")))
    assert causes(BASE, more, ENVIRONMENT, ENVIRONMENT) == ("code unchanged", "config unchanged", "launches: 1 -> 2")
    wider = replace(more, views=(replace(moved[0], shape=(9,)), moved[1]))
    assert causes(BASE, wider, ENVIRONMENT, ENVIRONMENT)[-1] == text


# a change taken apart: shares that multiply to the whole, timed no more often than needed, named in the message


A, B, C, D = (recording(binaries=(binary(code),)) for code in "abcd")
NONE = Share(0.0, "nothing moved")


def never(a: Recording, b: Recording) -> float:
    raise AssertionError("nothing needs to be timed")


# shares


def blaming(a: Recording, b: Recording, *names: str) -> Step:
    return Step(a, b, {name: Share(why=f"{name} changed") for name in names})


def test_one_step_is_the_whole() -> None:
    found = attribute(Chain((blaming(A, B, "code"), blaming(B, B, "config"))), 0.1, NONE, never)
    assert found == Attribution(
        NONE, SAME["compiler"], Share(pytest.approx(0.1), "code changed"), SAME["config"], SAME["launch"]
    )


@given(st.lists(st.floats(-0.5, 1.0), min_size=3, max_size=3))
def test_shares_multiply_to_the_whole(parts: list[float]) -> None:
    total = math.prod(1 + p for p in parts) - 1
    times = {id(A): 1.0, id(B): 1 + parts[0], id(C): (1 + parts[0]) * (1 + parts[1])}
    asked: list[tuple[Recording, Recording]] = []

    def measure(a: Recording, b: Recording) -> float:
        asked.append((a, b))
        return times[id(b)] / times[id(a)] - 1

    chain = Chain((blaming(A, B, "compiler"), blaming(B, C, "code"), blaming(C, D, "config")))
    found = attribute(chain, total, NONE, measure)
    shares = [found.compiler.change, found.code.change, found.config.change]
    assert shares == pytest.approx(parts, abs=1e-6)
    assert len(asked) == 2, "the last is what is left"


def test_a_share_that_fails_costs_only_itself() -> None:
    def measure(a: Recording, b: Recording) -> float:
        if a is A:
            raise ReplayError("no room")
        return 0.05

    found = attribute(Chain((blaming(A, B, "compiler"), blaming(B, C, "code"))), 0.2, NONE, measure)
    assert found.compiler.change is None
    assert "no room" in found.compiler.why
    assert found.code.change == 0.05, "measured, for nobody knows what the other left"
    assert found.config.change == 0.0


def test_what_was_timed_together_has_one_share() -> None:
    found = attribute(Chain((blaming(A, B, "code", "launch"),)), 0.1, NONE, never)
    assert found.code == Share(pytest.approx(0.1), "code changed")
    assert found.launch == Share(None, "launch changed", within="code")


# the chain


def gone() -> Recording:
    raise ReplayError("its TTIR is not stored")


def of(code: str = "a", source: str = "s", config: Config | None = None, **compiler: Any) -> Recording:
    made = msgspec.structs.replace(binary(code), **compiler)
    return recording(binaries=(made,), launches=(launch(source=source, config=config),))


def blame(chain: Chain) -> list[dict[str, Share]]:
    """Of each step that has to be timed, what is to blame."""
    return [dict(step.blamed) for step in chain.steps if not step.nothing]


def test_a_change_of_source_needs_no_compiler_step() -> None:
    before, now = of("a"), of("b", source="t")
    chain = steps_between(before, gone, now, gone)
    assert blame(chain) == [{"code": Share(why="source changed")}]
    assert chain.known == {}


def test_another_triton_is_compiled_again() -> None:
    before, again, now = of("a", triton="3.6.0"), of("b"), of("b")
    chain = steps_between(before, lambda: again, now, gone)
    why = "Triton 3.6.0, assembler 12.9 -> Triton 3.9.0, assembler 12.9"
    assert blame(chain) == [{"compiler": Share(why=why)}]
    assert (chain.steps[0].before, chain.steps[0].after) == (before, again)


def test_flags_of_the_environment_are_the_compilers() -> None:
    flags = {"enable_fp_fusion": False, "ptx_options": "-O1"}
    told = {"options": flags, "settings": {"PTXAS_OPTIONS": "-O1", "TRITON_DEFAULT_FP_FUSION": "0"}}
    before, again, now = of("a"), of("b", **told), of("b", source="t", **told)
    chain = steps_between(before, lambda: again, now, gone)
    why = "PTXAS_OPTIONS unset -> -O1, TRITON_DEFAULT_FP_FUSION unset -> 0"
    assert blame(chain) == [{"compiler": Share(why=why, cause="compiler settings")}]


def test_flags_that_the_call_passes_are_its_launch_options() -> None:
    before, now = of("a", options={"enable_fp_fusion": True}), of("b", options={"enable_fp_fusion": False})
    chain = steps_between(before, lambda: before, now, gone)
    why = "launch options of add_kernel: enable_fp_fusion True -> False"
    assert blame(chain) == [{"launch": Share(why=why, cause="launch options")}]


def test_settings_that_only_the_assembler_sees_are_the_compilers() -> None:
    """``DISABLE_PTXAS_OPT`` is in no option and in no PTX."""
    before, again = of("a"), of("a", text="slow")
    ((name, share),) = blame(steps_between(before, lambda: again, again, gone))[0].items()
    assert (name, share.cause) == ("compiler", "compiler settings")
    assert "settings of the compiler" in share.why


def test_a_difference_that_only_compiling_again_makes_is_no_cause() -> None:
    """Today's compiler has another default than the baseline's had; the call passes what it always has."""
    before = of("a", triton="3.6.0", options={"launch_pdl": True})
    again = of("b", options={"launch_pdl": False})
    now = of("c", source="t", options={"launch_pdl": True})
    chain = steps_between(before, lambda: again, now, gone)
    assert [list(blamed) for blamed in blame(chain)] == [["compiler"], ["code"]]


def test_what_cant_be_compiled_again_is_part_of_the_next_step() -> None:
    before, now = of("a", triton="3.6.0"), of("b")
    why = "Triton 3.6.0, assembler 12.9 -> Triton 3.9.0, assembler 12.9"
    chain = steps_between(before, gone, now, gone)
    assert blame(chain) == [{"compiler": Share(why=why)}], "nothing else changed"
    chain = steps_between(before, gone, of("b", source="t"), gone)
    assert blame(chain) == [{"code": Share(why="source changed"), "compiler": Share(why=why)}]


def test_another_config_is_a_step_of_its_own() -> None:
    small, large = Config({"BLOCK": 64}), Config({"BLOCK": 128})
    before, chosen, now = of("a", config=small), of("a", config=small), of("b", config=large)
    chain = steps_between(before, lambda: before, now, lambda: chosen)
    assert blame(chain) == [{"config": Share(why="config of add_kernel changed: BLOCK 64 -> 128")}]
    assert (chain.steps[-1].before, chain.steps[-1].after) == (chosen, now)


def test_where_configs_have_no_counterpart_code_and_config_stay_one() -> None:
    before, now = of("a", config=Config({"BLOCK": 64})), of("b", config=Config({"BLOCK": 128}), source="t")
    chain = steps_between(before, lambda: before, now, raising(ValueError("a user's hook")))
    assert list(blame(chain)[0]) == ["code", "config"]
    found = attribute(chain, 0.1, NONE, never)
    assert shares_text(found) == "attributed: code and config choice +10.0 %"


# on the scripted GPU

FAST, SLOW = block(64, 10_000.0), block(128, 11_000.0)


@triton.jit
def slower_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + 1, mask=i < n)


def call_of(kernel: Any, **meta: Any) -> Any:
    return lambda x: kernel[by_block](x, torch.empty_like(x), N, 2.0, **meta)


def regressed(project: Project, before: Any, after: Any, *rules: Rule) -> CaseResult:
    project.once(*rules).judge(before, x_of())
    result = project.once(*rules).judge(after, x_of())
    assert result.verdict is Verdict.REGRESSED
    assert result.attribution is not None
    return result


def shares_of(result: CaseResult) -> dict[str, float | None]:
    assert result.attribution is not None
    parts = msgspec.structs.asdict(result.attribution)
    return {k: None if v.change is None else round(v.change, 2) for k, v in parts.items()}


def test_code_is_to_blame(project: Project) -> None:
    result = regressed(project, call_of(scale_kernel, BLOCK=64), call_of(slower_kernel, BLOCK=64),
                       Rule("slower_kernel", time_ns=11_000.0))  # fmt: skip
    assert shares_of(result) == {"environment": 0.0, "compiler": 0.0, "code": 0.1, "config": 0.0, "launch": 0.0}
    assert ", attributed: code +10.0 %" in result.message


def test_launch_options_changed_by_hand_are_to_blame(project: Project) -> None:
    """The kernel's text is the same, so it isn't the code."""
    before, after = call_of(scale_kernel, BLOCK=4096, num_warps=8), call_of(scale_kernel, BLOCK=128, num_warps=1)
    result = regressed(project, before, after, block(4096, 10_000.0), SLOW)
    assert shares_of(result) == {"environment": 0.0, "compiler": 0.0, "code": 0.0, "config": 0.0, "launch": 0.1}
    assert ", attributed: launch options and grid +10.0 %, code unchanged, " in result.message
    assert ", launch options of scale_kernel: num_warps 8 -> 1, BLOCK 4096 -> 128" in result.message
    assert "config" not in result.message


def test_a_lost_config_is_to_blame_though_it_is_no_candidate_any_more(project: Project) -> None:
    result = regressed(project, call_of(tuned(64, 128)), call_of(tuned(128)), FAST, SLOW)
    assert shares_of(result) == {"environment": 0.0, "compiler": 0.0, "code": 0.0, "config": 0.1, "launch": 0.0}


def test_code_and_config_are_told_apart(project: Project) -> None:
    """The source got 20 % slower, and the config that was best is gone: 10 % more."""
    rules = (
        Rule("slower_kernel", {"BLOCK": 64}, time_ns=12_000.0),
        Rule("slower_kernel", {"BLOCK": 128}, time_ns=13_200.0),
        FAST, SLOW,
    )  # fmt: skip
    configs = [triton.Config({"BLOCK": 128})]
    after = call_of(triton.autotune(configs, key=["n"])(slower_kernel))
    result = regressed(project, call_of(tuned(64, 128)), after, *rules)
    assert shares_of(result) == {"environment": 0.0, "compiler": 0.0, "code": 0.2, "config": 0.1, "launch": 0.0}


def test_the_compiler_is_to_blame(project: Project) -> None:
    rules = (Rule(triton="3.0.0", time_ns=10_000.0), Rule(time_ns=11_000.0))
    call = call_of(scale_kernel, BLOCK=64)
    project.once(Rule(time_ns=10_000.0)).judge(call, x_of())
    by_another_compiler(project)
    result = project.once(*rules).judge(call, x_of())
    assert result.verdict is Verdict.REGRESSED
    assert shares_of(result) == {"environment": 0.0, "compiler": 0.1, "code": 0.0, "config": 0.0, "launch": 0.0}
    assert ", attributed: compiler +10.0 %" in result.message


def test_the_environment_is_to_blame(project: Project) -> None:
    call = call_of(scale_kernel, BLOCK=64)
    project.once(FAST).judge(call, x_of())
    with project.run(FAST, shift=1.2) as run:
        result = run.judge(call, x_of())
        other = run.judge(call_of(slower_kernel, BLOCK=64), x_of())
    assert result.verdict is other.verdict is Verdict.DRIFTED
    for found in (result, other):
        assert shares_of(found) == {"environment": 0.2, "compiler": 0.0, "code": 0.0, "config": 0.0, "launch": 0.0}
        assert ", attributed: environment +20.0 %" in found.message


def test_nobody_asks_after_a_pass(project: Project) -> None:
    with project.run(FAST) as run:
        assert run.judge(call_of(scale_kernel, BLOCK=64), x_of()).attribution is None
        result = run.judge(call_of(slower_kernel, BLOCK=64), x_of())
    assert (result.verdict, result.attribution) == (Verdict.PASS, None)


# changing what is stored


def stored(project: Project) -> tuple[BaselineStore, TimeBaseline]:
    store = BaselineStore(project.baselines, project.root)
    found = store.read(project.files()[0])
    assert found is not None
    return store, found


def keep(project: Project, made: TimeBaseline, recording: Recording) -> None:
    project.files()[0].write_bytes(to_json(msgspec.structs.replace(made, recording=recording)))


def by_another_compiler(project: Project) -> None:
    """As if Triton 3.0 had compiled it to other machine code."""
    store, made = stored(project)
    data = b"\x7fELF made by another compiler"
    sha = hashlib.sha256(data).hexdigest()
    store.artifacts(made.device.target).put(sha, data)
    old = msgspec.structs.replace(made.recording.binaries[0], triton="3.0.0", code="other", sha256=sha)
    keep(project, made, msgspec.structs.replace(made.recording, binaries=(old,)))


def test_a_change_of_source_and_assembler_is_told_apart_by_compiling_again() -> None:
    before, again, now = of("a"), of("b", assembler="13.0"), of("c", source="t", assembler="13.0")
    chain = steps_between(before, lambda: again, now, gone)
    assert [list(blamed) for blamed in blame(chain)] == [["compiler"], ["code"]]


@pytest.mark.parametrize("moved", [True, False])
def test_where_another_implementation_won_its_launches_are_its_own(moved: bool) -> None:
    before = msgspec.structs.replace(of("a"), choices={"op": "x"})
    after = msgspec.structs.replace(of("b"), choices={"op": "y"})
    if moved:
        after = msgspec.structs.replace(after, launches=(launch(grid=(9, 1, 1), config=None),))
    (blamed,) = blame(steps_between(before, lambda: before, after, gone))
    assert blamed["launch"] == Share(why="op: x -> y", cause="another implementation won")


def test_of_three_steps_the_last_takes_what_the_others_leave() -> None:
    steps = (blaming(A, B, "compiler"), blaming(B, C, "code"), blaming(C, D, "config"))
    measured: list[tuple[Recording, Recording]] = []

    def measure(a: Recording, b: Recording) -> float:
        measured.append((a, b))
        return 0.1 if a is A else 0.2

    found = attribute(Chain(steps), 0.98, NONE, measure)
    assert [found.compiler.change, found.code.change] == [0.1, 0.2]
    assert found.config.change == pytest.approx(0.5)
    assert measured == [(A, B), (B, C)]
    assert (found.launch, found.environment) == (Share(0.0, "nothing that runs differs by the launch"), NONE)


def test_without_a_total_every_step_is_measured() -> None:
    found = attribute(Chain((blaming(A, B, "code"),)), None, NONE, lambda a, b: 0.3)
    assert found.code.change == 0.3
    unknown = attribute(Chain((blaming(A, B, "code"),), {"config": Share(None)}), 0.1, NONE, lambda a, b: 0.3)
    assert unknown.code.change == 0.3, "the total has a part that nobody knows"


@pytest.mark.parametrize(
    ("before", "after", "alone"),
    [(("aten.add",), ("aten.add",), True), ((), ("aten.add",), False), (("aten.add",), (), False), ((), (), False)],
)
def test_a_generated_kernel_is_generated_on_both_sides(
    before: tuple[str, ...], after: tuple[str, ...], alone: bool
) -> None:
    old, new = with_launch(source="1" * 64, origins=before), with_launch(source="2" * 64, origins=after)
    assert _generated_alone(old, new) is alone
    assert not _generated_alone(old, old)


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (("a",), "a's generated code"), (("a", "b", "c"), "a, b, c's generated code"),
        (("a", "b", "c", "d"), "a, b, c and 1 more's generated code"), (("a", "b", "a"), "a, b's generated code"),
    ],
)  # fmt: skip
def test_three_calls_of_torch_are_named(calls: tuple[str, ...], text: str) -> None:
    made = GeneratedFrom("2.15.0", calls, (), "")
    assert regenerated(static(), SOFTMAX_2_13, made) == text


def test_a_generated_kernel_without_calls_goes_by_its_operators_or_its_name() -> None:
    made = GeneratedFrom("2.15.0", (), ("aten.exp",), "")
    assert regenerated(static(origins=("aten.exp", "prims.x")), SOFTMAX_2_13, made) == "exp, prims.x's decomposition"
    assert regenerated(static(origins=()), SOFTMAX_2_13, made) == "add's decomposition"
    assert regenerated(static(), replace(SOFTMAX_2_13, operators=()), made) == "add's generated code"
