"""Two recordings timed in turn on one memory: what is equal reads as equal, and what changed as much as it did."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, increment_kernel, recorded, scale, scale_kernel, script
from hypothesis import given, settings
from hypothesis import strategies as st

from kerntune.base.policy import Policy, Verdict
from kerntune.base.recording import Normal, Recording, Storage, Stored
from kerntune.base.stats import Estimate
from kerntune.capture.recorder import Recorded
from kerntune.errors import ReplayError
from kerntune.gate.decision import Evidence, decide
from kerntune.gpu.foreign_work import ForeignWork
from kerntune.gpu.program import Loader
from kerntune.gpu.script import Rule
from kerntune.gpu.scripted import FakeBackend
from kerntune.timing import paired
from kerntune.timing.paired import Pair, Pairing, _output_of_one, common_plan, live_memory, pair

IN_PLACE_BYTES = 1 << 30


LEVEL = 0.999

BLOCKS, MORE_BLOCKS = 15, 30


def small() -> None:
    scale(scale_kernel, BLOCK=64)


def large() -> None:
    scale(scale_kernel, BLOCK=128)


def pairing(backend: FakeBackend, a: Recorded, b: Recorded) -> Pairing:
    """``a`` as a stored baseline, ``b`` as today's."""
    artifacts = {**a.artifacts, **b.artifacts}
    storages, theirs = common_plan(b.recording, a.recording)
    memory = live_memory(backend.gpu, storages, b.sources, artifacts)
    return pair(Loader(backend.gpu), theirs, b.recording, memory, artifacts)


def replayed(
    backend: FakeBackend, *rules: Rule, a: Callable[[], Any] = small, b: Callable[[], Any] = large, **options: Any
) -> Pair:
    script(backend, *rules, **options)
    return pairing(backend, recorded(backend, a), recorded(backend, b)).run(BLOCKS)


def verdict(seen: Pair, tolerance: float = 0.02) -> Verdict:
    return decide(Evidence(launched=1, expected=1, replay=seen.change), Policy(tolerance=tolerance))


FEW = settings(max_examples=8, deadline=None)


# estimates and verdicts


@FEW
@given(seed=st.integers(0, 10_000), time_ns=st.sampled_from([2000.0, 20_000.0, 1e6]))
def test_twins_read_as_equal(shared: FakeBackend, seed: int, time_ns: float) -> None:
    seen = replayed(shared, block(64, time_ns), a=small, b=small, seed=seed, noise=0.002)
    assert abs(seen.change.point) < 0.002
    assert seen.change.low < seen.change.point < seen.change.high
    assert verdict(seen) is Verdict.PASS


@FEW
@given(
    seed=st.integers(0, 10_000),
    change=st.sampled_from([(1.03, Verdict.REGRESSED), (0.97, Verdict.IMPROVED), (1.0, Verdict.PASS)]),
    time_ns=st.sampled_from([2000.0, 1e6]),
)
def test_three_hundredths_are_seen(
    shared: FakeBackend, seed: int, change: tuple[float, Verdict], time_ns: float
) -> None:
    factor, expected = change
    seen = replayed(shared, block(64, time_ns), block(128, factor * time_ns), seed=seed, noise=0.002)
    assert seen.change.point == pytest.approx(factor - 1, abs=0.002)
    assert seen.change.level == LEVEL
    assert verdict(seen) is expected


def test_without_noise_the_change_is_exact(backend: FakeBackend) -> None:
    seen = replayed(backend, block(64, 1000.0), block(128, 1250.0), noise=0.0)
    assert seen.change.point == pytest.approx(0.25)
    assert seen.a_ns == pytest.approx([1000.0] * BLOCKS)
    assert seen.b_ns == pytest.approx([1250.0] * BLOCKS)


def test_another_clock_moves_both_sides(backend: FakeBackend) -> None:
    seen = replayed(backend, block(64, 1000.0), block(128, 1000.0), noise=0.0, shift=1.5)
    assert seen.change.point == pytest.approx(0.0)
    assert seen.a_ns[0] == pytest.approx(1500.0)


