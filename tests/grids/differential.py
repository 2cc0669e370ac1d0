"""The differential script, loaded as a module: its cases serve the tests too, with torch 2.13's answers to some."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "grids" / "grids_differential.py"


def load() -> ModuleType:
    """The script as a module, loaded once."""
    name = "kerntune_grids_differential"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


RECORDED = Path(__file__).with_name("recorded_2_13.json")
"""Digests of the right outcomes of each grid's first cases: torch 2.13's, or what is meant where we differ."""

SAMPLE = 400
DIGITS = 4


def sample(name: str) -> list[Any]:
    """The first cases of a grid."""
    script = load()
    return list(itertools.islice(script.distinct(script.FAMILIES[name]()), SAMPLE))


def digest(outcome: Any) -> str:
    """Of a triple, or None for an error."""
    return hashlib.sha256(repr(outcome).encode()).hexdigest()[:DIGITS]
