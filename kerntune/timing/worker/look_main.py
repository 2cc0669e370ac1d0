"""``python -m kerntune.timing.worker.look_main PARENT FILE DEVICE...``: serves :mod:`kerntune.timing.worker.looks`.

The driver takes 0.2 to 0.3 s for a context (H200), and Python as long for its imports: both go on at the same time.
"""

from __future__ import annotations

import os
import sys
import threading

from kerntune.gpu.early_context import open_context


def run(words: list[str]) -> int:
    """Open the device while the rest is imported, and serve; the exit code."""
    opening = threading.Thread(target=open_context, args=(int(words[2]),)) if words[2].isdigit() else None
    if opening is not None:
        opening.start()
    from kerntune.timing.worker.looks import main

    if opening is not None:
        opening.join()
    return main(words)


if __name__ == "__main__":
    code = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a lost context has nothing to be freed
