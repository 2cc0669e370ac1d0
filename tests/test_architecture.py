"""The packages and layers of docs/architecture.md, held against what the modules import."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from kerntune.cli.command import COMMANDS

ROOT = Path(__file__).parent.parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("grids", "heuristics", "kernels"),
    ("search", "compiling"),
    ("gpu", "static"),
    ("capture", "timing"),
    ("tuning",),
    ("gate", "referee"),
    ("cli", "pytest_kerntune"),
)
"""The packages. One imports only from layers before its own: not from its neighbours, and never from a later one."""

LAYER_OF = {package: i for i, layer in enumerate(LAYERS) for package in layer}

LOOSE = frozenset({"errors"})
"""Modules beside the packages. All may import them; they import nothing of ours."""

PURE = ("base", "grids", "heuristics", "search")
"""Packages that import neither torch nor triton, in any of their modules."""

HEAVY = frozenset({"torch", "triton"})

MAY_IMPORT_HEAVY = (
    "kerntune.gpu",
    "kerntune.kernels",
    "kerntune.gpu.interpreter",  # runs kernels on the CPU
    "kerntune.compiling",  # compiles, in processes of its own
    "kerntune.compiling.compiler",
    "kerntune.capture",
    "kerntune.kernels.compat",
    "kerntune.gate.call",
    "kerntune.referee.candidate_recorder",  # runs in a process of its own, on users' tensors
    "kerntune.referee.process_state",  # the same
    "kerntune.referee.call_inputs",  # the same
    "kerntune.referee.device_operators",  # the same
    "kerntune.referee.operator_replay",  # runs torch's operators again
    "kerntune.referee.torch_operators",  # their overloads
    "kerntune.referee.reference_results",  # the same
    "kerntune.referee.reference_runs",  # the same
    "kerntune.referee.product_operands",  # the same, for what they call
    "kerntune.referee.moved_results",  # the same
    "kerntune.referee.open_elements",  # the same, for what is torch's
    "kerntune.referee.exact_operators",  # the same
    "kerntune.referee.reference_operators",  # the same
    "kerntune.referee.live_reference",  # the same
    "kerntune.timing.timers",  # torch's own profiler, asked for by name only
    "kerntune.tuning.api.install",  # replaces Triton's own decorator
    "kerntune.tuning.choices",  # calls, compares and traces functions of tensors
    "kerntune.tuning.torch_compile",  # defines an operator of torch's
    "kerntune.tuning.api.autotuner",  # subclasses Triton's own Autotuner, for isinstance() in users' code
)

EXPORTS = {
    "kerntune": {
        "Autotuner",
        "ComboPart",
        "Config",
        "DeviceSpec",
        "Environment",
        "KerntuneError",
        "Target",
        "autotune",
        "bandwidth",
        "choice",
        "combo",
        "cooperative_reduction",
        "fingerprint",
        "foreach",
        "grid_barrier",
        "template",
        "descend",
        "install",
        "judge",
        "matmul",
        "persistent_reduction",
        "pointwise",
        "reduction",
        "split_scan",
        "tune_many",
        "tuning_job",
    },
    "kerntune.gpu": set(),
    "kerntune.gpu.emulator": {"replay_results"},
    "kerntune.gpu.fake_cuda": {"StandInEnd", "StandIns", "static_reason"},
    "kerntune.compiling.binary": set(),
    "kerntune.tuning.torch_compile": set(),
    "kerntune.tuning.choices": set(),
    "kerntune.tuning.cache": {
        "StoredTrial",
        "TrialCache",
        "TrialKey",
        "Winner",
        "WinnerCache",
        "WinnerKey",
        "add_shipped",
        "export_cache",
        "export_devices",
        "import_cache",
    },
    "kerntune.cli": {"main"},
    "kerntune.capture": {
        "LAUNCH_WORDS",
        "Candidate",
        "Capture",
        "Pending",
        "Probe",
        "Site",
        "current",
        "wait_while_suspended",
    },
    "kerntune.kernels.compat": set(),
    "kerntune.kernels.dispatch": {"LaunchPath", "LaunchOutcome", "compile_front"},
    "kerntune.compiling": set(),
    "kerntune.gate.api": {"Call", "Checked", "Session", "Settings", "compare_reference", "open_session"},
    "kerntune.gpu.interpreter": {"Interpreter", "limit_of"},
    "kerntune.kernels": set(),
    "kerntune.timing": set(),
    "kerntune.gate.reporting": set(),
    "kerntune.search": {
        "Budget",
        "BudgetedSearch",
        "Choice",
        "Descent",
        "Found",
        "Measure",
        "Measured",
        "Predicted",
        "Range",
        "Search",
        "AnySearch",
        "ComboSearch",
        "Space",
        "Tried",
        "combo_search",
    },
    "kerntune.static": {
        "BinaryInput",
        "DEFAULT_RULES",
        "Finding",
        "StaticMetrics",
        "Violation",
        "compare_static",
        "launch_violations",
        "metrics_of",
    },
    "kerntune.tuning": set(),
    "kerntune.timing.worker": set(),
    "pytest_kerntune": set(),
}
"""What packages offer. ``kerntune.grids`` has its own test; a package that isn't here must re-export nothing."""

