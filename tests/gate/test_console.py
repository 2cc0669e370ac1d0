"""What commands print, where, and the exit code that findings come to."""

from __future__ import annotations

import io
import sys

import pytest

from kerntune.gate.console import FINDINGS, OK, USAGE, counted, error_text, fail_with, say, speak_anything


def test_findings_go_to_standard_error_and_make_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert (OK, FINDINGS, USAGE) == (0, 1, 2), "scripts of users depend on them"
    assert fail_with([]) == OK
    assert capsys.readouterr() == ("", "")
    assert fail_with(["one is old", "two are"]) == FINDINGS
    assert capsys.readouterr() == ("", "kerntune: one is old\nkerntune: two are\n")


def test_results_go_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    say("a")
    say("b", end="")
    assert capsys.readouterr() == ("a\nb", "")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "a.json"), "a.json: No such file or directory"),
        (OSError("the device is gone"), "the device is gone"),
        (ValueError("x is no number"), "x is no number"),
    ],
)
def test_an_error_names_the_file_if_it_has_one(error: Exception, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 cases"), (1, "1 case"), (2, "2 cases")])
def test_nouns_follow_their_number(count: int, text: str) -> None:
    assert counted(count, "case") == text


def test_what_an_encoding_lacks_is_shown_as_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [io.BytesIO(), io.BytesIO()]
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding="ascii", write_through=True))
    speak_anything()
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        print("12 µs", file=getattr(sys, name))
        assert file.getvalue() == b"12 \\xb5s\n"


def test_other_streams_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    speak_anything()
    say("µ")
