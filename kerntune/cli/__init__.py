"""The command ``kerntune``: a module for each command, or for several that read the same.

:mod:`kerntune.cli.command` is light: it loads a command's module when that command is asked for. ``collection`` is
late, since it loads pytest, and ``completion``, which writes a shell's script. Arguments, output and exit codes are
here. What a command computes, and all that the plugin needs too, is never here but in :mod:`kerntune.gate` and below
it.
"""

from __future__ import annotations

from kerntune.cli.command import main

__all__ = ["main"]
