"""``kerntune upgrade``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import msgspec
import pytest
from inner import QUICK

from cli.command import Command, column_widths
from cli.made import folder, metrics, static
from kerntune.base.case_result import Attribution, CaseResult, CauseKind, LaunchCause, LaunchReport, LostConfig, Share
from kerntune.base.config import Config
from kerntune.base.policy import Outcome, Verdict
from kerntune.base.stats import Estimate
from kerntune.cli import static_record, upgrade
from kerntune.cli.static_diff import StaticChange, StaticDifference
from kerntune.cli.static_record import EnvironmentRun, EnvironmentVersions, run_both
from kerntune.cli.stored import Pattern, load_folder
from kerntune.cli.upgrade import Loss, Upgrade, cause_of, compare_runs, report
from kerntune.errors import UsageError
from kerntune.gate.baselines import StaticBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.gate.report import RunReport
from kerntune.kernels.source import GeneratedFrom
from kerntune.static.code_rules import Finding
from kerntune.static.occupancy import Violation

OLD, NEW = EnvironmentVersions("3.8.0", "2.13.0"), EnvironmentVersions("3.9.0", "2.15.0")
GRAPH = GeneratedFrom("2.13.0", ("softmax",), ("aten.exp",), "g1")


def case(number: int) -> str:
    return f"t.py::test_{number}"


def recorded(number: int, triton: str = "3.8", **changes: object) -> PendingBaseline:
    """A case's baseline, its launch with ``changes``."""
    made = static(case(number), triton=triton)
    assert isinstance(made.baseline, StaticBaseline)
    launches = tuple(msgspec.structs.replace(x, **changes) for x in made.baseline.launches)
    return PendingBaseline(msgspec.structs.replace(made.baseline, launches=launches), made.artifacts, True)


def result_of(pending: PendingBaseline, verdict: Verdict = Verdict.PASS, **more: object) -> CaseResult:
    baseline = pending.baseline
    outcome = Outcome.FAIL if verdict is Verdict.REGRESSED else Outcome.PASS
    given = {"message": f"{verdict.value} {baseline.case}", "target": "cuda:90"} | more
    return CaseResult(baseline.case, baseline.fingerprint, verdict, outcome, **given)  # type: ignore[arg-type]


def side(
    path: Path,
    versions: EnvironmentVersions,
    pendings: Sequence[PendingBaseline],
    results: Sequence[CaseResult] = (),
    failed: dict[str, str] | None = None,
) -> EnvironmentRun:
    folder(path, *pendings)
    return EnvironmentRun(versions, load_folder(path), RunReport(tuple(results), failed=failed or {}))


def other(number: int, registers: int = 32, spilled: int = 0, **changes: object) -> PendingBaseline:
    """The new side's baseline: other code, made by the other compiler unless ``changes`` say otherwise."""
    return recorded(number, "3.9", code="e" * 64, metrics=metrics(registers, spilled), **changes)


@pytest.fixture
def found(tmp_path: Path) -> Upgrade:
    """Losses by each cause, a change that is none, and a case that is the same."""
    made = {"compiler": "Triton 3.8.0, assembler 12.8"}
    new = {"compiler": "Triton 3.9.0, assembler 13.4"}
    over = msgspec.structs.replace(metrics(), over_limit=(Violation("shared memory", 300, 200, "bytes a block"),))
    before = [
        recorded(0, **made),
        recorded(1, **made, made_from=GRAPH),
        recorded(2, **made),
        recorded(3, **made),
        recorded(4, **made),
        recorded(5, **made),
        recorded(7, **made, config=Config({"BLOCK": 256})),
    ]
    remade = msgspec.structs.replace(GRAPH, torch="2.15.0")
    lost = other(7, **new, config=Config({"BLOCK": 128}))
    after = [
        other(0, spilled=64, **new),
        other(1, registers=48, **new, source="6" * 64, made_from=remade),
        recorded(2, "3.9", **new, code="e" * 64, metrics=over),
        other(3, spilled=32, **new, compiler_settings={"DISABLE_PTXAS_OPT": "1"}),
        recorded(4, "3.9", **new),
        other(5, registers=31, **new),
        lost,
    ]
    unfit = LostConfig("softmax_kernel", "BLOCK=256", "BLOCK=128", "is listed, but can't be launched: shared memory")
    results = [
        *map(result_of, after[:-1]),
        result_of(lost, Verdict.REGRESSED, findings=(str(unfit),), lost_configs=(unfit,)),
    ]
    failed = {case(6): "ImportError: no flashinfer", case(8): "fails", case(7): "REGRESSED"}
    return compare_runs(
        side(tmp_path / "a", OLD, before, failed={case(8): "fails"}),
        side(tmp_path / "b", NEW, after, results, failed),
        Pattern(),
    )


