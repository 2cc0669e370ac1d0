"""The C front: that it does the work, leaves the rest to Python, and keeps its counts of references."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

import kerntune
from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch import codegen, native
from kerntune.kernels.dispatch import launch_path as module
from tests.kernels.dispatch.fake_driver import FakeCuda, FakeTensor, fake_cuda


@pytest.fixture(autouse=True)
def c_compiler() -> None:
    if native.module() is None:
        pytest.skip("there is no C compiler")


@pytest.fixture(params=[(1, False), (2, False), (1, True)], ids=["one device", "two devices", "driver"])
def cuda(request: pytest.FixtureRequest) -> Iterator[FakeCuda]:
    with fake_cuda(*request.param) as found:
        yield found


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls that C left to Python."""
    seen: list[Any] = []
    below = native.native_front

    def front(form: Any, fallback: Callable[..., Any], names: Any) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            seen.append((args, kwargs))
            return fallback(*args, **kwargs)

        return below(form, noted, names)

    monkeypatch.setattr(module, "native_front", front)
    return seen


def make() -> Any:
    @triton.jit
    def kernel(a, b, c, d, e, f, KIND: tl.constexpr, WHAT: tl.constexpr, BLOCK: tl.constexpr, last=3):
        pass

    return kernel


def tuned(**options: Any) -> Any:
    kernel = kerntune.autotune([triton.Config({"BLOCK": b}, **options) for b in (64, 128)], key=["d"])(make())
    kernel.cache = AnyWinner(kernel.configs[1])
    return kernel


class AnyWinner(dict[Any, Any]):
    """A tuner's cache that has a winner for every key as soon as it is asked."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, key: Any, default: Any = None) -> Any:
        return self.setdefault(key, self._config)


def descriptor() -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(FakeTensor(256, torch.float16), [64, 64], [64, 1], [16, 64])


def call(kernel: Any, grid: Any = (4,), **changed: Any) -> Any:
    given = {"a": A, "b": D, "c": 7, "d": 4096, "e": 0.5, "f": None, **changed}
    words = {"KIND": "kind", "WHAT": tl.float16}
    return kernel[grid](*given.values(), **words)


A, D = FakeTensor(1 << 12), descriptor()
GRIDS = [(4,), (4, 5), [1, 2, 3], lambda meta: (meta["BLOCK"], meta["last"])]


@pytest.mark.parametrize("grid", GRIDS, ids=["one", "two", "list", "function"])
def test_known_calls_stay_in_c(cuda: FakeCuda, left: list[Any], grid: Any) -> None:
    kernel = tuned()
    results = [call(kernel, grid) for _ in range(5)]
    assert left == []
    assert len({id(r) for r in results}) == 1
    assert len({repr(x) for x in cuda.launches}) == 1
    assert len(cuda.launches) == 5
    assert cuda.launches[0].arguments == (1 << 12, D, 7, 4096, 0.5, 3)


def test_plain_kernels_come_to_the_driver_itself() -> None:
    with fake_cuda(1, True) as cuda:
        kernel = tuned()
        for i in range(4):
            call(kernel, (i,), b=A, f=FakeTensor(40), c=-5 * i - 2, d=2**40)
        assert cuda.driven == 3, "the first took the long way, and launched nothing"
        assert [x.grid for x in cuda.launches] == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
        assert cuda.launches[-1].arguments == (1 << 12, 1 << 12, -17, 2**40, 0.5, 40, 3)


@pytest.mark.parametrize("flags", [(True, False), (False, True)])
def test_special_launches_are_left_to_tritons_launcher(flags: tuple[bool, bool]) -> None:
    with fake_cuda(1, True) as cuda:
        cuda.flags = flags
        kernel = tuned()
        for _ in range(3):
            call(kernel, b=A)
        assert cuda.driven == 0
        assert [(x.cooperative, x.pdl) for x in cuda.launches] == [flags] * 3


class Claimed(torch.Tensor):
    """A tensor with C's own ``data_ptr`` and ``dtype``, on a GPU by its word."""

    is_cuda = property(lambda self: True)  # type: ignore[assignment]

    def get_device(self) -> int:
        return 0


