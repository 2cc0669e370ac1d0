"""Steps of the check of a case on a GPU, each by itself: samples, rests, what is untimed or obsolete, baselines."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from samples import H100, SAMPLE, launch, recording, static_launch, time_baseline

from kerntune.base.config import Config
from kerntune.base.policy import Metrics, Missing, Policy, TuneMode, Update, Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import MeasurementError
from kerntune.gate import baseline_builder, gpu_check
from kerntune.gate.baseline_builder import BaselineBuilder, since_of
from kerntune.gate.baselines import Calibration, SinceAnchor, TimeBaseline, work_id
from kerntune.gate.call import Settings
from kerntune.gate.call_tuning import Tuning, TuningOutcome
from kerntune.gate.comparison import Comparison, Judgement
from kerntune.gate.decision import Evidence
from kerntune.gate.device_faults import NOT_LOOKED, OutsideWrites
from kerntune.gate.gpu_check import RESTS_S, SHORT_RESTS_S, TimedCheck, obsolete, untimed
from kerntune.gate.replay import REPLAY, VERSION, ComparisonMethod
from kerntune.gpu.foreign_work import NONE_SEEN, ForeignWork
from kerntune.tuning.tune_options import DEFAULTS

replace = msgspec.structs.replace
EMPTY = recording(launches=(launch(grid=(0, 1, 1)),))
BEFORE, OTHER = time_baseline(), recording(launches=(launch(grid=(9, 1, 1)),))


def settings(**changes: Any) -> Settings:
    return Settings(Path("/project"), Path("/project/baselines"), **changes)


# cases without a time


@pytest.mark.parametrize(
    ("mine", "unsaved", "before", "read_only", "verdict", "why"),
    [
        (recording(), "", BEFORE, False, None, ""),
        (recording(), "", None, False, None, ""),
        (EMPTY, "", None, False, Verdict.PASS, "launches nothing: every grid is empty"),
        (EMPTY, "", replace(BEFORE, recording=EMPTY), False, Verdict.PASS, "launches nothing: every grid is empty"),
        (
            EMPTY, "", BEFORE, False, Verdict.INCOMPLETE,
            "launches nothing: every grid is empty, its baseline has work; --kerntune-update=all removes that",
        ),
        (EMPTY, "", BEFORE, True, Verdict.INCOMPLETE, "launches nothing: every grid is empty, its baseline has work"),
        (recording(), "a table", None, False, Verdict.INCONCLUSIVE, "it can't be timed: a table"),
        (recording(), "a table", BEFORE, False, Verdict.INCONCLUSIVE, "it can't be timed: a table"),
        (
            recording(), "a table", replace(BEFORE, recording=recording(launches=(launch(), launch()))), False,
            Verdict.INCOMPLETE, "it can't be timed: a table",
        ),
    ],
)  # fmt: skip
def test_what_cant_have_a_time(
    mine: Any, unsaved: str, before: Any, read_only: bool, verdict: Verdict | None, why: str
) -> None:
    found = untimed(mine, unsaved, before, Policy(), settings(read_only=read_only))
    assert found == (None if verdict is None else (verdict, why))


@pytest.mark.parametrize(
    ("update", "read_only", "mine", "there", "removed"),
    [
        (Update.ALL, False, EMPTY, True, True),
        (Update.ALL, True, EMPTY, True, False),
        (Update.NEW, False, EMPTY, True, False),
        (Update.ALL, False, recording(), True, False),
        (Update.ALL, False, EMPTY, False, False),
    ],
)
def test_a_baseline_of_work_that_is_gone_goes_where_all_is_accepted(
    tmp_path: Path, update: Update, read_only: bool, mine: Any, there: bool, removed: bool
) -> None:
    path = tmp_path / "case.json"
    if there:
        path.write_text("{}")
    assert obsolete(mine, path, settings(update=update, read_only=read_only)) == (path if removed else None)


# samples


class Gpu:
    """Notes its rests; it throttles until it has rested so often."""

    def __init__(self, throttled: int = 0) -> None:
        self.rests: list[float | None] = []
        self.throttled, self.spec = throttled, H100

    def rest(self, seconds: float | None = None) -> None:
        self.rests.append(seconds)

    def environment(self) -> Any:
        self.throttled -= 1
        return SimpleNamespace(throttle="0x4" if self.throttled >= 0 else "")


def timed(
    monkeypatch: pytest.MonkeyPatch, *, throttled: int = 0, moved: int = 0, mine: Any = None, scope: str = "kernels",
    trials: int = 0, update: Update = Update.NONE, policy: Policy | None = None, read_only: bool = False,
) -> Any:  # fmt: skip
    """A check whose first samples are off the stored time (``moved``); ``taken`` has whether each was a quick one."""
    it: Any = TimedCheck.__new__(TimedCheck)
    off = iter([True] * moved + [False] * 20)
    it.gpu, it.settings = Gpu(throttled), settings(update=update, read_only=read_only)
    it.call = SimpleNamespace(scope=scope, policy=policy or Policy())
    it.case = SimpleNamespace(recording=mine or recording(), call=it.call)
    it.builder = BaselineBuilder(None, None, it.settings, it.case, None, None)  # type: ignore[arg-type]
    it.tuning = SimpleNamespace(trials=[None] * trials)
    it.comparer = SimpleNamespace(moved=lambda baseline, sample: next(off))
    it.taken = []
    monkeypatch.setattr(gpu_check, "take_sample", lambda slot, quick: it.taken.append(quick) or SAMPLE)
    return it


def test_equal_work_is_timed_quickly_and_again_until_it_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SHORT_RESTS_S == (0.0, 0.05, 0.15, 0.4, 0.9)
    assert sum(SHORT_RESTS_S) == pytest.approx(sum(RESTS_S))
    for moved in range(7):
        it = timed(monkeypatch, moved=moved)
        assert it._sample(None, BEFORE) == SAMPLE
        assert it.gpu.rests == list(SHORT_RESTS_S[:moved])
        assert it.taken == [True] * (1 + min(moved, 5))


def test_a_new_time_is_taken_again_while_the_device_throttles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RESTS_S == (0.5, 0.5, 0.5)
    for throttled in range(5):
        it = timed(monkeypatch, throttled=throttled)
        it._sample(None, None)
        assert it.gpu.rests == [0.5] * min(throttled, 3)
        assert it.taken == [False] * (1 + min(throttled, 3))


@pytest.mark.parametrize(
    ("changes", "baseline", "quick"),
    [
        ({}, BEFORE, True),
        ({}, None, False),
        ({"mine": OTHER}, BEFORE, False),
        ({"scope": "op"}, BEFORE, False),
        ({"update": Update.ALL}, BEFORE, False),
        ({"update": Update.NEW}, BEFORE, True),
    ],
)
def test_a_rough_time_is_enough_where_the_stored_one_stays(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], baseline: Any, quick: bool
) -> None:
    assert timed(monkeypatch, **changes)._roughly(baseline) is quick


@pytest.mark.parametrize(
    ("changes", "baseline", "rests"),
    [
        ({"trials": 2}, BEFORE, True),
        ({"trials": 0}, BEFORE, False),
        ({"trials": 2, "update": Update.NEW}, None, True),
        ({"trials": 2, "update": Update.NEW, "read_only": True}, None, False),
        ({"trials": 2, "policy": Policy(missing=Missing.FAIL)}, None, False),
        ({"trials": 2, "policy": Policy(missing=Missing.RECORD)}, None, True),
    ],
)
def test_after_a_race_the_device_rests_before_a_time_that_counts(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], baseline: Any, rests: bool
) -> None:
    it = timed(monkeypatch, **changes)
    it._sample(None, baseline)
    assert it.gpu.rests == ([None] if rests else [])


@pytest.mark.parametrize(("baseline", "moved", "watched"), [(None, 0, True), (BEFORE, 0, False), (BEFORE, 1, True)])
def test_other_processes_are_looked_for_where_a_time_is_new_or_off(
    monkeypatch: pytest.MonkeyPatch, baseline: Any, moved: int, watched: bool
) -> None:
    seen = ForeignWork(1.0, 1.0, 1.0, 1)
    closed: list[str] = []
    watch = SimpleNamespace(watch=lambda: seen, close=lambda: closed.append("closed"))
    monkeypatch.setattr(gpu_check, "ClockWatch", lambda gpu: watch)
    it = timed(monkeypatch, moved=moved)
    assert it._foreign_work(baseline, SAMPLE) == (seen if watched else NONE_SEEN)
    assert closed == (["closed"] if watched else [])


NEW_WORK: dict[str, Any] = {"baseline": None, "wanted": True, "fixed": True, "update": Update.NONE}


@pytest.mark.parametrize(
    ("changes", "looks"),
    [
        ({}, True),
        ({"baseline": replace(BEFORE, recording=OTHER)}, True),
        ({"baseline": BEFORE}, False),
        ({"baseline": BEFORE, "update": Update.ALL}, True),
        ({"wanted": False}, False),
        ({"fixed": False}, False),
    ],
    ids=["new", "other work", "equal work", "a new baseline", "switched off", "candidates alone"],
)
def test_writes_outside_are_looked_for_in_new_work_that_nothing_has_looked_at(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], looks: bool
) -> None:
    said = {**NEW_WORK, **changes}
    seen, lines = OutsideWrites(why_not="its process hangs"), list[str]()
    monkeypatch.setattr(gpu_check, "has_fixed", lambda capture: said["fixed"])
    monkeypatch.setattr(gpu_check, "look_for", lambda isolation, recorded: seen)
    it = timed(monkeypatch, update=said["update"])
    it.case.id, it.case.capture, it.case.recorded = "test_it", None, None
    it.progress = lines.append
    it.isolation = SimpleNamespace(wanted=said["wanted"])
    assert it._outside_writes(said["baseline"]) is (seen if looks else NOT_LOOKED)
    assert lines == (["test_it: looking for writes outside of tensors"] if looks else [])


# what becomes a baseline

NEW_CALIBRATION = Calibration(4, 24, 0.5, 0.5, 0.5, version=VERSION)


def builder(
    monkeypatch: pytest.MonkeyPatch, *, update: Update = Update.NEW, scope: str = "kernels", fails: bool = False,
    mine: Any = None, **changes: Any,
) -> Any:  # fmt: skip
    lines: list[str] = []
    asked: list[Any] = []
    gpu = SimpleNamespace(spec=replace(H100, uuid="its own"), environment=lambda: BEFORE.environment)
    case = SimpleNamespace(
        id=BEFORE.case, fingerprint=BEFORE.fingerprint, arguments=BEFORE.arguments, recording=mine or recording(),
        call=SimpleNamespace(policy=Policy(missing=Missing.FAIL), scope=scope),
        recorded=SimpleNamespace(sources=(), artifacts={"a": b"artifact"}),
        capture=SimpleNamespace(compiled=SimpleNamespace(choices=SimpleNamespace(times={}))), operators=None,
    )  # fmt: skip

    def calibrate(pairs: Any, work: Any, seen_ns: Any, throttle: Any) -> Calibration:
        asked.append((work, tuple(seen_ns), throttle()))
        if fails:
            raise MeasurementError("its process hangs")
        return NEW_CALIBRATION

    monkeypatch.setattr(baseline_builder, "calibrate", calibrate)
    monkeypatch.setattr(baseline_builder, "describe", lambda s, sources, backend: (s, {"c": b"content"}))
    replayer = SimpleNamespace(work=lambda a, b, artifacts: "work")
    it: Any = BaselineBuilder(
        SimpleNamespace(gpu=gpu), None, settings(update=update, **changes), case, replayer, lines.append  # type: ignore[arg-type]
    )  # fmt: skip
    return SimpleNamespace(it=it, lines=lines, asked=asked)


def known(version: int = VERSION) -> TimeBaseline:
    return replace(BEFORE, calibration=Calibration(4, 24, 0.1, 0.1, 0.1, version=version))


def pending(one: Any, verdict: Verdict = Verdict.NEW, before: Any = None) -> Any:
    return one.it.pending(Judgement(verdict), SAMPLE, (static_launch(),), before)


def test_a_new_baseline_is_calibrated_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    one = builder(monkeypatch)
    found = pending(one)
    assert found.write
    assert found.baseline.calibration == NEW_CALIBRATION
    assert found.artifacts == {"a": b"artifact", "c": b"content"}
    assert found.baseline.device == H100, "its id is of no use elsewhere"
    assert (found.baseline.static, found.baseline.since) == ((static_launch(),), None)
    assert found.baseline.inductor_times is msgspec.UNSET
    assert one.lines == [f"{BEFORE.case}: calibrating"]
    assert one.asked == [("work", SAMPLE.times_ns, BEFORE.environment.throttle)]


@pytest.mark.parametrize("why", ["read only", "no update", "no calibration", "addresses"])
def test_what_is_not_written_is_not_calibrated(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    mine = replace(recording(), hidden_pointers=True) if why == "addresses" else None
    changes = {
        "read only": {"read_only": True},
        "no update": {"update": Update.NONE},
        "no calibration": {"calibrate": False},
    }
    one = builder(monkeypatch, mine=mine, **changes.get(why, {}))
    found = pending(one)
    assert (found.baseline.calibration, one.lines) == (None, [])
    assert found.write is (why in ("no calibration", "addresses"))
    assert ("c" in found.artifacts) is (why != "addresses")


@pytest.mark.parametrize(
    ("before", "mine", "write", "calibrated"),
    [
        (known(), None, True, "known"),
        (known(), OTHER, True, "new"),
        (known(1), None, True, "new"),
        (known(1), None, False, "known"),
        (known(), OTHER, False, "none"),
    ],
    ids=["the same work", "other work", "an earlier rule", "an earlier rule that stays", "other work that stays"],
)
def test_a_calibration_serves_its_work_until_it_is_written_anew(
    monkeypatch: pytest.MonkeyPatch, before: TimeBaseline, mine: Any, write: bool, calibrated: str
) -> None:
    one = builder(monkeypatch, mine=mine, update=Update.ALL if write else Update.NONE)
    found = pending(one, Verdict.PASS, before).baseline.calibration
    assert found == {"known": before.calibration, "new": NEW_CALIBRATION, "none": None}[calibrated]


def test_a_calibration_that_fails_leaves_the_one_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pending(builder(monkeypatch, fails=True)).baseline.calibration is None
    one = builder(monkeypatch, fails=True, update=Update.ALL)
    assert pending(one, Verdict.PASS, known(1)).baseline.calibration == known(1).calibration


def test_the_sample_of_a_whole_operation_is_no_state_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    one = builder(monkeypatch, scope="op")
    pending(one)
    assert one.asked[0][1] == ()


def test_the_comparison_with_the_anchor_is_kept() -> None:
    change = Estimate(0.01, 0.0, 0.02, 0.99)

    def judged(replay: Any) -> Judgement:
        since = Comparison(BEFORE, ComparisonMethod(REPLAY), Evidence(1, 1, replay=replay), Policy())
        return Judgement(Verdict.PASS, None, since)

    assert since_of(judged(change)) == SinceAnchor(work_id(BEFORE.recording), change)
    assert since_of(judged(None)) is since_of(Judgement(Verdict.PASS)) is None


# what tuning changes


class Site:
    """Of a kernel with three configs."""

    kernel = "add_kernel"

    def __init__(self) -> None:
        self.candidates = [SimpleNamespace(config=Config({"BLOCK": n})) for n in (64, 128, 256)]
        self.chosen, self.settled = 0, list[int]()

    def settle(self, index: int) -> None:
        self.settled.append(index)


def tuning(*grids: tuple[int, int, int]) -> tuple[Any, list[Site]]:
    sites = [Site() for _ in grids]
    launches = [SimpleNamespace(site=s, grid=g) for s, g in zip(sites, grids, strict=True)]
    capture = SimpleNamespace(launches=[*launches, SimpleNamespace(site=None, grid=(1, 1, 1))])
    winners = SimpleNamespace(kept=[], mode=TuneMode.AUTO, incumbent=lambda site: "another key's")
    winners.keep = lambda site, index, ns: winners.kept.append((site, index, ns))
    recorded = SimpleNamespace(recording=recording())
    it: Any = Tuning(capture, recorded, None, winners, DEFAULTS, [].append)  # type: ignore[arg-type]
    return it, sites


def test_a_launch_of_an_empty_grid_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs nothing that could be timed; another call of the kernel may be tuned later."""
    it, _ = tuning((1, 1, 1), (4, 0, 1), (2, 1, 1))
    tried: list[int] = []
    monkeypatch.setattr(it, "_site", lambda index, *others: tried.append(index))
    it.run(None)
    assert tried == [0, 2]


