"""Baselines on disk: one file a case, artifacts by checksum, nothing else touched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import os
import re
import shutil
import socket
import tracemalloc
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from cli import made
from doubles import raising
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    ARGUMENTS,
    CASE,
    FINGERPRINT,
    H100,
    apply_bundle,
    artifacts_of,
    binary,
    bytes_of,
    launch,
    recording,
    sha,
    static_baseline,
    time_baseline,
)

from kerntune.base.case_result import CaseId
from kerntune.base.codec import to_json
from kerntune.base.device import Target
from kerntune.base.recording import Param, Storage, Stored, View, Zeros, work_of
from kerntune.cli.stored import load_folder
from kerntune.errors import BaselineError
from kerntune.gate.baseline_files import (
    MAX_ARTIFACT,
    MAX_PACKED,
    ArtifactFolder,
    BaselineStore,
    artifact_bounds,
    artifact_names,
    case_file,
)
from kerntune.gate.baselines import (
    Argument,
    Calibration,
    StaticBaseline,
    TimeBaseline,
    decode_static,
    decode_time,
    fingerprint_of,
    now,
    problems_of,
    work_id,
)
from kerntune.gate.bundle import bundle_of
from kerntune.gate.call import PendingBaseline
from kerntune.gate.case_identity import inputs_of
from kerntune.gate.history.points import work_name

replace = msgspec.structs.replace
A100 = replace(H100, target=Target("cuda", "80"), name="NVIDIA A100")
OTHER = CaseId("tests/test_softmax.py::test_softmax[1024]", "0")


@pytest.fixture
def store(tmp_path: Path) -> BaselineStore:
    return BaselineStore(tmp_path / "baselines")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its time of change, in ns."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


# fingerprints

arguments = st.lists(
    st.builds(
        Argument,
        st.sampled_from(["float32", "float16"]),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
    ),
    max_size=3,
).map(tuple)


@given(arguments, arguments)
def test_fingerprints_tell_layouts_apart(a: tuple[Argument, ...], b: tuple[Argument, ...]) -> None:
    assert (fingerprint_of(a) == fingerprint_of(b)) is (a == b)
    assert re.fullmatch("[0-9a-f]{16}", fingerprint_of(a))


def test_fingerprints_stay_what_they_are() -> None:
    """They are in users' repositories: a change of this value makes all baselines stale."""
    assert fingerprint_of(ARGUMENTS) == fingerprint_of(list(ARGUMENTS)) == FINGERPRINT
    assert (
        fingerprint_of([Argument("float32", (2, 3), (3, 1))])
        == sha(b'[{"dtype":"float32","shape":[2,3],"strides":[3,1]}]')[:16]
    )


def test_a_work_s_id_stays_what_it_is() -> None:
    """Baselines name the anchor that they were compared with by it: with another value, all are compared anew."""
    assert work_id(recording()) == sha(msgspec.json.encode(recording()))[:16]
    assert work_id(recording()) != work_id(recording(binaries=(binary("other"),)))
    named = sha(repr([work_of(recording(), x) for x in recording().launches]).encode())
    assert work_name(recording()) == named[:24], "a history's points name their work by it"


def view(storage: int, shape: int = 8) -> View:
    return View(storage, "float32", (shape,), (1,))


def test_inputs_are_what_is_read_before_it_is_written() -> None:
    """x -> temporary -> y: only x counts, so that an edit which adds a temporary leaves the case the same."""
    x, temporary, y = Param("x", "*fp32", view=0), Param("t", "*fp32", view=1), Param("y", "*fp32", view=2)
    a = recording(
        views=(view(0, 8), view(1, 9), view(2, 10)),
        launches=(
            launch(params=(x, temporary), reads=(0,), writes=(1,)),
            launch(params=(temporary, y), reads=(1,), writes=(2,)),
        ),
    )
    assert inputs_of(a) == (Argument("float32", (8,), (1,)),)


def test_inputs_list_in_place_memory_and_each_layout_once() -> None:
    both = (Param("x", "*fp32", view=0), Param("y", "*fp32", view=1), Param("n", "i32", value=3), Param("z", "*fp32"))
    a = recording(views=(view(0), view(1)), launches=(launch(params=both, reads=(0, 1), writes=(1,)),) * 2)
    assert inputs_of(a) == (Argument("float32", (8,), (1,)),)
    b = recording(views=(view(0), view(1, 5)), launches=(launch(params=both, reads=(0, 1), writes=(1,)),))
    assert inputs_of(b) == (Argument("float32", (8,), (1,)), Argument("float32", (5,), (1,)))
    assert inputs_of(recording(launches=())) == ()


def test_now_is_utc_to_the_second() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", now())


# file names

