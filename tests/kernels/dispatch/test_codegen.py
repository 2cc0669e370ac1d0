"""The parts of a prepared launch's text: which tests, key items and values each argument adds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton.language as tl

from kerntune.kernels.compat import launcher
from kerntune.kernels.dispatch import codegen
from kerntune.kernels.dispatch.codegen import Form, KeyPart, LaunchArgument, Needs, part_of


def param(name: str = "n", constexpr: bool = False, annotation: str = "") -> Any:
    return SimpleNamespace(name=name, is_constexpr=constexpr, annotation_type=annotation)


class TensorDescriptor(SimpleNamespace):
    """As Triton's, by its name and fields."""


TENSOR = torch.empty(4)
DESCRIPTOR = TensorDescriptor(base=TENSOR, shape=[4], strides=[1], block_shape=[4])
GLUONS = TensorDescriptor(**vars(DESCRIPTOR), layout="a layout")
PLAIN, EXACT, LATER = Needs(), Needs(exact=("n",)), Needs(binary=False)
LAID_OUT, ONE = Needs(exact=("n",), layouts=True), Needs(one_device=True)
HERE = "x.get_device() == kt_device"
ADDRESS = ("x_at = x.data_ptr()",)


@pytest.mark.parametrize(
    ("value", "needs", "part"),
    [
        (None, PLAIN, KeyPart("none", tests=("x is None",))),
        (True, PLAIN, KeyPart("bool", tests=("x.__class__ is bool",), value="x")),
        (0.5, EXACT, KeyPart("float", tests=("x.__class__ is float",), items=("x",), value="x")),
        (7, LATER, KeyPart("int", tests=("x.__class__ is int",), value="x")),
        (7, EXACT, KeyPart("int", tests=("x.__class__ is int",), items=("x",), value="x")),
        (7, PLAIN, KeyPart("i32", tests=("x.__class__ is int", "-2147483648 <= x <= 2147483647"),
                           items=("2 if x == 1 else not x & 15",), value="x")),
        (TENSOR, PLAIN, KeyPart("tensor", ADDRESS, (HERE,), ("x.dtype",), "x_at", "x_at")),
        (TENSOR, ONE, KeyPart("tensor", ADDRESS, ("x.is_cuda",), ("x.dtype",), "x_at", "x_at")),
        (TENSOR, LATER, KeyPart("tensor", tests=(HERE,), items=("x.dtype",))),
        (TENSOR, LAID_OUT, KeyPart("tensor", ADDRESS, (HERE,), ("x.dtype", "x.shape", "x.stride()"), "x_at", "x_at")),
        (TENSOR, EXACT, None),
        (DESCRIPTOR, PLAIN, KeyPart("descriptor", tests=("x.base.get_device() == kt_device",),
                                    items=("x.__class__", "x.base.dtype", "tuple(x.block_shape)"), value="x")),
        (DESCRIPTOR, LATER, KeyPart("descriptor", tests=("x.base.get_device() == kt_device",), items=("x.__class__",),
                                    value="x")),
        (DESCRIPTOR, EXACT, None),
        (GLUONS, PLAIN, None),
        (SimpleNamespace(**vars(DESCRIPTOR)), PLAIN, None),
        ("text", PLAIN, None),
    ],
)  # fmt: skip
def test_the_part_of_an_argument(value: Any, needs: Needs, part: KeyPart | None) -> None:
    assert part_of(value, param(), "x", needs) == part


@pytest.mark.parametrize(("annotation", "takes"), [("", True), ("*fp32", True), ("i64", False)])
def test_a_tensor_s_address_is_passed_for_a_pointer_alone(annotation: str, takes: bool) -> None:
    assert (part_of(TENSOR, param(annotation=annotation), "x", PLAIN) is not None) is takes


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (True, KeyPart("constant bool", tests=("x.__class__ is bool",), items=("x",))),
        (1, KeyPart("constant int", tests=("x.__class__ is int",), items=("x",))),
        ("a", KeyPart("constant str", tests=("x.__class__ is str",), items=("x",))),
        (None, KeyPart("constant NoneType", tests=("x.__class__ is None.__class__",), items=("x",))),
        (1.0, KeyPart("constant float", tests=("x.__class__ is float",), items=("x.hex()",))),
        (tl.float16, KeyPart("constant object", items=("x.__class__", "x"))),
        (torch.float16, KeyPart("constant object", items=("x.__class__", "x"))),
        (tl.constexpr(3), None),
        (SimpleNamespace(), None),
        (type("dtype", (), {})(), None),
        ((1, 2), None),
    ],
)
def test_the_part_of_a_constant(value: Any, part: KeyPart | None) -> None:
    assert part_of(value, param(constexpr=True), "x", PLAIN) == part


