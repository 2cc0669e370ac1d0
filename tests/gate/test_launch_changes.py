"""No message about a change contradicts what changed: every combination of changes is attributed."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import torch
from fake_runs import N, block, scaled
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import ENVIRONMENT, binary, launch, recording

from gate.project import Project
from kerntune.base.case_result import Attribution, Share
from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.device import Target, typical_device
from kerntune.base.policy import METRIC_TOLERANCES, Metrics, Outcome, Policy, StaticPolicy, StaticRule, Verdict
from kerntune.base.recording import Binary, Launch, Param, Recording
from kerntune.errors import ReplayError
from kerntune.gate.causes import attribute, causes, launch_cause, steps_between
from kerntune.gate.launch_changes import (
    FIGURES,
    changed_most,
    changes_between,
    compare_launches,
    count_findings,
    exceeded,
)
from kerntune.gate.messages import shares_text
from kerntune.gate.static_figures import LaunchStatic, paired
from kerntune.static.code_rules import Finding
from kerntune.static.metrics import StaticMetrics

replace = msgspec.structs.replace

COST = {
    "source": 1.1, "config": 1.2, "options": 1.3, "flags": 1.4, "grid": 1.5, "scalars": 1.6, "order": 1.7,
    "triton": 1.8, "assembler": 1.9, "settings": 2.1, "drift": 2.3,
}  # fmt: skip
"""Things that change, and how much longer everything takes by each."""

LINES = {
    "source": "code changed",
    "config": "config of tuned changed: BLOCK 128 -> 256",
    "options": "launch options of plain: *num_warps 8 -> 1, *BLOCK 4096 -> 128",
    "flags": "launch options of plain: *launch_pdl False -> True",
    "grid": "(plain): grid changed",
    "scalars": "(plain): arguments changed",
    "order": "order of launches changed",
    "triton": "Triton 3.9.0 -> 3.10.0",
    "assembler": "assembler 12.9 -> ",
    "settings": "environment changed: DISABLE_PTXAS_OPT unset -> 1",
}
"""The text that must appear for each change, and must not appear without it. ``*``: any text."""

NAMES = {
    "code": {"source"},
    "launch options": {"options", "flags"},
    "grid": {"grid", "config"},
    "arguments": {"scalars"},
    "launches": {"order"},
    "config choice": {"config"},
    "compiler": {"triton", "assembler"},
    "compiler settings": {"settings"},
    "its settings": {"settings"},
    "environment": {"drift"},
    "unknown cause": {"flags"},
}
"""The changes that each part of an attribution is about; another tile makes another grid. Options that aren't tuned are
the environment's or the call's where both changed."""


@dataclass(frozen=True)
class Side:
    """A recording with ``changed`` things changed, and what it costs."""

    changed: frozenset[str]

    def has(self, thing: str) -> bool:
        return thing in self.changed

    @property
    def recording(self) -> Recording:
        launches = [self._tuned(), self._plain()]
        binaries = (self._binary("tuned"), self._binary("plain"))
        return recording(launches=tuple(launches[::-1] if self.has("order") else launches), binaries=binaries)

    def _binary(self, kernel: str) -> Binary:
        mine = {"tuned": {"source", "config"}, "plain": {"source", "options", "flags"}}[kernel]
        code = "".join(sorted(self.changed & (mine | {"triton", "assembler", "settings"})))
        many = kernel == "plain" and not self.has("options")
        return binary(
            f"{kernel} {code}",
            constexprs={"BLOCK": "4096" if many else "128"} if kernel == "plain" else {"BLOCK": str(self._block)},
            options={"num_warps": 8 if many else 1, "launch_pdl": kernel == "plain" and self.has("flags")},
            triton="3.10.0" if self.has("triton") else "3.9.0",
            assembler="13.0" if self.has("assembler") else "12.9",
            settings={"DISABLE_PTXAS_OPT": "1"} if self.has("settings") else {},
        )

    @property
    def _block(self) -> int:
        return 256 if self.has("config") else 128

    def _tuned(self) -> Launch:
        config = Config({"BLOCK": self._block}, num_warps=1)
        source = "tuned edited" if self.has("source") else "tuned"
        return launch(kernel="tuned", source=source, config=config, grid=(1024 // self._block, 1, 1))

    def _plain(self) -> Launch:
        number = Param("n", "i32", value=2048 if self.has("scalars") else 1024)
        grid = (16 if self.has("grid") else 8, 1, 1)
        return launch(kernel="plain", source="plain", config=None, binary=1, grid=grid, params=(number,))

    @property
    def cost(self) -> float:
        return math.prod(COST[x] for x in self.changed if x != "drift")


BASE = Side(frozenset())

COMPILER = frozenset({"triton", "assembler", "settings"})


class Machine:
    """Has the time of each recording, and stores all requests."""

    def __init__(self) -> None:
        self.costs: list[tuple[Recording, float]] = []

    def of(self, side: Side) -> Recording:
        made = side.recording
        self.costs.append((made, side.cost))
        return made

    def change(self, a: Recording, b: Recording) -> float:
        return self._cost(b) / self._cost(a) - 1

    def _cost(self, one: Recording) -> float:
        return next(cost for made, cost in self.costs if made is one)


def taken_apart(changed: frozenset[str], again_works: bool, then_works: bool) -> Attribution:
    machine, today = Machine(), Side(changed)
    before, now = machine.of(BASE), machine.of(today)

    def made(side: Side, works: bool) -> Callable[[], Recording]:
        def make() -> Recording:
            if not works:
                raise ReplayError("can't be had")
            return machine.of(side)

        return make

    again = made(Side(changed & COMPILER), again_works)
    chain = steps_between(before, again, now, made(Side(changed - {"config"}), then_works))
    drift = COST["drift"] - 1 if "drift" in changed else 0.0
    return attribute(chain, today.cost - 1, Share(drift), machine.change)


def blamed(text: str) -> list[set[str]]:
    """Per cause that is named, the things that may be meant."""
    shares = text.removeprefix("attributed: ").split(", ")
    names = [re.sub(r" ([+-][\d.]+ %|not measured)$", "", s) for s in shares if s != "no cause to speak of"]
    return [NAMES[word] for name in names for word in name.split(" and ")]


def accounted(changed: Set[str], parts: Attribution) -> float:
    shares = [getattr(parts, name) for name in ("compiler", "code", "launch", "config")]
    return math.prod(1 + (s.change or 0.0) for s in shares)


things = st.frozensets(st.sampled_from(sorted(COST)))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@example(frozenset({"options", "grid"}), True, True)
@example(frozenset({"order"}), True, True)
@example(frozenset({"triton", "config"}), False, False)
@given(things, st.booleans(), st.booleans())
def test_shares_are_named_after_what_changed(changed: frozenset[str], again: bool, then: bool) -> None:
    parts = taken_apart(changed, again, then)
    text = shares_text(parts)  # something that was not measured is attributed to no cause
    for things_blamed in blamed(text.partition(", compiler not measured")[0]):
        assert things_blamed & changed, f"{text}: nothing of {sorted(things_blamed)} changed"
    asked = changed & (tellable(changed) | {"assembler"})
    assert asked <= set().union(*blamed(text)), f"{text}: not all of {sorted(changed)}"
    assert accounted(changed, parts) == pytest.approx(Side(changed).cost), "no share is lost or counted twice"


def tellable(changed: Set[str]) -> Set[str]:
    """Another Triton brings another assembler; there and under other settings, untuned options have other defaults."""
    hidden = {"assembler"} if "triton" in changed else set()
    return COST.keys() - hidden - ({"flags"} if {"triton", "settings"} & changed else set())


@settings(max_examples=300, deadline=None)
@given(things)
def test_lines_say_what_changed_and_nothing_else(changed: frozenset[str]) -> None:
    today = replace(ENVIRONMENT, triton="3.10.0") if "triton" in changed else ENVIRONMENT
    lines = causes(BASE.recording, Side(changed).recording, ENVIRONMENT, today)
    text = ", ".join(lines)
    for thing, line in LINES.items():
        said = re.search(re.escape(line).replace(r"\*", ".*"), text) is not None
        assert said is (thing in changed & tellable(changed)), f"{thing}: {text}"
    assert ("code unchanged" in text) is ("source" not in changed)
    assert ("config unchanged" in text) is not any(x in text for x in ("config of", "launch options of"))


SAME_FIGURES = StaticMetrics(32, 0, 0, 0, 0, 1024, 128, {}, 1.0, "threads")
TOLD = {"x": "*fp32, divisible by 16", "BLOCK": "constexpr 4096", "num_warps": "8"}


def static_of(changed: frozenset[str]) -> LaunchStatic:
    tuned = Config({"BLOCK_K": 64 if "config" in changed else 32}, num_stages=2)
    told = {**TOLD, "BLOCK_K": f"constexpr {tuned.kwargs['BLOCK_K']}"}
    told |= {"BLOCK": "constexpr 128"} if "options" in changed else {}
    told |= {"x": "*fp32"} if "arguments" in changed else {}
    return LaunchStatic(
        "add",
        "edited" if "code" in changed else "text",
        "other" if changed else "code",
        "t",
        (1, 1, 1),
        SAME_FIGURES,
        tuned,
        {},
        told,
        "Triton 3.10.0, assembler 13.0" if "compiler" in changed else "Triton 3.9.0, assembler 12.9",
        compiler_settings={"DISABLE_PTXAS_OPT": "1"} if "environment" in changed else {},
    )


@given(st.frozensets(st.sampled_from(["code", "config", "options", "arguments", "compiler", "environment"])))
def test_static_cases_blame_what_changed_and_nothing_else(changed: frozenset[str]) -> None:
    series = "3.10" if "compiler" in changed else "3.9"
    text = str(launch_cause(static_of(frozenset()), static_of(changed), "3.9", series) or "")
    words = {"options": "launch options (BLOCK 4096 -> 128)"}
    for thing in ("code", "config", "options", "arguments", "compiler", "environment"):
        assert (words.get(thing, f"{thing} (") in text) is (thing in changed), text


def compiled_with(kernel: str, **constexprs: str) -> Recording:
    one = launch(kernel=kernel, source=kernel, config=None)
    return recording(launches=(one,), binaries=(binary(constexprs=constexprs),))


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        (compiled_with("add", BLOCK="256"), ("launch options of add: BLOCK 128 -> 256",)),
        (compiled_with("add", BLOCK="256", SPLIT="4"), ("launch options of add: BLOCK 128 -> 256, SPLIT unset -> 4",)),
        (compiled_with("renamed", BLOCK="256"), ("launch options of renamed: BLOCK 128 -> 256",)),
        (compiled_with("another", ROWS="256"), ()),
    ],
    ids=["the same names", "one more", "a renamed kernel", "another kernel"],
)
def test_settings_are_compared_of_the_same_kernel_and_of_a_renamed_one(
    after: Recording, lines: tuple[str, ...]
) -> None:
    """A renamed kernel has settings of the same names; those of any other kernel have no counterparts."""
    assert changes_between(compiled_with("add", BLOCK="128"), after).options == lines


# the kernel that a message names


def generated(*codes: str) -> Recording:
    """Launches of generated kernels of one name and the same operators, with these codes."""
    launches = tuple(
        launch(kernel="triton_poi_fused_exp", source=f"source {i}", binary=i, origins=("aten.exp", "aten.mul"))
        for i, _ in enumerate(codes)
    )
    return recording(launches=launches, binaries=tuple(binary(code) for code in codes))


def test_the_changed_kernel_with_the_most_time_is_named() -> None:
    """A generated kernel's other code has the same name, operators and config, so that nothing else names it."""
    told = "changed kernel with the most time: triton_poi_fused_exp (exp, mul)"
    before, after = generated("a", "b"), generated("a", "c")
    assert changed_most(before, after, [9.0, 1.0]) == changed_most(before, after) == told
    assert changed_most(before, before, [9.0, 1.0]) == ""
    other = replace(after.launches[0], kernel="triton_red_fused_sum", origins=("aten.sum",))
    slowest = replace(generated("x", "c"), launches=(other, after.launches[1]))
    was = replace(before, launches=(replace(before.launches[0], origins=("aten.sum",)), before.launches[1]))
    assert "triton_red_fused_sum (sum)" in changed_most(was, slowest, [9.0, 1.0])
    assert "triton_poi_fused_exp (exp, mul)" in changed_most(was, slowest, [1.0, 9.0])


