"""Results as tables for other programs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.reporting.made_runs import HARD_TEXT, made_run
from kerntune.base.case_result import CaseId
from kerntune.base.formatting import visible
from kerntune.errors import UsageError
from kerntune.gate.report import RunReport
from kerntune.gate.reporting.summaries import FlatRow, flat_rows, write_csv, write_parquet

RUN = made_run(50, samples=3, configs=7)


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))


def test_csv_has_a_row_a_result(tmp_path: Path) -> None:
    write_csv(tmp_path / "r.csv", [RUN])
    rows = read(tmp_path / "r.csv")
    assert len(rows) == 50
    first, result = rows[0], max(RUN.results[:3], key=lambda r: r.shown.point)
    assert list(first) == list(FlatRow.__struct_fields__)
    assert first["test"] == result.case.nodeid
    assert float(first["time_ns"]) == result.current_ns
    assert float(first["change"]) == result.shown.point
    assert float(first["change_level"]) == 0.99
    assert (first["verdict"], first["outcome"], first["branch"]) == ("REGRESSED", "fail", "main")
    assert (first["registers"], first["spill_bytes"], first["occupancy"]) == ("128", "64", "0.25")
    assert float(first["share_of_bandwidth"]) == result.of_bandwidth


def test_what_is_not_known_is_empty(tmp_path: Path) -> None:
    result = msgspec.structs.replace(RUN.results[0], current_ns=None, change=None, shown=None, launches=(), flops=None)
    write_csv(tmp_path / "r.csv", [RunReport((result,))])
    (row,) = read(tmp_path / "r.csv")
    empty = ("time_ns", "change", "change_low", "registers", "flops_per_second", "bytes_per_second", "commit")
    assert [row[name] for name in empty] == [""] * len(empty)


@given(st.text(max_size=30))
def test_any_name_is_read_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "r.csv"
    result = msgspec.structs.replace(RUN.results[0], case=CaseId(text + HARD_TEXT, "0"))
    write_csv(path, [RunReport((result,))])
    (name,) = [row["test"] for row in read(path)]
    shown = visible(text + HARD_TEXT)
    assert name in (shown, f"'{shown}")
    assert name == visible(name)


def test_parquet_has_the_same(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    write_parquet(tmp_path / "r.parquet", [RUN])
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.to_pylist() == [msgspec.structs.asdict(row) for row in flat_rows([RUN])]
    kinds = {field.name: str(field.type) for field in table.schema}
    assert (kinds["time_ns"], kinds["registers"], kinds["test"]) == ("double", "int64", "string")


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r'r.parquet: pyarrow .* pip install "kerntune\[parquet\]"'):
        write_parquet(tmp_path / "r.parquet", [RUN])
    assert not (tmp_path / "r.parquet").exists()
