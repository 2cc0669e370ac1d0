"""Whether a folder can be written, tried without a trace."""

from __future__ import annotations

from pathlib import Path

from kerntune.base.folders import file_in_the_way, why_unwritable


def test_what_is_tried_leaves_nothing_behind(tmp_path: Path) -> None:
    assert why_unwritable(tmp_path / "a" / "b") == ""
    assert list(tmp_path.iterdir()) == []


def test_why_a_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in why_unwritable(tmp_path / "file" / "a")
    assert "Not a directory" in why_unwritable(tmp_path / "file")
    assert why_unwritable(Path("/proc/zz")) == "No such file or directory: /proc/zz"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_link_to_nothing_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert why_unwritable(tmp_path / "link") != ""


def test_the_file_where_a_folder_would_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert file_in_the_way(tmp_path / "file") == file_in_the_way(tmp_path / "file" / "a") == tmp_path / "file"
    assert file_in_the_way(tmp_path / "new" / "a") is None