def test_what_cant_be_timed_is_settled_as_it_was_launched() -> None:
    it, (first, empty) = tuning((1, 1, 1), (0, 1, 1))
    first.chosen = 2
    it.leave()
    assert (first.settled, empty.settled) == ([2], [])
    assert it.seconds == 0.0, "nothing was tuned"


@pytest.mark.parametrize(
    ("config", "kernel", "known", "found"),
    [
        (Config({"BLOCK": 256}), "add_kernel", True, 2),
        (Config({"BLOCK": 512}), "add_kernel", True, "another key's"),
        (None, "add_kernel", True, "another key's"),
        (Config({"BLOCK": 256}), "mul_kernel", True, "another key's"),
        (Config({"BLOCK": 256}), "add_kernel", False, "another key's"),
    ],
)
def test_the_baseline_s_config_is_the_one_to_beat(
    monkeypatch: pytest.MonkeyPatch, config: Any, kernel: str, known: bool, found: Any
) -> None:
    from kerntune.gate import call_tuning

    def candidate_of(site: Site, config: Config) -> int | None:
        return next((i for i, c in enumerate(site.candidates) if c.config == config), None)

    monkeypatch.setattr(call_tuning, "candidate_of", candidate_of)
    it, (site,) = tuning((1, 1, 1))
    before = replace(BEFORE, recording=recording(launches=(launch(kernel=kernel, config=config),)))
    assert it._incumbent(0, site, before if known else None) == found
    assert it._incumbent(1, site, before) == "another key's", "a launch that the baseline lacks"