@pytest.mark.parametrize("times", [(), (5.0, 5.0, 5.0)], ids=["not known", "equal"])
def test_of_changed_kernels_that_no_time_tells_apart_the_first_is_named(times: tuple[float, ...]) -> None:
    def of(codes: str) -> Recording:
        made = generated(*codes)
        named = (replace(x, kernel=f"triton_{i}") for i, x in enumerate(made.launches))
        return replace(made, launches=tuple(named))

    assert changed_most(of("abc"), of("axy"), times).startswith("changed kernel with the most time: triton_1 (")


def test_a_side_without_launches_has_no_compiler_that_could_be_another_one() -> None:
    nothing = recording(launches=(), binaries=())
    assert changes_between(nothing, recording()).compiler == ()
    assert changes_between(recording(), nothing).compiler == ()
    newer = recording(binaries=(binary(triton="3.10.0"),))
    changed = ("Triton 3.9.0, assembler 12.9 -> Triton 3.10.0, assembler 12.9",)
    assert changes_between(recording(), newer).compiler == changed


def test_a_kernel_that_a_person_wrote_is_named_by_its_causes() -> None:
    assert changed_most(recording(), recording(binaries=(binary("other"),)), [1.0]) == ""


# more launches, larger grids, and whether a config explains them


ADD_FIGURES = StaticMetrics(32, 0, 0, 0, 0, 4096, 128, {"total": 100, "global_load_128": 4}, 1.0, "threads")


