"""Generated kernels: which belong together on two sides, and what is told where they are divided otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec
import pytest
from samples import launch as recorded

from kerntune.base.policy import StaticPolicy, StaticRule
from kerntune.gate.fusion import fusion_lines, operators
from kerntune.gate.launch_changes import changed_sources, count_findings
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.static.metrics import StaticMetrics

FIGURES = StaticMetrics(32, 0, 0, 0, 0, 4096, 128, {"total": 100}, 1.0, "threads")
numbers: Iterator[int] = count()


def generated(origins: str, *, source: str = "", code: str = "", kernel: str = "") -> LaunchStatic:
    """A launch of a kernel that was generated for some operators; other code and source than any other's by default."""
    names = tuple(sorted(f"aten.{name}" for name in origins.split()))
    word = kernel or "triton_poi_fused_" + "_".join(sorted(set(origins.split())))
    return LaunchStatic(
        word,
        source or f"source {next(numbers)}",
        code or f"code {next(numbers)}",
        "t",
        (64, 1, 1),
        FIGURES,
        origins=names,
    )


def written(kernel: str, code: str = "") -> LaunchStatic:
    return LaunchStatic(kernel, "s", code or f"code {next(numbers)}", "t", (64, 1, 1), FIGURES)


def pairs(before: list[LaunchStatic], after: list[LaunchStatic]) -> set[tuple[int, int]]:
    """Indices before and after; -1 where one side has no counterpart."""
    return {(place(before, old), place(after, new)) for old, new in paired(before, after)}


def place(side: list[LaunchStatic], launch: LaunchStatic | None) -> int:
    return next((i for i, x in enumerate(side) if x is launch), -1)


def test_equal_code_belongs_together_whatever_it_is_called() -> None:
    before = [generated("sin sum", code="a"), generated("clone t", code="b")]
    after = [generated("clone sum t", code="a"), generated("sin sum", code="b")]
    assert pairs(before, after) == {(0, 0), (1, 1)}


def test_equal_sources_belong_together_before_equal_operators() -> None:
    before = [generated("sin sum", source="one"), generated("sin sum", source="two")]
    after = [generated("sin sum", source="two"), generated("add sin", source="one")]
    assert pairs(before, after) == {(1, 0), (0, 1)}


def test_equal_operators_belong_together_before_similar_ones() -> None:
    before = [generated("add mul sin"), generated("add mul")]
    after = [generated("add mul"), generated("add mul cos")]
    assert pairs(before, after) == {(1, 0), (0, 1)}


def test_kernels_without_a_common_operator_have_no_counterpart() -> None:
    assert pairs([generated("sum")], [generated("gelu")]) == {(-1, 0), (0, -1)}


def test_kernels_of_persons_are_paired_as_before() -> None:
    before = [written("add"), generated("sum"), written("old")]
    after = [generated("sum"), written("add"), written("new")]
    assert pairs(before, after) == {(1, 0), (0, 1), (2, 2)}


def test_two_kernels_became_three() -> None:
    before = [generated("add gelu"), generated("softmax", source="same")]
    before += [generated("mul sum")]
    after = [generated("add"), generated("gelu"), generated("softmax", source="same"), generated("mul sum")]
    assert fusion_lines(before, after) == (
        "fusion changed: 1 kernel became 2: triton_poi_fused_add_gelu (add, gelu) -> "
        "triton_poi_fused_add (add), triton_poi_fused_gelu (gelu)",
    )
    joined = [generated("add gelu"), generated("gelu mul")]
    (line,) = fusion_lines(joined, [generated("add"), generated("gelu 2"), generated("gelu mul add")])
    assert line.startswith("fusion changed: 2 kernels became 3: ")


def test_a_sum_in_two_steps_is_the_kernel_that_it_was() -> None:
    kept = generated("softmax", source="kept")
    assert fusion_lines([kept, generated("sum")], [kept, generated("sum"), generated("sum")]) == (
        "fusion changed: 1 kernel became 2: triton_poi_fused_sum (sum) -> "
        "triton_poi_fused_sum (sum), triton_poi_fused_sum (sum)",
    )
    found = count_findings([generated("mul sum")], [generated("mul sum"), generated("sum")])
    assert [f.text.partition(":")[0] for f in found if f.rule == "fusion"] == ["1 kernel became 2"]
    (line,) = fusion_lines([generated("sum"), generated("sum")], [generated("sum")])
    assert line.startswith("fusion changed: 2 kernels became 1: ")


