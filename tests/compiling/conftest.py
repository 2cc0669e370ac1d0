"""A Triton cache of its own for each test, and farms that are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kerntune.compiling.farm import Farm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's cache folder: empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    return tmp_path / "triton"


@pytest.fixture
def farm() -> Iterator[Callable[..., Farm]]:
    """Makes farms."""
    made: list[Farm] = []

    def make(**words: Any) -> Farm:
        made.append(Farm(**{"workers": 2, **words}))
        return made[-1]

    yield make
    for one in made:
        one.close()
