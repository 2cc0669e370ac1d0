"""The process for first launches as the study of its start runs it: with a time stamp at each step, and in other ways.

``QUARANTINE_STAMPS`` names the file that gets a line of JSON for each stamp: a name, ``time.perf_counter()`` (of all
processes the same clock on Linux), and what the thread has used. ``QUARANTINE_WAYS`` has the ways of
:mod:`benchmarks.quarantine_child`. Only what Python has loaded anyway is imported before the device is opened.
"""

from __future__ import annotations

import os
import sys
import threading
import time

WAYS = os.environ.get("QUARANTINE_WAYS", "").split("+")
FILE = os.open(os.environ["QUARANTINE_STAMPS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def ran_and_waited() -> tuple[float, float]:
    """Milliseconds that this thread has run, and in which it could have run and had no processor (schedstat)."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            ran, waited, _ = file.read().split()
    except OSError:
        return time.thread_time() * 1e3, -1.0
    return int(ran) / 1e6, int(waited) / 1e6


def stamp(name: str) -> None:
    """A line for now."""
    now, (ran, waited) = time.perf_counter(), ran_and_waited()
    os.write(FILE, f'{{"name": "{name}", "at": {now!r}, "ran_ms": {ran:.2f}, "waited_ms": {waited:.2f}}}\n'.encode())


def open_context(ordinal: int) -> None:
    """As :func:`kerntune.gpu.early_context.open_context`, with stamps."""
    import ctypes

    try:
        cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    except OSError:
        return
    stamp("driver loaded")
    if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0:
        stamp("cuInit done")
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        stamp("context made")


def watch(looks: object) -> None:
    """Stamps of what the process does with its device: opened, first message, the first request of each kind."""
    seen: set[str] = set()

    def once(name: str) -> None:
        if name not in seen:
            seen.add(name)
            stamp(name)

    def watched(owner: object, method: str, text: str, kinds: bool = False) -> None:
        plain = getattr(owner, method)

        def call(*args: object, **words: object) -> object:
            kind = f" {type(args[-1]).__name__}" if kinds else ""
            once(f"{text}{kind} begun")
            result = plain(*args, **words)
            once(f"{text}{kind} done")
            return result

        setattr(owner, method, call)

    watched(looks, "open_device", "device")
    watched(looks, "send", "first message")
    watched(looks.Looker, "prepare", "guards")  # type: ignore[attr-defined]
    watched(looks.Looker, "answer", "first", kinds=True)  # type: ignore[attr-defined]


def run(words: list[str]) -> int:
    """As :func:`kerntune.timing.worker.__main__.run_first_launches`."""
    stamp("program begun")
    if "niced" in WAYS:
        os.nice(10)
    if "slim" in WAYS and words[2].isdigit():
        os.environ.update(CUDA_DEVICE_MAX_CONNECTIONS="1", CUDA_MODULE_LOADING="LAZY")
        os.environ["CUDA_VISIBLE_DEVICES"], words[2] = os.environ["QUARANTINE_GPU"], "0"
    opening = None
    if words[2].isdigit():
        opening = threading.Thread(target=open_context, args=(int(words[2]),))
        opening.start()
        if "serial" in WAYS:
            opening.join()
    import kerntune.timing.worker.looks as looks

    stamp("imports done")
    if opening is not None:
        opening.join()
    watch(looks)
    return looks.main(words)


if __name__ == "__main__":
    if "serial" in WAYS:  # run as a file: before any import of kerntune's
        sys.path[:] = os.environ["QUARANTINE_PATH"].split(os.pathsep)
    code = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)
