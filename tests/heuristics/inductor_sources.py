"""Puts the heuristics of another torch release in the place of the installed ones, from that release's Python files.

``use_sources("unpacked")`` where ``unpacked/torch`` is a wheel's content (``pip download --no-deps torch==2.15.0``,
then unzip; its libraries aren't needed). Call it before anything imports ``torch._inductor.runtime``. Only the modules
that decide are taken from there. What they import from the rest of torch is the installed one's; a name that it lacks
becomes a stand-in that raises when it is called, so a decision can't come from it unnoticed.
"""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

INDUCTOR = "torch._inductor"
DECIDING = tuple(
    f"{INDUCTOR}.{name}"
    for name in (
        "runtime.hints",
        "runtime.triton_heuristics",
        "runtime.coordinate_descent_tuner",
        "runtime.static_triton_launcher",
        "heuristics",
        "choices",
    )
)
TEMPLATES = (f"{INDUCTOR}.heuristics.template", f"{INDUCTOR}.heuristics.template.triton")
"""Modules that choices.py imports for matrix products' templates, which aren't used here."""

MOST_STAND_INS = 30
_MISSING = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


class StandIn:
    """A name that the installed torch lacks."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is a stand-in: the installed torch has none")


class _FromFolder:
    """A finder that takes the deciding modules from a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(DECIDING):
            return None
        return PathFinder.find_spec(name, [str(self.folder.joinpath(*name.split(".")[:-1]))])


def version_of(folder: Path) -> str:
    """The release that an unpacked wheel is of."""
    found = re.search(r"__version__ = '([^']+)'", (folder / "torch" / "version.py").read_text())
    if found is None:
        raise ValueError(f"{folder / 'torch' / 'version.py'} has no __version__")
    return found[1]


def use_sources(folder: Path) -> str:
    """Replace the installed torch's deciding modules by those under ``folder``; the release's version."""
    version = version_of(folder)
    import torch
    import torch._inductor.choices
    import torch._inductor.ir
    import torch._inductor.select_algorithm
    import torch._logging

    for name in [name for name in sys.modules if name.startswith(DECIDING)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _FromFolder(folder))  # type: ignore[arg-type]
    for name in TEMPLATES:
        sys.modules[name] = _anything(name)
    with mock.patch.object(torch._logging, "getArtifactLogger", _plain_logger):
        for name in (DECIDING[1], DECIDING[2], DECIDING[-1]):
            _import(name)
    if (folder / "torch" / "_inductor" / "heuristics").is_dir():
        _register_all_backends()
    return version


def _register_all_backends() -> None:
    """From 2.15 on each backend's rules are a class, registered when it is imported by a build for that backend."""
    import torch

    for name in [name for name in sys.modules if name.startswith(f"{INDUCTOR}.heuristics.triton_codegen")]:
        del sys.modules[name]
    with (
        mock.patch.object(torch.version, "hip", "6.4"),
        mock.patch.object(torch.xpu, "_is_compiled", return_value=True),
    ):
        _import(f"{INDUCTOR}.heuristics.triton_codegen")


def _plain_logger(name: str, artifact: str) -> logging.Logger:
    return logging.getLogger(f"{name}.{artifact}")


def _anything(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__getattr__ = StandIn  # type: ignore[method-assign]
    module.__path__ = []
    return module


def _import(name: str) -> ModuleType:
    """The module, with a stand-in for each name that its imports miss."""
    for _ in range(MOST_STAND_INS):
        before = set(sys.modules)
        try:
            return importlib.import_module(name)
        except ImportError as error:
            missing = _MISSING.match(str(error))
            if missing is None:
                raise
            setattr(sys.modules[missing[2]], missing[1], StandIn(missing[1]))
            for half_loaded in set(sys.modules) - before:
                del sys.modules[half_loaded]
    raise ImportError(f"{name} needs more than {MOST_STAND_INS} names that the installed torch lacks")
