"""Cases of a run that isn't believed: what of a claim counts, and what is decided by code that is compiled anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from doubles import raising
from samples import (
    CASE,
    FINGERPRINT,
    H100,
    artifacts_of,
    binary,
    bytes_of,
    metrics,
    sha,
    static_baseline,
    static_launch,
)

from kerntune.base.case_result import CaseId, CaseResult, End
from kerntune.base.device import Target
from kerntune.base.numerics import NumericsReport, NumericsRule
from kerntune.base.policy import Outcome, Policy, Verdict
from kerntune.errors import BaselineError, CompileError
from kerntune.gate import claimed_cases as claims
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.bundle import bundle_of
from kerntune.gate.call import PendingBaseline
from kerntune.gate.claimed_cases import ClaimedCase, CodeFigures, CodeRequest, Judge, claimed_cases, unreported
from kerntune.gate.report import RunReport
from kerntune.gate.static_verdict import NOTHING_RUNS
from kerntune.gate.stores import ReferenceStore, Stores
from kerntune.kernels.compat import launch_environment, versions

TARGET = H100.target
KEY = (CASE, FINGERPRINT, str(TARGET))
NAME = f"{CASE} ({TARGET})"
TTIR = bytes_of("ttir code")

replace = msgspec.structs.replace


def claim(verdict: Verdict = Verdict.PASS, outcome: Outcome = Outcome.PASS, **more: Any) -> CaseResult:
    made = CaseResult(CASE, FINGERPRINT, verdict, outcome, f"claimed {verdict.value}", str(TARGET))
    return replace(made, **more)


def today(compiler: str = "", code: str = "code", **more: Any) -> Any:
    launch = replace(static_launch(code), compiler=compiler or here(), **more)
    return replace(static_baseline(), launches=(launch,))


def here() -> str:
    return f"Triton {versions.triton_version()}, assembler {versions.assembler_version('cuda', TARGET.triton_arch)}"


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_environment, "compiler_settings", lambda backend: {})


def bundle(baseline: Any, artifacts: dict[str, bytes] | None = None) -> Any:
    found = bundle_of(PendingBaseline(baseline, {sha(TTIR): TTIR} if artifacts is None else artifacts, True))
    return msgspec.json.decode(msgspec.json.encode(found))


def store_of(folder: Path, *baselines: Any) -> BaselineStore:
    store = BaselineStore(folder)
    for baseline in baselines:
        store.put(baseline, artifacts_of("code", "other"))
    return store


def stores_of(tmp_path: Path, *baselines: Any) -> Stores:
    """The base has these; this checkout has none."""
    store_of(tmp_path / "base", *baselines)
    return Stores(BaselineStore(tmp_path / "own"), ReferenceStore(tmp_path / "base", "base"))


# what is claimed


@pytest.mark.parametrize(
    ("change", "known"),
    [({}, True), ({"target": ""}, True), ({"target": "cuda:80"}, False), ({"verdict": Verdict.STALE}, False),
     ({"case": CaseId("a\x00b", "0")}, False), ({"case": CaseId("a", "0\n")}, False)],
)  # fmt: skip
def test_which_results_are_claims(change: dict[str, Any], known: bool) -> None:
    """Two of one case are both kept: the claim contradicts itself."""
    results = (claim(**change), claim(Verdict.REGRESSED, **{k: v for k, v in change.items() if k != "verdict"}))
    found = claimed_cases(RunReport(results), [TARGET])
    kept = [case.results for case in found.values()]
    assert kept == ([[*results]] if known else [[results[1]]] if "verdict" in change else [])


def test_a_claims_code_comes_with_it() -> None:
    run = RunReport((claim(),), baselines={NAME: bundle(today())})
    (case,) = claimed_cases(run, [TARGET]).values()
    assert (case.today, case.artifacts, case.problem, case.decidable) == (today(), {sha(TTIR): TTIR}, "", True)
    other = replace(today(), case=CaseId("t.py::other", "0"))
    (case,) = claimed_cases(RunReport((claim(),), baselines={NAME: bundle(other)}), [TARGET]).values()
    assert (case.today, case.decidable) == (None, False)
    run = RunReport((claim(),), baselines={"another": bundle(other), "broken": {}, NAME: bundle(today())})
    (case,) = claimed_cases(run, [TARGET]).values()
    assert case.decidable, "whatever else is in the run"


def test_a_claim_of_a_target_that_does_not_exist_has_no_code() -> None:
    odd = replace(today(), target=Target("cuda", "90", 64))
    (case,) = claimed_cases(RunReport((claim(),), baselines={NAME: bundle(odd)}), [TARGET]).values()
    assert case.problem.startswith(f"of {NAME}: target is 'cuda:90' with 64 threads a warp, no target such as cuda:90")


@pytest.mark.parametrize("named", [NAME, "another case (cuda:90)"])
def test_a_code_that_can_not_be_read_is_a_problem_of_its_case_alone(named: str) -> None:
    broken = bundle(today())
    broken["artifacts"] = {}
    (case,) = claimed_cases(RunReport((claim(),), baselines={named: broken}), [TARGET]).values()
    assert (case.today, case.decidable) == (None, False)
    lacks = f"of {NAME}: lacks artifact {sha(TTIR)[:12]}; the file was changed, run it anew"
    assert case.problem == (lacks if named == NAME else "")


def test_code_beyond_a_limit_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all cases of a run together."""
    second = replace(today(), case=CaseId("t.py::second", "0"))
    run = RunReport((claim(), claim(case=second.case)),
                    baselines={NAME: bundle(today()), f"{second.case} ({TARGET})": bundle(second)})  # fmt: skip
    for most, sizes in ((len(TTIR) + 1, [1, 1]), (len(TTIR), [1, 0]), (0, [0, 0])):
        monkeypatch.setattr(claims, "MOST_CODE", most)
        assert [len(case.artifacts) for case in claimed_cases(run, [TARGET]).values()] == sizes
    assert claims.MOST_CODE == 0


