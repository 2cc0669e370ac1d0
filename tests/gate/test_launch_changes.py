"""No message about a change contradicts what changed: every combination of changes is attributed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Set
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import ENVIRONMENT, binary, launch, recording

from kerntune.base.case_result import Attribution, Share
from kerntune.base.config import Config
from kerntune.base.recording import Binary, Launch, Param, Recording
from kerntune.errors import ReplayError
from kerntune.gate.causes import attribute, causes, launch_cause, steps_between
from kerntune.gate.launch_changes import changed_most, changes_between
from kerntune.gate.messages import shares_text
from kerntune.gate.static_figures import LaunchStatic
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


FIGURES = StaticMetrics(32, 0, 0, 0, 0, 1024, 128, {}, 1.0, "threads")
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
        FIGURES,
        tuned,
        {},
        told,
        "Triton 3.10.0, assembler 13.0" if "compiler" in changed else "Triton 3.9.0, assembler 12.9",
        compiler_settings={"DISABLE_PTXAS_OPT": "1"} if "environment" in changed else {},
    )


@given(st.frozensets(st.sampled_from(["code", "config", "options", "arguments", "compiler", "environment"])))
def test_static_cases_blame_what_changed_and_nothing_else(changed: frozenset[str]) -> None:
    series = "3.10" if "compiler" in changed else "3.9"
    text = launch_cause(static_of(frozenset()), static_of(changed), "3.9", series)
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
        (
            compiled_with("add", BLOCK="256", SPLIT="4"),
            ("launch options of add: BLOCK 128 -> 256, SPLIT unset -> 4",),
        ),
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
