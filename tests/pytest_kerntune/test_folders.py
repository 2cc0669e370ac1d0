"""``--kerntune-baselines`` and ``--kerntune-cache-dir``."""

from __future__ import annotations

import pytest


def paths(project) -> dict[str, str]:
    line = next(x for x in project.log.splitlines() if x.startswith("paths "))
    return dict(part.split("=") for part in line.split()[1:])


def test_defaults(project, one_test):
    project.file(one_test())
    project.run()
    assert paths(project) == {"root": str(project.path), "baselines": str(project.path / "baselines"), "cache": "None"}


def test_options_count_from_where_pytest_was_called(project, one_test, monkeypatch):
    project.pytester.makeini("[pytest]\n")
    project.file(one_test())
    (project.path / "sub").mkdir()
    monkeypatch.chdir(project.path / "sub")
    project.run("--kerntune-baselines=b", "--kerntune-cache-dir=../c", "..")
    monkeypatch.chdir(project.path)
    found = (project.path / "sub" / "engine.log").read_text()
    assert f"root={project.path} baselines={project.path}/sub/b cache={project.path}/c" in found


def test_ini_keys_count_from_the_ini_file(project, one_test, monkeypatch):
    project.pytester.makeini("[pytest]\nkerntune_baselines = b\nkerntune_cache_dir = /tmp/c\n")
    project.file(one_test())
    (project.path / "sub").mkdir()
    monkeypatch.chdir(project.path / "sub")
    project.run("..")
    found = (project.path / "sub" / "engine.log").read_text()
    assert f"root={project.path} baselines={project.path}/b cache=/tmp/c" in found


def test_header_names_the_baselines(project, one_test):
    project.file(one_test())
    result = project.run("--kerntune-baselines=b")
    result.stdout.fnmatch_lines(["kerntune: scripted device, Triton 3.9", f"kerntune: baselines {project.path}/b"])


@pytest.mark.parametrize("arguments", [["--no-header"], ["-q"]])
def test_header_can_be_left_out(project, one_test, arguments):
    project.file(one_test())
    project.run(*arguments).stdout.no_fnmatch_line("kerntune: *")


@pytest.mark.parametrize("key", ["kerntune_cache_dir", "kerntune_baselines"])
def test_a_folder_that_is_a_file_is_refused(project, one_test, key):
    project.pytester.makeini(f"[pytest]\n{key} = file\n")
    (project.path / "file").write_text("")
    project.file(one_test())
    says = f"*ini key {key}: {project.path}/file can't be a folder, {project.path}/file is a file; name*"
    project.run().stderr.fnmatch_lines([says])


def test_a_folder_of_traces_that_is_a_file_is_refused(project, one_test):
    (project.path / "file").write_text("")
    project.file(one_test())
    project.run("--kerntune-profile=file").stderr.fnmatch_lines(
        ["*--kerntune-profile: */file is a file; name another*"]
    )
