"""A capture becomes a recording: compiled, flattened, with all that a replay needs."""

from __future__ import annotations

import torch
from fake_runs import (
    N,
    by_block,
    captured,
    increment_kernel,
    recorded,
    scale,
    scale_kernel,
    sum_kernel,
    tuned,
)

from kerntune.base.codec import to_json
from kerntune.base.config import Config
from kerntune.base.recording import Recording, same_work
from kerntune.capture.recorder import record, with_candidate
from kerntune.gate.baseline_files import artifact_names
from kerntune.gpu.scripted import FakeBackend
from kerntune.kernels.source import source_hash


def three_launches() -> None:
    x, y, total = (torch.randn(n, device="cuda") for n in (N, N, 1))
    scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)
    tuned(64, 128)[by_block](y, x, N, 3.0)
    sum_kernel[by_block](x, total, N, BLOCK=128)


def test_launches_say_what_they_are(backend: FakeBackend) -> None:
    found = recorded(backend, three_launches)
    first, second, third = found.recording.launches
    assert [x.kernel for x in found.recording.launches] == ["scale_kernel", "scale_kernel", "sum_kernel"]
    assert first.source == second.source == source_hash(scale_kernel)
    assert third.source == source_hash(sum_kernel)
    assert [x.config for x in found.recording.launches] == [None, Config({"BLOCK": 64}), None]
    assert [(x.reads, x.writes) for x in (first, second, third)] == [((0,), (1,)), ((1,), (0,)), ((0, 2), (2,))]
    assert [x.float_atomics for x in (first, second, third)] == [False, False, True]
    assert [p.value for p in second.params] == [None, None, N, 3.0]


def test_what_each_launch_reads_and_writes_is_its_compiled_codes(backend: FakeBackend) -> None:
    found = recorded(backend, three_launches)
    sums = (frozenset({0, 1}), frozenset({1}))
    copies = (frozenset({0}), frozenset({1}))
    assert found.accesses == {0: copies, 1: copies, 2: sums}


def test_equal_binaries_are_listed_once(backend: FakeBackend) -> None:
    recording = recorded(backend, three_launches).recording
    assert len(recording.binaries) == 2
    assert [x.binary for x in recording.launches] == [0, 0, 1]
    assert [recording.binary_of(x).symbol for x in recording.launches] == ["scale_kernel", "scale_kernel", "sum_kernel"]


def test_storages_know_who_uses_them(backend: FakeBackend) -> None:
    recording = recorded(backend, three_launches).recording
    assert [(s.nbytes, s.read, s.written) for s in recording.storages] == [
        (4 * N, True, True),
        (4 * N, True, True),
        (4, True, True),
    ]


def test_everything_a_replay_needs_is_there(backend: FakeBackend) -> None:
    found = recorded(backend, three_launches)
    assert set(artifact_names(found.recording)) <= set(found.artifacts)
    assert set(found.asm) == {b.sha256 for b in found.recording.binaries}
    assert len(found.sources) == len(found.recording.storages)
    assert found.failures == {}


def test_recording_twice_gives_the_same(backend: FakeBackend) -> None:
    capture = captured(backend, three_launches)
    assert record(capture).recording == record(capture).recording


def test_the_same_call_twice_is_the_same_work(backend: FakeBackend) -> None:
    first, second = (recorded(backend, three_launches).recording for _ in range(2))
    assert to_json(first) == to_json(second)
    assert same_work(first, second)


def test_a_recording_survives_json(backend: FakeBackend) -> None:
    import msgspec

    recording = recorded(backend, three_launches).recording
    assert msgspec.json.decode(to_json(recording), type=Recording) == recording


def test_another_candidate_replaces_one_launch(backend: FakeBackend) -> None:
    capture = captured(backend, three_launches)
    found = record(capture)
    before = found.recording
    with capture.active():
        probe = capture.probe(capture.launches[1].site, 1)
    compiled = capture.compiler.compile(probe.specialized)
    after = with_candidate(found, capture, 1, probe, 1, compiled)
    assert found.recording is before
    assert after.launches[0] == before.launches[0]
    assert after.launches[1].config == Config({"BLOCK": 128})
    assert after.launches[1].grid == (32, 1, 1)
    assert after.binary_of(after.launches[1]) == compiled.binary
    assert after.binary_of(after.launches[2]).symbol == "sum_kernel"
    assert found.artifacts[compiled.binary.sha256] == compiled.data
    assert found.asm[compiled.binary.sha256] == compiled.asm


def test_nothing_launched_is_an_empty_recording(backend: FakeBackend) -> None:
    recording = recorded(backend, lambda: None).recording
    assert (recording.launches, recording.binaries, recording.storages, recording.views) == ((), (), (), ())


def test_null_pointers_have_no_view(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: increment_kernel[(1,)](torch.empty(N, device="cuda"), N, BLOCK=64))
    (launch,) = record(capture).recording.launches
    assert [(p.name, p.view) for p in launch.params] == [("x_ptr", 0), ("n", None)]


def test_a_zero_axis_keeps_its_place(backend: FakeBackend) -> None:
    def op() -> None:
        x = torch.empty(N, device="cuda")
        increment_kernel[(0,)](x, N, BLOCK=64)
        increment_kernel[(64,)](x, N, BLOCK=64)

    assert [x.grid for x in recorded(backend, op).recording.launches] == [(0, 1, 1), (64, 1, 1)]


def test_alignment_is_part_of_the_binary(backend: FakeBackend) -> None:
    def op() -> None:
        x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=512)
        scale_kernel[by_block](x[1:], y, N - 16, 2.0, BLOCK=512)

    recording = recorded(backend, op).recording
    assert [x.binary for x in recording.launches] == [0, 1]
    assert [recording.views[x.params[0].view].offset_bytes for x in recording.launches] == [0, 4]
    assert recording.binaries[0].code != recording.binaries[1].code


def test_compiled_kernels_are_shared(backend: FakeBackend) -> None:
    first, second = (recorded(backend, lambda: scale(scale_kernel, BLOCK=512)) for _ in range(2))
    (name,) = {b.sha256 for r in (first, second) for b in r.recording.binaries}
    assert first.artifacts[name] is second.artifacts[name]


def test_a_tuner_says_after_the_launch_which_config_it_had(backend: FakeBackend) -> None:
    kernel = tuned(64, 128)
    captured(backend, lambda: scale(kernel))
    assert kernel.best_config.kwargs == {"BLOCK": 64}
