"""Mutates modules one place at a time, and lists the changes that no test detects: ``make mutants``, docs/mutants.md.

    python -m benchmarks.mutants.mutants --list LISTED.json --each 40     # so many of every package; seed: the commit
    python -m benchmarks.mutants.mutants --list LISTED.json --only gpu/ --seed 21
    python -m benchmarks.mutants.mutants --list LISTED.json --killed-in benchmarks/results/mutants.json
    python -m benchmarks.mutants.mutants --report                         # results into docs/measured/mutants.md

Cosmic Ray makes the mutants (``mutants_made.py``), coverage.py's database says which tests run their lines
(``mutants_tests.py``), ``mutants_run.py`` tries them. ``mutants.toml`` has the explanations of survivors. A sample is
drawn from every module of every package, each package with a random order of its own: its start is the sample, so that
a larger one of the same seed contains a smaller one.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from benchmarks.mutants.mutants_tests import DECLARATIONS, Ran, all_modules, near

CONFIG = Path(__file__).with_suffix(".toml")
RESULTS = ROOT / "benchmarks" / "results" / "mutants_sample.json"
LISTED, RAN = ROOT / ".mutants" / "listed.json", ROOT / ".coverage"


def explained() -> dict[str, str]:
    """What is known of survivors, by module and change."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import toml as tomllib  # type: ignore[no-redef]
    found: dict[str, str] = tomllib.loads(CONFIG.read_text())["explained"]
    return found


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


def commit_seed() -> int:
    """Of the commit's hash, which can't be chosen: its first eight digits. RuntimeError in a checkout with changes, of
    which the hash says nothing."""
    if subprocess.check_output(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True).strip():
        raise RuntimeError(
            "the seed is the commit's hash, but files differ from the commit: commit them or give --seed"
        )
    return int(subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True)[:8], 16)


def listed(modules: Sequence[str], seed: int, each: int, ran: Ran) -> dict[str, Any]:
    """A sample with ``each`` mutants of every package, or all that it has; ``packages`` says of how many. Each has the
    tests that may notice it.

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
    for mutant in mutants:
        mutant |= ran.tests_of(mutant)
    return {"seed": seed, "of": sum(packages.values()), "packages": packages, "mutants": mutants}


def killed_before(kept: Mapping[str, Any], modules: Sequence[str]) -> dict[str, Any]:
    """The killed mutants of an earlier result, found again by their lines, with the test that killed each, the files of
    its module, and the tests of declarations. ``vanished`` has the changes of the others."""
    from benchmarks.mutants.mutants_made import found_again

    mutants, vanished = [], []
    for row in filter(lambda row: row["killed"], kept["rows"]):
        if mutant := found_again(row, modules):
            by = [row["by"]] if (ROOT / row["by"].partition("::")[0]).is_file() else []
            mutant |= {"tests": by, "ran_its_line": 0, "near": near(mutant["module"]), "first": [DECLARATIONS]}
            mutants.append(mutant)
        else:
            vanished.append(f"{row['module']}: {row['change']}")
    of = len(mutants) + len(vanished)
    return {"seed": kept["seed"], "of": of, "packages": {}, "mutants": mutants, "vanished": vanished}


def drawn(made: Iterable[dict[str, Any] | None], count: int) -> list[dict[str, Any]]:
    """The first so many of those that could be made."""
    return list(islice((one for one in made if one is not None), count))


# figures

NO_END = "no end: "
"""Begins what is said of a mutant that was killed by a limit of time."""


def score(kept: dict[str, Any], z: float = 1.959964) -> dict[str, Any]:
    """Killed of tried, with Wilson's interval of 95 %. Kills by a test that fails without a change don't count."""
    unsure = {row["by"] for row in kept["controls"] if row["killed"]}
    rows = [row for row in kept["rows"] if not (row["killed"] and row["by"] in unsure)]
    n, at_first = (
        len(rows),
        sum(row.get("first", "killed" if row["killed"] else "survived") == "killed" for row in rows),
    )
    found: dict[str, Any] = {"tried": n, "killed": sum(row["killed"] for row in rows), "killed_at_first": at_first}
    found |= {"not_settled": len(kept["rows"]) - n, "controls": len(kept["controls"])}
    found["killed_by_limit"] = sum(row["killed"] and row["by"].startswith(NO_END) for row in rows)
    found["controls_failed"] = sum(row["killed"] for row in kept["controls"])
    for name in ("killed", "killed_at_first"):
        if n:
            share = found[name] / n
            middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
            low, high = (max(0.0, min(1.0, (middle + sign * half) / (1 + z * z / n))) for sign in (-1, 1))
            found[f"share_{name}"] = [round(share, 4), round(low, 4), round(high, 4)]
    return found


def package_scores(kept: dict[str, Any], packages: Mapping[str, int]) -> dict[str, Any]:
    """The score of each package that was drawn from; ``of`` is how many mutants it has. Runs without a change count for
    all: a test that fails in one shows nothing of any package."""
    own: dict[str, list[dict[str, Any]]] = {package: [] for package in packages}
    for row in kept["rows"]:
        own.setdefault(package_of(row["module"]), []).append(row)
    return {name: {"of": packages[name], **score({**kept, "rows": own[name]})} for name in packages}


# the report

BEGIN, END = "<!-- results: written by `make mutants` -->", "<!-- end of results -->"


def report(known: Mapping[str, str], kept: dict[str, Any]) -> str:
    """Scores by package, where every package was drawn from; of modules with survivors at first; and the survivors."""
    rows, commit = kept["rows"], kept.get("provenance", {}).get("commit", "")[:8]
    table = [*package_table(kept["packages"]), ""] if kept.get("packages") else []
    table += ["| module | tried | killed at first | killed |", "|---|---:|---:|---:|"]
    clear: list[int] = []
    for module in sorted({row["module"] for row in rows}):
        own = [row for row in rows if row["module"] == module]
        at_first, killed = sum(_at_first(row) for row in own), sum(row["killed"] for row in own)
        if at_first < len(own) or killed < len(own):
            table.append(f"| {_at(module, commit)} | {len(own)} | {at_first} | {killed} |")
        elif own:
            clear.append(len(own))
    if clear:
        table.append(f"| {len(clear)} modules with no survivor at first | {sum(clear)} | {sum(clear)} | {sum(clear)} |")
    survivors = sorted((r for r in rows if not r["killed"]), key=lambda row: (row["module"], row["line"]))
    lines = []
    for row in survivors:
        why = known.get(f"{row['module']}: {row['change']}", "**not explained yet**")
        lines.append(f"* {_at(row['module'], commit)}:{row['line']}: {row['change']}: {why}")
    return "\n".join([_summary(kept), "", *table, "", f"## Survivors ({len(lines)})", "", *(lines or ["None."])])


def _at(module: str, commit: str) -> str:
    """A module's path; as git names that of a commit where it is there no more."""
    return module if (ROOT / module).exists() or not commit else f"{commit}:{module}"


