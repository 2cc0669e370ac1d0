"""What begins before pytest's session and ends outside of it, step by step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import KerntuneError
from kerntune.gate import api, baseline_files
from kerntune.gpu import probe
from kerntune.kernels.compat import tuners
from pytest_kerntune import run_lifetime
from pytest_kerntune.run_lifetime import NVML_CHECK, SESSION


def config(**given: Any) -> Any:
    known = SimpleNamespace(**{"help": False, "version": False, **given})
    made = SimpleNamespace(known_args_namespace=known, stash={}, cleanups=[])
    made.add_cleanup = made.cleanups.append
    return made


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What decides about a run's beginning, and what was ``did``."""
    found: dict[str, Any] = {
        "interprets": False, "enabled": True, "targets": (), "known": (), "cuda": False, "error": None, "did": [],
    }  # fmt: skip
    options, did = run_lifetime.options, found["did"]

    def start() -> None:
        did.append("start")
        if found["error"] is not None:
            raise found["error"]

    settings = SimpleNamespace(known_targets=lambda store: did.append(store) or found["known"])
    resolved = SimpleNamespace(targets=(), settings=lambda: settings, baselines="the folder")
    session = SimpleNamespace(start=start, close="close")
    monkeypatch.setattr(options, "interprets", lambda config, given: found["interprets"])
    monkeypatch.setattr(options, "enabled", lambda config, given: found["enabled"])
    monkeypatch.setattr(
        options, "resolve", lambda config, given: vars(resolved).update(targets=found["targets"]) or resolved
    )
    monkeypatch.setattr(api, "open_session", lambda settings: did.append("open") or session)
    monkeypatch.setattr(baseline_files, "BaselineStore", lambda folder: f"store of {folder}")
    monkeypatch.setattr(probe, "has_cuda", lambda: did.append(os.environ[NVML_CHECK]) or found["cuda"])
    monkeypatch.setattr(run_lifetime.interpret, "begin", lambda config: did.append("interpret"))
    monkeypatch.setattr(tuners, "interprets", lambda: found.get("tritons", False))
    monkeypatch.delenv(NVML_CHECK, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    return found


@pytest.mark.parametrize(
    ("changes", "given", "did", "opened"),
    [
        ({"targets": ("cuda:90",)}, {}, ["open", "start"], True),
        ({"known": ("cuda:90",)}, {}, ["store of the folder", "1", "open", "start"], True),
        ({"known": ("cuda:90",), "cuda": True}, {}, ["store of the folder", "1"], False),
        ({}, {}, ["store of the folder"], False),
        ({"targets": ("cuda:90",), "error": KerntuneError("no")}, {}, ["open", "start"], False),
        ({"targets": ("cuda:90",)}, {"help": True}, [], False),
        ({"targets": ("cuda:90",)}, {"version": True}, [], False),
        ({"targets": ("cuda:90",), "enabled": False}, {}, [], False),
        ({"targets": ("cuda:90",), "enabled": False, "interprets": True}, {}, ["interpret"], False),
    ],
)  # fmt: skip
def test_a_session_opens_before_conftests_where_there_will_be_stand_ins(
    begun: dict[str, Any], changes: dict[str, Any], given: dict[str, Any], did: list[Any], opened: bool
) -> None:
    """torch asks NVML meanwhile: CUDA would read the devices that are visible before a conftest sets them."""
    begun |= changes
    made = config(**given)
    run_lifetime.begin(made)
    assert begun["did"] == did
    assert (SESSION in made.stash) is opened
    assert made.cleanups == (["close"] if "open" in did else []), "also of one that couldn't be started"
    assert NVML_CHECK not in os.environ
    session = run_lifetime.take(made)
    assert (session is not None) is opened
    assert run_lifetime.take(made) is None


@pytest.mark.parametrize("before", ["0", ""])
def test_what_the_user_says_of_nvml_stays(begun: dict[str, Any], monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setenv(NVML_CHECK, before)
    begun["known"] = ("cuda:90",)
    run_lifetime.begin(config())
    assert begun["did"][1] == "1"
    assert os.environ[NVML_CHECK] == before


@pytest.mark.parametrize(
    ("variable", "tritons", "refused"), [("1", True, True), ("0", False, False), ("", True, False)]
)
def test_tritons_own_interpreter_is_refused(
    begun: dict[str, Any], monkeypatch: pytest.MonkeyPatch, variable: str, tritons: bool, refused: bool
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", variable)
    begun["tritons"] = tritons
    if refused:
        with pytest.raises(
            pytest.UsageError, match="TRITON_INTERPRET is set: Triton's own interpreter would run every"
        ):
            run_lifetime.begin(config())
    else:
        run_lifetime.begin(config())


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_run_once_and_in_order(sigterm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config()
    monkeypatch.delenv("KERNTUNE_SIGTERM", raising=False)
    run_lifetime.end_in_order(made)
    assert signal.getsignal(signal.SIGTERM) is run_lifetime._end
    with pytest.raises(BaseException, match="SIGTERM") as caught:
        run_lifetime._end(signal.SIGTERM, None)
    assert isinstance(caught.value, pytest.exit.Exception)
    assert caught.value.returncode == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the second one is obeyed at once"
    run_lifetime.end_in_order(made)
    made.cleanups[1]()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    made.cleanups[1]()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "another's stays"


@pytest.mark.parametrize("why", ["switch", "thread", "handler"])
def test_where_sigterm_stays_as_it_is(sigterm: None, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    made, before = config(), signal.SIG_IGN if why == "handler" else signal.SIG_DFL
    monkeypatch.setenv("KERNTUNE_SIGTERM", "0" if why == "switch" else "1")
    signal.signal(signal.SIGTERM, before)
    call = lambda: run_lifetime.end_in_order(made)  # noqa: E731
    if why == "thread":
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
    assert (signal.getsignal(signal.SIGTERM), made.cleanups) == (before, [])


@pytest.mark.parametrize(("frozen", "did"), [(0, ["freeze", "unfreeze"]), (3, [])])
def test_objects_are_left_out_of_collections_until_the_run_has_ended(
    monkeypatch: pytest.MonkeyPatch, frozen: int, did: list[str]
) -> None:
    """Not where the program itself has frozen some: they would be collected again."""
    found: list[str] = []
    own = SimpleNamespace(
        get_freeze_count=lambda: frozen,
        freeze=lambda: found.append("freeze"),
        unfreeze=lambda: found.append("unfreeze"),
    )
    monkeypatch.setattr(run_lifetime, "gc", own)
    made = config()
    run_lifetime.collect_again(made)
    assert found == []
    run_lifetime.collect_less(made)
    run_lifetime.collect_again(made)
    run_lifetime.collect_again(made)
    assert found == did


def deep(depth: int) -> None:
    if not depth:
        raise KeyboardInterrupt
    deep(depth - 1)


def hidden(depth: int) -> None:
    __tracebackhide__ = True
    if not depth:
        raise KeyboardInterrupt
    hidden(depth - 1)


@pytest.mark.parametrize(("raises", "frames"), [(deep, 4), (hidden, 10)])
def test_an_interrupt_shows_its_last_frames(raises: Any, frames: int) -> None:
    """All of them where the last ones are hidden: one has to be shown."""
    with pytest.raises(KeyboardInterrupt) as caught:
        raises(8)
    caught.value.__context__ = ValueError("handled meanwhile")
    run_lifetime.only_where(caught)
    assert len(caught.traceback) == frames
    text = str(caught.getrepr(showlocals=True, funcargs=True))
    assert "depth" not in text, "no arguments, whatever is asked for"
    assert "handled meanwhile" not in text
