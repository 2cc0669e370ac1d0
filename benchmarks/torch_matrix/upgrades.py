"""Does each cause name what changed, does a bisection of torch find the step, how long does an upgrade take?

    python -m benchmarks.torch_matrix.upgrades causes bisect upgrade
        --torch 2.13=ENV/bin/python --torch 2.15=... [--triton 3.8=FOLDER ...] [--out FOLDER]

It takes an environment of each torch, with kerntune's dependencies, and folders that ``pip install --no-deps --target``
made of other Tritons. Nothing needs a GPU; all is compiled for :data:`TARGET`. The parts:

* ``causes``: :mod:`benchmarks.torch_matrix.upgrade_cases` under each torch with each Triton that it starts with; every
  launch whose code differs in a pair that differs in one version must have that one as its only cause.
* ``bisect``: ``kerntune bisect --torch`` over all torches for six compiled functions; the versions that it lists must
  be those at which ``causes`` saw other code.
* ``upgrade``: ``kerntune upgrade`` from the first torch to the last, each with its own Triton, on 300 kernels, after
  the old side was compiled once; three planted losses, of a config, of the environment and of torch, must each be named
  with their cause.

Writes benchmarks/results/upgrades.json, and ``upgrade`` upgrade_time.json beside it; a part that is run again replaces
the earlier.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import ROOT
from kerntune.cli.static_diff import compare_statics
from kerntune.cli.static_record import record
from kerntune.cli.stored import Entry, Pattern, load_folder
from kerntune.errors import UsageError

OUT = ROOT / "benchmarks" / "results"
FILES = {"causes": "upgrades.json", "bisect": "upgrades.json", "upgrade": "upgrade_time.json"}
CASES = ROOT / "benchmarks" / "torch_matrix" / "upgrade_cases.py"

TARGET = "cuda:90"

BISECTED = ("softmax", "dropout", "cross_entropy", "rms_norm", "norm_gelu", "cumsum")
"""Compiled functions that are bisected; two of them have had the same code under torch 2.13 and 2.15."""

CACHES = ("KERNTUNE_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Of an upgrade: new ones, so that the old side alone is warm."""

KERNELS = 300
"""What an upgrade is timed with, by default."""

INSTALLED = "its own"
"""The Triton of an environment."""

Pair = tuple[str, str]
"""A torch and a Triton."""


