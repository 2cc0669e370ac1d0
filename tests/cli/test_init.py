"""``kerntune init``: what it writes, what it leaves alone, and that what it writes gates the tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_path import source_path

from cli.command import Command
from cli.made import tree
from kerntune.cli import init
from kerntune.gate.project import find_project, plugin_args, settings_in

yaml = pytest.importorskip("yaml", reason="pip install pyyaml")

ROOT = Path(__file__).parents[2]
LINE = b"kerntune_baselines = "

KERNELS = """
import torch, triton
import triton.language as tl

@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)

def plus_one(x):
    add[(triton.cdiv(x.numel(), 256),)](x, x.numel(), BLOCK=256)
    return x
"""

AS_IT_IS = """
import unittest

import pytest
import torch
from mykernels import plus_one

@pytest.mark.parametrize(("n", "rtol", "name"), [(512, 0.1, "a"), (4096, 0.2, "b")])
def test_plus_one(n, rtol, name, tmp_path):
    x = plus_one(torch.zeros(n, device="cuda"))
    assert tmp_path.is_dir() and name in "ab"
    assert torch.allclose(x, torch.ones(n, device="cuda"), rtol=rtol)

class TestOther(unittest.TestCase):
    def test_nothing(self):
        self.assertTrue(True)
"""

USING = """
import torch
import triton
from mykernels import plus_one

def test_speed(autotune):
    autotune(plus_one, torch.zeros(64, device=autotune.device))
