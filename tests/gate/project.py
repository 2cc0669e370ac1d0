"""A project with a baseline folder, and runs of it on the scripted GPU or without one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.case_result import CaseResult
from kerntune.base.device import Target
from kerntune.base.policy import Policy
from kerntune.base.recording import Recording
from kerntune.gate.api import Call, Checked, Session, Settings, open_session
from kerntune.gpu.fake_cuda.static_backend import StaticBackend
from kerntune.gpu.script import Rule, Script
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.tuning import first_launches, isolation

SCRIPTED = ("noise", "shift", "seed", "memory_bytes", "isolated", "unprotected", "foreign", "unmapped")
"""Options of the script, not of the settings."""

NODE = "tests/test_scale.py::test_scale"


def noted_first_launches(monkeypatch: pytest.MonkeyPatch, note: Callable[[Recording], Any]) -> list[Any]:
    """What ``note`` says of each recording that another process launches first: of several at once, those that come
    after one that ends the process aren't launched by it."""
    noted: list[Any] = []
    real = isolation.FirstLaunchProcess._reply
    waiting: list[Recording] = []

    def exchange(self: Any, request: Any, limit_s: float) -> Any:
        if request is not None:
            asked = getattr(request, "requests", (request,))
            waiting[:] = [one.recording for one in asked if isinstance(one, first_launches.FirstLaunchRequest)]
        noted.extend(note(recording) for recording in waiting[:1])
        del waiting[:1]
        return real(self, request, limit_s)

    monkeypatch.setattr(isolation.FirstLaunchProcess, "_reply", exchange)
    return noted


@dataclass
class Run:
    """One session of a project."""

    session: Session
    lines: list[str] = field(default_factory=list)

    @property
    def gpu(self) -> FakeGpu:
        gpu = self.session.backend.gpu
        assert isinstance(gpu, FakeGpu)
        return gpu

    @property
    def pairs(self) -> Any:
        """What answers the session's replays on its GPU."""
        return self.session._gpus.of(self.session.backend).pairs

    def check(
        self, fn: Callable[..., Any], *args: Any, node: str = NODE, name: str = "0", policy: Policy | None = None,
        **call: Any,
    ) -> Checked:  # fmt: skip
        """Check a call; nothing is written."""
        policy = policy or self.session.settings.policy
        return self.session.check(Call(node, name, fn, args, policy=policy, **call), self.lines.append)

    def judge(self, fn: Callable[..., Any], *args: Any, **call: Any) -> CaseResult:
        """Check a call, write what it may write, and give its result."""
        return self.check(fn, *args, **call).commit()


@dataclass(frozen=True)
class Once:
    """A run of one call, begun already, so that the call's tensors are made inside of it."""

    run: Run
    opened: contextlib.ExitStack

    def judge(self, fn: Callable[..., Any], *args: Any, **call: Any) -> CaseResult:
        """As :meth:`Run.judge`; the run ends with it."""
        with self.opened:
            return self.run.judge(fn, *args, **call)


@dataclass
class Project:
    """A folder with baselines and a cache of winners."""

    root: Path
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Runs of one call whose call was not made: to be closed with the test."""

    @property
    def baselines(self) -> Path:
        return self.root / "baselines"

    def files(self, pattern: str = "**/*.json") -> list[Path]:
        return sorted(self.baselines.glob(pattern))

    @contextlib.contextmanager
    def run(self, *rules: Rule, device_name: str = "Fake GPU", **options: Any) -> Iterator[Run]:
        """A run on a GPU that follows ``rules``. ``reference`` is the folder and name of a revision to hold cases
        against, ``anchor`` a folder of older baselines; other options are the script's or the settings'."""
        script = {k: options.pop(k) for k in SCRIPTED if k in options}
        backend = FakeBackend(Script(rules, **script), device_name=device_name)
        with self._open(backend, options) as run:
            yield run

    def once(self, *rules: Rule, **options: Any) -> Once:
        """As :meth:`run`, for one call."""
        return self._once(self.run(*rules, **options))

    def static_once(self, target: str, **options: Any) -> Once:
        """As :meth:`static_run`, for one call."""
        return self._once(self.static_run(target, **options))

    def _once(self, run: contextlib.AbstractContextManager[Run]) -> Once:
        opened = self.opened.enter_context(contextlib.ExitStack())
        return Once(opened.enter_context(run), opened)

    @contextlib.contextmanager
    def static_run(self, target: str, **options: Any) -> Iterator[Run]:
        """A run without a GPU."""
        backend = StaticBackend(Target.parse(target))
        with self._open(backend, options) as run:
            yield run

    @contextlib.contextmanager
    def _open(self, backend: Any, options: dict[str, Any]) -> Iterator[Run]:
        reference, anchor = options.pop("reference", None), options.pop("anchor", None)
        settings = Settings(self.root, self.baselines, cache_dir=self.root / "cache", **options)
        session = open_session(settings, backend)
        if reference is not None:
            session.hold_against(*reference)
        if anchor is not None:
            session.anchor_at(anchor, "anchors")
        session.start()
        try:
            yield Run(session)
        finally:
            session.close()
