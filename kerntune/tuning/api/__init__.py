"""What users call: decorators, the tuners that they make, and ``install()``.

A module belongs here if users see it: it reads their arguments, refuses wrong ones by name, and hands on. How a config
is found is never decided here: that is the rest of :mod:`kerntune.tuning`.
"""
