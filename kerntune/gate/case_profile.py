"""A Chrome trace of a case, under ``--kerntune-profile=FOLDER``: the call once more, with the configs that won."""

from __future__ import annotations

from pathlib import Path

from kerntune.base.config import Config
from kerntune.capture.launch_dump import folder_name
from kerntune.gate.call_capture import RecordedCase
from kerntune.timing.profiler import write_trace


def profile_case(folder: Path, case: RecordedCase) -> Path:
    """Run the case's function once to warm up and once under torch's profiler; the trace's path.

    Its tensors are as before at the end. Call inside the device's lock, after the case is tuned.
    """
    plan, call = case.capture.plan, case.call

    def run() -> object:
        with case.capture.pinned():
            return call.fn(*call.args, **call.kwargs)

    path = folder / f"{folder_name(f'{case.id} {case.fingerprint}')}.json"
    with plan.preserving(plan.tensors()):
        run()
        write_trace(path, run, _metadata(case))
    return path


def _metadata(case: RecordedCase) -> dict[str, str]:
    launches = case.recording.launches
    texts = [f"{x.kernel} {x.config or Config()} grid={x.grid}" for x in launches]
    return {"case": str(case.id), "launches": "; ".join(texts)}