ids = st.builds(
    CaseId,
    nodeid=st.text(max_size=40)
    | st.text("abAB/.:[]- é\\\0", max_size=30)
    | st.text("a", min_size=200, max_size=400).map("t.py::{}".format),
    call=st.sampled_from(["", "0", "1", "add", "..", "a/b", "é"]),
)


@given(ids, st.sampled_from([FINGERPRINT, "0" * 16]))
def test_a_case_has_a_plain_path_inside_the_folder(case: CaseId, fingerprint: str) -> None:
    path = case_file(case, fingerprint)
    parts = path.split("/")
    assert all(re.fullmatch(r"[A-Za-z0-9._=-]+", part) for part in parts), path
    assert not {"", ".", ".."} & set(parts)
    folder = Path("/baselines")
    assert (folder / path).resolve().is_relative_to(folder)
    assert len(parts[-1]) <= 140
    assert parts[-1].endswith(".json")
    assert case_file(case, fingerprint) == path


@pytest.mark.slow
@given(st.lists(st.tuples(ids, st.sampled_from(["0" * 16, "1" * 16])), unique=True, max_size=8))
def test_distinct_cases_have_distinct_files(cases: list[tuple[CaseId, str]]) -> None:
    paths = [case_file(case, fingerprint).lower() for case, fingerprint in cases]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("nodeid", "call", "start"),
    [
        ("tests/test_a.py::test_x[4096-fp16]", "0", "tests/test_a.py/test_x-4096-fp16--0-"),
        ("tests/test_a.py::TestA::test_x", "add", "tests/test_a.py/TestA-test_x-add-"),
        ("../outside/test_a.py::test_x", "0", "outside/test_a.py/test_x-0-"),
        ("/abs/test_a.py::test_x[../../etc]", "0", "abs/test_a.py/test_x-..-..-etc--0-"),
        ("test_a.py::test_é[µ]", "0", "test_a.py/test_--0-"),
    ],
)
def test_file_names_can_be_read(nodeid: str, call: str, start: str) -> None:
    path = case_file(CaseId(nodeid, call), FINGERPRINT)
    assert re.fullmatch(re.escape(start) + r"[0-9a-f]{8}\.json", path), path


def test_ids_that_differ_only_in_what_is_sanitised() -> None:
    nodeids = ["t.py::x[a/b]", "t.py::x[a-b]", "t.py::x[a:b]", "t.py::x[a b]", "t.py::x", "t.py::x[]", "T.py::X"]
    assert len({case_file(CaseId(n, "0"), FINGERPRINT).lower() for n in nodeids}) == len(nodeids)


# one case


def test_time_round_trip(store: BaselineStore) -> None:
    baseline = time_baseline()
    path = store.put(baseline, artifacts_of())
    assert store.time(H100, CASE, FINGERPRINT) == baseline
    assert store.read(path) == baseline
    assert path == store.folder / "cuda-90" / "nvidia-h100" / "time" / case_file(CASE, FINGERPRINT)
    assert store.time_files() == [path]
    assert store.static_files() == []


def test_static_round_trip(store: BaselineStore) -> None:
    baseline = static_baseline()
    path = store.put(baseline, artifacts_of())
    assert store.static(H100.target, "3.9", CASE, FINGERPRINT) == baseline
    assert path == store.folder / "cuda-90" / "triton-3.9" / "static" / case_file(CASE, FINGERPRINT)
    assert store.static_files() == [path]
    assert store.time_files() == []


def test_nothing_is_there_at_first(store: BaselineStore) -> None:
    assert store.time(H100, CASE, FINGERPRINT) is None
    assert store.static(H100.target, "3.9", CASE, FINGERPRINT) is None
    assert store.targets() == []
    assert list(store.summaries()) == []
    assert store.sweep() == 0
    assert not store.folder.exists(), "looking must not write"


def test_matching_is_by_id_fingerprint_device_target_and_series(store: BaselineStore) -> None:
    store.put(time_baseline(), artifacts_of())
    store.put(static_baseline(), artifacts_of())
    assert store.time(H100, OTHER, FINGERPRINT) is None
    assert store.time(H100, CaseId(CASE.nodeid, "1"), FINGERPRINT) is None
    assert store.time(H100, CASE, "0" * 16) is None
    assert store.time(A100, CASE, FINGERPRINT) is None
    assert store.time(replace(H100, name="NVIDIA H200"), CASE, FINGERPRINT) is None
    assert store.static(H100.target, "3.8", CASE, FINGERPRINT) is None
    assert store.static(A100.target, "3.9", CASE, FINGERPRINT) is None
    assert store.static(H100.target, "3.9", OTHER, FINGERPRINT) is None