PINNED_ELSEWHERE = frozenset({"kerntune.grids", "kerntune.heuristics"})


@dataclass(frozen=True)
class Module:
    """A source file, parsed by the first test that asks."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def package(self) -> str:
        return package_of(self.name)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def package_of(name: str) -> str:
    """``kerntune.gate.call`` is in ``gate``; the package's own ``__init__`` is in none."""
    head, _, rest = name.partition(".")
    return rest.partition(".")[0] if head == "kerntune" else head


def load(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path)


MODULES = {m.name: m for top in ("kerntune", "pytest_kerntune") for m in map(load, sorted((ROOT / top).rglob("*.py")))}
OURS = frozenset({"kerntune", "pytest_kerntune"})


def is_type_checking(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


@cache
def all_nodes(tree: ast.AST, running: bool = False) -> list[ast.AST]:
    """Everything in a tree, function bodies too; if ``running``, without what only type checkers see."""
    found, todo = [], [tree]
    while todo:
        node = todo.pop()
        if running and is_type_checking(node):
            todo += node.orelse
            continue
        found.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                todo += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
    return found


@cache
def imports(module: Module, types: bool = False) -> set[str]:
    """Dotted names that a module imports, wherever in it; of ``from a import b`` the module ``a.b`` if it is one.

    With ``types`` also what only type checkers import.
    """
    found: set[str] = set()
    for node in all_nodes(module.tree, running=not types):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name}: relative imports hide which package they are from"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return found


@cache
def calls(module: Module) -> list[tuple[str, ast.Call]]:
    """All calls in a module, with the text of what is called."""
    return [(ast.unparse(node.func), node) for node in all_nodes(module.tree) if isinstance(node, ast.Call)]


def top(name: str) -> str:
    return name.partition(".")[0]


def ours(names: set[str]) -> set[str]:
    return {n for n in names if top(n) in OURS}


COMPARES_TRITONS = (
    "kerntune.compiling.frontend",
    "kerntune.compiling.worker_process",
    "kerntune.compiling.protocol",
    "kerntune.compiling.compile_worker",
)
"""The farm's two sides make sure that they run the same Triton under the same settings; nothing branches on which."""


# packages


def packages_on_disk() -> set[str]:
    return {p.parent.name for p in (ROOT / "kerntune").glob("*/__init__.py")}


def packages_in_packages() -> list[str]:
    """All packages but ``kerntune`` itself, which says to users what it is for."""
    found = {n for n, m in MODULES.items() if m.is_package and m.path.parent.parent != ROOT}
    return sorted(found | {"pytest_kerntune"})


def test_every_package_has_its_layer() -> None:
    """And every layer its packages: a name that is no package any more would hide that nothing is checked."""
    assert packages_on_disk() | {"pytest_kerntune"} == set(LAYER_OF)
    assert len(LAYER_OF) == sum(len(layer) for layer in LAYERS)


def test_the_house_stays_small() -> None:
    """Whoever wants a further package or layer looks for two that can be one."""
    assert len(packages_on_disk()) <= 14
    assert len(LAYERS) <= 8
    assert len(TWICE) <= 4


