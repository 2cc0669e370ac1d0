"""A failing case in a line and in full: what was found, because of what, the command that accepts it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kerntune.base.case_result import CaseId, CaseResult, LaunchCause, LaunchReport, LostConfig, Since
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.reporting.failure import (
    _configs_in,
    accept_command,
    accepting,
    compiled_for,
    failure_text,
    headline,
    short_finding,
    update_command,
)

NODE = "test_a.py::test_a[x y]"
SPILLS = "add: spills 0 -> 56 B a thread (stored 0 -> 28, loaded 0 -> 28)"
FELL = "add: theoretical occupancy fell: 100.0% -> 50.0% (limited by threads, then by blocks)"
BLAMED = LaunchCause("add", "launch options (num_warps 4 -> 1), first in TTGIR")
SLOWER = Estimate(0.099, 0.098, 0.1, 0.99)


def result(verdict: Verdict = Verdict.REGRESSED, said: tuple[str, ...] = (), **fields: Any) -> CaseResult:
    message = ", ".join([f"{verdict.value} {NODE} (cuda:90, static only)", *said])
    return CaseResult(CaseId(NODE, "0"), "f", verdict, Outcome.FAIL, message, "cuda:90", **fields)


SPILLING = result(
    said=(SPILLS, "code unchanged", str(BLAMED)),
    launches=(LaunchReport("add"),),
    findings=(SPILLS, FELL),
    causes=("code unchanged", str(BLAMED)),
    launch_causes=(BLAMED,),
)


@pytest.mark.parametrize(
    ("case", "line"),
    [
        (SPILLING, "spills 0 -> 56 B"),
        (result(change=SLOWER, shown=SLOWER), "+9.9 % (±0.1)"),
        (result(said=(SPILLS,), findings=(SPILLS,), change=SLOWER), "add: spills 0 -> 56 B · +9.9 % (±0.1)"),
        (result(said=(SPILLS, "mul: x"), findings=(SPILLS, "mul: x", FELL)), "add: spills 0 -> 56 B · 1 more"),
        (result(change=Estimate(0.1, 0.05, float("inf"), 0.99)), "+10.0 %"),
        (
            result(
                change=Estimate(0.009, 0.008, 0.01, 0.99),
                since=Since("2026-10-02T01:02:03Z", Verdict.REGRESSED, 0.05, Estimate(0.061, 0.059, 0.063, 0.999)),
            ),
            "+6.1 % (±0.2) since 2026-10-02",
        ),
        (result(Verdict.INCOMPLETE), ""),
    ],
)
def test_a_line_begins_with_the_finding(case: CaseResult, line: str) -> None:
    assert headline(case) == line


@pytest.mark.parametrize(
    ("kernels", "text", "short"),
    [
        (("add",), "add at model.py:12: more registers a thread: 8 -> 12 (+50%)", "more registers a thread: 8 -> 12"),
        (("add", "mul"), "add: loads got narrower; look for lost alignment", "loads got narrower in add"),
        (("add",), "launch 0 (add): registers 32 -> 64 a thread (+100.0 %)", "registers 32 -> 64"),
        (("add",), "added: x", "added: x"),
    ],
)
def test_a_finding_in_short(kernels: tuple[str, ...], text: str, short: str) -> None:
    assert short_finding(text, result(launches=tuple(map(LaunchReport, kernels)))) == short


def test_the_whole_text_has_each_part_once() -> None:
    assert failure_text(SPILLING, "the command").splitlines() == [
        f"REGRESSED {NODE} (cuda:90, static only)",
        f"  found: {SPILLS}",
        "  cause: add: launch options (num_warps 4 -> 1), first in TTGIR; code unchanged",
        f"  also: {FELL}",
        "  to accept: the command",
    ]


def told(*causes: LaunchCause, lost: LostConfig | None = None) -> list[str]:
    """The lines after the finding."""
    texts, configs = ("code unchanged", *map(str, causes)), (lost,) if lost else ()
    found = (SPILLS, *map(str, configs))
    case = result(said=(SPILLS, *texts), findings=found, causes=texts, launch_causes=causes, lost_configs=configs)
    return [line.strip() for line in failure_text(case, "").splitlines()[2:]]


def test_a_cause_of_several_kernels_is_told_once() -> None:
    causes = (LaunchCause("add", "torch"), LaunchCause("mul", "torch"), LaunchCause("neg", "code"))
    assert told(*causes) == ["cause: add, mul: torch; neg: code; code unchanged"]


GONE = LostConfig("add", "BLOCK=64 num_warps=4", "BLOCK=64 num_warps=8")


def test_a_removed_config_that_the_cause_tells_is_no_finding_beside_it() -> None:
    cause = LaunchCause("add", f"config (num_warps 4 -> 8; {GONE.removal})")
    assert told(cause, lost=GONE) == [
        "cause: add: config (num_warps 4 -> 8; BLOCK=64 num_warps=4 removed from the list); code unchanged"
    ]
    assert told(LaunchCause("add", "config (num_warps 4 -> 8)"), lost=GONE)[-1] == (
        "also: add: config BLOCK=64 num_warps=4 removed from the list; compared with BLOCK=64 num_warps=8"
    )


def test_a_config_that_no_longer_fits_stays_a_finding() -> None:
    broken = LostConfig("add", GONE.config, GONE.compared, "is listed, but can't be launched: shared memory")
    assert told(LaunchCause("add", "config (num_warps 4 -> 8)"), lost=broken)[-1] == (
        "also: add: the baseline's config BLOCK=64 num_warps=4 is listed, but can't be launched: shared memory; "
        "compared with BLOCK=64 num_warps=8"
    )


def test_lines_but_the_first_and_the_command_are_broken() -> None:
    lines = failure_text(SPILLING, "pytest " + "x" * 80, width=60).splitlines()
    assert [len(line) > 60 for line in lines] == [False] * (len(lines) - 1) + [True]
    assert len(lines) == 8, "three parts take two lines each"


def test_a_message_alone_stays_as_it_is() -> None:
    assert (
        failure_text(result(said=("no part of it",)), "") == f"REGRESSED {NODE} (cuda:90, static only), no part of it"
    )


FEWER = "1 of the 2 launches; if that is meant, a refresh (--kerntune-update) accepts it"


@pytest.mark.parametrize(
    ("case", "update"),
    [
        (SPILLING, Update.REGRESSED),
        (result(Verdict.NEW), Update.NEW),
        (result(Verdict.INCOMPLETE, said=(FEWER,)), Update.ALL),
        (result(Verdict.INCOMPLETE, said=("it was never called",)), None),
        (result(Verdict.STALE), None),
        (result(said=("can't be compiled: no",), findings=("can't be compiled: no",), causes=("code changed",)), None),
    ],
)
def test_what_accepts_a_failing_case(case: CaseResult, update: Update | None) -> None:
    assert accepting([case]) is update
    command = f"pytest --kerntune --kerntune-update={update.value} '{NODE}'" if update else ""
    assert accept_command(case) == command
    assert accepting([case, result(Verdict.DRIFTED)]) is None, "no update accepts both"


def test_the_command_can_be_called_elsewhere() -> None:
    assert accept_command(SPILLING, "../test_a.py::test_a").endswith(" ../test_a.py::test_a")


@pytest.mark.parametrize(
    ("finding", "configs"),
    [
        ("add with A: too large", 1), ("add with A and add with B: too large", 2),
        ("add with A and 3 others: too large", 4), ("add with A and 12 others: too large", 13),
        ("add with Ab: too large", 0), ("mul with A: too large", 0), ("said: add with A: too large", 0),
    ],
)  # fmt: skip
def test_how_many_configs_a_finding_is_about(finding: str, configs: int) -> None:
    assert _configs_in(finding, ("add with A",)) == configs


def test_the_command_names_what_is_given_and_no_more() -> None:
    assert update_command(Update.NEW, "") == "pytest --kerntune --kerntune-update=new"
    assert update_command(Update.ALL, "cuda:90", "t.py::a", "t.py::b c", baselines="b d") == (
        "pytest --kerntune --kerntune-target=cuda:90 '--kerntune-baselines=b d' --kerntune-update=all t.py::a "
        "'t.py::b c'"
    )


def test_targets_are_named_once_and_not_where_a_gpu_was_used() -> None:
    one, other = result(), result(device="")
    made = [
        other,
        msgspec.structs.replace(other, target="hip:gfx942"),
        other,
        msgspec.structs.replace(other, target=""),
    ]
    assert compiled_for(made) == "cuda:90,hip:gfx942"
    assert compiled_for([*made, msgspec.structs.replace(one, device="NVIDIA H100")]) == ""
    assert compiled_for([]) == ""


def test_a_warning_finding_stands_for_a_case_without_a_failing_one() -> None:
    """And after the change, which then decided."""
    assert headline(result(findings=(FELL,))) == "add: theoretical occupancy fell: 100.0% -> 50.0%"
    assert headline(result(findings=(FELL,), change=SLOWER)) == (
        "+9.9 % (±0.1) · add: theoretical occupancy fell: 100.0% -> 50.0%"
    )
