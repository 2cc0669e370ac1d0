"""What is written of a case where a run asks for it: its launches as tuned, and a Chrome trace of its call."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from doubles import raising
from fake_runs import N, block, by_block, increment_kernel, scale, tuned
from samples import CASE, launch, recording

from gate.project import Project
from kerntune.base.policy import Verdict
from kerntune.gate import case_output
from kerntune.gate.call import dumps_asked
from kerntune.gate.case_output import dumped, profiled
from kerntune.kernels.compat import launch_environment


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "dump"))
    return tmp_path / "dump"


def launches(dump: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(dump.glob("*/*/launch.json"))]


def two() -> None:
    y = scale(tuned(64, 128))
    increment_kernel[by_block](y, N, BLOCK=64)


@pytest.mark.slow
def test_each_launch_of_a_case_is_dumped_as_tuned(project: Project, dump: Path) -> None:
    project.once(block(64, 3000.0), block(128, 1000.0)).judge(two)
    (place,) = dump.iterdir()
    assert place.name.startswith("tests-test_scale.py-test_scale-cuda-90-")
    assert sorted(p.name for p in place.iterdir()) == ["00-scale_kernel", "01-increment_kernel"]
    first, second = launches(dump)
    assert first["config"]["kwargs"] == {"BLOCK": 128}
    assert (first["case"], first["grid"], second["grid"]) == ("tests/test_scale.py::test_scale", [32, 1, 1], [64, 1, 1])
    assert [s["content"]["kind"] for s in first["storages"]] == ["stored", "stored"]
    assert [(s["read"], s["written"]) for s in first["storages"]] == [(True, False), (False, True)], "of this launch"
    assert len(second["storages"]) == 1, "only what the launch itself uses"
    assert "def increment_kernel" in (place / "01-increment_kernel" / "kernel.py").read_text()


@pytest.mark.slow
def test_all_bytes_are_those_of_each_launch(project: Project, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "recorded")
    project.once().judge(two)
    first, second = sorted(dump.glob("*/0*"))
    wrote = (first / "expected-1.bin").read_bytes()
    found = json.loads((second / "launch.json").read_text())
    assert found["expected"] == [{"storage": 0, "file": "expected-0.bin"}]
    (content,) = second.glob("content-*.bin")
    assert content.read_bytes() == wrote, "the second finds what the first left"
    assert (second / "expected-0.bin").read_bytes() != wrote


@pytest.mark.slow
def test_without_a_gpu_each_target_is_dumped(project: Project, dump: Path) -> None:
    for target in ("cuda:90", "hip:gfx942"):
        with project.static_run(target) as run:
            run.check(lambda: scale(tuned(64)))
    files = {p.name for p in dump.glob("*/*/*")}
    assert {"kernel.cubin", "kernel.sass", "kernel.ptx", "replay.py", "kernel.hsaco", "kernel.amdgcn"} <= files
    assert {x["arch"] for x in launches(dump)} == {"sm_90a", "gfx942"}
    assert not any(p.parent.joinpath("replay.py").exists() for p in dump.glob("*/*/kernel.hsaco"))
    assert all(s["content"]["kind"] == "stored" for x in launches(dump) for s in x["storages"])


def test_a_folder_that_can_not_be_written_changes_no_verdict(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNTUNE_DUMP", str(tmp_path / "file" / "dump"))
    timed = project.once().judge(two)
    static = project.static_once("cuda:90").judge(two)
    for result in (timed, static):
        assert result.verdict is Verdict.NEW
        assert [w for w in result.warnings if w.startswith("not all launches were dumped: ")]


def test_nothing_is_dumped_by_default(project: Project) -> None:
    project.once().judge(two)
    assert not (project.root / "dump").exists()


# traces


def trace_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def old_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 warns at every start that events of other cycles aren't kept, even of one cycle (pytorch #180348)."""

    class Profile(torch.profiler.profile):
        def start(self) -> None:
            super().start()
            if not self.acc_events:
                warnings.warn("Warning: Profiler clears events at the end of each cycle.", stacklevel=2)

    monkeypatch.setattr(torch.profiler, "profile", Profile)