def test_what_tuning_came_to_is_reported_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerntune.gate import call_tuning

    shared: list[Any] = []
    told: list[Any] = []
    monkeypatch.setattr(call_tuning, "Trials", lambda winners: SimpleNamespace(share=shared.append))
    monkeypatch.setattr(call_tuning, "tell_failed", lambda capture, site, failures: told.append(failures))
    it, (site,) = tuning((1, 1, 1))
    tuned: Any = SimpleNamespace(
        failures=["failed"], notes=["noted"], left_out={2: "it spills"}, times_ns={0: 10.26, 1: 9.0}, winner=1
    )
    it._take(site, TuningOutcome(tuned, recording(), 0, {}))
    assert [(t.kernel, t.config.kwargs["BLOCK"], t.time_ns) for t in it.trials] == [
        ("add_kernel", 64, 10.3), ("add_kernel", 128, 9.0),
    ]  # fmt: skip
    assert [(x.config.kwargs["BLOCK"], x.reason) for x in it.left_out] == [(256, "it spills")]
    assert (it.failures, it.notes, told, shared) == (["failed"], ["noted"], [["failed"]], [site])
    assert it.winners.kept == [(site, 1, 9.0)]


def test_a_launch_is_rewound_to_what_was_captured() -> None:
    from kerntune.gate import call_tuning

    it, (site,) = tuning((1, 1, 1))
    captured = it.recorded.recording
    it.recorded.recording = OTHER
    it._rewind(0, captured)
    assert it.recorded.recording.launches[0].grid == captured.launches[0].grid
    call_tuning._settle({0: site}, {0: 2})
    assert (site.chosen, site.settled) == (2, [2])


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_what_a_check_has_loaded_is_let_go_of(error: Exception | None) -> None:
    def checked() -> str:
        if error is not None:
            raise error
        return "checked"

    it: Any = TimedCheck.__new__(TimedCheck)
    closed: list[str] = []
    it._checked, it.loader = checked, SimpleNamespace(close=lambda: closed.append("closed"))
    with contextlib.nullcontext() if error is None else pytest.raises(ValueError, match=r"^mine$"):
        assert it.run() == "checked"
    assert closed == ["closed"]


