"""What users import, run and name by text keeps its place, and what documents and programs name exists."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

KEPT_NAMES = {
    "kerntune": (
        "Autotuner", "Config", "DeviceSpec", "Environment", "KerntuneError", "Target", "autotune", "install",
        "matmul", "persistent_reduction", "pointwise", "reduction", "split_scan",
    ),
    "kerntune.errors": (
        "BackendError", "BaselineError", "CacheError", "CacheMissError", "CaptureError", "CompileError",
        "ConfigError", "EnvironmentFault", "GridError", "HintError", "InterpreterLimit", "KernelFault",
        "KernelTimeout", "KerntuneError", "MeasurementError", "NoGpuError", "OutOfResourcesError",
        "ReferenceMismatch", "ReplayError", "StoreError", "TargetError", "TrialError", "TuningError",
        "UsageError",
    ),
    "kerntune.grids": (
        "BatchMatmulGrid3D", "BoundGrid", "Choice", "CooperativeReductionGrid", "FixedGrid", "Grid", "Grid1D",
        "Grid2D", "Grid2DWithYZOverflow", "Grid3D", "MixOrderReductionGrid", "Name",
        "PrecomputedGrid", "RoundRobinComboKernelGrid", "SequentialComboKernelGrid",
        "SequentialFlattenComboKernelGrid", "SplitScanGrid", "SubKernel", "add", "ceil_div", "check_grid",
        "grid_triple", "maximum", "minimum", "mul",
    ),
    "kerntune.heuristics": (
        "ComboGroup", "ComboPlan", "Field", "INDUCTOR_2_13", "INDUCTOR_2_15", "INDUCTOR_2_6", "LookupTable",
        "MEASURED_2026", "Neighbourhood", "PRESETS", "Preset", "Read", "Split", "SubKernel", "TtirCounts",
        "combo", "cooperative_reduction", "count_ttir", "fixed_config", "foreach",
        "improves", "kernel_hash", "may_descend", "may_scale", "named_blocks",
        "neighbourhood", "persistent_reduction", "pointwise", "read_of", "read_table", "reduction",
        "reduction_split", "round_sizes", "rsplit", "scale_reductions", "scaled_down", "second_stage_hint",
        "sizes_from_arguments", "spill_threshold", "split_scan", "template", "tile_hint", "user_autotune",
        "without_pipelining", "without_spilling", "write_table",
    ),
    "kerntune.search": (
        "Budget", "BudgetedSearch", "Choice", "Found", "Measure", "Measured", "Predicted", "Range", "Search",
        "Space", "Tried", "combo_search",
    ),
    "kerntune.cli": (
        "main",
    ),
    "pytest_kerntune.warning": (
        "KerntuneWarning",
    ),
}  # fmt: skip
"""Names that users import, by their modules."""


@pytest.mark.parametrize("module", KEPT_NAMES)
def test_names_that_users_import_are_there_without_a_warning(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = importlib.import_module(module)
        missing = [name for name in KEPT_NAMES[module] if getattr(found, name, None) is None]
    assert missing == []


# commands


def test_the_installed_command_is_where_it_was() -> None:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"kerntune": "kerntune.cli:main"}
    assert project["entry-points"]["pytest11"] == {"kerntune": "pytest_kerntune.plugin"}
    installed = importlib.metadata.entry_points(group="console_scripts", name="kerntune")
    if not installed:
        pytest.skip("kerntune isn't installed")
    (entry,) = installed
    assert entry.value == "kerntune.cli:main"
    assert entry.load() is importlib.import_module("kerntune.cli").main


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "kerntune", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "baselines" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "kerntune", "nothing"], capture_output=True, text=True, cwd=ROOT)
    assert wrong.returncode == 2, "the command's exit code is the process's"


STABLE = frozenset(
    {
        "kerntune",
        "kerntune.base.store_process",
        "kerntune.cli.bisect.run_server",
        "kerntune.compiling.compile_worker",
        "kerntune.referee.sealed_process",
        "kerntune.timing.worker",
        "pip",
        "pytest",
        "pytest_kerntune.sealed_tasks",
    }
)
"""What processes of ours are started as. Another revision's interpreter or checkout has ``kerntune`` and pytest; a
worker, the fork server of sealed processes, and the process that bisects are always of this one."""

STARTED = re.compile(r'(?:(?:python|executable),\s*"-m",|\bmodule_command\(|\bmodule(?:: str = |=))\s*"([\w.]+)"')


def test_processes_are_started_by_names_that_other_revisions_have_too() -> None:
    """``kerntune.cli.command`` ran in another environment would fail under every earlier kerntune."""
    found = set()
    for folder in ("kerntune", "pytest_kerntune"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(STARTED.findall(path.read_text(encoding="utf-8")))
    assert found == STABLE


# folders found by counting


def counted_folders() -> list[tuple[str, Path]]:
    """Module and folder of every ``Path(__file__).parents[N]`` and ``Path(module.__file__).parents[N]`` of ours."""
    found = []
    for path in sorted(p for top in ("kerntune", "pytest_kerntune") for p in (ROOT / top).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"Path\((?:(\w+)\.)?__file__\)(?:\.resolve\(\))?\.parents\[(\d)\]", text):
            file = imported_file(text, match[1]) if match[1] else path
            found.append((str(path.relative_to(ROOT)), file.parents[int(match[2])]))
    return found


def imported_file(text: str, name: str) -> Path:
    """The file of a module that ``text`` imports as ``name``."""
    match = re.search(rf"^ *from ([\w.]+) import .*\b{name}\b", text, re.MULTILINE)
    assert match is not None
    return ROOT.joinpath(*match[1].split("."), f"{name}.py")


def test_what_a_module_puts_in_front_of_the_path_is_the_folder_of_the_packages() -> None:
    """A module that moves deeper counts to another folder: the processes it starts would import another kerntune."""
    found = counted_folders()
    assert found
    assert [(module, folder) for module, folder in found if folder != ROOT] == []


# what the documents say


FENCE = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def documented_imports() -> list[tuple[str, str]]:
    """Page and statement: each import of a module of ours in the Python blocks of the README and of ``docs/``."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for indent, block in FENCE.findall(path.read_text(encoding="utf-8")):
            for line in block.splitlines():
                statement = line.removeprefix(indent).strip().removeprefix(">>> ").partition("#")[0].strip()
                if re.match(r"(from|import) (pytest_)?kerntune\b", statement):
                    found.append((path.name, statement))
    return found


