"""Where each option of a tuning comes from, for every kind of tuner; what the environment may say."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from fake_runs import N, by_block, configs, scale_kernel

import kerntune
from kerntune.base.policy import Policy, StaticPrune, TuneMode
from kerntune.errors import UsageError
from kerntune.gate.call import Settings
from kerntune.gate.session import open_session
from kerntune.gpu.scripted import FakeBackend
from kerntune.search import Choice, Search, Space
from kerntune.tuning import tune_options
from kerntune.tuning import tune_options as module
from kerntune.tuning.context import NVTX, NvtxRanges
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.tune_options import (
    ISOLATE,
    PATIENCE,
    SWITCH_INTERVAL,
    VARIABLES,
    VERIFY,
    Patience,
    QuickSwitches,
    TuneOptions,
    check_variables,
    options_of,
    unknown_variables,
)
from kerntune.tuning.verification import Verification, Verify

PATIENCE_SHARE = 0.1
SWITCH_SECONDS = 0.0005


CHECKED = (VERIFY, PATIENCE, ISOLATE)
PACKAGES = Path(kerntune.__file__).parent, Path(kerntune.__file__).parent.parent / "pytest_kerntune"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CHECKED:
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_pruned_unless_it_is_asked_for() -> None:
    assert TuneOptions.now().static_prune == StaticPrune()
    assert TuneOptions.now(static_prune=StaticPrune(share=0.5)).static_prune == StaticPrune(share=0.5)


def test_a_stock_tuner_is_asked_for_attributes_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = triton.autotune(configs=configs(32, 64), key=["n"])(scale_kernel)
    assert options_of(stock).verification == Verification(Verify.WINNER, ())
    monkeypatch.setenv(VERIFY, "all")
    monkeypatch.setenv(PATIENCE, "all")
    stock.verify_ignore, stock.static_prune = ("y_ptr",), StaticPrune(model=True)
    monkeypatch.setenv(ISOLATE, "always")
    found = Verification(Verify.ALL, ("y_ptr",))
    expected = TuneOptions(found, None, StaticPrune(model=True), keep=False, isolate=Isolate.ALWAYS)
    assert options_of(stock, keep=False) == expected


def test_a_tuners_own_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in zip(CHECKED, ("all", "7", "always"), strict=True):
        monkeypatch.setenv(name, text)
    given = {"verify": "off", "verify_ignore": "x_ptr", "patience": 2, "static_prune": "spills", "isolate": "off"}
    kernel = kerntune.autotune(configs(32, 64), key=["n"], **given)(scale_kernel)
    found = options_of(kernel)
    assert found.verification == Verification(Verify.OFF, ("x_ptr",))
    assert isinstance(found.patience, Patience)
    assert (found.patience.seconds, found.static_prune) == (2.0, StaticPrune(spills=True))
    assert found.isolate is Isolate.OFF
    kernel.verify, kernel.patience = "finalists", None
    assert options_of(kernel).verification.mode is Verify.FINALISTS, "an attribute that a user sets later counts"
    late = options_of(kernel).patience
    assert late is not None
    assert late.seconds == 7.0


def test_a_search_waits_for_and_runs_the_whole_list() -> None:
    search = Search(Space([Choice("BLOCK", [32, 64])]), seconds=1)
    asked = TuneOptions(patience=Patience(1.0), static_prune=StaticPrune(model=True))
    assert asked.searching(None) is asked
    assert asked.searching(search) == TuneOptions(search=search)


def test_the_gate_waits_for_every_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATIENCE, "0")
    monkeypatch.setenv(VERIFY, "all")
    assert module.options_of_policy(Policy()) == TuneOptions(Verification(Verify.ALL))
    policy = Policy(verify="off", verify_ignore=("y_ptr",), static_prune=StaticPrune(model=True))
    found = module.options_of_policy(policy)
    assert found == TuneOptions(Verification(Verify.OFF, ("y_ptr",)), None, StaticPrune(model=True))


@pytest.mark.slow
def test_one_module_reads_the_variables() -> None:
    """Every other one is given the value."""
    found = {
        path.name
        for folder in PACKAGES
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in CHECKED
    }
    assert found == {"tune_options.py"}


# patience


def test_by_default_it_is_a_share_of_what_was_spent() -> None:
    assert Patience(begin=100.0).end(since=102.0) == pytest.approx(102.0 + PATIENCE_SHARE * 2.0)


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_seconds_are_seconds(seconds: float) -> None:
    assert Patience(seconds, begin=100.0).end(since=102.0) == 102.0 + seconds


def test_the_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(given: float | str | None = None) -> float | None:
        found = TuneOptions.now(patience=given).patience
        assert found is not None
        assert abs(found.begin - time.monotonic()) < 60
        return found.seconds

    assert seconds() is None
    monkeypatch.setenv(PATIENCE, "2.5")
    assert (seconds(), seconds(0), seconds("1")) == (2.5, 0.0, 1.0)
    monkeypatch.setenv(PATIENCE, "")
    assert seconds() is None


def test_all_are_waited_for_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TuneOptions.now(patience="all").patience is None
    monkeypatch.setenv(PATIENCE, "all")
    assert TuneOptions.now().patience is None
    assert TuneOptions.now(patience=3).patience is not None


@pytest.mark.parametrize("wrong", ["long", "-1", -0.5, "nan"])
def test_anything_else_is_refused(wrong: float | str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"patience is .*; it can be a number of seconds from 0 on, or all"):
        kerntune.autotune([object()], key=[], patience=wrong)
    monkeypatch.setenv(PATIENCE, str(wrong))
    with pytest.raises(UsageError, match="patience is"):
        TuneOptions.now()


# the switch interval of threads


USUAL, OTHER = 0.005, 0.02


@pytest.fixture(autouse=True)
def _usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = sys.getswitchinterval()
    monkeypatch.delenv(SWITCH_INTERVAL, raising=False)
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def interval() -> float:
    return round(sys.getswitchinterval(), 6)


def test_the_last_of_several_tunings_puts_it_back() -> None:
    switches = QuickSwitches()
    with switches:
        with switches:
            pass
        assert interval() == SWITCH_SECONDS
    assert interval() == USUAL


def test_a_shorter_one_stays() -> None:
    sys.setswitchinterval(1e-5)
    with QuickSwitches():
        assert interval() == 1e-5
    assert interval() == 1e-5


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH_INTERVAL, "0")
    with QuickSwitches():
        assert interval() == USUAL
    assert interval() == USUAL


def test_one_that_the_program_sets_meanwhile_stays() -> None:
    with QuickSwitches():
        sys.setswitchinterval(OTHER)
    assert interval() == OTHER


# variables


ROOT = Path(__file__).resolve().parents[2]

WRONG = {
    "KERNTUNE_COMPILERS": ("many", "give a number of compilers"),
    "KERNTUNE_DUMP_CONTENT": ("all", "described or recorded"),
    "KERNTUNE_FORKS": ("no", "1 or 0"),
    "KERNTUNE_ISOLATE": ("allways", "auto, always or off"),
    "KERNTUNE_NVTX": ("yes", "1 or 0"),
    "KERNTUNE_PATIENCE": ("some", "a number of seconds from 0 on, or all"),
    "KERNTUNE_SIGTERM": ("off", "1 or 0"),
    "KERNTUNE_STORE": ("/mnt/x", "file:///path"),
    "KERNTUNE_SWITCH_INTERVAL": ("5ms", "1 or 0"),
    "KERNTUNE_TUNE": ("frzen", "auto, frozen, force or nearest"),
    "KERNTUNE_VERIFY": ("maybe", "winner, finalists, all, bitwise or off"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_variable_cannot_be_is_refused_by_name_with_what_it_can(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, legal = WRONG[name]
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=f"{name}.*{re.escape(repr(text))}.*{re.escape(legal)}"):
        check_variables()
    monkeypatch.setenv(name, "")
    check_variables()


def test_every_variable_that_is_read_is_in_the_table() -> None:
    """What code writes as a text of its own, and not within a sentence."""
    files = [*(ROOT / "kerntune").rglob("*.py"), *(ROOT / "pytest_kerntune").rglob("*.py")]
    found = {name for file in files for name in re.findall(r'"(KERNTUNE_[A-Z_]+)"', file.read_text())}
    assert found == set(VARIABLES)


def test_a_name_that_nothing_reads_is_told_with_the_nearest() -> None:
    assert unknown_variables({"KERNTUNE_TUEN": "auto", "KERNTUNE_TUNE": "auto", "TUNE": "x"}) == [
        "KERNTUNE_TUEN is read by nothing; did you mean KERNTUNE_TUNE?"
    ]


def test_a_gated_run_without_a_gpu_refuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frzen")
    with pytest.raises(UsageError, match="KERNTUNE_TUNE is 'frzen'"):
        open_session(Settings(tmp_path, tmp_path / "baselines"), FakeBackend())


def test_a_gated_run_refuses_a_cache_folder_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNTUNE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="file is a file; let KERNTUNE_CACHE_DIR name another one"):
        open_session(Settings(tmp_path, tmp_path / "baselines"), FakeBackend())


def test_a_program_without_a_gpu_hears_of_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "frzen")
    monkeypatch.setattr(tune_options, "_WATCHED", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kernel: Any = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    with pytest.raises(UsageError, match="KERNTUNE_TUNE is 'frzen'"):
        kernel[by_block](torch.empty(N), torch.empty(N), N, 2.0)


# observers


def test_the_environment_asks_for_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    at_end: list[Any] = []
    monkeypatch.setattr(module.atexit, "register", at_end.append)
    assert module.observers_of({}) == module.observers_of({NVTX: "0", "KERNTUNE_BANDWIDTH": ""}) == []
    ranges, report = module.observers_of({NVTX: "1", "KERNTUNE_BANDWIDTH": "file.json"})
    assert isinstance(ranges, NvtxRanges)
    assert isinstance(report, kerntune.bandwidth)
    assert (report._file, at_end) == ("file.json", [report.tell])


def test_observers_begin_once_a_process_after_the_variables_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    monkeypatch.setattr(module, "_WATCHED", None)
    monkeypatch.setattr(module, "watch", watched.append)
    monkeypatch.setattr(module, "observers_of", lambda environment: ["one", "two"])
    monkeypatch.setenv("KERNTUNE_NVTX", "yes")
    with pytest.raises(UsageError, match="KERNTUNE_NVTX: it is 'yes'; it can be 1 or 0"):
        module.watch_environment()
    assert watched == []
    monkeypatch.setenv("KERNTUNE_NVTX", "1")
    for _ in range(2):
        module.watch_environment()
    assert watched == ["one", "two"]


@pytest.mark.parametrize(
    ("own", "variable", "keep", "mode"),
    [
        (None, "", True, TuneMode.AUTO),
        (None, "frozen", True, TuneMode.FROZEN),
        ("force", "frozen", True, TuneMode.FORCE),
        ("frozen", "frozen", False, TuneMode.FORCE),
    ],
)
def test_what_is_not_kept_is_always_tuned(
    own: str | None, variable: str, keep: bool, mode: TuneMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", variable)
    tuner = SimpleNamespace(tune_mode=own)
    assert module.mode_of(tuner, keep=keep) is mode
    assert module.mode_of(tuner) is (mode if keep else TuneMode.FROZEN)
    assert module.options_of(tuner, keep=keep).keep is keep
    assert module.options_of(tuner).keep
