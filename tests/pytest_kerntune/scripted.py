"""A stand-in for the engine: verdicts as the inner tests script them. Copied into pytester's folder, it works under
xdist too. ``install()`` in a conftest puts it where the plugin imports ``kerntune.gate.api``."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kerntune.base.case_result import CaseId, CaseResult, LaunchReport, UncheckedValue
from kerntune.base.config import Config
from kerntune.base.policy import Policy, Verdict
from kerntune.base.stats import Estimate
from kerntune.errors import DeviceFault, KerntuneError, ReferenceMismatch, StoreError, UsageError
from kerntune.gate.stopped_tests import StoppedTest


@dataclass(frozen=True)
class Settings:
    root: Path
    baselines: Path
    update: Any
    tune: Any
    policy: Policy
    targets: tuple[str, ...]
    cache_dir: Path | None
    yardstick_targets: tuple = ()
    read_only: bool = False
    calibrate: bool = True
    profile: Path | None = None
    code_changes: bool = False


@dataclass(frozen=True)
class Call:
    nodeid: str
    name: str
    fn: Any
    args: tuple
    kwargs: dict
    policy: Policy
    reference: Any
    rtol: float | None
    atol: float | None
    scope: str = "kernels"
    candidates: dict = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    values: dict = field(default_factory=dict)


class Checked(NamedTuple):
    value: Any
    result: CaseResult
    pending: None = None
    ended: Exception | None = None

    def commit(self) -> CaseResult:
        """Writes a line, and fails where the script has a failure."""
        log(f"commit {self.result.case}")
        if self.result.rung == "read-only":
            raise StoreError("baselines: can't be written (Permission denied); is the folder read-only?")
        return msgspec.structs.replace(self.result, recorded=self.result.rung == "written")


class NeedsGpu(RuntimeError):
    """The exception of a test body in the scripted static mode when it reads values."""


def kernel(verdict: str = "PASS", *, ns: float | None = 13900.0, base: float | None = 12400.0, **fields: Any) -> Any:
    """A function for ``autotune`` whose case gets ``verdict``; it returns its arguments."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args else kwargs or None

    fn.script = dict(verdict=Verdict(verdict), current_ns=ns, baseline_ns=base, **fields)
    return fn


def failing(error: type[Exception] = KerntuneError, text: str = "no config is left for kernel add") -> Any:
    """A function whose check raises."""

    def fn() -> None:
        raise error(text)

    fn.script = {}
    return fn


def loses(error: type[Exception] | None = DeviceFault, text: str = "kernel add on grid (4, 1, 1): CUDA_ERROR") -> Any:
    """A function that ends this process's GPU, and raises unless ``error`` is None."""

    def fn(*args: Any) -> None:
        lost_file().write_text(text)
        if error is not None:
            raise error(text)

    fn.script = kernel().script
    return fn


def lost_file() -> Path:
    """What says why this process's GPU answers no more."""
    return Path(f"lost.{os.getpid()}")


def compare_reference(actual: Any, expected: Any, *, rtol: Any, atol: Any, case: str) -> None:
    if abs(actual - expected) > (atol or 0):
        raise ReferenceMismatch(f"{case}: {actual} is not {expected}, off by {abs(actual - expected)} (rtol={rtol})")


