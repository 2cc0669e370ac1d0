"""Recorded GPU sweeps (``tuning_suite.py``, part ``quality``, and ``heuristic_sweep.py``) as the resource model takes
them: every config of a case with its time and its static figures."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerntune.base.config import Config
from kerntune.base.device import TYPICAL_DEVICES
from kerntune.static.prediction import Figures
from kerntune.static.resource_model import ModelledConfig, cost

H200 = TYPICAL_DEVICES["cuda:90"]

FEWEST = 6
"""Cases of fewer distinct configs say nothing about an order."""

Row = dict[str, Any]


def candidate(row: Row) -> ModelledConfig:
    """A sweep's row as the model takes it."""
    return ModelledConfig(
        registers=row["registers"],
        shared_bytes=row.get("shared_bytes", 0),
        threads=row["threads"],
        blocks=math.prod(row["grid"]),
        instructions=row["instructions"],
        spill_bytes=row.get("spill_store_bytes", 0) + row.get("spill_load_bytes", 0),
        stages=int(found[1]) if (found := re.search(r"\bnum_stages=(\d+)", row["config"])) else 0,
    )


def figures(row: Row) -> Figures:
    """What a tuner would foresee of it, from the machine code where a tuner has PTX."""
    given = candidate(row)
    return Figures(cost(given, H200), given.spill_bytes, row.get("occupancy") or 0.0)


def config(row: Row) -> Config:
    """Its config; only whole numbers in these sweeps."""
    return Config.from_mapping({name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row["config"])})


@dataclass(frozen=True)
class Recorded:
    """One case: distinct configs that ran and have figures. ``proposals``: of each set of a heuristic's options, which
    of these it proposes (equal code once)."""

    kernel: str
    name: str
    rows: list[Row]
    proposals: dict[str, list[int]] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Nanoseconds, row by row."""
        return [float(row["time_ns"]) for row in self.rows]


def recorded(path: Path) -> list[Recorded]:
    """The cases of a sweep file, those of fewer than :data:`FEWEST` configs left out."""
    data = json.loads(path.read_text(encoding="utf-8"))
    found = [_case(entry) for entry in (*data.get("quality", ()), *data.get("kernels", ()))]
    return [case for case in found if len(case.rows) >= FEWEST]


def _case(entry: dict[str, Any]) -> Recorded:
    name = entry.get("case") or f"{entry['kernel']}[{' '.join(f'{k}={v}' for k, v in entry['shape'].items())}]"
    every = entry["configs"]
    used = [i for i, r in enumerate(every) if "time_ns" in r and "registers" in r and "same_as" not in r]
    place = {i: n for n, i in enumerate(used)}
    proposals = {
        options: sorted({place[j] for i in chosen if (j := every[i].get("same_as", i)) in place})
        for options, chosen in entry.get("proposals", {}).items()
    }
    return Recorded(name.partition("[")[0], name, [every[i] for i in used], proposals)
