"""Rules of a scripted GPU: which launches they are about, and how they get to another process."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from kerntune.gpu.base import binary_of_ptx
from kerntune.gpu.script import FAULTS, FakeFunction, Rule, Script, no_pause

BINARY = msgspec.structs.replace(binary_of_ptx("k", 8), constexprs={"BLOCK": "64", "EVEN": "True"}, triton="3.9.0")


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(), True), (Rule("k"), True), (Rule("other"), False), (Rule(triton="3.9.0"), True),
        (Rule("k", triton="3.8.0"), False), (Rule(num_warps=8), True), (Rule("k", num_warps=4), False),
        (Rule(constexprs={"BLOCK": 64}), True), (Rule(constexprs={"BLOCK": 64, "EVEN": False}), False),
        (Rule(constexprs={"OTHER": 1}), False), (Rule("other", {"BLOCK": 64}), False),
    ],
)  # fmt: skip
def test_which_binaries_a_rule_is_about(rule: Rule, matches: bool) -> None:
    assert rule.matches(BINARY) is matches


def test_the_first_rule_that_matches_decides_and_is_asked_for_once() -> None:
    rules = [Rule("other"), Rule("k", time_ns=1.0), Rule(time_ns=2.0)]
    script, function = Script(rules), FakeFunction(BINARY)
    assert function.rule(script) is rules[1]
    script.rules = []
    assert function.rule(script) is rules[1]
    assert function.rule(Script([])) == Rule()


def test_what_a_rule_and_a_script_say_by_default() -> None:
    assert Rule() == Rule("", {}, None, 10_000.0, "", False, None, False, False, "", 0, None, (), (), "")
    assert Script() == Script((), 0.0005, 1.0, 0, 1 << 40, False, 0.0, False, (), no_pause)
    assert no_pause(7) == 0.0
    assert FakeFunction(BINARY).registers == 32


def test_a_script_survives_the_way_to_another_process() -> None:
    rules: tuple[Any, ...] = (
        Rule("k", {"BLOCK": 64}, 8, 5.0, "no", True, 3, True, True, FAULTS[0], 2, (4, 5), ((1, 2),), ((3, 4),), "3.9"),
    )
    script = Script(rules, 0.1, 2.0, 7, 1 << 20)
    assert Script.from_json(script.to_json()) == script


def test_a_device_behaves_well_unless_its_script_says_otherwise() -> None:
    assert dataclasses.astuple(Rule())[:11] == ("", {}, None, 10_000.0, "", False, None, False, False, "", 0)
    assert dataclasses.astuple(Rule())[11:] == (None, (), (), "")
    usual = Script()
    assert (usual.rules, usual.noise, usual.shift, usual.seed, usual.memory_bytes) == ((), 0.0005, 1.0, 0, 1 << 40)
    assert (usual.isolated, usual.foreign, usual.unmapped, usual.unprotected) == (False, 0.0, False, ())
    assert [usual.pause(launches) for launches in (0, 1, 1000)] == [0.0] * 3


def test_a_script_is_told_to_another_process() -> None:
    rules = (Rule("a", {"BLOCK": 64}, 4, 5.0), Rule(fails="no room", beside=(4, 8), flips=((1, 2),), skips=((0, 4),)))
    told = Script(rules, 0.25, 2.0, 7, 1 << 20)
    found = Script.from_json(told.to_json())
    assert (found.rules, found.noise, found.shift, found.seed, found.memory_bytes) == (rules, 0.25, 2.0, 7, 1 << 20)