def added(kernel: str = "add", grid: int = 96, code: str = "a", **told: str) -> LaunchStatic:
    constants = {name: f"constexpr {text}" for name, text in told.items() if name.isupper()}
    options = {"num_warps": "4"} | {name: text for name, text in told.items() if not name.isupper()}
    return LaunchStatic(
        kernel, "s", code, "t", (grid, 1, 1), ADD_FIGURES, compiled_for={"x": "*fp32", **options, **constants}
    )


def grids(before: LaunchStatic, after: LaunchStatic, rules: StaticPolicy = StaticPolicy()) -> list[Finding]:  # noqa: B008 - frozen
    (pair,) = compare_launches([before], [after], rules)
    return [f for f in pair.findings if f.rule == "grid"]


def test_a_grid_that_grew_is_a_warning_with_its_factor() -> None:
    (finding,) = grids(added(), added(grid=192))
    assert (finding.severity, finding.before, finding.after) == ("warn", 96, 192)
    assert "2 times as many programs: 96 -> 192 (grid 96x1x1 -> 192x1x1)" in finding.text
    (finding,) = grids(added(), added(grid=192), StaticPolicy({"grid": StaticRule("fail", 0.1)}))
    assert finding.severity == "fail"
    assert grids(added(), added(grid=192), StaticPolicy({"grid": StaticRule("off")})) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(added(), added(grid=97), id="rounded up"),
        pytest.param(added(), added(grid=48), id="fewer"),
        pytest.param(added(grid=0), added(grid=9), id="nothing before"),
        pytest.param(added(BLOCK="1024"), added(grid=192, code="b", BLOCK="512"), id="half the tile"),
        pytest.param(added(BM="128", BK="32"), added(grid=192, code="b", BM="64", BK="64"), id="another tile"),
        pytest.param(added(BM="128", BN="128"), added(grid=384, code="b", BM="64", BN="64"), id="half of both sides"),
        pytest.param(added(SPLIT="1"), added(grid=384, code="b", SPLIT="4"), id="four times the splits"),
    ],
)
def test_what_a_grid_may_do(before: LaunchStatic, after: LaunchStatic) -> None:
    assert grids(before, after) == []