def by_case(found: Upgrade) -> dict[str, Loss]:
    return {loss.case: loss for loss in found.losses}


def test_each_loss_has_its_cause(found: Upgrade) -> None:
    assert {name: loss.cause for name, loss in by_case(found).items()} == {
        case(0): "compiler",
        case(1): "torch",
        case(2): "config no longer fits",
        case(3): "environment",
        case(6): "environment",
        case(7): "config no longer fits",
    }
    assert by_case(found)[case(1)].because.startswith(
        "torch 2.13.0 -> 2.15.0 (softmax's generated code) and compiler ("
    )
    assert "spills 0 -> " in by_case(found)[case(0)].lost[0]
    assert by_case(found)[case(7)].lost[0].startswith("fail: softmax_kernel: the baseline's config BLOCK=256 is listed")
    assert "keep torch 2.13.0" in by_case(found)[case(1)].advice
    assert "tune its configs anew under Triton 3.9.0" in by_case(found)[case(0)].advice


def test_what_cant_run_is_first_and_warnings_are_last(found: Upgrade) -> None:
    assert found.losses[0].case == case(6)
    assert found.losses[-1].case == case(1)
    assert [loss.fails for loss in found.losses] == [True] * 5 + [False]
    assert (found.failing, found.compared) == (5, 7)
    assert found.problems == (f"{case(8)} fails on both sides: fails",)


def test_the_report_counts_causes(found: Upgrade) -> None:
    text = report(found)
    assert text.startswith("Triton 3.8.0, torch 2.13.0 -> Triton 3.9.0, torch 2.15.0\n")
    assert "7 cases compared, static figures only: 5 failing, 1 warned of, " in text
    assert ", 2 by config no longer fits" in text
    rows = [line for line in report(found, markdown=True).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(found.losses)
    assert "softmax's generated code" in unescape(rows[-1])


def test_a_timed_loss_says_by_how_much(tmp_path: Path) -> None:
    """And a case that was timed isn't judged by its figures."""
    change, slower = Estimate(0.12, 0.1, 0.14, 0.99), Estimate(0.3, 0.2, 0.4, 0.99)
    shares = {name: Share(0.0) for name in ("environment", "compiler", "config")}
    blamed = Attribution(**shares, code=Share(0.12, "source changed"))
    launch = LaunchReport("triton_softmax", None, (1, 1, 1), 32, 0, 0, 1.0, "registers", origins=("aten._softmax",))
    more = {"change": change, "attribution": blamed, "launches": (launch,)}
    results = [
        result_of(recorded(0), Verdict.REGRESSED, **more),
        result_of(recorded(1), Verdict.PASS, **more),
        result_of(recorded(2), Verdict.REGRESSED, **(more | {"change": slower, "attribution": Attribution(
            **(shares | {"compiler": Share(0.3, "Triton 3.8.0 -> Triton 3.9.0")}), code=Share(0.0))})),
    ]  # fmt: skip
    found = compare_runs(
        side(tmp_path / "a", OLD, [recorded(1)]), side(tmp_path / "b", NEW, [other(1, spilled=64)], results), Pattern()
    )
    assert found.timed
    second, first = found.losses
    assert (first.case, first.cause, first.change) == (f"{case(0)}", "torch", 0.12)
    assert first.because == "torch 2.13.0 -> 2.15.0 (source changed)"
    assert "+12.0 %" in first.lost[0]
    assert (second.cause, second.because) == ("compiler", "compiler (Triton 3.8.0 -> Triton 3.9.0)")


def test_exit_code_and_forms(kerntune: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same, lost = side(tmp_path / "a", OLD, [recorded(0)]), side(tmp_path / "b", NEW, [other(0, spilled=64)])
    warned = side(tmp_path / "c", NEW, [other(0, registers=48)])
    for after, code in ((lost, 1), (warned, 0)):
        monkeypatch.setattr(upgrade, "run_both", lambda *_, after=after: (same, after))
        ran = kerntune("upgrade", "--python", "next")
        assert (ran.code, ran.err) == (code, "")
    assert kerntune("upgrade", "--python", "next", "--summary").out.startswith("### Upgrade, ")
    assert json.loads(kerntune("upgrade", "--python", "next", "--json").out)["schema"] == "kerntune.upgrade/1"
    assert "1 changed, 0 with other code" in kerntune("upgrade", "--python", "next", "--all").out
    assert kerntune("upgrade", "--python", "next", "--case", "no such").out.startswith("Triton 3.8.0")


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        (("compiler",), "compiler"),
        (("torch", "compiler"), "torch"),
        (("arguments", "environment", "compiler"), "environment"),
        (("code", "compiler"), "code"),
        (("config",), "unknown"),
    ],
)
def test_the_cause_of_several_kinds(kinds: tuple[CauseKind, ...], cause: str) -> None:
    assert cause_of(kinds) == cause


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--python", "no-such-python", "--target", "cuda:90"), "--python no-such-python: is no program"),
        (("--python", sys.executable), "say what to compile for"),
        (("--python", "a", "--python", "b", "--python", "c"), "once (beside the environment"),
        ((), "required: --python"),
    ],
)
def test_usage_errors(kerntune: Command, words: tuple[str, ...], says: str) -> None:
    ran = kerntune("upgrade", *words)
    assert (ran.code, ran.clean) == (2, True)
    assert says in ran.err


