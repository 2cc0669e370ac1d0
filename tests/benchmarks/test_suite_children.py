"""Fresh processes that are prepared together and tuned in turn, with a stand-in for what tunes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite import children
from benchmarks.suite.child import MARK
from benchmarks.suite.children import Child, in_turn

SCRIPT = f"""
import json, os, sys
job = json.loads(sys.argv[1])
def say(word, **values):
    print({MARK!r} + json.dumps(dict(values, word=word)), flush=True)
if job["how"] == "dies early":
    sys.exit("no GPU")
say("context")
sys.stdin.readline()
print("a kernel prints")
say("ready")
for more in job["lists"]:
    sys.stdin.readline()
    if job["how"] == "dies":
        sys.exit("an illegal address")
    with open(job["log"], "a") as log:
        log.write(job["name"])
    if job["how"] == "is silent":
        sys.stdin.readline()
    say("done", seconds=1.0, more=more, caches=[os.environ["TRITON_CACHE_DIR"], os.environ["KERNTUNE_CACHE_DIR"]])
sys.stdin.readline()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    file = tmp_path / "stand_in.py"
    file.write_text(SCRIPT)
    monkeypatch.setattr(Child.__init__, "__defaults__", (None, (str(file),)))
    return (str(file),)


def job(tmp_path: Path, name: str, how: str = "works", **more: Any) -> dict[str, Any]:
    return {"name": name, "how": how, "log": str(tmp_path / "log"), **more}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("together", [1, 2, 8])
def test_jobs_run_in_their_order_with_caches_of_their_own(tmp_path: Path, together: int) -> None:
    found = list(in_turn([job(tmp_path, n) for n in "abcd"], together))
    assert [one["name"] for one, _ in found] == list("abcd")
    assert (tmp_path / "log").read_text() == "abcd"
    caches = [folder for _, result in found for folder in result["caches"]]
    assert len(set(caches)) == 8
    assert not any(os.path.exists(os.path.dirname(folder)) for folder in caches)


@pytest.mark.usefixtures("program")
def test_a_process_that_dies_costs_its_own_result(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", "dies early"), job(tmp_path, "b", "dies"), job(tmp_path, "c")]
    (_, early), (_, late), (_, well) = in_turn(jobs, 3)
    assert "no GPU" in early["error"]
    assert "an illegal address" in late["error"]
    assert well["seconds"] == 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_a_process_that_is_silent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "TUNE_SECONDS", 1.0)
    ((_, found),) = in_turn([job(tmp_path, "a", "is silent")], 1)
    assert "no answer in 1 s" in found["error"]


@pytest.mark.usefixtures("program")
def test_several_steps_are_taken_in_one_process(tmp_path: Path) -> None:
    with children.child(job(tmp_path, "a", lists=[False, True]), str(tmp_path)) as one:
        assert [one.tune()["more"], one.tune()["more"]] == [False, True]
    assert (tmp_path / "log").exists(), "caches that are given stay"


@pytest.mark.usefixtures("program")
def test_none_is_tuned_after_the_end(tmp_path: Path) -> None:
    moments = in_turn([job(tmp_path, n) for n in "ab"], 2, end=float("-inf"))
    assert list(moments) == []
    assert not (tmp_path / "log").exists()