@pytest.mark.slow
def test_a_gate_needs_no_report() -> None:
    """``gate.reporting`` takes finished runs: what comes to a verdict never imports it."""
    users = {n for n, m in MODULES.items() if any(u.startswith("kerntune.gate.reporting") for u in imports(m, True))}
    inside = {n for n in users if n.startswith("kerntune.gate.")}
    assert users - inside
    assert {n for n in inside if not n.startswith("kerntune.gate.reporting")} == set()


def test_no_module_lies_beside_the_packages() -> None:
    beside = {p.stem for p in (ROOT / "kerntune").glob("*.py")} - {"__init__"}
    assert beside == LOOSE | {"__main__"}
    assert ours(imports(MODULES["kerntune.__main__"])) == {"kerntune.cli"}


def test_tests_mirror_the_packages() -> None:
    folders = {p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and any(p.glob("test_*.py"))}
    assert set(LAYER_OF) <= folders
    assert folders - set(LAYER_OF) <= {"benchmarks", "community"}


@pytest.mark.parametrize(
    "name", ["HEAVY", "EXPORTS", "COMPARES_TRITONS", "WRITES_FUNCTIONS", "PINNED_ELSEWHERE", "BY_TEXT"]
)
def test_what_the_checks_name_exists(name: str) -> None:
    """A check of a module that was renamed would be skipped in silence."""
    tables = {"HEAVY": MAY_IMPORT_HEAVY}
    named = set(tables.get(name, globals().get(name, ())))
    assert named
    assert named - set(MODULES) == set()


