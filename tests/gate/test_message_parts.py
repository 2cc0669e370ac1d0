"""The parts of a case's message: shares, anchors, reasons, and warnings, each by itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, by_block
from samples import ENVIRONMENT, SAMPLE, launch, recording, static_baseline, time_baseline

from gate.project import Project
from kerntune.base.case_result import IDENTITY, Attribution, Share, Since
from kerntune.base.policy import Metrics, Policy, Update, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.baselines import Calibration
from kerntune.gate.call import PendingBaseline
from kerntune.gate.comparison import Comparison, Judgement
from kerntune.gate.decision import Evidence
from kerntune.gate.messages import (
    MEASURE_AGAIN,
    NAMES,
    foreign_text,
    reasons_of,
    reported,
    shares_text,
    since_text,
    timed_message,
    times,
    unsure,
    warnings_of,
)
from kerntune.gate.replay import RECOMPILED, REPLAY, STORED, VERSION, ComparisonMethod
from kerntune.gpu.foreign_work import ForeignWork
from kerntune.gpu.script import Rule
from kerntune.timing.timers import Sample, TimingProtocol

replace = msgspec.structs.replace
QUIET, BUSY = ForeignWork(), ForeignWork(1e9, 5e8, 1e8, 100)
assert BUSY.disturbs


def parts(**shares: Any) -> Attribution:
    none = dict.fromkeys(("environment", "compiler", "code", "config", "launch"), Share(0.0))
    return Attribution(**{**none, **{k: v if isinstance(v, Share) else Share(v) for k, v in shares.items()}})


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (
            {"environment": 0.002, "code": 0.098, "compiler": None},
            "code +9.8 %, environment +0.2 %, compiler not measured",
        ),
        ({"environment": 0.02, "config": -0.05}, "config choice -5.0 %, environment +2.0 %"),
        ({}, "no cause to speak of"),
        ({"code": 0.0004, "config": -0.0004}, "no cause to speak of"),
        ({"code": 0.0005}, "code +0.1 %"),
        ({"launch": -0.0006}, "launch -0.1 %"),
        ({"code": None}, "no cause to speak of, code not measured"),
        ({"code": 0.057, "launch": Share(cause="launch options", within="code")}, "code and launch options +5.7 %"),
        ({"launch": Share(0.03, cause="grid")}, "grid +3.0 %"),
        ({"compiler": Share(0.03, cause="compiler settings")}, "compiler settings +3.0 %"),
        (
            {"environment": 0.002, "code": -0.01, "config": 0.05},
            "config choice +5.0 %, code -1.0 %, environment +0.2 %",
        ),
    ],
)
def test_shares_are_told_the_largest_first(told: dict[str, Any], text: str) -> None:
    assert shares_text(parts(**told)) == f"attributed: {text}"


CHANGE = Estimate(0.061, 0.05, 0.07, 0.999)
SHOWN = Estimate(0.061, 0.059, 0.063, 0.99)


def since(**changes: Any) -> Since:
    return replace(Since("2026-10-02T01:02:03Z", Verdict.REGRESSED, 0.05, CHANGE, REPLAY, SHOWN), **changes)


@pytest.mark.parametrize(
    ("found", "shares", "text"),
    [
        (None, None, ""),
        (since(), None, "+6.1 % since the anchor of 2026-10-02 (99 % CI +5.9..+6.3; 5.0 % allowed)"),
        (since(shown=None), None, "+6.1 % since the anchor of 2026-10-02 (5.0 % allowed)"),
        (
            since(),
            parts(code=0.06),
            "+6.1 % since the anchor of 2026-10-02 (99 % CI +5.9..+6.3; 5.0 % allowed; attributed: code +6.0 %)",
        ),
        (since(change=None, verdict=Verdict.INCONCLUSIVE), None, "the anchor of 2026-10-02 can't be replayed"),
        (since(change=None, verdict=Verdict.PASS), None, ""),
    ],
)
def test_what_changed_since_the_anchor(found: Since | None, shares: Attribution | None, text: str) -> None:
    assert since_text(found, shares) == text


def test_without_a_time_before_there_is_no_percentage() -> None:
    message = timed_message(Verdict.DRIFTED, time_baseline().case, 0.0, 1000.0, None, ["why"])
    assert message.endswith(" -> 1.00 µs, why")


def test_times_are_those_of_todays_replay_where_there_was_one() -> None:
    sample = Sample(SAMPLE.protocol, (5.0, 7.0, 9.0))
    assert times(None, sample, None) == (None, 7.0)
    assert times(time_baseline(), sample, None) == (12_400.0, 7.0)
    replay: Any = SimpleNamespace(a_ns=(1.0, 2.0, 3.0), b_ns=(4.0, 5.0, 6.0))
    assert times(time_baseline(), sample, replay) == (2.0, 5.0)
    assert times(None, sample, replay) == (2.0, 5.0)


# reasons


def reasons(
    used: ComparisonMethod, scope: str = "kernels", today: Any = ENVIRONMENT, **changes: Any
) -> tuple[str, ...]:
    sample = changes.pop("sample", SAMPLE)
    return reasons_of(time_baseline(), recording(**changes), today, used, scope, sample)


PLAIN = ("code unchanged", "config unchanged")


def test_a_case_without_a_baseline_has_one_reason() -> None:
    found = reasons_of(None, recording(), ENVIRONMENT, ComparisonMethod(IDENTITY), "kernels", SAMPLE)
    assert found == ("no baseline on this device",)


def test_equal_work_has_no_further_reason() -> None:
    assert reasons(ComparisonMethod(IDENTITY)) == PLAIN
    assert reasons(ComparisonMethod(IDENTITY), scope="op") == PLAIN


def test_another_environment_and_another_timer_are_reasons() -> None:
    found = reasons(ComparisonMethod(IDENTITY), today=replace(ENVIRONMENT, driver="999"))
    assert found[:2] == PLAIN
    assert found[2].startswith("environment ")
    assert "999" in found[2]
    found = reasons(ComparisonMethod(IDENTITY), sample=Sample(TimingProtocol("events", 200, 3), (1.0,)))
    assert found[2].startswith("not held against the stored time, which was taken otherwise: ")


REPLAYED: Any = SimpleNamespace()


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        (ComparisonMethod(REPLAY, REPLAYED), None),
        (ComparisonMethod(REPLAY, why_not=("it hangs", "twice")), "the replay could not be measured: it hangs; twice"),
        (ComparisonMethod(RECOMPILED, why_not=("a", "b")), "the replay could not be measured: a; b"),
        (
            ComparisonMethod(RECOMPILED, REPLAYED, why_not=("a",)),
            "held against the baseline's TTIR compiled today, for its binary can't run: a",
        ),
        (ComparisonMethod(STORED, why_not=("a", "b")), "the baseline can't be replayed: a; b"),
    ],
)
def test_the_kind_of_comparison_is_a_reason_unless_it_is_the_best(used: ComparisonMethod, reason: str | None) -> None:
    assert reasons(used) == (*PLAIN, *([reason] if reason else []))


def test_of_a_whole_operation_its_own_time_is_told_beside_the_kernels() -> None:
    sample = Sample(SAMPLE.protocol, (13_900.0,))
    text = "these are its kernels; the whole call: 12.4 µs -> 13.9 µs"
    assert reasons(ComparisonMethod(REPLAY, REPLAYED), scope="op", sample=sample) == (*PLAIN, text)
    assert text not in reasons(ComparisonMethod(STORED), scope="op", sample=sample)
    assert text not in reasons(ComparisonMethod(REPLAY, REPLAYED), sample=sample)


# what limits a verdict


def replayed(foreign: ForeignWork = QUIET) -> Any:
    return SimpleNamespace(change=CHANGE, shown=SHOWN, foreign=foreign)


def comparison(
    change: Estimate | None = CHANGE, *, foreign: ForeignWork = QUIET, known: Calibration | None = None,
    rung: str = REPLAY, policy: Policy | None = None, **evidence: Any,
) -> Comparison:  # fmt: skip
    replay = replayed(foreign) if change is not None else None
    found = Evidence(1, 1, replay=change, baseline_ns=1000.0, foreign_work=foreign.disturbs, **evidence)
    return Comparison(
        replace(time_baseline(), calibration=known), ComparisonMethod(rung, replay), found, policy or Policy()
    )


def judgement(found: Comparison | None, anchor: Comparison | None = None, **changes: Any) -> Judgement:
    return Judgement(changes.pop("verdict", found.verdict if found else Verdict.NEW), found, anchor, **changes)


OPEN = Estimate(0.01, -0.5, 0.5, 0.999)


def test_an_open_interval_is_told_with_what_is_allowed() -> None:
    found = comparison(OPEN, policy=Policy(tolerance=0.02))
    text = "not sure enough: of the interval that decides, -50.0..+50.0, a part lies beyond +2.0 %"
    assert unsure(judgement(found)) == (text,)
    assert unsure(judgement(comparison(CHANGE), verdict=Verdict.INCONCLUSIVE)) == ()
    assert unsure(judgement(found, verdict=Verdict.REGRESSED)) == ()
    assert unsure(judgement(comparison(None, rung=STORED))) == (), "nothing was replayed"
    assert unsure(judgement(comparison(CHANGE), found, verdict=Verdict.INCONCLUSIVE)) == (text,), "by the anchor"
    wider = comparison(Estimate(0.0, -0.9, 0.9, 0.999), policy=Policy(tolerance=0.05))
    assert unsure(judgement(found, wider)) == (text,), "of two the baseline's is told"
    assert unsure(judgement(comparison(None, rung=STORED), found)) == (), "the baseline's is the one that is told"
    assert unsure(judgement(None)) == ()


def test_other_processes_are_a_reason_where_they_left_it_open() -> None:
    found = comparison(CHANGE, foreign=BUSY)
    assert found.verdict is Verdict.INCONCLUSIVE
    (text,) = unsure(judgement(found))
    assert text == f"{BUSY}; {MEASURE_AGAIN}"
    assert foreign_text(judgement(found), QUIET) == (), "the message has it already"


def test_else_they_are_a_warning() -> None:
    passing = Estimate(0.0, -0.01, 0.01, 0.999)
    (text,) = foreign_text(judgement(comparison(passing, foreign=BUSY)), QUIET)
    assert text.endswith(f"; {MEASURE_AGAIN}")
    assert foreign_text(judgement(comparison(passing), comparison(passing, foreign=BUSY)), QUIET) != ()
    assert foreign_text(judgement(comparison(passing)), BUSY) != ()
    assert foreign_text(judgement(None), BUSY) != ()
    assert foreign_text(judgement(comparison(passing)), QUIET) == ()


def calibration(**changes: Any) -> Calibration:
    return replace(Calibration(4, 24, 0.01, 0.005, 0.002, version=VERSION), **changes)


def pending(baseline: Any = None, write: bool = False) -> PendingBaseline:
    return PendingBaseline(baseline or time_baseline(), {}, write)


@pytest.mark.parametrize(("floor", "told"), [(0.03, True), (0.02, False), (0.01, False)])
def test_a_case_that_cant_be_gated_at_its_tolerance_says_what_was(floor: float, told: bool) -> None:
    policy, known = Policy(tolerance=0.02), calibration(floor=floor)
    text = (
        "can't be gated at 2.0 %: on this device a change under 3.0 % can't be told from none, so 3.0 % is what was "
        "gated"
    )
    expected = (text,) if told else ()
    assert warnings_of(judgement(comparison(known=known)), pending(), policy) == expected
    new = replace(time_baseline(), calibration=known)
    assert warnings_of(judgement(None), pending(new, write=True), policy) == expected
    assert warnings_of(judgement(None), pending(static_baseline()), policy) == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": 1}, True),
        ({"version": VERSION}, False),
        ({"version": 1, "rung": IDENTITY}, False),
        ({"version": 1, "rung": IDENTITY, "state_range": 0.06}, True),
        ({"version": 1, "rung": IDENTITY, "state_range": 0.05}, False),
        ({"version": 1, "write": True}, False),
        ({"version": 1, "write": True, "kept": True}, True),
    ],
)
def test_a_calibration_of_an_earlier_rule_is_told_where_it_decides(changes: dict[str, Any], told: bool) -> None:
    rung, write, kept = changes.pop("rung", REPLAY), changes.pop("write", False), changes.pop("kept", False)
    known = calibration(**changes)
    mine = replace(time_baseline(), calibration=known if kept else calibration())
    found = warnings_of(judgement(comparison(known=known, rung=rung)), pending(mine, write), Policy(tolerance=0.02))
    assert [text.startswith("calibrated by an earlier rule") for text in found] == ([True] if told else [])


def test_a_new_case_has_no_earlier_calibration() -> None:
    mine = replace(time_baseline(), calibration=calibration(version=1))
    assert warnings_of(judgement(None), pending(mine, True), Policy(tolerance=0.02)) == ()


@pytest.mark.parametrize(("said", "text"), [(None, ""), (Verdict.REGRESSED, ", by which it would be REGRESSED")])
def test_a_time_that_is_not_gated_says_so(said: Verdict | None, text: str) -> None:
    policy = Policy(metrics=Metrics(time=False))
    assert warnings_of(judgement(None, reported=said), pending(), policy) == (f"its time is not gated{text}",)


def test_the_anchor_s_comparison_is_reported_with_its_own_tolerance() -> None:
    assert reported(None) is None
    found = comparison(policy=Policy(tolerance=0.04))
    assert reported(found) == Since(time_baseline().recorded, found.verdict, 0.04, CHANGE, REPLAY, SHOWN)


def test_other_work_is_a_reason_by_itself() -> None:
    found = reasons(ComparisonMethod(REPLAY, REPLAYED), launches=(launch(grid=(9, 1, 1)),))
    assert found == (*PLAIN, "launch 0 (add_kernel): grid changed")


# messages that the documents quote are such as the code prints: the same words in the same order, other figures


ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
VERDICTS = "|".join(v.value for v in Verdict)
QUOTED = re.compile(rf"^`?((?:{VERDICTS}) (?!\S+ \(\S+ static only\)$)[^\s|`]+\.py::[^`\n]*)`?", re.M)
"""Messages of timed cases; ``test_documented_blocks.py`` has pytest print those of static ones."""

NODE = "tests/test_softmax.py::test_softmax[65536]"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


@triton.jit
def edited_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + 1, mask=i < n)


@triton.jit
def again_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor + 2, mask=i < n)


RULES = (
    Rule("softmax_kernel", {"BLOCK": 64}, time_ns=128_000.0),
    Rule("softmax_kernel", {"BLOCK": 128}, time_ns=135_300.0),
    Rule("edited_kernel", {"BLOCK": 64}, time_ns=141_000.0),
    Rule("edited_kernel", {"BLOCK": 128}, time_ns=142_300.0),
    Rule("again_kernel", time_ns=142_300.0),
)


def shape(message: str) -> str:
    """The words of a message: times, changes, dates, ids and paths are its own, the level of an interval is not."""
    text = re.sub(r"^(\w+) \S+\.py::\S+:", r"\1 CASE:", message)
    text = re.sub(r"[+-]?\d+(\.\d+)? (µs|ms|ns)", "TIME", text)
    text = re.sub(r"[+-]\d+\.\d+\.\.[+-]\d+\.\d+", "ENDS", text)
    text = re.sub(r"[+-]\d+\.\d+ %", "CHANGE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r", kernel \w+ -> \w+(, grid \w+ -> \w+)?", "", text)  # edits here are kernels of other names
    text = re.sub(r"launch \d+ \(\w+\)", "LAUNCH", text)
    text = re.sub(r"\d[\d,]* of \d[\d,]* elements", "SHARE elements", text)
    text = re.sub(r"at most \d[\d,]* ulp and [\d.e-]+ relative, at \d[\d,]*: [\d.e-]+ -> [\d.e-]+", "SIZE", text)
    text = re.sub(r"first at \d[\d,]*", "FIRST", text)
    return re.sub(r"(launch options of) \w+: .*?(?=$|, launch \d)", r"\1 KERNEL: SETTINGS", text)


def call(kernel: Any, **meta: Any) -> Any:
    return lambda x: kernel[by_block](x, torch.empty_like(x), N, 2.0, **meta)


def judged(project: Project, fn: Any, *rules: Rule, **options: Any) -> str:
    with project.run(*(rules or RULES), **options) as run:
        return run.judge(fn, torch.randn(N, device="cuda"), node=NODE).message


def printed(project: Project) -> list[str]:
    """What is printed for an edited kernel; where its results differ and its time doesn't; of an edited launch; of
    steps that each were accepted; of a write outside of tensors."""
    judged(project, call(softmax_kernel, BLOCK=64))
    there = project.root / "anchors"
    shutil.copytree(project.baselines, there)
    code = judged(project, call(edited_kernel, BLOCK=64))
    flipped = Rule("edited_kernel", {"BLOCK": 64}, time_ns=128_000.0, flips=((0, 1), (64, 2)))
    results = judged(project, call(edited_kernel, BLOCK=64), flipped, RULES[0])
    launch = judged(project, call(softmax_kernel, BLOCK=128))
    both = judged(project, call(edited_kernel, BLOCK=128))
    judged(project, call(edited_kernel, BLOCK=64), update=Update.ALL)
    steps = judged(project, call(again_kernel, BLOCK=64), anchor=there)
    outside = judged(project, call(softmax_kernel, BLOCK=256), Rule(beside=(0, 4)), isolated=True, update=Update.ALL)
    return [code, results, launch, both, steps, outside]


def quoted() -> list[tuple[str, str]]:
    return [(path.name, line) for path in DOCUMENTS for line in QUOTED.findall(path.read_text())]


def test_the_documents_quote_messages() -> None:
    assert {name for name, _ in quoted()} >= {"verdicts.md", "one-case.md", "numerics.md"}


@pytest.mark.slow
def test_documented_messages_can_be_printed(project: Project) -> None:
    known = printed(project)
    for name, line in quoted():
        assert shape(line) in map(shape, known), f"{name}: {line}\n" + "\n".join(known)


@pytest.mark.parametrize("level", ["99.9 %", "99.9978 %"])
def test_another_level_is_no_quotation(level: str) -> None:
    told = f"REGRESSED t.py::test_a: 128 µs -> 141 µs (+9.9 %, {level} CI +9.7..+10.1), code changed"
    assert shape(told) != shape(told.replace(level, "99 %"))


def test_documented_shares_can_be_printed() -> None:
    """Their names, their order and their form."""
    printed = []
    documented = [line for one in DOCUMENTS for line in re.findall(r"`(attributed: [^`…]*)`", one.read_text())]
    for line in documented:
        fields = dict.fromkeys(NAMES, Share(0.0))
        for cause, change in re.findall(r"([a-z ]+) ([+-][\d.]+) %", line.removeprefix("attributed: ")):
            field = next((f for f, name in NAMES.items() if name == cause.strip()), "launch")
            fields[field] = Share(float(change) / 100, cause=cause.strip() if field == "launch" else "")
        printed.append(shares_text(Attribution(**fields)))
    assert printed == documented
