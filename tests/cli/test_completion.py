"""The scripts that complete the command in bash and zsh, run by these shells."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from kerntune.cli.command import build_parser, main
from kerntune.cli.completion import script


def parser() -> argparse.ArgumentParser:
    """A small command of two levels."""
    made = argparse.ArgumentParser(prog="kerntune")
    below = made.add_subparsers()
    cache = below.add_parser("cache").add_subparsers()
    cache.add_parser("show").add_argument("--json", action="store_true")
    report = below.add_parser("report")
    report.add_argument("--comment", choices=["wrong", "always"])
    report.add_argument("--secret", help=argparse.SUPPRESS)
    report.add_argument("-o", "--output")
    return made


ASKED = {
    "bash": 'COMP_WORDS=({words}); COMP_CWORD={at}; _kerntune; echo "${{COMPREPLY[@]}}"',
    "zsh": 'words=({words}); CURRENT={at}+1; compadd() {{ shift; print -n -- "$@" ""; }}; _files() {{ }}; _kerntune',
}


def completed(shell: str, made: argparse.ArgumentParser, *words: str, folder: Path) -> list[str]:
    """What a shell offers for the last of the words: zsh chooses among all that it is given itself."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    asked = ASKED[shell].format(words=" ".join(w or "''" for w in words), at=len(words) - 1)
    before = "compdef() { }; " if shell == "zsh" else ""
    path = folder / "script"
    path.write_text(f"{before}{script(shell, made)}\n{asked}\n")
    done = subprocess.run([shell, "-f" if shell == "zsh" else "--norc", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return [w for w in done.stdout.split() if w.startswith(words[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["c"], ["cache"]),
        (["cache", ""], ["show", "--help"]),
        (["cache", "show", "--j"], ["--json"]),
        (["report", "--"], ["--help", "--comment", "--output"]),
        (["report", "--comment", ""], ["wrong", "always"]),
        (["report", "cache", ""], ["--help", "--comment", "--output"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(shell: str, words: list[str], offered: list[str], tmp_path: Path) -> None:
    assert sorted(completed(shell, parser(), "kerntune", *words, folder=tmp_path)) == sorted(offered)


def test_the_script_is_of_all_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--completion", "bash"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == script("bash", build_parser())
    assert completed("bash", build_parser(), "kerntune", "baselines", "sh", folder=tmp_path) == ["show"]
