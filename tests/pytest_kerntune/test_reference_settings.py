"""What a revision's settings and markers are, and how those of a checkout differ."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.errors import UsageError
from kerntune.gate.project import DEFAULT_BASELINES
from pytest_kerntune import reference_settings as settings
from pytest_kerntune.reference_settings import ReferenceSettings, _marks, _scopes, on_command_line

LINES = 20


TOP = Path("/top")


def there(**values: Any) -> ReferenceSettings:
    return ReferenceSettings(TOP / "sub", values=values, revision="main", top=TOP, commit="c0ffee" * 7)


def test_folders_are_relative_to_the_ini_file() -> None:
    found = there(kerntune_baselines=" ../kept ", kerntune_cache_dir="/abs/x/..", kerntune_history="")
    assert [found.text("kerntune_baselines"), found.text("gone")] == ["../kept", ""]
    assert found.folder("kerntune_baselines") == found.baselines == Path("/top/kept")
    assert [found.folder("kerntune_cache_dir"), found.folder("kerntune_history")] == [Path("/abs"), None]
    assert there().baselines == TOP / "sub" / DEFAULT_BASELINES


@pytest.mark.parametrize(("name", "names", "found"), [("kept", [], True), ("kept", None, False), (None, None, True)])
def test_a_folder_is_looked_for_in_the_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str | None, names: Any, found: bool
) -> None:
    """One outside of the repository is looked for on the disk."""
    monkeypatch.setattr(settings.git, "name_in", lambda top, path: name)
    monkeypatch.setattr(settings.git, "names_at", lambda top, commit, name: names)
    assert there().has_folder(tmp_path) == found
    assert there().has_folder(tmp_path / "gone") == (found and name is not None)


def test_targets_are_the_folders_that_are_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.git, "place_of", lambda baselines, top: (top, "kept"))
    monkeypatch.setattr(settings.git, "commit_of", lambda top, revision: "c")
    monkeypatch.setattr(settings.git, "names_at", lambda *asked, folders: ["hip-gfx942", "notes", "cuda-90"])
    assert [str(t) for t in there().targets(TOP)] == ["cuda:90", "hip:gfx942"]
    monkeypatch.setattr(settings.git, "names_at", lambda *asked, folders: None)
    assert there().targets(TOP) == ()


def test_each_setting_of_ours_that_differs_is_a_line(tmp_path: Path) -> None:
    ini = tmp_path / "pytest.ini"
    ini.write_text("[pytest]\nkerntune_cases = 3\nkerntune_baselines = b\naddopts = -q\nother = 1\nkerntune_same = 1\n")
    config: Any = SimpleNamespace(inipath=ini)
    found = there(kerntune_baselines="a", kerntune_scope="op", other="2", kerntune_same="1").differences(config)
    begin = "the ini file says otherwise than main's: "
    assert found == (
        f"{begin}addopts is '-q', there unset",
        f"{begin}kerntune_baselines is 'b', there 'a' (which counts for what is read from main)",
        f"{begin}kerntune_cases is '3', there unset",
        f"{begin}kerntune_scope is unset, there 'op'",
    )
    found = there(kerntune_scope="x" * 300).differences(SimpleNamespace(inipath=None))  # type: ignore[arg-type]
    assert found == (f"{begin}kerntune_scope is unset, there '{'x' * 199}",)


# markers


@pytest.mark.parametrize(
    ("nodeid", "scopes"),
    [
        ("t.py", [""]),
        ("t.py::test_a", ["", "test_a"]),
        ("t.py::TestIt::Inner::test_a", ["", "TestIt", "TestIt::Inner", "TestIt::Inner::test_a"]),
    ],
)
def test_scopes_of_a_test(nodeid: str, scopes: list[str]) -> None:
    assert _scopes(nodeid) == scopes


SOURCE = b"""
import pytest
from pytest import mark
pytestmark: list = [pytest.mark.autotune(tolerance=0.1), pytest.mark.slow]
other = pytest.mark.autotune(1)

@pytest.mark.autotune
@mark.autotune("x", scope="op")
def test_a(): pass

class TestIt:
    pytestmark = mark.autotune(cases=3)
    @mark.parametrize("n", [pytest.param(1, marks=mark.autotune(off=True))])
    async def test_b(self): pass

