"""What URLs name, and how messages show them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kerntune.base.url_files import check_place, is_url, open_files, shown_url
from kerntune.errors import UsageError


def test_urls_and_paths() -> None:
    assert is_url("s3://a/b")
    assert not is_url("a/b")
    assert not is_url("git:branch")


def test_passwords_are_not_shown() -> None:
    assert shown_url("sftp://me:secret@host:22/a") == "sftp://me@host:22/a"
    assert shown_url("s3://bucket/a@b") == "s3://bucket/a@b"
    assert shown_url("hf://datasets/a/b@main/c") == "hf://datasets/a/b@main/c"


@pytest.mark.parametrize(
    ("rest", "name"),
    [("a b", "a b"), ("a%20b%3F%23", "a b?#"), ("%c3%a4", "ä"), ("%FF", "\udcff"), ("100%", "100%"), ("~", "~")],
)
@pytest.mark.parametrize("host", ["", "localhost", "LOCALHOST", "/"])
def test_a_file_url_names_a_folder_of_this_machine(tmp_path: Path, host: str, rest: str, name: str) -> None:
    assert open_files(f"file://{host}{tmp_path}/{rest}").create("x", b"1")
    assert (tmp_path / name / "x").read_bytes() == b"1"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file://relative/path", "names no absolute path"),
        ("file://~/store", "names no absolute path"),
        ("file://mystore", "names no absolute path"),
        ("file://./store", "names no absolute path"),
        ("file://other.host/mnt/store", "names no absolute path"),
        ("file:///", "names no absolute path"),
        ("file://", "names no absolute path"),
        ("file:///mnt/a?region=eu", "write %3F for ?, %23 for #"),
        ("file:///mnt/a#1", "write %3F for ?, %23 for #"),
        ("file:///mnt/a\nb", "a control character"),
        ("file:///mnt/a%00b", "no path has a NUL"),
        ("sftp://host/mnt/a?b", "write %3F for ?"),
        ("sftp://host/mnt/a#b", "write %3F for ?"),
        ("s3://", "names no place"),
        ("sftp:///", "names no place"),
    ],
)
def test_a_url_that_would_lead_elsewhere_is_refused(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as told:
        check_place(url)
    assert str(told.value).startswith(f"{url}: ")
    if url.startswith("file"):
        with pytest.raises(UsageError, match=re.escape(says)):
            open_files(url)
