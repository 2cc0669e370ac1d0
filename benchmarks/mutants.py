"""Mutates modules one place at a time, and lists the changes that no test detects: ``make mutants``, docs/mutants.md.

    python benchmarks/mutants.py --seed 21 --count 200 --workers 2
    python benchmarks/mutants.py --list LISTED.json --seed 21 --count 600      # to be tried elsewhere
    python benchmarks/mutants.py --report                                      # results into docs/mutants.md

Cosmic Ray makes the mutants (``mutants_made.py``); ``mutants_run.py`` tries them. ``mutants.toml`` lists the modules,
the tests of each, and the explanations of survivors. A sample is the start of a random order, so that a larger one of
the same seed contains a smaller one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
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


def listed(config: Config, modules: Sequence[str], seed: int, count: int | None) -> dict[str, Any]:
    """The sample, with all that a machine without Cosmic Ray needs."""
    from mutants_made import made, specs_of

    found = [(name, spec) for module in modules for name, spec in sorted(specs_of(module).items())]
    random.Random(seed).shuffle(found)
    return {
        "seed": seed, "of": len(found), "tests": config.tests, "common": config.common,
        "mutants": [one for name, spec in found[:count] if (one := made(name, spec)) is not None],
    }  # fmt: skip


# the report

BEGIN, END = "<!-- results: written by `make mutants` -->", "<!-- end of results -->"


def report(config: Config, kept: dict[str, Any]) -> str:
    """Scores by module and the survivors."""
    rows = kept["rows"]
    table = ["| module | tried | killed at first | killed |", "|---|---:|---:|---:|"]
    for module in config.tests:
        own = [row for row in rows if row["module"] == module]
        if own:
            at_first = sum(_at_first(row) for row in own)
            table.append(f"| {module} | {len(own)} | {at_first} | {sum(row['killed'] for row in own)} |")
    survivors = [row for row in rows if not row["killed"]]
    lines = [
        f"* {row['module']}:{row['line']}: {row['change']}: {explanation(config, row)}"
        for row in sorted(survivors, key=lambda row: (row["module"], row["line"]))
    ]
    return "\n".join([_summary(kept), "", *table, "", f"## Survivors ({len(lines)})", "", *(lines or ["None."])])


def explanation(config: Config, row: dict[str, Any]) -> str:
    return config.explained.get(f"{row['module']}: {row['change']}", "**not explained yet**")


def _at_first(row: dict[str, Any]) -> bool:
    return bool(row.get("first", "killed" if row["killed"] else "survived") == "killed")


def _summary(kept: dict[str, Any]) -> str:
    score, made_by = kept["score"], kept["environment"]
    shares = {k: "{:.1%} ({:.1%} to {:.1%})".format(*score[f"share_{k}"]) for k in ("killed", "killed_at_first")}
    return (
        f"{score['tried']} mutants of {kept['of']}, at random with seed {kept['seed']}, {made_by['date'][:10]}, Python "
        f"{made_by['python']}, torch {made_by['torch']}, Triton {made_by['triton']}: {score['killed_at_first']} killed "
        f"by the tests as they were, {shares['killed_at_first']}; {score['killed']} with the tests that were written "
        f"for survivors, **{shares['killed']}**; in parentheses Wilson's interval of 95 %. Runs without a change: "
        f"{score['controls']}, of which {score['controls_failed']} failed; mutants not settled by that: "
        f"{score['not_settled']}. Killed by a time limit: {score['killed_by_limit']}."
    )


def write_report(config: Config) -> None:
    """Put the results between the marks in docs/mutants.md."""
    path = ROOT / "docs" / "mutants.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{report(config, json.loads(RESULTS.read_text()))}\n\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the random order; default: the one in mutants.toml")
    parser.add_argument("--count", type=int, help="how many mutants of that order; default all")
    parser.add_argument("--only", default="", help="modules whose path contains one of these, separated by commas")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) - 1), help="how many at a time")
    parser.add_argument("--seconds", type=float, default=1e6, help="stop after so long; the next run goes on")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--list", type=Path, dest="list_to", help="try nothing, write the sample to this file")
    parser.add_argument("--report", action="store_true", help="run nothing, write docs/mutants.md")
    given, config = parser.parse_args(), Config.read()
    os.chdir(ROOT)
    if not given.report:
        parts = [part for part in given.only.split(",") if part]
        modules = [m for m in config.tests if not parts or any(part in m for part in parts)]
        path = (given.list_to or LISTED).absolute()
        path.parent.mkdir(exist_ok=True)
        sample = listed(config, modules, config.seed if given.seed is None else given.seed, given.count)
        path.write_text(json.dumps(sample, indent=1) + "\n")
        if given.list_to:
            return
        options = ["--workers", str(given.workers), "--seconds", str(given.seconds), *["--again"] * given.again]
        script = Path(__file__).with_name("mutants_run.py")
        subprocess.run([sys.executable, str(script), str(path), str(RESULTS), *options], check=True)
    write_report(config)


if __name__ == "__main__":
    main()
