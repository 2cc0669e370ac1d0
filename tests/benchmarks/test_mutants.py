"""What the mutation run mutates, and that its operators and its list are right."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from inner import QUIET
from source_path import source_path

from benchmarks.mutants import mutants, mutants_guard, mutants_run

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = ROOT / "benchmarks" / "mutants" / "mutants.toml"


@pytest.fixture
def config() -> dict[str, Any]:
    return pytest.importorskip("tomllib").loads(CONFIG.read_text())


def test_every_module_and_test_that_is_listed_exists(config: dict[str, Any]) -> None:
    paths = [*config["tests"], *config["common"], *(path for tests in config["tests"].values() for path in tests)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_packages_are_listed_whole(config: dict[str, Any]) -> None:
    """A module that is added to the gate, the farm or the cache is mutated, too."""
    listed = {ROOT / path for path in config["tests"]}
    whole = {path.parent for path in listed if len(set(path.parent.glob("*.py")) & listed) > 5}
    assert len(whole) == 3
    missing = {path for folder in whole for path in folder.glob("*.py") if path.name != "__init__.py"} - listed
    assert sorted(str(path.relative_to(ROOT)) for path in missing) == []


def test_annotations_and_large_numbers_stay() -> None:
    made = module()
    source = "def f(x: int | None = 3) -> int | None:\n    y: str | int = 100\n    return x | y + 99\n"
    skipped = list(made.skipped_places(ast.parse(source)))
    lines = source.splitlines()
    assert sorted(lines[a[0] - 1][a[1] : b[1]] for a, b in skipped) == ["100", "int | None", "int | None", "str | int"]


def test_a_star_among_parameters_is_no_multiplication() -> None:
    lines = ["def f(x, *, y, *z):", "    return x * y"]
    assert [bool(module().bare_star(lines, 1, at)) for at in range(len(lines[0]))].index(True) == lines[0].index("*,")
    assert not module().bare_star(lines, 1, lines[0].index("*z"))
    assert not module().bare_star(lines, 2, lines[1].index("*"))


def test_calls_are_left_out_one_at_a_time() -> None:
    made = module()
    from cosmic_ray.mutating import mutate_code

    source = 'def f():\n    """Says f()."""\n    g(1)\n    x = g(2)\n    if x:\n        a.b.c()\n    return x\n'
    found = [mutate_code(source, made.DropCall(), i) for i in range(3)]
    assert found == [source.replace("g(1)", "pass"), source.replace("a.b.c()", "pass"), None]


def test_a_mutant_of_another_text_is_refused() -> None:
    text = "x = 1 + 2\n"
    one = {"name": "m:plus", "module": "m.py", "at": 6, "old": "+", "new": "-", "digest": "caf0a3c4b03e4e35"}
    one["digest"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert mutants_run.mutated(text, one) == "x = 1 - 2\n"
    with pytest.raises(ValueError, match="list the mutants anew"):
        mutants_run.mutated(text + "\n", one)


SIGNALS = """
import os, sys
import mutants_guard
before = mutants_guard.refused()
guarded = mutants_guard.guard()
def signal(send, *to):
    try:
        send(*to, 0)
    except PermissionError:
        return "refused"
    return "sent"
