"""What becomes of a tuning's result: errors with every reason, Triton's times, warnings at the caller's line, a log."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.errors import NoGpuError, TrialError
from kerntune.kernels.compat import launcher, tuners
from kerntune.static.occupancy import Violation
from kerntune.tuning import tuning_result
from kerntune.tuning.tuning_result import TuningResult, launch_error, merged_timings, nothing_left, timings_of

A, B, C, D = (Config({"BLOCK": n}) for n in (1, 2, 3, 4))
SITE: Any = SimpleNamespace(
    kernel="k", candidates=[SimpleNamespace(config=c) for c in (A, B, C, D)], originals=list("abcd")
)


def failed(config: Config, reason: str) -> FailedTrial:
    return FailedTrial("k", config, reason)


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([failed(A, "no"), failed(B, "no")], ": no"),
        ([failed(A, "no")], f"\n  {A}: no"),
        ([failed(A, "no"), failed(B, "never")], f"\n  {A}: no\n  {B}: never"),
    ],
)
def test_an_error_has_every_reason(failures: list[FailedTrial], told: str) -> None:
    error = nothing_left(SITE, failures)
    assert str(error) == f"kernel k: none of its 4 configs can be used{told}"
    assert list(error.failures) == failures


def result(**words: Any) -> TuningResult:
    recording: Any = None
    return TuningResult(0, recording, words.pop("times", {}), tuple(words.pop("failures", ())), **words)


def test_times_are_tritons() -> None:
    """In milliseconds at three quantiles; one figure three times, infinite for what failed, none for what is late."""
    slots = {1: tuple(float(n) * 1e6 for n in range(11))}
    found = timings_of(SITE, result(times={0: 3e6, 1: 5e6, 2: 7e6}, failures=[failed(C, "wrong")], slots_ns=slots))
    assert found == {"a": [3.0] * 3, "b": [5.0, 2.0, 8.0], "c": [math.inf] * 3}


@pytest.mark.parametrize(
    ("before", "late", "merged"),
    [
        (
            {"a": [2.0, 1.0, 3.0]},
            {"a": [4.0, 3.0, 9.0], "b": [8.0, 6.0, 10.0]},
            {"a": [2.0, 1.0, 3.0], "b": [4.0, 3.0, 5.0]},
        ),
        ({"a": [2.0] * 3}, {"b": [8.0] * 3}, {"a": [2.0] * 3, "b": [8.0] * 3}),
        ({}, {"a": [4.0] * 3}, {"a": [4.0] * 3}),
        ({"a": [2.0] * 3}, {"a": [math.inf] * 3, "b": [8.0] * 3}, {"a": [2.0] * 3, "b": [8.0] * 3}),
    ],
)
def test_late_times_are_brought_to_the_same_clocks(before: Any, late: Any, merged: Any) -> None:
    assert merged_timings(before, late, "a") == merged


def test_warnings_are_of_the_line_that_asked() -> None:
    notes = result(failures=[failed(A, "it wrote other values"), failed(B, "no")], notes=("kernel k: x is left out",))
    tuner: Any = SimpleNamespace(base_fn=test_late_times_are_brought_to_the_same_clocks)
    file = test_late_times_are_brought_to_the_same_clocks.__code__.co_filename
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tuning_result.warn_of(SITE, notes)
        tuning_result.warn_of(SITE, result(failures=[failed(B, "no")]))
        tuning_result.tell_unraced(tuner, SITE, result(unraced="no time"))
        tuning_result.tell_unfit(tuner, A, ValueError("too large"))
    assert [(str(w.message), w.category, w.filename) for w in told] == [
        (text, RuntimeWarning, __file__)
        for text in (
            f"kernel k: 1 of 4 configs failed: {A}: it wrote other values",
            "kernel k: x is left out",
            f"kernel k is not tuned, and launched with {A}: no time",
            f"kernel {tuner.base_fn.__name__} ({file}): {A}, the winner of the nearest tuned call, can't be launched "
            "here (too large); the first config that can be is used",
        )
    ]
    assert tuner.configs_timings == {}


def test_a_lack_of_the_device_is_tritons_error() -> None:
    lack = Violation("shared memory", 300_000, 232_448, "bytes")
    assert repr(launch_error(str(lack))) == repr(tuners.out_of_resources(300_000, 232_448, "shared memory"))
    assert (type(launch_error("no")), str(launch_error("no"))) == (TrialError, "no")


def test_a_users_hook_hears_of_what_can_not_be_launched() -> None:
    """Not of what is launched, and wrong."""
    heard: list[Any] = []
    capture: Any = SimpleNamespace(tell_failed=lambda site, errors: heard.append((site, errors)))
    failures = [failed(A, "it wrote other values"), failed(B, "no"), failed(C, "never")]
    tuning_result.tell_failed(capture, SITE, failures)
    ((site, errors),) = heard
    assert site is SITE
    assert {config: str(error) for config, error in errors.items()} == {B: "no", C: "never"}


@pytest.mark.parametrize(
    ("raised", "missing", "error"),
    [("0 active drivers", "0 active drivers", NoGpuError), ("another", "0 active drivers", RuntimeError),
     ("0 active drivers", "", RuntimeError)],
)  # fmt: skip
def test_a_missing_gpu_is_named(
    raised: str, missing: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "missing_driver", lambda: missing)

    def run(tuner: Any) -> None:
        raise RuntimeError(raised)

    with pytest.raises(RuntimeError) as caught:
        tuning_result.naming_missing_gpu(run)(SimpleNamespace(base_fn=run))
    assert type(caught.value) is error
    if error is NoGpuError:
        assert str(caught.value) == (
            f"kernel run ({__file__}:{run.__code__.co_firstlineno}) can't be launched: Triton finds no GPU here "
            "(0 active drivers). Run it where there is one; without, `pytest --kerntune --kerntune-target=cuda:90` "
            "compiles what tests launch and gates its figures, and `pytest --kerntune-interpret` computes its numbers "
            "(in a script: TRITON_INTERPRET=1)"
        )


@pytest.mark.parametrize(
    ("value", "best", "ratio"),
    [(3.0, 2.0, 1.5), (3.0, 0.0, None), (3.0, math.inf, None), (3.0, -1.0, None), (math.inf, 2.0, math.inf)],
)
def test_how_many_times_the_best_a_time_is(value: float, best: float, ratio: float | None) -> None:
    assert tuning_result.ratio_to(value, best) == ratio


def test_a_races_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(tuning_result, "exact_arguments", lambda site: "x=3")

    def trial(index: int, time_ns: float, estimate: float) -> Any:
        return SimpleNamespace(same=[index], time_ns=time_ns, estimate=estimate, times=[time_ns] * index)

    alive = [trial(0, 100.0, 100.0), trial(1, 110.12345678, 101.0), trial(2, 120.0, 110.0), trial(3, 900.0, 900.0)]
    tuning_result.log_begin(SITE, "a GPU")
    tuning_result.log_race(SITE, alive, alive[:2], alive[0])
    tuning_result.log_end(SITE, 0, {0: 100.0}, {3: "spills"}, 1.5)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    head = {"schema": "kerntune.log/1", "kernel": "k", "call": tuning_result.call_hash(SITE)}
    assert len(head["call"]) == 12
    assert all(line.items() >= head.items() for line in lines)
    left = [{k: v for k, v in line.items() if k not in (*head, "time", "pid", "config")} for line in lines]
    far = f"its estimate is above {tuning_result.DROP_FIRST} of the best"
    assert left == [
        {"event": "begin", "arguments": "x=3", "configs": 4, "device": "a GPU"},
        {"event": "raced", "rounds": 0, "time_ns": 100.0, "estimate_ns": 100.0, "ratio": 1.0},
        {"event": "raced", "why": "slower in turn with the best, or tied with it", "rounds": 1, "time_ns": 110.123,
         "estimate_ns": 101.0, "ratio": 1.10123},
        {"event": "dropped", "why": "slower in first rounds", "rounds": 2, "time_ns": 120.0, "estimate_ns": 110.0,
         "ratio": 1.2},
        {"event": "dropped", "why": far, "rounds": 3, "time_ns": 900.0, "estimate_ns": 900.0, "ratio": 9.0},
        {"event": "left out", "why": "spills"},
        {"event": "won", "time_ns": 100.0, "seconds": 1.5, "configs": 4},
    ]  # fmt: skip
    assert [line.get("config", {}).get("kwargs", {}).get("BLOCK") for line in lines] == [None, 1, 2, 3, 4, 4, 1]


@pytest.mark.parametrize(("candidates", "listens", "calls"), [(2, True, 1), (1, True, 0), (2, False, 0)])
@pytest.mark.parametrize("seconds", [None, 1.5])
def test_a_listener_hears_of_a_choice_among_several(
    monkeypatch: pytest.MonkeyPatch, candidates: int, listens: bool, calls: int, seconds: float | None
) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(tuners, "tuning_listener", lambda: (lambda **words: heard.append(words)) if listens else None)
    monkeypatch.setattr(tuners, "prints_tuning", lambda: False)
    tuner: Any = SimpleNamespace(cache={(1,): "best"}, configs_timings={"best": [1.0]})
    site: Any = SimpleNamespace(kernel="k", jit="the kernel", candidates=[None] * candidates)
    tuning_result.tell_tuned(tuner, site, (1,), seconds)
    assert tuner.best_config == "best"
    expected = {"fn": "the kernel", "key": (1,), "best_config": "best", "configs_timings": {"best": [1.0]}}
    assert heard == [{**expected, "duration": seconds, "cache_hit": seconds is None}] * calls


@pytest.mark.parametrize(
    ("prints", "seconds", "late", "line"),
    [
        (True, 1.234, 0, "kerntune: k, key (1,): tuned in 1.23 s, best config best\n"),
        (
            True,
            0.0,
            2,
            "kerntune: k, key (1,): tuned in 0.00 s, best config best, 2 configs are still being compiled\n",
        ),
        (True, None, 0, ""),
        (False, 1.0, 0, ""),
    ],
)
def test_a_tuning_is_printed_where_triton_s_is(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, prints: bool, seconds: float | None, late: int, line: str
) -> None:
    monkeypatch.setattr(tuners, "tuning_listener", lambda: None)
    monkeypatch.setattr(tuners, "prints_tuning", lambda: prints)
    tuner: Any = SimpleNamespace(cache={(1,): "best"})
    tuning_result.tell_tuned(tuner, SITE, (1,), seconds, *([late] if late else []))
    assert capsys.readouterr().out == line


@pytest.mark.parametrize(
    ("near", "told"),
    [(None, "no tuned call is near, so the first config that can be launched is used untuned (tune=nearest)"),
     ("the one of n=4", "the one of n=4 is used untuned (tune=nearest)")],
)  # fmt: skip
def test_a_call_without_a_winner_says_whose_it_takes(near: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_result, "kernel_file", lambda jit: "file.py")
    site: Any = SimpleNamespace(kernel="k", jit=None)
    with pytest.warns(RuntimeWarning) as caught:
        tuning_result.tell_nearest(site, (1,), near)
    assert [str(w.message) for w in caught] == [f"kernel k (file.py), key (1,): has no stored winner; {told}"]
    assert caught[0].filename == __file__


def test_a_log_that_can_not_be_written_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "no" / "log"
    monkeypatch.setenv("KERNTUNE_LOG", str(path))
    monkeypatch.setattr(tuning_result, "exact_arguments", lambda site: "x=3")
    monkeypatch.setattr(tuning_result, "_warned", set())
    with pytest.warns(
        RuntimeWarning, match=f"^KERNTUNE_LOG: {path} can't be written: No such file or directory$"
    ) as told:
        tuning_result.log_config(SITE, "event")
    assert len(told) == 1
    tuning_result.log_config(SITE, "event")


def test_without_a_log_nothing_is_computed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNTUNE_LOG", raising=False)
    nothing: Any = None
    tuning_result.log_config(nothing, "event")
    tuning_result.log_begin(nothing, "a GPU")
    tuning_result.log_race(nothing, nothing, nothing, nothing)
    tuning_result.log_end(nothing, 0, {}, {}, 1.0)