def test_what_a_types_own_functions_say_is_noticed_when_it_changes(left: list[Any]) -> None:
    tensor = torch.zeros(64).as_subclass(Claimed)
    with fake_cuda(1, True) as cuda:
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(pointers())
        for _ in range(3):
            kernel[(1,)](tensor)
        left.clear()
        before = cuda.driven
        kernel[(1,)](tensor)
        assert cuda.launches[-1].arguments == (tensor.data_ptr(),)
        Claimed.data_ptr = lambda self: 1 << 20  # type: ignore[method-assign]
        try:
            kernel[(1,)](tensor)
        finally:
            del Claimed.data_ptr
        assert cuda.launches[-1].arguments == (1 << 20,)
        kernel[(1,)](tensor)
        assert cuda.launches[-1].arguments == (tensor.data_ptr(),)
        assert (left, cuda.driven) == ([], before + 3)


CPU = 1
"""DLPack's number."""


@pytest.fixture
def told() -> Iterator[None]:
    """Tensors in this machine's memory count as the GPU's in torch's DLPack exchange."""
    if not native.use_exchange(native.module(), CPU):
        pytest.skip("this torch has no such exchange")
    yield
    native.use_exchange(native.module())


DTYPES = ["bool", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"]


class Asked(torch.Tensor):
    """Counts reads of its address by name."""

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    asked = 0

    def data_ptr(self) -> int:
        type(self).asked += 1
        return super().data_ptr()


@pytest.mark.parametrize(
    "wrap", [torch.Tensor.detach, lambda t: torch.nn.Parameter(t, False)], ids=["plain", "parameter"]
)
@pytest.mark.parametrize("name", DTYPES)
def test_plain_tensors_are_told_by_dlpack(
    monkeypatch: pytest.MonkeyPatch, told: None, left: list[Any], name: str, wrap: Any
) -> None:
    """As Python would find them: the entry that Python stored is found. What is on the CPU would be left to Python."""
    dtype = getattr(torch, name)
    base = torch.zeros(256, dtype=torch.uint8).view(dtype)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    with fake_cuda(1, True) as cuda:
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(pointers())
        tensors = [wrap(base[16:]), wrap(base[1:]), wrap(base[32:])]
        for tensor in tensors:
            for _ in range(3):
                kernel[(1,)](tensor)
        assert [x.arguments[0] for x in cuda.launches] == [t.data_ptr() for t in tensors for _ in range(3)]
        left.clear()
        monkeypatch.undo()
        before = cuda.driven
        for tensor in tensors:
            kernel[(1,)](tensor)
        assert (left, cuda.driven - before) == ([], 3)
        kernel[(1,)](wrap(torch.zeros(8)) if name != "float32" else wrap(torch.zeros(8, dtype=torch.int32)))
        assert len(left) == 1, "another element type is another entry"


def test_a_subclass_answers_for_itself(told: None, left: list[Any]) -> None:
    tensor = torch.zeros(64).as_subclass(Asked)
    with fake_cuda(1, True):
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(pointers())
        for _ in range(3):
            kernel[(1,)](tensor)
        left.clear()
        before = Asked.asked
        kernel[(1,)](tensor)
    assert (left, Asked.asked - before) == ([], 1)


def test_a_tensor_elsewhere_or_without_memory_is_left_to_python(told: None, left: list[Any]) -> None:
    seen: list[int] = []

    def inner(tensor: torch.Tensor) -> torch.Tensor:
        before = len(left)
        with contextlib.suppress(RuntimeError):  # no batched tensor has an address
            kernel[(1,)](tensor)
        seen.append(len(left) - before)
        return tensor

    with fake_cuda(1, True) as cuda:
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(pointers())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
            for _ in range(3):
                kernel[(1,)](torch.zeros(64))
        before = cuda.driven
        torch.vmap(inner)(torch.zeros(4, 64))
        inner(torch.zeros(64, device="meta"))
        assert (seen, cuda.driven) == ([1, 1], before)


@pytest.mark.slow
def test_told_tensors_are_not_kept(told: None, left: list[Any]) -> None:
    tensor = torch.zeros(64)
    with fake_cuda(1, True) as cuda:
        kernel = kerntune.autotune([triton.Config({"BLOCK": 64})], key=[])(pointers())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
            for _ in range(3):
                kernel[(1,)](tensor)
        gc.collect()
        before, blocks = (sys.getrefcount(tensor), sys.getrefcount(torch.float32)), sys.getallocatedblocks()
        for _ in range(1000):
            kernel[(1,)](tensor)
            cuda.launches.clear()
        gc.collect()
        assert (sys.getrefcount(tensor), sys.getrefcount(torch.float32)) == before
        assert sys.getallocatedblocks() - blocks < 100


def pointers() -> Any:
    @triton.jit
    def kernel(a, BLOCK: tl.constexpr):
        pass

    return kernel


def test_keywords_in_any_order_stay_in_c(cuda: FakeCuda, left: list[Any]) -> None:
    kernel, names = tuned(), ["a", "b", "c", "d", "e", "f", "KIND", "WHAT"]
    given = dict(zip(names, (A, D, 7, 4096, 0.5, None, True, None), strict=True))
    for turn in range(8):
        order = names[turn:] + names[:turn]
        kernel[(4,)](**{name: given[name] for name in order})
    assert left == []
    assert len({repr(x) for x in cuda.launches}) == 1


KNOBS = [
    (knobs.runtime, "debug", False),
    (knobs.runtime, "override_arch", "sm90"),
    (knobs.compilation, "always_compile", False),
    (knobs.compilation, "disable_line_info", True),
]


@pytest.mark.parametrize(("group", "name", "value"), KNOBS, ids=[name for _, name, _ in KNOBS])
@pytest.mark.parametrize("early", [True, False], ids=["set before", "set between"])
def test_calls_stay_in_c_whatever_knob_is_set(
    cuda: FakeCuda, left: list[Any], group: Any, name: str, value: Any, early: bool
) -> None:
    """Also one that is set to what it was anyway."""
    kernel = tuned()
    with group.scope():
        if not early:
            call(kernel)
        setattr(group, name, value)
        call(kernel)
        left.clear()  # when a knob is set, Triton itself does the next launch
        for _ in range(3):
            call(kernel)
        assert left == []
        assert type(kernel._path.launch).__name__ == "Front"
    assert name not in vars(group)


def test_a_knob_set_otherwise_since_is_left_to_python(cuda: FakeCuda, left: list[Any]) -> None:
    kernel = tuned()
    with knobs.compilation.scope():
        for value in (False, True):
            knobs.compilation.always_compile = value
            call(kernel)
            assert len(left) == value
            call(kernel)
            assert len(left) == value
    call(kernel)
    assert len(left) == 2


def test_hooks_are_handed_on_from_c(cuda: FakeCuda, left: list[Any]) -> None:
    seen: list[Any] = []
    kernel = tuned(pre_hook=seen.append)
    for _ in range(5):
        call(kernel)
    assert left == []
    assert len(seen) == 5
    assert seen[0] == seen[4]


def test_what_is_not_known_is_left_to_python(cuda: FakeCuda, left: list[Any]) -> None:
    kernel = tuned()
    call(kernel)
    call(kernel, c=16)
    call(kernel, c=16)
    call(kernel, a=FakeTensor(8))
    call(kernel, a=FakeTensor(8))
    call(kernel, a=FakeTensor(16, device=-1))
    assert [args[3] for args, _ in left] == [16, 7, 7], "new alignment twice, a tensor that isn't on the device"


class Broken(Exception):
    pass


def broken(*args: Any) -> Any:
    raise Broken


def errors() -> list[Any]:
    return [
        pytest.param(lambda kernel: call(kernel, broken), Broken, id="grid"),
        pytest.param(lambda kernel: call(kernel, ()), IndexError, id="empty grid"),
        pytest.param(lambda kernel: call(kernel, 5), TypeError, id="no grid"),
        pytest.param(lambda kernel: call(kernel, lambda meta: None), TypeError, id="grid of nothing"),
    ]


@pytest.mark.parametrize(("doing", "error"), errors())
def test_errors_of_a_launch_are_the_callers(
    cuda: FakeCuda, left: list[Any], doing: Callable[[Any], Any], error: type[Exception]
) -> None:
    kernel = tuned()
    call(kernel)
    for _ in range(3):
        with pytest.raises(error):
            doing(kernel)
    assert left == []
    call(kernel)
    assert len(cuda.launches) == 2


def test_an_error_of_the_driver_comes_through(cuda: FakeCuda, left: list[Any]) -> None:
    kernel = tuned()
    cuda.refuses = True
    with pytest.raises(RuntimeError, match="refused"):
        call(kernel)
    cuda.refuses = False
    call(kernel)
    cuda.refuses = True
    with pytest.raises(RuntimeError, match="refused"):
        call(kernel)
    assert left == []


def test_scratch_memory_reaches_the_driver(cuda: FakeCuda, left: list[Any]) -> None:
    cuda.scratch, asked = 32, []
    triton.set_allocator(lambda *a: asked.append(a) or FakeTensor(1 << 33))
    kernel = tuned()
    for blocks in (1, 2, 3):
        call(kernel, (blocks,), b=A)
    assert [size for size, *_ in asked] == [32, 64, 96]
    assert [getattr(x.scratch, "address", x.scratch) for x in cuda.launches] == [1 << 33] * 3
    assert left == []


@pytest.mark.slow
def test_references_are_counted(cuda: FakeCuda, left: list[Any]) -> None:
    kernel, hooked = tuned(), tuned(pre_hook=lambda named: None)
    tensor, ragged = FakeTensor(1 << 20), FakeTensor(24)
    grids = [*GRIDS, broken]

    def turn() -> None:
        for grid in grids:
            for one in (tensor, ragged):
                for which in (kernel, hooked):
                    with contextlib.suppress(Broken):
                        call(which, grid, a=one, d=1 << 30, e=1.0e10)
        cuda.launches.clear()

    def counts() -> list[int]:
        gc.collect()
        watched = (tensor, ragged, D, kernel, kernel.configs[1], kernel.best_config, *cuda.compiled, *grids, tl.float16)
        return [sys.getrefcount(x) for x in watched]

    for _ in range(3):
        turn()
    before, blocks = counts(), sys.getallocatedblocks()
    for _ in range(200):
        turn()
    assert counts() == before
    assert sys.getallocatedblocks() - blocks < 100, "nothing is left behind by 4000 launches"


def test_forms_without_c_are_launched_by_python(cuda: FakeCuda) -> None:
    kernel = tuned()
    for value in (2**40, 2**63 + 5):
        for _ in range(2):
            call(kernel, c=value)
    assert [x.arguments[2] for x in cuda.launches] == [2**40] * 2 + [2**63 + 5] * 2


def test_without_a_compiler_python_does_it_all(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "compile_c", broken)
    native.built.cache_clear()
    try:
        kernel = tuned()
        for _ in range(3):
            call(kernel)
        assert len(cuda.launches) == 3
        assert type(kernel._path.launch).__name__ == "function"
    finally:
        native.built.cache_clear()


def test_numbers_in_c_are_those_of_python() -> None:
    """The enumerations of key.c name what the tuples in Python hold, one by one."""
    text = native.c_text()
    found = [[n.strip() for n in body.split(",")] for body in re.findall(r"enum \{([^}]*)\}", text)]
    objects, entry, kinds = found
    assert objects == [name.removeprefix("kt_").upper() for name in native.OBJECTS] + ["OBJECTS"]
    short = {"scratch_size": "scratch"}
    entries = [name.removeprefix("kt_") for name in codegen.ENTRY]
    assert entry == [short.get(name, name).upper() for name in entries]
    constants = [k.replace("constant NoneType", "constant none").replace(" ", "_").upper() for k in native.KINDS]
    assert kinds == constants


def test_threads_that_want_the_c_wait_for_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Event(), threading.Event()
    compiled: list[str] = []
    below = launcher.compile_c

    def slowly(text: str, name: str) -> Any:
        compiled.append(name)
        started.set()
        assert go_on.wait(30)
        return below(text, name)

    monkeypatch.setattr(launcher, "compile_c", slowly)
    native.built.cache_clear()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first = pool.submit(native.module)
        assert started.wait(30)
        others = [pool.submit(native.module) for _ in range(2)]
        go_on.set()
        assert len({id(f.result(60)) for f in (first, *others)}) == 1
    assert len(compiled) == 1


def test_another_torchs_exchange_is_no_reason_to_do_without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "tensor_exchange", lambda: (object(), CPU, (torch.Tensor,), []))
    native.built.cache_clear()
    try:
        compiled = native.module()
        assert compiled is not None
        assert not native.use_exchange(compiled, CPU)
    finally:
        native.built.cache_clear()


