"""Says of each file of ``benchmarks/results/`` where it is from: commit, date, environment, runs, and measured code.

    python -m benchmarks.provenance FILE [...] [--runs N]     stamp results that were just measured with this checkout
    python -m benchmarks.provenance                           list the files, and what has changed since

The stamp is the file's first entry, ``provenance``; nothing else of the file is touched. ``code`` is a hash of the
packages that the figures depend on (:data:`MEASURES`), without comments and docstrings; ``content`` is one of the
figures themselves, so that a file that was measured again needs a new stamp. ``commit_is`` is ``measured``, or
``recorded`` for files of before there were stamps: the commit that last changed the file, which may be later than the
code that ran. Results whose program was removed (``benchmarks/results/README.md``) keep the stamp that they have, and
their commit has the code. Tests hold that each file has a stamp, and that what is said of changes is true.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import RESULTS, ROOT

KEY = "provenance"

STATIC = ("kerntune/capture", "kerntune/compiling", "kerntune/gate", "kerntune/static", "pytest_kerntune")
GATE = (*STATIC, "kerntune/gpu", "kerntune/timing")
TUNING = (
    "kerntune/compiling",
    "kerntune/gpu",
    "kerntune/kernels",
    "kerntune/search",
    "kerntune/timing",
    "kerntune/tuning",
)
STATISTICS = ("kerntune/base", "kerntune/gate", "kerntune/timing")
CACHE = ("kerntune/tuning/cache",)
DISPATCH = ("kerntune/kernels/dispatch", "kerntune/tuning/api/autotuner.py")
HEURISTICS = ("kerntune/heuristics",)

MEASURES: Mapping[str, tuple[str, ...]] = {
    "before_after": GATE,
    "cold": TUNING,
    "dispatch": DISPATCH,
    "edit_compiled": ("kerntune/base", "kerntune/capture", "kerntune/gate", "kerntune/static"),
    "edit_": ("kerntune/gate", "kerntune/static"),
    "fuzz_commands": ("kerntune", "pytest_kerntune"),
    "fuzz_decoders": ("kerntune/base", "kerntune/compiling/binary"),
    "grids_differential": ("kerntune/grids",),
    "heuristic_sweep": HEURISTICS,
    "heuristic_cost": HEURISTICS,
    "heuristics_differential": HEURISTICS,
    "judge": ("kerntune/capture", "kerntune/gpu", "kerntune/referee"),
    "kill_random": ("kerntune/gate", "kerntune/tuning"),
    "mutants": ("kerntune", "pytest_kerntune"),
    "named_mutants": ("kerntune", "pytest_kerntune"),
    "ops_gate": (*STATIC, "kerntune/gpu"),
    "profiled_winners": TUNING,
    "simulate_verdicts": STATISTICS,
    "torch_matrix": ("kerntune", "pytest_kerntune"),
    "tuning_suite": TUNING,
    "verdict": STATISTICS,
    "warm_start": (*CACHE, *DISPATCH, "kerntune/tuning"),
}
"""What the figures of a file depend on, by the longest beginning of its name: packages and modules that the measured
time, share or verdict comes from. Packages that only carry values between them aren't named."""

ABOUT = ("device", "gpu", "machine", "torch", "triton", "python", "driver", "cpus", "cores", "target")
"""What files say at their top that have no ``environment``."""