def test_a_file_under_another_cases_name_is_not_that_cases(store: BaselineStore) -> None:
    """Moved by hand, a merge gone wrong, or two cases whose 8 hash digits agree."""
    path = store.put(time_baseline(), artifacts_of())
    wrong = store.time_path(H100, OTHER, FINGERPRINT)
    wrong.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, wrong)
    try:
        found = store.time(H100, OTHER, FINGERPRINT)
    except BaselineError:
        return
    assert found is None


def test_refreshing_one_case_touches_no_other_file(store: BaselineStore) -> None:
    for case in (CASE, OTHER):
        for device in (H100, A100):
            store.put(time_baseline(case, device=device), artifacts_of())
        store.put(static_baseline(case), artifacts_of())
    before = contents(store.folder)
    path = store.put(time_baseline(code="new"), artifacts_of("new"))
    after = contents(store.folder)
    changed = {name for name in after if after[name] != before.get(name)}
    added = {f"cuda-90/artifacts/{sha(bytes_of(x + ' new'))}.xz" for x in ("cubin", "ttir")}
    assert changed == {str(path.relative_to(store.folder)), *added}
    assert set(before) <= set(after)


def test_writing_the_same_again_changes_no_byte(store: BaselineStore) -> None:
    store.put(time_baseline(), artifacts_of())
    before = {name: data for name, (data, _) in contents(store.folder).items()}
    store.put(time_baseline(), artifacts_of())
    assert {name: data for name, (data, _) in contents(store.folder).items()} == before


def test_a_baseline_without_its_artifacts_is_not_written(store: BaselineStore) -> None:
    missing = artifacts_of()
    del missing[time_baseline().recording.binaries[0].ttir_sha256]
    with pytest.raises(KeyError):
        store.put(time_baseline(), missing)
    assert store.time(H100, CASE, FINGERPRINT) is None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], ""),
        (lambda text: text.replace("kerntune.time/1", "kerntune.time/0"), ""),
        (lambda text: text.replace("kerntune.time/1", "kerntune.static/1"), ""),
        (lambda text: text.replace('"fingerprint"', '"fingerprinted"'), ""),
        (lambda text: text.replace('"times_ns": [', '"times_ns": ["1", '), ""),
        (lambda text: re.sub(r'"times_ns": \[[^]]*\]', '"times_ns": []', text), r": .*sample\.times_ns`"),
        (lambda text: "<<<<<<< HEAD\n" + text, ""),
        (lambda text: "", ""),
    ],
)
def test_a_damaged_baseline_is_an_error_with_its_path(store: BaselineStore, damage: Any, said: str) -> None:
    path = store.put(time_baseline(), artifacts_of())
    path.write_text(damage(path.read_text()))
    with pytest.raises(BaselineError, match=re.escape(str(path)) + said):
        store.time(H100, CASE, FINGERPRINT)


@pytest.mark.parametrize("kind", [TimeBaseline, StaticBaseline])
def test_every_level_refuses_unknown_fields(kind: Any) -> None:
    def objects(value: Any) -> list[dict[str, Any]]:
        if isinstance(value, list):
            return [o for v in value for o in objects(v)]
        return [value, *objects(list(value.values()))] if isinstance(value, dict) else []

    free = ({"BLOCK"}, {"arch", "num_stages"}, {"mma"})  # constexprs and kwargs, options, instruction classes
    whole = json.loads(msgspec.json.encode(time_baseline() if kind is TimeBaseline else static_baseline()))
    count = len(objects(whole))
    assert count > 5
    for i in range(count):
        changed = json.loads(json.dumps(whole))
        target = objects(changed)[i]
        if set(target) in free:
            continue
        target["unknown_field"] = 1
        with pytest.raises(msgspec.ValidationError, match="unknown_field"):
            msgspec.convert(changed, kind)


def test_a_folder_in_the_files_place_is_an_error(store: BaselineStore) -> None:
    store.time_path(H100, CASE, FINGERPRINT).mkdir(parents=True)
    with pytest.raises(BaselineError, match="can't be read"):
        store.time(H100, CASE, FINGERPRINT)
    with pytest.raises(BaselineError, match="can't be written"):
        store.put(time_baseline(), artifacts_of())


def test_a_file_in_the_folders_place_is_an_error(store: BaselineStore) -> None:
    store.folder.write_text("a file")
    with pytest.raises(BaselineError, match="can't be written"):
        store.put(static_baseline(), artifacts_of())
    with pytest.raises(BaselineError, match="can't be read"):
        store.time(H100, CASE, FINGERPRINT)


# artifacts


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactFolder:
    made = ArtifactFolder(tmp_path / "artifacts")
    for data in (b"one", b"two"):
        made.put(sha(data), data)
    return made


