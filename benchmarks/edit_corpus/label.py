"""Times every edit of the corpus on this GPU.

    python -m benchmarks.edit_corpus.label OUT.json [--processes 16] [--seconds 200] [--kernels ...] [--again OLD.json]

First many processes compile both sides of each edit at a time and compare what they compute, then one process times
them in turn (:mod:`benchmarks.edit_corpus.label_process`). A process that an edit breaks (an illegal address stays with
it) or that hangs is started anew without that edit. OUT is written in any case, with what is there after ``--seconds``.
``--again`` keeps the labels of another file, for edits whose sources are unchanged.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.edit_corpus.corpus import EDITS
from benchmarks.edit_corpus.edit import Edit
from benchmarks.edit_corpus.tables import label_of
from benchmarks.harness import ROOT

ATTEMPTS = 6
"""How often a process is started anew; each attempt loses one edit."""


def digest(edit: Edit) -> str:
    """Of both sources."""
    return hashlib.sha256((edit.before() + "\0" + edit.after()).encode()).hexdigest()[:16]


def work(folder: Path, name: str, what: str, edits: list[str], until: float) -> dict[str, dict[str, Any]]:
    """What processes say of edits, by key; one after the other, each going on where the last one ended."""
    out = folder / f"{name}.jsonl"
    out.touch()
    for _ in range(ATTEMPTS):
        rest = [key for key in edits if key not in read(out)]
        left = until - time.monotonic()
        if not rest or left < 5:
            break
        command = [sys.executable, "-m", "benchmarks.edit_corpus.label_process", what, str(out), str(folder)]
        env = harness.child_environment()
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                command, input=json.dumps(rest), cwd=ROOT, env=env, text=True, timeout=left, stderr=subprocess.PIPE
            )
            if done.returncode:
                print(f"{name}: {done.stderr[-1500:]}", file=sys.stderr, flush=True)
    return read(out)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each edit; an edit that was only started broke its process."""
    return {row["edit"]: row for row in map(json.loads, path.read_text().splitlines())}


def label(checked: dict[str, Any], timed: dict[str, Any]) -> dict[str, Any]:
    """What is kept of an edit."""
    if "error" in checked:
        over = "out of resource" in checked["error"]
        return {"label": "not launched" if over else "broken", "error": checked["error"]}
    if not checked.get("right"):
        return {"label": "wrong", "difference": checked.get("difference")}
    if "ratio" not in timed:
        return {"label": "untimed", "error": timed.get("error", "no time was left")}
    kept = {k: timed[k] for k in ("ratio", "low", "high", "before_us", "after_us", "blocks")}
    return {"label": label_of(timed["ratio"]), **kept, "difference": checked["difference"]}


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--kernels", nargs="*")
    parser.add_argument("--again", type=Path)
    args = parser.parse_args()
    start = time.monotonic()
    until = start + args.seconds
    old = json.loads(args.again.read_text()) if args.again else {"edits": {}}
    known = old["edits"]
    kept = {e.key: known[e.key] for e in EDITS if known.get(e.key, {}).get("sources") == digest(e)}
    edits = [e.key for e in EDITS if e.key not in kept and (not args.kernels or e.kernel in args.kernels)]
    with tempfile.TemporaryDirectory() as scratch:
        folder, checked = Path(scratch), {}
        with concurrent.futures.ThreadPoolExecutor(args.processes) as pool:
            shares = [edits[i :: args.processes] for i in range(args.processes)]
            limit = start + args.seconds * 0.5
            for found in pool.map(lambda i: work(folder, f"check{i}", "check", shares[i], limit), range(len(shares))):
                checked.update(found)
        compiled = round(time.monotonic() - start, 1)
        print(f"{len(checked)} edits checked in {compiled} s", file=sys.stderr, flush=True)
        right = [key for key in edits if checked.get(key, {}).get("right")]
        timed = work(folder, "time", "time", right, until)
    rows = {key: label(checked.get(key, {"error": "not checked"}), timed.get(key, {})) for key in edits}
    digests = {e.key: digest(e) for e in EDITS}
    labels = {
        e.key: {**(kept.get(e.key) or rows[e.key]), "sources": digests[e.key]}
        for e in EDITS
        if e.key in {**kept, **rows}
    }
    seconds = {"checked": compiled, "all": round(time.monotonic() - start, 1)}
    earlier = {"labels": len(kept), **old["environment"]} if kept else None
    args.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "environment": harness.environment(device=harness.device_name()),
        "kept_from": earlier,
        "seconds": seconds,
        "edits": labels,
    }
    harness.write(args.out, result)


if __name__ == "__main__":
    main()
