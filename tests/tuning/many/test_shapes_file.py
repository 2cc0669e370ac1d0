"""Many processes add to one file of shapes: nothing is lost or read twice, damage is named."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.tuning_job import SCHEMA, GridText, TuningJob
from kerntune.errors import StoreError, UsageError
from kerntune.tuning.many import shapes_file
from kerntune.tuning.many.shapes_file import ShapesFile

PROCESSES, JOBS = 4, 40


def job(number: int) -> TuningJob:
    """Some are long: more than a pipe takes at once."""
    table = {f"BLOCK={i}": (i, number) for i in range(1 + 300 * (number % 3))}
    return TuningJob(SCHEMA, "module", f"kernel{number}", grid=GridText(by_meta=table, names=("BLOCK",)))


def add_all(path: Path, process: int, begin: Any) -> None:
    """The same jobs as all others, in another order."""
    file = ShapesFile(path)
    begin.wait(60)
    for number in range(JOBS):
        file.add(job((number * 7 + process * 11) % JOBS))


def test_processes_add_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begin, path = context.Barrier(PROCESSES), tmp_path / "shapes.jsonl"
    crowd = [context.Process(target=add_all, args=(path, p, begin)) for p in range(PROCESSES)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
        assert process.exitcode == 0
    found, damaged = ShapesFile(path).read()
    assert damaged == []
    assert {j.kernel for j in found} == {f"kernel{n}" for n in range(JOBS)}
    assert len(found) == JOBS, "each is read once"
    assert JOBS <= len(path.read_bytes().split()) <= PROCESSES * JOBS


def test_readers_drop_what_stands_twice(tmp_path: Path) -> None:
    one, other = ShapesFile(tmp_path / "s"), ShapesFile(tmp_path / "s")
    for file in (one, other):
        file.add(job(2))
    assert one.add(job(1))
    assert other.add(job(1)), "added since it was read"
    assert one.read() == ([job(2), job(1)], [])
    assert len(one.path.read_bytes().split()) == 3


def test_a_job_is_added_once(tmp_path: Path) -> None:
    file = ShapesFile(tmp_path / "s")
    assert file.add(job(3))
    size = file.path.stat().st_size
    assert not file.add(job(3))
    assert file.path.stat().st_size == size
    assert not ShapesFile(file.path).add(job(3)), "another one's is known, too"


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(job(1).to_json()[:50])
    ShapesFile(path).add(job(2))
    found, damaged = ShapesFile(path).read()
    assert found == [job(2)]
    assert len(damaged) == 1
    assert f"{path}:1: is no description of a call" in damaged[0]


def test_no_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; `kerntune shapes record"):
        ShapesFile(tmp_path / "gone").read()
    with pytest.raises(UsageError, match="is a folder; `kerntune shapes record"):
        ShapesFile(tmp_path).read()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"{tmp_path}/no/s: can't be written"):
        ShapesFile(tmp_path / "no" / "s").add(job(1))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "s").open("wb") as huge:
        os.truncate(huge.fileno(), shapes_file.MAX_SHAPES + 1)
    with pytest.raises(StoreError, match="may have"):
        ShapesFile(tmp_path / "s").read()


def test_to_a_huge_file_is_added_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ShapesFile(tmp_path / "s")
    file.add(job(3))
    monkeypatch.setattr(shapes_file, "MAX_SHAPES", file.path.stat().st_size - 1)
    assert ShapesFile(file.path).add(job(3)), "it stands twice, and readers drop that"


def test_a_file_that_was_emptied_meanwhile_is_gone_on_with(tmp_path: Path) -> None:
    file = ShapesFile(tmp_path / "s")
    file.add(job(3))
    file.path.write_bytes(b"")
    assert file.add(job(4))
    assert file.read() == ([job(4)], [])


def test_lines_are_counted_from_one_with_those_that_are_empty() -> None:
    assert list(shapes_file._lines(b"\n a \n\nb")) == [(2, b"a"), (4, b"b")]
    assert list(shapes_file._lines(b"")) == []