def test_the_document_has_the_same_table() -> None:
    rows = re.findall(r"^\| \d \| ((?:`\w+/` ?)+) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert [tuple(name.rstrip("/") for name in re.findall(r"`([^`]+)`", row)) for row in rows] == list(LAYERS)


def test_packages_say_what_lives_there() -> None:
    """A paragraph each, of packages in packages too: what belongs here, and what never does."""
    texts = {name: ast.get_docstring(MODULES[name].tree) or "" for name in packages_in_packages()}
    assert [name for name, text in texts.items() if len(text.split()) < 25] == []
    silent = [n for n, text in texts.items() if not re.search(r"\b(never|not|no|nothing|neither)\b", text.lower())]
    assert silent == [], "they don't say what never belongs there"


@pytest.mark.slow
def test_imported_modules_of_ours_exist() -> None:
    """A name that isn't a module of ours would slip through every test below."""
    missing = {n for m in MODULES.values() for n in ours(imports(m)) if n not in MODULES}
    assert missing == set()


def test_imports_only_earlier_layers() -> None:
    wrong = {}
    for name, module in MODULES.items():
        if module.package in LAYER_OF:
            used = {package_of(n) for n in ours(imports(module))} - {"", module.package} - LOOSE
            wrong[name] = sorted(package for package in used if not LAYER_OF[package] < LAYER_OF[module.package])
    assert {name: packages for name, packages in wrong.items() if packages} == {}, "not in a layer before their own"


@pytest.mark.parametrize("types", [False, True])
def test_no_cycles_among_modules(types: bool) -> None:
    """None at run time, and none for readers: an import for types alone closes a circle as well."""
    graph = {name: ours(imports(m, types)) - {name, "kerntune"} for name, m in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        pytest.fail(f"modules import each other in a circle: {exc.args[1]}")


def test_package_itself_imports_base_only() -> None:
    assert {package_of(n) for n in ours(imports(MODULES["kerntune"]))} <= {"base", *LOOSE}


def test_loose_modules_import_nothing_of_ours() -> None:
    for name in LOOSE:
        assert ours(imports(MODULES[f"kerntune.{name}"])) == set()


def test_inside_only_the_version_comes_from_the_package_itself() -> None:
    """``from kerntune import autotune`` inside kerntune would hide a package behind the lazy names."""
    wrong = []
    for module in MODULES.values():
        for node in all_nodes(module.tree, running=True):
            if isinstance(node, ast.ImportFrom) and node.module == "kerntune":
                wrong += [
                    f"{module.name}: {a.name}"
                    for a in node.names
                    if a.name != "__version__" and f"kerntune.{a.name}" not in MODULES
                ]
    assert wrong == []


BY_TEXT = frozenset(
    {
        "kerntune",
        "kerntune.cli.bisect.run_server",
        "kerntune.cli.command",
        "kerntune.kernels.compat.versions",
        "kerntune.tuning.many.describing",
    }
)


def test_nothing_is_imported_by_text() -> None:
    """Imports by text escape every test here. ``BY_TEXT`` may: lazy names, the table of commands, the module of a
    kernel that the user wants tuned, a table of torch's private parts, and what a copied process has imported."""
    callers = {
        m.name
        for m in MODULES.values()
        for called, _ in calls(m)
        if called in ("__import__", "importlib.import_module", "pkgutil.resolve_name")
    }
    assert callers <= BY_TEXT


WRITES_FUNCTIONS = frozenset({"kerntune.kernels.dispatch.codegen", "kerntune.kernels.combined"})
"""Run text of their own making: launch functions, as Triton writes its binders; kernels that call a combo's parts. Only
parameters' names vary in it."""


def test_nothing_is_executed() -> None:
    """What is read from disk is never run as Python: no pickle, no eval, no exec."""
    wrong = [
        f"{m.name}: {called}"
        for m in MODULES.values()
        if m.name not in WRITES_FUNCTIONS
        for called, _ in calls(m)
        if called in ("eval", "exec", "marshal.loads")
    ]
    wrong += [m.name for m in MODULES.values() if {"pickle", "marshal", "shelve", "dill"} & set(map(top, imports(m)))]
    assert wrong == []


ENDS_BY_ITSELF = frozenset(
    {
        "kerntune.compiling.fork_client",  # the server watches its socket and this process
        "kerntune.referee.sealed_process",  # the fork server watches its socket and this process
        "kerntune.compiling.worker_process",  # base.orphans.end_with_parent
        "kerntune.base.child_process",  # base.orphans.end_with_parent
        "kerntune.tuning.cache.store_client",  # its process is given this one's id
        "kerntune.gate.git",  # git: killed, it could leave its locks in the user's repository
        "kerntune.cli.bisect.preloaded",  # the server's socket is closed, and it ends its copies
        "kerntune.cli.tune",  # the user's own program, which outlives this one as it would outlive a shell
    }
)
"""Modules whose processes end soon, or notice by other means that this one has ended."""


def test_programs_end_with_the_process_that_waits_for_them() -> None:
    """A second pytest, or a disassembler, would go on for minutes after a run that was killed."""
    unbound = [
        f"{m.name}:{node.lineno}"
        for m in MODULES.values()
        if m.name not in ENDS_BY_ITSELF
        for called, node in calls(m)
        if called.startswith("subprocess.")
        and "bound_command(" not in ast.unparse(node.args[0] if node.args else node)
        and called not in ("subprocess.TimeoutExpired", "subprocess.CompletedProcess")
    ]
    assert unbound == []


# torch and triton


def test_pure_packages_import_neither_torch_nor_triton() -> None:
    pure = {*PURE, *LOOSE}
    heavy = {m.name: sorted(HEAVY & set(map(top, imports(m)))) for m in MODULES.values() if m.package in pure}
    assert {name: found for name, found in heavy.items() if found} == {}


def test_torch_and_triton_are_behind_few_modules() -> None:
    allowed = tuple(f"{one}." for one in MAY_IMPORT_HEAVY)
    wrong = {n for n, m in MODULES.items() if HEAVY & set(map(top, imports(m))) and not f"{n}.".startswith(allowed)}
    assert wrong == set(), "ask compat, backend or kernels instead"


def loaded_by(statement: str) -> list[str]:
    code = f"{statement}\nimport sys; print(*sorted({{'torch', 'triton'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.split()


def test_importing_kerntune_loads_neither() -> None:
    assert loaded_by("import kerntune; kerntune.Config; kerntune.Target") == []


def test_loading_the_plugin_loads_neither() -> None:
    assert loaded_by("import pytest_kerntune.plugin") == []


@pytest.mark.slow
def test_loading_the_gate_loads_neither() -> None:
    """Triton alone takes as long as all that the gate imports; a compiler that a module makes would load it."""
    assert loaded_by("import kerntune.gate.api") == []


LOADED_LATER: Mapping[str, tuple[str, ...]] = {
    "kerntune": ("msgspec", "numpy", "kerntune.base", "kerntune.gpu", "kerntune.kernels", "kerntune.tuning"),
    "kerntune.cli.command": (
        "msgspec", "numpy", "kerntune.base", "kerntune.gate.api", "kerntune.gate.project", "kerntune.tuning",
    ),
    "pytest_kerntune.plugin": (
        "configparser", "numpy", "tomllib", "kerntune.gate.api", "kerntune.gate.project", "kerntune.gpu",
        "kerntune.tuning",
    ),
    "kerntune.gate.api": (
        "fsspec", "importlib.metadata", "kerntune.capture.inductor.launches", "kerntune.capture.launch_dump",
        "kerntune.cli",
        "kerntune.gate.call_tuning", "kerntune.gate.case_output", "kerntune.gate.code_changes",
        "kerntune.gate.gpu_check", "kerntune.gate.reporting", "kerntune.gate.static_check",
        "kerntune.gpu.fake_cuda.static_backend",
        "kerntune.gpu.interpreter", "kerntune.gpu.result_compare", "kerntune.gpu.result_kernels",
        "kerntune.grids", "kerntune.heuristics", "kerntune.search",
        "kerntune.tuning.admission", "kerntune.tuning.agreement", "kerntune.tuning.api", "kerntune.tuning.candidates",
        "kerntune.tuning.consensus", "kerntune.tuning.device_figures", "kerntune.tuning.launch_files",
        "kerntune.tuning.many", "kerntune.tuning.torch_compile",
        "kerntune.tuning.race", "kerntune.tuning.tuner", "kerntune.tuning.tuning_result",
    ),
    "kerntune.gate.static_check": (
        "kerntune.gate.baseline_builder", "kerntune.gate.call_tuning", "kerntune.gate.comparison",
        "kerntune.gate.gpu_check", "kerntune.gate.replay", "kerntune.timing.paired_processes",
        "kerntune.tuning.admission", "kerntune.tuning.candidates", "kerntune.tuning.race",
    ),
    "kerntune.compiling.compile_worker": ("numpy", "kerntune.gpu", "kerntune.tuning"),
    "kerntune.timing.worker.serve": (
        "numpy", "pathlib", "kerntune.compiling", "kerntune.gpu.result_compare", "kerntune.gpu.result_kernels",
        "kerntune.kernels", "kerntune.tuning",
    ),
}  # fmt: skip
"""What each way in doesn't load before it is needed: most runs need it never. Every process pays for what a module
imports when it is imported itself; a function that few runs call imports what only it needs."""


@pytest.mark.parametrize("name", LOADED_LATER)
def test_what_few_runs_need_is_not_loaded_by_the_ways_in(name: str) -> None:
    code = f"import sys; before = set(sys.modules)\nimport {name}\nprint(*sorted({{*sys.modules}} - before))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert name in loaded
    assert [m for m in loaded if any(f"{m}.".startswith(f"{later}.") for later in LOADED_LATER[name])] == []


LOADED_BY: Mapping[str, tuple[str, ...]] = {
    "kerntune.timing.worker.serve": (
        "base.config", "base.device", "base.formatting", "base.frames", "base.locks", "base.numerics",
        "base.orphans", "base.policy", "base.recording", "base.stats", "base.strict", "errors", "gpu.base",
        "gpu.compare", "gpu.cuda_driver", "gpu.device_lock", "gpu.driver_gpu", "gpu.early_context",
        "gpu.foreign_work", "gpu.guards", "gpu.memory", "gpu.program", "gpu.replay_script", "gpu.staging",
        "timing.paired", "timing.sampling", "timing.timers", "timing.worker.requests", "timing.worker.serve",
    ),
    "kerntune.timing.worker.first_launch_server": (
        "base.config", "base.device", "base.frames", "base.locks", "base.numerics", "base.orphans", "base.recording",
        "base.strict", "errors", "gpu.base", "gpu.compare", "gpu.cuda_driver",
        "gpu.device_lock", "gpu.driver_gpu", "gpu.early_context", "gpu.guards", "gpu.memory", "gpu.program",
        "gpu.replay_script", "gpu.staging", "timing.worker.first_launch_server", "timing.worker.requests",
    ),
}  # fmt: skip
"""All modules of ours that a measuring process and one for first launches load until they are ready, with the driver's.
A tuning and a replay wait for their starts, so a further module here needs a reason."""


@pytest.mark.parametrize("name", LOADED_BY)
def test_processes_on_a_gpu_load_these_modules_alone(name: str) -> None:
    code = f"import sys, {name}, kerntune.gpu.driver_gpu, kerntune.gpu.early_context\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert loaded & {"torch", "triton", "numpy"} == set()
    assert {n for n in ours(loaded) if not MODULES[n].is_package} == {f"kerntune.{n}" for n in LOADED_BY[name]}


@pytest.mark.parametrize("package", PURE)
def test_each_pure_package_loads_neither(package: str) -> None:
    """By import as well: a pure module could load torch through numpy's or msgspec's extras."""
    names = [n for n, m in MODULES.items() if m.package == package]
    assert names
    assert loaded_by(f"import {', '.join(sorted(names))}") == []


# versions of Triton


def triton_names(module: Module) -> set[str]:
    """Local names that stand for Triton or something imported from it."""
    names: set[str] = set()
    for node in all_nodes(module.tree, running=True):
        if isinstance(node, ast.Import):
            names.update(a.asname or top(a.name) for a in node.names if top(a.name) == "triton")
        elif isinstance(node, ast.ImportFrom) and node.module and top(node.module) == "triton":
            names.update(a.asname or a.name for a in node.names)
    return names


def version_checks(module: Module) -> list[str]:
    """Places where a module asks which Triton this is: its version compared, or its modules probed for a name."""
    found, triton = [], triton_names(module)
    for node in all_nodes(module.tree, running=True):
        if isinstance(node, ast.Compare):
            text = ast.unparse(node)
            if "triton_version" in text or "triton_series" in text or "triton.__version__" in text:
                found.append(text)
        elif isinstance(node, ast.Attribute) and node.attr == "__version__" and ast.unparse(node.value) in triton:
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr"):
            if node.args and ast.unparse(node.args[0]).partition(".")[0] in triton:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node).endswith("metadata.version('triton')"):
            found.append(ast.unparse(node))
    return found


@pytest.mark.slow
def test_only_compat_asks_for_tritons_version() -> None:
    found = {name: checks for name, m in MODULES.items() if (checks := version_checks(m))}
    compat = {name for name in found if name.startswith("kerntune.kernels.compat")}
    assert compat, "the finder finds: compat itself has some"
    assert {n: checks for n, checks in found.items() if n not in compat and n not in COMPARES_TRITONS} == {}


# docstrings and exports


def test_modules_say_what_they_are_in_one_line() -> None:
    lines = {name: (ast.get_docstring(m.tree) or "").partition("\n") for name, m in MODULES.items()}
    wrong = {n for n, (first, _, rest) in lines.items() if not first.endswith(".") or (rest and rest[0] != "\n")}
    assert wrong == set(), "their first line isn't a sentence of its own"


def exported(module: Module) -> set[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_exports_are_pinned() -> None:
    packages = {n for n, m in MODULES.items() if m.is_package or n in EXPORTS} - PINNED_ELSEWHERE
    assert {name: exported(MODULES[name]) for name in packages} == {name: EXPORTS.get(name, set()) for name in packages}


def test_exports_exist() -> None:
    packages = {name: importlib.import_module(name) for name in EXPORTS}
    assert [f"{name}.{n}" for name, names in EXPORTS.items() for n in names if not hasattr(packages[name], n)] == []


def test_unknown_names_of_the_package_are_attribute_errors() -> None:
    import kerntune

    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = kerntune.no_such_thing


def test_packages_only_re_export() -> None:
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
    bodies = {n: m.tree.body for n, m in MODULES.items() if m.is_package and n != "kerntune"}
    assert [name for name, body in bodies.items() for node in body if not isinstance(node, kinds)] == []
    assigned = {n: [ast.unparse(a.targets[0]) for a in b if isinstance(a, ast.Assign)] for n, b in bodies.items()}
    assert {name: names for name, names in assigned.items() if names not in ([], ["__all__"])} == {}


def test_what_is_imported_late_is_completed_as_well() -> None:
    package = importlib.import_module("kerntune")
    assert set(package.__all__) <= set(dir(package))
    assert all(hasattr(package, name) for name in dir(package))


@pytest.mark.parametrize("name", ["grids", "heuristics", "search"])
def test_packages_are_found_without_an_import_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README writes ``kerntune.grids.Grid1D`` after ``import kerntune``."""
    package, found = importlib.import_module("kerntune"), importlib.import_module(f"kerntune.{name}")
    monkeypatch.delattr(package, name)
    assert getattr(package, name) is found
    assert name in dir(package)


# names held as text

TEXTS = ("Makefile", "README.md", "CONTRIBUTING.md", "pyproject.toml", "benchmarks/mutants/mutants.toml")

DISK_NAMES = re.compile(r"kerntune\.(json|\w+/\d+|\w+(?=[/\"`'{]))")
"""Schemas and files: ``kerntune.time/2``, ``kerntune.json``."""


