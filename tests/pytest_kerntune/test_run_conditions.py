"""What holds for a whole run, without one: folders, what was replaced, a GPU that torch doesn't see, selections."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kerntune.gpu import probe
from pytest_kerntune import run_conditions
from pytest_kerntune.run_conditions import (
    DecisionWatch,
    RunFolders,
    covered,
    kernels_that_know_pytest,
    narrowed,
    unseen_gpu,
    within,
)


def test_a_process_alone_makes_its_folders(tmp_path: Path) -> None:
    cleanups: list[Any] = []
    config: Any = SimpleNamespace(add_cleanup=cleanups.append)
    folders = RunFolders(config)
    assert folders.place == (0, 1)
    made = folders.folder("claims", lambda path: path / "claims")
    assert (made.name, folders.made) == ("claims", {"claims": str(made)})
    assert made.parent.is_dir()
    cleanups[0]()
    assert not made.parent.exists()


def test_a_worker_is_handed_its_folders() -> None:
    given = {"workerid": "gw3", "workercount": 5, "claims": "/some/where"}
    folders = RunFolders(SimpleNamespace(workerinput=given))  # type: ignore[arg-type]
    assert folders.place == (3, 5)
    assert folders.folder("claims", pytest.fail) == Path("/some/where")
    assert folders.made == {}


@pytest.fixture
def deciding(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with a table, a function and a method that decide."""
    module = ModuleType("a_module_that_decides")
    exec("TABLE = {1: 2}\ndef decide(x=1): return x\nclass Policy:\n    def outcome(self): return 1\n", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = ("TABLE", "decide", "Policy.outcome", "later")
    monkeypatch.setattr(run_conditions, "DECIDING", tuple((module.__name__, name) for name in names))
    return module


def test_what_stays_as_it_was_is_not_named(deciding: ModuleType) -> None:
    watch = DecisionWatch()
    deciding.TABLE = {1: 2}
    deciding.later = len
    assert watch.changed() == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("TABLE[1] = 3", "TABLE"), ("TABLE = None", "TABLE"), ("del TABLE", "TABLE"), ("decide = lambda: 1", "decide"),
        ("decide.__defaults__ = (2,)", "decide"), ("decide.__code__ = (lambda x=1: 2).__code__", "decide"),
        ("Policy.outcome = len", "Policy.outcome"), ("Policy = None", "Policy.outcome"),
    ],
)  # fmt: skip
def test_what_was_changed_is_named_again_and_again(deciding: ModuleType, change: str, named: str) -> None:
    watch = DecisionWatch()
    exec(change, vars(deciding))
    assert watch.changed() == [f"a_module_that_decides.{named}"]
    assert watch.changed() == [f"a_module_that_decides.{named}"]


def test_what_comes_later_is_kept_from_then_on(deciding: ModuleType) -> None:
    watch = DecisionWatch()
    deciding.later = len
    assert watch.changed() == []
    deciding.later = max
    assert watch.changed() == ["a_module_that_decides.later"]


@pytest.mark.parametrize(
    ("files", "visible", "told"),
    [
        (["nvidia1", "nvidia0"], None, "nvidia0 is there, but torch is broken: kernels are compiled only"),
        (["nvidia0"], "0,1", "nvidia0 is there"),
        (["nvidia0"], "", ""),
        (["nvidia0"], " -1 ", ""),
        (["nvidiactl", "nvidia-uvm", "nvidia0x"], None, ""),
        ([], None, ""),
    ],
)
def test_a_gpu_that_torch_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], visible: str | None, told: str
) -> None:
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(run_conditions, "DEVICES", tmp_path)
    monkeypatch.setattr(probe, "why_unused", lambda: "torch is broken")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    said = unseen_gpu()
    assert said.startswith(f"{tmp_path}/{told}") if told else not said


KERNELS = (
    "class Tuner:\n    def __init__(self, fn): self.fn = fn\nTuner.__module__ = 'triton.runtime'\ndef softmax(): pass\n"
)


@pytest.mark.parametrize(
    ("asks", "wrappers", "told"),
    [
        ('if "pytest" in sys.modules: pass', 1, '"pytest" in sys.modules'),
        ("if 'pytest' not  in sys.modules: pass", 1, "'pytest' not  in sys.modules"),
        ('if "kerntune" not in sys.modules: pass', 1, '"kerntune" not in sys.modules'),
        ("'pytest_kerntune' in sys.modules", 1, "'pytest_kerntune' in sys.modules"),
        ('os.environ.get("PYTEST_VERSION")', 7, "PYTEST_VERSION"),
        ('os.environ["PYTEST_CURRENT_TEST"]', 0, None),
        ('os.environ["PYTEST_CURRENT_TEST"]', 8, None),
        ("import pytest", 1, None),
    ],
)
def test_kernels_whose_file_asks_for_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str, wrappers: int, told: str | None
) -> None:
    """Behind up to seven decorators of Triton's or ours."""
    file = tmp_path / "kernels.py"
    file.write_text(f"{KERNELS}def asks():\n    {asks}\nkernel = softmax\n" + "kernel = Tuner(kernel)\n" * wrappers)
    module = ModuleType("kernels_under_test")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert kernels_that_know_pytest(["other"]) == kernels_that_know_pytest([]) == []
    found = kernels_that_know_pytest(["softmax"])
    assert [line for line in found if line.startswith("kernels.py ")] == (
        [] if told is None else
        [f"kernels.py asks whether it runs in a test ({told}): what is gated of kernel softmax may not be what runs "
         "elsewhere, its configs for example"]
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["keyword", "markexpr", "lf", "stepwise", "deselect", "ignore", "ignore_glob", "group"]
)
def test_options_that_leave_tests_out(name: str) -> None:
    option = dict.fromkeys(["keyword", "markexpr"], "") | {"verbose": 2}
    assert not narrowed(SimpleNamespace(option=SimpleNamespace(**option)))  # type: ignore[arg-type]
    assert narrowed(SimpleNamespace(option=SimpleNamespace(**option | {name: ["x"]})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "is_covered"),
    [(["tests"], True), (["."], True), (["tests/test_a.py"], True), (["tests/test_a.py::test_x"], False),
     (["tests/test_b.py"], False), (["../root/tests"], True), (["other", "tests/test_a.py"], True), ([], False)],
)  # fmt: skip
def test_which_files_a_run_covers(tmp_path: Path, arguments: list[str], is_covered: bool) -> None:
    root = tmp_path / "root"
    config: Any = SimpleNamespace(rootpath=root, args=arguments, invocation_params=SimpleNamespace(dir=root))
    assert covered(config, "tests/test_a.py::test_x") is is_covered


def test_a_path_lies_within_itself() -> None:
    assert within(Path("/a/b"), [Path("/a/b")])
    assert within(Path("/a/b/c"), [Path("/x"), Path("/a/b")])
    assert not within(Path("/a/bc"), [Path("/a/b")])
    assert not within(Path("/a"), [Path("/a/b")])
    assert not within(Path("/a"), [])
