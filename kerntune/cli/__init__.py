"""The command ``kerntune``: a module for each subcommand, loaded when it is asked for.

Arguments, output and exit codes. What a subcommand computes, and all that the plugin needs too, is never here but in
:mod:`kerntune.gate` and below it.
"""

from __future__ import annotations

from kerntune.cli.command import main

__all__ = ["main"]
