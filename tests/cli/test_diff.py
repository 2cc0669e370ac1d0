"""``kerntune baselines diff``."""

from __future__ import annotations

import json
import subprocess
from html import unescape
from pathlib import Path

import msgspec
import pytest

from cli.made import SOFTMAX, folder, metrics, static, timed
from kerntune.base.config import Config
from kerntune.cli.changes import Figure, change_of, compare
from kerntune.cli.stored import Entry, key_of, load_folder
from kerntune.gate.baselines import Calibration
from kerntune.gate.call import PendingBaseline


def changes(before: PendingBaseline, after: PendingBaseline):
    return change_of(key_of(before.baseline), before.baseline, after.baseline)


def test_the_same_baselines_do_not_differ(kerntune, tmp_path):
    folder(tmp_path / "a", timed(), static())
    later = msgspec.structs.replace(timed().baseline, recorded="2027-01-01T00:00:00Z")
    folder(tmp_path / "b", PendingBaseline(later, timed().artifacts, True), static())
    ran = kerntune("diff", "a", "b", "--exit-code")
    assert ran.code == 0
    assert ran.out == "0 changed, 0 added, 0 removed, 2 the same\n"


def test_the_worst_comes_first(tmp_path):
    names = {"t.py::slow": 1.3, "t.py::fast": 0.7, "t.py::slower": 1.5, "t.py::same": 1.0}
    folder(tmp_path / "a", *(timed(n, times=(1000.0,)) for n in names), static("t.py::spills"), static("t.py::regs"))
    folder(
        tmp_path / "b",
        *(timed(n, times=(1000.0 * x,)) for n, x in names.items()),
        static("t.py::spills", figures=metrics(spilled=4)),
        static("t.py::regs", figures=metrics(registers=45)),
    )
    found = compare(load_folder(tmp_path / "a"), load_folder(tmp_path / "b"))
    assert [c.case for c in found.changed] == ["t.py::" + x for x in ("spills", "slower", "regs", "slow", "fast")]
    assert found.same == 1


def test_what_is_said_of_a_change():
    after = timed(
        times=(13_640.0,), config=Config({"BLOCK": 512}), driver="590.1", figures=metrics(registers=64, spilled=2)
    )
    change = changes(timed(times=(12_400.0,)), after)
    assert change.change == pytest.approx(0.1)
    assert (change.before_ns, change.after_ns) == (12_400.0, 13_640.0)
    assert change.configs == ("softmax_kernel: BLOCK 1024 -> 512, num_warps 8 -> 4",)
    assert change.environment == ("driver: 580.65 -> 590.1",)
    assert Figure("softmax_kernel", "registers", 32, 64) in change.figures
    assert str(Figure("k", "occupancy", 1.0, 0.5)) == "k: occupancy 1 -> 0.5"
    assert {f.name for f in change.figures} == {"registers", "spilled bytes"}


def test_times_of_two_timers_are_not_compared():
    change = changes(timed(timer="events"), timed(timer="graph", times=(99_000.0,)))
    assert change.change is None
    assert "not comparable" in change.notes[0]


def noisy(pending: PendingBaseline, floor: float) -> PendingBaseline:
    found = Calibration(processes=4, blocks=12, floor=floor, bias=0.001, median_sd=0.002)
    return PendingBaseline(msgspec.structs.replace(pending.baseline, calibration=found), pending.artifacts, True)


@pytest.mark.parametrize("form", [(), ("--markdown",), ("--json",)])
def test_a_case_that_is_too_noisy_says_so(kerntune, tmp_path, form):
    folder(tmp_path / "a", timed())
    folder(tmp_path / "b", noisy(timed(times=(13_000.0,)), 0.031))
    said = " ".join(kerntune("diff", "a", "b", *form).out.split())
    assert "can't be gated at 2.0 %: changes under 3.1 % can't be told" in said
    folder(tmp_path / "b", noisy(timed(times=(13_000.0,)), 0.019))
    assert "gated" not in kerntune("diff", "a", "b", *form).out


def test_an_added_launch_is_named():
    before, after = static().baseline, static().baseline
    extra = msgspec.structs.replace(after.launches[0], kernel="finish_kernel")
    after = msgspec.structs.replace(after, launches=(*after.launches, extra))
    assert change_of(key_of(before), before, after).configs == ("launch added: finish_kernel",)
    assert change_of(key_of(before), after, before).configs == ("launch removed: finish_kernel",)


