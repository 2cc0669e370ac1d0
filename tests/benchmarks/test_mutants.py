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

from benchmarks.mutants import mutants, mutants_guard, mutants_run, mutants_tests
from benchmarks.mutants.named_mutants import NAMED, Named

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_annotations_and_large_numbers_stay() -> None:
    made = module()
    source = "def f(x: int | None = 3) -> int | None:\n    y: str | int = 100\n    return x | y + 99\n"
    skipped = list(made.skipped_places(ast.parse(source)))
    lines = source.splitlines()
    assert sorted(lines[a[0] - 1][a[1] : b[1]] for a, b in skipped) == ["100", "int | None", "int | None", "str | int"]


def test_places_after_other_letters_are_counted_in_characters() -> None:
    assert module()._in_characters(["", 'x = "µs", 1e6'], 2, len('x = "µs", '.encode())) == (2, len('x = "µs", '))


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
    found = mutants.score({"rows": rows, "controls": [row(None), row("test_b")]})
    assert (found["tried"], found["killed"], found["killed_at_first"], found["not_settled"]) == (3, 2, 1, 2)
    assert (found["controls"], found["controls_failed"]) == (2, 1)


@pytest.mark.parametrize(
    ("killed", "tried", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)]
)
def test_the_interval_is_wilson_s(killed: int, tried: int, low: float, high: float) -> None:
    rows = [row("t" if i < killed else None) for i in range(tried)]
    found = mutants.score({"rows": rows, "controls": []})["share_killed"]
    assert found == [killed / tried, pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4)]


def test_one_run_in_twenty_has_no_change() -> None:
    given = [{"name": str(i), "old": "+", "new": "-", "change": "c"} for i in range(41)]
    found = list(mutants_run.with_controls(given))
    assert [m for m in found if m["new"] != m["old"]] == given
    assert [m["name"] for m in found if m["new"] == m["old"]] == ["0", "20", "40"]


def test_the_report_names_survivors_with_what_explains_them() -> None:
    rows = [
        {"module": "m.py", "line": 3, "change": "`a` → `b`", **row(None)},
        {"module": "m.py", "line": 4, "change": "`c` → `d`", **row("t", first="survived")},
        {"module": "m.py", "line": 1, "change": "`e` → `f`", **row(None)},
    ]
    made_by = {"date": "2026-11-22", "python": "3.11", "torch": "2.13", "triton": "3.9"}
    kept = {"rows": rows, "controls": [], "environment": made_by, "seed": 1, "of": 9}
    found = mutants.report(
        {"m.py: `a` → `b`": "equivalent: it is"}, {**kept, "score": mutants.score(kept)}
    ).splitlines()
    assert "| m.py | 3 | 0 | 1 |" in found
    assert found[0].startswith("3 mutants of 9, as many of every package, at random with seed 1, ")
    assert found[-2:] == ["* m.py:1: `e` → `f`: **not explained yet**", "* m.py:3: `a` → `b`: equivalent: it is"]


def test_modules_with_no_survivor_are_one_row_of_the_report() -> None:
    rows = [{"module": name, "line": 1, "change": "c", **row("t")} for name in ("m.py", "n.py", "n.py")]
    made_by = {"date": "2026-11-22", "python": "3.11", "torch": "2.13", "triton": "3.9"}
    kept = {"rows": rows, "controls": [], "environment": made_by, "seed": 1, "of": 9}
    found = mutants.report({}, {**kept, "score": mutants.score(kept)}).splitlines()
    assert [line for line in found if ".py" in line] == []
    assert "| 2 modules with no survivor at first | 3 | 3 | 3 |" in found


# samples of all packages


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


def test_results_of_another_seed_are_moved_aside_and_of_the_same_one_kept(tmp_path: Path) -> None:
    out = tmp_path / "mutants.json"
    empty = {"rows": [], "controls": [], "errors": []}
    assert mutants_run.earlier(out, 7) == empty
    out.write_text(json.dumps({"seed": 7, "rows": [1]}))
    assert mutants_run.earlier(out, 7)["rows"] == [1]
    assert mutants_run.earlier(out, 8) == empty
    assert json.loads((tmp_path / "mutants.7.json").read_text())["rows"] == [1]
    assert not out.exists()


