"""Prints what result files of ``tuning_suite.py`` and ``heuristic_sweep.py`` say: ``tuning_tables.py FILE ...``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.suite.tables import report


def main(files: list[str]) -> int:
    """A report for each file."""
    for file in files:
        print(f"{file}\n\n{report(json.loads(Path(file).read_text()))}\n")
    return 0 if files else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