def test_a_case_of_another_shape_is_another_case(tmp_path):
    folder(tmp_path / "a", timed(n=4096))
    folder(tmp_path / "b", timed(n=8192))
    found = compare(load_folder(tmp_path / "a"), load_folder(tmp_path / "b"))
    assert found.changed == ()
    assert found.added == found.removed == (f"{SOFTMAX} (cuda:90, NVIDIA H200)",)


def test_forms(kerntune, tmp_path):
    folder(tmp_path / "a", timed("t.py::test[a|b]"), timed("t.py::old"))
    folder(tmp_path / "b", timed("t.py::test[a|b]", times=(13_640.0,), driver="590"), static("t.py::new"))
    plain = kerntune("diff", "a", "b")
    assert plain.code == 0
    assert "+10.0 %" in plain.out
    assert "Added:\n  t.py::new (cuda:90, static, Triton 3.9)" in plain.out
    assert "1 changed, 1 added, 1 removed, 0 the same" in plain.out
    assert "each from its own run" in plain.out
    markdown = kerntune("diff", "a", "b", "--markdown").out
    assert "a|b" not in markdown
    assert "| t.py::test[a|b]" in unescape(markdown)
    assert "Removed:\n\n- `t.py::old (cuda:90, NVIDIA H200)`" in markdown
    data = json.loads(kerntune("diff", "a", "b", "--json").out)
    assert data["schema"] == "kerntune.diff/1"
    assert data["changed"][0]["change"] == pytest.approx(0.1)
    assert kerntune("diff", "a", "b", "--exit-code").code == 1


def test_several_lines_stay_in_their_markdown_row(kerntune, tmp_path):
    folder(tmp_path / "a", timed())
    folder(tmp_path / "b", timed(driver="590", figures=metrics(registers=33)))
    rows = [x for x in kerntune("diff", "a", "b", "--markdown").out.splitlines() if x.startswith("|")]
    assert len(rows) == 3
    assert "registers 32 -> 33<br>driver: 580.65 -> 590" in unescape(rows[2])


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_file_that_can_not_be_read_is_a_finding(kerntune, tmp_path, form):
    folder(tmp_path / "a", timed())
    folder(tmp_path / "b", timed())
    damaged = next((tmp_path / "b").rglob("*.json"))
    damaged.write_text("{")
    ran = kerntune("diff", tmp_path / "a", tmp_path / "b", *form)
    assert ran.code == 1
    assert str(damaged) in ran.err
    assert "0 changed, 0 added, 0 removed" in ran.out or json.loads(ran.out)["removed"] == []
    assert ran.clean


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """Two commits of ``project/baselines``; the current folder is elsewhere than the repository's root."""
    for key in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(key, "someone@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    project = tmp_path / "project"
    project.mkdir()
    git(tmp_path, "init", "-q", "-b", "main")
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / ".gitattributes").write_text("baselines export-ignore\n")
    folder(project / "baselines", timed(times=(1000.0,)), static("t.py::old"))
    (project / "baselines" / "cuda-90" / "notes.json").write_text("not a baseline")
    commit(tmp_path, "first")
    folder(project / "baselines", timed(times=(1500.0,)))
    next((project / "baselines").rglob("old*.json")).unlink()
    commit(tmp_path, "second")
    folder(project / "baselines", timed(times=(3000.0,)))
    return project


def git(where: Path, *args: str) -> None:
    subprocess.run(["git", "-C", str(where), *args], check=True, capture_output=True)


def commit(where: Path, name: str) -> None:
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", name)
    git(where, "tag", name)


def test_two_revisions(kerntune, repository, monkeypatch):
    monkeypatch.chdir(repository)
    data = json.loads(kerntune("diff", "first", "second", "--json").out)
    assert [c["change"] for c in data["changed"]] == [0.5]
    assert data["removed"] == ["t.py::old (cuda:90, static, Triton 3.9)"]
    assert data["problems"] == []


def test_a_revision_and_the_folder_as_it_is_now(kerntune, repository, monkeypatch):
    monkeypatch.chdir(repository)
    data = json.loads(kerntune("diff", "HEAD", "--json").out)
    assert [c["change"] for c in data["changed"]] == [1.0]
    backwards = json.loads(kerntune("diff", "baselines", "HEAD~1", "--json").out)
    assert [c["after_ns"] for c in backwards["changed"]] == [1000.0]


