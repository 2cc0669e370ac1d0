"""Mutates modules one place at a time, and lists the changes that no test detects: ``make mutants``, docs/mutants.md.

Cosmic Ray makes the mutants and keeps the results. What is added: one list of modules with their own tests
(``mutants.toml``), a fixed random order, of which a sample is the start, a copy of the tree to mutate, and tests in
copies of a process that has imported torch. A result is good as long as its module is the same; survivors are tried
again once their tests have changed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkItem, WorkResult

ROOT = Path(__file__).resolve().parent.parent
CONFIG = Path(__file__).with_suffix(".toml")
KEPT = ROOT / ".mutants"
"""Results, a file for each module."""

TREE = ("kerntune", "pytest_kerntune", "tests", "benchmarks", "docs", "README.md", "CHANGELOG.md", "pyproject.toml")

TIMES, LEAST_S = 5.0, 60.0
"""A mutant whose tests take so many times as long as they do usually, and a minute at least, hangs: it is killed."""

ONE_EACH = {
    "ReplaceBinaryOperator": {
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul", "RShift_LShift",
        "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd",
    },
    "ReplaceComparisonOperator": {
        "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "LtE_GtE", "Gt_Lt", "GtE_LtE",
        "Is_IsNot", "IsNot_Is",
    },
    "ReplaceUnaryOperator": {"USub_Nothing", "Delete_USub", "Delete_Not"},
}  # fmt: skip
"""Of the operators that replace one sign by each other one, these: a test that detects ``+`` for ``-`` detects ``**``,
too."""


class DropCall(Operator):
    """Leaves out a statement that is a call."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and node.children[0].type == "atom_expr" and node.get_code().strip()[-1:] == ")":
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        import parso

        statement = parso.parse("pass").children[0]
        statement.prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = statement
        return node

    @classmethod
    def examples(cls) -> Sequence[Example]:
        return (Example("f(x)\n", "pass\n"),)


cosmic_ray.plugins.OPERATOR_PROVIDERS["kerntune"] = {"DropCall": DropCall}


@dataclass(frozen=True)
class Config:
    """What is mutated, and the tests of each module."""

    seed: int
    common: list[str]
    """Tests of all modules; they run where a module's own pass."""

    tests: dict[str, list[str]]
    explained: dict[str, str]

    @classmethod
    def read(cls) -> Config:
        try:
            import tomllib
        except ImportError:  # Python 3.10
            import toml as tomllib  # type: ignore[no-redef]
        found = tomllib.loads(CONFIG.read_text())
        return cls(found["seed"], found["common"], found["tests"], found.get("explained", {}))


# mutants


def mutants_of(module: str) -> dict[str, WorkItem]:
    """All mutants of a module, by names that stay while the module does."""
    path = Path(module)
    skipped = list(_skipped(ast.parse((ROOT / path).read_text())))
    found = {}
    for item in _all_work_items([path], {}):
        (spec,) = item.mutations
        if _wanted(spec.operator_name) and not any(a <= tuple(spec.start_pos) < b for a, b in skipped):
            name = f"{module}:{spec.operator_name}:{spec.occurrence}"
            found[name] = WorkItem.single(hashlib.sha256(name.encode()).hexdigest()[:32], spec)
    return found


def _wanted(operator: str) -> bool:
    kind, _, how = operator.partition("/")[2].partition("_")
    return how in ONE_EACH[kind] if kind in ONE_EACH else True


REWRITTEN = "ignore:Module already imported so cannot be rewritten"
"""The warning about hypothesis, which is imported before."""

LARGE = 100
"""One more or one less of a number from here on is a change of a hundredth at most: for figures in bytes, nanoseconds
or characters no test should depend on that."""


