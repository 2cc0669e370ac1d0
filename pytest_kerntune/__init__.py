"""The pytest plugin: options, markers, the ``autotune`` fixture, the session's gate and what the terminal shows.

It translates between pytest and :mod:`kerntune.gate.api`. No measurement, no decision and no file format lives here:
whatever could be used without pytest belongs into :mod:`kerntune`.

Some modules are small. ``warning`` and ``hookspecs`` are light: projects' files name them. ``unattended``,
``noted_calls`` and ``sealed_tasks`` are late: runs load them that another process starts.
"""