def straight(grid: int = 96, loads: int = 4, code: str = "b", **told: str) -> LaunchStatic:
    """A launch of a kernel without loops, 64 bytes a thread and access of 128 bits."""
    counts = {"total": 100, "global_load_128": loads, "straight_line": 1}
    made = added(grid=grid, code=code, **told)
    return replace(made, metrics=replace(ADD_FIGURES, instructions=counts))


@pytest.mark.parametrize(
    ("before", "after", "severities"),
    [
        pytest.param(straight(code="a"), straight(grid=384), ["fail"], id="four times the programs"),
        pytest.param(straight(), straight(grid=384), ["fail"], id="of the same code"),
        pytest.param(straight(code="a"), straight(loads=12), ["fail"], id="three times the loads"),
        pytest.param(straight(code="a"), straight(grid=384, loads=1), [], id="programs of a quarter each"),
        pytest.param(straight(code="a"), straight(grid=192), [], id="twice"),
        pytest.param(straight(code="a"), straight(grid=32), [], id="fewer"),
        pytest.param(added(), straight(grid=384), [], id="a loop before"),
        pytest.param(straight(code="a"), added(grid=384, code="b"), [], id="a loop now"),
        pytest.param(straight(grid=0, code="a"), straight(), [], id="nothing before"),
        pytest.param(straight(code="a", BLOCK="128"), straight(grid=384, BLOCK="64"), ["warn"], id="another config"),
    ],
)
def test_bytes_that_all_programs_ask_for(before: LaunchStatic, after: LaunchStatic, severities: list[str]) -> None:
    (pair,) = compare_launches([before], [after])
    found = [f for f in pair.findings if f.metric == "accessed_bytes"]
    assert [f.severity for f in found] == severities
    assert {f.rule for f in found} <= {"work"}


