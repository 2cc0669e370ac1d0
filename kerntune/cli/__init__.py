"""The subcommands of ``kerntune``, a module each; :mod:`kerntune.cli.command` loads the one that is asked for."""
