"""What may not be launched or raced: what needs too much, what faults; and what each config's own hook leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import triton
import triton.language as tl
from fake_runs import COMPILER, N, by_block, captured, script
from samples import H100, binary

import kerntune
from kerntune.base.config import Config
from kerntune.capture import Capture
from kerntune.capture.recorder import record
from kerntune.compiling.binary.elf import CubinResources
from kerntune.errors import ConfigError, GridError, TrialError, TuningError
from kerntune.gpu.program import Loader
from kerntune.gpu.scripted import FakeBackend, FakeGpu, FakeWork
from kerntune.gpu.scripted_work import BufferContent, filled
from kerntune.tuning import admission
from kerntune.tuning.admission import FirstLaunchFault, FirstLaunchFaults, first_contents, misfit
from kerntune.tuning.tune_call import tune_call
from kerntune.tuning.tune_options import TuneOptions
from kerntune.tuning.tuner import memory_before, tune

RIGHT = 60
MAX_CLUSTER = 16


GARBAGE = 9
"""What users' memory holds at first, in every byte."""


@triton.jit
def split_kernel(x_ptr, y_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    if SPLIT == 1:
        tl.store(y_ptr + i, v, mask=i < n)
    else:
        tl.atomic_add(y_ptr + i, v, mask=i < n)


class Sum:
    """Adds to what is there, or puts it there."""

    def __init__(self, split: bool) -> None:
        self.split = split

    def left(self, before: BufferContent) -> BufferContent:
        return filled((before.read(0, 1)[0] * self.split + RIGHT) % 256)


def by_content(gpu: FakeGpu, function: Any, grid: Any, params: Sequence[Any], addresses: Any) -> Callable[[], None]:
    """In the place of :meth:`FakeGpu.prepare`: a split kernel adds to what is there, and is faster."""
    split = function.binary.constexprs["SPLIT"] == "2"
    time_ns = 1000.0 if split else 5000.0
    place = dict(zip([p.name for p in params], addresses, strict=True))["y_ptr"]
    target = gpu._containing(place)
    assert target is not None

    def call() -> None:
        if gpu._recording is not None:
            gpu._recording.append(FakeWork(1, time_ns, time_ns, {}))
            return
        gpu.run(FakeWork(1, time_ns, time_ns, {target: (Sum(split),)}))

    return call


@pytest.fixture
def backend(this_gpu: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    script(this_gpu)
    monkeypatch.setattr(FakeGpu, "prepare", by_content)
    return this_gpu


def zeroes(gpu: FakeGpu, *names: str) -> Callable[[dict[str, Any]], None]:
    def hook(named: dict[str, Any]) -> None:
        for name in names:
            gpu.fill(gpu.borrow(named[name]), 0)

    return hook


def config(split: int, hook: Any = None, size: int = 64) -> triton.Config:
    return triton.Config({"SPLIT": split, "BLOCK": size}, pre_hook=hook)


def memory_of_a_call(gpu: FakeGpu) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    for tensor in (x, y):
        gpu.fill(gpu.borrow(tensor), GARBAGE)
    return x, y


def contents(gpu: FakeGpu, *tensors: torch.Tensor) -> list[bytes]:
    return [gpu.read(gpu.borrow(tensor), 1) for tensor in tensors]


def listed(gpu: FakeGpu, first: int) -> list[triton.Config]:
    """One config that overwrites its output, one that zeroes it and adds."""
    both = [config(1), config(2, zeroes(gpu, "y_ptr"))]
    return both if first == 1 else both[::-1]


@pytest.mark.parametrize("first", [1, 2])
def test_a_config_that_zeroes_its_output_first_is_right(
    backend: FakeBackend, first: int, recwarn: pytest.WarningsRecorder
) -> None:
    x, y = memory_of_a_call(backend.gpu)
    kernel = kerntune.autotune(listed(backend.gpu, first), key=["n"], verify="all")(split_kernel)
    kernel[by_block](x, y, N)
    assert kernel.best_config.kwargs["SPLIT"] == 2
    assert not [w for w in recwarn if "configs failed" in str(w.message)]


def test_a_config_that_forgets_its_hook_is_wrong(backend: FakeBackend) -> None:
    gpu = backend.gpu
    x, y = memory_of_a_call(gpu)
    made = [config(1), config(1, size=128), config(2, zeroes(gpu, "y_ptr")), config(2, size=128)]
    kernel = kerntune.autotune(made, key=["n"], verify="all")(split_kernel)
    with pytest.warns(RuntimeWarning, match="1 of 4 configs failed: SPLIT=2 BLOCK=128"):
        kernel[by_block](x, y, N)
    assert kernel.best_config is made[2]


def test_the_same_code_with_and_without_a_hook_is_two_trials(backend: FakeBackend) -> None:
    """A wrong result of the one, on top of earlier contents, doesn't count for the other; also in a later run."""
    gpu = backend.gpu
    for blocks in ((64, 64), (64, 64, 128)):
        x, y = memory_of_a_call(gpu)
        hooks = [None, zeroes(gpu, "y_ptr"), zeroes(gpu, "y_ptr")]
        made = [config(1), config(1, size=128), *(config(2, h, b) for h, b in zip(hooks, blocks, strict=False))]
        kernel = kerntune.autotune(made, key=["n"], verify="all")(split_kernel)
        with pytest.warns(RuntimeWarning, match=f"1 of {len(made)} configs failed: SPLIT=2"):
            kernel[by_block](x, y, N)
        assert kernel.best_config is made[3]


def test_the_calls_tensors_hold_what_they_held(backend: FakeBackend) -> None:
    """Also those that a hook alone writes, which no launch would have changed."""
    x, y = memory_of_a_call(backend.gpu)
    capture, index, memory = staged(backend, listed_with_inputs(backend.gpu), x, y)
    with capture.active():
        first_contents(capture, index, memory, range(2))
    assert contents(backend.gpu, x, y) == [bytes([GARBAGE])] * 2


def listed_with_inputs(gpu: FakeGpu) -> list[triton.Config]:
    return [config(1), config(2, zeroes(gpu, "x_ptr", "y_ptr"))]


def staged(backend: FakeBackend, made: list[triton.Config], *args: Any) -> Any:
    """A captured launch of the first of some configs, as it is about to be tuned."""
    kernel = triton.autotune(made, key=["n"])(split_kernel)
    capture = captured(backend, lambda: kernel[by_block](*args, N))
    recorded = record(capture)
    return capture, 0, memory_before(recorded, 0, Loader(backend.gpu))


def test_each_candidate_has_what_its_hook_leaves(backend: FakeBackend) -> None:
    x, y = memory_of_a_call(backend.gpu)
    made = [*listed_with_inputs(backend.gpu), config(2, zeroes(backend.gpu, "x_ptr"), 128), config(2, size=256)]
    capture, index, memory = staged(backend, made, x, y)
    with capture.active():
        found = first_contents(capture, index, memory, range(4))
    held = {i: {s: c and backend.gpu.read(c.pristine, 1) for s, c in first.items()} for i, first in found.items()}
    assert held == {0: {0: None, 1: None}, 1: {0: b"\0", 1: b"\0"}, 2: {0: b"\0", 1: None}, 3: {0: None, 1: None}}
    assert found[1][0] is found[2][0], "equal contents are one copy"
    assert not any(source.shared for first in found.values() for source in first.values() if source is not None)


@pytest.mark.parametrize("hook", [lambda named: None, None], ids=["idle", "none"])
def test_hooks_that_change_nothing_cost_nothing_more(backend: FakeBackend, hook: Any) -> None:
    x, y = memory_of_a_call(backend.gpu)
    capture, index, memory = staged(backend, [config(1, hook), config(2, hook)], x, y)
    with capture.active():
        assert first_contents(capture, index, memory, range(2)) == {}


def test_hooks_of_a_captured_launch_start_from_what_it_began_with(backend: FakeBackend) -> None:
    """The call's tensors hold by then what its launches have left."""
    gpu = backend.gpu
    x, y = memory_of_a_call(gpu)
    kernel = triton.autotune(listed(gpu, 1), key=["n"])(split_kernel)
    capture = captured(backend, lambda: kernel[by_block](x, y, N))
    gpu.fill(gpu.borrow(y), RIGHT)
    loader = Loader(gpu)
    with capture.active():
        found = tune(capture, record(capture), 0, loader, TuneOptions.now(verify="all"))
    loader.close()
    assert (found.winner, found.failures) == (1, ())
    assert contents(gpu, y) == [bytes([RIGHT])]


def test_the_one_hook_of_all_decides_by_config(backend: FakeBackend) -> None:
    """The decorator's own ``pre_hook`` sees the config, too."""
    gpu = backend.gpu
    x, y = memory_of_a_call(gpu)

    def hook(named: dict[str, Any], reset_only: bool = False) -> None:
        if named["SPLIT"] > 1:
            gpu.fill(gpu.borrow(named["y_ptr"]), 0)

    kernel = kerntune.autotune([config(1), config(2)], key=["n"], pre_hook=hook, verify="all")(split_kernel)
    kernel[by_block](x, y, N)
    assert kernel.best_config.kwargs["SPLIT"] == 2


def test_a_card_full_of_memory_is_kept_in_the_hosts(backend: FakeBackend) -> None:
    """No copy beyond a tenth of what the call holds. (The scripted GPU writes no user's memory: nothing to verify.)"""
    card, held = 128 << 30, 96 << 30
    gpu = script(backend, memory_bytes=card - held)
    x, y = torch.empty(held // 8, device="cuda"), torch.empty(held // 8, device="cuda")
    gpu.fill(gpu.borrow(y), GARBAGE)
    kernel = kerntune.autotune([config(1), config(2, zeroes(gpu, "y_ptr"))], key=["n"])(split_kernel)
    capture = Capture(backend, COMPILER)
    tune_call(
        capture, capture.site_of(kernel, (x, y, N), {"grid": by_block, "warmup": False}), TuneOptions.now(verify="off")
    )
    assert gpu.peak_bytes < held // 10
    assert contents(gpu, y) == [bytes([GARBAGE])]


# resources


@pytest.fixture
def registers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the number of registers in the cubin."""

    def say(count: int) -> None:
        resources = CubinResources("add_kernel", count, 0, 0, 128, ("add_kernel",))
        monkeypatch.setattr(admission, "cubin_resources", lambda data, symbol: resources)

    return say


def test_what_fits_is_let_through(registers: Any) -> None:
    registers(64)
    assert misfit(binary(shared=H100.shared_memory_per_block, num_warps=8), b"", H100) == ""


@pytest.mark.parametrize(
    ("count", "changes", "words"),
    [
        (32, {"shared": H100.shared_memory_per_block + 1}, "shared memory: needs 232,449 bytes a block"),
        (32, {"num_warps": 64}, "threads: needs 2,048 a block, the device has 1,024"),
        (255, {"num_warps": 32}, "registers: needs 262,144 a block, the device has 65,536"),
        (32, {"num_ctas": MAX_CLUSTER * 2}, "cluster: needs 32 blocks, the device has 16"),
    ],
)
def test_each_limit_is_named(registers: Any, count: int, changes: dict[str, Any], words: str) -> None:
    registers(count)
    assert words in misfit(binary(**changes), b"", H100)


def test_a_file_that_does_not_say_is_left_to_the_driver() -> None:
    assert misfit(binary(), b"no ELF file", H100) == ""
    hip = msgspec.structs.replace(binary(), kind="hsaco")
    assert misfit(hip, b"", H100) == ""
    assert admission._registers(hip, b"") == admission._registers(binary(), b"no ELF file") == 0


# failed first launches: which are open, which are remembered, who is to blame


def fault(number: int, hung: bool = False, contents: tuple[str, ...] = ()) -> FirstLaunchFault:
    work: Any = (f"code {number}", (number, 1, 1), contents)
    compiled: Any = None
    return FirstLaunchFault("it faulted", compiled, work, f"code {number}", [number, number + 100], hung)


def faults(*given: FirstLaunchFault) -> FirstLaunchFaults:
    found = FirstLaunchFaults()
    for one in given:
        found.add(one)
    return found


def test_a_fault_is_found_by_its_work_before_and_after_it_is_settled() -> None:
    one, two = fault(1), fault(2, contents=("mine",))
    found = faults(one)
    assert found.settle() == [one]
    found.add(two)
    assert (found.like(one.work), found.like(two.work), found.like(fault(3).work)) == (one, two, None)
    assert found.like(fault(2).work) is None, "on other contents"
    assert found.has(fault(2).work)
    assert found.has(one.work)
    assert not found.has(fault(3).work)
    assert not found.has(("code 1", (3, 1, 1), ())), "on another grid"
    assert not found.has(("code 3", (1, 1, 1), ())), "of other code"
    assert found.indices() == [2, 102, 1, 101]
    assert found.settle() == [two]
    assert found.settle() == []


def test_those_that_hung_are_taken_to_be_launched_once_more() -> None:
    found = faults(fault(1), fault(2, hung=True), fault(3, hung=True))
    assert found.hangs == 2
    assert [one.work[0] for one in found.take_hung()] == ["code 2", "code 3"]
    assert found.hangs == 0
    assert found.indices() == [1, 101]


@pytest.mark.parametrize(
    ("open_", "incumbent", "good", "blamed"),
    [
        (0, None, 0, False),
        (0, 1, 0, False),
        (1, None, 0, True),
        (1, None, 1, False),
        (2, None, 1, True),
        (1, 0, 9, True),
        (1, 5, 9, False),
    ],
)
def test_the_call_is_to_blame_for_most_and_for_the_incumbent(
    open_: int, incumbent: int | None, good: int, blamed: bool
) -> None:
    assert faults(*map(fault, range(open_))).blame_call(incumbent, good) is blamed


def test_settled_ones_blame_nobody() -> None:
    found = faults(fault(0), fault(1))
    found.settle()
    assert not found.blame_call(0, 0)


@pytest.mark.parametrize(("count", "hung", "doubt"), [(11, 0, False), (12, 0, True), (2, 2, False), (3, 3, True)])
def test_doubt_comes_with_many_faults_and_none_that_is_good(count: int, hung: int, doubt: bool) -> None:
    found = faults(*(fault(i, hung=i < hung) for i in range(count)))
    assert found.in_doubt(0) is doubt
    assert not found.in_doubt(1)
    assert not found.without_hope(1, 1)
    assert found.without_hope(0, 1) is doubt


def test_a_fault_is_no_hang_and_is_found_again_unless_it_is_said() -> None:
    found = FirstLaunchFault("it faulted", None, ("c", (1, 1, 1), ()), "c", [0])  # type: ignore[arg-type]
    assert (found.hung, found.passing) == (False, False)
    assert faults(found).hangs == 0


@pytest.mark.parametrize(
    ("own", "hooks", "may"),
    [(False, (None, None), False), (False, (None, "a hook"), True), (False, ("a hook", "a hook"), True),
     (True, (None, None), True), (None, (None,), False)],
)  # fmt: skip
def test_contents_may_differ_where_a_hook_is_the_user_s(own: bool | None, hooks: Any, may: bool) -> None:
    tuner = SimpleNamespace() if own is None else SimpleNamespace(user_defined_pre_hook=own)
    site: Any = SimpleNamespace(tuner=tuner, candidates=[SimpleNamespace(hook=hook) for hook in hooks])
    assert admission._may_differ(site) is may


@pytest.mark.parametrize(
    ("grid", "nothing"), [((0, 1, 1), True), ((4, 1, 0), True), ((4, 1, 1), False), (TrialError("no"), False),
                          (ConfigError("no"), False), (GridError("no"), False)]
)  # fmt: skip
def test_a_call_of_an_empty_grid_launches_nothing(grid: Any, nothing: bool) -> None:
    asked: list[Any] = []

    def probe(site: Any, index: int) -> Any:
        asked.append((site, index))
        if isinstance(grid, Exception):
            raise grid
        return SimpleNamespace(grid=grid)

    capture: Any = SimpleNamespace(probe=probe)
    site: Any = "the site"
    assert admission.launches_nothing(capture, site) is nothing
    assert asked == [("the site", 0)]


@pytest.mark.parametrize(
    ("grids", "empty"), [([], False), ([(0, 1, 1)], True), ([(0, 1, 1), (1, 1, 1)], False), ([(0, 1, 1)] * 2, True)]
)
def test_whether_no_candidate_launches_anything(grids: list[Any], empty: bool) -> None:
    pool: Any = SimpleNamespace(probes={i: SimpleNamespace(grid=grid) for i, grid in enumerate(grids)})
    assert admission.all_empty(pool) is empty


def test_a_hook_that_changes_nothing_costs_a_look_at_the_beginning(backend: FakeBackend) -> None:
    """Of each tensor a mebibyte, before and after; what has changed is compared as a whole."""
    gpu, large = backend.gpu, torch.empty(1 << 20, device="cuda")
    gpu.fill(gpu.borrow(large), GARBAGE)
    before = gpu.allocate(large.nbytes)
    gpu.copy(before, gpu.borrow(large))
    tried = admission._HookTrials(gpu, {0: large}, {0: before}, {0: before}, 0)
    sizes: list[tuple[int, str]] = []
    compare = gpu.compare
    gpu.compare = lambda a, b, dtype, allowed: sizes.append((b.nbytes, dtype)) or compare(a, b, dtype, allowed)  # type: ignore[method-assign, assignment, misc]
    try:
        assert tried.left_by(contextlib.nullcontext()) == {}
        assert sizes == [(1 << 20, "int64")] * 2
        sizes.clear()
        gpu.fill(gpu.borrow(large), 0)
        assert list(tried.left_by(contextlib.nullcontext())) == [0]
        assert (4 << 20, "int64") in sizes
        assert contents(gpu, large) == [bytes([GARBAGE])], "put back"
    finally:
        del gpu.compare


@pytest.mark.parametrize(("nbytes", "dtype"), [(8, "int64"), (12, "uint8"), (7, "uint8"), (0, "int64"), (64, "int64")])
def test_contents_are_compared_in_words_where_they_are_whole_words(nbytes: int, dtype: str) -> None:
    asked: list[Any] = []
    made = admission._HookTrials.__new__(admission._HookTrials)
    made.gpu = SimpleNamespace(compare=lambda *words: asked.append(words[2:]))  # type: ignore[assignment]
    buffer: Any = SimpleNamespace(nbytes=nbytes)
    assert not made._differs(buffer, buffer)
    assert asked == [(dtype, 0.0)]


def test_how_often_torch_has_changed_a_tensor() -> None:
    x = torch.ones(2)
    before = admission._version(x)
    x.add_(1)
    assert admission._version(x) == (before or 0) + 1
    with torch.inference_mode():
        assert admission._version(torch.ones(2)) is None


@pytest.mark.parametrize(
    ("incumbent", "winner", "failures"), [(None, 2, ["no 0", "no 1"]), (3, 3, []), (1, 2, ["no 1", "no 0"])]
)
def test_without_a_race_the_incumbent_is_used_or_else_the_first_that_can_be(
    incumbent: int | None, winner: int, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What launches nothing can always be used."""
    closed: list[int] = []
    monkeypatch.setattr(admission, "_broken", lambda capture, probe: f"no {probe.index}")
    probes = {i: SimpleNamespace(index=i, grid=(i // 2 - 1, 1, 1)) for i in (3, 2, 1, 0)}
    candidates = [SimpleNamespace(config=Config({"BLOCK": i})) for i in range(4)]
    site = SimpleNamespace(kernel="k", candidates=candidates)
    pool: Any = SimpleNamespace(probes=probes, site=site, close=lambda: closed.append(1))
    capture: Any = SimpleNamespace(backend=SimpleNamespace(spec=SimpleNamespace(target="cuda:90")))
    probes[3].grid = (0, 1, 1)
    found = admission.unraced(capture, pool, incumbent, "it is large")
    assert (found.winner, found.unraced, found.times_ns) == (winner, "it is large", {})
    assert [(f.config, f.reason) for f in found.failures] == [(candidates[int(f[-1])].config, f) for f in failures]
    assert (found.recording.target, closed) == ("cuda:90", [1])
    pool.probes = {i: probe for i, probe in probes.items() if i < 2}
    with pytest.raises(TuningError, match="none of its 4 configs can be used"):
        admission.unraced(capture, pool, incumbent, "it is large")