child = os.fork()
if child == 0:
    print(before, guarded, signal(os.kill, -1), signal(os.killpg, 1), signal(os.kill, 1), signal(os.kill, os.getpid()),
          signal(os.killpg, 0), flush=True)
    os.execv(sys.executable, [sys.executable, "-I", "-c", "import os; os.kill(-1, 0)"])
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_no_process_of_a_mutant_can_signal_all_others() -> None:
    """Neither a fork nor a program that it starts; others stay possible. Signal 0 does nothing."""
    if platform.machine() not in mutants_guard.CALLS:
        pytest.skip(f"no filter for {platform.machine()}")
    env = {**os.environ, "PYTHONPATH": source_path(ROOT / "benchmarks" / "mutants")}
    said = subprocess.run([sys.executable, "-S", "-c", SIGNALS], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["False True refused refused refused sent sent", "1"]
    assert "PermissionError" in said.stderr


def test_without_the_guard_mutants_near_signals_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a list that exists already, too."""
    near, far = {"module": "kerntune/base/orphans.py"}, {"module": "kerntune/base/stats.py"}
    assert mutants_run.safe([near, far], guarded=True) == [near, far]
    assert capsys.readouterr().out == ""
    assert mutants_run.safe([near, far], guarded=False) == [far]
    assert capsys.readouterr().out.startswith("1 mutants aren't tried")
    for path in (p for folder in ("kerntune", "pytest_kerntune") for p in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        assert not ("os.kill" in text and mutants_guard.tryable(text, guarded=False)), path


def row(by: str | None, **more: Any) -> dict[str, Any]:
    return {"killed": by is not None, "by": by, **more}


def test_a_kill_by_a_test_that_fails_without_a_change_does_not_count() -> None:
    rows = [row("test_a"), row("test_b"), row("test_b"), row(None), row("test_c", first="survived")]
    found = mutants_run.score({"rows": rows, "controls": [row(None), row("test_b")]})
    assert (found["tried"], found["killed"], found["killed_at_first"], found["not_settled"]) == (3, 2, 1, 2)
    assert (found["controls"], found["controls_failed"]) == (2, 1)


@pytest.mark.parametrize(
    ("killed", "tried", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)]
)
def test_the_interval_is_wilson_s(killed: int, tried: int, low: float, high: float) -> None:
    rows = [row("t" if i < killed else None) for i in range(tried)]
    found = mutants_run.score({"rows": rows, "controls": []})["share_killed"]
    assert found == [killed / tried, pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4)]


def test_one_run_in_twenty_has_no_change() -> None:
    given = [{"name": str(i), "old": "+", "new": "-", "change": "c"} for i in range(41)]
    found = list(mutants_run.with_controls(given))
    assert [m for m in found if m["new"] != m["old"]] == given
    assert [m["name"] for m in found if m["new"] == m["old"]] == ["0", "20", "40"]


def test_the_report_names_survivors_with_what_explains_them() -> None:
    config = mutants.Config(1, [], {"m.py": []}, {"m.py: `a` → `b`": "equivalent: it is"})
    rows = [
        {"module": "m.py", "line": 3, "change": "`a` → `b`", **row(None)},
        {"module": "m.py", "line": 4, "change": "`c` → `d`", **row("t", first="survived")},
        {"module": "m.py", "line": 1, "change": "`e` → `f`", **row(None)},
    ]
    made_by = {"date": "2026-11-22", "python": "3.11", "torch": "2.13", "triton": "3.9"}
    kept = {"rows": rows, "controls": [], "environment": made_by, "seed": 1, "of": 9}
    found = mutants.report(config, {**kept, "score": mutants_run.score(kept)}).splitlines()
    assert "| m.py | 3 | 0 | 1 |" in found
    assert found[0].startswith("3 mutants of 9 of the listed modules, at random with seed 1, ")
    assert found[-2:] == ["* m.py:1: `e` → `f`: **not explained yet**", "* m.py:3: `a` → `b`: equivalent: it is"]


def test_modules_with_no_survivor_are_one_row_of_the_report() -> None:
    rows = [{"module": name, "line": 1, "change": "c", **row("t")} for name in ("m.py", "n.py", "n.py")]
    made_by = {"date": "2026-11-22", "python": "3.11", "torch": "2.13", "triton": "3.9"}
    kept = {"rows": rows, "controls": [], "environment": made_by, "seed": 1, "of": 9}
    found = mutants.report(mutants.Config(1, [], {}, {}), {**kept, "score": mutants_run.score(kept)}).splitlines()
    assert [line for line in found if ".py" in line] == []
    assert "| 2 modules with no survivor at first | 3 | 3 | 3 |" in found


# samples of all packages

NONE_LISTED = mutants.Config(1, [], {"kerntune/gate/listed.py": ["tests/test_it.py"]}, {})


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("kerntune/errors.py", "kerntune"),
        ("kerntune/base/stats.py", "kerntune/base"),
        ("kerntune/gate/history/index.py", "kerntune/gate"),
        ("pytest_kerntune/plugin.py", "pytest_kerntune"),
    ],
)
def test_modules_are_of_the_packages_of_the_table_of_layers(module: str, package: str) -> None:
    assert mutants.package_of(module) == package


def test_every_module_has_tests_and_those_of_the_plugin_are_for_the_plugin_alone(config: dict[str, Any]) -> None:
    modules = mutants.all_modules()
    assert {"kerntune/errors.py", "kerntune/gate/history/index.py", "pytest_kerntune/plugin.py"} < set(modules)
    assert set(config["tests"]) < set(modules)
    made = mutants.Config(1, [], config["tests"], {})
    found = {module: mutants.tests_of(made, module) for module in modules}
    assert [module for module, tests in found.items() if not all(tests) or not tests] == []
    plugin = {m for m, tests in found.items() if any(file.startswith(mutants.PLUGIN_TESTS) for file in tests)}
    assert plugin == {module for module in modules if mutants.package_of(module) == "pytest_kerntune"}


IMPORTS = {
    "tests/gate/test_index.py": {"kerntune.base.x"},
    "tests/gate/history/test_index_more.py": set[str](),
    "tests/gate/history/test_indexes.py": set[str](),
    "tests/gate/test_other.py": {"kerntune.gate.history.index"},
    "tests/cli/test_far.py": {"kerntune.gate.history.index", "kerntune.gate.alone"},
    "tests/pytest_kerntune/test_alone.py": {"kerntune.gate.alone", "kerntune.gate.lost"},
    "tests/test_top.py": {"kerntune.gate"},
}


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("kerntune/gate/listed.py", ["tests/test_it.py"]),
        (
            "kerntune/gate/history/index.py",
            ["tests/cli/test_far.py", "tests/gate/history/test_index_more.py", "tests/gate/test_other.py"],
        ),
        ("kerntune/gate/alone.py", ["tests/cli/test_far.py"]),
        ("kerntune/gate/lost.py", ["tests/gate/test_index.py", "tests/gate/test_other.py"]),
        ("kerntune/gate/many/lost.py", ["tests/gate/test_index.py", "tests/gate/test_other.py"]),
        ("kerntune/gate/__init__.py", ["tests/gate/test_index.py", "tests/gate/test_other.py"]),
        ("kerntune/errors.py", ["tests/test_top.py"]),
        ("pytest_kerntune/_alone.py", ["tests/pytest_kerntune/test_alone.py"]),
    ],
    ids=["listed", "named or near", "far", "its folder", "the folder around", "init", "top", "plugin"],
)
def test_the_tests_of_a_module(monkeypatch: pytest.MonkeyPatch, module: str, tests: list[str]) -> None:
    monkeypatch.setattr(mutants, "_imports", lambda: IMPORTS)
    assert mutants.tests_of(NONE_LISTED, module) == tests


def test_a_module_that_everything_imports_is_tried_with_files_that_import_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {f"tests/cli/test_{i:02}.py": {"kerntune.gate.alone", *map(str, range(40 - i))} for i in range(20)}
    monkeypatch.setattr(mutants, "_imports", lambda: files)
    assert mutants.tests_of(NONE_LISTED, "kerntune/gate/alone.py") == sorted(files)[-mutants.FAR :]


def test_a_joined_module_has_the_tests_that_use_its_names_through_a_package() -> None:
    none = mutants.Config(1, [], {}, {})
    assert "tests/grids/test_combo_grids.py" in mutants.tests_of(none, "kerntune/grids/formulas.py")
    assert "tests/kernels/compat/test_versions.py" in mutants.tests_of(none, "kerntune/kernels/compat/tuners.py")
    assert "tests/cli/test_cache.py" in mutants.tests_of(none, "kerntune/cli/command.py")


def test_results_of_another_seed_are_moved_aside_and_of_the_same_one_kept(tmp_path: Path) -> None:
    out = tmp_path / "mutants.json"
    empty = {"rows": [], "controls": [], "errors": []}
    assert mutants_run.earlier(out, 7) == empty
    out.write_text(json.dumps({"seed": 7, "rows": [1]}))
    assert mutants_run.earlier(out, 7)["rows"] == [1]
    assert mutants_run.earlier(out, 8) == empty
    assert json.loads((tmp_path / "mutants.7.json").read_text())["rows"] == [1]
    assert not out.exists()


def test_imports_are_found_however_they_are_written() -> None:
    lines = ["import a.b", "from c.d import e, f as g", "x = 'import y'", "def h():", "    from i import (", "j,", "k)",
             "    g.used(e.more.of_it, x.e.other)"]  # fmt: skip
    text = "\n".join(lines)
    assert set(mutants._imported(text)) == {
        "a.b", "c.d", "c.d.e", "c.d.f", "i", "i.j", "i.k", "c.d.f.used", "c.d.e.more",
    }  # fmt: skip


def sample(monkeypatch: pytest.MonkeyPatch, seed: int, **sizes: int) -> dict[str, Any]:
    """Two mutants of each package, where modules have so many; the one numbered 0 of each can't be made."""
    paths = {f"kerntune/{package}/m.py": size for package, size in sizes.items()}
    fake = SimpleNamespace(
        specs_of=lambda module: {f"{module}:{i}": i for i in range(paths[module])},
        made=lambda name, spec: {"name": name, "module": name.partition(":")[0]} if spec else None,
    )
    monkeypatch.setitem(sys.modules, "benchmarks.mutants.mutants_made", fake)
    return mutants.listed_each(NONE_LISTED, list(paths), seed, 2)


def test_every_package_gives_as_many_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sample(monkeypatch, 7, base=3, gate=50, gpu=2)
    names = [m["name"] for m in found["mutants"]]
    assert [sum(f"/{package}/" in name for name in names) for package in ("base", "gate", "gpu")] == [2, 2, 1]
    assert found["packages"] == {"kerntune/base": 3, "kerntune/gate": 50, "kerntune/gpu": 2}
    assert (found["seed"], found["of"]) == (7, 55)
    assert set(found["tests"]) == {"kerntune/base/m.py", "kerntune/gate/m.py", "kerntune/gpu/m.py"}


def test_what_one_package_gives_depends_on_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_gate(seed: int, **sizes: int) -> set[str]:
        return {m["name"] for m in sample(monkeypatch, seed, **sizes)["mutants"] if "gate" in m["name"]}

    assert of_gate(7, base=3, gate=50) == of_gate(7, base=9, gate=50) == of_gate(7, gate=50)
    assert of_gate(7, gate=50) != of_gate(8, gate=50)


def test_the_seed_is_the_hash_of_a_commit_without_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"status": "", "rev-parse": "0000001fdeadbeef\n"}
    monkeypatch.setattr(subprocess, "check_output", lambda command, **_: said[command[1]])
    assert mutants.commit_seed() == 31
    said["status"] = " M kerntune/errors.py\n"
    with pytest.raises(RuntimeError, match="commit them or give --seed"):
        mutants.commit_seed()


