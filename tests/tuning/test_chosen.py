"""The fingerprint of the winners that a process goes on with."""

from __future__ import annotations

import re

import msgspec
import pytest
import torch
from fake_runs import N, block, by_block, configs, scale_kernel, script

import kerntune
from kerntune.base.config import Config
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import agreement
from tuning.cache.made import LARGE, SMALL, WINNER


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_chosen", {})


def noted(*pairs: tuple[str, Config]) -> str:
    agreement._chosen.clear()
    for arguments, config in pairs:
        agreement.note_chosen(msgspec.structs.replace(WINNER, arguments=arguments), config)
    return kerntune.fingerprint()


def test_the_order_does_not_count() -> None:
    assert noted(("a", SMALL), ("b", LARGE)) == noted(("b", LARGE), ("a", SMALL))


def test_another_config_or_key_is_another_fingerprint() -> None:
    found = [noted(), noted(("a", SMALL)), noted(("a", LARGE)), noted(("b", SMALL)), noted(("a", SMALL), ("b", SMALL))]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in found)


def test_the_last_config_of_a_key_counts() -> None:
    assert noted(("a", SMALL), ("a", LARGE)) == noted(("a", LARGE))


def call(*blocks: int) -> None:
    kernel = kerntune.autotune(configs(*blocks), key=["n"])(scale_kernel)
    x, y = (torch.empty(N, device="cuda") for _ in range(2))
    kernel[by_block](x, y, N, 2.0)


def test_a_raced_and_a_stored_winner_give_the_same(this_gpu: FakeBackend) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    empty = kerntune.fingerprint()
    call(64, 128)
    raced = kerntune.fingerprint()
    assert raced != empty
    agreement._chosen.clear()
    call(64, 128)
    assert kerntune.fingerprint() == raced


def test_another_winner_gives_another(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "force")
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    call(64, 128)
    first = kerntune.fingerprint()
    script(this_gpu, block(64, 1000.0), block(128, 3000.0))
    call(64, 128)
    assert kerntune.fingerprint() != first