TEST = """
import pytest, torch, triton, triton.language as tl

@triton.jit
def copy_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))

@pytest.mark.autotune
def test_copy(autotune):
    x = torch.empty(4096, device=autotune.device)
    autotune(lambda: copy_kernel[(4,)](x, torch.empty_like(x), BLOCK=1024))
"""


def pretending(path: Path, triton: str) -> str:
    """An interpreter like this one whose Triton reports another version."""
    (path / "site").mkdir(parents=True)
    (path / "site" / "sitecustomize.py").write_text(
        "import importlib.metadata as m\nreal = m.version\n"
        f"m.version = lambda name: {triton!r} if name == 'triton' else real(name)\n"
    )
    script = path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{path / "site"}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.slow
def test_two_environments(
    kerntune: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_python: None
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(QUICK))
    (tmp_path / "test_it.py").write_text(TEST)
    python = pretending(tmp_path / "env", "3.77.1")
    ran = kerntune("upgrade", "--python", python, "--target", "cuda:90,hip:gfx942", "test_it.py", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["after"].startswith("Triton 3.77.1, torch 2.")
    assert (found["compared"], found["losses"], found["timed"]) == (2, [], False)
    difference = found["difference"]
    assert difference["same"] == 1  # one compiler made both, and ptxas has its own version
    (change,) = difference["changed"]
    assert (change["target"], change["compilers"][1]) == ("hip:gfx942", "3.77")
    assert change["launches"][0]["because"].startswith("compiler (Triton ")
    assert not (tmp_path / "baselines").exists()


SCRIPTED = """
import os
import pytest
from kerntune.gpu.scripted import FakeBackend, Rule, Script

def pytest_kerntune_backend(config):
    times = {1024: 20_000.0, 512: 24_000.0}
    return FakeBackend(Script([Rule(constexprs={"BLOCK": b}, time_ns=t) for b, t in times.items()]))
"""


@pytest.mark.slow
def test_on_a_gpu_the_new_side_is_timed_beside_the_old_sides_binaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_python: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(static_record, "has_cuda", lambda: True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(QUICK))
    (tmp_path / "conftest.py").write_text(SCRIPTED)
    block = '512 if os.environ.get("SIDE") == "new" else 1024'
    (tmp_path / "test_it.py").write_text("import os\n" + TEST.replace("BLOCK=1024", f"BLOCK={block}"))
    new = tmp_path / "python"
    new.write_text(f'#!/bin/sh\nSIDE=new exec "{sys.executable}" "$@"\n')
    new.chmod(0o755)
    sides = run_both([sys.executable, str(new)], ["test_it.py"], None, tmp_path / "baselines")
    found = compare_runs(*sides, Pattern())
    (loss,) = found.losses
    assert (loss.case, loss.kernel, loss.fails, found.timed) == ("test_it.py::test_copy", "copy_kernel", True, True)
    assert loss.change == pytest.approx(0.2, abs=0.01)
    assert "BLOCK 1024 -> 512" in loss.because


@pytest.mark.slow
def test_a_run_that_can_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_python: None) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="recorded nothing"):
        run_both([sys.executable, sys.executable], ["no_such_test.py"], "cuda:90", tmp_path / "baselines")


