"""Runs in copies of a process that has the imports: as in a process of their own, or refused."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pluggy
import pytest
from source_path import source_path

from kerntune.cli.bisect import preloaded, run_server
from kerntune.cli.bisect.bisected_version import Checkout
from kerntune.cli.bisect.preloaded import CommandRuns, run_alone
from kerntune.cli.bisect.run_server import shadowed

SHARED = tuple(source_path(Path(__file__).parents[3]).split(os.pathsep))
"""Where both sides have the same packages."""

TEST = """
import os, sys, module
def test_x():
    print("path", [p for p in sys.path if p.endswith("here")], "module", module.WHICH, os.environ["WHO"])
    assert {passes}
"""

pytestmark = pytest.mark.usefixtures("quick_python")


@pytest.fixture
def runs() -> Iterator[CommandRuns]:
    runs = CommandRuns()
    yield runs
    runs.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The outputs of runs in a process of their own."""
    found = list[Path]()

    def noted(layout: Checkout, arguments: Sequence[str], output: Path) -> int:
        found.append(output)
        return run_alone(layout, arguments, output)

    monkeypatch.setattr(preloaded, "run_alone", noted)
    return found


def checkout(folder: Path, which: str, passes: bool = True, shared: tuple[str, ...] | None = SHARED) -> Checkout:
    here = folder / which / "here"
    here.mkdir(parents=True)
    (here / "module.py").write_text(f"WHICH = {which!r}\n")
    (here / "test_x.py").write_text(TEST.format(passes=passes))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**own, "PYTHONPATH": os.pathsep.join([str(here), *SHARED]), "WHO": which}
    return Checkout(here, here, sys.executable, env, shared)


ARGUMENTS = ["baselines", "refresh", "-q", "-s", "-p", "no:cacheprovider", "--kerntune-target=cuda:90", "test_x.py"]


def said(output: Path) -> str:
    """The line that the test prints."""
    return next(x for x in output.read_text().splitlines() if x.startswith("path"))


@pytest.mark.slow
def test_a_copy_runs_as_a_process_of_its_own_does(tmp_path: Path, runs: CommandRuns, alone: list[Path]) -> None:
    for which, passes in (("a", True), ("b", False)):
        layout = checkout(tmp_path, which, passes)
        copied, apart = tmp_path / f"{which}-copied", tmp_path / f"{which}-apart"
        assert runs.run(layout, ARGUMENTS, copied) == run_alone(layout, ARGUMENTS, apart) == int(not passes)
        assert said(copied) == said(apart)
        assert f"module {which} {which}" in said(copied)
        assert alone == []


@pytest.mark.slow
def test_code_that_shadows_an_imported_module_runs_alone(tmp_path: Path, runs: CommandRuns, alone: list[Path]) -> None:
    layout = checkout(tmp_path, "a")
    shutil.copytree(Path(pluggy.__file__).parent, layout.root / "pluggy")
    assert runs.run(layout, ARGUMENTS, tmp_path / "out") == 0
    assert alone == [tmp_path / "out"]


MEETING = """
import os, signal
def test_x():
    signal.alarm(60)  # alone, it would wait for ever
    end = os.open({fifo!r}, {how})
    os.close(end)
"""


@pytest.mark.slow
def test_copies_of_one_process_run_at_the_same_time(tmp_path: Path, runs: CommandRuns, alone: list[Path]) -> None:
    os.mkfifo(tmp_path / "fifo")
    layouts = [checkout(tmp_path, which) for which in ("a", "b")]
    for layout, how in zip(layouts, ("os.O_RDONLY", "os.O_WRONLY"), strict=True):
        (layout.root / "test_x.py").write_text(MEETING.format(fifo=str(tmp_path / "fifo"), how=how))
    places = [(layout, ARGUMENTS, tmp_path / f"out{i}") for i, layout in enumerate(layouts)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        assert list(pool.map(lambda place: runs.run(*place), places)) == [0, 0]
    assert (len(runs._servers), alone) == (1, []), "both were copies"


@pytest.mark.slow
def test_what_imports_print_is_no_answer(tmp_path: Path, runs: CommandRuns, alone: list[Path]) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('0 0', flush=True)")
    layout = checkout(tmp_path, "a", shared=(str(tmp_path), *SHARED))
    assert runs.run(layout, ARGUMENTS, tmp_path / "out") == 0
    assert alone == []


KILLED_ONCE = """
import os, time
def test_x():
    if not os.path.exists({seen!r}):
        child = os.fork()
        if child == 0:
            time.sleep(600)  # lives on
        with open({seen!r}, "w") as file:
            file.write(str(child))
        os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_copy_that_is_killed_runs_alone(tmp_path: Path, runs: CommandRuns, alone: list[Path]) -> None:
    layout, seen = checkout(tmp_path, "a"), tmp_path / "seen"
    (layout.root / "test_x.py").write_text(KILLED_ONCE.format(seen=str(seen)))
    assert runs.run(layout, ARGUMENTS, tmp_path / "out") == 0
    os.kill(int(seen.read_text()), signal.SIGKILL)
    assert alone == [tmp_path / "out"]


@pytest.mark.slow
def test_an_interpreter_that_lacks_the_imports_is_no_reason_to_stop(tmp_path: Path, runs: CommandRuns) -> None:
    (tmp_path / "kerntune").mkdir()
    (tmp_path / "kerntune" / "__init__.py").write_text("raise ImportError('another kerntune')")
    layout = checkout(tmp_path, "a", shared=(str(tmp_path),))
    assert runs.run(layout, ARGUMENTS, tmp_path / "out") == 0


def test_which_names_shadow(tmp_path: Path) -> None:
    for name in ("torch", "docs/triton.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if "." not in name else (tmp_path / name).write_text("")
    modules = ["torch.nn", "triton", "os.path"]
    assert not shadowed([str(tmp_path), str(tmp_path / "gone")], modules)  # a folder without __init__ hides nothing
    assert shadowed([str(tmp_path / "docs")], modules)
    (tmp_path / "torch" / "__init__.py").write_text("")
    assert shadowed([str(tmp_path)], modules)


def test_only_what_no_commit_changes_is_imported_for_the_next_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_a_commit.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    left = tmp_path / "output.imports"
    left.write_text("wave\nof_a_commit\n")
    run_server._import_more(left)
    assert "wave" in sys.modules
    assert "of_a_commit" not in sys.modules
    assert not left.exists()
