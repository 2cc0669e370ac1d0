"""How long recordings take: timers, samples, pairs timed in turn, and the worker processes that do it.

A module belongs here if it makes times or says when there are enough of them. What a time means for a config or a
verdict is never decided here: that is :mod:`kerntune.tuning` and :mod:`kerntune.gate`. The package imports nothing: a
worker process pays for what it loads.
"""