def test_artifacts_are_a_mapping(artifacts: ArtifactFolder) -> None:
    assert artifacts[sha(b"one")] == b"one"
    assert dict(artifacts) == {sha(b"one"): b"one", sha(b"two"): b"two"}
    assert len(artifacts) == 2
    assert sha(b"one") in artifacts
    assert sha(b"three") not in artifacts
    assert artifacts.get(sha(b"three")) is None
    assert cast(object, 1) not in cast(Container[object], artifacts)
    with pytest.raises(KeyError, match=sha(b"three")):
        artifacts[sha(b"three")]


def test_artifacts_are_stored_once_and_packed(artifacts: ArtifactFolder) -> None:
    path = artifacts.folder / f"{sha(b'one')}.xz"
    assert lzma.decompress(path.read_bytes()) == b"one"
    packed = lzma.compress(b"one", preset=0)
    for data in (path.read_bytes(), packed):  # another packing of the same bytes will do
        path.write_bytes(data)
        kept = path.stat().st_mtime_ns, path.stat().st_ino
        artifacts.put(sha(b"one"), b"one")
        assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == (data, *kept)


def test_artifacts_are_on_the_disk_before_the_baseline_that_names_them(
    store: BaselineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may cost a baseline that was being written. It leaves none that can't be replayed."""
    done: list[tuple[str, str]] = []
    sync, replace_file = os.fsync, os.replace

    def synced(handle: int) -> None:
        target = os.readlink(f"/proc/self/fd/{handle}")
        if not os.path.isdir(target):
            done.append(("sync", Path(target).suffix))
        sync(handle)

    def replaced(source: Any, target: Any) -> None:
        done.append(("name", Path(target).suffix))
        replace_file(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    store.put(time_baseline(), artifacts_of())
    assert [x for x, _ in done] == ["sync", "name"] * (len(artifacts_of()) + 1)
    assert [suffix for step, suffix in done if step == "name"] == [".xz"] * len(artifacts_of()) + [".json"]


def test_packing_is_deterministic(tmp_path: Path) -> None:
    """Two people who record the same binary commit the same bytes."""
    data = bytes_of("cubin")
    for name in ("a", "b"):
        ArtifactFolder(tmp_path / name).put(sha(data), data)
    first, second = ((tmp_path / name / f"{sha(data)}.xz").read_bytes() for name in ("a", "b"))
    assert first == second


DAMAGE = [
    pytest.param(lambda data: data[:-5], id="cut"),
    pytest.param(lambda data: b"", id="empty"),
    pytest.param(lambda data: b"not xz at all", id="foreign"),
    pytest.param(lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], id="flipped"),
    pytest.param(lambda data: lzma.compress(b"other"), id="another's"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_artifacts_are_never_used_and_mended_by_recording_anew(artifacts: ArtifactFolder, damage: Any) -> None:
    path = artifacts.folder / f"{sha(b'one')}.xz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BaselineError, match=re.escape(str(path))):
        artifacts[sha(b"one")]
    assert artifacts[sha(b"two")] == b"two"
    artifacts.put(sha(b"one"), b"one")
    assert artifacts[sha(b"one")] == b"one"


@pytest.mark.parametrize("make", [made.timed, made.static])
def test_a_refresh_that_changes_nothing_leaves_every_file(tmp_path: Path, make: Callable[[], PendingBaseline]) -> None:
    store = made.folder(tmp_path / "baselines", make())
    before = contents(store.folder)
    later = make()
    if isinstance(later.baseline, StaticBaseline):
        launches = tuple(replace(x, compile_seconds=0.5) for x in later.baseline.launches)
        later = later._replace(baseline=replace(later.baseline, recorded="2027-01-01T00:00:00Z", launches=launches))
    later.commit(BaselineStore(store.folder))
    assert contents(store.folder) == before


def test_a_refresh_that_changes_a_figure_writes_it(tmp_path: Path) -> None:
    store = made.folder(tmp_path / "baselines", made.static())
    (path,) = store.static_files()
    made.folder(store.folder, made.static(figures=made.metrics(registers=48)))
    found = store.read(path)
    assert found is not None
    assert found.launches[0].metrics.registers == 48


def peak_while(work: Callable[[], object]) -> int:
    """Bytes that Python holds at most meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def xz_of_zeros(size: int) -> tuple[str, bytes]:
    """Checksum and xz file of so many zeros, made without holding them."""
    packer, digest, out, piece = lzma.LZMACompressor(preset=0), hashlib.sha256(), [], bytes(1 << 20)
    for _ in range(size >> 20):
        out.append(packer.compress(piece))
        digest.update(piece)
    return digest.hexdigest(), b"".join([*out, packer.flush()])


def test_the_arguments_of_a_case_are_known_from_each_of_its_readable_baselines(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    for pending in (made.timed(n=4096), made.timed(n=8192), made.static(n=1024), made.timed("tests/other.py::test_x")):
        apply_bundle(bundle_of(pending), store)
    case = made.timed().baseline.case
    known = {(made.argument(n),) for n in (1024, 4096, 8192)}
    assert store.known_arguments(made.CUDA90, case) == known
    assert store.known_arguments(made.CUDA90, msgspec.structs.replace(case, call="backward")) == set()
    next(p for p in store.time_files() if "test_softmax" in p.name).write_text("{")
    assert len(store.known_arguments(made.CUDA90, case)) == 2


def test_a_static_baseline_that_says_the_same_is_written_where_it_is_made_anew(tmp_path: Path) -> None:
    store, pending = made.folder(tmp_path, made.static()), made.static()
    later = replace(pending.baseline, recorded="2030-01-01T00:00:00Z")
    path = store.put(later, pending.artifacts)
    assert b"2030-01-01" not in path.read_bytes()
    assert store.put(later, pending.artifacts, anew=True) == path
    assert b"2030-01-01" in path.read_bytes()


def test_what_can_not_be_packed_any_smaller_can_be_read_again() -> None:
    data = os.urandom(1 << 20)
    added = len(lzma.compress(data, preset=6)) - len(data)
    assert 0 < added * (MAX_ARTIFACT // len(data)) < MAX_PACKED - MAX_ARTIFACT


@pytest.mark.slow
@pytest.mark.parametrize(("bound", "most"), [(None, MAX_ARTIFACT), (1 << 20, 1 << 20)], ids=["none", "1 MiB"])
def test_what_unpacks_to_more_than_it_can_have_is_given_up_on_the_way(
    artifacts: ArtifactFolder, bound: int | None, most: int
) -> None:
    """A quarter of a GiB in 40 KB, and the checksum of its content."""
    sha256, packed = xz_of_zeros(1 << 28)
    path = artifacts.folder / f"{sha256}.xz"
    path.write_bytes(packed)
    found = ArtifactFolder(artifacts.folder, {} if bound is None else {sha256: bound})

    def read() -> None:
        with pytest.raises(BaselineError, match=f"unpacks to more than the {most} bytes") as caught:
            found[sha256]
        assert str(path) in str(caught.value)

    assert peak_while(read) < most + (1 << 24)


@pytest.mark.parametrize("make", [made.timed, made.static])
def test_a_baseline_bounds_its_artifacts(tmp_path: Path, make: Callable[[], PendingBaseline]) -> None:
    """Contents to their storage, kernels by their machine code."""
    pending = make()
    store = made.folder(tmp_path / "baselines", pending)
    name = next(iter(pending.artifacts))
    baseline = pending.baseline
    target = baseline.target if isinstance(baseline, StaticBaseline) else baseline.device.target
    path = store.artifacts(target).folder / f"{name}.xz"
    path.write_bytes(xz_of_zeros(4 << 20)[1])
    fresh = BaselineStore(store.folder)
    assert len(list(fresh.summaries())) == 1
    found = fresh.artifacts(target)
    with pytest.raises(BaselineError, match="unpacks to more than"):
        found[name]


def test_a_stored_content_has_the_bytes_of_its_storage() -> None:
    baseline = made.timed().baseline
    assert isinstance(baseline, TimeBaseline)
    (content,) = (s.content for s in baseline.recording.storages if isinstance(s.content, Stored))
    assert artifact_bounds(baseline)[content.sha256] == 16


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "folder"])
def test_what_is_no_file_is_an_error_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    store = made.folder(tmp_path / "baselines", made.static())
    (path,) = store.static_files()
    path.unlink()
    with contextlib.ExitStack() as stack:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "socket":
            here = stack.enter_context(socket.socket(socket.AF_UNIX))
            stack.enter_context(_inside(path.parent))  # a socket's path has 108 bytes at most
            here.bind(path.name)
        else:
            path.mkdir()
        with pytest.raises(BaselineError, match="can't be read") as caught:
            store.read(path)
        assert str(path) in str(caught.value)
        ((_, told),) = store.summaries()
        assert isinstance(told, BaselineError)
        (entry,) = load_folder(store.folder)
        assert str(path) in entry.problem


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_unreadable_is_not_missing(artifacts: ArtifactFolder) -> None:
    (artifacts.folder / f"{sha(b'three')}.xz").mkdir()
    with pytest.raises(BaselineError, match="can't be read"):
        artifacts[sha(b"three")]


def test_artifact_names_are_all_that_a_replay_needs() -> None:
    a = recording(
        binaries=(binary("a"), binary("b")),
        storages=(
            Storage(4, "int8", Stored("kept"), read=True),
            Storage(4, "int8", Zeros()),
            Storage(4, "int8", Stored("kept")),
        ),
    )
    names = artifact_names(a)
    assert set(names) == {sha(bytes_of(f"{kind} {code}")) for kind in ("cubin", "ttir") for code in "ab"} | {"kept"}
    assert len(names) == len(set(names))


# the whole folder


def test_other_peoples_folders_are_no_targets(store: BaselineStore) -> None:
    others = ["notes", "cuda", ".git", "cuda-old", "cuda-90a", "hip-mi300", "cuda-90-x", "hip-gfx942-1"]
    for name in ("cuda-90", "hip-gfx942", *others):
        (store.folder / name).mkdir(parents=True)
    (store.folder / "cuda-80").write_text("a file")
    assert store.targets() == [Target.parse("cuda:90"), Target.parse("hip:gfx942")]


def test_remove_takes_one_file(store: BaselineStore) -> None:
    paths = [store.put(time_baseline(case), artifacts_of()) for case in (CASE, OTHER)]
    before = contents(store.folder)
    store.remove(paths[0])
    assert set(before) - set(contents(store.folder)) == {str(paths[0].relative_to(store.folder))}
    with pytest.raises(BaselineError, match="can't be removed"):
        store.remove(paths[0])


def test_sweep_never_removes_what_is_used(store: BaselineStore) -> None:
    """By either kind of baseline, on any device of the target; another target's artifacts are its own."""
    store.put(time_baseline(code="a"), artifacts_of("a"))
    store.put(time_baseline(OTHER, device=replace(H100, name="H200"), code="b"), artifacts_of("b"))
    store.put(static_baseline(code="c"), artifacts_of("c"))
    store.put(time_baseline(device=A100, code="a"), artifacts_of("a"))
    before = contents(store.folder)
    assert store.sweep() == 0
    assert contents(store.folder) == before


def test_sweep_removes_what_nothing_names(store: BaselineStore) -> None:
    store.put(time_baseline(code="old"), artifacts_of("old"))
    store.put(time_baseline(code="new"), artifacts_of("new"))
    assert store.sweep() == 2
    left = store.artifacts(H100.target)
    assert set(left) == set(artifact_names(time_baseline(code="new").recording))
    assert dict(left) == artifacts_of("new")
    assert store.sweep() == 0


@settings(max_examples=12)  # each packs some artifacts, which costs tens of milliseconds
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("pq"), st.booleans()), max_size=5), st.data())
def test_sweep_after_anything(tmp_path_factory: pytest.TempPathFactory, puts: list[Any], data: st.DataObject) -> None:
    store = BaselineStore(tmp_path_factory.mktemp("sweep"))
    for name, code, static in puts:
        case = CaseId(f"t.py::{name}", "0")
        if static:
            store.put(static_baseline(case, code=code), artifacts_of(code))
        else:
            store.put(time_baseline(case, code=code), artifacts_of(code))
    files = [*store.time_files(), *store.static_files()]
    for path in files:
        if data.draw(st.booleans()):
            store.remove(path)
    store.sweep()
    left = store.artifacts(H100.target)
    for path in store.time_files():
        baseline = store.read(path)
        assert baseline is not None
        assert all(name in left for name in artifact_names(baseline.recording))
    for path in store.static_files():
        static_one = store.read(path)
        assert static_one is not None
        assert all(x.ttir_sha256 in left for x in static_one.launches)
    if not store.time_files() and not store.static_files():
        assert len(left) == 0