def package_table(packages: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A row for each package: its mutants, those that were tried, and the shares with Wilson's interval of 95 %."""
    lines = ["| package | mutants | tried | killed at first | killed |", "|---|---:|---:|---:|---:|"]
    for name, score in packages.items():
        cells = ["{:.1%} ({:.1%} to {:.1%})".format(*score[k]) if k in score else "" for k in SHARES]
        lines.append(f"| {name} | {score['of']} | {score['tried']} | {' | '.join(cells)} |")
    return lines


SHARES = ("share_killed_at_first", "share_killed")


def _at_first(row: dict[str, Any]) -> bool:
    return bool(row.get("first", "killed" if row["killed"] else "survived") == "killed")


def _summary(kept: dict[str, Any]) -> str:
    score, made_by = kept["score"], kept["environment"]
    shares = {k: "{:.1%} ({:.1%} to {:.1%})".format(*score[f"share_{k}"]) for k in ("killed", "killed_at_first")}
    return (
        f"{score['tried']} mutants of {kept['of']}, as many of every package, at random with seed {kept['seed']}, "
        f"{made_by['date'][:10]}, Python {made_by['python']}, torch {made_by['torch']}, Triton {made_by['triton']}: "
        f"{score['killed_at_first']} killed "
        f"by the tests as they were, {shares['killed_at_first']}; {score['killed']} with the tests that were written "
        f"for survivors, **{shares['killed']}**; in parentheses Wilson's interval of 95 %. Runs without a change: "
        f"{score['controls']}, of which {score['controls_failed']} failed; mutants not settled by that: "
        f"{score['not_settled']}. Killed by a time limit: {score['killed_by_limit']}."
    )


def write_report() -> None:
    """Put the results between the marks in docs/measured/mutants.md."""
    path = ROOT / "docs" / "measured" / "mutants.md"
    harness.put_between(path, BEGIN, END, f"\n{report(explained(), json.loads(RESULTS.read_text()))}\n")


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--seed", type=int, help="of the random order; default: the commit's hash")
    parser.add_argument("--each", type=int, default=40, help="so many mutants of every package")
    parser.add_argument("--only", default="", help="modules whose path contains one of these, separated by commas")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after so long; the next run goes on")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--list", type=Path, dest="list_to", help="try nothing, write the sample to this file")
    parser.add_argument("--killed-in", type=Path, help="list those that an earlier result killed, not a sample")
    parser.add_argument("--report", action="store_true", help="run nothing, write docs/measured/mutants.md")
    parser.add_argument("--ran", type=Path, default=RAN, help="coverage's database with a context for each test")
    parser.add_argument("--ran-at", default="", help="the commit that it is of, where modules have changed since")
    given = parser.parse_args()
    os.chdir(ROOT)
    if not given.report:
        modules = [m for m in all_modules() if any(part in m for part in given.only.split(","))]
        path = (given.list_to or LISTED).absolute()
        path.parent.mkdir(exist_ok=True)
        if given.killed_in:
            found = killed_before(json.loads(given.killed_in.read_text()), modules)
        else:
            seed = commit_seed() if given.seed is None else given.seed
            found = listed(modules, seed, given.each, Ran(given.ran.absolute(), given.ran_at))
        harness.write(path, found)
        if given.list_to:
            return
        options = ["--workers", str(given.workers), "--seconds", str(given.seconds), *["--again"] * given.again]
        command = [sys.executable, "-m", "benchmarks.mutants.mutants_run", str(path), str(RESULTS), *options]
        subprocess.run(command, cwd=ROOT, check=True)
    write_report()


if __name__ == "__main__":
    main()
