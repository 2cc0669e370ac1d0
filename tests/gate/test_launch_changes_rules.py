"""More launches, larger grids, and whether a config explains them."""

from __future__ import annotations

import msgspec
import pytest

from kerntune.base.config import Config
from kerntune.base.policy import StaticPolicy, StaticRule
from kerntune.gate.launch_changes import compare_launches, count_findings
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.static.code_rules import Finding
from kerntune.static.metrics import StaticMetrics

FIGURES = StaticMetrics(32, 0, 0, 0, 0, 4096, 128, {"total": 100, "global_load_128": 4}, 1.0, "threads")


def launch(kernel: str = "add", grid: int = 96, code: str = "a", **told: str) -> LaunchStatic:
    constants = {name: f"constexpr {text}" for name, text in told.items() if name.isupper()}
    options = {"num_warps": "4"} | {name: text for name, text in told.items() if not name.isupper()}
    return LaunchStatic(
        kernel, "s", code, "t", (grid, 1, 1), FIGURES, compiled_for={"x": "*fp32", **options, **constants}
    )


def grids(before: LaunchStatic, after: LaunchStatic, rules: StaticPolicy = StaticPolicy()) -> list[Finding]:  # noqa: B008 - frozen
    (pair,) = compare_launches([before], [after], rules)
    return [f for f in pair.findings if f.rule == "grid"]


def test_a_grid_that_grew_is_a_warning_with_its_factor() -> None:
    (finding,) = grids(launch(), launch(grid=192))
    assert (finding.severity, finding.before, finding.after) == ("warn", 96, 192)
    assert "2 times as many programs: 96 -> 192 (grid 96x1x1 -> 192x1x1)" in finding.text
    (finding,) = grids(launch(), launch(grid=192), StaticPolicy({"grid": StaticRule("fail", 0.1)}))
    assert finding.severity == "fail"
    assert grids(launch(), launch(grid=192), StaticPolicy({"grid": StaticRule("off")})) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(launch(), launch(grid=97), id="rounded up"),
        pytest.param(launch(), launch(grid=48), id="fewer"),
        pytest.param(launch(grid=0), launch(grid=9), id="nothing before"),
        pytest.param(launch(BLOCK="1024"), launch(grid=192, code="b", BLOCK="512"), id="half the tile"),
        pytest.param(launch(BM="128", BK="32"), launch(grid=192, code="b", BM="64", BK="64"), id="another tile"),
        pytest.param(launch(BM="128", BN="128"), launch(grid=384, code="b", BM="64", BN="64"), id="half of both sides"),
        pytest.param(launch(SPLIT="1"), launch(grid=384, code="b", SPLIT="4"), id="four times the splits"),
    ],
)
def test_what_a_grid_may_do(before: LaunchStatic, after: LaunchStatic) -> None:
    assert grids(before, after) == []


def test_another_tile_explains_its_factor_and_no_more() -> None:
    assert len(grids(launch(BLOCK="1024"), launch(grid=384, code="b", BLOCK="512"))) == 1


def test_numbers_of_a_file_that_no_setting_has_explain_nothing() -> None:
    """Python reads no number of 5,000 digits."""
    assert len(grids(launch(BLOCK="1024"), launch(grid=384, code="b", BLOCK="9" * 5000))) == 1


def test_one_launch_turned_into_sixteen() -> None:
    (finding,) = count_findings([launch()], [launch()] * 16)
    assert (finding.severity, finding.rule) == ("warn", "launches")
    assert finding.text == "16 times as many launches: 1 -> 16 (add 1 -> 16)"
    strict = StaticPolicy({"launches": StaticRule("fail", 0.0)})
    assert [f.severity for f in count_findings([launch()], [launch()] * 16, strict)] == ["fail"]


def test_one_launch_added() -> None:
    (finding,) = count_findings([launch()] * 2, [launch(), launch("relu"), launch()])
    assert finding.text == "1.5 times as many launches: 2 -> 3 (relu 0 -> 1)"