def test_sweep_refuses_while_a_baseline_is_damaged(store: BaselineStore) -> None:
    """The damaged one may name any of them."""
    store.put(time_baseline(code="a"), artifacts_of("a"))
    path = store.put(time_baseline(OTHER, code="b"), artifacts_of("b"))
    path.write_bytes(path.read_bytes()[:-10])
    store.artifacts(H100.target).put(sha(b"unused"), b"unused")
    before = contents(store.folder)
    with pytest.raises(BaselineError, match=re.escape(str(path))):
        store.sweep()
    assert contents(store.folder) == before


def test_summaries_go_on_past_damage(store: BaselineStore) -> None:
    good = store.put(time_baseline(), artifacts_of())
    bad = store.put(time_baseline(OTHER), artifacts_of())
    static = store.put(static_baseline(), artifacts_of())
    bad.write_text("{}")
    found = dict(store.summaries())
    assert found[good] == time_baseline()
    assert found[static] == static_baseline()
    assert isinstance(found[bad], BaselineError)
    assert len(found) == 3


def test_a_folder_named_time_confuses_nobody(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / "time" / "baselines")
    static = static_baseline(CaseId("tests/time/test_a.py::test_a", "0"))
    path = store.put(static, artifacts_of())
    assert dict(store.summaries()) == {path: static}


