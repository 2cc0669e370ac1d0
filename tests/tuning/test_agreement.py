"""Ranks that meet at one key: one tunes, the others take its winner, and nobody waits for ever; their fingerprints."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import N, block, by_block, captured, configs, scale_kernel, script, tuned

import kerntune
from kerntune.base.config import Config
from kerntune.base.policy import TuneMode
from kerntune.capture import Site
from kerntune.gpu.scripted import FakeBackend, FakeGpu
from kerntune.tuning import agreement, tuned_call
from kerntune.tuning.admission import first_usable
from kerntune.tuning.agreement import tuning_turn
from kerntune.tuning.cache import WinnerCache, leases
from kerntune.tuning.cache.leases import FileLease, of_this_run, several_ranks
from kerntune.tuning.cache.shared_store import SharedWinnerCache
from kerntune.tuning.stored_winners import Winners
from tuning.cache.made import LARGE, SMALL, WINNER
from tuning.cache.stores import machine
from tuning.turn_clock import LIMITS, Clock, stopped_clock

MARGIN_S = 60.0


SIZES = (64, 128, 256)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in leases.SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(agreement, "_chosen", {})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stopped_clock(monkeypatch)


def site(backend: FakeBackend, n: int = N) -> Site:
    x, y = (torch.empty(n, device="cuda") for _ in range(2))
    found = captured(backend, lambda: tuned(*SIZES)[by_block](x, y, n, 2.0)).launches[0].site
    assert found is not None
    return found


def rank(backend: FakeBackend, cache: WinnerCache, mode: TuneMode = TuneMode.AUTO) -> Winners:
    return Winners(cache, mode, backend.gpu)


@pytest.fixture(params=["folder", "store"])
def pair(request: pytest.FixtureRequest, backend: FakeBackend, tmp_path: Path) -> tuple[Winners, Winners]:
    """Two ranks of one machine, or of two machines with a store."""
    if request.param == "folder":
        return rank(backend, WinnerCache(tmp_path)), rank(backend, WinnerCache(tmp_path))
    return rank(backend, machine(tmp_path, "a")), rank(backend, machine(tmp_path, "b"))


def turn(winners: Winners, backend: FakeBackend, gpu: FakeGpu | None = None, **words: Any) -> Any:
    """The rank's turn to tune the kernel of these tests."""
    return tuning_turn(winners, site(backend), gpu or backend.gpu, unfinished=False, **words)


