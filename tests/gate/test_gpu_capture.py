"""What a call's capture asks for on its GPU, and how a session numbers its decisions, without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from samples import ARGUMENTS, CASE, FINGERPRINT, H100, artifacts_of, time_baseline

from kerntune.base.policy import Update
from kerntune.gate import gpu_capture
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.call import Call
from kerntune.gate.gpu_capture import GpuCapture, decision_numbers, known_baseline, naming

# decisions


@pytest.mark.parametrize(
    ("index", "count", "numbers"), [(0, 1, [1, 2, 3]), (0, 3, [1, 4, 7]), (2, 3, [3, 6, 9]), (4, 3, [2, 5, 8])]
)
def test_processes_number_their_decisions_in_turn(index: int, count: int, numbers: list[int]) -> None:
    assert list(islice(decision_numbers(index, count, None), 3)) == numbers


def test_a_number_that_another_process_has_claimed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "1").touch()
    (tmp_path / "5").touch()
    assert list(islice(decision_numbers(0, 2, tmp_path), 3)) == [3, 7, 9]
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [1, 3, 5, 7, 9]
    assert list(islice(decision_numbers(0, 2, tmp_path / "elsewhere"), 2)) == [1, 3], "on another host"


def test_progress_names_one_of_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gpu_capture, "gpu_name", lambda spec: f"{spec} 1")
    gpu: Any = SimpleNamespace(spec="H100")
    naming(gpu, said.append)("timing")
    assert said == ["timing on H100 1"]


# what a capture asks for


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A capture on GPU 0, and what it ``did`` in order."""
    did: list[Any] = []

    @contextlib.contextmanager
    def held(name: str) -> Iterator[None]:
        did.append(name)
        yield
        did.append(f"end of {name}")

    def on(number: int) -> Any:
        return SimpleNamespace(gpu=SimpleNamespace(number=number, lock_suspendable=lambda: held("alone")))

    share = SimpleNamespace(
        move=lambda gpu: did.append(f"move to {gpu.number}"), given_up=lambda gpu: held(f"given up {gpu.number}")
    )
    run = SimpleNamespace(
        watch=lambda gpu: did.append(f"watch {gpu.number}"),
        isolation=lambda call, backend: SimpleNamespace(begin=f"begin on {backend.gpu.number}"),
        winners=lambda call, gpu: f"winners of {gpu.number}",
    )
    monkeypatch.setattr(gpu_capture, "current", lambda: SimpleNamespace(suspended=lambda: held("suspended")))
    monkeypatch.setattr(gpu_capture, "forget_prepared", lambda: did.append("forget"))
    monkeypatch.setattr(gpu_capture, "winner_first", lambda winners, begin: lambda site: (winners, begin, site))
    call = Call(CASE.nodeid, CASE.call, lambda: None, reference=lambda: did.append("reference") or "expected")
    made: Any = GpuCapture(run, call, ARGUMENTS, share, on(0))  # type: ignore[arg-type]
    return SimpleNamespace(made=made, did=did, on=on)


def test_a_call_goes_on_where_it_launches(capture: Any) -> None:
    capture.made.move(capture.on(1))
    assert (capture.did, capture.made.backend.gpu.number) == (["move to 1", "watch 1"], 1)
    assert capture.made.prefer("site") == ("winners of 1", "begin on 1", "site")


def test_a_reference_has_the_device_alone(capture: Any) -> None:
    assert capture.made.call().reference() == "expected"
    assert capture.did == ["given up 0", "alone", "reference", "end of alone", "end of given up 0"]
    capture.made._call = Call(CASE.nodeid, CASE.call, lambda: None)
    assert capture.made.call() is capture.made._call


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_a_choice_is_decided_alone_and_unrecorded(capture: Any, error: Exception | None) -> None:
    with (
        contextlib.nullcontext() if error is None else pytest.raises(ValueError, match=r"^mine$"),
        capture.made.apart(),
    ):
        capture.did.append("decide")
        if error is not None:
            raise error
    assert capture.did[:4] == ["given up 0", "suspended", "decide", "forget"]


# the baseline that is known before a call runs


@pytest.mark.parametrize(
    ("arguments", "update", "found"),
    [
        (ARGUMENTS, Update.NONE, True), ((), Update.NONE, True), (ARGUMENTS, Update.ALL, False),
        ((*ARGUMENTS, *ARGUMENTS), Update.NONE, False),
    ],
)  # fmt: skip
def test_a_call_s_baseline_is_known_by_its_tensors_or_where_it_has_one(
    tmp_path: Path, arguments: Any, update: Update, found: bool
) -> None:
    store = BaselineStore(tmp_path)
    store.put(time_baseline(), artifacts_of())
    known = known_baseline(store, H100, CASE, arguments, update)
    assert (None if known is None else known.fingerprint) == (FINGERPRINT if found else None)
    asked: list[Any] = []
    renames: Any = SimpleNamespace(timed_before=lambda *words: asked.append(words) or "the old name's")
    other = known_baseline(BaselineStore(tmp_path / "empty"), H100, CASE, arguments, update, renames)
    asks = bool(arguments) and update is not Update.ALL
    assert (other, [words[0] for words in asked]) == ("the old name's" if asks else None, [CASE] * asks)