def test_a_mutant_is_tried_with_all_tests_that_ran_its_lines(tmp_path: Path) -> None:
    """Its module's own files aside; of others, those with the most such tests."""
    coverage = pytest.importorskip("coverage")
    data = coverage.CoverageData(str(tmp_path / "ran"))
    errors = str(ROOT / "kerntune" / "errors.py")
    for context, lines in {
        "": [5, 6],
        "tests/test_errors.py::test_own|run": [5],
        "tests/gate/test_far.py::test_one|run": [6],
        "tests/cli/test_both.py::test_one|run": [5],
        "tests/cli/test_both.py::test_two|setup": [6],
        "tests/cli/test_elsewhere.py::test_it|run": [7],
    }.items():
        data.set_context(context)
        data.add_lines({errors: lines})
    data.write()
    mutant = {"module": "kerntune/errors.py", "line": 5, "old": "a\nb"}
    mutants.with_tests_that_ran([mutant], {"kerntune/errors.py": ["tests/test_errors.py"]}, tmp_path / "ran")
    assert mutant["more"] == ["tests/cli/test_both.py", "tests/gate/test_far.py"]
    with pytest.raises(FileNotFoundError, match="--cov-context=test"):
        mutants.with_tests_that_ran([], {}, tmp_path / "none")


