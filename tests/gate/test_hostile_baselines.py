"""Baselines of strangers: no number is believed, no name is a path, no link leads out of the folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.made import static, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import CASE, FINGERPRINT, H100, apply_bundle, artifacts_of, sha, static_baseline, time_baseline

from kerntune.base.case_result import CaseId
from kerntune.base.codec import to_json
from kerntune.base.recording import work_of
from kerntune.errors import BaselineError, StoreError
from kerntune.gate.baseline_files import ArtifactFolder, BaselineStore, artifact_bounds, artifact_names, case_file
from kerntune.gate.baselines import TimeBaseline, decode_static, decode_time
from kerntune.gate.bundle import bundle_of, decode_bundle
from kerntune.gate.report import read_run

Place = tuple[Any, ...]


def leaves(value: Any, place: Place = ()) -> list[Place]:
    """Where a JSON value has values of its own that hold no others."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, inner in items for leaf in leaves(inner, (*place, key))]
    return found or [place]


def changed(data: Any, place: Place, value: Any) -> Any:
    """A copy with another value in one place."""
    copy = json.loads(json.dumps(data))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return copy


TIME, STATIC = (json.loads(to_json(b)) for b in (time_baseline(), static_baseline()))
BUNDLE = json.loads(msgspec.json.encode(bundle_of(timed())))
HOSTILE = [-1, 0, 2**31, 2**63, 2**64, 10**4000, 1e308, -1e308, "", "../../../../etc/passwd", "/etc/passwd", "a\0b",
           "x" * 300, None, True, [], {}, [[]], {"kind": "stored", "sha256": "../x"}]  # fmt: skip


def used(found: TimeBaseline) -> None:
    """What a run does first with a baseline."""
    artifact_bounds(found)
    for sha256 in artifact_names(found.recording):
        assert sha256 not in ArtifactFolder(Path("nowhere"))
    for launch in found.recording.launches:
        work_of(found.recording, launch)
    found.recording.pruned()
    case_file(found.case, found.fingerprint)


WHERE = "folder/it.json"


@contextlib.contextmanager
def refused_by_name() -> Iterator[None]:
    """What is refused inside names the file."""
    try:
        yield
    except BaselineError as exc:
        if not str(exc).startswith(f"{WHERE}: "):
            raise


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(leaves(TIME)), st.sampled_from(HOSTILE))
def test_any_field_may_be_anything(place: Place, value: Any) -> None:
    with refused_by_name():
        used(decode_time(json.dumps(changed(TIME, place, value)).encode(), WHERE))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(leaves(STATIC)), st.sampled_from(HOSTILE))
def test_any_field_of_a_static_baseline_may_be_anything(place: Place, value: Any) -> None:
    with refused_by_name():
        artifact_bounds(decode_static(json.dumps(changed(STATIC, place, value)).encode(), WHERE))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(leaves(BUNDLE)), st.sampled_from(HOSTILE))
