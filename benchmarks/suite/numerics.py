"""Checks every kernel of the benchmarks against torch, at small shapes, in Triton's interpreter.

``python -m benchmarks.suite.numerics`` prints a line of JSON per kernel and config. A process of its own: whether
kernels are interpreted is decided when they are decorated.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from benchmarks.suite.cases import CASES
from benchmarks.suite.proposed_cases import PROPOSED

SAMPLES = 3
"""Configs of each kernel that are tried: the interpreter takes up to a second for one."""


def listed() -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Name, case, and some configs as a launch takes them."""
    for case in CASES.values():
        configs = case.configs(case.small)
        yield case.name, case, [c.all_kwargs() for c in configs[:: -(-len(configs) // SAMPLES)]]
    for proposed in PROPOSED.values():
        configs, sets = proposed.configs(proposed.call(proposed.small, "cpu"))
        found = [configs[i].all_kwargs() for i in sets["max_autotune"][:2]] + [configs[len(configs) // 2].all_kwargs()]
        whole = proposed.family == "persistent_reduction"  # its space is that of the full shape
        yield f"proposed {proposed.name}", proposed, found[:2] if whole else found


def worst(case: Any, words: dict[str, Any]) -> float:
    """The largest difference from torch, in units of the case's tolerance (absolute and relative)."""
    torch.manual_seed(0)
    call = case.call(case.small, "cpu")
    expected = call.expected()
    case.kernel[call.grid](*call.arguments, **words)
    return call.off(expected, case.tolerance)


def main() -> None:
    """All of them."""
    warnings.simplefilter("ignore")  # numpy's, of masked elements
    for name, case, samples in listed():
        for words in samples:
            print(json.dumps({"kernel": name, "words": words, "off": worst(case, words)}), flush=True)


if __name__ == "__main__":
    main()
