"""Files of a pull request that try to change what it is compared with: none succeeds, and settings are told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from inner import usage_error
from test_against import CONFTEST, INI, TESTS, repository  # noqa: F401  # a fixture

from kerntune.base.device import Target
from kerntune.gate.baseline_files import BaselineStore
from pytest_kerntune.options import resolve
from pytest_kerntune.reference_settings import ReferenceSettings

pytestmark = pytest.mark.usefixtures("keep_libraries")

OLD = "old"
"""A folder of the revision in which the slow block is the baseline."""


@pytest.fixture
def fork(repository):  # noqa: F811
    """The revision ``base`` has the fast block as its baseline and its anchor; the change has the slow one."""
    repository.kernels(64)
    repository.run(f"--kerntune-baselines={repository.path / OLD}")
    repository.kernels(128)
    repository.run()
    shutil.copytree(repository.path / "baselines", repository.path / "anchors")
    repository.commit("base")
    repository.kernels(64)
    return repository


@pytest.fixture
def folders(repository):  # noqa: F811
    """The revision ``base`` has the folders of ``fork``, and nothing in them that a run would read."""
    for name in ("baselines", "anchors", OLD):
        (repository.path / name).mkdir()
        (repository.path / name / "README").touch()
    repository.commit("base")
    return repository


def rewritten(fork):
    shutil.rmtree(fork.path / "baselines")
    shutil.copytree(fork.path / OLD, fork.path / "baselines")


def removed(fork):
    shutil.rmtree(fork.path / "baselines")


def overwrite(fork, pattern, data):
    for path in (fork.path / "baselines").rglob(pattern):
        path.write_bytes(data)


def linked(fork):
    removed(fork)
    (fork.path / "baselines").symlink_to(OLD)


def attributes(fork):
    """Line ends of a checkout: every packed binary would be another."""
    (fork.path / ".gitattributes").write_text("*.xz text eol=crlf\n*.json text working-tree-encoding=UTF-16\n")


def ini_names_another_revision(fork):
    fork.commit("theirs")
    fork.pytester.makeini(f"{INI.rstrip()} --kerntune-baselines-ref=theirs\n")


def a_file_has_the_revisions_name(fork):
    rewritten(fork)
    shutil.copytree(fork.path / OLD, fork.path / "base")


ANOTHER = f"kerntune_baselines = {OLD}\n"
WAYS = {
    "rewritten": rewritten,
    "removed": removed,
    "damaged": lambda fork: overwrite(fork, "*.json", b"{"),
    "other artifacts": lambda fork: overwrite(fork, "*.xz", b"theirs"),
    "attributes": attributes,
    "linked": linked,
    "ini names another folder": lambda fork: fork.pytester.makeini(INI + ANOTHER),
    "addopts name another folder": lambda fork: fork.pytester.makeini(f"{INI.rstrip()} --kerntune-baselines={OLD}\n"),
    "another ini file": lambda fork: (fork.path / "pytest.ini").write_text(INI + ANOTHER),  # it goes before tox.ini
    "ini names another revision": ini_names_another_revision,
    "a file has the revision's name": a_file_has_the_revisions_name,
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_revisions_baseline_is_what_counts(fork, way):
    WAYS[way](fork)
    result = fork.run("--kerntune-baselines-ref=base", "--kerntune-anchor=off")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED *20.0 µs -> 24.0 µs*", "1 REGRESSED"])


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rewritten", "linked", "ini names another folder", "attributes"])
def test_the_revisions_code_is_what_counts(fork, way, quick_python):
    WAYS[way](fork)
    result = fork.run("--kerntune-against=base", "--kerntune-anchor=off")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED *20.0 µs -> 24.0 µs*", "1 REGRESSED"])


# the anchor


def anchor_removed(fork):
    shutil.rmtree(fork.path / "anchors")


def anchor_rewritten(fork):
    anchor_removed(fork)
    shutil.copytree(fork.path / "baselines", fork.path / "anchors")


def anchor_linked(fork):
    anchor_removed(fork)
    (fork.path / "anchors").symlink_to("baselines")


ANCHORS = {
    "removed": anchor_removed,
    "rewritten": anchor_rewritten,
    "linked": anchor_linked,
    "off": lambda fork: fork.pytester.makeini(INI + "kerntune_anchor = off\n"),
    "another": lambda fork: fork.pytester.makeini(INI + "kerntune_anchor = baselines\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", ANCHORS)
def test_the_revisions_anchor_is_what_counts(fork, way):
    """The slow block was accepted as the baseline; only the anchor tells."""
    rewritten(fork)
    fork.commit("accepted")
    ANCHORS[way](fork)
    result = fork.run("--kerntune-baselines-ref=accepted")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["REGRESSED *+20.0 % since the anchor of *"])


@pytest.mark.slow
def test_a_folder_that_is_called_as_the_anchors_revision_is_none(fork):
    rewritten(fork)
    fork.commit("accepted")
    shutil.copytree(fork.path / "baselines", fork.path / "base")
    fork.run("--kerntune-baselines-ref=accepted", "--kerntune-anchor=base").assert_outcomes(failed=1)


# what the revision lacks


@pytest.mark.slow
def test_a_case_that_it_lacks_is_new_whatever_the_change_brings(fork, monkeypatch):
    (fork.path / "test_it.py").rename(fork.path / "test_more.py")
    fork.run()
    monkeypatch.setenv("CI", "true")
    result = fork.run("--kerntune-baselines-ref=base", "--kerntune-anchor=off")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*NEW test_more.py::test_scale*not in base; the baseline that this tree has*", "1 NEW, 1 STALE"]
    )
    for path in (fork.path / "baselines").rglob("test_more.py/*.json"):
        path.unlink()
    result = fork.run("--kerntune-baselines-ref=base", "--kerntune-anchor=off")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*NEW test_more.py::test_scale*not in base*"])


# what is compiled for


def resolved(fork, *args):
    """The options of a run in the project, and what its ini file says otherwise."""
    config = fork.pytester.parseconfig("--kerntune", *args)
    return resolve(config, environ={}), config


def targets(fork, *args):
    options, _ = resolved(fork, *args)
    return options.settings().known_targets(BaselineStore(options.baselines))


@pytest.mark.slow
def test_the_revisions_targets_are_compiled_for(fork):
    here = tuple(BaselineStore(fork.path / "baselines").targets())
    (fork.path / "baselines" / str(here[0]).replace(":", "-")).rename(fork.path / "baselines" / "hip-gfx942")
    assert targets(fork) == (Target.parse("hip:gfx942"),)
    assert targets(fork, "--kerntune-baselines-ref=base") == here
    assert targets(fork, "--kerntune-against=base") == here


@pytest.mark.slow
def test_a_revision_without_baselines_has_none(fork):
    """Then the project's own say it: every case is NEW anyway."""
    removed(fork)
    fork.commit("bare")
    rewritten_from = shutil.copytree(fork.path / OLD, fork.path / "baselines")
    assert targets(fork, "--kerntune-baselines-ref=bare") == tuple(BaselineStore(Path(rewritten_from)).targets())


