"""The prepared launch against Triton's own: the same binary, grid, stream and arguments, whatever is called."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton import knobs
from triton.runtime.jit import JITFunction

import kerntune
from kerntune.kernels.compat import tuners
from kerntune.kernels.dispatch import launch_path as module
from kerntune.kernels.dispatch import native
from tests.kernels.dispatch.fake_driver import FakeCuda, FakeTensor, Launched, fake_cuda

BLOCKS = (64, 128, 256)


def make(**options: Any) -> Any:
    """A new kernel each time, with caches of its own."""

    @triton.jit(**options)
    def kernel(x, y, n, factor, WIDE: tl.constexpr, BLOCK: tl.constexpr, extra=3, MODE: tl.constexpr = "plain"):
        pass

    return kernel


def tuned(jit: Any = None, blocks: tuple[int, ...] = BLOCKS, **options: Any) -> Any:
    """A tuner whose winners are known already: some config for every key."""
    configs = [triton.Config({"BLOCK": b}, num_warps=4) for b in blocks]
    kernel = kerntune.autotune(configs, key=["n"], **options)(jit or make())
    return kernel


def choose(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Put a winner for a call into the tuner's cache, if there is none."""
    ordered = {name: kwargs[name] for name in kernel.arg_names if name in kwargs}
    key = tuners.autotuner_key(kernel, dict(zip(kernel.arg_names, args, strict=False)), ordered)
    pick = kernel.configs[zlib.crc32(repr(key[0]).encode()) % len(kernel.configs)]
    return kernel.cache.setdefault(key, pick)


@pytest.fixture(params=["python", "C", "driver"])
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The ways that a form is launched: in Python, in C through Triton's launcher, in C by the driver."""
    if request.param == "python":
        monkeypatch.setattr(module, "native_front", lambda *args: None)
    elif native.module() is None:
        pytest.skip("there is no C compiler")
    return request.param


@pytest.fixture
def cuda(front: str) -> Iterator[FakeCuda]:
    with fake_cuda(driven=front == "driver") as found:
        yield found


def call(kernel: Any, *args: Any, grid: Any = (4,), **kwargs: Any) -> Any:
    if len(kernel.configs) > 1:
        choose(kernel, args, kwargs)
    return kernel[grid](*args, **kwargs)


def as_triton_does(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    config = choose(kernel, args, kwargs)
    return kernel.fn.run(*args, grid=grid, warmup=False, **kwargs, **config.all_kwargs())


X, Y = FakeTensor(1 << 12), FakeTensor(1 << 16)


def args(**changed: Any) -> tuple[Any, ...]:
    """x, y, n, factor, WIDE."""
    values = {"x": X, "y": Y, "n": 4096, "factor": 2.0, "WIDE": True, **changed}
    return tuple(values.values())


# the same launches

tensors = st.builds(
    FakeTensor,
    address=st.sampled_from([0, 16, 4096, 8, 4100, 1 << 40]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool]),
)
whole = st.sampled_from([0, 1, 2, 15, 16, 17, -16, 2**31 - 1, 2**31, 2**31 + 16, -(2**31) - 1, 2**63 - 1, 2**63])
scalars = whole | st.integers(-100, 100) | st.booleans() | st.sampled_from([0.0, -0.0, 1.0, 2.5]) | st.none()
constants = st.sampled_from([True, 1, 1.0, 0, 0.0, -0.0, False, None, "a", "1", torch.float16, tl.float16])
grids = st.sampled_from(
    [(1,), (4, 2), (1, 2, 3), [5], (0,), lambda meta: (meta["BLOCK"], meta["extra"]), lambda meta: (len(meta), 1, 7)]
)


