"""The command as a whole: help, usage errors, exit codes, and how fast it starts."""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doubles import raising
from source_path import source_path

from cli.command import Command, subcommands
from cli.made import folder, timed
from kerntune import __version__
from kerntune.base import live_line
from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.cli import command
from kerntune.cli.command import build_parser
from kerntune.gate import console
from kerntune.gate.bundle import encoded_bundles
from kerntune.gate.report import RunReport, write_run
from kerntune.tuning.many.shapes_file import ShapesFile

SOURCE = Path(__file__).parents[2]

COMMANDS = [
    ["init"],
    ["baselines", "show"],
    ["baselines", "refresh"],
    ["baselines", "apply"],
    ["baselines", "prune"],
    ["baselines", "mv"],
    ["baselines", "verify"],
    ["cache", "show"],
    ["cache", "clear"],
    ["cache", "export"],
    ["cache", "import"],
    ["cache", "push"],
    ["cache", "pull"],
    ["diff"],
    ["upgrade"],
    ["code"],
    ["dump"],
    ["export"],
    ["figures"],
    ["calibrate"],
    ["anchor"],
    ["bisect"],
    ["history", "show"],
    ["history", "add"],
    ["history", "forget"],
    ["report"],
    ["doctor"],
    ["judge"],
    ["tune"],
    ["shapes", "record"],
]


def test_every_command_is_tried() -> None:
    assert sorted(map(tuple, COMMANDS)) == sorted(subcommands(build_parser()))


def arguments_of(parser: argparse.ArgumentParser) -> list[str]:
    """The first column of a command's table in the reference, but for what an option may be."""
    shown = [a for a in parser._actions if a.dest != "help" and a.help != argparse.SUPPRESS]
    return [", ".join(a.option_strings) or str(a.metavar) for a in shown]


