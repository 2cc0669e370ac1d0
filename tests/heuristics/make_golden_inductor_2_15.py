"""Writes golden/inductor_2_15.json from the sources of torch 2.15.0, which need not be installed.

``python -m tests.heuristics.make_golden_inductor_2_15 UNPACKED`` where UNPACKED is the wheel's content (``pip download
--no-deps torch==2.15.0``, then unzip). A sample of all families, most of it of what 2.15 decides otherwise than 2.13.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kerntune.base.device import DeviceSpec
from kerntune.heuristics.hints import KernelHints

from .inductor_cases import B300, CASES, DEVICES, Case
from .inductor_sources import use_sources

GOLDEN = Path(__file__).resolve().parent / "golden" / "inductor_2_15.json"
STRIDES = {"newer_hints": 37}
STRIDE = 1511


def sample() -> Iterator[Case]:
    """Every so many cases of each family, by backend."""
    for family, cases in CASES.items():
        taken = itertools.islice(cases(), 0, None, STRIDES.get(family, STRIDE))
        yield from sorted(taken, key=lambda case: case[2].target.backend)


def packed(case: Case) -> dict[str, Any]:
    """A case as JSON: the hints that aren't left at their defaults."""
    family, hints, device = case
    plain = KernelHints(sizes=hints.sizes)
    given = {f: getattr(hints, f) for f in hints.__struct_fields__ if getattr(hints, f) != getattr(plain, f)}
    whole = {"sizes": hints.sizes, **given}
    packed_hints = msgspec.to_builtins(whole)
    if "modes" in given:
        modes = given["modes"]
        changed = {f: v for f in modes.__struct_fields__ if (v := getattr(modes, f)) != getattr(plain.modes, f)}
        packed_hints["modes"] = changed
    return {"family": family, "hints": packed_hints, "target": str(device.target), "sms": device.sm_count}


def unpacked(case: dict[str, Any]) -> Case:
    """The other way."""
    device = next(d for d in (*DEVICES, B300) if str(d.target) == case["target"])
    return case["family"], msgspec.convert(case["hints"], KernelHints), sized(device, case["sms"])


def sized(device: DeviceSpec, sms: int) -> DeviceSpec:
    return msgspec.structs.replace(device, sm_count=sms)


def text(configs: Any) -> list[str] | None:
    """Ordered configs as text, ``XBLOCK64 R0_BLOCK8 w4 s1``, or None for a refusal."""
    if configs is None:
        return None
    return [" ".join([*(f"{k}{v}" for k, v in items), f"w{warps}", f"s{stages}"]) for items, warps, stages in configs]


def main() -> None:
    version = use_sources(Path(sys.argv[1]))
    from .inductor_oracle import ask, backend

    lines = []
    for case in sample():
        with backend(case[2].target.backend):
            answer = text(ask(*case))
        lines.append(json.dumps({**packed(case), "configs": answer}, separators=(",", ":")))
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(lines), "cases", GOLDEN.stat().st_size, "bytes, of torch", version)


if __name__ == "__main__":
    main()
