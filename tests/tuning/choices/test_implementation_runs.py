"""First runs of implementations, with what launches elsewhere replaced: what is launched there, and what is said."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerntune.errors import BackendError, LaunchFault, LaunchTimeout, TrialError, UsageError
from kerntune.tuning.choices import implementation_runs
from kerntune.tuning.choices.implementation_runs import FOLLOWS, ImplementationRuns, like, named_fault, unwatched
from kerntune.tuning.isolation import Isolate, IsolationError

JIT: Any = SimpleNamespace(arg_names=["x", "n"])


class World:
    """A device, and a process that launches elsewhere. ``comes`` are what launches there come to, in order."""

    def __init__(self) -> None:
        self.grid, self.follows, self.wanted, self.unsaid = (4, 1, 1), False, True, [[], []]
        self.unprotected: list[str] = []
        self.comes: list[Any] = []
        self.known: LaunchFault | None = None
        self.device = 0
        self.done: list[Any] = []
        gpu = SimpleNamespace(
            spec=SimpleNamespace(name="Fake"), unprotected=lambda: self.unprotected, synchronize=self.note("waits")
        )
        self.backend: Any = SimpleNamespace(ordinal=0, gpu=gpu, on=self.on)
        self.isolation = SimpleNamespace(gpu=gpu, why_not="no room", begin=self.note("begins"))
        self.faults: Any = SimpleNamespace(of=lambda launch: self.known, keep=lambda *given: self.done.append(given))

    def note(self, what: str) -> Any:
        return lambda: self.done.append(what)

    def on(self, device: int) -> Any:
        self.done.append(f"on {device}")
        return self.backend

    @contextlib.contextmanager
    def lent(self, gpu: Any, mode: Isolate) -> Iterator[Any]:
        self.isolation.wanted = self.wanted
        yield self.isolation

    def probe(self, backend: Any, jit: Any, args: Any, kwargs: Any) -> Any:
        if args and isinstance(args[0], Exception):
            raise args[0]
        return SimpleNamespace(grid=self.grid, specialized=SimpleNamespace(jit=jit, args=(args, kwargs)))

    def compile(self, specialized: Any) -> Any:
        return SimpleNamespace(access=SimpleNamespace(follows=self.follows))

    def launch(self, isolation: Any, plan: Any, probe: Any, compiled: Any) -> str:
        self.done.append(probe.specialized.args)
        found = self.comes.pop(0) if self.comes else ""
        if isinstance(found, Exception):
            raise found
        return str(found)

    def launches(self) -> list[Any]:
        """What was launched elsewhere."""
        return [one for one in self.done if isinstance(one, tuple) and isinstance(one[0], tuple)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    for name, value in {
        "_launched": set(),
        "captures_graph": lambda: False,
        "runs_backward": lambda: False,
        "kernel_name": lambda jit: "k",
        "launch_device": lambda backend, kernel, named: found.device,
        "probe_of": found.probe,
        "Plan": lambda backend: None,
        "recording_of": lambda plan, probe, compiled: probe.specialized.args,
        "like": lambda recording: len(recording[0]),
        "unsaid": lambda gpu: found.unsaid.pop(0),
        "device_of": lambda gpu: "device",
        "launch_elsewhere": found.launch,
    }.items():
        monkeypatch.setattr(implementation_runs, name, value)
    monkeypatch.setattr(implementation_runs.KEPT_ISOLATION, "lent", found.lent)
    monkeypatch.setattr(implementation_runs.context, "COMPILER", found)
    monkeypatch.setattr(implementation_runs.BareLaunch, "of", lambda probe, recording, name: (name, recording[0]))
    return found


def runs_of(world: World, mode: Isolate = Isolate.AUTO) -> ImplementationRuns:
    world.unsaid = [["the GPU is shared"], *([] for _ in range(9))]
    made = ImplementationRuns("mm", world.backend, mode, world.faults)
    made.launches = SimpleNamespace(begin=world.note("begin"), end=world.note("end"))  # type: ignore[assignment]
    return made


ONE, OTHER, LONGER = (("a",), {"n": 1}), (("b",), {"n": 1}), (("a", "b"), {})


def launch(runs: ImplementationRuns, given: Any) -> None:
    runs._before(JIT, *given)


def test_of_launches_that_are_alike_one_is_made_elsewhere(world: World) -> None:
    runs = runs_of(world)
    for given in (ONE, ONE, OTHER, LONGER, ONE):
        launch(runs, given)
    assert world.launches() == [ONE, LONGER]
    assert world.done == ["begins", "waits", ONE, "begins", "begins", "waits", LONGER, "begins"]
    assert runs.notes == ["the GPU is shared"]
    again = runs_of(world)
    launch(again, ONE)
    assert world.launches() == [ONE, LONGER], "this process has launched it before"


def test_a_launch_on_another_device_is_made_there(world: World) -> None:
    world.device = 1
    launch(runs_of(world), ONE)
    assert world.done[0] == "on 1"
    assert world.launches() == [ONE]


@pytest.mark.parametrize("quiet", ["graph", "empty grid", "no launch at all", "wrong call"])
def test_what_can_not_or_need_not_be_launched_is_left_alone(
    world: World, quiet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, given = runs_of(world), ONE
    if quiet == "graph":
        monkeypatch.setattr(implementation_runs, "captures_graph", lambda: True)
    elif quiet == "empty grid":
        world.grid = (4, 0, 1)
    else:
        given = ((TrialError("no") if quiet == "no launch at all" else UsageError("no"),), {})
    launch(runs, given)
    assert (world.done, runs.notes) == ([], [])


@pytest.mark.parametrize(("backward", "count"), [(False, 0), (True, 1)])
def test_of_other_threads_only_backward_functions_are_launched(
    world: World, backward: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation_runs, "runs_backward", lambda: backward)
    thread = threading.Thread(target=launch, args=(runs_of(world), ONE))
    thread.start()
    thread.join()
    assert len(world.launches()) == count


def test_torch_says_where_backward_functions_run() -> None:
    x, seen = torch.ones(1, requires_grad=True).clone(), list[bool]()
    x.register_hook(lambda grad: seen.append(implementation_runs.runs_backward()))
    x.sum().backward()
    assert (seen, implementation_runs.runs_backward()) == ([True], False)


def test_a_fault_is_raised_by_name_and_kept_once_another_has_run(world: World) -> None:
    runs = runs_of(world)
    world.comes = [LaunchFault("illegal address")]
    for _ in range(2):
        with pytest.raises(LaunchFault, match=r"^kernel k: illegal address$"):
            launch(runs, ONE)
    assert world.launches() == [ONE], "not again"
    assert isinstance(runs._refused, LaunchFault)
    runs.keep_faults()
    runs.keep_faults()
    assert world.done[3:] == ["begins", (("Fake", ("a",)), "illegal address")]


def test_a_fault_that_passes_is_not_kept_and_an_earlier_one_is_named(world: World) -> None:
    runs = runs_of(world)
    world.comes = [LaunchFault("memory is short")]
    world.comes[0].passing = True
    with pytest.raises(LaunchFault, match=r"^kernel k: memory is short$") as raised:
        launch(runs, ONE)
    assert raised.value.passing
    assert not raised.value.remembered
    runs.keep_faults()
    assert len(world.done) == 3
    world.known = LaunchFault("it hung")
    world.known.remembered = True
    with pytest.raises(LaunchFault, match=r"^kernel k: an earlier run found that it hung \(KERNTUNE_TUNE=force tries"):
        launch(runs, LONGER)
    assert world.launches() == [ONE]
    assert named_fault("k", world.known).remembered


@pytest.mark.parametrize(("comes", "fails"), [([1], False), ([1, 1], True)])
def test_only_what_is_late_twice_is_late(world: World, comes: list[int], fails: bool) -> None:
    world.comes = [LaunchTimeout("did not end") for _ in comes]
    with pytest.raises(LaunchFault, match="did not end") if fails else contextlib.nullcontext():
        launch(runs_of(world), ONE)
    assert world.launches() == [ONE, ONE]


@pytest.mark.parametrize("why", ["no process", FOLLOWS, "no room", "not here"])
def test_what_runs_here_first_is_said_once_and_always_refuses_it(world: World, why: str) -> None:
    first, second = ONE, OTHER
    if why == "not here":
        first = second = ((BackendError(why),), {})
    world.follows, world.wanted, world.comes = why == FOLLOWS, why != "no room", ["no process"] * 9
    runs = runs_of(world)
    for given in (first, second):
        runs._last = None
        launch(runs, given)
    assert runs.notes[-1] == f"choice mm: kernel k ran first in this process: {why}"
    assert len(runs.notes) == 1 + (why != "not here"), "and what protects nothing"
    with pytest.raises(IsolationError) as raised:
        launch(runs_of(world, Isolate.ALWAYS), first)
    assert str(raised.value) == (
        f"kernel k: its first launch can't be made in a process of its own: {why} (isolate=always)"
    )


def test_on_a_device_that_protects_nothing_there_is_no_note(world: World) -> None:
    world.wanted, world.unprotected = False, ["the GPU is shared"]
    runs = runs_of(world)
    launch(runs, ONE)
    assert (runs.notes, world.launches()) == (["the GPU is shared"], [])


def test_one_run_is_watched(world: World) -> None:
    runs = runs_of(world)
    watching = implementation_runs._watching.runs
    with runs.watched():
        launch(runs, ONE)
        assert (world.done[0], watching) == ("begin", [runs])
    assert (world.done[-1], watching, runs._last) == ("end", [], None)
    world.done.clear()
    off = runs_of(world, Isolate.OFF)
    with off.watched():
        assert watching == []
    assert world.done == []


@pytest.mark.parametrize("then", ["goes on", "raises another", "raises it"])
def test_a_refused_launch_ends_the_run_whatever_is_made_of_it(world: World, then: str) -> None:
    runs = runs_of(world)
    world.comes = [LaunchFault("illegal address")]
    another = ValueError("no")

    def run() -> None:
        with runs.watched():
            try:
                launch(runs, ONE)
            except LaunchFault as exc:
                if then != "goes on":
                    raise (another if then == "raises another" else exc) from None

    with pytest.raises(LaunchFault, match="illegal address") as raised:
        run()
    assert (raised.value is runs._refused, world.done[-1]) == (True, "end")
    assert (raised.value.__cause__ is another) is (then == "raises another")
    with runs.watched():
        assert runs._refused is None, "the next one begins anew"


def test_an_error_of_an_implementation_is_its_own(world: World) -> None:
    with pytest.raises(ValueError, match="mine"), runs_of(world).watched():
        raise ValueError("mine")
    assert world.done == ["begin", "end"]


def test_while_a_decision_is_timed_nothing_is_watched(world: World) -> None:
    runs = runs_of(world)
    with runs.watched():
        with contextlib.suppress(ValueError), unwatched():
            assert world.done == ["begin", "end"]
            raise ValueError("broken")
        assert world.done == ["begin", "end", "begin"]


def recording(*values: Any, grid: Any = (8, 1, 1), sha: str = "s", sizes: Any = (64, 64)) -> Any:
    """One launch; a text is a tensor in the storage of that number."""
    views = {f"v{v}": SimpleNamespace(storage=int(v)) for v in values if isinstance(v, str)}
    params = [SimpleNamespace(view=f"v{v}" if isinstance(v, str) else None, value=v) for v in values]
    return SimpleNamespace(
        launches=[SimpleNamespace(grid=grid, params=params)],
        views=views,
        storages=[SimpleNamespace(nbytes=n) for n in sizes],
        binary_of=lambda launch: SimpleNamespace(sha256=sha),
    )


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (recording("0", 5, 0.5), True),
        (recording("0", 7, 99.0, grid=(15, 1, 1), sizes=(127, 64)), True),
        (recording("0", 8, 0.5), False),
        (recording("0", -5, 0.5), False),
        (recording("1", 5, 0.5), False),
        (recording("0", 5, 0.5, grid=(16, 1, 1)), False),
        (recording("0", 5, 0.5, sizes=(128, 64)), False),
        (recording("0", 5, 0.5, sha="t"), False),
        (recording("0", 5, None), False),
        (recording("0", 5), True),
    ],
)
def test_launches_are_alike_by_the_digits_of_their_sizes(other: Any, alike: bool) -> None:
    assert (like(recording("0", 5, 0.5)) == like(other)) is alike