RANGES = {
    "u64": [2**63, 2**64 - 1],
    "i64": [-(2**63), -(2**31) - 1, 2**31, 2**63 - 1],
    "i32": [-(2**31), -1, 0, 2**31 - 1],
}


@pytest.mark.parametrize("kind", RANGES)
def test_an_integer_s_type_is_the_first_that_holds_it(kind: str) -> None:
    for value in RANGES[kind]:
        found, within = codegen._range_of(value, "x")
        assert found == kind
        held = [other for other in RANGES for x in RANGES[other] if eval(within, {"x": x})]
        assert held == [kind] * len(RANGES[kind])


def form(*arguments: LaunchArgument, **words: Any) -> Form:
    found: dict[str, Any] = {"positional": 1, "keywords": (), "settings": "False"}
    found |= dict.fromkeys(("single", "staged", "one_device", "layouts", "globals"), False)
    return Form(arguments=arguments, **{**found, **words})


def argument(name: str, value: Any, constexpr: bool = False, variable: str = "") -> LaunchArgument:
    variable = variable or name
    part = part_of(value, param(name, constexpr), variable, PLAIN)
    assert part is not None
    return LaunchArgument(name, variable, part, constexpr)


ABSENT = LaunchArgument("last", "last", codegen.ABSENT_PART, False)


def key_of(made: Form, names: dict[str, Any]) -> Any:
    return codegen.make(codegen.key_text(made), "kt_key", names)


class FakeGpuTensor:
    def __init__(self, address: int, device: int = 3) -> None:
        self.dtype, self.shape, self._address, self._device = "fp32", (4,), address, device
        self.is_cuda = True

    def data_ptr(self) -> int:
        return self._address

    def get_device(self) -> int:
        return self._device


NAMES = {
    "kt_absent": codegen, "kt_current_device": lambda: 3, "kt_JITFunction": SimpleNamespace(run="run"), "kt_run": "run",
    "kt_profiler": SimpleNamespace(_is_profiler_enabled=False), "kt_entering": [], "kt_leaving": [], "kt_running": [],
}  # fmt: skip


def test_the_key_of_a_call() -> None:
    """The device, what each argument adds in order, and which pointers aren't aligned, if any isn't."""
    arguments = [
        argument("x", TENSOR, variable="kt_0"),
        argument("y", TENSOR),
        argument("n", 7),
        argument("B", 4, True),
    ]
    key = key_of(form(*arguments, ABSENT, keywords=("y", "n", "B")), NAMES)
    one, other = FakeGpuTensor(64), FakeGpuTensor(68)
    assert key(one, y=one, n=32, B=4) == (3, "fp32", "fp32", True, 4, 0)
    assert key(one, y=other, n=7, B=4) == (3, "fp32", "fp32", False, 4, (True, False))
    assert key(other, y=one, n=1, B=8) == (3, "fp32", "fp32", 2, 8, (False, True))
    for wrong in ({"y": FakeGpuTensor(64, device=1)}, {"n": True}, {"n": 2**31}, {"B": True}, {"y": 5}):
        assert key(one, **{"y": one, "n": 7, "B": 4, **wrong}) is None
    assert key(one, other, y=one, n=7, B=4) is None, "y is a keyword of this form"
    assert key(one, y=one, n=7, B=4, more=1) is None
    alone, only = (
        key_of(form(*arguments, keywords=("y", "n", "B"), one_device=True), NAMES),
        FakeGpuTensor(64, device=0),
    )
    assert alone(only, y=only, n=7, B=4) == ("fp32", "fp32", False, 4, 0)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"kt_run": "another"}, {}),
        ({"kt_profiler": SimpleNamespace(_is_profiler_enabled=True)}, {}),
        ({"kt_entering": [1]}, {}),
        ({"kt_leaving": [1]}, {}),
        ({"kt_running": [1]}, {}),
        ({}, {"settings": "True"}),
        ({"kt_globals_kept": lambda jit: False, "kt_jit": None}, {"globals": True}),
    ],
)
def test_an_unusual_call_has_no_key(names: dict[str, Any], words: dict[str, Any]) -> None:
    assert key_of(form(argument("n", 7, variable="kt_0"), **words), {**NAMES, **names})(7) is None