@st.composite
def calls(draw: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    values = {
        "x": draw(tensors),
        "y": draw(tensors | st.none()),
        "n": draw(scalars),
        "factor": draw(scalars | tensors),
        "WIDE": draw(constants),
    }
    positional = draw(st.integers(0, 5))
    items = list(values.items())
    rest = items[positional:]
    if draw(st.booleans()):
        rest.append(("extra", draw(whole)))
    if draw(st.booleans()):
        rest.append(("MODE", draw(constants)))
    words = dict(draw(st.permutations(rest)))
    return draw(grids), tuple(v for _, v in items[:positional]), words


def annotated() -> Any:
    @triton.jit
    def kernel(
        x: tl.const, y, n: tl.int64, factor: tl.float32, WIDE: tl.constexpr, BLOCK: tl.constexpr, extra: tl.uint8 = 3,
        MODE: tl.constexpr = "plain",
    ):  # fmt: skip
        pass

    return kernel


KERNELS = [
    make,
    lambda: make(do_not_specialize=["n", "y"]),
    lambda: make(do_not_specialize_on_alignment=["n", "x"], debug=True),
    annotated,
]


WHERE = st.tuples(st.integers(1, 2), st.booleans())
"""How many devices there are, and whether C launches come to the driver itself."""


def compare(cuda: FakeCuda, kernel: Any, grid: Any, values: tuple[Any, ...], words: dict[str, Any]) -> None:
    """One call both ways, Triton's first: it compiles."""
    expected = as_triton_does(kernel, grid, values, words)
    result = call(kernel, *values, grid=grid, **words)
    assert len(cuda.launches) in (0, 2), "an empty grid launches nothing"
    assert len({repr(x) for x in cuda.launches}) <= 1, "repr: 0.0 and -0.0 are told apart"
    cuda.launches.clear()
    assert result is expected
    assert kernel.best_config is choose(kernel, values, words)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(calls(), min_size=1, max_size=6), st.booleans(), WHERE, st.sampled_from(KERNELS))
def test_it_launches_what_triton_would(sequence: Any, single: bool, where: Any, jit: Callable[[], Any]) -> None:
    with fake_cuda(*where) as cuda:
        kernel = tuned(jit(), blocks=(64,) if single else BLOCKS)
        for grid, values, words in sequence * 2:
            compare(cuda, kernel, grid, values, words)


CHOICES = {"x": tensors, "y": tensors | st.none(), "n": whole, "factor": whole, "WIDE": constants, "extra": whole}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data(), st.booleans(), WHERE, st.sampled_from(KERNELS))
def test_it_tells_neighbours_apart_as_triton_does(
    data: st.DataObject, single: bool, where: Any, jit: Callable[[], Any]
) -> None:
    """Calls that differ in one argument: what one prepares is the other's temptation."""
    base = {name: data.draw(values, label=name) for name, values in CHOICES.items()}
    varied = data.draw(st.lists(st.sampled_from(sorted(CHOICES)), min_size=4, max_size=12), label="varied")
    neighbours = [{**base, name: data.draw(CHOICES[name], label=name)} for name in varied]
    with fake_cuda(*where) as cuda:
        kernel = tuned(jit(), blocks=(64,) if single else BLOCKS)
        for words in (base, *neighbours) * 2:
            values = [words[name] for name in ("x", "y", "n", "factor", "WIDE")]
            compare(cuda, kernel, (1,), tuple(values), {"extra": words["extra"]})


PAIRS: list[tuple[str, Any, Any]] = [
    ("factor", 1, 17), ("factor", 17, 32), ("factor", 32, 2**31), ("factor", 5, 2**31 + 5), ("factor", 5, -(2**31) - 3),
    ("factor", 2**63 - 1, 2**63 + 1), ("factor", 1.0, 1), ("factor", True, 1), ("factor", None, 0),
    ("x", FakeTensor(16), FakeTensor(8)), ("x", FakeTensor(16), FakeTensor(16, torch.int32)),
    ("y", FakeTensor(16), None), ("y", FakeTensor(4), FakeTensor(0)), ("WIDE", "a", "b"), ("WIDE", 1.0, 2.0),
    ("WIDE", tl.float16, tl.float32), ("WIDE", 0, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "one", "other"), PAIRS)
def test_pairs_that_compile_differently(cuda: FakeCuda, slow: list[Any], name: str, one: Any, other: Any) -> None:
    kernel = tuned()
    for _ in range(3):
        for value in (one, other):
            call(kernel, *args(**{name: value}))
    assert [x.function for x in cuda.launches] == [1000, 1001] * 3
    assert len(slow) == 2


@pytest.mark.parametrize("in_place", [False, True], ids=["the list", "what is in it"])
def test_a_list_that_was_cut_to_one_config_leaves_no_choice(cuda: FakeCuda, in_place: bool) -> None:
    """As in Triton: then that config is launched, not the winner of before."""
    kernel = tuned()
    for _ in range(3):
        call(kernel, *args())
    (other, *_) = [config for config in kernel.configs if config is not kernel.best_config]
    if in_place:
        kernel.configs[:] = [other]
    else:
        kernel.configs = [other]
    for _ in range(3):
        kernel[(4,)](*args())
        assert kernel.best_config is other


