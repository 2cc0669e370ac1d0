"""A store on real services, 50 ms away, that goes away in the midst: what a call pays, and what is lost.

    python benchmarks/store_outage.py benchmarks/results/store_outage.json [--services s3 sftp] [--keys 200]

Services: moto's S3 server (``pip install "moto[server]" s3fs``) and OpenSSH's SFTP (``sshd``, ``paramiko``), each
behind a TCP proxy of this script that delays what comes back by 50 ms. A *call* is what a call of a tuned kernel asks
of cache and store: a look for the winner and, where there is none, the turn to tune, and the winner's way into the
store; the tuning itself takes no time here.

``first``: a machine tunes all keys, 50 to a kernel. ``second``: a new process on another machine finds them; its
requests are counted in the proxy. ``crowd``: sixteen processes create each of forty files at once; how many succeed.
``away``: a process makes its calls, and after a third of them the proxy refuses connections, or answers nothing any
more, or cuts each answer in half: the calls' longest times, errors and warnings. ``outage`` is what the store's absence
itself cost: the calls that had a request without an answer, and for each the seconds in that request, in its requests
that were answered, and in all else. ``late_ms`` is how much too late a thread that only sleeps woke up meanwhile at
worst: so much of any wait is the machine's. The service comes back; then what was
found meanwhile must reach the store, in a new process that asks for half of the keys, and by ``kerntune cache push``.
No GPU. Rows are written as they come.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cache_scale import CONFIGS, winner_key
from benchmarks.ranks import KeyedWinners, ScriptedGpu, site_of
from kerntune.base.policy import TuneMode
from kerntune.base.url_files import open_files
from kerntune.tuning import agreement
from kerntune.tuning.cache import WinnerCache, store_client
from kerntune.tuning.cache.push_pull import pull_cache, push_cache
from kerntune.tuning.cache.shared_store import SharedStore
from kerntune.tuning.cache.shared_winners import SharedWinnerCache

DELAY_S = 0.05
KERNEL_KEYS = 50
"""Keys of one kernel (:func:`benchmarks.cache_scale.winner_key`)."""

PATIENT_S = 20.0
"""Where requests are counted, a machine that is busy with other things is no outage."""

SSHD = "/usr/sbin/sshd"


class Proxy:
    """Forwards to a port, and delays what comes back. ``mode`` is ``on``, ``refuse``, ``silent`` or ``half``."""

    def __init__(self, port: int) -> None:
        self.target, self.mode = port, "on"
        self.requests = self.connections = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            if self.mode == "refuse":
                client.close()
                continue
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self.target))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            both = (threading.Thread(target=self._forward, args=a, daemon=True)
                    for a in ((client, server, False), (server, client, True)))  # fmt: skip
            for thread in both:
                thread.start()

    def _forward(self, source: socket.socket, to: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not back:
                    self.requests += data.count(b" HTTP/1.1\r\n")
                if self.mode == "silent":
                    continue
                if back:
                    time.sleep(DELAY_S)
                    if self.mode == "half":
                        to.sendall(data[: len(data) // 2])
                        break
                to.sendall(data)
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        """Take no further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def go_away(self, mode: str) -> None:
        """From now on; ``refuse`` ends what is open."""
        self.mode = mode
        if mode == "refuse":
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._open = []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[tuple[str, Proxy]]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            proxy = Proxy(port)
            os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
            import boto3

            boto3.client("s3").create_bucket(Bucket="kerntune-store")
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
            yield "s3://kerntune-store/a", proxy
            proxy.close()
        finally:
            server.terminate()


@contextlib.contextmanager
def sftp(folder: Path) -> Iterator[tuple[str, Proxy]]:
    port, home = free_port(), folder / "home" / ".ssh"
    home.mkdir(parents=True)
    for name in (folder / "hostkey", home / "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(name)], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    lines = [f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/hostkey", "StrictModes no", "UsePAM no",
             f"AuthorizedKeysFile {home}/id_ed25519.pub", "PermitRootLogin yes", "PasswordAuthentication no",
             "Subsystem sftp internal-sftp", f"PidFile {folder}/pid", "MaxStartups 100"]  # fmt: skip
    (folder / "config").write_text("\n".join(lines) + "\n")
    with subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            proxy = Proxy(port)
            kind, key, *_ = (folder / "hostkey.pub").read_text().split()
            hosts = [f"[127.0.0.1]:{p} {kind} {key}\n" for p in (port, proxy.port)]
            (home / "known_hosts").write_text("".join(hosts))
            os.environ["HOME"] = str(home.parent)
            user = os.environ.get("USER") or "root"
            yield f"sftp://{user}@127.0.0.1:{proxy.port}{folder}/store", proxy
            proxy.close()
        finally:
            server.terminate()


