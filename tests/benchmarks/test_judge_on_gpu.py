"""What is noted of a verdict on a GPU beside it; here the GPU is a scripted one."""

from __future__ import annotations

from contextlib import closing

from benchmarks.judge.cases import FAIR, exploit_cases, honest_cases
from benchmarks.judge.corpus import scripted_bench
from benchmarks.judge.on_gpu import row_of


def test_fair_attempts_count_as_honest() -> None:
    honest, exploits = {case.name: case.family for case in honest_cases()}, {case.name for case in exploit_cases()}
    assert {honest[name] for name in FAIR} == {"honest"}
    assert not {*FAIR} & exploits


def test_a_verdict_s_processes_are_noted() -> None:
    case = next(case for case in honest_cases() if case.name == "add")
    with closing(scripted_bench()) as bench:
        row = row_of(bench, case, budget=5.0, alone=True)
    assert row["verdict"] == "FASTER", row["text"]
    assert row["recording_seconds"] > 0
    assert {"record", "contents", "expect", "replay", "errors"} <= {role for role, *_ in row["timeline"]}