@pytest.mark.parametrize("nodeid", ["static/time/t.py::a", "triton-3.9/static/t.py::a", "artifacts/t.py::a"])
def test_test_folders_named_like_ours_confuse_nobody(store: BaselineStore, nodeid: str) -> None:
    case = CaseId(nodeid, "0")
    time = store.put(time_baseline(case), artifacts_of())
    static = store.put(static_baseline(case), artifacts_of())
    assert store.time_files() == [time]
    assert store.static_files() == [static]
    assert store.sweep() == 0


def test_files_by_device_target_and_series(store: BaselineStore) -> None:
    first = store.put(time_baseline(), artifacts_of())
    second = store.put(time_baseline(device=A100), artifacts_of())
    static = store.put(static_baseline(), artifacts_of())
    assert store.time_files() == sorted([first, second])
    assert store.time_files(A100.slug) == [second]
    assert store.time_files(A100.slug, H100.target.slug) == []
    assert store.time_files(target_slug=H100.target.slug) == [first]
    assert store.static_files(H100.target.slug, "3.9") == [static]
    assert store.static_files(triton="3.8") == []


# bounds, defaults, and what comes between two steps


def test_a_calibration_without_states_has_none() -> None:
    known = Calibration(4, 24, 0.01, 0.001, 0.002)
    assert (known.state_range, known.throttle, known.version) == (0.0, (), msgspec.UNSET)


