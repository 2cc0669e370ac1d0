"""``python -m kerntune.cli``: the command, for another environment's interpreter."""

import sys

from kerntune.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