def all_busy(backend: FakeBackend, pair: tuple[Winners, Winners], monkeypatch: pytest.MonkeyPatch, **words: Any) -> Any:
    """What all ranks go on with, if each one's device is busy, and what is stored then."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    backend.gpu.other_work = lambda limit_s: False
    used = set()
    for winners in pair:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            with turn(winners, backend, **words) as found:
                used.add(found)
        finish(winners)
    stored = pair[1].stored(site(backend))
    assert stored is not None
    return used, stored


def finish(winners: Winners) -> None:
    """What a store is told for later is done."""
    if isinstance(winners.cache, SharedWinnerCache):
        client: Any = winners.cache.store.client
        client.finish()


def test_the_first_one_tunes_and_the_second_takes_its_winner(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock
) -> None:
    first, second = pair
    with turn(first, backend) as found:
        assert found is None
        clock.meanwhile.append((3.0, lambda: first.keep(site(backend), 1, 1000.0)))
        with turn(second, backend) as its:
            assert its == 1
    assert clock.now == 3.0


def test_when_the_first_one_gives_up_the_second_tunes(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock
) -> None:
    first, second = pair
    begun = turn(first, backend)
    assert begun.__enter__() is None

    def fail() -> None:
        begun.__exit__(ValueError, ValueError("its tuning failed"), None)
        finish(first)

    clock.meanwhile.append((3.0, fail))
    with turn(second, backend) as its:
        assert its is None
    assert clock.now == 3.0


def test_who_has_waited_too_long_tunes_and_the_first_to_store_wins(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock
) -> None:
    first, second = pair
    with turn(first, backend) as found:
        assert found is None
        with turn(second, backend) as its:
            assert its is None
            assert clock.now == LIMITS.wait_s
            assert second.keep(site(backend), 2, 1000.0) == 2
        assert first.keep(site(backend), 1, 900.0) == 2


def test_a_rank_whose_device_is_busy_holds_nothing(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock
) -> None:
    """Rank 0 has a collective enqueued that waits for rank 1, which needs the same key before it enqueues its part."""
    zero, one = pair
    busy = FakeGpu(backend.spec, backend.gpu.script, backend.stand_ins)
    busy.other_work = lambda limit_s: False

    def rank_one() -> None:
        with turn(one, backend) as its:
            assert its is None
            one.keep(site(backend), 1, 1000.0)
        finish(one)

    clock.meanwhile.append((5.0, rank_one))
    with turn(zero, backend, busy) as found:
        assert found == 1
    assert clock.now == 5.0


def test_a_rank_that_becomes_busy_lets_go_of_what_it_has(backend: FakeBackend, tmp_path: Path, clock: Clock) -> None:
    """It waits for another machine, and holds its own machine's lock meanwhile."""
    first, zero = rank(backend, machine(tmp_path, "a")), rank(backend, machine(tmp_path, "b"))
    busy = FakeGpu(backend.spec, backend.gpu.script, backend.stand_ins)
    busy.other_work = lambda limit_s: clock.now < 3.0
    taken: list[bool] = []

    def others_take() -> None:
        lease = FileLease(tmp_path / "b", zero.key(site(backend)).digest())
        taken.append(lease.take())
        lease.release()

    clock.meanwhile += [(2.0, others_take), (5.0, others_take), (6.0, lambda: first.keep(site(backend), 1, 1000.0))]
    with turn(first, backend) as found:
        assert found is None
        with turn(zero, backend, busy) as its:
            assert its == 1
    assert taken == [False, True]


