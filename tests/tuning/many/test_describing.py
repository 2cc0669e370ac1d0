"""A call becomes data, and a call like it again: what a winner depends on is the same, what tensors hold is nowhere."""

from __future__ import annotations

import pickle
import sys
import types
from types import SimpleNamespace
from typing import Any

import gluon_kernels
import pytest
import torch
import triton
import triton.language as tl
from doubles import raising
from fake_runs import COMPILER, configs, increment_kernel, scale_kernel
from hypothesis import given, settings
from hypothesis import strategies as st

import kerntune
from kerntune.base.config import Config
from kerntune.base.tuning_job import SCHEMA, ScalarText, TuningJob, scalar_of, scalar_text
from kerntune.capture import Capture
from kerntune.errors import StoreError, UsageError
from kerntune.gpu.made_arguments import make_arguments
from kerntune.gpu.scripted import FakeBackend
from kerntune.tuning.many import describing
from kerntune.tuning.many.describing import describe, name_of, tuner_of
from kerntune.tuning.many.tune_many import tuning_job
from kerntune.tuning.stored_winners import exact_arguments
from tuning.many import kernels

MODULE = "tuning.many.kernels"

pytestmark = pytest.mark.usefixtures("shared")


def no_function(text: object) -> Any:
    raise AssertionError(text)


def again(job: TuningJob) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call like the described one, after a way through a file."""
    return make_arguments(TuningJob.from_json(job.to_json()), no_function)


# names


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (kernels.scaled, "scaled"),
        (kernels.plain, "plain"),
        (kernels.below_kernel, "below_kernel"),
        (kernels.above_kernel.fn, "above_kernel"),
        (kernels.Kernels.held, "held"),
        (kernels.proposed_kernel, "proposed_kernel"),
    ],
)
def test_a_tuner_is_found_by_its_name(kernel: Any, name: str) -> None:
    if name == "held":
        with pytest.raises(UsageError, match="no module has its tuner"):
            name_of(kernel)  # its function's own name is another one
        assert tuner_of(MODULE, "Kernels.held") is kernel
        return
    assert name_of(kernel) in ((MODULE, name), ("fake_runs", name))
    found = tuner_of(MODULE, name)
    assert found is kernel or found.fn is kernel


def test_a_kernel_that_no_module_holds_says_so() -> None:
    local = kerntune.autotune(configs(64, 128), key=["n"])(scale_kernel)
    job = describe(local, (*kernels.pair(4), 4, 2.0), {"grid": (1,)})
    assert "scale_kernel" in job.unknown
    assert "top level of a module" in job.unknown
    with pytest.raises(UsageError, match="top level of a module"):
        tuning_job(local, (1,), *kernels.pair(4), 4, 2.0)


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        ("os", "system", "no kernel of that name"),
        ("tuning.many.kernels", "grid", "no kernel of that name"),
        ("tuning.many.kernels", "gone", "no kernel of that name"),
        ("tuning.many.test_describing", "TRAP.kernel", "no kernel of that name"),  # a property isn't called
        ("no_such_module_here", "kernel", "there is no module no_such_module_here here"),
        ("__import__('os')", "x", "are no names"),
        ("a;b", "x", "are no names"),
    ],
)
def test_a_name_in_a_file_reaches_kernels_alone(module: str, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tuner_of(module, name)


def test_modules_can_be_limited() -> None:
    assert tuner_of(MODULE, "scaled", ("tuning",)) is kernels.scaled
    with pytest.raises(UsageError, match=r"only other may be imported; add --module tuning\.many"):
        tuner_of(MODULE, "scaled", ("other",))


class Trap:
    @property
    def kernel(self) -> Any:
        raise AssertionError("called")


TRAP = Trap()


# arguments


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 2**40),
    factor=st.floats() | st.integers(-5, 5) | st.booleans() | st.none() | st.text(max_size=5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]),
    shape=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    turned=st.booleans(),
    offset=st.integers(0, 3),
    positional=st.integers(0, 4),
    lists=st.booleans(),
)
def test_the_winners_key_is_the_same(
    shared: FakeBackend, n: int, factor: Any, dtype: Any, shape: list[int], turned: bool, offset: int, positional: int,
    lists: bool,
) -> None:  # fmt: skip
    """Text by text what :func:`exact_arguments` makes of both calls, and each pointer's alignment."""
    x = torch.empty(shape, device="cuda", dtype=dtype)
    x = x.transpose(0, -1) if turned else x
    y = torch.empty(64, device="cuda", dtype=dtype)[offset:]
    given = {"x_ptr": x, "y_ptr": [y, (n, None)] if lists else y, "n": n, "factor": factor}
    names = list(given)
    args, words = tuple(given.values())[:positional], {k: given[k] for k in names[positional:]}
    job = describe(kernels.scaled, args, {**words, "grid": (4, 2)})
    assert job.unknown == ""
    new_args, new_words = again(job)
    assert len(new_args) == positional
    assert new_words.pop("grid") == (4, 2)

    def text(args: Any, words: Any) -> str:
        site = Capture(shared, COMPILER).site_of(kernels.scaled, args, {**words, "grid": (1,)})
        return exact_arguments(site)

    assert text(tuple(new_args), new_words) == text(args, words)
    made = {**dict(zip(names, new_args, strict=False)), **new_words}
    assert made["x_ptr"].data_ptr() % 256 == x.data_ptr() % 256
    new_y = made["y_ptr"][0] if lists else made["y_ptr"]
    assert new_y.data_ptr() % 256 == y.data_ptr() % 256