# settings


@pytest.mark.slow
def test_settings_that_differ_are_told(fork):
    fork.pytester.makeini(INI + "kerntune_tolerance = 0.5\nkerntune_baselines = old\nmarkers = other\n")
    (fork.path / "test_it.py").write_text(TESTS.replace("@pytest.mark.autotune", "@pytest.mark.autotune(floor=10**9)"))
    result = fork.run("--kerntune-baselines-ref=base", "--kerntune-anchor=off")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "the ini file says otherwise than base's: kerntune_baselines is 'old', there unset (which counts for *",
            "the ini file says otherwise than base's: kerntune_tolerance is '0.5', there unset",
            "the marker of test_it.py::test_scale is another than base's: autotune(floor=10 [*][*] 9), there *",
        ]
    )
    result.stdout.no_fnmatch_line("*otherwise*markers*")
    result.stdout.no_fnmatch_line("*otherwise*addopts*")


@pytest.mark.slow
def test_workers_tell_of_markers_once(fork, quick_python):
    pytest.importorskip("xdist")
    (fork.path / "test_it.py").write_text(TESTS.replace("@pytest.mark.autotune", "@pytest.mark.autotune(floor=10**9)"))
    result = fork.run("--kerntune-baselines-ref=base", "--kerntune-anchor=off", "-n", "2")
    assert str(result.stdout).count("the marker of test_it.py::test_scale is another") == 1