@pytest.mark.usefixtures("old_profiler")
def test_each_case_has_a_valid_trace(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    project.once(block(64, 3000.0), block(128, 1000.0), profile=folder).judge(two)
    found = trace_of(folder)
    assert next(folder.iterdir()).name.startswith("tests-test_scale.py-test_scale-")
    assert found["case"] == "tests/test_scale.py::test_scale"
    assert found["launches"].startswith("scale_kernel BLOCK=128 num_warps=4 num_stages=3 grid=(32, 1, 1); increment")
    events = found["traceEvents"]
    assert events
    assert all(isinstance(e["ph"], str) and isinstance(e["name"], str) for e in events), "as the format asks"
    complete = [e for e in events if e["ph"] == "X"]
    assert complete
    assert all(e["dur"] >= 0 and e["ts"] >= 0 and "pid" in e and "tid" in e for e in complete)


def test_the_tensors_stay_as_they_are(project: Project, tmp_path: Path) -> None:
    """The function runs twice more; what it writes is put back."""
    made: list[Any] = []

    def keep() -> None:
        made.append(scale(tuned(64)))

    project.once(profile=tmp_path / "traces").judge(keep)
    assert len(made) == 3


def test_a_function_that_can_not_be_called_again_keeps_its_verdict(project: Project, tmp_path: Path) -> None:
    calls: list[int] = []

    def once() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("called again")
        scale(tuned(64))

    result = project.once(profile=tmp_path / "traces").judge(once)
    assert result.verdict is Verdict.NEW
    assert result.warnings == ("no trace was written: ValueError: called again",)


def test_no_trace_is_written_unasked(project: Project) -> None:
    project.once().judge(two)
    assert not (project.root / "traces").exists()


def test_a_case_without_work_has_none(project: Project, tmp_path: Path) -> None:
    with project.run(profile=tmp_path / "traces") as run:
        run.judge(lambda: increment_kernel[(0,)](torch.empty(N, device="cuda"), N, BLOCK=64))
    assert not (tmp_path / "traces").exists()


def test_streams_are_asked_of_triton() -> None:
    assert launch_environment.current_stream() is None or isinstance(launch_environment.current_stream(), int)


# what is called for each


@pytest.mark.parametrize(
    ("gpu", "kept", "hidden", "exact"),
    [
        (True, True, False, True),
        (True, True, True, False),
        (True, False, False, False),
        (True, False, True, False),
        (False, True, False, False),
        (False, False, False, False),
    ],
)
def test_bytes_are_dumped_where_they_are_asked_for_and_something_runs(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, kept: bool, hidden: bool, exact: bool
) -> None:
    mine = recording(launches=(launch(kernel="add"), launch(kernel="mul")), hidden_pointers=hidden)
    wrote: list[Any] = []

    def write_launch(place: Path, recording: Any, index: int, kept: Any, texts: Any, **words: Any) -> str:
        wrote.append(
            (place.parent, index, texts, words["contents"], words["environment"], words["name"], words["case"])
        )
        return f"written {index}"

    monkeypatch.setattr(case_output, "with_content", lambda recorded, backend: (mine, {}))
    monkeypatch.setattr(case_output, "keeps_content", lambda: kept)
    monkeypatch.setattr(case_output, "texts_of", lambda recorded, index, jit: (index, jit))
    monkeypatch.setattr(case_output, "replayed", lambda gpu, recorded, index: f"contents {index}")
    monkeypatch.setattr(case_output, "write_launch", write_launch)
    device = SimpleNamespace(environment=lambda: "today") if gpu else None
    launches = [SimpleNamespace(jit=name) for name in ("first", "failed", "third")]
    capture = SimpleNamespace(backend=SimpleNamespace(gpu=device), launches=launches)
    recorded = SimpleNamespace(failures={1: "can't be compiled"})
    one: Any = SimpleNamespace(id="a case", capture=capture, recorded=recorded)
    found: Any = case_output.dump_case(Path("/dump"), one)
    assert found == ["written 0", "written 1"]
    contents = ["contents 0", "contents 1"] if exact else [None, None]
    assert wrote == [
        (Path("/dump"), 0, (0, "first"), contents[0], "today" if gpu else None, "00-add", "a case"),
        (Path("/dump"), 1, (1, "third"), contents[1], "today" if gpu else None, "01-mul", "a case"),
    ]


def case(mine: Any = None) -> Any:
    capture = SimpleNamespace(backend=SimpleNamespace(gpu=None))
    return SimpleNamespace(id=CASE, capture=capture, recording=mine or recording())


@pytest.mark.parametrize(("value", "asked"), [(None, False), ("", False), ("/dump", True)])
def test_dumps_are_made_where_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, value: str | None, asked: bool
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(case_output, "dump_case", lambda *told: seen.append(told))
    if value is None:
        monkeypatch.delenv("KERNTUNE_DUMP", raising=False)
    else:
        monkeypatch.setenv("KERNTUNE_DUMP", value)
    assert dumps_asked() is asked
    one = case()
    assert dumped(one) == []
    assert seen == ([(Path("/dump"), one)] if asked else [])


def test_a_dump_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_output, "dump_case", raising(OSError("no space")))
    monkeypatch.setenv("KERNTUNE_DUMP", "/dump")
    assert dumped(case()) == ["not all launches were dumped: OSError: no space"]


@pytest.mark.parametrize(
    ("folder", "mine", "written"),
    [(Path("/p"), None, True), (None, None, False), (Path("/p"), recording(launches=(launch(grid=(0, 1, 1)),)), False)],
    ids=["asked for", "not asked for", "nothing runs"],
)
def test_a_trace_is_written_of_what_runs(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None, mine: Any, written: bool
) -> None:
    seen: list[Any] = []

    monkeypatch.setattr(case_output, "profile_case", lambda *told: seen.append(told))
    one = case(mine)
    assert profiled(one, folder) == []
    assert seen == ([(Path("/p"), one)] if written else [])


def test_a_trace_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_output, "profile_case", raising(OSError("no space")))
    assert profiled(case(), Path("/p")) == ["no trace was written: OSError: no space"]
