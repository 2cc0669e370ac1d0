"""Writes golden/inductor_2_6.json from the sources of torch 2.6.0, which need not be installed.

``python tests/heuristics/make_golden_inductor_2_6.py UNPACKED`` where UNPACKED is the wheel's content (``pip download
--no-deps torch==2.6.0``, then unzip). Only its decision functions are executed, with the current torch's enums beside
them, so no build of 2.6 has to run here.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import math
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._inductor.runtime import hints as torch_hints
from torch._inductor.runtime.runtime_utils import conditional_product, next_power_of_2, triton_config_to_hashable

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden" / "inductor_2_6.json"

MAX_BLOCK = {"X": 4096, "Y": 1024, "Z": 1024, "R": 4096 * 16}
"""TRITON_MAX_BLOCK of 2.6, which no longer exists under these names."""

WANTED = {
    "autotune_hints_to_configs",
    "disable_pointwise_autotuning",
    "unique_configs",
    "check_config",
    "_num_warps",
    "_check_max_grid_x",
    "triton_config",
    "triton_config_reduction",
    "pointwise",
    "_reduction_configs",
    "reduction",
    "cooperative_reduction",
    "_persistent_reduction_configs",
    "persistent_reduction",
    "split_scan",
}

X = [1 << i for i in (0, 1, 5, 7, 10, 12, 17, 20, 25, 28, 31, 33)]
R = [1 << i for i in (0, 2, 5, 7, 8, 9, 10, 11, 12, 16, 17, 20)]
YZ = [1, 16, 1024, 1 << 17]
MODES: tuple[dict[str, Any], ...] = (
    {},
    {"max_autotune": True},
    {"autotune_pointwise": False},
    {"are_deterministic_algorithms_enabled": True, "max_autotune": True},
)
REDUCTIONS = ("reduction", "persistent_reduction", "cooperative_reduction", "cooperative_persistent", "split_scan")


def functions(unpacked: Path, hip: bool) -> dict[str, Any]:
    """2.6's decision functions in a name space of their own."""
    source = (unpacked / "torch/_inductor/runtime/triton_heuristics.py").read_text()
    tree = ast.parse(source)
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in WANTED]
    future = ast.parse("from __future__ import annotations").body
    tree.body = future + tree.body  # type: ignore[assignment]
    space: dict[str, Any] = {
        "torch": SimpleNamespace(version=SimpleNamespace(hip="6.2" if hip else None)),
        "functools": functools,
        "operator": operator,
        "math": math,
        "Config": triton.Config,
        "TRITON_MAX_BLOCK": MAX_BLOCK,
        "TRITON_MAX_RSPLIT": torch_hints.TRITON_MAX_RSPLIT,
        "_NUM_THREADS_PER_WARP": 32,
        "cached_autotune": lambda sizes, configs, **_: configs,
    }
    space.update(conditional_product=conditional_product, next_power_of_2=next_power_of_2)
    space["triton_config_to_hashable"] = triton_config_to_hashable
    for name in ("AutotuneHint", "ReductionHint", "TileHint", "HeuristicType"):
        space[name] = getattr(torch_hints, name)
    exec(compile(tree, "inductor-2.6", "exec"), space)
    return space


def cases() -> Iterator[dict[str, Any]]:
    for x, mode in itertools.product(X, MODES):
        yield {"family": "pointwise", "sizes": {"x": x}, "mode": mode, "min_elements": 4 * (x % 3)}
    for x, y, mode, tile in itertools.product(X[::2], YZ, MODES, ("SQUARE", "DEFAULT")):
        yield {"family": "pointwise", "sizes": {"x": x, "y": y}, "mode": mode, "tile": tile}
    for x, y, z, mode in itertools.product(X[::3], YZ[::2], YZ[1::2], MODES[:3]):
        yield {"family": "pointwise", "sizes": {"x": x, "y": y, "z": z}, "mode": mode}
    for i, (family, x, r, mode) in enumerate(itertools.product(REDUCTIONS, X, R, MODES)):
        if (i + i // 4) % 2:
            continue
        hint = ("INNER", "OUTER", "OUTER_TINY", "DEFAULT")[(x.bit_length() + r.bit_length() // 2) % 4]
        yield {"family": family, "sizes": {"x": x, "r": r}, "mode": mode, "hint": hint, "loads": r.bit_length()}


def beyond() -> Iterator[dict[str, Any]]:
    """Sizes at which 2.6 refuses because of tiles that it wouldn't have proposed."""
    for x, r, family, hint in itertools.product((1 << 34, 1 << 35), R[::3], REDUCTIONS, ("INNER", "OUTER")):
        yield {"family": family, "sizes": {"x": x, "r": r}, "mode": {}, "hint": hint, "loads": r.bit_length()}


def answer(case: dict[str, Any], space: dict[str, Any], warp_size: int) -> list[str] | None:
    """Ordered configs as text, ``X64 R8 w4 s1``, or None where 2.6 raises."""
    meta = {**case["mode"], "num_load": case.get("loads", 0)}
    device = {"device": SimpleNamespace(warp_size=warp_size)}
    family = case["family"]
    try:
        if family == "pointwise":
            tile = torch_hints.TileHint[case.get("tile", "DEFAULT")]
            least = case.get("min_elements", 0)
            found = space["pointwise"](case["sizes"], device, tile, None, least, meta)
        else:
            meta["persistent_reduction"] = family == "cooperative_persistent"
            function = space["cooperative_reduction" if "cooperative" in family else family]
            found = function(dict(case["sizes"]), torch_hints.ReductionHint[case["hint"]], device, None, meta)
    except (AssertionError, KeyError, NotImplementedError):
        return None
    return [text(c.kwargs, c.num_warps, c.num_stages) for c in space["unique_configs"](found)]


def text(kwargs: dict[str, Any], warps: int, stages: int) -> str:
    blocks = [f"{name.removesuffix('BLOCK')}{kwargs[name]}" for name in sorted(kwargs)]
    return " ".join([*blocks, f"w{warps}", f"s{stages}"])


def main() -> None:
    unpacked = Path(sys.argv[1])
    lines = []
    for target, warp_size in (("cuda:90", 32), ("hip:gfx942", 64), ("hip:gfx1100", 32)):
        space = functions(unpacked, target.startswith("hip"))
        for i, case in enumerate((*cases(), *beyond())):
            if target == "cuda:90" or i % 3 == 0:
                lines.append(
                    json.dumps(
                        {**case, "target": target, "configs": answer(case, space, warp_size)}, separators=(",", ":")
                    )
                )
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "cases", GOLDEN.stat().st_size, "bytes; torch here", torch.__version__)


if __name__ == "__main__":
    main()