def test_configs_set_parameters_that_have_defaults(cuda: FakeCuda, slow: list[Any]) -> None:
    configs = [triton.Config({"BLOCK": 64, "extra": e, "MODE": m}) for e, m in ((5, "a"), (7, "b"))]
    kernel = kerntune.autotune(configs, key=["n"])(make())
    seen: list[dict[str, Any]] = []
    for n in (1, 2, 3, 4) * 2:
        extra = choose(kernel, args(n=n), {}).kwargs["extra"]
        call(kernel, *args(n=n), grid=lambda meta: seen.append(meta) or (meta["extra"],))
        assert cuda.launches[-1].grid == (extra, 1, 1)
        assert cuda.launches[-1].arguments[-1] == extra
        assert seen[-1]["MODE"] == ("a" if extra == 5 else "b")
    assert len({m["MODE"] for m in seen}) == 2, "both configs win for some"
    assert len(slow) == 4


def test_the_second_launch_goes_past_triton(cuda: FakeCuda, slow: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned()
    call(kernel, *args())
    monkeypatch.setattr(kernel.fn, "device_caches", kernel.fn.device_caches)
    binder = kernel.fn.device_caches[0][4]
    bound: list[Any] = []
    kernel.fn.device_caches[0] = (*kernel.fn.device_caches[0][:4], lambda *a, **k: bound.append(a) or binder(*a, **k))
    for _ in range(5):
        call(kernel, *args())
    assert len(slow) == 1
    assert bound == [], "no arguments are bound by Triton any more"
    assert len(cuda.launches) == 6
    assert len({repr(x) for x in cuda.launches}) == 1
    assert len(cuda.compiled) == 1


CHANGES: list[dict[str, Any]] = [
    {"x": FakeTensor(4100)}, {"y": FakeTensor(8, torch.float16)}, {"y": None}, {"n": 1}, {"n": 4095}, {"n": 2**40},
    {"factor": 2}, {"factor": 1}, {"factor": True}, {"WIDE": "1"}, {"WIDE": 2.0}, {"WIDE": None},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_changes_the_binary_is_slow_once(cuda: FakeCuda, slow: list[Any], change: dict[str, Any]) -> None:
    kernel = tuned()
    for _ in range(3):
        call(kernel, *args())
        call(kernel, *args(**change))
    assert len(slow) == 2
    one, other = cuda.launches[-2:]
    assert one.function != other.function
    assert [x.function for x in cuda.launches] == [one.function, other.function] * 3


def test_other_values_of_the_same_kind_are_passed_on(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tuned(blocks=(64,))
    for factor in (3, 5, 7):
        call(kernel, *args(n=factor * 16, factor=factor + 0.5, x=FakeTensor(factor * 16)))
    assert len(slow) == 1
    assert [x.arguments[:4] for x in cuda.launches] == [(f * 16, 1 << 16, f * 16, f + 0.5) for f in (3, 5, 7)]


def test_arguments_by_keyword_and_defaults(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tuned()
    named = dict(zip(("x", "y", "n", "factor", "WIDE"), args(), strict=True))
    for _ in range(3):
        call(kernel, **named)
        call(kernel, *args()[:2], **dict(list(named.items())[2:]))
        call(kernel, **named, extra=17)
    assert len(slow) == 3
    assert [x.arguments[-1] for x in cuda.launches[:3]] == [3, 3, 17]


def test_the_grid_is_asked_at_every_call(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel, sizes = tuned(), iter((1, 2, 3))
    seen: list[dict[str, Any]] = []
    for _ in range(3):
        call(kernel, *args(), grid=lambda meta: seen.append(dict(meta)) or (next(sizes),))
    assert [x.grid for x in cuda.launches] == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
    assert len(slow) == 1
    assert seen[1] == seen[0]
    assert list(seen[0]) == kernel.arg_names
    assert set(seen[1]) == set(kernel.arg_names)


def test_the_stream_is_the_current_one(cuda: FakeCuda) -> None:
    kernel = tuned()
    for stream in (1, 2, 3):
        cuda.stream = stream
        call(kernel, *args())
    assert [x.stream for x in cuda.launches] == [1, 2, 3]


def test_each_device_has_its_own_binary(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tuned()
    for _ in range(3):
        for device in (0, 1):
            cuda.device = device
            call(kernel, *args(x=FakeTensor(16, device=device), y=None))
    assert len(slow) == 2
    assert [x.function for x in cuda.launches] == [1000, 1001] * 3


@pytest.mark.parametrize(("devices", "device"), [(2, 1), (2, -1), (1, -1)])
def test_tensors_that_live_elsewhere_are_tritons_to_judge(
    cuda: FakeCuda, slow: list[Any], monkeypatch: pytest.MonkeyPatch, devices: int, device: int
) -> None:
    """Triton's launcher checks the address with the driver; the prepared launch would pass it unchecked."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    kernel = tuned()
    call(kernel, *args())
    for _ in range(2):
        call(kernel, *args(y=FakeTensor(1 << 16, device=device)))
    assert len(slow) == 3


@pytest.mark.parametrize("flags", [(True, False), (False, True), (True, True)])
def test_cooperative_and_dependent_launches(cuda: FakeCuda, slow: list[Any], flags: tuple[bool, bool]) -> None:
    cuda.flags = flags
    kernel = tuned()
    for _ in range(2):
        call(kernel, *args())
    assert [(x.cooperative, x.pdl) for x in cuda.launches] == [flags] * 2
    assert len(slow) == 1


def test_scratch_memory_is_asked_for_at_every_launch(cuda: FakeCuda, slow: list[Any]) -> None:
    cuda.scratch, asked = 32, []
    kernel = tuned()
    triton.set_allocator(lambda *a: asked.append(a) or "memory")
    for blocks in (2, 3):
        call(kernel, *args(), grid=(blocks,))
    assert asked == [(64, 16, 77), (96, 16, 77)]
    assert [x.scratch for x in cuda.launches] == ["memory"] * 2
    assert len(slow) == 1


# descriptors


class Base(FakeTensor):
    pass


def descriptor(block: int, dtype: torch.dtype = torch.float16) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(Base(256, dtype), [64, 64], [64, 1], [block, 64])


def test_descriptors_are_left_to_tritons_launcher(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tuned()
    for _ in range(3):
        for block in (16, 32):
            given = descriptor(block)
            call(kernel, *args(x=given))
            assert cuda.launches[-1].arguments[0] is given
    assert len(slow) == 2
    assert len({x.function for x in cuda.launches}) == 2


# hooks and heuristics


def test_a_configs_hook_sees_what_triton_shows_it(cuda: FakeCuda, slow: list[Any]) -> None:
    seen: list[dict[str, Any]] = []
    configs = [triton.Config({"BLOCK": b}, pre_hook=seen.append) for b in BLOCKS]
    kernel = kerntune.autotune(configs, key=["n"])(make())
    named = dict(zip(kernel.arg_names, args(), strict=False))
    for _ in range(4):
        config = choose(kernel, args(), {"MODE": "a"})
        kernel[(4,)](*args(), MODE="a")
        assert kernel.best_config is config
    assert len(slow) == 2, "one for the tuner, one for the kernel itself"
    assert seen == [{**named, "grid": (4,), "warmup": False, "MODE": "a", **config.all_kwargs()}] * 4
    assert len({repr(x) for x in cuda.launches}) == 1
    assert len(cuda.launches) == 4


def test_a_hook_may_change_a_descriptors_block(cuda: FakeCuda, slow: list[Any]) -> None:
    def hook(named: dict[str, Any]) -> None:
        named["x"].block_shape = [named["BLOCK"], 64]

    configs = [triton.Config({"BLOCK": b}, pre_hook=hook) for b in (16, 32)]
    kernel = kerntune.autotune(configs, key=["n"])(make())
    for _ in range(3):
        for n in (1, 2, 3, 4):
            given = args(x=descriptor(64), n=n)
            call(kernel, *given)
            block = choose(kernel, given, {}).kwargs["BLOCK"]
            assert cuda.launches[-1].arguments[0].block_shape == [block, 64]
    assert all("[64" not in kernel.src.signature["x"] for kernel in cuda.compiled)
    tuners = [s for s in slow if hasattr(s[0].config, "kwargs")]
    assert len(tuners) == 4, "one for each value of the key"


def test_heuristics_are_asked_at_every_launch(cuda: FakeCuda, slow: list[Any]) -> None:
    seen: list[dict[str, Any]] = []

    def wide(named: dict[str, Any]) -> bool:
        seen.append(dict(named))
        return bool(named["factor"] > 5)

    inner = triton.heuristics({"WIDE": wide})(triton.heuristics({"MODE": lambda named: str(named["WIDE"])})(make()))
    kernel = kerntune.autotune([triton.Config({"BLOCK": b}) for b in BLOCKS], key=["n"])(inner)
    for factor in (1.0, 9.0, 2.0, 8.0):
        given = (X, Y, 64, factor)
        choose(kernel, given, {})
        kernel[(4,)](*given)
    assert [x.function for x in cuda.launches] == [1000, 1001, 1000, 1001]
    assert len([s for s in slow if hasattr(s[0].config, "kwargs")]) == 1
    assert all(s == {**seen[0], "factor": s["factor"]} for s in seen)
    assert len(seen) == 4


def test_a_stage_sees_another_winner(cuda: FakeCuda) -> None:
    configs = [triton.Config({"BLOCK": b}, pre_hook=lambda named: None) for b in BLOCKS]
    kernel = kerntune.autotune(configs, key=["n"])(make())
    call(kernel, *args())
    (key,) = kernel.cache
    blocks = []
    for config in configs:
        kernel.cache[key] = config
        for _ in range(2):
            kernel[lambda meta: blocks.append(meta["BLOCK"]) or (1,)](*args())
    assert blocks == [64, 64, 128, 128, 256, 256]


# when the long way must be taken


def unusual() -> list[Any]:
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook

    def stands_in(jit: Any, *args: Any, run: Any = JITFunction.run, **kwargs: Any) -> Any:
        return run(jit, *args, **kwargs)

    return [
        pytest.param(lambda p, k, s: p.setattr(knobs.runtime, "debug", True), id="debug"),
        pytest.param(lambda p, k, s: p.setattr(knobs.compilation, "instrumentation_mode", "x"), id="instrumentation"),
        pytest.param(lambda p, k, s: p.setattr(torch.autograd.profiler, "_is_profiler_enabled", True), id="profiler"),
        pytest.param(lambda p, k, s: hooked(k.fn.add_pre_run_hook, k.fn.pre_run_hooks.remove, s), id="run hook"),
        pytest.param(lambda p, k, s: hooked(enter.add, enter.remove, s), id="enter hook"),
        pytest.param(lambda p, k, s: hooked(leave.add, leave.remove, s), id="exit hook"),
        pytest.param(lambda p, k, s: p.setattr(knobs.runtime, "launch_exit_hook", nothing), id="bare hook"),
        pytest.param(lambda p, k, s: p.setattr(JITFunction, "run", stands_in), id="something stands in"),
    ]


def nothing(*args: Any, **kwargs: Any) -> None:
    """A hook."""


def hooked(add: Callable[[Any], None], remove: Callable[[Any], None], stack: contextlib.ExitStack) -> None:
    """Add a hook, until the stack ends."""
    add(nothing)
    stack.callback(remove, nothing)


@pytest.mark.parametrize("make_unusual", unusual())
def test_the_long_way_is_taken_while_something_listens(
    cuda: FakeCuda, slow: list[Any], monkeypatch: pytest.MonkeyPatch, make_unusual: Callable[..., None]
) -> None:
    kernel = tuned()
    call(kernel, *args())
    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        make_unusual(patch, kernel, stack)
        call(kernel, *args())
        call(kernel, *args())
    assert len(slow) == 3
    for _ in range(3):
        call(kernel, *args())
    assert len(slow) <= 4, "afterwards launches are prepared again"


def test_a_profile_names_kernel_hash_config_grid_and_stream(cuda: FakeCuda) -> None:
    kernel = tuned(blocks=(64,))
    call(kernel, *args())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        call(kernel, *args())
    (name,) = [e.key for e in profile.key_averages() if e.key.startswith("kernel")]
    assert name == f"kernel [{kernel.fn.cache_key[:12]}] {kernel.configs[0]} grid=(4, 1, 1) stream=77"


def test_options_given_by_the_call_are_tritons(cuda: FakeCuda, slow: list[Any]) -> None:
    kernel = tuned()
    call(kernel, *args())
    with pytest.raises(TypeError):
        call(kernel, *args(), num_warps=8)
    assert len(slow) == 1


def test_too_many_arguments_and_wrong_names_fail_as_ever(cuda: FakeCuda) -> None:
    kernel = tuned(blocks=(64,))
    for _ in range(2):
        with pytest.raises(TypeError):
            call(kernel, *args(), 1, 2, 3, 4, 5)
        with pytest.raises((KeyError, TypeError)):
            call(kernel, *args(), no_such=1)
        with pytest.raises(TypeError):
            call(kernel, *args(), x=1)
        call(kernel, *args())


# what makes prepared launches stale


def changes_of_caches() -> list[Any]:
    def other(kernel: Any) -> None:
        (key,) = kernel.cache
        kernel.cache[key] = next(c for c in kernel.configs if c is not kernel.cache[key])

    return [
        pytest.param(other, id="another winner"),
        pytest.param(lambda k: k.fn.device_caches.clear(), id="device_caches cleared"),
        pytest.param(lambda k: k.fn.device_caches[0][0].clear(), id="kernels cleared"),
    ]


@pytest.mark.parametrize("change", changes_of_caches())
def test_changed_caches_drop_prepared_launches(cuda: FakeCuda, slow: list[Any], change: Any) -> None:
    kernel = tuned()
    call(kernel, *args())
    call(kernel, *args())
    change(kernel)
    for _ in range(2):
        call(kernel, *args())
        call(kernel, *args())
    assert len(slow) == 2
    assert len(cuda.compiled) == 2
    assert [x.function for x in cuda.launches] == [1000, 1000, 1001, 1001, 1001, 1001]


def test_an_emptied_cache_tunes_again(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned()
    call(kernel, *args())
    call(kernel, *args())
    kernel.cache.clear()
    monkeypatch.setattr("kerntune.tuning.tuned_call._Call.tune", lambda *a: "tuned")
    assert kernel[(4,)](*args()) == "tuned"


SCALE = tl.constexpr(2)


def test_changed_globals_are_refused_as_triton_does(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuned(blocks=(64,))
    space: dict[str, Any] = {"SCALE": SCALE}
    kernel.fn.used_global_vals = {("SCALE", id(space)): (SCALE, space)}
    call(kernel, *args())
    call(kernel, *args())
    space["SCALE"] = tl.constexpr(3)
    with pytest.raises(RuntimeError, match="SCALE has changed"):
        call(kernel, *args())


def test_ever_new_values_do_not_fill_the_memory(
    cuda: FakeCuda, slow: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    kernel = tuned()
    for n in range(2, 12):
        call(kernel, *args(n=n))
    (prepared,) = kernel._path._forms.values()
    assert len(slow) == 10
    assert [len(p.table) for p in prepared] == [1], "all are dropped when there are three"


def test_ever_new_forms_do_not_fill_the_memory(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FORMS", 2)
    kernel = tuned(blocks=(64,))
    counts = []
    for count in range(6):
        words = dict(zip(("x", "y", "n", "factor", "WIDE"), args(), strict=True))
        by_position = [words.pop(name) for name in list(words)[:count]]
        call(kernel, *by_position, **words)
        counts.append(len(kernel._path._forms))
    assert counts == [1, 2, 1, 2, 1, 2]


def test_a_kernel_with_its_config_stands_for_a_tuner() -> None:
    launched: list[Any] = []
    jit = SimpleNamespace(arg_names=["x", "BLOCK"], run=lambda *given, **words: launched.append((given, words)))
    fixed = module.KernelWithConfig(jit, {"BLOCK": 64, "num_warps": 4})
    (config,) = fixed.configs
    assert (fixed.fn, fixed.arg_names, fixed.best_config, fixed.cache) == (jit, ["x", "BLOCK"], config, {})
    assert (config.pre_hook, config.all_kwargs()) == (None, {"BLOCK": 64, "num_warps": 4})
    fixed.run((1,), {"num_warps": 8})
    assert launched == [((1,), {"BLOCK": 64, "num_warps": 8})]


def test_hooks_and_heuristics_see_what_triton_shows_them() -> None:
    """Each function what those before it have set; a hook the config last, a heuristic the call's keywords last."""
    seen: list[dict[str, Any]] = []

    def noted(result: Any) -> Any:
        return lambda shown: seen.append(dict(shown)) or result

    path = SimpleNamespace(launch=lambda *given, **words: (given, words))
    layers = [(["a"], {"EVEN": noted(True)}), (["a", "b"], {"WIDE": noted(8)})]
    words = {"BLOCK": 64, "b": "config's"}
    stage = module.Stage(SimpleNamespace(pre_hook=noted(None)), layers, ["a", "b"], path, words)
    assert stage.launch("grid", (1,), {"b": 2}) == (("grid", 1), {"b": 2, "EVEN": True, "WIDE": 8})
    launching = {"grid": "grid", "warmup": False}
    assert seen == [
        {"a": 1, **launching, "b": "config's", "BLOCK": 64}, {"a": 1, **launching, "BLOCK": 64, "b": 2},
        {"a": 1, **launching, "BLOCK": 64, "b": 2, "EVEN": True},
    ]  # fmt: skip
    stage.config.pre_hook = None
    stage.launch("grid", (1,), {"b": 2})
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("words", "given", "rest"),
    [
        ({"BLOCK": 64}, {"x"}, {"BLOCK": 64, "last": 3}),
        ({"BLOCK": 64, "last": 4}, {"x"}, {"BLOCK": 64, "last": 4}),
        ({"BLOCK": 64}, {"x", "last"}, {"BLOCK": 64}),
        ({"BLOCK": 64}, {"x", "BLOCK"}, None),
        ({}, {"x"}, None),
    ],
)
def test_what_a_call_leaves_out_is_the_config_s_or_a_default(words: Any, given: set[str], rest: Any) -> None:
    params = [SimpleNamespace(name=name, has_default=default is not None, default=default)
              for name, default in {"x": None, "BLOCK": None, "last": 3}.items()]  # fmt: skip
    form: Any = SimpleNamespace(arguments=[SimpleNamespace(name=p.name, given=p.name in given) for p in params])
    config = SimpleNamespace(all_kwargs=lambda: words)
    assert module._rest(form, SimpleNamespace(params=params), config) == rest


def test_where_triton_keeps_a_kernel() -> None:
    one, other = object(), object()
    jit = SimpleNamespace(device_caches={0: ({"a": other},), 1: ({"b": other, "c": one}, "more")})
    assert (module._slot_of(jit, one), module._slot_of(jit, object())) == ("c", None)


@pytest.mark.slow
def test_a_tuner_can_be_forgotten(cuda: FakeCuda) -> None:
    kernel = tuned()
    call(kernel, *args())
    call(kernel, *args())
    gone, tensor = weakref.ref(kernel), FakeTensor(32)
    call(kernel, *args(x=tensor))
    argument = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert argument() is None
    del kernel
    gc.collect()
    assert gone() is None


def test_threads_launch_what_they_were_given(cuda: FakeCuda) -> None:
    kernel = tuned()
    for n in range(8):
        choose(kernel, args(n=n), {})

    def work(n: int) -> None:
        for i in range(50):
            kernel[(n + 1,)](*args(n=n, factor=float(n), x=FakeTensor(16 * i)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(cuda.launches) == 400
    for launched in cuda.launches:
        factor = launched.arguments[-2]
        assert launched.grid == (int(factor) + 1, 1, 1)
        assert factor == 1.0 or launched.arguments[2] == factor
    assert len({(x.function, x.grid) for x in cuda.launches}) == 8


def test_fields_that_are_compared() -> None:
    """The comparison above includes all arguments of a C launcher."""
    assert set(Launched.__dataclass_fields__) == {
        "function", "grid", "stream", "cooperative", "pdl", "packed", "arguments", "scratch"
    }  # fmt: skip


def test_what_a_tuner_has_prepared_is_dropped() -> None:
    """Tables that users' functions hold are emptied; one that is retired leaves each call to the tuner."""
    tuner = SimpleNamespace(run=lambda *given, **words: ("run", given, words), arg_names=[])
    path = module.LaunchPath(tuner, lambda args, kwargs: module.LaunchOutcome("slow"), module.Needs())
    assert path in module._paths
    for drop in (path.drop, path.retire):
        table: Any = {"key": ()}
        path._forms["form"] = [module.Prepared(None, None, None, None, table)]  # type: ignore[arg-type]
        path._stages[1] = path.launch = None  # type: ignore[assignment]
        drop()
        assert (table, path._forms, path._stages, path.launch) == ({}, {}, {}, path._first)
    assert path._slow((1,), {"grid": 2}) == (("run", (1,), {"grid": 2}), None)