@pytest.mark.parametrize(
    ("grid", "launched"),
    [
        ((4,), (4, 1, 1)),
        ((4, 5), (4, 5, 1)),
        ([1, 2, 3], (1, 2, 3)),
        (lambda meta: (meta["n"], meta["last"]), (7, 9, 1)),
    ],
)
@pytest.mark.parametrize("direct", [False, True])
def test_a_known_call_is_launched(grid: Any, launched: Any, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Triton's kernel, or by its C launcher with scratch memory of all blocks; an entry that isn't valid any more
    is dropped, with all others."""
    did: list[Any] = []
    monkeypatch.setattr(launcher, "direct_call", lambda: "kt_launch(kt_x, kt_y, kt_z, kt_scratch, {arguments})")
    kernel = SimpleNamespace(run=lambda *given: did.append(("run", *given)))
    launch = (lambda *given: did.append(("direct", *given))) if direct else None
    config, choice = object(), "choice"
    known = (kernel, config, choice, "slot", {"last": 9}, "function", "packed")
    entry = (*known, launch, 0, 0, "annotations", "types", 24, 16, None)
    table: dict[Any, Any] = {}
    tuner = SimpleNamespace(configs=[config, None], cache={choice: config}, fn="fn")
    missed: list[Any] = []
    names = {
        **NAMES, "kt_table": table, "kt_tuner": tuner, "kt_fn": "fn", "kt_no_cache": ({},),
        "kt_jit": SimpleNamespace(device_caches={3: ({"slot": kernel},)}),
        "kt_current_stream": lambda device: 70 + device,
        "kt_allocator": SimpleNamespace(get=lambda: lambda *given: ("scratch", *given)),
        "kt_miss": lambda *given: missed.append(given),
    }  # fmt: skip
    made = form(argument("n", 7, variable="kt_0"), argument("B", 4, True), ABSENT, keywords=("B",))
    prepared = codegen.make(codegen.launch_text(made), "kt_prepared", names)
    absent = (names["kt_absent"],) * 2
    prepared(grid, 7, B=4)
    assert (did, missed) == ([], [(grid, (7, *absent), {"B": 4})])
    missed.clear()
    table[key_of(made, names)(7, B=4)] = entry
    assert prepared(grid, 7, B=4) is kernel
    x, y, z = launched
    if direct:
        assert did == [("direct", x, y, z, ("scratch", x * y * z * 24, 16, 73), 7, None, 9)]
    else:
        assert did == [("run", x, y, z, 73, "function", "packed", None, None, None, 7, 4, 9)]
    assert (tuner.best_config, missed) == (config, [])
    tuner.cache.clear()
    prepared(grid, 7, B=4)
    assert (len(did), table, missed) == (1, {}, [(grid, (7, *absent), {"B": 4})])


@pytest.mark.parametrize(
    ("single", "staged", "changed"),
    [(single, staged, changed) for single in (False, True) for staged in (False, True)
     for changed in ("nothing", "fn", "configs", "cache", "binary")],
)  # fmt: skip
def test_an_entry_is_valid_while_the_long_way_would_give_it(single: bool, staged: bool, changed: str) -> None:
    config = object()
    configs = [config] if single else [config, object()]
    others = {True: [config, config], False: [config]}[single] if changed == "configs" else configs
    names = {
        "kt_config": config, "kt_choice": "choice", "kt_fn": "fn", "kt_device": 0, "kt_slot": "slot",
        "kt_kernel": "kernel", "kt_no_cache": ({},),
        "kt_tuner": SimpleNamespace(configs=others, fn="other" if changed == "fn" else "fn",
                                    cache={} if changed == "cache" else {"choice": config}),
        "kt_jit": SimpleNamespace(device_caches={} if changed == "binary" else {0: ({"slot": "kernel"},)}),
    }  # fmt: skip
    valid = eval(codegen._still_valid(form(single=single, staged=staged)), names)
    harmless = {"nothing"} | ({"cache"} if single else set()) | ({"binary"} if staged else set())
    assert bool(valid) is (changed in harmless)
    if single and changed == "nothing":
        names["kt_tuner"].configs[0] = object()
        assert not eval(codegen._still_valid(form(single=True, staged=staged)), names)


def test_a_staged_launch_gets_what_the_call_gave() -> None:
    made = form(argument("n", 7, variable="kt_0"), argument("B", 4, True), positional=1, keywords=("B",), staged=True)
    assert codegen._staged_launch(made) == ["return kt_stage.launch(kt_grid, (kt_0, ), {'B': B, })"]


@pytest.mark.parametrize(
    ("names", "kinds", "known"),
    [(["x", "n"], "POSITIONAL_OR_KEYWORD KEYWORD_ONLY", True), (["x", "kt_n"], "POSITIONAL_OR_KEYWORD", False),
     (["debug"], "POSITIONAL_OR_KEYWORD", False), (["instrumentation_mode"], "KEYWORD_ONLY", False),
     (["x"], "VAR_POSITIONAL", False), (["x"], "POSITIONAL_OR_KEYWORD VAR_KEYWORD", False)],
)  # fmt: skip
def test_for_which_kernels_a_form_can_be_written(names: list[str], kinds: str, known: bool) -> None:
    import inspect

    parameters = {kind: SimpleNamespace(kind=getattr(inspect.Parameter, kind)) for kind in kinds.split()}
    params = [param(name) for name in names]
    jit = SimpleNamespace(signature=SimpleNamespace(parameters=parameters), params=params)
    assert codegen.parameters_of(jit) == (tuple(params) if known else None)