"""

PLAIN = "def test_words():\n    assert 'triton'\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels, a test that launches one as it is, one that uses ``autotune``, and one that has to do with neither."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mykernels.py").write_text(KERNELS)
    (tmp_path / "tests" / "ops").mkdir(parents=True)
    (tmp_path / "tests" / "ops" / "test_kernels.py").write_text(AS_IT_IS)
    (tmp_path / "tests" / "test_using.py").write_text(USING)
    (tmp_path / "tests" / "test_plain.py").write_text(PLAIN)
    return tmp_path


HOOK, WORKFLOW = "conftest.py", ".github/workflows/kerntune.yml"
MADE = [WORKFLOW, HOOK, "pytest.ini"]


def made(project: Path, before: dict[str, bytes]) -> list[str]:
    """What has come to be, and what is another than before."""
    return sorted(name for name, content in tree(project).items() if before.get(name) != content)


def test_it_writes_what_is_missing_and_twice_is_once(kerntune: Command, project: Path) -> None:
    before = tree(project)
    first = kerntune("init")
    assert (first.code, first.err) == (0, "")
    assert made(project, before) == MADE
    assert all(f"{name}: wrote" in first.out for name in MADE)
    after = tree(project)
    second = kerntune("init")
    assert (second.code, second.err) == (0, "")
    assert tree(project) == after
    assert all(f"{name}: is there, and stays as it is" in second.out for name in MADE)
    for ran in (first, second):
        command = "pytest --kerntune --kerntune-target=cuda:90 --kerntune-update tests/ops/ tests/test_using.py\n"
        assert f"2 files of tests are gated. Next:\n  {command}" in ran.out


def test_what_to_do_next_is_said_for_the_folder_where_it_is_asked(
    kerntune: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "docs").mkdir()
    monkeypatch.chdir(project / "docs")
    ran = kerntune("init", "--dry-run")
    assert ran.out.startswith("../pytest.ini: would get\n")
    command = next(line for line in ran.out.splitlines() if line.startswith("  pytest "))
    assert command.endswith(" --kerntune-update ../tests/ops/ ../tests/test_using.py")


def test_a_dry_run_shows_the_same_and_writes_nothing(kerntune: Command, project: Path) -> None:
    before = tree(project)
    dry = kerntune("init", "--dry-run")
    assert tree(project) == before
    wet = kerntune("init")
    assert dry.out.replace("would get", "wrote") == wet.out
    assert "  kerntune_baselines = baselines\n" in dry.out


def test_only_tests_that_do_not_use_the_fixture_need_a_hook(kerntune: Command, project: Path) -> None:
    before = tree(project)
    assert kerntune("init", "tests/test_using.py").code == 0
    assert made(project, before) == [WORKFLOW, "pytest.ini"]


def test_tests_that_are_named_are_gated_alone(kerntune: Command, project: Path) -> None:
    ran = kerntune("init", "tests/test_plain.py", "tests/ops")
    assert "--kerntune-update tests/ops/ tests/test_plain.py\n" in ran.out
    assert re.findall(r'^    "(.*)",$', (project / HOOK).read_text(), re.M) == ["tests/ops/", "tests/test_plain.py"]


@pytest.mark.parametrize("words", [["gone.py"], [".."]], ids=str)
def test_tests_that_are_not_there_are_named(kerntune: Command, project: Path, words: list[str]) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    ran = kerntune("init", *words)
    assert ran.code == 2
    assert "no such file or folder" in ran.err


def test_a_project_without_kernels_is_told_what_to_write(kerntune: Command, project: Path) -> None:
    for name in ("ops/test_kernels.py", "test_using.py"):
        (project / "tests" / name).unlink()
    before = tree(project)
    ran = kerntune("init")
    assert ran.code == 2
    assert "def test_speed(autotune)" in ran.err
    assert tree(project) == before


def test_settings_say_which_files_are_tests(kerntune: Command, project: Path) -> None:
    (project / "checks").mkdir()
    (project / "checks" / "ops_checks.py").write_text(AS_IT_IS)
    (project / "pytest.ini").write_text("[pytest]\ntestpaths = chec*\npython_files = *_checks.py\n")
    assert "--kerntune-update checks/\n" in kerntune("init").out


def test_a_test_that_imports_a_helper_of_the_tests_launches_nothing_by_that(kerntune: Command, project: Path) -> None:
    """Though the folder of the tests has kernels, too."""
    (project / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (project / "tests" / "test_own.py").write_text(KERNELS)
    (project / "tests" / "test_plain.py").write_text(f"from tests import words\n{PLAIN}")
    assert "tests/test_plain.py" not in kerntune("init", "--dry-run").out


INI = {
    "pytest.ini": b"[pytest]\naddopts = -q\n",
    "tox.ini": b"[tox]\nenvlist = py\n\n[pytest]  ; ours\naddopts = -q\n",
    "setup.cfg": b"[metadata]\nname = x\n[tool:pytest]\naddopts = -q\n",
    "pyproject.toml": b'# 1\r\n[project]\r\nname = "x"\r\n\r\n[tool.pytest.ini_options] # 2\r\naddopts = "-q"\r\n',
    "pyproject-late.toml": b'[project]\nname = "x"\n[tool.pytest.ini_options]',
    "pyproject-none.toml": b'[project]\nname = "\xc3\xa4"\n\n[tool.other]\nx = [ 1,2 ]',
    "pytest.toml": b'[pytest]\naddopts = ["-q"]\n',
}


@pytest.mark.parametrize("name", INI)
def test_the_rest_of_an_ini_file_is_kept_byte_for_byte(kerntune: Command, project: Path, name: str) -> None:
    path = project / re.sub("-.*[.]", ".", name)
    path.write_bytes(INI[name])
    settings = find_project(project).values
    assert kerntune("init").code == 0
    content = path.read_bytes()
    assert settings_in(path, content) == {**settings, "kerntune_baselines": "baselines"}
    (line,) = [x for x in content.splitlines(keepends=True) if x.startswith(LINE)]
    rest = content.replace(line, b"")
    assert rest.startswith(INI[name])
    assert rest[len(INI[name]) :].strip() in (b"", b"[tool.pytest.ini_options]")
    assert (b"\r\n" in line) == (b"\r\n" in INI[name])


def test_a_folder_that_is_set_already_stays(kerntune: Command, project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nkerntune_baselines = kept\n")
    assert kerntune("init").code == 0
    assert (project / "pytest.ini").read_text() == "[pytest]\nkerntune_baselines = kept\n"


IN_THE_WAY = {
    "pyproject.toml": '[tool]\npytest.ini_options.addopts = "-q"\n',
    "conftest.py tests/conftest.py tests/ops/conftest.py": "x = 1\n",
    WORKFLOW: "on: push\n",
}


@pytest.mark.parametrize("names", IN_THE_WAY)
def test_what_is_in_the_way_is_named_and_nothing_is_written(kerntune: Command, project: Path, names: str) -> None:
    for name in names.split():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(IN_THE_WAY[names])
    before = tree(project)
    ran = kerntune("init")
    assert (ran.code, ran.out) == (1, "")
    assert tree(project) == before
    assert names.split()[0] in ran.err
    assert ran.err.endswith("kerntune: nothing was written\n")
    assert {"p": "kerntune_baselines =", "c": "pytest_pyfunc_call", ".": "kerntune report"}[names[0]] in ran.err


def test_a_hook_goes_where_no_conftest_is(kerntune: Command, project: Path) -> None:
    (project / HOOK).write_text("x = 1\n")
    assert kerntune("init").code == 0
    assert (project / HOOK).read_text() == "x = 1\n"
    assert "GATED" in (project / "tests" / HOOK).read_text()


def test_the_workflow_pins_what_the_action_pins_and_may_do_as_little(kerntune: Command, project: Path) -> None:
    kerntune("init")
    text = (project / WORKFLOW).read_text()
    pinned = (ROOT / "action.yml").read_text() + (ROOT / ".github/workflows/kernels.yml").read_text()
    used = re.findall(r"uses: (.*)", text)
    assert len(used) == 3
    assert all(f"uses: {one}\n" in pinned for one in used)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert "pull_request_target" not in text
    assert not any("${{" in step.get("run", "") for step in job["steps"])
    assert workflow[True] == "pull_request"  # YAML 1.1 reads `on` so


def run(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", *plugin_args(), "-p", "no:cacheprovider", "-q", *words]
    done = subprocess.run(
        command,
        cwd=project,
        env={"PYTHONPATH": source_path(ROOT, project), "PATH": "", "HOME": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_bodies_of_tests_are_gated_as_they_are(kerntune: Command, project: Path) -> None:
    kerntune("init")
    words = "--kerntune", "--kerntune-target=cuda:90", "tests/ops/", "tests/test_using.py"
    first = run(project, *words, "--kerntune-update")
    assert "3 NEW" in first, first
    assert "4 passed" in first, first
    second = run(project, *words)
    assert "3 PASS" in second, second
    (project / "mykernels.py").write_text(KERNELS.replace(" + 1,", ".to(tl.float64) * 1.1,"))
    third = run(project, *words)
    assert "3 REGRESSED" in third, third
    plain = run(project, "tests/ops/")
    assert "2 failed, 1 passed" in plain, plain  # there is no GPU
    assert "pytest_kerntune" not in plain, plain


@pytest.mark.parametrize(
    ("version", "pinned"), [("2.13.0+cpu", "torch==2.13.0"), ("2.13.0", "torch==2.13.0"), ("", "torch")]
)
def test_a_version_is_pinned_without_its_build(version: str, pinned: str) -> None:
    assert init._pinned("torch", version) == pinned


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("baselines", '"baselines"'), ("a/b-c.d_1", '"a/b-c.d_1"'), ("a b", "'a b'"), ('a"b', "'a\"b'"), ("", "''")],
)
def test_a_folder_is_quoted_for_toml(text: str, quoted: str) -> None:
    assert init._quoted(text) == quoted


@pytest.mark.parametrize(
    ("name", "text", "installable"),
    [
        ("setup.py", "", True), ("pyproject.toml", "[project]\nname = 'a'\n", True),
        ("pyproject.toml", "[tool.x]\n[build-system]\n", True), ("pyproject.toml", "[tool.x]\n # [project]\n", False),
        ("pyproject.toml", "x = '[project]'\n", False), ("setup.cfg", "[project]\n", False),
    ],
)  # fmt: skip
def test_a_project_with_a_build_is_installed(tmp_path: Path, name: str, text: str, installable: bool) -> None:
    assert not init._is_installable(tmp_path)
    (tmp_path / name).write_text(text)
    assert init._is_installable(tmp_path) is installable


def test_files_of_tests_are_where_pytest_looks(tmp_path: Path) -> None:
    """Not in folders that it skips: hidden ones, those of builds, and virtual environments whatever their name."""
    skipped = (".hidden", "build", "dist", "node_modules", "venv", "CVS", "_darcs", "own")
    for folder in (".", "deep", "deep/er", *skipped):
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in ("test_b.py", "a_test.py", "other.py", "test_c.txt"):
            (tmp_path / folder / name).touch()
    (tmp_path / "own" / "pyvenv.cfg").touch()
    found = [p.relative_to(tmp_path).as_posix() for p in init._files(tmp_path, init.TEST_FILES)]
    assert found == [f"{place}{name}" for place in ("", "deep/", "deep/er/") for name in ("a_test.py", "test_b.py")]
    for name, files in (("other.py", [tmp_path / "other.py"]), ("test_c.txt", [])):
        assert list(init._files(tmp_path / name, init.TEST_FILES)) == files, "one that is named"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a.b, c as d\nfrom e.f import g", {"a", "c", "e"}), ("from . import a\nfrom .b import c", set()),
        ("def f():\n  import late", {"late"}), ("import a\nwrong(", set()),
    ],
)  # fmt: skip
def test_what_a_file_imports(tmp_path: Path, text: str, names: set[str]) -> None:
    (tmp_path / "a.py").write_text(text)
    assert set(init._imported(tmp_path / "a.py")) == names


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("import triton\n@triton.jit\ndef f(): pass", True), ("import triton\n  @jit\n", True),
        ("from triton.experimental import gluon\n@gluon.jit", True), ("@numba.jit\ndef f(): pass", False),
        ("import triton  # @triton.jit", False), ("import triton\n@triton.jitted", False),
    ],
)  # fmt: skip
def test_which_files_have_kernels(tmp_path: Path, text: str, has: bool) -> None:
    (tmp_path / "a.py").write_text(text)
    assert init._has_kernel(tmp_path / "a.py") is has


@pytest.mark.parametrize(
    ("name", "content", "edited"),
    [
        ("pytest.ini", b"", b"[pytest]\nk = v\n"), ("pytest.ini", b"[pytest]", b"[pytest]\nk = v\n"),
        ("pytest.ini", b"[pytest] ; x\na = b\n", b"[pytest] ; x\nk = v\na = b\n"),
        ("tox.ini", b"[tox]\n", b"[tox]\n\n[pytest]\nk = v\n"), ("tox.ini", b"[tox]", b"[tox]\n\n[pytest]\nk = v\n"),
        ("setup.cfg", b"[a]\r\n[tool:pytest]\r\n", b"[a]\r\n[tool:pytest]\r\nk = v\r\n"),
        ("setup.cfg", b"", b"[tool:pytest]\nk = v\n"), ("pytest.toml", b"", b'[pytest]\nk = "v"\n'),
        (".pytest.toml", b"", b'[pytest]\nk = "v"\n'),
        ("pyproject.toml", b"[tool.pytest]\n", b'[tool.pytest]\nk = "v"\n'),
        ("pyproject.toml", b"", b'[tool.pytest.ini_options]\nk = "v"\n'),
    ],
)  # fmt: skip
def test_a_key_is_added_to_pytests_section(name: str, content: bytes, edited: bytes) -> None:
    line, found = init._with_key(Path(name), content, "k", "v")
    assert (line, found) == ('k = "v"' if "toml" in name else "k = v", edited)
