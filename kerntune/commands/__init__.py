"""The subcommands of ``kerntune``, a module each; :mod:`kerntune.cli` loads the one that is asked for."""