DOTTED = re.compile(r"(?:pytest_)?kerntune/[\w/]+\.(?!(?:py|c|h|json|md)$)[A-Za-z_]\w*(?:\.\w+)*")
"""``pytest_kerntune/fixture.Record.commit``: a function in a module, not a file."""


def texts() -> Iterator[tuple[str, str]]:
    named = [ROOT / name for name in TEXTS] + sorted((ROOT / "docs").rglob("*.md"))
    for folder in ("kerntune", "pytest_kerntune"):
        named += [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".py", ".c")]
    for path in named:
        yield str(path.relative_to(ROOT)), path.read_text()


def test_paths_of_ours_in_texts_exist() -> None:
    """The Makefile's test files, the mutation runs' modules, what the documents name: a move leaves none behind.

    A path after a commit (``9ed8fc62:benchmarks/ranks.py``) is git's: tests/benchmarks/test_provenance.py looks there.
    """
    ours = r"(?<![\w/.-])(?<![0-9a-f]{8}:)(?:kerntune|pytest_kerntune|benchmarks|docs)/[\w/.-]*\w"
    wrong = []
    for name, text in texts():
        for found in re.findall(ours, text):
            if name.endswith(".md") and DOTTED.fullmatch(found):
                continue  # tests/test_documented_names.py looks for the name in the module
            if not any((ROOT / f"{found}{suffix}").exists() for suffix in ("", ".py")):
                wrong.append(f"{name}: {found}")
    for name in ("Makefile", "CONTRIBUTING.md", "benchmarks/mutants/mutants.toml"):
        for found in re.findall(r"(?<![\w/.-])tests/[\w/.-]*\w", (ROOT / name).read_text()):
            if not (ROOT / found).exists():
                wrong.append(f"{name}: {found}")
    assert wrong == []