@pytest.mark.parametrize("launches", [0, 1, 2])
def test_as_many_launches_or_fewer(launches: int) -> None:
    assert count_findings([launch()] * 2, [launch("other")] * launches) == []
    assert count_findings([], [launch()] * launches) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(launch(BLOCK="1024"), launch(code="b", BLOCK="4096"), id="in the call"),
        pytest.param(launch(), launch(code="b", num_warps="8"), id="an option"),
        pytest.param(launch(), launch(code="b", maxnreg="64"), id="an option that wasn't given"),
        pytest.param(
            msgspec.structs.replace(launch(BLOCK="1024"), config=Config({"BLOCK": 1024})),
            launch(code="b", BLOCK="4096"),
            id="tuned before",
        ),
    ],
)
def test_a_meta_parameter_is_a_config_wherever_it_is_written(before: LaunchStatic, after: LaunchStatic) -> None:
    """Only rules that hold between configs fail: half as many warps may have accesses of a quarter of the width."""
    narrow = msgspec.structs.replace(FIGURES, instructions={"total": 100, "global_load_32": 4})
    (pair,) = compare_launches([before], [msgspec.structs.replace(after, metrics=narrow)])
    assert [(f.rule, f.severity) for f in pair.findings] == [("load_width", "warn")]
    (pair,) = compare_launches([before], [msgspec.structs.replace(before, code="b", metrics=narrow)])
    assert [(f.rule, f.severity) for f in pair.findings] == [("load_width", "fail")]


def test_a_tuned_launch_with_the_constants_of_a_written_one_is_the_same_config() -> None:
    tuned = msgspec.structs.replace(launch(BLOCK="1024"), config=Config({"BLOCK": 1024}))
    told = tuned.compiled_for | {"num_stages": "3"}
    assert (
        msgspec.structs.replace(tuned, compiled_for=told).setting_changes(
            msgspec.structs.replace(tuned, config=None, compiled_for=told)
        )
        == {}
    )


def test_a_baseline_that_does_not_say_what_it_was_compiled_for() -> None:
    bare = msgspec.structs.replace(launch(), compiled_for={})
    assert bare.setting_changes(launch(BLOCK="64")) == {}
    tuned = msgspec.structs.replace(bare, config=Config({"BLOCK": 64}))
    assert tuned.setting_changes(msgspec.structs.replace(launch(BLOCK="128"), config=Config({"BLOCK": 128}))) == {
        "BLOCK": ("64", "128")
    }


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([launch(grid=4, code="c"), launch(grid=8, BLOCK="64"), launch(grid=96)], id="the same code"),
        pytest.param([launch(grid=4, code="c"), launch(grid=8, code="d", BLOCK="64"), launch(grid=96, code="e")],
                     id="compiled for the same"),
        pytest.param([launch(grid=96), launch(grid=8), launch(grid=8, BLOCK="64")], id="another grid"),
        pytest.param([launch(grid=96), launch(grid=8, code="d", BLOCK="64")], id="in another order"),
    ],
)  # fmt: skip
def test_a_launch_that_is_added_shifts_no_others(after: list[LaunchStatic]) -> None:
    before = [launch(grid=8, code="b", BLOCK="64"), launch(grid=96)]
    pairs = compare_launches(before, after)
    assert {(p.before.grid, p.after.grid) for p in pairs} == {((8, 1, 1),) * 2, ((96, 1, 1),) * 2}


def test_renamed_kernels_go_together_and_none_is_lost() -> None:
    before = [launch("old"), launch("kept"), launch("gone", code="g")]
    pairs = paired(before, [launch("kept"), launch("new")])
    assert [(a and a.kernel, b and b.kernel) for a, b in pairs] == [("kept", "kept"), ("old", "new"), ("gone", None)]


def test_a_number_that_was_zero_explains_nothing() -> None:
    (found,) = grids(launch(grid=96, SPLIT="0"), launch(grid=384, SPLIT="4"))
    assert found.text.startswith("4 times as many programs: ")
    (found,) = grids(launch(grid=96, SPLIT="4"), launch(grid=384, SPLIT="0"))
    assert (found.before, found.after) == (96, 384)
