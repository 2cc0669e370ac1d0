"""Feeds kerntune's decoders with inputs that a coverage-guided fuzzer makes: only kerntune's own errors may come of it.

    python -m pip install --target fuzz atheris==3.0.0
    PYTHONPATH=fuzz python -m benchmarks.fuzz.fuzz_decoders benchmarks/results/fuzz_decoders.json [--runs 1000000]
        [--seed 1]

Targets are the files of the cache (winners, trials, listings, exports, shipped winners), baselines of both kinds,
artifacts, bundles, runs, and the messages of compiling and measuring processes. Inputs begin as whole ones: those of
``tests/data/formats``, and messages made here. libFuzzer mutates their bytes, guided by which lines of kerntune are
reached; every other time one value of a whole input is replaced by another: a number that can't be, a path, a text of
another kind. What is accepted is used as a run uses it first. The JSON counts, per target, what was accepted and
refused, and what else was raised (the inputs are beside it then), and has the memory that all took beyond the start.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    sys.exit("atheris is missing: python -m pip install --target fuzz atheris==3.0.0, then PYTHONPATH=fuzz")

import msgspec

from benchmarks import harness
from benchmarks.fuzz.fuzz_mutations import replaced, resident_mb

with atheris.instrument_imports(include=["kerntune.base", "kerntune.gate", "kerntune.tuning.cache"]):
    from kerntune.base import codec, frames
    from kerntune.base.recording import work_of
    from kerntune.compiling.protocol import Answer, CompileFailed, Done, ForkRequest, Hello, Job
    from kerntune.errors import KerntuneError
    from kerntune.gate.baseline_files import BaselineStore, artifact_bounds, artifact_names, case_file
    from kerntune.gate.baselines import TimeBaseline, decode_static, decode_time
    from kerntune.gate.bundle import check_identity, decode_bundle, unpacked
    from kerntune.gate.report import SCHEMA as RUN_SCHEMA
    from kerntune.gate.report import RunReport
    from kerntune.timing.worker.requests import Message, PairReply, PairRequest, Ready, RequestFailed
    from kerntune.tuning.cache import entries, exchange, keys, winners

FORMATS = harness.ROOT / "tests" / "data" / "formats"
MAX_INPUT = 1 << 16
"""Bytes of an input: what takes much memory has tests of its own (``tests/base/test_codec_hostile_files.py``)."""

ARTIFACT = b"content of an artifact " * 40


def use_time(found: TimeBaseline) -> None:
    """What a run does first with a time baseline."""
    artifact_bounds(found)
    artifact_names(found.recording)
    for launch in found.recording.launches:
        work_of(found.recording, launch)
    found.recording.pruned()
    assert ".." not in case_file(found.case, found.fingerprint).split("/")


def use_bundle(data: bytes) -> None:
    """All that is checked of a bundle before it is written, and where it would be."""
    bundle = decode_bundle(msgspec.Raw(data), "it")
    check_identity(bundle, "it")
    unpacked(bundle, "it")
    folder = Path("/baselines")
    assert Path(os.path.normpath(bundle.path(BaselineStore(folder)))).is_relative_to(folder)


def use_static(data: bytes) -> None:
    """What a run does first with a static baseline."""
    artifact_bounds(decode_static(data, "it"))


def entry(kind: Any, schema: str) -> Callable[[bytes], None]:
    """An entry of the cache, or a file of them."""

    def decode(data: bytes) -> None:
        found = codec.from_json(data, kind, schema, where="it")
        if hasattr(found, "key"):
            found.key.digest()

    return decode


def message(kind: Any) -> Callable[[bytes], None]:
    """A message that came from another process: the input is its body."""

    def decode(data: bytes) -> None:
        frames.decode(len(data).to_bytes(4, "little") + data, kind)

    return decode


def artifact(data: bytes) -> None:
    """A file of xz's."""
    try:
        codec.unpack(data, hashlib.sha256(ARTIFACT).hexdigest(), 1 << 20)
    except ValueError as exc:  # what ArtifactFolder and bundles make their errors of
        raise KerntuneError(str(exc)) from exc


TARGETS: dict[str, Callable[[bytes], None]] = {
    "winner": entry(keys.Winner, keys.SCHEMA),
    "trial": entry(winners.StoredTrial, winners.TRIAL_SCHEMA),
    "listing": entry(entries.StoredListing, entries.SCHEMA),
    "export": entry(exchange.CacheFile, exchange.SCHEMA),
    "shipped": entry(winners.DeviceWinners, winners.SHIPPED_SCHEMA),
    "time baseline": lambda data: use_time(decode_time(data, "it")),
    "static baseline": use_static,
    "artifact": artifact,
    "bundle": use_bundle,
    "run": entry(RunReport, RUN_SCHEMA),
    "measuring message": message(Message),
    "compiler's answer": message(Answer),
    "job": message(Job),
    "fork request": message(ForkRequest),
    "frame": lambda data: frames.decode(data, Message),
}
NAMES = list(TARGETS)


