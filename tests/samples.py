"""Small recordings, baselines and evidence for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from kerntune.base.case_result import CaseId
from kerntune.base.config import Config
from kerntune.base.device import DeviceSpec, Environment, Target, typical_device
from kerntune.base.recording import Binary, Launch, Param, Recording, Storage, Stored, View, Zeros
from kerntune.gate.baseline_files import BaselineStore, artifact_names
from kerntune.gate.baselines import STATIC_SCHEMA, TIME_SCHEMA, Argument, StaticBaseline, TimeBaseline, fingerprint_of
from kerntune.gate.bundle import Bundle, check_identity, unpacked
from kerntune.gate.static_figures import LaunchStatic
from kerntune.static.metrics import StaticMetrics
from kerntune.timing.timers import Sample, TimingProtocol

H100 = typical_device(Target.parse("cuda:90"))
ENVIRONMENT = Environment(triton="3.9.0", torch="2.13.0", driver="570.1", device="NVIDIA H100")
CASE = CaseId("tests/test_softmax.py::test_softmax[4096]", "0")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bytes_of(name: str) -> bytes:
    """The bytes of a made-up artifact."""
    return f"content of {name}\n".encode() * 20


def binary(code: str = "code", **changes: Any) -> Binary:
    made = Binary(
        kind="cubin",
        arch="sm_90a",
        symbol="add_kernel",
        sha256=sha(bytes_of(f"cubin {code}")),
        ttir_sha256=sha(bytes_of(f"ttir {code}")),
        code=code,
        text=f"text of {code}",
        triton="3.9.0",
        assembler="12.9",
        options={"num_stages": 3, "arch": "sm_90a"},
        constexprs={"BLOCK": "128"},
        num_warps=4,
    )
    return msgspec.structs.replace(made, **changes)


POINTERS = (Param("x", "*fp32", view=0), Param("y", "*fp32", view=1), Param("n", "i32", value=1024))


def launch(**changes: Any) -> Launch:
    made = Launch(
        kernel="add_kernel",
        source="source",
        binary=0,
        grid=(8, 1, 1),
        params=POINTERS,
        reads=(0,),
        writes=(1,),
        config=Config({"BLOCK": 128}),
    )
    return msgspec.structs.replace(made, **changes)


def recording(**changes: Any) -> Recording:
    made = Recording(
        target=H100.target,
        launches=(launch(),),
        binaries=(binary(),),
        storages=(
            Storage(4096, "float32", Stored(sha(bytes_of("input"))), read=True),
            Storage(4096, "float32", Zeros(), written=True),
        ),
        views=(View(0, "float32", (1024,), (1,)), View(1, "float32", (1024,), (1,))),
    )
    return msgspec.structs.replace(made, **changes)


def apply_bundle(bundle: Bundle, store: BaselineStore, *, where: str = "bundle") -> Path:
    """Write a bundle's baseline, as ``kerntune baselines apply`` does."""
    check_identity(bundle, where)
    return store.put(bundle.baseline, unpacked(bundle, where))


def artifacts_of(*codes: str) -> dict[str, bytes]:
    """Artifacts of recordings whose binaries have these codes, with the stored input."""
    contents = [bytes_of("input")]
    for code in codes or ("code",):
        contents += [bytes_of(f"cubin {code}"), bytes_of(f"ttir {code}")]
    return {sha(data): data for data in contents}


ARGUMENTS = (Argument("float32", (1024,), (1,)),)
FINGERPRINT = fingerprint_of(ARGUMENTS)
SAMPLE = Sample(TimingProtocol("graph", 200, 3), (12_400.0, 12_410.5, 12_395.1))


def metrics() -> StaticMetrics:
    return StaticMetrics(
        registers=32,
        spill_store_bytes=0,
        spill_load_bytes=0,
        stack_bytes=0,
        shared_bytes=1024,
        code_bytes=2048,
        threads=128,
        instructions={"mma": 4},
        occupancy=0.5,
        occupancy_limiter="registers",
    )


def static_launch(code: str = "code") -> LaunchStatic:
    return LaunchStatic(
        kernel="add_kernel",
        source="source",
        code=code,
        ttir_sha256=sha(bytes_of(f"ttir {code}")),
        grid=(8, 1, 1),
        metrics=metrics(),
        config=Config({"BLOCK": 128}),
    )


def time_baseline(case: CaseId = CASE, device: DeviceSpec = H100, code: str = "code") -> TimeBaseline:
    return TimeBaseline(
        schema=TIME_SCHEMA,
        case=case,
        fingerprint=FINGERPRINT,
        arguments=ARGUMENTS,
        device=device,
        environment=ENVIRONMENT,
        recorded="2026-01-02T03:04:05Z",
        recording=recording(binaries=(binary(code),)),
        sample=SAMPLE,
        static=(static_launch(code),),
    )


def static_baseline(case: CaseId = CASE, code: str = "code") -> StaticBaseline:
    return StaticBaseline(
        schema=STATIC_SCHEMA,
        case=case,
        fingerprint=FINGERPRINT,
        arguments=ARGUMENTS,
        target=H100.target,
        triton="3.9",
        recorded="2026-01-02T03:04:05Z",
        launches=(static_launch(code),),
    )


assert set(artifact_names(recording())) == set(artifacts_of())

# strategies

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Consistent recordings: every index points at something."""
    codes = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    views = draw(
        st.lists(
            st.builds(
                View,
                storage=st.integers(0, 1),
                dtype=st.sampled_from(["float32", "int64"]),
                shape=st.tuples(st.integers(1, 64)),
                strides=st.tuples(st.integers(1, 4)),
                offset_bytes=st.sampled_from([0, 64]),
            ),
            min_size=1,
            max_size=3,
        )
    )
    param = st.builds(Param, st.just("p"), st.just("*fp32"), view=st.integers(0, len(views) - 1)) | st.builds(
        Param, st.just("s"), st.just("i32"), value=scalars
    )
    launches = draw(
        st.lists(
            st.builds(
                launch,
                binary=st.integers(0, len(codes) - 1),
                grid=st.tuples(st.integers(0, 9), st.integers(1, 2), st.just(1)),
                params=st.lists(param, max_size=3).map(tuple),
                reads=st.sampled_from([(), (0,), (0, 1)]),
                writes=st.sampled_from([(), (1,), (0, 1)]),
            ),
            max_size=4,
        )
    )
    return recording(
        launches=tuple(launches),
        binaries=tuple(binary(c, num_warps=draw(st.sampled_from([4, 8]))) for c in codes),
        views=tuple(views),
    )
