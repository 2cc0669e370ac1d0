"""``KERNTUNE_LOG``: what became of each config, a line of JSON each."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from fake_runs import block, captured, configs, scale, scale_kernel, script, tuned

import kerntune
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning import tuning_result

BLOCKS = (64, 128, 256, 512, 1024)


@pytest.fixture
def log(this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rules = (block(64, 1010.0), block(128, 1000.0), block(256, 9000.0), block(512, 100.0, fails="too large"))
    script(this_gpu, *rules, block(1024, 1400.0))
    monkeypatch.setenv("KERNTUNE_LOG", str(tmp_path / "log.jsonl"))
    return tmp_path / "log.jsonl"


def lines(log: Path, event: str = "") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in found if event in ("", line["event"])]


def block_of(line: dict[str, Any]) -> int:
    found: int = line["config"]["kwargs"]["BLOCK"]
    return found


def run(*blocks: int) -> Any:
    kernel = kerntune.autotune(configs(*blocks), key=["n"])(scale_kernel)
    scale(kernel)
    return kernel


def test_every_config_has_its_end(log: Path) -> None:
    run(*BLOCKS)
    ends = {block_of(x): x["event"] for x in lines(log) if x["event"] in ("raced", "dropped", "failed")}
    assert ends == {64: "raced", 128: "raced", 256: "dropped", 512: "failed", 1024: "dropped"}
    assert {block_of(x) for x in lines(log, "compiled")} == set(BLOCKS)
    assert {block_of(x) for x in lines(log, "first launch")} == set(BLOCKS) - {512}
    (won,) = lines(log, "won")
    assert block_of(won) == 128
    assert won["time_ns"] == pytest.approx(1000.0, rel=0.05)


def test_it_says_why_and_by_how_much(log: Path) -> None:
    run(*BLOCKS)
    by = {block_of(x): x for x in lines(log) if x["event"] in ("raced", "dropped", "failed")}
    assert "too large" in by[512]["why"]
    assert by[256]["why"] == "its estimate is above 1.5 of the best"
    assert by[256]["ratio"] == pytest.approx(9.0, rel=0.3)
    assert by[1024]["why"] == "slower in first rounds"
    assert by[64]["ratio"] == pytest.approx(1.01, rel=0.005)
    assert by[64]["rounds"] > by[1024]["rounds"] > by[256]["rounds"] == 0


def test_lines_name_call_and_time(log: Path) -> None:
    run(64, 128)
    begin, *rest = lines(log)
    assert (begin["event"], begin["configs"], begin["device"]) == ("begin", 2, "Fake GPU")
    assert "n=4096" in begin["arguments"]
    assert {x["call"] for x in rest} == {begin["call"]}
    assert {(x["schema"], x["kernel"]) for x in rest} == {("kerntune.log/1", "scale_kernel")}
    times = [x["time"] for x in [begin, *rest]]
    assert times == sorted(times)
    assert all(x.endswith("+00:00") for x in times)


def test_a_stored_winner_is_said(log: Path) -> None:
    run(64, 128)
    log.unlink()
    run(64, 128)
    (line,) = lines(log)
    assert (line["event"], block_of(line)) == ("stored winner", 128)


def test_what_is_left_out_unrun_has_its_reason(log: Path) -> None:
    kernel = kerntune.autotune(configs(64, 128, 256), key=["n"], static_prune="34%")(scale_kernel)
    scale(kernel)
    out = lines(log, "left out")
    assert {block_of(x) for x in out} == {c.kwargs["BLOCK"] for c in kernel.left_out}
    assert out
    assert all(x["why"] for x in out)


def test_nothing_is_written_or_asked_when_it_is_off(
    this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_result, "exact_arguments", None)
    monkeypatch.setattr(tuning_result, "_append", None)
    run(64, 128)


def test_a_file_that_cannot_be_written_costs_one_warning(
    this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNTUNE_LOG", str(tmp_path / "nowhere" / "log"))
    with pytest.warns(RuntimeWarning, match=r"KERNTUNE_LOG: .*nowhere/log can't be written") as seen:
        run(64, 128)
    assert len(seen) == 1


def append(path: str, who: int) -> None:
    for i in range(200):
        tuning_result._append(path, json.dumps({"who": who, "i": i, "text": "x" * 500}).encode() + b"\n")


@pytest.mark.slow
def test_lines_of_many_processes_do_not_mix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=append, args=(str(tmp_path / "log"), who)) for who in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(found) == 6 * 200
    assert all([x["i"] for x in found if x["who"] == who] == list(range(200)) for who in range(6))


def test_a_gate_logs_as_well(log: Path, this_gpu: FakeBackend) -> None:
    """The hash of a call is that of the same call elsewhere."""
    run(64, 128)
    capture = captured(this_gpu, lambda: scale(tuned(64, 128)))
    site = capture.launches[0].site
    assert site is not None
    assert tuning_result.call_hash(site) == lines(log)[0]["call"]