def _skipped(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The places of annotations, which are never evaluated, and of large numbers."""
    for node in ast.walk(tree):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        large = isinstance(node, ast.Constant) and type(node.value) in (int, float) and abs(node.value) >= LARGE
        for part in [*parts, *([node] if large else [])]:
            if isinstance(part, ast.expr):
                yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


def in_order(config: Config, modules: Sequence[str]) -> list[tuple[str, str, WorkItem]]:
    """Module, name and mutant, in a random order that a larger sample continues."""
    found = [(module, name, item) for module in modules for name, item in sorted(mutants_of(module).items())]
    random.Random(config.seed).shuffle(found)
    return found


# results


def digest(*paths: Path) -> str:
    """Of files, and of all Python files in folders."""
    files = [f for p in paths for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()[:16]


def tests_digest(config: Config, module: str, tree: Path) -> str:
    """Of a module's tests as they are in a tree."""
    return digest(*(tree / path for path in [*config.tests[module], *config.common]))


def store_of(module: str) -> Path:
    return KEPT / f"{module.replace('/', '.')}-{digest(ROOT / module)}.sqlite"


def results_of(config: Config, module: str, earlier: bool = False) -> dict[str, WorkResult]:
    """What is known of a module's mutants, by job; with ``earlier``, survivors of other tests than today's, too."""
    path = store_of(module)
    if not path.exists():
        return {}
    tested = json.loads(_tested(path).read_text()) if _tested(path).exists() else {}
    today = tests_digest(config, module, ROOT)
    with use_db(str(path), WorkDB.Mode.create) as db:
        results = dict(db.results)
    return {job: r for job, r in results.items() if earlier or _killed(r) or tested.get(job) == today}


def keep(module: str, item: WorkItem, result: WorkResult, tests: str) -> None:
    """Store a result, and the digest of the tests that gave it."""
    path = store_of(module)
    tested = json.loads(_tested(path).read_text()) if _tested(path).exists() else {}
    tested[item.job_id] = tests
    with use_db(str(path), WorkDB.Mode.create) as db:
        if item.job_id not in {i.job_id for i in db.work_items}:
            db.add_work_item(item)
        db.set_result(item.job_id, result)
    _tested(path).write_text(json.dumps(tested))


def _tested(path: Path) -> Path:
    """Which tests each mutant was run with."""
    return path.with_suffix(".json")


def _killed(result: WorkResult) -> bool:
    return result.test_outcome is not None and result.test_outcome != TestOutcome.SURVIVED


# runs


class Runner:
    """Runs tests in a copy of the tree."""

    def __init__(self, config: Config, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from forked import MORE, Copies
        from inner import NO_SUMMARY

        os.environ.update(
            {"PYTHONDONTWRITEBYTECODE": "1", MORE: "pytest,hypothesis.strategies,numpy,scipy.stats,msgspec"}
        )
        self._options = ("-q", "-x", "-p", "no:cacheprovider", "--tb=line", *NO_SUMMARY, "-W", REWRITTEN)
        self.config, self.tree, self.copies = config, folder, Copies()
        self.copies._start()
        self._usual: dict[str, float | None] = {}
        for name in TREE:
            source = ROOT / name
            shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy2(source, folder / name)

    def command(self, module: str) -> str:
        both = (self.config.tests[module], self.config.common)
        return shlex.join(["sh", "-c", " && ".join(
            shlex.join([*self.copies.call, "-m", "pytest", *self._options, *tests]) for tests in both
        )])  # fmt: skip

    def usual(self, module: str) -> float | None:
        """Seconds that a module's tests take; None if they fail, so that mutants can't be tested."""
        key = self.command(module)
        if key not in self._usual:
            from cosmic_ray.testing import run_tests

            start = time.monotonic()
            outcome, output = run_tests(key, 1200)
            passed = outcome is TestOutcome.SURVIVED
            self._usual[key] = time.monotonic() - start if passed else None
            print(f"{module}: its tests {'pass' if passed else 'FAIL'} in {time.monotonic() - start:.0f} s", flush=True)
            if not passed:
                print(output[-2000:], flush=True)
        return self._usual[key]

    def run(self, module: str, item: WorkItem) -> WorkResult | None:
        usual = self.usual(module)
        if usual is None:
            return None
        return mutate_and_test(item.mutations, self.command(module), max(TIMES * usual, LEAST_S))


def run(config: Config, modules: Sequence[str], sample: int | None, seconds: float) -> None:
    """Try mutants of which nothing is known yet, until the time is up."""
    KEPT.mkdir(exist_ok=True)
    end, chosen = time.monotonic() + seconds, in_order(config, modules)[:sample]
    known = {module: results_of(config, module) for module in modules}
    tried = {job for module in modules for job in results_of(config, module, earlier=True)}
    left = [(m, name, item) for m, name, item in chosen if item.job_id not in known[m]]
    left.sort(key=lambda one: one[2].job_id not in tried)  # earlier survivors first: they count as such until then
    print(f"{len(chosen)} mutants, {len(chosen) - len(left)} known", flush=True)
    with tempfile.TemporaryDirectory(prefix="kerntune-mutants-") as folder:
        os.chdir(folder)
        runner = Runner(config, Path(folder))
        try:
            for count, (module, name, item) in enumerate(left, 1):
                if time.monotonic() > end:
                    break
                result = runner.run(module, item)
                if result is not None:
                    keep(module, item, result, tests_digest(config, module, runner.tree))
                    said = "killed" if _killed(result) else "SURVIVED"
                    print(f"{count}/{len(left)} {said} {place(item)} {name}", flush=True)
        finally:
            runner.copies.close()
            os.chdir(ROOT)


def place(item: WorkItem) -> str:
    (spec,) = item.mutations
    return f"{spec.module_path}:{spec.start_pos[0]}"


# the report

BEGIN, END = "<!-- results: written by `make mutants` -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Tried:
    """A mutant with its result."""

    item: WorkItem
    result: WorkResult

    @property
    def spec(self) -> MutationSpec:
        return self.item.mutations[0]

    @property
    def change(self) -> str:
        """The lines before and after."""
        lines = [x for x in (self.result.diff or "").splitlines() if x[:1] in "+-" and x[:3] not in ("+++", "---")]
        before, after = ("".join(x[1:].strip() for x in lines if x[0] == sign) for sign in "-+")
        return f"`{before}` → `{after}`"

    @property
    def key(self) -> str:
        """What explanations go by: it stays when lines move."""
        return f"{self.spec.module_path}: {self.change}"


def report(config: Config) -> str:
    """Scores by module and the survivors."""
    rows, survivors, total, all_tried, all_killed = [], [], 0, 0, 0
    for module in config.tests:
        mutants, results = mutants_of(module), results_of(config, module, earlier=True)
        tried = [Tried(m, results[m.job_id]) for m in mutants.values() if m.job_id in results]
        killed = sum(_killed(t.result) for t in tried)
        score = f"{killed / len(tried):.1%}" if tried else "not run"
        rows.append(f"| {module} | {len(mutants)} | {len(tried)} | {killed} | {score} |")
        survivors += [t for t in tried if not _killed(t.result)]
        total, all_tried, all_killed = total + len(mutants), all_tried + len(tried), all_killed + killed
    score = f"{all_killed / all_tried:.1%}" if all_tried else "not run"
    head = ["| module | mutants | tried | killed | score |", "|---|---:|---:|---:|---:|"]
    rows.append(f"| **all** | {total} | {all_tried} | {all_killed} | **{score}** |")
    said = [
        f"* {place(t.item)}: {t.change}: {config.explained.get(t.key, '**not explained yet**')}"
        for t in sorted(survivors, key=lambda t: (str(t.spec.module_path), t.spec.start_pos))
    ]
    return "\n".join([*head, *rows, "", f"## Survivors ({len(said)})", "", *(said or ["None."])])


def write_report(config: Config) -> None:
    """Put the results between the marks in docs/mutants.md."""
    path = ROOT / "docs" / "mutants.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{report(config)}\n\n{END}{after}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="how many mutants of the fixed random order; default all")
    parser.add_argument("--only", default="", help="modules whose path contains one of these, separated by commas")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long; the next run goes on")
    parser.add_argument("--report", action="store_true", help="run nothing, write docs/mutants.md")
    given, config = parser.parse_args(arguments), Config.read()
    os.chdir(ROOT)
    parts = [part for part in given.only.split(",") if part]
    modules = [m for m in config.tests if not parts or any(part in m for part in parts)]
    if not given.report:
        run(config, modules, given.sample, given.minutes * 60)
    write_report(config)


if __name__ == "__main__":
    main()
