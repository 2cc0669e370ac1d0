"""Files that earlier versions wrote: each is read, and written again with the same bytes.

``tests/data/formats`` was written by two runs on the scripted GPU and one without a GPU (``kerntune.time/1``,
``kerntune.static/1``, the cache, its exports, run JSON with its bundles); ``run-reported.json`` by a third, with what
reports show. Nothing there is ever edited: a change that
breaks one of these tests would break users' files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from samples import apply_bundle

from kerntune.base.codec import from_json, to_json
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import TIME_SCHEMA, StaticBaseline, TimeBaseline
from kerntune.gate.bundle import decode_bundle
from kerntune.gate.replay import VERSION, is_current, version_of
from kerntune.gate.report import read_run, write_run
from kerntune.tuning.cache import TrialCache, WinnerCache, export_cache, export_devices, import_cache

FORMATS = Path(__file__).parent / "data" / "formats"
RUNS = sorted(FORMATS.glob("run-*.json"))


def files(folder: Path) -> dict[str, bytes]:
    """All files under a folder by their path in it, but for locks."""
    found = (p for p in folder.rglob("*") if p.is_file() and p.name != ".lock")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def test_the_corpus_is_whole() -> None:
    """A pattern that matches nothing would make every test here pass."""
    counts = {folder.name: len(files(folder)) for folder in FORMATS.iterdir() if folder.is_dir()}
    assert counts == {"anchors": 9, "baselines": 13, "cache": 9, "calibrations": 3, "shipped": 1}
    assert [p.name for p in RUNS] == ["run-new.json", "run-regressed.json", "run-reported.json", "run-static.json"]


@pytest.mark.parametrize("name", ["baselines", "anchors"])
def test_baselines_are_written_again_alike(name: str, tmp_path: Path) -> None:
    store, other = BaselineStore(FORMATS / name), BaselineStore(tmp_path)
    for path, found in store.summaries():
        assert isinstance(found, (TimeBaseline, StaticBaseline)), path
        other.put(found, store.artifacts(found.target))
    assert files(tmp_path) == files(FORMATS / name)


@pytest.mark.parametrize(("name", "version", "blocks"), [("1", 1, 12), ("2-unversioned", 2, 24), ("2", 2, 24)])
def test_calibrations_of_every_rule_are_known_and_written_again_alike(name: str, version: int, blocks: int) -> None:
    """``1`` was recorded on an H200 by the rule with 12 blocks; versions are kept since the third file."""
    data = (FORMATS / "calibrations" / f"{name}.json").read_bytes()
    found = from_json(data, TimeBaseline, TIME_SCHEMA, where=name)
    assert found.calibration is not None
    assert (version_of(found.calibration), found.calibration.blocks) == (version, blocks)
    assert is_current(found.calibration) is (version == VERSION)
    assert 0 < found.calibration.median_sd < 0.01, "what is called spread on disk"
    assert 0 < found.calibration.state_range < 0.01, "what is called drift on disk"
    assert to_json(found) == data


def test_cache_is_written_again_alike(tmp_path: Path) -> None:
    shutil.copytree(FORMATS / "cache", tmp_path / "cache")
    winners, trials = WinnerCache(tmp_path / "cache"), TrialCache(tmp_path / "cache")
    again, tried = WinnerCache(tmp_path / "again"), TrialCache(tmp_path / "again")
    for winner in winners.entries():
        again.add(winner)
    for trial in trials.entries():
        tried.add(trial)
    assert not winners.damaged
    assert not trials.damaged
    assert files(tmp_path / "again") == files(FORMATS / "cache")


def test_exports_are_written_again_alike(tmp_path: Path) -> None:
    import_cache(tmp_path / "cache", FORMATS / "exported.json")
    export_cache(tmp_path / "cache", tmp_path / "exported.json")
    assert (tmp_path / "exported.json").read_bytes() == (FORMATS / "exported.json").read_bytes()
    export_devices(tmp_path / "cache", tmp_path / "shipped")
    assert files(tmp_path / "shipped") == files(FORMATS / "shipped")


@pytest.mark.parametrize("path", RUNS, ids=lambda p: p.stem)
def test_runs_are_written_again_alike(path: Path, tmp_path: Path) -> None:
    run = read_run(path)
    bundles = {case: msgspec.Raw(msgspec.json.encode(decode_bundle(b, case))) for case, b in run.baselines.items()}
    write_run(tmp_path / "again.json", msgspec.structs.replace(run, baselines=bundles))
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["run-new.json", "run-static.json"])
def test_bundles_of_runs_make_the_same_baselines(name: str, tmp_path: Path) -> None:
    """What ``kerntune baselines apply`` writes is what the run itself has written."""
    store = BaselineStore(tmp_path)
    for case, carried in read_run(FORMATS / name).baselines.items():
        apply_bundle(decode_bundle(carried, case), store)
    written, kept = files(tmp_path), files(FORMATS / "baselines")
    assert written
    assert written == {place: kept[place] for place in written}


def test_a_run_keeps_what_reports_show() -> None:
    (result,) = read_run(FORMATS / "run-reported.json").results
    assert [(c.kernel, c.stage) for c in result.code] == [("second_kernel", "ptx"), ("second_kernel", "sass")]
    assert result.code[0].diff.startswith("@@ -")
    assert result.replayed is not None
    assert len(result.replayed.baseline_ns) == len(result.replayed.current_ns) >= 2
    assert len(result.baseline_times_ns) >= 10
    (launch,) = result.launches
    assert launch.before is not None
    assert launch.before.registers == 8
    assert (launch.occupancy, launch.limiter) == (1.0, "threads")
