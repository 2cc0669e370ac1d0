"""Made-up runs for measuring and testing reports: every kind of result, in any number, without a GPU."""

from __future__ import annotations

import random

from kerntune.base.case_result import (
    Attribution,
    CaseId,
    CaseResult,
    CodeChange,
    LaunchFigures,
    LaunchReport,
    LeftOut,
    ReplayedTimes,
    Share,
    TrialReport,
)
from kerntune.base.config import Config
from kerntune.base.failed_candidates import FailedTrial
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.gate.history.summary import CaseCurve, CurvePoint, HistoryStep
from kerntune.gate.report import Origin, RunReport, counts

KERNELS = ("softmax_kernel", "matmul_kernel", "layer_norm_fwd", "attention_inner", "gather_rows")

HARD_TEXT = (
    "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)> | `code` *x* ünï 日本 ${{7*7}} {{7*7}} %{x}"
)
"""What a page or a table must show as it stands."""

VERDICTS = (
    *[Verdict.REGRESSED] * 3,
    *[Verdict.INCONCLUSIVE] * 2,
    *[Verdict.DRIFTED] * 2,
    *[Verdict.IMPROVED] * 3,
    Verdict.NEW,
    *[Verdict.PASS] * 39,
)
"""In turn: of fifty cases, three regress."""

OUTCOMES = {Verdict.REGRESSED: Outcome.FAIL, Verdict.INCONCLUSIVE: Outcome.WARN, Verdict.DRIFTED: Outcome.WARN}

CHANGES = {Verdict.REGRESSED: 0.08, Verdict.IMPROVED: -0.06, Verdict.INCONCLUSIVE: 0.02, Verdict.DRIFTED: 0.001}


def made_run(cases: int, *, seed: int = 1, samples: int = 200, configs: int = 48, hard: bool = False) -> RunReport:
    """A run of ``cases`` timed cases, ``samples`` times and ``configs`` candidates each."""
    chance = random.Random(seed)
    results = tuple(_case(i, chance, samples, configs, hard) for i in range(cases))
    return RunReport(
        results=results,
        header=("NVIDIA H200 (cuda:90), driver 580.1", "Triton 3.9.0, torch 2.13.0", "baselines: baselines"),
        counts={v.value: n for v, n in counts(results).items()},
        created="2026-03-01T12:00:00+00:00",
        versions={"kerntune": "0.1.0", "pytest": "9.0.1", "python": "3.11.9"},
        origin=Origin("1f0c27aa31" * 4, "2026-03-01T11:00:00+00:00", "main", False, "gpu-runner-1"),
    )


def made_curves(run: RunReport, *, points: int = 200) -> list[CaseCurve]:
    """A history for each case of ``run``; every seventh has a step."""
    chance = random.Random(1)
    return [_curve(r, points, i % 7 == 0, chance) for i, r in enumerate(run.results)]


def _curve(result: CaseResult, points: int, stepped: bool, chance: random.Random) -> CaseCurve:
    size, at = (0.05 if stepped else 0.0), points // 2
    commits = [f"{i:04x}" * 10 for i in range(points)]
    drawn = tuple(
        CurvePoint(_day(i), commits[i], round(chance.gauss(size * (i >= at), 0.001), 6), 0.001) for i in range(points)
    )
    step = HistoryStep(
        str(result.case), result.target, result.device, "step", size, size - 0.001, size + 0.001, commits[at - 1],
        commits[at], commits[at - 1], commits[at], 1, _day(at - 1)[:10], _day(at)[:10], ("driver 575.1 -> 580.1",),
    )  # fmt: skip
    steps = (step,) if stepped else ()
    return CaseCurve(str(result.case), result.target, result.device, drawn, steps, points, "main")


def _day(number: int) -> str:
    return f"2026-{1 + number // 28 % 12:02}-{1 + number % 28:02}T00:00:00+00:00"