def test_too_much_noise_is_inconclusive_not_regressed(backend: FakeBackend) -> None:
    seen = replayed(backend, block(64, 1e6), block(128, 1.02e6), noise=0.2)
    assert seen.change.low < 0.02 < seen.change.high
    assert verdict(seen) is Verdict.INCONCLUSIVE


def test_more_blocks_narrow_the_interval(backend: FakeBackend) -> None:
    script(backend, noise=0.02)
    made = pairing(backend, recorded(backend, small), recorded(backend, large))
    first = made.run(BLOCKS)
    both = made.run(MORE_BLOCKS)
    assert len(both.a_ns) == BLOCKS + MORE_BLOCKS
    assert both.a_ns[:BLOCKS] == first.a_ns
    assert both.change.high - both.change.low < first.change.high - first.change.low


def test_both_sides_run_under_one_protocol(backend: FakeBackend) -> None:
    """Also when one is in place and the other isn't: restores are outside the window on both sides."""

    def in_place() -> None:
        x = torch.randn(N, device="cuda")
        increment_kernel[by_block](x, N, BLOCK=64)

    script(backend, noise=0.0)
    made = pairing(backend, recorded(backend, small), recorded(backend, in_place))
    first, second = made._slots
    assert first.protocol == second.protocol
    assert first.protocol.runs_per_slot == first.protocol.replicas, "in place: once per copy, on both sides"
    assert made.run(BLOCKS).change.point == pytest.approx(0.0)


@pytest.mark.parametrize("stored_first", [True, False])
def test_the_side_that_restores_more_decides_how_many_runs_there_are(backend: FakeBackend, stored_first: bool) -> None:
    """It has a copy for each run: 200 of them, as many as the other side may take, would fill gigabytes."""
    large = torch.randn(16 << 20, device="cuda")

    def in_place() -> None:
        increment_kernel[by_block](large, N, BLOCK=64)

    def out_of_place() -> None:
        scale_kernel[by_block](large, torch.empty_like(large), N, 2.0, BLOCK=64)

    gpu = script(backend, noise=0.0)
    sides = recorded(backend, in_place), recorded(backend, out_of_place)
    made = pairing(backend, *(sides if stored_first else sides[::-1]))
    first, second = made._slots
    assert first.protocol == second.protocol
    assert first.protocol.runs_per_slot * large.nbytes <= IN_PLACE_BYTES
    assert gpu.peak_bytes <= 2 * IN_PLACE_BYTES