@pytest.mark.parametrize("kind", [list, tuple])
def test_configs_may_be_a_list_or_a_tuple(cuda: FakeCuda, left: list[Any], kind: type) -> None:
    kernel = kerntune.autotune(kind(triton.Config({"BLOCK": b}) for b in (64, 128)), key=["d"])(make())
    kernel.cache = AnyWinner(kernel.configs[1])
    for _ in range(4):
        call(kernel)
    assert left == []


def test_a_heuristics_tuner_has_configs_that_c_understands() -> None:
    """Two that say nothing: its only one would be launched without being asked for."""

    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        pass

    tuner = kerntune.pointwise(sizes={"x": "n"}, blocks={"x": "BLOCK"})(kernel)
    assert isinstance(vars(tuner)["configs"], (list, tuple))
    assert len(tuner.configs) > 1


def part(value: Any, *, constexpr: bool = False) -> codegen.KeyPart | None:
    return codegen.part_of(value, SimpleNamespace(name="n", is_constexpr=constexpr), "n", codegen.Needs())


@pytest.mark.parametrize("value", [-(2**63), -(2**31) - 1, 2**31, 2**63 - 1])
def test_whole_numbers_of_64_bits_are_of_one_kind(value: int) -> None:
    found = part(value)
    assert found is not None
    assert found.kind == "i64"
    assert all(eval(test, {"n": value}) for test in found.tests)


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63])
def test_numbers_beyond_are_not_of_that_kind(value: int) -> None:
    found, wide = part(value), part(2**40)
    assert found is not None
    assert wide is not None
    assert found.kind != "i64"
    assert not all(eval(test, {"n": value}) for test in wide.tests)