# figures


def test_a_text_is_compiled_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; what the compiler refuses is no end of the others."""
    did: list[Any] = []
    farm = SimpleNamespace(close=lambda: did.append("closed"))
    made = {"ttgir": b"ttgir text", "ptx": b"ptx text", "cubin": b"code"}

    def compiled(given: Any, target: Target, ttir: bytes, options: Any, kernel: str) -> Any:
        did.append((given is farm, target, ttir, options, kernel))
        if kernel == "broken":
            raise CompileError("no such operation" + "." * 600)
        return binary(settings={"A": "1"}), made

    monkeypatch.setattr(claims, "Farm", lambda: farm)
    monkeypatch.setattr(claims, "binary_from", compiled)
    monkeypatch.setattr(claims, "binary_input", lambda *words: words)
    monkeypatch.setattr(claims, "metrics_of", lambda binaries, device: did.append((binaries, device)) or [metrics()])
    monkeypatch.setattr(claims, "ttir_text", lambda ttir, kernel: f"{kernel} text")
    monkeypatch.setattr(claims, "first_stage_of", lambda text: "ttir")
    monkeypatch.setattr(claims, "stage_hashes", dict)
    requests = [CodeRequest(TARGET, name, b"text", {"num_warps": 4}) for name in ("good", "broken")]
    good, broken = claims.figures_of(requests)
    assert good == CodeFigures(
        "code", "Triton 3.9.0, assembler 12.9",
        {"ttir": "good text", "ttgir": "ttgir text", "ptx": "ptx text"}, {"A": "1"}, metrics(),
    )  # fmt: skip
    assert broken == CodeFigures(refused=("no such operation" + "." * 600)[:500])
    asked = [(True, TARGET, b"text", {"num_warps": 4}, name) for name in ("good", "broken")]
    assert did == [asked[0], ([(binary(settings={"A": "1"}), b"code", "ptx text")], H100), asked[1], "closed"]


# decisions


def compiling(**more: Any) -> Callable[[Sequence[CodeRequest]], list[CodeFigures]]:
    return lambda asked: [CodeFigures("code", here(), {}, {}, replace(metrics(), **more)) for _ in asked]


def never(asked: Sequence[CodeRequest]) -> list[CodeFigures]:
    pytest.fail("compiled")


def decide(stores: Stores, *cases: ClaimedCase, policy: Policy | None = None, compile: Any = never) -> list[CaseResult]:
    keys = [KEY, *((CaseId(f"t.py::{i}", "0"), *KEY[1:]) for i in range(1, len(cases)))]
    named = [key[0] for key in keys]

    def policy_of(case: CaseId) -> Policy:
        assert case in named
        return policy or Policy()

    return Judge(stores, policy_of, compile).results(dict(zip(keys, cases, strict=False)))


def with_code(baseline: Any = None, *results: CaseResult) -> ClaimedCase:
    return ClaimedCase([*(results or [claim()])], baseline or today(), {sha(TTIR): TTIR})


def test_the_baselines_own_code_has_the_baselines_figures(tmp_path: Path) -> None:
    """Whatever is claimed of it."""
    forged = replace(today().launches[0], metrics=replace(metrics(), registers=255), compile_seconds=3.0)
    (found,) = decide(stores_of(tmp_path, today()), with_code(replace(today(), launches=(forged,))))
    assert (found.verdict, found.outcome, found.case, found.target, found.rung) == (
        Verdict.PASS, Outcome.PASS, CASE, "cuda:90", "static",
    )  # fmt: skip
    assert [x.registers for x in found.launches] == [32]
    assert found.message == f"PASS {CASE} (cuda:90, static only), code unchanged, config unchanged"
    assert found.baseline_path.endswith(".json")


@pytest.mark.parametrize(
    "change",
    [{"compiler": "Triton 1.0, assembler 1"}, {"code": "other"}, {"compiled_for": {"num_warps": "8"}},
     {"compiler_settings": {"DISABLE_PTXAS_OPT": "1"}}],
)  # fmt: skip
def test_any_other_code_is_compiled_anew(tmp_path: Path, change: dict[str, Any]) -> None:
    asked: list[CodeRequest] = []

    def compile(requests: Sequence[CodeRequest]) -> list[CodeFigures]:
        asked.extend(requests)
        figures = replace(metrics(), registers=64, spill_store_bytes=64, spill_load_bytes=64)
        return [CodeFigures("another code", here(), {}, {}, figures)]

    stored = today(**change)
    (found,) = decide(stores_of(tmp_path, stored), with_code(), compile=compile)
    others = "compiler_settings" in change  # whose figures aren't comparable
    assert found.verdict is (Verdict.INCONCLUSIVE if others else Verdict.REGRESSED)
    assert asked == [CodeRequest(TARGET, "add_kernel", TTIR, today().launches[0].config.all_kwargs())]
    assert [x.registers for x in found.launches] == [64]


def test_equal_codes_are_compiled_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def compile(requests: Sequence[CodeRequest]) -> list[CodeFigures]:
        asked.append(len(requests))
        return compiling()(requests)

    twice = replace(today(), launches=today().launches * 2)
    found = decide(stores_of(tmp_path), with_code(twice), with_code(twice), compile=compile)
    assert asked == [1]
    assert [(r.verdict, len(r.launches)) for r in found] == [(Verdict.NEW, 2)] * 2
    other = replace(today(), launches=(today().launches[0], replace(today().launches[0], config=None)))
    decide(stores_of(tmp_path), with_code(other), compile=compile)
    assert asked == [1, 2]


@pytest.mark.parametrize(
    ("made", "why"),
    [(CodeFigures(refused="no such operation"), "no such operation"), (CodeFigures(), "it has no figures")],
)
def test_a_text_that_is_not_compiled_is_incomplete(tmp_path: Path, made: CodeFigures, why: str) -> None:
    named = replace(today(), launches=(replace(today().launches[0], kernel="k" * 100),))
    (found,) = decide(stores_of(tmp_path), with_code(named), compile=lambda asked: [made])
    assert (found.verdict, found.outcome, found.case, found.target) == (
        Verdict.INCOMPLETE, Outcome.FAIL, CASE, "cuda:90",
    )  # fmt: skip
    assert found.message == f"INCOMPLETE {CASE} (cuda:90): the TTIR of {'k' * 80} is not compiled: {why}"


def test_a_baseline_that_can_not_be_read_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "known_case", raising(BaselineError("damaged")))
    (found,) = decide(stores_of(tmp_path), with_code())
    told = f"INCOMPLETE {CASE} (cuda:90): damaged"
    assert (found.case, found.target, found.message, found.outcome) == (CASE, "cuda:90", told, Outcome.FAIL)


def test_a_case_whose_baseline_can_not_be_read_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = claims.known_case

    def broken(stores: Stores, target: Target, case: CaseId, *words: Any) -> Any:
        if case == CASE:
            raise BaselineError("damaged")
        return known(stores, target, case, *words)

    monkeypatch.setattr(claims, "known_case", broken)
    found = decide(stores_of(tmp_path), with_code(), with_code(), compile=compiling())
    assert [r.verdict for r in found] == [Verdict.INCOMPLETE, Verdict.NEW]


WITHHELD = f"INCOMPLETE {CASE} (cuda:90): it was reported without its code, so it was not decided"


@pytest.mark.parametrize(
    ("results", "problem", "message", "outcome"),
    [
        ([claim()], "", WITHHELD, Outcome.FAIL),
        ([claim(Verdict.INCOMPLETE, Outcome.WARN)], "", "claimed INCOMPLETE", Outcome.WARN),
        ([claim(Verdict.INCOMPLETE, Outcome.WARN)], "x", f"INCOMPLETE {CASE} (cuda:90): x", Outcome.FAIL),
        ([claim(Verdict.REGRESSED, Outcome.FAIL)], "", "claimed REGRESSED", Outcome.FAIL),
        ([claim(Verdict.INCOMPLETE, Outcome.WARN), claim()], "", WITHHELD, Outcome.FAIL),
        ([claim(Verdict.INCOMPLETE, Outcome.PASS), claim(Verdict.INCOMPLETE, Outcome.PASS, message="")], "",
         "claimed INCOMPLETE", Outcome.WARN),
    ],
)  # fmt: skip
def test_a_case_without_its_code_is_no_pass(
    tmp_path: Path, results: list[CaseResult], problem: str, message: str, outcome: Outcome
) -> None:
    policy = Policy(outcomes={Verdict.INCOMPLETE: Outcome.WARN})
    (found,) = decide(stores_of(tmp_path), ClaimedCase(results, problem=problem), policy=policy)
    assert (found.message, found.outcome, found.case, found.target) == (message, outcome, CASE, "cuda:90")


def test_a_failure_that_is_claimed_is_believed_and_nothing_better() -> None:
    own = claim(Verdict.NEW, Outcome.WARN)
    worse = claim(Verdict.REGRESSED, Outcome.FAIL, message="no\x1b config", findings=("a\x1bb",))
    found = claims.with_claims(own, [claim(), worse])
    assert (found.verdict, found.outcome, found.message, found.findings) == (
        Verdict.REGRESSED, Outcome.FAIL, "no\\u001b config", ("a\\u001bb",),
    )  # fmt: skip
    for claimed in ([], [claim()], [claim(Verdict.DRIFTED, Outcome.WARN)]):
        assert claims.with_claims(own, claimed) is own


def test_a_call_that_stopped_earlier_than_the_base_allows_is_cut_off(tmp_path: Path) -> None:
    end = End("model.py", "forward", "x.item()", "asks for a value")
    stored, cut = today(), replace(today(), end=end)
    for base, accepted in ((stored, False), (cut, True)):
        (found,) = decide(stores_of(tmp_path / str(accepted), base), with_code(cut))
        assert (found.end, found.end_accepted, found.verdict is Verdict.PASS) == (end, accepted, accepted)
        assert ("what it launches after that isn't judged" in found.message) is not accepted
    between = replace(today(), end=replace(end, between=True))
    (found,) = decide(stores_of(tmp_path / "between", stored), with_code(between))
    assert (found.end, found.verdict) == (None, Verdict.PASS)


@pytest.mark.parametrize(("rule", "warned"), [("report", ()), ("bitwise", (NOTHING_RUNS,))])
def test_results_are_not_compared_where_nothing_runs(tmp_path: Path, rule: str, warned: tuple[str, ...]) -> None:
    policy = Policy(numerics=NumericsRule.parse(rule, "here"))
    (found,) = decide(stores_of(tmp_path, today()), with_code(), policy=policy)
    assert found.numerics == NumericsReport(rule, not_compared=(NOTHING_RUNS,))
    assert found.warnings == warned
    (new,) = decide(stores_of(tmp_path / "new"), with_code(), policy=policy, compile=compiling())
    assert (new.numerics, new.warnings) == (None, ())


# what should have been reported


def test_a_case_of_the_base_that_is_not_reported_fails(tmp_path: Path) -> None:
    second = replace(today(), case=CaseId("t.py::second", "0"))
    stores = stores_of(tmp_path, today(), second)
    found = unreported(stores, [TARGET, Target.parse("cuda:80")], [KEY])
    told = "the base has a baseline of it, and this run reported nothing of it"
    assert [(r.case, r.outcome, r.message, r.target) for r in found] == [
        (second.case, Outcome.FAIL, f"INCOMPLETE t.py::second (cuda:90): {told}", "cuda:90")
    ]
    assert len(unreported(stores, [TARGET], [])) == len(unreported(stores, [TARGET, TARGET], [])) == 2
    older = stores_of(tmp_path / "older", replace(second, triton="3.1"))
    assert len(unreported(older, [TARGET], [])) == 1, "of another Triton, where there are none of today's"
    stores_of(tmp_path / "older", today())
    assert [r.case for r in unreported(older, [TARGET], [])] == [CASE]


def test_a_baseline_of_the_base_that_can_not_be_read_fails(tmp_path: Path) -> None:
    stores = stores_of(tmp_path, today())
    (path,) = (p for p in (tmp_path / "base").rglob("*.json") if "artifacts" not in p.parts)
    path.write_text("{")
    (found,) = unreported(stores, [TARGET], [KEY])
    assert (found.verdict, found.outcome) == (Verdict.INCOMPLETE, Outcome.FAIL)
    assert " (cuda:90): its baseline can't be read: " in found.message