def test_the_device_is_watched_before_in_the_middle_and_afterwards(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is timed, and not before both sides are warm."""
    done: list[str] = []
    monkeypatch.setattr(paired, "warm", lambda times: len(times) == 3)
    monkeypatch.setattr(paired.ClockWatch, "watch", lambda clock: done.append("watch") or ForeignWork(1.0, 0.5, 0.5, 1))
    monkeypatch.setattr(paired.ClockWatch, "close", lambda clock: done.append("close"))

    def slot(name: str) -> Any:
        return SimpleNamespace(enqueue=lambda: done.append(name) or (lambda: 1.0))

    made = Pairing(backend.gpu, (slot("a"), slot("b")))
    assert done == ["a", "b"] * 3
    done.clear()
    seen = [made.run(blocks) for blocks in (4, 1)]
    work = [name if name in ("watch", "close") else "" for name in done]
    assert work == ["watch", *[""] * 8, "watch", *[""] * 8, "watch", "close", "watch", *[""] * 4, "watch", "close"]
    assert [pair.foreign for pair in seen] == [ForeignWork(3.0, 1.5, 0.5, 3), ForeignWork(5.0, 2.5, 0.5, 5)]
    assert [(len(pair.a_ns), len(pair.b_ns)) for pair in seen] == [(4, 4), (5, 5)]


def test_orders_are_balanced_random_and_repeatable(backend: FakeBackend) -> None:
    class Slot:
        def __init__(self, name: str) -> None:
            self.name = name

        def enqueue(self) -> Callable[[], float]:
            order.append(self.name)
            return lambda: 100.0

    def orders(seed: int) -> list[str]:
        made = Pairing.__new__(Pairing)
        made._slots = (Slot("a"), Slot("b"))
        import random

        made._random, made._a, made._b = random.Random(seed), [], []
        made._gpu, made._foreign = backend.gpu, []
        order.clear()
        made.run(40)
        return ["".join(order[i : i + 4]) for i in range(0, 160, 4)]

    order: list[str] = []
    seen = orders(1)
    assert set(seen) == {"abba", "baab"}
    assert seen == orders(1)
    assert all(set(seen[i : i + 2]) == {"abba", "baab"} for i in range(0, 40, 2)), "each two blocks have both"
    assert 5 <= seen[::2].count("abba") <= 15


@given(st.floats(-0.5, 0.5), st.floats(0.0, 0.1), st.floats(0.0, 0.1))
def test_no_interval_is_both_slower_and_faster(point: float, below: float, above: float) -> None:
    change = Estimate(point, point - below, point + above, LEVEL)
    found = decide(Evidence(1, 1, replay=change), Policy())
    assert (found is Verdict.REGRESSED) == (point - below > 0.02)
    assert (found is Verdict.IMPROVED) == (point + above < -0.02)


# memory


def with_temporaries(count: int) -> Callable[[], None]:
    """``count`` passes through temporaries, then the result."""

    def op() -> None:
        x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
        for _ in range(count):
            temporary = torch.empty(2 * N, device="cuda")
            scale_kernel[by_block](x, temporary, N, 2.0, BLOCK=64)
            x = temporary
        scale_kernel[by_block](x, y, N, 2.0, BLOCK=64)

    return op


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 2), (3, 1)])
def test_temporaries_may_differ_in_number(backend: FakeBackend, before: int, after: int) -> None:
    seen = replayed(backend, Rule(time_ns=1000.0), a=with_temporaries(before), b=with_temporaries(after), noise=0.0)
    assert 1 + seen.change.point == pytest.approx((1 + after) / (1 + before))


def shared_of(backend: FakeBackend, mine: Recorded, theirs: Recorded) -> tuple[Any, Recording]:
    storages, renumbered = common_plan(mine.recording, theirs.recording)
    return live_memory(backend.gpu, storages, mine.sources, theirs.artifacts), renumbered


def test_equal_memory_plans_share_everything(backend: FakeBackend) -> None:
    mine, theirs = recorded(backend, small), recorded(backend, small)
    memory, renumbered = shared_of(backend, mine, theirs)
    assert len(memory.storages) == 2
    assert renumbered == theirs.recording
    assert memory.sources == mine.sources


def test_what_only_the_baseline_has_is_added_behind(backend: FakeBackend) -> None:
    mine, theirs = recorded(backend, with_temporaries(0)), recorded(backend, with_temporaries(2))
    memory, renumbered = shared_of(backend, mine, theirs)
    assert memory.storages[:2] == mine.recording.storages
    assert len(memory.storages) == 4
    used = {v.storage for v in renumbered.views}
    assert used == {0, 1, 2, 3}
    first, _, last = renumbered.launches
    assert (first.reads, last.writes) == ((0,), (1,)), "its input and its output are today's"


@triton.jit
def with_extra_kernel(x_ptr, extra_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(extra_ptr + i, x, mask=i < n)
    tl.store(y_ptr + i, x * 2, mask=i < n)


def test_an_output_stays_itself_where_another_one_is_added_before_it(backend: FakeBackend) -> None:
    def more() -> None:
        x, extra, y = (torch.empty(N, device="cuda") for _ in range(3))
        with_extra_kernel[by_block](x, extra, y, N, BLOCK=64)

    mine, theirs = recorded(backend, more), recorded(backend, small)
    storages, renumbered = common_plan(mine.recording, theirs.recording)
    assert len(storages) == 3
    assert (renumbered.launches[0].reads, renumbered.launches[0].writes) == ((0,), (2,)), "not the extra one"
    assert common_plan(mine.recording, mine.recording)[1] == mine.recording


@triton.jit
def without_extra_kernel(x_ptr, extra_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def test_an_output_that_one_side_never_writes_is_one_storage(backend: FakeBackend) -> None:
    def call(kernel: Any) -> Any:
        def run() -> None:
            x, extra, y = (torch.empty(N, device="cuda") for _ in range(3))
            kernel[by_block](x, extra, y, N, BLOCK=64)

        return run

    both, fewer = (recorded(backend, call(k)).recording for k in (with_extra_kernel, without_extra_kernel))
    for mine, theirs in ((both, fewer), (fewer, both)):
        storages, renumbered = common_plan(mine, theirs)
        assert len(storages) == 3
        assert [v.storage for v in renumbered.views] == [v.storage for v in mine.views]


@pytest.mark.parametrize(
    ("reads", "writes", "one"), [("", "a", True), ("", "ab", False), ("a", "a", False), ("b", "a", False)]
)
def test_an_output_of_one_side_is_read_by_neither_and_written_by_one(reads: str, writes: str, one: bool) -> None:
    a, b = (Storage(8, "float32", Normal(), read=side in reads, written=side in writes) for side in "ab")
    assert _output_of_one(a, b) is _output_of_one(b, a) is one
    assert not _output_of_one(a, msgspec.structs.replace(b, nbytes=16))


@FEW
@given(before=st.integers(0, 3), after=st.integers(0, 3))
def test_renumbering_keeps_every_size_and_use(shared: FakeBackend, before: int, after: int) -> None:
    script(shared)
    mine, theirs = recorded(shared, with_temporaries(after)), recorded(shared, with_temporaries(before))
    memory, renumbered = shared_of(shared, mine, theirs)
    for old, new in zip(theirs.recording.views, renumbered.views, strict=True):
        was, now = theirs.recording.storages[old.storage], memory.storages[new.storage]
        assert (was.nbytes, was.dtype, was.read, was.written) == (now.nbytes, now.dtype, now.read, now.written)
    for old, new in zip(theirs.recording.launches, renumbered.launches, strict=True):
        assert (len(old.reads), len(old.writes)) == (len(new.reads), len(new.writes))
        views = [renumbered.views[p.view].storage for p in new.params if p.view is not None]
        assert set(new.reads) | set(new.writes) == set(views)
    assert len({v.storage for v in renumbered.views}) == len({v.storage for v in theirs.recording.views})


def test_added_memory_gets_the_content_that_is_described(backend: FakeBackend) -> None:
    mine, theirs = recorded(backend, small), recorded(backend, small)
    kept = b"\x07" * 40
    extra = msgspec.structs.replace(
        theirs.recording.storages[0], nbytes=40, dtype="int32", content=Stored("f" * 64), written=False
    )
    theirs.recording = msgspec.structs.replace(theirs.recording, storages=(extra, theirs.recording.storages[1]))
    theirs.artifacts["f" * 64] = kept
    memory, _ = shared_of(backend, mine, theirs)
    assert backend.gpu.read(memory.buffer(0, 2)) == kept
    del theirs.artifacts["f" * 64]
    with pytest.raises(ReplayError, match="stored content ffffff"):
        shared_of(backend, mine, theirs)


def test_another_input_size_is_other_memory(backend: FakeBackend) -> None:
    mine, theirs = recorded(backend, small), recorded(backend, small)
    bigger = tuple(msgspec.structs.replace(s, nbytes=s.nbytes * 2, content=Normal()) for s in theirs.recording.storages)
    theirs.recording = msgspec.structs.replace(theirs.recording, storages=bigger)
    memory, renumbered = shared_of(backend, mine, theirs)
    assert [s.nbytes for s in memory.storages] == [4 * N, 4 * N, 8 * N, 8 * N]
    assert {v.storage for v in renumbered.views} == {2, 3}


# what can't be replayed


def test_a_missing_binary_is_a_replay_error(backend: FakeBackend) -> None:
    a, b = recorded(backend, small), recorded(backend, large)
    del a.artifacts[a.recording.binaries[0].sha256]
    with pytest.raises(ReplayError, match=r"scale_kernel: its binary .* is not stored here"):
        pairing(backend, a, b)


def test_a_side_that_says_it_cannot_be_replayed(backend: FakeBackend) -> None:
    a, b = recorded(backend, small), recorded(backend, large)
    (binary,) = a.recording.binaries
    a.recording = msgspec.structs.replace(
        a.recording, binaries=(msgspec.structs.replace(binary, unreplayable="it uses another Triton's launcher"),)
    )
    with pytest.raises(ReplayError, match="another Triton's launcher"):
        pairing(backend, a, b)