def test_a_revision_before_the_folder_was_there(kerntune, repository, monkeypatch):
    monkeypatch.chdir(repository)
    data = json.loads(kerntune("diff", "HEAD", "HEAD", "--baselines", "later", "--json").out)
    assert (data["same"], data["changed"], data["added"]) == (0, [], [])


def test_a_damaged_file_of_a_revision_is_named(kerntune, repository, monkeypatch):
    monkeypatch.chdir(repository)
    path = next((repository / "baselines").rglob("test_softmax*.json"))
    path.write_text("{")
    commit(repository, "damaged")
    kerntune("diff", "damaged", "HEAD~1").complains(
        1, f"damaged:project/baselines/{path.relative_to(repository / 'baselines')}"
    )


@pytest.mark.parametrize("name", ["nowhere", "HEAD:project", "a b", "main..main", "-x"])
def test_neither_a_folder_nor_a_revision(kerntune, repository, monkeypatch, name):
    monkeypatch.chdir(repository)
    ran = kerntune("diff", "--", name, "HEAD")
    assert ran.code == 2
    assert f"{name}: is no folder, and no git revision in" in ran.err
    assert ran.clean


@pytest.mark.parametrize(
    ("name", "says"), [("GIT_CEILING_DIRECTORIES", "there is no git repository"), ("PATH", "git is not installed")]
)
def test_without_git_or_a_repository(kerntune, tmp_path, monkeypatch, name, says):
    monkeypatch.setenv(name, str(tmp_path.parent))
    kerntune("diff", "main", "HEAD").complains(2, says)


def test_an_entry_knows_its_place(tmp_path):
    store = folder(tmp_path, timed())
    [entry] = load_folder(tmp_path)
    assert isinstance(entry, Entry)
    assert (store.folder / entry.path).is_file()


def test_what_compiling_took_is_no_difference(kerntune, tmp_path):
    for name, seconds in (("a", 0.5), ("b", 0.7)):
        made = static()
        launches = tuple(msgspec.structs.replace(x, compile_seconds=seconds) for x in made.baseline.launches)
        baseline = msgspec.structs.replace(made.baseline, launches=launches)
        folder(tmp_path / name, PendingBaseline(baseline, made.artifacts, True))
    ran = kerntune("diff", tmp_path / "a", tmp_path / "b", "--exit-code")
    assert (ran.code, ran.err) == (0, "")


def test_columns_that_no_change_fills_are_left_out(kerntune, tmp_path):
    folder(tmp_path / "a", static())
    folder(tmp_path / "b", static(figures=metrics(registers=45)))
    for form in ((), ("--markdown",)):
        said = kerntune("diff", "a", "b", *form).out
        head = [word.strip() for word in said.splitlines()[0].replace("|", "  ").split("  ") if word.strip()]
        assert head == ["case", "device", "what changed"]
        assert "registers 32 -> 45" in unescape(said)
    folder(tmp_path / "a", timed())
    folder(tmp_path / "b", timed(times=(13_640.0,)))
    assert "before" in kerntune("diff", "a", "b").out.splitlines()[0], "one of them has times"


def test_other_code_with_the_same_figures_is_said(kerntune, tmp_path):
    folder(tmp_path / "a", static())
    pending = static()
    (launch,) = pending.baseline.launches
    other = msgspec.structs.replace(launch, source="6" * 64, code="d" * 64)
    after = msgspec.structs.replace(pending.baseline, launches=(other,))
    folder(tmp_path / "b", PendingBaseline(after, pending.artifacts, write=True))
    said = " ".join(kerntune("diff", "a", "b").out.split())
    assert "softmax_kernel: because of code (its source changed)" in said


def test_a_changed_number_of_instructions_is_said():
    after = msgspec.structs.replace(metrics(), instructions={"fma": 8, "total": 20})
    before = msgspec.structs.replace(metrics(), instructions={"fma": 8, "total": 10})
    assert changes(static(figures=before), static(figures=after)).figures == (
        Figure("softmax_kernel", "instructions", 10, 20),
    )


def test_the_cases_that_are_compared_can_be_selected(kerntune, tmp_path):
    folder(tmp_path / "a", timed("t.py::test_one"), timed("t.py::test_two"))
    folder(tmp_path / "b", timed("t.py::test_three"))
    data = json.loads(kerntune("diff", tmp_path / "a", tmp_path / "b", "--case", "one", "--json").out)
    assert [case.split()[0] for case in data["removed"]] == ["t.py::test_one"]
    assert data["added"] == []
