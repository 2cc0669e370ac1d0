"""Compares kerntune's launch grids with those of torch's Inductor, case by case.

Run ``python -m benchmarks.grids.grids_differential`` where torch 2.13 is installed (a CPU build will do). It writes
``benchmarks/results/grids_differential.json`` and fails if any case differs without being named here beforehand.
``--torch-sources DIR`` compares with the release whose unpacked wheel is in DIR.

Sizes are enumerated around every edge (0, 1, block ± 1, 65535·k ± 1, 2**31 ± 1, 2**32 ± 1), blocks around theirs; what
the enumeration leaves open up to the wanted number is drawn with a fixed seed.
"""

from __future__ import annotations

import itertools
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness
from kerntune import grids
from kerntune.errors import GridError

MAX_Y = 65535
BLOCKS = (None, 1, 2, 3, 16, 64, 128, 1024, 4096)
EDGES = (0, 1, 2, 5, MAX_Y, 2 * MAX_Y, 3 * MAX_Y, MAX_Y**2, 2**20, 2**31, 2**32, 2**44)
SEED = 2026

NEGATIVE = "negative size: ours raises"
NEGATIVE_BLOCK = "negative block: ours raises"
STATIC_ZERO = "static zero size in a combo: ours is what theirs gives for a dynamic zero"


@dataclass(frozen=True)
class Case:
    """One grid in both spellings, and what it is evaluated with."""

    ours: grids.Grid
    theirs: dict[str, Any]
    config: dict[str, int]
    sizes: dict[str, int]
    difference: str = ""
    """The reason why the two differ here on purpose, decided beforehand from the inputs alone."""


@dataclass
class Tally:
    """What came of one grid's cases."""

    cases: int = 0
    same_triple: int = 0
    both_raise: int = 0
    deliberate: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)


def sizes_around(block: int | None) -> list[int]:
    """Sizes at the edges of a block and of the axis limits that it is divided for."""
    b = block or 1
    centres = {e for edge in EDGES for e in (edge, edge * b)} | {b}
    return sorted({c + d for c in centres for d in (-1, 0, 1) if c + d >= 0})


def pick(rng: random.Random, block: int | None) -> int:
    """A size near an edge, or any of up to 45 bits."""
    return rng.choice(sizes_around(block)) if rng.random() < 0.7 else rng.getrandbits(rng.randint(1, 45))


def plain_cases(name: str, prefixes: str) -> Iterator[Case]:
    """Grids whose axes each take a size and a block: every edge size of every block first, then mixtures."""
    ours = getattr(grids, name)()
    for blocks in itertools.product(BLOCKS, repeat=len(prefixes)):
        edges = [sizes_around(b) for b in blocks]
        for i in range(max(map(len, edges))):
            yield plain_case(ours, prefixes, blocks, [e[i % len(e)] for e in edges])
    rng = random.Random(SEED)
    while True:
        blocks = tuple(rng.choice(BLOCKS) for _ in prefixes)
        if rng.random() < 0.04:
            blocks = tuple(rng.choice((0, -1, -64, 64)) for _ in prefixes)
        sizes = [pick(rng, b) for b in blocks]
        if rng.random() < 0.02:
            sizes = [-rng.randint(1, 2**20) for _ in blocks]
        yield plain_case(ours, prefixes, blocks, sizes)


def plain_case(ours: grids.Grid, prefixes: str, blocks: tuple[int | None, ...], values: list[int]) -> Case:
    """One case of a plain grid; a block of None is left out of the config."""
    config = {f"{p.upper()}BLOCK": b for p, b in zip(prefixes, blocks, strict=True) if b is not None}
    sizes = {f"{p}numel": value for p, value in zip(prefixes, values, strict=True)}
    negative_block = NEGATIVE_BLOCK if any(b is not None and b < 0 for b in blocks) else ""
    return Case(ours, {}, config, sizes, NEGATIVE if min(values) < 0 else negative_block)


def mix_order_cases() -> Iterator[Case]:
    """Splits that the block divides, others, and missing or zero ones."""
    ours, rng = grids.MixOrderReductionGrid(), random.Random(SEED)
    choices = list(itertools.product((None, 0, 16, 24, 64, 100, 256, 1024), (None, 0, 1, 2, 3, 4, 8, 16)))
    while True:
        for split, block in choices:
            config = {k: v for k, v in (("RSPLIT_SIZE", split), ("XBLOCK", block)) if v is not None}
            yield Case(ours, {}, config, {"xnumel": pick(rng, split)})