def wrapped(python: str, triton: str, folder: Path, **variables: str) -> str:
    """An interpreter that has another Triton first on its path, and environment variables."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python"
    words = [f"{name}='{value}'" for name, value in variables.items()]
    words += [f'PYTHONPATH="{triton}:$PYTHONPATH"'] if triton else []
    script.write_text(f'#!/bin/sh\n{" ".join(words)} exec "{python}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def recorded(
    torches: Mapping[str, str], tritons: Mapping[str, str], scratch: Path, kept: Path | None
) -> tuple[dict[Pair, list[Entry]], dict[str, str]]:
    """The cases' baselines by what recorded them, and why some pairs could not. ``kept`` has an earlier run's."""
    found: dict[Pair, list[Entry]] = {}
    refused: dict[str, str] = {}
    tests = scratch / "cases"
    tests.mkdir()
    shutil.copy(CASES, tests / "test_cases.py")
    for torch, python in torches.items():
        for triton, folder in {INSTALLED: "", **tritons}.items():
            name = f"torch {torch}, Triton {triton}"
            into = (kept or scratch) / f"torch-{torch}-triton-{triton.replace(' ', '-')}"
            try:
                if not into.is_dir():
                    script = wrapped(python, folder, scratch / "bin" / into.name)
                    record(script, ["test_cases.py"], TARGET, into, name, cwd=tests)
                found[torch, triton] = load_folder(into)
                print(name, len(found[torch, triton]), flush=True)
            except UsageError as exc:
                refused[name] = str(exc).splitlines()[-1]
                print(name, refused[name], flush=True)
    return found, refused


def versions(entries: Sequence[Entry]) -> Pair:
    """The torch and the Triton that recorded some baselines."""
    launches = [x for e in entries if e.baseline is not None for x in e.baseline.launches]  # type: ignore[union-attr]
    torch = next(x.made_from.torch for x in launches if x.made_from is not None)
    return torch, launches[0].compiler.partition(",")[0]


def causes(found: Mapping[Pair, list[Entry]]) -> dict[str, Any]:
    """Of each pair that differs in one version: launches with other code, and those with another cause."""
    sides = {versions(entries): entries for entries in found.values()}
    pairs: dict[str, Any] = {}
    for old, new in combinations(sorted(sides), 2):
        if sum(a != b for a, b in zip(old, new, strict=True)) != 1:
            continue
        moved = "torch" if old[0] != new[0] else "compiler"
        difference = compare_statics(sides[old], sides[new], ("old", "new"), Pattern().matches, same_code=True)
        launches = [(c.case, x) for c in difference.changed for x in c.launches]
        wrong = [f"{case} {x.kernel}: {x.because}" for case, x in launches if not names_alone(x.because, moved)]
        cases = [c.case for c in difference.changed]
        pairs[" -> ".join(map(", ".join, (old, new)))] = {
            "moved": moved,
            "changed": len(launches),
            "named": len(launches) - len(wrong),
            "wrong": wrong,
            "cases": cases,
        }
    return pairs


def names_alone(because: str, moved: str) -> bool:
    """Whether a cause names what moved, and nothing else."""
    kinds = {word for word in ("torch ", "compiler (", "code (", "environment (") if _has(because, word)}
    return {kind.strip(" (") for kind in kinds} == {moved} and " or code" not in because


def _has(because: str, word: str) -> bool:
    return re.search(rf"(?:^| and ){re.escape(word)}", because) is not None


def bisected(torches: Mapping[str, str], found: Mapping[Pair, list[Entry]], scratch: Path) -> dict[str, Any]:
    """The versions that a bisection lists, beside those at which the code was seen to change."""
    tests = scratch / "cases"
    out: dict[str, Any] = {}
    for name in BISECTED:
        case = f"test_cases.py::test_compiled[{name}]"
        sides = [(torch, found[torch, INSTALLED]) for torch in torches]
        line = ",".join(f"{torch}={torches[torch]}" for torch, _ in sides)
        command = [sys.executable, "-m", "kerntune.cli", "bisect", "--torch", line, "--target", TARGET, "--", case]
        done = subprocess.run(command, cwd=tests, env=environment(), capture_output=True, text=True, check=False)
        listed = re.findall(r"^(?:  |first bad: )torch ([\d.]+)$", done.stdout, re.MULTILINE)
        steps = [new for (_, a), (new, b) in pairwise(sides) if _differs(a, b, case)]
        right = listed == steps if "no static rule" in done.stdout or not steps else listed[:1] == steps[:1]
        out[name] = {"listed": listed, "steps": steps, "right": right, "code": done.returncode}
        print(name, listed, steps, right, flush=True)
    return out


def _differs(before: Sequence[Entry], after: Sequence[Entry], case: str) -> bool:
    difference = compare_statics(before, after, ("", ""), Pattern(case).matches, same_code=True)
    return bool(difference.changed)


def environment() -> dict[str, str]:
    """This one with the checkout on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


PLANTED = """
import os
import pytest, torch, triton
import triton.language as tl
from cases import product_kernel, row_kernel

NEW = os.environ.get("UPGRADE_SIDE") == "new"
KINDS = ("copy", "exp", "sigmoid", "erf", "divide", "norm", "sum", "softmax")

@triton.jit
def columns_kernel(x, y, N: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    row_kernel(x, y, N, KIND, BLOCK)

@pytest.mark.autotune
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", range(512, 512 + {each}))
def test_row(autotune, kind, n):
    x = torch.empty(256, n, device=autotune.device, dtype=torch.float16)
    autotune(lambda: columns_kernel[(256,)](x, torch.empty_like(x), N=n, KIND=kind, BLOCK=1024 if n % 2 else 2048))

@pytest.mark.autotune
def test_config(autotune):
    a = torch.empty(128, 1024, device=autotune.device, dtype=torch.float16)
    b = torch.empty(1024, 256, device=autotune.device, dtype=torch.float16)
    c = torch.empty(128, 256, device=autotune.device)
    stages = 5 if NEW else 3
    autotune(lambda: product_kernel[(1,)](a, b, c, 1024, M=128, N=256, K=64, num_warps=8, num_stages=stages))

@pytest.mark.autotune
def test_environment(autotune):
    assert not NEW, "a package is missing"
    x = torch.empty(64, 512, device=autotune.device)
    autotune(lambda: row_kernel[(64,)](x, torch.empty_like(x), 512, KIND="copy", BLOCK=512))

@pytest.mark.autotune
def test_torch(autotune):
    x = torch.randn(512, 1024, device=autotune.device, dtype=torch.float16)
    autotune(torch.compile(lambda x: torch.nn.functional.dropout(x, 0.1)), x)
"""
"""Each case has a kernel of its own, since the number of columns is a constant. One has a config that the new side
can't launch, one fails there, and one is a dropout, which torch 2.15 generates with more registers than 2.13."""


