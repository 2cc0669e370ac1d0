"""Puts the project's root where scripts of ``benchmarks/`` put it: first in the path."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])

if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