def sample(monkeypatch: pytest.MonkeyPatch, seed: int, **sizes: int) -> dict[str, Any]:
    """Two mutants of each package, where modules have so many; the one numbered 0 of each can't be made."""
    paths = {f"kerntune/{package}/m.py": size for package, size in sizes.items()}
    fake = SimpleNamespace(
        specs_of=lambda module: {f"{module}:{i}": i for i in range(paths[module])},
        made=lambda name, spec: {"name": name, "module": name.partition(":")[0]} if spec else None,
    )
    monkeypatch.setitem(sys.modules, "benchmarks.mutants.mutants_made", fake)
    ran: Any = SimpleNamespace(tests_of=lambda mutant: {"tests": [mutant["name"]]})
    return mutants.listed(list(paths), seed, 2, ran)


def test_every_package_gives_as_many_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sample(monkeypatch, 7, base=3, gate=50, gpu=2)
    names = [m["name"] for m in found["mutants"]]
    assert [sum(f"/{package}/" in name for name in names) for package in ("base", "gate", "gpu")] == [2, 2, 1]
    assert found["packages"] == {"kerntune/base": 3, "kerntune/gate": 50, "kerntune/gpu": 2}
    assert (found["seed"], found["of"]) == (7, 55)
    assert all(m["tests"] == [m["name"]] for m in found["mutants"])


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


# which tests

CODE = """
LIMIT = 3
def f(x, most=LIMIT):
    if x:
        return g(
            x)
    return most
class A:
    size = 1
    def area(self):
        return self.size * LIMIT
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mutants_tests.Ran:
    """Of a module at the root of a tree with three test files."""
    coverage = pytest.importorskip("coverage")
    monkeypatch.setattr(mutants_tests, "ROOT", tmp_path)
    monkeypatch.setattr(mutants_tests, "all_modules", lambda: ["kerntune/m.py"])
    for each in (mutants_tests._statements, mutants_tests.Ran._lines):
        each.cache_clear()
    (tmp_path / "kerntune").mkdir()
    (tmp_path / "kerntune" / "m.py").write_text(CODE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_m.py").write_text("f, area = 1, 2")
    (tmp_path / "tests" / "test_other.py").touch()
    data = coverage.CoverageData(str(tmp_path / "ran"))
    for context, lines in {
        "": [1, 2, 3, 8, 9, 10],
        "tests/test_other.py::test_f[1]|run": [4, 5],
        "tests/test_m.py::test_f|run": [4, 7],
        "tests/test_m.py::test_all|run": [4, 5, 7, 11],
        "tests/test_m.py::test_area|setup": [11],
    }.items():
        data.set_context(context)
        data.add_lines({str(tmp_path / "kerntune" / "m.py"): lines})
    data.write()
    return mutants_tests.Ran(tmp_path / "ran")


def test_coverage_of_another_folder_is_refused(tmp_path: Path) -> None:
    coverage = pytest.importorskip("coverage")
    data = coverage.CoverageData(str(tmp_path / "ran"))
    data.add_lines({str(tmp_path / "kerntune" / "m.py"): [1]})
    data.write()
    with pytest.raises(ValueError, match=rf"it has no module below {mutants_tests.ROOT}; "):
        mutants_tests.Ran(tmp_path / "ran")


F, ALL, AREA = (f"tests/test_m.py::test_{name}" for name in ("f", "all", "area"))
OTHER = "tests/test_other.py::test_f[1]"


@pytest.mark.parametrize(
    ("line", "tests"),
    [(4, [F, ALL, OTHER]), (6, [ALL, OTHER]), (7, [F, ALL]), (3, [F, ALL, OTHER]), (2, [AREA, ALL]), (9, [AREA, ALL])],
    ids=["its line", "a statement's last line", "own", "a default", "a name", "a class's name"],
)
def test_a_mutant_s_tests(ran: mutants_tests.Ran, line: int, tests: list[str]) -> None:
    """First of the module's own file, of these those that run the least."""
    found = ran.tests_of({"module": "kerntune/m.py", "line": line, "at": 0, "old": "x"})
    assert (found["tests"], found["ran_its_line"]) == (tests, len(tests))
    own = ["tests/test_m.py", "tests/test_other.py"]
    assert found["near"] == own