MARKED = """
import pytest
pytestmark = [pytest.mark.autotune(tolerance={module})]

@pytest.mark.autotune
class TestIt:
    pytestmark = pytest.mark.autotune(scope={cls})

    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.autotune(floor={function}))])
    def test_a(self, n):
        pass

    @pytest.mark.usefixtures("tmp_path")
    def test_b(self):
        pass
"""


@pytest.mark.parametrize(("changes", "told"), [
    ({"module": 2}, "autotune(tolerance=2), autotune(), autotune(scope=1), autotune(floor=1), there autotune(tol"),
    ({"cls": 2}, "autotune(scope=2)"), ({"function": 2}, "autotune(floor=2)"), ({}, ""),
])  # fmt: skip
def test_markers_are_found_wherever_they_are(tmp_path, monkeypatch, changes, told):
    plain = {"module": 1, "cls": 1, "function": 1}
    path = tmp_path / "test_it.py"
    path.write_text(MARKED.format(**{**plain, **changes}) + "# edited\n")
    item, other = (SimpleNamespace(path=path, nodeid=f"test_it.py::TestIt::{n}") for n in ("test_a[1]", "test_b"))
    monkeypatch.setattr("pytest_kerntune.reference_settings.nodeid_of", lambda item: item.nodeid)
    it = ReferenceSettings(Path("/"), revision="main", top=Path("/"), commit="commit")
    there = MARKED.format(**plain).encode()
    monkeypatch.setattr("pytest_kerntune.reference_settings.git.file_at", lambda top, commit, name: there)
    found = it.marker_differences([item])
    assert (told in found[0]) if told else not found
    if told:
        assert found[0].startswith("the marker of test_it.py::TestIt::test_a is another than main's: ")
    assert bool(it.marker_differences([other])) is (bool(told) and "function" not in changes)


@pytest.mark.slow
def test_a_file_that_is_no_python_there_is_told(pytester, monkeypatch):
    (item,) = pytester.getitems("import pytest\n\n@pytest.mark.autotune\ndef test_a():\n    pass\n")
    it = ReferenceSettings(Path("/"), revision="main", top=Path("/"), commit="commit")
    monkeypatch.setattr("pytest_kerntune.reference_settings.git.file_at", lambda *args: b"def (" + b"(" * 9999)
    (found,) = it.marker_differences([item])
    assert found.endswith("autotune(), there none")


# the revision's ini file


@pytest.mark.slow
def test_the_ini_file_is_looked_for_in_the_revision(fork):
    """A nearer ini file of the change doesn't hide that which the revision has."""
    (fork.path / "sub").mkdir()
    (fork.path / "sub" / "test_it.py").write_text(TESTS)
    (fork.path / "sub" / "pytest.ini").write_text("[pytest]\n")
    options, config = resolved(fork, "--kerntune-baselines-ref=base", "sub")
    assert options.root == fork.path / "sub"
    assert options.reference_baselines == fork.path / "baselines"
    assert options.anchor == str(fork.path / "anchors")
    assert any("addopts is unset" in x for x in options.reference.differences(config))


def test_what_the_caller_names_counts(folders):
    options, _ = resolved(folders, "--kerntune-baselines-ref=base", f"--kerntune-baselines={OLD}")
    assert options.reference_baselines == folders.path / OLD
    options, _ = resolved(folders, "--kerntune-baselines-ref=base", f"--kerntune-anchor={OLD}")
    assert options.anchor == str(folders.path / OLD)
    options, _ = resolved(folders, "--kerntune-baselines-ref=base", "--kerntune-anchor=off")
    assert options.anchor == ""


def test_a_broken_ini_file_of_the_revision_is_a_usage_error(folders):
    folders.pytester.makeini("no section\n")
    folders.commit("broken")
    folders.pytester.makeini(INI)
    usage_error(folders.run("--kerntune-baselines-ref=broken"), "*of commit *tox.ini: can't be read*")


@pytest.mark.slow
def test_names_are_json(fork):
    """The run's JSON has the case as NEW, which a reader may count on."""
    removed(fork)
    fork.commit("bare")
    fork.run("--kerntune-baselines-ref=bare", "--kerntune-json=run.json", "--kerntune-anchor=off")
    (found,) = json.loads((fork.path / "run.json").read_text())["results"]
    assert (found["verdict"], found["warnings"]) == ("NEW", ["not in bare"])
