"""What holds for a whole run: its folders, what may have been replaced, its GPU, the tests that it selects.

Folders are made beside a run before it begins, by xdist's controller for all its workers. What decides about verdicts
is kept then: code under test that replaces it is named at the end. Warnings name what makes a run different from what
it seems: a GPU that torch doesn't see, kernels that know pytest. A baseline's case can be said to be gone only by a run
that would have seen it.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import is_
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kerntune.base.folders import TemporaryFolder


class RunFolders:
    """The folders of this process. A worker is handed what its controller made."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._given: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self.made: dict[str, str] = {}
        """By name, for the workers' ``workerinput``."""

    @property
    def place(self) -> tuple[int, int]:
        """Which of the processes that share the run's tests this is, from 0, and of how many."""
        if self._given is None:
            return 0, 1
        return int(self._given["workerid"].removeprefix("gw")), int(self._given["workercount"])

    def folder(self, name: str, make: Callable[[Path], Path]) -> Path:
        """The folder that ``make`` gives, which may write under the path that it is called with until pytest ends."""
        if self._given is not None:
            return Path(self._given[name])
        folder = make(scratch_of(self._config))
        self.made[name] = str(folder)
        return folder


def scratch_of(config: pytest.Config) -> Path:
    """A new folder, until pytest ends."""
    scratch = TemporaryFolder("run")
    config.add_cleanup(scratch.remove)
    return scratch.folder


DECIDING: tuple[tuple[str, str], ...] = (
    ("kerntune.base.policy", "_FIXED"),
    ("kerntune.base.policy", "STATIC_RULES"),
    ("kerntune.base.policy", "METRIC_TOLERANCES"),
    ("kerntune.base.policy", "Policy.outcome"),
    ("kerntune.base.policy", "Policy.level_of"),
    ("kerntune.base.policy", "StaticPolicy.rule"),
    ("kerntune.gate.decision", "decide"),
    ("kerntune.gate.decision", "settled"),
    ("kerntune.gate.decision", "with_anchor"),
    ("kerntune.gate.comparison", "decide"),
    ("kerntune.gate.comparison", "judge"),
    ("kerntune.gate.static_verdict", "decide"),
    ("kerntune.gate.static_verdict", "judge_launches"),
    ("kerntune.gate.static_check", "judge_launches"),
    ("kerntune.gate.static_check", "check_static"),
    ("kerntune.gate.static_check", "outcome_of"),
    ("kerntune.gate.gpu_check", "outcome_of"),
    ("kerntune.gate.gpu_check", "judge"),
    ("kerntune.gate.session", "Session.check"),
    ("pytest_kerntune.conclude", "conclude"),
    ("pytest_kerntune.conclude", "conclude_teardown"),
    ("pytest_kerntune.conclude", "_settle"),
    ("pytest_kerntune.conclude", "fail_with"),
    ("pytest_kerntune.conclude", "failure_text"),
    ("pytest_kerntune.session", "conclude"),
)
"""Tables and functions, by module and name. A user's ``outcomes=`` goes into a policy, and changes none of them."""


class DecisionWatch:
    """The tables and functions of the decision as they were when a run began."""

    def __init__(self) -> None:
        self._kept = _present()

    def changed(self) -> list[str]:
        """The names of those that are others now; those that were loaded later are kept from then on."""
        now = _present()
        found = [n for n, kept in self._kept.items() if n not in now or not _same(now[n], kept)]
        self._kept = {**now, **self._kept}
        return found


def _present() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module, name in DECIDING:
        holder: Any = sys.modules.get(module)
        for part in name.split("."):
            holder = getattr(holder, part, None)
        if isinstance(holder, Mapping):
            found[f"{module}.{name}"] = dict(holder)
        elif holder is not None:  # a function with what it runs
            code, defaults = getattr(holder, "__code__", None), getattr(holder, "__defaults__", None)
            found[f"{module}.{name}"] = holder, code, defaults
    return found


def _same(now: Any, kept: Any) -> bool:
    if isinstance(kept, dict) or isinstance(now, dict):
        return bool(now == kept)
    return all(map(is_, now, kept))


DEVICES = Path("/dev")