def test_work_that_another_launch_may_have_given_up_only_warns() -> None:
    before, after = straight(code="a"), straight(grid=384)
    other = straight(code="c", BLOCK="1")
    for sides, severity in (
        (([before, other], [after, other]), "fail"),
        (([before], [after, other]), "fail"),
        (([before, other], [after]), "warn"),
        (([before, other], [after, straight(code="d", BLOCK="1")]), "warn"),
        (([before, other], [after, replace(other, grid=(1, 1, 1))]), "warn"),
    ):
        found = [f for pair in compare_launches(*sides) for f in pair.findings if f.metric == "accessed_bytes"]
        assert [f.severity for f in found] == [severity]


@pytest.mark.parametrize(("grid", "severity"), [(96, "warn"), (192, "fail")])
def test_narrower_accesses_of_fewer_bytes_need_as_many_programs(grid: int, severity: str) -> None:
    counts = {"total": 100, "global_load_32": 4, "straight_line": 1}
    after = replace(straight(grid=grid), metrics=replace(ADD_FIGURES, instructions=counts))
    (pair,) = compare_launches([straight(code="a")], [after])
    assert [f.severity for f in pair.findings if f.rule == "load_width"] == [severity]


def test_bytes_of_bulk_copies_and_of_products_are_not_counted_so() -> None:
    for kind in ("tma", "tensor_core"):
        figures = replace(ADD_FIGURES, instructions={**straight().metrics.instructions, kind: 1})
        before, after = (replace(x, metrics=figures) for x in (straight(code="a"), straight(grid=384)))
        (pair,) = compare_launches([before], [after])
        assert [f for f in pair.findings if f.metric == "accessed_bytes"] == []