def test_constants_whose_equality_says_nothing_of_their_code_are_left_to_triton() -> None:
    assert part(torch.float16, constexpr=True) is not None
    assert part(torch.device("cpu"), constexpr=True) is None


def test_where_the_drivers_launch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    function = ctypes.CFUNCTYPE(None)
    here = function(lambda: None)
    for found, address in ((here, ctypes.cast(here, ctypes.c_void_p).value), (function(), 0)):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, found=found: SimpleNamespace(cuLaunchKernel=found))
        assert native.driver_address() == address
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert native.driver_address() == 0
    monkeypatch.setattr(ctypes, "CDLL", lambda name: os.open("/no such library", 0))
    assert native.driver_address() == 0


def test_what_c_is_told_of_a_form_s_arguments() -> None:
    """Its kind, its place (1 is the first after the grid, 0 none), whether its value is in the key, and a constexpr."""
    parts = {"x": codegen.KeyPart("tensor"), "n": codegen.KeyPart("i32", items=("n",)), "gone": codegen.ABSENT_PART,
             "B": codegen.KeyPart("constant int", items=("B",)), "m": codegen.KeyPart("float")}  # fmt: skip
    arguments = tuple(codegen.LaunchArgument(name, name, part, name == "B") for name, part in parts.items())
    form = codegen.Form(2, ("m", "B"), arguments, False, False, False, "False", False, False)
    assert [native._parameter(form, i, argument) for i, argument in enumerate(arguments)] == [
        (6, 1, False, False), (5, 2, True, False), (0, 0, False, False), (9, 4, True, True), (3, 3, False, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("order", "words", "count", "kind", "made"),
    [
        (37, {}, 64, "i32", True), (None, {}, 64, "i32", False), (36, {"globals": True}, 64, "i32", False),
        (37, {}, 65, "i32", False), (37, {}, 1, "constant float", False), (37, {}, 0, "i32", True),
    ],
)  # fmt: skip
def test_for_which_forms_there_is_c(
    monkeypatch: pytest.MonkeyPatch, order: int | None, words: Any, count: int, kind: str, made: bool
) -> None:
    told: list[Any] = []
    compiled = SimpleNamespace(front=lambda *given: told.append(given) or "front")
    monkeypatch.setattr(launcher, "direct_order", lambda: order)
    monkeypatch.setattr(native, "module", lambda: compiled)
    part = codegen.KeyPart(kind)
    arguments = tuple(codegen.LaunchArgument(f"a{i}", f"a{i}", part, False) for i in range(count))
    flags = {"single": True, "staged": False, "one_device": True, "layouts": False, "globals": False, **words}
    form = codegen.Form(positional=count, keywords=(), arguments=arguments, settings="False", **flags)
    names = {name: name for name in native.OBJECTS} | {"kt_profiler": SimpleNamespace(flag=1)}
    assert native.native_front(form, "fallback", names) == ("front" if made else None)  # type: ignore[arg-type]
    for held, parameters, *rest in told:
        own = {"kt_fallback": "fallback", "kt_profiler": {"flag": 1}, "kt_keywords": (),
               "kt_names": tuple(a.name for a in arguments)}  # fmt: skip
        assert dict(zip(native.OBJECTS, held, strict=True)) == {**names, **own}
        assert (len(parameters), rest) == (count, [count, True, False, False, True, True, order])
    monkeypatch.setattr(native, "module", lambda: None)
    assert native.native_front(form, "fallback", names) is None  # type: ignore[arg-type]