SERVICES = {"s3": s3, "sftp": sftp}


class Machine:
    """A cache of its own, and its calls."""

    def __init__(self, url: str, folder: Path, limit_s: float | None = None) -> None:
        client = store_client.StoreClient(url, limit_s=limit_s)
        self.cache = SharedWinnerCache(folder, SharedStore(url, folder / "mirror", client))
        self.winners = KeyedWinners(self.cache, TuneMode.AUTO, ScriptedGpu())  # type: ignore[arg-type]
        self.client: Any = self.cache.store.client
        self.requests: list[tuple[float, bool]] = []
        self._ask, self.client.ask = self.client.ask, self._timed

    def _timed(self, request: Any) -> Any:
        """A request; its seconds, and whether it was answered, are noted where the store isn't left alone already."""
        before, begin = self.client.is_away, time.perf_counter()
        reply = self._ask(request)
        if not before:
            self.requests.append((time.perf_counter() - begin, reply is not None))
        return reply

    def call(self, number: int, prefers: int) -> tuple[str, float, bool]:
        """The config that it goes on with, seconds, and whether it tuned."""
        site, begin, tuned = site_of(number), time.perf_counter(), False
        found = self.winners.find(site)
        if found is None:
            with agreement.turn(self.winners, site, self.winners._gpu, unfinished=False) as found:
                if found is None:
                    tuned = True
                    found = self.winners.keep(site, prefers, 1000.0)
        return CONFIGS[found].key(), time.perf_counter() - begin, tuned

    def start(self) -> float:
        """Seconds until the store's process has started; no request is made."""
        begin = time.perf_counter()
        self.client.begin()
        with self.client._lock:
            self.client._wait_ready()
        return time.perf_counter() - begin


class Lateness:
    """How late a thread wakes up that only sleeps: what other programs on the machine do to each wait."""

    def __init__(self) -> None:
        self.most_s = 0.0
        self._end = threading.Event()
        threading.Thread(target=self._sleep, daemon=True).start()

    def _sleep(self) -> None:
        while not self._end.is_set():
            begin = time.perf_counter()
            time.sleep(0.01)
            self.most_s = max(self.most_s, time.perf_counter() - begin - 0.01)

    def stop(self) -> float:
        """Seconds at worst until now."""
        self._end.set()
        return self.most_s


def of_outage(calls: list[tuple[float, list[tuple[float, bool]]]]) -> list[dict[str, float]]:
    """Of each call with a request that was not answered: where its time went, in ms."""
    found = []
    for seconds, requests in calls:
        waited = [s for s, answered in requests if not answered]
        if waited:
            parts = (sum(waited), sum(s for s, answered in requests if answered))
            names = ("unanswered_ms", "answered_ms", "else_ms")
            each = zip(names, (*parts, seconds - sum(parts)), strict=True)
            found.append({"requests": len(requests), **{name: round(1e3 * value, 1) for name, value in each}})
    return found


def of_times(seconds: list[float]) -> dict[str, float]:
    return {f"p{q}_ms": round(float(np.percentile(seconds, q)) * 1e3, 2) for q in (50, 99, 100)}


