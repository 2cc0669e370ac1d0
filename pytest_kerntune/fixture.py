"""The fixture ``autotune``: a callable that runs what a test hands it, and checks its speed under ``--kerntune``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from kerntune.base.policy import Outcome, Verdict
from kerntune.base.users_line import calling_line, line_of_error
from kerntune.errors import KerntuneError, UsageError
from pytest_kerntune.concurrency import Turns
from pytest_kerntune.marker import (
    Marker,
    meant,
    nodeid_of,
    read_marker,
    refuse_async,
    refuse_coroutine,
    refuse_fork,
    refuse_inside,
    refuse_kernel,
)
from pytest_kerntune.values import SCOPES, parse_choice, parse_kernel_values, parse_name

if TYPE_CHECKING:
    from kerntune.base.case_result import CaseResult
    from kerntune.base.policy import Policy
    from kerntune.gate.api import Call, Checked, Session
    from kerntune.gate.stopped_tests import StoppedTest

T = TypeVar("T")


class Request(NamedTuple):
    """One call of the fixture, checked: what to run and what the caller said about it, in the words of
    :class:`kerntune.gate.call.Call`. ``bytes`` moved and ``flops``
    done by one call are only for people: GB/s and TFLOP/s in the report."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reference: Callable[[], Any] | None
    rtol: float | None
    atol: float | None
    scope: str | None
    flops: float | None
    bytes: float | None
    values: Mapping[str, Mapping[str, Any]]
    """What kernels compute, by kernel and argument, for runs in which nothing runs."""


