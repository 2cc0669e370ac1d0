"""What is written of a case where a run asks for it; what writes it is loaded then."""

from __future__ import annotations

import os
from pathlib import Path

from kerntune.gate import device_fault
from kerntune.gate.call_capture import RecordedCase


def dumps_asked() -> bool:
    """Whether ``KERNTUNE_DUMP`` is set."""
    return bool(os.environ.get("KERNTUNE_DUMP"))


def dumped(case: RecordedCase) -> list[str]:
    """Write what a case launches, under ``KERNTUNE_DUMP``; remarks on what could not be."""
    if not dumps_asked():
        return []
    from kerntune.gate.case_dump import dump_if_asked

    return dump_if_asked(str(case.id), case.capture, case.recorded)


def profiled(case: RecordedCase, folder: Path | None) -> list[str]:
    """Under ``--kerntune-profile``: write a trace of the case's call to ``folder``; remarks if that fails."""
    call = case.call
    if folder is None or not case.recording.working:
        return []
    from kerntune.gate.case_profile import profile_case

    def write() -> None:
        profile_case(folder, str(case.id), case.capture, case.recording, lambda: call.fn(*call.args, **call.kwargs))

    return device_fault.beside_verdict("no trace was written", write, case.capture.backend.gpu)