SHARES = {name: Share(0.0, f"why {name}") for name in ("environment", "compiler", "code", "config", "launch")}


@pytest.mark.parametrize(
    ("largest", "origins", "torch", "cause", "because"),
    [
        ("compiler", (), "2.15.0", "compiler", "compiler (x)"), ("code", (), "2.15.0", "code", "code (x)"),
        ("environment", ("aten.exp",), "2.15.0", "environment", "environment (x)"),
        ("launch", (), "2.15.0", "unknown", "launch (x)"), ("config", (), "2.15.0", "unknown", "config (x)"),
        ("launch", ("aten.exp",), "2.15.0", "torch", "torch 2.13.0 -> 2.15.0 (x)"),
        ("config", ("aten.exp",), "2.15.0", "torch", "torch 2.13.0 -> 2.15.0 (x)"),
        ("code", ("aten.exp",), "2.13.0", "code", "code (x)"),
        ("compiler", ("aten.exp",), "2.15.0", "compiler", "compiler (x)"),
    ],
)  # fmt: skip
def test_the_largest_share_is_the_cause(
    largest: str, origins: tuple[str, ...], torch: str, cause: str, because: str
) -> None:
    launches = (LaunchReport("a"), LaunchReport("b", origins=origins))
    shares = Attribution(**(SHARES | {largest: Share(0.1, "x")}))
    result = result_of(recorded(0), Verdict.REGRESSED, launches=launches, attribution=shares)
    assert upgrade._attributed(result, OLD, EnvironmentVersions("3.9.0", torch)) == (cause, because)
    nobody = msgspec.structs.replace(result, attribution=None, causes=("a", "b"))
    assert upgrade._attributed(nobody, OLD, NEW) == ("unknown", "a; b")


def test_kernels_of_notes_are_named_without_their_count() -> None:
    notes = ["launch added: triton_poi (2)", "launch removed: add", "launches: 1 -> 2"]
    assert list(upgrade._noted(notes)) == ["triton_poi", "add", "1 -> 2"]


def loss(name: str, **changes: object) -> Loss:
    made = Loss(case=name, target="cuda:90", kernel="k", cause="torch", because="why", lost=("a",), fails=True)
    return msgspec.structs.replace(made, **changes)


def test_losses_are_ranked_by_what_they_cost() -> None:
    """What can't run at all, then times and rules that fail, then warnings; more sentences and larger times first."""
    ranked = [
        loss("z", kernel="–"), loss("slow", change=0.3), loss("less", change=0.2, kernel="–"),
        loss("several", lost=("a", "b")), loss("a"), loss("a", kernel="l"), loss("b"),
        loss("warned", kernel="–", fails=False), loss("a", fails=False, lost=("a", "b")), loss("a", fails=False),
    ]  # fmt: skip
    found = ranked[::-1]
    found.sort(key=upgrade._badness)
    assert found == ranked


