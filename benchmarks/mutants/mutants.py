"""Mutates modules one place at a time, and lists the changes that no test detects: ``make mutants``, docs/mutants.md.

    python -m benchmarks.mutants.mutants --seed 21 --count 200 --workers 2
    python -m benchmarks.mutants.mutants --list LISTED.json --seed 21 --count 600      # to be tried elsewhere
    python -m benchmarks.mutants.mutants --list LISTED.json --each 40                  # so many of every package
    python -m benchmarks.mutants.mutants --list LISTED.json --each 40 --ran .coverage  # with all tests that run a line
    python -m benchmarks.mutants.mutants --report                              # results into docs/measured/mutants.md

Cosmic Ray makes the mutants (``mutants_made.py``); ``mutants_run.py`` tries them. ``mutants.toml`` lists the modules,
the tests of each, and the explanations of survivors. A sample is the start of a random order, so that a larger one of
the same seed contains a smaller one. With ``--each`` it is drawn from every module of every package, each package with
an order of its own; the tests of a module that isn't listed are found by :func:`tests_of`.

Tests of other packages notice a change as well. ``--ran`` names what ``pytest --cov=kerntune --cov=pytest_kerntune
--cov-context=test --cov-report=`` has written: a mutant is tried with the tests that ran its lines, too.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT

CONFIG = Path(__file__).with_suffix(".toml")
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
LISTED = ROOT / ".mutants" / "listed.json"


@dataclass(frozen=True)
class Config:
    """What is mutated, and the tests of each module."""

    seed: int
    common: list[str]
    """Tests of all modules; they run after a module's own."""

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


SOURCES = ("kerntune", "pytest_kerntune")
"""Folders whose packages are mutated."""

PLUGIN_TESTS = "tests/pytest_kerntune"
"""A run of one of these takes longer than a module's own tests take: they are the tests of the plugin alone."""


FAR = 12
"""Test files of other packages that are run for a module, those first that import least: what they fail for is often
this module. ``errors.py`` is imported by half of all."""


def all_modules() -> list[str]:
    """Every module of ours, by its path; ``__init__`` as well."""
    return sorted(path.relative_to(ROOT).as_posix() for name in SOURCES for path in (ROOT / name).rglob("*.py"))


def package_of(module: str) -> str:
    """The first folder below ``kerntune`` (``kerntune`` for modules that lie in it), or ``pytest_kerntune``."""
    parts = PurePosixPath(module).parts
    return "/".join(parts[: 2 if parts[0] == "kerntune" and len(parts) > 2 else 1])


def by_package(modules: Iterable[str]) -> dict[str, list[str]]:
    """The modules of each package."""
    found: dict[str, list[str]] = {}
    for module in sorted(modules):
        found.setdefault(package_of(module), []).append(module)
    return found


def tests_of(config: Config, module: str) -> list[str]:
    """Test files of a module: those that ``mutants.toml`` lists, those of its package that are named after it or import
    it, and :data:`FAR` of the others that import it. Without any of these, all of the nearest folder of tests that has
    some. What a package re-exports of the module counts as the module.

    A module that others were joined to so has the tests of all of them. Tests of the plugin count for the plugin alone.
    An import of a package's ``__init__`` says nothing, nor does one of ``kerntune``: each module's tests import it.
    """
    path = PurePosixPath(module)
    folder = _tests_folder(path)
    plugin = path.parts[0] == "pytest_kerntune"
    files = {file: names for file, names in _imports().items() if file.startswith(f"{PLUGIN_TESTS}/") == plugin}
    stem = path.stem.lstrip("_")
    whole, begins = f"{folder}/test_{stem}.py", f"{folder}/test_{stem}_"
    named = {
        file for file in files if file == whole or (file.startswith(begins) and file.count("/") == whole.count("/"))
    }
    asked = _names_of(path)
    importing = [file for file, names in files.items() if not asked.isdisjoint(names)]
    near = {file for file in importing if PurePosixPath(file).parent.parts[:2] == PurePosixPath(folder).parts[:2]}
    far = sorted(set(importing) - near, key=lambda file: (len(files[file]), file))[:FAR]
    return sorted({*config.tests.get(module, ()), *named, *near, *far} or _tests_in(folder, files))


