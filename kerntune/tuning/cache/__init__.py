"""What earlier tuning found, on disk: winners, and the single trials behind them.

Keys, files, exports, winners that packages ship, reasons of a miss, reports of damage, a store that machines share.
Which stored entry is used for a launch is not decided here: that is :mod:`kerntune.tuning.stored_winners` and
:mod:`kerntune.tuning.stored_trials`.
"""

from __future__ import annotations

from kerntune.tuning.cache.exchange import export_cache, export_devices, import_cache
from kerntune.tuning.cache.keys import Winner, WinnerKey
from kerntune.tuning.cache.winners import StoredTrial, TrialCache, TrialKey, WinnerCache, add_shipped

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