def test_a_report_says_all_of_each_loss() -> None:
    losses = (
        loss("a", because="torch 2.13 -> 2.15", lost=("one", "two"), advice="compare"),
        loss("b", cause="compiler", fails=False), loss("c", cause="compiler", fails=False),
    )  # fmt: skip
    difference = StaticDifference("a", "b", ("a", "b"), (), (), (), 0, ())
    head, table, end = report(Upgrade("old", "new", losses, 1, True, difference)).split("\n\n")
    assert head == "old -> new"
    assert [line.split() for line in table.splitlines()[2:]] == [
        ["a", "k", "one", "torch", "2.13", "->", "2.15", "compare"], ["(cuda:90)", "two"],
        ["b", "k", "a", "compiler:", "why"], ["(cuda:90)"], ["c", "k", "a", "compiler:", "why"], ["(cuda:90)"],
    ]  # fmt: skip
    how = "timed beside the old side's binaries"
    assert end == f"1 case compared, {how}: 1 failing, 2 warned of, 2 by compiler, 1 by torch"
    none = Upgrade("old", "new", (), 2, False, difference)
    counts = "2 cases compared, static figures only: 0 failing, 0 warned of"
    assert report(none) == f"old -> new\n\n{counts}"
    assert report(none, markdown=True) == f"### Upgrade, old -&#62; new\n\n{counts}"
    long = "x" * 99
    wide = loss(long, kernel=long, because=long, lost=(long,), advice=long)
    table = report(Upgrade("old", "new", (wide,), 1, False, difference)).split("\n\n")[1]
    assert column_widths(table) == [34, 26, 50, 44, 40]


@pytest.mark.parametrize(
    ("more", "cause", "because", "lost"),
    [
        ({"findings": ("a", "b")}, "unknown", "x; y", ("fail: a",)),
        ({"message": "k: can't be launched"}, "config no longer fits", "x; y", ("fail: k: can't be launched",)),
        ({"findings": ("a", "out of resource: b", "can't be compiled")}, "config no longer fits", "x; y",
         ("fail: out of resource: b", "fail: can't be compiled")),
        ({}, "unknown", "x; y", ("fail: REGRESSED t.py::test_0",)),
        ({"launch_causes": (LaunchCause("a", "one", ("compiler",)), LaunchCause("b", "two", ("torch",)))}, "torch",
         "one; two", ("fail: REGRESSED t.py::test_0",)),
    ],
)  # fmt: skip
def test_what_the_gate_alone_says_of_a_case_that_fails(
    more: dict[str, object], cause: str, because: str, lost: tuple[str, ...]
) -> None:
    launches = tuple(map(LaunchReport, ("k", "l", "k")))
    result = result_of(recorded(0), Verdict.REGRESSED, launches=launches, causes=("x", "y"), **more)
    (found,) = upgrade._other_losses(result)
    assert (found.cause, found.because, found.lost, found.fails) == (cause, because, lost, True)
    assert (found.case, found.target, found.kernel) == (case(0), "cuda:90", "k, l")
    for other_result in (
        msgspec.structs.replace(result, verdict=Verdict.PASS),
        msgspec.structs.replace(result, change=Estimate(0.1, 0.0, 0.2, 0.99)),
    ):
        assert list(upgrade._other_losses(other_result)) == []


def test_more_launches_are_a_loss_by_torch_where_that_is_another() -> None:
    findings = tuple(Finding(s, "launches", 1, 2, s) for s in ("info", "warn", "fail"))  # type: ignore[arg-type]
    notes = ("launch added: a (2)", "launch added: b", "launch removed: a")
    change = StaticChange(case(0), "cuda:90", ("3.8", "3.9"), (), notes, findings)
    for after, cause in (("Triton 3.9, torch 2.15", "torch"), ("Triton 3.9, torch 2.13", "unknown")):
        difference = StaticDifference("Triton 3.8, torch 2.13", after, ("a", "b"), (change,), (), (), 0, ())
        (found,) = upgrade._static_losses(difference, [])
        assert (found.kernel, found.cause, found.because) == ("a, b", cause, f"torch ({'; '.join(notes)})")
        assert (found.lost, found.fails) == (("warn: warn", "fail: fail"), True)
    warned = msgspec.structs.replace(change, notes=(), findings=findings[:2])
    (found,) = upgrade._static_losses(msgspec.structs.replace(difference, changed=(warned,)), [])
    assert (found.kernel, found.lost, found.fails) == ("–", ("warn: warn",), False)
    quiet = msgspec.structs.replace(change, findings=findings[:1])
    assert list(upgrade._static_losses(msgspec.structs.replace(difference, changed=(quiet,)), [])) == []