def test_a_kernel_beside_one_that_is_as_it_was_is_no_part_of_it() -> None:
    for same in ({"source": "same"}, {"code": "same"}):
        before, after = [generated("sum", **same)], [generated("sum", **same), generated("sum")]
        assert fusion_lines(before, after) == ("fusion changed: 1 kernel more: triton_poi_fused_sum (sum)",)
    (line,) = fusion_lines([generated("sum")], [generated("sum"), generated("sum mul")])
    assert line.startswith("fusion changed: 1 kernel more: ")


def test_a_part_whose_operators_are_written_as_others_is_one_of_the_kernel_before() -> None:
    norm = generated("gelu native_layer_norm")
    (line,) = fusion_lines([norm], [generated("native_layer_norm"), generated("add erf mul")])
    assert line == (
        "fusion changed: 1 kernel became 2: triton_poi_fused_gelu_native_layer_norm (gelu, native_layer_norm) -> "
        "triton_poi_fused_native_layer_norm (native_layer_norm), triton_poi_fused_add_erf_mul (add, erf, mul)"
    )
    kept = generated("softmax", source="kept")
    elsewhere = fusion_lines([norm, kept], [generated("native_layer_norm"), kept, generated("add erf mul")])
    assert [line.split(":")[1] for line in elsewhere] == [" 1 kernel fused otherwise", " 1 kernel more"]
    whole = fusion_lines([norm], [generated("gelu native_layer_norm mul"), generated("add erf")])
    assert [line.split(":")[1] for line in whole] == [" 1 kernel fused otherwise", " 1 kernel more"]


def test_a_fusion_that_is_won_is_told_too() -> None:
    (line,) = fusion_lines([generated("add"), generated("add sum")], [generated("add add sum")])
    assert line == (
        "fusion changed: 2 kernels became 1: triton_poi_fused_add (add), triton_poi_fused_add_sum (add, sum) -> "
        "triton_poi_fused_add_sum (add 2x, sum)"
    )


def test_a_kernel_more_or_less_is_told() -> None:
    assert fusion_lines([], [generated("sum")]) == ("fusion changed: 1 kernel more: triton_poi_fused_sum (sum)",)
    assert fusion_lines([generated("sum")], []) == ("fusion changed: 1 kernel less: triton_poi_fused_sum (sum)",)


def test_an_operator_that_is_written_as_others_is_found_by_its_place() -> None:
    first, last = generated("softmax", source="first"), generated("sum", source="last")
    before = [first, generated("gelu"), last]
    found = count_findings(before, [first, generated("mul"), generated("add erf mul"), last])
    assert [f.text for f in found if f.rule == "fusion"] == [
        "1 kernel became 2: triton_poi_fused_gelu (gelu) -> "
        "triton_poi_fused_mul (mul), triton_poi_fused_add_erf_mul (add, erf, mul)"
    ]
    (line,) = fusion_lines([generated("gelu")], [generated("relu")])
    assert line.endswith("1 kernel fused otherwise: triton_poi_fused_gelu (gelu) -> triton_poi_fused_relu (relu)")


def test_kernels_of_two_places_are_no_change_of_each_other() -> None:
    middle = generated("softmax", source="middle")
    assert fusion_lines([generated("gelu"), middle], [middle, generated("relu")]) == (
        "fusion changed: 1 kernel more: triton_poi_fused_relu (relu)",
        "fusion changed: 1 kernel less: triton_poi_fused_gelu (gelu)",
    )


