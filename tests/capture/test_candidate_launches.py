"""Which candidate a captured run launches, what each would launch, and what users' hooks hear of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from fake_runs import COMPILER, N, by_block, captured, configs, increment_kernel, scale, scale_kernel

from kerntune.base.config import Config
from kerntune.capture import Capture, Probe, Site
from kerntune.capture.launch import Candidate, spread
from kerntune.errors import (
    EnvironmentFault,
    GridError,
    LaunchFault,
    LaunchTimeout,
    OutOfResourcesError,
    TuningError,
)
from kerntune.gpu.scripted import FakeBackend

BLOCKS = (32, 64, 128)


def tuned(*blocks: int, **options: Any) -> Any:
    return triton.autotune(configs(*blocks or BLOCKS), key=["n"], **options)(scale_kernel)


def site_of(capture: Capture) -> Site:
    site = capture.launches[0].site
    assert site is not None
    return site


def blocks(probes: dict[int, Any]) -> dict[int, Any]:
    return {i: p.specialized.bound["BLOCK"] if isinstance(p, Probe) else type(p) for i, p in probes.items()}


def test_all_candidates_are_probed_or_some(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(tuned()))
    with capture.active():
        assert blocks(capture.probe_all(site_of(capture))) == {0: 32, 1: 64, 2: 128}
        assert blocks(capture.probe_all(site_of(capture), {2, 0})) == {0: 32, 2: 128}
        assert capture.probe_all(site_of(capture), ()) == {}
        assert capture.probe(site_of(capture), 1).specialized.target == backend.spec.target
    assert len(capture.launches) == 1


def grid_of(*bad: int) -> Any:
    return lambda meta: (-1,) if meta["BLOCK"] in bad else (1,)


@pytest.mark.parametrize("among", [None, (0, 1)])
def test_a_candidate_without_a_grid_is_told_and_all_are_an_error(backend: FakeBackend, among: Any) -> None:
    bad: list[int] = []
    x = torch.empty(N, device="cuda")
    capture = captured(backend, lambda: tuned()[lambda meta: grid_of(*bad)(meta)](x, x, N, 2.0))
    with capture.active():
        bad += [32, 64]
        found = blocks(capture.probe_all(site_of(capture), among))
        assert found == {0: GridError, 1: GridError, **({2: 128} if among is None else {})}
        bad += [128]
        with pytest.raises(GridError):
            capture.probe_all(site_of(capture))


def test_what_hooks_write_for_a_probe_is_undone(backend: FakeBackend) -> None:
    """A config's own hook, or one of the tuner's. Those of other candidates are not asked."""
    x, y, gpu = torch.empty(N, device="cuda"), torch.empty(N, device="cuda"), backend.gpu
    gpu.fill(gpu.borrow(y), 7)
    ran: list[int] = []

    def hook(arguments: dict[str, Any]) -> None:
        ran.append(arguments["BLOCK"])
        gpu.fill(gpu.borrow(arguments["y_ptr"]), 0)

    listed = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, pre_hook=hook)]
    kernel = triton.autotune(listed, key=["n"])(scale_kernel)
    capture = captured(backend, lambda: kernel[by_block](x, y, N, 2.0))
    with capture.active():
        capture.probe_all(site_of(capture), {0})
        assert ran == []
        capture.probe_all(site_of(capture))
        capture.probe(site_of(capture), 1)
    assert ran == [64, 64]
    assert gpu.read(gpu.borrow(y), 1) == b"\x07"


def test_a_post_hook_hears_of_each_candidate_that_was_tried(backend: FakeBackend) -> None:
    bad: list[int] = []
    heard: list[tuple[int, Any]] = []
    x = torch.empty(N, device="cuda")
    kernel = tuned(post_hook=lambda arguments, exception: heard.append((arguments["BLOCK"], exception)))
    capture = captured(backend, lambda: kernel[lambda meta: grid_of(*bad)(meta)](x, x, N, 2.0))
    heard.clear()
    bad += [64]
    site = site_of(capture)
    with capture.active():
        found = capture.probe_all(site)
    assert heard == [(32, None), (64, found[1]), (128, None)]
    assert site.told == {Config({"BLOCK": 64})}
    heard.clear()
    failed = {c.config: ValueError(str(c.config)) for c in site.candidates[:2]}
    capture.tell_failed(site, failed)
    assert [(size, str(exc)) for size, exc in heard] == [(32, str(site.candidates[0].config))]


def test_hooks_are_called_as_for_trials_alone_in_trials(backend: FakeBackend) -> None:
    """Triton calls a ``pre_hook`` with ``reset_only`` before a launch that is no trial."""
    heard: list[bool] = []

    def pre_hook(arguments: Any, reset_only: bool = False) -> None:
        heard.append(reset_only)

    capture = captured(backend, lambda: scale(tuned(pre_hook=pre_hook, post_hook=lambda arguments, exception: None)))
    assert heard == [True]
    with capture.active():
        capture.probe(site_of(capture), 1)
    assert heard == [True, False]


def test_a_candidate_more_has_the_hook_of_one_that_was_there(backend: FakeBackend) -> None:
    def hook(arguments: dict[str, Any]) -> None:
        pass

    listed = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, num_warps=2, pre_hook=hook)]
    kernel = triton.autotune(listed, key=["n"])(scale_kernel)
    capture = captured(backend, lambda: scale(kernel))
    site, config = site_of(capture), Config({"BLOCK": 128}, num_warps=8, num_stages=5, maxnreg=96)
    assert capture.add_candidate(site, 1, config) == 2
    assert (site.candidates[2].config, site.candidates[2].hook, site.added) == (config, hook, 1)
    assert [c.config.kwargs["BLOCK"] for c in site.listed] == [32, 64]
    made = site.originals[2]
    assert (made.kwargs, made.num_warps, made.num_stages, made.maxnreg) == ({"BLOCK": 128}, 8, 5, 96)
    assert (listed[1].kwargs, listed[1].num_warps, made.pre_hook) == ({"BLOCK": 64}, 2, hook)
    assert capture.add_candidate(site, 0, config) == 3
    assert site.added == 2


def test_a_candidate_more_of_a_bare_kernel_has_no_original(backend: FakeBackend) -> None:
    capture = captured(backend, lambda: scale(scale_kernel), {"scale_kernel": (Config({"BLOCK": 32}),)})
    assert capture.add_candidate(site_of(capture), 0, Config({"BLOCK": 64})) == 1
    assert site_of(capture).originals == []


def test_bare_kernels_keep_their_winners_meanwhile(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuned kernel's is its tuner's to say, and other kernels go on as they were called."""
    ran: list[tuple[str, dict[str, Any]]] = []

    def run(jit: Any, /, *args: Any, **kwargs: Any) -> None:
        ran.append((jit.fn.__name__, {"args": args, **kwargs}))

    def op() -> None:
        scale(scale_kernel, BLOCK=16)
        increment_kernel[(1,)](torch.empty(N, device="cuda"), N, BLOCK=16)

    capture = captured(backend, op, {"scale_kernel": tuple(Config({"BLOCK": b}, num_warps=2) for b in BLOCKS)})
    site_of(capture).chosen = 2
    jit = type(scale_kernel)
    monkeypatch.setattr(jit, "run", run)
    with capture.pinned():
        scale_kernel.run(1, 2, N, grid=(1,), factor=3.0, BLOCK=16)
        increment_kernel.run(1, N, grid=(1,), BLOCK=16)
    assert jit.run is run
    (first, words), second = ran
    expected = {"x_ptr": 1, "y_ptr": 2, "n": N, "grid": (1,), "factor": 3.0, "BLOCK": 128, "num_warps": 2}
    assert (first, words["args"]) == ("scale_kernel", ())
    assert {name: words[name] for name in expected} == expected
    assert second == ("increment_kernel", {"args": (1, N), "grid": (1,), "BLOCK": 16})