def upgraded(torches: Mapping[str, str], kernels: int, scratch: Path) -> dict[str, Any]:
    """How long an upgrade takes, and what it names."""
    tests = scratch / "upgrade"
    tests.mkdir()
    shutil.copy(CASES, tests / "cases.py")
    (tests / "test_planted.py").write_text(PLANTED.format(each=-(-(kernels - 3) // 8)))
    (tests / "pytest.ini").write_text("[pytest]\n")
    names = list(torches)
    new = wrapped(torches[names[-1]], "", scratch / "bin" / "new", UPGRADE_SIDE="new")
    old = torches[names[0]]
    caches = {name: str(scratch / name.lower()) for name in CACHES}
    env = {**environment(), **caches}
    begun = time.monotonic()
    record(old, ["test_planted.py"], TARGET, scratch / "warm", "the old side", cwd=tests, env=env)
    cold = time.monotonic() - begun
    words = ["upgrade", "--python", old, "--python", new, "--target", TARGET, "--json", "test_planted.py"]
    begun, before = time.monotonic(), os.times()
    command = [sys.executable, "-m", "kerntune.cli", *words]
    done = subprocess.run(command, cwd=tests, env=env, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - begun, os.times()
    found = json.loads(done.stdout)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    losses = [{k: x[k] for k in ("case", "cause", "because", "lost", "fails")} for x in found["losses"]]
    print(json.dumps(losses, indent=1))
    return {
        "from": found["before"],
        "to": found["after"],
        "compared": found["compared"],
        "kernels": len(_codes(load_folder(scratch / "warm"))),
        "old_side_cold_s": round(cold, 1),
        "wall_s": round(wall, 1),
        "processor_s": round(spent, 1),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(x, 1) for x in os.getloadavg()],
        "losses": losses,
        "planted": {name: _cause(losses, name) for name in ("test_config", "test_environment", "test_torch")},
        "exit_code": done.returncode,
    }


def _codes(entries: Sequence[Entry]) -> set[str]:
    """The different code identities in a folder of static baselines."""
    return {x.code for e in entries if e.baseline is not None for x in e.baseline.launches}  # type: ignore[union-attr]


def _cause(losses: Sequence[Mapping[str, Any]], name: str) -> str:
    return next((str(x["cause"]) for x in losses if x["case"].partition("[")[0].endswith(f"::{name}")), "")


def _named(words: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def main() -> None:
    """Run the parts that are named."""
    parser = harness.parser(__doc__)
    parser.add_argument("parts", nargs="+", choices=("causes", "bisect", "upgrade"))
    parser.add_argument("--torch", action="append", required=True, metavar="NAME=PYTHON")
    parser.add_argument("--triton", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--keep", type=Path, help="what each pair of versions recorded, for another run")
    parser.add_argument("--kernels", type=int, default=KERNELS, help="of the upgrade")
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the results")
    args = parser.parse_args()
    torches, tritons = _named(args.torch), _named(args.triton)
    for part, result in _parts(args, torches, tritons):
        harness.merge(args.out / FILES[part], **{part: result})


def _parts(args: Any, torches: Mapping[str, str], tritons: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    with harness.scratch() as folder:
        scratch = Path(folder)
        if {"causes", "bisect"} & {*args.parts}:
            found, refused = recorded(torches, tritons, scratch, args.keep)
        if "causes" in args.parts:
            pairs = causes(found)
            wrong = [text for pair in pairs.values() for text in pair["wrong"]]
            print(len(pairs), "pairs,", sum(p["changed"] for p in pairs.values()), "launches, wrong:", *wrong, sep="\n")
            yield "causes", {"refused": refused, "pairs": pairs}
        if "bisect" in args.parts:
            yield "bisect", bisected(torches, found, scratch)
        if "upgrade" in args.parts:
            yield "upgrade", upgraded(torches, args.kernels, scratch)


if __name__ == "__main__":
    main()
