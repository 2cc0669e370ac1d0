"""Copies in place of Python processes: they end as those would, and with the process that started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import PYTHON, Copies, until

HANGS = """
import os, time
open("new", "w").write(str(os.getpid()))
os.rename("new", "pid")
time.sleep(60)
"""


def run(
    copies: Copies, folder: Path, source: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(source)
    return copies.run("script.py", *arguments, cwd=folder, env={**os.environ, **variables})


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('no')", 1),
        ("raise ValueError('no')", 1),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os._exit(7)", 7),
    ],
)
def test_the_exit_code_is_the_programs(copies: Copies, tmp_path: Path, source: str, code: int) -> None:
    assert run(copies, tmp_path, source).returncode == code


def test_files_arguments_folder_and_environment_are_the_callers(copies: Copies, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("HERE = 5")
    source = "import os, sys, beside\nprint(sys.argv, os.getcwd(), os.environ['X'], beside.HERE)\n"
    (tmp_path / "script.py").write_text(source + "print(input(), file=sys.stderr)")
    command = [*copies.call, "script.py", "a b"]
    said = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "X": "ü"}, input="hello\n", capture_output=True, text=True, check=True
    )
    assert (said.stdout, said.stderr) == (f"['script.py', 'a b'] {tmp_path} ü 5\n", "hello\n")


def test_a_copy_ends_with_its_caller(copies: Copies, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HANGS)
    pid = tmp_path / "pid"
    with subprocess.Popen([*copies.call, "script.py"], cwd=tmp_path) as caller:
        assert until(pid.exists)
        caller.kill()
    assert until(lambda: not Path("/proc", pid.read_text()).exists())


def test_copies_start_copies_where_they_are_told_to(copies: Copies, tmp_path: Path) -> None:
    """And only for programs that needn't import anew: others are started as usual."""
    source = "import sys; print('torch' in sys.modules, sys.executable)"
    assert run(copies, tmp_path, source).stdout.split() == ["True", sys.executable]
    assert run(copies, tmp_path, source, **{PYTHON: copies.python}).stdout.split() == ["True", copies.python]
    for options, torch in (("-u -c", "True"), ("-c", "False")):
        command = [copies.python, *options.split(), source]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0] == torch


@pytest.mark.parametrize("other", [True, False])
def test_kerntune_is_the_one_that_the_path_leads_to(copies: Copies, tmp_path: Path, other: bool) -> None:
    """It is imported before, but from here."""
    here = Path(__file__).parents[1]
    if other:
        here = tmp_path / "other"
        (here / "kerntune").mkdir(parents=True)
        (here / "kerntune" / "__init__.py").touch()
    source = "import sys, kerntune\nprint(kerntune.__file__, 'kerntune.gate.api' in sys.modules)"
    done = run(copies, tmp_path, source, PYTHONPATH=str(here))
    assert done.stdout.split() == [str(here / "kerntune" / "__init__.py"), str(not other)], done.stderr