@pytest.mark.parametrize(
    ("line", "declares", "imported"),
    [(2, False, True), (4, False, False), (3, True, True), (8, True, True), (9, True, True), (10, True, True),
     (12, True, True), (14, True, True)],
)  # fmt: skip
def test_declarations_have_the_test_of_all_declarations_first(
    ran: mutants_tests.Ran, line: int, declares: bool, imported: bool
) -> None:
    """And what runs at an import has the module's own files: a table's tests needn't run a line of it."""
    (mutants_tests.ROOT / "kerntune" / "m.py").write_text(f"{CODE}if LIMIT:\n    import os\n@cache\ndef g(): pass\n")
    found = ran.tests_of({"module": "kerntune/m.py", "line": line, "at": 0, "old": "x"})["first"]
    assert found == [*[mutants_tests.DECLARATIONS] * declares, *["tests/test_m.py"] * imported]


@pytest.mark.parametrize(("word", "first"), [("strict", True), ("astrict", False), ("reverse", False)])
def test_switches_that_are_set_alike_have_it_first_too(ran: mutants_tests.Ran, word: str, first: bool) -> None:
    text = CODE.replace("            x)", f"            x, {word}=True)")
    (mutants_tests.ROOT / "kerntune" / "m.py").write_text(text)
    at = text.index("True")
    found = ran.tests_of({"module": "kerntune/m.py", "line": 6, "at": at, "old": "Tru"})["first"]
    assert found == [mutants_tests.DECLARATIONS] * first


def test_a_few_cases_of_each_function_come_before_the_rest(ran: mutants_tests.Ran) -> None:
    """But for those of the module's own file: its tables are of this module."""
    many = [[f"tests/test_{name}.py::test_h[{i}]" for i in range(5)] for name in ("m", "other")]
    found = ran._ranked("kerntune/m.py", [{*many[0], *many[1], "tests/test_other.py::test_z"}])
    assert found == [*many[0], *many[1][:3], "tests/test_other.py::test_z", *many[1][3:]]