@pytest.mark.parametrize(("code_bytes", "most"), [(2048, 1_048_576 + 64 * 2048), (0, 1_048_576)])
def test_a_kernel_has_a_mebibyte_and_64_bytes_for_each_of_its_code(code_bytes: int, most: int) -> None:
    baseline = static_baseline()
    (launch_,) = baseline.launches
    known = replace(launch_, metrics=replace(launch_.metrics, code_bytes=code_bytes))
    assert artifact_bounds(replace(baseline, launches=(known,))) == {launch_.ttir_sha256: most}
    timed = replace(time_baseline(), static=(known,))
    binary_ = timed.recording.binaries[0]
    found = artifact_bounds(timed)
    assert (found[binary_.sha256], found[binary_.ttir_sha256]) == (most, most)


def test_without_a_bound_an_artifact_has_64_mebibytes() -> None:
    assert (MAX_ARTIFACT, MAX_PACKED) == (64 * 1024 * 1024, 65 * 1024 * 1024)


def test_the_larger_bound_of_two_baselines_counts(store: BaselineStore) -> None:
    baseline = static_baseline()
    (launch_,) = baseline.launches
    larger = replace(launch_, metrics=replace(launch_.metrics, code_bytes=1 << 20))
    for order in ((launch_, larger), (larger, launch_)):
        for one in order:
            store._note_bounds(replace(baseline, launches=(one,)))
        assert store._bounds[launch_.ttir_sha256] == (1 << 20) + 64 * (1 << 20)


def test_paths_are_shown_from_the_projects_root(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path / "project" / "baselines")
    assert store.shown(store.folder / "a.json") == "baselines/a.json"
    assert store.shown(tmp_path / "elsewhere") == str(tmp_path / "elsewhere")
    assert BaselineStore(tmp_path / "project" / "baselines", tmp_path).shown(store.folder) == "project/baselines"


@pytest.mark.parametrize(("digits", "fits"), [(246, True), (247, False)])
def test_a_series_makes_a_folder_of_255_characters_at_most(digits: int, fits: bool) -> None:
    baseline = replace(static_baseline(), triton="3." + "9" * digits)
    problems = list(problems_of(baseline))
    text = f"triton makes a folder's name of {digits + 9} characters, more than 255"
    assert problems == ([] if fits else [text])


@pytest.mark.parametrize(("length", "fits"), [(255, True), (256, False)])
def test_a_device_and_a_target_too(length: int, fits: bool) -> None:
    named = replace(time_baseline(), device=replace(H100, name="A" * length))
    assert [p.partition(" ")[0] for p in problems_of(named)] == ([] if fits else ["device.name"])
    target = Target.parse("hip:gfx" + "1" * (length - len("hip-gfx")))
    assert len(target.slug) == length
    assert [p.partition(" ")[0] for p in problems_of(replace(static_baseline(), target=target))] == (
        [] if fits else ["target"]
    )


@pytest.mark.parametrize(
    ("time_ns", "fits"), [(1e-3, True), (0.9e-3, False), (1e15, True), (1.1e15, False), (0.0, False), (-1.0, False)]
)
def test_times_lie_between_a_picosecond_and_eleven_days(time_ns: float, fits: bool) -> None:
    baseline = time_baseline()
    data = to_json(replace(baseline, sample=replace(baseline.sample, times_ns=(12_400.0, time_ns))))
    with contextlib.nullcontext() if fits else pytest.raises(BaselineError, match=r"sample\.times_ns\[1\]`"):
        decode_time(data, "it.json")


