"""What is written of a case, and when: the calls of what writes it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import CASE, launch, recording

from kerntune.gate import case_output
from kerntune.gate.call import dumps_asked
from kerntune.gate.case_output import dumped, profiled

replace = msgspec.structs.replace


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
    backend: Any = SimpleNamespace(gpu=device)
    capture: Any = SimpleNamespace(launches=[SimpleNamespace(jit=name) for name in ("first", "failed", "third")])
    recorded: Any = SimpleNamespace(failures={1: "can't be compiled"})
    found: Any = case_output.dump_case(Path("/dump"), "a case", capture, recorded, backend)
    assert found == ["written 0", "written 1"]
    contents = ["contents 0", "contents 1"] if exact else [None, None]
    assert wrote == [
        (Path("/dump"), 0, (0, "first"), contents[0], "today" if gpu else None, "00-add", "a case"),
        (Path("/dump"), 1, (1, "third"), contents[1], "today" if gpu else None, "01-mul", "a case"),
    ]


def case(mine: Any = None) -> Any:
    call = SimpleNamespace(fn=lambda *a, **k: (a, k), args=(1,), kwargs={"x": 2})
    capture = SimpleNamespace(backend=SimpleNamespace(gpu=None))
    return SimpleNamespace(id=CASE, call=call, capture=capture, recorded="recorded", recording=mine or recording())


@pytest.mark.parametrize(("value", "asked"), [(None, False), ("", False), ("/dump", True)])
def test_dumps_are_made_where_the_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, value: str | None, asked: bool
) -> None:
    monkeypatch.setattr(case_output, "dump_if_asked", lambda *told: [str(told[0]), told[2]])
    if value is None:
        monkeypatch.delenv("KERNTUNE_DUMP", raising=False)
    else:
        monkeypatch.setenv("KERNTUNE_DUMP", value)
    assert dumps_asked() is asked
    assert dumped(case()) == ([str(CASE), "recorded"] if asked else [])


def test_a_dump_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*told: Any) -> None:
        raise OSError("no space")

    capture: Any = SimpleNamespace(backend=SimpleNamespace(gpu=None))
    recorded: Any = None
    monkeypatch.setattr(case_output, "dump_case", fails)
    monkeypatch.setattr(case_output, "dump_folder", lambda: Path("/dump"))
    found = case_output.dump_if_asked("a case", capture, recorded)
    assert found == ["not all launches were dumped: OSError: no space"]
    monkeypatch.setattr(case_output, "dump_folder", lambda: None)
    assert case_output.dump_if_asked("a case", capture, recorded) == []


@pytest.mark.parametrize(
    ("folder", "mine", "written"),
    [(Path("/p"), None, True), (None, None, False), (Path("/p"), recording(launches=(launch(grid=(0, 1, 1)),)), False)],
    ids=["asked for", "not asked for", "nothing runs"],
)
def test_a_trace_is_written_of_what_runs(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None, mine: Any, written: bool
) -> None:
    seen: list[Any] = []

    def profile_case(folder: Path, name: str, capture: Any, recording: Any, call: Any) -> None:
        seen.append((folder, name, call()))

    monkeypatch.setattr(case_output, "profile_case", profile_case)
    assert profiled(case(mine), folder) == []
    assert seen == ([(Path("/p"), str(CASE), ((1,), {"x": 2}))] if written else [])


def test_a_trace_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*told: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(case_output, "profile_case", fails)
    assert profiled(case(), Path("/p")) == ["no trace was written: OSError: no space"]