def test_a_tuned_kernel_is_not_pinned(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    capture = captured(backend, lambda: scale(tuned()))
    monkeypatch.setattr(type(scale_kernel), "run", lambda jit, *args, **kwargs: ran.append((args, kwargs)))
    with capture.pinned():
        scale_kernel.run(1, BLOCK=16)
    assert ran == [((1,), {"BLOCK": 16})]


# candidates that fail


def failing(backend: Any, errors: dict[int, Exception], prefer: Any = None) -> tuple[Any, list[int]]:
    """A capture, and the candidates that it has tried, of which some fail."""
    tried: list[int] = []
    capture = Capture(backend, COMPILER, {})
    if prefer is not None:
        capture.prefer = prefer

    def launch(site: Site, any_fit: bool = False) -> Any:
        tried.append(site.chosen if not any_fit else -1 - site.chosen)
        if site.chosen in errors and not any_fit:
            raise errors[site.chosen]
        return "launched"

    capture._launch_candidate = launch  # type: ignore[method-assign]
    return capture, tried


def made_site(count: int = 3) -> Site:
    candidates = tuple(Candidate(Config({"BLOCK": 2**i})) for i in range(count))
    return Site("scale_kernel", scale_kernel, {}, candidates, lambda words: None, lambda winner: None)


def test_the_first_that_launches_is_used(backend: FakeBackend) -> None:
    capture, tried = failing(backend, {2: OutOfResourcesError("a"), 0: GridError("b")}, lambda site: (2, 0, 1))
    site = made_site()
    assert capture.launch(site) == "launched"
    assert (tried, site.chosen, site.faults) == ([2, 0, 1], 1, {})


@pytest.mark.parametrize("remembered", [False, True])
def test_faults_are_noted_unless_they_were_remembered(backend: FakeBackend, remembered: bool) -> None:
    faults = [LaunchFault("illegal address") for _ in range(3)]
    for fault in faults:
        fault.remembered = remembered
    capture, _ = failing(backend, dict(enumerate(faults)))
    site = made_site()
    with pytest.raises(TuningError, match="kernel scale_kernel: no candidate can be launched") as caught:
        capture.launch(site)
    assert site.faults == ({} if remembered else dict(enumerate(faults)))
    assert ("so the call is to blame, and nothing was remembered" in str(caught.value)) == (not remembered)
    assert str(caught.value).count("illegal address") == 1


@pytest.mark.parametrize("kind", [GridError, EnvironmentFault])
def test_what_all_candidates_fail_by_is_raised_itself(backend: FakeBackend, kind: type[Exception]) -> None:
    errors = [kind(f"error {i}") for i in range(3)]
    capture, _ = failing(backend, dict(enumerate(errors)))
    with pytest.raises(kind) as caught:
        capture.launch(made_site())
    assert caught.value is errors[0]
    capture, _ = failing(backend, {0: errors[0], 1: errors[1], 2: OutOfResourcesError("too large")})
    with pytest.raises(TuningError, match="too large"):
        capture.launch(made_site())


def test_where_nothing_runs_the_first_misfit_is_taken(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The static gate says what it lacks."""
    capture, tried = failing(backend, {0: GridError("a"), 1: OutOfResourcesError("b"), 2: OutOfResourcesError("c")})
    with pytest.raises(TuningError, match=r"no candidate can be launched\n  BLOCK=1 .*: a\n"):
        capture.launch(made_site())
    monkeypatch.setattr(backend, "gpu", None)
    tried.clear()
    site = made_site()
    assert capture.launch(site) == "launched"
    assert (tried, site.chosen) == ([0, 1, 2, -2], 1)


def test_where_nothing_runs_a_broken_compiler_ends_it(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    capture, tried = failing(backend, {0: EnvironmentFault("no room")})
    monkeypatch.setattr(backend, "gpu", None)
    with pytest.raises(EnvironmentFault, match="no room"):
        capture.launch(made_site())
    assert tried == [0]


@pytest.mark.parametrize(
    ("kind", "count", "in_order", "tried"),
    [
        (LaunchFault, 40, 12, 21),
        (LaunchTimeout, 40, 3, 8),
        (LaunchFault, 20, 12, 12),
        (OutOfResourcesError, 20, 20, 20),
    ],
)
def test_many_faults_change_the_order_and_more_end_it(
    backend: FakeBackend, kind: type[Exception], count: int, in_order: int, tried: int
) -> None:
    capture, asked = failing(backend, {i: kind(f"error {i}") for i in range(count)})
    with pytest.raises(TuningError):
        capture.launch(made_site(count))
    assert asked == [*range(in_order), *spread(range(in_order, count))][:tried]
