"""Each environment variable that kerntune reads is what it can be, or is refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_runs import N, by_block, configs, scale_kernel

import kerntune
from kerntune.errors import UsageError
from kerntune.gate.call import Settings
from kerntune.gate.session import open_session
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import tune_options
from kerntune.tuning.tune_options import VARIABLES, check_variables, unknown_variables

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
        "KERNTUNE_TUEN is read by nothing; is it KERNTUNE_TUNE?"
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