def wholes() -> Iterator[tuple[str, bytes]]:
    """Whole inputs of every target."""
    for path in sorted(FORMATS.rglob("*.json")):
        data = path.read_bytes()
        schema = json.loads(data).get("schema", "") if data.startswith(b"{") else ""
        if schema in OF_SCHEMA:
            yield OF_SCHEMA[schema], data
        if schema == RUN_SCHEMA:
            yield from (("bundle", json.dumps(b).encode()) for b in json.loads(data)["baselines"].values())
    yield "listing", codec.to_json(entries.StoredListing(entries.SCHEMA, "sm_90", "0" * 64, 3, "1", {"FADD": 3}))
    yield "artifact", lzma.compress(ARTIFACT)
    time_file = next(p for p in sorted((FORMATS / "baselines").rglob("*.json")) if "time" in p.parts)
    recording = decode_time(time_file.read_bytes(), "it").recording
    pair = PairRequest(recording, recording, recording.storages, {"0" * 64: b"bytes"}, 24, 1)
    for said in (Ready("NVIDIA H200"), pair, PairReply((1.0,), (2.0,)), RequestFailed("why")):
        yield "measuring message", msgspec.msgpack.encode(said)
        yield "frame", bytes(frames.encode(said))
    for answer in (Hello("3.9.0", "/triton"), Done({"ptx": b"text"}, b"{}", [("ptx", 5)]), CompileFailed("why")):
        yield "compiler's answer", msgspec.msgpack.encode(answer)
    yield "job", msgspec.msgpack.encode(Job("ir", "ttir", "triton", "cuda", 90, 32, {"num_warps": 4}, "0", b"{}"))
    yield "fork request", msgspec.msgpack.encode(ForkRequest(0, "{}", "/tmp/x"))


OF_SCHEMA = {
    "kerntune.winner/1": "winner",
    "kerntune.trial/1": "trial",
    "kerntune.cache/1": "export",
    "kerntune.winners/1": "shipped",
    "kerntune.time/1": "time baseline",
    "kerntune.static/1": "static baseline",
    RUN_SCHEMA: "run",
}
WHOLES = list(wholes())
assert {name for name, _ in WHOLES} == set(NAMES)


def packed(name: str, data: bytes) -> bytes:
    """An input: which target, and its bytes."""
    return bytes([NAMES.index(name)]) + data


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """libFuzzer's mutation of the bytes, or another value in a whole input."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return bytes(atheris.Mutate(data, most))
    name, whole = rng.choice(WHOLES)
    return packed(name, replaced(whole, rng))[:most]


class Runs:
    """Counts inputs, and ends the process after the last."""

    def __init__(self, out: Path, runs: int, seed: int, corpus: Path) -> None:
        self.out, self.runs, self.seed, self.corpus = out, runs, seed, corpus
        self.accepted, self.refused, self.others = Counter[str](), Counter[str](), Counter[str]()
        self.begin, self.before, self.done = time.monotonic(), resident_mb("VmRSS"), 0

    def one(self, data: bytes) -> None:
        """Give one input to its target."""
        if data:
            name = NAMES[data[0] % len(NAMES)]
            try:
                TARGETS[name](data[1:])
                self.accepted[name] += 1
            except KerntuneError:
                self.refused[name] += 1
            except Exception as exc:
                self._other(name, data, exc)
            self.done += 1
        if self.done == self.runs:
            self._end()

    def _other(self, name: str, data: bytes, exc: Exception) -> None:
        what = f"{name}: {type(exc).__name__}: {str(exc)[:200]}"
        if not self.others[what]:
            self.out.with_suffix(f".{hashlib.sha256(data).hexdigest()[:8]}.input").write_bytes(data)
        self.others[what] += 1

    def _end(self) -> None:
        found = {
            "python": platform.python_version(),
            "seed": self.seed,
            "inputs": self.done,
            "started_from": len(WHOLES),
            "seconds": round(time.monotonic() - self.begin, 1),
            "memory_mb": resident_mb("VmHWM") - self.before,
            "not_kerntunes_own_errors": dict(self.others),
            "targets": {n: {"accepted": self.accepted[n], "refused": self.refused[n]} for n in NAMES},
        }
        harness.write(self.out, found)
        print(json.dumps(found, indent=1), flush=True)
        shutil.rmtree(self.corpus, ignore_errors=True)
        os._exit(1 if self.others else 0)


def main() -> None:
    """See the module's text."""
    parser = harness.parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for name, whole in WHOLES:
        data = packed(name, whole)
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    runs = Runs(args.out, args.runs, args.seed, corpus)
    options = [f"-seed={args.seed}", f"-max_len={MAX_INPUT}", "-rss_limit_mb=4096", "-verbosity=0", "-len_control=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], runs.one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