class Autotune:
    """What the fixture gives to a test. Subclasses say what running a call means."""

    interpreted = False
    """Whether kernels run on the CPU (``--kerntune-interpret``): then choose small shapes."""

    def __init__(self, item: pytest.Item) -> None:
        self.nodeid = nodeid_of(item)
        self._item = item
        self._names = CallNames(self.nodeid)

    @property
    def marker(self) -> Marker:
        """What the test's markers say at the moment: ``request.node.add_marker`` counts from then on."""
        return read_marker(self._item)

    @property
    def device(self) -> str:
        """The torch device to make tensors on."""
        raise NotImplementedError

    def __call__(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        reference: Callable[[], Any] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        name: str | None = None,
        scope: str | None = None,
        flops: float | None = None,
        bytes: float | None = None,
        values: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> T:
        """Run ``fn(*args, **kwargs)`` and return what it returns.

        ``fn`` is any callable that launches Triton kernels; ``kernel[grid]`` is one. ``reference`` is called without
        arguments, after ``fn`` (clone before the call what that overwrites), and must agree with the result within
        ``rtol`` and ``atol`` (default: torch's for the dtype), or the test fails. ``name`` tells this call from the
        test's others and is part of its baseline's identity; unnamed calls are counted from 0. ``scope`` is
        ``kernels`` (the launches are timed on the device) or ``op`` (the whole call is). ``flops`` and ``bytes`` are
        the work of one call. ``values`` says for runs without a GPU what kernels leave in their arguments, where ``fn``
        asks for it: ``{"kernel.argument": tensor}``; with a GPU the kernels compute it. A function with a keyword of
        one of these names is handed over in a ``lambda``.

        Without ``--kerntune`` nothing is timed. With it, a slowdown fails the test at its end, not here.
        """
        __tracebackhide__ = True
        try:
            self._check(fn, reference, scope)
            name = self._names.next(name, self.marker.name)
            given = {} if values is None else parse_kernel_values(values, "values")
            request = Request(name, fn, args, kwargs, reference, rtol, atol, scope, flops, bytes, given)
            value: T = self._run(request)
            refuse_coroutine(value, fn)
        except KerntuneError as exc:
            if self._ends(exc):
                raise
            hint = meant(exc, kwargs, CALL_OPTIONS)
            reason = naming(self.nodeid, exc) + (f"; {hint}" if hint else "")
        except Exception as exc:
            said = meant(exc, kwargs, CALL_OPTIONS)
            if not said and isinstance(exc, TypeError) and line_of_error(exc) is None:
                line = calling_line()  # it gave arguments that the callable doesn't take: no users' code has run
                said = f"it was called as in {Path(line.file).name}:{line.number}: {line.text}" if line else ""
            if not said:
                raise exc.with_traceback(_from_user_code(exc.__traceback__))  # noqa: B904 - the same error
            reason = f"{self.nodeid}: {exc}; {said}"
        else:
            return value
        self._note_failed(reason)
        pytest.fail(reason, pytrace=False)

    def _note_failed(self, reason: str) -> None:
        """Record a call that fails its test."""

    def _run(self, request: Request) -> Any:
        raise NotImplementedError

    def _ends(self, error: KerntuneError) -> bool:
        """Whether an error says that the test can't go on, and not that something is wrong with it."""
        return False

    def _check(self, fn: object, reference: object, scope: object) -> None:
        refuse_kernel(fn)
        if not callable(fn):
            raise UsageError(f"autotune takes a function that launches kernels, not {fn!r}; write autotune(fn, *args)")
        refuse_async(fn)
        if reference is not None and not callable(reference):
            kind = type(reference).__name__
            raise UsageError(f"reference is a {kind}; give a function without arguments: reference=lambda: expected")
        if scope is not None:
            parse_choice(scope, SCOPES, "scope")


CALL_OPTIONS = tuple(
    name for name, p in inspect.signature(Autotune.__call__).parameters.items() if p.kind is p.KEYWORD_ONLY
)
"""Keywords that a call keeps for itself, and doesn't pass on."""


class CallNames:
    """The names of one test's calls: given ones, else 0, 1, ... by order of the unnamed ones."""

    def __init__(self, nodeid: str) -> None:
        self._nodeid = nodeid
        self._unnamed = 0
        self._used: set[str] = set()
        self._lock = Lock()

    def next(self, given: str | None, default: str | None) -> str:
        """The name of the next call; :class:`UsageError` if the test has used it."""
        name = default if given is None else parse_name(given, "name")
        with self._lock:
            if name is None:
                name = str(self._unnamed)
                self._unnamed += 1
            if name in self._used:
                raise UsageError(
                    f"{self._nodeid}: two autotune calls are named {name!r}; a name is part of a baseline's identity, "
                    "so give each call of a test its own name="
                )
            self._used.add(name)
        return name


NO_DRIVER = "0 active drivers"
"""What Triton says where it finds no GPU."""

WITHOUT_GPU = (
    "no GPU here: pytest --kerntune --kerntune-target=cuda:90 compiles the kernels and gates their figures, "
    "pytest --kerntune-interpret checks their numbers at small shapes"
)


class PlainAutotune(Autotune):
    """Without ``--kerntune``: an ordinary correctness test, no backend is touched and nothing is timed."""

    @property
    def device(self) -> str:
        from kerntune.gpu.probe import torch_device

        return torch_device()

    def _run(self, request: Request) -> Any:
        __tracebackhide__ = True
        value = self._launched(request)
        if request.reference is not None:
            from kerntune.base.case_result import CaseId
            from kerntune.gate.api import compare_reference

            case, expected = str(CaseId(self.nodeid, request.name)), request.reference()
            compare_reference(value, expected, rtol=request.rtol, atol=request.atol, case=case)
        return value

    def _launched(self, request: Request) -> Any:
        """What the function returns. Without a GPU Triton has no driver and the test can't run: no failure of it."""
        __tracebackhide__ = True
        try:
            return request.fn(*request.args, **request.kwargs)
        except RuntimeError as exc:
            if NO_DRIVER not in str(exc) or self.device != "cpu":
                raise
        pytest.skip(WITHOUT_GPU)


@dataclass
class Record:
    """What the calls of one test came to."""

    results: list[CaseResult] = field(default_factory=list)
    checks: list[Checked] = field(default_factory=list)
    """The calls themselves, with the baselines that may be written once the test has passed."""

    begun: bool = False
    """Whether the fixture was called."""

    checked: int = 0
    """Calls that were checked to the end."""

    static_only: str = ""
    """Where the test's body could not go on without a GPU, and why."""

    finished: bool = False
    """Whether the body ran to its end: only then are calls that it did not make gone."""

    lost_device: str = ""
    """Why the GPU answers no more since this test."""

    settled: bool = False
    """Whether the body has ended and its results have become the test's outcome: reports before are of subtests."""

    concluded: int = 0
    """How many of the results have become the test's outcome: fixtures may call ``autotune`` after the body."""

    failed: bool = False
    """Whether one of these failed the test: then nothing is written."""

    lost: list[str] = field(default_factory=list)
    """Why calls in other threads failed: what is raised there doesn't fail the test by itself."""

    committed: int = 0

    standing: tuple[CaseResult, ...] = ()
    """What an earlier attempt of the same test in this run found to be slower."""

    def uphold(self) -> None:
        """Keep the verdicts that stand: a rerun of a test (pytest-rerunfailures, flaky) is no evidence against them:
        else enough reruns would give a PASS."""
        held = {(r.case, r.target): r for r in self.standing}
        self.results = [*(held.pop((r.case, r.target), r) for r in self.results), *held.values()]
        self.standing = ()

    def regressed(self) -> tuple[CaseResult, ...]:
        """What stands if this test is run again."""
        found = [r for r in self.results if r.verdict is Verdict.REGRESSED and r.outcome is not Outcome.PASS]
        return (*self.standing, *(r.but(message=r.message.removesuffix(UPHELD) + UPHELD) for r in found))

    def stop(self, stopped: StoppedTest) -> None:
        """The test stops without a GPU: its calls as they are then, and results of those that it didn't reach."""
        self.static_only = stopped.end
        self.results.extend(stopped.results)
        self.checks = list(stopped.checks)

    def commit(self) -> None:
        """Write the baselines of this test's calls, of each once. Called when nothing failed: a broken kernel leaves
        none."""
        checks, self.committed = self.checks[self.committed :], len(self.checks)
        written = {id(c.result): c.commit() for c in checks}
        self.results = [written.get(id(r), r) for r in self.results]


UPHELD = "; a rerun of the test does not undo this"

_TURNS = Turns()
"""Those of this process."""


class GatedAutotune(Autotune):
    """Under ``--kerntune``: every call is captured, tuned, timed and judged; verdicts wait for the end of the test."""

    def __init__(
        self,
        item: pytest.Item,
        *,
        session: Session,
        policy: Policy,
        scope: str,
        record: Record,
        progress: Callable[[str], None],
        process: int,
    ) -> None:
        super().__init__(item)
        self._session = session
        self._defaults = policy
        self._scope = scope
        self._record = record
        self._progress = progress
        self._thread = get_ident()
        self._process = process

    @property
    def device(self) -> str:
        return self._session.device

    def _run(self, request: Request) -> Any:
        __tracebackhide__ = True
        refuse_inside()
        refuse_fork(self._process)
        with _TURNS.turn():
            self._record.begun = True
            checked = self._session.check(self._call(request), self._progress)
            self._record.results.append(checked.result)
            self._record.checks.append(checked._replace(value=None, ended=None))  # the test's own to keep
            self._record.checked += 1
            if checked.ended is not None:
                raise checked.ended
            return checked.value

    def _note_failed(self, reason: str) -> None:
        if get_ident() != self._thread:
            self._record.lost.append(reason)

    def _ends(self, error: KerntuneError) -> bool:
        return self._session.static_end(error) is not None

    def _call(self, request: Request) -> Call:
        from kerntune.gate.api import Call

        marker = self.marker
        said = {**request._asdict(), "scope": request.scope or marker.scope or self._scope}
        return Call(self.nodeid, policy=marker.over(self._defaults), candidates=marker.candidates, **said)


def _from_user_code(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without kerntune's frames at its start; whole if there are no others, for that is our own bug."""
    frame = traceback
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.tb_next
    return frame or traceback


_OURS = ("kerntune", "pytest_kerntune")


def naming(nodeid: str, error: KerntuneError) -> str:
    """An error's message with the test's node id, which it may have already."""
    text = str(error)
    return text if nodeid in text else f"{nodeid}: {text}"
