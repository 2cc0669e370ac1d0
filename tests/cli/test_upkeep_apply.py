"""``kerntune baselines apply``."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path

import msgspec
import pytest

from cli.made import CUDA90, H200, SOFTMAX, folder, static, timed, tree
from kerntune.base.case_result import CaseResult
from kerntune.base.policy import Outcome, Verdict
from kerntune.gate.bundle import encoded_bundles
from kerntune.gate.call import PendingBaseline
from kerntune.gate.report import RunReport, write_run

ADD = "t.py::test_add"


def result(pending: PendingBaseline, verdict: Verdict) -> CaseResult:
    baseline = pending.baseline
    return CaseResult(
        baseline.case, baseline.fingerprint, verdict, Outcome.PASS, f"{verdict.value}", str(CUDA90), H200.name
    )


def run_of(path: Path, *cases: tuple[PendingBaseline, Verdict]) -> Path:
    """A run's JSON as the plugin writes it."""
    results = tuple(result(p, v) for p, v in cases)
    write_run(path, RunReport(results, baselines=encoded_bundles(p for p, _ in cases)))
    return path


def damage(path: Path, case: str) -> None:
    """Another content under the checksum of one of a case's artifacts."""
    data = json.loads(path.read_text())
    artifacts = data["baselines"][f"{case} (cuda:90)"]["artifacts"]
    artifacts[min(artifacts)] = base64.b64encode(lzma.compress(b"something else")).decode()
    path.write_text(json.dumps(data))


def test_a_folder_as_if_recorded_here(kerntune, tmp_path):
    there = [timed(), timed(ADD, binary=b"add"), static(call="compiled")]
    run_of(tmp_path / "run.json", *((p, Verdict.NEW) for p in there))
    ran = kerntune("baselines", "apply", "run.json")
    assert ran.code == 0
    assert tree(tmp_path / "baselines") == tree(folder(tmp_path / "recorded", *there).folder)
    assert f"{SOFTMAX} (NVIDIA H200, cuda:90): 12.4 µs, NEW -> {tmp_path}" in ran.out
    assert "3 baselines written" in ran.out
    assert kerntune("baselines", "verify").code == 0


def test_other_cases_stay_as_they_are(kerntune, tmp_path):
    folder(tmp_path / "baselines", timed(ADD), static(ADD))
    before = tree(tmp_path / "baselines")
    run_of(tmp_path / "run.json", (timed(), Verdict.NEW))
    assert kerntune("baselines", "apply", "run.json").code == 0
    after = tree(tmp_path / "baselines")
    assert {k: after[k] for k in before} == before
    assert len(after) == len(before) + 1  # the two cases share all artifacts


@pytest.mark.parametrize(
    ("only", "written"),
    [("all", ["known", "faster", "new", "slower"]), ("new", ["new"]), ("improved", ["faster"])],
)
def test_only_some(kerntune, tmp_path, only, written):
    old = {name: timed(f"t.py::{name}", times=(500.0,)) for name in ("known", "faster", "slower")}
    new = {name: timed(f"t.py::{name}", times=(400.0,)) for name in ("known", "faster", "new", "slower", "incomplete")}
    store = folder(tmp_path / "baselines", *old.values())
    verdicts = dict.fromkeys(new, Verdict.PASS) | {
        "faster": Verdict.IMPROVED,
        "new": Verdict.NEW,
        "slower": Verdict.REGRESSED,
        "incomplete": Verdict.INCOMPLETE,
    }
    run_of(tmp_path / "run.json", *((new[n], verdicts[n]) for n in new))
    ran = kerntune("baselines", "apply", "run.json", "--only", only)
    assert ran.code == 0
    got = [b for p in new.values() if (b := store.time(H200, p.baseline.case, p.baseline.fingerprint))]
    fresh = {b.case.nodeid.removeprefix("t.py::") for b in got if b.sample.times_ns == (400.0,)}
    assert fresh == set(written)
    assert f"{len(new) - len(written)} left alone" in ran.out


def test_only_the_cases_that_match(kerntune, tmp_path):
    run_of(tmp_path / "run.json", (timed(), Verdict.NEW), (timed(ADD), Verdict.NEW))
    assert "1 baseline written" in kerntune("baselines", "apply", "run.json", "--case", "softmax[4096]").out
    assert not list(tmp_path.rglob("test_add*"))
    kerntune("baselines", "apply", "run.json", "--case", "nothing").complains(2, "no case in it matches 'nothing'")


def test_one_bad_checksum_and_nothing_is_written(kerntune, tmp_path):
    folder(tmp_path / "baselines", timed(times=(1.0,)))
    before = tree(tmp_path / "baselines")
    run_of(tmp_path / "run.json", (timed(), Verdict.NEW), (timed(ADD, binary=b"add"), Verdict.NEW))
    damage(tmp_path / "run.json", ADD)
    kerntune("baselines", "apply", "run.json").complains(1, f"run.json: {ADD} (cuda:90): artifact", "another checksum")
    assert tree(tmp_path / "baselines") == before
    assert kerntune("baselines", "apply", "run.json", "--case", "softmax").code == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not readable as JSON"),
        (b"{", "not readable as JSON"),
        (b"[]", "not readable as JSON"),
        (b"{}", "has schema 'none', this kerntune reads 'kerntune.run/1'. It is a file of another kind"),
        (b'{"schema": "kerntune.run/0"}', "has schema 'kerntune.run/0'"),
        (b'{"schema": "kerntune.run/1", "results": [], "x": 1}', "unknown field"),
        (b'{"schema": "kerntune.run/1", "results": [], "baselines": {"a": 5}}', "run.json: a:"),
        (msgspec.json.encode(RunReport(())), "carries no baselines"),
    ],
)
def test_a_file_that_is_no_run(kerntune, tmp_path, content, says):
    (tmp_path / "run.json").write_bytes(content)
    ran = kerntune("baselines", "apply", "run.json")
    assert ran.code == (1 if says in ("run.json: a:", "carries no baselines") else 2)
    assert ran.err.startswith("kerntune: error: run.json")
    assert says in ran.err
    assert ran.clean
    assert not (tmp_path / "baselines").exists()


def test_a_folder_instead_of_a_run(kerntune, tmp_path):
    (tmp_path / "run.json").mkdir()
    kerntune("baselines", "apply", "run.json").complains(2, "run.json: can't be read: it is a folder")


@pytest.mark.parametrize("blocked", ["baselines", "baselines/cuda-90", "baselines/cuda-90/nvidia-h200/time"])
def test_a_target_that_can_not_be_written(kerntune, tmp_path, blocked):
    run_of(tmp_path / "run.json", (timed(), Verdict.NEW))
    (tmp_path / blocked).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / blocked).write_text("a file where the folder should be")
    kerntune("baselines", "apply", "run.json").complains(1, "can't be written", str(tmp_path / "baselines"))
    assert not list(tmp_path.rglob("test_softmax*.json"))