ASKS_FOR_PYTEST = re.compile(
    r"PYTEST_VERSION|PYTEST_CURRENT_TEST|[\"'](?:pytest|kerntune|pytest_kerntune)[\"']\s+(?:not\s+)?in\s+sys\.modules"
)
"""How code asks whether it runs in a test, or under kerntune; Triton's own tutorials take one config then, instead of
their list."""


def unseen_gpu() -> str:
    """What to know where an NVIDIA GPU's device file is, but torch sees no GPU; empty elsewhere, and where the user has
    hidden all of them. Without this, a GPU runner with the wrong torch would pass by figures of compiled kernels."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return ""
    files = sorted(path for path in DEVICES.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit())
    if not files:
        return ""
    from kerntune.gpu.probe import why_unused

    return (
        f"{files[0]} is there, but {why_unused()}: kernels are compiled only, nothing is timed. Install a torch with "
        "CUDA that suits the driver; where this is meant, say --kerntune-target=cuda:90"
    )


def kernels_that_know_pytest(names: Collection[str]) -> list[str]:
    """A line for each file with kernels of these names that asks whether it runs in a test: what is gated there may not
    be what runs elsewhere."""
    files: dict[Path, list[str]] = {}
    classes: dict[int, bool] = {}
    for module in list(sys.modules.values()) if names else ():
        for name, file in _kernels(module, names, classes):
            if name not in files.setdefault(file, []):
                files[file].append(name)
    return [
        f"{file.name} asks whether it runs in a test ({found}): what is gated of kernel {', '.join(kernels)} may "
        "not be what runs elsewhere, its configs for example"
        for file, kernels in sorted(files.items())
        if (found := _question(file))
    ]


def _kernels(module: ModuleType, names: Collection[str], classes: dict[int, bool]) -> list[tuple[str, Path]]:
    """The kernels of these names among a module's globals, behind whatever decorators, and their files.

    ``classes`` remembers by identity which are Triton's or ours: torch's modules alone have 45,000 globals.
    """
    found: list[tuple[str, Path]] = []
    values = list(vars(module).values()) if isinstance(module, ModuleType) else []
    if all(classes.get(kind) is False for kind in set(map(id, map(type, values)))):
        return found
    for value in values:
        kind = type(value)
        may_be = classes.get(id(kind))
        if may_be is None:
            home = getattr(kind, "__module__", None)
            may_be = classes[id(kind)] = isinstance(home, str) and home.startswith(("triton.", "kerntune."))
        if may_be:
            function = _python_function(value)
            if function is not None and function.__name__ in names and (file := inspect.getsourcefile(function)):
                found.append((function.__name__, Path(file)))
    return found


def _python_function(value: Any) -> Any:
    for _ in range(MAX_WRAPPERS):
        if inspect.isfunction(value):
            return value
        value = vars(value).get("fn") if hasattr(value, "__dict__") else None
    return None


MAX_WRAPPERS = 8


def _question(file: Path) -> str:
    """The words with which a file asks; empty if it doesn't, or can't be read."""
    try:
        match = ASKS_FOR_PYTEST.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return match.group() if match else ""


NARROWING = (
    "keyword",
    "markexpr",
    "lf",
    "stepwise",
    "deselect",
    "ignore",
    "ignore_glob",
    "shard_id",  # pytest-shard
    "group",  # pytest-split
)
"""Destinations of options that leave tests out; some do so without a ``pytest_deselected`` call."""

AFTER_COLLECTION = ("keyword", "markexpr", "deselect")
"""Those of them that choose among collected tests: which ones there are is known."""


def narrowed(config: pytest.Config, but_for: Collection[str] = ()) -> bool:
    """Whether options leave out tests under the paths that the run was given."""
    return any(getattr(config.option, name, None) for name in NARROWING if name not in but_for)


def covered(config: pytest.Config, nodeid: str) -> bool:
    """Whether the run read the file of ``nodeid``, if it exists: it lies in a file or folder that was given, or that
    the ini file's ``testpaths`` gave. A single test (``file::test``) on the command line covers nothing."""
    file = config.rootpath / nodeid.partition("::")[0]
    base = config.invocation_params.dir
    return within(file, [Path(os.path.abspath(base / a)) for a in config.args if "::" not in a])


def within(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path is one of ``roots`` or lies under one."""
    return any(path == root or root in path.parents for root in roots)
