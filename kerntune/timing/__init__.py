"""How long recordings take: timers, samples, pairs timed in turn, and the worker processes that do it.

A module belongs here if it takes times or decides when there are enough of them. What a time means for a config or a
verdict is never decided here: :mod:`kerntune.tuning` and :mod:`kerntune.gate` do that. The package imports nothing,
since every import makes a worker start later. Light are ``timers`` and ``sampling``: a worker loads both.
"""