@settings(deadline=None)
@given(value=st.floats() | st.integers() | st.booleans() | st.none() | st.text())
def test_scalars_come_back_exactly(value: Any) -> None:
    text = scalar_text(value)
    assert text is not None
    assert repr(scalar_of(text)) == repr(value)


def test_what_is_no_scalar_is_refused() -> None:
    assert scalar_text(object()) is None
    for kind, text in (("bool", "yes"), ("int", "1.5"), ("eval", "1"), ("float", "__import__('os')")):
        with pytest.raises(UsageError, match="is no scalar"):
            scalar_of(ScalarText(kind, text))


def vars_of(argument: Any) -> tuple[int, int, int]:
    return argument.value.block, argument.value.nbytes, argument.value.offset


def test_tensors_that_overlap_overlap_again(shared: FakeBackend) -> None:
    """A kernel that works in place, or on the parts of one buffer, has other times than one with memory of its own."""
    whole = torch.empty(1000, device="cuda")
    job = describe(kernels.scaled, (whole[10:500], whole[20:600], 480, 2.0), {"grid": (1,)})
    (x, y, _, _), _ = again(job)
    assert y.data_ptr() - x.data_ptr() == 40
    assert [vars_of(a) for a in job.arguments[:2]] == [(0, 2360, 0), (0, 2360, 40)]
    inner = describe(kernels.scaled, (whole[10:500], whole[20:30], 480, 2.0), {"grid": (1,)})
    assert [vars_of(a) for a in inner.arguments[:2]] == [(0, 1960, 0), (0, 1960, 40)]
    apart = describe(kernels.scaled, (whole[:500], whole[500:], 480, 2.0), {"grid": (1,)})
    assert apart.digest() != job.digest()
    assert {a.value.block for a in apart.arguments[:2]} == {0, 1}  # type: ignore[union-attr]


def test_a_small_view_of_a_large_buffer_needs_little_memory(shared: FakeBackend) -> None:
    huge = torch.empty(1 << 40, device="cuda")
    job = describe(kernels.scaled, (huge[1 << 20 : (1 << 20) + 64], huge[:64], 64, 2.0), {"grid": (1,)})
    assert [a.value.nbytes for a in job.arguments[:2]] == [256, 256]  # type: ignore[union-attr]


def test_dtypes_constants_and_kernels_are_arguments(shared: FakeBackend) -> None:
    given = {"x_ptr": torch.float16, "y_ptr": tl.float16, "n": tl.constexpr(3), "factor": scale_kernel}
    job = describe(kernels.scaled, (), {**given, "grid": (1,)})
    assert job.unknown == ""
    _, words = make_arguments(job, lambda text: (text.module, text.name))
    assert (words["x_ptr"], words["y_ptr"], words["n"].value) == (torch.float16, tl.float16, 3)
    assert words["factor"] == ("fake_runs", "scale_kernel")


def test_a_gluon_descriptor_is_named_whose_layout_is_no_data(shared: FakeBackend) -> None:
    job = describe(kernels.scaled, (gluon_kernels.tiles(64, 64), *kernels.pair(4)[1:], 4, 2.0), {"grid": (1,)})
    assert "argument x_ptr is a triton.experimental.gluon.nvidia.hopper.TensorDescriptor, which can't" in job.unknown


def test_an_object_is_named_that_has_no_description(shared: FakeBackend) -> None:
    job = describe(kernels.scaled, (*kernels.pair(4), object(), 2.0), {"grid": (1,)})
    assert "argument n is a builtins.object, which can't be described as data" in job.unknown