def test_files_beyond_the_modules_give_only_tests_that_run_the_line(tmp_path: Path) -> None:
    known = {
        "own.py": mutants_run.Known({"own.py::a": 2.0, "own.py::b": 1.0}, (), {}, 3.0),
        "far.py": mutants_run.Known({"far.py::c": 1.5, "far.py::d": 0.5}, (), {("m.py", 3): ["far.py::c"]}, 2.0),
    }
    run = mutants_run.Run(tmp_path, {"tests": {"m.py": ["own.py"]}, "common": []}, {}, 1, 0.0, known)
    order = run.order_of({"module": "m.py", "line": 3, "old": "x", "more": ["far.py"]})
    assert order["first"] == ["far.py::c"]
    assert sorted(order["only"]) == ["far.py::c", "own.py::a", "own.py::b"]


def test_each_package_has_its_score_and_interval() -> None:
    def of(module: str, killed: int, tried: int) -> list[dict[str, Any]]:
        return [row("t" if i < killed else None, module=module, line=1, change="") for i in range(tried)]

    rows = [*of("kerntune/base/a.py", 8, 10), *of("pytest_kerntune/b.py", 10, 10)]
    rows.append(row("unsure", module="pytest_kerntune/b.py", line=1, change=""))
    kept = {"rows": rows, "controls": [row("unsure")]}
    sizes = {"kerntune/base": 900, "kerntune/gpu": 40, "pytest_kerntune": 70}
    table = mutants.package_table(mutants_run.package_scores(kept, sizes))
    assert table[2:] == [
        "| kerntune/base | 900 | 10 | 80.0% (49.0% to 94.3%) | 80.0% (49.0% to 94.3%) |",
        "| kerntune/gpu | 40 | 0 |  |  |",
        "| pytest_kerntune | 70 | 10 | 100.0% (72.2% to 100.0%) | 100.0% (72.2% to 100.0%) |",
    ]