class Session:
    device = "cuda"
    compiled_for = others = ()
    gpus = 1

    def __init__(self, settings: Settings, backend: Any, options: Any) -> None:
        self.settings, self.backend, self.options, self.static = settings, backend, options, options["static"]
        log(f"open backend={backend!r} update={settings.update.value} targets={','.join(settings.targets)}")
        log(f"policy {settings.policy}")
        log(f"paths root={settings.root} baselines={settings.baselines} cache={settings.cache_dir}")

    def share(self, index: int, count: int, claims: Any = None) -> None:
        log(f"share {index} of {count}")

    def header(self) -> list[str]:
        return ["scripted device, Triton 3.9", f"baselines {self.settings.baselines}"]

    def hold_against(self, folder: Path, name: str) -> None:
        log(f"hold against {name}")

    def anchor_at(self, folder: Path, name: str) -> None:
        log(f"anchor {name} at {Path(folder).name}")

    def start(self) -> None:
        log("start")

    def close(self) -> None:
        log("close")

    def in_turn(self, crowded: bool) -> contextlib.AbstractContextManager[None]:
        log("in turn" if crowded else "beside workers on other GPUs")
        return contextlib.nullcontext()

    def check(self, call: Call, progress: Any) -> Checked:
        log(f"check {call.nodeid} {call.name} scope={call.scope} tolerance={call.policy.tolerance}")
        mapped = " ".join(f"{v.value}={o.value}" for v, o in call.policy.outcomes.items())
        log(f"judged by {call.policy} {mapped}")
        for text in self.options["progress"]:
            progress(text)
        value = call.fn(*call.args, **call.kwargs)
        if isinstance(value, NeedsGpu):
            return Checked(None, self._result(call, "cuda:90"), ended=value)
        if call.reference is not None:
            compare_reference(value, call.reference(), rtol=call.rtol, atol=call.atol, case=call.nodeid)
        return Checked(value, self._result(call, (self.settings.targets or ("cuda:90",))[0]))

    def _result(self, call: Call, target: str) -> CaseResult:
        script = dict(call.fn.script)
        verdict = script.pop("verdict")
        case = CaseId(call.nodeid, call.name)
        change = None
        if script["current_ns"] and script["baseline_ns"]:
            ratio = script["current_ns"] / script["baseline_ns"] - 1
            change = Estimate(ratio, ratio - 0.005, script.pop("high", ratio + 0.005), 0.999)
        launch = LaunchReport("add_kernel", Config({"BLOCK": 1024}, num_warps=8), (4, 1, 1), 32, 0, 2048)
        message = f"{verdict.value} {case}: scripted"
        outcome = call.policy.outcome(verdict)
        given = {"target": target, "launches": (launch,), "change": change, "tolerance": call.policy.tolerance}
        return CaseResult(case, "shapes", verdict, outcome, message, device="scripted", **given, **script)

    def lost(self, *, ask: bool = True) -> str:
        log(f"lost? ask={ask}")
        return lost_file().read_text() if lost_file().exists() else ""

    def tests_gone(self, gone: Any, anchor: Path | None = None) -> None:
        """Finds no renamed tests."""

    def stale(self, ran: Any, selected_all: bool) -> list[CaseResult]:
        log(f"stale selected_all={selected_all} ran={sorted(ran)}")
        out = []
        for text in self.options["stale"]:
            case = CaseId(*text.split("!"))
            outcome = self.settings.policy.outcome(Verdict.STALE)
            message = f"STALE {case}: no such case"
            out.append(CaseResult(case, "old shapes", Verdict.STALE, outcome, message, "cuda:90"))
        return out

    def take_unchecked(self) -> tuple[UncheckedValue, ...]:
        """As the script has it, of the test that runs."""
        nodeid = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        return tuple(UncheckedValue(*x) for x in self.options["unchecked"].pop(nodeid, ()))

    def unreadable(self) -> dict[Path, str]:
        return {}

    def stopped(self, nodeid: str, exc: BaseException, checks: Any, policy: Policy) -> StoppedTest:
        """With a result of each call that the script says isn't reached."""
        cases = [CaseId(nodeid, call) for call in self.options["unreached"]]
        outcome, log_line = policy.outcome(Verdict.INCOMPLETE), f"stopped after {len(checks)} calls"
        log(log_line)
        results = [
            CaseResult(c, "", Verdict.INCOMPLETE, outcome, f"INCOMPLETE {c}: not reached", "cuda:90") for c in cases
        ]
        return StoppedTest(str(self.static_end(exc)), tuple(results), tuple(checks))

    def static_end(self, exc: BaseException) -> str | None:
        return f"static_end of {exc}" if self.static and isinstance(exc, NeedsGpu) else None


def log(line: str) -> None:
    with Path("engine.log").open("a") as file:
        file.write(line + "\n")


def install(**options: Any) -> None:
    """Put this stand-in in the engine's place; ``unusable`` makes opening it a usage error with that text."""
    options = {"static": False, "stale": [], "progress": [], "unusable": "", "unreached": [], "unchecked": {}} | options

    def open_session(settings: Settings, backend: Any = None) -> Session:
        if options["unusable"]:
            raise UsageError(options["unusable"])
        if settings.code_changes:
            Path("asked-for-code").touch()
        return Session(settings, backend, options)

    module = types.ModuleType("kerntune.gate.api")
    for thing in (Settings, Call, Checked, Session, compare_reference, open_session):
        setattr(module, thing.__name__, thing)
    sys.modules["kerntune.gate.api"] = module