def test_meta_tensors_do(shared: FakeBackend) -> None:
    x = torch.empty(1 << 50, device="meta")
    job = tuning_job(kernels.scaled, (1,), x, x, 4, 2.0)
    assert [a.value.shape for a in job.arguments[:2]] == [(1 << 50,)] * 2  # type: ignore[union-attr]


def test_no_contents() -> None:
    """The CPU's tensors have some that could be found."""
    secret = torch.full((4,), 1234567.0)
    job = describe(kernels.scaled, (secret, secret, 4, 2.0), {"grid": (1,)})
    assert b"1234567" not in job.to_json()
    assert b"tensor" in job.to_json()


def test_contents_are_in_range_of_every_size() -> None:
    index = torch.zeros(50, dtype=torch.int32)
    table = torch.zeros(7, 3)
    job = describe(kernels.scaled, (index, table, 4, 2.0), {"grid": (1,)})
    (made, values, _, _), _ = again(job)
    assert made.min() >= 0
    assert made.max() < 3
    assert len(values.unique()) > 10


# grids


def test_the_grid_of_each_config(shared: FakeBackend) -> None:
    job = describe(kernels.scaled, (*kernels.pair(1000), 1000, 2.0), {"grid": kernels.grid(1000)})
    _, words = again(job)
    assert [words["grid"]({"BLOCK": b, "n": 5}) for b in (64, 128, 256)] == [(16,), (8,), (4,)]
    with pytest.raises(UsageError, match=r"scaled.*its grid is not known for BLOCK=512"):
        words["grid"]({"BLOCK": 512})


def test_the_grid_sees_what_heuristics_set(shared: FakeBackend) -> None:
    x = torch.empty(192, device="cuda")
    grid = lambda meta: (1 if meta["EVEN"] else 2,)  # noqa: E731
    job = describe(kernels.below_kernel, (x, 192), {"grid": grid})
    _, words = again(job)
    assert [words["grid"]({"BLOCK": b}) for b in (64, 128)] == [(1,), (2,)]