H100 = typical_device(Target.parse("cuda:90"))


@pytest.mark.parametrize(
    ("before", "after", "warps", "told"),
    [
        pytest.param(512, 512, "1", "24.2% -> 6.1%", id="fewer warps"),
        pytest.param(512, 256, "4", "24.2% -> 12.1%", id="fewer programs"),
        pytest.param(512, 300, "4", "", id="not by half"),
        pytest.param(8192, 2112, "4", "", id="enough are left"),
        pytest.param(512, 512, "4", "", id="as many"),
    ],
)
def test_a_launch_that_leaves_the_device_idle_is_warned_of(before: int, after: int, warps: str, told: str) -> None:
    launches = [added(grid=before), added(grid=after, code="b", num_warps=warps)]
    launches[1] = replace(launches[1], metrics=replace(ADD_FIGURES, threads=32 * int(warps)))
    (pair,) = compare_launches(launches[:1], launches[1:], spec=H100)
    found = [f for f in pair.findings if f.metric == "resident"]
    assert [(f.severity, f.rule) for f in found] == [("warn", "occupancy")] * bool(told)
    assert all(told in f.text for f in found)
    (pair,) = compare_launches(launches[:1], launches[1:])
    assert [f for f in pair.findings if f.metric == "resident"] == []


def test_what_registers_limit_is_not_said_twice() -> None:
    before, after = added(grid=8192), added(grid=8192, code="b")
    after = replace(after, metrics=replace(ADD_FIGURES, occupancy=0.25))
    (pair,) = compare_launches([before], [after], spec=H100)
    assert [f.metric for f in pair.findings if f.rule == "occupancy"] == ["occupancy"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"BLOCK": "1024"}, {"BLOCK": "512"}, id="another tile explains its factor and no more"),
        pytest.param({"BLOCK": "1024"}, {"BLOCK": "9" * 5000}, id="a number that Python doesn't read"),
        pytest.param({"SPLIT": "0"}, {"SPLIT": "4"}, id="that was zero"),
        pytest.param({"SPLIT": "4"}, {"SPLIT": "0"}, id="that is zero"),
    ],
)
def test_settings_that_explain_no_grid_of_four_times_as_many(before: dict[str, str], after: dict[str, str]) -> None:
    (found,) = grids(added(**before), added(grid=384, code="b", **after))
    assert found.text.startswith("4 times as many programs: ")
    assert (found.before, found.after) == (96, 384)


def test_one_launch_turned_into_sixteen() -> None:
    (finding,) = count_findings([added()], [added()] * 16)
    assert (finding.severity, finding.rule) == ("warn", "launches")
    assert finding.text == "16 times as many launches: 1 -> 16 (add 1 -> 16)"
    strict = StaticPolicy({"launches": StaticRule("fail", 0.0)})
    assert [f.severity for f in count_findings([added()], [added()] * 16, strict)] == ["fail"]


def test_one_launch_added() -> None:
    (finding,) = count_findings([added()] * 2, [added(), added("relu"), added()])
    assert finding.text == "1.5 times as many launches: 2 -> 3 (relu 0 -> 1)"


@pytest.mark.parametrize("launches", [0, 1, 2])
def test_as_many_launches_or_fewer(launches: int) -> None:
    assert count_findings([added()] * 2, [added("other")] * launches) == []
    assert count_findings([], [added()] * launches) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(added(BLOCK="1024"), added(code="b", BLOCK="4096"), id="in the call"),
        pytest.param(added(), added(code="b", num_warps="8"), id="an option"),
        pytest.param(added(), added(code="b", maxnreg="64"), id="an option that wasn't given"),
        pytest.param(
            msgspec.structs.replace(added(BLOCK="1024"), config=Config({"BLOCK": 1024})),
            added(code="b", BLOCK="4096"),
            id="tuned before",
        ),
    ],
)
def test_a_meta_parameter_is_a_config_wherever_it_is_written(before: LaunchStatic, after: LaunchStatic) -> None:
    """Only rules that hold between configs fail: half as many warps may have accesses of a quarter of the width."""
    narrow = msgspec.structs.replace(ADD_FIGURES, instructions={"total": 100, "global_load_32": 4})
    (pair,) = compare_launches([before], [msgspec.structs.replace(after, metrics=narrow)])
    assert [(f.rule, f.severity) for f in pair.findings] == [("load_width", "warn")]
    (pair,) = compare_launches([before], [msgspec.structs.replace(before, code="b", metrics=narrow)])
    assert [(f.rule, f.severity) for f in pair.findings] == [("load_width", "fail")]


