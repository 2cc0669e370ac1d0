"""What is written of a case where a run asks for it: dumps of its launches, and a Chrome trace of its call.

``KERNTUNE_DUMP`` asks for dumps: launches as the test made them, with the configs that were tuned.
``--kerntune-profile=FOLDER`` asks for a trace: the call once more, with the configs that won.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

from kerntune.base.config import Config
from kerntune.base.recording import Recording
from kerntune.capture.launch_dump import DumpedContents, folder_name, write_launch
from kerntune.capture.recorder import Recorded
from kerntune.gate import device_faults
from kerntune.gate.call_capture import RecordedCase
from kerntune.gpu.base import Executor
from kerntune.gpu.memory import Memory, written_storages
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.timing.timers import write_trace
from kerntune.tuning.launch_files import dump_folder, keeps_content, texts_of, with_content


def dumped(case: RecordedCase) -> list[str]:
    """Under ``KERNTUNE_DUMP``: write what a case launches. Why not all of it could be, as a warning."""
    folder = dump_folder()
    if folder is None:
        return []
    write = partial(dump_case, folder, case)
    return device_faults.beside_verdict("not all launches were dumped", write, case.capture.backend.gpu)


def profiled(case: RecordedCase, folder: Path | None) -> list[str]:
    """Under ``--kerntune-profile``: write a trace of the case's call to ``folder``. Why it could not be, as a
    warning."""
    if folder is None or not case.recording.working:
        return []
    write = partial(profile_case, folder, case)
    return device_faults.beside_verdict("no trace was written", write, case.capture.backend.gpu)


def dump_case(folder: Path, case: RecordedCase) -> list[Path]:
    """Write each launch of a case that was captured, and tuned where something runs, to ``folder/<case>/``.

    The paths, in the launches' order. With ``KERNTUNE_DUMP_CONTENT=recorded`` all bytes are kept, and what each launch
    makes of them, for which it is launched once more on copies.
    """
    recorded, gpu = case.recorded, case.capture.backend.gpu
    recording, kept = with_content(recorded, case.capture.backend)
    place = folder / folder_name(f"{case.id} {recording.target}")
    environment = gpu.environment() if gpu is not None else None
    exact = keeps_content() and not recording.hidden_pointers
    launched = [x for i, x in enumerate(case.capture.launches) if i not in recorded.failures]
    return [
        write_launch(
            place,
            recording,
            index,
            kept,
            texts_of(recorded, index, captured.jit),
            contents=replayed(gpu, recorded, index) if exact and gpu is not None else None,
            environment=environment,
            case=str(case.id),
            name=f"{index:02d}-{recording.launches[index].kernel}",
        )
        for index, captured in enumerate(launched)
    ]


def replayed(gpu: Executor, recorded: Recorded, index: int) -> DumpedContents:
    """What a launch found and left, from running it on copies."""
    with closing(Loader(gpu)) as loader:
        spaced = recorded.writes_outside
        memory = memory_at(loader, recorded.recording, recorded.sources, recorded.artifacts, index, spaced=spaced)
        only: Recording = recorded.recording.only(index).pruned()
        program = Program(loader, only, memory, recorded.artifacts)
        before = _read(gpu, memory, range(len(recorded.sources)))
        program.enqueue()
        return DumpedContents(before, _read(gpu, memory, written_storages(only)))


def _read(gpu: Executor, memory: Memory, storages: range | list[int]) -> dict[int, bytes]:
    return {i: gpu.read(memory.buffer(0, i)) for i in storages}


def profile_case(folder: Path, case: RecordedCase) -> Path:
    """Run a case's call once to warm up and once under torch's profiler; the trace's path, which is that of the
    case's name.

    Its tensors are as before at the end. Call inside the device's lock, after the case is tuned.
    """
    call, capture = case.call, case.capture

    def run() -> object:
        with capture.pinned():
            return call.fn(*call.args, **call.kwargs)

    path = folder / f"{folder_name(str(case.id))}.json"
    texts = [f"{x.kernel} {x.config or Config()} grid={x.grid}" for x in case.recording.launches]
    with capture.plan.preserving(capture.plan.tensors()):
        run()
        write_trace(path, run, {"case": str(case.id), "launches": "; ".join(texts)})
    return path
