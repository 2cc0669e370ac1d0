"""Which GPUs a test's turn holds, and what a session asks of its parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli import made
from samples import CASE

from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Policy, Update, Verdict
from kerntune.gate import session as module
from kerntune.gate import static_check
from kerntune.gate.call import Call, Settings
from kerntune.gate.gpu_capture import GpuCapture, naming
from kerntune.gate.session import Session
from kerntune.gate.stores import RunBaselines
from kerntune.kernels import compat


class Gpu:
    """Notes in ``held`` that it is held."""

    def __init__(self, number: int, held: list[int]) -> None:
        self.number, self.held = number, held

    @contextlib.contextmanager
    def lock_suspendable(self) -> Iterator[None]:
        self.held.append(self.number)
        yield
        self.held.remove(self.number)

    def unprotected(self) -> list[str]:
        return []


def session(count: int = 3, ordinal: int = 1, static: bool = False, **changes: Any) -> Any:
    """One that sees so many GPUs and begins on ``ordinal``; ``held`` are those that are held."""
    it: Any = Session.__new__(Session)
    held: list[int] = []
    gpus = [Gpu(n, held) for n in range(count)]
    on = {n: SimpleNamespace(gpu=gpus[n], ordinal=n) for n in range(count)}
    it.backend = SimpleNamespace(
        gpu=None if static else gpus[ordinal], count=count, ordinal=ordinal, on=lambda n: on[n], targets=(),
        current=lambda: ordinal,
    )  # fmt: skip
    it.settings = Settings(Path("/p"), Path("/p/baselines"), **changes)
    it.held = held
    return it


@pytest.mark.parametrize(
    ("crowded", "used", "held"),
    [
        (True, {1}, [1]),
        (False, {1}, []),
        (True, {0, 1, 2}, [0, 1, 2]),
        (False, {0, 1, 2}, [0, 2]),
        (False, {0, 7}, [0]),
        (True, set(), [1]),
    ],
)
def test_a_turn_holds_the_first_gpu_where_others_begin_there_and_any_other_that_is_used(
    monkeypatch: pytest.MonkeyPatch, crowded: bool, used: set[int], held: list[int]
) -> None:
    monkeypatch.setattr(module, "devices_used", lambda: used)
    it = session()
    with it.in_turn(crowded):
        assert it.held == held
        assert it._crowded is crowded
    assert it.held == []


def test_of_one_gpu_nobody_asks_which_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> set[int]:
        raise AssertionError

    monkeypatch.setattr(module, "devices_used", asked)
    for static in (True, False):
        it = session(1, 0, static)
        with it.in_turn(False):
            assert it.held == []
            assert it._crowded is False
        assert it.gpus == (0 if static else 1)
    monkeypatch.setattr(module, "devices_used", lambda: {0, 1})
    assert session(2, 0)._others_used() == {1}


def test_without_a_gpu_nothing_is_crowded() -> None:
    it = session(1, 0, static=True)
    it.backend.on = lambda n: SimpleNamespace(gpu=None)
    with it.in_turn():
        assert (it.held, it._crowded) == ([], False)


@pytest.mark.parametrize("read_only", [True, False])
def test_what_writes_nothing_has_no_stale_baselines(read_only: bool) -> None:
    it = session(read_only=read_only)
    asked: list[Any] = []
    it._baselines = SimpleNamespace(
        stale=lambda ran, policy, selected_all: asked.append((ran, selected_all)) or ["one"]
    )
    assert it.stale(["a"], True) == ([] if read_only else ["one"])
    assert asked == ([] if read_only else [(["a"], True)])


@pytest.mark.parametrize(
    ("read_only", "yardstick", "update"),
    [(False, None, Update.NEW), (True, None, Update.NONE), (False, Path("/y"), Update.NONE)],
)
def test_names_are_moved_only_in_the_projects_own_baselines(
    monkeypatch: pytest.MonkeyPatch, read_only: bool, yardstick: Any, update: Update
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(module, "Renames", lambda *told: made.append(told) or "renames")
    monkeypatch.setattr(module, "replace", lambda stores, **changes: changes)
    monkeypatch.setattr(module, "BaselineStore", lambda folder: f"store of {folder}")
    it = session(update=Update.NEW, read_only=read_only, yardstick=yardstick)
    it.store, it.stores = "own", SimpleNamespace(reference="own")

    def gone(nodeid: str) -> bool:
        return False

    it.tests_gone(gone)
    assert it.stores == {"renames": "renames"}
    it.stores = SimpleNamespace(reference="own")
    it.tests_gone(gone, Path("/anchors"))
    assert made == [(("own",), update, gone), (("own", "store of /anchors"), update, gone)]
    assert it.stores == {"renames": "renames"}


def test_progress_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerntune.gate.gpu_capture.gpu_name", lambda spec: f"GPU {spec}")
    lines: list[str] = []
    gpu: Any = SimpleNamespace(spec=5)
    naming(gpu, lines.append)("timing")
    assert lines == ["timing on GPU 5"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "baselines /p/baselines"),
        ({"yardstick_name": "main"}, "baselines /p/baselines as of main"),
        ({"yardstick_name": "main", "read_only": True}, "held against main, compiled and replayed today"),
    ],
)
def test_the_header_says_what_is_compared(options: dict[str, Any], text: str) -> None:
    it = session(**options)
    it.store = SimpleNamespace(folder=Path("/p/baselines"))
    assert it._measure() == text


@pytest.mark.parametrize("met", [True, False])
def test_a_case_that_was_checked_without_a_gpu_is_not_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, met: bool
) -> None:
    """Of one that was not, the baseline is."""
    stored = made.static(triton=compat.triton_series())
    store = made.folder(tmp_path / "baselines", stored)
    it = session(1, 0, static=True)
    it.backend.targets, it.store = (made.CUDA90,), store
    it.stores = SimpleNamespace(reference=store)
    it._baselines = RunBaselines(store, it.backend)
    found = CaseResult(CASE, stored.baseline.fingerprint, Verdict.PASS, Outcome.PASS, "PASS", "cuda:90")
    monkeypatch.setattr(static_check, "check_static", lambda *args, **options: (found, stored))
    nothing_else = SimpleNamespace(choices=SimpleNamespace(anew=()))
    capture = SimpleNamespace(compiled=nothing_else, choices=SimpleNamespace(texts=()))
    captured = SimpleNamespace(
        call=Call(CASE.nodeid, CASE.call, print), remark="", capture=capture, value=1, ended=None
    )
    if met:
        assert it._check_static(captured).results == (found,)
    stale = [r.case for r in it.stale([CASE.nodeid], selected_all=True)]
    assert stale == ([] if met else [CASE])


# a reference beside a capture


def gpu_capture(it: Session, call: Call, share: Any) -> GpuCapture:
    it._fault = SimpleNamespace(watch=lambda gpu: None)
    return GpuCapture(it._capture_needs(call, ()), call, share, it.backend)


def test_a_reference_has_the_device_alone_and_a_call_without_one_stays() -> None:
    it = session(1, 0)
    share: Any = SimpleNamespace(given_up=lambda gpu: contextlib.nullcontext())
    plain = Call("t", "0", print)
    assert gpu_capture(it, plain, share).call() is plain
    seen: list[list[int]] = []
    asking = gpu_capture(it, Call("t", "0", print, reference=lambda: seen.append(list(it.held)) or "it"), share).call()
    assert asking.reference is not None
    assert asking.reference() == "it"
    assert seen == [[0]]
    assert it.held == []


@pytest.mark.parametrize("update", list(Update))
def test_what_inductor_decides_is_recorded_where_it_may_become_a_baseline(
    monkeypatch: pytest.MonkeyPatch, update: Update
) -> None:
    it = session(1, 0, update=update)
    share: Any = None
    wishes = gpu_capture(it, Call("t", "0", print, policy=Policy()), share).wishes()
    assert wishes.choices is not None
    assert wishes.choices.recorded is (update in (Update.IMPROVED, Update.REGRESSED))