def test_a_tuned_launch_with_the_constants_of_a_written_one_is_the_same_config() -> None:
    tuned = msgspec.structs.replace(added(BLOCK="1024"), config=Config({"BLOCK": 1024}))
    told = tuned.compiled_for | {"num_stages": "3"}
    written = replace(tuned, config=None, compiled_for=told)
    assert replace(tuned, compiled_for=told).setting_changes(written) == {}


def test_a_baseline_that_does_not_say_what_it_was_compiled_for() -> None:
    bare = msgspec.structs.replace(added(), compiled_for={})
    assert bare.setting_changes(added(BLOCK="64")) == {}
    tuned, after = (replace(x, config=Config({"BLOCK": n})) for x, n in ((bare, 64), (added(BLOCK="128"), 128)))
    assert tuned.setting_changes(after) == {"BLOCK": ("64", "128")}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([added(grid=4, code="c"), added(grid=8, BLOCK="64"), added(grid=96)], id="the same code"),
        pytest.param([added(grid=4, code="c"), added(grid=8, code="d", BLOCK="64"), added(grid=96, code="e")],
                     id="compiled for the same"),
        pytest.param([added(grid=96), added(grid=8), added(grid=8, BLOCK="64")], id="another grid"),
        pytest.param([added(grid=96), added(grid=8, code="d", BLOCK="64")], id="in another order"),
    ],
)  # fmt: skip
def test_a_launch_that_is_added_shifts_no_others(after: list[LaunchStatic]) -> None:
    before = [added(grid=8, code="b", BLOCK="64"), added(grid=96)]
    pairs = compare_launches(before, after)
    assert {(p.before.grid, p.after.grid) for p in pairs} == {((8, 1, 1),) * 2, ((96, 1, 1),) * 2}


def test_renamed_kernels_go_together_and_none_is_lost() -> None:
    before = [added("old"), added("kept"), added("gone", code="g")]
    pairs = paired(before, [added("kept"), added("new")])
    assert [(a and a.kernel, b and b.kernel) for a, b in pairs] == [("kept", "kept"), ("old", "new"), ("gone", None)]


# static figures that are gated on a GPU


def figures(
    registers: int = 32, spilled: int = 0, shared: int = 2048, size: int = 1024, total: int | None = None
) -> StaticMetrics:
    """Those of a compilation whose instructions were not counted, without a ``total``."""
    counted = {} if total is None else {"total": total}
    return StaticMetrics(registers, spilled, spilled, spilled, shared, size, 128, counted, 1.0, "registers")


def softmax(code: str = "a", kernel: str = "softmax", **changes: int) -> LaunchStatic:
    return LaunchStatic(kernel, "s", code, "t", (1, 1, 1), figures(**changes))


def test_every_metric_of_the_policy_has_a_figure() -> None:
    assert set(FIGURES) == set(METRIC_TOLERANCES)