@pytest.mark.parametrize("name", ["registers", "shared_bytes", "code_bytes", "threads"])
def test_a_figure_that_cant_be_is_named_with_its_place(name: str) -> None:
    fine = static_baseline().launches[0]
    bad = replace(fine, metrics=replace(fine.metrics, **{name: -1}))
    with pytest.raises(BaselineError, match=rf">= 0 - at `\$\.launches\[1\]\.metrics\.{name}`"):
        decode_static(to_json(replace(static_baseline(), launches=(fine, bad))), "it.json")


@pytest.mark.parametrize("kind", ["time", "static"])
def test_artifacts_that_another_job_swept_away_meanwhile_are_written_again(
    store: BaselineStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write = BaselineStore.write

    def swept(self: BaselineStore, path: Path, baseline: Any) -> None:
        for artifact in self.folder.glob("*/artifacts/*.xz"):
            artifact.unlink()
        write(self, path, baseline)

    monkeypatch.setattr(BaselineStore, "write", swept)
    if kind == "time":
        store.put(time_baseline(), artifacts_of())
        names = set(artifact_names(time_baseline().recording))
    else:
        store.put(static_baseline(), artifacts_of())
        names = {static_baseline().launches[0].ttir_sha256}
    assert set(store.artifacts(H100.target)) == names


def test_what_a_baseline_names_by_then_is_restored(store: BaselineStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job writes its baseline while another one sweeps."""
    store.put(time_baseline(code="a"), artifacts_of("a"))
    used, names = BaselineStore._used, set(artifact_names(time_baseline(code="a").recording))
    store.artifacts(H100.target).put(sha(b"unused"), b"unused")
    looks: list[Target] = []

    def later(self: BaselineStore, target: Target) -> Iterator[str]:
        looks.append(target)
        return iter(()) if len(looks) == 1 else used(self, target)

    monkeypatch.setattr(BaselineStore, "_used", later)
    assert store.sweep() == 1
    assert set(store.artifacts(H100.target)) == names
    assert list(store.artifacts(H100.target).folder.glob(".*")) == []
    assert len(looks) == 2


def test_where_nothing_is_unused_baselines_are_read_once(store: BaselineStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(time_baseline(), artifacts_of())
    used, looks = BaselineStore._used, []
    monkeypatch.setattr(BaselineStore, "_used", lambda self, target: looks.append(target) or used(self, target))
    assert store.sweep() == 0
    assert len(looks) == 1


def test_a_sweep_that_may_not_change_the_folder_names_the_file(
    store: BaselineStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.artifacts(H100.target).put(sha(b"unused"), b"unused")

    monkeypatch.setattr(Path, "rename", raising(PermissionError(13, "Permission denied")))
    path = store.artifacts(H100.target).folder / f"{sha(b'unused')}.xz"
    with pytest.raises(BaselineError, match=re.escape(f"{path}: can't be removed (Permission denied)")):
        store.sweep()


@pytest.mark.parametrize(("series", "found"), [("3.8", "3.7"), ("3.10", "3.9"), ("3.1", "3.7"), ("4.0", "3.9")])
def test_the_nearest_series_stands_for_one_that_is_missing(store: BaselineStore, series: str, found: str) -> None:
    """An older one first; 3.10 comes after 3.9."""
    for triton in ("3.7", "3.9"):
        store.put(replace(static_baseline(), triton=triton), artifacts_of())
    known = store.static_elsewhere(H100.target, series, CASE, FINGERPRINT)
    assert known is not None
    assert known.triton == found
    assert store.static_elsewhere(H100.target, series, OTHER, FINGERPRINT) is None


def test_a_series_own_baseline_is_not_elsewhere(store: BaselineStore) -> None:
    store.put(static_baseline(), artifacts_of())
    assert store.static_elsewhere(H100.target, "3.9", CASE, FINGERPRINT) is None


def test_a_long_name_is_cut_and_stays_apart() -> None:
    long = "x" * 300
    path = case_file(CaseId(f"t.py::{long}", "0"), FINGERPRINT)
    assert re.fullmatch(r"t\.py/x{120}-[0-9a-f]{8}\.json", path)
    folder = case_file(CaseId(f"{'d' * 256}/t.py::a", "0"), FINGERPRINT).split("/")[0]
    assert re.fullmatch(r"d{120}-[0-9a-f]{8}", folder)
    assert case_file(CaseId(f"{'d' * 255}/t.py::a", "0"), FINGERPRINT).split("/")[0] == "d" * 255
