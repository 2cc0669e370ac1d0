"""Which files a run reads: recorded in a process of its own, since nothing takes an audit hook away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kerntune.cli.bisect.read_files import read_in

RECORDED = """
import sys
sys.path[:0] = [{root!r}, {kerntune!r}]
from kerntune.cli.bisect import read_files
read_files.record({log!r})
{program}
"""

KERNTUNE = str(Path(__file__).parents[3])


def reads(root: Path, program: str) -> frozenset[str] | None:
    log = root.parent / "log"
    text = RECORDED.format(root=str(root), kerntune=KERNTUNE, log=str(log), program=program)
    subprocess.run([sys.executable, "-c", text], cwd=root, check=True)
    return read_in(log, root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / ".git").mkdir(parents=True)
    for name in ("module.py", "data.txt", "unread.txt", ".git/HEAD"):
        (folder / name).write_text("")
    (folder / "link.txt").symlink_to("data.txt")
    return folder


def test_modules_and_data_are_read(root: Path) -> None:
    found = reads(root, "import module; open('link.txt').close(); open('new.txt', 'w').close()")
    assert found is not None
    assert {"module.py", "link.txt", "data.txt"} <= found
    assert not {"unread.txt", "new.txt"} & found


def test_a_forked_copy_is_recorded_too(root: Path) -> None:
    found = reads(root, "import os\nif os.fork(): os.wait()\nelse: open('data.txt').close()")
    assert found is not None
    assert "data.txt" in found


@pytest.mark.parametrize(
    "program",
    ["import subprocess; subprocess.run(['true'])", "import os; os.system('true')", "open('.git/HEAD').close()"],
)
def test_what_a_program_or_git_reads_is_unknown(root: Path, program: str) -> None:
    assert reads(root, program) is None


def test_compilers_of_libraries_read_nothing_of_the_project(root: Path) -> None:
    (root / "triton.py").write_text("import subprocess; subprocess.run(['true'])\n")
    assert reads(root, "import triton") is not None


def test_nothing_is_known_without_a_record(tmp_path: Path) -> None:
    assert read_in(tmp_path / "gone", tmp_path) is None