@pytest.mark.parametrize(
    ("limits", "changes", "says"),
    [
        ({"registers": 0.1}, {"registers": 35}, None),
        ({"registers": 0.1}, {"registers": 40}, "registers 32 -> 40 a thread (+25.0 %, 10.0 % allowed)"),
        ({"spills": 0.0}, {"spilled": 2}, "spills 0 -> 4 bytes a thread (0.0 % allowed)"),
        ({"spills": 5.0}, {"spilled": 2}, "spills 0 -> 4 bytes a thread (500.0 % allowed)"),
        (
            {"shared_memory": 0.0},
            {"shared": 4096},
            "shared_memory 2,048 -> 4,096 bytes a block (+100.0 %, 0.0 % allowed)",
        ),
        ({"binary_size": 0.5}, {"size": 2048}, "binary_size 1,024 -> 2,048 bytes (+100.0 %, 50.0 % allowed)"),
        ({"instructions": 0.5}, {"registers": 64}, None),
        ({"instructions": 0.5}, {"total": 120}, "instructions 0 -> 120 in the code (50.0 % allowed)"),
        ({"registers": 0.1}, {"registers": 16, "spilled": 8, "shared": 4096}, None),
        ({}, {"registers": 255, "spilled": 99}, None),
    ],
)
def test_growth(limits: dict[str, float], changes: dict[str, int], says: str | None) -> None:
    expected = (f"launch 0 (softmax): {says}",) if says else ()
    assert exceeded([softmax()], [softmax("b", **changes)], limits) == expected


def test_equal_code_is_not_looked_at() -> None:
    assert exceeded([softmax()], [softmax(registers=64)], {"registers": 0.0}) == ()


def test_launches_are_paired_by_kernel_and_named_by_their_place() -> None:
    before = [softmax(kernel="a"), softmax(kernel="b", registers=64)]
    after = [softmax("x", "b", registers=64), softmax("y", "a", registers=64), softmax("z", "c", registers=255)]
    (found,) = exceeded(before, after, {"registers": 0.0})
    assert found.startswith("launch 1 (a): registers 32 -> 64")


@given(st.integers(0, 255), st.integers(0, 255), st.floats(0, 2))
def test_no_more_than_the_share_passes(before: int, after: int, limit: float) -> None:
    found = exceeded([softmax(registers=before)], [softmax("b", registers=after)], {"registers": limit})
    assert bool(found) == (after > before * (1 + limit))


# on the scripted GPU

RULES = (block(64, 10_000.0), block(512, 10_000.0), block(128, 11_000.0))


def judged(project: Project, size: int, metrics: Metrics | None = None, **policy: Any) -> Any:
    with project.run(*RULES) as run:
        rules = Policy(metrics=metrics or Metrics(), **policy)
        return run.judge(functools.partial(scaled, size=size), torch.randn(N, device="cuda"), policy=rules)


def fewer_registers(project: Project) -> int:
    """As if the baseline had needed one register less than today's code with ``BLOCK=512`` does."""
    judged(project, 512)
    (path,) = project.files()
    made = msgspec.json.decode(path.read_bytes())
    needs = int(made["static"][0]["metrics"]["registers"])
    path.unlink()
    judged(project, 64)
    made = msgspec.json.decode(path.read_bytes())
    made["static"][0]["metrics"]["registers"] = needs - 1
    path.write_bytes(to_json(made))
    return needs


@pytest.mark.slow
def test_a_metric_that_grew_fails_a_case_that_is_as_fast(project: Project) -> None:
    needs = fewer_registers(project)
    assert judged(project, 512).verdict is Verdict.PASS, "time alone is gated by default"
    result = judged(project, 512, Metrics(static={"registers": 0.0}))
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.FAIL)
    (found,) = result.findings
    assert found.startswith(f"launch 0 (scale_kernel): registers {needs - 1} -> {needs} a thread")
    assert found in result.message
    assert result.attribution is None, "nothing took longer"
    assert judged(project, 512, Metrics(static={"registers": 1.0})).verdict is Verdict.PASS


def test_a_mapped_verdict_is_what_the_test_gets(project: Project) -> None:
    judged(project, 64)
    result = judged(project, 128, outcomes={Verdict.REGRESSED: Outcome.WARN})
    assert (result.verdict, result.outcome) == (Verdict.REGRESSED, Outcome.WARN)
