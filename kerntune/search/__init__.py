"""Strategies that choose what to try next. They are handed a measure, and know neither cache nor GPU."""

from __future__ import annotations

from kerntune.search.budgeted import Budget, BudgetedSearch, Predicted
from kerntune.search.combos import combo_search
from kerntune.search.declared import Search
from kerntune.search.descent import coordinate_descent
from kerntune.search.exhaustive import exhaustive
from kerntune.search.history import Found, Measure, Measured, Tried
from kerntune.search.space import Choice, Range, Space

__all__ = [
    "Budget",
    "BudgetedSearch",
    "Choice",
    "Found",
    "Measure",
    "Measured",
    "Predicted",
    "Range",
    "Search",
    "Space",
    "Tried",
    "combo_search",
    "coordinate_descent",
    "exhaustive",
]