@elsewhere.autotune
@config.marks.autotune
def test_c(): pass
"""


def test_markers_by_what_they_mark() -> None:
    found = {scope: marks for scope, marks in _marks(SOURCE).items() if marks}
    assert found == {
        "": ["autotune(tolerance=0.1)"],
        "test_a": ["autotune()", "autotune('x', scope='op')"],
        "TestIt": ["autotune(cases=3)"],
        "TestIt::test_b": ["autotune(off=True)"],
    }
    assert _marks(b"def") == _marks(b"\0") == {}
    assert _marks(b"") == {"": []}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The revision's files."""
    found: dict[str, bytes] = {}
    monkeypatch.setattr(settings.git, "name_in", lambda top, path: path.name)
    monkeypatch.setattr(settings.git, "file_at", lambda top, commit, name: found.get(name))
    return found


def marked(path: Path, *tests: str) -> list[Any]:
    return [SimpleNamespace(nodeid=f"{path.name}::{test}", path=path) for test in tests]


MARK = "import pytest\n@pytest.mark.autotune({})\ndef test_a(): pass\ndef test_b(): pass\n"


def test_a_test_with_other_markers_is_told_once(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "nodeid_of", lambda item: item.nodeid)
    path, same, new = (tmp_path / name for name in ("t.py", "same.py", "new.py"))
    for place in (path, same, new):
        place.write_text(MARK.format("cases=1"))
    files |= {"t.py": MARK.format("").encode(), "same.py": MARK.format("cases=1").encode()}
    items = [*marked(path, "test_a[1]", "test_a[2]", "test_b"), *marked(same, "test_a"), *marked(new, "test_a")]
    begin = "the marker of t.py::test_a is another than main's: "
    assert there().marker_differences(items) == [f"{begin}autotune(cases=1), there autotune()"]
    files["t.py"] = b""
    assert there().marker_differences(items) == [f"{begin}autotune(cases=1), there none"]
    files["t.py"], _ = MARK.format("").encode(), path.write_text("def test_a(): pass\n")
    assert there().marker_differences(items) == [f"{begin}none, there autotune()"]


@pytest.mark.parametrize(("more", "rest"), [(0, []), (1, ["... and 1 more markers"])])
def test_many_markers_are_cut(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, rest: list[str]
) -> None:
    monkeypatch.setattr(settings, "nodeid_of", lambda item: item.nodeid)
    path = tmp_path / "t.py"
    path.write_text("import pytest\npytestmark = pytest.mark.autotune\n")
    files["t.py"] = b"x = 1"
    found = there().marker_differences(marked(path, *(f"test_{i}" for i in range(LINES + more))))
    assert (len(found[:LINES]), found[LINES:]) == (LINES, rest)


# what the command line says


@pytest.mark.parametrize(
    ("words", "environ", "given"),
    [
        (["--flag"], "", True),
        (["--flag=1"], "", True),
        (["--flags"], "", False),
        (["x--flag"], "", False),
        ([Path("a")], "-q --flag=1", True),
        ([], "-q", False),
    ],
)
def test_options_of_the_command_line(words: list[Any], environ: str, given: bool) -> None:
    config: Any = SimpleNamespace(invocation_params=SimpleNamespace(args=words))
    assert on_command_line(config, "--flag", {"PYTEST_ADDOPTS": environ} if environ else {}) == given


@pytest.mark.parametrize(
    ("named", "start"),
    [
        ([], ""),
        (["a/x.py::test_a"], "a"),
        (["a/x.py", "a/b/y.py"], "a"),
        (["a/b", "c"], ""),
        (["gone", "a/b"], "a/b"),
        (["gone"], ""),
    ],
)
def test_where_pytest_begins_to_look(tmp_path: Path, named: list[str], start: str) -> None:
    for folder in ("a/b", "c"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("a/x.py", "a/b/y.py"):
        (tmp_path / file).touch()
    config: Any = SimpleNamespace(invocation_params=SimpleNamespace(dir=tmp_path))
    assert settings._start(config, SimpleNamespace(file_or_dir=named)) == tmp_path / start
    assert settings._start(config, SimpleNamespace()) == tmp_path


def test_a_broken_file_of_the_revision_names_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.git, "file_at", lambda top, commit, name: b"[pytest" if name else None)
    with pytest.raises(UsageError, match=r"^of commit c0ffeec0ff: "):
        settings._settings_at(TOP, "c0ffee" * 7, "pytest.ini")
    assert settings._settings_at(TOP, "c", None) is None