def first_and_second(url: str, proxy: Proxy, folder: Path, keys: int) -> dict[str, Any]:
    first = Machine(url, folder / "first", PATIENT_S)
    first.start()
    calls = [first.call(number, number % 48) for number in range(keys)]
    first.client.close(60)
    second = Machine(url, folder / "second", PATIENT_S)
    start = second.start()
    before = proxy.requests
    found = [second.call(number, 0) for number in range(keys)]
    requests = proxy.requests - before
    again = Machine(url, folder / "second")
    local = [again.call(number, 0) for number in range(keys)]
    second.client.close(60)
    return {
        "keys": keys,
        "kernels": -(-keys // KERNEL_KEYS),
        "first": {"tuned": sum(t for *_, t in calls), **of_times([s for _, s, _ in calls])},
        "second": {
            "differently": sum(a[0] != b[0] for a, b in zip(calls, found, strict=True)),
            "tuned": sum(t for *_, t in found),
            "process_start_s": round(start, 2),
            "first_call_ms": round(found[0][1] * 1e3, 1),
            "later": of_times([s for _, s, _ in found[1:]]),
            "asked": second.client.asked,
            "http_requests": requests,
        },
        "third_process_on_the_second_machine": {
            "asked": again.client.asked,
            **of_times([s for _, s, _ in local]),
        },
    }


def create(url: str, number: int, begin: Any, told: Any) -> None:
    files = open_files(url)
    files.read("warm", 1)
    begin.wait(60)
    told.put([files.create(f"crowd/{key}", b"%d" % number) for key in range(40)])


def crowd(url: str, processes: int = 16) -> dict[str, Any]:
    """How many of the processes that create the same file at once believe that they did."""
    context = multiprocessing.get_context("spawn")
    begin, told = context.Barrier(processes), context.Queue()
    running = [context.Process(target=create, args=(url, n, begin, told)) for n in range(processes)]
    for process in running:
        process.start()
    answers = [told.get(timeout=300) for _ in running]
    for process in running:
        process.join()
    won = [sum(one) for one in zip(*answers, strict=True)]
    return {"processes": processes, "files": len(won), "with_exactly_one_winner": sum(n == 1 for n in won)}


def away(url: str, proxy: Proxy, folder: Path, keys: int, mode: str) -> dict[str, Any]:
    base = {"refuse": 10_000, "silent": 20_000, "half": 30_000}[mode]  # keys of its own
    machine, calls, errors = Machine(url, folder / mode), [], []
    machine.start()
    paid: list[tuple[float, list[tuple[float, bool]]]] = []
    late = Lateness()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(keys):
            if i == keys // 3:
                proxy.go_away(mode)
            machine.requests.clear()
            try:
                calls.append(machine.call(base + i, i % 48))
                paid.append((calls[-1][1], list(machine.requests)))
            except Exception as exc:
                errors.append(f"{type(exc).__name__}: {exc}")
    late_s = late.stop()
    machine.client.close(60)
    proxy.go_away("on")
    seconds = [s for _, s, _ in calls]
    later = Machine(url, folder / mode)  # a later process of the machine asks for half of the keys
    for i in range(keys // 2):
        later.call(base + i, 0)
    later.client.close(60)
    push_cache(folder / mode, url)
    pull_cache(folder / f"{mode} other", url)
    stored = WinnerCache(folder / f"{mode} other")
    found = [stored.own(winner_key(base + i)) for i in range(keys)]
    return {
        "keys": keys,
        "errors": errors,
        "warnings": [str(one.message) for one in told if one.category is RuntimeWarning],
        "before": of_times(seconds[: keys // 3]),
        "outage": of_outage(paid),
        "late_ms": round(1e3 * late_s, 1),
        "slowest_ms": [round(s * 1e3) for s in sorted(seconds, reverse=True)[:3]],
        "after": of_times(seconds[keys // 3 + 1 :]),
        "lost": sum(one is None for one in found),
        "differently": sum(a[0] != b.config.key() for a, b in zip(calls, found, strict=True) if b is not None),
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--services", nargs="+", default=list(SERVICES))
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--parts", nargs="+", default=["machines", "crowd", "refuse", "silent", "half"])
    args = parser.parse_args()
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    found |= {"python": platform.python_version(), "cpus": os.cpu_count(), "delay_ms": 1000 * DELAY_S}
    found |= {"load": round(os.getloadavg()[0], 1), "date": datetime.date.today().isoformat()}

    def row(service: str, name: str, value: dict[str, Any]) -> None:
        found.setdefault(service, {})[name] = value
        args.out.write_text(json.dumps(found, indent=1) + "\n")
        print(service, name, value, flush=True)

    for service in args.services:
        folder = Path(tempfile.mkdtemp(prefix="kerntune-store-"))
        home = os.environ.get("HOME", "")
        try:
            with SERVICES[service](folder) as (url, proxy):
                if "machines" in args.parts:
                    wait_s, store_client.WAIT_S = store_client.WAIT_S, PATIENT_S
                    row(service, "machines", first_and_second(url, proxy, folder, args.keys))
                    store_client.WAIT_S = wait_s
                if "crowd" in args.parts:
                    row(service, "crowd", crowd(url))
                for mode in ("refuse", "silent", "half"):
                    if mode in args.parts:
                        row(service, mode, away(url, proxy, folder, args.keys // 4, mode))
        finally:
            os.environ["HOME"] = home
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