def test_ranks_that_are_all_busy_go_on_with_one_config(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, stored = all_busy(backend, pair, monkeypatch)
    assert (used, len(stored.untried)) == ({0}, 2)
    assert of_this_run(stored.created)


def test_ranks_that_are_all_busy_go_on_with_what_they_have_launched_before(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To load the code of another config may wait for the very work that waits for this rank."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for n, winner in ((4 * N, 1), (2 * N, 2)):
        pair[0].keep(site(backend, n), winner, 1000.0)
    finish(pair[0])
    used, stored = all_busy(backend, pair, monkeypatch, untuned=first_of)
    assert used == {2}
    assert [c.kwargs["BLOCK"] for c in stored.untried] == list(SIZES[:2])


def first_of(near: int | None) -> int:
    """The winner that was launched before, which fits."""
    assert near is not None
    return near


@triton.jit
def row_kernel(x_ptr, y_ptr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    tl.static_assert(ROWS * WIDTH <= 512)
    i = tl.program_id(0) * ROWS * WIDTH + tl.arange(0, ROWS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(y_ptr + i, tl.load(x_ptr + i))


def test_the_nearest_winner_is_used_only_where_it_can_be_launched(
    backend: FakeBackend, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What won for short rows doesn't compile for long ones."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for width in (64, 512):
        x, y = (torch.empty(N, device="cuda") for _ in range(2))
        rows = triton.autotune([triton.Config({"ROWS": n}) for n in (1, 2, 4)], key=["WIDTH"])(row_kernel)
        capture = captured(backend, lambda tuner=rows, x=x, y=y, width=width: tuner[(1,)](x, y, WIDTH=width))
        found.append((capture, capture.launches[0].site))
    winners = rank(backend, WinnerCache(tmp_path))
    winners.keep(found[0][1], 2, 1000.0)
    assert winners.nearest(found[1][1]) is not None
    backend.gpu.other_work = lambda limit_s: False
    capture, site = found[1]
    untuned = partial(first_usable, capture, site)
    with (
        pytest.warns(RuntimeWarning, match="ROWS=1 "),
        tuning_turn(winners, site, backend.gpu, unfinished=False, untuned=untuned) as used,
    ):
        assert used == 0


def test_ranks_that_are_all_busy_keep_what_an_earlier_run_found(
    backend: FakeBackend, pair: tuple[Winners, Winners], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    pair[0].keep(site(backend), 1, 1000.0, untried=[2])
    finish(pair[0])
    monkeypatch.setattr(leases, "BEGUN", time.time() + 10 * MARGIN_S)
    monkeypatch.setattr(time, "time", lambda: leases.BEGUN)
    used, stored = all_busy(backend, pair, monkeypatch)
    assert used == {1}
    assert (stored.time_ns, [c.kwargs["BLOCK"] for c in stored.untried]) == (1000.0, [SIZES[2]])


def test_a_call_beside_work_that_doesn_t_end_waits_for_no_device(
    this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config that doesn't compile is left out; the launch is the first thing that the device is asked for."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(agreement, "LIMITS", replace(LIMITS, busy_s=0.0))
    this_gpu.gpu.other_work = lambda limit_s: False
    for name in ("synchronize", "read", "allocate", "load", "event", "elapsed_ns"):
        monkeypatch.setattr(this_gpu.gpu, name, partial(pytest.fail, f"{name} waits for the device"))
    with pytest.warns(RuntimeWarning, match=r"BLOCK=128 .* is used, and the next start tunes it"):
        assert call(100, 128, 64).best_config.kwargs == {"BLOCK": 128}


def test_a_process_without_others_waits_for_its_own_work(backend: FakeBackend, tmp_path: Path, clock: Clock) -> None:
    """A long queue of its own is no reason to go on untuned."""
    backend.gpu.other_work = lambda limit_s: False
    winners = rank(backend, WinnerCache(tmp_path))
    with turn(winners, backend) as found:
        assert found is None
    assert clock.now == LIMITS.busy_s


def test_tuning_by_force_waits_for_nobody(backend: FakeBackend, tmp_path: Path) -> None:
    forced = rank(backend, WinnerCache(tmp_path), TuneMode.FORCE)
    with turn(forced, backend) as first, turn(forced, backend) as second:
        assert (first, second) == (None, None)


# unfinished winners


def test_an_unfinished_winner_of_this_run_is_taken(
    backend: FakeBackend, pair: tuple[Winners, Winners], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    first, second = pair
    assert first.keep(site(backend), 1, 1000.0, untried=[2]) == 1
    assert second.arrived(site(backend), unfinished=False) == 1
    assert second.keep(site(backend), 2, 900.0) == 1, "the others go on with it already"


def test_an_unfinished_winner_of_an_earlier_run_is_settled(
    backend: FakeBackend, pair: tuple[Winners, Winners], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    first, second = pair
    first.keep(site(backend), 1, 1000.0, untried=[2])
    monkeypatch.setattr(leases, "BEGUN", time.time() + 10 * MARGIN_S)
    for winners in pair:
        assert winners.arrived(site(backend), unfinished=True) is None
        assert winners.settles(site(backend))
    assert second.keep(site(backend), 2, 900.0) == 2
    assert first.arrived(site(backend), unfinished=True) == 2
    assert not first.settles(site(backend))


def test_one_process_alone_goes_on_as_before(backend: FakeBackend, tmp_path: Path) -> None:
    winners = rank(backend, WinnerCache(tmp_path))
    winners.keep(site(backend), 1, 1000.0, untried=[2])
    assert not winners.agrees
    assert not winners.settles(site(backend))
    assert winners.find(site(backend), unfinished=True) == 1
    assert winners.find(site(backend)) is None
    assert winners.cache.entries()[0].created == 0.0


# ranks


def test_launchers_say_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not several_ranks()
    for text, expected in (("1", False), ("8", True), ("", False), ("many", False), ("99999999999", False)):
        monkeypatch.setenv("SLURM_NTASKS", text)
        assert several_ranks() is expected


# a whole call


@pytest.fixture
def store(this_gpu: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """``this_gpu``'s caches are those of machines with one store; the machine's name is set by a call."""
    machines: dict[str, SharedWinnerCache] = {}

    def use(name: str) -> Any:
        found = machines.setdefault(name, machine(tmp_path, name))
        monkeypatch.setattr(tuned_call, "with_store", lambda cache: found)
        return found.store.client

    return use


def call(*blocks: int) -> Any:
    kernel = kerntune.autotune(configs(*blocks), key=["n"])(scale_kernel)
    x, y = (torch.empty(N, device="cuda") for _ in range(2))
    kernel[by_block](x, y, N, 2.0)
    return kernel


def test_a_second_machine_tunes_nothing(this_gpu: FakeBackend, store: Callable[[str], Any]) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    first = store("a")
    call(64, 128)
    printed = kerntune.fingerprint()
    first.finish()
    assert not [n for n in first.server.files.names() if "/leases/" in n]
    script(this_gpu, block(64, 1000.0), block(128, 3000.0))
    agreement._chosen.clear()
    second = store("b")
    kernel = call(64, 128)
    assert kernel.best_config.kwargs == {"BLOCK": 128}
    assert this_gpu.gpu.launches == 0
    assert kerntune.fingerprint() == printed
    assert len(second.requests) == 2, "a listing, and a read of the winners there"


def test_trials_of_another_machine_needn_t_be_made_again(this_gpu: FakeBackend, store: Callable[[str], Any]) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0), block(256, 90_000.0))
    store("a")
    call(64, 128, 256)
    store("a").finish()
    agreement._chosen.clear()
    alone = this_gpu.gpu.launches
    script(this_gpu, block(64, 3000.0), block(128, 1000.0), block(256, 90_000.0))
    store("b")
    call(128, 256, 64)
    assert 0 < this_gpu.gpu.launches < alone


def test_a_store_that_is_away_changes_nothing(this_gpu: FakeBackend, store: Callable[[str], Any]) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    store("a").is_away = True
    assert call(64, 128).best_config.kwargs == {"BLOCK": 128}
    assert call(64, 128).best_config.kwargs == {"BLOCK": 128}
    store("a").is_away = False
    call(64, 128)
    stored = [n for n in store("a").server.files.names() if n.endswith(".1.json")]
    assert len(stored) == 1


def test_keys_of_the_same_question_are_equal_on_two_machines(backend: FakeBackend, tmp_path: Path) -> None:
    one, two = rank(backend, machine(tmp_path, "a")), rank(backend, machine(tmp_path, "b"))
    assert one.key(site(backend)) == two.key(site(backend))
    assert msgspec.structs.asdict(one.key(site(backend)))["configs"] == tuple(Config({"BLOCK": b}) for b in SIZES)


# fingerprints


def noted(*pairs: tuple[str, Config]) -> str:
    agreement._chosen.clear()
    for arguments, config in pairs:
        agreement.note_chosen(msgspec.structs.replace(WINNER, arguments=arguments), config)
    return kerntune.fingerprint()


def test_the_order_does_not_count() -> None:
    assert noted(("a", SMALL), ("b", LARGE)) == noted(("b", LARGE), ("a", SMALL))


def test_another_config_or_key_is_another_fingerprint() -> None:
    found = [noted(), noted(("a", SMALL)), noted(("a", LARGE)), noted(("b", SMALL)), noted(("a", SMALL), ("b", SMALL))]
    assert len(set(found)) == len(found)
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in found)


def test_the_last_config_of_a_key_counts() -> None:
    assert noted(("a", SMALL), ("a", LARGE)) == noted(("a", LARGE))


def test_a_raced_and_a_stored_winner_give_the_same(this_gpu: FakeBackend) -> None:
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    empty = kerntune.fingerprint()
    call(64, 128)
    raced = kerntune.fingerprint()
    assert raced != empty
    agreement._chosen.clear()
    call(64, 128)
    assert kerntune.fingerprint() == raced


def test_another_winner_gives_another(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNTUNE_TUNE", "force")
    script(this_gpu, block(64, 3000.0), block(128, 1000.0))
    call(64, 128)
    first = kerntune.fingerprint()
    script(this_gpu, block(64, 1000.0), block(128, 3000.0))
    call(64, 128)
    assert kerntune.fingerprint() != first