@pytest.mark.slow
def test_tests_that_run_the_line_come_first_and_progress_is_kept(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        code="def f(x):\n    if x:\n        return 1\n    return 2\n",
        test_it="""
        from code_here import f
        import os
        def test_one(): assert f(True) == 1 and os.getpgrp() == os.getpid()
        def test_two(): assert f(False) == 2
        def test_left_out(): assert False
        """,
    )
    module = (pytester.path / "code.py").rename(pytester.path / "code_here.py")
    names = [f"test_it.py::test_{name}" for name in ("two", "one")]
    (pytester.path / "order.json").write_text(json.dumps({"first": names, "only": names}))
    monkeypatch.setenv("MUTANT_ORDER", str(pytester.path / "order.json"))
    monkeypatch.setenv("MUTANT_PROGRESS", str(pytester.path / "progress"))
    monkeypatch.setenv("MUTANT_MODULES", str(module))
    monkeypatch.setenv("PYTHONPATH", source_path(ROOT / "benchmarks" / "mutants"))
    pytester.runpytest_subprocess("-p", "mutants_order", *QUIET).assert_outcomes(passed=2, deselected=1)
    rows = [json.loads(line) for line in (pytester.path / "progress").read_text().splitlines()]
    lines = {r["test"]: [line for _, line in r["lines"]] for r in rows if "lines" in r}
    assert lines == {names[0]: [2, 4], names[1]: [2, 3]}
    assert list(lines) == names


def module() -> Any:
    pytest.importorskip("cosmic_ray")
    from benchmarks.mutants import mutants_made

    return mutants_made