def test_any_field_of_a_bundle_may_be_anything(
    tmp_path_factory: pytest.TempPathFactory, place: Place, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("around") / "baselines"
    try:
        path = apply_bundle(decode_bundle(changed(BUNDLE, place, value), "run.json"), BaselineStore(folder))
    except BaselineError:
        assert not folder.exists()
    else:
        assert path.is_relative_to(folder)
    assert set(os.listdir(folder.parent)) <= {"baselines"}


def assert_refused(path: Path, content: Any, read: Callable[[Path], object], said: str) -> None:
    """Read with this content it is an error that names the file, which stays."""
    data = json.dumps(content).encode()
    path.write_bytes(data)
    with pytest.raises(BaselineError, match=said) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert path.read_bytes() == data, "left as it was found"


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("recording", "launches", 0, "binary"), 7, r"recording\.launches\[0\]\.binary is 7, and there are 1"),
        (("recording", "launches", 0, "binary"), -1, r"launches\[0\]\.binary is -1"),
        (("recording", "launches", 0, "params", 0, "view"), 9, r"launches\[0\]\.params\[0\]\.view is 9"),
        (("recording", "launches", 0, "grid", 0), 2**40, r"recording\.launches\[0\]\.grid\[0\]`"),
        (("recording", "binaries", 0, "sha256"), "../../x", r"recording\.binaries\[0\]\.sha256`"),
        (("recording", "binaries", 0, "num_warps"), 0, r">= 1 - at `\$\.recording\.binaries\[0\]\.num_warps`"),
        (("recording", "storages", 0, "nbytes"), 10**18, r"<= 17592186044416 .*storages\[0\]\.nbytes`"),
        (("recording", "storages", 0, "nbytes"), 10**300, r"<= 17592186044416 .*storages\[0\]\.nbytes`"),
        (("recording", "views", 0, "storage"), 5, r"views\[0\]\.storage is 5"),
        (("recording", "views", 0, "shape"), [], r"views\[0\]\.strides are 1, and there are 0 sizes"),
        (("sample", "times_ns", 0), -1.0, r">= 0\.001 - at `\$\.sample\.times_ns\[0\]`"),
        (("device", "target", "arch"), "../..", "device.target is 'cuda:../..'"),
        (
            ("device", "target"),
            {"backend": "hip", "arch": "gfx" + "9" * 300, "warp_size": 64},
            "device.target is 'hip:gf",
        ),
        (("device", "name"), "x" * 300, r"device\.name makes a folder's name of 300 characters"),
        (
            ("recording", "launches", 0, "grid"),
            "all",
            r"Expected `array`, got `str` - at `\$\.recording\.launches\[0\]",
        ),
    ],
)
def test_file_and_field_are_named(tmp_path: Path, place: Place, value: Any, said: str) -> None:
    store = BaselineStore(tmp_path)
    path = store.put(time_baseline(), artifacts_of())
    assert_refused(path, changed(TIME, place, value), store.read, said)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("triton",), "../../x", "triton is '../../x', which is no Triton series"),
        (("target", "arch"), "../..", "target is 'cuda:../..'"),
        (("launches", 0, "ttir_sha256"), "../x", r"`str` matching .* - at `\$\.launches\[0\]\.ttir_sha256`"),
        (("launches", 0, "metrics", "registers"), -1, r">= 0 - at `\$\.launches\[0\]\.metrics\.registers`"),
    ],
)
def test_file_and_field_of_a_static_baseline_are_named(tmp_path: Path, place: Place, value: Any, said: str) -> None:
    store = BaselineStore(tmp_path)
    path = store.put(static_baseline(), artifacts_of())
    assert_refused(path, changed(STATIC, place, value), store.read, said)


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "a\0b", "x" * 300, "A" * 64, ""])
def test_a_name_of_an_artifact_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.xz").write_bytes(b"theirs")
    artifacts = ArtifactFolder(tmp_path / "cuda-90" / "artifacts")
    assert name not in artifacts
    with pytest.raises(BaselineError, match="is no artifact's name"):
        artifacts[name]


# links


def linked(tmp_path: Path, what: str) -> tuple[BaselineStore, Path]:
    """A folder of one baseline with a link in it that leads out, and where that is."""
    store, outside = BaselineStore(tmp_path / "in" / "baselines"), tmp_path / "outside"
    path = store.put(time_baseline(), artifacts_of())
    place = {"file": path, "folder": path.parent, "artifacts": store.artifacts(H100.target).folder}[what]
    place.rename(outside)
    place.symlink_to(outside)
    return store, outside


