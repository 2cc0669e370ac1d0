"""Search strategies over a space of configs.

A strategy receives the outcome of each config and chooses the next ones to try. It never uses a GPU, a cache, a
compiler or a kernel: those belong to :mod:`kerntune.tuning`.
"""

from __future__ import annotations

from kerntune.search.budgeted import Budget, BudgetedSearch, Predicted, Search
from kerntune.search.combos import AnySearch, ComboSearch, combo_search
from kerntune.search.descent import Descent
from kerntune.search.space import Choice, Found, Measure, Measured, Range, Space, Tried

__all__ = [
    "AnySearch",
    "Budget",
    "BudgetedSearch",
    "Choice",
    "ComboSearch",
    "Descent",
    "Found",
    "Measure",
    "Measured",
    "Predicted",
    "Range",
    "Search",
    "Space",
    "Tried",
    "combo_search",
]
