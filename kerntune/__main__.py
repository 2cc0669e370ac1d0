"""``python -m kerntune``: the command."""

import sys

from kerntune.cli import main

if __name__ == "__main__":
    sys.exit(main())