def test_lines_that_have_moved_are_found_again(ran: mutants_tests.Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    path, then = mutants_tests.ROOT / "kerntune" / "m.py", SimpleNamespace(stdout=CODE)
    monkeypatch.setattr(mutants_tests.subprocess, "run", lambda command, **_: then)
    monkeypatch.setattr(ran, "_at", "abc123")
    path.write_text('"""New."""\n' + CODE.replace("    return most", "    return most + 1"))
    found = {n: ran.tests_of({"module": "kerntune/m.py", "line": n, "at": 0, "old": "x"})["tests"] for n in (5, 6, 12)}
    assert found == {5: [F, ALL, OTHER], 6: [ALL, OTHER], 12: [AREA, ALL]}
    assert 8 not in ran._lines("kerntune/m.py"), "another line"


def test_without_coverage_there_is_nothing_to_choose_by(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="--cov-context=test"):
        mutants_tests.Ran(tmp_path / "none")


def test_rounds_have_so_many_files_and_the_last_one_those_that_are_near() -> None:
    tests = [f"{file}.py::test_{i}" for i in range(2) for file in "abcdefghijklmno"]
    first, last = mutants_run.rounds_of({"tests": tests, "near": ["z.py"], "first": []})
    assert first == ([t for t in tests if t[0] in "abc"], [], mutants_run.ROUNDS[0][1])
    assert last == ([t for t in tests if t[0] in "defghijkl"], ["z.py"], mutants_run.ROUNDS[1][1])
    none = {"tests": [], "near": ["z.py"], "first": ["y.py"]}
    assert [files for _, files, _ in mutants_run.rounds_of(none)] == [["y.py"], ["z.py"]]


def test_a_changed_file_has_times_of_its_own_and_becomes_what_it_was(tmp_path: Path) -> None:
    """Python takes stored bytecode for that of a text by the file's size and seconds."""
    path = tmp_path / "m.py"
    path.write_text("x = 1")
    times = [path.stat().st_mtime_ns]
    for text in ("x = 2", "x = 3"):
        with mutants_run.changed_file(path, text):
            assert path.read_text() == text
            times.append(path.stat().st_mtime_ns)
        assert (path.read_text(), path.stat().st_mtime_ns) == ("x = 1", times[0])
    assert len({ns // 10**9 for ns in times}) == 3


class Scripted:
    """A worker whose runs end as told, at the first test or after the last."""

    def __init__(self, tree: Path, *ends: str | None) -> None:
        self.tree, self._ends, self.ran = tree, list(ends), list[list[str]]()
        self.late, self.took = set[str](), dict[str, float]()
        """Tests that the third run leaves out, and seconds of tests."""

    def run(self, tests: list[str], seconds: float, files: Any = (), done: Any = ()) -> mutants_run.Ran:
        self.ran.append(tests)
        failed = self._ends.pop(0)
        late = self.late if len(self.ran) == 3 else ()
        ended = tests[:1] if failed else [test for test in tests if test not in late]
        rows: list[dict[str, Any]] = [{"test": test, "seconds": self.took.get(test, 0.0)} for test in ended]
        rows += [{"test": failed, "outcome": "failed"}] if failed else []
        return mutants_run.Ran(1 if failed else 0, rows, 1.0, "")


@pytest.mark.parametrize(
    ("ends", "killed", "runs"),
    [
        ((None,), False, [["a::1", "a::2"]]),
        (("a::1", None), True, [["a::1", "a::2"], ["a::1"]]),
        (("a::1", "a::1", None), False, [["a::1", "a::2"], ["a::1"], ["a::2"]]),
        (("a::1", "a::1", "a::2", None), True, [["a::1", "a::2"], ["a::1"], ["a::2"], ["a::2"]]),
    ],
    ids=["survives", "killed", "by one that always fails", "by another one"],
)
def test_a_test_that_fails_on_the_unchanged_tree_kills_nothing(
    tmp_path: Path, ends: tuple[str | None, ...], killed: bool, runs: list[list[str]]
) -> None:
    worker = Scripted(tmp_path, *ends)
    kept = tried(tmp_path, worker, ["a::1", "a::2"])
    assert (kept["rows"][0]["killed"], worker.ran) == (killed, runs)
    assert kept["left_out"] == (["a::1"] if runs[1:2] == [["a::1"]] and ends[1] else [])
    assert (tmp_path / "m.py").read_text() == "x = 1 + 2\n"


def tried(tmp_path: Path, worker: Scripted, *mutants: list[str]) -> dict[str, Any]:
    """What is kept of mutants with these tests."""
    (tmp_path / "m.py").write_text("x = 1 + 2\n")
    digest = hashlib.sha256(b"x = 1 + 2\n").hexdigest()[:16]
    kept: dict[str, Any] = {"rows": [], "controls": [], "left_out": []}
    run = mutants_run.Run(tmp_path / "out.json", {}, kept, 1, 0.0)
    for i, tests in enumerate(mutants):
        mutant = {"name": f"m:plus{i}", "module": "m.py", "at": 6, "old": "+", "new": "-", "digest": digest, "line": 1,
                  "change": "c", "ran_its_line": 2, "tests": tests, "near": [], "first": []}  # fmt: skip
        run.try_one(worker, mutant)  # type: ignore[arg-type]
    return kept


def test_what_rounds_leave_runs_in_the_last_one_the_fastest_first(tmp_path: Path) -> None:
    """By the time that a test took with the mutant before."""
    tests = [f"{file}.py::t" for file in "abcde"]
    worker = Scripted(tmp_path, *[None] * 5)
    worker.took = dict(zip(tests, (3.0, 2.0, 1.0), strict=False))
    worker.late = {*tests[:3]}
    tried(tmp_path, worker, tests, tests)
    assert worker.ran == [tests[:3], tests[3:], tests[:3], tests[3:], tests[2::-1]]


def test_each_package_has_its_score_and_interval() -> None:
    def of(module: str, killed: int, tried: int) -> list[dict[str, Any]]:
        return [row("t" if i < killed else None, module=module, line=1, change="") for i in range(tried)]

    rows = [*of("kerntune/base/a.py", 8, 10), *of("pytest_kerntune/b.py", 10, 10)]
    rows.append(row("unsure", module="pytest_kerntune/b.py", line=1, change=""))
    kept = {"rows": rows, "controls": [row("unsure")]}
    sizes = {"kerntune/base": 900, "kerntune/gpu": 40, "pytest_kerntune": 70}
    table = mutants.package_table(mutants.package_scores(kept, sizes))
    assert table[2:] == [
        "| kerntune/base | 900 | 10 | 80.0% (49.0% to 94.3%) | 80.0% (49.0% to 94.3%) |",
        "| kerntune/gpu | 40 | 0 |  |  |",
        "| pytest_kerntune | 70 | 10 | 100.0% (72.2% to 100.0%) | 100.0% (72.2% to 100.0%) |",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "ended"), [(60.0, ["two", "one"]), (-1.0, ["two"])])
def test_tests_run_in_the_given_order_until_their_time_is_over(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, seconds: float, ended: list[str]
) -> None:
    pytester.makepyfile(
        test_it="""
        import os
        def test_one(): assert os.getpgrp() == os.getpid()
        def test_two(): pass
        def test_left_out(): assert False
        """,
    )
    names = [f"test_it.py::test_{name}" for name in ("two", "one")]
    (pytester.path / "order.json").write_text(json.dumps({"tests": names, "files": [], "done": [], "seconds": seconds}))
    monkeypatch.setenv("MUTANT_ORDER", str(pytester.path / "order.json"))
    monkeypatch.setenv("MUTANT_PROGRESS", str(pytester.path / "progress"))
    monkeypatch.setenv("PYTHONPATH", source_path(ROOT / "benchmarks" / "mutants"))
    pytester.runpytest_subprocess("-p", "mutants_order", *QUIET).assert_outcomes(passed=len(ended), deselected=1)
    rows = [json.loads(line) for line in (pytester.path / "progress").read_text().splitlines()]
    assert [r["test"] for r in rows if "seconds" in r] == names[: len(ended)]
    assert [r["left"] for r in rows if "left" in r] == ([1] if len(ended) == 1 else [])


def test_an_earlier_mutant_is_found_again_by_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = module()
    monkeypatch.setattr(made, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text("n = 1\nx = n + 1\nif x:\n    y = n + 1\n    y = (\n        x\n    )\nx = n + 1\n")
    (tmp_path / "two.py").write_text("z = n + 1\n\n@cache\ndef f(): pass\n")

    def again(change: str, line: int = 1, where: str = "one.py") -> tuple[Any, ...] | None:
        row = {"name": "core/X:0", "module": where, "line": line, "change": change}
        found = made.found_again(row, ["one.py", "two.py"])
        return found and (found["module"], found["line"], found["at"], found["old"], found["new"])

    assert again("`x = n + 1` → `x = n - 1`", line=1) == ("one.py", 2, 6, "x = n + 1", "x = n - 1")
    assert again("`x = n + 1` → `x = n - 1`", line=7) == ("one.py", 8, 62, "x = n + 1", "x = n - 1"), "the nearest"
    assert again("`x = n + 1` → `x = n - 1`", where="two.py") == ("one.py", 2, 6, "x = n + 1", "x = n - 1"), "moved"
    assert again("`y = ( x )` → `y = ( not x )`") == ("one.py", 5, 40, "y = (\n        x\n    )", "y = ( not x )")
    decorated = "@cache\ndef f(): pass"
    assert again("` @cache def f(): pass` → `def f(): pass`") == ("two.py", 3, 11, decorated, "def f(): pass")
    assert again("`n + 1` → `n - 1`") is None, "whole lines"
    assert again("`n = 1` → `n = `") is None, "no Python"
    assert again("`gone = 1` → `gone = 2`") is None


def test_what_was_killed_has_the_test_that_killed_it_where_that_is_still_there() -> None:
    module()
    at = "kerntune/base/stats.py"

    def row(by: str, *, killed: bool = True, text: str = "import math") -> dict[str, Any]:
        return {"name": by, "module": at, "line": 1, "change": f"`{text}` → `pass`", "killed": killed, "by": by}

    here = "tests/base/test_stats.py::test_one"
    rows = [row(here), row("tests/test_gone.py::test_two"), row(here, killed=False), row(here, text="gone")]
    found = mutants.killed_before({"seed": 7, "rows": rows}, [at])
    assert [m["tests"] for m in found["mutants"]] == [[here], []]
    assert all("tests/base/test_stats.py" in m["near"] for m in found["mutants"])
    assert (found["seed"], found["of"], found["vanished"]) == (7, 3, [f"{at}: `gone` → `pass`"])


@pytest.mark.parametrize("mutant", NAMED, ids=lambda mutant: mutant.rule)
def test_a_named_mutant_has_its_place_and_its_test(mutant: Named) -> None:
    """Else nothing says that its rule is no longer tried."""
    assert (ROOT / mutant.module).read_text().count(mutant.before) == 1
    file, _, name = mutant.test.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


def module() -> Any:
    pytest.importorskip("cosmic_ray")
    from benchmarks.mutants import mutants_made

    return mutants_made
