"""What pytest collects of given files, as prune asks for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.cli import collection
from kerntune.cli.collection import Collection, collect
from kerntune.errors import KerntuneError


def report(nodeid: str, passed: bool = True) -> Any:
    return SimpleNamespace(nodeid=nodeid, passed=passed)


def test_of_what_was_read_whole_it_is_known_which_tests_exist() -> None:
    found = Collection()
    for one in (report(""), report("a.py"), report("a.py::TestA"), report("b.py", False), report("a.py::TestB", False)):
        found.pytest_collectreport(one)
    for nodeid in ("a.py::test_x", "a.py::TestA::test_y"):
        found.pytest_itemcollected(SimpleNamespace(nodeid=nodeid))  # type: ignore[arg-type]
    assert (found.files, found.unread) == ({"a.py"}, {"b.py", "a.py::TestB"})
    assert found.items == {"a.py::test_x", "a.py::TestA::test_y"}
    known = {name: found.knows(name) for name in ("a.py::test_z", "a.py::TestBig::test_x", "a.py::TestB",
                                                  "a.py::TestB::test_x", "b.py::test_x", "c.py::test_x")}  # fmt: skip
    assert [name for name, is_known in known.items() if is_known] == ["a.py::test_z", "a.py::TestBig::test_x"]


def test_options_of_the_ini_file_leave_no_test_out() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(lf=True))
    Collection().pytest_cmdline_main(config)
    assert config.option.lf is False


@pytest.mark.parametrize(("code", "refused"), [(0, False), (1, False), (5, False), (2, True), (3, True), (4, True)])
def test_pytest_is_asked_once_for_all_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, refused: bool
) -> None:
    """Its last lines are shown where it stopped early, and nothing where it didn't."""
    asked: list[Any] = []

    def main(words: list[str], plugins: list[Any]) -> int:
        asked.append((words, plugins))
        print("\n".join(f"line {i}" for i in range(30)))
        return code

    monkeypatch.setattr(collection.pytest, "main", main)
    monkeypatch.setattr(collection, "plugin_args", lambda: ["-p", "ours"])
    for ini, words in ((tmp_path / "tox.ini", ["-c", str(tmp_path / "tox.ini")]), (None, [])):
        project: Any = SimpleNamespace(ini=ini, root=tmp_path)
        if refused:
            with pytest.raises(KerntuneError) as told:
                collect(project, [Path("a.py")], ["--more"])
            first, *lines = str(told.value).splitlines()
            assert first == f"pytest could not collect the tests (exit code {code}), so none is known to be gone:"
            assert lines == [f"line {i}" for i in range(10, 30)]
        else:
            assert isinstance(collect(project, [Path("a.py")], ["--more"]), Collection)
        options = "--kerntune", "--collect-only", "--continue-on-collection-errors", "--maxfail=0", "-q"
        assert asked[-1][0] == ["-p", "ours", *words, f"--rootdir={tmp_path}", *options, "--more", "a.py"]
        assert [type(one) for one in asked[-1][1]] == [Collection]
