"""``python -m kerntune.timing.worker ORDINAL``: times pairs for one parent until its pipe closes.

``... first-launches PARENT FILE DEVICE...``: serves :mod:`kerntune.timing.worker.first_launch_server`. Such a process
never times: a fault may leave its context damaged. The driver takes 0.2 to 0.3 s for a context (H200), and Python as
long for its imports: both go on at the same time.
"""

from __future__ import annotations

import os
import sys


def run_first_launches(words: list[str]) -> int:
    """Open the device while the rest is imported, and serve; the exit code."""
    import threading

    from kerntune.gpu.early_context import open_context

    opening = threading.Thread(target=open_context, args=(int(words[2]),)) if words[2].isdigit() else None
    if opening is not None:
        opening.start()
    from kerntune.timing.worker.first_launch_server import main

    if opening is not None:
        opening.join()
    return main(words)


if __name__ == "__main__":
    if sys.argv[1] == "first-launches":
        code = run_first_launches(sys.argv[2:])
        sys.stderr.flush()
        os._exit(code)  # a lost context has nothing to be freed
    from kerntune.timing.worker.serve import serve

    serve(int(sys.argv[1]))
