"""``python -m kerntune.timing.worker ORDINAL``: serve one parent until its pipe closes."""

import sys

from kerntune.timing.worker.serve import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))