def test_modules_of_ours_in_texts_exist() -> None:
    """``sys.modules.get("kerntune...")``, ``-m kerntune...``, entry points, C types, references in docstrings."""
    wrong = []
    for name, text in texts():
        for match in re.finditer(r"(?<![\w/.-])(?:pytest_)?kerntune(?:\.[A-Za-z_]\w*)+", text):
            parts = match.group(0).split(".")
            known = max(n for n in range(1, len(parts) + 1) if n == 1 or ".".join(parts[:n]) in MODULES)
            module = MODULES[".".join(parts[:known])]
            inside = module.path.read_text()
            if known == 1 and DISK_NAMES.match(text, match.start()):
                continue
            if known < len(parts) and (module.path.parent / f"{parts[known]}.c").exists():
                continue
            if known < len(parts) and not re.search(rf"\b{parts[known]}\b", inside):
                wrong.append(f"{name}: {match.group(0)}")
    assert wrong == []


IMPORT_PATH = re.compile(r"Path\((?:(\w+)\.)?__file__\)\.resolve\(\)\.parents\[(\d)\]")


def test_import_paths_given_to_other_processes_are_the_root() -> None:
    """``parents[n]`` of a module's own file, or of another's that it imports: a move changes how deep that lies."""
    found = {}
    for module in MODULES.values():
        for other, above in IMPORT_PATH.findall(module.path.read_text()):
            names = [n for n in imports(module) if n.rpartition(".")[2] == other] if other else [module.name]
            found[module.name] = [MODULES[n].path.parents[int(above)] for n in names]
    assert len(found) >= 4
    assert {name: places for name, places in found.items() if places != [ROOT]} == {}


