"""Where each option of a tuning comes from, for every kind of tuner."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import triton
from fake_runs import configs, scale_kernel

import kerntune
from kerntune.base.policy import Policy, StaticPrune
from kerntune.search import Choice, Search, Space
from kerntune.tuning import tune_options as module
from kerntune.tuning.isolation import Isolate
from kerntune.tuning.tune_options import ISOLATE, PATIENCE, VERIFY, Patience, TuneOptions, options_of
from kerntune.tuning.verification import Verification, Verify

VARIABLES = (VERIFY, PATIENCE, ISOLATE)
PACKAGES = Path(kerntune.__file__).parent, Path(kerntune.__file__).parent.parent / "pytest_kerntune"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
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
    for name, text in zip(VARIABLES, ("all", "7", "always"), strict=True):
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
        if isinstance(node, ast.Constant) and node.value in VARIABLES
    }
    assert found == {"tune_options.py"}
