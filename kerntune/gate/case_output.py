"""What is written of a case where a run asks for it: dumps of its launches, and a Chrome trace of its call.

``KERNTUNE_DUMP`` asks for dumps: launches as the test made them, with the configs that were tuned.
``--kerntune-profile=FOLDER`` asks for a trace: the call once more, with the configs that won.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from kerntune.base.config import Config
from kerntune.base.recording import Recording
from kerntune.capture import Capture
from kerntune.capture.launch_dump import DumpedContents, folder_name, write_launch
from kerntune.capture.recorder import Recorded
from kerntune.gate import device_faults
from kerntune.gate.call import dumps_asked
from kerntune.gate.call_capture import RecordedCase
from kerntune.gpu.base import Backend, Executor
from kerntune.gpu.memory import Memory, written_storages
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.timing.timers import write_trace
from kerntune.tuning.launch_files import dump_folder, keeps_content, texts_of, with_content


def dumped(case: RecordedCase) -> list[str]:
    """Write what a case launches, under ``KERNTUNE_DUMP``; remarks on what could not be."""
    if not dumps_asked():
        return []

    return dump_if_asked(str(case.id), case.capture, case.recorded)


def profiled(case: RecordedCase, folder: Path | None) -> list[str]:
    """Under ``--kerntune-profile``: write a trace of the case's call to ``folder``; remarks if that fails."""
    call = case.call
    if folder is None or not case.recording.working:
        return []

    def write() -> None:
        profile_case(folder, str(case.id), case.capture, case.recording, lambda: call.fn(*call.args, **call.kwargs))

    return device_faults.beside_verdict("no trace was written", write, case.capture.backend.gpu)


def dump_if_asked(case: str, capture: Capture, recorded: Recorded) -> list[str]:
    """Under ``KERNTUNE_DUMP``: write what a case launches. Why not all of it could be, as a warning."""
    folder, backend = dump_folder(), capture.backend
    if folder is None:
        return []
    write = partial(dump_case, folder, case, capture, recorded, backend)
    return device_faults.beside_verdict("not all launches were dumped", write, backend.gpu)


def dump_case(folder: Path, case: str, capture: Capture, recorded: Recorded, backend: Backend) -> list[Path]:
    """Write each launch of a case that was captured, and tuned where something runs, to ``folder/<case>/``.

    The paths, in the launches' order. With ``KERNTUNE_DUMP_CONTENT=recorded`` all bytes are kept, and what each launch
    makes of them, for which it is launched once more on copies.
    """
    recording, kept = with_content(recorded, backend)
    place = folder / folder_name(f"{case} {recording.target}")
    environment = backend.gpu.environment() if backend.gpu is not None else None
    exact = backend.gpu is not None and keeps_content() and not recording.hidden_pointers
    done = []
    launched = [i for i in range(len(capture.launches)) if i not in recorded.failures]
    for index, captured in enumerate(launched):
        texts = texts_of(recorded, index, capture.launches[captured].jit)
        found = write_launch(
            place,
            recording,
            index,
            kept,
            texts,
            contents=replayed(backend.gpu, recorded, index) if exact and backend.gpu is not None else None,
            environment=environment,
            case=case,
            name=f"{index:02d}-{recording.launches[index].kernel}",
        )
        done.append(found)
    return done


def replayed(gpu: Executor, recorded: Recorded, index: int) -> DumpedContents:
    """What a launch found and left, from running it on copies."""
    loader = Loader(gpu)
    try:
        spaced = recorded.writes_outside
        memory = memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index, spaced=spaced)
        only: Recording = recorded.recording.only(index).pruned()
        program = Program(loader, only, memory, recorded.artifacts)
        before = _read(gpu, memory, range(len(recorded.sources)))
        program.enqueue()
        return DumpedContents(before, _read(gpu, memory, written_storages(only)))
    finally:
        loader.close()


def _read(gpu: Executor, memory: Memory, storages: range | list[int]) -> dict[int, bytes]:
    return {i: gpu.read(memory.buffer(0, i)) for i in storages}


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
