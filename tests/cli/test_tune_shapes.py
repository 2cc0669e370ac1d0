"""``kerntune shapes``: which processes of a command note their calls, and what is said of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.cli.tune import STARTUP, noting_environment
from kerntune.tuning.many.shapes_file import SHAPES, ShapesFile

NOTES = """
import os, sys
from pathlib import Path
from kerntune.base.tuning_job import SCHEMA, TuningJob
from kerntune.tuning.many.shapes_file import ShapesFile
for name in sys.argv[1].split():
    ShapesFile(Path(os.environ["KERNTUNE_SHAPES"])).add(TuningJob(SCHEMA, "module", name, file="/m.py"))
sys.exit(int(sys.argv[2]))
"""


def command(names: str, code: int = 0) -> list[str]:
    return ["--", sys.executable, "-c", NOTES, names, str(code)]


@pytest.mark.slow
def test_a_commands_processes_note_in_one_file(kerntune: Any, tmp_path: Path) -> None:
    ran = kerntune("shapes", "record", *command("one two"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{tmp_path}/shapes.jsonl: 2 calls of 2 kernels, 2 of them new\n")
    assert f"kerntune tune --shapes {tmp_path}/shapes.jsonl" in ran.out
    again = kerntune("shapes", "record", *command("two three"))
    assert "3 calls of 3 kernels, 1 of them new" in again.out


def test_the_commands_code_is_passed_on(kerntune: Any, tmp_path: Path) -> None:
    ran = kerntune("shapes", "record", "-o", "mine.jsonl", *command("one", 7))
    assert ran.code == 7
    assert (tmp_path / "mine.jsonl").exists()


def test_nothing_noted_is_a_finding_that_says_why(kerntune: Any) -> None:
    ran = kerntune("shapes", "record", "--", sys.executable, "-c", "")
    assert ran.code == 1
    assert "no call of a tuned kernel was noted" in ran.err


def test_empty_arguments_of_the_command_are_its_own(kerntune: Any) -> None:
    assert kerntune("shapes", "record", *command("")).code == 1


@pytest.mark.parametrize("words", [[], ["--"], ["--", "no-such-program-here"]])
def test_no_command_is_wrong_usage(kerntune: Any, words: list[str]) -> None:
    kerntune("shapes", "record", *words).complains(2)


def test_what_would_be_tuned(kerntune: Any, tmp_path: Path) -> None:
    file = ShapesFile(tmp_path / "s")
    for key in ("(1,)", "(2,)"):
        file.add(TuningJob(SCHEMA, "module", "kernel", key=key, file="/m.py"))
    ran = kerntune("tune", "--shapes", "s", "--list")
    assert ran.code == 0
    assert "module.kernel  2       (1,)         /m.py" in ran.out
    told = json.loads(kerntune("tune", "--shapes", "s", "--list", "--json").out)
    assert told == [{"kernel": "module.kernel", "keys": 2, "first_key": "(1,)", "file": "/m.py"}]
    file.add(TuningJob(SCHEMA, "module", "other", key="(3,)", unknown="it is local; move it"))
    ran = kerntune("tune", "--shapes", "s", "--list")
    assert "module.other" in ran.out
    ran.complains(1, "kernel module.other, key (3,): it is local; move it")
    file.path.write_bytes(file.path.read_bytes() + b"half")
    kerntune("tune", "--shapes", "s", "--list").complains(2, "s:7: is no description of a call")
    assert kerntune("tune", "--shapes", "gone", "--list").code == 2, "wrong usage"


# triton.autotune, in whatever a command starts


def python(code: str, tmp_path: Path, *first: Path) -> subprocess.CompletedProcess[str]:
    env = noting_environment(tmp_path / "shapes.jsonl")
    path = os.pathsep.join([env["PYTHONPATH"].partition(os.pathsep)[0], *map(str, first), env["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-c", code], env={**env, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_kerntune_is_installed_once_triton_is_imported(tmp_path: Path) -> None:
    code = "import sys; assert 'triton' not in sys.modules; import triton; print(triton.autotune.__module__)"
    done = python(code, tmp_path)
    assert (done.stdout, done.stderr) == ("kerntune.tuning.api.decorators\n", "")


def test_another_sitecustomize_is_run_as_well_and_a_failure_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.SEEN = 'yes'\n")
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("")
    done = python("import triton; print(SEEN, triton.__file__)", tmp_path, tmp_path)
    assert done.stdout == f"yes {tmp_path}/triton/__init__.py\n"
    assert "kerntune: this process's kernels of triton.autotune can't be noted (" in done.stderr
    assert done.returncode == 0


def test_the_environment(tmp_path: Path) -> None:
    found = noting_environment(tmp_path / "s")
    assert found[SHAPES] == str(tmp_path / "s")
    assert found["PYTHONPATH"].split(os.pathsep)[0] == str(STARTUP)
    assert (STARTUP / "sitecustomize.py").is_file()