class Compared(NamedTuple):
    """A comparison with a baseline of some work, which remembers that with the anchor or doesn't."""

    baseline: Any
    known: Any = None
    evidence: Any = None

    def remembered(self, anchor: Any, policy: Policy) -> Any:
        return self.known


@pytest.mark.parametrize(
    ("anchor", "timed", "found", "since"),
    [
        (None, True, None, None), ("a", False, None, None),
        ("a", True, Compared(SimpleNamespace(recording="a")), "shared"),
        ("a", True, Compared(SimpleNamespace(recording="b"), "known"), "known"), ("a", True, None, "against"),
        ("a", True, Compared(SimpleNamespace(recording="b")), "against"), ("unread", True, None, None),
    ],
)  # fmt: skip
def test_how_a_case_is_held_against_the_anchor(
    monkeypatch: pytest.MonkeyPatch, anchor: str | None, timed: bool, found: Any, since: str | None
) -> None:
    """Another number of launches was accepted when the baseline was recorded."""
    it: Any = TimedCheck.__new__(TimedCheck)
    monkeypatch.setattr(gpu_check, "same_work", lambda a, b: a == b)
    store = None if anchor is None else SimpleNamespace(artifacts=lambda target: "artifacts")
    it.gpu, it.stores = Gpu(), SimpleNamespace(anchor=store)
    it.call = SimpleNamespace(policy=Policy(metrics=Metrics(timed, {})))
    it._read = lambda store: SimpleNamespace(recording=anchor) if anchor == "a" else None
    against = Compared("against", evidence=Evidence(3, 2))
    it.comparer = SimpleNamespace(shared=lambda *words: "shared", against=lambda *words: against)
    result = it._since(found, SAMPLE)
    if since != "against":
        assert result == since
        return
    assert (result.baseline, result.evidence.launched, result.evidence.expected) == ("against", 3, 3)