def test_a_replaced_kernel_is_a_change_of_code() -> None:
    assert list(changed_sources([generated("gelu")], [generated("mul"), generated("erf")])) == [
        "triton_poi_fused_gelu -> triton_poi_fused_mul, triton_poi_fused_erf"
    ]
    assert list(changed_sources([], [generated("mul")])) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([generated("add mul")], [generated("add mul")], id="other code of the same operators"),
        pytest.param([generated("add", source="s")], [generated("clone", source="s")], id="the same source"),
        pytest.param([generated("add", code="c")], [generated("clone", code="c")], id="the same code"),
        pytest.param([written("a"), written("b")], [written("a")], id="kernels of persons"),
    ],
)
def test_what_is_no_change_of_fusion(before: list[LaunchStatic], after: list[LaunchStatic]) -> None:
    assert fusion_lines(before, after) == ()


def test_a_lost_fusion_fails_unless_the_rule_is_set_otherwise() -> None:
    before, after = [generated("add gelu")], [generated("add"), generated("gelu")]
    first, *_ = count_findings(before, after)
    assert (first.severity, first.rule, first.before, first.after) == ("fail", "fusion", 1, 2)
    assert first.text.startswith("1 kernel became 2: ")
    off = StaticPolicy({"fusion": StaticRule("off"), "launches": StaticRule("off")})
    assert count_findings(before, after, off) == []


def test_new_work_is_no_lost_fusion() -> None:
    before = [generated("add gelu", code="a")]
    found = count_findings(before, [generated("add gelu", code="a"), generated("sum")])
    assert [f.rule for f in found] == ["launches"]


def test_long_lists_of_operators_are_cut() -> None:
    assert operators([f"aten.op{i}" for i in range(8)]) == "op0, op1, op2, op3, op4, op5, 2 more"


def test_one_operator_that_is_written_as_three_kernels_is_one_change() -> None:
    first, last = generated("exp", code="e"), generated("log", code="l")
    after = [first, generated("mul"), generated("erf"), generated("add"), last]
    (line,) = fusion_lines([first, generated("gelu"), last], after)
    assert line == (
        "fusion changed: 1 kernel became 3: triton_poi_fused_gelu (gelu) -> "
        "triton_poi_fused_mul (mul), triton_poi_fused_erf (erf), triton_poi_fused_add (add)"
    )


@pytest.mark.parametrize(("count", "more"), [(6, ""), (7, " and 1 more")])
def test_six_kernels_are_named(count: int, more: str) -> None:
    (line, *rest) = fusion_lines([], [generated("add", kernel=f"k{i}") for i in range(count)])
    assert rest == []
    assert line.endswith(f"k5 (add){more}")
    assert f"{count} kernels more: k0 (add)" in line


@pytest.mark.parametrize(
    ("names", "text"), [("a b c d e f", "a, b, c, d, e, f"), ("a b c d e f g", "a, b, c, d, e, f, 1 more")]
)
def test_six_operators_are_named(names: str, text: str) -> None:
    assert operators([f"aten.{name}" for name in names.split()]) == text
    assert operators(["aten.add", "aten.mul", "aten.add"]) == "add 2x, mul"


def test_kernels_of_a_change_are_told_in_their_order() -> None:
    """Also those that are found to belong together only later: the first and the third have an operator in common."""
    first, last = generated("exp", code="e"), generated("log", code="l")
    after = [first, generated("mul"), generated("erf"), generated("mul tanh"), last]
    (line,) = fusion_lines([first, generated("gelu"), last], after)
    places = [line.index(f"({names})") for names in ("mul", "erf", "mul, tanh")]
    assert places == sorted(places)
    (line,) = fusion_lines([first, *after[1:4], last], [first, generated("gelu"), last])
    places = [line.index(f"({names})") for names in ("mul", "erf", "mul, tanh")]
    assert places == sorted(places)


def test_launches_as_they_were_recorded_are_compared_by_their_operators() -> None:
    """They have no code of their own."""
    fused = recorded(kernel="both", source="1", origins=("aten.add", "aten.mul"))
    parts = [recorded(kernel=name, source=name, origins=(f"aten.{name}",)) for name in ("add", "mul")]
    (line,) = fusion_lines([fused], parts)
    assert line == "fusion changed: 1 kernel became 2: both (add, mul) -> add (add), mul (mul)"
    assert fusion_lines([fused], [msgspec.structs.replace(fused, source="2")]) == ()
    assert fusion_lines([fused], [msgspec.structs.replace(parts[0], source="1")]) == ()