def _names_of(module: PurePosixPath) -> frozenset[str]:
    """A module's dotted name, and those of its names that packages around it re-export."""
    if module.stem == "__init__":
        return frozenset()
    dotted = ".".join(module.with_suffix("").parts)
    packages = [".".join(parent.parts) for parent in module.parents if len(parent.parts) > 1]
    ours = {
        f"{package}.{name.rpartition('.')[2]}" for package in packages for name in _exports(package)
        if name.startswith(f"{dotted}.")
    }  # fmt: skip
    return frozenset({dotted, *ours})


@cache
def _exports(package: str) -> frozenset[str]:
    """The dotted names that a package's ``__init__`` imports."""
    init = ROOT / package.replace(".", "/") / "__init__.py"
    return frozenset(_imported(init.read_text())) if init.exists() else frozenset()


def _tests_folder(module: PurePosixPath) -> str:
    """Where tests of a module's package lie: ``tests`` has the same folders."""
    inside = module.parent.parts[module.parts[0] == "kerntune" :]
    return str(PurePosixPath("tests", *inside))


def _tests_in(folder: str, files: Iterable[str]) -> list[str]:
    """Test files of a folder itself; where it has none, of the one around it."""
    found = sorted(file for file in files if file.rpartition("/")[0] == folder)
    return found if found or folder == "tests" else _tests_in(folder.rpartition("/")[0], files)


@lru_cache(maxsize=1)
def _imports() -> dict[str, frozenset[str]]:
    """The dotted names that each test file imports, and the attributes of these that it uses. The ``conftest.py`` and
    helpers of its folder are a part of it: ``from cli.command import Command`` runs commands."""
    tests = ROOT / "tests"
    own = {
        path: frozenset(_imported(path.read_text())) for path in sorted(tests.rglob("*.py"))
        if path.is_file() and "data" not in path.relative_to(ROOT).parts
    }  # fmt: skip

    def whole(path: Path) -> frozenset[str]:
        found, waiting = {path}, [path]
        while waiting:
            helpers = {tests / f"{name.replace('.', '/')}.py" for name in own[waiting.pop()]}
            near = {*helpers, path.with_name("conftest.py")} & own.keys() - found
            waiting += [one for one in near if one.parent in path.parents and one.parent != tests]
            found.update(waiting)
        return frozenset().union(*map(own.__getitem__, found))

    return {path.relative_to(ROOT).as_posix(): whole(path) for path in own if path.name.startswith("test_")}


IMPORT = re.compile(r"^\s*(?:from ([\w.]+) )?import (\([^)]*\)|[^\n]+)", re.MULTILINE)
NAME = re.compile(r"([\w.]+)(?: as (\w+))?")
ATTRIBUTE = re.compile(r"(?<![\w.])(\w+)\.(\w+)")


def _imported(text: str) -> Iterator[str]:
    """Also where the text is that of a test inside of a test."""
    bound: dict[str, str] = {}
    for module, names in IMPORT.findall(text):
        yield from filter(None, [module])
        for name, other in NAME.findall(names):
            dotted = f"{module}.{name}" if module else name
            yield dotted
            bound[other or name] = dotted
    for name, attribute in ATTRIBUTE.findall(text):
        if name in bound:
            yield f"{bound[name]}.{attribute}"


def commit_seed() -> int:
    """Of the commit's hash, which can't be chosen: its first eight digits. RuntimeError in a checkout with changes, of
    which the hash says nothing."""
    if subprocess.check_output(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True).strip():
        raise RuntimeError(
            "the seed is the commit's hash, but files differ from the commit: commit them or give --seed"
        )
    return int(subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True)[:8], 16)


MORE_FILES = 12
"""Test files that a mutant has beside its module's: those of which the most tests ran its lines."""


