"""What earlier tuning found, on disk: winners, and the single trials behind them."""

from __future__ import annotations

from kerntune.cache.exchange import export_cache, export_devices, import_cache
from kerntune.cache.shipped import add_shipped
from kerntune.cache.trials import StoredTrial, TrialCache, TrialKey
from kerntune.cache.winner import Winner, WinnerKey
from kerntune.cache.winners import WinnerCache

__all__ = [
    "StoredTrial",
    "TrialCache",
    "TrialKey",
    "Winner",
    "WinnerCache",
    "WinnerKey",
    "add_shipped",
    "export_cache",
    "export_devices",
    "import_cache",
]