# names


def defined_names() -> Iterator[tuple[str, str]]:
    """Public classes and aliases with the module that defines them."""
    for module in MODULES.values():
        for node in module.tree.body:
            name = ""
            if isinstance(node, ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
            if re.fullmatch(r"[A-Z][a-z]\w*", name):
                yield name, module.name


def test_one_name_stands_for_one_thing() -> None:
    places: dict[str, set[str]] = {}
    for name, module in defined_names():
        places.setdefault(name, set()).add(module)
    assert {name: sorted(found) for name, found in places.items() if len(found) > 1} == {}


TWICE = {
    "launches": "of stand-ins, of the interpreter, and of code that Inductor generated: each way of running has one",
    "session": "of stand-ins, of the interpreter, of the gate and of pytest",
}
"""Module names that stand in two packages, and why."""


def test_module_names_occur_once() -> None:
    places: dict[str, list[str]] = {}
    for module in MODULES.values():
        if not module.is_package and not module.name.endswith("__main__"):
            places.setdefault(module.name.rpartition(".")[2], []).append(module.name)
    assert {stem for stem, found in places.items() if len(found) > 1} == set(TWICE)


# parts without a caller

FOR_TESTS = frozenset({"moved_parts", "scripted_host", "ScriptedSpeeds"})
"""What tests and benchmarks alone use: the check of torch's parts, a scripted host, and its speeds."""


def top_level_names(module: Module) -> Iterator[tuple[str, ast.stmt]]:
    """What a module defines; nothing that a decorator hands on, or that pytest calls by its name."""
    for node in module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not node.decorator_list and not node.name.startswith(("pytest_", "__")):
                yield node.name, node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and not target.id.startswith("__"):
                    yield target.id, node


def names_as_text(node: ast.AST) -> set[str]:
    """Names that a definition has as text: lazy names, what is replaced, what C looks up."""
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {text for text in texts if text.isidentifier()}


@pytest.mark.slow
def test_every_definition_is_used() -> None:
    """By something other than itself, in the packages. By name, so a lower bound."""
    uses = {f"{function}_arguments": 1 for _, function, _ in COMMANDS.values()}  # the command finds them by that name
    for module in MODULES.values():
        for statement in module.tree.body:
            for name in part_names(statement) | names_as_text(statement):
                uses[name] = uses.get(name, 0) + 1
    unused = {
        f"{module.name}.{name}"
        for module in MODULES.values()
        for name, node in top_level_names(module)
        if uses.get(name, 0) - (name in part_names(node) | names_as_text(node)) <= 0
    }
    assert {name for name in unused if name.rpartition(".")[2] not in FOR_TESTS} == set(), "nothing uses these"


SEED_PACKAGES = ("grids", "heuristics", "search")
"""Packages of pure decisions, which tests alone could keep alive."""


def part_names(node: ast.AST) -> set[str]:
    """The names that a definition uses, attributes too."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def definitions() -> dict[str, list[ast.stmt]]:
    """What the pure packages define at the top of their modules, by name."""
    found: dict[str, list[ast.stmt]] = {}
    for module in MODULES.values():
        if module.package not in SEED_PACKAGES or module.is_package:
            continue
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            for target in targets:
                name = getattr(target, "id", getattr(target, "name", ""))
                if name:
                    found.setdefault(name, []).append(node)
    return found


@pytest.mark.slow
def test_no_part_is_without_a_caller() -> None:
    """What other packages use, and what that uses in turn; grids are users' own. By name, so a lower bound."""
    parts = definitions()
    outside = [m for m in MODULES.values() if m.package not in SEED_PACKAGES]
    grids = importlib.import_module("kerntune.grids").__all__
    todo = [
        n
        for n in {*grids, "ComboGridPart", "GridChoice", *(n for m in outside for n in part_names(m.tree))}
        if n in parts
    ]
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [n for node in parts[name] for n in part_names(node) if n in parts]
    assert {n for n in parts if n not in reached and not n.startswith("_")} == set(), "only tests reach these"