def with_tests_that_ran(mutants: Sequence[dict[str, Any]], tests: Mapping[str, list[str]], ran: Path) -> None:
    """Give each mutant ``more``: files, beyond its module's tests, of tests that ran one of its lines.

    Parameters
    ----------
    ran:
        A database of coverage.py with a context for each test. FileNotFoundError without one.
    """
    from coverage import CoverageData

    if not ran.exists():
        raise FileNotFoundError(f"{ran}: no such file; pytest --cov-context=test writes it as .coverage")
    data = CoverageData(str(ran))
    data.read()
    contexts = {module: data.contexts_by_lineno(str(ROOT / module)) for module in {m["module"] for m in mutants}}
    for mutant in mutants:
        lines = range(mutant["line"], mutant["line"] + mutant["old"].count("\n") + 1)
        found = {context for line in lines for context in contexts[mutant["module"]].get(line, ()) if context}
        files = Counter(context.partition("::")[0] for context in found)
        known = {file for path in tests[mutant["module"]] for file in [path, *_below(path)]}
        mutant["more"] = [file for file, _ in files.most_common() if file not in known][:MORE_FILES]


def _below(folder: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("test_*.py")]


def listed(config: Config, modules: Sequence[str], seed: int, count: int | None) -> dict[str, Any]:
    """The sample, with all that a machine without Cosmic Ray needs."""
    from benchmarks.mutants.mutants_made import made, specs_of

    found = [(name, spec) for module in modules for name, spec in sorted(specs_of(module).items())]
    random.Random(seed).shuffle(found)
    return {
        "seed": seed, "of": len(found), "tests": config.tests, "common": config.common,
        "mutants": [one for name, spec in found[:count] if (one := made(name, spec)) is not None],
    }  # fmt: skip


def listed_each(config: Config, modules: Sequence[str], seed: int, each: int) -> dict[str, Any]:
    """A sample with ``each`` mutants of every package, or all that it has; ``packages`` says of how many.

    A package's order has a seed of its own, so that a change of one package draws no others in another.
    """
    from benchmarks.mutants.mutants_made import made, specs_of

    mutants, packages = [], {}
    for package, own in by_package(modules).items():
        found = [(name, spec) for module in own for name, spec in sorted(specs_of(module).items())]
        random.Random(f"{seed} {package}").shuffle(found)
        mutants += drawn((made(name, spec) for name, spec in found), each)
        packages[package] = len(found)
    random.Random(seed).shuffle(mutants)  # a run that is ended early has tried some of each
    tests = {module: tests_of(config, module) for module in sorted({m["module"] for m in mutants})}
    return {
        "seed": seed, "of": sum(packages.values()), "packages": packages, "tests": tests, "common": config.common,
        "mutants": mutants,
    }  # fmt: skip


def drawn(made: Iterable[dict[str, Any] | None], count: int) -> list[dict[str, Any]]:
    """The first so many of those that could be made."""
    return list(islice((one for one in made if one is not None), count))


# the report

BEGIN, END = "<!-- results: written by `make mutants` -->", "<!-- end of results -->"


def report(config: Config, kept: dict[str, Any]) -> str:
    """Scores by package, where every package was drawn from; of modules with survivors at first; and the survivors."""
    rows = kept["rows"]
    table = [*package_table(kept["packages"]), ""] if kept.get("packages") else []
    table += ["| module | tried | killed at first | killed |", "|---|---:|---:|---:|"]
    clear: list[int] = []
    for module in dict.fromkeys([*config.tests, *sorted(row["module"] for row in rows)]):
        own = [row for row in rows if row["module"] == module]
        at_first, killed = sum(_at_first(row) for row in own), sum(row["killed"] for row in own)
        if at_first < len(own) or killed < len(own):
            table.append(f"| {module} | {len(own)} | {at_first} | {killed} |")
        elif own:
            clear.append(len(own))
    if clear:
        table.append(f"| {len(clear)} modules with no survivor at first | {sum(clear)} | {sum(clear)} | {sum(clear)} |")
    survivors = [row for row in rows if not row["killed"]]
    lines = [
        f"* {row['module']}:{row['line']}: {row['change']}: {explanation(config, row)}"
        for row in sorted(survivors, key=lambda row: (row["module"], row["line"]))
    ]
    return "\n".join([_summary(kept), "", *table, "", f"## Survivors ({len(lines)})", "", *(lines or ["None."])])


