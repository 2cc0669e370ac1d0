"""What differs between then and now, in words."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ENVIRONMENT, binary, launch, recording

from kerntune.base.config import Config
from kerntune.base.recording import Recording
from kerntune.gate.causes import causes, code_cause, launch_cause
from kerntune.gate.launch_changes import changed_sources, other_torch
from kerntune.gate.static_figures import LaunchStatic, paired
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


def test_another_assembler_is_named() -> None:
    after = recording(launches=BASE.launches, binaries=(binary(assembler="13.0"),))
    found = causes(BASE, after, ENVIRONMENT, ENVIRONMENT)
    assert found[0] == "code unchanged, Triton 3.9.0, assembler 12.9 -> Triton 3.9.0, assembler 13.0"


def test_one_line_per_changed_config() -> None:
    before = recording(launches=(launch(kernel="a", config=SMALL), launch(kernel="b", config=SMALL)))
    after = recording(launches=(launch(kernel="a", config=LARGE), launch(kernel="b", config=SMALL)))
    assert causes(before, after, ENVIRONMENT, ENVIRONMENT) == (
        "code unchanged",
        "config of a changed: BLOCK 128 -> 256, num_warps 4 -> 8",
    )


def test_constants_and_options_that_a_launch_passes_are_its_options() -> None:
    """Not a config, which is chosen; what specialization made of an argument is neither."""
    told = {"options": {"num_warps": 4, "arch": "sm90"}, "constexprs": {"BLOCK": "128", "stride": "1"}}
    before = recording(binaries=(binary(**told),), launches=(launch(config=None),))
    other = {"options": {"num_warps": 8, "arch": "sm90"}, "constexprs": {"BLOCK": "256", "EVEN": "True"}}
    after = recording(binaries=(binary(**other),), launches=(launch(config=None),))
    found = causes(before, after, ENVIRONMENT, ENVIRONMENT)
    assert found == ("code unchanged", "launch options of add_kernel: num_warps 4 -> 8, BLOCK 128 -> 256")


def test_a_constant_beside_a_config_is_a_launch_option() -> None:
    before = recording(binaries=(binary(constexprs={"BLOCK": "128", "HEAD": "64"}),), launches=BASE.launches)
    after = recording(binaries=(binary(constexprs={"BLOCK": "256", "HEAD": "128"}),), launches=(launch(config=LARGE),))
    assert causes(before, after, ENVIRONMENT, ENVIRONMENT)[1:] == (
        "config of add_kernel changed: BLOCK 128 -> 256, num_warps 4 -> 8",
        "launch options of add_kernel: HEAD 64 -> 128",
    )


def test_nothing_changed() -> None:
    assert causes(BASE, BASE, ENVIRONMENT, ENVIRONMENT) == ("code unchanged", "config unchanged")


def test_changed_machine_code_is_not_said_twice() -> None:
    """The first sentence is about code already; a grid is a further change."""
    after = recording(
        launches=(launch(config=SMALL, source="edited", grid=(9, 1, 1)),),
        binaries=(binary("other", shared=4096),),
    )
    assert causes(BASE, after, ENVIRONMENT, NEWER) == (
        "code changed, Triton 3.9.0 -> 3.10.0",
        "config unchanged",
        "launch 0 (add_kernel): grid changed",
    )


def test_an_added_launch_is_a_cause() -> None:
    after = recording(launches=(*BASE.launches, launch(config=None)))
    found = causes(BASE, after, ENVIRONMENT, ENVIRONMENT)
    assert found == ("code unchanged", "config unchanged", "launches: 1 -> 2")


def test_launches_in_another_order_are_a_cause_and_no_change_of_code() -> None:
    a, b = launch(kernel="a", source="a", grid=(2, 1, 1)), launch(kernel="b", source="b")
    found = causes(recording(launches=(a, b)), recording(launches=(b, a)), ENVIRONMENT, ENVIRONMENT)
    assert found == ("code unchanged", "config unchanged", "order of launches changed")


def test_another_kernel_in_its_place_is_other_code() -> None:
    after = recording(launches=(launch(kernel="mul_kernel", source="other", config=Config({"ROWS": 8})),))
    assert causes(BASE, after, ENVIRONMENT, ENVIRONMENT)[:2] == ("code changed", "config unchanged")


def test_the_environment_alone_is_no_cause_here() -> None:
    """The caller adds it; a driver is no change of code or compiler."""
    moved = replace(ENVIRONMENT, driver="other", torch="other", sm_clock_mhz=1)
    assert causes(BASE, BASE, ENVIRONMENT, moved) == ("code unchanged", "config unchanged")


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
        (
            {"config": None, "compiled_for": told(BLOCK="constexpr 64", num_stages="3")},
            "config (BLOCK 128 -> 64)",
        ),
        ({"compiled_for": told(x="*fp32", n="== 1")}, "arguments (x: *fp32, divisible by 16 -> *fp32; n: i32 -> == 1)"),
        ({"compiler": "Triton 3.9.1, assembler 12.8"}, "compiler (Triton 3.9.0, assembler 12.8 -> Triton 3.9.1, "),
        ({"source": "other", "compiled_for": told(n="i64")}, "code (its source changed) and arguments (n: i32 -> i64)"),
        ({}, "something that is not kept (same source, config, launch options, arguments and compiler)"),
    ],
)
def test_who_is_to_blame(changes: dict[str, object], why: str) -> None:
    after = static(code="other", stages={**static().stages, "llir": "9", "ptx": "9"}, **changes)
    text = launch_cause(static(), after, "3.9", "3.9")
    assert text.startswith(f"add: because of {why}")
    assert text.endswith(", first in LLIR")
    assert launch_cause(static(), replace(after, code="c"), "3.9", "3.9") == ""


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
    assert launch_cause(before, after, "3.9", "3.9") == f"triton_softmax: because of {why}"
    known = launch_cause(before, after, "3.9", "3.9", same_code=True)
    assert known == f"triton_softmax: because of {why.replace(' or code', '')}"
    alone = why.startswith("torch") and " or code" not in why and "Inductor's" not in why
    assert other_torch(before, after) == alone
    users = not alone and after.source != "s"
    assert [*changed_sources([before], [after])] == (["add -> triton_softmax"] if users else [])


def test_a_persons_kernel_is_not_torchs() -> None:
    after = static(code="other", source="other", stages={})
    assert launch_cause(static(), after, "3.9", "3.9", same_code=True) == "add: because of code (its source changed)"


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
    why = "add: because of launch options (num_warps 4 -> 8, BLOCK 128 -> 64)"
    assert launch_cause(before, after, "3.9", "3.9") == why


def test_another_series_is_another_compiler_even_if_baselines_did_not_keep_it() -> None:
    text = launch_cause(static(compiler="", stages={}), static(code="other"), "3.8", "3.9")
    assert text == "add: because of compiler (Triton 3.8 -> Triton 3.9.0, assembler 12.8)"


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