@functools.cache
def removed_programs() -> Mapping[str, tuple[str, str]]:
    """By result: the program that made it, where that is no longer in the tree, and a commit that has it."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    _, *tables = re.split(r"^\| result \| program in (\w+) \|", text, flags=re.M)
    found = {}
    for commit, table in zip(tables[::2], tables[1::2], strict=True):
        rows = re.findall(r"^\| `(\w+)\.json` \| `([\w/.]+)` \|", table, re.M)
        found.update({name: (program, commit) for name, program in rows})
    return found


def measures(name: str) -> tuple[str, ...]:
    """The packages that a result's figures depend on.

    Raises ``SystemExit`` for a name that :data:`MEASURES` doesn't know, and where the program is no longer in the tree.
    """
    if name in removed_programs():
        raise SystemExit(f"{name}: its program was removed, so nothing here can have measured it")
    known = [stem for stem in MEASURES if name.startswith(stem)]
    if not known:
        raise SystemExit(f"{name}: add to MEASURES in {Path(__file__).name} which packages its figures depend on")
    return tuple(dict.fromkeys(MEASURES[max(known, key=len)]))


# the hash of code


def _plain(node: Any) -> Any:
    """A syntax tree as nested lists, the same in each version of Python: without positions, contexts, texts that stand
    as statements (docstrings), and fields that are empty."""
    if isinstance(node, list):
        return [_plain(one) for one in node if not _is_text(one)]
    if not isinstance(node, ast.AST):
        return repr(node)
    left_out = ("ctx", "kind", "type_comment")
    fields = [
        (name, value) for name, value in ast.iter_fields(node) if name not in left_out and value not in (None, [])
    ]
    if isinstance(node, ast.Constant):
        fields = [("value", node.value)]
    return [type(node).__name__, *([name, _plain(value)] for name, value in fields)]


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@functools.cache
def code_of(name: str, source: bytes) -> str:
    """A hash of a file's code, of a Python file's without comments and docstrings."""
    text = repr(_plain(ast.parse(source))).encode() if name.endswith(".py") else source
    return hashlib.sha256(text).hexdigest()


def _combined(parts: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()[:16]


def code_here(paths: Sequence[str]) -> str:
    """The hash of packages and modules as they lie in this checkout."""
    return _combined((path, _code_of_file(path)) for path in _files_here(tuple(paths)))


@functools.cache
def _code_of_file(path: str) -> str:
    return code_of(path, (ROOT / path).read_bytes())


@functools.cache
def _files_here(paths: tuple[str, ...]) -> tuple[str, ...]:
    found = [file for path in paths for file in ((ROOT / path).rglob("*") if (ROOT / path).is_dir() else [ROOT / path])]
    code = [file for file in found if file.is_file() and _is_code(file.name)]
    return tuple(sorted({file.relative_to(ROOT).as_posix() for file in code}))


def _is_code(name: str) -> bool:
    return name.endswith((".py", ".c", ".h", ".cpp", ".js"))


def code_at(commit: str, paths: Sequence[str]) -> str:
    """The hash of packages and modules at a commit; those that it doesn't have count as empty."""
    listed = git("ls-tree", "-r", commit, "--", *paths).splitlines()
    rows = [(line.split("\t")[1], line.split()[2]) for line in listed]
    return _combined((path, _code_of_blob(path, blob)) for path, blob in dict(rows).items() if _is_code(path))


@functools.cache
def _code_of_blob(path: str, blob: str) -> str:
    return code_of(
        path, subprocess.run(["git", "cat-file", "blob", blob], cwd=ROOT, capture_output=True, check=True).stdout
    )


def git(*words: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


# the stamp


def content(result: Mapping[str, Any]) -> str:
    """A hash of a result's figures."""
    figures = {name: value for name, value in result.items() if name != KEY}
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]


def has_changed(result: Mapping[str, Any]) -> bool:
    """Whether the code that a stamped result measured is another one here."""
    stamp = result[KEY]
    return bool(stamp["code"] != code_here(stamp["measures"]))


def record(path: Path, runs: int = 1) -> dict[str, Any]:
    """The stamp of a result that this checkout has measured."""
    result = json.loads(path.read_text(encoding="utf-8"))
    paths, commit = measures(path.stem), git("rev-parse", "HEAD")
    said = result.get("environment")
    where = said if isinstance(said, dict) else {k: result[k] for k in ABOUT if isinstance(result.get(k), (str, int))}
    date = (where.get("date") if isinstance(where, dict) else None) or result.get("date")
    return {
        "commit": commit,
        "commit_is": "measured",
        "date": (date or git("log", "-1", "--format=%as", commit))[:10],
        "environment": {k: v for k, v in where.items() if k != "date"} or "not recorded",
        "runs": runs,
        "measures": list(paths),
        "code": code_here(paths),
        "content": content(result),
    }


def stamp(path: Path, runs: int = 1) -> None:
    """Put a result's stamp at its front, in the place of an earlier one; the rest of its text stays as it is."""
    text = path.read_text(encoding="utf-8")
    line = json.dumps(record(path, runs))
    earlier = re.match(rf'\{{\n "{KEY}": \{{[^\n]*\}},\n', text)
    rest = text[earlier.end() :] if earlier else text[1:].lstrip("\n")
    path.write_text(f'{{\n "{KEY}": {line},\n{rest}', encoding="utf-8")


def said_of(*results: Mapping[str, Any], changed: str = ", changed since") -> str:
    """Stamps in words: dates, commits, how many runs; and ``changed`` if any of the measured code has changed since."""
    marks = [result[KEY] for result in results]
    dates, commits = (" and ".join(sorted({mark[name] for mark in marks})) for name in ("date", "commit"))
    commits = " and ".join(f"`{commit[:8]}`" for commit in commits.split(" and "))
    runs = sum(mark["runs"] for mark in marks)
    count = "one run" if runs == 1 else f"{runs} runs"
    return f"{dates}, {commits}, {count}{changed if any(map(has_changed, results)) else ''}"


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--runs", type=int, default=1, help="how many runs the figures are of (default: one)")
    options = parser.parse_args()
    for path in options.files:
        stamp(path.resolve(), options.runs)
    if not options.files:
        for path in sorted(RESULTS.glob("*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            print(f"{path.stem}: {said_of(result) if KEY in result else 'no stamp'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