def package_table(packages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row for each package: its mutants, those that were tried, and the shares with Wilson's interval of 95 %."""
    lines = ["| package | mutants | tried | killed at first | killed |", "|---|---:|---:|---:|---:|"]
    for name, score in packages.items():
        cells = ["{:.1%} ({:.1%} to {:.1%})".format(*score[k]) if k in score else "" for k in SHARES]
        lines.append(f"| {name} | {score['of']} | {score['tried']} | {' | '.join(cells)} |")
    return lines


SHARES = ("share_killed_at_first", "share_killed")


def explanation(config: Config, row: dict[str, Any]) -> str:
    return config.explained.get(f"{row['module']}: {row['change']}", "**not explained yet**")


def _at_first(row: dict[str, Any]) -> bool:
    return bool(row.get("first", "killed" if row["killed"] else "survived") == "killed")


def _summary(kept: dict[str, Any]) -> str:
    score, made_by = kept["score"], kept["environment"]
    whole = ", as many of every package" if kept.get("packages") else " of the listed modules"
    shares = {k: "{:.1%} ({:.1%} to {:.1%})".format(*score[f"share_{k}"]) for k in ("killed", "killed_at_first")}
    return (
        f"{score['tried']} mutants of {kept['of']}{whole}, at random with seed {kept['seed']}, "
        f"{made_by['date'][:10]}, Python {made_by['python']}, torch {made_by['torch']}, Triton {made_by['triton']}: "
        f"{score['killed_at_first']} killed "
        f"by the tests as they were, {shares['killed_at_first']}; {score['killed']} with the tests that were written "
        f"for survivors, **{shares['killed']}**; in parentheses Wilson's interval of 95 %. Runs without a change: "
        f"{score['controls']}, of which {score['controls_failed']} failed; mutants not settled by that: "
        f"{score['not_settled']}. Killed by a time limit: {score['killed_by_limit']}."
    )


def write_report(config: Config) -> None:
    """Put the results between the marks in docs/measured/mutants.md."""
    path = ROOT / "docs" / "measured" / "mutants.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{report(config, json.loads(RESULTS.read_text()))}\n\n{END}{after}")


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--seed", type=int, help="of the random order; default: the one in mutants.toml")
    parser.add_argument("--count", type=int, help="how many mutants of that order; default all")
    parser.add_argument("--each", type=int, help="so many mutants of every package; seed: the commit's hash")
    parser.add_argument("--only", default="", help="modules whose path contains one of these, separated by commas")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 1), help="how many at a time")
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after so long; the next run goes on")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--list", type=Path, dest="list_to", help="try nothing, write the sample to this file")
    parser.add_argument("--report", action="store_true", help="run nothing, write docs/measured/mutants.md")
    parser.add_argument("--ran", type=Path, help="coverage's database with contexts: which tests run a mutant's lines")
    given, config = parser.parse_args(), Config.read()
    os.chdir(ROOT)
    if not given.report:
        parts = [part for part in given.only.split(",") if part]
        known = all_modules() if given.each else config.tests
        modules = [m for m in known if not parts or any(part in m for part in parts)]
        path = (given.list_to or LISTED).absolute()
        path.parent.mkdir(exist_ok=True)
        if given.each:
            sample = listed_each(config, modules, commit_seed() if given.seed is None else given.seed, given.each)
        else:
            sample = listed(config, modules, config.seed if given.seed is None else given.seed, given.count)
        if given.ran:
            with_tests_that_ran(sample["mutants"], sample["tests"], given.ran.absolute())
        harness.write(path, sample)
        if given.list_to:
            return
        options = ["--workers", str(given.workers), "--seconds", str(given.seconds), *["--again"] * given.again]
        command = [sys.executable, "-m", "benchmarks.mutants.mutants_run", str(path), str(RESULTS), *options]
        subprocess.run(command, cwd=ROOT, check=True)
    write_report(config)


if __name__ == "__main__":
    main()
