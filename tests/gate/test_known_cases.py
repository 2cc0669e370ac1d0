"""What folders have of a case, by baselines made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli import made

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.policy import Outcome, Update, Verdict
from kerntune.errors import BaselineError
from kerntune.gate import stores as module
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.baselines import StaticBaseline, TimeBaseline
from kerntune.gate.call import PendingBaseline
from kerntune.gate.stores import (
    Damage,
    KnownCase,
    ReferenceStore,
    Stores,
    known_case,
    known_figures,
    readable,
    stored_configs,
)

CASE = made.timed().baseline.case
FINGERPRINT = made.timed().baseline.fingerprint


@pytest.fixture(autouse=True)
def series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.versions, "triton_series", lambda: "3.9")


def folder(path: Path, *pending: PendingBaseline) -> BaselineStore:
    return made.folder(path, *pending)


def recorded(pending: PendingBaseline, when: str, launches: int = 1) -> Any:
    baseline = msgspec.structs.replace(pending.baseline, recorded=when)
    if isinstance(baseline, StaticBaseline):
        return msgspec.structs.replace(baseline, launches=baseline.launches * launches)
    recording = msgspec.structs.replace(baseline.recording, launches=baseline.recording.launches * launches)
    return msgspec.structs.replace(baseline, recording=recording)


def damaged(store: BaselineStore) -> Path:
    (path,) = [*store.time_files(), *store.static_files()]
    path.write_text("{")
    return path


# reading


@pytest.mark.parametrize("update", list(Update))
def test_a_damaged_baseline_counts_as_none_only_where_it_is_replaced(tmp_path: Path, update: Update) -> None:
    store = folder(tmp_path / "a", made.static())
    path = damaged(store)
    if update is Update.ALL:
        assert readable(lambda: store.read(path), update) is None
    else:
        with pytest.raises(BaselineError, match=str(path)):
            readable(lambda: store.read(path), update)
    assert readable(lambda: "it", update) == "it"


def known(store: BaselineStore, anchor: BaselineStore | None = None, update: Update = Update.NONE) -> KnownCase:
    return known_case(Stores(store, store, anchor), made.CUDA90, CASE, FINGERPRINT, update)


def test_a_folder_without_the_case_has_nothing(tmp_path: Path) -> None:
    found = known(folder(tmp_path / "a"), folder(tmp_path / "b"))
    assert found == KnownCase(None, None)
    assert (found.times, found.anchor, found.launches, found.most) == ((), None, (), (0, ""))


def test_a_case_is_compared_with_its_own_baseline(tmp_path: Path) -> None:
    found = known(folder(tmp_path / "a", made.static(), made.static(triton="3.8"), made.timed()))
    assert found.own is not None
    assert found.reference is found.own
    assert found.own.triton == "3.9"
    assert found.launches == found.own.launches != ()
    assert [t.case for t in found.times] == [CASE]


def test_else_with_that_of_another_series(tmp_path: Path) -> None:
    found = known(folder(tmp_path / "a", made.static(triton="3.8")))
    assert found.own is None
    assert found.reference is not None
    assert found.reference.triton == "3.8"


@pytest.mark.parametrize("triton", ["3.9", "3.8", None])
def test_an_anchor_of_another_series_will_do(tmp_path: Path, triton: str | None) -> None:
    anchor = folder(tmp_path / "b", *([made.static(triton=triton)] if triton else []))
    found = known(folder(tmp_path / "a", made.static()), anchor).anchor
    assert (found.triton if found else None) == triton


def test_times_of_other_cases_and_targets_dont_count(tmp_path: Path) -> None:
    other = msgspec.structs.replace(made.timed().baseline, device=msgspec.structs.replace(made.H200, name="NVIDIA L4"))
    store = folder(
        tmp_path / "a", made.timed("t.py::other"), made.timed(n=8192), made.timed(),
        PendingBaseline(other, made.timed().artifacts, write=True),
    )  # fmt: skip
    assert sorted(t.device.name for t in known(store).times) == ["NVIDIA H200", "NVIDIA L4"]
    target = msgspec.structs.replace(made.CUDA90, arch="80")
    assert known_case(Stores(store, store), target, CASE, FINGERPRINT, Update.NONE).times == ()


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"


@pytest.mark.parametrize(
    ("own", "times", "most"),
    [
        (None, [(EARLY, 2)], (2, "the baseline of NVIDIA H200")),
        ((EARLY, 1), [(LATE, 3)], (3, "the baseline of NVIDIA H200")),
        ((LATE, 1), [(EARLY, 3)], (1, "the static baseline under Triton 3.9")),
        ((EARLY, 1), [(EARLY, 3)], (1, "the static baseline under Triton 3.9")),
        ((EARLY, 4), [(LATE, 3)], (4, "the static baseline under Triton 3.9")),
    ],
    ids=["times alone", "a later time", "an earlier time", "at once", "fewer"],
)
def test_the_most_launches_of_baselines_that_are_no_older(own: Any, times: list[Any], most: Any) -> None:
    mine = recorded(made.static(), *own) if own else None
    found = KnownCase(mine, mine, tuple(recorded(made.timed(), *t) for t in times))
    assert found.most == most


def test_a_reference_of_another_series_counts_whatever_its_age() -> None:
    found = KnownCase(None, recorded(made.static(triton="3.8"), EARLY, 2), (recorded(made.timed(), LATE, 1),))
    assert found.most == (2, "the static baseline under Triton 3.8")


def test_figures_are_known_by_code_unless_all_is_recorded_anew() -> None:
    launches = recorded(made.static(), EARLY).launches
    assert known_figures(launches, Update.NEW) == {"c" * 64: launches[0].metrics}
    assert known_figures(launches, Update.ALL) == {}


# configs


def test_winners_on_devices_come_before_static_configs_each_once(tmp_path: Path) -> None:
    timed, static = Config({"BLOCK": 1024}), Config({"BLOCK": 512})
    store = folder(tmp_path / "a", made.timed(config=timed), made.static(config=static))
    found = stored_configs(store, made.CUDA90, CASE, FINGERPRINT)
    assert found == {"softmax_kernel": [timed, static]}
    both = folder(tmp_path / "b", made.timed(config=timed), made.static(config=timed))
    assert stored_configs(both, made.CUDA90, CASE, FINGERPRINT) == {"softmax_kernel": [timed]}
    assert stored_configs(store, made.CUDA90, CASE, None) == {}
    without = folder(tmp_path / "c", made.timed(config=None), made.static())
    assert stored_configs(without, made.CUDA90, CASE, FINGERPRINT) == {}


def test_configs_of_what_is_damaged_are_an_error_unless_it_is_replaced(tmp_path: Path) -> None:
    store = folder(tmp_path / "a", made.static(config=Config({"BLOCK": 512})))
    damaged(store)
    with pytest.raises(BaselineError):
        stored_configs(store, made.CUDA90, CASE, FINGERPRINT)
    assert stored_configs(store, made.CUDA90, CASE, FINGERPRINT, Update.ALL) == {}


# another revision's folder


def time_of(store: BaselineStore) -> TimeBaseline | None:
    return store.time(made.H200, CASE, FINGERPRINT)


def test_a_case_that_a_revision_has_is_held_against_that(tmp_path: Path) -> None:
    there = folder(tmp_path / "a", made.timed(times=(1.0,)), made.static())
    store = ReferenceStore(there.folder, "main")
    assert (found := time_of(store)) is not None
    assert found.sample.times_ns == (1.0,)
    assert store.folder == there.folder


def test_nothing_of_the_working_tree_stands_for_a_case_that_it_lacks(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", made.timed(), made.static())
    store = ReferenceStore(folder(tmp_path / "there").folder, "main")
    assert time_of(store) is None
    assert store.static(made.CUDA90, "3.9", CASE, FINGERPRINT) is None
    assert store.static_elsewhere(made.CUDA90, "3.8", CASE, FINGERPRINT) is None
    assert store.known_arguments(made.CUDA90, CASE) == set()
    sha = made.timed().baseline.recording.binaries[0].sha256  # type: ignore[union-attr]
    assert sha in own.artifacts(made.CUDA90)
    assert sha not in store.artifacts(made.CUDA90)


def test_such_a_case_is_new_and_warns_where_the_change_brings_its_baseline(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", made.timed(), made.static())
    stores = Stores(own, ReferenceStore(tmp_path / "there", "main"))
    brought = stores.unreviewed(Verdict.NEW, own.time_path(made.H200, CASE, FINGERPRINT))
    assert brought.said == "not in main; the baseline that this tree has of it decides nothing"
    assert [brought.outcome(x) for x in Outcome] == [Outcome.PASS, Outcome.WARN, Outcome.WARN]
    assert not brought.writes(True, Update.NONE)
    assert brought.writes(True, Update.ALL)
    lacking = stores.unreviewed(Verdict.NEW, own.time_path(made.H200, CaseId("t.py::new", "0"), FINGERPRINT))
    assert lacking.said == "not in main"
    assert [lacking.outcome(x) for x in Outcome] == list(Outcome)
    assert lacking.writes(True, Update.NONE)


def test_of_a_case_that_it_has_nothing_is_said(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", made.timed(), made.static())
    path = own.time_path(made.H200, CASE, FINGERPRINT)
    for stores, verdict in (
        (Stores(own, ReferenceStore(tmp_path / "there", "main")), Verdict.PASS),
        (Stores(own, own), Verdict.NEW),
    ):
        found = stores.unreviewed(verdict, path)
        assert (found.said, found.outcome(Outcome.FAIL), found.writes(True, Update.NONE)) == ("", Outcome.FAIL, True)


# damage


def test_each_artifact_that_cant_be_had_has_a_sentence_and_sound_ones_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder(tmp_path / "a", made.static())
    artifacts = store.artifacts(made.CUDA90)
    (sound,) = artifacts
    missing, bad = made.sha(b"missing"), made.sha(b"bad")
    artifacts.put(bad, b"bad")
    (artifacts.folder / f"{bad}.xz").write_bytes(b"no xz")
    damage = Damage()
    found = list(damage.among(store, made.CUDA90, [sound, missing, bad, bad]))
    assert found[0] == (
        f"the folder lacks artifact {missing}, which the baseline names; restore it or record the case anew"
    )
    assert f"{bad}.xz" in found[1]
    assert len(found) == 2
    reads: list[str] = []
    read = module._problem
    monkeypatch.setattr(module, "_problem", lambda artifacts, sha: reads.append(sha) or read(artifacts, sha))
    assert len(list(damage.among(store, made.CUDA90, [sound, missing]))) == 1
    assert reads == [missing]
    (artifacts.folder / f"{sound}.xz").unlink()
    other = folder(tmp_path / "b")
    assert len(list(damage.among(other, made.CUDA90, [sound]))) == 1, "another folder's is another artifact"