def content(place: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in (place, *place.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("what", ["file", "folder", "artifacts"])
def test_a_link_out_of_the_folder_is_an_error(tmp_path: Path, what: str) -> None:
    store, outside = linked(tmp_path, what)
    before = content(outside)

    def read() -> None:
        found = store.time(H100, CASE, FINGERPRINT)
        assert found is not None
        store.artifacts(H100.target)[artifact_names(found.recording)[0]]

    def write() -> None:
        store.put(msgspec.structs.replace(time_baseline(), recorded="later"), artifacts_of())
        store.artifacts(H100.target).put(sha(b"more"), b"more")

    def sweep() -> None:
        store.time_path(H100, CASE, FINGERPRINT).unlink()
        store.sweep()

    for step in (read, write, sweep) if what == "artifacts" else (read, write):
        with pytest.raises(BaselineError, match="a link leads out of"):
            step()
    assert content(outside) == before


def test_a_link_within_the_folder_and_a_linked_folder_will_do(tmp_path: Path) -> None:
    BaselineStore(tmp_path / "real").put(time_baseline(), artifacts_of())
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    device = next((tmp_path / "real" / "cuda-90").glob("nvidia-*"))
    device.rename(device.with_name("elsewhere"))
    device.symlink_to("elsewhere")
    assert BaselineStore(tmp_path / "linked").time(H100, CASE, FINGERPRINT) == time_baseline()


# names


@pytest.mark.parametrize("file", ["a" * 300 + ".py", "ä" * 200 + ".py", "a" * 254 + "b.py", "x/" * 20 + "t.py"])
def test_long_names_of_test_files_have_folders(tmp_path: Path, file: str) -> None:
    store, case = BaselineStore(tmp_path), CaseId(f"{file}::test_it[{'p' * 400}]", "c" * 300)
    baseline = msgspec.structs.replace(time_baseline(), case=case)
    store.put(baseline, artifacts_of())
    assert store.time(H100, case, FINGERPRINT) == baseline
    other = CaseId(f"{file}x::test_it", "0")
    assert case_file(case, FINGERPRINT).split("/")[0] != case_file(other, FINGERPRINT).split("/")[0] or "/" in file


@pytest.mark.parametrize("name", ["\0", "\x1b[31m", "\n::error::x", "\u202e", "\x9b", "x" * 5_000])
def test_a_name_that_a_terminal_would_obey_is_neither_read_nor_written(tmp_path: Path, name: str) -> None:
    store = BaselineStore(tmp_path)
    for change in ({"nodeid": f"t.py::test{name}"}, {"call": name}):
        case = msgspec.structs.replace(CASE, **change)
        for baseline, decode in ((time_baseline(), decode_time), (static_baseline(), decode_static)):
            changed_one: Any = msgspec.structs.replace(baseline, case=case)
            with pytest.raises(BaselineError, match=r"it\.json: case\.(nodeid|call) has "):
                decode(to_json(changed_one), "it.json")
            with pytest.raises(BaselineError, match=r"case\.(nodeid|call) has .*another name"):
                store.write(tmp_path / "it.json", changed_one)
    assert not (tmp_path / "it.json").exists()


def test_names_that_fit_stay_what_they_were() -> None:
    assert case_file(CaseId("a" * 252 + ".py::t", ""), "f").startswith("a" * 252 + ".py/t-")


# runs


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(StoreError, match="may have"):
        read_run(path)
    path.write_bytes(b'{"schema": "kerntune.run/9"}')
    with pytest.raises(StoreError, match=r"kerntune\.run/9"):
        read_run(path)


# two jobs on one folder


def test_what_comes_to_be_used_while_it_is_swept_stays(tmp_path: Path, monkeypatch: Any) -> None:
    """The baseline comes after B has looked who uses what, and before B removes anything."""
    ours, theirs = BaselineStore(tmp_path), BaselineStore(tmp_path)
    ours.put(static().baseline, static().artifacts)
    used, looked = BaselineStore._used, []

    def then_put(self: BaselineStore, target: Any) -> Any:
        found = list(used(self, target))
        if not looked:
            looked.append(True)
            for name, data in artifacts_of().items():
                ours.artifacts(target).put(name, data)
            yield from found
            ours.write(ours.time_path(H100, CASE, FINGERPRINT), time_baseline())
        else:
            yield from found

    monkeypatch.setattr(BaselineStore, "_used", then_put)
    theirs.sweep()
    assert set(artifact_names(time_baseline().recording)) <= set(ours.artifacts(H100.target))
