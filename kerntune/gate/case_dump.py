"""Dumps of a case's launches under ``KERNTUNE_DUMP``: as its test launched them, with the configs that were tuned."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kerntune.base.recording import Recording
from kerntune.capture import Capture
from kerntune.capture.launch_dump import DumpedContents, folder_name, write_launch
from kerntune.capture.recorder import Recorded
from kerntune.gate import device_fault
from kerntune.gpu.base import Backend, Executor
from kerntune.gpu.memory import Memory, written_storages
from kerntune.gpu.program import Loader, Program, memory_at
from kerntune.tuning.launch_files import dump_folder, keeps_content, texts_of, with_content


def dump_if_asked(case: str, capture: Capture, recorded: Recorded) -> list[str]:
    """Under ``KERNTUNE_DUMP``: write what a case launches. Why not all of it could be, as a warning."""
    folder, backend = dump_folder(), capture.backend
    if folder is None:
        return []
    write = partial(dump_case, folder, case, capture, recorded, backend)
    return device_fault.beside_verdict("not all launches were dumped", write, backend.gpu)


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