def test_documented_imports_work() -> None:
    pytest.importorskip("torch")
    statements, wrong = documented_imports(), []
    assert any(s.startswith("from kerntune.search import") for _, s in statements)
    assert len(statements) >= 8
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        for page, statement in statements:
            try:
                exec(statement, {})
            except Exception as exc:
                wrong.append(f"{page}: {statement}: {exc}")
    assert wrong == []


def test_examples_import_what_exists() -> None:
    for path in sorted((ROOT / "examples").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "kerntune":
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names)


# programs held as text


IMPORT = re.compile(r"from ((?:pytest_)?kerntune[\w.]*) import \(?([\w, ]+)")


def imports_in_strings() -> list[tuple[str, str, str]]:
    """File, module and names of ``from kerntune... import names`` in strings.

    They are programs that tests and benchmarks run in other processes.
    """
    found = []
    for path in sorted(p for top in ("tests", "benchmarks") for p in (ROOT / top).rglob("*.py") if p.is_file()):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found += [(str(path.relative_to(ROOT)), *match) for match in IMPORT.findall(node.value)]
    return found


def is_importable(module: str, name: str) -> bool:
    try:
        return (
            hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None
        )
    except ImportError:
        return False


@pytest.mark.slow
def test_programs_in_strings_import_what_exists() -> None:
    pytest.importorskip("torch")
    missing, found = [], imports_in_strings()
    assert len(found) > 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for file, module, names in found:
            each = [n.partition(" as ")[0].strip() for n in names.split(",")]
            missing += [f"{file}: {module}.{name}" for name in each if name and not is_importable(module, name)]
    assert missing == []