def test_each_command_takes_what_the_reference_says() -> None:
    """And it names those that a command can't do without."""
    told = (SOURCE / "docs" / "reference" / "commands.md").read_text()
    needed = {}
    for words in COMMANDS:
        parser = build_parser(words)
        for word in words:
            (below,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
            parser = below.choices[word]
        section = told.partition(f"## kerntune {' '.join(words)}\n")[2].partition("\n## ")[0]
        cells, names = re.findall(r"^\| `(.*?)` \|", section, re.M), arguments_of(parser)
        assert len(cells) == len(names), words
        assert [cell[: len(name)] for cell, name in zip(cells, names, strict=True)] == names
        needed |= {" ".join(words): [a.option_strings[-1] for a in parser._actions if a.required and a.option_strings]}
    assert {name: options for name, options in needed.items() if options} == {
        "upgrade": ["--python"], "export": ["--output"],
    }  # fmt: skip


@pytest.mark.parametrize("words", [[], ["baselines"], ["cache"], ["history"], ["shapes"], *COMMANDS], ids=" ".join)
def test_help(kerntune, words):
    ran = kerntune(*words, "--help")
    assert ran.code == 0
    assert ran.out.startswith(" ".join(["usage: kerntune", *words]))
    assert ran.err == ""


def test_ctrl_c_is_one_line(kerntune: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_dispatch", raising(KeyboardInterrupt))
    ran = kerntune("doctor")
    assert (ran.code, ran.out, ran.err) == (130, "", "kerntune: interrupted\n")


def test_help_names_every_command(kerntune):
    groups = ["baselines"], ["cache"], ["history"], ["shapes"], []
    text = "".join(kerntune(*words, "--help").out for words in groups)
    for words in COMMANDS:
        assert f"    {words[-1]}" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "usage: kerntune"),
        (["nothing"], "usage: kerntune"),
        (["baselines"], "usage: kerntune"),
        (["baselines", "nothing"], "usage: kerntune"),
        (["diff"], "usage: kerntune"),
        (["baselines", "apply"], "usage: kerntune"),
        (["baselines", "apply", "run.json", "--only", "some"], "usage: kerntune"),
        (["diff", "a", "b", "--json", "--markdown"], "usage: kerntune"),
        (["baselines", "show", "--wrong"], "usage: kerntune"),
        (["cache"], "usage: kerntune"),
        (["baselines", "verify", "--baselines="], "(?s)--baselines= has no value.*variable"),
        (["baselines", "verify", "--baselines", ""], "(?s)--baselines has no value.*variable"),
        (["baselines", "show", "--case", " "], "(?s)--case has no value.*variable"),
        (["diff", "", "HEAD"], "(?s)an argument is empty.*variable"),
        (["anchor", "--anchor="], "(?s)--anchor= has no value.*variable"),
        (["basline"], r"did you mean baselines\?\s*\Z"),
        (["baselines", "shw"], r"did you mean show\?\s*\Z"),
        (["baselines", "show", "--jsn"], r"did you mean --json\?\s*\Z"),
        (["report", "run.json", "--comment", "Wron"], r"did you mean wrong\?\s*\Z"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_and_says_what_was_meant(kerntune, words, says):
    ran = kerntune(*words)
    assert (ran.code, ran.out, ran.clean) == (2, "", True)
    assert re.search(says, ran.err)


@pytest.mark.parametrize("words", [["diff", "--wrong"], ["diff", "--help"]], ids=" ".join)
def test_the_live_line_gives_way_to_what_the_parser_prints(words, monkeypatch):
    """A command has one line, while its module is loaded, its words are read, and it runs."""
    shown = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            shown.append(text)
            return len(text)

    def build(words):
        (line,) = live_line._STACK
        line.tell("loading")
        line.tick()
        return build_parser(words)

    monkeypatch.setattr(live_line, "PATIENCE_S", 0.0)
    monkeypatch.setattr(live_line, "TICK_S", 1e6)
    monkeypatch.setattr(console, "_paged", lambda: False)
    monkeypatch.setattr(command, "build_parser", build)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal())
    with pytest.raises(SystemExit):
        command.main(words)
    begin = next(i for i, text in enumerate(shown) if text.startswith("usage: kerntune"))
    assert "".join(shown[:begin]) == f"{live_line.ERASE}loading (0 s){live_line.ERASE}"
    assert live_line.ERASE not in shown[begin:], "nothing is erased after it"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["baselines", "show", "--baselines", "here"], "here: is a file; name the folder of the baselines"),
        (["baselines", "verify", "--baselines", "here"], "here: is a file"),
        (["baselines", "prune", "--baselines", "here"], "here: is a file"),
        (["diff", "here", "here"], "here: is a file"),
        (["baselines", "apply", "gone.json"], "gone.json: can't be read (No such file or directory)"),
        (["baselines", "prune", "--stale-from", "gone.json"], "gone.json: can't be read"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_wrong_file_is_named(kerntune, tmp_path, words, says):
    (tmp_path / "here").write_text("a file")
    kerntune(*words).complains(2, says)


def test_a_broken_ini_file_is_named(kerntune, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.pytest")
    kerntune("baselines", "show").complains(2, str(tmp_path / "pyproject.toml"))


def in_subprocess(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


PROBE = """
import sys
from kerntune.cli.command import main
try:
    main()
except SystemExit:
    pass
print("loaded:", *({"torch", "triton", "numpy", "pytest"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "too_much"),
    [
        (["--help"], {"torch", "triton", "numpy", "pytest"}),
        (["baselines", "--help"], {"torch", "triton", "numpy", "pytest"}),
        (["init", "--help"], {"torch", "triton", "numpy", "pytest"}),
        (["baselines", "refresh", "--help"], {"torch", "triton", "numpy", "pytest"}),
        (["baselines", "show"], {"torch", "triton", "pytest"}),
        (["diff", "baselines", "baselines"], {"torch", "triton", "pytest"}),
        (["baselines", "verify"], {"torch", "triton", "pytest"}),
        (["anchor"], {"torch", "triton", "pytest"}),
        (["baselines", "prune", "--stale-from", "run.json"], {"torch", "triton", "pytest"}),
        (["baselines", "apply", "run.json"], {"torch", "triton", "pytest"}),
        (["cache", "show", "--cache-dir", "nowhere"], {"torch", "triton", "pytest"}),
        (["tune", "--shapes", "shapes.jsonl", "--list"], {"torch", "triton"}),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_command_loads_no_more_than_it_needs(tmp_path, words, too_much):
    folder(tmp_path / "baselines", timed())
    write_run(tmp_path / "run.json", RunReport((), baselines=encoded_bundles([timed()])))
    ShapesFile(tmp_path / "shapes.jsonl").add(TuningJob(SCHEMA, "module", "kernel"))
    ran = in_subprocess(PROBE, *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    loaded = ran.stderr.strip().splitlines()[-1].removeprefix("loaded:").split()
    assert not too_much & set(loaded)


@pytest.mark.slow
def test_a_closed_pipe_is_no_traceback(tmp_path):
    folder(tmp_path / "baselines", *(timed(f"t.py::test_{i}") for i in range(40)))
    code = "import sys; from kerntune.cli.command import main; sys.exit(main())"
    command = f'"{sys.executable}" -c "{code}" baselines show --json | head -c 1'
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert ran.stdout == b"{"
    assert ran.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_table_is_printed_whatever_the_encoding(tmp_path, encoding):
    """12.4 µs."""
    folder(tmp_path / "baselines", timed())
    ran = subprocess.run(
        [sys.executable, "-m", "kerntune", "baselines", "show"],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": source_path(SOURCE)},
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ("12.4 \\xb5s" if encoding == "ascii" else "12.4 µs") in ran.stdout.decode(encoding)


@pytest.mark.slow
def test_output_that_has_become_a_pipe_is_no_error(tmp_path):
    program = (
        "import os, sys\n"
        "pipe = os.pipe()\n"
        "os.dup2(pipe[1], 1)\n"
        "from kerntune.cli.command import main\n"
        "sys.exit(main(['baselines', 'show', '--baselines=.']))\n"
    )
    with (tmp_path / "out.txt").open("w") as out:
        out.write("before")
        out.flush()
        ran = subprocess.run(
            [sys.executable, "-c", program],
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": source_path(SOURCE)},
            check=False,
        )
    assert b"Illegal seek" not in ran.stderr


def test_the_version(kerntune):
    ran = kerntune("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"kerntune {__version__}\n", "")


def test_nothing_is_meant_by_what_is_like_nothing(kerntune):
    assert "did you mean" not in kerntune("xyzzy").err
