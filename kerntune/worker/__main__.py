"""``python -m kerntune.worker ORDINAL``: serve one parent until its pipe closes."""

import sys

from kerntune.worker.serve import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))