def test_a_grid_that_fails_for_a_config_leaves_that_out(shared: FakeBackend) -> None:
    job = describe(
        kernels.scaled, (*kernels.pair(4), 4, 2.0), {"grid": lambda meta: (4 // (meta["BLOCK"] - 64), meta["BLOCK"])}
    )
    assert sorted(job.grid.by_meta) == ["BLOCK=128", "BLOCK=256"]


# as data


def test_a_job_is_plain_names() -> None:
    job = TuningJob(SCHEMA, "m", "k", configs=(Config({"BLOCK": 64}),))
    assert TuningJob.from_json(job.to_json()) == job
    assert pickle.loads(pickle.dumps(job.to_json())) == job.to_json()
    assert b"\n" not in job.to_json()


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[1]", b'{"schema": "kerntune.shapes/1"}', b"\xff", b'{"schema":"other","module":"m","kernel":"k"}'],
)
def test_damage_is_named(line: bytes) -> None:
    with pytest.raises(StoreError, match="here:3"):
        TuningJob.from_json(line, "here:3")


def test_where_the_file_lies_makes_no_other_job() -> None:
    one, other = (TuningJob(SCHEMA, "m", "k", file=name) for name in ("/a/m.py", "/b/m.py"))
    assert one.digest() == other.digest() != TuningJob(SCHEMA, "m", "k2").digest()


def test_pruning_is_asked_with_the_calls_arguments(shared: FakeBackend) -> None:
    job = describe(pruned, (*kernels.pair(128)[:1], 128), {"grid": kernels.grid(128)})
    assert sorted(job.grid.by_meta) == ["BLOCK=128", "BLOCK=64"]


def no_larger(found: Any, named: Any, **_: Any) -> Any:
    return [config for config in found if config.kwargs["BLOCK"] <= named["n"]]


pruned = triton.autotune(configs(64, 128, 256), key=["n"], prune_configs_by={"early_config_prune": no_larger})(
    increment_kernel
)


def test_memory_without_an_address_is_counted_behind_the_others() -> None:
    x, meta = torch.empty(8), torch.empty(8, device="meta")
    blocks = describing._Blocks([x, (meta, meta[2:])])
    found = [blocks.tensor(value) for value in (meta, x, meta[2:])]
    assert [(text.block, text.nbytes, text.offset) for text in found] == [(1, 32, 0), (0, 32, 0), (2, 24, 0)]
    assert [text.host for text in found] == [False, True, False]


def test_pieces_that_touch_are_two_and_those_that_overlap_are_one() -> None:
    x = torch.empty(16)
    touching, overlapping = (describing._Blocks([x[:8], x[n:]]) for n in (8, 7))
    assert [touching.tensor(t).block for t in (x[:8], x[8:])] == [0, 1]
    assert [overlapping.tensor(t).block for t in (x[:8], x[7:])] == [0, 0]
    assert describing._span(x[:0])[0] == describing._span(x[:0])[1]
    assert describing._span(x.view(4, 4).t()[:2])[1] - x.data_ptr() == 4 * 14


class Kernel:
    """As a kernel looks to who asks for its name."""

    def __init__(self, function: Any) -> None:
        self.fn = function

    def run(self) -> None:
        """Nothing."""


def test_a_kernel_is_found_in_any_module_but_the_program_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> None:
        """Of no module."""

    kernel, holder = Kernel(function), types.ModuleType("holder")
    monkeypatch.setattr(describing, "function_of", lambda given: function)
    monkeypatch.setitem(sys.modules, "a lazy one", object())  # type: ignore[misc]
    program = types.ModuleType("__main__")
    vars(program)["kernel_of_main"] = kernel
    monkeypatch.setitem(sys.modules, "__main__", program)
    with pytest.raises(UsageError, match=r"kernel .*function \(.*\): no module has its tuner as an attribute"):
        name_of(kernel)
    vars(holder)["alias"] = kernel
    monkeypatch.setitem(sys.modules, "holder", holder)
    assert name_of(kernel) == ("holder", "alias")


@pytest.mark.parametrize(
    ("spec", "file", "name"),
    [
        (SimpleNamespace(name="package.tool.__main__"), "/a/x.py", "package.tool"),
        (SimpleNamespace(name="package.tool"), "/a/x.py", "package.tool"),
        (SimpleNamespace(name=""), "/a/script.py", "script"),
        (None, "/a/script.py", "script"),
        (None, "/a/my-script.py", None),
        (None, "<stdin>", None),
        (None, "/a/script", None),
    ],
)
def test_a_program_is_imported_as_it_is_called(
    spec: Any, file: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    function: Any = SimpleNamespace(__qualname__="k", __code__=SimpleNamespace(co_filename=file))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec, raising=False)
    assert describing._importable("another", function) == "another"
    if name is not None:
        assert describing._importable("__main__", function) == name
        return
    with pytest.raises(UsageError, match="is defined in a program that can't be imported; put the kernel into a mod"):
        describing._importable("__main__", function)


def test_the_key_is_of_a_tuner_alone(shared: FakeBackend) -> None:
    assert describe(kernels.scaled, (*kernels.pair(4), 4, 2.0), {"grid": (1,)}).key != ""
    assert describing._key(SimpleNamespace(), (), {}) == ""


@pytest.mark.parametrize(("grid", "sizes"), [(5, (5,)), ((1, 2), (1, 2)), ([3, 4, 5], (3, 4, 5)), (True, (1,))])
def test_a_grid_is_one_to_three_numbers(grid: Any, sizes: tuple[int, ...]) -> None:
    assert describing._sizes(grid) == sizes


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("no", name="package"), "there is no module package here; install it, or give its folder"),
        (ModuleNotFoundError("no", name="package.kernels"), "there is no module package.kernels here"),
        (ModuleNotFoundError("no", name="numpy"), "importing package.kernels failed: ModuleNotFoundError: no"),
        (ModuleNotFoundError("no"), "importing package.kernels failed: ModuleNotFoundError: no"),
        (ImportError("no", name="package"), "importing package.kernels failed: ImportError: no"),
        (ValueError("bad"), "importing package.kernels failed: ValueError: bad"),
    ],
)
def test_what_an_import_says_is_told(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing.importlib, "import_module", raising(error))
    with pytest.raises(UsageError) as caught:
        tuner_of("package.kernels", "k")
    assert str(caught.value).startswith(f"kernel package.kernels.k: {told}")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("module", "allowed", "may"),
    [("a.b", (), True), ("a.b", ("a",), True), ("a.b", ("a.b",), True), ("a.b", ("c", "a"), True),
     ("ab", ("a",), False), ("a", ("a.b",), False)],
)  # fmt: skip
def test_a_module_is_one_that_was_named_or_within_it(
    module: str, allowed: tuple[str, ...], may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describing, "_imported", lambda module, name: SimpleNamespace(k=Kernel(None)))
    if may:
        assert isinstance(tuner_of(module, "k", allowed), Kernel)
        return
    with pytest.raises(UsageError, match=f"only {', '.join(allowed)} may be imported; add --module {module}"):
        tuner_of(module, "k", allowed)
