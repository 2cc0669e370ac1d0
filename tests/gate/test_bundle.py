"""Bundles carry a baseline whole, and are refused whole."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.made import CUDA90, folder, metrics, sha, static, timed, tree
from hypothesis import given
from hypothesis import strategies as st
from samples import CASE, apply_bundle

from kerntune.base import codec
from kerntune.base.case_result import incomplete_result
from kerntune.base.config import Config
from kerntune.base.policy import Outcome
from kerntune.base.recording import Param
from kerntune.errors import BaselineError
from kerntune.gate.baseline_files import BaselineStore
from kerntune.gate.bundle import SCHEMA, Bundle, bundle_of, decode_bundle, encoded_bundles, unpacked
from kerntune.gate.call import Checked, PendingBaseline
from kerntune.gate.report import RunReport, read_run, write_run
from pytest_kerntune.fixture import Record
from pytest_kerntune.payload import Collected, Payload, attach, carried, payload_of

LEAST_BOUND = 1048576
PER_CODE_BYTE = 64
MAX_ARTIFACT = 67108864


def as_json(pending: PendingBaseline) -> dict[str, Any]:
    return json.loads(msgspec.json.encode(bundle_of(pending)))


@pytest.mark.parametrize("make", [timed, static])
def test_applying_a_bundle_writes_what_committing_writes(tmp_path, make):
    folder(tmp_path / "committed", make())
    path = apply_bundle(decode_bundle(as_json(make()), "run.json"), BaselineStore(tmp_path / "applied"))
    assert path.is_file()
    assert tree(tmp_path / "applied") == tree(tmp_path / "committed")
    assert len(tree(tmp_path / "applied")) == (4 if make is timed else 2)


def test_what_is_written_and_carried_is_packed_once(tmp_path, monkeypatch):
    packed, compress = [], lzma.compress
    monkeypatch.setattr(lzma, "compress", lambda data, **options: packed.append(data) or compress(data, **options))
    codec.pack.cache_clear()
    made = timed()
    BaselineStore(tmp_path).put(made.baseline, made.artifacts)
    assert bundle_of(made) is not None
    assert sorted(packed) == sorted(made.artifacts.values())


scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.slow
@given(
    times=st.lists(st.floats(1.0, 1e12), min_size=1, max_size=5),
    block=st.one_of(scalars, st.text(max_size=5), st.none()),
    value=scalars,
    binary=st.binary(max_size=200),
)
def test_a_bundle_survives_json(times, block, value, binary):
    pending = timed(times=tuple(times), config=Config({"BLOCK": block}), binary=binary)
    recording = pending.baseline.recording
    launch = msgspec.structs.replace(recording.launches[0], params=(Param("n", "i64", value=value),))
    recording = msgspec.structs.replace(recording, launches=(launch,))
    pending = PendingBaseline(msgspec.structs.replace(pending.baseline, recording=recording), pending.artifacts, True)
    bundle = decode_bundle(as_json(pending), "run.json")
    assert bundle.baseline == pending.baseline
    assert unpacked(bundle, "run.json") == pending.artifacts


def test_what_a_bundle_says_of_itself():
    assert bundle_of(timed()).place == "NVIDIA H200, cuda:90"
    assert bundle_of(static()).place == "cuda:90, static"
    assert bundle_of(static()).baseline.target == CUDA90
    assert bundle_of(timed(call="backward")).baseline.case.call == "backward"


@pytest.mark.parametrize("make", [timed, static])
def test_a_bundle_goes_where_its_baseline_is_written(tmp_path, make):
    store, bundle = BaselineStore(tmp_path), bundle_of(make())
    assert not store.path_of(bundle.baseline).exists()
    assert apply_bundle(bundle, store) == store.path_of(bundle.baseline)
    assert store.path_of(bundle.baseline).exists()


def test_a_measurement_without_its_artifacts_is_not_carried_along():
    bare = PendingBaseline(timed().baseline, {}, write=False)
    assert bundle_of(bare) is None
    assert list(encoded_bundles([bare, None, static()])) == [f"{static().baseline.case} (cuda:90)"]


def test_an_artifact_that_the_baseline_does_not_need_stays_behind():
    pending = static()
    bundle = bundle_of(PendingBaseline(pending.baseline, {**pending.artifacts, sha(b"x"): b"x"}, True))
    assert set(bundle.artifacts) == set(pending.artifacts)


def test_encoded_bundles_are_of_every_target(tmp_path):
    encoded = json.loads(msgspec.json.encode(encoded_bundles([timed(), static(call="1")])))
    assert set(encoded) == {f"{timed().baseline.case} (cuda:90)", f"{static(call='1').baseline.case} (cuda:90)"}
    for value in encoded.values():
        assert apply_bundle(decode_bundle(value, "run.json"), BaselineStore(tmp_path)).is_file()


def first_artifact(data: dict[str, Any]) -> str:
    return min(data["artifacts"])


def content(change: Callable[[bytes], bytes]) -> Callable[[dict[str, Any]], None]:
    """Other packed bytes of an artifact."""

    def put_in(data: dict[str, Any]) -> None:
        name = first_artifact(data)
        data["artifacts"][name] = base64.b64encode(change(base64.b64decode(data["artifacts"][name]))).decode()

    return put_in


swap_content = content(lambda packed: lzma.compress(b"something else"))


def add(data: dict[str, Any]) -> None:
    data["artifacts"]["../../outside"] = base64.b64encode(lzma.compress(b"x")).decode()


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swap_content, "has another checksum than its name"),
        (content(lambda packed: packed[:-8]), "is damaged: it is cut off"),
        (content(lambda packed: packed + b"more"), "is damaged: it goes on behind its end"),
        (
            content(lambda packed: lzma.compress(bytes(MAX_ARTIFACT + 1), preset=0)),
            f"is damaged: it unpacks to more than the {LEAST_BOUND + PER_CODE_BYTE * 1024} bytes",
        ),
        (content(lambda packed: b"not compressed at all"), "is damaged"),
        (lambda data: data["artifacts"].update({first_artifact(data): "***"}), "base64"),
        (lambda data: data["artifacts"].pop(first_artifact(data)), "lacks artifact"),
        (add, "that nothing names"),
        (put("schema", value="kerntune.bundle/9"), "has schema 'kerntune.bundle/9'"),
        (put("time", "schema", value="kerntune.time/9"), "has schema 'kerntune.time/9'"),
        (put("time", "fingerprint", value="0" * 16), "fingerprint is not that of its arguments"),
        (put("time", "device", "target", "arch", value="../../../tmp"), "no target such as"),
        (put("time", "device", "target", "backend", value=".."), "no target such as"),
        (put("time", "device", "target", "warp_size", value=64), "'cuda:90' with 64 threads a warp, no target such as"),
        (put("time", "command", value="rm"), "unknown field `command`"),
        (put("time", "sample", "times_ns", value=["1"]), "Expected `float`"),
        (put("time", value=None), "either a time or a static baseline"),
    ],
)
def test_a_changed_bundle_is_refused_before_anything_is_written(tmp_path, change, says):
    data = as_json(timed())
    change(data)
    with pytest.raises(BaselineError, match=says) as caught:
        apply_bundle(decode_bundle(data, "run.json: case"), BaselineStore(tmp_path), where="run.json: case")
    assert str(caught.value).startswith("run.json: case: ")
    assert tree(tmp_path) == {}


def test_a_damaged_artifact_is_named_by_twelve_digits_of_its_checksum():
    data = as_json(timed())
    swap_content(data)
    name = first_artifact(data)
    with pytest.raises(BaselineError, match=f"artifact {name[:12]} has another checksum than its name; run it anew"):
        unpacked(decode_bundle(data, "run.json"), "run.json")


@pytest.mark.parametrize("triton", ["", "3", "../../x", "3.9.0"])
def test_a_static_bundle_of_no_triton_series_is_refused(tmp_path, triton):
    data = as_json(static())
    data["static"]["triton"] = triton
    with pytest.raises(BaselineError, match=r"is no Triton series such as 3\.9"):
        apply_bundle(decode_bundle(data, "run.json"), BaselineStore(tmp_path))
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("value", [None, 5, [], {}, "text", {"schema": SCHEMA}])
def test_something_else_is_no_bundle(value):
    with pytest.raises(BaselineError, match=r"run\.json"):
        decode_bundle(value, "run.json")


def test_a_bundle_has_one_baseline():
    with pytest.raises(ValueError, match="either"):
        Bundle(SCHEMA, {}, time=timed().baseline, static=static().baseline)


def test_a_refused_write_leaves_the_old_baseline(tmp_path):
    store = folder(tmp_path, static(figures=metrics(registers=40)))
    before = tree(tmp_path)
    data = as_json(static(ttir=b"module { other }"))
    swap_content(data)
    with pytest.raises(BaselineError, match="checksum"):
        apply_bundle(decode_bundle(data, "run.json"), store)
    assert tree(tmp_path) == before


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path):
    (tmp_path / "baselines").write_text("a file where the folder should be")
    with pytest.raises(BaselineError, match=r"baselines.*can't be written"):
        apply_bundle(bundle_of(timed()), BaselineStore(tmp_path / "baselines"))


def record_of(*pendings: PendingBaseline | None, **state: Any) -> Record:
    """The plugin's data of a test whose calls measured these."""
    return Record(
        checks=[Checked(None, incomplete_result(CASE, "", Outcome.PASS), pending) for pending in pendings], **state
    )


def test_bundles_travel_from_a_test_to_the_file_of_its_run(tmp_path):
    report = pytest.TestReport("t.py::test", ("t.py", 1, "test"), {}, "passed", None, "teardown")
    record = record_of(timed(), None, static(call="1"), finished=True)
    attach(report, Payload("t.py::test", finished=True, baselines=carried(record)))
    collected = Collected()
    collected.add(payload_of(report))
    write_run(tmp_path / "run.json", RunReport((), baselines=collected.baselines))
    read = read_run(tmp_path / "run.json").baselines
    assert len(read) == 2
    store = BaselineStore(tmp_path / "applied")
    for name, value in read.items():
        apply_bundle(decode_bundle(value, name), store)
    assert tree(store.folder) == tree(folder(tmp_path / "committed", timed(), static(call="1")).folder)


def test_a_test_that_broke_off_carries_nothing():
    assert carried(record_of(timed())) == {}
    assert len(carried(record_of(static(), static_only="needs a GPU's values"))) == 1
    assert len(carried(record_of(timed(), finished=True))) == 1