def _case(number: int, chance: random.Random, samples: int, configs: int, hard: bool) -> CaseResult:
    verdict, kernel = VERDICTS[number % len(VERDICTS)], KERNELS[number % len(KERNELS)]
    change = CHANGES.get(verdict, 0.0) * chance.uniform(0.6, 1.6) + chance.gauss(0, 0.001)
    base = chance.uniform(2_000, 900_000)
    today = base * (1 + change)
    text = f" {HARD_TEXT}" if hard else ""
    name = f"tests/test_{kernel.partition('_')[0]}.py::test_{kernel}[{number}-bf16{text}]"
    tried = _configs(configs, chance)
    winner = tried[0]
    return CaseResult(
        case=CaseId(name, "0"),
        fingerprint=f"{number:016x}",
        verdict=verdict,
        outcome=OUTCOMES.get(verdict, Outcome.PASS),
        message=f"{verdict.value} {name}: attributed: code {100 * change:+.1f} %, code changed{text}",
        target="cuda:90",
        device="NVIDIA H200",
        launches=_launches(kernel + text, winner, verdict is Verdict.REGRESSED),
        baseline_ns=base,
        current_ns=today,
        change=Estimate(change, change - 0.004, change + 0.004, 0.9999),
        shown=Estimate(change, change - 0.002, change + 0.002, 0.99),
        tolerance=0.02,
        rung="paired replay",
        causes=(f"code changed{text}", "config unchanged"),
        attribution=None if verdict is Verdict.PASS else _attribution(change, text),
        warnings=("the times fall into two groups",) if number % 9 == 0 else (),
        trials=tuple(TrialReport(kernel + text, c, round(base * (1 + 0.03 * i), 1)) for i, c in enumerate(tried[:-6])),
        failed_trials=tuple(
            FailedTrial(kernel + text, c, f"out of shared memory: 245760 B{text}") for c in tried[-6:-3]
        ),
        left_out=tuple(LeftOut(kernel + text, c, "spills 512 B, others don't") for c in tried[-3:]),
        times_ns=_times(today, samples, chance),
        outliers=(3, 17) if samples > 17 else (),
        timer="graph",
        tuning_seconds=2.4,
        baseline_path=f"baselines/cuda-90/nvidia-h200/time/{number}.json",
        flops=base * 3e5 if number % 2 else None,
        bytes_moved=base * 3_000,
        bandwidth=4.1e12,
        matmul_peak=7.5e14 if number % 4 == 1 else None,
        matmul_dtype="bfloat16" if number % 4 == 1 else "",
        baseline_times_ns=_times(base, samples, chance),
        replayed=ReplayedTimes(_times(base, 6, chance), _times(today, 6, chance))
        if verdict is not Verdict.PASS
        else None,
        code=_code(kernel + text) if verdict in (Verdict.REGRESSED, Verdict.IMPROVED) else (),
    )


def _times(center: float, count: int, chance: random.Random) -> tuple[float, ...]:
    return tuple(round(chance.gauss(center, center * 0.004), 1) for _ in range(count))


def _configs(count: int, chance: random.Random) -> list[Config]:
    every = [
        Config({"BLOCK_M": m, "BLOCK_N": n, "GROUP": g}, num_warps=w, num_stages=s)
        for m in (32, 64, 128, 256)
        for n in (32, 64, 128)
        for g in (1, 8)
        for w in (2, 4, 8)
        for s in (2, 3, 4)
    ]
    return chance.sample(every, min(count, len(every)))


def _launches(kernel: str, config: Config, grew: bool) -> tuple[LaunchReport, ...]:
    before = LaunchFigures(96, 0, 49_152, 0.31)
    now = (128, 64, 65_536, 0.25) if grew else (96, 0, 49_152, 0.31)
    first = LaunchReport(kernel, config, (256, 1, 1), *now, "registers", before)
    return first, LaunchReport(
        "reduce_partials", None, (16, 1, 1), 24, 0, 1_024, 1.0, "threads", LaunchFigures(24, 0, 1_024, 1.0)
    )


def _attribution(change: float, text: str) -> Attribution:
    return Attribution(
        environment=Share(0.002),
        compiler=Share(0.0),
        code=Share(change * 0.8, f"source changed{text}"),
        config=Share(change * 0.2, "BLOCK_M=64 -> BLOCK_M=128"),
    )


HUNK = """@@ -{n},6 +{n},7 @@
 mov.u32 %r{n}, %ctaid.x;
 shl.b32 %r{n}, %r{n}, 7;
-ld.global.v4.b32 {{ %r{n} }}, [ %rd{n} + 0 ];
+ld.global.b32 {{ %r{n} }}, [ %rd{n} + 0 ];
+ld.global.b32 {{ %r{n} }}, [ %rd{n} + 4 ];
 add.f32 %f{n}, %f{n}, %f{n};"""


def _code(kernel: str) -> tuple[CodeChange, ...]:
    diff = "\n".join(HUNK.format(n=n) for n in range(10, 400, 20))
    return tuple(CodeChange(kernel, stage, diff, 12) for stage in ("ptx", "sass"))
