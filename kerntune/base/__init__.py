"""Values that every package shares: configs, devices, policies, recordings, case results, statistics, JSON, messages.

A module lives here if it is data or arithmetic, or carries data to a file or to another process, and nothing else: it
never uses a GPU or a compiler, and imports neither torch nor triton nor another package of kerntune. Code that decides
something about a kernel belongs in the package that decides it.

Some modules are small. ``orphans`` is light: processes that compile, measure or talk to a store load it without the
rest. ``formatting``, ``operator_list`` and ``users_line`` are pure.
"""