def cooperative_cases() -> Iterator[Case]:
    """Every split from none to the limit of 64, and a missing one."""
    ours, rng = grids.CooperativeReductionGrid(), random.Random(SEED)
    for i in itertools.count():
        split, block = (None, 1, 2, 8, 32, 64)[i % 6], BLOCKS[i // 6 % len(BLOCKS)]
        config = {k: v for k, v in (("RSPLIT", split), ("XBLOCK", block)) if v is not None}
        yield Case(ours, {}, config, {"xnumel": pick(rng, block)})


def split_scan_cases() -> Iterator[Case]:
    """Row blocks of 1 (or none), and others, which both refuse."""
    ours, rng = grids.SplitScanGrid(), random.Random(SEED)
    for i in itertools.count():
        xblock, rblock = (None, 1, 1, None, 2, 8)[i % 6], BLOCKS[i // 6 % len(BLOCKS)]
        config = {k: v for k, v in (("XBLOCK", xblock), ("R0_BLOCK", rblock)) if v is not None}
        yield Case(ours, {}, config, {"xnumel": pick(rng, None), "r0_numel": pick(rng, rblock)})


def fixed_cases() -> Iterator[Case]:
    """Numbers, and the three launcher arguments."""
    rng = random.Random(SEED)
    while True:
        axes = [pick(rng, None) for _ in range(3)]
        yield Case(grids.FixedGrid(*axes), {"fixed_grid": axes}, {}, {})
        names = ["_grid_0", "_grid_1", "_grid_2"]
        yield Case(grids.FixedGrid.from_arguments(), {"fixed_grid": names}, {}, dict(zip(names, axes, strict=True)))


def precomputed_cases() -> Iterator[Case]:
    """One to four configs, the wanted one among them or not, with grids of one size."""
    rng = random.Random(SEED)
    while True:
        configs = [
            {"BLOCK": b, "STEP": rng.choice((1, 2))} for b in rng.sample((16, 32, 64, 128, 256), rng.randint(1, 4))
        ]
        choices = tuple(grids.Choice.of(c, grids.ceil_div("n", c["BLOCK"]), c["STEP"]) for c in configs)
        theirs = [
            {"config": c, "python": [f"(n + {c['BLOCK'] - 1}) // {c['BLOCK']}", c["STEP"], 1], "cpp": ["", "", ""]}
            for c in configs
        ]
        wanted = rng.choice([*configs, {"BLOCK": 512, "STEP": 1}, {"BLOCK": 16}])
        meta = {"precomputed_grids": theirs}
        yield Case(grids.PrecomputedGrid(choices), meta, dict(wanted), {"n": pick(rng, wanted["BLOCK"])})


def combo_cases(name: str) -> Iterator[Case]:
    """One to five kernels, sizes static or dynamic, with and without y, blocks shared or (flattened) each its own."""
    rng = random.Random(SEED)
    while True:
        yield combo_case(name, rng)


def combo_case(name: str, rng: random.Random) -> Case:
    """One random combo."""
    count, tall = rng.randint(1, 5), rng.random() < 0.5
    suffixes = [f"_{i}" for i in range(count)] if "Flatten" in name else [""]
    names = [f"{p}BLOCK{s}" for s in suffixes for p in "XY"]
    config = {n: b for n in names if (b := rng.choice(BLOCKS)) is not None}
    defaults = {n: rng.choice((8, 32)) for n in names} if rng.random() < 0.2 else None
    floor = rng.choice((None, None, 0, 7, 1056))
    meta: dict[str, Any] = {"num_kernels": count, "min_blocks": floor, "default_config": defaults}
    sizes: dict[str, int] = {}
    kernels, difference = [], ""
    for i in range(count):
        no_x = meta[f"no_x_dim_{i}"] = rng.random() < 0.3
        terms = [combo_size(rng, f"xnumel_{i}", meta, sizes)]
        if tall and rng.random() < 0.8:
            terms.append(combo_size(rng, f"ynumel_{i}", meta, sizes))
        kernels.append(grids.SubKernel(*terms, no_x_dim=no_x))
    if any(meta.get(f"{p}numel_{i}") == 0 for i in range(count) for p in "xy"):
        difference = STATIC_ZERO
    pairs = tuple((defaults or {}).items())
    ours = getattr(grids, name)(tuple(kernels), floor or 0, pairs)
    return Case(ours, {"combo_grid_meta": meta}, config, sizes, difference)


def combo_size(rng: random.Random, name: str, meta: dict[str, Any], sizes: dict[str, int]) -> int | str:
    """A size of one kernel: written to ``meta`` if static, to ``sizes`` if dynamic; returned as our term."""
    value = pick(rng, rng.choice(BLOCKS))
    if rng.random() < 0.5:
        meta[name] = value
        return value
    meta[name], sizes[name] = None, value
    return name


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "Grid1D": lambda: plain_cases("Grid1D", "x"),
    "Grid2D": lambda: plain_cases("Grid2D", "xy"),
    "Grid3D": lambda: plain_cases("Grid3D", "xyz"),
    "BatchMatmulGrid3D": lambda: plain_cases("BatchMatmulGrid3D", "xyz"),
    "Grid2DWithYZOverflow": lambda: plain_cases("Grid2DWithYZOverflow", "xy"),
    "MixOrderReductionGrid": mix_order_cases,
    "CooperativeReductionGrid": cooperative_cases,
    "SplitScanGrid": split_scan_cases,
    "FixedGrid": fixed_cases,
    "PrecomputedGrid": precomputed_cases,
    "SequentialComboKernelGrid": lambda: combo_cases("SequentialComboKernelGrid"),
    "SequentialFlattenComboKernelGrid": lambda: combo_cases("SequentialFlattenComboKernelGrid"),
    "RoundRobinComboKernelGrid": lambda: combo_cases("RoundRobinComboKernelGrid"),
}

Outcome = tuple[int, int, int] | None
"""A triple, or None where it raises."""


def their_outcome(name: str, case: Case) -> Outcome:
    """What Inductor's grid evaluates to."""
    from torch._inductor.runtime.triton_heuristics import GridExpr

    try:
        meta = {**case.theirs, "grid_type": name}
        x, y, z = GridExpr.from_meta(meta, dict(case.config)).eval_slow(dict(case.sizes))
    except (AssertionError, KeyError, NameError, TypeError, ZeroDivisionError):
        return None
    return int(x), int(y), int(z)


def our_outcomes(case: Case) -> set[Outcome]:
    """The outcomes of kerntune's grid called directly, bound to its config first, and folded: one outcome if all is
    right."""
    everything = {**case.config, **case.sizes}
    ways: tuple[Callable[[], Outcome], ...] = (
        lambda: case.ours(everything),
        lambda: case.ours.specialize(case.config)(case.sizes),
        lambda: case.ours.specialize(everything).constant,
    )
    return {attempt(way) for way in ways}


def attempt(way: Callable[[], Outcome]) -> Outcome:
    """The outcome of one way; None for the error that a grid may raise, and no other."""
    try:
        return way()
    except GridError:
        return None


def intended(name: str, case: Case) -> Outcome:
    """What ours must give where it is meant to differ: the error for a negative size, the same as a dynamic zero."""
    if case.difference in (NEGATIVE, NEGATIVE_BLOCK):
        return None
    meta = case.theirs["combo_grid_meta"]
    zeros = {key: 0 for key, value in meta.items() if "numel" in key and value == 0}
    theirs = {"combo_grid_meta": {**meta, **dict.fromkeys(zeros)}}
    return their_outcome(name, Case(case.ours, theirs, case.config, {**case.sizes, **zeros}))


def record(tally: Tally, name: str, case: Case) -> None:
    """One case into the tally."""
    theirs, ours = their_outcome(name, case), our_outcomes(case)
    tally.cases += 1
    if ours == {theirs}:
        tally.same_triple += theirs is not None
        tally.both_raise += theirs is None
    elif case.difference and ours == {intended(name, case)}:
        tally.deliberate[case.difference] += 1
    else:
        tally.disagreements.append(f"{name} {case}: theirs {theirs}, ours {ours}")


def distinct(cases: Iterator[Case]) -> Iterator[Case]:
    """Each case once."""
    seen: set[str] = set()
    for case in cases:
        key = repr(case)
        if key not in seen:
            seen.add(key)
            yield case


def compare(name: str, count: int) -> Tally:
    """The first ``count`` distinct cases of a grid."""
    tally = Tally()
    for case in itertools.islice(distinct(FAMILIES[name]()), count):
        record(tally, name, case)
    return tally


def evaluate_cpp(functions: Mapping[str, tuple[str, str]], rows: list[tuple[str, tuple[int, ...]]]) -> list[list[int]]:
    """Compiles C++ functions (parameter list, body) and gives the three values of each row of (function, arguments)."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise FileNotFoundError("g++ is needed to evaluate C++ grids")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "grids.cpp"), Path(folder, "grids")
        source.write_text(cpp_program(functions, rows))
        strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
        subprocess.run([compiler, *strict, "-O0", "-o", program, source], check=True)
        output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return [[int(value) for value in line.split()] for line in output.splitlines()]


def cpp_program(functions: Mapping[str, tuple[str, str]], rows: list[tuple[str, tuple[int, ...]]]) -> str:
    """A program that prints each row's triple. The arguments of a function's rows stand in one table."""
    head = "#include <algorithm>\n#include <array>\n#include <cstdint>\n#include <cstdio>\n"
    head += "typedef std::array<int64_t, 3> Triple;\nstatic void show(Triple t) "
    head += '{ std::printf("%lld %lld %lld\\n", (long long)t[0], (long long)t[1], (long long)t[2]); }\n'
    defined = [f"static Triple {name}({args}) {{ {body} }}\n" for name, (args, body) in functions.items()]
    calls = [f"  show({name}({', '.join(f'{v}LL' for v in values)}));\n" for name, values in rows]
    return head + "".join(defined) + "int main() {\n" + "".join(calls) + "}\n"


def cpp_findings() -> dict[str, dict[str, list[int]]]:
    """Inductor's C++ grids hold the y blocks in uint32: what that does to 2**32 of them and a little less."""
    from torch._inductor.runtime.triton_heuristics import GridExpr

    config = {"XBLOCK": 1, "YBLOCK": 1}
    theirs = GridExpr.from_meta({"grid_type": "Grid2DWithYZOverflow"}, config, mode="cpp")
    ours = grids.Grid2DWithYZOverflow().specialize(config)
    args = "int64_t xnumel, int64_t ynumel"
    functions = {
        "torch_cpp": (args, " ".join([*theirs.prefix, cpp_return((theirs.x_grid, theirs.y_grid, theirs.z_grid))])),
        "kerntune_cpp": (args, cpp_return(ours.to_cpp())),
    }
    ynumels = (2**32 - 65534, 2**32 - 1, 2**32, 2**32 + 5)
    found = {}
    for y in ynumels:
        values = evaluate_cpp(functions, [(name, (1, y)) for name in functions])
        exact = list(ours({"xnumel": 1, "ynumel": y}))
        found[f"ynumel {y}"] = {**dict(zip(functions, values, strict=True)), "exact": exact}
    return found


def cpp_return(axes: tuple[Any, Any, Any]) -> str:
    """A C++ statement that returns the triple of three expressions."""
    return f"return Triple{{{', '.join(f'int64_t({axis})' for axis in axes)}}};"


def torch_of(sources: Path | None) -> str:
    """The version of the torch that is asked: the installed one, or the one in ``sources``."""
    if sources is None:
        import torch

        return str(torch.__version__)
    sys.path.insert(0, str(harness.ROOT / "tests"))
    from heuristics.inductor_sources import use_sources

    return use_sources(sources)


def main() -> int:
    """Compare, write the JSON, and print the differences; 1 if one of them isn't named beforehand."""
    parser = harness.parser(__doc__)
    parser.add_argument("--cases", type=int, default=50_000, help="distinct cases a grid")
    parser.add_argument("--out", type=Path, default=harness.RESULTS / "grids_differential.json")
    parser.add_argument("--torch-sources", type=Path, help="folder with another torch's unpacked wheel")
    options = parser.parse_args()
    torch = torch_of(options.torch_sources)
    start = time.perf_counter()
    tallies = {name: compare(name, options.cases) for name in FAMILIES}
    result = {
        "date": harness.today(),
        "environment": harness.environment(torch=torch, machine=f"{platform.system()} {platform.machine()}, CPU only"),
        "seconds": round(time.perf_counter() - start, 1),
        "seed": SEED,
        "grids": {name: {**vars(tally), "disagreements": len(tally.disagreements)} for name, tally in tallies.items()},
        "cpp_uint32_finding": cpp_findings() if shutil.which("g++") else "not run: no g++",
    }
    harness.write(options.out, result)
    problems = [line for tally in tallies.values() for line in tally.disagreements]
    for line in problems[:20]:
        print(line)
    total = sum(tally.cases for tally in tallies.values())
    print(f"{total} distinct cases, {len(problems)} unexplained disagreements, written to {options.out}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
