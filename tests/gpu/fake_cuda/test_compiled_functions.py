"""Functions compiled for a device that doesn't exist: the folder of what is generated."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from kerntune.base.folders import LOCK
from kerntune.gpu.fake_cuda.compiled_functions import (
    _STUBS,
    CACHE_VARIABLES,
    TimedChoices,
    own_caches,
    without_function_mode,
)


def test_the_folder_is_one_that_the_next_run_removes_after_a_kill() -> None:
    before = [os.environ.get(name) for name in CACHE_VARIABLES]
    with own_caches():
        (folder,) = {Path(os.environ[name]).parent for name in CACHE_VARIABLES}
        assert folder.name.startswith("kerntune-inductor-")
        assert len({os.environ[name] for name in CACHE_VARIABLES}) == len(CACHE_VARIABLES)
        assert (folder / LOCK).exists()
    assert not folder.exists()
    assert [os.environ.get(name) for name in CACHE_VARIABLES] == before


class Seen(TorchFunctionMode):
    """Notes its name at each call."""

    def __init__(self, name: str, calls: list[str]) -> None:
        super().__init__()
        self.name, self.calls = name, calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(self.name)
        return func(*args, **(kwargs or {}))


def test_one_mode_is_taken_off_and_all_are_there_again_in_their_order() -> None:
    calls: list[str] = []
    first, middle, last = (Seen(name, calls) for name in ("first", "middle", "last"))
    with first, middle, last:
        with without_function_mode(middle):
            torch.ones(1)
        calls.append("then")
        torch.ones(1)
    assert calls == ["last", "first", "then", "last", "middle", "first"]


@pytest.mark.parametrize(("count", "made"), [(1, []), (2, ["max-autotune times 2 candidates for mm"])])
def test_only_a_choice_among_several_is_noted(count: int, made: list[str]) -> None:
    choices = TimedChoices()
    taken = choices._select(lambda cache, name, choices: choices)(None, "mm", [SimpleNamespace() for _ in range(count)])
    assert (len(taken), choices.made) == (1, made)


@pytest.mark.parametrize(("words", "first"), [((), 3), ((4,), 7)])
def test_a_reinterpreted_tensor_lies_behind_its_own_offset(words: tuple[int, ...], first: int) -> None:
    tensor = torch.arange(20)[3:]
    found = _STUBS["reinterpret"](tensor, (2, 2), (4, 1), *words)
    assert found.tolist() == [[first, first + 1], [first + 4, first + 5]]
