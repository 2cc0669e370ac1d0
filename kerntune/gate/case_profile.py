"""A Chrome trace of a case, under ``--kerntune-profile=FOLDER``: the call once more, with the configs that won."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kerntune.base.config import Config
from kerntune.base.recording import Recording
from kerntune.capture import Capture
from kerntune.capture.launch_dump import folder_name
from kerntune.timing.profiler import write_trace


def profile_case(folder: Path, case: str, capture: Capture, recording: Recording, call: Callable[[], object]) -> Path:
    """Run a case's ``call`` once to warm up and once under torch's profiler; the trace's path, which is that of the
    case's name.

    Its tensors are as before at the end. Call inside the device's lock, after the case is tuned.
    """

    def run() -> object:
        with capture.pinned():
            return call()

    path = folder / f"{folder_name(case)}.json"
    texts = [f"{x.kernel} {x.config or Config()} grid={x.grid}" for x in recording.launches]
    with capture.plan.preserving(capture.plan.tensors()):
        run()
        write_trace(path, run, {"case": case, "launches": "; ".join(texts)})
    return path
